package kinds

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/lab/internal/machines"
)

// loss is a way to lose the primary, or the owner.
type loss struct {
	name  string
	with  bool // the owner is on the primary's machine; otherwise on the host
	trap  bool // the primary may say that a commit is done which nobody else has
	all   bool // all machines are lost, and come back as they were
	taken bool // another owner takes the space meanwhile
	stays bool // the primary stays the primary
	do    func(ctx context.Context, s *machineScene) error
}

// named is a judgement whose findings begin with the loss.
func (l loss) named(round int, j protocol.Judgement) protocol.Judgement {
	if j.Findings = slices.Clone(j.Findings); len(j.Findings) > 0 {
		j.Findings[0] = fmt.Sprintf("%s in round %d: %s", l.name, round+1, j.Findings[0])
	}

	return j
}

var losses = []loss{
	{name: byKill, with: true, do: func(_ context.Context, s *machineScene) error { return s.primary.Kill() }},
	{name: byPowerCut, do: func(ctx context.Context, s *machineScene) error {
		return s.lab.PowerOff(ctx, s.policy, s.primary.Name())
	}},
	{name: byPowerCutOfAll, all: true, do: func(ctx context.Context, s *machineScene) error {
		return s.lab.PowerOff(ctx, s.policy, machines.Names()...)
	}},
	{name: byLostDisk, do: func(ctx context.Context, s *machineScene) error { return s.primary.Lose(ctx) }},
	{name: byIsolation, with: true, do: isolate},
	{name: byNotHeard, with: true, do: func(ctx context.Context, s *machineScene) error {
		return s.cutOff(ctx, func(other machines.Name) (from, to machines.Name) { return s.primary.Name(), other })
	}},
	{name: byHearingNothing, with: true, do: func(ctx context.Context, s *machineScene) error {
		return s.cutOff(ctx, func(other machines.Name) (from, to machines.Name) { return other, s.primary.Name() })
	}},
	{name: byCancelledWait, with: true, trap: true, do: func(ctx context.Context, s *machineScene) error {
		return s.endWait(ctx, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	}},
	{name: byEmptiedNames, with: true, trap: true, do: func(ctx context.Context, s *machineScene) error {
		return s.endWait(ctx, "ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")
	}},
	isolatedOwner,
	pausedOwner,
	{name: byIsolatedPrimary, do: isolate},
}

var (
	isolatedOwner = loss{name: byIsolatedOwner, with: true, taken: true, do: isolate}
	pausedOwner   = loss{name: byPausedOwner, taken: true, stays: true,
		do: func(_ context.Context, s *machineScene) error {
			return s.pause() // until it is continued
		}}
)

func isolate(ctx context.Context, s *machineScene) error { return s.lab.Isolate(ctx, s.primary.Name()) }

// managing is held by a session with a manager: of these one goes on at a time.
var managing sync.Mutex

// losses are those that a row asks for.
func (c Row) losses() []loss {
	list := losses
	if c.Subject == Nodes {
		list = nodesLosses
	}

	return slices.DeleteFunc(slices.Clone(list), func(l loss) bool {
		return c.Losses != nil && !slices.Contains(c.Losses, l.name)
	})
}

// machineScene is a round.
type machineScene struct {
	lab     *machines.Lab
	primary *machines.Machine
	owner   *owner
	ledger  *ledger
	policy  blockdev.Policy
	told    func() int   // how many acknowledgements the owner had
	pause   func() error // stops the owner where it is
}

// roundTime bounds a round: what does not come within it is a failure of the lab.
const roundTime = 5 * time.Minute

// machineSession loses the primary of three machines, or the owner of the space, again and again while numbers are
// written there. Those that were acknowledged, in all rounds, must be on whatever is the primary.
func (r *Runner) machineSession(
	ctx context.Context, c Row, seed uint64, crashes int, length time.Duration, t Tally,
) (err error) {
	defer func() {
		if ctx.Err() != nil {
			err = console.ErrInterrupted
		}
	}()
	if ofNATS(c.Engine) {
		return r.natsSession(ctx, c, seed, crashes, t)
	}
	if c.Manager != "" { // nine programs more, which must answer each other within seconds
		managing.Lock()
		defer managing.Unlock()
	}
	o := machines.Options{Dir: r.Dir, Manager: c.Manager}
	if c.Subject == Nodes {
		o.DiskSize = nodesDisk
	}
	lab, err := machines.New(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	if c.Subject == Nodes {
		return r.nodesSession(ctx, lab, c, seed, crashes, length, t)
	}
	if c.Subject != MachineSubjects()[0] {
		return r.storeSession(ctx, lab, c, seed, crashes, t)
	}

	rnd := rand.New(rand.NewPCG(commits.Mix(seed, 1), 0))
	l := &ledger{}
	chosen := c.losses()
	for round := range crashes {
		loss := chosen[(int(seed%64)+round)%len(chosen)]
		behind := rnd.IntN(2) == 0 // one standby has less than the other
		switch c.Engine {
		case notCounted:
			for !loss.trap {
				loss = losses[rnd.IntN(len(losses))]
			}
		case noEpoch:
			loss = pausedOwner
		case noLease:
			loss = isolatedOwner
		case shorterLog:
			loss, behind = losses[0], true
		}
		s := &machineScene{lab: lab, primary: lab.Primary(), ledger: l, policy: blockdev.Subset(rnd.Uint64()), told: l.told}
		s.pause = func() error { s.owner.wire.still.Lock(); return nil }
		j, err := s.lose(ctx, c, loss, behind, rnd, t)
		if err != nil {
			return fmt.Errorf("%s, round %d: %w", loss.name, round+1, err)
		}
		t.Judged(j, false)
		t.Did(loss.name, 1)
		if j.Broken() {
			t.Breaks(&Scene{Row: c}, loss.named(round, j))
		}
		if j.Broken() || c.Control {
			return nil
		}
	}

	return nil
}

// open takes the space from a machine, or from the host if that is nil. Before the control's own flaw may count, there
// is none: a second owner is always the engine as it is.
func (s *machineScene) open(ctx context.Context, control string, from *machines.Machine) (o *owner, err error) {
	w := &wire{dial: new(net.Dialer).DialContext}
	if from != nil {
		w.dial = from.Dial
	}
	address := s.lab.URL() + "&space=crash&patience="
	if control == MachineEngine {
		address += "60s" // a failover, and a standby for the new primary
	} else {
		address += "5s" // it is left as it is broken
	}
	address, w.replace = flaw(control, address)
	err = machines.Until(ctx, "take the space", func() (bool, error) {
		o, err = openOwner(address, w, s.ledger)
		return err == nil, err
	})
	if err != nil || control != noLease {
		return o, err
	}

	conn, err := s.primary.Connect(ctx)
	if err != nil {
		return nil, errors.Join(err, o.end())
	}
	o.direct = func(ctx context.Context) (value []byte, err error) {
		err = conn.QueryRow(ctx, "SELECT v FROM holdfast_kv WHERE k = $1", []byte(register)).Scan(&value)
		if errors.Is(err, pgx.ErrNoRows) {
			err = holdfast.ErrNotFound
		}

		return value, err
	}

	return o, nil
}

// lose makes one round and judges it.
func (s *machineScene) lose(
	ctx context.Context, c Row, l loss, behind bool, rnd *rand.Rand, t Tally,
) (j protocol.Judgement, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	var at *machines.Machine
	if l.with {
		at = s.primary
	}
	if s.owner, err = s.open(ctx, c.Engine, at); err != nil {
		return j, err
	}
	defer func() {
		if err != nil || j.Broken() { // nothing comes any more, and there is no need to wait for that
			s.owner.wire.cut()
		}
		s.owner.end()
	}()
	before := s.ledger.told()
	s.owner.start(ctx)
	if err := s.acknowledged(ctx, s.owner, before+1+rnd.IntN(30)); err != nil {
		return s.owner.refused(err)
	}
	if behind {
		without := machines.Names()[rnd.IntN(3)]
		for without == s.primary.Name() {
			without = machines.Names()[rnd.IntN(3)]
		}
		if err := s.lab.Partition(ctx, []machines.Name{s.primary.Name()}, []machines.Name{without}); err != nil {
			return j, err
		}
		// Only the other one has these.
		if err := s.acknowledged(ctx, s.owner, s.ledger.told()+2+rnd.IntN(10)); err != nil {
			return s.owner.refused(err)
		}
	}
	if err := s.lab.Await(ctx); err != nil {
		return j, err
	}
	s.ledger.begin()
	if err := l.do(ctx, s); err != nil {
		return j, err
	}

	old := s.primary
	switch {
	case l.all:
		err = s.all(ctx)
	case !l.stays:
		rule := machines.Longest
		if c.Engine == shorterLog {
			rule = machines.Shortest
		}
		s.primary, err = s.lab.Failover(ctx, rule)
	}
	if err != nil {
		return j, err
	}
	if j, err = s.judge(ctx, before); err != nil || j.Broken() {
		return j, err
	}
	last, first := s.owner, s.owner
	if l.taken {
		if last, err = s.take(ctx, c, l, &j); err != nil || j.Broken() {
			return j, err
		}
		defer last.end()
	}

	// All three again, for the next round.
	if err := s.lab.Heal(ctx); err != nil {
		return j, err
	}
	if old != s.primary {
		if err := errors.Join(old.PowerOn(ctx), s.lab.Rejoin(ctx, old.Name())); err != nil {
			return s.undone(ctx, before, err)
		}
	}
	if l.taken {
		s.lost(ctx, first, &j)
	}

	// Whoever has the space goes on without an error.
	if err := s.acknowledged(ctx, last, s.ledger.told()+2*writers); err != nil {
		j.Find(&j.Wrong, "after %s the owner did not go on: %v", l.name, err)
		return j, nil
	}
	t.Paused(l.name, s.ledger.pause())
	if err := last.end(); err != nil {
		return j, err
	}
	found := j
	if j, err = s.judge(ctx, before); err != nil {
		return j, err
	}
	j.Wrong += found.Wrong
	j.Findings = append(found.Findings, j.Findings...)
	err = s.epoch(ctx, &j)

	return j, err
}

// undone judges a failover after which the machines did not come together. Without a loss the error is the lab's.
func (s *machineScene) undone(ctx context.Context, before int, err error) (j protocol.Judgement, _ error) {
	leader := s.lab.Leader(ctx)
	if leader == nil || leader == s.primary {
		return j, err
	}
	s.primary = leader
	j, failed := s.judge(ctx, before)
	if failed != nil || !j.Broken() {
		return j, errors.Join(err, failed)
	}
	j.Findings = append(j.Findings, fmt.Sprintf("a primary was promoted, and later %s took its place", leader.Name()))

	return j, nil
}

// take lets another owner take the space while the first one is cut off or paused, and continues that.
func (s *machineScene) take(ctx context.Context, c Row, l loss, j *protocol.Judgement) (second *owner, err error) {
	if l.stays {
		defer s.owner.wire.still.Unlock()
	}
	if second, err = s.open(ctx, MachineEngine, s.primary); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil || j.Broken() {
			err = errors.Join(err, second.end())
		}
	}()

	// What the first one is told later it may have written before.
	if s.owner.before, err = s.numbers(ctx); err != nil {
		return nil, err
	}
	second.start(ctx)
	floor := s.ledger.floor()
	err = machines.Until(ctx, "the second owner writes", func() (bool, error) {
		return s.ledger.floor() > floor, second.failed()
	})
	if c.Engine == noLease {
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_ = machines.Until(short, "an old read", func() (bool, error) { return s.ledger.old(j), nil })
	}

	return second, err
}

// lost judges an owner that has lost the space: it ends by itself, and knows why.
func (s *machineScene) lost(ctx context.Context, o *owner, j *protocol.Judgement) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	late := func() bool {
		s.ledger.mu.Lock()
		defer s.ledger.mu.Unlock()
		for _, n := range o.acked {
			if !o.before[n] {
				j.Find(&j.Wrong, "the number %d was acknowledged to an owner that had lost the space", n)
				return true
			}
		}

		return false
	}
	for {
		select {
		case <-o.wrote:
			if late(); !errors.Is(o.failed(), holdfast.ErrFenced) {
				j.Find(&j.Wrong, "the owner that lost the space ended with %v", o.failed())
			}
			return
		case <-ctx.Done():
			j.Find(&j.Wrong, "the owner that lost the space does not end")
			return
		case <-time.After(10 * time.Millisecond):
			if late() {
				return
			}
		}
	}
}

