// Package registry knows which stores are open in which engines. It checks that an engine gives what every store needs,
// and keeps a store from being opened twice: neither of the two would know what the other writes.
package registry

import (
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/failure"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/names"
)

// Request is what a store asks of an engine before it looks at what is in it.
type Request struct {
	Kind    string         // of store, as its errors begin: "event"
	Thing   string         // what its users call it: "log"
	Name    string         // which tells several of that kind in one engine apart
	MaxName int            // bytes
	Level   holdfast.Level // of all its writes; 0 means Power
	Prefix  string         // of all its keys, which has the name in it
	KeySize int            // bytes of the longest key that no store of that name can do without
	Reads   bool           // the engine need not give the level: it may be open for reading only
	AnyName bool           // it may have characters that names cannot have: it is to be removed, or another package's
}

// describe names the store: event log "orders".
func (r Request) describe() string {
	what := r.Thing
	if !strings.HasPrefix(r.Thing, r.Kind) {
		what = r.Kind + " " + r.Thing
	}
	if r.Name != "" {
		what += fmt.Sprintf(" %q", r.Name)
	}

	return what
}

// Lease is a store's right to its keys in an engine. It is released when the store is closed, or could not be opened.
type Lease struct {
	Caps    holdfast.Capabilities // of the engine
	Level   holdfast.Level        // of the store
	Session Session
	key     key
	closed  func() // tells the engine, if it wants to know
}

// TableAccepted has one key in a store of an engine in which a loss was accepted: which one it was when the store was
// made, or made anew. No store has another use for the letter.
const TableAccepted byte = 'z'

// Session is random, and the same for all stores of an engine as long as any is open there. While it is the same,
// nothing that a store has shown can have been taken back: the engine was not opened again.
type Session [16]byte

// session is a session that goes on until it has no leases.
type session struct {
	id     Session
	leases int
}

// key names what is leased. The engine is comparable.
type key struct {
	engine holdfast.Engine
	prefix string
}

var leased struct {
	sync.Mutex
	keys map[key]string // what holds it
	open map[holdfast.Engine]*session
}

// Claim leases a store's keys in eng. It neither reads nor writes anything there, and may be called from many
// goroutines at once.
//
// Errors: ErrBadOption if eng is nil or not comparable, has no atomic batches or too short keys, or if the name is
// too long or has a control character; ErrLevel if eng does not give the level; ErrCorrupt if the repair that made it
// has lost something and the loss was not accepted; ErrLocked if the store is open already.
func Claim(eng holdfast.Engine, r Request) (Lease, error) {
	l, err := Check(eng, r)
	if err != nil {
		return Lease{}, err
	}
	if err := l.claim(r); err != nil {
		return Lease{}, err
	}
	return l, nil
}

// Check is what Claim finds wrong with the engine or the request, whatever is open. The lease is not one yet.
func Check(eng holdfast.Engine, r Request) (l Lease, err error) {
	fail := func(class, cause error, remedy, format string, args ...any) (Lease, error) {
		return Lease{}, r.fail(l.Caps.Engine, class, cause, remedy, format, args...)
	}
	if eng == nil || !reflect.ValueOf(eng).Comparable() {
		return fail(holdfast.ErrBadOption, nil, "pass an open engine, by its pointer", "the engine is %T", eng)
	}
	l.Caps = eng.Capabilities()
	if len(r.Name) > r.MaxName {
		return fail(holdfast.ErrBadOption, nil, fmt.Sprintf("use at most %d", r.MaxName), "the name has %d bytes",
			len(r.Name))
	}
	if what := names.Wrong(r.Name, r.MaxName); what != "" && !r.AnyName {
		return fail(holdfast.ErrBadOption, nil, "use another name", "the name %s", what)
	}
	if l.Level = r.Level; l.Level == 0 {
		l.Level = holdfast.Power
	}
	if err := l.Caps.CheckLevel(l.Level); err != nil && !r.Reads {
		return fail(holdfast.ErrLevel, err, "", "a store runs at the level it is opened with")
	}
	if lost := l.Caps.Lost; lost != "" {
		remedy := "restore a backup, or accept what is missing, at the end of the " + r.Thing + " too: holdfast accept"
		return fail(holdfast.ErrCorrupt, nil, remedy, "acknowledged data were lost, by a repair or a failover: %s", lost)
	}
	if !l.Caps.AtomicBatches {
		return fail(holdfast.ErrBadOption, nil, "use another engine",
			"a crash can tear a batch of this engine, and an append with it")
	}
	if int64(r.KeySize) > l.Caps.MaxKeySize {
		return fail(holdfast.ErrBadOption, nil, "use a shorter name", "the engine's keys have at most %d bytes",
			l.Caps.MaxKeySize)
	}
	l.key = key{eng, r.Prefix}
	return l, nil
}

