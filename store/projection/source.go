package projection

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
)

// Source is where a projection's events come from, and where it keeps its position: see [Events] and [Messages].
type Source[E any] interface {
	engine() holdfast.Engine
	level() holdfast.Level
	// follow and read yield the events from a position on; 0 means from the first. read ends, follow does not.
	follow(ctx context.Context, from uint64) iter.Seq2[E, error]
	read(ctx context.Context, from uint64) iter.Seq2[E, error]
	next(e E) uint64 // the position behind an event
	describe(e E) string
	end(ctx context.Context) (uint64, error)
	// waiting returns the position of the first event from a position on, false if there is none.
	waiting(ctx context.Context, from uint64) (uint64, bool, error)
	// load returns the position behind the last event applied, 0 if there is none, and save stores it in one commit
	// with b. ErrAhead: the source does not have what was applied.
	load(ctx context.Context, o *Options) (uint64, error)
	save(ctx context.Context, o *Options, next uint64, b *holdfast.Batch) error
}

// Events is the source of a projection over the events of a log. The model is in the log's engine, at the log's level.
// The position is also that of a subscription with the projection's name, so that [event.Store.Subscriptions] lists it
// and retention can respect it.
func Events(log *event.Store) Source[event.Event] { return events{log} }

type events struct{ log *event.Store }

func (s events) engine() holdfast.Engine { return s.log.Engine() }
func (s events) level() holdfast.Level   { return s.log.Level() }

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

func (s events) load(ctx context.Context, o *Options) (uint64, error) {
	at, err := loadPosition(s.engine(), o)
	if err != nil {
		return 0, err
	}
	next := at.next
	pos, err := s.log.LoadOffset(ctx, o.Name)
	if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
		return 0, err
	}
	if pos != next-min(next, 1) {
		return 0, &holdfast.Error{Op: "projection load", Class: holdfast.ErrCorrupt,
			Detail: fmt.Sprintf("the subscription %q is at position %d, the model under %q at %d", o.Name, pos, o.Prefix,
				next-min(next, 1)),
			Remedy: "give it the name and prefix that belong together, or rebuild it"}
	}
	return next, other(o, s.log.CheckHistory(at.history, next))
}

func (s events) save(ctx context.Context, o *Options, next uint64, b *holdfast.Batch) error {
	setPosition(b, s.engine(), o, next, s.log.History())
	return s.log.SaveOffsetFor(ctx, keyspace.Server, o.Name, next-min(next, 1), b)
}

// Messages is the source of a projection over the messages of a query, whatever its limit. The model is in eng, most
// often the engine of the messages. Commits survive what level names; 0 means Power. A weaker level costs no message:
// what a crash takes of the model, it takes of the position, too.
func Messages(eng holdfast.Engine, level holdfast.Level, n *message.Namespace,
	q message.Query) Source[message.Message] {
	if level == 0 {
		level = holdfast.Power
	}
	return messages{eng, level, n, q}
}

type messages struct {
	eng   holdfast.Engine
	given holdfast.Level
	n     *message.Namespace
	query message.Query
}

func (s messages) engine() holdfast.Engine { return s.eng }
func (s messages) level() holdfast.Level   { return s.given }

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

func (s messages) load(ctx context.Context, o *Options) (uint64, error) {
	at, err := loadPosition(s.eng, o)
	if err != nil {
		return 0, err
	}
	q := s.from(at.next)
	q.History = at.history
	if at.next < uint64(q.From) { // it begins there
		q.History = ""
	}
	return at.next, other(o, s.n.Check(ctx, q))
}

func (s messages) save(ctx context.Context, o *Options, next uint64, b *holdfast.Batch) error {
	if err := holdfast.CheckContext(ctx); err != nil {
		return err
	}
	history, err := s.n.History(ctx)
	if err != nil {
		return err
	}
	setPosition(b, s.eng, o, next, history)
	return holdfast.Commit(s.eng, b, s.given)
}

// position is how far a model has come.
type position struct {
	next     uint64 // behind the last event applied, 0 for none
	history  string // of the source when the event was applied; "" as earlier versions stored it
	accepted string // the loss that was accepted in the model's engine when it began; see [holdfast.Capabilities]
}

// loadPosition reads what setPosition has stored, under the key that is only the prefix of the model: the position in 8
// bytes, and then the two texts behind their lengths of a byte. Earlier versions stored the position alone.
func loadPosition(eng holdfast.Engine, o *Options) (at position, err error) {
	fail := func(detail string) (position, error) {
		return position{}, &holdfast.Error{Op: fmt.Sprintf("projection load: %q", o.Name), Class: holdfast.ErrCorrupt,
			Remedy: "rebuild it", Detail: detail}
	}
	value, err := eng.Get(nil, []byte(o.Prefix))
	switch {
	case errors.Is(err, holdfast.ErrNotFound):
		return at, nil
	case err != nil:
		return at, err
	}
	at, ok := parsePosition(value)
	switch {
	case !ok:
		return fail("its position, under its prefix, cannot be read")
	case at.next > 0 && at.accepted != eng.Capabilities().Accepted:
		return fail("a loss was accepted in its engine, and what is lost of the model would not show")
	}
	return at, nil
}

// other says what to do about a position that the source does not have.
func other(o *Options, err error) error {
	if !errors.Is(err, event.ErrAhead) {
		return err
	}
	return &holdfast.Error{Op: fmt.Sprintf("projection load: %q", o.Name), Class: event.ErrAhead, Cause: err,
		Remedy: "rebuild it", Detail: "the source does not have what the model was made of"}
}

func setPosition(b *holdfast.Batch, eng holdfast.Engine, o *Options, next uint64, history string) {
	value := binary.BigEndian.AppendUint64(nil, next)
	for _, text := range []string{history, eng.Capabilities().Accepted} {
		value = append(append(value, byte(len(text))), text...)
	}
	b.Set([]byte(o.Prefix), value)
}

func parsePosition(value []byte) (at position, ok bool) {
	if len(value) < 8 {
		return at, false
	}
	at.next, value = binary.BigEndian.Uint64(value), value[8:]
	if len(value) == 0 {
		return at, true
	}
	for _, text := range []*string{&at.history, &at.accepted} {
		if len(value) == 0 || len(value) <= int(value[0]) {
			return at, false
		}
		end := 1 + int(value[0])
		*text, value = string(value[1:end]), value[end:]
	}
	return at, len(value) == 0
}
