package event_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
)

// Nobody is shown what is not durable: not Last, not a reader, not a follower, not an
// offset. And what is durable is shown, though a later append is not.
func TestOnlyDurableIsShown(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		synctest.Test(t, func(t *testing.T) { testOnlyDurableIsShown(t, st) })
	})
}

func testOnlyDurableIsShown(t *testing.T, st *fakeEngine) {
	s := openLog(t, st, event.Options{Level: holdfast.Memory})
	appendOK(t, s, typed("1")...)
	st.Hold()

	seen := make(chan uint64, 100)
	stop, cancel := context.WithCancel(ctx)
	followed := make(chan error)
	go func() {
		var last error
		for e, err := range s.Follow(stop, 1) {
			if last = err; err == nil {
				seen <- e.Position
			}
		}
		followed <- last
	}()
	if pos := <-seen; pos != 1 {
		t.Fatal(pos)
	}

	var pending []event.Pending
	for i := 2; i <= 4; i++ {
		p, err := s.Submit(ctx, event.Event{Type: fmt.Sprint(i), ID: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		pending = append(pending, p)
	}
	hidden := func(last uint64) {
		t.Helper()
		wantHead(t, s, 1, last)
		if got := readOK(t, s, 1, 0); len(got) != int(last) {
			t.Fatalf("%d events are shown, %d are durable", len(got), last)
		}
		if got := readOK(t, s, last+1, 0); len(got) != 0 {
			t.Fatalf("a reader sees %+v", got)
		}
		wantError(t, s.SaveOffset(ctx, "sub", last+1), event.ErrAhead)
		synctest.Wait()
		select {
		case pos := <-seen:
			t.Fatalf("a follower saw position %d, %d is durable", pos, last)
		default:
		}
	}
	hidden(1)
	// A conflict, a repeat and an expectation count what is under way.
	_, err := s.SubmitAfter(ctx, 1, typed("x")...)
	wantError(t, err, event.ErrConflict)
	again, err := s.Submit(ctx, event.Event{Type: "3", ID: "3"})
	if err != nil || (again.Result() != event.Result{First: 3, Last: 3, Repeated: true}) {
		t.Fatal(again, err)
	}
	repeated := make(chan error)
	go func() { _, err := again.Wait(); repeated <- err }()
	synctest.Wait()
	select {
	case err := <-repeated:
		t.Fatalf("a repeat was acknowledged (%v) before the first", err)
	default:
	}

	st.Release(1)
	if _, err := pending[0].Wait(); err != nil {
		t.Fatal(err)
	}
	if pos := <-seen; pos != 2 {
		t.Fatal(pos)
	}
	hidden(2)
	// Nobody waits for the others but the follower.
	st.Release(-1)
	for want := uint64(3); want <= 4; want++ {
		if pos := <-seen; pos != want {
			t.Fatal(pos)
		}
	}
	if err := <-repeated; err != nil {
		t.Fatal(err)
	}
	cancel()
	wantError(t, <-followed, context.Canceled)
	closeLog(t, s)
}

// Offsets and snapshots are returned only once they are durable.
func TestCursorsAreDurable(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		s := openLog(t, st, event.Options{Level: holdfast.Memory})
		defer closeLog(t, s)
		appendOK(t, s, typed("1")...)
		st.Hold()
		saved, loaded := make(chan error, 1), make(chan error, 1)
		go func() { saved <- s.SaveOffset(ctx, "sub", 1) }()
		st.AwaitWaiters(1)
		go func() { _, err := s.LoadOffset(ctx, "sub"); loaded <- err }()
		storetest.Unfinished(t, saved, loaded)
		// Others do not wait for it, and whoever does may give up.
		_, err := s.LoadOffset(ctx, "other")
		wantError(t, err, holdfast.ErrNotFound)
		stop, cancel := context.WithCancel(ctx)
		gaveUp := storetest.Async(func() error { _, _, err := s.LoadSnapshot(stop, "sub"); return err })
		storetest.Finished(t, holdfast.ErrNotFound, gaveUp)
		gaveUp = storetest.Async(func() error { _, err := s.LoadOffset(stop, "sub"); return err })
		cancel()
		storetest.Finished(t, context.Canceled, gaveUp)
		st.Release(-1)
		if err := <-saved; err != nil {
			t.Fatal(err)
		}
		if err := <-loaded; err != nil && !(st.Late && errors.Is(err, holdfast.ErrNotFound)) {
			t.Fatal(err)
		}
		if pos, err := s.LoadOffset(ctx, "sub"); err != nil || pos != 1 {
			t.Fatal(pos, err)
		}
	})
}

