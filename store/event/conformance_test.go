package event_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// TestConformance is what a log promises, on every engine at every level that it gives.
func TestConformance(t *testing.T) {
	cases := []struct {
		name string
		run  func(t *testing.T, tg *target, o event.Options)
	}{
		{"fields come back", testFields},
		{"transactions", testTransactions},
		{"ranges", testRanges},
		{"expected position", testExpected},
		{"conflicts", testConflicts},
		{"ids", testIDs},
		{"id window", testWindow},
		{"pipelining", testSubmit},
		{"following", testFollow},
		{"engine closed first", testEngineGone},
		{"offsets and snapshots", testCursors},
		{"lists", testLists},
		{"retention", testRetention},
		{"packs", testPacks},
		{"truncation", testTruncation},
		{"gaps", testGaps},
		{"edits", testEdits},
		{"operations of the caller", testDraft},
		{"names", testNames},
		{"opening again", testReopen},
	}
	targets(t, func(t *testing.T, tg *target) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) { c.run(t, tg, event.Options{Name: c.name, Level: tg.Level}) })
		}
	})
}

func testFields(t *testing.T, tg *target, o event.Options) {
	s := openLog(t, tg.Engine, o)
	defer closeLog(t, s)
	wantHead(t, s, 1, 0)
	if got := readOK(t, s, 1, 0); len(got) != 0 {
		t.Fatalf("a new log has %d events", len(got))
	}
	zone := time.FixedZone("east", 5*3600)
	in := []event.Event{
		{Type: "full", ID: "id-1", Origin: "here", Metadata: []byte{0, 1, 2}, Data: []byte("payload"),
			Time: time.Date(2026, 2, 3, 4, 5, 6, 789, zone)},
		{ID: "id-2", Time: time.Unix(0, -1)},
		{Type: strings.Repeat("t", 300), ID: strings.Repeat("i", event.MaxIDSize), Data: bytes.Repeat([]byte{7}, 100_000),
			Time: time.Unix(9_223_372_035, 999_999_999)},
		{Type: "\x00\xff", ID: "\x00", Origin: "\xfe", Metadata: []byte{0}, Time: time.Unix(-9_223_372_036, 0)},
	}
	at := appendOK(t, s, in...)
	if (at != event.Result{First: 1, Last: 4}) {
		t.Fatalf("the result is %+v", at)
	}
	before := time.Now()
	appendOK(t, s, event.Event{Type: "now", Position: 99})
	out := readOK(t, s, 0, 0)
	if len(out) != 5 {
		t.Fatalf("%d events came back", len(out))
	}
	for i, e := range in {
		e.Position = uint64(i) + 1
		if err := same(out[i], e); err != nil {
			t.Error(err)
		}
		if out[i].Time.Location() != time.UTC {
			t.Errorf("the time is in %v", out[i].Time.Location())
		}
	}
	if now := out[4].Time; now.Before(before.Add(-time.Second)) || now.After(time.Now().Add(time.Second)) {
		t.Errorf("the time given is %v", now)
	}
	if out[1].Data != nil || out[1].Metadata != nil {
		t.Error("nothing came back as something")
	}
}

func testRanges(t *testing.T, tg *target, o event.Options) {
	s := openLog(t, tg.Engine, o)
	defer closeLog(t, s)
	const n = 2500 // several pages
	for i := 0; i < n; i += 500 {
		var batch []event.Event
		for j := range 500 {
			batch = append(batch, event.Event{Type: fmt.Sprint(i + j + 1), Data: bytes.Repeat([]byte{byte(j)}, j)})
		}
		appendOK(t, s, batch...)
	}
	for _, c := range []struct {
		from        uint64
		limit, want int
	}{
		{0, 0, n}, {1, 0, n}, {1, 1, 1}, {1, 100, 100}, {2, 128, 128}, {1000, 1500, 1500}, {n, 0, 1}, {n, 9, 1},
		{n + 1, 0, 0}, {n - 5, math.MaxInt, 6},
	} {
		got := readOK(t, s, c.from, c.limit)
		if len(got) != c.want {
			t.Fatalf("Read(%d, %d) gave %d events, want %d", c.from, c.limit, len(got), c.want)
		}
		i := max(c.from, 1)
		for r, err := range s.Records(ctx, c.from, c.limit) {
			if err != nil {
				t.Fatal(err)
			}
			e := got[i-max(c.from, 1)]
			if e.Position != i || e.Type != fmt.Sprint(i) || len(e.Data) != int(i-1)%500 {
				t.Fatalf("at position %d: %d %q, %d bytes", i, e.Position, e.Type, len(e.Data))
			}
			if err := same(r.Event(), e); err != nil {
				t.Fatal(err)
			}
			i++
		}
		if i != max(c.from, 1)+uint64(c.want) {
			t.Fatalf("Records(%d, %d) ended before position %d", c.from, c.limit, i)
		}
	}
	_, err := s.Read(ctx, n+2, 0)
	wantError(t, err, event.ErrAhead)
	_, err = s.Read(ctx, 1, -1)
	wantError(t, err, holdfast.ErrBadOption)
	gone, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := 0
	for _, err = range s.Events(gone, 1, 0) {
		if err != nil {
			break
		}
		if seen++; seen == 10 {
			cancel()
		}
	}
	if wantError(t, err, context.Canceled); seen != 10 {
		t.Fatalf("%d events after the context ended", seen-10)
	}
	_, err = s.Append(gone, typed("never")...)
	wantError(t, err, context.Canceled)
	wantHead(t, s, 1, n)
	// The body of a loop may write: the loop ends where the log ended when it began.
	seen = 0
	for _, err := range s.Events(ctx, n-1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		seen++
		appendOK(t, s, typed("inside")...)
	}
	if seen != 2 {
		t.Fatalf("%d events, want 2", seen)
	}
}

