// Package aggregate keeps aggregates in the streams of package message, where the state of a thing is the events that
// it has had: load the state, decide, write the new events, and retry if another writer was faster.
//
//	accounts, err := aggregate.New(namespace, aggregate.Options[Account, Event]{
//		Category: "account", Events: events, Apply: (*Account).apply, SnapshotEvery: 100,
//	})
//	a, err := accounts.Do(ctx, "17", func(a *aggregate.Aggregate[Account, Event]) error {
//		if a.State.Balance < amount {
//			return ErrOverdrawn
//		}
//		a.Add(Withdrawn{amount})
//		return nil
//	})
//
// The aggregate "17" of the category "account" is the stream "account-17". Its events are written with the version that
// the decision was made on, so of decisions on the same state exactly one is written, and those on different aggregates
// do not wait for each other.
//
// # Snapshots
//
// A snapshot is the state as JSON, a message in the stream "account:snapshot-17". One is written every SnapshotEvery
// events, in the same commit, and loading begins at the last one. Of every four all but the last are removed, so that
// the stream does not grow. Fields that JSON does not show are lost in it. A state that is too large for a message, or
// as JSON deeper than [message.MaxDepth] less one, has no snapshot until it is smaller: decisions are written without.
// When the state, or what Apply makes of events, changes, raise SnapshotVersion: older snapshots are then not used.
//
// # Versions of events
//
// An event is stored as the JSON of a Go type, under a name and a version; see [Register]. When the type changes so
// that old events do not fit any more, its version is raised, and [Upcast] says how an event of the version before
// becomes one of the next. What is stored stays as it is.
//
// # Commands that come twice
//
// Do does not recognise repeated commands. If a command can come twice, as when a client missed the answer, put its
// id into its events, and have the decision look for it in the state.
package aggregate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
)

// ErrIncomplete: messages of the stream have been removed, so the state cannot be computed from them.
var ErrIncomplete = errors.New("holdfast: incomplete stream")

// Options describe the aggregates of a category, whose state is an S and whose events are E. Category, Events and Apply
// must be given.
type Options[S, E any] struct {
	// Category is that of the streams. It has no '-'.
	Category string
	// Events are the types of events that there are.
	Events *Events[E]
	// Apply changes a state, at first the zero S, as an event says. It depends on nothing else.
	Apply func(state *S, e E)
	// SnapshotEvery is after how many events a snapshot is kept; 0 means never, and that none is read.
	SnapshotEvery int
	// SnapshotVersion distinguishes snapshots that fit S from those that earlier programs made.
	SnapshotVersion int
	// Attempts is how often Do decides before it returns ErrConflict; 0 means until ctx ends. Each conflict means that
	// another writer has succeeded.
	Attempts int
	// AllowGaps builds the state from the remaining messages where some were removed from a stream, or not imported.
	// Otherwise that is ErrIncomplete, unless a snapshot covers them.
	AllowGaps bool
}

// Repository loads and changes the aggregates of a category. All methods may be called from many goroutines at once.
type Repository[S, E any] struct {
	n *message.Namespace
	o Options[S, E]
}

// New returns the repository of a category. ErrBadOption: the options, or the events registered, make no sense.
func New[S, E any](n *message.Namespace, o Options[S, E]) (*Repository[S, E], error) {
	r := &Repository[S, E]{n, o}
	bad := func(what string) (*Repository[S, E], error) {
		return nil, r.fail("new", holdfast.ErrBadOption, nil, "", "%s", what)
	}
	switch {
	case n == nil || o.Events == nil || o.Apply == nil:
		return bad("there is no namespace, no events or no Apply")
	case o.Category == "" || strings.Contains(o.Category, "-"):
		return bad("a category has a name without '-'")
	case o.SnapshotEvery < 0 || o.Attempts < 0:
		return bad("SnapshotEvery and Attempts are not negative")
	}
	if err := o.Events.check(); err != nil {
		return nil, r.fail("new", holdfast.ErrBadOption, err, "", "the events")
	}
	return r, nil
}

// Aggregate is the state of one aggregate, and what a decision adds to it.
type Aggregate[S, E any] struct {
	// ID is what it is called in its category.
	ID string
	// State is the result of its events, including those added by Add.
	State S
	// Version is the position of its last event that is stored, [message.NoStream] if there is none.
	Version int64
	// Global is the global position of the last event that Do has written, 0 if it has written none.
	Global int64
	// Metadata is a JSON object that the messages of the events added get, or nil. Its member "eventVersion" is set where
	// an event's version is not 1.
	Metadata json.RawMessage

	apply  func(*S, E)
	events []E
	also   []message.Write
	alsoIn []func(tx *kv.Tx) error
}

// Add adds events, which are written when the decision is made, and applies them to State.
func (a *Aggregate[S, E]) Add(events ...E) {
	for _, e := range events {
		a.apply(&a.State, e)
	}
	a.events = append(a.events, events...)
}