// A refused Apply leaves no hole.
func TestRefusedApply(t *testing.T) {
	st := newFakeEngine()
	s := openLog(t, st, event.Options{Level: holdfast.Memory})
	defer closeLog(t, s)
	appendOK(t, s, typed("1")...)
	full := errors.New("no space left on device")
	st.Locked(func() { st.Refuse = full })
	_, err := s.Append(ctx, event.Event{Type: "x", ID: "x"})
	wantError(t, err, full)
	st.Locked(func() { st.Refuse = nil })
	if r := appendOK(t, s, event.Event{Type: "2", ID: "x"}); (r != event.Result{First: 2, Last: 2}) {
		t.Fatal(r)
	}
	wantTypes(t, s, 1, "1", "2")
}

// After a failed Wait nothing of it, or of what comes later, is shown or acknowledged; what
// was durable can still be read; followers and all later calls are told the cause.
func TestFailedWait(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		s := openLog(t, st, event.Options{Level: holdfast.Memory})
		appendOK(t, s, typed("1", "2")...)
		followed := make(chan error)
		go func() {
			var last error
			for e, err := range s.Follow(ctx, 2) {
				if last = err; err == nil && e.Position != 2 {
					last = fmt.Errorf("a follower saw position %d", e.Position)
					break
				}
			}
			followed <- last
		}()
		st.Hold()
		p, err := s.Submit(ctx, typed("3")...)
		if err != nil {
			t.Fatal(err)
		}
		cause := errors.New("input/output error")
		st.Locked(func() { st.Fail = cause })
		_, err = p.Wait()
		wantError(t, err, holdfast.ErrPoisoned)
		wantError(t, <-followed, cause)
		_, err = s.Append(ctx, typed("4")...)
		wantError(t, err, cause)
		wantError(t, s.SaveOffset(ctx, "sub", 1), cause)
		_, err = s.TruncateBefore(ctx, 2)
		wantError(t, err, cause)
		wantHead(t, s, 1, 2)
		wantTypes(t, s, 1, "1", "2")
		wantError(t, s.Close(), cause)
	})
}

// Where removing a range costs what is in it, truncation goes in chunks as small as the
// engine needs, and takes up again what a failure interrupted.
func TestTruncateInChunks(t *testing.T) {
	const n = 1000
	st := newFakeEngine()
	st.Native, st.Ops = false, 100
	s := openLog(t, st, event.Options{Level: holdfast.Memory})
	for range n {
		appendOK(t, s, typed("x")...)
	}
	stop, cancel := context.WithCancel(ctx)
	cancel()
	_, err := s.TruncateBefore(stop, 500)
	wantError(t, err, context.Canceled)
	wantHead(t, s, 1, n)
	before := st.Applied
	if removed, err := s.TruncateBefore(ctx, 500); err != nil || removed != 499 {
		t.Fatal(removed, err)
	}
	if left := len(entries(t, st)); left != n-499 {
		t.Fatalf("%d events are left", left)
	}
	if chunks := st.Applied - before; chunks < 5 || st.Ranges > 0 {
		t.Fatalf("it took %d batches, and %d ranges", chunks, st.Ranges)
	}

	// The beginning has moved, but the removal fails.
	full := errors.New("no space left on device")
	st.Refuse, st.Spare = full, 1
	removed, err := s.TruncateBefore(ctx, n+1)
	wantError(t, err, full)
	if removed != n+1-500 {
		t.Fatalf("%d removed", removed)
	}
	wantHead(t, s, n+1, n)
	closeLog(t, s)
	if left := len(entries(t, st)); left != n-499 {
		t.Fatalf("%d events are left", left)
	}
	st.Refuse = nil
	s = openLog(t, st, event.Options{Level: holdfast.Memory})
	defer closeLog(t, s)
	wantHead(t, s, n+1, n)
	if got := readOK(t, s, 0, 0); len(got) != 0 {
		t.Fatalf("truncated events came back: %+v", got)
	}
	_, err = s.Read(ctx, n, 1)
	wantError(t, err, event.ErrTruncated)
	if r := appendOK(t, s, typed("next")...); r.First != n+1 {
		t.Fatal(r)
	}
	if removed, err := s.TruncateBefore(ctx, n+1); err != nil || removed != 0 {
		t.Fatal(removed, err)
	}
	if left := len(entries(t, st)); left != 1 {
		t.Fatalf("%d events are left", left)
	}
}

