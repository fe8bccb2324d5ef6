// Package projection keeps views: buckets of a database (package kv) that are made of events, or of messages, and are
// updated exactly once for each of them.
//
//	totals, err := projection.New(projection.Events(log), projection.Options{Name: "totals"},
//		func(view *kv.Bucket, e event.Event) error {
//			n, err := projection.Get[int](view, e.Type)
//			if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
//				return err
//			}
//			return projection.Set(view, e.Type, n+1)
//		})
//	err = totals.Run(ctx) // until ctx ends
//
//	err = db.View(ctx, func(tx *kv.Tx) error {
//		n, err = projection.Get[int](totals.View(tx), "placed")
//		return err
//	})
//
// # Exactly once
//
// The function that applies an event is called in a transaction of the database ([kv.DB.Update]). All that it writes
// there, and that the event was applied, are one commit. So after any crash the view is the result of the events up to
// some position, and Run continues after that position. Several events share a transaction if they have arrived by
// then, up to [Options].Batch of them, or 1 MiB of changes.
//
// The function has the transaction by view.Tx(): it may enqueue tasks, append to logs, and write to buckets of the
// program's own. It reads what the events before have written. It obeys the rules of package kv: it does nothing slow,
// since other writers of the database wait, and calls stores only by their In. A function with effects elsewhere, such
// as sending mail, has them at least once: again when a crash, an error or a panic has taken the transaction back. It
// better enqueues a task.
//
// # The view
//
// The view is the bucket of the database that has the projection's name. The projection makes it, and refuses a bucket
// of that name which the program has made. It is removed by Rebuild with all that is in it. The program reads it with
// [Projection.View], or as any other bucket. In it lies a bucket whose name begins with a zero byte, which has the
// position. A run whose view is deleted meanwhile by somebody else ends with ErrCorrupt: rebuild it.
//
// A view that an earlier version has kept under a prefix of the engine's keys is carried over by the first Run or
// CatchUp of the projection of the same name in a database of that engine, and the old keys are removed.
package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/failure"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/registry"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
)

// ErrApply: the function of a projection has returned an error, which is wrapped, or asked for an impossible change.
var ErrApply = errors.New("holdfast: not applied")

// DefaultBatch is the default maximum number of events per transaction.
const DefaultBatch = 256

// batchBytes is how many bytes of changes end a transaction.
const batchBytes = 1 << 20

// Options configure a projection. Name is required.
type Options struct {
	// Name is that of the projection, and of the bucket that is its view. One over the events of a log has its position
	// also as the subscription of that name.
	Name string
	// Batch is how many events share a transaction at most; 0 means DefaultBatch.
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

// Projection is a view of events of type E. All methods may be called from many goroutines at once, but only one of
// Run, CatchUp and Rebuild does its work at a time: the others return ErrLocked.
type Projection[E any] struct {
	source Source[E]
	db     *kv.DB
	o      Options
	apply  func(*kv.Bucket, E) error

	mu     sync.Mutex
	passed [2]uint64 // behind the first position nothing waits up to before the second
}

// New returns a projection that is not running. apply changes the view as an event says. It is called for one event at
// a time, in their order, and depends on nothing but the event and the view, so that a rebuild makes the same. An error
// that it returns, or that a write of its has returned, ends the run before the event; for the events before it in the
// same transaction it is called again.
//
// ErrBadOption: the options make no sense.
func New[E any](source Source[E], o Options, apply func(view *kv.Bucket, e E) error) (*Projection[E], error) {
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
	case o.Batch < 0:
		return nil, p.fail("new", holdfast.ErrBadOption, nil, "use 0 for the default", "a batch of %d events", o.Batch)
	}
	if p.db = source.database(); p.db == nil {
		return nil, p.fail("new", holdfast.ErrBadOption, nil, "", "there is no database")
	}
	return p, nil
}

