package kinds

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/postgres"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/lab/internal/machines"
)

const (
	// storeRate is how many bytes a second a victim on machines writes at most.
	storeRate = 1 << 20
	// storeRoundTime is roundTime of a store, which is opened and read several times.
	storeRoundTime = 2 * roundTime
	// goesOn is how long a victim may acknowledge too little: it waits for a failover for less.
	goesOn = 2 * time.Minute
)

// OpenOnMachine opens an engine of OnMachines, as soon as the space can be had.
func OpenOnMachine(name, address string, o holdfast.Options) (e holdfast.Engine, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), goesOn/2)
	defer cancel()
	address, replace := flaw(name, address)
	var tune []func(*pgx.ConnConfig)
	if len(replace[0]) > 0 {
		w := &wire{dial: new(net.Dialer).DialContext, replace: replace}
		tune = append(tune, func(c *pgx.ConnConfig) { c.DialFunc = w.Dial })
	}
	failed := machines.Until(ctx, "take the space", func() (bool, error) {
		e, err = postgres.OpenWith(address, o, tune...)
		return !errors.Is(err, holdfast.ErrLocked) && !errors.Is(err, holdfast.ErrUnavailable), err
	})

	return e, errors.Join(err, failed)
}

// flaw is what makes a control of the engine: another address, and other texts in what is sent.
func flaw(name, address string) (_ string, replace [2][]byte) {
	switch name {
	case notCounted:
		address += "&quorum=declared"
	case noEpoch:
		replace = [2][]byte{[]byte("epoch = $2 AND seq = $3"), []byte("epoch>= $2 AND seq>= $3")}
	}

	return address, replace
}

// storeVictim is a victim that works on a store, on a machine or on the host.
type storeVictim struct {
	victim
	process *child.Process
	over    chan struct{} // closed when it has ended, and all that it told was heard
}

// end kills it.
func (v *storeVictim) end() {
	v.process.Kill()
	v.process.CloseInput()
	<-v.over
}

// told is how many acknowledgements it had.
func (v *storeVictim) told() int {
	v.hearing.Lock()
	defer v.hearing.Unlock()
	acked, _ := v.ledger.Told()

	return acked
}

// failed is why it has ended, empty if it has not.
func (v *storeVictim) failed() string {
	v.hearing.Lock()
	defer v.hearing.Unlock()
	why, _ := v.ledger.Failed()

	return why
}

// heardSoFar takes what it has told until now; what comes later is in a ledger of its own.
func (v *storeVictim) heardSoFar() *protocol.Ledger {
	v.hearing.Lock()
	defer v.hearing.Unlock()
	old := v.ledger
	v.ledger = &protocol.Ledger{}
	v.ledger.Start()

	return old
}

// storeScene is a round under a victim.
type storeScene struct {
	machineScene
	r       *Runner
	row     Row
	subject Subject
	tally   Tally
	rnd     *rand.Rand
	h       *protocol.History
	gen     uint32
	victim  *storeVictim
}

// storeSession loses machines, or the owner, again and again under a victim that works on a store. What is there is
// read by a process on another machine, and judged as for every other kind of crash.
func (r *Runner) storeSession(
	ctx context.Context, lab *machines.Lab, c Row, seed uint64, crashes int, t Tally,
) error {
	subject, err := r.Subject(c.Subject)
	if err != nil {
		return err
	}
	e, err := OpenOnMachine(MachineEngine, storeAddress(lab), holdfast.Options{Level: holdfast.Quorum})
	if err != nil {
		return err
	}
	c.Capabilities = e.Capabilities()
	if err := e.Close(); err != nil {
		return err
	}
	h, err := r.history(c, seed)
	if err != nil {
		return err
	}
	s := &storeScene{r: r, row: c, subject: subject, tally: t, h: h, rnd: rand.New(rand.NewPCG(commits.Mix(seed, 1), 0))}
	h.Begin(0, 1)

	chosen := c.losses()
	for round := range crashes {
		l, behind := chosen[(int(seed%64)+round)%len(chosen)], s.rnd.IntN(2) == 0
		switch c.Engine {
		case notCounted:
			for !l.trap {
				l = losses[s.rnd.IntN(len(losses))]
			}
		case noEpoch:
			l = pausedOwner
		case shorterLog:
			l, behind = losses[0], true
		case InTwoOnMachines:
			l = losses[0]
		}
		s.machineScene = machineScene{lab: lab, primary: lab.Primary(), policy: blockdev.Subset(s.rnd.Uint64()),
			told:  func() int { return s.victim.told() },
			pause: func() error { return s.victim.process.Signal(syscall.SIGSTOP) }}
		j, fatal, err := s.lose(ctx, l, behind)
		if err != nil {
			return fmt.Errorf("%s, round %d: %w", l.name, round+1, err)
		}
		t.Judged(j, fatal)
		t.Did(l.name, 1)
		if fatal || j.Broken() {
			t.Breaks(&Scene{Row: c}, l.named(round, j))
		}
		if fatal || j.Broken() { // a control that chance has spared goes on
			return nil
		}
		s.next(j)
	}

	return nil
}

