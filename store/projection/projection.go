// Package projection keeps read models: keys that are made of events, or of messages, and are updated exactly once for
// each of them.
//
//	totals, err := projection.New(projection.Events(log), projection.Options{Name: "totals", Prefix: "totals/"},
//		func(m *projection.Model, e event.Event) error {
//			n, err := projection.Get[int](m, e.Type)
//			if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
//				return err
//			}
//			return projection.Set(m, e.Type, n+1)
//		})
//	err = totals.Run(ctx) // until ctx ends
//
// What the function changes for an event, and that it was applied, are one commit of the engine. So after any crash
// the model is the result of the events up to some position, and Run continues after that position. Several events
// share a commit if they have arrived by then.
//
// The keys of a model are its prefix and what the function names. All keys with that prefix belong to the projection:
// they are removed before the first event is applied. So a prefix is not used for anything else. One that covers keys
// that a store can have, or lies within them, is refused ("Keys in the engine" of package event), and so is one that
// covers the prefix of another projection, or lies within it. An engine remembers the prefixes of the projections that
// were run in it, until they are rebuilt. The key that is only the prefix has the position. The program reads the model
// with [Projection.View], or straight from the engine. A reader may see it some events behind, and may see what a crash
// takes back; it then comes again, the same, because it was made of events that are durable.
//
// A function with other effects than changing the model, such as sending mail, has them at least once: again after a
// crash before the commit. With [Options].Batch 1 that happens for one event at most.
package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/registry"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
	"github.com/holdfastdb/holdfast/store/message"
)

// ErrApply: the function of a projection has returned an error, which is wrapped, or asked for an impossible change.
var ErrApply = errors.New("holdfast: not applied")

// DefaultBatch is the default maximum number of events per commit.
const DefaultBatch = 256

// Options configure a projection. Name and Prefix are required.
type Options struct {
	// Name is that of the projection. One over the events of a log has its position as the subscription of that name.
	Name string
	// Prefix is what all keys of the model begin with. It begins best with another letter than e, k, m, r, s and t.
	Prefix string
	// Batch is how many events share a commit at most; 0 means DefaultBatch.
	Batch int
	// Progress, if it is not nil, is called after each commit, by the goroutine that runs the projection.
	Progress func(Progress)
	// Retry says whether Run goes on after an error: it then begins again with the first event that is not applied, after
	// a pause that grows from 100 ms to 10 s, until something is committed. nil means Passes.
	Retry func(error) bool
	// Logger takes a warning for each error after which Run goes on; nil means slog.Default.
	Logger *slog.Logger
}

// Progress is how far a projection has come. Positions are those of the source: in the log, the namespace, or the
// stream that is followed.
type Progress struct {
	// Next is the first position that is waiting to be applied, 0 if nothing was applied before it. What the query of the
	// source leaves out does not wait: Next is End if there is nothing else.
	Next    uint64
	End     uint64 // the first position behind the last one
	Applied uint64 // how many events have been applied since the run began
}

// Projection is a read model of events of type E. All methods may be called from many goroutines at once, but only one
// of Run, CatchUp and Rebuild does its work at a time: the others return ErrLocked.
type Projection[E any] struct {
	source Source[E]
	o      Options
	apply  func(*Model, E) error

	mu     sync.Mutex
	passed [2]uint64 // behind the first position nothing waits up to before the second
}

// New returns a projection that is not running. apply changes the model as an event says. It is called for one event at
// a time, in their order, and depends on nothing but the event and the model, so that a rebuild makes the same. An
// error that it returns ends the run before the event.
//
// ErrBadOption: the options make no sense, or the prefix is that of a store's keys, or overlaps with that of another
// projection of this program over the same engine.
func New[E any](source Source[E], o Options, apply func(m *Model, e E) error) (*Projection[E], error) {
	p := &Projection[E]{source: source, o: o, apply: apply}
	if p.o.Batch == 0 {
		p.o.Batch = DefaultBatch
	}
	if p.o.Retry == nil {
		p.o.Retry = Passes
	}
	p.o.Logger = cmp.Or(p.o.Logger, slog.Default())
	switch {
	case source == nil || apply == nil:
		return nil, p.fail("new", holdfast.ErrBadOption, nil, "", "there is no source, or no function")
	case o.Name == "":
		return nil, p.fail("new", holdfast.ErrBadOption, nil, "", "it has no name")
	case o.Prefix == "":
		return nil, p.fail("new", holdfast.ErrBadOption, nil, keyspace.Remedy, "it has no prefix")
	case o.Batch < 0:
		return nil, p.fail("new", holdfast.ErrBadOption, nil, "use 0 for the default", "a batch of %d events", o.Batch)
	}
	if what := keyspace.Reserved(holdfast.Prefix([]byte(o.Prefix))); what != "" {
		return nil, p.fail("new", holdfast.ErrBadOption, nil, keyspace.Remedy, "there can be keys of %s under the prefix %q",
			what, o.Prefix)
	}
	if err := enlist(p); err != nil {
		return nil, err
	}
	return p, nil
}

