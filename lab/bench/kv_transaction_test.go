package bench

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/lab/contender"
)

// fakeTransactions is a peer that does not keep its promises.
type fakeTransactions struct {
	holdfast.Engine
	mu     sync.Mutex
	update func(f func(contender.Tx) error) error // nil for one that does
	get    func(value []byte) []byte              // what is read instead
}

// Update implements [contender.TransactionsEngine].
func (e *fakeTransactions) Update(f func(contender.Tx) error) error {
	if e.update != nil {
		return e.update(f)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.commit(e.run(f))
}

// fakeTx reads what the engine has.
type fakeTx struct {
	e     *fakeTransactions
	batch holdfast.Batch
}

func (t *fakeTx) Get(dst, key []byte) ([]byte, error) {
	value, err := t.e.Get(dst, key)
	if t.e.get != nil {
		value = t.e.get(value)
	}
	return value, err
}

func (t *fakeTx) Set(key, value []byte) error {
	t.batch.Set(key, value)
	return nil
}

func (e *fakeTransactions) run(f func(contender.Tx) error) (*holdfast.Batch, error) {
	tx := &fakeTx{e: e}
	return &tx.batch, f(tx)
}

func (e *fakeTransactions) commit(b *holdfast.Batch, err error) error {
	if err != nil {
		return err
	}
	return holdfast.Commit(e.Engine, b, holdfast.Memory)
}

// TestTransactionCatches: kv/transaction sees an update that is lost, and whatever else its contenders may do wrong.
func TestTransactionCatches(t *testing.T) {
	meet := make(chan struct{})
	var once sync.Once
	for name, spoil := range map[string]func(e *fakeTransactions){
		"": func(*fakeTransactions) {},
		"an update is lost": func(e *fakeTransactions) { // two have read before either writes
			e.update = func(f func(contender.Tx) error) error {
				b, err := e.run(f)
				select {
				case meet <- struct{}{}:
					once.Do(func() { e.update = nil })
				case <-meet:
				}
				e.mu.Lock()
				defer e.mu.Unlock()
				return e.commit(b, err)
			}
		},
		"nothing is done": func(e *fakeTransactions) {
			e.update = func(f func(contender.Tx) error) error {
				_, err := e.run(f)
				return err
			}
		},
		"one half is done": func(e *fakeTransactions) {
			e.update = func(f func(contender.Tx) error) error {
				e.mu.Lock()
				defer e.mu.Unlock()
				b, err := e.run(f)
				var half holdfast.Batch
				for op := range b.Ops() {
					half.Set(op.Key, op.Value)
					break
				}
				return e.commit(&half, err)
			}
		},
		"it is done twice": func(e *fakeTransactions) {
			e.update = func(f func(contender.Tx) error) error {
				e.mu.Lock()
				defer e.mu.Unlock()
				return errors.Join(e.commit(e.run(f)), e.commit(e.run(f)))
			}
		},
		"what was there is read": func(e *fakeTransactions) {
			var old []byte
			e.get = func(value []byte) []byte {
				if old == nil {
					old = bytes.Clone(value)
				}
				return bytes.Clone(old)
			}
		},
		"a value is spoiled": func(e *fakeTransactions) {
			e.get = func(value []byte) []byte { return append(bytes.Clone(value[:len(value)-1]), ^value[len(value)-1]) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			engine := &fakeTransactions{Engine: mem.New()}
			task := taskOn(engine)
			task.Clients = 2
			load, err := kvTransaction{keys: 1}.engine(task)
			if err != nil {
				t.Fatal(err)
			}
			spoil(engine)
			errs := make([]error, task.Clients)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() { errs[i] = load.Client(i)() })
			}
			wg.Wait()
			if err = errors.Join(errs...); err == nil {
				_, _, err = load.Verify()
			}
			if (err == nil) != (name == "") || err != nil && !errors.Is(err, ErrWrong) {
				t.Errorf("it says %v", err)
			}
		})
	}
}

// TestTransactionPeers: peers take part that have transactions which read; the plan says why others do not.
func TestTransactionPeers(t *testing.T) {
	p, err := Standard().Plan(Request{Preset: "kv", Workloads: []string{"kv/transaction"},
		Engines: []string{"logtree", "*:bare*", "files"}, Levels: []string{"power"}})
	if err != nil {
		t.Fatal(err)
	}
	var in, out []string
	for _, c := range p.Cells {
		if c.Clients == 64 && !reference(c.Engine) {
			in = append(in, c.Engine)
		}
	}
	for _, u := range p.Unavailable {
		out = append(out, u.Engine+": "+u.Reason)
	}
	slices.Sort(in)
	slices.Sort(out)
	const wantIn = "badger:bare-conflicts bbolt:bare bbolt:bare-array bbolt:bare-batch logtree"
	const none = ": has no such transactions, or is measured without them"
	if got := strings.Join(in, " "); !strings.HasPrefix(got, wantIn) {
		t.Errorf("in it are %s", got)
	}
	for _, want := range []string{"badger:bare" + none, "pebble:bare" + none,
		"files: it has no atomic batches, which the work needs"} {
		if !slices.Contains(out, want) {
			t.Errorf("%q is not among %q", want, out)
		}
	}
}