func storeAddress(lab *machines.Lab) string { return lab.URL() + "&space=crash&patience=60s" }

// next begins the next generation, on what a judgement has found.
func (s *storeScene) next(j protocol.Judgement) {
	s.gen++
	s.h.Begin(s.gen, j.Survived+1)
	s.h.Skipped = append(s.h.Skipped, j.Skipped...)
}

// start starts a victim of the present generation, on a machine, or on the host if that is nil.
func (s *storeScene) start(engine string, at *machines.Machine, only bool) error {
	spec := s.r.victimSpec(s.row, "", s.h, storeRate)
	spec.Engine, spec.Address = engine, storeAddress(s.lab)
	spec.Only = spec.Only || only
	v := &storeVictim{over: make(chan struct{}), victim: victim{
		command: s.r.Child, spec: spec, ledger: &protocol.Ledger{}, row: s.row, subject: s.subject,
		place: func(uint64) protocol.Position { return 0 }}}
	if at != nil {
		v.spec.Listen, v.start = at.Address(), at.StartChild
	}
	p, events, ended, err := v.launch()
	if err != nil {
		return err
	}
	v.process = p
	go func() {
		defer close(v.over)
		for range events {
		}
		if err := <-ended; v.failed() == "" && !killed(err) {
			v.hearing.Lock()
			defer v.hearing.Unlock()
			v.ledger.Fail(fmt.Sprintf("its process died: %v", err))
		}
	}()
	s.victim = v

	return nil
}

// stops reports whether a machine stops, so that a process on it may have stopped, too.
func (l loss) stops() bool {
	return slices.Contains([]string{byKill, byPowerCut, byPowerCutOfAll, byLostDisk}, l.name)
}

// lose makes one round and judges it.
func (s *storeScene) lose(ctx context.Context, l loss, behind bool) (j protocol.Judgement, fatal bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeRoundTime)
	defer cancel()

	// The victim falls with the machine, or it is elsewhere, or is to survive what becomes of it. A server is on one of
	// the machines.
	falls := l.stops() && (s.rnd.IntN(2) == 0 || s.row.Engine == InTwoOnMachines || l.all && s.subject.Serves())
	standbys := slices.DeleteFunc(machines.Names(), func(n machines.Name) bool { return n == s.primary.Name() })
	s.rnd.Shuffle(2, func(i, j int) { standbys[i], standbys[j] = standbys[j], standbys[i] })
	var at *machines.Machine
	switch {
	case l.with || falls:
		at = s.primary
	case !l.all && (s.rnd.IntN(2) == 0 || s.subject.Serves()):
		at = s.lab.Machine(standbys[0])
	}

	// What is acknowledged at a weaker level, and left behind by a failover, is an error for those who live.
	s.h.Survives = holdfast.Quorum
	if l.all || l.stays {
		s.h.Survives = holdfast.Process
	}
	if err := s.start(s.row.Engine, at, !falls); err != nil {
		return j, false, err
	}
	first := s.victim
	defer func() { first.end(); s.victim.end() }()

	s.await(ctx, &j, 20+s.rnd.IntN(100))
	if behind && !j.Broken() {
		err := s.lab.Partition(ctx, []machines.Name{s.primary.Name()}, []machines.Name{standbys[1]})
		if err != nil {
			return j, false, err
		}
		s.await(ctx, &j, first.told()+10+s.rnd.IntN(20)) // only the other one has these
	}
	if j.Broken() {
		return j, false, ctx.Err()
	}
	if err := s.lab.Await(ctx); err != nil {
		return j, false, err
	}
	if err := s.lab.Await(ctx); err != nil {
		return j, false, err
	}
	select { // or all losses would come right behind an acknowledgement
	case <-time.After(time.Duration(s.rnd.IntN(100)) * time.Millisecond):
	case <-ctx.Done():
	}
	if falls && l.name == byKill {
		first.process.Kill()
	}
	if err := l.do(ctx, &s.machineScene); err != nil {
		return j, false, err
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
	}
	if err != nil {
		return j, false, err
	}

	var k protocol.Judgement
	switch {
	case falls:
		first.end()
		k, fatal, err = s.judge(ctx, func() *protocol.Ledger { return first.ledger })
	case l.taken:
		k, fatal, err = s.take(ctx, l)
	}
	if j = plus(j, k); err != nil || fatal || j.Broken() {
		return j, fatal, err
	}

	// All three again, for the next round.
	if err := s.lab.Heal(ctx); err != nil {
		return j, false, err
	}
	if old != s.primary {
		if err := errors.Join(old.PowerOn(ctx), s.lab.Rejoin(ctx, old.Name())); err != nil {
			return j, false, err
		}
	}
	if falls {
		return j, false, nil
	}
	if l.taken {
		s.lost(ctx, first, &j, k)
	}

	// Whoever has the space goes on without an error.
	s.await(ctx, &j, s.victim.told()+50)
	s.victim.end()
	last := s.victim
	k, fatal, err = s.judge(ctx, func() *protocol.Ledger { return last.ledger })

	return plus(j, k), fatal, err
}

