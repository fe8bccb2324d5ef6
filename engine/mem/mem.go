// Package mem is an engine that keeps everything in memory: the reference model that
// other engines are tested against, and a store for tests. It gives Memory and nothing
// more.
//
// Its state is an immutable treap: writers make a new version that shares all but the
// paths they change, so a snapshot is one pointer and readers take no lock.
package mem

import (
	"bytes"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/internal/front"
)

// Name is the engine's name in engine/all.
const Name = "mem"

type engine struct {
	front.Engine[*node]
	mu      sync.Mutex // one writer at a time
	root    atomic.Pointer[node]
	bytes   atomic.Int64 // keys and values of the latest state
	commits atomic.Int64
}

// New returns an empty engine. What is in it is gone when it is closed.
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
	if _, err := o.WithDefaults(); err != nil {
		return nil, err
	}
	if o.ReadOnly {
		return nil, front.NoReadOnly(Name, "")
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
		MaxKeySize:        holdfast.MaxKeySize,
		MaxValueSize:      holdfast.MaxValueSize,
		MaxBatchSize:      holdfast.MaxBatchSize,
		Caveats:           []string{"Everything is gone when the process ends."},
	}
}

// Write implements [front.Core]. The batch is visible when it returns.
func (e *engine) Write(b *holdfast.Batch, _ holdfast.Level) (holdfast.Receipt, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.root.Load()
	root := old
	for op := range b.Ops() {
		switch op.Kind {
		case holdfast.KindSet:
			root = root.set(bytes.Clone(op.Key), bytes.Clone(op.Value))
		case holdfast.KindDelete:
			root = root.delete(op.Key)
		case holdfast.KindDeleteRange:
			if len(op.Value) > 0 && bytes.Compare(op.Key, op.Value) >= 0 {
				continue
			}
			below, rest := root.split(op.Key)
			_, above := rest.split(op.Value)
			if len(op.Value) == 0 {
				above = nil
			}
			root = join(below, above)
		}
	}
	e.root.Store(root)
	e.bytes.Add(root.size() - old.size())
	e.commits.Add(1)
	return holdfast.Receipt{}, nil
}

// View implements [front.Core].
func (e *engine) View(front.Op) (*node, error) { return e.root.Load(), nil }

// Done implements [front.Core].
func (e *engine) Done(*node) error { return nil }

// Settle implements [front.Core].
func (e *engine) Settle() error { return nil }

// Measure implements [front.Core].
func (e *engine) Measure(m *holdfast.Metrics) {
	*m = holdfast.Metrics{OpenIterators: m.OpenIterators, OpenSnapshots: m.OpenSnapshots}
	m.Commits, m.Groups, m.MemoryBytes = e.commits.Load(), e.commits.Load(), e.bytes.Load()
}

// Release implements [front.Core].
func (e *engine) Release(error) error { return nil }

// Read implements [front.Core].
func (e *engine) Read(root *node, dst, key []byte) ([]byte, error) {
	for n := root; n != nil; {
		switch c := bytes.Compare(key, n.key); {
		case c < 0:
			n = n.left
		case c > 0:
			n = n.right
		default:
			return append(dst, n.value...), nil
		}
	}
	return dst, holdfast.ErrNotFound
}

// iterator walks with a stack of the nodes still to be visited; all of a node's side that
// lies before it, in the direction of the walk, has been visited or is above it.
type iterator struct {
	hold   front.Hold[*node]
	r      holdfast.Range
	stack  []*node
	at     *node
	closed bool
}

// Walk implements [front.Core].
func (e *engine) Walk(h front.Hold[*node], r holdfast.Range) (holdfast.Iterator, error) {
	it := &iterator{hold: h, r: holdfast.Range{Lo: bytes.Clone(r.Lo), Hi: bytes.Clone(r.Hi), Reverse: r.Reverse}}
	it.descend(h.View)
	return it, nil
}

