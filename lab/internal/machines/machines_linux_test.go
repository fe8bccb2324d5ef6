package machines

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/internal/rundir"
)

// childDir in the environment makes the test binary a child that has a lab there until it is killed.
const childDir = "HOLDFAST_MACHINES_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		l, err := New(context.Background(), Options{Dir: dir})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready", l.net.device(Host))
		select {}
	}
	var err error
	if template, err = os.MkdirTemp("", "holdfast-machines-template-"); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "4") // tests wait for servers most of the time
	code := m.Run()
	os.RemoveAll(template)
	os.Exit(code)
}

// template is where the files of all labs of these tests are made once.
var template string

// need skips a test of labs that cannot be made here.
func need(t *testing.T, o Options) {
	t.Helper()
	if testing.Short() {
		t.Skip("short: it starts three servers")
	}
	if err := Check(o); err != nil {
		t.Skip("MACHINES ARE NOT TESTED: ", err)
	}
}

// newLab makes a lab with a table t on it. The test ends with a look for what was left.
func newLab(t *testing.T, o Options) *Lab {
	t.Helper()
	need(t, o)
	o.Dir, o.Template = t.TempDir(), template
	l, err := New(t.Context(), o)
	testkit.Try(t, err)
	t.Cleanup(func() {
		testkit.Try(t, l.Close())
		nothingLeft(t, o.Dir, l.net.device(Host))
	})
	do(t, l.Primary(), "CREATE TABLE t (n int PRIMARY KEY)")

	return l
}

// nothingLeft looks for files, mounts, processes and interfaces.
func nothingLeft(t *testing.T, dir, device string) {
	t.Helper()
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) > 0 {
		t.Errorf("left: %v", names)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	testkit.Try(t, err)
	if strings.Contains(string(mounts), dir) {
		t.Errorf("left mounts in %s", dir)
	}
	if pids := serversOn(dir); len(pids) > 0 {
		t.Errorf("left processes %v", pids)
	}
	if _, err := net.InterfaceByName(device); err == nil {
		t.Errorf("left interface %s", device)
	}
}

// serversOn returns the processes that were started with files in dir.
func serversOn(dir string) (pids []string) {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), dir+"/") {
			pids = append(pids, filepath.Base(filepath.Dir(name)))
		}
	}

	return pids
}

// connect connects to a machine's server from the machine itself, and keeps notices.
func connect(t *testing.T, m *Machine) (*pgx.Conn, *[]string) {
	t.Helper()
	var notices []string
	c := m.Config()
	c.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notices = append(notices, n.Code+" "+n.Message) }
	conn, err := pgx.ConnectConfig(t.Context(), c)
	testkit.Try(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })

	return conn, &notices
}

// do runs a statement on a machine.
func do(t *testing.T, m *Machine, sql string, args ...any) {
	t.Helper()
	testkit.Try(t, m.with(t.Context(), func(conn *pgx.Conn) error {
		_, err := conn.Exec(t.Context(), sql, args...)
		return err
	}))
}

// get asks a machine for one value.
func get[T any](t *testing.T, m *Machine, sql string, args ...any) (value T) {
	t.Helper()
	testkit.Try(t, m.with(t.Context(), func(conn *pgx.Conn) (err error) {
		value, err = query[T](t.Context(), conn, sql, args...)
		return err
	}))

	return value
}

// has reports whether a machine shows row n.
func has(t *testing.T, m *Machine, n int) bool {
	t.Helper()
	return get[bool](t, m, "SELECT EXISTS (SELECT FROM t WHERE n = $1)", n)
}

