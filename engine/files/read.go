package files

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/internal/treap"
)

// view is a state that a snapshot or iterator sees; nil for one Get, which sees the latest.
type view struct {
	index *node
	state uint64
}

// seen is a state and how many views of it there are.
type seen struct {
	state uint64
	views int
}

// old is a replaced file that views of states before until see.
type old struct{ number, until uint64 }

// View implements [driver.Core].
func (e *engine) View(op driver.Op) (*view, error) {
	if op == driver.Get {
		return nil, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()

	// States are entered in order, so views stays sorted by itself.
	if n := len(e.views); n > 0 && e.views[n-1].state == e.state {
		e.views[n-1].views++
	} else {
		e.views = append(e.views, seen{e.state, 1})
	}

	return &view{e.index, e.state}, nil
}

// Drop implements [driver.Core]. It removes the files that no other view needs.
func (e *engine) Drop(v *view) error {
	if v == nil {
		return nil
	}

	// The names are removed after the lock is given back: readers need not wait for that.
	var free []old
	e.mu.Lock()
	i := slices.IndexFunc(e.views, func(s seen) bool { return s.state == v.state })

	// A kept file is needed by views of states before its until. The oldest view that is left decides.
	if e.views[i].views--; e.views[i].views == 0 {
		e.views = slices.Delete(e.views, i, i+1)
		n := len(e.kept)
		if len(e.views) > 0 {
			if i := slices.IndexFunc(e.kept, func(o old) bool { return o.until > e.views[0].state }); i >= 0 {
				n = i
			}
		}
		if n > 0 {
			free, e.kept = e.kept[:n:n], e.kept[n:]
		}
	}
	e.mu.Unlock()

	for _, o := range free {
		_ = e.data.Remove(oldName(o.number)) // or the next Open does
	}

	return nil
}

// retire replaces or removes the file of a key by calling change. If a view sees it, it is kept under another name. It
// is called with mu held.
func (e *engine) retire(key []byte, name string, change func() error) error {
	if err := e.hooks.write(name); err != nil {
		return err
	}
	f, ok := e.index.Get(key)
	if !ok || len(e.views) == 0 || e.views[len(e.views)-1].state < f.since {
		return change()
	}

	// The link comes first. A crash after it leaves a second name, which the next Open removes.
	e.number++
	if err := e.data.Link(name, oldName(e.number)); err != nil {
		return err
	}
	if err := change(); err != nil {
		_ = e.data.Remove(oldName(e.number)) // or the next Open does
		return err
	}

	// The node in older indexes points to the same file, so that views find it by its new name.
	f.kept = e.number
	e.kept = append(e.kept, old{e.number, e.state + 1})

	return nil
}

// Read implements [driver.Core].
func (e *engine) Read(v *view, dst, key []byte) ([]byte, error) {
	// Held until the file is open: a commit could give it another name between finding and opening.
	e.mu.RLock()
	index := e.index
	if v != nil {
		index = v.index
	}
	version, ok := index.Get(key)
	if !ok {
		e.mu.RUnlock()
		return dst, holdfast.ErrNotFound
	}

	return e.read("get", dst, key, version)
}

// read appends the value of a version of a key. It is called with mu held for reading, and releases it: a file that is
// open may be replaced, except on Windows.
func (e *engine) read(op string, dst, key []byte, version *file) ([]byte, error) {
	name, _ := nameOf(key)
	if version.kept > 0 {
		name = oldName(version.kept)
	}
	f, err := e.data.OpenFile(name, os.O_RDONLY, 0)
	out := dst
	if runtime.GOOS == "windows" && err == nil {
		out, err = readValue(f, dst, key)
	}
	e.mu.RUnlock()
	if runtime.GOOS != "windows" && err == nil {
		out, err = readValue(f, dst, key)
	}
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		// If the directory is not where it was, that explains the error better.
		if replaced := e.datadir.Check(); replaced != nil {
			return dst, replaced
		}

		return dst, e.unreadable(op, name, err)
	}

	return out, nil
}

// Walk implements [driver.Core].
func (e *engine) Walk(h driver.Hold[*view], r holdfast.Range) (holdfast.Iterator, error) {
	r.Lo, r.Hi = bytes.Clone(r.Lo), bytes.Clone(r.Hi)
	return driver.NewIterator(&cursor{Hold: h, e: e, index: h.View.index.Walk(r)}), nil
}

// cursor is a [driver.Cursor] over the index that its view sees. It reads a value when it gets to the key.
type cursor struct {
	driver.Hold[*view]
	e     *engine
	index treap.Cursor[*file]
	value []byte
}

// Next implements [driver.Cursor].
func (c *cursor) Next() (key, value []byte, err error) {
	n := c.index.Next()
	if n == nil {
		return nil, nil, nil
	}

	// read gives the lock back.
	c.e.mu.RLock()
	c.value, err = c.e.read("scan", c.value[:0], n.Key, n.Value)

	return n.Key, c.value, err
}

// Close implements [driver.Cursor].
func (c *cursor) Close() error {
	c.End()
	return nil
}
