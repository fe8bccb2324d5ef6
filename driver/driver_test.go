package driver_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

// core is an engine whose states are numbers. It notes which of them are in use.
type core struct {
	driver.Engine[int]
	made     int
	used     map[int]driver.Op
	walkFail error
	settles  int
	settle   func() error // nil: it succeeds
}

func (c *core) View(op driver.Op) (int, error) {
	c.made++
	c.used[c.made] = op
	return c.made, nil
}

func (c *core) Drop(v int) error {
	if _, ok := c.used[v]; !ok {
		return errors.New("it was done before")
	}
	delete(c.used, v)
	return nil
}

func (c *core) Read(int, []byte, []byte) ([]byte, error) { return nil, holdfast.ErrNotFound }

func (c *core) Walk(h driver.Hold[int], _ holdfast.Range) (holdfast.Iterator, error) {
	if c.used[h.View] == "" {
		return nil, errors.New("the view is not in use")
	}
	return &iterator{holdfast.FailedIterator(nil), h}, c.walkFail
}

type iterator struct {
	holdfast.Iterator
	hold driver.Hold[int]
}

func (i *iterator) Close() error {
	i.hold.End()
	return nil
}

func (c *core) Write(*holdfast.Batch, holdfast.Level) (holdfast.Receipt, error) {
	return holdfast.Receipt{}, nil
}
func (c *core) Settle() error {
	if c.settles++; c.settle != nil {
		return c.settle()
	}
	return nil
}
func (c *core) Measure(*holdfast.Metrics) {}
func (c *core) Release(err error) error   { return err }

func newCore(given holdfast.Level) *core {
	c := &core{used: map[int]driver.Op{}}
	c.Init(c, holdfast.Capabilities{Engine: "core", Process: holdfast.Promise{Given: given}, MaxKeySize: 4,
		MaxValueSize: 8, MaxBatchSize: 16}, "")
	return c
}

