package bench

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

func TestRaftKeys(t *testing.T) {
	keys := raftKeys(1000, 3)
	for i, key := range keys {
		if len(key) != raftKeySize || strings.Trim(string(key), "0123456789ABCDEFGHJKMNPQRSTVWXYZ") != "" {
			t.Fatalf("key %d is %q", i, key)
		}
		if i > 0 && bytes.Compare(keys[i-1], key) >= 0 {
			t.Fatalf("key %d is %q, after %q", i, key, keys[i-1])
		}
	}
	if !slices.EqualFunc(keys, raftKeys(1000, 3), bytes.Equal) || bytes.Equal(keys[0], raftKeys(1000, 4)[0]) {
		t.Error("keys do not follow from the seed")
	}
}

func TestRaftEntries(t *testing.T) {
	entries := newRaftEntries(raftData, 1)
	b := entries.batcher(3)
	for _, first := range []uint64{1, 65_535, 1 << 32} {
		for i, log := range b.batch(first, 3) {
			index := first + uint64(i)
			if err := entries.check(log, index); err != nil || len(log.Data) != 128 || log.Index != index {
				t.Errorf("entry %d: %v", index, err)
			}
			for name, spoil := range map[string]func(l *raft.Log){
				"index":      func(l *raft.Log) { l.Index++ },
				"term":       func(l *raft.Log) { l.Term++ },
				"type":       func(l *raft.Log) { l.Type = raft.LogNoop },
				"extensions": func(l *raft.Log) { l.Extensions = []byte{0} },
				"time":       func(l *raft.Log) { l.AppendedAt = l.AppendedAt.Add(1) },
				"length":     func(l *raft.Log) { l.Data = l.Data[1:] },
				"first byte": func(l *raft.Log) { l.Data = bytes.Clone(l.Data); l.Data[0] ^= 1 },
				"last byte":  func(l *raft.Log) { l.Data = bytes.Clone(l.Data); l.Data[127] ^= 1 },
			} {
				wrong := *log
				spoil(&wrong)
				if err := entries.check(&wrong, index); !errors.Is(err, ErrWrong) {
					t.Errorf("entry %d with another %s: %v", index, name, err)
				}
			}
		}
	}
	// What is 2^32 apart must not look alike.
	if err := entries.check(b.batch(1<<32+7, 1)[0], 7); !errors.Is(err, ErrWrong) {
		t.Error(err)
	}
}

