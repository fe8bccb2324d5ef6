package bench

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
)

// ycsbNamed is one of the small ones.
func ycsbNamed(t *testing.T, name string) Workload {
	t.Helper()
	for _, w := range smallYCSB() {
		if w.Name == "ycsb/"+name {
			return w
		}
	}
	t.Fatal("no ", name)
	return Workload{}
}

// TestYCSBMix: the kinds of operations are as many as defined, what is popular is read often, and inserts are new
// records.
func TestYCSBMix(t *testing.T) {
	for name, want := range map[string]struct {
		first    int // in percent
		kinds    string
		inserted bool
	}{
		"a": {50, "read update", false}, "b": {95, "read update", false}, "c": {100, "", false},
		"d": {95, "read insert", true}, "e": {95, "scan insert", true}, "f": {50, "read read-modify-write", false},
	} {
		reads := map[string]int{}
		engine := &mutant{Engine: mem.New(), get: func(e holdfast.Engine, dst, key []byte) ([]byte, error) {
			reads[string(key)]++
			return e.Get(dst, key)
		}}
		load, err := ycsbNamed(t, name).Engine(taskOn(engine))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(load.Kinds, " "); got != want.kinds {
			t.Errorf("%s: kinds %q", name, got)
		}
		const n = 4000
		var counts [2]int
		op := load.client(0)
		for range n {
			kind, err := op()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			counts[kind]++
		}
		if got := counts[0] * 100 / n; got < want.first-3 || got > want.first+3 {
			t.Errorf("%s: %d %% are of the first kind", name, got)
		}
		items, checked, err := load.Verify()
		if inserted := int(items) - 500; err != nil || items != checked || want.inserted != (inserted > 0) ||
			want.inserted && inserted != counts[1] {
			t.Errorf("%s: %d of %d records, %d of the second kind: %v", name, checked, items, counts[1], err)
		}
		most, latest, all := 0, 0, 0
		for _, n := range reads {
			most, all = max(most, n), all+n
		}
		for number := 500; number < int(items); number++ {
			latest += reads[string(sharedKey(nil, uint32(number)))]
		}
		if name == "d" && latest < all/2 || name != "d" && most < all/100 || name == "e" && all > 0 ||
			name == "f" && all != n {
			t.Errorf("%s: %d reads, %d of the most popular record, %d of new ones", name, all, most, latest)
		}
		if err := load.Close(); err != nil {
			t.Error(err)
		}
	}
}

// lie is how an engine with records of YCSB answers wrongly.
type lie struct {
	mutation mutant
	seen     string // by which workloads
}

