package message_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
)

// lineOf is a line to be imported.
func lineOf(id int, stream string, pos, gpos int64) string {
	return fmt.Sprintf(`{"id":"00000000-0000-4000-8000-%012d","stream":%q,"type":"t","pos":%d,"gpos":%d,"data":{},`+
		`"meta":null,"time":"2026-01-02T03:04:05.6Z"}`+"\n", id, stream, pos, gpos)
}

func importLines(n *message.Namespace, lines ...string) error {
	_, err := n.Import(ctx, strings.NewReader(strings.Join(lines, "")), nil)
	return err
}

// While an import is not durable, readers see neither it nor less than before, and a conflict with it is told when it
// is durable.
func TestImportInFlight(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, st *storetest.FakeEngine) {
		s := openStore(t, st, message.Options{Level: holdfast.Memory})
		defer closeStore(t, s)
		defer st.Release(-1)
		n := namespace(t, s, message.Default)
		if err := importLines(n, lineOf(1, "a-1", 5, 10)); err != nil {
			t.Fatal(err)
		}
		applied := st.Applied
		st.Hold()
		importing := storetest.Async(func() error {
			return importLines(n, lineOf(2, "a-1", 1, 20), lineOf(3, "a-1", 9, 5))
		})
		st.AwaitWaiters(1)
		st.Release(1) // the counts
		st.AwaitApplied(applied + 2)
		st.AwaitWaiters(1)
		for what, q := range map[string]message.Query{"stream": {Stream: "a-1"}, "category": {Category: "a"}, "all": {}} {
			if got := read(t, n, q); len(got) != 1 || got[0].Position != 5 {
				t.Errorf("%s: %+v", what, got)
			}
		}
		if v, ok, err := n.Version(ctx, "a-1"); v != 5 || !ok || err != nil {
			t.Error(v, ok, err)
		}
		if m, err := n.LastMessage(ctx, "a-1", ""); m.Position != 5 || err != nil {
			t.Error(m, err)
		}
		if list, err := n.Streams(ctx, "", "", 0); len(list) != 1 || list[0].Version != 5 || err != nil {
			t.Error(list, err)
		}
		conflict := storetest.Async(func() error { _, err := n.WriteAfter(ctx, "a-1", 5, msg("t")); return err })
		storetest.Unfinished(t, conflict)
		st.Release(-1)
		storetest.Finished(t, nil, importing)
		err := <-conflict
		var c *message.Conflict
		if !errors.As(err, &c) || c.Actual != 9 {
			t.Error(err)
		}
		if got := read(t, n, message.Query{Stream: "a-1"}); len(got) != 3 {
			t.Errorf("%+v", got)
		}
	})
}

// Counts that are stored while a store is closed, and again before the engine shows them, are all there.
func TestCountsBesideClose(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, st *storetest.FakeEngine) {
		o := message.Options{Level: holdfast.Memory, RetainEvery: -1}
		s := openStore(t, st, o)
		n := namespace(t, s, message.Default)
		write(t, n, "x-1", msg("t"))
		sub, err := n.Subscribe(ctx, "s", message.SubscriptionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		began, end := make(chan bool), make(chan bool)
		updating := storetest.Async(func() error { // Close waits for it when it has stored the counts
			return s.DB().Update(ctx, func(tx *kv.Tx) error {
				err := sub.In(tx).Ack()
				close(began)
				<-end
				return err
			})
		})
		<-began
		applied := st.Applied
		st.Hold()
		closing := storetest.Async(s.Close)
		st.AwaitApplied(applied + 1)
		writing := storetest.Async(func() error { _, err := n.Write(ctx, "x-1", msg("t")); return err })
		st.AwaitApplied(applied + 2)
		removing := storetest.Async(func() error { _, err := n.Truncate(ctx, "none", 1); return err }) // counts first
		storetest.Unfinished(t, closing, writing, removing)
		st.Release(-1)
		storetest.Finished(t, nil, writing, removing)
		close(end)
		storetest.Finished(t, nil, updating, closing)
		s = openStore(t, st, o)
		if got, err := namespace(t, s, message.Default).Count(ctx, ""); got.Messages != 2 || err != nil {
			t.Errorf("%+v, %v", got, err)
		}
		closeStore(t, s)
	})
}

