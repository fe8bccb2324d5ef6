// Package mem is an engine that keeps everything in memory: the reference model that
// other engines are tested against, and a store for tests. It gives Memory and nothing
// more.
//
//	engine := mem.New() // stores in it are opened at the level Memory
//
// Its state is an immutable treap: writers make a new version that shares all but the
// paths they change, so a snapshot is one pointer and readers take no lock.
package mem

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/internal/treap"
)

// Name is the engine's name in engine/all.
const Name = "mem"

// node is one state: values by their keys. Its size is that of the keys and values.
type node = treap.Node[[]byte]

type engine struct {
	driver.Engine[*node]
	mu      sync.Mutex // one writer at a time
	root    atomic.Pointer[node]
	commits atomic.Int64
}

// New returns an empty engine. Closing it discards its contents.
func New() holdfast.Engine {
	e := new(engine)
	e.Init(e, Describe(), "")

	return e
}

// Open is New with the shape that engine/all wants. dir must be empty: an engine in memory
// has no directory.
func Open(dir string, o holdfast.Options) (holdfast.Engine, error) {
	if dir != "" {
		return nil, &holdfast.Error{Op: "open", Engine: Name, Path: dir, Class: holdfast.ErrBadOption,
			Detail: "it keeps nothing in a directory", Remedy: `name none: "mem:"`}
	}
	level := o.Level
	o, err := o.WithDefaults()
	if err == nil && level != 0 { // the default, Power, is for engines that keep what they get
		err = driver.CheckLevel(Describe(), "", level)
	}
	if err != nil {
		return nil, err
	}
	if o.ReadOnly {
		return nil, driver.NoReadOnly(Name, "")
	}

	return New(), nil
}

// Describe says what the engine gives.
func Describe() holdfast.Capabilities {
	const why = "it keeps nothing outside the process"

	return holdfast.Capabilities{
		Engine:            Name,
		Memory:            holdfast.Promise{Given: holdfast.Memory, How: "a pointer is replaced"},
		Process:           holdfast.Promise{Why: why},
		Power:             holdfast.Promise{Why: why},
		AtomicBatches:     true,
		NativeDeleteRange: true,
		ShownAtApply:      true,
		MaxKeySize:        holdfast.MaxKeySize,
		MaxValueSize:      holdfast.MaxValueSize,
		MaxBatchSize:      holdfast.MaxBatchSize,
		Caveats:           []string{"Everything is gone when the process ends."},
	}
}

// Write implements [driver.Core]. The batch is visible when it returns.
func (e *engine) Write(b *holdfast.Batch, _ holdfast.Level) (holdfast.Receipt, error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	root := e.root.Load()
	for op := range b.Ops() {
		switch op.Kind {
		case holdfast.KindSet:
			root = root.Set(bytes.Clone(op.Key), bytes.Clone(op.Value), int64(len(op.Key)+len(op.Value)))
		case holdfast.KindDelete:
			root = root.Delete(op.Key)
		case holdfast.KindDeleteRange:
			root = root.DeleteRange(op.Key, op.Value)
		}
	}
	e.root.Store(root)
	e.commits.Add(1)

	return holdfast.Receipt{}, nil
}

// View implements [driver.Core].
func (e *engine) View(driver.Op) (*node, error) { return e.root.Load(), nil }

// Drop implements [driver.Core].
func (e *engine) Drop(*node) error { return nil }

// Settle implements [driver.Core].
func (e *engine) Settle() error { return nil }

// Measure implements [driver.Core].
func (e *engine) Measure(m *holdfast.Metrics) {
	*m = holdfast.Metrics{OpenIterators: m.OpenIterators, OpenSnapshots: m.OpenSnapshots,
		Standbys: holdfast.Unknown, StandbysNeeded: holdfast.Unknown, StandbyLag: holdfast.Unknown, Owner: holdfast.Unknown}
	m.Commits, m.Groups, m.MemoryBytes = e.commits.Load(), e.commits.Load(), e.root.Load().Size()
}

// Release implements [driver.Core].
func (e *engine) Release(error) error { return nil }

// Read implements [driver.Core].
func (e *engine) Read(root *node, dst, key []byte) ([]byte, error) {
	if value, ok := root.Get(key); ok {
		return append(dst, value...), nil
	}

	return dst, holdfast.ErrNotFound
}

// cursor is a [driver.Cursor].
type cursor struct {
	driver.Hold[*node]
	treap.Cursor[[]byte]
}

// Walk implements [driver.Core].
func (e *engine) Walk(h driver.Hold[*node], r holdfast.Range) (holdfast.Iterator, error) {
	r.Lo, r.Hi = bytes.Clone(r.Lo), bytes.Clone(r.Hi)
	return driver.NewIterator(&cursor{h, h.View.Walk(r)}), nil
}

// Next implements [driver.Cursor].
func (c *cursor) Next() (key, value []byte, err error) {
	if at := c.Cursor.Next(); at != nil {
		key, value = at.Key, at.Value
	}

	return key, value, nil
}

// Close implements [driver.Cursor].
func (c *cursor) Close() error {
	c.End()
	return nil
}