// Run applies the existing events that are not applied yet, and then each new one, until ctx ends, and then returns
// nil. An error that may pass, such as ErrFull, is logged, and Run tries again; another one ends it, and is returned:
// see [Options].Retry and [Passes]. One of apply is ErrApply, wraps its cause and names the event. What was applied
// before it is committed, so that the next Run begins with that event.
//
// A projection that has applied nothing begins with the first event that is there. One whose next event has been
// truncated ends with event.ErrTruncated: Rebuild it.
func (p *Projection[E]) Run(ctx context.Context) error {
	if err := holdfast.CheckContext(ctx); errors.Is(err, holdfast.ErrBadOption) {
		return err
	}
	for pause := firstPause; ; {
		committed, err := p.run(ctx, p.source.follow)
		switch {
		case ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())):
			return nil
		case err == nil || !p.o.Retry(err):
			return err
		case committed:
			pause = firstPause
		}
		p.o.Logger.Warn("projection: an event cannot be applied; trying again", "projection", p.o.Name, "error", err, "in",
			pause)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
		pause = min(2*pause, maxPause)
	}
}

const firstPause, maxPause = 100 * time.Millisecond, 10 * time.Second

// Passes reports whether trying again can help after an error of Run. It cannot after one that says that something is
// wrong with the program, or with what is stored: ErrApply, ErrBadOption, ErrBadKey, ErrTooLarge, ErrLevel, ErrLocked,
// ErrClosed, ErrPoisoned, ErrCorrupt, ErrReplaced, ErrVersion, event.ErrTruncated and event.ErrAhead, and those of a
// namespace or stream that cannot be read. A function whose own errors may pass, such as those of a mail server, sets
// Options.Retry to one that knows them.
func Passes(err error) bool {
	for _, class := range []error{ErrApply, holdfast.ErrBadOption, holdfast.ErrBadKey, holdfast.ErrTooLarge,
		holdfast.ErrLevel, holdfast.ErrLocked, holdfast.ErrClosed, holdfast.ErrPoisoned, holdfast.ErrCorrupt,
		holdfast.ErrReplaced, holdfast.ErrVersion, event.ErrTruncated, event.ErrAhead, message.ErrNoNamespace,
		message.ErrBadName, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, class) {
			return false
		}
	}
	return true
}

