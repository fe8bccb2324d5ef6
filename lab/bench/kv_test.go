package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/badger"
	"github.com/holdfastdb/holdfast/engine/bbolt"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/lab/contender"
)

func TestKVKeys(t *testing.T) {
	var key, next kvKey
	next.of(0)
	for n := range uint32(200_000) {
		if want := fmt.Sprintf("key_%08d", n); string(key.of(n)) != want || string(next[:]) != want {
			t.Fatalf("key %d is %s, or %s", n, key, next)
		}
		next.next()
	}
	if got := string(key.of(kvMaxKeys - 1)); got != "key_99999999" {
		t.Errorf("the last key is %s", got)
	}
}

func TestKVValues(t *testing.T) {
	for _, size := range []int{kvStamp, 9, kvValueSize, 1 << 10, kvPage, kvPage + 3, kvPage + kvStamp, 10 << 10,
		kvFixedBody - 1, kvFixedBody, 100 << 10, 1 << 20} {
		values := newKVValues(size, 7)
		value := values.lay(make([]byte, size))
		seen := map[string]bool{}
		for key := range uint32(5) {
			for version := range uint32(5) {
				values.fill(value, key, version)
				if seen[string(value)] {
					t.Errorf("%d bytes: two values are the same", size)
				}
				seen[string(value)] = true
				if err := values.check(value, key, version); err != nil {
					t.Errorf("%d bytes: %v", size, err)
				}
				for name, err := range map[string]error{
					"another version": values.check(value, key, version+1),
					"another key":     values.check(value, key+1, version),
					"a shorter value": values.check(value[:size-1], key, version),
					"a longer value":  values.check(append(bytes.Clone(value), 0), key, version),
				} {
					if !errors.Is(err, ErrWrong) {
						t.Errorf("%d bytes: %s: %v", size, name, err)
					}
				}
			}
		}
		// Each byte of a short one, some of a long one, and the last.
		values.fill(value, 3, 4)
		for at := 0; at < size; at += max(size/1000, 1) {
			value[at] ^= 1
			if err := values.check(value, 3, 4); !errors.Is(err, ErrWrong) {
				t.Errorf("%d bytes: byte %d changed: %v", size, at, err)
			}
			value[at] ^= 1
		}
		value[size-1] ^= 0x80
		if err := values.check(value, 3, 4); !errors.Is(err, ErrWrong) {
			t.Errorf("%d bytes: the last byte changed: %v", size, err)
		}
	}
}

func TestKVValuesFollowFromTheSeed(t *testing.T) {
	value := func(seed uint64) []byte {
		values := newKVValues(kvValueSize, seed)
		v := values.lay(make([]byte, kvValueSize))
		values.fill(v, 1, 1)
		return v
	}
	if !bytes.Equal(value(1), value(1)) || bytes.Equal(value(1), value(2)) {
		t.Error("values do not follow from the seed")
	}
}

func TestKVVersions(t *testing.T) {
	l := make(kvVersions, 3)
	state := func(key uint32) string {
		version, ok := l.has(key)
		return fmt.Sprint(version, ok)
	}
	if got := state(1); got != "0 false" {
		t.Error(got)
	}
	if v := l.put(1); v != 1 || state(1) != "1 true" || l.count() != 1 {
		t.Errorf("put gave %d, then %s, %d there", v, state(1), l.count())
	}
	l.delete(1)
	if state(1) != "1 false" || l.count() != 0 {
		t.Errorf("deleted: %s, %d there", state(1), l.count())
	}
	// The version of what was deleted must not come back.
	if v := l.put(1); v != 2 || state(1) != "2 true" || state(0) != "0 false" || state(2) != "0 false" {
		t.Errorf("put again gave %d, then %s", v, state(1))
	}
}

func TestClientsShareKeys(t *testing.T) {
	for _, test := range []struct{ keys, clients int }{{10, 1}, {10, 3}, {500, 64}, {64, 64}, {10_000, 4096}} {
		end := 0
		for i := range test.clients {
			first, n := share(test.keys, i, test.clients)
			if first != end || n < 1 {
				t.Errorf("%+v: client %d has %d keys from %d on, after %d", test, i, n, first, end)
			}
			end = first + n
		}
		if end != test.keys {
			t.Errorf("%+v: the last key is %d", test, end)
		}
	}
}