func ycsbLies() map[string]lie {
	const every, writing = "a b c d e f", "a b d e f"
	scan := func(f func(holdfast.Iterator) holdfast.Iterator) mutant { return mutant{scan: f} }
	old := map[string][]byte{}
	applied := 0
	return map[string]lie{
		"nothing": {},
		"a batch is dropped": {mutant{apply: func(holdfast.Engine, *holdfast.Batch) (holdfast.Receipt, error) {
			return holdfast.Receipt{}, nil
		}}, writing},
		"one batch in ten is dropped": {mutant{apply: func(e holdfast.Engine, b *holdfast.Batch) (holdfast.Receipt, error) {
			if applied++; applied%10 == 0 {
				return holdfast.Receipt{}, nil
			}
			return e.Apply(b, holdfast.Memory)
		}}, writing},
		"a record too many": {mutant{apply: func(e holdfast.Engine, b *holdfast.Batch) (holdfast.Receipt, error) {
			b.Set([]byte("user"), nil)
			return e.Apply(b, holdfast.Memory)
		}}, writing},
		"a record is there twice": {mutant{apply: func(e holdfast.Engine, b *holdfast.Batch) (holdfast.Receipt, error) {
			for op := range b.Ops() {
				key, value := append(bytes.Clone(op.Key), '0'), bytes.Clone(op.Value)
				b.Set(key, value)
				break
			}
			return e.Apply(b, holdfast.Memory)
		}}, writing},
		"nothing is found": {mutant{get: func(_ holdfast.Engine, dst, _ []byte) ([]byte, error) {
			return dst, holdfast.ErrNotFound
		}}, "a b c d f"},
		"another record is found": {mutant{get: func(e holdfast.Engine, dst, _ []byte) ([]byte, error) {
			return e.Get(dst, sharedKey(nil, 499))
		}}, "a b c d f"},
		"a value is cut short": {mutant{get: func(e holdfast.Engine, dst, key []byte) ([]byte, error) {
			value, err := e.Get(dst, key)
			return value[:len(value)-1], err
		}}, "a b c d f"},
		"nothing but a few bytes is found": {mutant{get: func(_ holdfast.Engine, dst, _ []byte) ([]byte, error) {
			return append(dst, "few"...), nil
		}}, "a b c d f"},
		"what is found is old": {mutant{get: func(e holdfast.Engine, dst, key []byte) ([]byte, error) {
			if value, ok := old[string(key)]; ok {
				return append(dst, value...), nil
			}
			value, err := e.Get(dst, key)
			old[string(key)] = bytes.Clone(value)
			return value, err
		}}, "a b f"},
		"an iterator skips": {scan(func(it holdfast.Iterator) holdfast.Iterator { return &skipping{Iterator: it} }), every},
		"an iterator skips later": {scan(func(it holdfast.Iterator) holdfast.Iterator {
			return &skippingOne{Iterator: it, at: 7}
		}), every},
		"an iterator leaves out what was inserted": {scan(func(it holdfast.Iterator) holdfast.Iterator {
			return &unseen{it}
		}), "d e"},
		"an iterator ends early": {scan(func(it holdfast.Iterator) holdfast.Iterator {
			return &skippingOne{Iterator: it, at: 3, end: true}
		}), every},
		"an iterator repeats": {scan(func(it holdfast.Iterator) holdfast.Iterator {
			return &repeating{Iterator: it}
		}), every},
		"an iterator spoils": {scan(func(it holdfast.Iterator) holdfast.Iterator { return doctored{it} }), every},
		"an iterator fails": {scan(func(it holdfast.Iterator) holdfast.Iterator {
			it.Close()
			return holdfast.FailedIterator(holdfast.ErrCorrupt)
		}), every},
	}
}

// skippingOne leaves out one pair, or ends there.
type skippingOne struct {
	holdfast.Iterator
	n, at int
	end   bool
}

func (s *skippingOne) Next() bool {
	if s.n++; s.n == s.at {
		if s.end {
			return false
		}
		s.Iterator.Next()
	}
	return s.Iterator.Next()
}

// unseen leaves out what clients inserted.
type unseen struct{ holdfast.Iterator }

func (u *unseen) Next() bool {
	for u.Iterator.Next() {
		if value := u.Iterator.Value(); int(value[4])|int(value[5])<<8 < 500 {
			return true
		}
	}
	return false
}

// repeating gives each pair twice.
type repeating struct {
	holdfast.Iterator
	again bool
}

func (r *repeating) Next() bool {
	if r.again = !r.again; r.again {
		return r.Iterator.Next()
	}
	return true
}

// TestYCSBVerificationCatches: whatever an engine does wrong, the workloads that can see it do, and they find nothing
// where nothing is wrong.
func TestYCSBVerificationCatches(t *testing.T) {
	for name, test := range ycsbLies() {
		t.Run(name, func(t *testing.T) {
			for _, w := range smallYCSB() {
				engine := &mutant{Engine: mem.New()}
				load, err := w.Engine(taskOn(engine))
				if err != nil {
					t.Fatal(err)
				}
				engine.apply, engine.get, engine.scan = test.mutation.apply, test.mutation.get, test.mutation.scan
				if err = times(600, load.Client(0)); err == nil {
					_, _, err = load.Verify()
				}
				if seen := strings.Contains(test.seen, w.Name[len("ycsb/"):]); seen && !errors.Is(err, ErrWrong) ||
					!seen && test.seen == "" && err != nil {
					t.Errorf("%s: %v", w.Name, err)
				}
				_ = load.Close() // an iterator that failed may be open
			}
		})
	}
}

