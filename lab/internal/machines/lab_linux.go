package machines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/internal/rundir"
)

// Lab is three machines. All methods may be called concurrently, but for [Lab.Failover] and [Lab.Rejoin], of which one
// runs at a time.
type Lab struct {
	net      *network
	home     home
	dir      *rundir.Dir
	manager  string
	diskSize int64
	machines map[Name]*Machine

	promoting sync.Mutex
	primary   Name // guarded by promoting

	once sync.Once
	err  error
	stop func() bool
}

// dirs says how the directories of labs are made, and what killed processes left is removed.
var dirs = rundir.Options{Op: "machines", Prefix: DirPrefix, Undo: func(dir string) error {
	_, err := blockdev.CleanUp(dir)
	return err
}}

// CleanUp removes what killed processes have left of labs in dir, their Options.Dir.
func CleanUp(dir string) { rundir.CleanUp(dir, dirs) }

// Check returns nil if a lab can be made here, otherwise ErrUnavailable with what is missing.
func Check(o Options) error {
	if os.Geteuid() != 0 {
		return &holdfast.Error{Op: "machines", Class: holdfast.ErrUnavailable, Detail: "this user may not make namespaces",
			Remedy: "run as root"}
	}
	if _, err := findHome(); err != nil && !o.Bare {
		return failure("machines", "", err)
	}
	if _, err := findIP(); err != nil {
		return failure("machines", "", err)
	}
	if err := checkManager(o.Manager); err != nil {
		return err
	}
	if !o.Plain {
		if err := blockdev.Check(""); err != nil {
			return err
		}
	}

	// A namespace to try what the kernel has, and the container allows.
	n, err := newNamespace()
	if err != nil {
		return failure("machines", "make a namespace", err)
	}
	defer n.close()
	if err := n.ip(context.Background(), "link add x type bridge\nlink add y type veth peer name z\n"); err != nil {
		return failure("machines", "make a bridge", err)
	}

	return nil
}

// New makes a lab whose servers run: a is the primary, b and c follow it. It is closed when ctx is done. Without what
// it needs the error is ErrUnavailable.
func New(ctx context.Context, o Options) (_ *Lab, err error) {
	if err := Check(o); err != nil {
		return nil, err
	}
	l := &Lab{manager: o.Manager, diskSize: o.DiskSize, machines: map[Name]*Machine{}, primary: A}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.home, err = findHome(); err != nil && !o.Bare {
		return nil, err
	}
	if l.dir, err = rundir.Make(o.Dir, dirs); err != nil {
		return nil, err
	}
	if l.net, err = newNetwork(ctx); err != nil {
		return nil, failure("make network", "", err)
	}
	if l.manager != "" {
		if err = l.net.quicken(ctx); err != nil {
			return nil, failure("make network", "", err)
		}
	}
	template := "" // a manager makes the servers
	if l.manager == "" && !o.Bare {
		if template, err = l.home.template(ctx, cmp.Or(o.Template, l.dir.Path)); err != nil {
			return nil, failure("make server", "", err)
		}
	}

	for _, name := range Names() {
		m := &Machine{name: name, lab: l}
		if o.Plain {
			m.plain = filepath.Join(l.dir.Path, string(name))
		}
		l.machines[name] = m
	}
	if err = l.each(func(m *Machine) error { return m.install(ctx, template) }); err != nil {
		return nil, err
	}
	if !o.Bare {
		if err = l.start(ctx); err != nil {
			return nil, err
		}
	}
	l.stop = context.AfterFunc(ctx, func() { _ = l.Close() })

	return l, nil
}

// start starts the servers, and returns when both standbys follow the primary.
func (l *Lab) start(ctx context.Context) error {
	if err := l.each(func(m *Machine) error { return m.Start(ctx) }); err != nil {
		return err
	}
	if l.manager != "" {
		if _, err := l.promoted(ctx); err != nil {
			return err
		}
	}
	for _, name := range others(l.primary) {
		if err := l.follows(ctx, l.machines[l.primary], name); err != nil {
			return err
		}
	}

	return nil
}

// install makes the disk of a new machine and puts a copy of the template on it: three servers of one origin, which can
// follow each other.
func (m *Machine) install(ctx context.Context, template string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.newDisk(ctx); err != nil || template == "" {
		return err
	}
	r := role{}
	if m.name != A {
		r = role{standby: true, upstream: m.lab.machines[A].Address()}
	}
	var host *namespace
	err := host.run(exec.CommandContext(ctx, "cp", "-a", template, m.data()))
	if err == nil {
		err = errors.Join(m.assume(r), m.sync())
	}
	if err != nil {
		return failure("make server", string(m.name), err)
	}

	return nil
}

