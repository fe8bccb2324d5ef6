// Package eventbus lets an event bus keep its events in a log of package event. It is made
// for the bus github.com/jilio/ebu, by whose types it is instantiated:
//
//	log, err := event.Open(kv.On(engine), event.Options{Name: "bus"})
//	store := eventbus.New[ebu.Event, ebu.StoredEvent, ebu.Offset](log)
//	bus := ebu.New(ebu.WithStore(store))
//
// It does not import the bus. A [Store] is generic over the bus's three types and accepts
// any that have the same fields with the same tags; its methods then have the signatures of
// the bus's interfaces, the required one (Append, Read) and all optional ones: ReadStream,
// Tail, CompareOffsets, SaveOffset, LoadOffset, LookupOffset, SaveSnapshot, LoadSnapshot,
// TruncateBefore. It was tried with the bus itself, github.com/jilio/ebu v0.17.0: it compiles, publishes,
// replays, and goes on after a restart. The tests here use a copy of the bus's declarations. A
// version of the bus whose types differ does not compile with it.
//
// # Offsets
//
// An offset is the position of an event in 20 decimal digits, so that offsets sort as they
// stand. The empty one is the beginning, "$" the end at the moment of the call. Reading
// begins after an offset. Each event's own offset can be saved at once.
//
// # What the log adds
//
// Append returns when the event has reached the level of the log, and nobody reads it
// earlier. An Append of an id that the log remembers returns the first offset; see
// [event.Options] for how long it does. An offset that the log has never reached is an
// error rather than the end of the log: it means that the log was replaced by an older one.
//
// If the log has lost events, reading ends there with an error in which errors.As finds an
// [event.Gap]. A reader that can do without them continues after the offset Next-1.
package eventbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event"
)

// Event is what the bus appends.
type Event interface {
	~struct {
		ID        string            `json:"id,omitempty"`
		Origin    string            `json:"origin,omitempty"`
		Type      string            `json:"type"`
		Data      json.RawMessage   `json:"data"`
		Metadata  map[string]string `json:"metadata,omitempty"`
		Timestamp time.Time         `json:"timestamp"`
	}
}

// StoredEvent is what the bus reads.
type StoredEvent[O ~string] interface {
	~struct {
		Offset    O                 `json:"offset"`
		ID        string            `json:"id,omitempty"`
		Origin    string            `json:"origin,omitempty"`
		Type      string            `json:"type"`
		Data      json.RawMessage   `json:"data"`
		Metadata  map[string]string `json:"metadata,omitempty"`
		Timestamp time.Time         `json:"timestamp"`
	}
}

// The offsets that are not positions.
const (
	oldest = ""
	newest = "$"
)

// Store is a log as the bus wants it. All methods may be called from many goroutines at
// once. It has nothing to close: the code that opened the log closes it, after the bus.
type Store[E Event, S StoredEvent[O], O ~string] struct{ log *event.Store }

// New returns log as a store of the bus. Everything else that appends to the log must be
// such a store too.
func New[E Event, S StoredEvent[O], O ~string](log *event.Store) *Store[E, S, O] {
	return &Store[E, S, O]{log}
}

// appended and stored are the bus's types, to convert from and to.
type (
	appended struct {
		ID        string
		Origin    string
		Type      string
		Data      json.RawMessage
		Metadata  map[string]string
		Timestamp time.Time
	}
	stored[O ~string] struct {
		Offset    O
		ID        string
		Origin    string
		Type      string
		Data      json.RawMessage
		Metadata  map[string]string
		Timestamp time.Time
	}
)

// Encode returns e as a Store appends it, for those who append to the log themselves.
func Encode[E Event](e E) event.Event {
	in := appended(e)
	out := event.Event{Type: in.Type, ID: in.ID, Origin: in.Origin, Data: in.Data}
	out.Time, out.Metadata = pack(&in)
	return out
}

