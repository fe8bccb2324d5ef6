package event

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
)

// Ids are remembered by generation, the position divided by the window. An append looks
// into its own generation and the one before, so at least window positions and at most twice
// as many are remembered; whole generations are forgotten. Ids that are too new to be visible
// in the engine, and some more, are in recent.

// oldest returns the first position whose id still counts for an append at next.
func (s *Store) oldest(next uint64) uint64 {
	g := next / s.window
	return (max(g, 1) - 1) * s.window
}

// lookUp fills a.known from the engine, for an append at next.
func (s *Store) lookUp(a *appender, events []Event, next uint64) error {
	a.known = a.known[:0]
	g := next / s.window
	if s.fetch != nil {
		s.fetch.Fetch(s.idKeys(events, g))
	}
	for i := range events {
		pos, err := s.getID(a, g, events[i].ID)
		if pos == 0 && err == nil && g > 0 {
			pos, err = s.getID(a, g-1, events[i].ID)
		}
		if err != nil {
			return err
		}
		a.known = append(a.known, pos)
	}
	return nil
}

// idKeys returns the keys that may have the ids of events: in a generation, and in the one before.
func (s *Store) idKeys(events []Event, g uint64) (keys [][]byte) {
	for i := range events {
		for of := max(g, 1) - 1; of <= g; of++ {
			keys = append(keys, s.keys.ID(nil, of, s.folded(events[i].ID)))
		}
	}
	return keys
}