// TestNetwork sends a packet on every way while some are cut, and another one after healing. Packets do not overtake
// each other: where the second comes without the first, the first was lost.
func TestNetwork(t *testing.T) {
	need(t, Options{Plain: true})
	n, err := newNetwork(t.Context())
	testkit.Try(t, err)
	defer n.close()
	other, err := newNetwork(t.Context()) // beside it
	testkit.Try(t, err)
	defer other.close()
	sockets := map[Name]net.PacketConn{}
	for _, name := range places() {
		sockets[name], err = onThread(func() (net.PacketConn, error) {
			if err := n.spaces[name].enter(); err != nil {
				return nil, err
			}

			return net.ListenPacket("udp4", n.address(name).String()+":7")
		})
		testkit.Try(t, err)
		defer sockets[name].Close()
	}
	l := &Lab{net: n}

	sendAll := func(text string) {
		for _, from := range places() {
			for _, to := range places() {
				if from != to {
					address, err := net.ResolveUDPAddr("udp4", n.address(to).String()+":7")
					testkit.Try(t, err)
					_, err = sockets[from].WriteTo([]byte(text), address)
					testkit.Try(t, err)
				}
			}
		}
	}
	// The kernel takes a moment until interfaces that were just made carry packets.
	carries := map[link]bool{}
	testkit.Until(t, "all ways carry packets", func() bool {
		sendAll("ready")
		for _, to := range places() {
			testkit.Try(t, sockets[to].SetReadDeadline(time.Now().Add(10*time.Millisecond)))
			for {
				_, from, err := sockets[to].ReadFrom(make([]byte, 10))
				if err != nil {
					break
				}
				carries[link{n.place(from), to}] = true
			}
		}
		return len(carries) == len(places())*(len(places())-1)
	})

	// arrived receives until the last packet has come from all, and returns the ways of the first that came.
	arrived := func() map[link]bool {
		came := map[link]bool{}
		for _, to := range places() {
			testkit.Try(t, sockets[to].SetReadDeadline(time.Now().Add(time.Minute)))
			for last := 0; last < len(places())-1; {
				buf := make([]byte, 10)
				size, from, err := sockets[to].ReadFrom(buf)
				testkit.Try(t, err)
				switch string(buf[:size]) {
				case "last":
					last++
				case "first":
					came[link{n.place(from), to}] = true
				}
			}
		}

		return came
	}

	ctx := t.Context()
	for _, c := range []struct {
		name string
		cut  func() error
		lost func(from, to Name) bool
	}{
		{"whole", func() error { return nil }, func(_, _ Name) bool { return false }},
		{"one way", func() error { return l.Cut(ctx, A, B) }, func(from, to Name) bool { return from == A && to == B }},
		{"isolated", func() error { return l.Isolate(ctx, C) },
			func(from, to Name) bool { return from == C || to == C }},
		{"in two", func() error { return l.Partition(ctx, []Name{A, Host}, []Name{B, C}) },
			func(from, to Name) bool { return (from == A || from == Host) != (to == A || to == Host) }},
		{"two groups, the host in none", func() error { return l.Partition(ctx, []Name{A}, []Name{B, C}) },
			func(from, to Name) bool { return from != Host && to != Host && (from == A) != (to == A) }},
		{"without power", func() error { return n.change(ctx, func() { n.off[B] = true }) },
			func(from, to Name) bool { return from == B || to == B }},
	} {
		testkit.Try(t, c.cut())
		sendAll("first")
		testkit.Try(t, l.Heal(ctx))
		testkit.Try(t, n.change(ctx, func() { clear(n.off) }))
		sendAll("last")
		came := arrived()
		for _, from := range places() {
			for _, to := range places() {
				if from != to && came[link{from, to}] == c.lost(from, to) {
					t.Errorf("%s: from %s to %s came: %v", c.name, from, to, came[link{from, to}])
				}
			}
		}
	}

	if err := l.Cut(ctx, A, "d"); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("cut off from a place that there is not: %v", err)
	}
	if err := l.PowerOff(ctx, blockdev.Nothing(), Host); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("power of the host: %v", err)
	}
}

// place is whose address it is.
func (n *network) place(a net.Addr) Name {
	for _, name := range places() {
		if a.(*net.UDPAddr).AddrPort().Addr() == n.address(name) {
			return name
		}
	}
	return ""
}

