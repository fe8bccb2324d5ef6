package event_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/event"
)

// edited is what a log should hold that is also edited: its events by their positions.
type edited struct {
	events      map[uint64]event.Event
	first, next uint64
}

// positions returns those of its events from one on, in order.
func (m *edited) positions(from uint64) []uint64 {
	var all []uint64
	for pos := range m.events {
		if pos >= from {
			all = append(all, pos)
		}
	}
	slices.Sort(all)
	return all
}

// check compares what a read says, from a position and with a limit.
func (m *edited) check(t *testing.T, s *event.Store, from uint64, limit int) {
	t.Helper()
	want := m.positions(from)
	if limit > 0 && limit < len(want) {
		want = want[:limit]
	}
	got := readOK(t, s, from, limit)
	if len(got) != len(want) {
		t.Fatalf("from %d, limit %d: %d events, want %d", from, limit, len(got), len(want))
	}
	for i, pos := range want {
		if err := same(got[i], m.events[pos]); err != nil {
			t.Fatalf("from %d, limit %d: %v", from, limit, err)
		}
	}
}

// testEdits appends, imports, removes and truncates at random, and compares with a model.
func testEdits(t *testing.T, tg *target, o event.Options) {
	o.IDWindow = 1 << 40
	s := openLog(t, tg.Engine, o)
	defer func() { closeLog(t, s) }()
	r := rand.New(rand.NewPCG(1, 2))
	m := &edited{events: map[uint64]event.Event{}, first: 1, next: 1}
	made := 0
	make1 := func(named bool) event.Event {
		made++
		e := event.Event{Type: fmt.Sprint("t", made), Data: make([]byte, r.IntN(40)), Time: time.Unix(int64(made), 0)}
		if r.IntN(10) == 0 {
			e.Data = make([]byte, 9000) // no pack takes it
		}
		if named {
			e.ID = fmt.Sprint("id-", made)
		}
		return e
	}
	anywhere := func() uint64 { return m.first + r.Uint64N(m.next-m.first+1) }
	for range 150 {
		switch r.IntN(10) {
		case 0, 1, 2:
			events, named := make([]event.Event, 1+r.IntN(12)), r.IntN(2) == 0
			for i := range events {
				events[i] = make1(named)
			}
			for i := range events {
				events[i].Position = m.next + uint64(i)
				m.events[events[i].Position] = events[i]
			}
			if got := appendOK(t, s, events...); got.First != m.next || got.Repeated {
				t.Fatal(got, m.next)
			}
			m.next += uint64(len(events))
		case 3, 4, 5:
			var events []event.Event
			for range 1 + r.IntN(8) {
				e := make1(r.IntN(2) == 0)
				if e.Position = anywhere(); r.IntN(3) == 0 {
					e.Position = m.next + r.Uint64N(300)
				}
				if _, taken := m.events[e.Position]; taken || slices.ContainsFunc(events, func(o event.Event) bool {
					return o.Position == e.Position
				}) {
					continue
				}
				events = append(events, e)
			}
			added, err := s.Import(ctx, events...)
			if err != nil || added != len(events) {
				t.Fatal(added, err)
			}
			for _, e := range events {
				m.events[e.Position] = e
				m.next = max(m.next, e.Position+1)
			}
		case 6, 7:
			var positions []uint64
			from := anywhere()
			for i := range uint64(1 + r.IntN(20)) {
				if r.IntN(4) > 0 && from+i < m.next {
					positions = append(positions, from+i)
				}
			}
			want := 0
			for _, pos := range positions {
				if _, ok := m.events[pos]; ok {
					want++
					delete(m.events, pos)
				}
			}
			r.Shuffle(len(positions), func(i, j int) { positions[i], positions[j] = positions[j], positions[i] })
			if removed, err := s.Remove(ctx, positions...); err != nil || removed != want {
				t.Fatal(removed, want, err)
			}
		case 8:
			if r.IntN(3) > 0 {
				continue
			}
			pos := anywhere()
			if _, err := s.TruncateBefore(ctx, pos); err != nil {
				t.Fatal(err)
			}
			m.first = pos
			maps.DeleteFunc(m.events, func(at uint64, _ event.Event) bool { return at < pos })
		case 9:
			closeLog(t, s)
			s = openLog(t, tg.Engine, o)
		}
		wantHead(t, s, m.first, m.next-1)
		m.check(t, s, m.first, 0)
		m.check(t, s, anywhere(), r.IntN(5))
	}
	var follow []event.Event
	for e, err := range s.Follow(ctx, m.first) {
		if err != nil {
			t.Fatal(err)
		}
		if follow = append(follow, e); len(follow) == len(m.events) {
			break
		}
	}
	for i, pos := range m.positions(m.first) {
		if err := same(follow[i], m.events[pos]); err != nil {
			t.Fatal(err)
		}
	}
	reports, err := event.Examine(tg.Engine)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(reports, func(r event.Report) bool { return r.Name == o.Name })
	want := event.Report{Name: o.Name, First: m.first, Last: m.next - 1, Events: uint64(len(m.events))}
	want.Holes = m.next - m.first - want.Events
	if got := reports[at]; got.First != want.First || got.Last != want.Last || got.Events != want.Events ||
		got.Holes != want.Holes || len(got.Lost) > 0 || got.Undescribed {
		t.Fatalf("%+v, want %+v", got, want)
	}
}