// Where removing a range costs what is in it, a chunk has few keys, and few bytes, so that an append
// between two of them waits for little.
func TestTruncateInSmallChunks(t *testing.T) {
	for _, c := range []struct {
		name         string
		events, size int
		least        int // chunks
	}{
		{"many", 4 * chunks.Keys, 0, 4},
		{"large", 64, 1 << 17, 64 << 17 / chunks.Bytes},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := newFakeEngine()
			st.Native = false
			s := openLog(t, st, event.Options{Level: holdfast.Memory})
			defer closeLog(t, s)
			for range c.events {
				appendOK(t, s, event.Event{Data: make([]byte, c.size)})
			}
			st.Hold()
			before := st.Applied
			truncated := storetest.Async(func() error { _, err := s.TruncateBefore(ctx, s.Last()); return err })
			st.AwaitApplied(before + 1)
			st.Release(1) // the beginning has moved
			st.AwaitApplied(before + 2)
			// An append needs the chunk before it, and no more.
			p, err := s.Submit(ctx, typed("between")...)
			if err != nil {
				t.Fatal(err)
			}
			st.Release(2)
			if _, err := p.Wait(); err != nil {
				t.Fatal(err)
			}
			if left := len(entries(t, st)); left < c.events/2 {
				t.Fatalf("%d events were left when the append had come through", left)
			}
			st.Release(-1)
			storetest.Finished(t, nil, truncated)
			if left := len(entries(t, st)); left != 2 || int(st.Applied-before) < c.least {
				t.Fatalf("%d events are left after %d batches", left, st.Applied-before)
			}
			wantTypes(t, s, s.Last(), "between")
		})
	}
}

// Close does not wait for the rest of a truncation, and the next one goes on with it.
func TestCloseBetweenChunks(t *testing.T) {
	st := newFakeEngine()
	st.Native = false
	s := openLog(t, st, event.Options{Level: holdfast.Memory})
	const n = 8 * chunks.Keys
	for range n {
		appendOK(t, s, event.Event{})
	}
	st.Hold()
	before := st.Applied
	truncated := storetest.Async(func() error { _, err := s.TruncateBefore(ctx, n); return err })
	st.AwaitApplied(before + 1)
	st.Release(1)
	st.AwaitApplied(before + 2)
	closing := storetest.Async(s.Close)
	for err := error(nil); err != holdfast.ErrClosed; _, err = s.Read(ctx, 0, 1) { // until Close has begun
		runtime.Gosched()
	}
	st.Release(-1)
	storetest.Finished(t, nil, closing)
	storetest.Finished(t, holdfast.ErrClosed, truncated)
	if left := len(entries(t, st)); left < n/2 {
		t.Fatalf("%d events are left: Close has waited for more than a chunk", left)
	}
	s = openLog(t, st, event.Options{Level: holdfast.Memory})
	defer closeLog(t, s)
	wantHead(t, s, n, n)
	if removed, err := s.TruncateBefore(ctx, n); removed != 0 || err != nil {
		t.Fatal(removed, err)
	}
	if left := len(entries(t, st)); left != 1 {
		t.Fatalf("%d events are left", left)
	}
}