func testExpected(t *testing.T, tg *target, o event.Options) {
	s := openLog(t, tg.Engine, o)
	defer closeLog(t, s)
	_, err := s.AppendAfter(ctx, 1, typed("a")...)
	wantError(t, err, event.ErrConflict)
	if _, err := s.AppendAfter(ctx, 0, typed("a", "b")...); err != nil {
		t.Fatal(err)
	}
	for _, last := range []uint64{0, 1, 3, 1<<64 - 1} {
		_, err := s.AppendAfter(ctx, last, typed("x")...)
		wantError(t, err, event.ErrConflict)
		var c *event.Conflict
		if !errors.As(err, &c) || c.Expected != last || c.Actual != 2 {
			t.Fatalf("the conflict is %v", err)
		}
	}
	if _, err := s.AppendAfter(ctx, 2, event.Event{Type: "c", ID: "c"}); err != nil {
		t.Fatal(err)
	}
	// The same append again is a repeat, not a conflict.
	r, err := s.AppendAfter(ctx, 2, event.Event{Type: "c", ID: "c"})
	if err != nil || (r != event.Result{First: 3, Last: 3, Repeated: true}) {
		t.Fatal(r, err)
	}
	wantTypes(t, s, 1, "a", "b", "c")
}

func testIDs(t *testing.T, tg *target, o event.Options) {
	s := openLog(t, tg.Engine, o)
	appendOK(t, s, typed("first")...)
	if r := appendOK(t, s, named("a", "b", "c")...); (r != event.Result{First: 2, Last: 4}) {
		t.Fatal(r)
	}
	appendOK(t, s, named("d")...)
	check := func() {
		t.Helper()
		for _, c := range []struct {
			ids         []string
			first, last uint64
		}{{[]string{"a", "b", "c"}, 2, 4}, {[]string{"d"}, 5, 5}, {[]string{"b"}, 3, 3}, {[]string{"c", "d"}, 4, 5}} {
			if r := appendOK(t, s, named(c.ids...)...); (r != event.Result{First: c.first, Last: c.last, Repeated: true}) {
				t.Fatalf("%q again gives %+v", c.ids, r)
			}
		}
		for _, ids := range [][]string{{"a", "x"}, {"x", "a"}, {"a", "c"}, {"b", "a"}, {"d", "x", "y"}} {
			_, err := s.Append(ctx, named(ids...)...)
			wantError(t, err, event.ErrPartialRepeat)
		}
		wantHead(t, s, 1, 5)
	}
	check()
	_, err := s.Append(ctx, named("x", "x")...)
	wantError(t, err, event.ErrBadEvent)
	_, err = s.Append(ctx, named("x", "")...)
	wantError(t, err, event.ErrBadEvent)
	closeLog(t, s)
	s = openLog(t, tg.Engine, o)
	check()
	closeLog(t, s)
	tg.Reopen(t)
	if tg.OnDisk() {
		s = openLog(t, tg.Engine, o)
		check()
		if r := appendOK(t, s, named("x")...); r.First != 6 {
			t.Fatal(r)
		}
		closeLog(t, s)
	}
}

