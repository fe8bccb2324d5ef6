package crash

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/console"
)

// killsPerSession is how often victims are killed on one directory.
const killsPerSession = 5

// The settings of victims. Little memory makes them flush and compact often.
const (
	victimMemory  = 6 << 20
	victimWriters = 6
	killRate      = 16 << 20
	powerRate     = 6 << 20
	shortWindow   = 50 * time.Millisecond // Options.SyncEvery where losses are measured by it
)

// victimSpec is what a victim is told that goes on with a history.
func (r *runner) victimSpec(c cell, dir string, h *history, rate int64) spec {
	h = h.clone()
	last := h.Segments[len(h.Segments)-1]
	seed, gen := h.Seed, last.Gen
	s := spec{
		Engine: c.Engine, Subject: c.Subject, Level: c.Level, Dir: dir, Seed: seed, Gen: gen, From: last.From,
		Memory: victimMemory, Writers: victimWriters, Rate: rate,
		// Nothing in the background helps a claim to hold.
		Window: -1,
	}
	if c.Subject == rafts.Name {
		s.Segments, s.Skipped, s.Monotonic = h.Segments, h.Skipped, h.Monotonic
	}
	if c.Given < c.Kind.survives() {
		// What can be lost is to be measured.
		s.Only, s.Window, s.SyncNow = true, int64(shortWindow), int64(700*time.Millisecond)
	} else if mix(seed, uint64(gen))%4 == 0 {
		s.Window, s.SyncNow = int64(shortWindow), int64(120*time.Millisecond)
	}
	if c.Control {
		s.Window, s.SyncNow, s.Only = -1, 0, true
	}
	return s
}

// killMoment chooses when the victim of a round is killed. acked says that it must not be before the first acknowledgement.
func killMoment(r *rand.Rand, c cell, s *spec, round int, acked bool) moment {
	delay := func(limit time.Duration) time.Duration { return time.Duration(r.Int64N(int64(limit))) }
	if c.Control {
		// Acknowledgements are fast just before.
		s.Rate = 0
		return moment{name: "while it acknowledges", acks: 200 + r.IntN(2000)}
	}
	what := (round + r.IntN(2)) % 6
	switch {
	case c.capabilities.Strongest() <= holdfast.Memory:
		what = 0 // it has no files, and nothing after it was closed
	case acked && what == 1:
		what = 0
	}
	switch what {
	case 0:
		return moment{name: "at random", delay: delay(250 * time.Millisecond)}
	case 1:
		return moment{name: "while it opens", phase: phaseOpening, delay: delay(25 * time.Millisecond)}
	case 2:
		s.Reopen = int64(60 * time.Millisecond)
		return moment{name: "while it closes", phase: phaseClosing, delay: delay(15 * time.Millisecond)}
	case 3:
		s.Rate *= 2
		return moment{name: "when a file appears", file: true, delay: delay(3 * time.Millisecond)}
	case 4:
		s.SyncNow = int64(15 * time.Millisecond)
		return moment{name: "while it syncs", phase: phaseSyncing, delay: delay(4 * time.Millisecond)}
	}
	s.Reopen = int64(50 * time.Millisecond)
	return moment{name: "between reopenings", delay: delay(400 * time.Millisecond)}
}

// history begins the history of a directory.
func (c cell) history(seed uint64) *history {
	h := &history{Seed: seed, Survives: c.Kind.survives(), Level: c.Given}
	if c.Subject == rafts.Name {
		c.raftHistory(h)
	}
	return h
}