// View is the view in a transaction of its database, for reading.
func (p *Projection[E]) View(tx *kv.Tx) *kv.Bucket { return tx.Bucket(p.o.Name) }

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
// ErrClosed, ErrPoisoned, ErrCorrupt, ErrReplaced, ErrVersion, kv.ErrNested, event.ErrTruncated and event.ErrAhead, and
// those of a namespace or stream that cannot be read. A function whose own errors may pass, such as those of a mail
// server, sets Options.Retry to one that knows them.
func Passes(err error) bool {
	for _, class := range []error{ErrApply, holdfast.ErrBadOption, holdfast.ErrBadKey, holdfast.ErrTooLarge,
		holdfast.ErrLevel, holdfast.ErrLocked, holdfast.ErrClosed, holdfast.ErrPoisoned, holdfast.ErrCorrupt,
		holdfast.ErrReplaced, holdfast.ErrVersion, kv.ErrNested, event.ErrTruncated, event.ErrAhead, message.ErrNoNamespace,
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

// Rebuild removes the view, so that the next Run begins with the first event that is there. Readers see an empty view,
// and then one that grows. To avoid that, build the view with another name, and rebuild the old one when it is not read
// any more: a projection that is rebuilt and not run again leaves no bucket. What its function has written elsewhere
// stays.
func (p *Projection[E]) Rebuild(ctx context.Context) error {
	lease, err := p.claim(ctx)
	if err != nil {
		return err
	}
	defer lease.Release()
	err = p.db.Update(ctx, func(tx *kv.Tx) error {
		if err := p.remove(tx); err != nil {
			return err
		}
		return p.source.save(tx, p.o.Name, 0)
	})
	if err != nil {
		return err
	}
	return p.removeEarlier(ctx)
}

// Progress returns how far the projection has come.
func (p *Projection[E]) Progress(ctx context.Context) (g Progress, err error) {
	at, err := p.load(ctx)
	if err != nil {
		return g, err
	}
	return p.progress(ctx, at.next)
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

// claim leases the projection, so that nobody else runs it.
func (p *Projection[E]) claim(ctx context.Context) (registry.Lease, error) {
	if err := cmp.Or(p.db.Err(), holdfast.CheckContext(ctx)); err != nil {
		return registry.Lease{}, err
	}
	return registry.Claim(p.db.Engine(), registry.Request{
		Kind: "projection", Thing: "projection", Name: p.o.Name, MaxName: kv.MaxNameSize, Level: p.db.Level(),
		Prefix: string(keyspace.New(keyspace.Databases, p.db.Name()).Key(nil, 'b', p.o.Name)),
	})
}

// item is what the source yields.
type item[E any] struct {
	event E
	err   error
}

// open leases the projection, and returns the position behind the last event applied.
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
	if err = p.carryOver(ctx); err != nil {
		return lease, 0, err
	}
	at, err := p.load(ctx)
	return lease, at.next, err
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
	var waiting []E
	for applied, failed := uint64(0), error(nil); ; {
		// Wait for an event, and take those behind it that are there.
		for len(waiting) == 0 || len(waiting) < p.o.Batch && len(feed) > 0 && failed == nil {
			if failed != nil {
				return applied > 0, failed
			}
			it, more := <-feed
			switch {
			case !more:
				return applied > 0, nil
			case it.err != nil:
				failed = it.err
			default:
				waiting = append(waiting, it.event)
			}
		}
		n, err := p.step(ctx, next, waiting)
		if n > 0 {
			next = p.source.next(waiting[n-1])
			waiting = slices.Delete(waiting, 0, n)
		}
		if applied += uint64(n); n > 0 && p.o.Progress != nil {
			g, failed := p.progress(ctx, next)
			if failed != nil {
				g = Progress{Next: next, End: max(next, g.End)}
			}
			g.Applied = applied
			p.o.Progress(g)
		}
		if err != nil {
			return applied > 0, err
		}
	}
}

// step applies the first of the events in one transaction, and returns how many. If one of them cannot be applied, that
// is the error, and those before it are. next is the position that the view has.
func (p *Projection[E]) step(ctx context.Context, next uint64, events []E) (n int, failed error) {
	history, err := p.source.history(ctx)
	if err != nil {
		return 0, err
	}
	for {
		n, err := p.commit(ctx, next, events, history)
		refused, large := errors.Is(err, ErrApply), errors.Is(err, holdfast.ErrTooLarge)
		switch {
		case err == nil:
			return n, failed
		case refused && n == 0:
			return 0, err
		case refused && large: // it may fit into a transaction of its own
			events, failed = events[:n], nil
		case refused:
			events, failed = events[:n], err
		case large && n > 1:
			events, failed = events[:n/2], nil
		case large:
			return 0, p.refuse(events[0], err)
		default:
			return 0, errors.Join(failed, err)
		}
	}
}

// commit applies events in one transaction, until that is full, and returns how many. Nothing is written if one cannot
// be applied: n is its index then, and the error is that of refuse.
func (p *Projection[E]) commit(ctx context.Context, next uint64, events []E, history string) (n int, err error) {
	full := p.full()
	err = p.db.Update(ctx, func(tx *kv.Tx) error {
		view := p.View(tx)
		if err := p.at(tx, next); err != nil {
			return err
		}
		for n < len(events) && (n == 0 || tx.Size() < full) {
			if err := cmp.Or(p.apply(view, events[n]), tx.Err()); err != nil {
				return p.refuse(events[n], err)
			}
			n++
		}
		return p.save(tx, position{p.source.next(events[n-1]), history, p.db.Engine().Capabilities().Accepted})
	})
	return n, err
}

// full is how many bytes of changes end a transaction: most often there is room for one event more.
func (p *Projection[E]) full() int64 {
	return min(batchBytes, p.db.Engine().Capabilities().MaxBatchSize/2)
}

func (p *Projection[E]) refuse(e E, cause error) error {
	return p.fail("run", ErrApply, cause, "correct the cause and run it again", "%s", p.source.describe(e))
}

func (p *Projection[E]) fail(op string, class, cause error, remedy, format string, args ...any) error {
	return failure.New(fmt.Sprintf("projection %s: %q", op, p.o.Name), "", class, cause, remedy, format, args...)
}