// descend pushes what comes first in n, skipping what lies outside the range on the side
// where the walk begins.
func (it *iterator) descend(n *node) {
	for n != nil {
		if it.r.Reverse {
			if len(it.r.Hi) > 0 && bytes.Compare(n.key, it.r.Hi) >= 0 {
				n = n.left
				continue
			}
			it.stack = append(it.stack, n)
			n = n.right
		} else {
			if bytes.Compare(n.key, it.r.Lo) < 0 {
				n = n.right
				continue
			}
			it.stack = append(it.stack, n)
			n = n.left
		}
	}
}

func (it *iterator) Next() bool {
	it.at = nil
	if it.closed || len(it.stack) == 0 {
		return false
	}
	n := it.stack[len(it.stack)-1]
	it.stack = it.stack[:len(it.stack)-1]
	if it.r.Reverse {
		if bytes.Compare(n.key, it.r.Lo) < 0 {
			it.stack = nil
			return false
		}
		it.descend(n.left)
	} else {
		if len(it.r.Hi) > 0 && bytes.Compare(n.key, it.r.Hi) >= 0 {
			it.stack = nil
			return false
		}
		it.descend(n.right)
	}
	it.at = n
	return true
}

func (it *iterator) Key() []byte {
	if it.at == nil {
		return nil
	}
	return it.at.key
}

func (it *iterator) Value() []byte {
	if it.at == nil {
		return nil
	}
	return it.at.value
}

func (it *iterator) Err() error { return nil }

func (it *iterator) Close() error {
	if !it.closed {
		it.closed, it.at, it.stack = true, nil, nil
		it.hold.End()
	}
	return nil
}

// node is an immutable node of a treap: ordered by key from left to right, and by
// priority, the hash of the key, from top to bottom, which keeps it balanced (Seidel and
// Aragon, 1996). A nil node is an empty tree.
type node struct {
	key, value  []byte
	priority    uint64
	bytes       int64 // keys and values of the whole tree
	left, right *node
}

var seed = maphash.MakeSeed()

func newNode(key, value []byte, priority uint64, left, right *node) *node {
	return &node{key, value, priority, int64(len(key)+len(value)) + left.size() + right.size(), left, right}
}

func (n *node) size() int64 {
	if n == nil {
		return 0
	}
	return n.bytes
}

// with returns n with other children.
func (n *node) with(left, right *node) *node {
	return newNode(n.key, n.value, n.priority, left, right)
}

func (n *node) set(key, value []byte) *node {
	return n.insert(key, value, maphash.Bytes(seed, key))
}

func (n *node) insert(key, value []byte, priority uint64) *node {
	if n == nil {
		return newNode(key, value, priority, nil, nil)
	}
	c := bytes.Compare(key, n.key)
	switch {
	case c == 0:
		return newNode(key, value, n.priority, n.left, n.right)
	case priority > n.priority:
		// The key cannot be below n: there it would have its own, lower priority.
		left, right := n.split(key)
		return newNode(key, value, priority, left, right)
	case c < 0:
		return n.with(n.left.insert(key, value, priority), n.right)
	default:
		return n.with(n.left, n.right.insert(key, value, priority))
	}
}

func (n *node) delete(key []byte) *node {
	if n == nil {
		return nil
	}
	switch c := bytes.Compare(key, n.key); {
	case c < 0:
		if left := n.left.delete(key); left != n.left {
			return n.with(left, n.right)
		}
	case c > 0:
		if right := n.right.delete(key); right != n.right {
			return n.with(n.left, right)
		}
	default:
		return join(n.left, n.right)
	}
	return n
}

// split returns the keys below key, and the others.
func (n *node) split(key []byte) (below, rest *node) {
	if n == nil {
		return nil, nil
	}
	if bytes.Compare(n.key, key) < 0 {
		below, rest = n.right.split(key)
		return n.with(n.left, below), rest
	}
	below, rest = n.left.split(key)
	return below, n.with(rest, n.right)
}

// join makes one tree of two, all keys of a being below all of b.
func join(a, b *node) *node {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		return a.with(a.left, join(a.right, b))
	default:
		return b.with(join(a, b.left), b.right)
	}
}