// Ids are remembered for at least the window and at most twice as long, and do not pile up.
func testWindow(t *testing.T, tg *target, o event.Options) {
	o.IDWindow = 600 // more than one step where ids are removed in steps
	s := openLog(t, tg.Engine, o)
	at := map[string]uint64{}
	last := uint64(0)
	for i := range 40 {
		var ids []string
		for j := range 100 {
			ids = append(ids, fmt.Sprintf("id-%d-%d", i, j))
			at[ids[j]] = last + uint64(j) + 1
		}
		last = appendOK(t, s, named(ids...)...).Last
	}
	check := func(when string) {
		t.Helper()
		remembered := 0
		for id, pos := range at {
			if pos+2*o.IDWindow < last {
				continue // would be added
			}
			p, err := s.Submit(ctx, named(id)...)
			if err != nil {
				t.Fatal(err)
			}
			r := p.Result()
			if r.Repeated && r.First != pos {
				t.Fatalf("%s: id of position %d is remembered at %d", when, pos, r.First)
			}
			if !r.Repeated {
				if pos+o.IDWindow > last {
					t.Fatalf("%s: the id of position %d is forgotten at %d", when, pos, last)
				}
				at[id], last = r.First, r.Last
			}
			remembered++
		}
		if remembered < int(o.IDWindow) {
			t.Fatalf("%s: %d ids tried", when, remembered)
		}
	}
	check("at once")
	closeLog(t, s)
	s = openLog(t, tg.Engine, event.Options{Name: o.Name, Level: o.Level})
	if s.IDWindow() != o.IDWindow {
		t.Fatalf("the window has become %d", s.IDWindow())
	}
	check("after opening again")
	closeLog(t, s)
	_, err := event.Open(kv.On(tg.Engine), event.Options{Name: o.Name, Level: o.Level, IDWindow: 7})
	wantError(t, err, holdfast.ErrBadOption)

	// The index is the keys of this log with table 'i'; most generations are gone.
	prefix := append([]byte{'e', byte(len(o.Name))}, o.Name...)
	it := tg.Engine.Scan(holdfast.Range{Lo: append(prefix[:len(prefix):len(prefix)], 'i'),
		Hi: append(prefix[:len(prefix):len(prefix)], 'j')})
	defer it.Close()
	kept := 0
	for it.Next() {
		kept++
	}
	if it.Err() != nil || kept > 4*int(o.IDWindow) {
		t.Fatalf("%d ids are kept (%v)", kept, it.Err())
	}
}

func testSubmit(t *testing.T, tg *target, o event.Options) {
	s := openLog(t, tg.Engine, o)
	var pending []event.Pending
	for i := range 300 {
		p, err := s.Submit(ctx, typed(fmt.Sprint(i))...)
		if err != nil {
			t.Fatal(err)
		}
		if p.Result().First != uint64(i)+1 {
			t.Fatalf("append %d is at %d", i, p.Result().First)
		}
		pending = append(pending, p)
	}
	_, err := s.SubmitAfter(ctx, 299, typed("x")...)
	wantError(t, err, event.ErrConflict)
	if p, err := s.SubmitAfter(ctx, 300, typed("300")...); err != nil {
		t.Fatal(err)
	} else {
		pending = append(pending, p)
	}
	// Waiting for one settles all before it.
	if r, err := pending[200].Wait(); err != nil || r.Last != 201 || s.Last() < 201 {
		t.Fatal(r, err, s.Last())
	}
	if r, err := (event.Pending{}).Wait(); err != nil || r != (event.Result{}) {
		t.Fatal(r, err)
	}
	closeLog(t, s) // waits for the others
	if s.Last() != 301 {
		t.Fatalf("Close left the log at %d", s.Last())
	}
	s = openLog(t, tg.Engine, o)
	defer closeLog(t, s)
	for i, e := range readOK(t, s, 1, 0) {
		if e.Type != fmt.Sprint(i) {
			t.Fatalf("position %d holds %q", e.Position, e.Type)
		}
	}
	wantHead(t, s, 1, 301)
}

