package task

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/names"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// periodic is a periodic task that a program has added.
type periodic struct {
	Periodic
	last, next time.Time // tick that was enqueued, and the one to be; zero if there is none
	refused    uint64    // ticks whose tasks were refused
	warned     bool      // of the last ones, without one between them that was not refused

	// since is the first of the ticks up to last that have had their tasks, zero if that is not known. Before it the clock
	// has passed over ticks that had none: most often because the program did not run, but a clock that is ahead for a
	// moment does the same. done are earlier spans of such ticks: they are not to have others if they come again.
	since time.Time
	done  []span
}

// span is from one tick to another.
type span struct{ from, to time.Time }

// maxSpans is how many spans are remembered one by one.
const maxSpans = 20

// remember adds the ticks up to the last one to done. Where there are too many spans, two that are close to each other
// become one: what lies between them has no task then if it comes again, but no tick has two.
func (p *periodic) remember() {
	p.done = append(slices.Clone(p.done), span{p.since, p.last})
	slices.SortFunc(p.done, func(a, b span) int { return a.from.Compare(b.from) })
	for len(p.done) > maxSpans {
		at, least := 0, time.Duration(math.MaxInt64)
		for i, s := range p.done[1:] {
			if gap := s.from.Sub(p.done[i].to); gap < least {
				at, least = i, gap
			}
		}
		if next := p.done[at+1].to; next.After(p.done[at].to) {
			p.done[at].to = next
		}
		p.done = slices.Delete(p.done, at+1, at+2)
	}
}

// had reports whether a tick has had its task already.
func (p *periodic) had(tick time.Time) bool {
	return slices.ContainsFunc(p.done, func(s span) bool { return !tick.Before(s.from) && !tick.After(s.to) })
}

// kept is what is stored of a periodic task: the tick that was last, the fingerprint of its schedule, the tick that is
// next, 0 if there is none, how many ticks have been refused, 0, since, and the spans in done. Earlier versions stored
// the last tick alone, or in the place of the 0 the tick before since.
func (p *periodic) kept() []byte {
	numbers := []uint64{stored(p.last), p.fingerprint(), stored(p.next), p.refused, 0, stored(p.since)}
	for _, s := range p.done {
		numbers = append(numbers, stored(s.from), stored(s.to))
	}
	return format.AppendNumbers(nil, numbers...)
}

// parsePeriodic is the reverse of kept. The fingerprint is 0 if an earlier version has stored it.
func parsePeriodic(value []byte) (p periodic, fingerprint uint64, ok bool) {
	n, ok := format.Numbers(value)
	if !ok || len(n) != 1 && (len(n) < 6 || len(n)%2 != 0) {
		return p, 0, false
	}
	if p.last = date(int64(n[0])); len(n) == 1 {
		return p, 0, true
	}
	p.next, p.refused, p.since = date(int64(n[2])), n[3], date(int64(n[5]))
	if n[4] != 0 {
		p.done = append(p.done, span{to: date(int64(n[4]))})
	}
	for rest := n[6:]; len(rest) > 0; rest = rest[2:] {
		p.done = append(p.done, span{date(int64(rest[0])), date(int64(rest[1]))})
	}
	return p, n[1], true
}

// stored is the reverse of date.
func stored(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(nanos(t))
}

// fingerprint tells schedules apart by the ticks that come after the last one. Another schedule, another time zone and
// other rules of the same zone have another one, if they differ within these ticks.
func (p *periodic) fingerprint() uint64 {
	h := fnv.New64a()
	t := p.last
	for range fingerprintTicks {
		if t = p.after(t); t.IsZero() {
			break
		}
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(nanos(t))))
	}
	return h.Sum64() | 1 // 0 is none
}

const fingerprintTicks = 64

// setBack lets ticks go on that a clock that was ahead had passed over. Ticks that have had their tasks do not come
// again; ok is false if there are some of those ahead, and so no tick for more than one period.
func (p *periodic) setBack(now time.Time) (ok bool) {
	if !p.last.After(now) {
		return true
	}
	if now.Before(p.since) {
		p.remember()
		p.since, p.last = now, now
		if i := slices.IndexFunc(p.done, func(s span) bool { return !now.Before(s.from) && now.Before(s.to) }); i >= 0 {
			p.since, p.last = p.done[i].from, p.done[i].to
		}
		p.next = p.after(p.last)
	}
	next := p.after(now)
	return next.IsZero() || !next.Before(p.last)
}

// warnSilent says that the clock was set back, and how ticks come again that have had their tasks.
func (s *Store) warnSilent(p *periodic) {
	s.warn(s.fail("periodic", nil, nil, "remove the periodic task and add it again if it is to go on at once",
		"the clock was set back: %q has had its tasks up to %v, and has the next one at %v", p.Name, p.last, p.next))
}