// cutOff cuts one way between the primary and all others.
func (s *machineScene) cutOff(ctx context.Context, way func(other machines.Name) (from, to machines.Name)) error {
	for _, other := range append(machines.Names(), machines.Host) {
		if other == s.primary.Name() {
			continue
		}
		from, to := way(other)
		if err := s.lab.Cut(ctx, from, to); err != nil {
			return err
		}
	}

	return nil
}

// acknowledged waits for so many acknowledgements in all.
func (s *machineScene) acknowledged(ctx context.Context, o *owner, n int) error {
	err := machines.Until(ctx, fmt.Sprintf("%d acknowledgements", n), func() (bool, error) {
		return s.ledger.told() >= n || o.failed() != nil, nil
	})

	return errors.Join(err, o.failed())
}

// endWait isolates the primary, waits for a commit that waits for its standbys, and ends the wait.
func (s *machineScene) endWait(ctx context.Context, statements ...string) error {
	if err := s.lab.Isolate(ctx, s.primary.Name()); err != nil {
		return err
	}
	conn, err := s.primary.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var waits bool
	if err := machines.Until(ctx, "a commit waits", func() (bool, error) {
		err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')").Scan(&waits)
		return waits, err
	}); err != nil {
		return err
	}
	// A commit shows when its wait has ended.
	var before, now int64
	const number = "SELECT sum(seq + epoch)::bigint FROM holdfast_space"
	if err := conn.QueryRow(ctx, number).Scan(&before); err != nil {
		return err
	}
	told := s.told()

	// What was waiting may have been given up meanwhile, and another commit wait.
	if err := machines.Until(ctx, "the wait ends", func() (bool, error) {
		for _, sql := range statements {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return false, err
			}
		}
		err := conn.QueryRow(ctx, number).Scan(&now)

		return now > before, err
	}); err != nil {
		return err
	}

	// An owner that believes it says so at once.
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = machines.Until(short, "an acknowledgement", func() (bool, error) { return s.told() > told, nil })

	return nil
}