func (r Request) fail(engine string, class, cause error, remedy, format string, args ...any) error {
	return failure.New(r.Kind+" open", engine, class, cause, remedy, format, args...)
}

// claim leases what Check has checked.
func (l *Lease) claim(r Request) error {
	eng := l.key.engine
	fail := func(class error, remedy, format string, args ...any) error {
		return r.fail(l.Caps.Engine, class, nil, remedy, format, args...)
	}
	leased.Lock()
	defer leased.Unlock()
	if leased.keys[l.key] != "" {
		return fail(holdfast.ErrLocked, fmt.Sprintf("use the %s that is open, or close it", r.Thing),
			"the %s %q is open in this engine", r.Thing, r.Name)
	}
	if leased.keys == nil {
		leased.keys, leased.open = map[key]string{}, map[holdfast.Engine]*session{}
	}
	leased.keys[l.key] = r.describe()
	now := leased.open[eng]
	if now == nil {
		now = &session{}
		_, _ = rand.Read(now.id[:]) // which never fails
		leased.open[eng] = now
	}
	now.leases++
	l.Session = now.id
	l.closed = func() {}
	if e, ok := eng.(interface {
		StoreOpened(what string) (closed func())
	}); ok {
		l.closed = e.StoreOpened(r.describe())
	}
	return nil
}

// Stale reports whether there is a store under that prefix that was neither made nor made anew since a loss was
// accepted in the engine: what it derives from its data may be lost without the data, and its data in part.
func (l Lease) Stale(p keyspace.Prefix) (bool, error) {
	if l.Caps.Accepted == "" {
		return false, nil
	}
	known, err := l.key.engine.Get(nil, p.Key(nil, TableAccepted, ""))
	if err == nil {
		return string(known) != l.Caps.Accepted, nil
	}
	if !errors.Is(err, holdfast.ErrNotFound) {
		return false, err
	}
	lo, hi := p.Bounds()
	it := l.key.engine.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()

	return it.Next(), it.Err()
}

// Fresh adds to b that the store is not stale.
func (l Lease) Fresh(b *holdfast.Batch, p keyspace.Prefix) {
	if l.Caps.Accepted != "" {
		b.Set(p.Key(nil, TableAccepted, ""), []byte(l.Caps.Accepted))
	}
}

// Settle commits b, with which a store is opened. Whatever was applied before, by an earlier process too, has reached
// the store's level then, and is visible. full is not nil where the engine has no room for b and goes on: nothing of b
// is there, but all else is as if it were. What the store cannot do without b, it does once there is room.
func (l Lease) Settle(b *holdfast.Batch) (full, err error) {
	receipt, err := l.key.engine.Apply(b, l.Level)
	if errors.Is(err, holdfast.ErrFull) && !errors.Is(err, holdfast.ErrPoisoned) {
		full = err
		receipt, err = l.key.engine.Apply(new(holdfast.Batch), l.Level)
	}
	if err != nil {
		return nil, err
	}

	return full, receipt.Wait()
}

// Release ends the lease. The store does not use the engine any more.
func (l Lease) Release() {
	leased.Lock()
	defer leased.Unlock()
	if leased.keys[l.key] == "" {
		return
	}
	if now := leased.open[l.key.engine]; now.leases > 1 {
		now.leases--
	} else {
		delete(leased.open, l.key.engine)
	}
	delete(leased.keys, l.key)
	l.closed()
}
