package bench

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/bbolt"
	"github.com/holdfastdb/holdfast/engine/files"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/contender/rust"
)

// smallKV, smallYCSB, smallRaft, smallMessages and smallTasks are the tables of workloads, on little data.
func smallKV() []Workload {
	return kvStudy(kvSizes{keys: 1000, many: 3000, mixed: 500, large: 2 << 20, more: 5000, cold: 2000, most: 3000,
		oldest: 1000, queued: 300,
		killed: 1500, died: 2500})
}

func smallYCSB() []Workload { return ycsbStudy(500) }

func smallRaft() []Workload {
	return raftStudy(raftSizes{keys: 5, many: 20, entries: 2000, keep: 400, cut: 200,
		steady: raftTruncate{keep: 20, cut: 10, batch: 1, data: raftSteadyData, votes: 2}})
}

func smallMessages() []Workload {
	return messageStudy(messageSizes{streams: 40, stored: 2000, read: 100})
}

func smallTasks() []Workload { return taskStudy(taskSizes{backlog: 300, long: 1500}) }

// smallLab is the standard one, on little data.
func smallLab() Lab {
	return Lab{Engines: all.Engines(), Peers: peers(),
		Workloads: slices.Concat(eventStudy(2000, 3000), smallKV(), smallYCSB(), smallRaft(), proposeWorkloads(),
			smallMessages(), smallTasks(), fileStudy(5000))}
}

// taskOn is a task for one client on an engine in memory.
func taskOn(engine holdfast.Engine) Task {
	t := Task{Level: holdfast.Memory, Clients: 1, Seed: 1,
		Open: func() (holdfast.Engine, error) { return engine, nil }}
	t.Killed = func(keys int) error {
		table, err := newKVTable(t, keys, kvMoreValue)
		if err != nil {
			return err
		}
		return table.fill(kvFill{}, t.Level)
	}
	return t
}

// times does an operation n times, or until it fails.
func times(n int, op func() error) error {
	for range n {
		if err := op(); err != nil {
			return err
		}
	}
	return nil
}

// nothingWritten reports whether nothing is there to be checked: a floor begins with nothing in it, and mixed work may
// not come to a write in a short time.
func nothingWritten(engine string, kinds int, items int64) bool {
	return strings.HasPrefix(engine, Floor) && kinds > 0 && items == 0
}

// measureSmall measures a workload of a small lab for a moment, in this process, and checks what is said of it.
func measureSmall(t *testing.T, lab Lab, w Workload, engine string, level holdfast.Level, clients int) {
	t.Helper()
	cell := Cell{Workload: w.Name, Engine: engine, Asked: level, Given: level, Clients: clients, Reads: w.Reads}
	o := unknownOutcome()
	err := lab.measure(request{Cell: cell, For: 5 * time.Millisecond, WarmUp: time.Millisecond, Dir: t.TempDir(),
		Seed: 1}, &o)
	name := w.Name + " on " + engine
	warm := int64(clients)
	if w.Killed {
		warm = 0
	}
	if err != nil || !o.Verified || o.Ops < int64(clients) || o.WarmUpOps < warm || len(o.Samples) == 0 {
		t.Errorf("%s with %d clients: %v, %+v", name, clients, err, o)
	}
	if none := nothingWritten(engine, len(o.Kinds), o.Items); engine != Null &&
		(o.Checked == 0 && !none || engine != Floor && engine != FloorMap && o.Checked != o.Items) {
		t.Errorf("%s with %d clients: %d of %d checked", name, clients, o.Checked, o.Items)
	}
	// A short run of mixed work may have come to no write.
	if !w.Reads && !w.Killed && engine != Null && (len(o.Kinds) == 0 || o.Ops > 500) && o.BytesPut <= 0 {
		t.Errorf("%s: %d bytes put", name, o.BytesPut)
	}
	if (w.Name == "message/mixed" || w.Name == "raft/truncate") && engine != Floor && engine != FloorMap &&
		len(o.Kinds) != 2 {
		t.Errorf("%s: the kinds of operations are %+v", name, o.Kinds)
	}
	if level != holdfast.Memory && (o.DiskBytes <= 0 || o.PeakDisk < o.DiskBytes) {
		t.Errorf("%s: %d bytes on disk, at most %d", name, o.DiskBytes, o.PeakDisk)
	}
}