// all gives all machines their power back.
func (s *machineScene) all(ctx context.Context) error {
	if err := s.lab.Heal(ctx); err != nil {
		return err
	}

	for _, name := range machines.Names() {
		m := s.lab.Machine(name)
		if err := m.PowerOn(ctx); err != nil {
			return err
		}
		if err := m.Start(ctx); err != nil {
			return err
		}
	}

	return nil
}

// numbers is what the primary has, by its own word.
func (s *machineScene) numbers(ctx context.Context) (map[int64]bool, error) {
	there, _, err := s.content(ctx)
	return there, err
}

// content is the numbers that the primary has, and the heads.
func (s *machineScene) content(ctx context.Context) (there map[int64]bool, heads [writers]int64, err error) {
	conn, err := s.primary.Connect(ctx)
	if err != nil {
		return nil, heads, err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT convert_from(k, 'UTF8'), convert_from(v, 'UTF8')::bigint FROM holdfast_kv")
	if err != nil {
		return nil, heads, err
	}
	there = map[int64]bool{}
	var key string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&key, &n}, func() error {
		if head, ok := strings.CutPrefix(key, "head/"); ok {
			i, err := strconv.Atoi(head)
			heads[i] = n
			return err
		}
		there[n] = true

		return nil
	})

	return there, heads, err
}

