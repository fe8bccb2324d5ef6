package storetest

import (
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
)

// Buried is an engine in memory that notes how many deleted keys its scans may have had to walk over, as those of an
// engine do that keeps tombstones.
type Buried struct {
	holdfast.Engine
	native bool // Capabilities.NativeDeleteRange
	mu     sync.Mutex
	Dead   map[string]bool
	Walked int
}

// NewBuried returns an engine with nothing deleted in it.
func NewBuried(native bool) *Buried {
	return &Buried{Engine: mem.New(), native: native, Dead: map[string]bool{}}
}

// Capabilities implements [holdfast.Engine].
func (e *Buried) Capabilities() holdfast.Capabilities {
	c := e.Engine.Capabilities()
	c.NativeDeleteRange = e.native

	return c
}

// Apply implements [holdfast.Engine].
func (e *Buried) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	for op := range b.Ops() {
		switch op.Kind {
		case holdfast.KindSet:
			delete(e.Dead, string(op.Key))
		case holdfast.KindDelete:
			e.Dead[string(op.Key)] = true
		case holdfast.KindDeleteRange:
			it := e.Engine.Scan(holdfast.Range{Lo: op.Key, Hi: op.Value})
			for it.Next() {
				e.Dead[string(it.Key())] = true
			}
			it.Close()
		}
	}

	return e.Engine.Apply(b, level)
}

// Scan implements [holdfast.Engine]. What lies behind the first key that it comes to is not counted: scans for one
// key end there.
func (e *Buried) Scan(r holdfast.Range) holdfast.Iterator {
	it, all := e.Engine.Scan(r), r
	if it.Next() {
		if r.Reverse {
			r.Lo = append([]byte(nil), it.Key()...)
		} else {
			r.Hi = append([]byte(nil), it.Key()...)
		}
	}
	it.Close()
	e.mu.Lock()
	defer e.mu.Unlock()

	for key := range e.Dead {
		if key >= string(r.Lo) && (len(r.Hi) == 0 || key < string(r.Hi)) {
			e.Walked++
		}
	}

	return e.Engine.Scan(all)
}
