package message

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/internal/age"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// Retention says which messages of a stream are kept. The zero Retention keeps all.
type Retention struct {
	// MaxAge keeps those that were not written, or imported, longer ago by the store's own clock; 0 means any age. The
	// time that a message was given does not count. What was written while the clock was ahead is as old as what came
	// next, or counts from when Retain has first found that out: see docs/time.md.
	MaxAge   time.Duration
	MaxCount int64 // the last so many; 0 means any number
}

// special is what is kept of a stream that is not like others.
type special struct {
	Version  int64         `json:"version"` // the highest position that a removed message had, NoStream if none was
	Ended    bool          `json:"ended,omitempty"`
	MaxAge   time.Duration `json:"maxAge,omitempty"` // nanoseconds
	MaxCount int64         `json:"maxCount,omitempty"`
	// Seen is the mark of retention by age, the zero one if there is none.
	Seen age.Mark `json:"seen,omitzero"`
}

// special returns what is special about a stream, nil if nothing is.
func (n *Namespace) special(stream string) (*special, error) {
	key := n.keys.Head(stream)
	value, err := n.store.eng.Get(nil, key)
	if errors.Is(err, holdfast.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return n.parseSpecial(key, value)
}

func (n *Namespace) parseSpecial(key, value []byte) (*special, error) {
	var s special
	if err := json.Unmarshal(value, &s); err != nil {
		return nil, n.strange(key)
	}
	return &s, nil
}

// change changes what is special about a stream. It is called with editing held.
func (n *Namespace) change(ctx context.Context, stream string, change func(s *special)) error {
	receipt, err := n.applyChange(ctx, stream, change)
	if err != nil {
		return err
	}
	return receipt.Wait()
}

// applyChange is change without waiting.
func (n *Namespace) applyChange(ctx context.Context, stream string, change func(s *special)) (holdfast.Receipt, error) {
	s, err := n.special(stream)
	if err != nil {
		return holdfast.Receipt{}, err
	}
	if s == nil {
		s = &special{Version: NoStream}
	}
	change(s)
	var b holdfast.Batch
	chunks.Notes(&b, n.keys.Head(stream))
	if err := n.addSpecial(&b, stream, s); err != nil {
		return holdfast.Receipt{}, err
	}
	return n.apply(ctx, &b)
}

func (n *Namespace) addSpecial(b *holdfast.Batch, stream string, s *special) error {
	value, err := json.Marshal(s)
	if err != nil {
		return err
	}
	b.Set(n.keys.Head(stream), value)
	return nil
}

// begin begins to edit a stream, which one does at a time in a namespace, and end ends it.
func (n *Namespace) begin(ctx context.Context, op, stream string) error {
	if what := checkName(stream); what != "" {
		return n.store.fail(op, ErrBadName, nil, "", "stream %.80q: %s", stream, what)
	}
	if err := n.db.Turn().Outside(); err != nil {
		return err
	}
	if err := n.enter(ctx); err != nil {
		return err
	}
	n.editing.Lock()
	if n.life.Closed() {
		n.end()
		return n.ended(holdfast.ErrClosed)
	}
	return nil
}

func (n *Namespace) end() {
	n.editing.Unlock()
	n.leave()
}

// Truncate removes the messages of a stream below a position, and returns how many there were. The others keep their
// positions, and so do the next. Followers that have not reached them do not get them any more.
func (n *Namespace) Truncate(ctx context.Context, stream string, before int64) (removed int64, err error) {
	if err := n.begin(ctx, "truncate", stream); err != nil {
		return 0, err
	}
	defer n.end()
	removed, err = n.remove(ctx, stream, func(position int64, _ uint64) (bool, error) { return position < before, nil })
	return removed, n.ended(err)
}

// Delete removes all messages of a stream, and returns their number. The stream may be written to again: positions
// continue where they ended, and its version stays.
func (n *Namespace) Delete(ctx context.Context, stream string) (removed int64, err error) {
	return n.Truncate(ctx, stream, math.MaxInt64)
}

// Tombstone ends a stream: it can never be written to again ([ErrEnded]). Its messages are removed, and it returns how
// many there were. It is no error if the stream has ended already, or was never there.
func (n *Namespace) Tombstone(ctx context.Context, stream string) (removed int64, err error) {
	if err := n.begin(ctx, "tombstone", stream); err != nil {
		return 0, err
	}
	defer n.end()
	if err := n.markEnded(ctx, stream); err != nil {
		return 0, n.ended(err)
	}
	removed, err = n.remove(ctx, stream, func(int64, uint64) (bool, error) { return true, nil })
	return removed, n.ended(err)
}

// SetRetention says which messages of a stream are to be kept from now on. The rest is removed by [Namespace.Retain],
// which the store calls from time to time.
func (n *Namespace) SetRetention(ctx context.Context, stream string, r Retention) error {
	if r.MaxAge < 0 || r.MaxCount < 0 {
		return n.store.fail("set retention", holdfast.ErrBadOption, nil, "use 0 to keep all", "%v, %d messages", r.MaxAge,
			r.MaxCount)
	}
	if err := n.begin(ctx, "set retention", stream); err != nil {
		return err
	}
	defer n.end()
	return n.ended(n.change(ctx, stream, func(s *special) { s.MaxAge, s.MaxCount = r.MaxAge, r.MaxCount }))
}

// Retention returns what SetRetention has set for a stream.
func (n *Namespace) Retention(ctx context.Context, stream string) (Retention, error) {
	if err := holdfast.CheckContext(ctx); err != nil {
		return Retention{}, err
	}
	if what := checkName(stream); what != "" {
		return Retention{}, n.store.fail("retention", ErrBadName, nil, "", "stream %.80q: %s", stream, what)
	}
	s, err := n.special(stream)
	if err != nil || s == nil {
		return Retention{}, n.ended(err)
	}
	return Retention{s.MaxAge, s.MaxCount}, nil
}

// Retain removes, from all streams, the messages that their retention does not keep, and returns their number. A
// damaged stream does not stop it; the error names that stream.
func (n *Namespace) Retain(ctx context.Context) (removed int64, err error) {
	lo, hi := n.keys.Bounds(format.TableHeads)
	var damaged []error
	for {
		stream, s, err := n.nextSpecial(&lo, hi)
		if err == nil && stream == "" {
			return removed, errors.Join(damaged...)
		}
		if err == nil && (s.MaxAge > 0 || s.MaxCount > 0) {
			var k int64
			k, err = n.retain(ctx, stream, s)
			removed += k
		}
		if err != nil && (!errors.Is(err, holdfast.ErrCorrupt) || stream == "") {
			return removed, errors.Join(append(damaged, n.ended(err))...)
		}
		if err != nil {
			damaged = append(damaged, err)
		}
	}
}

// nextSpecial returns the first stream with something special that has a key from lo on, and moves lo behind it.
func (n *Namespace) nextSpecial(lo *[]byte, hi []byte) (stream string, s *special, err error) {
	it := n.store.eng.Scan(holdfast.Range{Lo: *lo, Hi: hi})
	defer it.Close()
	if !it.Next() {
		return "", nil, it.Err()
	}
	*lo = append(append((*lo)[:0], it.Key()...), 0)
	s, err = n.parseSpecial(it.Key(), it.Value())
	return n.keys.Named(it.Key()), s, err
}

func (n *Namespace) retain(ctx context.Context, stream string, s *special) (int64, error) {
	if err := n.begin(ctx, "retain", stream); err != nil {
		return 0, err
	}
	defer n.end()
	last, _, err := n.last(stream)
	if err != nil {
		return 0, n.ended(err)
	}
	before := int64(0)
	if s.MaxAge > 0 {
		if before, err = n.youngerThan(ctx, stream, s, last); err != nil {
			return 0, n.ended(err)
		}
	}
	if s.MaxCount > 0 {
		before = max(before, last-s.MaxCount+1)
	}
	removed, err := n.remove(ctx, stream, func(position int64, _ uint64) (bool, error) { return position < before, nil })
	return removed, n.ended(err)
}

// youngerThan returns the first position of a stream that its retention by age keeps. last is that of its last message.
func (n *Namespace) youngerThan(ctx context.Context, stream string, s *special, last int64) (int64, error) {
	ages := age.New(time.Now(), s.MaxAge, s.Seen, 0)
	lo, hi := n.keys.Stream(nil, stream, 0), n.keys.AfterStream(nil, stream)
	all := func(int64, uint64) (bool, error) { return true, nil }
	for more := true; more; {
		if err := holdfast.CheckContext(ctx); err != nil {
			return 0, err
		}
		page, err := n.removable(lo, hi, n.log().Last(), all)
		if err != nil {
			return 0, err
		}
		more = len(page) == removePage
		for _, at := range page {
			written, err := n.written(ctx, at.global)
			if err != nil {
				return 0, err
			}
			if !ages.Add(uint64(at.position), written.UnixNano()) {
				more = false
				break
			}
			lo = n.keys.Stream(lo, stream, uint64(at.position)+1)
		}
	}
	before, mark, changed := ages.Done(uint64(last))
	if changed {
		s.Seen = mark
		if err := n.change(ctx, stream, func(s *special) { s.Seen = mark }); err != nil {
			return 0, err
		}
	}
	return int64(before), nil
}

// written is when the message at a global position was written, or imported.
func (n *Namespace) written(ctx context.Context, global uint64) (at time.Time, err error) {
	for r, err := range n.log().Records(ctx, global, 1) {
		if err != nil {
			return at, err
		}
		if _, _, _, ok := format.Place(r.Origin); r.Position == global && ok {
			return r.Written(), nil
		}
	}
	return at, n.foreign(global)
}

// markEnded ends a stream, and returns when that is durable.
func (n *Namespace) markEnded(ctx context.Context, stream string) error {
	// Writers must be refused from now on, and not only when the commit is shown. So the end is pinned in memory before,
	// and taken back if the commit fails.
	e := n.beginEdit(true)
	defer n.endEdit(e, stream)
	var was head
	var receipt holdfast.Receipt
	for pinned := false; !pinned; {
		if err := n.fetch(stream); err != nil {
			return err
		}

		// In the turn of those who write, or one that has looked at the stream before would take the end for gone.
		if err := n.log().Between(ctx, format.Kind, func() (err error) {
			if was, pinned = n.pin(stream, e, true); !pinned { // it was dropped again
				return nil
			}
			if receipt, err = n.applyChange(ctx, stream, func(s *special) { s.Ended = true }); err != nil {
				n.pin(stream, e, was.ended)
			}
			return err
		}); err != nil {
			return err
		}
	}
	if err := receipt.Wait(); err != nil || was.global <= n.log().Last() {
		return err
	}
	return n.await(ctx, was.global) // what was written before is to be removed, too
}

// pin remembers that a stream is ended, or not, until an edit is done, and returns its head as it was, unless that is
// not remembered. It keeps its place in front of what the engine shows.
func (n *Namespace) pin(stream string, e *edit, ended bool) (was head, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was, known = n.heads.get(stream)
	if known {
		at := was
		at.ended, at.edit = ended, e
		n.heads.edits++
		n.heads.put(stream, at, n.log().Last(), n.store.headsEach())
	}
	return was, known
}

// removePage is how many messages one commit removes.
const removePage = 512

// where is the place of a message in its stream and in its namespace.
type where struct {
	position int64
	global   uint64
}

// remove removes messages from the beginning of a stream, as long as which says so. It is called with editing held.
func (n *Namespace) remove(ctx context.Context, stream string, which selector) (removed int64, err error) {
	lo, hi, most := n.keys.Stream(nil, stream, 0), n.keys.AfterStream(nil, stream), removePage
	for {
		// Once counts are stored, no flag in what is removed counts any more.
		if err := n.storeCounts(); err != nil {
			return removed, err
		}
		n.mu.Lock()
		end := min(n.tally.counted, n.log().Last())
		n.mu.Unlock()
		if err := holdfast.CheckContext(ctx); err != nil {
			return removed, err
		}
		page, err := n.removable(lo, hi, end, which)
		if err != nil {
			return removed, err
		}
		if len(page) == 0 { // what an earlier removal has done, and the engine shows, may not be durable
			return removed, n.commit(ctx, new(holdfast.Batch))
		}
		last := len(page) < removePage && len(page) <= most
		page = page[:min(len(page), most)]
		k, err := n.removeAll(ctx, stream, page)
		removed += k
		switch {
		case errors.Is(err, holdfast.ErrFull) && len(page) > 1: // a smaller commit may be admitted
			most = len(page) / 2
		case err != nil || last:
			return removed, err
		}
	}
}

// selector says whether a message is to be removed.
type selector func(position int64, global uint64) (bool, error)

// removable returns the first messages with keys from lo to hi, as long as which says so.
func (n *Namespace) removable(lo, hi []byte, end uint64, which selector) (page []where, err error) {
	it := n.store.eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()
	for len(page) < removePage && it.Next() {
		_, position, ok := n.keys.Placed(it.Key())
		global, ok2 := format.Number(it.Value())
		if !ok || !ok2 {
			return nil, n.strange(it.Key())
		}
		if global > end {
			break
		}
		page = append(page, where{int64(position), global})
	}
	if err := it.Err(); err != nil {
		return nil, err
	}

	// The selector may read messages. An open iterator would keep the engine from reclaiming what it shows meanwhile.
	for i, at := range page { // without an iterator
		if yes, err := which(at.position, at.global); err != nil || !yes {
			return page[:i], err
		}
	}
	return page, nil
}

// removeAll removes messages of a stream in one commit.
func (n *Namespace) removeAll(ctx context.Context, stream string, page []where) (int64, error) {
	s, err := n.special(stream)
	if err != nil {
		return 0, err
	}
	if s == nil {
		s = &special{Version: NoStream}
	}
	last := page[len(page)-1]

	// When the last message of a stream is gone, nothing but this says which position comes next. Positions are never
	// given twice.
	s.Version = max(s.Version, last.position)
	blocks, err := n.emptied(ctx, Category(stream), page)
	if err != nil {
		return 0, err
	}
	globals := make([]uint64, len(page))
	for i, at := range page {
		globals[i] = at.global
	}
	e := n.beginEdit(false)
	defer n.endEdit(e, stream)
	defer n.wakeSubscriptions()

	// The messages, what finds them, the counts and the version go in one commit: whatever a crash leaves, they agree.
	// Counts are locked in the log's turn: a transaction that has it may be reading them.
	d, err := n.log().DraftRemove(ctx, format.Kind, globals...)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	n.counting.Lock()
	defer n.counting.Unlock()
	var key []byte
	for _, at := range page {
		key = n.keys.Stream(key, stream, uint64(at.position))
		d.Keys.Delete(key)
	}
	for _, block := range blocks {
		key = n.keys.Category(key, Category(stream), block)
		d.Keys.Delete(key)
	}
	at, err := n.headOf(stream)
	if err != nil {
		return 0, err
	}
	gone := counts{messages: -int64(len(page))}

	// Only the removal of the last message that is left makes the stream one less.
	if at.top == last.position { // those below are gone already
		at.top = NoStream
		gone.streams = -1
	}
	if err := n.addStored(d.Keys, map[string]counts{Category(stream): gone}); err != nil {
		return 0, err
	}
	if err := n.addSpecial(d.Keys, stream, s); err != nil {
		return 0, err
	}
	if at.edit = e; d.Apply() {
		n.mu.Lock()
		n.heads.edits++
		n.heads.put(stream, at, n.log().Last(), n.store.headsEach())
		n.mu.Unlock()
	}
	if _, err := d.Wait(); err != nil {
		return 0, err
	}
	return int64(len(d.Events)), nil
}

// wakeSubscriptions lets them look at a removal: they may have read what is gone, or wait for consumers to be done with
// it.
func (n *Namespace) wakeSubscriptions() {
	n.removals.Add(1)
	n.mu.Lock()
	open := slices.Collect(maps.Values(n.subscriptions))
	n.mu.Unlock()
	for _, s := range open {
		s.wake()
	}
}

// addStored adds to b the stored counts of categories with changes, and of the namespace with all of them. Counting is
// locked.
func (n *Namespace) addStored(b *holdfast.Batch, changes map[string]counts) error {
	// What was stored last, without waiting, the engine may not show yet: to add to what was before would lose it.
	if err := n.storing.Wait(); err != nil {
		return err
	}
	var total counts
	for category, change := range changes {
		total = total.plus(change)
		c, err := n.storedCounts(category)
		if err != nil {
			return err
		}
		n.setCounts(b, category, c.plus(change))
	}
	c, err := n.storedCounts("")
	if err != nil {
		return err
	}
	n.setCounts(b, "", c.plus(total))
	return nil
}

func (n *Namespace) setCounts(b *holdfast.Batch, category string, c counts) {
	key := n.keys.Count(category)
	if c.messages > 0 {
		b.Set(key, format.AppendCounts(nil, uint64(c.messages), uint64(c.streams)))
	} else {
		b.Delete(key)
	}
}

// emptied returns the blocks that have no message of a category but those to be removed. Their last positions have
// been given, so that none can come.
func (n *Namespace) emptied(ctx context.Context, category string, page []where) (blocks []uint64, err error) {
	going := make(map[uint64]bool, len(page))
	for _, at := range page {
		going[at.global] = true
	}
	end := n.log().Last()
	seen := map[uint64]bool{}
	for _, at := range page {
		block := at.global / format.BlockSize
		first, last := max(block*format.BlockSize, 1), (block+1)*format.BlockSize-1

		// A block that is not full may still get messages of the category.
		if seen[block] || last > end {
			continue
		}
		seen[block] = true
		left := false
		q := Query{Category: category}
		w := walker{n: n, ctx: ctx, q: &q, end: end, yield: func(m Message) bool {
			left = left || !going[uint64(m.Global)]
			return !left
		}}
		if _, err := w.run(first, last); err != nil {
			return nil, err
		}
		if !left {
			blocks = append(blocks, block)
		}
	}
	return blocks, nil
}
