package postgres

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/pgserver"
)

// variable tells the children of a test where its server's socket is.
const variable = "HOLDFAST_TEST_POSTGRES"

// missing is why there is no server.
var missing error

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // what runs beside others waits most of the time
	status, err := 1, error(nil)
	if _, missing = pgserver.Find(); missing != nil || os.Getenv(variable) != "" {
		status = m.Run()
	} else {
		status, err = withServer(m.Run)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the server of the tests:", err)
		status = 1
	}
	os.Exit(status)
}

// needServer skips a test where no server can be started.
func needServer(t *testing.T) {
	t.Helper()
	if missing != nil {
		t.Skip(missing)
	}
}

// withServer calls f while a server runs.
func withServer(f func() int) (status int, err error) {
	dir, err := os.MkdirTemp("", "holdfast-postgres-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	data := filepath.Join(dir, "data")
	server, err := startServer(data)
	if err != nil {
		return 1, err
	}
	defer server.Kill()
	if err := os.Setenv(variable, data); err != nil {
		return 1, err
	}

	return f(), nil
}

// startServer starts one whose files are in data.
func startServer(data string, settings ...string) (*pgserver.Server, error) {
	if err := os.Chmod(filepath.Dir(data), 0o711); err != nil { // the server runs as another user
		return nil, err
	}
	_, err := os.Stat(data)
	server, err := pgserver.Open(data, pgserver.Config{New: err != nil,
		Settings: append([]string{"max_connections=200", "shared_buffers=64MB"}, settings...)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), pgserver.Patience)
	defer cancel()
	if err := server.Ready(ctx); err != nil {
		server.Kill()
		// Processes of a server that was killed a moment ago are still about to end.
		if strings.Contains(err.Error(), "shared memory block") || strings.Contains(err.Error(), "already exists") {
			return startServer(data, settings...)
		}

		return nil, err
	}

	return server, nil
}

// at is the address of a space of the server whose files are in data.
func at(data, space string) string {
	return fmt.Sprintf("postgres://postgres@/postgres?host=%s&space=%s", data, space)
}

// spaces are the spaces of tests.
var spaces struct {
	sync.Mutex
	of map[*testing.T]string
}

// spaceOf names the space of a test, which is another one when the test is run again.
func spaceOf(t *testing.T) string {
	spaces.Lock()
	defer spaces.Unlock()
	if spaces.of == nil {
		spaces.of = map[*testing.T]string{}
	}
	if spaces.of[t] == "" {
		spaces.of[t] = fmt.Sprintf("%s-%d", t.Name(), len(spaces.of))
	}

	return spaces.of[t]
}

// openAt opens the space that stands for a directory.
func openAt(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return Open(at(os.Getenv(variable), fmt.Sprintf("%x", sha256.Sum256([]byte(dir)))[:32]), o)
}