func TestKVClientsPutKeysOfTheirOwn(t *testing.T) {
	for _, clients := range []int{1, 3, 64} {
		p := kvPut{batch: 10, ring: 330, value: kvValueSize}
		owner := map[uint32]int{}
		for i := range clients {
			turn := p.turns(i, clients)
			for range 200 {
				first := turn()
				if o, ok := owner[first]; ok && o != i || first%10 != 0 || int(first)+10 > p.keys(clients) {
					t.Fatalf("%d clients: client %d puts from key %d on, which is client %d's", clients, i, first, o)
				}
				owner[first] = i
			}
		}
		if len(owner)*10 != p.keys(clients) || p.keys(clients) < max(330, 10*clients) {
			t.Errorf("%d clients: %d batches put, %d keys", clients, len(owner), p.keys(clients))
		}
	}
}

// TestKVRingsBeginAgain: what is put again has a new value, and the old one is not taken for it.
func TestKVRingsBeginAgain(t *testing.T) {
	p := kvPut{batch: 5, ring: 20, value: kvValueSize}
	engine := mem.New()
	load, err := p.engine(taskOn(engine))
	if err != nil {
		t.Fatal(err)
	}
	op := load.Client(0)
	var first []byte
	for round := range 3 {
		if err := times(4, op); err != nil {
			t.Fatal(err)
		}
		if items, checked, err := load.Verify(); err != nil || items != 20 || checked != 20 {
			t.Fatalf("round %d: %d of %d checked: %v", round, checked, items, err)
		}
		now, err := engine.Get(nil, []byte("key_00000007"))
		if err != nil || bytes.Equal(now, first) {
			t.Fatalf("round %d: the value is the one of the round before, or %v", round, err)
		}
		first = now
	}
}

// TestKVSizes: the workloads do what their names and descriptions say.
func TestKVSizes(t *testing.T) {
	items := map[string]int{"kv/seq-write": 100_000, "kv/batch": 100, "kv/random-write": 100,
		"kv/overwrite": 100, "kv/retention": 100, "kv/scan": 100_000,
		"kv/scan-1m": 1_000_000, "kv/scan-1m-updated": 1_000_000,
		"kv/range": 100, "kv/cold-read": 100, "kv/cold-read-60m": 100,
		"kv/scan-loaded": 10_000_000, "kv/scan-updated": 10_000_000}
	bytes := map[string]int{"kv/read-while-writing": 123, "kv/read-while-writing-1k": 123, "kv/retention": 112,
		"kv/queue": 112, "kv/transaction": 112, "kv/overwrite": 112, "kv/load": 140, "kv/steady": 140,
		"kv/open-killed": 140, "kv/open-killed-1g": 140,
		"kv/value-1k": 12 + 1024, "kv/value-10k": 12 + 10240,
		"kv/value-100k": 12 + 102400, "kv/value-1mb": 12 + 1_000_000}
	for _, w := range kvWorkloads() {
		want := items[w.Name]
		if want == 0 {
			want = 1
		}
		if w.Items != want || w.ItemBytes != bytes[w.Name] {
			t.Errorf("%s: %d items of %d bytes", w.Name, w.Items, w.ItemBytes)
		}
		if strings.Contains(w.Name, "value") != w.InBytes {
			t.Errorf("%s: rates in bytes: %v", w.Name, w.InBytes)
		}
	}
}

// TestKVFigures: each engine of the study has its own figure.
func TestKVFigures(t *testing.T) {
	for _, w := range kvWorkloads() {
		if w.Name == "kv/seq-write" {
			if b, th := w.Study("bbolt", holdfast.Power), w.Study(contender.Thunderdb, holdfast.Power); b != "398k/s" ||
				th != "197k/s" {
				t.Errorf("bbolt %s, Thunder %s", b, th)
			}
		}
	}
}