// each does the same with all machines at once.
func (l *Lab) each(f func(*Machine) error) error {
	var all sync.WaitGroup
	errs := make([]error, len(Names()))
	for i, name := range Names() {
		all.Go(func() { errs[i] = f(l.machines[name]) })
	}
	all.Wait()

	return errors.Join(errs...)
}

// Close ends everything that runs on the machines and removes them. It may be called more than once, and waits for a
// Close that is running.
func (l *Lab) Close() error {
	l.once.Do(func() { l.err = l.close() })
	return l.err
}

func (l *Lab) close() error {
	if l.stop != nil {
		l.stop()
	}
	var err error
	for _, m := range l.machines {
		m.mu.Lock()
		m.power = gone // nothing starts any more
		err = errors.Join(err, m.killAll(), m.closeDisk())
		m.mu.Unlock()
	}
	if l.net != nil {
		l.net.close()
	}
	if l.dir != nil {
		err = errors.Join(err, l.dir.Close())
	}
	if err != nil {
		return failure("close machines", "", err)
	}

	return nil
}

// Machine returns a machine, nil if there is none of that name.
func (l *Lab) Machine(name Name) *Machine { return l.machines[name] }

// Address is where a place is on the network; the host is on it, too.
func (l *Lab) Address(name Name) string { return l.net.address(name).String() }

// URL names all three servers, as a client does that looks for the primary.
func (l *Lab) URL() string {
	var hosts []string
	for _, name := range Names() {
		hosts = append(hosts, l.machines[name].HostPort())
	}

	return "postgres://" + superuser + "@" + strings.Join(hosts, ",") + "/" + database +
		"?sslmode=disable&connect_timeout=2&target_session_attrs=read-write"
}

// Primary is the machine that was promoted last, a at first. Others may take themselves for the primary, too.
func (l *Lab) Primary() *Machine {
	l.promoting.Lock()
	defer l.promoting.Unlock()

	return l.machines[l.primary]
}

// Cut loses all packets from one place to another from now on. The other direction is not changed.
func (l *Lab) Cut(ctx context.Context, from, to Name) error {
	if err := known(from, to); err != nil {
		return err
	}

	return l.net.change(ctx, func() { l.net.cut[link{from, to}] = true })
}

// Partition loses all packets between places of different groups from now on. A place that is in no group keeps its
// connections.
func (l *Lab) Partition(ctx context.Context, groups ...[]Name) error {
	if err := known(slices.Concat(groups...)...); err != nil {
		return err
	}

	return l.net.change(ctx, func() {
		for i, one := range groups {
			for _, other := range slices.Delete(slices.Clone(groups), i, i+1) {
				for _, from := range one {
					for _, to := range other {
						l.net.cut[link{from, to}] = true
					}
				}
			}
		}
	})
}

// Isolate loses all packets from and to a machine from now on, the host's too.
func (l *Lab) Isolate(ctx context.Context, name Name) error {
	return l.Partition(ctx, []Name{name}, slices.DeleteFunc(places(), func(n Name) bool { return n == name }))
}

// Heal ends what Cut, Partition and Isolate did. It gives no power back.
func (l *Lab) Heal(ctx context.Context) error {
	return l.net.change(ctx, func() { clear(l.net.cut) })
}

// known refuses names that there are not.
func known(names ...Name) error {
	for _, name := range names {
		if !slices.Contains(places(), name) {
			return refused("change network", fmt.Sprintf("no place %q", name), "use a, b, c or host")
		}
	}

	return nil
}

// PowerOff cuts the power of machines, all at one moment: their processes end, nothing of theirs gets out any more, and
// their disks keep what was flushed, and of the rest what policy says.
func (l *Lab) PowerOff(ctx context.Context, policy blockdev.Policy, names ...Name) error {
	for _, name := range names {
		m := l.machines[name]
		if m == nil {
			return refused("cut power", fmt.Sprintf("no machine %q", name), "use a, b or c")
		}
		if m.plain != "" {
			return &holdfast.Error{Op: "cut power", Class: holdfast.ErrUnavailable, Detail: "the machines have no disks",
				Remedy: "make the lab without Plain"}
		}
	}
	err := l.net.change(ctx, func() {
		for _, name := range names {
			l.net.off[name] = true
		}
	})
	if err != nil {
		return err
	}

	for _, name := range names {
		if err := l.machines[name].cutPower(policy); err != nil {
			return failure("cut power", string(name), err)
		}
	}

	return nil
}