// Also adds writes to other streams: with the events added, all are written or none. So an outbox is a stream. A
// decision that adds some adds an event, too: without one, it would not be known whether the state is still the same.
//
// A decision may call it as often as it likes, also for one stream, which gets the messages in the order of the calls.
// Expected is the version that the stream has before the decision. Behind a write with an Expected, it may also be the
// version that the writes before make of that; anything else is ErrBadOption.
func (a *Aggregate[S, E]) Also(writes ...message.Write) { a.also = append(a.also, writes...) }

// AlsoIn adds what is done in the transaction that writes the events, behind them, such as a task of a store of the same
// database: all of it is there, or nothing. An error of do is that of Do. After a conflict, the next decision adds its
// own; do itself may be called twice. A decision that adds some adds an event, too.
func (a *Aggregate[S, E]) AlsoIn(do func(tx *kv.Tx) error) { a.alsoIn = append(a.alsoIn, do) }

// Load returns the state of an aggregate. One that has had no event has the zero state and the version NoStream.
func (r *Repository[S, E]) Load(ctx context.Context, id string) (*Aggregate[S, E], error) {
	version, ok, err := r.n.Version(ctx, r.stream(id))
	if err != nil {
		return nil, err
	}
	if !ok {
		version = message.NoStream
	}
	return r.load(ctx, id, version)
}

// Do loads an aggregate, calls decide, and writes the events that it has added, in one commit with what else it has
// added. If another writer has come first, all of that is done again, with the new state. It returns when the events
// have reached the store's level, with the state that they make, or with the error of decide, as it is: then nothing is
// written. Nothing is written either if decide adds nothing.
//
// decide is called once for each attempt, and does nothing outside the aggregate that it could not do twice.
func (r *Repository[S, E]) Do(ctx context.Context, id string,
	decide func(a *Aggregate[S, E]) error) (*Aggregate[S, E], error) {
	least := message.NoStream
	for attempt := 1; ; attempt++ {
		a, err := r.load(ctx, id, least)
		if err != nil {
			return nil, err
		}
		if err := decide(a); err != nil {
			return nil, err
		}
		if len(a.events) == 0 && len(a.also) == 0 && len(a.alsoIn) == 0 {
			return a, nil
		}
		err = r.write(ctx, a)
		if err == nil {
			return a, nil
		}
		var c *message.Conflict
		if !errors.As(err, &c) || attempt == r.o.Attempts {
			return nil, err
		}
		if c.Stream != r.stream(id) {
			continue
		}
		if c.Actual < c.Expected { // only a snapshot can have said otherwise
			return nil, r.fail("do", holdfast.ErrCorrupt, err, "", "there is a snapshot of version %d", c.Expected)
		}
		least = c.Actual // readers see it
	}
}

func (r *Repository[S, E]) stream(id string) string         { return r.o.Category + "-" + id }
func (r *Repository[S, E]) snapshotStream(id string) string { return r.o.Category + ":snapshot-" + id }

// load makes the state of an aggregate, whose stream has at least some version.
func (r *Repository[S, E]) load(ctx context.Context, id string, least int64) (*Aggregate[S, E], error) {
	a := &Aggregate[S, E]{ID: id, Version: message.NoStream, apply: r.o.Apply}
	if id == "" {
		return nil, r.fail("load", message.ErrBadName, nil, "", "an aggregate has an id")
	}
	if err := holdfast.CheckContext(ctx); err != nil {
		return nil, err
	}
	if r.o.SnapshotEvery > 0 {
		if err := r.loadSnapshot(ctx, a); err != nil {
			return nil, err
		}
	}
	stream := r.stream(id)
	for m, err := range r.n.Read(ctx, message.Query{Stream: stream, From: a.Version + 1}) {
		if errors.Is(err, message.ErrAhead) { // of a snapshot that was imported without what came before it
			break
		}
		if err != nil {
			return nil, err
		}
		if m.Position > a.Version+1 {
			if err := r.gap(stream, a.Version+1, m.Position-1); err != nil {
				return nil, err
			}
		}
		e, err := r.o.Events.Decode(m)
		if err != nil {
			return nil, err
		}
		r.o.Apply(&a.State, e)
		a.Version = m.Position
	}
	if a.Version < least {
		if err := r.gap(stream, a.Version+1, least); err != nil {
			return nil, err
		}
		a.Version = least
	}
	return a, nil
}

func (r *Repository[S, E]) gap(stream string, first, last int64) error {
	if r.o.AllowGaps {
		return nil
	}
	return r.fail("load", ErrIncomplete, nil, "keep a snapshot before messages are removed, or allow gaps",
		"stream %q has no messages %d to %d", stream, first, last)
}

// snapshotType is the type of the messages that are snapshots, and snapshot what they hold.
const snapshotType = "Snapshot"

type snapshot[S any] struct {
	Version         int64 `json:"version"` // of the stream
	SnapshotVersion int   `json:"snapshotVersion"`
	State           S     `json:"state"`
}