// TestKVRandomWriteIsLoaded: all keys are there before the first is put again.
func TestKVRandomWriteIsLoaded(t *testing.T) {
	p := kvPut{batch: kvBatch, value: kvValueSize, ring: 1000, loaded: true}
	load, err := p.engine(taskOn(mem.New()))
	if err != nil {
		t.Fatal(err)
	}
	if items, checked, err := load.Verify(); items != 1000 || checked != 1000 || err != nil {
		t.Errorf("%d of %d checked, %v", checked, items, err)
	}
}

// TestKVKeyOrderIsTrue: an engine is given the keys in the order that tables and reports state, each of them once, or
// twice where they say so. Of large values there are few keys: they are looked at until the first one comes again.
func TestKVKeyOrderIsTrue(t *testing.T) {
	for _, w := range slices.Concat(smallKV(), smallYCSB(), fileStudy(300)) {
		var keys []string
		engine := &mutant{Engine: mem.New(), apply: func(e holdfast.Engine, b *holdfast.Batch) (holdfast.Receipt, error) {
			for op := range b.Ops() {
				keys = append(keys, string(op.Key))
			}
			return e.Apply(b, holdfast.Memory)
		}}
		load, err := w.Engine(taskOn(engine))
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 { // it is of inserts
			err = times(max(300/w.Items, 1), load.Client(0))
			if again := slices.Index(keys[1:], keys[0]); again >= 0 {
				keys = keys[:again+1]
			}
		}
		if err := errors.Join(err, load.Close()); err != nil {
			t.Fatal(err)
		}
		rounds := 1
		if w.KeyOrder == RandomAgain {
			rounds = 2
		}
		var orders []string
		for part := range slices.Chunk(keys, len(keys)/rounds) {
			sorted := slices.Sorted(slices.Values(part))
			if n := len(slices.Compact(slices.Clone(sorted))); n != len(part) {
				t.Errorf("%s: %d keys put %d times", w.Name, n, len(part))
			}
			// In random order every other key is smaller than the one before it.
			down := 0
			for i := 1; i < len(part); i++ {
				if part[i] < part[i-1] {
					down++
				}
			}
			random := down > len(part)*2/5
			right := random == (w.KeyOrder != Ascending) && (random || down == 0) && len(part) >= 200
			if !right && !w.InBytes {
				t.Errorf("%s: keys in %s, %d of %d before the one that came before", w.Name, w.KeyOrder, down, len(part))
			}
			orders = append(orders, fmt.Sprint(part))
		}
		if len(orders) != rounds || rounds == 2 && orders[0] == orders[1] {
			t.Errorf("%s: put %d times, the second time in the order of the first", w.Name, len(orders))
		}
		if !strings.Contains(w.about(), "keys put in "+string(w.KeyOrder[:6])) {
			t.Errorf("%s is listed as %q", w.Name, w.about())
		}
		g := group{workload: w, setup: setup{clients: 1}, given: holdfast.Memory}
		if !strings.Contains(g.title(), "keys put in "+w.KeyOrder.String()+", ") {
			t.Errorf("its table is %q", g.title())
		}
	}
}

