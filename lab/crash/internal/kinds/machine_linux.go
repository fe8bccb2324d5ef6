package kinds

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/lab/internal/machines"
)

// loss is a way to lose the primary.
type loss struct {
	name string
	trap bool // the primary may say that a commit is done which nobody else has
	all  bool // all machines are lost, and come back as they were
	do   func(ctx context.Context, s *machineScene) error
}

var losses = []loss{
	{name: "kill", do: func(_ context.Context, s *machineScene) error { return s.primary.Kill() }},
	{name: "power cut", do: func(ctx context.Context, s *machineScene) error {
		return s.lab.PowerOff(ctx, s.policy, s.primary.Name())
	}},
	{name: "power cut of all", all: true, do: func(ctx context.Context, s *machineScene) error {
		return s.lab.PowerOff(ctx, s.policy, machines.Names()...)
	}},
	{name: "lost disk", do: func(ctx context.Context, s *machineScene) error { return s.primary.Lose(ctx) }},
	{name: "isolation", do: func(ctx context.Context, s *machineScene) error {
		return s.lab.Isolate(ctx, s.primary.Name())
	}},
	{name: "cancelled wait", trap: true, do: func(ctx context.Context, s *machineScene) error {
		return s.endWait(ctx, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	}},
	{name: "emptied standby names", trap: true, do: func(ctx context.Context, s *machineScene) error {
		return s.endWait(ctx, "ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")
	}},
}

// machineScene is a round.
type machineScene struct {
	lab     *machines.Lab
	primary *machines.Machine
	writer  *numberWriter
	policy  blockdev.Policy
}

// roundTime bounds a round: what does not come within it is a failure of the lab.
const roundTime = 5 * time.Minute

// machineSession loses the primary of three machines again and again while numbers are written there. After each
// failover those that were acknowledged, in all rounds, must be on the new primary.
func (r *Runner) machineSession(
	ctx context.Context, c Row, seed uint64, crashes int, t Tally,
) (err error) {
	defer func() {
		if ctx.Err() != nil {
			err = console.ErrInterrupted
		}
	}()
	lab, err := machines.New(ctx, machines.Options{Dir: r.Dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	if err := execOn(ctx, lab.Primary(), "CREATE TABLE numbers (n bigint PRIMARY KEY)"); err != nil {
		return err
	}

	rnd := rand.New(rand.NewPCG(commits.Mix(seed, 1), 0))
	w := &numberWriter{counts: c.Engine != believingWriter}
	for round := range crashes {
		l := losses[(int(seed%64)+round)%len(losses)]
		behind := rnd.IntN(2) == 0 // one standby has less than the other
		switch c.Engine {
		case believingWriter:
			for !l.trap {
				l = losses[rnd.IntN(len(losses))]
			}
		case shorterLog:
			l, behind = losses[0], true
		}
		s := &machineScene{lab: lab, primary: lab.Primary(), writer: w, policy: blockdev.Subset(rnd.Uint64())}
		j, err := s.lose(ctx, c, l, behind, rnd, t)
		if err != nil {
			return fmt.Errorf("%s, round %d: %w", l.name, round+1, err)
		}
		t.Judged(j, false)
		t.Did(l.name, 1)
		if j.Broken() {
			t.Breaks(&Scene{Row: c, When: fmt.Sprintf("%s in round %d", l.name, round+1)}, j)
		}
		if j.Broken() || c.Control {
			return nil
		}
	}

	return nil
}

// lose makes one round and judges it.
func (s *machineScene) lose(
	ctx context.Context, c Row, l loss, behind bool, rnd *rand.Rand, t Tally,
) (j protocol.Judgement, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	s.writer.start(ctx, s.primary)
	defer s.writer.stop()
	before := len(s.writer.told())
	if err := s.acknowledged(ctx, before+1+rnd.IntN(30)); err != nil {
		return j, err
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
		if err := s.acknowledged(ctx, len(s.writer.told())+2+rnd.IntN(10)); err != nil {
			return j, err
		}
	}
	if err := l.do(ctx, s); err != nil {
		return j, err
	}
	s.writer.stop()

	old, began := s.primary, time.Now()
	if l.all {
		err = s.all(ctx)
	} else {
		rule := machines.Longest
		if c.Engine == shorterLog {
			rule = machines.Shortest
		}
		s.primary, err = s.lab.Failover(ctx, rule)
	}
	if err != nil {
		return j, err
	}
	t.Recovered(time.Since(began))
	if j, err = s.judge(ctx, before); err != nil || l.all || j.Broken() {
		return j, err
	}

	// All three again, for the next round.
	return j, errors.Join(s.lab.Heal(ctx), old.PowerOn(ctx), s.lab.Rejoin(ctx, old.Name()))
}

// acknowledged waits for so many acknowledgements in all.
func (s *machineScene) acknowledged(ctx context.Context, n int) error {
	err := machines.Until(ctx, fmt.Sprintf("%d acknowledgements", n), func() (bool, error) {
		return len(s.writer.told()) >= n || s.writer.failed() != nil, nil
	})

	return errors.Join(err, s.writer.failed())
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
	before := s.writer.committed()

	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}

	return machines.Until(ctx, "the wait ends", func() (bool, error) { return s.writer.committed() > before, nil })
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

// judge compares what the primary has with what the writer was told. A round is counted from the acknowledgement
// before it; what was acknowledged earlier must still be there.
func (s *machineScene) judge(ctx context.Context, before int) (j protocol.Judgement, err error) {
	conn, err := s.primary.Connect(ctx)
	if err != nil {
		return j, err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT n FROM numbers")
	if err != nil {
		return j, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return j, err
	}
	there := map[int64]bool{}
	for _, n := range found {
		if there[n] = true; n < 1 || n > s.writer.issued() {
			j.Find(&j.Wrong, "the number %d was never written", n)
		}
	}

	told := s.writer.told()
	j.Acked = len(told) - before
	for i, n := range told {
		switch {
		case !there[n]:
			j.Find(&j.Lost, "the number %d was acknowledged at quorum, and %s does not have it", n, s.primary.Name())
		case i >= before:
			j.Kept++
		}
	}

	return j, nil
}

// execOn runs a statement on a machine's server.
func execOn(ctx context.Context, m *machines.Machine, sql string) error {
	conn, err := m.Connect(ctx)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)

	return errors.Join(err, conn.Close(ctx))
}

// numberWriter commits one number after another with plain SQL, from the machine of the primary.
type numberWriter struct {
	counts bool // it acknowledges what it has counted, not what COMMIT says

	mu     sync.Mutex
	last   int64   // issued
	commit int     // COMMITs that succeeded
	acked  []int64 // numbers
	err    error

	cancel context.CancelFunc // nil if it does not run
	ended  chan struct{}
}

// start lets it go on, until its connection fails or stop is called.
func (w *numberWriter) start(ctx context.Context, m *machines.Machine) {
	ctx, w.cancel = context.WithCancel(ctx)
	w.ended = make(chan struct{})
	w.err = nil
	go func() {
		defer close(w.ended)
		err := w.run(ctx, m)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = err
	}()
}

// stop ends it. It may be called again.
func (w *numberWriter) stop() {
	w.cancel()
	<-w.ended
}

// run writes until something fails, which in the end something does.
func (w *numberWriter) run(ctx context.Context, m *machines.Machine) error {
	conn, err := m.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))

	for {
		w.mu.Lock()
		w.last++
		n := w.last
		w.mu.Unlock()
		if _, err := conn.Exec(ctx, "INSERT INTO numbers VALUES ($1)", n); err != nil {
			return err
		}
		w.mu.Lock()
		w.commit++
		w.mu.Unlock()
		if w.counts {
			if err := machines.Until(ctx, "count", func() (bool, error) {
				var standbys int
				err := conn.QueryRow(ctx, machines.CountFlushed).Scan(&standbys)
				return standbys > 0, err
			}); err != nil {
				return err
			}
		}
		w.mu.Lock()
		w.acked = append(w.acked, n)
		w.mu.Unlock()
	}
}

// told is what was acknowledged so far.
func (w *numberWriter) told() []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.acked
}

// committed is how often COMMIT succeeded, issued the last number that may be there, and failed why it ended.
func (w *numberWriter) committed() int {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.commit
}

// issued is described with committed.
func (w *numberWriter) issued() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.last
}

// failed is described with committed.
func (w *numberWriter) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.err
}
