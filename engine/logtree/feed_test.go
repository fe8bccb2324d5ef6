package logtree_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestFeedLetsGo: a feed that is not advanced gives up the log when there is too much of it, says so, and goes on from
// where the log is when it is advanced. Before that it has every byte of the log, in order.
func TestFeedLetsGo(t *testing.T) {
	e, err := logtree.Open(t.TempDir(), holdfast.Options{MemoryBytes: 1 << 20})
	testkit.Try(t, err)
	defer func() { testkit.Try(t, e.Close()) }()
	f, err := logtree.OpenFeed(e, 2<<20)
	testkit.Try(t, err)
	defer f.Close()
	fill := func(bytes int) {
		for i := range bytes / 1000 {
			var b holdfast.Batch
			b.Set(fmt.Appendf(nil, "key-%d", i%10), make([]byte, 1000)) // which soon is garbage
			testkit.Try(t, holdfast.Commit(e, &b, holdfast.Memory))
		}
	}

	fill(800 << 10)
	begin := f.Begin()
	list, end, ok, err := f.Log()
	testkit.Try(t, err)
	frames := int64(0)
	for _, s := range list {
		n := int64(0)
		testkit.Try(t, f.Read(t.Context(), s, func(b []byte) error { n += int64(len(b)); return nil }))
		if n != s.To-s.From {
			t.Errorf("%+v has %d bytes", s, n)
		}
		if s.From == 0 {
			n -= 64 // the header of a segment is no frame
		}
		frames += n
	}
	if !ok || frames != int64(end.LSN-begin.LSN) || len(list) < 2 {
		t.Errorf("%v: %d bytes of frames from %+v to %+v", list, frames, begin, end)
	}
	if at := f.Advance(end); at != end {
		t.Errorf("at %+v, not %+v", at, end)
	}
	if list, _, ok, err := f.Log(); len(list) > 0 || !ok || err != nil {
		t.Error(list, ok, err)
	}

	fill(8 << 20)
	if list, end, ok, err = f.Log(); ok || err != nil {
		t.Fatal(list, ok, err)
	}
	if at := f.Advance(end); at != end {
		t.Errorf("at %+v, not %+v", at, end)
	}
	fill(10 << 10)
	if list, _, ok, err = f.Log(); !ok || err != nil || len(list) == 0 {
		t.Error(list, ok, err)
	}
}

// TestFeedHolds: what a state names can be read until it is released, whatever is flushed and compacted meanwhile.
func TestFeedHolds(t *testing.T) {
	e, err := logtree.Open(t.TempDir(), holdfast.Options{MemoryBytes: 1 << 20})
	testkit.Try(t, err)
	fill := func(with byte) {
		for i := range 2000 {
			var b holdfast.Batch
			b.Set(fmt.Appendf(nil, "key-%d", i), bytes.Repeat([]byte{with}, 1000))
			testkit.Try(t, holdfast.Commit(e, &b, holdfast.Memory))
		}
	}
	fill(1)
	f, err := logtree.OpenFeed(e, 1<<30)
	testkit.Try(t, err)
	state, err := f.State()
	testkit.Try(t, err)
	fill(2)
	testkit.Try(t, holdfast.Compact(t.Context(), e, holdfast.Range{}))
	for _, s := range state.Files {
		testkit.Try(t, f.Read(t.Context(), s, func([]byte) error { return nil }))
	}
	if err := e.Close(); !errors.Is(err, holdfast.ErrBusy) {
		t.Errorf("Close with an open feed: %v", err)
	}
	state.Release()
	f.Close()
	f.Close()
	testkit.Try(t, e.Close())
}

func TestFeedRefused(t *testing.T) {
	refused := func(e holdfast.Engine) {
		t.Helper()
		if _, err := logtree.OpenFeed(e, 1<<20); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("OpenFeed of %s: %v", e.Capabilities().Engine, err)
		}
		testkit.Try(t, e.Close())
	}
	m, err := mem.Open("", holdfast.Options{})
	testkit.Try(t, err)
	refused(m)
	inMemory, err := logtree.OpenMem(vfs.NewMem(), "/db", holdfast.Options{})
	testkit.Try(t, err)
	refused(inMemory)
	dir := filepath.Join(t.TempDir(), "db")
	e, err := logtree.Open(dir, holdfast.Options{})
	testkit.Try(t, err)
	testkit.Try(t, e.Close())
	e, err = logtree.Open(dir, holdfast.Options{ReadOnly: true})
	testkit.Try(t, err)
	refused(e)
}