// killSession kills victims on one directory, and judges after each what is there.
func (r *runner) killSession(ctx context.Context, c cell, seed uint64, kills int, t *tally) error {
	dir, err := os.MkdirTemp(r.dir.Path, "kill-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rnd := rand.New(rand.NewPCG(mix(seed, 1), 0))
	h := c.history(seed)
	from, acks := uint64(1), 0
	for round := range kills {
		h.begin(uint32(round), from)
		s := r.victimSpec(c, dir, h, killRate)
		// However slow the machine, a session has something to judge.
		m := killMoment(rnd, c, &s, round, round == kills-1 && acks == 0)
		v := &victim{command: r.child, spec: s, ledger: &ledger{}, place: func(uint64) position { return 0 }, entry: c.capabilities}
		if err := r.runVictim(ctx, v, m, nil); err != nil {
			return err
		}
		h.add(v.ledger, never)
		acks += len(h.Acks)
		t.metrics(v.ledger)
		ev := &evidence{cell: c, history: h.clone(), spec: s, when: fmt.Sprintf("killed %s, %v after that, in round %d", m.name, m.delay.Round(time.Microsecond), round+1)}
		if !c.Control {
			if err := ev.take(r, dir); err != nil {
				return err
			}
		}
		j, fatal, err := r.judge(ctx, c, h, s, dir, rnd, t, v.ledger)
		if err != nil {
			ev.drop()
			return err
		}
		if fatal || j.broken() {
			t.breaks(r, ev, j)
		} else {
			ev.drop()
		}
		if fatal || j.broken() || c.Control {
			return nil // what comes after is not to be judged
		}
		from, h.Skipped = j.Survived+1, append(h.Skipped, j.Skipped...)
	}
	return nil
}

// judge opens twice what a crash has left and decides. fatal is a recovery failure.
func (r *runner) judge(ctx context.Context, c cell, h *history, s spec, dir string, rnd *rand.Rand, t *tally, l *ledger) (j Judgement, fatal bool, err error) {
	s.Dir, s.Opens, s.Leave = dir, 1, rnd.IntN(2) == 0
	var found [][]entry
	var recovery []time.Duration
	for len(found) < 2 {
		if rnd.IntN(2) == 0 {
			s.Opens = 2 - len(found) // in one process
		}
		d, err := checks(ctx, r.child, s, r.lab.timeout().checking)
		if err != nil {
			return j, false, err
		}
		if d.full {
			return j, false, noRoom(dir, d.failure)
		}
		for _, wrong := range d.wrong {
			j.find(&j.Wrong, "%s", wrong)
		}
		found, recovery = append(found, d.found...), append(recovery, d.recovery...)
		if d.failure != "" {
			if len(found) == 0 {
				j.unread(h)
			}
			j.Findings = append([]string{"recovery failed: " + d.failure}, j.Findings...)
			fatal = true
			break
		}
	}
	subject, err := r.lab.subject(c.Subject)
	if err != nil {
		return j, false, err
	}
	if len(found) > 0 {
		before := j
		j = subject.judge(h, found[0])
		j.Wrong += before.Wrong
		j.Findings = append(before.Findings, j.Findings...)
		if len(found) > 1 {
			j.again(found[0], found[1])
		}
	}
	if l != nil {
		for _, finding := range l.findings() {
			j.find(&j.Wrong, "%s", finding)
		}
	}
	if len(recovery) > 0 {
		t.recovered(recovery[0])
	}
	t.add(j, fatal)
	return j, fatal, nil
}

// unread counts what was acknowledged where nothing could be read.
func (j *Judgement) unread(h *history) {
	for _, a := range h.Acks {
		if h.counts(a) {
			j.Acked++
		}
	}
}

func noRoom(dir, text string) error {
	return &holdfast.Error{Op: "crash", Path: dir, Class: holdfast.ErrFull, Detail: text, Remedy: "name a directory on a disk with room with --dir"}
}

// runVictim starts a victim and kills it at a moment; last is called just before. An error is not the victim's
// doing; what it did wrong itself is in its ledger.
func (r *runner) runVictim(ctx context.Context, v *victim, m moment, last func()) error {
	if err := ctx.Err(); err != nil {
		return console.ErrInterrupted
	}
	p, events, ended, err := v.launch()
	if err != nil {
		return err
	}
	died := !await(ctx, v, m, events, r.lab.timeout().silence)
	if last != nil {
		last()
	}
	p.Kill()
	for range events {
	}
	p.CloseInput()
	err = <-ended
	l := v.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return console.ErrInterrupted
	case l.full && !v.spec.Failing:
		return noRoom(v.spec.Dir, l.failure)
	case died && l.failure == "":
		l.failure = fmt.Sprintf("its process died: %v", err)
	}
	return nil
}

// await returns when the moment has come, or the victim was silent for so long; false if it is dead before.
func await(ctx context.Context, v *victim, m moment, events <-chan heard, silence time.Duration) bool {
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	acks := 0
	// until waits for what done says, at most for d after the first acknowledgement.
	until := func(d time.Duration, done func(heard) bool) bool {
		var after <-chan time.Time
		for {
			select {
			case h, ok := <-events:
				if !ok {
					return false
				}
				if h.ack {
					if acks++; acks == 1 && d > 0 {
						after = time.After(d)
						quiet.Stop()
					}
				}
				if done(h) {
					return true
				}
			case <-after:
				return true
			case <-quiet.C:
				v.ledger.mu.Lock()
				v.ledger.failure = fmt.Sprintf("it acknowledged nothing for %v", silence)
				v.ledger.mu.Unlock()
				return true
			case <-ctx.Done():
				return true
			}
		}
	}
	switch {
	case m.phase == phaseOpening:
		if !until(0, func(h heard) bool { return h.phase == phaseOpening }) {
			return false
		}
	case m.phase > 0:
		if !until(2*time.Second, func(h heard) bool { return h.phase == m.phase && acks > 0 }) {
			return false
		}
	case m.acks > 0:
		return until(20*time.Second, func(heard) bool { return acks >= m.acks })
	default:
		if !until(0, func(h heard) bool { return h.ack }) {
			return false
		}
		quiet.Stop()
	}
	rest := time.NewTimer(m.delay)
	defer rest.Stop()
	if m.file {
		before := files(v.spec.Dir)
		limit := time.After(400 * time.Millisecond)
		poll := time.NewTicker(time.Millisecond)
		defer poll.Stop()
	watch:
		for {
			select {
			case <-poll.C:
				if appeared(before, files(v.spec.Dir)) {
					rest.Reset(m.delay)
					break watch
				}
			case _, ok := <-events:
				if !ok {
					return false
				}
			case <-limit:
				break watch
			case <-ctx.Done():
				return true
			}
		}
	}
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return false
			}
		case <-rest.C:
			return true
		case <-ctx.Done():
			return true
		}
	}
}

// files names the files below dir.
func files(dir string) map[string]bool {
	names := map[string]bool{}
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names[name] = true
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil // what just went is gone
	})
	return names
}

func appeared(before, now map[string]bool) bool {
	for name := range now {
		if !before[name] {
			return true
		}
	}
	return false
}