// PeriodicState is what is known of a periodic task.
type PeriodicState struct {
	Name    string
	Added   bool      // to this store since it was opened; else by a program that ran before
	Last    time.Time // the last tick, or when it was first added
	Next    time.Time // zero if there is none
	Refused uint64    // ticks whose tasks were refused, and warned of
}

// Periodics describes all periodic tasks that programs have added and not removed, in the order of their names.
func (s *Store) Periodics(ctx context.Context) (list []PeriodicState, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	lo, hi := s.keys.Table(format.TablePeriodic)
	err = s.scan(lo, hi, math.MaxInt, func(rest, value []byte) error {
		p, _, ok := parsePeriodic(value)
		if !ok {
			return s.strange("list periodic", "what is kept of %q cannot be read", rest)
		}
		open := s.periodic[string(rest)]
		if open != nil {
			p = *open
		}
		list = append(list, PeriodicState{Name: string(rest), Added: open != nil, Last: p.last.UTC(), Next: p.next,
			Refused: p.refused})
		return nil
	})
	return list, err
}

// AddPeriodic lets a task be enqueued at each tick of a schedule, as long as the store is open: programs add their
// periodic tasks whenever they open it. The last tick is stored under the name, in the commit of its task: a tick has
// at most one task, however often the periodic task is added. Adding one with an existing name replaces it. Ticks are
// times of the clock; if that jumps over several while the store is open, the last is caught up, or all with
// CatchUpAll.
//
// A schedule has no ticks before it is set: where the schedule, or its time zone, is another one than that of the last
// tick, the next tick is the first one from now on, whatever CatchUp says. Schedules are told apart by their next
// ticks. A program that leaves the schedule as it is catches up.
//
// A tick whose task is refused (because its Spec is wrong, or runs after a task that does not exist) is skipped, and
// counted, with a warning for the first of several in a row; so is one whose Make panics. A schedule that panics later
// ends the periodic task, with a warning, until it is added again. ErrBadOption: there is no name or no schedule, or
// the schedule panics; errors of Spec are those of Enqueue.
func (s *Store) AddPeriodic(ctx context.Context, p Periodic) error {
	switch what := names.Wrong(p.Name, MaxNameSize); {
	case p.Name == "":
		return s.bad("add periodic", "it has no name")
	case what != "":
		return s.bad("add periodic", "its name %s", what)
	case p.Schedule == nil || p.CatchUp > CatchUpAll:
		return s.bad("add periodic", "%q has no schedule, or no such way to catch up", p.Name)
	case p.Spec.ID != "" && p.Make == nil:
		return s.bad("add periodic", "the tasks of %q would all have the id %q", p.Name, p.Spec.ID)
	}
	if p.Make == nil {
		if err := s.check([]Spec{p.Spec}); err != nil {
			return err
		}
	}
	made := &periodic{Periodic: p}
	err := s.change(ctx, func(x *tx) error {
		key := s.keys.Key(nil, format.TablePeriodic, p.Name)
		value, err := s.get(key)
		if err != nil {
			return err
		}
		now := date(x.now)
		edited := value == nil
		made.last = now
		if value != nil {
			kept, fingerprint, ok := parsePeriodic(value)
			if !ok {
				return s.strange("add periodic", "the last tick of %q cannot be read", p.Name)
			}
			kept.Periodic = p
			*made = kept
			if fingerprint != 0 { // else an earlier version has stored it
				if err := s.call(made, func() { edited = fingerprint != made.fingerprint() }); err != nil {
					return err
				}
			}
		}
		if err := s.call(made, func() {
			made.next = made.after(made.last)

			// A schedule has no ticks before it is set.
			if missed := p.CatchUp == CatchUpNone && !made.next.After(now); edited || missed {
				if value != nil {
					made.remember()
				}
				if made.since = now; edited {
					made.last = now
				}
				made.next = made.after(now)
			}
			if !made.setBack(now) {
				s.warnSilent(made)
			}
			if kept := made.kept(); !bytes.Equal(kept, value) {
				x.set(key, kept)
			}
		}); err != nil {
			return err
		}
		was, had := s.periodic[p.Name]
		s.periodic[p.Name] = made
		x.other = append(x.other, func() {
			if delete(s.periodic, p.Name); had {
				s.periodic[p.Name] = was
			}
		})
		s.setTick()
		return nil
	})
	return err
}