// Limits are those of the engine, and are refused before anything happens.
func TestLimits(t *testing.T) {
	st := newFakeEngine()
	s := openLog(t, st, event.Options{Level: holdfast.Memory})
	defer closeLog(t, s)
	caps := st.Capabilities()
	header := 9 + 3 + 4 // 3 bytes for the length of the metadata, 1 for that of the others
	applied := st.Applied
	for _, c := range []struct {
		class  error
		events []event.Event
	}{
		{event.ErrBadEvent, nil},
		{event.ErrBadEvent, named(strings.Repeat("i", event.MaxIDSize+1))},
		{event.ErrBadEvent, []event.Event{{Time: time.Date(1600, 1, 1, 0, 0, 0, 0, time.UTC)}}},
		{event.ErrBadEvent, []event.Event{{Time: time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)}}},
		{event.ErrBadEvent, []event.Event{{ID: "a"}, {}}},
		{holdfast.ErrTooLarge, []event.Event{{Metadata: make([]byte, int(caps.MaxValueSize)-header+1), Data: []byte{1}}}},
		{holdfast.ErrTooLarge, make([]event.Event, 100_000)},
		{holdfast.ErrTooLarge, slices.Repeat([]event.Event{{Data: make([]byte, 200_000)}}, 6)},
	} {
		_, err := s.Append(ctx, c.events...)
		wantError(t, err, c.class)
	}
	wantError(t, s.SaveSnapshot(ctx, "s", 0, make([]byte, caps.MaxValueSize)), holdfast.ErrTooLarge)
	wantHead(t, s, 1, 0)
	if st.Applied != applied {
		t.Fatal("something was applied")
	}
	// The largest event that fits.
	large := event.Event{Metadata: make([]byte, int(caps.MaxValueSize)-header)}
	appendOK(t, s, large)
	if got := readOK(t, s, 1, 0); len(got[0].Metadata) != len(large.Metadata) {
		t.Fatal(len(got[0].Metadata))
	}
}

// What Open finds that is not its own.
func TestBadStores(t *testing.T) {
	key := func(table string) []byte { return []byte("e\x00" + table) }
	pos := "\x00\x00\x00\x00\x00\x00\x00\x01"
	for _, c := range []struct {
		name       string
		key        []byte
		value      string
		open, read error
	}{
		{"a newer format", key("m"), "\x06 whatever it says", holdfast.ErrVersion, nil},
		{"an empty description", key("m"), "", holdfast.ErrCorrupt, nil},
		{"a short description", key("m"), "\x01\x00", holdfast.ErrCorrupt, nil},
		{"no description", key("e" + pos), "\x01", holdfast.ErrCorrupt, nil},
		{"a short key", key("e\xff"), "\x01", holdfast.ErrCorrupt, nil},
		{"a long key", key("e" + pos + "x"), "\x01", holdfast.ErrCorrupt, nil},
		{"a description of nothing", key("m"), "\x01" + strings.Repeat("\x00", 16), holdfast.ErrCorrupt, nil},
		{"a gap", key("e\x00\x00\x00\x00\x00\x00\x00\x09"), "\x01", nil, holdfast.ErrCorrupt},
		{"a bad record", key("e" + pos), "\x07", nil, holdfast.ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			eng := mem.New()
			if c.read != nil {
				closeLog(t, openLog(t, eng, event.Options{Level: holdfast.Memory}))
			}
			var b holdfast.Batch
			b.Set(c.key, []byte(c.value))
			if err := holdfast.Commit(eng, &b, holdfast.Memory); err != nil {
				t.Fatal(err)
			}
			s, err := event.Open(kv.On(eng), event.Options{Level: holdfast.Memory})
			if c.open != nil {
				wantError(t, err, c.open)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer closeLog(t, s)
			_, err = s.Read(ctx, 1, 0)
			wantError(t, err, c.read)
		})
	}
	for _, err := range []error{
		func() error { _, err := event.Open(kv.On(mem.New()), event.Options{}); return err }(),
		func() error { _, err := event.Open(kv.On(mem.New()), event.Options{Level: 9}); return err }(),
	} {
		wantError(t, err, holdfast.ErrLevel)
	}
	_, err := event.Open(kv.On(nil), event.Options{})
	wantError(t, err, holdfast.ErrBadOption)
	_, err = event.Open(kv.On(storetest.Torn()), event.Options{Level: holdfast.Memory})
	wantError(t, err, holdfast.ErrBadOption)
}

// Damaged cursors are told, not guessed at.
func TestBadCursors(t *testing.T) {
	eng := mem.New()
	s := openLog(t, eng, event.Options{Level: holdfast.Memory})
	defer closeLog(t, s)
	var b holdfast.Batch
	b.Set([]byte("e\x00osub"), []byte{1, 2, 3})
	b.Set([]byte("e\x00olong"), []byte("\x01\x00\x00\x00\x00\x00\x00\x00\x00 and more"))
	b.Set([]byte("e\x00ssub"), nil)
	if err := holdfast.Commit(eng, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sub", "long"} {
		_, err := s.LoadOffset(ctx, name)
		wantError(t, err, holdfast.ErrCorrupt)
	}
	_, _, err := s.LoadSnapshot(ctx, "sub")
	wantError(t, err, holdfast.ErrCorrupt)
}
