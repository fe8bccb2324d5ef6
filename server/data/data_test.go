package data_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

func open(t *testing.T, engine holdfast.Engine, o data.Options, namespaces ...string) *data.Data {
	t.Helper()
	o.Level = holdfast.Memory
	d, err := data.Open(engine, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil && !errors.Is(err, holdfast.ErrClosed) {
			t.Error(err)
		}
	})
	for _, n := range namespaces {
		if _, err := d.Create(t.Context(), message.NamespaceOptions{ID: n}, ""); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func appendTo(t *testing.T, d *data.Data, namespace, log string) {
	t.Helper()
	l, err := d.Log(t.Context(), namespace, log)
	if err == nil {
		_, err = l.Append(t.Context(), event.Event{Type: namespace + "/" + log})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, d *data.Data, namespace string) string {
	t.Helper()
	list, err := d.Logs(t.Context(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, l := range list {
		text += data.LogName(namespace, l) + fmt.Sprint(l.Last) + " "
	}
	return text
}

func TestNamespacesAreIsolated(t *testing.T) {
	ctx := t.Context()
	engine := mem.New()
	d := open(t, engine, data.Options{}, "a", "ab")
	for _, at := range [][2]string{{"default", "x"}, {"a", "x"}, {"ab", "x"}, {"a", "y"}, {"default", "a"}} {
		appendTo(t, d, at[0], at[1])
	}
	for namespace, want := range map[string]string{"default": "a1 x1 ", "a": "x1 y1 ", "ab": "x1 "} {
		if got := names(t, d, namespace); got != want {
			t.Errorf("logs of %s: %q, want %q", namespace, got, want)
		}
		tasks, err := d.Tasks(ctx, namespace)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tasks.Enqueue(ctx, task.Spec{ID: "one", Kind: "k"}); err != nil {
			t.Errorf("tasks of %s: %v", namespace, err)
		}
	}
	for _, log := range []string{"", "a/x", "a\x00b", fmt.Sprintf("%0130d", 1)} {
		if _, err := d.Log(ctx, "default", log); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("a log called %q: %v", log, err)
		}
	}
	if _, err := d.Namespaces(ctx, "", -1); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("a limit below 0: %v", err)
	}
	if _, err := d.Log(ctx, "none", "x"); !errors.Is(err, message.ErrNoNamespace) {
		t.Errorf("a log of no namespace: %v", err)
	}

	n, err := d.Messages().Namespace(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Write(ctx, "s", message.Message{Type: "T", Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if removed, err := d.Delete(ctx, "a"); removed != 1 || err != nil {
		t.Errorf("deleted a with %d messages, %v", removed, err)
	}
	if _, err := d.Delete(ctx, "a"); !errors.Is(err, message.ErrNoNamespace) {
		t.Errorf("deleted again: %v", err)
	}
	if _, err := d.Delete(ctx, "default"); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("deleted the default namespace: %v", err)
	}
	if _, err := d.Tasks(ctx, "a"); !errors.Is(err, message.ErrNoNamespace) {
		t.Errorf("tasks of a deleted namespace: %v", err)
	}
	if _, err := d.Create(ctx, message.NamespaceOptions{ID: "a"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := d.FindTasks(ctx, "a"); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("tasks of a namespace that was made again: %v", err)
	}
	if _, err := d.FindLog(ctx, "a", "x"); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("a log of a namespace that was made again: %v", err)
	}
	if got := names(t, d, "a") + names(t, d, "ab") + names(t, d, "default"); got != "x1 a1 x1 " {
		t.Errorf("left are the logs %q", got)
	}
	if _, err := d.FindTasks(ctx, "ab"); err != nil {
		t.Error(err)
	}
	if err := d.DeleteLog(ctx, "default", "x"); err != nil {
		t.Error(err)
	}
	if err := d.DeleteLog(ctx, "default", "x"); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("deleted again: %v", err)
	}
	if got := names(t, d, "default"); got != "a1 " {
		t.Errorf("left are the logs %q", got)
	}
}

// What a program keeps in the database of a namespace is deleted with it: the next one of that id begins without. That
// of other namespaces stays.
func TestRowsGoWithTheirNamespace(t *testing.T) {
	ctx := t.Context()
	d := open(t, mem.New(), data.Options{}, "a", "b")
	rows := func(namespace string) (list []string) {
		db, err := d.Database(namespace)
		if err != nil {
			t.Fatal(err)
		}
		err = db.View(ctx, func(tx *kv.Tx) error {
			for name := range tx.Buckets() {
				for k, v := range tx.Bucket(name).All() {
					list = append(list, fmt.Sprintf("%s/%s %s", name, k, v))
				}
				if n, err := tx.Bucket(name).Sequence(); n != 0 || err != nil {
					list = append(list, fmt.Sprint(name, n, err))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	for _, namespace := range []string{"a", "b"} {
		db, err := d.Database(namespace)
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(ctx, func(tx *kv.Tx) error {
			tx.Bucket("in", "deep").Put([]byte("k"), []byte(namespace))
			tx.Bucket("orders").PutUntil([]byte("17"), []byte(namespace), time.Now().Add(time.Hour))
			_, err := tx.Bucket("orders").NextSequence()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := rows("a"); len(got) != 2 {
		t.Fatalf("before: %q", got)
	}
	if _, err := d.Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(ctx, message.NamespaceOptions{ID: "a"}, ""); err != nil {
		t.Fatal(err)
	}
	if got := rows("a"); len(got) > 0 {
		t.Errorf("a new namespace begins with %q", got)
	}
	if got := rows("b"); len(got) != 2 {
		t.Errorf("another namespace has %q", got)
	}
}

// second are spaces of which the second has all namespaces.
type second struct {
	data.Spaces
	data *data.Data
}

func (s second) Choose(func(int) int) int { return 1 }

func (s second) Make(ctx context.Context, _ int, info message.Info, mark string) (string, error) {
	return s.data.Make(ctx, info, mark)
}

func (s second) Remove(ctx context.Context, _ int, namespace, mark string) (int64, error) {
	return s.data.Remove(ctx, namespace, mark)
}

func (s second) Revoked(context.Context) {}

// Rows go from the space that a namespace lies in, and from the first, where a program may have kept them, too.
func TestRowsGoFromSpaces(t *testing.T) {
	there := open(t, mem.New(), data.Options{})
	here := open(t, mem.New(), data.Options{Spaces: second{data: there}}, "a")
	each := func(f func(db *kv.DB) error) {
		for _, d := range []*data.Data{here, there} {
			db, err := d.Database("a")
			if err == nil {
				err = f(db)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
	each(func(db *kv.DB) error {
		return db.Update(t.Context(), func(tx *kv.Tx) error { return tx.Bucket("orders").Put([]byte("17"), nil) })
	})
	if _, err := here.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	each(func(db *kv.DB) error {
		return db.View(t.Context(), func(tx *kv.Tx) error {
			for name := range tx.Buckets() {
				t.Errorf("%q is left", name)
			}
			return nil
		})
	})
}

// What is to be deleted or closed in the function of a transaction that may still use it stays, and can be used after.
func TestRemovalsInAFunction(t *testing.T) {
	ctx := t.Context()
	d := open(t, mem.New(), data.Options{}, "a")
	db, err := d.Database("a")
	if err != nil {
		t.Fatal(err)
	}
	l, err := d.Log(ctx, "a", "l")
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := d.Tasks(ctx, "a")
	if err == nil {
		_, err = tasks.Enqueue(ctx, task.Spec{Kind: "k"})
	}
	if err != nil {
		t.Fatal(err)
	}
	refused := func(*kv.Tx) error {
		_, err := d.Delete(ctx, "a")
		storetest.WantError(t, err, kv.ErrNested)
		_, err = d.Remove(ctx, "a", "")
		storetest.WantError(t, err, kv.ErrNested)
		storetest.WantError(t, d.Close(), kv.ErrNested)
		return nil
	}
	if err := errors.Join(d.DB().Update(ctx, refused), db.Update(ctx, refused), db.Update(ctx, func(tx *kv.Tx) error {
		_, err := l.In(tx).Append(event.Event{Type: "T"})
		storetest.WantError(t, d.DeleteLog(ctx, "a", "l"), kv.ErrNested)
		storetest.WantError(t, d.DeleteLog(ctx, "a", "is not open"), kv.ErrNested)
		return err
	})); err != nil {
		t.Fatal(err)
	}
	appendTo(t, d, "a", "l")
	if got := names(t, d, "a"); got != "l2 " {
		t.Errorf("there are the logs %q", got)
	}
	if n, err := tasks.Count(ctx, task.DefaultQueue); err != nil || n[task.Waiting] != 1 {
		t.Error(n, err)
	}
}

// A function that asks for a log that somebody else deletes does not wait for it: the deletion waits for the function.
func TestDeletedBesideAFunction(t *testing.T) {
	ctx := t.Context()
	d := open(t, mem.New(), data.Options{}, "a")
	db, err := d.Database("a")
	if err != nil {
		t.Fatal(err)
	}
	l, err := d.Log(ctx, "a", "l")
	if err != nil {
		t.Fatal(err)
	}
	deleted := make(chan error, 1)
	if err := db.Update(ctx, func(tx *kv.Tx) error {
		_, err := l.In(tx).Append(event.Event{Type: "T"})
		if err != nil {
			return err
		}
		go func() { deleted <- d.DeleteLog(ctx, "a", "l") }()
		for err == nil { // until the deletion has begun
			_, err = d.Log(ctx, "a", "l")
		}
		storetest.WantError(t, err, kv.ErrNested)
		storetest.WantError(t, d.Close(), kv.ErrNested)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-deleted; err != nil {
		t.Error(err)
	}
	if got := names(t, d, "a"); got != "" {
		t.Errorf("there are the logs %q", got)
	}
}

// The same for a function that makes a namespace which somebody else removes.
func TestRemovedBesideAFunction(t *testing.T) {
	ctx := t.Context()
	d := open(t, mem.New(), data.Options{}, "a")
	db, err := d.Database("a")
	if err != nil {
		t.Fatal(err)
	}
	removed := make(chan error, 1)
	if err := db.Update(ctx, func(*kv.Tx) error {
		go func() {
			_, err := d.Remove(ctx, "a", "")
			removed <- err
		}()
		err := message.ErrNamespaceExists
		for errors.Is(err, message.ErrNamespaceExists) { // until the removal has begun
			_, err = d.Create(ctx, message.NamespaceOptions{ID: "a"}, "")
		}
		storetest.WantError(t, err, kv.ErrNested)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-removed; err != nil {
		t.Error(err)
	}
}

// A log in use by a transaction, and by nobody else, is not closed because of another one that its function opens.
func TestBoundsInAFunction(t *testing.T) {
	d := open(t, mem.New(), data.Options{MaxLogs: 1}, "a")
	db, err := d.Database("a")
	if err != nil {
		t.Fatal(err)
	}
	request := &route.Context{Context: t.Context()}
	first, err := d.Log(request, "a", "first")
	if err != nil {
		t.Fatal(err)
	}
	request.End()
	if err := db.Update(t.Context(), func(tx *kv.Tx) error {
		if _, err := first.In(tx).Append(event.Event{Type: "T"}); err != nil {
			return err
		}
		_, err := d.Log(t.Context(), "a", "second")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	appendTo(t, d, "a", "first")
	if got := names(t, d, "a"); got != "first2 second0 " {
		t.Errorf("there are the logs %q", got)
	}
}

// Stores that nobody uses are closed when there are too many, and those that are used are not.
func TestBounds(t *testing.T) {
	var list []string
	for i := range 40 {
		list = append(list, fmt.Sprint("n", i))
	}
	d := open(t, mem.New(), data.Options{MaxLogs: 3, MaxTasks: 2}, list...)
	held, err := d.Log(t.Context(), "n0", "held")
	if err != nil {
		t.Fatal(err)
	}
	var first *event.Store
	for round := range 2 {
		for _, n := range list {
			ctx, done := context.WithCancel(t.Context())
			if round > 0 { // the server's requests end by themselves
				request := &route.Context{Context: t.Context()}
				ctx, done = request, request.End
			}
			l, err := d.Log(ctx, n, "log")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.Append(ctx, event.Event{Type: "T"}); err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = l
			}
			tasks, err := d.Tasks(ctx, n)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tasks.Enqueue(ctx, task.Spec{Kind: "k"}); err != nil {
				t.Fatal(err)
			}
			done()
		}
	}
	if _, err := held.Append(t.Context(), event.Event{Type: "T"}); err != nil {
		t.Errorf("a log in use: %v", err)
	}
	wait(t, "the first log is closed", func() bool {
		_, err := first.Append(t.Context(), event.Event{Type: "T"})
		return errors.Is(err, holdfast.ErrClosed)
	})
	wait(t, "no more are open than may be", func() bool {
		logs, tasks := data.Opened(d)
		return logs <= 3 && tasks <= 2
	})
	l, err := d.FindLog(t.Context(), "n39", "log")
	if err != nil || l.Last() != 2 {
		t.Errorf("a log that was closed: %v, last %d", err, l.Last())
	}
}

func wait(t *testing.T, what string, until func() bool) {
	t.Helper()
	if !testkit.Holds(until) {
		t.Fatal("it does not come that ", what)
	}
}

// Opening, closing and deleting by many at once: whatever succeeds is there, and nothing else fails than may.
func TestTogether(t *testing.T) {
	d := open(t, mem.New(), data.Options{MaxLogs: 2, MaxTasks: 1}, "keep", "go")
	var all sync.WaitGroup
	var mu sync.Mutex
	var appended int
	for w := range 8 {
		all.Go(func() {
			for i := range 40 {
				ctx, done := context.WithCancel(t.Context())
				if l, err := d.Log(ctx, "keep", fmt.Sprint("log", (w+i)%4)); err != nil {
					t.Error(err)
				} else if _, err := l.Append(ctx, event.Event{Type: "T"}); err != nil {
					t.Error(err)
				} else {
					mu.Lock()
					appended++
					mu.Unlock()
				}
				l, err := d.Log(ctx, "go", fmt.Sprint("log", (w+i)%4))
				if err == nil {
					_, err = l.Append(ctx, event.Event{Type: "T"})
				}
				if err == nil {
					var tasks *task.Store
					if tasks, err = d.Tasks(ctx, "go"); err == nil {
						_, err = tasks.Enqueue(ctx, task.Spec{Kind: "k"})
					}
				}
				if err != nil && !errors.Is(err, message.ErrNoNamespace) && !errors.Is(err, holdfast.ErrClosed) {
					t.Error(err)
				}
				done()
			}
		})
	}
	all.Go(func() {
		for range 10 {
			if _, err := d.Delete(t.Context(), "go"); err != nil {
				t.Error(err)
				return
			}
			if got, err := event.LogsWith(t.Context(), d.Engine(), "go/"); err != nil || len(got) > 0 {
				t.Errorf("after the deletion there are %v, %v", got, err)
			}
			if there, err := task.Exists(d.Engine(), "go"); err != nil || there {
				t.Errorf("after the deletion there are tasks: %v", err)
			}
			if _, err := d.Create(t.Context(), message.NamespaceOptions{ID: "go"}, ""); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	list, err := d.Logs(t.Context(), "keep")
	if err != nil {
		t.Fatal(err)
	}
	there := 0
	for _, l := range list {
		there += int(l.Last)
	}
	if there != appended {
		t.Errorf("%d events are there, %d were appended", there, appended)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.Log(t.Context(), "keep", "log"); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("a log of closed data: %v", err)
	}
}

// narrow is an engine that takes few operations at once, and breaks off at one of the batches that remove much.
type narrow struct {
	holdfast.Engine
	breakAt int
}

func (e *narrow) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if b.Len() > 12_000 {
		return holdfast.Receipt{}, holdfast.ErrTooLarge
	}
	if b.Len() > 2_000 {
		if e.breakAt--; e.breakAt == 0 {
			return holdfast.Receipt{}, holdfast.ErrFull
		}
	}

	return e.Engine.Apply(b, level)
}

// A namespace with more tokens than a batch may delete is deleted in parts. What breaks off is repeated, and the tokens
// of others stay.
func TestDeleteManyTokens(t *testing.T) {
	e := &narrow{Engine: mem.New()}
	d := open(t, e, data.Options{}, "many", "other")
	create := func(namespace string) (id string) {
		token, _, err := d.Tokens().Create(t.Context(), auth.Token{Namespace: namespace, Role: auth.Read})
		if err != nil {
			t.Fatal(err)
		}
		return token.ID
	}
	count := func(namespace string) int {
		list, err := d.Tokens().List(t.Context(), namespace)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	const n = 25_000
	for i := range n {
		if create("many"); i%5000 == 0 {
			create("other")
		}
	}
	e.breakAt = 2
	if _, err := d.Delete(t.Context(), "many"); !errors.Is(err, holdfast.ErrFull) {
		t.Fatalf("Delete on an engine that fails at the second part: %v", err)
	}
	if got := count("many"); got == 0 || got == n {
		t.Errorf("%d tokens of %d are left", got, n)
	}
	if err := d.Check(t.Context(), "many"); err != nil {
		t.Error(err)
	}
	if _, err := d.Delete(t.Context(), "many"); err != nil {
		t.Fatal(err)
	}
	if err := d.Check(t.Context(), "many"); !errors.Is(err, message.ErrNoNamespace) {
		t.Errorf("the namespace is there: %v", err)
	}
	if many, other := count("many"), count("other"); many != 0 || other != 5 {
		t.Errorf("%d tokens are left, and %d of the other namespace", many, other)
	}
}

// broken is an engine that panics when a log is made.
type broken struct {
	holdfast.Engine
	now atomic.Bool
}

func (e *broken) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if e.now.Load() {
		panic("of the engine")
	}

	return e.Engine.Apply(b, level)
}

// Where the engine panics as a log is opened, those who wait for it try it themselves, and others after them.
func TestPanicAsALogOpens(t *testing.T) {
	e := &broken{Engine: mem.New()}
	d := open(t, e, data.Options{}, "a")
	e.now.Store(true)
	for range 2 {
		storetest.Finished(t, nil, storetest.Async(func() (err error) {
			defer func() {
				if recover() == nil {
					err = errors.New("no panic")
				}
			}()
			_, err = d.Log(t.Context(), "a", "l")
			return err
		}))
	}
	e.now.Store(false)
	storetest.Finished(t, nil, storetest.Async(func() error {
		_, err := d.Log(t.Context(), "a", "l")
		return errors.Join(err, d.DeleteLog(t.Context(), "a", "l"))
	}))
}
