package data

import (
	"container/list"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
)

// pool keeps stores open, by name: those in use, and of the others the most recently used, at most as many as there
// may be open in all. A name is opened, closed or removed by one goroutine at a time.
type pool[S io.Closer] struct {
	most     int
	quiet    time.Duration // those that nobody uses for so long are closed by closeQuiet; 0 for none
	closable func(S) bool  // whether a store may be closed that nobody uses; nil for always

	// outside is ErrNested in the function of a transaction that the store of a name can take part in: a closing may wait
	// for that function, which then cannot wait for the closing.
	outside func(name string) error

	mu      sync.Mutex
	closed  bool
	entries map[string]*entry[S]
	idle    list.List // of *entry, those that nobody uses; the one that was used first is the first
}

// entry is a store that is being opened, open, or being closed. What changes is covered by the pool's mu.
type entry[S io.Closer] struct {
	name  string
	ready chan struct{} // closed when store and err are set
	store S
	err   error
	users int           // with whoever opens it
	idle  *list.Element // nil while there are users
	since time.Time     // when it became idle
	gone  chan struct{} // not nil once it is to be closed; closed when the name is free
}

func newPool[S io.Closer](most int, outside func(name string) error) *pool[S] {
	return &pool[S]{most: most, outside: outside, entries: map[string]*entry[S]{}}
}

// get returns the store of a name, which stays open as long as ctx lives. If it is not open, open opens it.
// kv.ErrNested: it is being closed, and see outside.
func (p *pool[S]) get(ctx context.Context, name string, open func() (S, error)) (store S, err error) {
	for {
		if err := holdfast.CheckContext(ctx); err != nil {
			return store, err
		}
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return store, holdfast.ErrClosed
		}

		e := p.entries[name]
		switch {
		case e == nil:
			// The entry is there before the store is open, so that others who want the name wait for this opening. The lock is
			// not held meanwhile: other names are opened at the same time.
			e = &entry[S]{name: name, ready: make(chan struct{}), users: 1}
			p.entries[name] = e
			p.mu.Unlock()
			if store, err = p.fill(e, open); err != nil {
				return store, err
			}
			p.hold(ctx, e)
			p.trim()

			return store, nil

		// It is being closed. When that is done, the name is free, and the next turn of the loop opens it anew.
		case e.gone != nil:
			gone := e.gone
			p.mu.Unlock()
			if err := p.outside(name); err != nil {
				return store, err
			}
			if err := await(ctx, gone); err != nil {
				return store, err
			}
		default:
			// It is open, or another call opens it. Counting this use before waiting keeps it from being closed in between.
			e.users++
			if e.idle != nil {
				p.idle.Remove(e.idle)
				e.idle = nil
			}
			p.mu.Unlock()
			if err := await(ctx, e.ready); err != nil {
				p.leave(e)
				return store, err
			}
			if e.err == nil {
				p.hold(ctx, e)
				return e.store, nil
			}
			p.leave(e) // it was opened in another way: try one's own
		}
	}
}

// fill opens the store of an entry. Those who wait for it go on, also if open panics.
func (p *pool[S]) fill(e *entry[S], open func() (S, error)) (store S, err error) {
	err = errors.New("it has not been opened")
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		e.store, e.err = store, err

		// An entry that failed must not stay, or the name could not be opened again until the pool is closed.
		if err != nil && e.gone == nil { // else whoever removes it frees the name
			delete(p.entries, e.name)
		}
		close(e.ready)
	}()
	store, err = open()

	return store, err
}

func await(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c: // mostly, and without a look at the context
		return nil
	default:
	}

	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hold keeps an entry in use as long as ctx lives. The context of a request calls what comes after it in the goroutine
// that answers; [context.AfterFunc] would start one for each.
func (p *pool[S]) hold(ctx context.Context, e *entry[S]) {
	leave := func() { p.leave(e) }
	if request, ok := ctx.(interface{ After(func()) }); ok {
		request.After(leave)
	} else if ctx.Done() != nil {
		context.AfterFunc(ctx, leave)
	}
}

// leave ends a use of an entry.
func (p *pool[S]) leave(e *entry[S]) {
	p.mu.Lock()
	if e.users--; p.entries[e.name] == e {
		p.rest(e)
	}
	p.mu.Unlock()
	p.trim()
}

// rest notes that nobody uses an entry, if that is so, with mu held.
func (p *pool[S]) rest(e *entry[S]) {
	if e.users == 0 && e.gone == nil {
		e.since = time.Now()
		e.idle = p.idle.PushBack(e)
	}
}

// trim closes stores that nobody uses while there are too many.
func (p *pool[S]) trim() {
	p.closeIdle(func(*entry[S]) bool { return len(p.entries) > p.most })
}