// judge compares what the primary has with what the owners were told. A round is counted from the acknowledgement
// before it; what was acknowledged earlier must still be there.
func (s *machineScene) judge(ctx context.Context, before int) (j protocol.Judgement, err error) {
	s.ledger.mu.Lock()
	told, acked := slices.Clone(s.ledger.acked), s.ledger.heads
	s.ledger.mu.Unlock()
	there, heads, err := s.content(ctx)
	if err != nil {
		return j, err
	}
	s.ledger.mu.Lock()
	issued := s.ledger.last
	s.ledger.mu.Unlock()

	for n := range there {
		if n < 1 || n > issued {
			j.Find(&j.Wrong, "the number %d was never written", n)
		}
	}
	for i, n := range heads {
		switch {
		case n < acked[i]:
			j.Find(&j.Lost, "writer %d is at %d on %s, %d was acknowledged", i, n, s.primary.Name(), acked[i])
		case n > 0 && !there[n]:
			j.Find(&j.Torn, "the number %d is there in part", n)
		}
	}
	j.Acked = len(told) - before
	for i, n := range told {
		switch {
		case !there[n]:
			j.Find(&j.Lost, "the number %d was acknowledged at quorum, and %s does not have it", n, s.primary.Name())
		case i >= before:
			j.Kept++
		}
	}
	s.ledger.old(&j)

	return j, nil
}

// epoch compares how often the space was taken with what it says.
func (s *machineScene) epoch(ctx context.Context, j *protocol.Judgement) error {
	conn, err := s.primary.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var epoch int64
	if err := conn.QueryRow(ctx, "SELECT epoch FROM holdfast_space").Scan(&epoch); err != nil {
		return err
	}
	if epoch != s.ledger.owned {
		j.Find(&j.Wrong, "the space was taken %d times, and its epoch is %d", s.ledger.owned, epoch)
	}

	return nil
}
