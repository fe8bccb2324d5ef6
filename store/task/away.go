package task

import (
	"errors"
	"math"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// Each key with tasks has a lane in memory while these are few. Beyond maxLanes a lane of which nothing but waiting
// tasks is to be known is away: not in memory. A table in the engine has the first task of each lane away, in the order
// in which the queue's tasks come. When that comes before the first of all lanes in memory, its lane is read.
//
// So the first task of a lane away is always in the table. What is in it besides, of lanes in memory, does no harm, and
// is removed when its turn comes: a change that was taken back may leave a lane in memory and in the table.

// maxLanes is how many keys have lanes in memory, without those of which more is to be known. Tests have fewer.
var maxLanes = 1 << 16

// nowhere comes behind all tasks.
var nowhere = format.Order{Rank: math.MaxUint8, Time: never, Task: none}

// firstOf returns where up to most tasks of a key wait that come first.
func (s *Store) firstOf(q *queue, key string, most int) (found []format.Order, err error) {
	r := holdfast.Prefix(s.keys.ListedBy(q.name, byte(Waiting), key))
	err = s.scan(r.Lo, r.Hi, most, func(rest, _ []byte) error {
		p, ok := s.keys.Place(rest)
		if !ok {
			return s.strange("read", "the index has a key %q", rest)
		}
		found = append(found, p.Order)
		return nil
	})
	return found, err
}

// list puts the first task of a lane away into the table.
func (x *tx) list(q *queue, at format.Order, key string) {
	x.key = x.s.keys.Away(x.key, q.name, &at)
	x.set(x.key, []byte(key))
	if at.Less(&q.away) {
		q.away = at
	}
	x.s.wake(q)
}

func (x *tx) unlist(q *queue, at format.Order) {
	x.key = x.s.keys.Away(x.key, q.name, &at)
	x.set(x.key, nil)
}

// joinAway notes that t waits, whose key has no lane in memory. It returns false if it is to have one, for t alone.
func (x *tx) joinAway(q *queue, t *task) bool {
	s := x.s
	found, err := s.firstOf(q, t.Key, 2)
	switch {
	case err != nil:
		x.err = errors.Join(x.err, err)
	case len(found) == 1 && s.keyed < maxLanes:
		return false
	case found[0].Task == t.num:
		x.list(q, found[0], t.Key)
		if len(found) > 1 {
			x.unlist(q, found[1]) // was the first
		}
	}
	return true
}

// leaveAway notes that t waits no longer, whose lane is away.
func (x *tx) leaveAway(q *queue, t *task) {
	x.moves[len(x.moves)-1].away = true
	x.unlist(q, t.place().Order)
	found, err := x.s.firstOf(q, t.Key, 1)
	if err != nil {
		x.err = errors.Join(x.err, err)
	}
	for _, at := range found {
		x.list(q, at, t.Key)
	}
}

// rest lets a lane go away, if there are too many and nothing but waiting tasks is to be known of it.
func (x *tx) rest(l *lane) {
	s, q := x.s, l.q
	if s.keyed <= maxLanes || l.key == "" || l.running > 0 || len(l.starts) > 0 || len(l.window.Items) == 0 || l.listed ||
		q.lanes[l.key] != l {
		return
	}
	x.list(q, l.window.Items[0].Order, l.key)
	l.pull()
	s.letGo(l.window.Items)
	s.remove(l)
	x.other = append(x.other, func() { s.reread(q.name, l.key) })
}

// front returns what comes first in the table of lanes away, from an order on, and whose it is; nowhere if none.
func (s *Store) front(q *queue, from format.Order) (at format.Order, key string, err error) {
	lo := s.keys.Away(nil, q.name, &from)
	hi := holdfast.Prefix(s.keys.Aways(q.name)).Hi
	at = nowhere
	err = s.scan(lo, hi, 1, func(rest, value []byte) (err error) {
		var ok bool
		if _, at, ok = format.ParseAway(rest); !ok || len(value) == 0 {
			return s.strange("read", "there is a key %q among the lanes that are away", rest)
		}
		key = string(value)
		return nil
	})
	return at, key, err
}

// awayBefore returns the first task of all lanes away that comes before the first of l, nowhere if none does.
func (s *Store) awayBefore(q *queue, l *lane) (at format.Order, err error) {
	for at = q.away; q.before(at, l); at.Task++ {
		key := ""
		if at, key, err = s.front(q, at); err != nil || !q.before(at, l) {
			break
		}
		if q.lanes[key] == nil { // else its first task is known
			if found, err := s.firstOf(q, key, 1); err != nil || len(found) > 0 && found[0] == at {
				return at, err
			}
		}
	}
	return nowhere, err
}

// takeIn reads the lane of a key, which is in the table at q.away.
func (x *tx) takeIn(q *queue, key string) error {
	s, at := x.s, q.away
	if q.lanes[key] == nil {
		l := s.lane(q, key)
		l.whole, l.end = false, at // what is in the table first has nothing of its key before it
		l.end.Task--
		if err := s.fill(l); err != nil {
			s.letGo(l.window.Items)
			s.remove(l)
			return err
		}
		if len(l.window.Items) > 0 && l.window.Items[0].Order != at {
			x.unlist(q, l.window.Items[0].Order)
		}
		s.review(l)
	}
	x.unlist(q, at)
	return nil
}

// before reports whether a task would come before the first of l, which may be nil.
func (q *queue) before(at format.Order, l *lane) bool {
	return at != nowhere && (l == nil || at.Less(&l.window.Items[0].Order))
}

// loading is which lanes are away, as the index is read.
type loading struct {
	listed     map[string][]format.Order // what is in the table, by queue, in its order; no more than maxListed in all
	n          int                       // of those
	queue, key string                    // the last lane away
	missing    []format.Place            // first tasks of lanes away that are not in the table
}

// maxListed is of how many lanes away it is in memory what the table has, while a store is opened. Others are looked up
// one by one. Tests have fewer.
var maxListed = 1 << 20

// note notes what is in the table.
func (d *loading) note(s *Store, rest []byte) error {
	name, at, ok := format.ParseAway(rest)
	if !ok {
		return s.strange("open", "there is a key %q among the lanes that are away", rest)
	}
	s.queue(name).away = format.Order{} // may be anywhere
	if d.n++; d.n <= maxListed {
		d.listed[name] = append(d.listed[name], at)
	}
	return nil
}

// has reports whether a place is in the table.
func (d *loading) has(s *Store, p *format.Place) (bool, error) {
	if _, ok := slices.BinarySearchFunc(d.listed[p.Queue], p.Order, func(a, b format.Order) int {
		switch {
		case a.Less(&b):
			return -1
		case b.Less(&a):
			return 1
		}
		return 0
	}); ok || d.n <= maxListed {
		return ok, nil
	}
	value, err := s.get(s.keys.Away(nil, p.Queue, &p.Order))
	return value != nil, err
}

// lane notes a waiting task, of those of a key in their order. Which lanes are in the table stay away: so opening a
// store writes only what is missing there, and no more than maxLanes are in memory.
func (d *loading) lane(s *Store, p *format.Place) error {
	q := s.queue(p.Queue)
	l := q.lanes[p.Key]
	switch {
	case p.Key == "":
		s.lane(q, p.Key).whole = false
		return nil
	case l != nil && len(l.window.Items) > 0:
		l.whole = false
		return nil
	case p.Queue == d.queue && p.Key == d.key:
		return nil
	}

	if l == nil { // else its starts are to be known
		listed, err := d.has(s, p)
		if err != nil {
			return err
		}
		if listed || s.keyed >= maxLanes {
			d.queue, d.key = p.Queue, p.Key
			q.away = format.Order{}
			if !listed {
				d.missing = append(d.missing, *p)
			}
			return nil
		}
	}
	s.begun(q, p)
	return nil
}

// begun makes the lane of a key of which the first task is known, and no other.
func (s *Store) begun(q *queue, p *format.Place) *lane {
	l := s.lane(q, p.Key)
	l.window.Push(entry{Order: p.Order})
	l.end, l.whole = p.Order, true
	return l
}

// settle writes what is missing in the table. On a full disk the lanes are in memory instead.
func (d *loading) settle(s *Store) error {
	if len(d.missing) == 0 {
		return nil
	}
	_, err := s.try(s.o.Level, func(x *tx) error {
		for _, p := range d.missing {
			x.list(s.queue(p.Queue), p.Order, p.Key)
		}
		return nil
	})
	if errors.Is(err, holdfast.ErrFull) && !errors.Is(err, holdfast.ErrPoisoned) {
		for _, p := range d.missing {
			s.begun(s.queue(p.Queue), &p).whole = false
		}
		err = nil
	}
	d.missing = nil
	return err
}
