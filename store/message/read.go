package message

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/fetch"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// Query says which messages to read or follow: those of a stream, of a category, or, with neither, of the namespace.
// All other conditions narrow that down. They come in the order of their positions in the stream, or of their global
// positions.
type Query struct {
	Stream, Category string

	// From is the first position, inclusive: in the stream for one, else the global position. It is at most the one
	// that the next message gets: what comes from beyond that would be missed, and is ErrAhead.
	From int64
	// History is what [Namespace.History] was when what comes before From was read; "" means that only the position is
	// checked. If the namespace has other messages there now, because it was put back to a copy and written to, has lost
	// its end in a power cut, or was made anew, that is ErrAhead.
	History string
	// Limit is how many messages to read; 0 means all. Followers have none.
	Limit int

	// Types are the types to read; none means all.
	Types []string
	// Prefix is what the names of streams begin with.
	Prefix string
	// Correlation is the category of the stream that a message's metadata name as correlationStreamName.
	Correlation string
	// Group is the member of a consumer group that reads.
	Group Group
}

func (n *Namespace) checkQuery(q *Query) error {
	bad := func(format string, args ...any) error {
		return n.store.fail("read", holdfast.ErrBadOption, nil, "", format, args...)
	}
	switch {
	case q.Stream != "" && q.Category != "":
		return bad("a query has a stream or a category, not both")
	case q.Group.Size < 0 || q.Group.Member < 0 || q.Group.Member > 0 && q.Group.Member >= q.Group.Size:
		return bad("member %d of a consumer group of %d", q.Group.Member, q.Group.Size)
	case q.Group.Size > 0 && q.Stream != "":
		return bad("a consumer group reads a category, not a stream")
	}
	if err := n.store.checkLimit("read", q.Limit); err != nil {
		return err
	}
	for _, name := range []string{q.Stream, q.Category, q.Correlation} {
		if what := checkName(name); name != "" && what != "" {
			return n.store.fail("read", ErrBadName, nil, "", "%.80q: %s", name, what)
		}
	}
	return nil
}

func (s *Store) checkLimit(op string, limit int) error {
	if limit < 0 {
		return s.fail(op, holdfast.ErrBadOption, nil, "use 0 for all", "the limit is %d", limit)
	}
	return nil
}

// Check returns the error with which [Namespace.Read] or [Namespace.Follow] of a query would begin, without reading.
func (n *Namespace) Check(ctx context.Context, q Query) error {
	if err := n.checkQuery(&q); err != nil {
		return err
	}
	if err := n.enter(ctx); err != nil {
		return err
	}
	defer n.leave()
	return n.ended(n.checkFrom(&q))
}

// checkFrom returns ErrAhead if q begins at a position that is not, or not any more, one of the namespace.
func (n *Namespace) checkFrom(q *Query) error {
	if q.From <= 0 {
		return nil
	}
	if q.Stream == "" {
		return n.log().CheckHistory(q.History, uint64(q.From))
	}
	common, err := n.log().Common(q.History)
	if err != nil {
		return err
	}
	same := n.sameHistory(q.History)
	fail := func(remedy, format string, args ...any) error {
		return n.store.fail("read", ErrAhead, nil, remedy, format, args...)
	}
	version, err := n.version(q.Stream)
	switch {
	case err != nil:
		return err
	case q.From > version+1:
		return fail("if the store was put back to a copy, begin again from a position that it has",
			"position %d of stream %.80q, the next one is %d", q.From, q.Stream, version+1)
	case common == 0:
		return fail("begin again from the first position", "position %d of stream %.80q is of another history: the "+
			"namespace was made anew, or put back to a copy", q.From, q.Stream)
	case same: // also what has come since common was asked for
		return nil
	}
	// What comes before From has not changed if its last message is one from before the histories differ.
	_, global, err := n.lastBefore(q.Stream, uint64(q.From))
	if err == nil && global >= common {
		return fail("begin again from an earlier position", "position %d of stream %.80q is of another history: the "+
			"namespace was put back to a copy, or has lost its end", q.From, q.Stream)
	}
	return err
}

// sameHistory reports whether a position that was reached in a history is one of the present, whichever it is.
func (n *Namespace) sameHistory(history string) bool {
	return history == "" || history == n.log().History()
}

// History identifies what positions mean in the namespace, as [event.Store.History] does. A consumer that keeps a
// position keeps it too, and names it as [Query].History.
func (n *Namespace) History(ctx context.Context) (string, error) {
	if err := n.enter(ctx); err != nil {
		return "", err
	}
	defer n.leave()
	return n.log().History(), nil
}

