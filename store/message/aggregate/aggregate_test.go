package aggregate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/message/aggregate"
)

var (
	ctx       = context.Background()
	wantError = storetest.WantError
)

type (
	// change is an event of an account.
	change    interface{ amount() int }
	deposited struct {
		Amount int
		By     string `json:",omitempty"`
	}
	withdrawn struct{ Amount int }

	unregistered struct{ withdrawn }

	account struct {
		Balance, Changes int
		Last             []int // of the amounts; it shares memory when it is copied
	}
	accounts = aggregate.Repository[account, change]
	options  = aggregate.Options[account, change]
	open     = aggregate.Aggregate[account, change]
)

func (d deposited) amount() int { return d.Amount }
func (w withdrawn) amount() int { return -w.Amount }

func (a *account) apply(e change) {
	a.Balance += e.amount()
	a.Changes++
	if a.Last = append(a.Last, e.amount()); len(a.Last) > 3 {
		a.Last = a.Last[1:]
	}
}

var errOverdrawn = errors.New("overdrawn")

func withdraw(amount int) func(*open) error {
	return func(a *open) error {
		if a.State.Balance < amount {
			return errOverdrawn
		}
		a.Add(withdrawn{amount})
		return nil
	}
}

func deposit(amounts ...int) func(*open) error {
	return func(a *open) error {
		for _, amount := range amounts {
			a.Add(deposited{Amount: amount})
		}
		return nil
	}
}

func registered() *aggregate.Events[change] {
	events := aggregate.NewEvents[change]()
	aggregate.Register[deposited](events, "Deposited", 1)
	aggregate.Register[withdrawn](events, "Withdrawn", 1)
	return events
}