// TestWorkloadsEverywhere runs every workload on the engine in memory, on real engines, on the peers that are no
// servers, on the floor and on null, with one client and with several; with many where clients change what they read.
// By day, it leaves out what is slow and measured with the same code as another: TestSmoke has bbolt.
func TestWorkloadsEverywhere(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	lab := smallLab()
	engines := []string{mem.Name, logtree.Name, contender.RaftWAL, contender.RaftBoltDB, contender.RaftBadger,
		contender.SQLiteSQLMerged, contender.FilesPlain, Floor, FloorMap, Null}
	if night.Is() {
		engines = append(engines, bbolt.Name, files.Name, contender.SQLiteSQL)
	}
	if testing.Short() { // for the race detector: the clients are the same whatever they measure
		engines = []string{logtree.Name, contender.SQLiteSQLMerged, Floor, FloorMap}
	}
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel() // it waits for the disk
			level := holdfast.Power
			if engine == mem.Name || engine == Null {
				level = holdfast.Memory
			}
			for _, w := range lab.Workloads {
				if _, ok := lab.can(engine, w); !ok || engine == files.Name && !w.OneKey || w.Killed && engine == mem.Name {
					continue
				}
				if w.Floor == nil && (engine == Floor || engine == FloorMap) {
					continue
				}
				many := 8
				if w.Name == "kv/mixed" || w.Name == "kv/overwrite" {
					many = 64
				}
				numbers := w.clients([]int{1, many}, nil)
				// What one client does alone they do, too.
				if engine != mem.Name && engine != logtree.Name || !night.Is() {
					numbers = numbers[len(numbers)-1:]
				}
				for _, clients := range numbers {
					measureSmall(t, lab, w, engine, level, clients)
				}
			}
		})
	}
}

// TestServersEverywhere runs every workload that they can do on the peers that are servers; by day, of each store
// one that writes and one that reads.
func TestServersEverywhere(t *testing.T) {
	lab := smallLab()
	for _, p := range lab.Peers {
		if !lab.isServer(p.Name) {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			if promise := p.Describe().Promise(holdfast.Process); promise.Given != holdfast.Process {
				t.Skip(promise.Why)
			}
			t.Parallel()
			measured := map[string]bool{}
			for _, w := range lab.Workloads {
				store, _, _ := strings.Cut(w.Name, "/")
				kind := fmt.Sprint(store, w.Reads)
				if _, ok := lab.can(p.Name, w); ok && (night.Is() || !measured[kind]) {
					measured[kind] = true
					measureSmall(t, lab, w, p.Name, holdfast.Process, 8)
				}
			}
		})
	}
}

// TestRustEverywhere runs every workload that they can do on the engines that a program in Rust serves, with one
// client.
func TestRustEverywhere(t *testing.T) {
	if _, err := rust.Path(); err != nil {
		t.Skip("THE ENGINES IN RUST ARE NOT TESTED: ", err)
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	lab := smallLab()
	for _, p := range lab.Peers {
		if !p.OneClient {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			for _, w := range lab.Workloads {
				if p.Name == contender.Thunderdb && (w.Name == "kv/value-100k" || w.Name == "kv/value-1mb") {
					continue // what it reads is not what was written: docs/findings/thunderdb.md
				}
				level := p.Describe().Strongest()
				if _, ok := lab.can(p.Name, w); ok && (!w.Killed || level > holdfast.Memory) {
					measureSmall(t, lab, w, p.Name, level, 1)
				}
			}
		})
	}
}