// Followers see what is there and what comes, whether anybody waits for it or not.
func testFollow(t *testing.T, tg *target, o event.Options) {
	s := openLog(t, tg.Engine, o)
	appendOK(t, s, typed("1", "2", "3")...)
	const n = 200
	type outcome struct {
		from, seen uint64
		err        error
	}
	outcomes := make(chan outcome)
	follow := func(from uint64) {
		stop, cancel := context.WithCancel(ctx)
		defer cancel()
		next := from
		for e, err := range s.Follow(stop, from) {
			if err != nil {
				outcomes <- outcome{from, next - from, err}
				return
			}
			if e.Position != next || e.Type != fmt.Sprint(next) {
				outcomes <- outcome{from, 0, fmt.Errorf("position %d of type %q where %d was due", e.Position, e.Type, next)}
				return
			}
			if next++; next > n {
				cancel()
			}
		}
	}
	froms := []uint64{1, 2, 4, 4, 4}
	for _, from := range froms {
		go follow(from)
	}
	for i := 4; i <= n; i++ {
		if i%3 == 0 {
			appendOK(t, s, typed(fmt.Sprint(i))...)
		} else if _, err := s.Submit(ctx, typed(fmt.Sprint(i))...); err != nil {
			t.Fatal(err)
		}
	}
	for range froms {
		got := <-outcomes
		if !errors.Is(got.err, context.Canceled) || got.seen != n+1-got.from {
			t.Fatalf("the follower from %d saw %d events and then %v", got.from, got.seen, got.err)
		}
	}
	ended := make(chan error)
	go func() {
		var last error
		for _, err := range s.FollowRecords(ctx, s.Last()+1) {
			last = err
		}
		ended <- last
	}()
	closeLog(t, s)
	wantError(t, <-ended, holdfast.ErrClosed)
}

