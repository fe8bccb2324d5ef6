// Package pgserver starts servers of PostgreSQL from what is installed on this machine, for tests and comparisons. It
// contacts nothing else, and knows no client: whoever starts a server connects to it with a library of his own.
//
//	server, err := pgserver.Open(filepath.Join(dir, "data"), pgserver.Config{New: true})
//	err = server.Ready(ctx)
//	conn, err := net.Dial("unix", filepath.Join(dir, "data", pgserver.Socket))
//	err = server.Stop()
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfastdb/holdfast/internal/child"
)

// Home is where PostgreSQL is installed.
type Home struct {
	Bin     string // the directory of its binaries
	Version string // as "PostgreSQL 15.18"
}

// Find looks where Debian puts it, then asks pg_config, then looks at the path.
var Find = sync.OnceValues(func() (Home, error) {
	newest, bin := 0, ""
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for _, dir := range dirs {
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(dir))); err == nil && n > newest && holds(dir) {
			newest, bin = n, dir
		}
	}
	if bin == "" {
		if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
			if dir := strings.TrimSpace(string(out)); holds(dir) {
				bin = dir
			}
		}
	}
	if bin == "" {
		if path, err := exec.LookPath("initdb"); err == nil && holds(filepath.Dir(path)) {
			bin = filepath.Dir(path)
		}
	}
	if bin == "" {
		return Home{}, errors.New("the binaries of Postgres are not installed here; Debian's package is postgresql")
	}
	out, err := exec.Command(filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return Home{}, fmt.Errorf("%s --version: %w", filepath.Join(bin, "postgres"), err)
	}
	version := strings.Fields(strings.TrimPrefix(string(out), "postgres (PostgreSQL) "))

	return Home{bin, "PostgreSQL " + strings.Join(version[:min(1, len(version))], "")}, nil
})

// holds reports whether dir has the binaries. A package of clients alone has not.
func holds(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}

	return true
}

// User is whom the server runs as: nil as this process does. Postgres refuses root.
func User() (*syscall.Credential, error) {
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

const capDACOverride = 1

// Command is one of the binaries, as that user. The user may enter the directories above the data, which are
// often for root alone. It is killed when ctx is done.
func (h Home) Command(ctx context.Context, as *syscall.Credential, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(h.Bin, name), args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + h.Bin + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if as != nil {
		cmd.SysProcAttr.Credential = as
		cmd.SysProcAttr.AmbientCaps = []uintptr{capDACOverride}
	}

	return cmd
}

// Config says how a server is opened.
type Config struct {
	New      bool   // its files are made first
	Template string // if it is not empty: a directory in which the files of new servers are made once, to be copied
	// Synchronous are the standbys of a new server that its commits wait for, as "ANY 1 (b, c)". It is kept in its files.
	Synchronous string
	Settings    []string // as "fsync=off", beyond those that the package makes
}

// makeFiles makes the files of a new server in data.
func makeFiles(h Home, as *syscall.Credential, data, template string) error {
	if err := os.RemoveAll(data); err != nil { // what an interrupted making has left
		return err
	}
	if template == "" {
		return initialize(h, as, data)
	}
	template = filepath.Join(template, "data")
	made, _ := templates.LoadOrStore(template, sync.OnceValue(func() error {
		if _, err := os.Stat(template); err == nil {
			return nil // another process of the tests has made it
		}

		return initialize(h, as, template, "--wal-segsize=1") // of 16 MiB each copy would have 15 more
	}))
	if err := made.(func() error)(); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-a", template, data).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, lastLine(string(out)))
	}
	if out, err := h.Command(context.Background(), as, "initdb", "--sync-only", "-D", data).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb --sync-only: %w: %s", err, lastLine(string(out)))
	}

	return nil
}

var templates sync.Map // of what makes each, once

func initialize(h Home, as *syscall.Credential, data string, more ...string) error {
	if err := makeDirectory(as, data); err != nil {
		return err
	}
	args := []string{"-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"}
	if out, err := h.Command(context.Background(), as, "initdb", append(args, more...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastLine(string(out)))
	}

	return nil
}

// makeDirectory makes a directory that is the server's user's.
func makeDirectory(as *syscall.Credential, dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err == nil && as != nil {
		err = os.Chown(dir, int(as.Uid), int(as.Gid))
	}

	return err
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// Server is a server that runs. It ends with this process.
type Server struct {
	process *child.Process
	dialing sync.RWMutex  // keeps data open for those who dial: clients do so in goroutines of their own
	data    *os.File      // its directory, for the path to its socket
	ended   chan struct{} // closed when it has ended
	err     error         // why, from then on
}

// Socket is the name of a server's only socket, in the directory of its files.
const Socket = ".s.PGSQL.5432"

// Patience bounds the start of a server, which recovers what a crash has left, and its end.
const Patience = 2 * time.Minute

// Open starts a server on the files in data; [Server.Ready] tells when it can be used. It listens on no address: a
// socket in data leaves nothing elsewhere when the server is killed.
func Open(data string, c Config) (*Server, error) {
	h, err := Find()
	if err != nil {
		return nil, err
	}
	as, err := User()
	if err != nil {
		return nil, err
	}
	if c.New {
		if err := makeFiles(h, as, data, c.Template); err != nil {
			return nil, err
		}
		if c.Synchronous != "" {
			if err := appendLine(filepath.Join(data, "postgresql.auto.conf"),
				"synchronous_standby_names = '"+c.Synchronous+"'\n"); err != nil {
				return nil, err
			}
		}
	} else if as != nil { // it may be a copy that root has made
		if err := os.Chown(data, int(as.Uid), int(as.Gid)); err != nil {
			return nil, err
		}
	}

	return start(h, as, data, c.Settings)
}

// appendLine writes a line to the end of a file.
func appendLine(name, line string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)

	return errors.Join(err, f.Close())
}

