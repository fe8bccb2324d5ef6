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
// # What else is in the commit
//
// [Aggregate.Also] adds to the transaction in which a decision is written: tasks, messages of other streams, keys of
// the program's own. So an outbox is three lines:
//
//	a.Add(Withdrawn{amount})
//	a.Also(func(tx *kv.Tx) error {
//		_, err := mails.In(tx).Enqueue(task.Spec{Kind: "mail", Payload: mail})
//		return err
//	})
//
// # Commands that come twice
//
// If a command can come twice, as when a client has missed the answer, it has an id, and [Repository.DoOnce] decides
// once: the ids of the events are made of it, and so the state need not grow.
package aggregate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/failure"
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

	apply   func(*S, E)
	events  []E
	also    []func(tx *kv.Tx) error
	command string // whose id the ids of the events are made of, "" for new ones

	repeated bool // it was not written, because the command has been done
}

// Add adds events, which are written when the decision is made, and applies them to State.
func (a *Aggregate[S, E]) Add(events ...E) {
	for _, e := range events {
		a.apply(&a.State, e)
	}
	a.events = append(a.events, events...)
}

// Also adds to the transaction in which the decision is written: f is called there, after the events have their places,
// and what it writes is there if they are, and only then. An error of f is that of Do, and nothing is written; one that
// is a [message.Conflict] lets Do decide again. A decision may add functions without adding events: its state is still
// the present one then, too.
//
// f uses stores by their In, and does nothing outside the transaction. The store's level, or the one that the context
// of Do names, is what all of it survives, at least.
func (a *Aggregate[S, E]) Also(f func(tx *kv.Tx) error) { a.also = append(a.also, f) }

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
		if len(a.events) == 0 && len(a.also) == 0 {
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

// DoOnce is Do for a command that can come twice: command is its id, any text but "". If the command has been done,
// with this id, for this aggregate, decide is not called, and the result is that of the first time: the state that its
// events made, and the version and global position of the last of them. The events' ids tell, which are made of the
// stream, the command and their order; so a command that has added no event is decided again, and one whose events were
// removed too.
func (r *Repository[S, E]) DoOnce(ctx context.Context, id, command string,
	decide func(a *Aggregate[S, E]) error) (*Aggregate[S, E], error) {
	if command == "" {
		return nil, r.fail("do once", holdfast.ErrBadOption, nil, "", "the command has no id")
	}
	a, err := r.done(ctx, id, command)
	if a != nil || err != nil {
		return a, err
	}
	a, err = r.Do(ctx, id, func(a *Aggregate[S, E]) error {
		a.command = command
		return decide(a)
	})
	if err == nil && !a.repeated {
		return a, nil
	}
	// The same command may have come at the same time, and was faster: then it is what the decision has met.
	again, failed := r.done(ctx, id, command)
	if again != nil || failed != nil && err == nil {
		return again, failed
	}
	return a, err
}

// done returns the aggregate as a command has left it, nil if that was not done.
func (r *Repository[S, E]) done(ctx context.Context, id, command string) (*Aggregate[S, E], error) {
	stream := r.stream(id)
	var last message.Message
	for i := 0; ; i++ {
		m, err := r.n.ByID(ctx, eventID(stream, command, i))
		if errors.Is(err, holdfast.ErrNotFound) || err == nil && m.Stream != stream {
			break
		}
		if err != nil {
			return nil, err
		}
		last = m
	}
	if last.ID == "" {
		return nil, nil
	}
	a, err := r.loadUpTo(ctx, id, last.Position)
	if err != nil {
		return nil, err
	}
	a.Global = last.Global
	return a, nil
}

// eventID makes the id of an event of a command: a UUID of version 8 (RFC 9562, 5.8) of the SHA-256 of the stream, the
// command, and how many events of the command come before it.
func eventID(stream, command string, i int) string {
	h := sha256.New()
	for _, text := range []string{stream, command, strconv.Itoa(i)} {
		fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	b := h.Sum(nil)[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (r *Repository[S, E]) stream(id string) string         { return r.o.Category + "-" + id }
func (r *Repository[S, E]) snapshotStream(id string) string { return r.o.Category + ":snapshot-" + id }

// load makes the state of an aggregate, whose stream has at least some version.
func (r *Repository[S, E]) load(ctx context.Context, id string, least int64) (*Aggregate[S, E], error) {
	return r.loadBetween(ctx, id, least, math.MaxInt64)
}

// loadUpTo makes the state that an aggregate had at a version.
func (r *Repository[S, E]) loadUpTo(ctx context.Context, id string, version int64) (*Aggregate[S, E], error) {
	return r.loadBetween(ctx, id, version, version)
}

// loadBetween makes the state of an aggregate, whose stream has at least some version, and at most another.
func (r *Repository[S, E]) loadBetween(ctx context.Context, id string, least, most int64) (*Aggregate[S, E], error) {
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
		if a.Version > most {
			a.State, a.Version = *new(S), message.NoStream
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
		if m.Position > most {
			break
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
	stream := r.stream(a.ID)
	messages := make([]message.Message, len(a.events))
	for i, e := range a.events {
		var err error
		if messages[i], err = r.o.Events.encode(e, a.Metadata); err != nil {
			return err
		}
		if a.command != "" {
			messages[i].ID = eventID(stream, a.command, i)
		}
	}
	version := a.Version + int64(len(a.events))
	every := int64(r.o.SnapshotEvery)
	var state []byte
	if every > 0 && (version+1)/every > (a.Version+1)/every {
		var err error
		if state, err = json.Marshal(snapshot[S]{version, r.o.SnapshotVersion, a.State}); err != nil {
			return r.fail("do", message.ErrBadMessage, err, "", "the state of %q, for a snapshot", a.ID)
		}
	}

	var own, kept message.Result
	err := error(nil)
	if state == nil && len(a.also) == 0 {
		own, err = r.n.WriteAfter(ctx, stream, a.Version, messages...)
	} else {
		err = r.n.DB().Update(ctx, func(tx *kv.Tx) error {
			own, kept, err = r.writeIn(tx, a, messages, state)
			return err
		})
	}
	if err != nil {
		return err
	}
	a.repeated = own.Repeated
	if len(messages) > 0 {
		a.Version, a.Global = version, own.Global+int64(len(a.events))-1
	}
	a.events, a.also = nil, nil
	if last := kept.Position; last > 0 && last%keepSnapshots == keepSnapshots-1 {
		// The events are written, whatever becomes of this. What it leaves is removed the next time.
		_, _ = r.n.Truncate(ctx, r.snapshotStream(a.ID), last)
	}
	return nil
}

// writeIn writes what a decision has added, with a snapshot if state is not nil, in a transaction.
func (r *Repository[S, E]) writeIn(tx *kv.Tx, a *Aggregate[S, E], messages []message.Message, state []byte) (own,
	kept message.Result, err error) {
	stream := r.stream(a.ID)
	if len(messages) > 0 {
		own, err = r.n.In(tx).WriteAfter(stream, a.Version, messages...)
	} else {
		var version int64
		if version, err = r.n.In(tx).Version(stream); err == nil && version != a.Version {
			err = r.fail("do", message.ErrConflict, &message.Conflict{Stream: stream, Expected: a.Version, Actual: version}, "",
				"nothing was written")
		}
	}
	if err != nil || own.Repeated {
		return own, kept, err
	}
	for _, f := range a.also {
		if err := f(tx); err != nil {
			return own, kept, err
		}
	}
	if state == nil {
		return own, kept, nil
	}
	kept, err = r.n.In(tx).Write(r.snapshotStream(a.ID), message.Message{Type: snapshotType, Data: state})
	if errors.Is(err, message.ErrBadMessage) || errors.Is(err, holdfast.ErrTooLarge) {
		// It is too deep or too large. A decision does not depend on it: loading does without, too.
		return own, message.Result{}, nil
	}
	return own, kept, err
}

// keepSnapshots is how many snapshots there are of an aggregate, at most. Removing takes two commits.
const keepSnapshots = 4

func (r *Repository[S, E]) fail(op string, class, cause error, remedy, format string, args ...any) error {
	op = fmt.Sprintf("aggregate %s: category %q", op, r.o.Category)
	return failure.New(op, "", class, cause, remedy, format, args...)
}