// weakerGone is how the engine says that a failover has left behind what it had acknowledged below the strongest level.
// A victim that lives writes at the strongest, but stores acknowledge leases at Process: losing one takes nothing from
// anybody. It ends then, and what is there is judged.
const weakerGone = "only what was acknowledged at weaker levels is gone"

// await waits for so many acknowledgements of the victim in all. It is a finding if they do not come.
func (s *storeScene) await(ctx context.Context, j *protocol.Judgement, n int) {
	ctx, cancel := context.WithTimeout(ctx, goesOn)
	defer cancel()
	v := s.victim
	err := machines.Until(ctx, "acknowledge", func() (bool, error) { return v.told() >= n || v.failed() != "", nil })
	if err != nil && v.failed() == "" {
		j.Find(&j.Wrong, "of %d acknowledgements %d had come after %v", n, v.told(), goesOn)
	}
	if why := v.failed(); why != "" && !strings.Contains(why, weakerGone) {
		j.Find(&j.Wrong, "it did not go on: %s", why)
	}
}

// judge lets another process read what is there, as the engine's own owner, and compares it with what ledger returns
// then.
func (s *storeScene) judge(ctx context.Context, ledger func() *protocol.Ledger) (protocol.Judgement, bool, error) {
	spec := s.victim.spec
	spec.Engine = MachineEngine
	var l *protocol.Ledger
	j, fatal, err := s.r.examine(ctx, s.row, s.h, spec, s.r.Dir, s.rnd, s.tally, nil, func() {
		l = ledger()
		s.h.Add(l, protocol.Never)
	})
	if l != nil {
		for _, finding := range l.Findings() {
			if strings.HasPrefix(finding, protocol.Saw) { // why it has ended is judged elsewhere
				j.Find(&j.Wrong, "%s", finding)
			}
		}
	}

	return j, fatal, err
}

// plus adds up two judgements of a round, of which the second is the later one.
func plus(j, k protocol.Judgement) protocol.Judgement {
	k.Acked, k.Kept, k.Lost, k.Gone = j.Acked+k.Acked, j.Kept+k.Kept, j.Lost+k.Lost, j.Gone+k.Gone
	k.Torn, k.OutOfOrder, k.Wrong = j.Torn+k.Torn, j.OutOfOrder+k.OutOfOrder, j.Wrong+k.Wrong
	k.Findings = append(slices.Clip(j.Findings), k.Findings...)
	if k.Survived == 0 { // nothing was read
		k.Survived, k.Last, k.Skipped = j.Survived, j.Last, j.Skipped
	}

	return k
}

// take lets another owner take the space while the first one is cut off or paused, which is continued then.
func (s *storeScene) take(ctx context.Context, l loss) (j protocol.Judgement, fatal bool, err error) {
	first := s.victim
	if j, fatal, err = s.judge(ctx, first.heardSoFar); err != nil || fatal || j.Broken() {
		return j, fatal, err
	}
	s.next(j)
	if err := s.start(MachineEngine, s.primary, true); err != nil {
		return j, false, err
	}
	s.await(ctx, &j, 20)
	if l.stays {
		err = first.process.Signal(syscall.SIGCONT)
	}

	return j, false, err
}

// lost judges a victim that has lost the space: it ends by itself and knows why, and what it was told since the space
// was taken, or has shown, is what was there then.
func (s *storeScene) lost(ctx context.Context, v *storeVictim, j *protocol.Judgement, then protocol.Judgement) {
	select {
	case <-v.over:
		fenced := strings.TrimPrefix(holdfast.ErrFenced.Error(), "holdfast: ") // as an error shows it with other texts
		if why := v.failed(); !strings.Contains(why, fenced) {
			j.Find(&j.Wrong, "the owner that lost the space ended with: %s", why)
		}
	case <-time.After(goesOn):
		j.Find(&j.Wrong, "the owner that lost the space does not end")
	case <-ctx.Done():
	}
	v.end()

	late := &protocol.History{Survives: holdfast.Quorum, Level: s.h.Level, Concurrent: s.h.Concurrent}
	late.Add(v.ledger, protocol.Never)
	for _, n := range append(late.Must, late.Bound, late.Shown) {
		if n > then.Survived || slices.ContainsFunc(then.Skipped, func(s protocol.Span) bool {
			return s.From <= n && n <= s.To
		}) {
			j.Find(&j.Wrong, "%d was acknowledged or shown by an owner that had lost the space, and was not there", n)
		}
	}
}
