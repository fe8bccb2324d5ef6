package task

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/receipts"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// overlay is what has been applied and may not be visible in the engine yet, by table and the rest of the key. All
// reading goes through it, so that decisions are made on the latest state whatever the engine shows.
type overlay struct {
	tables  [256]map[string]pending
	log     []logged // in the order in which it was applied
	settled uint64   // the last commit that is forgotten
}

// pending is what a key holds since a commit.
type pending struct {
	value  []byte // nil if the key was deleted
	commit uint64
}

type logged struct {
	table  byte
	key    string
	commit uint64
}

// settle forgets what the engine shows, up to a commit.
func (o *overlay) settle(commit uint64) {
	o.settled = max(o.settled, commit)
	n := 0
	for n < len(o.log) && o.log[n].commit <= commit {
		l := &o.log[n]
		if o.tables[l.table][l.key].commit == l.commit {
			delete(o.tables[l.table], l.key)
		}
		n++
	}
	if n == len(o.log) && n > 1<<16 {
		o.log = nil
	} else if n == len(o.log) {
		clear(o.log)
		o.log = o.log[:0]
	} else {
		o.log = o.log[n:]
	}
}

// get returns the value of a key, nil if it is not there. The value is not written to.
func (s *Store) get(key []byte) ([]byte, error) {
	at := len(s.keys.Prefix)
	if p, ok := s.over.tables[key[at]][string(key[at+1:])]; ok {
		return p.value, nil
	}
	value, err := s.eng.Get([]byte{}, key)
	if errors.Is(err, holdfast.ErrNotFound) {
		return nil, nil
	}
	return value, err
}

// scan calls f for up to most keys from lo until before hi, both of one table, in their order. What it passes is valid
// until f returns; f changes nothing in the store.
func (s *Store) scan(lo, hi []byte, most int, f func(rest, value []byte) error) (err error) {
	at := len(s.keys.Prefix)

	// What is gone at the front is not walked over twice.
	if l := s.lows[string(s.section(lo))]; l != nil && string(lo[at:]) <= l.at {
		if lo = append(slices.Clone(lo[:at]), l.at...); bytes.Compare(lo, hi) >= 0 {
			return nil
		}
		none, pass := true, f
		f = func(rest, value []byte) error {
			if none {
				none, l.at = false, min(string(lo[at:at+1])+string(rest), end(l.part))
			}
			return pass(rest, value)
		}
		defer func() {
			if none && err == nil && most > 0 {
				l.at = min(string(hi[at:]), end(l.part))
			}
		}()
	}
	table := s.over.tables[lo[at]]
	var over []string
	if len(table) > 0 {
		first, end := string(lo[at+1:]), string(hi[at+1:])
		whole := hi[at] != lo[at] // hi is the end of the table
		for key := range table {
			if key >= first && (whole || key < end) {
				over = append(over, key)
			}
		}
		slices.Sort(over)
	}
	it := s.eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()
	more := it.Next()
	for most > 0 && (more || len(over) > 0) {
		order := -1 // the engine's key comes first
		if !more {
			order = 1
		} else if len(over) > 0 {
			order = strings.Compare(string(it.Key()[at+1:]), over[0])
		}
		if order < 0 {
			if err := f(it.Key()[at+1:], it.Value()); err != nil {
				return err
			}
			most--
		} else {
			if p := table[over[0]]; p.value != nil {
				if err := f([]byte(over[0]), p.value); err != nil {
					return err
				}
				most--
			}
			over = over[1:]
		}
		if order <= 0 && most > 0 {
			more = it.Next()
		}
	}
	return it.Err()
}

// tx is a change of the store: what is decided in its turn and then applied as one batch, with what it has changed in
// memory, to be taken back if the engine refuses it. The store has one, which is used again and again.
type tx struct {
	s     *Store
	b     holdfast.Batch
	now   int64 // the clock, in nanoseconds
	level holdfast.Level
	was   []was
	moves []move
	other []func() // take back what else has changed
	key   []byte
}

// was is what a key was in the overlay.
type was struct {
	table byte
	key   string
	p     pending
	had   bool
}

// move is a task that changes; nil stands for one that is not there.
type move struct{ old, new *task }

// maxOverlay is how many keys the overlay has at most, before the changes of one commit: walks go over all of a table.
const maxOverlay = 1 << 14