// TestRaftHasOneWriter: appends from several clients would not be in order.
func TestRaftHasOneWriter(t *testing.T) {
	for _, w := range smallRaft() {
		for name, make := range map[string]func(Task) (Load, error){mem.Name: w.Engine, Null: w.Null} {
			load, err := make(Task{Level: holdfast.Memory, Clients: 2,
				Open: func() (holdfast.Engine, error) { return mem.New(), nil }})
			if (err == nil) == w.OneClient || err != nil && !errors.Is(err, holdfast.ErrBadOption) {
				t.Errorf("%s on %s with two clients: %v", w.Name, name, err)
			}
			if err == nil {
				if err := load.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// fakeRaft is a peer that does not keep its promises.
type fakeRaft struct {
	holdfast.Engine
	store contender.RaftStore
}

func (r *fakeRaft) RaftStore() contender.RaftStore { return r.store }

// Close closes the store too: a peer's store is the engine's own.
func (r *fakeRaft) Close() error {
	return errors.Join(r.store.(*raftMutant).Store.Close(), r.Engine.Close())
}

// raftMutant is its store: ours, in which some calls are others.
type raftMutant struct {
	*raftlog.Store
	storeLogs   func(s *raftlog.Store, logs []*raft.Log) error
	getLog      func(s *raftlog.Store, index uint64, log *raft.Log) error
	deleteRange func(s *raftlog.Store, min, max uint64) error
	first, last func(s *raftlog.Store) (uint64, error)
	set         func(s *raftlog.Store, key, value []byte) error
	get         func(s *raftlog.Store, key []byte) ([]byte, error)
}

func (l *raftMutant) StoreLogs(logs []*raft.Log) error {
	if l.storeLogs != nil {
		return l.storeLogs(l.Store, logs)
	}
	return l.Store.StoreLogs(logs)
}

func (l *raftMutant) GetLog(index uint64, log *raft.Log) error {
	if l.getLog != nil {
		return l.getLog(l.Store, index, log)
	}
	return l.Store.GetLog(index, log)
}

func (l *raftMutant) DeleteRange(min, max uint64) error {
	if l.deleteRange != nil {
		return l.deleteRange(l.Store, min, max)
	}
	return l.Store.DeleteRange(min, max)
}

func (l *raftMutant) FirstIndex() (uint64, error) {
	if l.first != nil {
		return l.first(l.Store)
	}
	return l.Store.FirstIndex()
}

func (l *raftMutant) LastIndex() (uint64, error) {
	if l.last != nil {
		return l.last(l.Store)
	}
	return l.Store.LastIndex()
}

func (l *raftMutant) Set(key, value []byte) error {
	if l.set != nil {
		return l.set(l.Store, key, value)
	}
	return l.Store.Set(key, value)
}

func (l *raftMutant) Get(key []byte) ([]byte, error) {
	if l.get != nil {
		return l.get(l.Store, key)
	}
	return l.Store.Get(key)
}

// newFakeRaft is one in memory that is honest as yet.
func newFakeRaft(t *testing.T) (*fakeRaft, *raftMutant) {
	t.Helper()
	engine := mem.New()
	store, err := raftlog.Open(engine, raftlog.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	mutant := &raftMutant{Store: store}
	return &fakeRaft{engine, mutant}, mutant
}

// TestRaftVerificationCatches: whatever a store does wrong, the workloads that can see it do.
func TestRaftVerificationCatches(t *testing.T) {
	clone := func(logs []*raft.Log) (list []*raft.Log) {
		for _, log := range logs {
			same := *log
			same.Data = bytes.Clone(log.Data)
			list = append(list, &same)
		}
		return list
	}
	appends := "store-1 store-16 store-128 truncate long steady"
	sets := "stable-set stable-set-1k steady"
	logs, keys := appends+" get-log", sets+" stable-get stable-get-1k"
	for name, test := range map[string]struct {
		mutation raftMutant
		seen     string // by which workloads
	}{
		"nothing": {},
		"a batch is dropped": {raftMutant{storeLogs: func(*raftlog.Store, []*raft.Log) error { return nil }},
			appends},
		"the last of a batch is missed": {raftMutant{storeLogs: func(s *raftlog.Store, logs []*raft.Log) error {
			return s.StoreLogs(logs[:len(logs)-1])
		}}, appends},
		"an entry is changed": {raftMutant{storeLogs: func(s *raftlog.Store, logs []*raft.Log) error {
			logs = clone(logs)
			logs[0].Data[60] ^= 1
			return s.StoreLogs(logs)
		}}, appends},
		"a term is changed": {raftMutant{storeLogs: func(s *raftlog.Store, logs []*raft.Log) error {
			logs = clone(logs)
			logs[len(logs)-1].Term++
			return s.StoreLogs(logs)
		}}, appends},
		"an entry too many": {raftMutant{storeLogs: func(s *raftlog.Store, logs []*raft.Log) error {
			more := clone(logs[len(logs)-1:])
			more[0].Index++
			return errors.Join(s.StoreLogs(logs), s.StoreLogs(more))
		}}, appends},
		"nothing is deleted": {raftMutant{deleteRange: func(*raftlog.Store, uint64, uint64) error { return nil }},
			"truncate long steady"},
		"one too many deleted": {raftMutant{deleteRange: func(s *raftlog.Store, min, max uint64) error {
			return s.DeleteRange(min, max+1)
		}}, "truncate long steady"},
		"one too few deleted": {raftMutant{deleteRange: func(s *raftlog.Store, min, max uint64) error {
			return s.DeleteRange(min, max-1)
		}}, "truncate long steady"},
		"deleted, but readable": {raftMutant{getLog: func(s *raftlog.Store, index uint64, log *raft.Log) error {
			if err := s.GetLog(index, log); !errors.Is(err, raft.ErrLogNotFound) {
				return err
			}
			return nil
		}}, logs},
		"the first index is wrong": {raftMutant{first: func(s *raftlog.Store) (uint64, error) { return 7, nil }}, logs},
		"the last index is wrong":  {raftMutant{last: func(s *raftlog.Store) (uint64, error) { return 7, nil }}, logs},
		"the first index fails": {raftMutant{first: func(s *raftlog.Store) (uint64, error) {
			return 0, holdfast.ErrCorrupt
		}}, logs},
		"an entry is not found": {raftMutant{getLog: func(*raftlog.Store, uint64, *raft.Log) error {
			return raft.ErrLogNotFound
		}}, logs},
		"the entry before is read": {raftMutant{getLog: func(s *raftlog.Store, index uint64, log *raft.Log) error {
			return s.GetLog(index-1, log)
		}}, logs},
		"what was read is changed": {raftMutant{getLog: func(s *raftlog.Store, index uint64, log *raft.Log) error {
			err := s.GetLog(index, log)
			if err == nil {
				log.Data[3] ^= 1
			}
			return err
		}}, logs},
		"a value is dropped": {raftMutant{set: func(*raftlog.Store, []byte, []byte) error { return nil }}, sets},
		"a value is changed": {raftMutant{set: func(s *raftlog.Store, key, value []byte) error {
			value = bytes.Clone(value)
			value[100] ^= 1
			return s.Set(key, value)
		}}, sets},
		"the first value stays": {raftMutant{set: func(s *raftlog.Store, key, value []byte) error {
			if _, err := s.Get(key); err == nil {
				return nil
			}
			return s.Set(key, value)
		}}, sets},
		"a key is not found": {raftMutant{get: func(*raftlog.Store, []byte) ([]byte, error) {
			return nil, raftlog.ErrKeyNotFound
		}}, keys},
		"a key is nil": {raftMutant{get: func(*raftlog.Store, []byte) ([]byte, error) { return nil, nil }}, keys},
		"a key fails": {raftMutant{get: func(*raftlog.Store, []byte) ([]byte, error) {
			return nil, holdfast.ErrCorrupt
		}}, keys},
		"a value loses its last": {raftMutant{get: func(s *raftlog.Store, key []byte) ([]byte, error) {
			v, err := s.Get(key)
			return v[:max(len(v)-1, 0)], err
		}}, keys},
		"a value is another key's ": {raftMutant{get: func(s *raftlog.Store, key []byte) ([]byte, error) {
			return s.Get(raftKeys(5, 1)[0])
		}}, "stable-set stable-get"},
	} {
		t.Run(name, func(t *testing.T) {
			notice(t, smallRaft(), test.seen, func() (holdfast.Engine, func()) {
				engine, store := newFakeRaft(t)
				return engine, func() {
					test.mutation.Store = store.Store
					*store = test.mutation
				}
			})
		})
	}
}

// TestRaftVerifiesStretches: of a log that is too long to be read, the ends and some stretches are, none of them twice.
func TestRaftVerifiesStretches(t *testing.T) {
	const first, n = 77, fullBuckets*stretch + 12_345
	const last = first + n - 1
	entries := newRaftEntries(raftData, 1)
	log := entries.batcher(1)
	read := map[uint64]bool{}
	store := &raftMutant{
		first: func(*raftlog.Store) (uint64, error) { return first, nil },
		last:  func(*raftlog.Store) (uint64, error) { return last, nil },
		getLog: func(_ *raftlog.Store, index uint64, to *raft.Log) error {
			if index < first || index > last {
				return raft.ErrLogNotFound
			}
			read[index] = true
			*to = *log.batch(index, 1)[0]
			return nil
		},
	}
	items, checked, err := entries.verify(store, first, last, 5)
	if err != nil || items != n || checked != (someBuckets+2)*stretch || int64(len(read)) > checked ||
		int64(len(read)) < checked-stretch || !read[first] || !read[last] {
		t.Errorf("%d of %d, %d different ones: %v", checked, items, len(read), err)
	}
}

// TestTruncationKeepsTheLogShort: deletions run concurrently with the appends, and the log stays within bounds.
func TestTruncationKeepsTheLogShort(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	engine, store := newFakeRaft(t)
	deletions := 0
	store.deleteRange = func(s *raftlog.Store, min, max uint64) error {
		deletions++
		if max-min+1 != 200 {
			t.Errorf("entries %d to %d are deleted", min, max)
		}
		return s.DeleteRange(min, max)
	}
	load, err := raftTruncate{keep: 400, cut: 200, batch: raftBatch, data: raftData}.engine(taskOn(engine))
	if err != nil {
		t.Fatal(err)
	}
	op := load.Client(0)
	for range 500 {
		if err := op(); err != nil {
			t.Fatal(err)
		}
		first, _ := store.FirstIndex()
		last, _ := store.LastIndex()
		if there := last - first + 1; there > raftRunaway*400+raftBatch {
			t.Fatalf("%d entries", there)
		}
	}
	items, checked, err := load.Verify()
	if err != nil || items != checked || items < 200 {
		t.Errorf("%d of %d: %v", checked, items, err)
	}
	if err := load.Close(); err != nil {
		t.Fatal(err)
	}
	// Deletions come when 400 are there, of which 200 go; how far they lag behind depends on the machine.
	if appended := 300 + 500*raftBatch; deletions < appended/(raftRunaway*400) || deletions > appended/200 {
		t.Errorf("%d deletions", deletions)
	}
}

// TestTruncationThatLastsHoldsAppendsUp: a log whose front cannot be deleted in time does not fill the disk.
func TestTruncationThatLastsHoldsAppendsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := raftTruncate{keep: 10, cut: 5}.newCutter(10, func(_, _ uint64) error { <-release; return nil })
		for c.there() < raftRunaway*10 {
			if err := c.step(); err != nil {
				t.Fatal(err)
			}
			c.last++
		}
		stepped := make(chan error, 1)
		go func() { stepped <- c.step() }()
		if synctest.Wait(); len(stepped) > 0 {
			t.Error("it goes on")
		}
		close(release)
		if err := errors.Join(<-stepped, c.stop()); err != nil {
			t.Error(err)
		}
	})
}

func TestTruncationThatFailsIsSeen(t *testing.T) {
	boom := errors.New("boom")
	engine, store := newFakeRaft(t)
	store.deleteRange = func(*raftlog.Store, uint64, uint64) error { return boom }
	load, err := raftTruncate{keep: 400, cut: 200, batch: raftBatch, data: raftData}.engine(taskOn(engine))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(times(100, load.Client(0)), load.Close()); !errors.Is(err, boom) {
		t.Errorf("it says %v", err)
	}
}

func TestRaftPlan(t *testing.T) {
	p, err := Standard().Plan(Request{Preset: "raft"})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(p.Workloads, "raft/long") || slices.Contains(p.Workloads, "raft/steady") ||
		len(p.Workloads) != len(raftWorkloads())-2+len(proposeWorkloads()) {
		t.Errorf("the workloads are %q", p.Workloads)
	}
	got := cells(p, "raft/stable-set")
	for _, want := range []string{"badger process", "badger power", "logtree process", "logtree power", "raft-wal power",
		"raft-boltdb power", "null memory", "floor process", "floor power"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing in %q", want, got)
		}
	}
	if slices.Contains(got, "raft-wal process") || slices.Contains(got, "mem memory") {
		t.Errorf("the cells are %q", got)
	}
	if !slices.ContainsFunc(unavailable(p, "raft/stable-set"), func(u string) bool {
		return strings.HasPrefix(u, "raft-wal process: ")
	}) {
		t.Errorf("missing: %q", unavailable(p, "raft/stable-set"))
	}
	// Writes have one client whatever is asked for, and reads those that are.
	p, err = Standard().Plan(Request{Preset: "raft", Engines: []string{contender.RaftWAL, contender.RaftBoltDB},
		Clients: []int{4, 8}})
	if err != nil {
		t.Fatal(err)
	}
	if got := cells(p, "raft/store-1"); !slices.Equal(got,
		[]string{"raft-wal power", "raft-boltdb power", "null memory", "floor power"}) {
		t.Errorf("the cells are %q", got)
	}
	if got := cells(p, "raft/get-log"); len(got) != 8 || !slices.Contains(got, "raft-wal power x8") {
		t.Errorf("the cells are %q", got)
	}
	if got := unavailable(p, "raft/store-1"); len(got) != 2 {
		t.Errorf("missing: %q", got)
	}
	// What lasts long does not measure the harness, which would last as long.
	p, err = Standard().Plan(Request{Preset: "raft-long"})
	if err != nil {
		t.Fatal(err)
	}
	// mem does not give Power, and files has no atomic batches.
	if got := cells(p, "raft/long"); len(got) != len(all.Engines())-2+len(contender.Engines())+1 ||
		p.For != 10*time.Minute {
		t.Errorf("for %v: %q", p.For, got)
	}
}

// TestPeersDoNothingElse: other work does not ask for them, and says why it has none if the user does.
func TestPeersDoNothingElse(t *testing.T) {
	for _, preset := range []string{"quick", "kv"} {
		p, err := Standard().Plan(Request{Preset: preset})
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(peers(), func(peer Peer) bool { return slices.Contains(p.Engines, peer.Name) }) {
			t.Errorf("%s has engines %q", preset, p.Engines)
		}
	}
	p, err := Standard().Plan(Request{Preset: "smoke"})
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Concat(cells(p, "event/append-1"), unavailable(p, "event/append-1")); slices.ContainsFunc(got,
		func(s string) bool {
			return strings.HasPrefix(s, "raft")
		}) {
		t.Errorf("the event store has %q", got)
	}
	p, err = Standard().Plan(Request{Engines: []string{"raft-wal", "mem"},
		Workloads: []string{"event/append-1", "event/read-100"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range p.Workloads {
		const onlyRaft = "holds Raft logs only"
		want := []string{"raft-wal memory: " + onlyRaft, "raft-wal process: " + onlyRaft, "raft-wal power: " + onlyRaft}
		if got := unavailable(p, w); !slices.Equal(got[len(got)-3:], want) {
			t.Errorf("%s: missing: %q", w, got)
		}
	}
	if _, err := Standard().Plan(Request{Engines: []string{"raft-wal"}}); !errors.Is(err, holdfast.ErrBadOption) ||
		strings.Count(err.Error(), "holds Raft logs only") != 1 || strings.Contains(err.Error(), "--levels") {
		t.Errorf("events on a peer alone: %v", err)
	}
}

func TestSampler(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ops := make(opCounts, 2)
		s := newSampler(dir, time.Second, ops.total)
		s.start()
		time.Sleep(time.Second / 2)
		for i := range 3 {
			ops[i%2].Add(1)
			time.Sleep(time.Second)
		}
		samples := s.stop()
		for i, at := range []float64{1, 2, 3, 3.5} {
			want := Sample{Seconds: at, Ops: min(int64(i)+1, 3), DiskBytes: s.peak, RSS: samples[i].RSS}
			if len(samples) != 4 || samples[i] != want || want.DiskBytes < 1<<20 ||
				runtime.GOOS == "linux" && want.RSS < 1<<20 {
				t.Fatalf("%+v", samples)
			}
		}
		s = newSampler(t.TempDir(), time.Hour, ops.total)
		s.start()
		if samples := s.stop(); len(samples) != 1 || s.peak != 0 {
			t.Errorf("%+v, at most %d bytes", samples, s.peak)
		}
	})
}

func TestQuarters(t *testing.T) {
	var samples []Sample
	for i := 1; i <= 8; i++ {
		samples = append(samples, Sample{Seconds: float64(i), Ops: int64(i * i), DiskBytes: int64(100 - i),
			RSS: int64(50 + i)})
	}
	want := [4]quarter{{2, 4, 99, 52}, {2, 12, 97, 54}, {2, 20, 95, 56}, {2, 28, 93, 58}}
	if got := quarters(samples); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := quarters(samples[:1]); got != ([4]quarter{2: {1, 1, 99, 51}}) {
		t.Errorf("of one sample %+v", got)
	}
	if got := quarters(nil); got != ([4]quarter{}) {
		t.Errorf("of nothing %+v", got)
	}
}

// TestLongReport: a long measurement, made short, is in the report as the schema has it, and in tables of its own.
func TestLongReport(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "report.json")
	var out bytes.Buffer
	length := 20 * time.Millisecond
	err := Standard().Command(context.Background(), Request{Preset: "raft-long",
		Engines: []string{logtree.Name, contender.RaftBoltDB}, For: &length, Detail: Detail{Full: true}},
		Place{Dir: dir, AllowTmpfs: true},
		console.Files{JSON: file},
		console.Terminal{Out: &out, Err: &out})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	report := readReport(t, file)
	if len(report.Results) != 3 {
		t.Errorf("%d results", len(report.Results))
	}
	for _, r := range report.Results {
		if !r.Verified || r.Samples[len(r.Samples)-1].Ops != r.Ops+r.WarmUpOps {
			t.Errorf("%s: %d and %d operations, %+v, %s", r.Engine, r.WarmUpOps, r.Ops, r.Samples, r.Error)
		}
	}
	for _, part := range []string{"p99.9", "the most on disk", "the most resident memory", "1st quarter",
		contender.RaftBoltDB} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %q in\n%s", part, out.String())
		}
	}
}