// wants reports whether a message that the index gives belongs to q.
func (q *Query) wants(stream string, r *event.Record) bool {
	switch {
	case q.Stream != "" && stream != q.Stream,
		q.Category != "" && Category(stream) != q.Category,
		len(q.Types) > 0 && !slices.Contains(q.Types, string(r.Type)),
		!strings.HasPrefix(stream, q.Prefix),
		!q.Group.Has(stream):
		return false
	}
	if q.Correlation == "" {
		return true
	}
	var metadata struct {
		Stream string `json:"correlationStreamName"`
	}
	return json.Unmarshal(r.Metadata, &metadata) == nil && Category(metadata.Stream) == q.Correlation
}

// Read yields the messages of a query, up to the end of the namespace at the time the loop began. After an error,
// including ctx's, the loop ends. A stream or category that does not exist has no messages. ErrAhead: the query begins
// beyond the end, or in another history. The body may do anything, even write.
func (n *Namespace) Read(ctx context.Context, q Query) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		if err := n.checkQuery(&q); err != nil {
			yield(Message{}, err)
			return
		}
		if err := n.enter(ctx); err != nil {
			yield(Message{}, err)
			return
		}
		defer n.leave()

		// What is read at From or behind it says that a stream goes so far, which otherwise takes a scan of its own to find
		// out. So within one history, whether a stream goes up to From is asked only if nothing is yielded.
		later := q.Stream != "" && n.sameHistory(q.History)
		if !later {
			if err := n.checkFrom(&q); err != nil {
				yield(Message{}, n.ended(err))
				return
			}
		}
		left := q.Limit
		_, err := n.walk(ctx, &q, uint64(max(q.From, 0)), n.log().Last(), func(m Message) bool {
			left--
			return yield(m, nil) && left != 0
		})
		if err == nil && later && left == q.Limit {
			err = n.checkFrom(&q)
		}
		if err != nil {
			yield(Message{}, n.ended(err))
		}
	}
}

// walk calls yield for the messages of q from a position on, with global positions up to end, until that returns
// false. It returns the position behind the last one looked at, also with an error.
func (n *Namespace) walk(ctx context.Context, q *Query, from, end uint64, yield func(Message) bool) (uint64, error) {
	w := walker{n: n, ctx: ctx, q: q, end: end, yield: yield, page: indexPage}
	if q.Stream != "" && q.Limit > 0 && len(q.Types) == 0 && q.Correlation == "" {
		w.page = min(w.page, q.Limit) // each entry is a message that q wants
	}
	select {
	case <-n.stop:
		return from, holdfast.ErrClosed
	default:
	}
	switch {
	case q.Stream != "":
		return w.stream(from)
	case q.Category != "":
		return w.category(max(from, 1))
	}
	from = max(from, 1)
	if from > end {
		return from, nil
	}
	w.next = from
	_, err := w.run(from, end)
	return w.next, err
}

// walker goes over the messages of a query.
type walker struct {
	n     *Namespace
	ctx   context.Context
	q     *Query
	end   uint64 // the last global position
	yield func(Message) bool
	page  int // entries of an index that are looked at, at a time
	key   []byte
	apart []uint64 // global positions that lie apart
	next  uint64   // the global position behind the last one looked at
}

// run goes over the messages with global positions from first to last, and reports whether to go on.
func (w *walker) run(first, last uint64) (bool, error) {
	limit := int(min(last-first+1, 1<<30))
	if last-first+1 > 1<<30 {
		limit = 0
	}
	for r, err := range w.n.log().Records(w.ctx, first, limit) {
		if err != nil {
			return false, err
		}
		if r.Position > last {
			break
		}
		w.next = r.Position + 1
		if on, err := w.take(r); err != nil || !on {
			return false, err
		}
	}
	w.next = last + 1
	return true, nil
}

// runs is run for several, of which those of one position are read together.
func (w *walker) runs(runs [][2]uint64) (bool, error) {
	for len(runs) > 0 {
		n := 0
		for w.apart = slices.Grow(w.apart[:0], len(runs)); n < len(runs) && runs[n][0] == runs[n][1]; n++ {
			w.apart = append(w.apart, runs[n][0])
		}
		if n < 2 {
			if on, err := w.run(runs[0][0], runs[0][1]); err != nil || !on {
				return false, err
			}
			runs = runs[1:]
			continue
		}
		for r, err := range w.n.log().RecordsAt(w.ctx, format.Kind, w.apart) {
			if err != nil {
				return false, err
			}
			if on, err := w.take(r); err != nil || !on {
				return false, err
			}
		}
		runs = runs[n:]
	}
	return true, nil
}