// Decode returns an event of the log as a Store reads it; what it holds is the caller's. ErrCorrupt: Encode has not
// made it, or it is damaged.
func Decode[S StoredEvent[O], O ~string](r *event.Record) (S, error) {
	e := r.Event()
	out := stored[O]{Offset: offset[O](e.Position), ID: e.ID, Origin: e.Origin, Type: e.Type, Data: e.Data,
		Timestamp: e.Time}
	if e.Metadata != nil {
		d := decoder{rest: e.Metadata}
		d.envelope(&out.Timestamp, &out.Metadata, &out.Data)
		if d.bad || len(d.rest) > 0 {
			return S{}, fail("read", holdfast.ErrCorrupt, fmt.Sprintf(
				"the event at position %d was not appended by an event bus, or is damaged", e.Position))
		}
	}
	return S(out), nil
}

// Append stores e and returns its offset, or the first one if its id is known. ctx is asked
// before the event has its place in the log, not after.
func (s *Store[E, S, O]) Append(ctx context.Context, e *E) (O, error) {
	if e == nil {
		return "", fail("append", event.ErrBadEvent, "it is nil")
	}
	at, err := s.log.Append(ctx, Encode(*e))
	if err != nil {
		return "", err
	}
	return offset[O](at.Last), nil
}

// Read returns the events after from, at most limit of them, 0 for all, and the offset to
// go on from: that of the last event, or from if there is none. From "$" it returns none
// and the end of the log.
func (s *Store[E, S, O]) Read(ctx context.Context, from O, limit int) ([]*S, O, error) {
	if from == newest {
		return nil, offset[O](s.log.Last()), holdfast.CheckContext(ctx)
	}
	for {
		start, err := s.after(from)
		if err != nil {
			return nil, from, err
		}
		var events []*S
		next := from
		s.forward(s.log.Records(ctx, start, limit), func(e *S, failed error) bool {
			if err = failed; err == nil {
				events = append(events, e)
			}
			return true
		})
		switch {
		case errors.Is(err, event.ErrTruncated):
			continue // in between: begin where the log now does
		case err != nil:
			return nil, from, err
		case len(events) > 0:
			next = stored[O](*events[len(events)-1]).Offset
		}
		return events, next, nil
	}
}

// ReadStream yields the events after from, up to the end of the log at that moment. From
// "$" it yields none.
func (s *Store[E, S, O]) ReadStream(ctx context.Context, from O) iter.Seq2[*S, error] {
	return func(yield func(*S, error) bool) {
		if from == newest {
			return
		}
		start, err := s.after(from)
		if err != nil {
			yield(nil, err)
			return
		}
		s.forward(s.log.Records(ctx, start, 0), yield)
	}
}

// Tail yields the events after from, and then each new one as it becomes durable. "$" is
// the end of the log at the call of Tail, not of the loop. It ends in silence with ctx.
func (s *Store[E, S, O]) Tail(ctx context.Context, from O) iter.Seq2[*S, error] {
	if from == newest {
		from = offset[O](s.log.Last())
	}
	return func(yield func(*S, error) bool) {
		start, err := s.after(from)
		if err != nil {
			yield(nil, err)
			return
		}
		s.forward(s.log.FollowRecords(ctx, start), func(e *S, err error) bool {
			if ctx != nil && err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
				return false
			}
			return yield(e, err)
		})
	}
}

func (s *Store[E, S, O]) forward(records iter.Seq2[*event.Record, error], yield func(*S, error) bool) {
	for r, err := range records {
		var e *S
		if err == nil {
			var decoded S
			if decoded, err = Decode[S](r); err == nil {
				e = &decoded
			}
		}
		if !yield(e, err) || err != nil {
			return
		}
	}
}

// after returns the position that reading after from begins at. What is truncated is skipped: the bus truncates only
// what no reader needs.
func (s *Store[E, S, O]) after(from O) (uint64, error) {
	pos, err := position(from)
	if err != nil {
		return 0, err
	}
	return max(pos+1, s.log.First()), nil
}

