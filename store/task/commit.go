package task

import (
	"bytes"
	"errors"
	"hash/maphash"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/layers"
	"github.com/holdfastdb/holdfast/internal/receipts"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// get returns the value of a key, which is the caller's; nil if it is not there.
func (s *Store) get(key []byte) ([]byte, error) {
	if s.tx.wrote[maphash.Bytes(seed, key)] {
		if err := s.tx.index(); err != nil {
			return nil, err
		}
	}
	return s.state.Get(key)
}

// scan calls f for up to most keys from lo until before hi, both of one table, in their order. What it passes is valid
// until f returns; f changes nothing in the store.
func (s *Store) scan(lo, hi []byte, most int, f func(rest, value []byte) error) (err error) {
	if err := s.tx.index(); err != nil {
		return err
	}
	at := len(s.keys.Prefix)

	// What is gone in front of the first key and behind the last is not walked over twice.
	l := s.lows[string(s.section(lo))]
	if l != nil {
		if lo, hi = l.gaps.Trim(lo, hi); bytes.Compare(lo, hi) >= 0 {
			return nil
		}
	}
	it := s.state.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()
	next := slices.Clone(lo) // behind the last key
	for n := 0; n < most; n++ {
		if !it.Next() {
			if it.Err() == nil && l != nil {
				l.empty(next, hi)
			}
			return it.Err()
		}
		if n == 0 && l != nil {
			l.empty(lo, it.Key())
		}
		if l != nil {
			next = append(append(next[:0], it.Key()...), 0)
		}
		if err := f(it.Key()[at+1:], it.Value()); err != nil {
			return err
		}
	}
	return nil
}

// tx is a change of the store: what is decided in its turn and then applied as one batch, with what it has changed in
// memory, to be taken back if the engine refuses it. The store has one, which is used again and again.
type tx struct {
	s     *Store
	b     holdfast.Batch  // what it has written, and is in the topmost layer of the store's state
	fresh holdfast.Batch  // what it has written since it read any of that: mostly nothing is read
	wrote map[uint64]bool // the hashes of its keys
	now   int64           // the clock, in nanoseconds
	level holdfast.Level
	moves []move
	err   error    // why something could not be read that a change of memory needs
	other []func() // take back what else has changed
	key   []byte   // memory for one, and for a value
	value []byte
}

var seed = maphash.MakeSeed()

// move is a task that changes; nil stands for one that is not there.
type move struct {
	old, new *task
	away     bool // old waited, and its lane was away
}

// begin begins a change.
func (s *Store) begin(level holdfast.Level) (*tx, error) {
	if s.err == nil && s.pending.Full() {
		if err := s.tail.Wait(); err != nil {
			s.broken(err)
		} else {
			s.settled(s.commits)
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	x := &s.tx
	x.now, x.level = s.wall, level
	if x.wrote == nil || len(x.wrote) > 32 { // to be cleared costs as much as to be filled
		x.wrote = map[uint64]bool{}
	}
	clear(x.wrote)
	return x, nil
}

// broken ends all changes, because the engine has failed.
func (s *Store) broken(err error) {
	if s.err == nil {
		s.err = err
		s.wakeAll()
	}
}

// set sets a key of the store; nil deletes the key.
func (x *tx) set(key, value []byte) {
	if value == nil {
		x.fresh.Delete(key)
	} else {
		x.fresh.Set(key, value)
	}
	x.wrote[maphash.Bytes(seed, key)] = true
	x.noteLow(key, value == nil)
}

// index lets reads see what was written.
func (x *tx) index() error {
	if x.fresh.Len() > 0 || x.fresh.Err() != nil {
		written := new(holdfast.Batch) // which keeps its memory
		written.Append(&x.fresh)
		x.s.state.Layers[0].Take(written)
		x.collect(&x.b)
	}
	return x.b.Err()
}

// unchanged reports whether nothing was written since a mark.
func (x *tx) unchanged() bool {
	return x.b.Len()+x.fresh.Len() == 0 && x.b.Err() == nil && x.fresh.Err() == nil
}

// collect moves what was written to another batch, or to x.b.
func (x *tx) collect(to *holdfast.Batch) {
	for _, b := range []*holdfast.Batch{&x.b, &x.fresh} {
		if b != to {
			to.Append(b)
			b.Reset()
		}
	}
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
		x.value = new.Append(x.value[:0])
		x.set(x.key, x.value)
	} else {
		x.key = s.keys.Of(x.key, format.TableTasks, old.num)
		x.set(x.key, nil)
	}
	x.moves = append(x.moves, move{old: old, new: new})
	s.count(old, new)
	x.relist(old, new)
}

// mark is a place in a change; the zero mark is its beginning.
type mark struct {
	top          layers.Layer
	moves, other int
}

func (x *tx) mark() mark { return mark{x.s.state.Layers[0], len(x.moves), len(x.other)} }

// undo takes back what the change has done since a mark, whose batches are those of x from then on.
func (x *tx) undo(m mark) {
	s := x.s
	for _, f := range slices.Backward(x.other[m.other:]) { // before the lanes are looked at: starts hold them back
		f()
	}
	s.lower(&x.b)
	s.lower(&x.fresh)
	for _, v := range slices.Backward(x.moves[m.moves:]) {
		s.count(v.new, v.old)
		// A lane that is gone comes back with tasks that it had. One that was away is so again, by what the table says. Of
		// tasks that it had not, one that is away knows nothing.
		for _, t := range []*task{v.old, v.new} {
			if t == nil {
				continue
			}
			had := t == v.old && (t.state() == Waiting && !v.away || t.state() == Running)
			if q := s.queue(t.Queue); had || q.lanes[t.Key] != nil {
				s.reread(t.Queue, t.Key)
			} else {
				s.wake(q) // a claim may have given up meanwhile, and found nothing that another was to be woken for
			}
		}
	}
	x.reset(m)
}

// reset forgets what has been done since a mark.
func (x *tx) reset(m mark) {
	x.err = nil
	x.b.Reset()
	x.fresh.Reset()
	x.s.state.Layers[0] = m.top
	clear(x.moves[m.moves:])
	clear(x.other[m.other:])
	x.moves, x.other = x.moves[:m.moves], x.other[:m.other]
}

// apply applies the change. If it is refused, nothing has changed.
func (x *tx) apply() (durable, error) {
	s := x.s
	if x.unchanged() { // what it found may still be on its way
		x.reset(mark{})
		return s.durable(), nil
	}
	x.bound()
	x.collect(&x.b)
	receipt, err := s.eng.Apply(&x.b, x.level)
	if err != nil {
		x.undo(mark{})
		if errors.Is(err, holdfast.ErrPoisoned) || errors.Is(err, holdfast.ErrClosed) {
			s.broken(err)
		}
		return durable{}, err
	}
	s.applied(&x.b, receipt, x.level)
	x.tellWatches()
	x.reset(mark{})
	return s.durable(), nil
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
		s.applied(&x.b, receipt, x.level)
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
	s.describe(&x.fresh)
}

// applied is called when a commit has its place. It takes the batch.
func (s *Store) applied(b *holdfast.Batch, receipt holdfast.Receipt, level holdfast.Level) {
	s.tail.Add(receipt, level)
	s.mixed = s.mixed || level != s.o.Level
	if !s.lease.Caps.ShownAtApply && b.Len() > 0 {
		s.commits++
		s.pending.Add(s.commits, b)
		*b = holdfast.Batch{}
		s.state.Layers = s.pending.Above(s.state.Layers[:1])
	}
}

// settled notes that the engine shows everything up to a commit.
func (s *Store) settled(commit uint64) {
	s.pending.Settled(commit)
	s.state.Layers = s.pending.Above(s.state.Layers[:1])
}

// durable is what a call waits for: everything up to a commit.
type durable struct {
	s      *Store
	tail   receipts.Tail
	commit uint64
}

func (s *Store) durable() durable { return durable{s, s.tail, s.commits} }

// Wait returns when it is durable.
func (d *durable) Wait() error {
	err := d.tail.Wait()
	if err == nil && !d.s.lease.Caps.ShownAtApply {
		d.s.turn.Lock()
		defer d.s.turn.Unlock()
		d.s.settled(d.commit)
	}
	return err
}