// A stream whose end the engine has refused has not ended.
func TestRefusedTombstone(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, st *storetest.FakeEngine) {
		s := openStore(t, st, message.Options{Level: holdfast.Memory})
		n := namespace(t, s, message.Default)
		write(t, n, "x-1", msg("t"))
		st.Locked(func() { st.Refuse = holdfast.ErrFull })
		_, err := n.Tombstone(ctx, "x-1")
		storetest.WantError(t, err, holdfast.ErrFull)
		st.Locked(func() { st.Refuse = nil })
		write(t, n, "x-1", msg("t"))
		closeStore(t, s)
	})
}

// A conflict beside a removal is a conflict, and that a stream is ended is told when it is durable.
func TestConflictBesideRemoval(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, st *storetest.FakeEngine) {
		s := openStore(t, st, message.Options{Level: holdfast.Memory})
		defer closeStore(t, s)
		defer st.Release(-1)
		n := namespace(t, s, message.Default)
		write(t, n, "a-1", msg("0"), msg("1"))
		write(t, n, "b-1", msg("0"))
		if _, err := n.Truncate(ctx, "b-1", 1); err != nil { // the log may have holes
			t.Fatal(err)
		}
		if err := n.SetRetention(ctx, "a-1", message.Retention{MaxCount: 1}); err != nil {
			t.Fatal(err)
		}
		applied := st.Applied
		st.Hold()
		removing := storetest.Async(func() error { _, err := n.Truncate(ctx, "a-1", 1); return err })
		st.AwaitApplied(applied + 1)
		conflict := storetest.Async(func() error { _, err := n.WriteAfter(ctx, "a-1", 7, msg("t")); return err })
		storetest.Finished(t, message.ErrConflict, conflict)
		st.Release(-1)
		storetest.Finished(t, nil, removing)

		st.Hold()
		ending := storetest.Async(func() error { _, err := n.Tombstone(ctx, "a-1"); return err })
		st.AwaitWaiters(1)
		refused := storetest.Async(func() error { _, err := n.Write(ctx, "a-1", msg("t")); return err })
		storetest.Unfinished(t, refused)
		st.Release(-1)
		storetest.Finished(t, nil, ending)
		storetest.Finished(t, message.ErrEnded, refused)
	})
}

// Writes beside imports and removals of their streams, are written or conflict with
// what readers then see, whatever is durable at the moment. Positions ascend, and what is repeated is known.
func TestEditsBesideWrites(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, st *storetest.FakeEngine) {
		s := openStore(t, st, message.Options{Level: holdfast.Memory})
		n := namespace(t, s, message.Default)
		st.Hold()
		var done atomic.Bool
		var settling, all sync.WaitGroup
		settling.Go(func() {
			for !done.Load() {
				st.Locked(func() {
					if st.Settled < st.Applied {
						st.Settle()
					}
				})
				runtime.Gosched()
			}
		})
		const each = 60
		var imports atomic.Int64
		for w := range 6 {
			r := rand.New(rand.NewPCG(7, uint64(w)))
			all.Go(func() {
				for i := range each {
					stream := fmt.Sprint("a-", r.IntN(2))
					var err error
					switch w {
					case 0:
						_, err = n.Truncate(ctx, stream, r.Int64N(200))
					case 1:
						// Behind the end, or in a hole that an import has left; another may be there by then.
						at := max(1, n.Last()+r.Int64N(40)-10)
						err = importLines(n, lineOf(1+i, stream, 1000*imports.Add(1), at))
						if errors.Is(err, message.ErrPositionTaken) {
							err = nil
						}
					case 2:
						last := int64(-1)
						for m, failed := range n.Read(ctx, message.Query{Stream: stream}) {
							if err = failed; err == nil && m.Position <= last {
								t.Errorf("position %d after %d", m.Position, last)
							}
							last = m.Position
						}
					case 3: // all but the first are repeats, unless it was removed
						m := msg("t")
						m.ID = fmt.Sprintf("00000000-0000-4000-9000-%012d", i/3)
						_, err = n.Write(ctx, fmt.Sprint("a-", i/3%2), m)
					default:
						version, ok, failed := n.Version(ctx, stream)
						if !ok {
							version = message.NoStream
						}
						_, err = n.WriteAfter(ctx, stream, version, msg("t"))
						var c *message.Conflict
						if failed != nil {
							err = failed
						} else if errors.As(err, &c) {
							if seen, _, failed := n.Version(ctx, stream); failed != nil || seen < c.Actual {
								t.Errorf("a conflict with version %d, readers see %d, %v", c.Actual, seen, failed)
							}
							err = nil
						}
					}
					if err != nil {
						t.Errorf("worker %d: %v", w, err)
					}
				}
			})
		}
		all.Wait()
		done.Store(true)
		settling.Wait()
		st.Release(-1)
		closeStore(t, s)
	})
}