// A view is done once, when the last of those that use it is: a Get, a failed or closed iterator, a snapshot and its
// iterators in whatever order they are closed. Close refuses until then.
func TestViewsEnd(t *testing.T) {
	c := newCore(holdfast.Process)
	if _, err := c.Get(nil, []byte("k")); err != holdfast.ErrNotFound || len(c.used) > 0 {
		t.Fatal(err, c.used)
	}
	c.walkFail = errors.New("no memory")
	if it := c.Scan(holdfast.Range{}); it.Err() != c.walkFail || len(c.used) > 0 {
		t.Fatal(it.Err(), c.used)
	}
	none := c.Scan(holdfast.Range{Lo: []byte("b"), Hi: []byte("b")})
	if none.Next() || none.Err() != nil || c.made != 2 {
		t.Fatal("an empty range needed a view", none.Err())
	}
	if err := c.Close(); !errors.Is(err, holdfast.ErrBusy) {
		t.Fatal("closed with an iterator over an empty range:", err)
	}
	if err := errors.Join(none.Close(), none.Close()); err != nil {
		t.Fatal(err)
	}
	c.walkFail = nil
	for order, its := range []int{2, 1, 0} {
		s, err := c.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		open := []interface{ Close() error }{s.Scan(holdfast.Range{}), s.Scan(holdfast.Range{})}
		open = append(open[:its], append([]interface{ Close() error }{s}, open[its:]...)...)
		for _, o := range open {
			if len(c.used) != 1 {
				t.Errorf("order %d: %v", order, c.used)
			}
			if err := c.Close(); !errors.Is(err, holdfast.ErrBusy) {
				t.Fatal(err)
			}
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(); len(c.used) > 0 || err != nil {
			t.Errorf("order %d: %v, %v", order, c.used, err)
		}
	}
	c.settles = 0
	if err := c.Close(); err != nil || c.settles != 2 {
		t.Fatal(err, c.settles)
	}
	if err := c.Close(); !errors.Is(err, holdfast.ErrClosed) || err.Error() != "core: closed" {
		t.Fatal(err)
	}
}

// An engine that gives no level settles nothing, and syncs nothing; a batch over the limit of any other is refused.
func TestRefusals(t *testing.T) {
	reads := newCore(0)
	if err := reads.Sync(); !errors.Is(err, holdfast.ErrLevel) {
		t.Error(err)
	}
	if err := reads.Close(); err != nil || reads.settles != 0 {
		t.Error(err, reads.settles)
	}
	c := newCore(holdfast.Process)
	var b holdfast.Batch
	b.Set([]byte("key"), []byte("value"))
	if _, err := c.Apply(&b, holdfast.Power); !errors.Is(err, holdfast.ErrLevel) {
		t.Error(err)
	}
	b.Reset()
	if _, err := c.Apply(&b, holdfast.Process); err != nil {
		t.Error(err)
	}
}

// A batch is refused by the limits that the engine names, not only by those of the contract, and in the contract's
// order. Bounds of ranges and keys that are read may be longer than the engine's keys.
func TestLimits(t *testing.T) {
	c := newCore(holdfast.Process)
	fill := func(n int) []byte { return make([]byte, n) }
	for name, x := range map[string]struct {
		fill func(b *holdfast.Batch)
		want error
		says string
	}{
		"as long as it may be": {func(b *holdfast.Batch) { b.Set(fill(4), fill(8)) }, nil, ""},
		"a key": {func(b *holdfast.Batch) { b.Set(fill(1), nil); b.Set(fill(5), nil) },
			holdfast.ErrBadKey, "index 1"},
		"a key to delete": {func(b *holdfast.Batch) { b.Delete(fill(5)) }, holdfast.ErrBadKey, "5 bytes"},
		"bounds":          {func(b *holdfast.Batch) { b.DeleteRange(fill(5), fill(6)) }, nil, ""},
		"a value":         {func(b *holdfast.Batch) { b.Set(fill(1), fill(9)) }, holdfast.ErrTooLarge, "9 bytes"},
		"a batch": {func(b *holdfast.Batch) { b.Set(fill(4), fill(8)); b.Delete(fill(1)) },
			holdfast.ErrTooLarge, "18 bytes, the limit is 16"},
		"all of it, the key last": {func(b *holdfast.Batch) { b.Set(fill(1), fill(20)); b.Set(fill(5), nil) },
			holdfast.ErrBadKey, "index 1"},
	} {
		var b holdfast.Batch
		x.fill(&b)
		_, err := c.Apply(&b, holdfast.Process)
		if !errors.Is(err, x.want) || err != nil && !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: got %v, want %v with %q", name, err, x.want, x.says)
		}
	}
	if _, err := c.Get(nil, fill(5)); err != holdfast.ErrNotFound {
		t.Error("a key that is read:", err)
	}
}

// Done and Err tell of the first end, the poison or Close, and never of another. A Close that poisons the engine ends
// it by that.
func TestEnding(t *testing.T) {
	poison := &holdfast.Error{Op: "write", Class: holdfast.ErrPoisoned}
	for name, x := range map[string]struct {
		want error
		end  func(c *core)
	}{
		"Close": {holdfast.ErrClosed, func(c *core) { _ = c.Close() }},
		"a poison": {poison, func(c *core) {
			c.Life.Poison(poison)
			c.Life.Poison(errors.New("another"))
		}},
		"a Close that fails": {poison, func(c *core) {
			c.settle = func() error { c.Life.Poison(poison); return poison }
			_ = c.Close()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCore(holdfast.Process)
			var e holdfast.Engine = c
			told := make(chan error)
			for range 3 {
				go func() { <-e.Done(); told <- e.Err() }()
			}
			done := e.Done()
			select {
			case <-done:
				t.Fatal("it has not ended")
			default:
			}
			if err := e.Err(); err != nil {
				t.Fatal(err)
			}
			x.end(c)
			if _, open := <-e.Done(); open || e.Done() != done {
				t.Error("it is another channel")
			}
			for range 3 {
				if err := <-told; !errors.Is(err, x.want) || err != e.Err() {
					t.Errorf("%v, and later %v", err, e.Err())
				}
			}
			why := e.Err()
			_ = c.Close()
			c.Life.Poison(errors.New("another"))
			if e.Err() != why {
				t.Errorf("first %v, then %v", why, e.Err())
			}
		})
	}
}