// RemovePeriodic ends a periodic task and forgets its ticks. Tasks that are enqueued stay. ErrNotFound: there is none
// of that name, added now or earlier.
func (s *Store) RemovePeriodic(ctx context.Context, name string) error {
	return s.change(ctx, func(x *tx) error {
		key := s.keys.Key(nil, format.TablePeriodic, name)
		value, err := s.get(key)
		if err != nil {
			return err
		}
		if value == nil {
			return s.fail("remove periodic", holdfast.ErrNotFound, nil, "", "there is none of the name %.80q", name)
		}
		x.set(key, nil)
		if was, had := s.periodic[name]; had {
			x.other = append(x.other, func() {
				s.periodic[name] = was
				s.setTick()
			})
			delete(s.periodic, name)
			s.setTick()
		}
		return nil
	})
}

// call calls code of the program, with the lock held. A panic is an error: the call that meets it has often nothing to
// do with the periodic task.
func (s *Store) call(p *periodic, f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = s.bad("periodic", "the schedule or Make of %q has panicked: %v", p.Name, r)
		}
	}()
	f()
	return nil
}

// after returns the tick after t, zero if there is none.
func (p *periodic) after(t time.Time) time.Time {
	next := p.Schedule.Next(t)
	if !next.After(t) { // a schedule that does not go on has ended
		return time.Time{}
	}
	return next
}

// setTick sets when the next tick is.
func (s *Store) setTick() {
	s.tick = never
	for _, p := range s.periodic {
		if !p.next.IsZero() {
			s.tick = min(s.tick, nanos(p.next))
		}
	}
	if s.tick != never {
		s.plan(time.Duration(s.tick - s.wall))
	}
}

// ticks returns the last ticks from first to now, most of them at most.
func (p *periodic) ticks(first, now time.Time, most int) (ticks []time.Time) {
	for back := time.Second; ; back *= 4 {
		from := now.Add(-back)
		whole := !from.After(first) || back > 1<<60
		if ticks = ticks[:0]; whole {
			from, ticks = first, append(ticks, first)
		}
		for t := p.after(from); !t.IsZero() && !t.After(now); t = p.after(t) {
			ticks = append(ticks, t)
		}
		if whole || len(ticks) >= most {
			return ticks[max(len(ticks)-most, 0):]
		}
	}
}

// fire enqueues the tasks of the ticks that have come. An error is that of the engine.
func (s *Store) fire() error {
	defer s.setTick()
	now := time.Unix(0, s.wall)
	for _, p := range s.periodic {
		if p.next.IsZero() || p.next.After(now) {
			continue
		}
		most := 1
		if p.CatchUp == CatchUpAll {
			most = MaxCatchUp
		}
		var ticks []time.Time
		if err := s.call(p, func() { ticks = p.ticks(p.next, now.In(p.next.Location()), most) }); err != nil {
			s.warn(err)
			p.next = time.Time{}
			continue
		}
		for i, tick := range ticks {
			was := *p
			done := p.had(tick)
			if i == 0 && !tick.Equal(p.next) {
				p.remember()
				p.since = tick
			}
			if _, err := s.try(s.o.Level, func(x *tx) error { return x.tick(p, tick, !done) }); err != nil {
				*p = was
				if s.err != nil || errors.Is(err, holdfast.ErrFull) { // it is not refused for what it is
					return err
				}
				remedy := ""
				if errors.Is(err, ErrExists) {
					remedy = "leave the ID out of what Make returns: each tick has a task of its own, for which Unique may stand"
				}
				p.refused++
				if !p.warned {
					s.warn(s.fail("periodic", nil, err, remedy,
						"the task of %q for %v is refused; more in a row are counted, and not warned of", p.Name, tick))
				}
				p.warned = true
				was = *p
				if _, err := s.try(s.o.Level, func(x *tx) error { return x.tick(p, tick, false) }); err != nil {
					*p = was
					return err
				}
			} else if !done {
				p.warned = false
			}
		}
	}
	return nil
}

// tick enqueues the task of a tick, unless its spec is wrong, and goes on to the next one.
func (x *tx) tick(p *periodic, tick time.Time, enqueue bool) error {
	made := p.Spec
	if enqueue && p.Make != nil {
		if err := x.s.call(p, func() { made = p.Make(tick) }); err != nil {
			return err
		}
	}
	p.last = tick
	kept := []byte(nil)
	if err := x.s.call(p, func() {
		p.next = p.after(tick)
		kept = p.kept()
	}); err != nil { // the schedule ends
		x.s.warn(err)
		p.next = time.Time{}
		kept = format.AppendNumbers(nil, uint64(nanos(tick)))
	}
	x.set(x.s.keys.Key(nil, format.TablePeriodic, p.Name), kept)
	if !enqueue {
		return nil
	}
	if made.At.IsZero() && made.Delay == 0 {
		made.At = tick
	}
	if err := x.s.check([]Spec{made}); err != nil {
		return err
	}
	_, err := x.enqueue([]Spec{made})
	return err
}
