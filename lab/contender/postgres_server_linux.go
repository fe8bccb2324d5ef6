package contender

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/child"
)

// postgresHome is where Postgres is installed: the directory of its binaries, and its version.
type postgresHome struct{ bin, version string }

// findPostgres looks where Debian puts it, then asks pg_config, then looks at the path.
var findPostgres = sync.OnceValues(func() (postgresHome, error) {
	newest, bin := 0, ""
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for _, dir := range dirs {
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(dir))); err == nil && n > newest && holdsPostgres(dir) {
			newest, bin = n, dir
		}
	}
	if bin == "" {
		if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
			if dir := strings.TrimSpace(string(out)); holdsPostgres(dir) {
				bin = dir
			}
		}
	}
	if bin == "" {
		if path, err := exec.LookPath("initdb"); err == nil && holdsPostgres(filepath.Dir(path)) {
			bin = filepath.Dir(path)
		}
	}
	if bin == "" {
		return postgresHome{}, errors.New("the binaries of Postgres are not installed here; Debian's package is postgresql")
	}
	out, err := exec.Command(filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return postgresHome{}, fmt.Errorf("%s --version: %w", filepath.Join(bin, "postgres"), err)
	}
	version := strings.Fields(strings.TrimPrefix(string(out), "postgres (PostgreSQL) "))

	return postgresHome{bin, "PostgreSQL " + strings.Join(version[:min(1, len(version))], "")}, nil
})

// holdsPostgres reports whether dir has the binaries. A package of clients alone has not.
func holdsPostgres(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}

	return true
}

// postgresUser is whom the server runs as: nil as this process does. Postgres refuses root.
func postgresUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, fmt.Errorf("the server does not run as root, and there is no user postgres or nobody: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}

	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// command is one of the binaries, as that user. The user may enter the directories above the data, which are
// often for root alone.
func (h postgresHome) command(as *syscall.Credential, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(h.bin, name), args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + h.bin + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if as != nil {
		cmd.SysProcAttr.Credential = as
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_DAC_OVERRIDE}
	}

	return cmd
}

// makePostgres makes the files of a new server in data.
func makePostgres(h postgresHome, as *syscall.Credential, data string) error {
	if err := os.RemoveAll(data); err != nil { // what an interrupted making has left
		return err
	}
	if PostgresTemplate == "" {
		return initPostgres(h, as, data)
	}
	template := filepath.Join(PostgresTemplate, "data")
	makeTemplate.Do(func() {
		if _, err := os.Stat(template); err != nil { // another process of the tests may have made it
			templateErr = initPostgres(h, as, template)
		}
	})
	if templateErr != nil {
		return templateErr
	}
	if out, err := exec.Command("cp", "-a", template, data).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, lastLine(string(out)))
	}
	if out, err := h.command(as, "initdb", "--sync-only", "-D", data).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb --sync-only: %w: %s", err, lastLine(string(out)))
	}

	return nil
}

// Of PostgresTemplate.
var (
	makeTemplate sync.Once
	templateErr  error
)

func initPostgres(h postgresHome, as *syscall.Credential, data string) error {
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if as != nil {
		if err := os.Chown(data, int(as.Uid), int(as.Gid)); err != nil {
			return err
		}
	}
	args := []string{"-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"}
	if out, err := h.command(as, "initdb", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastLine(string(out)))
	}

	return nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// postgresServer is a server that runs. It ends with this process.
type postgresServer struct {
	process *child.Process
	dialing sync.RWMutex  // keeps data open for those who dial: pgx does so in goroutines of its own
	data    *os.File      // its directory, for the path to its socket
	ended   chan struct{} // closed when it has ended
	err     error         // why, from then on
}

const postgresSocket = ".s.PGSQL.5432"

// startPostgres starts a server on data with these settings. Its only socket lies in data: a path to it through
// /proc/self/fd is always short enough, and a server that is killed leaves nothing elsewhere.
func startPostgres(h postgresHome, as *syscall.Credential, data string, settings []holdfast.Setting) (
	*postgresServer, error) {
	args := []string{"-D", data, "-c", "listen_addresses=", "-c", "unix_socket_directories=.",
		"-c", "unix_socket_permissions=0700", "-c", "logging_collector=off"}
	for _, s := range settings {
		args = append(args, "-c", s.Name+"="+s.Value)
	}
	dir, err := os.Open(data)
	if err != nil {
		return nil, err
	}
	process, err := child.StartProgram(h.command(as, "postgres", args...))
	if err != nil {
		dir.Close()
		return nil, err
	}

	s := &postgresServer{process: process, data: dir, ended: make(chan struct{})}
	go func() {
		_, s.err = process.Wait()
		if s.err == nil {
			s.err = errors.New("the server has ended")
		}
		close(s.ended)
	}()

	return s, nil
}

// dial connects to the server.
func (s *postgresServer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.dialing.RLock()
	defer s.dialing.RUnlock()
	path := fmt.Sprintf("/proc/self/fd/%d/%s", s.data.Fd(), postgresSocket)

	return new(net.Dialer).DialContext(ctx, "unix", path)
}

// stop ends the server: all that it has committed is on the disk then. It is called once.
func (s *postgresServer) stop() error {
	defer s.forget()

	_ = s.process.Signal(syscall.SIGINT) // fast shutdown: sessions are ended, then a checkpoint is written
	select {
	case <-s.ended:
	case <-time.After(postgresPatience):
		s.process.Kill()
		<-s.ended

		return fmt.Errorf("it did not end within %v, and was killed", postgresPatience)
	}

	return nil
}

// kill ends the server at once, as a crash does, and returns when its processes are gone.
func (s *postgresServer) kill() {
	s.process.Kill()
	<-s.ended
	s.forget()
}

// forget makes dial fail from now on.
func (s *postgresServer) forget() {
	s.dialing.Lock()
	defer s.dialing.Unlock()
	s.data.Close()
}

// openPostgresServer starts a server on the files in data, which it makes first if fresh.
func openPostgresServer(data string, fresh bool, settings []holdfast.Setting) (*postgresServer, error) {
	h, err := findPostgres()
	if err != nil {
		return nil, err
	}
	as, err := postgresUser()
	if err != nil {
		return nil, err
	}
	if fresh {
		if err := makePostgres(h, as, data); err != nil {
			return nil, err
		}
	} else if as != nil { // it may be a copy that root has made
		if err := os.Chown(data, int(as.Uid), int(as.Gid)); err != nil {
			return nil, err
		}
	}

	return startPostgres(h, as, data, settings)
}
