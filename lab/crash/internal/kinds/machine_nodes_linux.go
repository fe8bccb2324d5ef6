package kinds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/fleet"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/lab/internal/machines"
)

const (
	// spaces is how many the processes share.
	spaces = 4
	// nodesPort is where each of them is, on a machine of its own.
	nodesPort = "8080"
	// apart is by how much the clocks of two machines differ, if they do.
	apart = time.Hour
	// slower is by how much the clock of the control is slower, whose lease so does not end.
	slower = 20
	// betweenLosses is how often a long run loses something.
	betweenLosses = time.Minute
	// nodesDisk is the size of each machine's disk in bytes: clients write some 50 MB a minute for as long as an hour.
	nodesDisk = 8 << 30
)

// nodesLosses are those of several processes: a machine is lost with the process on it.
var nodesLosses = append(slices.DeleteFunc(slices.Clone(losses), func(l loss) bool {
	return l.name == byIsolation || l.name == byIsolatedOwner // the same as an isolated primary
}), loss{name: byKilledProcess, stays: true}, loss{name: byCutProcesses, stays: true})

// node is a process on a machine.
type node struct {
	process *child.Process
	over    chan struct{} // closed when it has ended
	why     string        // from then on
	killed  bool          // it is meant to end
}

// ended reports whether it has.
func (n *node) ended() bool {
	select {
	case <-n.over:
		return true
	default:
		return false
	}
}

// pauses measures for how long nobody had an acknowledgement.
type pauses struct {
	mu      sync.Mutex
	acked   int
	latest  time.Time
	longest time.Duration
}

func (p *pauses) ack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.acked, p.latest, p.longest = p.acked+1, now, max(p.longest, now.Sub(p.latest))
}

// begin begins anew.
func (p *pauses) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest, p.longest = time.Now(), 0
}

// told is how many acknowledgements there were, and for how long there was none at most.
func (p *pauses) told() (int, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.acked, p.longest
}

// nodesScene is a lab with processes that are one server, and clients of it.
type nodesScene struct {
	machineScene
	r       *Runner
	row     Row
	rnd     *rand.Rand
	clocks  map[machines.Name]time.Duration
	nodes   map[machines.Name]*node
	clients *fleet.Clients
	pauses  pauses
	logs    string // a directory
}

