// Package exclusive opens stores in engines: it asks of an engine what every store needs, and keeps a store from being
// opened twice, because each of two would not know what the other does.
package exclusive

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/holdfastdb/holdfast"
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
}

// Place is a store's place in an engine. It is Released when the store is closed, or could not be opened.
type Place struct {
	Caps  holdfast.Capabilities // of the engine
	Level holdfast.Level        // of the store
	key   key
}

// key names a place. The engine is comparable.
type key struct {
	engine holdfast.Engine
	prefix string
}

var taken struct {
	sync.Mutex
	keys map[key]bool
}

// Claim takes a store's place in eng. It neither reads nor writes anything there, and may be called from many goroutines at
// once.
//
// Errors: ErrBadOption if eng is nil or not comparable, has no atomic batches or too short keys, or if the name is
// too long; ErrLevel if eng does not give the level; ErrCorrupt if a repair that made it has lost something and
// nobody has accepted that; ErrLocked if the place is taken.
func Claim(eng holdfast.Engine, r Request) (Place, error) {
	var p Place
	fail := func(class, cause error, remedy, format string, args ...any) (Place, error) {
		return Place{}, &holdfast.Error{Op: r.Kind + " open", Engine: p.Caps.Engine, Class: class, Cause: cause, Remedy: remedy, Detail: fmt.Sprintf(format, args...)}
	}
	if eng == nil || !reflect.ValueOf(eng).Comparable() {
		return fail(holdfast.ErrBadOption, nil, "pass an open engine, by its pointer", "the engine is %T", eng)
	}
	p.Caps = eng.Capabilities()
	if len(r.Name) > r.MaxName {
		return fail(holdfast.ErrBadOption, nil, fmt.Sprintf("use at most %d", r.MaxName), "the name has %d bytes", len(r.Name))
	}
	if p.Level = r.Level; p.Level == 0 {
		p.Level = holdfast.Power
	}
	if err := p.Caps.CheckLevel(p.Level); err != nil {
		return fail(holdfast.ErrLevel, err, "", "a store runs at the level it is opened with")
	}
	if lost := p.Caps.Lost; lost != "" {
		remedy := "restore a backup, or accept what is missing, at the end of the " + r.Thing + " too: holdfast accept"
		return fail(holdfast.ErrCorrupt, nil, remedy, "the directory was made by a repair, which lost: %s", lost)
	}
	if !p.Caps.AtomicBatches {
		return fail(holdfast.ErrBadOption, nil, "use another engine", "a crash can tear a batch of this engine, and an append with it")
	}
	if int64(r.KeySize) > p.Caps.MaxKeySize {
		return fail(holdfast.ErrBadOption, nil, "use a shorter name", "the engine's keys have at most %d bytes", p.Caps.MaxKeySize)
	}
	p.key = key{eng, r.Prefix}
	taken.Lock()
	defer taken.Unlock()
	if taken.keys[p.key] {
		return fail(holdfast.ErrLocked, nil, fmt.Sprintf("use the %s that is open, or close it", r.Thing), "the %s %q is open in this engine", r.Thing, r.Name)
	}
	if taken.keys == nil {
		taken.keys = map[key]bool{}
	}
	taken.keys[p.key] = true
	return p, nil
}

// Release gives up a place that was claimed. Nobody in the store uses the engine any more.
func (p Place) Release() {
	taken.Lock()
	defer taken.Unlock()
	delete(taken.keys, p.key)
}