func at(e event.Event, pos uint64) event.Event {
	e.Position = pos
	return e
}

// What an import or removal refuses changes nothing, and what it repeats is no error.
func TestEditErrors(t *testing.T) {
	s := memLog(t)
	appendOK(t, s, named("a", "b")...)
	if n, err := s.Import(ctx, at(named("x")[0], 10), at(named("y")[0], 5)); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	taken := func(pos, by uint64, events ...event.Event) {
		t.Helper()
		n, err := s.Import(ctx, events...)
		var why *event.Taken
		if n != 0 || !errors.Is(err, event.ErrTaken) || !errors.As(err, &why) ||
			*why != (event.Taken{Event: pos, Position: by}) {
			t.Fatal(n, err)
		}
	}
	taken(2, 2, at(typed("c")[0], 2))
	taken(5, 5, at(typed("c")[0], 7), at(typed("c")[0], 5))
	taken(7, 1, at(named("a")[0], 7))
	taken(12, 10, at(named("x")[0], 12), at(named("new")[0], 11))
	other := at(named("y")[0], 5) // the same id at the same position
	other.Data = []byte("something else")
	taken(5, 5, at(named("z")[0], 4), other)
	for _, c := range []struct {
		want   error
		events []event.Event
	}{
		{event.ErrBadEvent, []event.Event{at(typed("c")[0], 6), at(typed("d")[0], 6)}},
		{event.ErrBadEvent, []event.Event{at(named("c")[0], 6), at(named("c")[0], 7)}},
		{event.ErrBadEvent, []event.Event{at(typed("c")[0], 1<<62)}},
		{event.ErrBadEvent, typed("c")}, // it names no position
		{nil, nil},
	} {
		if n, err := s.Import(ctx, c.events...); n != 0 || !errors.Is(err, c.want) {
			t.Fatal(n, err)
		}
	}
	wantHead(t, s, 1, 10)
	if n, err := s.Import(ctx, at(named("y")[0], 5), at(named("z")[0], 4), at(named("x")[0], 10)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := s.Remove(ctx, 11, 4); !errors.Is(err, event.ErrAhead) {
		t.Fatal(err)
	}
	if n, err := s.Remove(ctx, 4, 4, 3, 10, 0); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	// The ids of what was removed are free, and so are the positions.
	if r := appendOK(t, s, named("x")...); r.First != 11 || r.Repeated {
		t.Fatal(r)
	}
	if n, err := s.Import(ctx, at(named("z")[0], 10)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if got := readOK(t, s, 3, 0); len(got) != 3 || got[0].ID != "y" || got[1].ID != "z" || got[2].ID != "x" {
		t.Fatal(got)
	}
	// Behind the highest position that can be imported there is room.
	if n, err := s.Import(ctx, at(named("last")[0], 1<<62-1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if r := appendOK(t, s, named("behind")...); r.First != 1<<62 {
		t.Fatal(r)
	}
	if got := readOK(t, s, 12, 0); len(got) != 2 || got[0].ID != "last" || got[1].ID != "behind" {
		t.Fatal(got)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err := s.Import(canceled, at(named("c")[0], 7))
	wantError(t, err, context.Canceled)
	_, err = s.Remove(canceled, 1)
	wantError(t, err, context.Canceled)
	if _, err := s.TruncateBefore(ctx, 3); err != nil {
		t.Fatal(err)
	}
	_, err = s.Import(ctx, at(typed("c")[0], 2))
	wantError(t, err, event.ErrTruncated)
}

// What is appended together with an event is there if the event is, and knows its position.
func testDraft(t *testing.T, tg *target, o event.Options) {
	s := openLog(t, tg.Engine, o)
	defer closeLog(t, s)
	key := func(pos uint64) []byte { return fmt.Appendf(nil, "outbox %d", pos) }
	const writers, each = 4, 25
	var order []uint64 // as the commits got their places
	left := 0
	draft := func(id string, leave bool) (event.Result, error) {
		d, err := s.DraftAppend(ctx, keyspace.Messages, event.Event{ID: id, Origin: "at 00000"})
		if err != nil {
			return event.Result{}, err
		}
		defer d.Close()
		if leave {
			d.Keys.Set([]byte("left"), nil)
			left++
			return event.Result{}, nil
		}
		if len(d.Events) > 0 {
			d.Events[0].Origin = fmt.Sprintf("at %05d", d.First)
			d.Keys.Set(key(d.First), []byte(id))
			if d.Apply() {
				order = append(order, d.First)
			}
		}
		return d.Wait()
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				leave := i%5 == 4
				for try := range 2 { // the second is a repeat
					r, err := draft(fmt.Sprint(w, "-", i), leave)
					if err != nil || r.Repeated != (try > 0 && !leave) {
						t.Error(r, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	wantHead(t, s, 1, writers*each*4/5)
	if !slices.IsSorted(order) || len(order) != writers*each*4/5 || left != 2*writers*each/5 {
		t.Fatal(order, left)
	}
	if _, err := tg.Engine.Get(nil, []byte("left")); !errors.Is(err, holdfast.ErrNotFound) {
		t.Fatal(err)
	}
	for _, e := range readOK(t, s, 1, 0) {
		if got, err := tg.Engine.Get(nil, key(e.Position)); err != nil || string(got) != e.ID ||
			e.Origin != fmt.Sprintf("at %05d", e.Position) {
			t.Fatalf("event %d of %q from %q: the outbox has %q, %v", e.Position, e.ID, e.Origin, got, err)
		}
	}
	for _, pos := range []uint64{1000, 500} {
		d, err := s.DraftImport(ctx, keyspace.Messages, at(typed("t")[0], pos))
		if err != nil || d.First != pos {
			t.Fatal(d, err)
		}
		d.Keys.Set(key(d.First), []byte("imported"))
		d.Events[0].Origin = "elsewhere"
		if err := applied(d, nil); err != nil {
			t.Fatal(err)
		}
		if got := readOK(t, s, pos, 1); got[0].Position != pos || got[0].Origin != "elsewhere" {
			t.Fatal(got)
		}
	}
	if got, err := tg.Engine.Get(nil, key(1000)); err != nil || string(got) != "imported" {
		t.Fatal(got, err)
	}
	d, err := s.DraftRemove(ctx, keyspace.Messages, 1000)
	if err != nil {
		t.Fatal(err)
	}
	d.Keys.Delete(key(d.Events[0].Position))
	if err := applied(d, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := tg.Engine.Get(nil, key(1000)); !errors.Is(err, holdfast.ErrNotFound) {
		t.Fatal(err)
	}
}

// Where an edit has done its work, but the sync of that has failed, an edit that finds nothing to do fails too, and
// readers are not shown what was imported.
func TestEditsThatFindNothingToDoAreDurable(t *testing.T) {
	for what, edit := range map[string]func(s *event.Store) (int, error){
		"import": func(s *event.Store) (int, error) { return s.Import(ctx, at(named("new")[0], 5)) },
		"remove": func(s *event.Store) (int, error) { return s.Remove(ctx, 1) },
	} {
		t.Run(what, func(t *testing.T) {
			fakeEngines(t, func(t *testing.T, st *fakeEngine) {
				s := openLog(t, st, event.Options{Level: holdfast.Memory})
				defer s.Close() // with the failure
				if _, err := s.Import(ctx, at(named("first")[0], 1), at(named("last")[0], 10)); err != nil {
					t.Fatal(err)
				}
				st.Hold()
				first := storetest.Async(func() error { _, err := edit(s); return err })
				st.AwaitWaiters(1)
				st.Locked(func() { st.Fail = errors.New("the sync has failed") })
				storetest.Finished(t, holdfast.ErrPoisoned, first)
				if n, err := edit(s); !errors.Is(err, holdfast.ErrPoisoned) {
					t.Errorf("it was acknowledged: %d, %v", n, err)
				}
				if got := readOK(t, s, 2, 0); len(got) != 1 || got[0].ID != "last" {
					t.Errorf("readers see %v", got)
				}
			})
		})
	}
}

// Deleting a log leaves at most one range tombstone in an engine that has them, and none for a small one.
func TestDeletedLogsLeaveFewRanges(t *testing.T) {
	for _, events := range []int{3, 300} {
		st := newFakeEngine()
		closeLog(t, func() *event.Store {
			s := openLog(t, st, event.Options{Level: holdfast.Memory})
			for i := range events {
				appendOK(t, s, named(fmt.Sprint(i))...)
			}
			return s
		}())
		if err := event.Delete(ctx, st, "", holdfast.Memory); err != nil {
			t.Fatal(err)
		}
		if left := storetest.Keys(st, holdfast.Range{}); left > 0 || st.Ranges != events/300 {
			t.Errorf("of %d events %d keys are left, after %d ranges", events, left, st.Ranges)
		}
	}
}

// An event that was imported is not shown before it is durable, and its id is known at once.
func TestImportInFlight(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		s := openLog(t, st, event.Options{Level: holdfast.Memory})
		defer closeLog(t, s)
		if _, err := s.Import(ctx, at(named("last")[0], 10)); err != nil {
			t.Fatal(err)
		}
		st.Hold()
		before := st.Applied
		imported := storetest.Async(func() error {
			n, err := s.Import(ctx, at(named("new")[0], 5), at(named("next")[0], 11))
			if n != 2 {
				t.Error(n)
			}
			return err
		})
		st.AwaitApplied(before + 1)
		if got := readOK(t, s, 1, 0); len(got) != 1 || got[0].ID != "last" {
			t.Errorf("read %+v", got)
		}
		repeat := storetest.Async(func() error {
			r, err := s.Append(ctx, named("new")...)
			if !r.Repeated || r.First != 5 {
				t.Error(r)
			}
			return err
		})
		storetest.Unfinished(t, imported, repeat)
		st.Release(-1)
		storetest.Finished(t, nil, imported, repeat)
		if got := readOK(t, s, 1, 0); len(got) != 3 || got[0].ID != "new" || got[2].ID != "next" {
			t.Errorf("read %+v", got)
		}
		if r := appendOK(t, s, named("new")...); !r.Repeated || r.First != 5 {
			t.Error(r)
		}
	})
}

// An id that was looked up before an import or a removal is not believed after it.
func TestIDsLookedUpBeforeAnEdit(t *testing.T) {
	for _, imports := range []bool{true, false} {
		eng := newFakeEngine()
		s := openLog(t, eng, event.Options{Level: holdfast.Memory})
		if _, err := s.Import(ctx, at(named("last")[0], 10)); err != nil {
			t.Fatal(err)
		}
		edit := func() {
			var err error
			if imports {
				_, err = s.Import(ctx, at(named("id")[0], 5))
			} else {
				_, err = s.Remove(ctx, 10)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		looking := &between{Engine: eng, then: edit}
		closeLog(t, s)
		s = openLog(t, looking, event.Options{Level: holdfast.Memory})
		looking.armed = true
		id := map[bool]string{true: "id", false: "last"}[imports]
		if r := appendOK(t, s, named(id)...); r.Repeated != imports || imports == (r.First == 11) {
			t.Error(imports, r)
		}
		closeLog(t, s)
	}
}

// between is an engine that does something after the first Get, once armed.
type between struct {
	holdfast.Engine
	armed bool
	then  func()
}

func (b *between) Get(dst, key []byte) ([]byte, error) {
	dst, err := b.Engine.Get(dst, key)
	if b.armed {
		b.armed = false
		b.then()
	}
	return dst, err
}

// An id that was made for its event is not looked up, and is remembered like others.
func TestNewID(t *testing.T) {
	looking := &between{Engine: newFakeEngine(), then: func() { t.Error("looked up") }}
	s := openLog(t, looking, event.Options{Level: holdfast.Memory})
	defer closeLog(t, s)
	looking.armed = true
	both := named("a", "b")
	both[0].NewID, both[1].NewID = true, true
	appendOK(t, s, both...)
	looking.armed = false
	if r := appendOK(t, s, named("a", "b")...); !r.Repeated || r.First != 1 {
		t.Error(r)
	}
	if r := appendOK(t, s, named("b")...); !r.Repeated || r.First != 2 {
		t.Error(r)
	}
}