// TestYCSBScansCatch: a scan itself finds what it should, not only the look at everything at the end.
func TestYCSBScansCatch(t *testing.T) {
	for name, test := range ycsbLies() {
		if test.mutation.scan == nil {
			continue
		}
		engine := &mutant{Engine: mem.New()}
		load, err := ycsbNamed(t, "e").Engine(taskOn(engine))
		if err != nil {
			t.Fatal(err)
		}
		if err := times(600, load.Client(0)); err != nil { // there are inserts now
			t.Fatal(err)
		}
		engine.scan = test.mutation.scan
		if err := times(100, load.Client(0)); !errors.Is(err, ErrWrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// lagging is an engine that shows a batch only when the next one is applied, though it was acknowledged.
type lagging struct {
	holdfast.Engine
	mu   sync.Mutex
	last *holdfast.Batch
}

func (l *lagging) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.last
	l.last = &holdfast.Batch{}
	for op := range b.Ops() {
		l.last.Set(op.Key, op.Value)
	}
	if last == nil {
		return holdfast.Receipt{}, nil
	}
	return l.Engine.Apply(last, level)
}

// shuffled is an engine that applies a batch now and then behind the next one.
type shuffled struct {
	lagging
	random *rand.Rand
}

func (s *shuffled) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if s.last == nil && s.random.IntN(4) == 0 {
		return s.lagging.Apply(b, level)
	}
	if _, err := s.Engine.Apply(b, level); err != nil || s.last == nil {
		return holdfast.Receipt{}, err
	}
	b, s.last = s.last, nil
	return s.Engine.Apply(b, level)
}

// TestYCSBSeesOrder: of few records, an acknowledged version that is not yet there is caught by the next read, and one
// that an older one replaces at the end.
func TestYCSBSeesOrder(t *testing.T) {
	y := ycsb{records: 3, value: ycsbValue, first: ycsbRead, percent: 50, second: ycsbUpdate}
	for name, prepare := range map[string]func(e holdfast.Engine) holdfast.Engine{
		"right":   func(e holdfast.Engine) holdfast.Engine { return e },
		"lagging": func(e holdfast.Engine) holdfast.Engine { return &lagging{Engine: e} },
		"shuffled": func(e holdfast.Engine) holdfast.Engine {
			return &shuffled{lagging{Engine: e}, rand.New(rand.NewPCG(1, 1))}
		},
	} {
		engine := &switched{Engine: mem.New()}
		load, err := y.engine(taskOn(engine))
		if err != nil {
			t.Fatal(err)
		}
		engine.Engine = prepare(engine.Engine)
		if err := times(1000, load.Client(0)); errors.Is(err, ErrWrong) == (name == "right") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// switched is an engine in the place of which another one can be put.
type switched struct{ holdfast.Engine }

// TestYCSBClientsShare: many clients on few records of a right engine find nothing wrong, with reads, scans, updates
// and inserts at one time.
func TestYCSBClientsShare(t *testing.T) {
	const clients = 8
	for _, w := range ycsbStudy(20) {
		task := taskOn(mem.New())
		task.Clients = clients
		load, err := w.Engine(task)
		if err != nil {
			t.Fatal(err)
		}
		var done sync.WaitGroup
		var errs [clients]error
		for i := range clients {
			done.Go(func() { errs[i] = times(2000, load.Client(i)) })
		}
		done.Wait()
		items, checked, err := load.Verify()
		if err := errors.Join(append(errs[:], err)...); err != nil || items != checked {
			t.Errorf("%s: %d of %d: %v", w.Name, checked, items, err)
		}
	}
}

// TestYCSBFloorCatches: what the floor's files hold is checked.
func TestYCSBFloorCatches(t *testing.T) {
	for _, w := range smallYCSB() {
		dir := t.TempDir()
		load, err := w.Floor(Task{Dir: dir, Level: holdfast.Process, Clients: 1, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := times(300, load.Client(0)); err != nil {
			t.Fatal(err)
		}
		names, err := filepath.Glob(filepath.Join(dir, "floor*"))
		if err != nil || w.Reads && len(names) != 1 || !w.Reads && len(names) != 2 {
			t.Fatalf("%s: files %q: %v", w.Name, names, err)
		}
		for _, name := range names {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			content[kvKeySize+50] ^= 1
			if err := os.WriteFile(name, content, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, _, err := load.Verify(); !errors.Is(err, ErrWrong) {
				t.Errorf("%s: %s was changed: %v", w.Name, filepath.Base(name), err)
			}
			content[kvKeySize+50] ^= 1
			if err := os.WriteFile(name, content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := load.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSharedKeys: keys are YCSB's.
func TestSharedKeys(t *testing.T) {
	for number, want := range map[uint32]string{0: fmt.Sprint("user", fnv(0)), 77: fmt.Sprint("user", fnv(77))} {
		if got := string(sharedKey(nil, number)); got != want || len(got) > sharedKeySize {
			t.Errorf("record %d has key %s", number, got)
		}
	}
}
