package postgres

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
)

// variable tells the children of a test where its server's socket is.
const variable = "HOLDFAST_TEST_POSTGRES"

func TestMain(m *testing.M) {
	if os.Getenv(variable) != "" {
		os.Exit(m.Run())
	}
	status, err := withServer(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "no server of PostgreSQL for the tests: ", err)
		status = 1
	}
	os.Exit(status)
}

// withServer calls f while a server runs.
func withServer(f func() int) (status int, err error) {
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(bins) == 0 {
		return 1, fmt.Errorf("Debian's package postgresql is not installed")
	}
	bin := bins[len(bins)-1]
	dir, err := os.MkdirTemp("", "holdfast-pg-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT}
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return 1, err
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			return 1, err
		}
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.SysProcAttr, cmd.Dir, cmd.Env = attr, "/", []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := command("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("initdb: %w: %s", err, out)
	}
	cmd := command("postgres", "-D", data, "-c", "listen_addresses=", "-c", "unix_socket_directories="+dir, "-c",
		"max_connections=300", "-c", "shared_buffers=256MB")
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
	}()
	os.Setenv(variable, dir)
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, err := pgx.Connect(context.Background(), base())
		if err == nil {
			_ = conn.Close(context.Background())
			break
		}
		if time.Now().After(end) {
			return 1, fmt.Errorf("%w: %s", err, log.String())
		}
	}

	return f(), nil
}

func base() string { return "postgres://postgres@/postgres?host=" + os.Getenv(variable) }

// openAt opens the space that stands for a directory.
func openAt(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return Open(fmt.Sprintf("%s&space=%x", base(), sha256.Sum256([]byte(dir)))[:len(base())+len("&space=")+32], o)
}