// take yields the message of a record, if q wants it, and reports whether to go on.
func (w *walker) take(r *event.Record) (bool, error) {
	place, position, _, ok := format.Place(r.Origin)
	if !ok {
		return false, w.n.foreign(r.Position)
	}
	stream := w.q.Stream
	if string(place) != stream {
		stream = string(place)
	}
	if !w.q.wants(stream, r) {
		return true, nil
	}
	r.Origin = nil // not copied: the stream is
	e := r.Event()
	return w.yield(Message{ID: e.ID, Stream: stream, Position: int64(position), Global: int64(r.Position), Type: e.Type,
		Data: e.Data, Metadata: e.Metadata, Time: e.Time}), nil
}

// indexPage is how many entries of an index are looked at, at a time, at most: no iterator is open while the caller has
// a turn.
const indexPage = 256

// places reads up to a page of entries of an index from w.key on, before hi, and returns the first and last of each
// run of numbers that follow one another, and whether there may be more. number gets the number of an entry, and
// whether it is taken; it may get entries again.
func (w *walker) places(hi []byte, number func(at uint64, value []byte) (uint64, bool, error)) (runs [][2]uint64,
	more bool, err error) {
	err = fetch.Again(func() (err error) {
		runs, more, err = w.placesOnce(hi, number)
		return err
	})

	return runs, more, err
}

func (w *walker) placesOnce(hi []byte, number func(at uint64, value []byte) (uint64, bool, error)) (runs [][2]uint64,
	more bool, err error) {
	it := w.n.store.eng.Scan(holdfast.Range{Lo: w.key, Hi: hi})
	defer it.Close()
	runs = make([][2]uint64, 0, min(w.page, 16)) // among others, each message of a stream is a run
	for entries := 0; it.Next(); entries++ {
		_, at, ok := w.n.keys.Placed(it.Key())
		if !ok {
			return nil, false, w.n.strange(it.Key())
		}
		if entries == w.page {
			w.key = append(w.key[:0], it.Key()...)
			return runs, true, nil
		}
		no, ok, err := number(at, it.Value())
		if err != nil {
			return runs, false, err
		}
		if !ok {
			continue
		}
		if k := len(runs); k > 0 && no == runs[k-1][1]+1 {
			runs[k-1][1] = no
		} else {
			runs = append(runs, [2]uint64{no, no})
		}
	}
	return runs, false, it.Err()
}

// stream goes over a stream from a position on.
func (w *walker) stream(from uint64) (next uint64, err error) {
	w.key = w.n.keys.Stream(make([]byte, 0, shortName), w.q.Stream, from)
	hi := w.n.keys.AfterStream(make([]byte, 0, shortName), w.q.Stream)
	next = from
	for more := true; more; {
		if err := holdfast.CheckContext(w.ctx); err != nil {
			return next, err
		}
		var runs [][2]uint64
		page := next
		runs, more, err = w.places(hi, func(at uint64, value []byte) (uint64, bool, error) {
			global, ok := format.Number(value)
			if !ok {
				return 0, false, w.n.strange(w.key)
			}
			if global > w.end { // not durable; after an import what follows may be
				return 0, false, nil
			}
			page = at + 1
			return global, true, nil
		})
		if err != nil {
			return next, err
		}
		if on, err := w.runs(runs); err != nil || !on {
			return next, err
		}
		next = page
	}
	return next, nil
}

// category goes over a category from a global position on.
func (w *walker) category(from uint64) (next uint64, err error) {
	if from > w.end {
		return from, nil
	}
	w.next = from
	w.key = w.n.keys.Category(nil, w.q.Category, from/format.BlockSize)
	hi := w.n.keys.Category(nil, w.q.Category, w.end/format.BlockSize+1)
	for more := true; more; {
		if err := holdfast.CheckContext(w.ctx); err != nil {
			return w.next, err
		}
		var runs [][2]uint64
		runs, more, err = w.places(hi, func(block uint64, _ []byte) (uint64, bool, error) {
			return block, true, nil
		})
		if err != nil {
			return w.next, err
		}
		for _, run := range runs {
			first := max(run[0]*format.BlockSize, from)
			last := min((run[1]+1)*format.BlockSize-1, w.end)
			if first > last {
				continue
			}
			if on, err := w.run(first, last); err != nil || !on {
				return w.next, err
			}
		}
	}
	return max(from, w.end+1), nil
}