func (s *Store) getID(a *appender, g uint64, id string) (uint64, error) {
	a.idKey = s.keys.ID(a.idKey, g, s.folded(id))
	value, err := s.eng.Get(a.record[:0], a.idKey)
	if errors.Is(err, holdfast.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	a.record = value
	pos, ok := keyspace.Number(value)
	if !ok {
		return 0, s.fail("append", holdfast.ErrCorrupt, nil, "", "the place of id %q is %d bytes long", id, len(value))
	}
	return pos, nil
}

// repeated finds out whether an append at next repeats an earlier one, and then sets p. It
// is called with the lock.
func (s *Store) repeated(p *Pending, a *appender, events []Event, level holdfast.Level, next uint64,
	was glance) (bool, error) {
	// The ids were looked up in the engine before the turn. That holds as long as none that was too new for the engine
	// then has left memory, and neither the generation nor an edit has changed what is looked into. If they were fresh,
	// none of them has left memory as long as they still are.
	if s.recent.forgotten > was.seen || next/s.window != was.next/s.window || s.edits.Load() != was.edits ||
		a.fresh && !s.recent.fresh.hasAll(events, s.folded) {
		if err := s.lookUp(a, events, next); err != nil {
			return false, err
		}
	}
	found, oldest, wait := 0, s.oldest(next), false
	for i := range events {
		id := s.folded(events[i].ID)
		if pos := s.recent.at[id]; pos > a.known[i] {
			a.known[i] = pos
		}
		if pos := s.importing[id]; pos != 0 {
			a.known[i], wait = pos, true
		}
		// An expired id counts as a new one, even where it is not forgotten yet.
		if a.known[i] < oldest {
			a.known[i] = 0
		}
		if a.known[i] != 0 {
			found++
		}
	}
	if found == 0 {
		return false, nil
	}

	// All are known, in the same order, one behind the other: only that is the same append again.
	first := a.known[0]
	for i, pos := range a.known {
		if pos == 0 || pos != first+uint64(i) {
			return false, s.partial(a, events)
		}
	}
	r := Result{First: first, Last: first + uint64(len(events)) - 1, Repeated: true}
	if s.mixed || level != s.level { // the first time may have been at a weaker level
		if err := s.commit(new(holdfast.Batch), level, s.next.Load()); err != nil {
			return false, err
		}
		wait = true
	}
	*p = Pending{s: s}
	if r.Last > s.durable.Load() || wait {
		*p = s.pending()
	}
	p.result, p.given = r, contents(events)
	return true, nil
}

// contents copies of events what a repeat has to have in common with them: the caller may change its own before that is
// compared. Metadata often tell of the try, such as a trace or the place in a log that is replicated, and do not count.
func contents(events []Event) []Event {
	list := make([]Event, len(events))
	for i := range events {
		e := &events[i]
		list[i] = Event{Type: strings.Clone(e.Type), Data: bytes.Clone(e.Data)}
	}
	return list
}

// compare returns ErrIDTaken if the events at the positions of a repeat have another content. What has been truncated
// or removed meanwhile cannot be compared.
func (s *Store) compare(r Result, given []Event) error {
	for again := false; ; again = true {
		seen := 0
		var failed error
		s.walk(context.Background(), span{from: r.First, limit: len(given)}, func(there *Record, err error) bool {
			if err != nil {
				failed = err
				return false
			}
			if there.Position > r.Last {
				return false
			}
			seen++
			e := &given[there.Position-r.First]
			if string(there.Type) != e.Type || !bytes.Equal(there.Data, e.Data) {
				failed = s.fail("append", ErrIDTaken, &Known{r}, "give what is new an id of its own",
					"nothing was appended: event %d has the id, but another type or data", there.Position)
			}
			return failed == nil
		})
		switch {
		case errors.Is(failed, ErrTruncated):
			return nil
		case failed != nil || seen == len(given) || again:
			return failed
		}
		// Readers do not see yet what an import has put there. Only that one is waited for: another edit may be waiting for
		// the caller's transaction.
		if h := s.hidden.Load(); h != nil {
			for pos := r.First; pos <= r.Last; pos++ {
				if h.at[pos] {
					<-h.over
				}
			}
		}
	}
}

// folded is an id as it counts: in a log that folds them, without capital letters.
func (s *Store) folded(id string) string {
	if !s.fold {
		return id
	}
	for i := range len(id) {
		if c := id[i]; c >= 'A' && c <= 'Z' {
			return string(foldBytes([]byte(id)))
		}
	}
	return id
}

// foldBytes makes the capital letters of ASCII in b small.
func foldBytes(b []byte) []byte {
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return b
}

// foldIDs folds the keys of the ids of a log that was made before it did. Of ids that become the same, the first event
// keeps it; after a rebuild it is one of them.
func (s *Store) foldIDs(ctx context.Context) error {
	lo, hi := s.keys.Table(format.TableIDs)
	var b holdfast.Batch
	places := map[string]uint64{} // in b
	flush := func() error {
		if b.Len() == 0 {
			return nil
		}
		clear(places)
		err := holdfast.Commit(s.eng, &b, s.level)
		b.Reset()
		return err
	}
	return chunks.Each(ctx, s.eng, lo, hi, func(key, value []byte) error {
		pos, ok := keyspace.Number(value)
		rest := s.keys.Rest(key)
		if !ok || len(rest) <= 8 || !slices.ContainsFunc(rest[8:], func(c byte) bool { return c >= 'A' && c <= 'Z' }) {
			return nil
		}
		to := bytes.Clone(key)
		foldBytes(to[len(key)-len(rest)+8:])
		first, found := places[string(to)]
		if !found {
			there, err := s.eng.Get(nil, to)
			if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
				return err
			}
			first, found = keyspace.Number(there)
		}
		if !found || pos < first {
			first = pos
		}
		places[string(to)] = first
		b.Delete(key)
		b.Set(to, format.AppendPosition(nil, first))
		if b.Size() > chunks.Bytes/4 {
			return flush()
		}
		return nil
	}, flush)
}

// partial tells the first known id and the first thing that keeps the append from being a
// repeat.
func (s *Store) partial(a *appender, events []Event) error {
	i := 0
	for a.known[i] == 0 {
		i++
	}
	for j, pos := range a.known {
		if pos == 0 {
			return s.fail("append", ErrPartialRepeat, nil, "repeat an append with the same events",
				"id %q is at position %d, id %q is new", events[i].ID, a.known[i], events[j].ID)
		}
	}
	return s.fail("append", ErrPartialRepeat, nil, "repeat an append with the same events",
		"the ids are known, but not as one run: %q is at position %d, %q at %d",
		events[0].ID, a.known[0], events[len(events)-1].ID, a.known[len(events)-1])
}

// recent holds the ids of events that may not be visible in the engine yet. Some are
// kept beyond that, so that looking up in the engine can be done without the lock.
type recent struct {
	at        map[string]uint64
	queue     []idAt // oldest first, from head on
	head      int
	forgotten uint64 // the ids of events up to here have left
	folded    func(id string) string
	fresh     fresh
	keep      int // durable ids, at least
}

type idAt struct {
	id  string
	pos uint64
}

const (
	keepIDs  = 1 << 10 // durable ids that are kept in memory
	slowIDs  = 1 << 12 // and where each that is read takes a round trip
	crowdIDs = 1 << 13 // ids in flight before Submit begins to wait
)

