package event_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/holdfastdb/holdfast/store/message"
)

func logsIn(t testing.TB, r holdfast.Reader) []event.LogInfo {
	t.Helper()
	list, err := event.Logs(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// What is listed is what is there: logs, also those that are open, subscriptions, snapshots.
func testLists(t *testing.T, tg *target, o event.Options) {
	s := openLog(t, tg.Engine, o)
	appendOK(t, s, typed("1", "2", "3", "4", "5")...)
	for i, name := range []string{"b", "a"} {
		if err := s.SaveOffset(ctx, name, uint64(i)+1); err != nil {
			t.Fatal(err)
		}
		if err := s.SaveSnapshot(ctx, name, uint64(i)+3, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.TruncateBefore(ctx, 5); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		subscriptions, err := s.Subscriptions(ctx)
		if want := []event.Cursor{{Name: "a", Position: 2, Lag: 3, Missed: 2},
			{Name: "b", Position: 1, Lag: 4, Missed: 3}}; err != nil || !slices.Equal(subscriptions, want) {
			t.Fatalf("%+v, %v", subscriptions, err)
		}
		snapshots, err := s.Snapshots(ctx)
		if want := []event.Cursor{{Name: "a", Position: 4, Lag: 1, Size: 1},
			{Name: "b", Position: 3, Lag: 2, Missed: 1, Size: 1}}; err != nil || !slices.Equal(snapshots, want) {
			t.Fatalf("%+v, %v", snapshots, err)
		}
		if !slices.Contains(logsIn(t, tg.Engine), event.LogInfo{Name: o.Name, First: 5, Last: 5}) {
			t.Fatalf("%+v", logsIn(t, tg.Engine))
		}
	}
	check()
	closeLog(t, s)
	tg.Reopen(t)
	if !tg.OnDisk() {
		return
	}
	s = openLog(t, tg.Engine, o)
	check()
	if err := s.DeleteOffset(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Subscriptions(ctx); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	closeLog(t, s)
	_, err := s.Subscriptions(ctx)
	wantError(t, err, holdfast.ErrClosed)
	_, err = s.Snapshots(ctx)
	wantError(t, err, holdfast.ErrClosed)
}

// counting counts what is read of an engine.
type counting struct {
	holdfast.Reader
	keys, gets int
}

func (c *counting) Get(dst, key []byte) ([]byte, error) { c.gets++; return c.Reader.Get(dst, key) }

func (c *counting) Scan(r holdfast.Range) holdfast.Iterator {
	return &countingIterator{c.Reader.Scan(r), c}
}

type countingIterator struct {
	holdfast.Iterator
	c *counting
}

func (it *countingIterator) Next() bool { it.c.keys++; return it.Iterator.Next() }

// The list of logs costs some keys a log, however long it is, and passes over what is none.
func TestLogs(t *testing.T) {
	eng := mem.New()
	if list := logsIn(t, eng); len(list) != 0 {
		t.Fatal(list)
	}
	names := []string{"", "\U0010ffff", "a", "n\x00", "long", strings.Repeat("\U0010ffff", event.MaxNameSize/4)}
	for i, name := range names {
		s := openLog(t, eng, event.Options{Name: name, Level: holdfast.Memory})
		for range 100 * i {
			appendOK(t, s, event.Event{})
		}
		if name == "long" {
			if _, err := s.TruncateBefore(ctx, s.Last()+1); err != nil {
				t.Fatal(err)
			}
		}
		closeLog(t, s)
	}
	m, err := message.Open(kv.On(eng), message.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	n, err := m.Namespace(ctx, message.Default)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Write(ctx, "s", message.Message{Type: "t", Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	var b holdfast.Batch
	for _, key := range []string{"d", "e", "e\x09short", "e\x01zz", "f"} { // not of a log that can be opened
		b.Set([]byte(key), nil)
	}
	if err := holdfast.Commit(eng, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	c := &counting{Reader: eng}
	list := logsIn(t, c)
	storetest.Close(t, m)
	want := []string{`"" "" 1 0`, `"a" "" 1 200`, `"n\x00" "n" 1 300`, `"long" "" 401 400`,
		`"\U0010ffff" "" 1 100`}
	for i, w := range append(want, fmt.Sprintf(`%q "message" 1 1`, list[5].Name), fmt.Sprintf(`%q "" 1 500`, names[5])) {
		if got := fmt.Sprintf("%q %q %d %d", list[i].Name, list[i].Owner, list[i].First, list[i].Last); got != w {
			t.Errorf("log %d: %s, want %s", i, got, w)
		}
	}
	if len(list) != 7 || c.keys+c.gets > 30 {
		t.Errorf("%d logs from %d keys", len(list), c.keys+c.gets)
	}
	for prefix, want := range map[string]int{"": 7, "n": 1, "long": 1, "\U0010ffff": 2, "none": 0} {
		if list, err := event.LogsWith(ctx, eng, prefix); err != nil || len(list) != want {
			t.Errorf("logs with %q: %v, %v, want %d", prefix, list, err, want)
		}
	}
	if l, err := event.Describe(eng, "a"); err != nil || l.Last != 200 {
		t.Errorf("log a: %+v, %v", l, err)
	}
	for _, name := range []string{"none", "short", "aa", strings.Repeat("a", 300)} {
		if _, err := event.Describe(eng, name); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("log %q: %v", name, err)
		}
	}

	b.Reset()
	b.Set([]byte("e\x01am"), []byte("\x63"))
	if err := holdfast.Commit(eng, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	list, err = event.Logs(ctx, eng)
	if wantError(t, err, holdfast.ErrVersion); len(list) != 6 || !strings.Contains(err.Error(), `log "a"`) {
		t.Fatal(list, err)
	}
}

// retain is Retain that must succeed, and says what there is then.
func retain(t testing.TB, s *event.Store, r event.Retention, first, last uint64) event.Truncation {
	t.Helper()
	before := s.First()
	done, err := s.Retain(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	if wantHead(t, s, first, last); done.First != first || done.Removed != first-before {
		t.Fatalf("%+v, the log began at %d", done, before)
	}
	return done
}

func testRetention(t *testing.T, tg *target, o event.Options) {
	s := openLog(t, tg.Engine, o)
	retain(t, s, event.Retention{MaxAge: 1, MaxEvents: 1, MaxBytes: 1}, 1, 0)
	one := event.Event{Data: make([]byte, 1000)}
	for range 20 {
		appendOK(t, s, one)
	}
	retain(t, s, event.Retention{}, 1, 20)
	retain(t, s, event.Retention{MaxEvents: 18}, 3, 20)
	retain(t, s, event.Retention{MaxEvents: 17}, 4, 20)
	retain(t, s, event.Retention{MaxEvents: 100, MaxBytes: 1 << 30, MaxAge: 100 * time.Hour}, 4, 20)
	retain(t, s, event.Retention{MaxBytes: 16_900}, 5, 20) // an event takes 1,000 bytes and some
	retain(t, s, event.Retention{MaxBytes: 15_900}, 6, 20)
	// What was truncated otherwise, and what is new, counts.
	retain(t, s, event.Retention{MaxEvents: 10, MaxBytes: 11_000}, 11, 20)
	if _, err := s.TruncateBefore(ctx, 13); err != nil {
		t.Fatal(err)
	}
	appendOK(t, s, one, one)
	retain(t, s, event.Retention{MaxBytes: 11_000}, 13, 22)
	retain(t, s, event.Retention{MaxBytes: 9_900}, 14, 22)
	if _, err := s.Remove(ctx, 18, 19); err != nil {
		t.Fatal(err)
	}
	retain(t, s, event.Retention{MaxBytes: 6_900}, 15, 22)
	closeLog(t, s)
	s = openLog(t, tg.Engine, o)
	defer closeLog(t, s)
	// Who has not read what is removed.
	for name, pos := range map[string]uint64{"behind": 15, "there": 16, "ahead": 20} {
		if err := s.SaveOffset(ctx, name, pos); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SaveSnapshot(ctx, "sum", 16, nil); err != nil {
		t.Fatal(err)
	}
	if done := retain(t, s, event.Retention{MaxEvents: 1, KeepUnread: true}, 16, 22); len(done.Subscriptions) > 0 {
		t.Fatalf("%+v", done)
	}
	done := retain(t, s, event.Retention{MaxEvents: 6}, 17, 22)
	if len(done.Subscriptions) != 1 || done.Subscriptions[0].Name != "behind" || len(done.Snapshots) > 0 {
		t.Fatalf("%+v", done)
	}
	done = retain(t, s, event.Retention{MaxBytes: 1}, 23, 22)
	if len(done.Subscriptions) != 3 || len(done.Snapshots) != 1 {
		t.Fatalf("%+v", done)
	}
	_, err := s.Retain(ctx, event.Retention{MaxAge: -1})
	wantError(t, err, holdfast.ErrBadOption)
	_, err = s.Retain(ctx, event.Retention{MaxBytes: -1})
	wantError(t, err, holdfast.ErrBadOption)
}

// Packs are counted once, and removed once their last event is.
func TestRetainPacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memLog(t)
		for range 10 {
			appendOK(t, s, slices.Repeat([]event.Event{{Data: make([]byte, 100)}}, 10)...)
			time.Sleep(time.Hour)
		}
		appendOK(t, s, event.Event{})
		retain(t, s, event.Retention{MaxAge: 9 * time.Hour}, 11, 101)
		retain(t, s, event.Retention{MaxEvents: 86}, 16, 101) // within a pack
		// The pack that the log begins in takes all its bytes.
		retain(t, s, event.Retention{MaxBytes: 9_800}, 16, 101)
		retain(t, s, event.Retention{MaxBytes: 9_700}, 21, 101)
		retain(t, s, event.Retention{MaxBytes: 3_500}, 71, 101)
		retain(t, s, event.Retention{MaxAge: time.Minute}, 101, 101)
	})
}

// A truncation that passes a subscription or a snapshot says so, and only then.
func TestTruncationWarns(t *testing.T) {
	var out bytes.Buffer
	s := openLog(t, mem.New(), event.Options{Level: holdfast.Memory, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	defer closeLog(t, s)
	appendOK(t, s, typed("1", "2", "3")...)
	if err := errors.Join(s.SaveOffset(ctx, "sub", 1), s.SaveSnapshot(ctx, "sum", 2, nil)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		before uint64
		want   []string
	}{{2, nil}, {3, []string{"subscription=sub position=1 first=3 missed=1"}}, {3, nil},
		{4, []string{"subscription=sub position=1 first=4 missed=2", "snapshot=sum position=2 first=4 missed=1"}}} {
		out.Reset()
		if _, err := s.TruncateBefore(ctx, c.before); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if c.want == nil {
			c.want = []string{""}
		}
		if !slices.EqualFunc(lines, c.want, strings.HasSuffix) {
			t.Errorf("truncation before %d says %q, want %q", c.before, lines, c.want)
		}
	}
}

// The list of subscriptions shows what is durable: it waits for a save, and fails after a failed one.
func TestListsAreDurable(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		s := openLog(t, st, event.Options{Level: holdfast.Memory})
		appendOK(t, s, typed("1")...)
		st.Hold()
		saved := storetest.Async(func() error { return s.SaveOffset(ctx, "sub", 1) })
		st.AwaitWaiters(1)
		listed := storetest.Async(func() error { _, err := s.Subscriptions(ctx); return err })
		storetest.Unfinished(t, saved, listed)
		if _, err := s.Snapshots(ctx); err != nil { // another table
			t.Fatal(err)
		}
		cause := errors.New("input/output error")
		st.Locked(func() { st.Fail = cause })
		wantError(t, <-saved, cause)
		wantError(t, <-listed, cause)
		_, err := s.Retain(ctx, event.Retention{MaxEvents: 1, KeepUnread: true})
		wantError(t, err, cause)
		closeLog(t, s)
	})
}