// OpenStandby starts a server that follows the one whose files are in the directory of beside data, over that one's
// socket. It is called what data is called. If c.New, its files are a copy of that server's, which must be ready.
func OpenStandby(ctx context.Context, data, of string, c Config) (*Server, error) {
	h, err := Find()
	if err != nil {
		return nil, err
	}
	as, err := User()
	if err != nil {
		return nil, err
	}
	if c.New {
		if err := copyFiles(ctx, h, as, data, of); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o644); err != nil {
		return nil, err
	}

	return start(h, as, data, append(slices.Clone(c.Settings), fmt.Sprintf(
		"primary_conninfo=host=/proc/self/cwd/../%s user=postgres application_name=%s", filepath.Base(of),
		filepath.Base(data)))) // a socket's path must be short
}

// copyFiles makes a copy in data of the files of the server whose are in of.
func copyFiles(ctx context.Context, h Home, as *syscall.Credential, data, of string) error {
	primary, err := os.Open(of)
	if err != nil {
		return err
	}
	defer primary.Close()
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	if err := makeDirectory(as, data); err != nil {
		return err
	}
	cmd := h.Command(ctx, as, "pg_basebackup", "-D", data, "-h", "/proc/self/fd/3", "-U", "postgres", "-X", "stream",
		"-c", "fast")
	cmd.ExtraFiles = []*os.File{primary}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, lastLine(string(out)))
	}

	return os.RemoveAll(filepath.Join(data, Socket+".lock"))
}

func start(h Home, as *syscall.Credential, data string, settings []string) (*Server, error) {
	args := []string{"-D", data, "-c", "listen_addresses=", "-c", "unix_socket_directories=.",
		"-c", "unix_socket_permissions=0700", "-c", "logging_collector=off"}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	dir, err := os.Open(data)
	if err != nil {
		return nil, err
	}
	process, err := child.StartProgram(h.Command(context.Background(), as, "postgres", args...))
	if err != nil {
		dir.Close()
		return nil, err
	}

	s := &Server{process: process, data: dir, ended: make(chan struct{})}
	go func() {
		_, s.err = process.Wait()
		if s.err == nil {
			s.err = errors.New("the server has ended")
		}
		close(s.ended)
	}()

	return s, nil
}

// Ready returns when the server accepts connections, as its file postmaster.pid says.
func (s *Server) Ready(ctx context.Context) error {
	return s.Await(ctx, func() error {
		text, err := os.ReadFile(filepath.Join(s.data.Name(), "postmaster.pid"))
		lines := append(strings.Split(string(text), "\n"), make([]string, 8)...)
		if err == nil && strings.TrimSpace(lines[7]) != "ready" {
			err = errors.New("it is not ready")
		}

		return err
	})
}

// Await calls f, which connects to the server, until it succeeds. The server first recovers what a crash has left.
func (s *Server) Await(ctx context.Context, f func() error) error {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()

	for {
		err := f()
		if err == nil {
			return nil
		}

		select {
		case <-again.C:
		case <-s.ended:
			return s.err
		case <-ctx.Done():
			return fmt.Errorf("the server takes no connections: %w", err)
		}
	}
}

// Dial connects to the server. The path to its socket is always short enough.
func (s *Server) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.dialing.RLock()
	defer s.dialing.RUnlock()
	path := fmt.Sprintf("/proc/self/fd/%d/%s", s.data.Fd(), Socket)

	return new(net.Dialer).DialContext(ctx, "unix", path)
}

// Stop ends the server: all that it has committed is on the disk then. It is called once.
func (s *Server) Stop() error {
	defer s.forget()

	_ = s.process.Signal(syscall.SIGINT) // fast shutdown: sessions are ended, then a checkpoint is written
	select {
	case <-s.ended:
	case <-time.After(Patience):
		s.process.Kill()
		<-s.ended

		return fmt.Errorf("it did not end within %v, and was killed", Patience)
	}

	return nil
}

// Kill ends the server at once, as a crash does, and returns when its processes are gone.
func (s *Server) Kill() {
	s.process.Kill()
	<-s.ended
	s.removeSegment()
	s.forget()
}

// removeSegment removes the segment of System V's shared memory that a killed server leaves, by which another one would
// have noticed it. A machine has few thousand of them, and none goes by itself. One that is in use stays until it is
// not.
func (s *Server) removeSegment() {
	text, err := os.ReadFile(filepath.Join(s.data.Name(), "postmaster.pid"))
	lines := strings.Split(string(text), "\n")
	if err != nil || len(lines) < 7 || lines[0] != strconv.Itoa(s.process.PID()) {
		return // it is of another server, which came after it
	}
	if fields := strings.Fields(lines[6]); len(fields) == 2 { // its key, and its number
		if id, err := strconv.Atoi(fields[1]); err == nil {
			_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
		}
	}
}

// forget makes Dial fail from now on.
func (s *Server) forget() {
	s.dialing.Lock()
	defer s.dialing.Unlock()
	s.data.Close()
}