func (r *Repository[S, E]) loadSnapshot(ctx context.Context, a *Aggregate[S, E]) error {
	m, err := r.n.LastMessage(ctx, r.snapshotStream(a.ID), snapshotType)
	if errors.Is(err, holdfast.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var head snapshot[json.RawMessage] // the state may not fit
	var state S
	err = json.Unmarshal(m.Data, &head)
	if err == nil && head.SnapshotVersion != r.o.SnapshotVersion {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(head.State, &state)
	}
	if err != nil {
		return r.fail("load", holdfast.ErrCorrupt, err, "raise SnapshotVersion if the state has changed",
			"the snapshot in stream %q, message %d, cannot be read", m.Stream, m.Position)
	}
	a.State, a.Version = state, head.Version
	return nil
}

// write writes what a decision has added.
func (r *Repository[S, E]) write(ctx context.Context, a *Aggregate[S, E]) error {
	if len(a.events) == 0 {
		return r.fail("do", holdfast.ErrBadOption, nil, "add an event",
			"a decision about %q adds something else, but no event", a.ID)
	}
	own := message.Write{Stream: r.stream(a.ID), Expected: &a.Version}
	for _, e := range a.events {
		m, err := r.o.Events.encode(e, a.Metadata)
		if err != nil {
			return err
		}
		own.Messages = append(own.Messages, m)
	}
	writes, err := r.merge(own, a.also)
	if err != nil {
		return err
	}
	version := a.Version + int64(len(a.events))
	every := int64(r.o.SnapshotEvery)
	snapshots := every > 0 && (version+1)/every > (a.Version+1)/every
	if snapshots {
		data, err := json.Marshal(snapshot[S]{version, r.o.SnapshotVersion, a.State})
		if err != nil {
			return r.fail("do", message.ErrBadMessage, err, "", "the state of %q, for a snapshot", a.ID)
		}
		writes = append(writes, message.Write{Stream: r.snapshotStream(a.ID),
			Messages: []message.Message{{Type: snapshotType, Data: data}}})
	}
	results, err := r.commit(ctx, writes, a.alsoIn)
	if snapshots && (errors.Is(err, message.ErrBadMessage) || errors.Is(err, holdfast.ErrTooLarge)) {
		// The snapshot may be what is too deep or too large. A decision does not depend on it: loading does without, too.
		snapshots = false
		results, err = r.commit(ctx, writes[:len(writes)-1], a.alsoIn)
	}
	if err != nil {
		return err
	}
	a.Version, a.Global = version, results[0].Global+int64(len(a.events))-1
	a.events, a.also, a.alsoIn = nil, nil, nil
	if last := results[len(results)-1].Position; snapshots && last%keepSnapshots == keepSnapshots-1 {
		// The events are written, whatever becomes of this. What it leaves is removed the next time.
		_, _ = r.n.Truncate(ctx, r.snapshotStream(a.ID), last)
	}
	return nil
}

// commit makes writes, and in their transaction what else is to be done there.
func (r *Repository[S, E]) commit(ctx context.Context, writes []message.Write,
	also []func(tx *kv.Tx) error) (results []message.Result, err error) {
	if len(also) == 0 {
		return r.n.WriteAll(ctx, writes...)
	}
	err = r.n.DB().Update(ctx, func(tx *kv.Tx) error {
		for _, w := range writes {
			var result message.Result
			if w.Expected != nil {
				result, err = r.n.In(tx).WriteAfter(w.Stream, *w.Expected, w.Messages...)
			} else {
				result, err = r.n.In(tx).Write(w.Stream, w.Messages...)
			}
			if err != nil {
				return err
			}
			results = append(results, result)
		}
		for _, do := range also {
			if err := do(tx); err != nil {
				return err
			}
		}
		return nil
	})
	return results, err
}

// merge returns the aggregate's own write and one for each other stream that a decision writes to.
func (r *Repository[S, E]) merge(own message.Write, also []message.Write) ([]message.Write, error) {
	writes := append(make([]message.Write, 0, len(also)+2), own)
	at := map[string]int{}
	for _, w := range also {
		i, again := at[w.Stream]
		if !again {
			at[w.Stream] = len(writes)
			writes = append(writes, w)
			continue
		}
		to := &writes[i]
		if w.Expected != nil {
			switch {
			case to.Expected == nil:
				to.Expected = w.Expected
			case *to.Expected != *w.Expected && *to.Expected+int64(len(to.Messages)) != *w.Expected:
				return nil, r.fail("do", holdfast.ErrBadOption, nil, "",
					"stream %q is expected to have version %d, and then, after %d messages, version %d", w.Stream, *to.Expected,
					len(to.Messages), *w.Expected)
			}
		}
		to.Messages = slices.Concat(to.Messages, w.Messages) // the first ones may be the caller's
	}
	return writes, nil
}

// keepSnapshots is how many snapshots there are of an aggregate, at most. Removing takes two commits.
const keepSnapshots = 4

func (r *Repository[S, E]) fail(op string, class, cause error, remedy, format string, args ...any) error {
	return &holdfast.Error{Op: fmt.Sprintf("aggregate %s: category %q", op, r.o.Category), Class: class, Cause: cause,
		Remedy: remedy, Detail: fmt.Sprintf(format, args...)}
}