func (r *recent) init(folded func(id string) string, keep int) {
	r.at, r.folded, r.keep = map[string]uint64{}, folded, keep
}

// crowd returns the position that must become durable for no more than crowdIDs ids to be in flight, 0 if that is so.
func (r *recent) crowd() uint64 {
	if len(r.queue)-r.head <= crowdIDs {
		return 0
	}
	return r.queue[len(r.queue)-1-crowdIDs].pos
}

// newest returns the id that was added last, "" if none is there.
func (r *recent) newest() string {
	if len(r.queue) == 0 {
		return ""
	}
	return r.queue[len(r.queue)-1].id
}

// add remembers the ids of events at positions from first on, and forgets the oldest that
// are durable.
func (r *recent) add(events []Event, first, durable uint64) {
	for len(r.queue)-r.head > r.keep && r.queue[r.head].pos <= durable {
		old := &r.queue[r.head]
		if r.at[old.id] == old.pos { // not since appended again
			delete(r.at, old.id)
		}
		r.forgotten = old.pos
		r.fresh.leave(old.id, r.folded(events[0].ID))
		*old = idAt{}
		r.head++
	}

	// The front of the queue is given back when it is the larger part, so that moving the rest costs less than what was
	// forgotten.
	if r.head > len(r.queue)/2 {
		n := copy(r.queue, r.queue[r.head:])
		clear(r.queue[n:])
		r.queue, r.head = r.queue[:n], 0
	}
	// Copied, because the caller's id may be a part of something large.
	var ids strings.Builder
	for i := range events {
		ids.WriteString(r.folded(events[i].ID))
	}
	for i, rest := 0, ids.String(); i < len(events); i++ {
		id, pos := rest[:len(events[i].ID)], first+uint64(i)
		rest = rest[len(id):]
		r.at[id] = pos
		r.queue = append(r.queue, idAt{id, pos})
	}
}

// expiry removes generations that no append looks into any more. It does so once every expireEvery positions, because
// each time costs as much as some appends. In an engine that deletes a range key by key it removes a little after each
// append.
type expiry struct {
	due atomic.Uint64 // the generation that an append must have reached
	mu  sync.Mutex    // held while removing
}

const (
	expireEvery = 1 << 10 // positions, at least
	expireKeys  = 256     // ids that are removed after an append, at least
)

// plan sets when the next ids are to be removed, now that none is left below a place.
func (x *expiry) plan(ids []byte, window uint64) {
	var g uint64
	if len(ids) >= 8 {
		g = binary.BigEndian.Uint64(ids)
	}
	if len(ids) > 8 { // within a generation
		x.due.Store(0)
		return
	}
	x.due.Store(g + 1 + max(1, expireEvery/window))
}

// expire removes ids, after an append of n events up to last. It does not wait for the commit:
// if a crash undoes it, or the engine refuses, a later append does it again.
func (s *Store) expire(last uint64, n int) {
	if last < s.window || s.enter(context.Background()) != nil {
		return
	}
	defer s.life.Leave()
	if !s.expiry.mu.TryLock() {
		return
	}
	defer s.expiry.mu.Unlock()
	s.aboutMu.Lock()
	lo, hi := s.keys.FromID(s.about.IDs), s.keys.ID(nil, last/s.window-1, "")
	s.aboutMu.Unlock()
	keys := chunks.Keys
	for left, more := max(expireKeys, 2*n), true; more && left > 0 && bytes.Compare(lo, hi) < 0; {
		var b holdfast.Batch
		end := hi

		// Where a range delete costs the engine a delete for each key, an append removes about as many ids as it brings, and
		// no more.
		if s.caps.NativeDeleteRange {
			b.DeleteRange(lo, hi)
		} else {
			var at []byte
			var err error
			if at, more, err = chunks.Cut(&b, s.eng, holdfast.Range{Lo: lo, Hi: hi}, min(keys, left), chunks.Bytes); err != nil {
				_ = s.met(err)
				return
			}
			if more {
				end = append(at, 0)
			}
		}
		removed := b.Len()
		switch _, err := s.applyAbout(s.level, &b, func(m *format.Meta) { m.IDs = s.keys.Rest(end) }); {
		case err == nil:
			lo, left = end, left-removed
			s.expiry.plan(s.keys.Rest(end), s.window)
		case errors.Is(err, holdfast.ErrTooLarge) && keys > 1: // the engine has a limit of its own
			keys, more = keys/2, true
		default:
			_ = s.met(err)
			return
		}
	}
}
