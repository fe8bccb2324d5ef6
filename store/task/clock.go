package task

import (
	"context"
	"math"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// chunk is how many tasks one commit puts back, makes ready or removes at most; others have their turn in between.
// Tests have fewer.
var chunk = 256

// setAlarm sets when something is due in q.
func (s *Store) setAlarm(q *queue) {
	at := min(q.due, q.removal)
	if q.held > s.wall && q.counts[Waiting] > 0 {
		at = min(at, q.held)
	}
	if len(q.slow.Items) > 0 {
		at = min(at, q.slow.Items[0].until)
	}

	q.alarm = at
	switch {
	case at == never && q.at >= 0:
		s.alarms.Remove(q.at)
	case at == never:
	case q.at >= 0:
		s.alarms.Fix(q.at, q)
	default:
		s.alarms.Push(q)
	}

	if at != never {
		s.plan(time.Duration(at - s.wall))
	}
}

// plan lets the clock be looked at after d at the latest.
func (s *Store) plan(d time.Duration) {
	if at := s.elapsed + max(d, 0); at < s.planned {
		s.planned = at
		select {
		case s.replan <- struct{}{}:
		default:
		}
	}
}

// maxSleep is how long a clock that has been set forward is not noticed at most.
const maxSleep = 10 * time.Second

// watch does what is due, in the background, until the engine ends.
func (s *Store) watch(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-s.eng.Done(): // those who wait are to know
			s.lock()
			s.broken(s.eng.Err())
			s.turn.Unlock()
			return
		case <-s.replan:
		case <-timer.C:
		}
		if s.take(ctx) != nil {
			return
		}

		sleep := maxSleep
		if s.err == nil {
			if s.due() {
				_ = s.advance() // tried again
			}
			sleep = s.sleep()
		}

		// Whoever plans something earlier than this from now on wakes the loop by replan.
		s.planned = s.elapsed + sleep
		s.turn.Give()
		timer.Reset(sleep)
	}
}

// sleep is for how long nothing is due.
func (s *Store) sleep() time.Duration {
	d := maxSleep
	if len(s.leases.Items) > 0 {
		d = min(d, s.leases.Items[0].until-s.elapsed)
	}
	if len(s.alarms.Items) > 0 {
		d = min(d, time.Duration(s.alarms.Items[0].alarm-s.wall))
	}

	if at := min(s.expiry, s.tick); at != never {
		d = min(d, time.Duration(at-s.wall))
	}

	// Both are begun and not ended: the next part of them is due at once.
	if s.back > 0 || s.ended != none {
		d = 0
	}

	// What has failed is not tried again before its time, whatever is due.
	return max(d, s.again-s.elapsed, 0)
}

// due reports whether something is.
func (s *Store) due() bool { return s.sleep() == 0 }

// Tick does what is due now: leases that have run out, tasks whose time has come, retention. The store does so by
// itself. A program with a clock of its own calls Tick when that has moved; everything due is done when Tick returns
// nil.
func (s *Store) Tick(ctx context.Context) error {
	for {
		if err := s.enter(ctx); err != nil {
			return err
		}
		if s.err != nil || !s.due() {
			defer s.leave()
			if s.err == nil && s.again > s.elapsed {
				return s.trouble
			}
			return s.err
		}
		err := s.advance()
		if s.leave(); err != nil { // others have their turn
			return err
		}
	}
}

// advance does a part of what is due, in one commit that nobody waits for. If that fails it is tried again after a
// second.
func (s *Store) advance() error {
	if s.err != nil {
		return nil
	}

	err := s.step()
	if err == nil {
		s.again, s.share = 0, min(2*s.share, chunk)
		return nil
	}

	s.share = max(s.share/4, 1) // it may be too large for the engine
	if s.again == 0 {           // the first time
		s.warn(err)
	}

	s.again, s.trouble = s.elapsed+time.Second, err
	return err
}

func (s *Store) step() error {
	if s.back > 0 {
		back := s.back
		s.back = 0 // whatever comes: it is not done twice
		if err := s.setBack(back); err != nil {
			return err
		}
	}

	if s.tick <= s.wall {
		if err := s.fire(); err != nil {
			return err
		}
	}

	// All that follows is one commit, and what is left of it when its share is used up is still due.
	_, err := s.try(s.o.Level, func(x *tx) error {
		if err := x.release(s.share); err != nil {
			return err
		}

		n := 0
		for len(s.leases.Items) > 0 && s.leases.Items[0].until <= s.elapsed && n < s.share {
			if err := x.expire(s.leases.Items[0].task); err != nil {
				return err
			}
			n++
		}

		for len(s.alarms.Items) > 0 && s.alarms.Items[0].alarm <= s.wall && n < s.share {
			q := s.alarms.Items[0]
			for _, f := range []func(*queue, int) (int, error){x.promote, x.retain} {
				done, err := f(q, s.share-n)
				if err != nil {
					return err
				}
				n += done
			}

			// Keys whose rate lets them go on, or whose starts do not count any more.
			for ; len(q.slow.Items) > 0 && q.slow.Items[0].until <= s.wall && n < s.share; n++ {
				l := q.slow.Items[0]
				if s.review(l); len(l.starts) == 0 {
					x.key = s.keys.Rate(x.key, q.name, l.key)
					x.set(x.key, nil)
				}
				x.rest(l)
			}

			if q.held > 0 && q.held <= s.wall {
				q.held = 0
				s.wake(q)
			}
			s.setAlarm(q)
		}
		return x.forget(s.share)
	})
	return err
}

