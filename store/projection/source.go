package projection

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
)

// Source is where a projection's events come from, and the database that has the view: see [Events] and [Messages].
type Source[E any] interface {
	database() *kv.DB
	// follow and read yield the events from a position on; 0 means from the first. read ends, follow does not.
	follow(ctx context.Context, from uint64) iter.Seq2[E, error]
	read(ctx context.Context, from uint64) iter.Seq2[E, error]
	next(e E) uint64 // the position behind an event
	describe(e E) string
	end(ctx context.Context) (uint64, error)
	// waiting returns the position of the first event from a position on, false if there is none.
	waiting(ctx context.Context, from uint64) (uint64, bool, error)
	// history is that of the source, as it is kept with a position. check finds what is wrong with a position that was
	// kept: ErrAhead if the source does not have what was applied.
	history(ctx context.Context) (string, error)
	check(ctx context.Context, o *Options, at position) error
	// save does what else there is to do in the transaction that stores the next position, or 0 for none.
	save(tx *kv.Tx, name string, next uint64) error
}

// Events is the source of a projection over the events of a log. The view is in the log's database, at the log's level.
// The position is also that of a subscription with the projection's name, so that [event.Store.Subscriptions] lists it
// and retention can respect it.
func Events(log *event.Store) Source[event.Event] { return events{log} }

type events struct{ log *event.Store }

func (s events) database() *kv.DB { return s.log.DB() }

func (s events) follow(ctx context.Context, from uint64) iter.Seq2[event.Event, error] {
	return s.log.Follow(ctx, from)
}

func (s events) read(ctx context.Context, from uint64) iter.Seq2[event.Event, error] {
	return s.log.Events(ctx, from, 0)
}

func (s events) next(e event.Event) uint64 { return e.Position + 1 }
func (s events) describe(e event.Event) string {
	return fmt.Sprintf("event %d of type %q", e.Position, e.Type)
}
func (s events) end(context.Context) (end uint64, err error) { return s.log.Last() + 1, nil }

func (s events) waiting(ctx context.Context, from uint64) (uint64, bool, error) {
	for e, err := range s.log.Records(ctx, from, 1) {
		if err != nil {
			return 0, false, err
		}
		return e.Position, true, nil
	}
	return 0, false, nil
}

func (s events) history(context.Context) (string, error) { return s.log.History(), nil }

func (s events) check(ctx context.Context, o *Options, at position) error {
	pos, err := s.log.LoadOffset(ctx, o.Name)
	if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
		return err
	}
	if last := at.next - min(at.next, 1); pos != last {
		return &holdfast.Error{Op: fmt.Sprintf("projection load: %q", o.Name), Class: holdfast.ErrCorrupt,
			Detail: fmt.Sprintf("the subscription of that name is at position %d, the view at %d", pos, last),
			Remedy: "rebuild it, and let nobody else save the position of that subscription"}
	}
	return other(o, s.log.CheckHistory(at.history, at.next))
}

func (s events) save(tx *kv.Tx, name string, next uint64) error {
	return s.log.In(tx).SaveOffset(name, next-min(next, 1))
}

// Messages is the source of a projection over the messages of a query, whatever its limit. The view is in db, most
// often that of n ([message.Namespace.DB]). Commits survive the level of db, which [kv.DB.At] changes. A weaker level
// than that of the messages costs none of them: what a crash takes of the view, it takes of the position, too.
func Messages(db *kv.DB, n *message.Namespace, q message.Query) Source[message.Message] {
	return messages{db, n, q}
}

type messages struct {
	db    *kv.DB
	n     *message.Namespace
	query message.Query
}

func (s messages) database() *kv.DB { return s.db }

func (s messages) from(from uint64) message.Query {
	q := s.query
	q.From, q.Limit = max(q.From, int64(from)), 0
	return q
}

func (s messages) follow(ctx context.Context, from uint64) iter.Seq2[message.Message, error] {
	return s.n.Follow(ctx, s.from(from))
}

func (s messages) read(ctx context.Context, from uint64) iter.Seq2[message.Message, error] {
	return s.n.Read(ctx, s.from(from))
}

func (s messages) next(m message.Message) uint64 {
	if s.query.Stream != "" {
		return uint64(m.Position) + 1
	}
	return uint64(m.Global) + 1
}

func (s messages) describe(m message.Message) string {
	return fmt.Sprintf("message %d of stream %q, of type %q", m.Position, m.Stream, m.Type)
}

func (s messages) end(ctx context.Context) (uint64, error) {
	if s.query.Stream == "" {
		return uint64(s.n.Last()) + 1, nil
	}
	version, ok, err := s.n.Version(ctx, s.query.Stream)
	if err != nil || !ok {
		return 0, err
	}
	return uint64(version) + 1, nil
}

func (s messages) waiting(ctx context.Context, from uint64) (uint64, bool, error) {
	q := s.from(from)
	q.Limit = 1
	for m, err := range s.n.Read(ctx, q) {
		if err != nil {
			return 0, false, err
		}
		return s.next(m) - 1, true, nil
	}
	return 0, false, nil
}

func (s messages) history(ctx context.Context) (string, error) { return s.n.History(ctx) }

func (s messages) check(ctx context.Context, o *Options, at position) error {
	q := s.from(at.next)
	q.History = at.history
	if at.next < uint64(q.From) { // it begins there
		q.History = ""
	}
	return other(o, s.n.Check(ctx, q))
}

func (s messages) save(*kv.Tx, string, uint64) error { return nil }

// other says what to do about a position that the source does not have.
func other(o *Options, err error) error {
	if !errors.Is(err, event.ErrAhead) {
		return err
	}
	return &holdfast.Error{Op: fmt.Sprintf("projection load: %q", o.Name), Class: event.ErrAhead, Cause: err,
		Remedy: "rebuild it", Detail: "the source does not have what the view was made of"}
}