// CompareOffsets returns a negative number if left comes before right, 0 if they are the
// same and a positive one otherwise. "$" is no place and cannot be compared.
func (s *Store[E, S, O]) CompareOffsets(left, right O) (int, error) {
	l, err := position(left)
	if err != nil {
		return 0, err
	}
	r, err := position(right)
	switch {
	case err != nil:
		return 0, err
	case l < r:
		return -1, nil
	case l > r:
		return 1, nil
	}
	return 0, nil
}

// A subscription's offset is kept as the bus gives it, byte for byte: it may be one of
// another store, which this log is a copy of.
const (
	subscriptions = "offset/"
	snapshots     = "snapshot/"
)

// SaveOffset keeps the offset of a subscription. "$" becomes the end of the log at this
// moment.
func (s *Store[E, S, O]) SaveOffset(ctx context.Context, subscription string, at O) error {
	if at == newest {
		at = offset[O](s.log.Last())
	}
	return s.log.SaveSnapshot(ctx, subscriptions+subscription, 0, []byte(at))
}

// LoadOffset returns the offset of a subscription, the empty one if none is kept.
func (s *Store[E, S, O]) LoadOffset(ctx context.Context, subscription string) (O, error) {
	at, _, err := s.LookupOffset(ctx, subscription)
	return at, err
}

// LookupOffset is LoadOffset that tells an empty offset from none.
func (s *Store[E, S, O]) LookupOffset(ctx context.Context, subscription string) (at O, found bool, err error) {
	_, kept, err := s.log.LoadSnapshot(ctx, subscriptions+subscription)
	if errors.Is(err, holdfast.ErrNotFound) {
		return oldest, false, nil
	}
	return O(kept), err == nil, err
}

// SaveSnapshot keeps the state of a projection as of the offset at, in place of the one
// before. at must be an offset of this log.
func (s *Store[E, S, O]) SaveSnapshot(ctx context.Context, projection string, at O, state json.RawMessage) error {
	pos, err := position(at)
	if err != nil {
		return err
	}
	return s.log.SaveSnapshot(ctx, snapshots+projection, pos, state)
}

// LoadSnapshot returns the state of a projection and its offset, the empty one and nil if
// none is kept.
func (s *Store[E, S, O]) LoadSnapshot(ctx context.Context, projection string) (at O, state json.RawMessage, err error) {
	pos, state, err := s.log.LoadSnapshot(ctx, snapshots+projection)
	if errors.Is(err, holdfast.ErrNotFound) {
		return oldest, nil, nil
	}
	return offset[O](pos), state, err
}

// TruncateBefore removes the events up to and including the offset, and returns how many
// these were. Doing it again removes nothing.
func (s *Store[E, S, O]) TruncateBefore(ctx context.Context, before O) (deleted int64, err error) {
	pos, err := position(before)
	if err != nil || pos == 0 {
		return 0, err
	}
	removed, err := s.log.TruncateBefore(ctx, pos+1)
	return int64(removed), err
}

const (
	digits = 20
	zeros  = "00000000000000000000" // as many
)

// offset is the offset of the event at pos; 0 is the beginning.
func offset[O ~string](pos uint64) O {
	if pos == 0 {
		return oldest
	}

	// Package fmt takes four times as long, and each event that is read has one.
	var room [2 * digits]byte
	text := strconv.AppendUint(append(room[:0], zeros...), pos, 10)

	return O(text[len(text)-digits:])
}

// position is the inverse of offset.
func position[O ~string](at O) (uint64, error) {
	switch {
	case at == oldest:
		return 0, nil
	case at == newest:
		return 0, fail("offset", holdfast.ErrBadOption, `"$" names no place; pass an offset that Append or Read returned`)
	case len(at) == digits:
		if pos, err := strconv.ParseUint(string(at), 10, 63); err == nil {
			return pos, nil
		}
	}
	return 0, fail("offset", holdfast.ErrBadOption, fmt.Sprintf("%q is no offset of this store", string(at)))
}

func fail(op string, class error, detail string) error {
	return &holdfast.Error{Op: "event bus " + op, Class: class, Detail: detail}
}