// Where an edit has done its work, but the sync of that has failed, one that finds nothing to do fails too.
func TestEditsThatFindNothingToDoAreDurable(t *testing.T) {
	for what, edit := range map[string]func(n *message.Namespace) error{
		"import":   func(n *message.Namespace) error { return importLines(n, lineOf(2, "a-1", 1, 5)) },
		"truncate": func(n *message.Namespace) error { _, err := n.Truncate(ctx, "a-1", 6); return err },
		"retain":   func(n *message.Namespace) error { _, err := n.Retain(ctx); return err },
	} {
		t.Run(what, func(t *testing.T) {
			storetest.FakeEngines(t, func(t *testing.T, st *storetest.FakeEngine) {
				s := openStore(t, st, message.Options{Level: holdfast.Memory})
				defer s.Close() // with the failure
				n := namespace(t, s, message.Default)
				if err := importLines(n, lineOf(1, "a-1", 5, 10), lineOf(9, "a-1", 6, 11)); err != nil {
					t.Fatal(err)
				}
				if err := n.SetRetention(ctx, "a-1", message.Retention{MaxCount: 1}); err != nil {
					t.Fatal(err)
				}
				write(t, n, "b-1", msg("t"))
				if _, err := n.Delete(ctx, "b-1"); err != nil { // counts are stored
					t.Fatal(err)
				}
				st.Hold()
				applied := st.Applied
				first := storetest.Async(func() error { return edit(n) })
				st.AwaitApplied(applied + 1)
				st.Locked(func() { st.Fail = errors.New("the sync has failed") })
				storetest.Finished(t, holdfast.ErrPoisoned, first)
				if err := edit(n); !errors.Is(err, holdfast.ErrPoisoned) {
					t.Errorf("it was acknowledged: %v", err)
				}
				if got := read(t, n, message.Query{Stream: "a-1", From: 0}); len(got) > 2 {
					t.Errorf("readers see %+v", got)
				}
			})
		})
	}
}

