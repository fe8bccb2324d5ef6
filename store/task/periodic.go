package task

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// periodic is a periodic task that a program has added.
type periodic struct {
	Periodic
	last, next time.Time // tick that was enqueued, and the one to be; zero if there is none
}

// AddPeriodic lets a task be enqueued at each tick of a schedule, as long as the store is open: programs add their
// periodic tasks whenever they open it. The last tick is stored under the name, in the commit of its task: a tick has
// at most one task, however often the periodic task is added. Adding one with an existing name replaces it. Ticks are
// times of the clock; if that jumps over several while the store is open, the last is caught up, or all with
// CatchUpAll.
//
// A tick whose task is refused (because its Spec is wrong, or runs after a task that does not exist) is skipped, with
// a warning; so is one whose Make panics. A schedule that panics later ends the periodic task, with a warning, until
// it is added again. ErrBadOption: there is no name or no schedule, or the schedule panics; errors of Spec are those
// of Enqueue.
func (s *Store) AddPeriodic(ctx context.Context, p Periodic) error {
	switch what := wrongText(p.Name, MaxNameSize); {
	case p.Name == "" || what != "":
		return s.bad("add periodic", "its name %q %s", p.Name, what)
	case p.Schedule == nil || p.CatchUp > CatchUpAll:
		return s.bad("add periodic", "%q has no schedule, or no such way to catch up", p.Name)
	case p.Spec.ID != "" && p.Make == nil:
		return s.bad("add periodic", "the tasks of %q would all have the id %q", p.Name, p.Spec.ID)
	}
	if err := s.check([]Spec{p.Spec}); err != nil {
		return err
	}
	made := &periodic{Periodic: p}
	err := s.change(ctx, func(x *tx) error {
		key := s.keys.Key(nil, format.TablePeriodic, p.Name)
		value, err := s.get(key)
		if err != nil {
			return err
		}
		if value == nil {
			made.last = date(x.now)
			x.set(key, format.AppendNumbers(nil, uint64(x.now)))
		} else if n, ok := format.Numbers(value); !ok || len(n) != 1 {
			return s.strange("add periodic", "the last tick of %q cannot be read", p.Name)
		} else {
			made.last = date(int64(n[0]))
		}
		if err := s.call(made, func() {
			made.next = made.after(made.last)
			if now := date(x.now); p.CatchUp == CatchUpNone && !made.next.After(now) {
				made.next = made.after(now)
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
		for _, tick := range ticks {
			if _, err := s.try(s.o.Level, func(x *tx) error { return x.tick(p, tick, true) }); err != nil {
				if s.err != nil || errors.Is(err, holdfast.ErrFull) { // it is not refused for what it is
					return err
				}
				s.warn(s.fail("periodic", nil, err, "", "the task of %q for %v", p.Name, tick))
				if _, err := s.try(s.o.Level, func(x *tx) error { return x.tick(p, tick, false) }); err != nil {
					return err
				}
			}
			p.last = tick
			if err := s.call(p, func() { p.next = p.after(tick) }); err != nil {
				s.warn(err)
				p.next = time.Time{}
			}
		}
	}
	return nil
}

// tick enqueues the task of a tick, unless its spec is wrong, and keeps which tick it was.
func (x *tx) tick(p *periodic, tick time.Time, enqueue bool) error {
	x.set(x.s.keys.Key(nil, format.TablePeriodic, p.Name), format.AppendNumbers(nil, uint64(nanos(tick))))
	if !enqueue {
		return nil
	}
	spec := p.Spec
	if p.Make != nil {
		if err := x.s.call(p, func() { spec = p.Make(tick) }); err != nil {
			return err
		}
	}
	if spec.At.IsZero() && spec.Delay == 0 {
		spec.At = tick
	}
	if err := x.s.check([]Spec{spec}); err != nil {
		return err
	}
	_, err := x.enqueue([]Spec{spec})
	return err
}
