package machines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/lab/blockdev"
)

// Machine is one of the three. All methods may be called concurrently.
type Machine struct {
	name Name
	lab  *Lab

	mu      sync.Mutex
	server  *server // nil before the first start, and if it is managed
	manager *server // nil if there is none
	power   power
	disk    *blockdev.Disk   // nil if the lab is plain, and without power
	record  *blockdev.Record // of the disk that lost its power, until the power comes back
	image   *blockdev.Image  // what it holds
	plain   string           // the directory, if the lab is plain
}

// power is whether a machine runs.
type power int

const (
	on   power = iota
	off        // its disk keeps what it has
	gone       // it has no disk any more
)

// Name returns its name.
func (m *Machine) Name() Name { return m.name }

// Address is where it is on the network, and HostPort where its server is.
func (m *Machine) Address() string { return m.lab.net.address(m.name).String() }

// HostPort is described with Address.
func (m *Machine) HostPort() string { return net.JoinHostPort(m.Address(), port5432) }

// Dir is the root of its disk, in which programs may make directories; it changes when the power comes back. This
// process must keep to what lab/blockdev asks of it.
func (m *Machine) Dir() string {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.dir()
}

// dir is Dir; the caller has m.mu.
func (m *Machine) dir() string {
	if m.disk != nil {
		return m.disk.Path()
	}

	return m.plain
}

// data is where the server's files are; the caller has m.mu.
func (m *Machine) data() string {
	if m.lab.manager != "" {
		return filepath.Join(m.dir(), "patroni", "postgresql") // it removes that at times
	}

	return filepath.Join(m.dir(), "postgresql")
}

// ServerLog is the file of what the machine's server says. It goes with the lab.
func (m *Machine) ServerLog() string { return m.log("postgresql") }

// log is the file of what a program on the machine says.
func (m *Machine) log(program string) string {
	return filepath.Join(m.lab.dir.Path, string(m.name)+"."+program+".log")
}

// space is its namespace.
func (m *Machine) space() *namespace { return m.lab.net.spaces[m.name] }

// Dial connects from the machine, to an address that is no name.
func (m *Machine) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return m.space().dial(ctx, network, address)
}

// Connect connects to the machine's server from the machine itself, which is possible however it is cut off. Notices
// are not kept: see [Machine.Config].
func (m *Machine) Connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.ConnectConfig(ctx, m.Config())
}

// Config is how [Machine.Connect] connects.
func (m *Machine) Config() *pgx.ConnConfig {
	c, err := pgx.ParseConfig("postgres://" + superuser + "@" + m.HostPort() + "/" + database + "?sslmode=disable")
	if err != nil {
		panic(err) // it is an address that this package has made
	}
	c.DialFunc = m.Dial

	return c
}

// StartProgram starts a program on the machine: it ends with it, and with this process. What this process is told by
// one after [Lab.PowerOff] or [Machine.Lose] was called, it cannot have heard.
func (m *Machine) StartProgram(cmd *exec.Cmd) (*child.Process, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.power != on {
		return nil, refused("start program", fmt.Sprintf("machine %s has no power", m.name), "call PowerOn first")
	}

	return m.space().start(cmd)
}

// StartChild starts a child of this process on the machine, by its command line, and hands it the request: see
// [child.Start] and [Machine.StartProgram].
func (m *Machine) StartChild(command []string, request any) (*child.Process, error) {
	line, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	p, err := m.StartProgram(exec.Command(command[0], command[1:]...))
	if err != nil {
		return nil, err
	}
	_, _ = p.Write(append(line, '\n')) // Wait notices a child that died already

	return p, nil
}

// Start starts the server on the files that it has, and returns when it takes connections.
func (m *Machine) Start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.start(ctx)
}

