// Package event keeps a log of events in any engine: one sequence of positions from 1, given in commit order and
// without gaps.
//
//	log, err := event.Open(kv.On(engine), event.Options{Name: "orders"}) // at Power unless told otherwise
//	at, err := log.Append(ctx, event.Event{Type: "placed", Data: data})
//	for e, err := range log.Follow(ctx, at.First) { ... }
//
// An append is one event or several, committed atomically. It can state the position that it
// expects the log to be at ([Store.AppendAfter]). Its events can carry ids: appending an id
// again, with the same content, returns the first result instead of adding a second event. Concurrent appenders share
// one sync: no lock is held while waiting for the device.
//
// The expected position is that of the whole log. A log has one order: it has no streams, and no versions of streams.
// So an append after position 17 conflicts with every other append after 17. To decide on the state that all events
// make, read them up to the end of the log, and retry after a conflict; ExampleStore_AppendAfter_again is that loop.
//
// For aggregates, whose writers decide each on the state of its own, use package message: its streams have versions of
// their own, and package store/message/aggregate loads, decides and retries. With 64 writers that each write to an
// aggregate of their own, at Power on logtree, AppendAfter made 1,200 to 1,500 appends and 50,000 to 70,000 conflicts a
// second, and message.WriteAfter 18,000 to 20,000 writes and no conflict, where Append made 39,000 (BenchmarkWriters of
// store/message/aggregate, on two busy cores).
//
// Many logs can be in one engine ([Options].Name), each with positions, offsets and snapshots of its own. A log costs a
// commit when it is opened, two kilobytes of memory while it is open, the memory of its last thousand ids, and its name
// in each of its keys. An append is to one log; a transaction appends to several at once, each by its [Store.In].
// [Logs] lists them.
//
// # What readers see
//
// A reader or follower sees an event once it survives what its write named, and all events before it survive what
// theirs named, and never earlier: no crash of that kind can take back what a reader has seen. A write names the
// level of its context ([holdfast.WithLevel]), or the store's. Positions arrive in order, without gaps and without
// repeats: an event at Process behind one at Power is seen, and its append returns, once both are safe. Where events
// have been lost, for example in the repair of a damaged engine, reading ends with [holdfast.ErrCorrupt] before the
// [Gap] and never skips it by itself. A repair that lost data may also have lost the end of a log, which no gap
// shows, or all of it. So opening a log in a repaired engine that lost data fails with [holdfast.ErrCorrupt] until
// the loss has been accepted. [Examine] shows what is left.
//
// # In transactions
//
// [Store.In] makes the log a part of a transaction of its database: what is appended there, offsets and snapshots that
// are saved, and what the transaction writes to other stores and to its buckets, are one commit. So an outbox, an
// index, or a read model that is never behind its log needs nothing else:
//
//	err := db.Update(ctx, func(tx *kv.Tx) error {
//		at, err := log.In(tx).Append(event.Event{Type: "placed", Data: data})
//		if err != nil {
//			return err
//		}
//		return tx.Bucket("last").Put([]byte("placed"), fmt.Append(nil, at.First))
//	})
//
// Package projection keeps read models that are made of events.
//
// # Retention and imports
//
// [Store.TruncateBefore] removes the oldest events, and [Store.Retain] all but those of some age, number or size.
// Positions are never used again, even after all events have been removed. Reading a removed position gives
// [ErrTruncated]. Neither waits for subscriptions unless [Retention] says so.
//
// [Store.Remove] removes any events, and [Store.Import] puts events from elsewhere at the positions that they had
// there, in any order. Positions that have no event for these reasons are recorded: readers skip them, while a
// missing event is damage.
//
// Offsets ([Store.SaveOffset]) remember how far a subscription has come, snapshots
// ([Store.SaveSnapshot]) keep the state of a projection together with its position. Both
// are kept in the same engine and survive truncation. [Store.Subscriptions] and [Store.Snapshots] list them with what
// they lag behind, and [Logs] lists the logs of an engine.
//
// # Keys in the engine
//
// All keys of a log begin with the byte 'e', the length of its name in one byte, and the name; those of the other
// stores of this module, and of databases, begin alike, with 'k', 'm', 'r', 's' and 't'. No key of a bucket can be one
// of them. An engine can also be shared with keys that a program writes to it directly; these begin best with other
// letters.
//
// The engine does not protect a log's keys from writes to the engine itself: a DeleteRange that covers them, such as
// DeleteRange(nil, nil), removes the log or a part of it, even while it is open. To remove one log, call [Delete].
//
// # What it costs
//
// Small events that are appended together, up to 128 of them and 8 KiB, become one entry of the
// engine. So appending or reading a hundred of them costs the engine little more than one event.
// Truncation frees their space once it has passed the last of them.
//
// The bytes are drawn in docs/format-event.md.
package event

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast/internal/failure"
)

// Limits in bytes. A whole event takes at most [holdfast.MaxValueSize], its header
// included, and one append at most [holdfast.MaxBatchSize]; an engine may allow less, see
// its Capabilities.
const (
	MaxIDSize   = 1024 // of an event's id, and of the name of a subscription or snapshot
	MaxNameSize = 128  // of a store's name

	// MaxTypeSize is for an event's type, and for its origin: what is escaped in JSON grows to six times its size.
	MaxTypeSize = 64 << 10
)

// DefaultIDWindow is the minimum number of positions for which the ids of events are remembered.
const DefaultIDWindow = 1 << 20