// nodesSession loses machines and processes again and again under clients that go on. With a length it does so for that
// long, once a minute.
func (r *Runner) nodesSession(ctx context.Context, lab *machines.Lab, c Row, seed uint64, crashes int,
	length time.Duration, t Tally) (err error) {
	began, rnd := time.Now(), rand.New(rand.NewPCG(commits.Mix(seed, 1), 0))
	s := &nodesScene{r: r, row: c, rnd: rnd, nodes: map[machines.Name]*node{}, clocks: map[machines.Name]time.Duration{}}
	s.machineScene = machineScene{lab: lab, primary: lab.Primary(), told: func() int { n, _ := s.pauses.told(); return n }}
	if s.logs, err = os.MkdirTemp(r.Dir, "logs-"); err != nil {
		return err
	}
	if seed%2 == 0 && !c.Control {
		s.clocks[machines.B], s.clocks[machines.C] = apart, -apart
		t.Note("clocks of the processes were %v apart", apart)
	}
	defer func() {
		for _, n := range s.nodes {
			n.end()
		}
	}()
	for _, name := range machines.Names() {
		if err := s.start(name); err != nil {
			return err
		}
		// The one with the flaw begins alone, so that it has something to lose.
		if c.Engine == SlowClock && name == machines.A {
			if err := s.answers(ctx, name); err != nil {
				return err
			}
		}
	}
	if s.clients, err = fleet.New(fleet.Options{Doors: s.doors(), Seed: seed, OneClock: len(s.clocks) == 0,
		Repeats: c.Engine == AnswersRepeated, Acked: s.pauses.ack}); err != nil {
		return err
	}
	defer s.clients.Stop()
	setup, cancel := context.WithTimeout(ctx, goesOn)
	defer cancel()
	if err := s.clients.Start(setup); err != nil {
		return fmt.Errorf("%w%s", err, s.said())
	}

	chosen := c.losses()
	for round := 0; length == 0 && round < crashes || length > 0 && time.Since(began) < length; round++ {
		next := time.Now().Add(betweenLosses)
		l, behind := chosen[(int(seed/2%64)+round)%len(chosen)], rnd.IntN(2) == 0
		switch c.Engine {
		case shorterLog:
			l, behind = nodesLoss(byKill), true
		case SlowClock:
			l = nodesLoss(byPausedOwner)
		case AnswersRepeated:
			l = nodesLoss(byKilledProcess)
		}
		s.policy = blockdev.Subset(rnd.Uint64())
		j, err := s.lose(ctx, l, behind, t)
		last := length == 0 && round == crashes-1 || length > 0 && time.Since(began) >= length
		if err == nil && last && !j.Broken() {
			s.judge(ctx, true, &j)
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s, round %d: %w%s", l.name, round+1, err, s.said())
		}
		t.Judged(j, false)
		t.Did(l.name, 1)
		if j.Broken() {
			j.Findings = append(j.Findings, "the logs end with:"+s.said())
			scene := &Scene{Row: c, When: l.name}
			if !c.Control {
				if err := s.keepServerLogs(); err != nil {
					return err
				}
				scene.Tree = s.logs
			}
			t.Breaks(scene, l.named(round, j))
		}
		if j.Broken() { // a control that chance has spared goes on
			return nil
		}
		if length > 0 {
			select {
			case <-time.After(min(time.Until(next), time.Until(began.Add(length)))):
			case <-ctx.Done():
			}
		}
	}

	return nil
}

func nodesLoss(name string) loss {
	return nodesLosses[slices.IndexFunc(nodesLosses, func(l loss) bool { return l.name == name })]
}

// address is where the process of a machine is.
func (s *nodesScene) address(name machines.Name) string {
	return net.JoinHostPort(s.lab.Address(name), nodesPort)
}

// doors are the ways to the processes: to each from the host, and from its own machine.
func (s *nodesScene) doors() (list []fleet.Door) {
	for _, name := range machines.Names() {
		for _, dial := range []func(context.Context, string, string) (net.Conn, error){new(net.Dialer).DialContext,
			s.lab.Machine(name).Dial} {
			list = append(list, fleet.Door{Process: string(name), Address: "http://" + s.address(name), Dial: dial})
		}
	}

	return list
}

