package kinds

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// KillsPerSession is how often victims are killed on one directory.
const KillsPerSession = 5

// The settings of victims. Little memory makes them flush and compact often.
const (
	victimMemory  = 6 << 20
	victimWriters = 6
	killRate      = 16 << 20
	powerRate     = 6 << 20
)

// Window is the loss window that victims are opened with whose losses are measured; a peer has its own.
func (c Row) Window() time.Duration {
	if c.Peer {
		return c.Capabilities.LossWindow
	}

	return holdfast.DefaultSyncEvery
}

// WindowLimit is how much may be lost: the sync at the end of the window takes some time.
func (c Row) WindowLimit() time.Duration { return c.Window() + time.Second }

// victimSpec is what a victim is told that goes on with a history.
func (r *Runner) victimSpec(c Row, dir string, h *protocol.History, rate int64) protocol.Spec {
	h = h.Clone()

	last := h.Segments[len(h.Segments)-1]
	seed, gen := h.Seed, last.Gen
	s := protocol.Spec{
		Engine: c.Engine, Subject: c.Subject, Level: c.Level, Dir: dir, Seed: seed, Gen: gen, From: last.From,
		Memory: victimMemory, Writers: victimWriters, Rate: rate,
		// Nothing in the background helps a claim to hold.
		Window:   -1,
		Segments: h.Segments, Skipped: h.Skipped, Monotonic: h.Monotonic,
		Followed: h.Followed,
	}
	if c.Given < c.Kind.Survives() {
		// What can be lost is to be measured.
		s.Only, s.Window = true, int64(c.Window())
		if c.Kind == Kill { // which no sync helps against
			s.SyncNow = int64(700 * time.Millisecond)
		}
	} else if commits.Mix(seed, uint64(gen))%4 == 0 {
		s.Window, s.SyncNow = int64(50*time.Millisecond), int64(120*time.Millisecond)
	}

	// A control is to lose what it does not keep: nothing may sync it by the way.
	if c.Control {
		s.Window, s.SyncNow, s.Only = -1, 0, true
	}

	return s
}

// killMoment chooses when the victim of a round is killed. acked says that it must not be before the first
// acknowledgement.
func killMoment(r *rand.Rand, c Row, s *protocol.Spec, round int, acked bool) moment {
	delay := func(limit time.Duration) time.Duration { return time.Duration(r.Int64N(int64(limit))) }
	if c.Control {
		// Acknowledgements are fast just before.
		s.Rate = 0
		return moment{name: "while it acknowledges", acks: 200 + r.IntN(2000)}
	}
	what := (round + r.IntN(2)) % 6
	if CanKillBefore() && !c.Peer && !acked && c.Capabilities.Strongest() > holdfast.Memory && r.IntN(3) == 0 {
		// Few calls come while it opens, many after that. It closes and opens for the names that it changes then.
		s.DieAt = protocol.Call{Name: calls[r.IntN(len(calls))], N: 1 + r.IntN(1<<(1+r.IntN(8)))}
		s.Reopen = int64(100 * time.Millisecond)

		return moment{name: fmt.Sprintf("before the %dth call of kind %s", s.DieAt.N, s.DieAt.Name), delay: time.Second}
	}

	switch {
	case c.Capabilities.Strongest() <= holdfast.Memory:
		what = 0 // it has no files, and nothing after it was closed
	case acked && what == 1:
		what = 0
	}

	switch what {
	case 0:
		return moment{name: "at random", delay: delay(250 * time.Millisecond)}
	case 1:
		return moment{name: "while it opens", phase: protocol.PhaseOpening, delay: delay(25 * time.Millisecond)}
	case 2:
		s.Reopen = int64(60 * time.Millisecond)
		return moment{name: "while it closes", phase: protocol.PhaseClosing, delay: delay(15 * time.Millisecond)}
	case 3:
		s.Rate *= 2
		return moment{name: "when a file appears", file: true, delay: delay(3 * time.Millisecond)}
	case 4:
		s.SyncNow = int64(15 * time.Millisecond)
		return moment{name: "while it syncs", phase: protocol.PhaseSyncing, delay: delay(4 * time.Millisecond)}
	}
	s.Reopen = int64(50 * time.Millisecond)

	return moment{name: "between reopenings", delay: delay(400 * time.Millisecond)}
}

// killSession kills victims on one directory, and judges after each what is there.
func (r *Runner) killSession(ctx context.Context, c Row, seed uint64, kills int, t Tally) error {
	dir, err := os.MkdirTemp(r.Dir, "kill-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rnd := rand.New(rand.NewPCG(commits.Mix(seed, 1), 0))
	h, err := r.history(c, seed)
	if err != nil {
		return err
	}
	from, acks := uint64(1), 0
	h.Begin(0, from)
	if err := r.age(ctx, c, dir, h, c.agedBytes(rnd), rnd.IntN(2) == 0, 0, t); err != nil {
		return err
	}

	from = h.Issued + 1
	for round := range kills {
		h.Begin(uint32(round), from)
		s := r.victimSpec(c, dir, h, killRate)
		// However slow the machine, a session has something to judge.
		m := killMoment(rnd, c, &s, round, round == kills-1 && acks == 0)
		v := &victim{
			command: r.Child, spec: s, ledger: &protocol.Ledger{},
			place: func(uint64) protocol.Position { return 0 }, row: c,
		}
		watched := func() {}
		if c.Capabilities.AtomicBatches { // or each key has a file
			watched = watchFiles(ctx, filepath.Join(dir, protocol.EngineDir), t)
		}
		err := r.runVictim(ctx, v, m, nil)
		watched()
		if err != nil {
			return err
		}
		t.Did("victims", 1)
		if v.atCall {
			t.Did("victims killed at a system call", 1)
		}

		// A kill takes nothing from the operating system, so that everything which was heard counts, wherever in time it
		// was.
		h.Add(v.ledger, protocol.Never)
		acks += len(h.Acks)
		t.Synced(v.ledger.PerCommit())
		ev := &Scene{Row: c, History: h.Clone(), Spec: s,
			When: fmt.Sprintf("killed %s, %v after that, in round %d", m.name, m.delay.Round(time.Microsecond), round+1)}

		// The directory is copied before it is opened: opening repairs, and the evidence would be gone.
		if !c.Control {
			if err := ev.take(r.Dir, dir); err != nil {
				return err
			}
		}
		j, fatal, err := r.judge(ctx, c, h, s, dir, rnd, t, v.ledger)
		if err != nil {
			ev.Drop()
			return err
		}
		if fatal || j.Broken() {
			t.Breaks(ev, j)
		} else {
			ev.Drop()
		}
		if fatal || j.Broken() || c.Control {
			return nil // what comes after is not to be judged
		}
		from, h.Skipped = j.Survived+1, append(h.Skipped, j.Skipped...)
	}

	return nil
}