// CatchUp applies the events up to where the source ended when CatchUp began. Every error ends it, ctx's too, and is
// returned.
func (p *Projection[E]) CatchUp(ctx context.Context) error {
	_, err := p.run(ctx, p.source.read)
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// Rebuild removes the model, so that the next Run begins with the first event that is there. Readers see an empty
// model, and then one that grows. To avoid that, build the model with another name and prefix, and rebuild the old
// one when it is not read any more. A projection that is rebuilt and not run again leaves nothing: its prefix may be
// another one's.
func (p *Projection[E]) Rebuild(ctx context.Context) error {
	lease, err := p.claim(ctx)
	if err != nil {
		return err
	}
	defer lease.Release()
	if _, err := p.registered(true); err != nil {
		return err
	}
	// A model without a position is removed before it is used, so a crash in between does no harm.
	if err := p.source.save(ctx, &p.o, 0, new(holdfast.Batch)); err != nil {
		return err
	}
	if err := p.clear(ctx); err != nil {
		return err
	}
	return p.register(ctx, false)
}

// Progress returns how far the projection has come.
func (p *Projection[E]) Progress(ctx context.Context) (g Progress, err error) {
	next, err := p.source.load(ctx, &p.o)
	if err != nil {
		return g, err
	}
	return p.progress(ctx, next)
}

// progress is Progress where next is the position behind the last event applied, 0 if there is none.
func (p *Projection[E]) progress(ctx context.Context, next uint64) (g Progress, err error) {
	if g.End, err = p.source.end(ctx); err != nil {
		return g, err
	}
	p.mu.Lock()
	passed := p.passed
	p.mu.Unlock()
	from := next
	if next == passed[0] {
		from = max(from, passed[1])
	}
	if g.Next = next; from >= g.End {
		g.Next, g.End = from, from
		return g, nil
	}
	at, waiting, err := p.source.waiting(ctx, from)
	switch {
	case errors.Is(err, event.ErrTruncated): // Run will say so
		return g, nil
	case err != nil:
		return g, err
	case !waiting:
		at = g.End
	}
	p.mu.Lock()
	p.passed = [2]uint64{next, at}
	p.mu.Unlock()
	if next > 0 || !waiting {
		g.Next = at
	}
	g.End = max(g.End, g.Next)
	return g, nil
}

// View returns the model for reading.
func (p *Projection[E]) View() View { return View{p.source.engine(), p.o.Prefix} }

func (p *Projection[E]) claim(ctx context.Context) (registry.Lease, error) {
	if err := holdfast.CheckContext(ctx); err != nil {
		return registry.Lease{}, err
	}
	return registry.Claim(p.source.engine(), registry.Request{
		Kind: registry.Projection, Thing: "projection", Name: p.o.Name, MaxName: len(p.o.Name), Level: p.source.level(),
		Prefix: p.o.Prefix,
	})
}

func (p *Projection[E]) clear(ctx context.Context) error {
	eng, all := p.source.engine(), holdfast.Prefix([]byte(p.o.Prefix))
	it := eng.Scan(all)
	some := it.Next()
	if err := it.Close(); err != nil || !some {
		return err
	}
	return chunks.Remove(ctx, eng, p.source.level(), all)
}

// item is what the source yields.
type item[E any] struct {
	event E
	err   error
}

// open leases the projection's keys, and returns the position behind the last event applied.
func (p *Projection[E]) open(ctx context.Context) (_ registry.Lease, next uint64, err error) {
	lease, err := p.claim(ctx)
	if err != nil {
		return lease, 0, err
	}
	defer func() {
		if err != nil {
			lease.Release()
		}
	}()
	known, err := p.registered(false)
	if err != nil {
		return lease, 0, err
	}
	if next, err = p.source.load(ctx, &p.o); err != nil {
		return lease, 0, err
	}
	if !known {
		err = p.register(ctx, true)
	}
	if err == nil && next == 0 {
		err = p.clear(ctx)
	}
	return lease, next, err
}

// run applies events until from ends. committed says that some were, whatever the error is.
func (p *Projection[E]) run(ctx context.Context,
	from func(context.Context, uint64) iter.Seq2[E, error]) (committed bool, err error) {
	lease, next, err := p.open(ctx)
	if err != nil {
		return false, err
	}
	defer lease.Release()
	// Another goroutine reads ahead, so that events come together while a commit is waited for.
	var reading sync.WaitGroup
	defer reading.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	feed := make(chan item[E], p.o.Batch)
	reading.Go(func() {
		defer close(feed)
		for e, err := range from(ctx, next) {
			select {
			case feed <- item[E]{e, err}:
			case <-ctx.Done():
				return
			}
		}
	})
	for applied := uint64(0); ; {
		n, next, more, err := p.step(ctx, feed)
		if applied += uint64(n); n > 0 && p.o.Progress != nil {
			g, failed := p.progress(ctx, next)
			if failed != nil {
				g = Progress{Next: next, End: max(next, g.End)}
			}
			g.Applied = applied
			p.o.Progress(g)
		}
		if err != nil || !more {
			return applied > 0, err
		}
	}
}

// step waits for an event, and commits what it and those behind it that are there make of the model: n of them, up to
// before next. more is false at the end of the feed.
func (p *Projection[E]) step(ctx context.Context, feed <-chan item[E]) (n int, next uint64, more bool, err error) {
	m := newModel(p.source.engine(), p.o.Prefix)
	var failed error
	it, more := <-feed
	for more {
		if failed = it.err; failed == nil {
			failed = p.applyTo(m, it.event)
		}
		if failed != nil {
			break
		}
		n++
		next = p.source.next(it.event)
		if n == p.o.Batch || m.full() || len(feed) == 0 {
			break
		}
		it, more = <-feed
	}
	if n == 0 {
		return 0, 0, more, failed
	}
	b := m.batch()
	if err := p.source.save(ctx, &p.o, next, b); err != nil {
		return 0, 0, false, errors.Join(failed, err)
	}
	return n, next, more, failed
}

func (p *Projection[E]) applyTo(m *Model, e E) error {
	m.begin()
	err := p.apply(m, e)
	if err == nil {
		err = m.err
	}
	if err != nil {
		return p.fail("run", ErrApply, err, "correct the cause and run it again", "%s", p.source.describe(e))
	}
	m.end()
	return nil
}

func (p *Projection[E]) fail(op string, class, cause error, remedy, format string, args ...any) error {
	return &holdfast.Error{Op: fmt.Sprintf("projection %s: %q", op, p.o.Name), Class: class, Cause: cause, Remedy: remedy,
		Detail: fmt.Sprintf(format, args...)}
}