// start starts the process of a machine.
func (s *nodesScene) start(name machines.Name) error {
	spec := protocol.Spec{Role: "node", Subject: s.row.Subject, Level: holdfast.Quorum, Listen: s.address(name),
		Address: s.lab.URL() + "&space=crash&patience=30s", Node: &protocol.Node{Spaces: spaces, Ahead: s.clocks[name]}}
	if s.row.Engine == SlowClock && name == machines.A {
		spec.Node.Slow = slower
	}
	line, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.log(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(s.r.Child[0], s.r.Child[1:]...)
	cmd.Stderr = log
	// Numbers of processes are those of its machine, so that the others cannot see here whether it lives.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	p, err := s.lab.Machine(name).StartProgram(cmd)
	if err != nil {
		return err
	}
	_, _ = p.Write(append(line, '\n')) // Wait notices one that died already
	n := &node{process: p, over: make(chan struct{})}
	s.nodes[name] = n
	go func() {
		defer close(n.over)
		told := ""
		failed := listen(p.Out, func(m protocol.Message) {
			if m.Kind == protocol.TellError {
				told = m.Text
			}
		})
		_, err := p.Wait()
		n.why = fmt.Sprint(told, " ", errors.Join(failed, err))
	}()

	return nil
}

// end kills the process, and returns when it has ended.
func (n *node) end() {
	n.killed = true
	n.process.Kill()
	n.process.CloseInput()
	<-n.over
}

func (s *nodesScene) log(name machines.Name) string {
	return filepath.Join(s.logs, string(name)+".log")
}

// keepServerLogs puts what the servers of the machines have logged beside the logs of the processes.
func (s *nodesScene) keepServerLogs() error {
	for _, name := range machines.Names() {
		text, err := os.ReadFile(s.lab.Machine(name).ServerLog())
		if errors.Is(err, fs.ErrNotExist) {
			continue // a manager keeps it
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(s.logs, string(name)+".postgresql.log"), text, 0o600)
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// said is the end of what each process has logged.
func (s *nodesScene) said() string {
	const shown = 600

	var b strings.Builder
	for _, name := range machines.Names() {
		text, _ := os.ReadFile(s.log(name))
		fmt.Fprintf(&b, "\n%s: %s", name, strings.TrimSpace(string(text[max(0, len(text)-shown):])))
	}

	return b.String()
}

// answers waits until a process owns something.
func (s *nodesScene) answers(ctx context.Context, name machines.Name) error {
	ctx, cancel := context.WithTimeout(ctx, goesOn)
	defer cancel()

	return machines.Until(ctx, fmt.Sprintf("the process of %s owns something", name), func() (bool, error) {
		owners, err := s.owners(ctx)
		return slices.Contains(owners, "http://"+s.address(name)), err
	})
}

// owners are the addresses of those who own a space, by the primary's word.
func (s *nodesScene) owners(ctx context.Context) (list []string, err error) {
	conn, err := s.primary.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT holder FROM holdfast_space WHERE holder <> ''")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var holder string
		if err := rows.Scan(&holder); err != nil {
			return nil, err
		}
		for _, name := range machines.Names() { // not escaped in there
			if strings.Contains(holder, s.address(name)) {
				list = append(list, "http://"+s.address(name))
			}
		}
	}

	return list, rows.Err()
}

// lose makes one round and judges it.
func (s *nodesScene) lose(ctx context.Context, l loss, behind bool, t Tally) (j protocol.Judgement, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeRoundTime)
	defer cancel()
	if s.progress(ctx, &j); j.Broken() {
		return j, ctx.Err()
	}
	standbys := slices.DeleteFunc(machines.Names(), func(n machines.Name) bool { return n == s.primary.Name() })
	s.rnd.Shuffle(2, func(i, j int) { standbys[i], standbys[j] = standbys[j], standbys[i] })

	// Whom it meets has something to lose. The primary's machine has the process that is lost with it.
	victim := s.primary.Name()
	switch {
	case s.row.Engine == SlowClock:
		victim = machines.A
	case l.stays:
		victim = machines.Names()[s.rnd.IntN(3)]
	}
	if err := s.answers(ctx, victim); err != nil {
		j.Find(&j.Wrong, "it gets no share of the spaces: %v", err)
		return j, nil
	}
	s.pause = func() error { return s.nodes[victim].process.Signal(syscall.SIGSTOP) }
	if behind && !l.stays {
		if err := s.lab.Partition(ctx, []machines.Name{s.primary.Name()}, []machines.Name{standbys[1]}); err != nil {
			return j, err
		}
		if s.more(ctx, &j, 20); j.Broken() { // only the other one has these
			return j, ctx.Err()
		}
	}
	if err := s.lab.Await(ctx); err != nil {
		return j, err
	}
	select { // or all losses would come right behind an acknowledgement
	case <-time.After(time.Duration(s.rnd.IntN(100)) * time.Millisecond):
	case <-ctx.Done():
	}
	s.pauses.begin()
	s.falling(l, victim)
	switch l.name {
	case byKilledProcess:
		s.nodes[victim].end()
	case byCutProcesses:
		// Each of the two reaches the primary and clients, and one of them, or neither, the other.
		err = s.lab.Cut(ctx, standbys[0], standbys[1])
		if err == nil && s.rnd.IntN(2) == 0 {
			err = s.lab.Cut(ctx, standbys[1], standbys[0])
		}
	default:
		err = l.do(ctx, &s.machineScene)
	}
	if err != nil {
		return j, err
	}

	old := s.primary
	switch {
	case l.all:
		err = s.all(ctx)
	case !l.stays:
		rule := machines.Longest
		if s.row.Engine == shorterLog {
			rule = machines.Shortest
		}
		s.primary, err = s.lab.Failover(ctx, rule)
	case l.name != byCutProcesses:
		err = s.taken(ctx, victim)
	}
	if err != nil {
		return j, err
	}

	// The others go on before it is back.
	if !l.all {
		s.more(ctx, &j, 20)
	}
	if l.name == byPausedOwner {
		err = s.nodes[victim].process.Signal(syscall.SIGCONT)
	}
	if err := errors.Join(err, s.lab.Heal(ctx)); err != nil || j.Broken() {
		return j, errors.Join(err, ctx.Err())
	}
	if old != s.primary {
		if err := errors.Join(old.PowerOn(ctx), s.lab.Rejoin(ctx, old.Name())); err != nil {
			return j, err
		}
	}
	if err := s.restart(&j); err != nil {
		return j, err
	}
	s.progress(ctx, &j)
	_, longest := s.pauses.told()
	t.Paused(l.name, longest)
	s.judge(ctx, false, &j)

	return j, ctx.Err()
}

// falling notes whose processes are meant to end.
func (s *nodesScene) falling(l loss, victim machines.Name) {
	for name, n := range s.nodes {
		n.killed = l.all || name == victim && slices.Contains([]string{byPowerCut, byLostDisk, byKilledProcess}, l.name)
	}
}

// restart starts the processes again that have ended; none does so by itself.
func (s *nodesScene) restart(j *protocol.Judgement) error {
	for _, name := range machines.Names() {
		n := s.nodes[name]
		if n.killed {
			n.end()
		} else if !n.ended() {
			continue
		} else {
			j.Find(&j.Wrong, "the process of %s has ended: %s", name, n.why)
		}
		if err := s.start(name); err != nil {
			return err
		}
	}

	return nil
}

// taken waits until others own what a process had that is paused or dead.
func (s *nodesScene) taken(ctx context.Context, victim machines.Name) error {
	ctx, cancel := context.WithTimeout(ctx, goesOn)
	defer cancel()

	return machines.Until(ctx, "others own everything", func() (bool, error) {
		owners, err := s.owners(ctx)
		return len(owners) == spaces && !slices.Contains(owners, "http://"+s.address(victim)), err
	})
}

// more waits for more acknowledgements. It is a finding if they do not come.
func (s *nodesScene) more(ctx context.Context, j *protocol.Judgement, n int) {
	ctx, cancel := context.WithTimeout(ctx, goesOn)
	defer cancel()
	before := s.told()
	if machines.Until(ctx, "acknowledge", func() (bool, error) { return s.told() >= before+n, nil }) != nil {
		j.Find(&j.Wrong, "of %d acknowledgements %d had come after %v", n, s.told()-before, goesOn)
	}
}

// progress waits until all clients go on, and answers come through each process. It is a finding if they do not.
func (s *nodesScene) progress(ctx context.Context, j *protocol.Judgement) {
	short, cancel := context.WithTimeout(ctx, goesOn)
	defer cancel()
	if err := s.clients.Progress(short); err != nil && ctx.Err() == nil {
		j.Find(&j.Wrong, "after %v, %v", goesOn, err)
	}
}

// judge adds what the clients find to a judgement.
func (s *nodesScene) judge(ctx context.Context, whole bool, j *protocol.Judgement) {
	short, cancel := context.WithTimeout(ctx, goesOn)
	defer cancel()
	k, err := s.clients.Judge(short, whole)
	if *j = plus(*j, k); err != nil && ctx.Err() == nil {
		j.Find(&j.Wrong, "what is there cannot be read: %v", err)
	}
}