func testCursors(t *testing.T, tg *target, o event.Options) {
	s := openLog(t, tg.Engine, o)
	_, err := s.LoadOffset(ctx, "sub")
	wantError(t, err, holdfast.ErrNotFound)
	_, _, err = s.LoadSnapshot(ctx, "sub")
	wantError(t, err, holdfast.ErrNotFound)
	appendOK(t, s, typed("1", "2", "3")...)
	wantError(t, s.SaveOffset(ctx, "sub", 4), event.ErrAhead)
	wantError(t, s.SaveSnapshot(ctx, "sub", 4, nil), event.ErrAhead)
	for _, name := range []string{"", strings.Repeat("n", event.MaxIDSize+1)} {
		wantError(t, s.SaveOffset(ctx, name, 1), holdfast.ErrBadOption)
		_, _, err := s.LoadSnapshot(ctx, name)
		wantError(t, err, holdfast.ErrBadOption)
	}
	state := bytes.Repeat([]byte("state"), 1000)
	for _, pos := range []uint64{0, 3, 2} { // may go back
		if err := s.SaveOffset(ctx, "sub", pos); err != nil {
			t.Fatal(err)
		}
		if err := s.SaveSnapshot(ctx, "sub", pos, state[:1000*pos]); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SaveOffset(ctx, "other", 1); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteOffset(ctx, "other"); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteSnapshot(ctx, "never there"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.TruncateBefore(ctx, 4); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		if pos, err := s.LoadOffset(ctx, "sub"); err != nil || pos != 2 {
			t.Fatal(pos, err)
		}
		if pos, got, err := s.LoadSnapshot(ctx, "sub"); err != nil || pos != 2 || !bytes.Equal(got, state[:2000]) {
			t.Fatal(pos, len(got), err)
		}
		_, err = s.LoadOffset(ctx, "other")
		wantError(t, err, holdfast.ErrNotFound)
		intx := s.DB().Update(ctx, func(tx *kv.Tx) error {
			_, err := s.In(tx).LoadOffset("other")
			return err
		})
		wantError(t, intx, holdfast.ErrNotFound)
		for _, err := range []error{err, intx} {
			if !strings.Contains(err.Error(), `"other"`) {
				t.Errorf("it does not say what is not there: %v", err)
			}
		}
	}
	check()
	closeLog(t, s)
	tg.Reopen(t)
	if tg.OnDisk() {
		s = openLog(t, tg.Engine, o)
		check()
		closeLog(t, s)
	}
}

func testTruncation(t *testing.T, tg *target, o event.Options) {
	const n = 6_000 // more than goes in one chunk
	s := openLog(t, tg.Engine, o)
	for i := 0; i < n; i += 1000 {
		batch := make([]event.Event, 1000)
		for j := range batch {
			batch[j].Type = fmt.Sprint(i + j + 1)
		}
		appendOK(t, s, batch...)
	}
	_, err := s.TruncateBefore(ctx, n+2)
	wantError(t, err, event.ErrAhead)
	for _, c := range []struct{ before, removed, first uint64 }{{0, 0, 1}, {1, 0, 1}, {2, 1, 2}, {5001, 4999, 5001},
		{5001, 0, 5001}, {5, 0, 5001}} {
		if removed, err := s.TruncateBefore(ctx, c.before); err != nil || removed != c.removed {
			t.Fatalf("TruncateBefore(%d) removed %d: %v", c.before, removed, err)
		}
		wantHead(t, s, c.first, n)
	}
	for _, from := range []uint64{1, 5000} {
		for _, read := range []func() error{
			func() error { _, err := s.Read(ctx, from, 1); return err },
			func() (last error) {
				for _, err := range s.Follow(ctx, from) {
					last = err
				}
				return last
			},
		} {
			err := read()
			wantError(t, err, event.ErrTruncated)
			var tr *event.Truncated
			if !errors.As(err, &tr) || tr.Position != from || tr.First != 5001 {
				t.Fatal(err)
			}
		}
	}
	if got := readOK(t, s, 0, 2); got[0].Type != "5001" || got[1].Position != 5002 {
		t.Fatalf("the log begins with %+v", got)
	}
	// A reader that truncation overtakes is told so.
	var seen int
	for _, err = range s.Events(ctx, 5001, 0) {
		if err != nil {
			break
		}
		if seen++; seen == 1 {
			if _, err := s.TruncateBefore(ctx, n); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantError(t, err, event.ErrTruncated)
	// Positions are not used again, even if nothing is left.
	if removed, err := s.TruncateBefore(ctx, n+1); err != nil || removed != 1 {
		t.Fatal(removed, err)
	}
	wantHead(t, s, n+1, n)
	closeLog(t, s)
	tg.Reopen(t)
	if tg.OnDisk() {
		s = openLog(t, tg.Engine, o)
		wantHead(t, s, n+1, n)
		if r := appendOK(t, s, typed("next")...); r.First != n+1 {
			t.Fatal(r)
		}
		wantTypes(t, s, n+1, "next")
		closeLog(t, s)
	}
}

// Logs in one engine know nothing of each other, however their names begin.
func testNames(t *testing.T, tg *target, o event.Options) {
	names := []string{"", "n", "ne", "n\x00", " n", strings.Repeat("n", event.MaxNameSize)}
	for i, name := range names {
		s := openLog(t, tg.Engine, event.Options{Name: name, Level: tg.Level})
		if _, err := event.Open(kv.On(tg.Engine), event.Options{Name: name, Level: tg.Level}); !errors.Is(
			err,
			holdfast.ErrLocked,
		) {
			t.Fatalf("opening twice: %v", err)
		}
		for j := range i + 2 {
			if r := appendOK(t, s, event.Event{Type: name, ID: "same"}); r.Repeated != (j > 0) {
				t.Fatal(r)
			}
			appendOK(t, s, typed(fmt.Sprint(j))...)
		}
		if err := s.SaveOffset(ctx, "same", uint64(i)); err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 {
			if _, err := s.TruncateBefore(ctx, s.Last()); err != nil {
				t.Fatal(err)
			}
		}
		closeLog(t, s)
	}
	for i, name := range names {
		s := openLog(t, tg.Engine, event.Options{Name: name, Level: tg.Level})
		if s.Last() != uint64(i)+3 || (s.First() == 1) != (i%2 == 0) {
			t.Errorf("log %q goes from %d to %d", name, s.First(), s.Last())
		}
		if pos, err := s.LoadOffset(ctx, "same"); err != nil || pos != uint64(i) {
			t.Errorf("log %q: offset %d, %v", name, pos, err)
		}
		closeLog(t, s)
	}
	_, err := event.Open(kv.On(tg.Engine), event.Options{Name: strings.Repeat("n", event.MaxNameSize+1), Level: tg.Level})
	wantError(t, err, holdfast.ErrBadOption)
}

func testReopen(t *testing.T, tg *target, o event.Options) {
	if !tg.OnDisk() {
		s := openLog(t, tg.Engine, o)
		appendOK(t, s, typed("kept while the engine is open")...)
		closeLog(t, s)
		s = openLog(t, tg.Engine, o)
		wantHead(t, s, 1, 1)
		closeLog(t, s)
		return
	}
	var want []string
	for round := range 3 {
		s := openLog(t, tg.Engine, o)
		wantHead(t, s, 1, uint64(len(want)))
		wantTypes(t, s, 1, want...)
		for i := range 5 {
			want = append(want, fmt.Sprint(round, i))
			appendOK(t, s, typed(want[len(want)-1])...)
		}
		closeLog(t, s)
		wantError(t, s.Close(), holdfast.ErrClosed)
		_, err := s.Append(ctx, typed("late")...)
		wantError(t, err, holdfast.ErrClosed)
		_, err = s.Read(ctx, 1, 0)
		wantError(t, err, holdfast.ErrClosed)
		wantError(t, s.SaveOffset(ctx, "late", 0), holdfast.ErrClosed)
		tg.Reopen(t)
	}
}