// TestMachine does to machines what can be done to one, and looks for the effect.
func TestMachine(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	ctx := t.Context()
	a, b, c := l.Machine(A), l.Machine(B), l.Machine(C)

	t.Run("program", func(t *testing.T) {
		path, err := findIP()
		testkit.Try(t, err)
		p, err := b.StartProgram(exec.Command(path, "addr", "show", "eth0"))
		testkit.Try(t, err)
		said, err := io.ReadAll(p.Out)
		testkit.Try(t, err)
		if _, err := p.Wait(); err != nil || !strings.Contains(string(said), b.Address()+"/") {
			t.Errorf("%s, %v", said, err)
		}
	})

	t.Run("stop and kill", func(t *testing.T) {
		for n, end := range []func() error{func() error { return a.Stop(ctx) }, a.Kill} {
			do(t, a, "INSERT INTO t VALUES ($1)", n)
			testkit.Try(t, end())
			if _, err := a.Connect(ctx); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%d: connected to a server that has ended: %v", n, err)
			}
			if pids, err := a.space().processes(); len(pids) > 0 || err != nil {
				t.Errorf("%d: processes %v, %v", n, pids, err)
			}
			if recovers := written(t, a) == "in production"; recovers != (n == 1) {
				t.Errorf("%d: a server that was %s", n, written(t, a))
			}
			testkit.Try(t, a.Start(ctx))
			if !has(t, a, n) {
				t.Errorf("%d: the row is gone", n)
			}
		}
	})

	t.Run("pause", func(t *testing.T) {
		conn, _ := connect(t, a)
		testkit.Try(t, a.Pause())
		pids, err := a.space().processes()
		testkit.Try(t, err)
		for _, pid := range pids {
			if s := state(pid); s != "T" {
				t.Errorf("process %d is in state %s", pid, s)
			}
		}
		answered := make(chan error)
		go func() { answered <- conn.Ping(ctx) }()
		testkit.Try(t, a.Continue())
		testkit.Try(t, <-answered)
	})

	t.Run("power", func(t *testing.T) {
		program, err := b.StartProgram(exec.Command("sleep", "1000"))
		testkit.Try(t, err)
		do(t, a, "INSERT INTO t VALUES (10)")
		for _, m := range l.machines {
			testkit.Try(t, os.WriteFile(filepath.Join(m.Dir(), "file"), []byte("not flushed"), 0o600))
		}
		testkit.Try(t, l.PowerOff(ctx, blockdev.Nothing(), A, B, C))
		if _, err := program.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("the program on a machine without power: %v", err)
		}
		if err := a.Start(ctx); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("started without power: %v", err)
		}
		testkit.Try(t, c.PowerOn(ctx))
		if _, err := l.Failover(ctx, Longest); !errors.Is(err, holdfast.ErrUnavailable) || l.Primary() != a {
			t.Errorf("promoted without b, which may have more: %v, %s", err, l.Primary().Name())
		}
		testkit.Try(t, c.follow(ctx, a)) // it may have been told not to
		testkit.Try(t, l.each(func(m *Machine) error { return errors.Join(m.PowerOn(ctx), m.Start(ctx)) }))
		for _, m := range l.machines {
			if text, _ := os.ReadFile(filepath.Join(m.Dir(), "file")); string(text) == "not flushed" {
				t.Errorf("%s kept what was not flushed", m.Name())
			}
		}
		testkit.Try(t, errors.Join(l.follows(ctx, a, B), l.follows(ctx, a, C)))
		if !has(t, a, 10) {
			t.Error("the row is gone")
		}
		do(t, a, "INSERT INTO t VALUES (11)")
	})

	t.Run("disk", func(t *testing.T) {
		testkit.Try(t, c.Lose(ctx))
		testkit.Try(t, c.PowerOn(ctx))
		if err := c.Start(ctx); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("started without files: %v", err)
		}
		testkit.Try(t, l.Rejoin(ctx, C))
		if !has(t, c, 11) {
			t.Error("the row is not on the new standby")
		}
		if err := l.Rejoin(ctx, A); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("the primary rejoined: %v", err)
		}
	})
}

// written is the state that the files of a server say it is in.
func written(t *testing.T, m *Machine) string {
	t.Helper()
	cmd := m.lab.home.command(t.Context(), "pg_controldata", "-D", m.data())
	out, err := cmd.Output()
	testkit.Try(t, err)
	_, rest, _ := strings.Cut(string(out), "Database cluster state:")
	line, _, _ := strings.Cut(rest, "\n")

	return strings.TrimSpace(line)
}

