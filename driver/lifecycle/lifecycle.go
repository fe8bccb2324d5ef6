// Package lifecycle guards an object that many goroutines use until one of them closes it: an engine, a snapshot, a
// store.
//
//	if err := e.life.Enter(); err != nil { // ErrClosed
//		return err
//	}
//	defer e.life.Leave()
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/uses"
)

// Life lets calls in until it is shut. The zero Life is open. All methods may be called from many goroutines at once.
type Life struct {
	// Err is what Enter returns after Shut; nil means holdfast.ErrClosed. It is set before the first call.
	Err error

	inside sync.RWMutex // read-locked by each call that is inside
	closed atomic.Bool
}

// Enter returns Err if the life is shut. Otherwise the call is inside until Leave. It does not wait: what is inside,
// such as a transaction's part in a store, may enter again beside a Close that waits for it.
func (l *Life) Enter() error {
	// The lock is held, or waited for, for writing by Wait alone, when the life is shut.
	if !l.inside.TryRLock() {
		return l.err()
	}

	// It is taken before closed is looked at: who sees it open is inside, and Wait waits for it.
	if l.closed.Load() {
		l.inside.RUnlock()
		return l.err()
	}

	return nil
}

// Leave ends what Enter began.
func (l *Life) Leave() { l.inside.RUnlock() }

// Shut admits no call from now on, and reports whether it was open before. Calls in progress continue.
func (l *Life) Shut() bool { return !l.closed.Swap(true) }

// Wait returns when all calls that had entered a life that is now shut have left.
func (l *Life) Wait() {
	// To get the lock for writing means that nobody holds it for reading. It is given back at once: closed keeps others
	// out.
	l.inside.Lock()
	defer l.inside.Unlock()
}

// Closed reports whether the life is shut.
func (l *Life) Closed() bool { return l.closed.Load() }

// err is what Enter returns once the life is shut.
func (l *Life) err() error {
	if l.Err == nil {
		return holdfast.ErrClosed
	}

	return l.Err
}

// Ending tells those who wait for it that something has ended, and why: the Done and Err of an engine. The zero Ending
// is that of one that works. All methods may be called from many goroutines at once.
type Ending struct {
	made sync.Once
	done chan struct{}
	why  atomic.Pointer[error] // set before done is closed
}

// Done returns a channel, the same each time, that End closes.
func (x *Ending) Done() <-chan struct{} {
	x.made.Do(func() { x.done = make(chan struct{}) })
	return x.done
}

// Err is what End was first called with, nil before that.
func (x *Ending) Err() error {
	if why := x.why.Load(); why != nil {
		return *why
	}
	return nil
}

// End closes the channel of Done; the first reason stays. When it returns, whoever asks knows. It may be called with
// any lock held.
func (x *Ending) End(why error) {
	x.Done()
	if x.why.CompareAndSwap(nil, &why) {
		close(x.done)
	} else {
		// Waiting keeps the promise that whoever asks afterwards knows.
		<-x.done // which another call is about to close
	}
}

// Engine is the life of an engine, which does not end while iterators or snapshots are open. Calls enter and leave it
// as they do a [Life], but write to no word of memory that all others write to. The zero Engine is open.
type Engine struct {
	err    error // what Enter returns once it has ended
	closed atomic.Bool
	gate   sync.Mutex // held while it is decided whether the life ends, so that nobody enters; before long
	inside atomic.Pointer[calls]
	// Ending is ended by Close and by Poison.
	Ending    Ending
	who       holdfast.Error // with Engine and Path
	iterators atomic.Int64
	snapshots atomic.Int64

	long    sync.Mutex // the last of all locks
	closes  int        // Closes that end long calls; under long, as is
	endings map[*context.CancelCauseFunc]bool

	using  sync.Mutex
	stores []*string // what is open in the engine; see Opened
}

// Name makes errors name the engine and its directory, or "" if it has none. It is called before any other method.
func (e *Engine) Name(engine, path string) {
	e.who = holdfast.Error{Engine: engine, Path: path}
	e.err = &holdfast.Error{Engine: engine, Path: path, Class: holdfast.ErrClosed} // made once: it costs callers nothing
}

// calls are those that are inside, until none is and none enters.
type calls struct {
	*uses.Count
	none chan struct{} // closed then
}

func newCalls() *calls {
	none := make(chan struct{})
	return &calls{uses.New(func() { close(none) }), none}
}

// Enter returns ErrClosed if the life has ended. Otherwise the call is inside until Leave. A call that is inside must
// not enter again: it could wait for a Close that waits for it.
func (e *Engine) Enter() error {
	for {
		now := e.inside.Load()
		if now != nil && now.Begin() {
			return nil
		}

		// It is the first call, or a Close is about to decide: then who comes waits for that, also until all who wait for the
		// end have been told.
		e.gate.Lock()
		closed := e.closed.Load()
		if e.inside.Load() == nil {
			e.inside.Store(newCalls())
		}
		e.gate.Unlock()
		if closed {
			return e.ended()
		}
	}
}

// Leave ends what Enter began.
func (e *Engine) Leave() { e.inside.Load().Done() }

// Closed reports whether the life has ended.
func (e *Engine) Closed() bool { return e.closed.Load() }

// ended is what Enter returns once the life has ended.
func (e *Engine) ended() error {
	if e.err == nil {
		return holdfast.ErrClosed
	}

	return e.err
}

// Poison ends the engine for those who wait for that. It is called with the error that Apply returns from then on,
// before any call returns it, and may be called with any lock held. Reads go on.
func (e *Engine) Poison(err error) { e.Ending.End(err) }