// closeQuiet closes stores that nobody has used for a while.
func (p *pool[S]) closeQuiet() {
	now := time.Now()
	p.closeIdle(func(e *entry[S]) bool { return p.quiet > 0 && now.Sub(e.since) >= p.quiet })
}

// closeIdle closes stores that nobody uses, from the one that was used first, as long as f says so, which is called
// with mu held.
func (p *pool[S]) closeIdle(f func(*entry[S]) bool) {
	for {
		p.mu.Lock()
		at := p.idle.Front()
		for at != nil && p.closable != nil && !p.closable(at.Value.(*entry[S]).store) {
			at = at.Next()
		}
		if at == nil || !f(at.Value.(*entry[S])) {
			p.mu.Unlock()
			return
		}
		e := at.Value.(*entry[S])

		// Closing may wait for a disk, so it happens without the lock. Whoever wants the name meanwhile waits for gone.
		p.takeOut(e)
		p.mu.Unlock()
		if errors.Is(p.shut(e), kv.ErrNested) { // of other errors the engine tells the next who writes
			return
		}
	}
}

// takeOut begins the closing of an entry, with mu held.
func (p *pool[S]) takeOut(e *entry[S]) {
	e.gone = make(chan struct{})
	if e.idle != nil {
		p.idle.Remove(e.idle)
		e.idle = nil
	}
}

// shut closes the store of an entry that was taken out, if there is one.
func (p *pool[S]) shut(e *entry[S]) (err error) {
	defer func() { p.free(e, err) }()
	if <-e.ready; e.err == nil {
		err = e.store.Close()
	}

	return err
}

// free ends the closing of an entry. If that was refused, in the function of a transaction of the store's database, the
// store is as it was.
func (p *pool[S]) free(e *entry[S], err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(e.gone)
	if errors.Is(err, kv.ErrNested) {
		e.gone = nil
		p.rest(e)
	} else {
		delete(p.entries, e.name)
	}
}

// remove closes the store of a name, if it is open, even if it is in use, and calls f while nobody can open it.
// kv.ErrNested: see outside; nothing is removed.
func (p *pool[S]) remove(ctx context.Context, name string, f func() error) error {
	if err := p.outside(name); err != nil {
		return err
	}
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return holdfast.ErrClosed
		}
		e := p.entries[name]
		if e != nil && e.gone != nil {
			gone := e.gone
			p.mu.Unlock()
			if err := await(ctx, gone); err != nil {
				return err
			}
			continue
		}

		// What is not open gets an entry too: while f runs, it keeps others from opening the name.
		if e == nil {
			e = &entry[S]{name: name, ready: make(chan struct{}), err: holdfast.ErrNotFound}
			close(e.ready)
			p.entries[name] = e
		}
		p.takeOut(e)

		p.mu.Unlock()
		var err error
		defer func() { p.free(e, err) }()
		<-e.ready // who opens it comes to an end
		if e.err == nil {
			if err = e.store.Close(); err != nil && !errors.Is(err, holdfast.ErrClosed) {
				return err
			}
		}

		return f()
	}
}

// names returns the names of what is open or being opened.
func (p *pool[S]) names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()

	list := make([]string, 0, len(p.entries))
	for name := range p.entries {
		list = append(list, name)
	}

	return list
}

// open returns what is open, by name. A store may be closed meanwhile.
func (p *pool[S]) open() map[string]S {
	p.mu.Lock()
	defer p.mu.Unlock()

	stores := map[string]S{}
	for name, e := range p.entries {
		select {
		case <-e.ready:
			if e.err == nil && e.gone == nil {
				stores[name] = e.store
			}
		default:
		}
	}

	return stores
}

// nested is ErrNested where close may wait for the function that calls it.
func (p *pool[S]) nested() error {
	for _, name := range p.names() {
		if err := p.outside(name); errors.Is(err, kv.ErrNested) {
			return err
		}
	}

	return nil
}

// close closes all stores, in use or not, and lets none be opened. Those that it may not close, see free, it closes
// when it is called again.
func (p *pool[S]) close() error {
	p.mu.Lock()
	p.closed = true

	var open []*entry[S]
	var closing []chan struct{}
	for _, e := range p.entries {
		if e.gone != nil {
			closing = append(closing, e.gone)
			continue
		}
		p.takeOut(e)
		open = append(open, e)
	}
	p.mu.Unlock()

	var errs []error
	for _, e := range open {
		errs = append(errs, p.shut(e))
	}

	for _, gone := range closing {
		<-gone
	}
	if len(closing) > 0 { // some may be as they were
		errs = append(errs, p.close())
	}

	return errors.Join(errs...)
}