// TestEnding: a process that is about to end may keep a server from starting, and so is waited for.
func TestEnding(t *testing.T) {
	need(t, Options{Plain: true})
	h, err := findHome()
	testkit.Try(t, err)
	cmd := exec.Command("true")
	testkit.Try(t, cmd.Start())
	defer cmd.Wait()
	testkit.Until(t, "ended", func() bool { return state(cmd.Process.Pid) == "Z" })
	if !h.isServer(cmd.Process.Pid) || h.isServer(os.Getpid()) {
		t.Error("it is not taken for a server, or this process is")
	}
}

// TestFailover promotes the right one, and the wrong one.
func TestFailover(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{Plain: true})
	ctx := t.Context()

	// lastRow makes a row that, of the two standbys, only one has, and isolates the primary.
	lastRow := func(n int, only, without Name) {
		t.Helper()
		p := l.Primary()
		testkit.Try(t, l.Partition(ctx, []Name{p.Name()}, []Name{without}))
		do(t, p, "INSERT INTO t VALUES ($1)", n) // returns when one standby has it: the only one that can
		testkit.Try(t, l.Isolate(ctx, p.Name()))
	}
	rejoin := func(old Name) {
		t.Helper()
		testkit.Try(t, l.Heal(ctx))
		testkit.Try(t, l.Rejoin(ctx, old))
	}
	host := func() string { // the primary that a client of the host finds
		t.Helper()
		conn, err := pgx.Connect(ctx, l.URL())
		testkit.Try(t, err)
		defer conn.Close(ctx)

		return conn.PgConn().Conn().RemoteAddr().(*net.TCPAddr).IP.String()
	}

	if at := host(); at != l.Machine(A).Address() {
		t.Errorf("a client found the primary at %s", at)
	}
	lastRow(1, C, B)
	testkit.Try(t, l.Machine(C).Kill())
	p, err := l.Failover(ctx, Longest) // which starts it
	testkit.Try(t, err)
	if p.Name() != C || !has(t, p, 1) {
		t.Errorf("promoted %s, without the row", p.Name())
	}
	rejoin(A)
	if at := host(); at != p.Address() {
		t.Errorf("a client found the primary at %s", at)
	}
	if names := get[string](t, p, "SHOW synchronous_standby_names"); names != "ANY 1 (a, b)" {
		t.Errorf("the new primary has the standbys %s", names)
	}
	do(t, p, "INSERT INTO t VALUES (2)")

	lastRow(3, A, B)
	p, err = l.Failover(ctx, Shortest)
	testkit.Try(t, err)
	if p.Name() != B || !has(t, p, 2) || has(t, p, 3) {
		t.Errorf("the control promoted %s, which has row 3: %v", p.Name(), has(t, p, 3))
	}
	rejoin(C)
	do(t, p, "INSERT INTO t VALUES (4)")
}

// TestKilled kills a process that has a lab: its processes end and its interface goes by themselves, and the next lab
// removes the rest.
func TestKilled(t *testing.T) {
	need(t, Options{})
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	process, err := child.StartProgram(cmd)
	testkit.Try(t, err)
	line, _ := bufio.NewReader(process.Out).ReadString('\n')
	var device string
	if _, err := fmt.Sscanf(line, "ready %s", &device); err != nil {
		t.Fatalf("the child says %q", line)
	}
	process.Kill()
	testkit.Until(t, "cleaned up", func() bool {
		rundir.CleanUp(dir, dirs)
		names, _ := filepath.Glob(filepath.Join(dir, "*"))
		return len(names) == 0
	})
	_, _ = process.Wait() // it could not end before it was cleaned, perhaps
	testkit.Until(t, "ended", func() bool { return len(serversOn(dir)) == 0 })
	testkit.Until(t, "disconnected", func() bool { _, err := net.InterfaceByName(device); return err != nil })
	nothingLeft(t, dir, device)
}

// TestCancel ends contexts at several moments of the making.
func TestCancel(t *testing.T) {
	need(t, Options{})
	for _, after := range []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond} {
		dir := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), after)
		defer cancel()
		l, err := New(ctx, Options{Dir: dir, Template: template})
		if err == nil { // a fast machine: its end closes it
			<-ctx.Done()
			testkit.Try(t, l.Close())
		} else if ctx.Err() == nil {
			t.Errorf("after %v: %v", after, err)
		}
		nothingLeft(t, dir, "none")
	}
}
