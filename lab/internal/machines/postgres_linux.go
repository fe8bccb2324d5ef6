package machines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/internal/pgserver"
)

// Names on every server.
const (
	superuser = "postgres"
	database  = "postgres"
	port5432  = "5432"
)

// patience bounds each wait for a server: to start, which recovers what a crash has left, to end, to follow.
const patience = time.Minute

// settings are those of all servers. They find out within seconds that the other side is gone, and take little room.
const settings = `
wal_level = replica
fsync = on
full_page_writes = on
synchronous_commit = on
hot_standby = on
shared_buffers = 16MB
max_connections = 300
min_wal_size = 8MB
max_wal_size = 64MB
wal_keep_size = 32MB
wal_sender_timeout = 5s
wal_receiver_timeout = 5s
wal_receiver_status_interval = 1s
wal_retrieve_retry_interval = 100ms
tcp_user_timeout = 5s
dynamic_shared_memory_type = mmap   # what a killed server leaves is in its own files
unix_socket_directories = ''
logging_collector = off
restart_after_crash = on
`

// access lets everybody on the network of the machines in.
const access = "host all all samenet trust\nhost replication all samenet trust\n"

// home is where PostgreSQL is installed, and whom it runs as.
type home struct {
	pgserver.Home
	as *syscall.Credential
}

// findHome finds both.
func findHome() (home, error) {
	h, err := pgserver.Find()
	if err != nil {
		return home{}, err
	}
	as, err := pgserver.User()

	return home{h, as}, err
}

// command is one of the binaries.
func (h home) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return h.Command(ctx, h.as, name, args...)
}

// mkdir makes an empty directory that a server may use as its own.
func (h home) mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}

	return os.Chown(dir, int(h.as.Uid), int(h.as.Gid))
}

// reduce is what a new server is told once. Without the databases that others are made from it is a third in size,
// which counts for machines that are made, copied and lost again and again.
const reduce = `UPDATE pg_database SET datistemplate = false;
DROP DATABASE template0;
DROP DATABASE template1;
`

// initialize makes the files of a new server, which are copied to the machines and so need no sync.
func (h home) initialize(ctx context.Context, data string) (err error) {
	if err := h.mkdir(data); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(data))
		}
	}()
	var host *namespace
	err = host.run(h.command(ctx, "initdb", "-D", data, "-U", superuser, "-A", "trust", "-E", "UTF8", "--locale=C",
		"--wal-segsize=1", "--no-sync"))
	if err != nil {
		return err
	}
	single := h.command(ctx, "postgres", "--single", "-D", data, "-F", database)
	single.Stdin = strings.NewReader(reduce)
	if err = host.run(single); err != nil {
		return err
	}

	return errors.Join(appendTo(filepath.Join(data, "postgresql.conf"), settings),
		appendTo(filepath.Join(data, "pg_hba.conf"), access))
}

// template makes the files of a new server in dir, unless they are there, and returns where they are.
func (h home) template(ctx context.Context, dir string) (string, error) {
	making.Lock()
	defer making.Unlock()
	name := filepath.Join(dir, "template")
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}

	return name, h.initialize(ctx, name)
}

var making sync.Mutex // of templates

func appendTo(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)

	return errors.Join(err, f.Close())
}

// server is a server that runs, or another program that goes on.
type server struct {
	process *child.Process
	log     string        // a file
	ended   chan struct{} // closed when it has ended
	err     error         // why, from then on
}

// startServer starts a server in the namespace.
func startServer(n *namespace, h home, data, address, log string) (*server, error) {
	return startProgram(n, h.command(context.Background(), "postgres", "-D", data, "-c", "listen_addresses="+address), log)
}

// startProgram starts a program in the namespace that goes on until it is killed.
func startProgram(n *namespace, cmd *exec.Cmd, log string, before ...func() error) (*server, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the program has its own
	cmd.Stderr = f
	process, err := n.start(cmd, before...)
	if err != nil {
		return nil, err
	}

	go func() { _, _ = io.Copy(io.Discard, process.Out) }()
	s := &server{process: process, log: log, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		_, s.err = process.Wait()
		if s.err == nil {
			s.err = errors.New("it has ended")
		}
		s.err = fmt.Errorf("%w: %s", s.err, s.said())
	}()

	return s, nil
}

// said is the end of what the server has logged.
func (s *server) said() string {
	const shown = 1000

	if s == nil {
		return ""
	}
	text, _ := os.ReadFile(s.log)

	return strings.TrimSpace(string(text[max(0, len(text)-shown):]))
}

// running reports whether the server has not ended.
func (s *server) running() bool {
	if s == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// stop ends the server in order.
func (s *server) stop(ctx context.Context) error {
	_ = s.process.Signal(syscall.SIGINT) // sessions are ended, then a checkpoint is written
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isServer reports whether a process runs a binary of the server. One that is about to end runs none any more, but may
// have the server's shared memory still, and so is taken for one.
func (h home) isServer(pid int) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err != nil || exe == filepath.Join(h.Bin, "postgres")
}

// query returns the one value that a query has.
func query[T any](ctx context.Context, conn *pgx.Conn, sql string, args ...any) (value T, err error) {
	err = conn.QueryRow(ctx, sql, args...).Scan(&value)
	return value, err
}

// Until asks again and again whether something has come, as long as ctx allows.
func Until(ctx context.Context, what string, ok func() (bool, error)) error {
	const pause = 10 * time.Millisecond

	for {
		done, err := ok()
		if done {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, errors.Join(ctx.Err(), err))
		case <-time.After(pause):
		}
	}
}