// AddIterator counts an iterator opened (1) or closed (-1). Opening is done inside.
func (e *Engine) AddIterator(n int64) { e.iterators.Add(n) }

// AddSnapshot counts a snapshot opened (1) or closed (-1). Opening is done inside.
func (e *Engine) AddSnapshot(n int64) { e.snapshots.Add(n) }

// Opened notes that something that uses the engine is open, in words, until closed is called.
func (e *Engine) Opened(what string) (closed func()) {
	e.using.Lock()
	defer e.using.Unlock()

	// The address tells it from another of the same name.
	store := &what
	e.stores = append(e.stores, store)

	return func() {
		e.using.Lock()
		defer e.using.Unlock()
		e.stores = slices.DeleteFunc(e.stores, func(s *string) bool { return s == store })
	}
}

// StillUsed is the error of a Close that has closed the engine while something was open in it, nil if nothing was.
func (e *Engine) StillUsed() error {
	names := e.users()
	if names == "" {
		return nil
	}
	used := e.who
	used.Op, used.Class, used.Remedy = "close", holdfast.ErrStoresOpen, "close them first"
	used.Detail = names + "; they answer ErrClosed now, and nothing that was acknowledged is lost"
	return &used
}

// users names what is open in the engine, "" if nothing is.
func (e *Engine) users() string {
	e.using.Lock()
	defer e.using.Unlock()
	var names []string
	for _, s := range e.stores {
		names = append(names, *s)
	}
	return strings.Join(names, ", ")
}

// Fill sets the gauges of open iterators and snapshots.
func (e *Engine) Fill(m *holdfast.Metrics) {
	m.OpenIterators, m.OpenSnapshots = e.iterators.Load(), e.snapshots.Load()
}

// Long calls f inside, with a context that Close ends too: where f then returns the context's error, Long returns Err.
// f must return soon after the context's end.
func (e *Engine) Long(ctx context.Context, f func(context.Context) error) error {
	if err := e.Enter(); err != nil {
		return err
	}
	defer e.Leave()
	if err := holdfast.CheckContext(ctx); err != nil {
		return err
	}

	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	e.long.Lock()

	// A Close that is under way ends this call at once: it would wait for it otherwise.
	if e.closes > 0 {
		end(e.ended())
	}
	if e.endings == nil {
		e.endings = map[*context.CancelCauseFunc]bool{}
	}

	// The address is the key, because functions cannot be compared.
	e.endings[&end] = true
	e.long.Unlock()
	err := f(ctx)
	e.long.Lock()
	delete(e.endings, &end)
	e.long.Unlock()

	// The function knows only that the context has ended. Whether the caller or a Close has ended it, the cause says.
	if cause := context.Cause(ctx); cause == e.ended() && errors.Is(err, context.Canceled) {
		return cause
	}

	return err
}

// endLong ends the long calls that are inside, and those that enter before the Close that called it is done.
func (e *Engine) endLong() (done func()) {
	e.long.Lock()
	defer e.long.Unlock()

	e.closes++
	for end := range e.endings {
		(*end)(e.ended())
	}

	return func() {
		e.long.Lock()
		defer e.long.Unlock()
		e.closes--
	}
}

// Close ends long calls, and calls settle, which brings everything to the device, while other calls come and go. Then
// it waits until no call is inside, calls settle again for later writes, and shuts the life, unless iterators or
// snapshots are open: then it returns ErrBusy, the life goes on, and no other call has had to wait for the device. If
// they are open when Close is called and still are when everything is on the device, it ends no long call.
//
// closed reports whether this call has shut it. settle's error comes with closed: an engine that cannot settle must
// still be released. A life that was shut before answers Err. Who waits for the end learns of it before a call is
// refused.
func (e *Engine) Close(settle func() error) (closed bool, err error) {
	if err := e.Enter(); err != nil {
		return false, err
	}

	// First without the lock: settling takes as long as the device, and calls go on meanwhile.
	busy := e.inUse()
	if busy == nil {
		defer e.endLong()()
	}
	err = settle()
	e.Leave()
	if busy != nil { // They may be closed by now: a Close that is tried again and again should need luck once, not twice.
		if busy = e.inUse(); busy != nil {
			busy.Cause = err
			return false, busy
		}
		defer e.endLong()()
	}

	// Now nobody is inside and nobody enters. What is left to settle came since the first time, and is little.
	e.gate.Lock()
	defer e.gate.Unlock()
	if e.Closed() {
		return false, e.ended()
	}
	now := e.inside.Load()
	now.End()
	<-now.none
	if busy = e.inUse(); busy != nil {
		e.inside.Store(newCalls()) // the life goes on
		busy.Cause = err

		return false, busy
	}

	// Shut before the last settle, so that a call that waits for the lock is refused and cannot write after it.
	e.closed.Store(true)
	err = settle()
	e.Ending.End(e.ended()) // after settle, which may have poisoned it
	return true, err
}

// inUse is the ErrBusy of a Close while iterators or snapshots are open, nil if none are.
func (e *Engine) inUse() *holdfast.Error {
	// The snapshots first: one that is closed in between can have left an iterator, but no iterator leaves a snapshot.
	sn := e.snapshots.Load()
	it := e.iterators.Load()
	if it+sn == 0 {
		return nil
	}
	busy := e.who
	busy.Op, busy.Class, busy.Remedy = "close", holdfast.ErrBusy, "close them first"
	busy.Detail = fmt.Sprintf("%d iterators and %d snapshots are open", it, sn)
	if names := e.users(); names != "" { // they read in the background, too
		busy.Detail += ", perhaps of " + names
	}
	return &busy
}