// setBack makes up for a clock that was set back. A stored time that lies further ahead than it could be asked for now
// is taken as asked for now; see the package comment. What is scheduled after a delay is due that much earlier.
func (s *Store) setBack(back int64) error {
	for _, p := range s.periodic {
		if err := s.call(p, func() {
			if !p.setBack(date(s.wall)) {
				s.warnSilent(p)
			}
		}); err != nil {
			s.warn(err)
			p.next = time.Time{}
		}
	}

	s.setTick()
	for _, q := range s.queues {
		q.held = next(&q.starts, q.o.Rate, s.wall)
		for _, l := range q.lanes {
			s.review(l)
		}
		if err := s.eachListed(q, Scheduled, func(x *tx, t *task) {
			if t.Flags&format.Delayed != 0 {
				to := *t
				to.Due = max(t.Due-back, 0)
				x.put(t, &to)
			}
		}); err != nil {
			return err
		}

		// Those that were ready while the clock was ahead would come behind all that become ready from now on.
		if err := s.eachListed(q, Waiting, func(x *tx, t *task) {
			if t.Due > x.now {
				to := *t
				to.Due = x.now
				x.put(t, &to)
			}
		}); err != nil {
			return err
		}

		// Retention is counted from when a task ended, which is not later than now.
		for _, state := range []State{Completed, Cancelled, Dead} {
			if err := s.eachListed(q, state, func(x *tx, t *task) {
				if ahead := t.Finished - x.now; ahead > 0 && t.Removal != format.Forever {
					to := *t
					to.Finished, to.Removal = x.now, max(t.Removal-ahead, 0)
					x.put(t, &to)
				}
			}); err != nil {
				return err
			}
		}

		s.wake(q)
		s.setAlarm(q)
	}

	if err := s.shortenUniques(); err != nil {
		return err
	}

	// It is made up for once, also if the store is opened again.
	_, err := s.try(s.o.Level, func(x *tx) error {
		s.describe(&x.fresh)
		return nil
	})
	return err
}