func repository(t testing.TB, n *message.Namespace, o options) *accounts {
	t.Helper()
	if o.Category = "account"; o.Events == nil {
		o.Events = registered()
	}
	o.Apply = (*account).apply
	r, err := aggregate.New(n, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func openStore(t testing.TB, eng holdfast.Engine, level holdfast.Level) (*message.Store, *message.Namespace) {
	t.Helper()
	s, err := message.Open(kv.On(eng), message.Options{Level: level})
	if err != nil {
		t.Fatal(err)
	}
	n, err := s.Namespace(ctx, message.Default)
	if err != nil {
		t.Fatal(err)
	}
	return s, n
}

// memNamespace is one in memory, closed at the end of the test.
func memNamespace(t testing.TB) (holdfast.Engine, *message.Namespace) {
	t.Helper()
	eng := mem.New()
	s, n := openStore(t, eng, holdfast.Memory)
	storetest.CloseAtEnd(t, s)
	return eng, n
}

func do(t testing.TB, r *accounts, id string, decide func(*open) error) *open {
	t.Helper()
	a, err := r.Do(ctx, id, decide)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func load(t testing.TB, r *accounts, id string) *open {
	t.Helper()
	a, err := r.Load(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// sameState compares what was loaded.
func sameState(t testing.TB, got, want *open) {
	t.Helper()
	if fmt.Sprint(got.State) != fmt.Sprint(want.State) || got.Version != want.Version {
		t.Fatalf("version %d: %+v, want version %d: %+v", got.Version, got.State, want.Version, want.State)
	}
}

func count(t testing.TB, n *message.Namespace, q message.Query) (k int) {
	t.Helper()
	for _, err := range n.Read(ctx, q) {
		if err != nil {
			t.Fatal(err)
		}
		k++
	}
	return k
}

// TestConformance is what aggregates promise, on every engine at every level that it gives: of all who decide on one
// account none overdraws it, and what is loaded, with snapshots and without, after the engine was opened again too, is
// what was decided.
func TestConformance(t *testing.T) {
	storetest.Targets(t, func(t *testing.T, tg *storetest.Target) {
		s, n := openStore(t, tg.Engine, tg.Level)
		r := repository(t, n, options{SnapshotEvery: 4})
		if a := load(t, r, "1"); a.Version != message.NoStream || a.State.Changes != 0 {
			t.Fatalf("%+v", a)
		}
		if a := do(t, r, "1", deposit(10, 5, 5)); a.Version != 2 || a.State.Balance != 20 || a.Global == 0 {
			t.Fatalf("%+v", a)
		}
		const writers, each = 4, 10
		var withdrawals, refused atomic.Int32
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for range each {
					switch _, err := r.Do(ctx, "1", withdraw(1)); {
					case err == nil:
						withdrawals.Add(1)
					case errors.Is(err, errOverdrawn):
						refused.Add(1)
					default:
						t.Error(err)
					}
					if _, err := r.Do(ctx, fmt.Sprint("w", w), deposit(1)); err != nil { // an account of its own
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if withdrawals.Load() != 20 || refused.Load() != writers*each-20 {
			t.Fatalf("%d withdrawals, %d refused", withdrawals.Load(), refused.Load())
		}
		check := func() {
			t.Helper()
			for id, version := range map[string]int64{"1": 22, "w0": each - 1, "w3": each - 1} {
				a := load(t, r, id)
				if sameState(t, a, load(t, repository(t, n, options{}), id)); a.Version != version {
					t.Fatalf("account %q has version %d", id, a.Version)
				}
			}
		}
		check()
		if k := count(t, n, message.Query{Stream: "account:snapshot-1"}); k != 2 {
			t.Fatalf("%d snapshots", k)
		}
		storetest.Close(t, s)
		if tg.Reopen(t); tg.OnDisk() {
			s, n = openStore(t, tg.Engine, tg.Level)
			r = repository(t, n, options{SnapshotEvery: 4})
			check()
			storetest.Close(t, s)
		}
		_, err := r.Do(ctx, "1", deposit(1))
		wantError(t, err, holdfast.ErrClosed)
	})
}

// What is refused leaves nothing.
func TestDo(t *testing.T) {
	_, n := memNamespace(t)
	r := repository(t, n, options{Attempts: 3})
	refused := errors.New("refused")
	_, err := r.Do(ctx, "1", func(a *open) error { a.Add(deposited{Amount: 1}); return refused })
	if err != refused {
		t.Fatal(err)
	}
	do(t, r, "1", func(*open) error { return nil })
	_, err = r.Do(ctx, "1", func(a *open) error { a.Also(write(n, "mail")); return nil })
	wantError(t, err, message.ErrBadMessage)
	_, err = r.Do(ctx, "1", func(a *open) error { a.Add(unregistered{}); return nil })
	wantError(t, err, aggregate.ErrUnknownEvent)
	_, err = r.Do(ctx, "1", func(a *open) error { a.Metadata = []byte("[]"); return deposit(1)(a) })
	wantError(t, err, message.ErrBadMessage)
	_, err = r.Do(ctx, "", deposit(1))
	wantError(t, err, message.ErrBadName)
	var none context.Context
	_, err = r.Do(none, "1", deposit(1))
	wantError(t, err, holdfast.ErrBadOption)
	if n.Last() != 0 {
		t.Fatal("something was written")
	}

	// What is written besides is in the same commit, or nothing is.
	mail := func(data string) message.Message { return message.Message{Type: "Mail", Data: []byte(data)} }
	also := func(m message.Message) func(*open) error {
		return func(a *open) error {
			a.Metadata = json.RawMessage(`{"by": "me"}`)
			a.Add(deposited{Amount: 7})
			a.Also(write(n, "mail", m))
			return nil
		}
	}
	_, err = r.Do(ctx, "1", also(mail("no JSON")))
	wantError(t, err, message.ErrBadMessage)
	if n.Last() != 0 {
		t.Fatal("something was written")
	}
	if a := do(t, r, "1", also(mail("{}"))); a.Global != 1 || n.Last() != 2 {
		t.Fatal(a, n.Last())
	}
	if m, err := n.LastMessage(ctx, "account-1", ""); err != nil || string(m.Metadata) != `{"by": "me"}` {
		t.Fatal(m, err)
	}

	// Who always conflicts gives up after as many attempts as were allowed.
	attempts := 0
	_, err = r.Do(ctx, "1", func(a *open) error {
		attempts++
		do(t, r, "1", deposit(1))
		return deposit(100)(a)
	})
	wantError(t, err, message.ErrConflict)
	_, err = r.Do(ctx, "1", func(a *open) error { // a conflict in another stream
		attempts++
		a.Also(func(tx *kv.Tx) error {
			_, err := n.In(tx).WriteAfter("mail", 17, mail("{}"))
			return err
		})
		return deposit(100)(a)
	})
	wantError(t, err, message.ErrConflict)
	if a := load(t, r, "1"); attempts != 6 || a.State.Balance != 10 {
		t.Fatalf("%d attempts, %+v", attempts, a)
	}
	stop, cancel := context.WithCancel(ctx)
	_, err = repository(t, n, options{}).Do(stop, "1", func(a *open) error {
		do(t, r, "1", deposit(1))
		cancel()
		return deposit(1)(a)
	})
	wantError(t, err, context.Canceled)
}

// A decision, its snapshot and what it writes besides are one batch of the engine.
func TestOneCommit(t *testing.T) {
	st := storetest.NewFakeEngine()
	s, n := openStore(t, st, holdfast.Memory)
	r := repository(t, n, options{SnapshotEvery: 2})
	before := st.Applied
	do(t, r, "1", func(a *open) error {
		a.Also(write(n, "mail", message.Message{Type: "Mail", Data: []byte("{}")}))
		return deposit(1, 2)(a)
	})
	if st.Applied != before+1 || n.Last() != 4 {
		t.Fatalf("%d batches, %d messages", st.Applied-before, n.Last())
	}
	full := errors.New("no space left on device")
	st.Locked(func() { st.Refuse = full })
	_, err := r.Do(ctx, "1", deposit(1))
	wantError(t, err, full)
	st.Locked(func() { st.Refuse = nil; st.Held = true })
	cause := errors.New("input/output error")
	ended := storetest.Async(func() error { _, err := r.Do(ctx, "1", deposit(1)); return err })
	st.AwaitWaiters(1)
	st.Locked(func() { st.Fail = cause })
	wantError(t, <-ended, cause)
	if a := load(t, r, "1"); a.Version != 1 || a.State.Balance != 3 {
		t.Fatalf("%+v", a)
	}
	wantError(t, s.Close(), cause)
}

// TestAlsoOnce: what a decision does in the transaction of its events is there with them, once for each decision that
// was written, also with snapshots and where one cannot be kept.
func TestAlsoOnce(t *testing.T) {
	st := storetest.NewFakeEngine()
	db, err := kv.Open(st, kv.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	s, err := message.Open(db, message.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, s)
	n, err := s.Namespace(ctx, message.Default)
	if err != nil {
		t.Fatal(err)
	}
	r := repository(t, n, options{SnapshotEvery: 3})
	count := func(a *open) { a.Also(func(tx *kv.Tx) error { _, err := tx.Bucket("b").NextSequence(); return err }) }
	counted := func() (n uint64) {
		t.Helper()
		if err := db.View(ctx, func(tx *kv.Tx) (err error) { n, err = tx.Bucket("b").Sequence(); return err }); err != nil {
			t.Fatal(err)
		}
		return n
	}

	before := st.Applied
	a := do(t, r, "1", func(a *open) error {
		count(a)
		a.Also(write(n, "mail", message.Message{Type: "Mail", Data: []byte("{}")}))
		return deposit(1, 2, 3)(a)
	})
	if st.Applied != before+1 || n.Last() != 5 || counted() != 1 || a.Version != 2 || a.Global != 3 {
		t.Fatalf("%d batches, %d messages, counted %d: %+v", st.Applied-before, n.Last(), counted(), a)
	}

	refused := errors.New("refused")
	_, err = r.Do(ctx, "1", func(a *open) error {
		count(a)
		a.Also(func(*kv.Tx) error { return refused })
		return deposit(1)(a)
	})
	if err != refused || n.Last() != 5 || counted() != 1 {
		t.Fatalf("%v; %d messages, counted %d", err, n.Last(), counted())
	}

	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				if _, err := r.Do(ctx, "1", func(a *open) error { count(a); return deposit(1)(a) }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if a := load(t, r, "1"); a.Version != 42 || counted() != 41 {
		t.Errorf("version %d, counted %d", a.Version, counted())
	}

	events := aggregate.NewEvents[change]()
	aggregate.Register[deposited](events, "Deposited", 1)
	deep, err := aggregate.New(n, aggregate.Options[deepState, change]{Category: "deep", Events: events, SnapshotEvery: 1,
		Apply: func(s *deepState, e change) {
			for range message.MaxDepth {
				inner := *s
				*s = deepState{s.Depth + 1, "", &inner}
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deep.Do(ctx, "1", func(a *aggregate.Aggregate[deepState, change]) error {
		a.Add(deposited{Amount: 1})
		a.Also(func(tx *kv.Tx) error { _, err := tx.Bucket("b").NextSequence(); return err })
		return nil
	}); err != nil || counted() != 42 {
		t.Errorf("%v; counted %d", err, counted())
	}
}

// Old events are read as what they would be now, and stay as they are.
func TestUpcast(t *testing.T) {
	_, n := memNamespace(t)
	type first struct{ Cents string }
	type second struct{ Cents int }
	old := aggregate.NewEvents[any]()
	aggregate.Register[first](old, "Paid in", 1)
	later := aggregate.NewEvents[any]()
	aggregate.Register[second](later, "Deposited", 2)
	now := registeredAs(t)

	write := func(events *aggregate.Events[any], e any, metadata string) {
		t.Helper()
		r, err := aggregate.New(n, aggregate.Options[int, any]{Category: "account", Events: events,
			Apply: func(*int, any) {}, AllowGaps: true})
		if err != nil {
			t.Fatal(err)
		}
		version, ok, err := n.Version(ctx, "account-1")
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Do(ctx, fmt.Sprint("of ", version, ok), func(a *aggregate.Aggregate[int, any]) error {
			a.Metadata = []byte(metadata)
			a.Add(e)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		m, err := n.LastMessage(ctx, fmt.Sprint("account-of ", version, ok), "")
		if err != nil {
			t.Fatal(err)
		}
		again := message.Message{Type: m.Type, Data: m.Data, Metadata: m.Metadata}
		if _, err := n.Write(ctx, "account-1", again); err != nil {
			t.Fatal(err)
		}
	}
	write(old, first{"100"}, "")
	write(old, first{"200"}, `{"eventVersion": 7, "by": "me"}`) // copied from another event
	write(later, second{300}, `{"by": "me"}`)
	r := repository(t, n, options{Events: now})
	a := do(t, r, "1", func(a *open) error {
		a.Metadata = json.RawMessage(`{"by": "you", "eventVersion": 1}`)
		a.Add(deposited{Amount: 4, By: "hand"}, withdrawn{1})
		return nil
	})
	if a.State.Balance != 9 || a.Version != 4 {
		t.Fatalf("%+v", a)
	}
	sameState(t, load(t, r, "1"), a)
	want := []string{`Paid in {"Cents":"100"} `, `Paid in {"Cents":"200"} {"by":"me"}`,
		`Deposited {"Cents":300} {"by":"me","eventVersion":2}`,
		`Deposited {"Amount":4,"By":"hand"} {"by":"you","eventVersion":3}`, `Withdrawn {"Amount":1} {"by":"you"}`}
	i := 0
	for m, err := range n.Read(ctx, message.Query{Stream: "account-1"}) {
		if got := fmt.Sprintf("%s %s %s", m.Type, m.Data, m.Metadata); err != nil || got != want[i] {
			t.Errorf("message %d: %s, want %s, %v", i, got, want[i], err)
		}
		i++
	}

	for what, c := range map[string]struct {
		typ, data, metadata string
		class               error
	}{
		"unknown":  {"Closed", "{}", "", aggregate.ErrUnknownEvent},
		"newer":    {"Deposited", "{}", `{"eventVersion": 4}`, holdfast.ErrVersion},
		"too old":  {"Deposited", "{}", `{"eventVersion": 0}`, holdfast.ErrVersion},
		"misfit":   {"Withdrawn", `{"Amount": "1"}`, "", holdfast.ErrCorrupt},
		"upcast":   {"Paid in", `{"Cents": "x"}`, "", holdfast.ErrCorrupt},
		"metadata": {"Withdrawn", "{}", `{"eventVersion": "1"}`, holdfast.ErrCorrupt},
	} {
		m := message.Message{Type: c.typ, Data: []byte(c.data), Metadata: []byte(c.metadata)}
		if _, err := n.Write(ctx, "account-"+what, m); err != nil {
			t.Fatal(err)
		}
		_, err := r.Load(ctx, what)
		wantError(t, err, c.class)
		if !strings.Contains(err.Error(), fmt.Sprintf("message 0 of stream %q", "account-"+what)) {
			t.Error(err)
		}
	}
}

// registeredAs are the events of today, of which deposited was called "Paid in" and had two forms.
func registeredAs(t *testing.T) *aggregate.Events[change] {
	events := aggregate.NewEvents[change]()
	aggregate.Register[deposited](events, "Deposited", 3)
	aggregate.Register[deposited](events, "Paid in", 3)
	aggregate.Register[withdrawn](events, "Withdrawn", 1)
	type first struct{ Cents string }
	type second struct{ Cents int }
	for _, name := range []string{"Deposited", "Paid in"} {
		aggregate.Upcast(events, name, 1, func(old first) (second, error) {
			var n int
			_, err := fmt.Sscan(old.Cents, &n)
			return second{n}, err
		})
		aggregate.Upcast(events, name, 2, func(old second) (deposited, error) {
			return deposited{Amount: old.Cents / 100}, nil
		})
	}
	return events
}

func TestBadOptions(t *testing.T) {
	_, n := memNamespace(t)
	apply := (*account).apply
	for what, o := range map[string]options{
		"nothing":     {},
		"no events":   {Category: "c", Apply: apply},
		"no apply":    {Category: "c", Events: registered()},
		"no category": {Events: registered(), Apply: apply},
		"a stream":    {Category: "c-1", Events: registered(), Apply: apply},
		"negative":    {Category: "c", Events: registered(), Apply: apply, SnapshotEvery: -1},
		"never":       {Category: "c", Events: registered(), Apply: apply, Attempts: -1},
	} {
		if _, err := aggregate.New(n, o); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%s: %v", what, err)
		}
	}
	same := func(d deposited) (deposited, error) { return d, nil }
	for what, register := range map[string]func(*aggregate.Events[change]){
		"no event":       func(ev *aggregate.Events[change]) { aggregate.Register[int](ev, "int", 1) },
		"an interface":   func(ev *aggregate.Events[change]) { aggregate.Register[change](ev, "change", 1) },
		"no name":        func(ev *aggregate.Events[change]) { aggregate.Register[deposited](ev, "", 1) },
		"no version":     func(ev *aggregate.Events[change]) { aggregate.Register[deposited](ev, "d", 0) },
		"twice":          func(ev *aggregate.Events[change]) { aggregate.Register[withdrawn](ev, "Deposited", 1) },
		"not registered": func(ev *aggregate.Events[change]) { aggregate.Upcast(ev, "d", 1, same) },
		"not older":      func(ev *aggregate.Events[change]) { aggregate.Upcast(ev, "Deposited", 1, same) },
		"a step missing": func(ev *aggregate.Events[change]) {
			aggregate.Register[deposited](ev, "d", 3)
			aggregate.Upcast(ev, "d", 1, same)
		},
	} {
		events := registered()
		register(events)
		_, err := aggregate.New(n, options{Category: "c", Events: events, Apply: apply})
		if !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Snapshots of another version are not used, and one that does not fit is an error.
func TestSnapshots(t *testing.T) {
	_, n := memNamespace(t)
	r := repository(t, n, options{SnapshotEvery: 3})
	snapshots := func(want int) {
		t.Helper()
		if k := count(t, n, message.Query{Stream: "account:snapshot-1"}); k != want {
			t.Fatalf("%d snapshots", k)
		}
	}
	for i := range 10 {
		do(t, r, "1", deposit(i))
	}
	snapshots(3)
	do(t, r, "1", deposit(1, 1, 1, 1, 1, 1)) // several at once are one snapshot, the fourth
	snapshots(1)
	want := load(t, repository(t, n, options{}), "1")
	forge := func(data string) {
		t.Helper()
		m := message.Message{Type: "Snapshot", Data: []byte(data)}
		if _, err := n.Write(ctx, "account:snapshot-1", m); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 * 10 {
		do(t, repository(t, n, options{SnapshotEvery: 3}), "2", deposit(i))
		if k := count(t, n, message.Query{Stream: "account:snapshot-2"}); k > 4 {
			t.Fatalf("%d snapshots", k)
		}
	}
	sameState(t, load(t, repository(t, n, options{SnapshotEvery: 3}), "2"), load(t, repository(t, n, options{}), "2"))
	forge(`{"version": 15, "snapshotVersion": 1, "state": "of another kind"}`)
	sameState(t, load(t, r, "1"), want)
	forge(`{"version": 15, "state": {"Balance": 1000}}`)
	if a := load(t, r, "1"); a.State.Balance != 1000 {
		t.Fatalf("the snapshot is not used: %+v", a)
	}
	sameState(t, load(t, repository(t, n, options{SnapshotEvery: 3, SnapshotVersion: 2}), "1"), want)
	forge(`{"version": 99, "state": {}}`) // ahead of the stream: a part of an import, perhaps
	_, err := r.Do(ctx, "1", deposit(1))
	wantError(t, err, holdfast.ErrCorrupt)
	forge(`{"version": 15, "state": "of another kind"}`)
	_, err = r.Load(ctx, "1")
	wantError(t, err, holdfast.ErrCorrupt)
}

// A state is not made of a part of its events unless that is asked for.
func TestGaps(t *testing.T) {
	eng := mem.New()
	s, n := openStore(t, eng, holdfast.Memory)
	for _, id := range []string{"1", "2"} {
		do(t, repository(t, n, options{}), id, deposit(1, 2, 4, 8))
	}
	do(t, repository(t, n, options{SnapshotEvery: 4}), "3", deposit(1, 2, 4, 8))
	storetest.Close(t, s)
	logs, err := event.Logs(ctx, eng)
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	log, err := event.Open(kv.On(eng), event.Options{Name: logs[0].Name, Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Remove(ctx, 2, 8, 9, 10, 11, 12); err != nil { // the second, the last, and all but the snapshot
		t.Fatal(err)
	}
	storetest.Close(t, log)
	s, n = openStore(t, eng, holdfast.Memory)
	defer storetest.Close(t, s)
	whole, parts := repository(t, n, options{}), repository(t, n, options{AllowGaps: true})
	for id, balance := range map[string]int{"1": 13, "2": 7, "3": 0} {
		_, err := whole.Load(ctx, id)
		wantError(t, err, aggregate.ErrIncomplete)
		_, err = whole.Do(ctx, id, deposit(1))
		wantError(t, err, aggregate.ErrIncomplete)
		if a := load(t, parts, id); a.State.Balance != balance || a.Version != 3 {
			t.Fatalf("account %s: %+v", id, a)
		}
	}
	if a := load(t, repository(t, n, options{SnapshotEvery: 4}), "3"); a.State.Balance != 15 {
		t.Fatalf("%+v", a)
	}
	if a := do(t, parts, "2", deposit(1)); a.State.Balance != 8 || a.Version != 4 {
		t.Fatalf("%+v", a)
	}
}

// A decision adds to its transaction as often as it likes, also to one stream, and without an event of its own.
func TestAlso(t *testing.T) {
	s, n := openStore(t, mem.New(), holdfast.Memory)
	defer storetest.Close(t, s)
	r := repository(t, n, options{SnapshotEvery: 1})
	mail := message.Message{Type: "Mail", Data: []byte("{}")}
	for _, events := range [][]int{{1, 2}, {}, {3}} {
		do(t, r, "17", func(a *open) error {
			for _, amount := range events {
				a.Add(deposited{Amount: amount})
			}
			a.Also(write(n, "mail", mail, mail))
			a.Also(func(tx *kv.Tx) error {
				v, err := n.In(tx).Version("mail")
				if err != nil {
					return err
				}
				_, err = n.In(tx).WriteAfter("mail", v, mail)
				return err
			})
			a.Also(func(tx *kv.Tx) error { _, err := tx.Bucket("own").NextSequence(); return err })
			return nil
		})
	}
	if c, err := n.Count(ctx, "mail"); c.Messages != 9 || err != nil {
		t.Error(c, err)
	}
	if err := n.DB().View(ctx, func(tx *kv.Tx) error {
		if n, err := tx.Bucket("own").Sequence(); n != 3 || err != nil {
			t.Error(n, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if a := load(t, r, "17"); a.State.Balance != 6 {
		t.Errorf("%+v", a)
	}

	// Without an event, too, the decision is made on the state that is there.
	attempts := 0
	do(t, r, "17", func(a *open) error {
		if attempts++; attempts == 1 {
			do(t, r, "17", deposit(1))
		}
		a.Also(write(n, "mail", mail))
		return nil
	})
	if c, err := n.Count(ctx, "mail"); attempts != 2 || c.Messages != 10 || err != nil {
		t.Error(attempts, c, err)
	}
}

// A command that comes again, later, at the same time or after others, is done once, and has the first result.
func TestDoOnce(t *testing.T) {
	s, n := openStore(t, mem.New(), holdfast.Memory)
	defer storetest.Close(t, s)
	r := repository(t, n, options{SnapshotEvery: 2})
	decided := 0
	once := func(command string, amounts ...int) *open {
		t.Helper()
		a, err := r.DoOnce(ctx, "17", command, func(a *open) error {
			decided++
			a.Also(write(n, "mail", message.Message{Type: "Mail", Data: []byte("{}")}))
			return deposit(amounts...)(a)
		})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := once("a", 1, 2)
	second := once("b", 10)
	do(t, r, "17", deposit(100))
	for range 2 {
		for command, want := range map[string]*open{"a": first, "b": second} {
			got := once(command, 5)
			if got.State.Balance != want.State.Balance || got.Version != want.Version || got.Global != want.Global {
				t.Errorf("command %s again: %+v, first %+v", command, got, want)
			}
		}
	}
	if c, err := n.Count(ctx, "mail"); decided != 2 || c.Messages != 2 || err != nil {
		t.Error(decided, c, err)
	}
	if a := load(t, r, "17"); a.State.Balance != 113 {
		t.Errorf("%+v", a)
	}

	// Many at once: one that finds the work done, which a decision by itself would refuse, has the result too.
	refused := errors.New("refused")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 20 {
				a, err := r.DoOnce(ctx, fmt.Sprint("x", i), "c", func(a *open) error {
					if a.State.Balance > 0 {
						return refused
					}
					return deposit(1)(a)
				})
				if err != nil || a.State.Balance != 1 || a.Version != 0 {
					t.Error(a, err)
				}
			}
		})
	}
	all.Wait()
	_, err := r.DoOnce(ctx, "17", "d", func(*open) error { return refused })
	if err != refused {
		t.Error(err)
	}
	_, err = r.DoOnce(ctx, "17", "", deposit(1))
	wantError(t, err, holdfast.ErrBadOption)
}

// write returns what writes messages in a transaction.
func write(n *message.Namespace, stream string, messages ...message.Message) func(tx *kv.Tx) error {
	return func(tx *kv.Tx) error {
		_, err := n.In(tx).Write(stream, messages...)
		return err
	}
}

// deepState is a state that gets deeper, or larger, with each event.
type deepState struct {
	Depth int
	Text  string
	In    *deepState `json:",omitempty"`
}

// A state that no message can hold does not keep decisions from being written.
func TestSnapshotLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: there is one goroutine, and the race detector makes JSON of 64 MiB slow")
	}
	s, n := openStore(t, mem.New(), holdfast.Memory)
	defer storetest.Close(t, s)
	// The message has the state one level deep, so a state of MaxDepth-1 has a snapshot, and the next one has none.
	for name, test := range map[string]struct {
		grow func(s *deepState, by int)
		last int // what the last state with a snapshot has had
	}{
		"depth": {func(s *deepState, by int) {
			for range by {
				inner := *s
				*s = deepState{s.Depth + 1, "", &inner}
			}
		}, message.MaxDepth - 2}, // the first state is 1 deep
		"size": {func(s *deepState, by int) {
			s.Depth += by
			s.Text = strings.Repeat("x", s.Depth<<16)
		}, 1023},
	} {
		t.Run(name, func(t *testing.T) {
			events := aggregate.NewEvents[change]()
			aggregate.Register[deposited](events, "Deposited", 1)
			o := aggregate.Options[deepState, change]{Category: name, Events: events, SnapshotEvery: 1,
				Apply: func(s *deepState, e change) { test.grow(s, e.amount()) }}
			r, err := aggregate.New(n, o)
			if err != nil {
				t.Fatal(err)
			}
			add := func(by int) {
				t.Helper()
				a, err := r.Do(ctx, "1", func(a *aggregate.Aggregate[deepState, change]) error {
					a.Add(deposited{Amount: by})
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				loaded, err := r.Load(ctx, "1")
				if err != nil || loaded.State.Depth != a.State.Depth || loaded.Version != a.Version {
					t.Fatal(loaded, err)
				}
			}
			add(test.last)
			for want, by := range []int{0, 1, 5} {
				if by > 0 {
					add(by)
				}
				version, _, err := n.Version(ctx, name+":snapshot-1")
				if err != nil || version != 0 {
					t.Fatalf("after %d more there is snapshot %d, %v", want, version, err)
				}
			}
		})
	}
}