// TestRefusedIsTrue: an engine that is said not to be able to do a workload cannot.
func TestRefusedIsTrue(t *testing.T) {
	n := 0
	for _, w := range Workloads() {
		for _, e := range all.Engines() {
			if w.BatchBytes <= e.Describe().MaxBatchSize {
				continue
			}
			n++
			name := e.Name
			engine, err := all.Open(name, filepath.Join(t.TempDir(), "engine"), holdfast.Options{})
			if err != nil {
				t.Fatal(err)
			}
			load, err := w.Engine(Task{Level: holdfast.Process, Clients: 1,
				Open: func() (holdfast.Engine, error) { return engine, nil }})
			if err != nil {
				t.Fatal(err)
			}
			if err := load.Client(0)(); !errors.Is(err, holdfast.ErrTooLarge) {
				t.Errorf("%s does %s: %v", name, w.Name, err)
			}
			if err := load.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if n == 0 {
		t.Error("nothing is refused")
	}
}

func TestRefusedIsShown(t *testing.T) {
	p, err := Standard().Plan(Request{Preset: "kv", Engines: []string{badger.Name, mem.Name},
		Workloads: []string{"kv/seq-write", "kv/batch"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := cells(p, "kv/seq-write"); slices.ContainsFunc(got, func(c string) bool {
		return strings.HasPrefix(c, badger.Name)
	}) || len(got) == 0 {
		t.Errorf("the cells are %q", got)
	}
	if got := cells(p, "kv/batch"); !slices.ContainsFunc(got, func(c string) bool {
		return strings.HasPrefix(c, badger.Name)
	}) {
		t.Errorf("the cells are %q", got)
	}
	refused := 0
	for _, u := range p.Unavailable {
		if u.Workload == "kv/seq-write" && u.Engine == badger.Name {
			refused++
			if !strings.Contains(u.Reason, "one transaction") {
				t.Errorf("%+v", u)
			}
		}
	}
	if refused != len(badger.Describe().Levels()) {
		t.Errorf("refused at %d levels", refused)
	}
}

// TestEstimateKnowsWhatTakesLong: the estimate of much data is more than that of as many short measurements.
func TestEstimateKnowsWhatTakesLong(t *testing.T) {
	estimate := func(workload string) time.Duration {
		p, err := Standard().Plan(Request{Preset: "kv", Engines: []string{mem.Name}, Workloads: []string{workload}})
		if err != nil {
			t.Fatal(err)
		}
		return p.Estimate() / time.Duration(len(p.Cells))
	}
	if short, long := estimate("kv/batch"), estimate("kv/scan-1m"); long <= short {
		t.Errorf("%v for little data, %v for much", short, long)
	}
}

// mutant is an engine that does not keep its promises.
type mutant struct {
	holdfast.Engine
	apply func(e holdfast.Engine, b *holdfast.Batch) (holdfast.Receipt, error)
	get   func(e holdfast.Engine, dst, key []byte) ([]byte, error)
	scan  func(holdfast.Iterator) holdfast.Iterator
}

func (l *mutant) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if l.apply != nil {
		return l.apply(l.Engine, b)
	}
	return l.Engine.Apply(b, level)
}

func (l *mutant) Get(dst, key []byte) ([]byte, error) {
	if l.get != nil {
		return l.get(l.Engine, dst, key)
	}
	return l.Engine.Get(dst, key)
}

func (l *mutant) Scan(r holdfast.Range) holdfast.Iterator {
	if l.scan != nil {
		return l.scan(l.Engine.Scan(r))
	}
	return l.Engine.Scan(r)
}

// Snapshot returns one with the same faults.
func (l *mutant) Snapshot() (holdfast.Snapshot, error) {
	s, err := l.Engine.Snapshot()
	return mutantSnapshot{s, l}, err
}

type mutantSnapshot struct {
	holdfast.Snapshot
	of *mutant
}

func (s mutantSnapshot) Scan(r holdfast.Range) holdfast.Iterator {
	if s.of.scan != nil {
		return s.of.scan(s.Snapshot.Scan(r))
	}
	return s.Snapshot.Scan(r)
}

// skipping iterators leave out the first pair; doctored ones spoil each value.
type skipping struct {
	holdfast.Iterator
	skipped bool
}

func (s *skipping) Next() bool {
	if !s.skipped {
		s.skipped = true
		s.Iterator.Next()
	}
	return s.Iterator.Next()
}

type doctored struct{ holdfast.Iterator }

func (d doctored) Value() []byte {
	value := bytes.Clone(d.Iterator.Value())
	value[len(value)-1] ^= 1
	return value
}

// TestKVVerificationCatches: whatever an engine does wrong, the workloads that can see it do.
func TestKVVerificationCatches(t *testing.T) {
	if testing.Short() {
		t.Skip("the smoke test runs the same workloads; here the race detector only makes them slow")
	}
	changed := func(b *holdfast.Batch, f func(to *holdfast.Batch, op holdfast.Op)) *holdfast.Batch {
		var to holdfast.Batch
		for op := range b.Ops() {
			f(&to, op)
		}
		return &to
	}
	same := func(to *holdfast.Batch, op holdfast.Op) {
		if op.Kind == holdfast.KindDelete {
			to.Delete(op.Key)
		} else {
			to.Set(op.Key, op.Value)
		}
	}
	keys := "seq-write batch random-write mixed overwrite value-1k value-100k load steady retention queue"
	writes, gets := keys+" transaction",
		"read-while-writing mixed transaction seq-read random-read random-read-1m random-read-1m-updated"
	scans := writes + " read-while-writing open-killed open-killed-1g " +
		"seq-read random-read random-read-1m random-read-1m-updated scan scan-1m " +
		"scan-1m-updated range scan-loaded scan-updated cold-read cold-read-60m"
	for name, test := range map[string]struct {
		mutation mutant
		seen     string // by which workloads
	}{
		"nothing": {},
		"a batch is dropped": {mutant{apply: func(holdfast.Engine, *holdfast.Batch) (holdfast.Receipt, error) {
			return holdfast.Receipt{}, nil
		}}, writes},
		"the last key of a batch is dropped": {mutant{apply: func(e holdfast.Engine, b *holdfast.Batch) (holdfast.Receipt,
			error) {
			n := 0
			return e.Apply(changed(b, func(to *holdfast.Batch, op holdfast.Op) {
				if n++; n < b.Len() {
					same(to, op)
				}
			}), holdfast.Memory)
		}}, writes},
		"a value is changed": {mutant{apply: func(e holdfast.Engine, b *holdfast.Batch) (holdfast.Receipt, error) {
			return e.Apply(changed(b, func(to *holdfast.Batch, op holdfast.Op) {
				value := bytes.Clone(op.Value)
				if op.Kind == holdfast.KindSet {
					value[len(value)/2] ^= 1
				}
				same(to, holdfast.Op{Kind: op.Kind, Key: op.Key, Value: value})
			}), holdfast.Memory)
		}}, writes},
		"nothing is deleted": {mutant{apply: func(e holdfast.Engine, b *holdfast.Batch) (holdfast.Receipt, error) {
			return e.Apply(changed(b, func(to *holdfast.Batch, op holdfast.Op) {
				if op.Kind == holdfast.KindSet {
					same(to, op)
				}
			}), holdfast.Memory)
		}}, "overwrite retention queue"},
		"a key too many": {mutant{apply: func(e holdfast.Engine, b *holdfast.Batch) (holdfast.Receipt, error) {
			to := changed(b, same)
			to.Set([]byte("key_"), nil)
			return e.Apply(to, holdfast.Memory)
		}}, keys},
		"nothing is found": {mutant{get: func(_ holdfast.Engine, dst, _ []byte) ([]byte, error) {
			return dst, holdfast.ErrNotFound
		}}, gets},
		"another key's value is found": {mutant{get: func(e holdfast.Engine, dst, key []byte) ([]byte, error) {
			other := bytes.Clone(key)
			other[len(other)-1] ^= 1
			return e.Get(dst, other)
		}}, gets},
		"a value is cut short": {mutant{get: func(e holdfast.Engine, dst, key []byte) ([]byte, error) {
			value, err := e.Get(dst, key)
			return value[:max(len(value)-1, 0)], err
		}}, gets},
		"an iterator skips": {mutant{scan: func(it holdfast.Iterator) holdfast.Iterator {
			return &skipping{Iterator: it}
		}}, scans},
		"an iterator spoils": {mutant{scan: func(it holdfast.Iterator) holdfast.Iterator { return doctored{it} }}, scans},
		"an iterator fails": {mutant{scan: func(it holdfast.Iterator) holdfast.Iterator {
			it.Close()
			return holdfast.FailedIterator(holdfast.ErrCorrupt)
		}}, scans},
	} {
		t.Run(name, func(t *testing.T) {
			notice(t, smallKV(), test.seen, func() (holdfast.Engine, func()) {
				engine := &mutant{Engine: mem.New()}
				return engine, func() {
					engine.apply, engine.get, engine.scan = test.mutation.apply, test.mutation.get, test.mutation.scan
				}
			})
		})
	}
}

// TestKVStaleReadsAreCaught: an engine that answers with what a key had before is caught by what reads.
func TestKVStaleReadsAreCaught(t *testing.T) {
	m := kvMixed{keys: 3, reads: mixedReads, value: kvValueSize}
	old := map[string][]byte{}
	engine := &mutant{Engine: mem.New()}
	load, err := m.engine(taskOn(engine))
	if err != nil {
		t.Fatal(err)
	}
	engine.get = func(e holdfast.Engine, dst, key []byte) ([]byte, error) {
		if value, ok := old[string(key)]; ok {
			return append(dst, value...), nil
		}
		value, err := e.Get(dst, key)
		old[string(key)] = bytes.Clone(value)
		return value, err
	}
	if err := times(1000, load.Client(0)); !errors.Is(err, ErrWrong) {
		t.Errorf("it says %v", err)
	}
}

// TestKVFloorCatches: the contents of the floor's files are checked too.
func TestKVFloorCatches(t *testing.T) {
	for _, w := range smallKV() {
		dir := t.TempDir()
		load, err := w.Floor(Task{Dir: dir, Level: holdfast.Process, Clients: 1, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		err = times(20, load.Client(0))
		if load.Beside != nil {
			err = errors.Join(err, times(20, load.Beside.Client()))
		}
		if err != nil {
			t.Fatal(err)
		}
		names, err := filepath.Glob(filepath.Join(dir, "floor*"))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: no files: %v", w.Name, err)
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
			if w.Reads && w.Items != kvRangeKeys && !strings.Contains(w.Name, "random") {
				if err := load.Client(0)(); !errors.Is(err, ErrWrong) {
					t.Errorf("%s: a read found nothing wrong: %v", w.Name, err)
				}
			}
			if _, _, err := load.Verify(); !errors.Is(err, ErrWrong) {
				t.Errorf("%s: %s was changed: %v", w.Name, filepath.Base(name), err)
			}
			content[kvKeySize+50] ^= 1
			if err := os.WriteFile(name, content, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, _, err := load.Verify(); err != nil {
				t.Errorf("%s: %v", w.Name, err)
			}
		}
		if err := load.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRustIsMeasuredWhereNamed: the engines in Rust are in no plan that does not name them, and have one client.
func TestRustIsMeasuredWhereNamed(t *testing.T) {
	rows := func(r Request) (cells, missing []string) {
		p, err := Standard().Plan(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Cells {
			cells = append(cells, fmt.Sprint(c.Engine, " ", c.Clients))
		}
		for _, u := range p.Unavailable {
			missing = append(missing, u.Engine+": "+u.Reason)
		}
		return cells, missing
	}
	work := []string{"kv/batch", "event/append-1"}
	for _, e := range contender.RustEngines() {
		if cells, missing := rows(Request{Workloads: work}); strings.Contains(fmt.Sprint(cells, missing), e.Name) {
			t.Errorf("%s is not named: %q, %q", e.Name, cells, missing)
		}
		cells, missing := rows(Request{Engines: []string{e.Name, bbolt.Name}, Workloads: work, Clients: []int{1, 64}})
		here := e.Describe().Strongest() > 0
		if slices.Contains(cells, e.Name+" 1") != here || slices.Contains(cells, e.Name+" 64") ||
			!slices.Contains(missing, e.Name+": holds keys only") {
			t.Errorf("%s: %q, %q", e.Name, cells, missing)
		}
		_, missing = rows(Request{Engines: []string{e.Name, bbolt.Name}, Workloads: work[:1], Clients: []int{64}})
		if !slices.ContainsFunc(missing, func(u string) bool { return strings.Contains(u, e.Name+": it answers one") }) {
			t.Errorf("%s with 64 clients: %q", e.Name, missing)
		}
	}
}