// begin begins a change.
func (s *Store) begin(level holdfast.Level) (*tx, error) {
	if s.err == nil && len(s.over.log) > maxOverlay {
		if err := s.tail.Wait(); err != nil {
			s.broken(err)
		} else {
			s.over.settle(s.unsettled)
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	s.tx.now, s.tx.level = s.wall, level
	s.commits++
	return &s.tx, nil
}

// broken ends all changes, because the engine has failed.
func (s *Store) broken(err error) {
	if s.err == nil {
		s.err = err
		s.wakeAll()
	}
}

// set sets a key of the store, which keeps value; nil deletes the key.
func (x *tx) set(key, value []byte) {
	if value == nil {
		x.b.Delete(key)
	} else {
		x.b.Set(key, value)
	}
	at := len(x.s.keys.Prefix)
	t, over := key[at], &x.s.over
	if over.tables[t] == nil {
		over.tables[t] = map[string]pending{}
	}
	k := string(key[at+1:])
	p, had := over.tables[t][k]
	x.was = append(x.was, was{t, k, p, had})
	over.tables[t][k] = pending{value, x.s.commits}
	over.log = append(over.log, logged{t, k, x.s.commits})
	x.noteLow(key, value == nil)
}

var empty = []byte{}

// put changes a task from old to new in the engine and in memory. What hangs on the task beyond its record and its
// place in the index is the caller's business.
func (x *tx) put(old, new *task) {
	s := x.s
	if old != nil && (new == nil || old.place() != new.place()) {
		p := old.place()
		x.key = s.keys.Index(x.key, &p)
		x.set(x.key, nil)
	}
	if new != nil {
		if p := new.place(); old == nil || old.place() != p {
			x.key = s.keys.Index(x.key, &p)
			x.set(x.key, empty)
		}
		x.key = s.keys.Of(x.key, format.TableTasks, new.num)
		x.set(x.key, new.Append(make([]byte, 0, 128+len(new.Payload)+len(new.Output))))
	} else {
		x.key = s.keys.Of(x.key, format.TableTasks, old.num)
		x.set(x.key, nil)
	}
	x.moves = append(x.moves, move{old, new})
	s.count(old, new)
	s.relist(old, new)
}

// mark is a place in a change; the zero mark is its beginning.
type mark struct{ was, moves, other int }

func (x *tx) mark() mark { return mark{len(x.was), len(x.moves), len(x.other)} }

// undo takes back what the change has done since a mark, whose batch is that of x from then on.
func (x *tx) undo(m mark) {
	s := x.s
	for _, w := range slices.Backward(x.was[m.was:]) {
		// The engine may show by now what was there, and then it is forgotten.
		if w.had && w.p.commit > s.over.settled {
			s.over.tables[w.table][w.key] = w.p
		} else {
			delete(s.over.tables[w.table], w.key)
		}
		s.lower(w.table, w.key)
	}
	s.over.log = s.over.log[:len(s.over.log)-len(x.was[m.was:])]
	for _, f := range slices.Backward(x.other[m.other:]) { // before the lanes are looked at: starts hold them back
		f()
	}
	for _, v := range slices.Backward(x.moves[m.moves:]) {
		s.count(v.new, v.old)
		for _, t := range []*task{v.old, v.new} {
			if t != nil {
				s.reread(t)
			}
		}
	}
	x.reset(m)
}

// reset forgets what has been done since a mark.
func (x *tx) reset(m mark) {
	x.b.Reset()
	clear(x.was[m.was:])
	clear(x.moves[m.moves:])
	clear(x.other[m.other:])
	x.was, x.moves, x.other = x.was[:m.was], x.moves[:m.moves], x.other[:m.other]
}

// apply applies the change. If it is refused, nothing has changed.
func (x *tx) apply() (receipts.Tail, error) {
	s := x.s
	if x.b.Len() == 0 { // what it found may still be on its way
		x.reset(mark{})
		return s.tail, nil
	}
	x.bound()
	receipt, err := s.eng.Apply(&x.b, x.level)
	if err != nil {
		x.undo(mark{})
		if errors.Is(err, holdfast.ErrPoisoned) || errors.Is(err, holdfast.ErrClosed) {
			s.broken(err)
		}
		return receipts.Tail{}, err
	}
	s.applied(receipt, x.level)
	x.tellWatches()
	x.reset(mark{})
	return s.tail, nil
}

// barrier brings all tasks to the level of the change, which has found what it was to make and changes nothing: that
// may have been made at a weaker one.
func (x *tx) barrier() error {
	s := x.s
	if !s.mixed && x.level == s.o.Level {
		return nil
	}
	receipt, err := s.eng.Apply(&x.b, x.level)
	if err == nil {
		s.applied(receipt, x.level)
	}
	return err
}

// bound keeps that numbers are below a bound.
func (x *tx) bound() {
	s := x.s
	if s.number <= s.reserved {
		return
	}
	reserved := s.reserved
	x.other = append(x.other, func() { s.reserved = reserved })
	s.reserved = s.number + reserve
	s.describe(&x.b)
}

// applied is called when a commit has its place.
func (s *Store) applied(receipt holdfast.Receipt, level holdfast.Level) {
	s.tail.Add(receipt, level)
	s.unsettled, s.mixed = s.commits, s.mixed || level != s.o.Level
	select {
	case s.settling <- struct{}{}:
	default:
	}
}

// settle forgets, in the background, what the engine shows.
func (s *Store) settle() {
	for range s.settling {
		s.turn.Lock()
		tail, commit := s.tail, s.unsettled
		s.turn.Unlock()
		err := tail.Wait()
		s.turn.Lock()
		if err == nil {
			s.over.settle(commit)
		} else {
			s.broken(err)
		}
		s.turn.Unlock()
	}
}