// Version returns the position of a stream's last message that readers see. false means that the stream is not there.
// A stream all of whose messages were removed keeps its version.
func (n *Namespace) Version(ctx context.Context, stream string) (version int64, ok bool, err error) {
	if what := checkName(stream); what != "" {
		return 0, false, n.store.fail("version", ErrBadName, nil, "", "%.80q: %s", stream, what)
	}
	if err := n.enter(ctx); err != nil {
		return 0, false, err
	}
	defer n.leave()
	version, err = n.version(stream)
	if err != nil {
		return 0, false, n.ended(err)
	}
	return max(version, 0), version != NoStream, nil
}

// version is Version, and NoStream for a stream that is not there.
func (n *Namespace) version(stream string) (version int64, err error) {
	// In this order: what is removed meanwhile is found in what is special.
	version, _, err = n.last(stream)
	if err != nil {
		return 0, err
	}
	special, err := n.special(stream)
	if special != nil {
		version = max(version, special.Version)
	}
	return version, err
}

// last returns the position and global position of a stream's last message that readers see, NoStream and 0 if there
// is none.
func (n *Namespace) last(stream string) (position int64, global uint64, err error) {
	return n.lastBefore(stream, math.MaxUint64)
}

// lastBefore is last of the messages before a position.
func (n *Namespace) lastBefore(stream string, before uint64) (position int64, global uint64, err error) {
	lo, hi := n.keys.Stream(nil, stream, 0), n.keys.Stream(nil, stream, before)
	it := n.store.eng.Scan(holdfast.Range{Lo: lo, Hi: hi, Reverse: true})
	defer it.Close()
	for it.Next() {
		_, at, ok := n.keys.Placed(it.Key())
		global, ok2 := format.Number(it.Value())
		if !ok || !ok2 {
			return 0, 0, n.strange(it.Key())
		}
		if n.log().Shown(global) {
			return int64(at), global, nil
		}
	}
	return NoStream, 0, it.Err()
}

// ByID returns the message with an id, once readers see it. ErrNotFound: there is none, or it was removed.
func (n *Namespace) ByID(ctx context.Context, id string) (m Message, err error) {
	if err := n.enter(ctx); err != nil {
		return m, err
	}
	defer n.leave()
	global, err := n.log().ByID(ctx, id)
	if err == nil {
		m, err = n.at(ctx, global)
	}
	return m, n.ended(err)
}

// LastMessage returns the last message of a stream, or the last one of a type if that is not "". ErrNotFound: there
// is none.
func (n *Namespace) LastMessage(ctx context.Context, stream, typ string) (m Message, err error) {
	if what := checkName(stream); what != "" {
		return m, n.store.fail("last", ErrBadName, nil, "", "%.80q: %s", stream, what)
	}
	if err := n.enter(ctx); err != nil {
		return m, err
	}
	defer n.leave()
	hi := n.keys.AfterStream(nil, stream)
	for {
		if err := holdfast.CheckContext(ctx); err != nil {
			return m, err
		}
		globals, err := n.before(stream, &hi)
		if err != nil {
			return m, n.ended(err)
		}
		for _, global := range globals {
			m, err := n.at(ctx, global)
			if errors.Is(err, holdfast.ErrNotFound) { // removed meanwhile
				continue
			}
			if err != nil || typ == "" || m.Type == typ {
				return m, err
			}
		}
		if len(globals) == 0 {
			return m, n.store.fail("last", holdfast.ErrNotFound, nil, "", "stream %q has no such message", stream)
		}
	}
}

// before returns the global positions of up to indexPage messages of a stream with keys below hi, the last first, and
// moves hi to where they end.
func (n *Namespace) before(stream string, hi *[]byte) (globals []uint64, err error) {
	end := n.log().Last()
	it := n.store.eng.Scan(holdfast.Range{Lo: n.keys.Stream(nil, stream, 0), Hi: *hi, Reverse: true})
	defer it.Close()
	for len(globals) < indexPage && it.Next() {
		global, ok := format.Number(it.Value())
		if !ok {
			return nil, n.strange(it.Key())
		}
		*hi = append((*hi)[:0], it.Key()...)
		if global <= end {
			globals = append(globals, global)
		}
	}
	return globals, it.Err()
}