// TestReadAhead: with many keys got at once, what is wrong is noticed for each of them, and a key that is not there.
func TestReadAhead(t *testing.T) {
	for _, order := range []kvOrder{kvInOrder, kvRandom} {
		engine := getsAll{mem.New()}
		r := kvRead{keys: 300, order: order}
		load, err := r.engine(taskOn(engine))
		if err != nil {
			t.Fatal(err)
		}
		op := load.Client(0)
		if err := times(1000, op); err != nil {
			t.Fatal(err)
		}
		var b holdfast.Batch
		var key kvKey
		b.Delete(key.of(17))
		b.Set(key.of(18), make([]byte, kvValueSize))
		if err := holdfast.Commit(engine, &b, holdfast.Memory); err != nil {
			t.Fatal(err)
		}
		wrongs := map[string]bool{}
		for range 5000 {
			if err := op(); errors.Is(err, ErrWrong) {
				wrongs[err.Error()] = true
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if len(wrongs) != 2 {
			t.Errorf("%v", wrongs)
		}
	}
}

// getsAll is an engine that is asked for many keys at once.
type getsAll struct{ holdfast.Engine }

func (g getsAll) GetAll(keys [][]byte, tell func(i int, value []byte) error) error {
	for i, key := range keys {
		value, err := g.Get(nil, key)
		if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
			return err
		}
		if err := tell(i, value); err != nil {
			return err
		}
	}
	return nil
}

// notice checks that each of the named workloads notices what spoil makes of an engine once everything is prepared;
// if none is named, that nothing is wrong with any.
func notice(t *testing.T, workloads []Workload, named string, prepare func() (e holdfast.Engine, spoil func())) {
	t.Helper()
	for _, w := range workloads {
		_, name, _ := strings.Cut(w.Name, "/")
		if named != "" && !slices.Contains(strings.Fields(named), name) {
			continue // it need not
		}
		engine, spoil := prepare()
		load, err := w.Engine(taskOn(engine))
		if err != nil {
			t.Fatal(err)
		}
		spoil()
		if err = times(30, load.Client(0)); err == nil {
			_, _, err = load.Verify()
		}
		err = errors.Join(err, load.Close())
		if named != "" && !errors.Is(err, ErrWrong) {
			t.Errorf("%s does not see it: %v", w.Name, err)
		}
		if named == "" && err != nil {
			t.Errorf("%s: %v", w.Name, err)
		}
	}
}

// TestPreloadIsSettled: what reads find was closed and opened again, and nothing was committed since.
func TestPreloadIsSettled(t *testing.T) {
	for _, test := range []struct {
		prepare func(Task) (Load, error)
		open    func(dir string, o holdfast.Options) (holdfast.Engine, error)
	}{{kvRead{keys: 1000, order: kvRandom}.engine, bbolt.Open}, {raftGetLog{1000}.engine, contender.OpenRaftBoltDB}} {
		dir := filepath.Join(t.TempDir(), "engine")
		opened := 0
		load, err := test.prepare(Task{Level: holdfast.Power, Clients: 1, Open: func() (holdfast.Engine, error) {
			opened++
			return test.open(dir, holdfast.Options{})
		}})
		if err != nil {
			t.Fatal(err)
		}
		if m := load.Metrics(); opened != 2 || m.Commits != 0 {
			t.Errorf("opened %d times, %d commits", opened, m.Commits)
		}
		if err := load.Close(); err != nil {
			t.Fatal(err)
		}
		if items, checked, err := load.Verify(); err != nil || items != 1000 || checked != 1000 {
			t.Errorf("%d of %d: %v", checked, items, err)
		}
	}
}

// TestStudy: a figure of reads is of every level; an engine that the study had is told from a level that it had not.
func TestStudy(t *testing.T) {
	of := study(map[figure]string{{"a", holdfast.Power}: "2 us", {"b", 0}: "3 us"})
	for _, test := range []struct {
		engine string
		given  holdfast.Level
		want   string
	}{
		{"a", holdfast.Power, "2 us"}, {"a", holdfast.Memory, notAtLevel}, {"b", holdfast.Process, "3 us"},
		{"c", holdfast.Power, notInStudy},
	} {
		if got := of(test.engine, test.given); got != test.want {
			t.Errorf("%s at %v: %q, want %q", test.engine, test.given, got, test.want)
		}
	}
}
