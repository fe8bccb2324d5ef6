package task

import (
	"fmt"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// finish ends a task, and unblocks those that it blocked.
func (x *tx) finish(t *task, state State) error {
	to := *t
	return x.finishAs(t, &to, state)
}

// finishAs is finish for a task that changes from t to to besides. The first of those that run after it are told of
// it in the same commit, and those that run after these; the others in later ones.
func (x *tx) finishAs(t, to *task, state State) error {
	if err := x.end(t, to, state); err != nil {
		return err
	}
	return x.release(chunk)
}

// end ends a task. If others run after it, they have to be told: see release.
func (x *tx) end(t, to *task, state State) error {
	s := x.s

	to.State, to.Finished = byte(state), x.now
	to.Flags &^= format.Parent | format.HasUnique

	// How long it is kept: what the task says, or else its queue, or else the store. Dead ones are kept until somebody has
	// looked, unless the queue says for how long.
	keep, forever := to.Keep, false
	q := s.queue(t.Queue)
	switch {
	case state == Dead:
		keep, forever = q.o.KeepDead, q.o.KeepDead == 0
	case keep == 0 && q.o.Keep != 0:
		keep = q.o.Keep
	case keep == 0:
		keep = s.o.Keep
	}
	if to.Removal = format.Forever; !forever {
		to.Removal = after(x.now, max(keep, 0))
	}

	// From here on another task may have the unique text.
	if t.Flags&format.HasUnique != 0 {
		x.key = s.keys.Key(x.key, format.TableUnique, t.Unique)
		x.set(x.key, nil)
	}

	if t.state() == Blocked {
		if err := x.orphan(t); err != nil {
			return err
		}
	}
	if t.Sequence != "" {
		if err := x.pass(t); err != nil {
			return err
		}
	}
	if !forever && keep < 0 {
		x.remove(t)
	} else {
		x.put(t, to)
	}

	// Those that run after it are told from this key, in as many commits as it takes.
	if t.Flags&format.Parent != 0 {
		x.key = s.keys.Of(x.key, format.TableEnded, t.num)
		x.set(x.key, []byte{byte(state)})
		s.ended = min(s.ended, t.num)
	}
	return nil
}

// orphan removes what says that a blocked task runs after others.
func (x *tx) orphan(t *task) error {
	if t.Flags&format.Child == 0 {
		return nil
	}
	s := x.s
	before, err := s.before(t)
	if err != nil {
		return err
	}
	for _, b := range before {
		x.key = s.keys.Child(x.key, b.Task, t.num)
		x.set(x.key, nil)
	}
	x.key = s.keys.Of(x.key, format.TableWaits, t.num)
	x.set(x.key, nil)
	return nil
}

// before returns the tasks that t runs after.
func (s *Store) before(t *task) ([]format.Before, error) {
	if t.Flags&format.Child == 0 {
		return nil, nil
	}
	value, err := s.get(s.keys.Of(nil, format.TableAfter, t.num))
	if err != nil {
		return nil, err
	}
	before, ok := format.ParseBefore(value)
	if !ok {
		return nil, s.strange("read", "what task %s runs after cannot be read", t.id())
	}
	return before, nil
}

// pass unblocks the next task of t's sequence, if it was t's turn.
func (x *tx) pass(t *task) error {
	s := x.s
	before, err := x.first(t.Sequence)
	if err != nil {
		return err
	}
	x.key = s.keys.Sequence(x.key, t.Sequence, t.Turn)
	x.set(x.key, nil)

	// If it was not t's turn, as when it is cancelled while it waits, the one whose turn it is passes it on later.
	if before == nil || before.num != t.num {
		return nil
	}

	x.passed(t.Sequence, t.Turn+1)
	next, err := x.first(t.Sequence)
	if err != nil || next == nil {
		return err
	}
	return x.unblock(next)
}

// release tells up to most of those that run after tasks that have ended.
func (x *tx) release(most int) error {
	s := x.s
	// What is left is told in later commits: a task with a million children must not make a commit that no engine takes.
	for s.ended != none && most > 0 {
		// The first task that has ended, and those that run after it.
		_, hi := s.keys.Table(format.TableEnded)
		num, state := uint64(none), State(0)
		if err := s.scan(s.keys.Of(nil, format.TableEnded, s.ended), hi, 1, func(rest, value []byte) error {
			n, ok := format.Numbers(rest)
			if !ok || len(n) != 1 || len(value) != 1 || !State(value[0]).Finished() {
				return s.strange("read", "how the task at key %q has ended cannot be read", rest)
			}
			num, state = n[0], State(value[0])
			return nil
		}); err != nil {
			return err
		}

		if was := s.ended; was != num {
			s.ended = num
			x.other = append(x.other, func() { s.ended = min(s.ended, was) })
		}
		if num == none {
			break
		}

		var children []uint64
		if s.told[0] != num {
			s.told = [2]uint64{num, 0}
		}

		hi = holdfast.Prefix(s.keys.Of(nil, format.TableChildren, num)).Hi
		if err := s.scan(s.keys.Child(nil, num, s.told[1]), hi, most, func(rest, _ []byte) error {
			n, ok := format.Numbers(rest)
			if !ok || len(n) != 2 {
				return s.strange("read", "there is a key %q among those that run after others", rest)
			}
			children = append(children, n[1])
			return nil
		}); err != nil {
			return err
		}

		for _, child := range children {
			x.key = s.keys.Child(x.key, num, child)
			x.set(x.key, nil)
			if err := x.tell(child, num, state); err != nil {
				return err
			}
		}

		// Where it goes on: what is removed meanwhile is not walked over again.
		if n := len(children); n > 0 {
			was := s.told
			s.told[1] = children[n-1] + 1
			x.other = append(x.other, func() { s.told = was })
		}

		// All are told.
		if len(children) < most {
			x.key = s.keys.Of(x.key, format.TableEnded, num)
			x.set(x.key, nil)
		}
		most -= len(children) + 1
	}

	if s.ended != none {
		s.plan(0)
	}
	return nil
}

// tell tells a blocked task that one that it runs after has ended.
func (x *tx) tell(child, parent uint64, state State) error {
	s := x.s
	t, err := s.read(child)
	if err == holdfast.ErrNotFound || err == nil && t.state() != Blocked {
		return s.strange("read", "task %s runs after task %s, and is not there or not blocked", makeID(child),
			makeID(parent))
	} else if err != nil {
		return err
	}

	// What runs after a task that has failed is cancelled, and with it what runs after that.
	if state != Completed {
		id := makeID(parent)
		if p, err := s.read(parent); err == nil {
			id = p.id()
		}
		to := *t
		to.Failures = append(slices.Clone(t.Failures), format.Failure{Time: x.now,
			Message: fmt.Sprintf("task %s, which it runs after, is %s", id, state)})
		return x.end(t, &to, Cancelled)
	}

	key := s.keys.Of(nil, format.TableWaits, child)
	value, err := s.get(key)
	if err != nil {
		return err
	}

	open, ok := format.Numbers(value)
	if !ok || len(open) != 1 || open[0] == 0 {
		return s.strange("read", "for how many tasks task %s waits cannot be read", t.id())
	}
	if open[0] > 1 {
		x.set(key, format.AppendNumbers(nil, open[0]-1))
		return nil
	}
	x.set(key, nil)
	return x.unblock(t)
}

// unblock makes a blocked task runnable, if nothing else blocks it.
func (x *tx) unblock(t *task) error {
	s := x.s
	if t.state() != Blocked {
		return nil
	}

	if t.Flags&format.Child != 0 {
		if open, err := s.get(s.keys.Of(nil, format.TableWaits, t.num)); err != nil || open != nil {
			return err
		}
	}
	if t.Sequence != "" {
		if first, err := x.first(t.Sequence); err != nil || first == nil || first.num != t.num {
			return err
		}
	}

	to := *t
	to.Due, to.State = max(x.now, t.At), byte(Waiting)
	if to.Due > x.now {
		to.State = byte(Scheduled)
	}
	x.put(t, &to)
	return nil
}

// remove removes a task, which nothing waits for any more, and all that is kept of it.
func (x *tx) remove(t *task) {
	s := x.s
	for _, part := range []struct{ flag, table byte }{{format.BigPayload, format.TablePayloads},
		{format.BigOutput, format.TableOutputs}, {format.Child, format.TableAfter}} {
		if t.Flags&part.flag != 0 {
			x.key = s.keys.Of(x.key, part.table, t.num)
			x.set(x.key, nil)
		}
	}
	if t.ID != "" {
		x.key = s.keys.Key(x.key, format.TableIDs, t.ID)
		x.set(x.key, nil)
	}
	x.put(t, nil)
}