// shortenUniques lets no text be unique for longer from now on than was asked for. Earlier versions did not store that.
func (s *Store) shortenUniques() error {
	lo, hi := s.keys.Table(format.TableExpiry)
	lo = s.keys.Expiry(lo[:0], s.wall, "")
	for more := true; more; {
		if _, err := s.try(s.o.Level, func(x *tx) error {
			type unique struct {
				until int64
				text  string
				d     time.Duration
			}

			var late []unique
			n := 0
			err := s.scan(lo, hi, chunk, func(rest, value []byte) error {
				if n++; len(rest) < 8 {
					return s.strange("read", "there is a key %q among the times of unique texts", rest)
				}
				u := unique{text: string(rest[8:])}
				until, _ := format.Numbers(rest[:8])
				u.until = int64(until[0])
				lo = append(s.keys.Expiry(nil, u.until, u.text), 0)
				if d, ok := format.Numbers(value); ok && len(d) == 1 {
					if u.d = time.Duration(d[0]); u.until > after(x.now, u.d) {
						late = append(late, u)
					}
				}
				return nil
			})

			if err != nil {
				return err
			}
			more = n == chunk

			for _, u := range late {
				x.key = s.keys.Expiry(x.key, u.until, u.text)
				x.set(x.key, nil)
				value, err := s.get(s.keys.Key(nil, format.TableUnique, u.text))
				if err != nil {
					return err
				}
				// Another task may have the text by now.
				if n, ok := format.Numbers(value[:min(16, len(value))]); ok && len(n) == 2 && int64(n[1]) == u.until {
					x.take(u.text, string(value[16:]), n[0], u.d)
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// eachListed calls f for all tasks of a queue in a state, some of them in one commit. f may change their times.
func (s *Store) eachListed(q *queue, state State, f func(x *tx, t *task)) error {
	if q.counts[state] == 0 {
		return nil
	}
	r := holdfast.Prefix(s.keys.Listed(q.name, byte(state)))
	for more := true; more; {
		if _, err := s.try(s.o.Level, func(x *tx) error {
			var found []format.Place
			err := s.scan(r.Lo, r.Hi, chunk, func(rest, _ []byte) error {
				p, ok := s.keys.Place(rest)
				if !ok {
					return s.strange("read", "the index has a key %q", rest)
				}
				found = append(found, p)
				return nil
			})
			if err != nil {
				return err
			}
			for _, p := range found {
				t, err := s.listed(p)
				if err != nil {
					return err
				}
				f(x, t)
			}
			if more = len(found) == chunk; more {
				r.Lo = append(s.keys.Index(nil, &found[chunk-1]), 0)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// forget removes up to most unique texts whose time is over.
func (x *tx) forget(most int) error {
	s := x.s
	if s.expiry > x.now {
		return nil
	}
	was := s.expiry
	x.other = append(x.other, func() { s.expiry = min(s.expiry, was) })

	_, hi := s.keys.Table(format.TableExpiry)
	var over []string
	next := int64(never)

	// One more is looked at than is removed: the time of the next.
	err := s.scan(s.keys.Expiry(nil, was, ""), hi, most+1, func(rest, _ []byte) error {
		if len(rest) < 8 {
			return s.strange("read", "there is a key %q among the times of unique texts", rest)
		}
		if n, _ := format.Numbers(rest[:8]); int64(n[0]) > x.now || len(over) == most {
			next = min(next, int64(n[0]))
		} else {
			over = append(over, string(rest))
		}
		return nil
	})
	if err != nil {
		return err
	}

	for _, rest := range over {
		x.key = s.keys.Key(x.key, format.TableExpiry, rest)
		x.set(x.key, nil)
		// Another may have the text by now.
		if id, _, err := x.holder(rest[8:]); err != nil {
			return err
		} else if id == "" {
			x.key = s.keys.Key(x.key, format.TableUnique, rest[8:])
			x.set(x.key, nil)
		}
	}
	s.expiry = next
	return nil
}

// expire puts a task back whose lease has run out.
func (x *tx) expire(t *task) error {
	return x.failed(t, Failure{Message: "its lease has run out"}, FailOptions{}, 0)
}

// promote makes up to most scheduled tasks of q ready that are due.
func (x *tx) promote(q *queue, most int) (n int, err error) {
	if q.due > x.now {
		return 0, nil
	}

	found, next, err := x.s.places(q, Scheduled, q.due, 0, x.now, most)
	if err != nil {
		return 0, err
	}
	for _, p := range found {
		t, err := x.s.listed(p)
		if err != nil {
			return 0, err
		}
		to := *t
		to.State = byte(Waiting)
		x.put(t, &to)
	}

	was := q.due
	x.other = append(x.other, func() { q.due = min(q.due, was) })
	q.due = next
	return len(found), nil
}

// retain removes up to most finished tasks of q that are not kept any longer.
func (x *tx) retain(q *queue, most int) (n int, err error) {
	if q.removal > x.now {
		return 0, nil
	}
	was, first := q.removal, int64(never)
	x.other = append(x.other, func() { q.removal = min(q.removal, was) })
	for _, state := range []State{Completed, Cancelled, Dead} {
		found, next, err := x.s.places(q, state, was, 0, x.now, most-n)
		if err != nil {
			return 0, err
		}
		first = min(first, next)
		for _, p := range found {
			t, err := x.s.listed(p)
			if err != nil {
				return 0, err
			}
			x.remove(t)
		}
		n += len(found)
	}
	q.removal = first
	return n, nil
}

// places returns up to most places in a state, from a time and task on to the time to, and the time of the one behind
// them: never if there is none.
func (s *Store) places(q *queue, state State, from int64, task uint64, to int64, most int) (found []format.Place,
	next int64, err error) {
	hi := holdfast.Prefix(s.keys.Listed(q.name, byte(state))).Hi
	lo := s.keys.Index(nil, &format.Place{Queue: q.name, State: byte(state),
		Order: format.Order{Time: from, Task: task}})
	next = never
	err = s.scan(lo, hi, most+1, func(rest, _ []byte) error {
		p, ok := s.keys.Place(rest)
		if !ok {
			return s.strange("read", "the index has a key %q", rest)
		}
		if p.Time > to || len(found) == most {
			next = min(next, p.Time)
			return nil
		}
		found = append(found, p)
		return nil
	})
	return found, next, err
}

// nanos returns a time in nanoseconds since 1970, from 0 to the end of what can be kept.
func nanos(t time.Time) int64 {
	switch sec := t.Unix(); {
	case sec < 0:
		return 0
	case sec >= math.MaxInt64/1_000_000_000:
		return never - 1
	}
	return t.UnixNano()
}

// after returns the time d after now.
func after(now int64, d time.Duration) int64 {
	if int64(d) > never-1-now {
		return never - 1
	}
	return now + int64(d)
}

// date is the reverse of nanos; 0 is the zero time.
func date(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