// Event is one entry of the log. Type, ID, Origin, Metadata and Data mean nothing to the
// store and are returned unchanged, except that empty slices become nil.
type Event struct {
	// Position is the event's place, from 1. Append ignores it.
	Position uint64
	// Time is when it happened, in nanoseconds, between the years 1678 and 2262. If it is
	// zero Append fills in the present. It comes back as UTC. Retention does not go by it, but by when the event was
	// appended: see [Record.Written].
	Time time.Time
	// Type is what happened, in at most MaxTypeSize bytes.
	Type string
	// ID names the event for idempotency: any text of at most MaxIDSize bytes; empty means none. Either all events of an
	// append carry one, or none of them does.
	ID string
	// NewID says that the ID was made for this event, so no earlier event has it: if all events of an append have a new
	// ID, it does not look for a repeat. It is not stored.
	NewID bool
	// Origin is who appended it, in at most MaxTypeSize bytes.
	Origin string
	// Metadata and Data are the payload.
	Metadata, Data []byte
}

// Record is an event whose bytes are borrowed: they are valid until the loop that yields
// them goes on, and must not be written to.
type Record struct {
	Position         uint64
	Time             time.Time
	Type, ID, Origin []byte
	Metadata, Data   []byte

	written int64 // 0 if that is Time
}

// Written is when the event was appended or imported, by the log's own clock. It is Time if that was not given; and in
// an event of an older format, or that has no room for both, because it is as large as events may be.
func (r *Record) Written() time.Time {
	if r.written != 0 {
		return time.Unix(0, r.written).UTC()
	}
	return r.Time
}

// Event returns a copy that is the caller's.
func (r *Record) Event() Event { return r.copyAfter("") }

// copyAfter is Event, but uses typ instead of a copy if the type is the same.
func (r *Record) copyAfter(typ string) Event {
	e := Event{Position: r.Position, Time: r.Time}
	first := r.Type
	if string(first) == typ {
		e.Type, first = typ, nil
	}
	if n := len(first) + len(r.ID) + len(r.Origin); n > 0 {
		var b strings.Builder
		b.Grow(n)
		b.Write(first)
		b.Write(r.ID)
		b.Write(r.Origin)
		s := b.String()
		if first != nil {
			e.Type, s = s[:len(first)], s[len(first):]
		}
		e.ID, e.Origin = s[:len(r.ID)], s[len(r.ID):]
	}
	if n := len(r.Metadata); n+len(r.Data) > 0 {
		both := append(append(make([]byte, 0, n+len(r.Data)), r.Metadata...), r.Data...)
		if n > 0 {
			e.Metadata = both[:n:n]
		}
		if len(both) > n {
			e.Data = both[n:]
		}
	}
	return e
}

// Result is where the events of an append are.
type Result struct {
	First, Last uint64
	// Repeated is true if the ids were known: nothing was added, and First and Last are
	// those of the first time.
	Repeated bool
}

// The classes of errors in addition to those of package holdfast.
var (
	// ErrConflict: the log is not at the expected position; errors.As finds a [*Conflict].
	ErrConflict = errors.New("holdfast: conflict")
	// ErrTruncated: the position has been truncated away; errors.As finds a [*Truncated].
	ErrTruncated = errors.New("holdfast: truncated")
	// ErrPartialRepeat: some ids of an append are known and others are not, or they are
	// known from another run of events.
	ErrPartialRepeat = errors.New("holdfast: partly repeated")
	// ErrIDTaken: the ids of an append are known from events with another type or data; errors.As finds a
	// [*Known].
	ErrIDTaken = errors.New("holdfast: event id taken")
	// ErrBadEvent: an append of nothing, or an event that cannot be stored as it is.
	ErrBadEvent = errors.New("holdfast: bad event")
	// ErrAhead: a position that the log has not reached, in this history: see [Store.CheckHistory].
	ErrAhead = errors.New("holdfast: ahead of the log")
)

// Conflict says what an append expected and found. The position found may belong to an append that is not durable
// yet.
type Conflict struct{ Expected, Actual uint64 }

func (c *Conflict) Error() string {
	return fmt.Sprintf("expected last position %d, it is %d", c.Expected, c.Actual)
}

// Truncated has the position that was asked for and the first position that still exists.
type Truncated struct{ Position, First uint64 }

func (t *Truncated) Error() string {
	return fmt.Sprintf("position %d is gone, the log begins at %d", t.Position, t.First)
}

// Known says where the events are whose ids an append has, with another content.
type Known struct{ Result }

func (k *Known) Error() string {
	return fmt.Sprintf("the ids are those of positions %d to %d", k.First, k.Last)
}

// Gap describes events that should be there and cannot be read. errors.As finds it in the ErrCorrupt that reading
// ends with, each time. A reader that can do without them continues at Next. TruncateBefore of Next removes them, and
// all before them. The ErrCorrupt of an engine that cannot read its own files has no Gap: repair the engine first.
type Gap struct {
	Position uint64 // the first that cannot be read
	Next     uint64 // the first after it where there is an event again; Last()+1 if there is none
}

func (g *Gap) Error() string {
	return fmt.Sprintf("position %d cannot be read, the log goes on at %d", g.Position, g.Next)
}

// fail builds an error of the operation op on s.
func (s *Store) fail(op string, class, cause error, remedy, format string, args ...any) error {
	return failure.New("event "+op, s.caps.Engine, class, cause, remedy, format, args...)
}