func (m *Machine) start(ctx context.Context) error {
	switch {
	case m.power != on:
		return refused("start server", fmt.Sprintf("machine %s has no power", m.name), "call PowerOn first")
	case m.server.running():
		return nil
	}
	if m.lab.manager != "" {
		return m.manage()
	}
	if _, err := os.Stat(filepath.Join(m.data(), "PG_VERSION")); err != nil {
		return refused("start server", fmt.Sprintf("machine %s has no files of a server", m.name), "call Rejoin")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := startServer(m.space(), m.lab.home, m.data(), m.Address(), m.log("postgresql"))
	if err != nil {
		return failure("start server", string(m.name), err)
	}
	m.server = s

	err = Until(ctx, "connect", func() (bool, error) {
		if !s.running() {
			return true, nil
		}
		conn, err := m.Connect(ctx)
		if err != nil {
			return false, err
		}

		return true, conn.Close(ctx)
	})
	if err == nil && !s.running() {
		err = s.err
	}
	if err != nil {
		return failure("start server", string(m.name), errors.Join(err, m.kill()))
	}

	return nil
}

// Stop ends the server in order. One that waits for a machine that cannot be reached is killed at last, and the error
// says so.
func (m *Machine) Stop(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.stop(ctx)
}

func (m *Machine) stop(ctx context.Context) error {
	if !m.server.running() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := m.server.stop(ctx); err != nil {
		return failure("stop server", string(m.name), errors.Join(err, m.kill()))
	}

	return nil
}

// Kill ends all processes of the server at once, by SIGKILL, and returns when they are gone.
func (m *Machine) Kill() error {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.kill()
}

func (m *Machine) kill() error {
	err := m.space().kill(m.lab.home.isServer)
	if m.server != nil && err == nil {
		<-m.server.ended
	}

	return err
}

// Pause stops everything on the machine where it is, as a hypervisor does, and Continue lets it go on.
func (m *Machine) Pause() error { return m.space().pause() }

// Continue is described with Pause.
func (m *Machine) Continue() error { return m.space().resume() }

// killAll ends everything on the machine; the caller has m.mu.
func (m *Machine) killAll() error {
	err := m.space().kill(func(int) bool { return true })
	for _, s := range []*server{m.server, m.manager} {
		if s != nil && err == nil {
			<-s.ended
		}
	}

	return err
}

// cutPower ends everything and keeps what the disk has then. The machine is off the network already.
func (m *Machine) cutPower(policy blockdev.Policy) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.power != on {
		return nil
	}
	if err := m.killAll(); err != nil {
		return err
	}
	record := m.disk.Freeze()
	err := errors.Join(record.Err(), m.disk.Close())
	m.disk, m.power = nil, off
	if err != nil {
		return errors.Join(err, record.Close())
	}
	m.record, m.image = record, record.Cut(blockdev.Position(record.Len()), policy)

	return nil
}

// Lose destroys the machine: its processes end, it is not on the network, and its disk is deleted. After PowerOn it has
// an empty one.
func (m *Machine) Lose(ctx context.Context) error {
	if err := m.lab.net.change(ctx, func() { m.lab.net.off[m.name] = true }); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(m.killAll(), m.closeDisk()); err != nil {
		return failure("lose machine", string(m.name), err)
	}
	m.power = gone
	if m.plain != "" {
		return os.RemoveAll(m.plain)
	}

	return nil
}

// PowerOn gives the machine its power back, with the disk that the cut has left, or an empty one. It does not start the
// server.
func (m *Machine) PowerOn(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.power == on {
		return nil
	}
	if err := m.newDisk(ctx); err != nil {
		return err
	}
	m.power = on

	return m.lab.net.change(ctx, func() { m.lab.net.off[m.name] = false })
}

// newDisk makes the disk from the image, or an empty one; the caller has m.mu.
func (m *Machine) newDisk(ctx context.Context) (err error) {
	if m.plain != "" {
		return os.MkdirAll(m.plain, 0o700)
	}

	// The lab ends what runs on the disk before it closes the disk; the context of a call must not.
	ctx = context.WithoutCancel(ctx)
	o := blockdev.Options{Dir: m.lab.dir.Path, Size: m.lab.diskSize}
	if m.image == nil {
		m.disk, err = blockdev.New(ctx, o)
	} else if m.disk, err = blockdev.Restore(ctx, o, m.image); err == nil {
		err = m.record.Close()
		m.record, m.image = nil, nil
	}

	return err
}

// closeDisk removes the disk; the caller has m.mu.
func (m *Machine) closeDisk() (err error) {
	if m.disk != nil {
		err = m.disk.Close()
		m.disk = nil
	}
	if m.record != nil {
		err = errors.Join(err, m.record.Close())
		m.record, m.image = nil, nil
	}

	return err
}

// sync makes what is on the disk durable.
func (m *Machine) sync() error {
	if m.plain != "" {
		return nil // it is not cut
	}
	fd, err := unix.Open(m.dir(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)

	return os.NewSyscallError("syncfs", unix.Syncfs(fd))
}

// role says what a server is told to be.
type role struct {
	standby  bool
	upstream string // whom it follows; empty: nobody
}

// assume writes a role into the files of a server that does not run; the caller has m.mu. Every server, standbys too,
// names the others as its synchronous standbys: one that is promoted must not commit alone for a moment.
func (m *Machine) assume(r role) error {
	text := "synchronous_standby_names = '" + standbyNames(m.name) + "'\n"
	if r.standby {
		// What has not been replayed is looked for at an upstream only when there is no more in the files.
		upstream := "host=127.0.0.1 port=1"
		if r.upstream != "" {
			upstream = "host=" + r.upstream
		}
		text += fmt.Sprintf("primary_conninfo = '%s user=%s application_name=%s connect_timeout=2 sslmode=disable'\n",
			upstream, superuser, m.name)
	}
	err := m.write("postgresql.auto.conf", text)
	if r.standby {
		return errors.Join(err, m.write("standby.signal", ""))
	}

	return err
}

// standbyNames is the setting synchronous_standby_names of a machine that is the primary.
func standbyNames(name Name) string {
	var list []string
	for _, other := range others(name) {
		list = append(list, string(other))
	}

	return "ANY 1 (" + strings.Join(list, ", ") + ")"
}

// write replaces a file of the server.
func (m *Machine) write(name, text string) error {
	name = filepath.Join(m.data(), name)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)

	return errors.Join(err, f.Chown(int(m.lab.home.as.Uid), int(m.lab.home.as.Gid)), f.Sync(), f.Close())
}