// Text is UTF-8, because JSON could not tell it otherwise. An opaque store exports any bytes.
func TestNotUTF8(t *testing.T) {
	s, n := memStore(t)
	for what, m := range map[string]message.Message{
		"type":     {Type: "\xff", Data: []byte("{}")},
		"data":     {Type: "t", Data: []byte("{\"a\":\"\xff\"}")},
		"metadata": {Type: "t", Data: []byte("{}"), Metadata: []byte("{\"a\":\"\xff\"}")},
	} {
		if _, err := n.Write(ctx, "a-1", m); !errors.Is(err, message.ErrBadMessage) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := s.Create(ctx, message.NamespaceOptions{ID: "a", Description: "\xff"})
	storetest.WantError(t, err, holdfast.ErrBadOption)
	storetest.WantError(t, importLines(n, strings.Replace(lineOf(1, "a-1", 0, 1), `"t"`, "\"\xff\"", 1)),
		message.ErrBadMessage)

	opaque := openStore(t, mem.New(), message.Options{Level: holdfast.Memory, Opaque: true})
	defer closeStore(t, opaque)
	n = namespace(t, opaque, message.Default)
	in := message.Message{Type: "t", Data: []byte("{\"a\":\"\xff\"}"), Metadata: []byte{0xfe}}
	write(t, n, "a-1", in)
	var out bytes.Buffer
	if _, err := n.Export(ctx, &out, message.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := opaque.Create(ctx, message.NamespaceOptions{ID: "copy"}); err != nil {
		t.Fatal(err)
	}
	n = namespace(t, opaque, "copy")
	if _, err := n.Import(ctx, &out, nil); err != nil {
		t.Fatal(err)
	}
	got := read(t, n, message.Query{})
	if !bytes.Equal(got[0].Data, in.Data) || !bytes.Equal(got[0].Metadata, in.Metadata) {
		t.Errorf("%+v", got)
	}
}

// Nothing is left of a deleted namespace, whatever those still do who have it, and few range tombstones.
func TestDeletedNamespaceLeavesNothing(t *testing.T) {
	for _, messages := range []int{1, 300} {
		st := storetest.NewFakeEngine()
		s := openStore(t, st, message.Options{Level: holdfast.Memory})
		before := storetest.Keys(st, holdfast.Range{})
		if _, err := s.Create(ctx, message.NamespaceOptions{ID: "a"}); err != nil {
			t.Fatal(err)
		}
		n := namespace(t, s, "a")
		for i := range messages {
			write(t, n, fmt.Sprint("a-", i), msg("t"))
		}
		sub := subscribe(t, n, "sub", message.SubscriptionOptions{})
		got := claim(t, sub, 1, 1)
		var late atomic.Int64
		calls := map[string]func() error{
			"subscribe": func() error {
				_, err := n.Subscribe(ctx, fmt.Sprint("late ", late.Add(1)), message.SubscriptionOptions{})
				return err
			},
			"delete subscription": func() error { return n.DeleteSubscription(ctx, "none") },
			"save position":       func() error { return n.SavePosition(ctx, "c", 0) },
			"set retention":       func() error { return n.SetRetention(ctx, "a-1", message.Retention{MaxCount: 1}) },
			"acknowledge":         func() error { return sub.Ack(ctx, got...) },
		}
		var beside sync.WaitGroup
		for _, call := range calls {
			beside.Go(func() { _ = call() }) // before, while or after
		}
		if _, err := s.Delete(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		beside.Wait()
		for what, call := range calls {
			if err := call(); !errors.Is(err, message.ErrNoNamespace) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if left := storetest.Keys(st, holdfast.Range{}) - before; left != 0 {
			t.Errorf("after %d messages %d keys are left", messages, left)
		}
		if most := min(messages/100, 3); st.Ranges > most+2 { // and those of DeleteSubscription
			t.Errorf("after %d messages %d ranges", messages, st.Ranges)
		}
		closeStore(t, s)
	}
}

// A claim whose context ends while it passes over messages that nobody wants is not in vain, nor is it after a restart.
func TestClaimGetsThroughTheUnwanted(t *testing.T) {
	for _, o := range []message.Query{{Types: []string{"wanted"}}, {Category: "a", Types: []string{"wanted"}}} {
		s, n := memStore(t)
		const unwanted = 5000
		for i := range unwanted {
			write(t, n, fmt.Sprint("a-", i%3), msg("t"))
		}
		write(t, n, "a-1", msg("wanted"))
		sub := subscribe(t, n, "sub", message.SubscriptionOptions{Query: o})
		var got []message.Delivery
		for range 100 {
			short, cancel := context.WithCancel(ctx)
			var left atomic.Int64
			left.Store(500)
			var err error
			if got, err = sub.Claim(endsAfter{short, &left}, 1); err == nil {
				cancel()
				break
			}
			storetest.WantError(t, err, context.Canceled)
			cancel()
		}
		if len(got) != 1 || got[0].Global != unwanted+1 {
			t.Fatalf("claimed %+v", got)
		}
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
		if i := subscribe(t, n, "sub", message.SubscriptionOptions{Query: o}).Info(); i.Done <= unwanted-1024 {
			t.Errorf("%+v", i)
		}
		closeStore(t, s)
	}
}

// A message that is not done does not make a subscription remember ever more of those behind it.
func TestSubscriptionIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := memStore(t)
		for range 100 {
			write(t, n, "a-1", msg("t"))
		}
		sub := subscribe(t, n, "sub", message.SubscriptionOptions{Window: 2, Lease: time.Hour})
		first := claim(t, sub, 1, 1)
		for at := range int64(2 * 16) {
			if err := sub.Ack(ctx, claim(t, sub, 1, at+2)...); err != nil {
				t.Fatal(err)
			}
		}
		nothing(t, sub)
		if err := sub.Ack(ctx, first...); err != nil {
			t.Fatal(err)
		}
		if err := sub.Park(ctx, "why", claim(t, sub, 9, 34, 35)...); err != nil {
			t.Fatal(err)
		}
		if err := sub.Park(ctx, "why", claim(t, sub, 9, 36, 37)...); err != nil {
			t.Fatal(err)
		}
		if k, err := sub.Replay(ctx, 34, 35, 36, 37); k != 2 || err != nil {
			t.Error(k, err)
		}
		claim(t, sub, 9, 34, 35)
		closeStore(t, s)
	})
}

// What is damaged in one namespace or stream does not keep the others from being removed.
func TestRetentionBesideDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := mem.New()
		var logged bytes.Buffer
		s := openStore(t, eng, message.Options{Level: holdfast.Memory, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		var kept []*message.Namespace
		for _, id := range []string{"a", "b", "c"} {
			if _, err := s.Create(ctx, message.NamespaceOptions{ID: id}); err != nil {
				t.Fatal(err)
			}
			n := namespace(t, s, id)
			for _, stream := range []string{"s-1", "s-2"} {
				write(t, n, stream, msg("1"), msg("2"), msg("3"))
				if err := n.SetRetention(ctx, stream, message.Retention{MaxCount: 1}); err != nil {
					t.Fatal(err)
				}
			}
			kept = append(kept, n)
		}
		var b holdfast.Batch
		it := eng.Scan(holdfast.Range{})
		for it.Next() {
			switch name := message.KeyName(it.Key()); {
			case strings.HasPrefix(name, `namespace "a"`), strings.HasPrefix(name, `what is kept of "s-1" in namespace 3`):
				b.Set(it.Key(), []byte("damage"))
			}
		}
		if err := errors.Join(it.Close(), holdfast.Commit(eng, &b, holdfast.Memory)); err != nil || b.Len() != 2 {
			t.Fatal(b.Len(), err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := read(t, kept[1], message.Query{Stream: "s-2"}); len(got) != 1 {
			t.Errorf("beside a damaged stream %d messages are left", len(got))
		}
		if got := read(t, kept[2], message.Query{}); len(got) != 2 {
			t.Errorf("beside a damaged namespace %d messages are left", len(got))
		}
		list, err := s.Namespaces(ctx, "", 0)
		if len(list) != 3 || !errors.Is(err, holdfast.ErrCorrupt) { // default, too
			t.Error(list, err)
		}
		closeStore(t, s)
		if text := logged.String(); !strings.Contains(text, `of \"a\"`) || !strings.Contains(text, "s-1") {
			t.Error(text)
		}
	})
}

// The logs of namespaces that nobody uses are closed, and opened again when they are used; all works meanwhile.
func TestIdleNamespacesAreClosed(t *testing.T) {
	eng := mem.New()
	s := openStore(t, eng, message.Options{Level: holdfast.Memory, MaxOpen: 2})
	const namespaces, each = 8, 60
	var all sync.WaitGroup
	for i := range namespaces {
		id := fmt.Sprint("n", i)
		if _, err := s.Create(ctx, message.NamespaceOptions{ID: id}); err != nil {
			t.Fatal(err)
		}
		n := namespace(t, s, id)
		followed := make(chan int64, each)
		if i == 0 { // in use all the time
			all.Go(func() {
				for m, err := range n.Follow(ctx, message.Query{}) {
					if err != nil {
						t.Error(err)
						return
					}
					if followed <- m.Global; m.Global == each {
						return
					}
				}
			})
		}
		for range 2 {
			all.Go(func() {
				for range each / 2 {
					write(t, n, "a-1", msg("t"))
					if last := n.Last(); last < 1 {
						t.Error(last)
					}
				}
			})
		}
	}
	all.Wait()
	if n := message.OpenLogs(s); n > 2 {
		t.Errorf("%d logs are open", n)
	}
	for i := range namespaces {
		n := namespace(t, s, fmt.Sprint("n", i))
		if c, err := n.Count(ctx, ""); c != (message.Counts{Messages: each, Streams: 1}) || err != nil || n.Last() != each {
			t.Error(c, err, n.Last())
		}
		if got := read(t, n, message.Query{Stream: "a-1"}); len(got) != each || got[each-1].Position != each-1 {
			t.Error(len(got))
		}
	}
	closeStore(t, s)
}
