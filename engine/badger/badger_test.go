package badger

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

func try(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustOpen(t testing.TB, dir string, h hooks) *engine {
	t.Helper()
	e, err := open(dir, holdfast.Options{SyncEvery: -1}, h)
	try(t, err)
	t.Cleanup(func() {
		if err := e.Close(); err != nil && !errors.Is(err, holdfast.ErrClosed) && !errors.Is(err, holdfast.ErrPoisoned) {
			t.Error(err)
		}
	})
	return e.(*engine)
}

func commit(t testing.TB, e holdfast.Engine, level holdfast.Level, fill func(b *holdfast.Batch)) {
	t.Helper()
	var b holdfast.Batch
	fill(&b)
	try(t, holdfast.Commit(e, &b, level))
}

func closeAll(t testing.TB, closers ...interface{ Close() error }) {
	t.Helper()
	for _, c := range closers {
		try(t, c.Close())
	}
}

func key(n int) []byte { return fmt.Appendf(nil, "key%08d", n) }

// count is the number of keys that r shows.
func count(t testing.TB, r holdfast.Reader) int {
	t.Helper()
	n := 0
	it := r.Scan(holdfast.Range{})
	for it.Next() {
		n++
	}
	try(t, it.Close())
	return n
}

// Sixty-four writers at Power share transactions and syncs.
func TestWritersShareSyncs(t *testing.T) {
	e := mustOpen(t, t.TempDir(), hooks{})
	before := e.Metrics()
	const writers, each = 64, 40
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			var b holdfast.Batch
			for n := range each {
				b.Reset()
				b.Set(key(w*each+n), []byte("value"))
				if err := holdfast.Commit(e, &b, holdfast.Power); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	m := e.Metrics()
	commits, syncs, groups := m.Commits-before.Commits, m.Syncs-before.Syncs, m.Groups-before.Groups
	t.Logf("%d commits, %d transactions, %d syncs", commits, groups, syncs)
	if commits != writers*each || groups*3 > commits || syncs > groups {
		t.Errorf("%d commits in %d transactions with %d syncs: not shared", commits, groups, syncs)
	}
	if n := count(t, e); n != writers*each {
		t.Errorf("%d keys, want %d", n, writers*each)
	}
}

// A Process commit of small values needs no sync, one of a large value does.
func TestProcessCommitsDoNotSync(t *testing.T) {
	e := mustOpen(t, t.TempDir(), hooks{})
	before := e.Metrics().Syncs
	for n := range 100 {
		commit(t, e, holdfast.Process, func(b *holdfast.Batch) { b.Set(key(n), []byte("value")) })
	}
	if n := e.Metrics().Syncs - before; n != 0 {
		t.Errorf("%d syncs for commits at Process", n)
	}
	commit(t, e, holdfast.Process, func(b *holdfast.Batch) { b.Set(key(0), make([]byte, valueThreshold)) })
	if n := e.Metrics().Syncs - before; n != 1 {
		t.Errorf("%d syncs for a value in the value log, want 1", n)
	}
}

// What the library counts is what fits expects: a batch just within each limit is committed,
// one just over it is refused and leaves the engine as it was.
func TestLimits(t *testing.T) {
	t.Parallel()
	e := mustOpen(t, t.TempDir(), hooks{})
	if got := e.db.MaxBatchCount(); got != maxTxnOps {
		t.Errorf("the library allows %d operations, the engine counts on %d", got, maxTxnOps)
	}
	if got := e.db.MaxBatchSize(); got != maxTxnBytes {
		t.Errorf("the library allows %d bytes, the engine counts on %d", got, maxTxnBytes)
	}
	ops := func(n int) func(b *holdfast.Batch) {
		return func(b *holdfast.Batch) {
			for i := range n {
				b.Delete(key(i))
			}
		}
	}
	values := func(each, n int) func(b *holdfast.Batch) {
		return func(b *holdfast.Batch) {
			piece := make([]byte, each)
			for i := 0; n-b.Size() > 2*each; i++ {
				b.Set(key(i), piece)
			}
			for n > b.Size() { // its length may take some bytes more or less
				b.Set(key(1e6), make([]byte, max(0, n-b.Size()-len(key(1e6))-6)))
			}
		}
	}
	for name, c := range map[string]struct{ fits, not func(b *holdfast.Batch) }{
		"operations": {ops(int(maxTxnOps) - 2), ops(int(maxTxnOps) - 1)},
		// nearly as many operations as there may be
		"small values": {values(68, maxBatchBytes-100), values(68, maxBatchBytes+1)},
		"values":       {values(10_000, maxBatchBytes-100), values(10_000, maxBatchBytes+1)},
		"large values": {values(2*valueThreshold, maxBatchBytes-100), values(2*valueThreshold, maxBatchBytes+1)},
		"one value": {values(maxValueBytes, maxValueBytes), func(b *holdfast.Batch) {
			b.Set(key(1), make([]byte, maxValueBytes+1))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			commit(t, e, holdfast.Process, c.fits)
			var b holdfast.Batch
			c.not(&b)
			if _, err := e.Apply(&b, holdfast.Process); !errors.Is(err, holdfast.ErrTooLarge) {
				t.Errorf("Apply over the limit: %v", err)
			}
			commit(t, e, holdfast.Process, func(b *holdfast.Batch) { b.Set(key(1), []byte("after")) })
		})
	}
}

// The largest key and value come back, also after reopening.
func TestLargestValue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k, v := bytes.Repeat([]byte("k"), holdfast.MaxKeySize), make([]byte, maxValueBytes)
	for i := range v {
		v[i] = byte(i * 7 >> 3)
	}
	e := mustOpen(t, dir, hooks{})
	commit(t, e, holdfast.Power, func(b *holdfast.Batch) { b.Set(k, v) })
	for range 2 {
		got, err := e.Get([]byte("x"), k)
		if err != nil || len(got) != len(v)+1 || got[0] != 'x' || !bytes.Equal(got[1:], v) {
			t.Fatalf("Get gives %d bytes, %v", len(got), err)
		}
		it := e.Scan(holdfast.Range{})
		if !it.Next() || !bytes.Equal(it.Key(), k) || !bytes.Equal(it.Value(), v) {
			t.Fatal("Scan does not show it")
		}
		closeAll(t, it, e)
		e = mustOpen(t, dir, hooks{})
	}
}

// A DeleteRange is refused if it finds more keys than a transaction can delete, and has
// no effect then; split, it works.
func TestDeleteRangeTooLarge(t *testing.T) {
	t.Parallel()
	e := mustOpen(t, t.TempDir(), hooks{})
	const n = int(maxTxnOps) + 1000
	for at := 0; at < n; at += n / 2 {
		commit(t, e, holdfast.Process, func(b *holdfast.Batch) {
			for i := at; i < min(at+n/2, n); i++ {
				b.Set(key(i), nil)
			}
		})
	}
	var b holdfast.Batch
	b.Set([]byte("other"), nil)
	b.DeleteRange(nil, nil)
	_, err := e.Apply(&b, holdfast.Process)
	if !errors.Is(err, holdfast.ErrTooLarge) {
		t.Fatal(err)
	}
	t.Log(err)
	if got := count(t, e); got != n {
		t.Errorf("%d keys after a refused DeleteRange, want %d", got, n)
	}
	for at := 0; at < n; at += n / 2 {
		commit(t, e, holdfast.Process, func(b *holdfast.Batch) { b.DeleteRange(key(at), key(at+n/2)) })
	}
	if got := count(t, e); got > 1 {
		t.Errorf("%d keys left", got)
	}
}

// One snapshot serves many goroutines, and its iterators may even outlive it.
func TestSnapshotShared(t *testing.T) {
	e := mustOpen(t, t.TempDir(), hooks{})
	commit(t, e, holdfast.Process, func(b *holdfast.Batch) {
		for n := range 1000 {
			b.Set(key(n), key(n))
		}
	})
	s, err := e.Snapshot()
	try(t, err)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for n := range 200 {
				if w == 0 {
					commit(t, e, holdfast.Process, func(b *holdfast.Batch) { b.DeleteRange(key(n), key(n+1)) })
					continue
				}
				if v, err := s.Get(nil, key(n)); err != nil || !bytes.Equal(v, key(n)) {
					t.Errorf("Get gives %q, %v", v, err)
				}
				if n%50 == 0 && count(t, s) != 1000 {
					t.Error("a scan misses keys")
				}
			}
		})
	}
	wg.Wait()
	it := s.Scan(holdfast.Range{Reverse: true})
	closeAll(t, s, s)
	if !it.Next() || !bytes.Equal(it.Value(), key(999)) {
		t.Error("the iterator ended with its snapshot")
	}
	if _, err := s.Get(nil, key(0)); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("Get of a closed snapshot: %v", err)
	}
	closeAll(t, it)
}

// While little is free, commits fail as on a full disk; with room again, reopening helps.
func TestRoom(t *testing.T) {
	dir := t.TempDir()
	free := uint64(1 << 40)
	e := mustOpen(t, dir, hooks{freeSpace: func(string) (uint64, error) { return free, nil }})
	commit(t, e, holdfast.Power, func(b *holdfast.Batch) { b.Set(key(1), []byte("v")) })
	free = minFree - 1
	var err error
	for n := 0; err == nil && n < pageSize; n++ {
		var b holdfast.Batch
		b.Set(key(2), []byte("v"))
		err = holdfast.Commit(e, &b, holdfast.Process)
	}
	if !errors.Is(err, syscall.ENOSPC) || !errors.Is(err, holdfast.ErrPoisoned) {
		t.Fatalf("a commit with little free: %v", err)
	}
	if v, err := e.Get(nil, key(1)); err != nil || string(v) != "v" {
		t.Errorf("reading: %q, %v", v, err)
	}
	if err := e.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close: %v", err)
	}
	if _, err := open(dir, holdfast.Options{}, hooks{freeSpace: func(string) (uint64, error) {
		return 1000,
			nil
	}}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Open with nothing free: %v", err)
	}
	e = mustOpen(t, dir, hooks{})
	commit(t, e, holdfast.Power, func(b *holdfast.Batch) { b.Set(key(3), []byte("v")) })
}

// Close does not let the library make a table where there is no room for it. The directory stays
// locked until there is.
func TestCloseWithoutRoom(t *testing.T) {
	dir := t.TempDir()
	var free atomic.Uint64
	free.Store(1 << 40)
	e := mustOpen(t, dir, hooks{freeSpace: func(string) (uint64, error) { return free.Load(), nil }})
	commit(t, e, holdfast.Process, func(b *holdfast.Batch) { b.Set(key(1), []byte("v")) })
	free.Store(1000)
	if err := e.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("Close: %v", err)
	}
	if _, err := Open(dir, holdfast.Options{}); !errors.Is(err, holdfast.ErrLocked) {
		t.Errorf("Open: %v", err)
	}
	free.Store(1 << 40)
	var again holdfast.Engine
	testkit.Until(t, "the end of its lock", func() (open bool) {
		var err error
		again, err = Open(dir, holdfast.Options{})
		return !errors.Is(err, holdfast.ErrLocked)
	})
	if again == nil {
		t.Fatal("it is not locked, and cannot be opened")
	}
	if got := count(t, again); got != 1 {
		t.Errorf("%d keys, want 1", got)
	}
	closeAll(t, again)
}

// The settings that make the engine's promises true are those that the library runs with.
func TestSettings(t *testing.T) {
	e, err := Open(t.TempDir(), holdfast.Options{MemoryBytes: 2 << 30})
	try(t, err)
	defer e.Close()
	got := map[string]string{}
	for _, s := range e.Capabilities().Settings {
		got[s.Name] = s.Value
	}
	for name, want := range map[string]string{
		"SyncWrites": "false", "VerifyValueChecksum": "true", "ChecksumVerificationMode": "block", "Compression": "none",
		"MemTableSize": fmt.Sprint(memTableSize), "BlockCacheSize": "0",
		"NumMemtables": "1", "NumCompactors": "2", "NumLevelZeroTables": "2", "NumLevelZeroTablesStall": "3",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if _, err := os.Stat(filepath.Join(e.(*engine).datadir.Dir, "data", "LOCK")); err == nil {
		t.Error("the library has made a lock of its own")
	}
}

// A scan does not walk over what is deleted beyond its range, to find what is not.
func TestScanStaysInItsRange(t *testing.T) {
	e := mustOpen(t, t.TempDir(), hooks{})
	const n = 1000
	commit(t, e, holdfast.Process, func(b *holdfast.Batch) {
		for _, name := range []string{"a", "b", "x", "z"} {
			b.Set([]byte(name), nil)
		}
		for i := range n {
			b.Set(key(i), nil)
		}
	})
	commit(t, e, holdfast.Process, func(b *holdfast.Batch) { b.DeleteRange(key(0), key(n)) })
	txn := e.db.NewTransaction(false)
	defer txn.Discard()
	for _, c := range []struct {
		lo, hi  string
		reverse bool
		keys    int
		next    []byte
	}{
		{"c", "k", false, 0, key(0)},
		{"b", "k", false, 1, key(0)},
		{"l", "y", true, 1, key(n - 1)},
		{"l", "m", true, 0, key(n - 1)},
		{string(key(n)), "z", true, 1, key(n - 1)},
	} {
		cur := openCursor(txn, holdfast.Range{Lo: []byte(c.lo), Hi: []byte(c.hi), Reverse: c.reverse})
		keys := 0
		for cur.next() {
			keys++
		}
		if got := cur.it.Item().Key()[1:]; keys != c.keys || !bytes.Equal(got, c.next) {
			t.Errorf("%+v: %d keys, and then the iterator is at %q, want %q", c, keys, got, c.next)
		}
		cur.close()
	}
}

// What a scan shows, whatever older versions there are, is what Get shows, in both directions and in a snapshot.
func TestScanOfVersions(t *testing.T) {
	e := mustOpen(t, t.TempDir(), hooks{})
	var snaps []holdfast.Snapshot
	for round := range 5 {
		commit(t, e, holdfast.Process, func(b *holdfast.Batch) {
			for i := range 50 {
				switch (i*7 + round*3) % 5 {
				case 0, 1:
					b.Set(key(i), fmt.Appendf(nil, "%d in round %d", i, round))
				case 2:
					b.Delete(key(i))
				}
			}
		})
		snap, err := e.Snapshot()
		try(t, err)
		snaps = append(snaps, snap)
	}
	for round, snap := range snaps {
		for _, reverse := range []bool{false, true} {
			var want, got []string
			for i := 5; i < 45; i++ {
				if v, err := snap.Get(nil, key(i)); err == nil {
					want = append(want, string(key(i))+string(v))
				}
			}
			it := snap.Scan(holdfast.Range{Lo: key(5), Hi: key(45), Reverse: reverse})
			for it.Next() {
				got = append(got, string(it.Key())+string(it.Value()))
			}
			try(t, it.Close())
			if reverse {
				slices.Reverse(got)
			}
			if !slices.Equal(got, want) {
				t.Errorf("round %d, reverse %v: got %q, want %q", round, reverse, got, want)
			}
		}
		closeAll(t, snap)
	}
}

// Apply of a DeleteRange waits for no sync, and deletes what was applied before it, whether that is committed or not.
func TestDeleteRangeWaitsForNoDevice(t *testing.T) {
	var slow atomic.Bool
	begun, device := make(chan bool), make(chan bool)
	e := mustOpen(t, t.TempDir(), hooks{sync: func(string) error {
		if slow.Load() {
			begun <- true
			<-device
		}
		return nil
	}})
	commit(t, e, holdfast.Power, func(b *holdfast.Batch) { b.Set(key(1), nil) })
	slow.Store(true)
	apply := func(fill func(b *holdfast.Batch)) holdfast.Receipt {
		var b holdfast.Batch
		fill(&b)
		r, err := e.Apply(&b, holdfast.Power)
		try(t, err)
		return r
	}
	var wg sync.WaitGroup
	first := apply(func(b *holdfast.Batch) { b.Set(key(2), nil) })
	wg.Go(func() {
		if err := first.Wait(); err != nil {
			t.Error(err)
		}
	})
	<-begun
	apply(func(b *holdfast.Batch) { b.Set(key(3), nil); b.Set(key(9), nil) })
	apply(func(b *holdfast.Batch) { b.DeleteRange(nil, key(9)); b.Set(key(4), nil) })
	last := apply(func(b *holdfast.Batch) { b.DeleteRange(key(4), key(5)); b.Set(key(2), nil) })
	slow.Store(false)
	device <- true
	wg.Wait()
	try(t, last.Wait())
	var got []string
	it := e.Scan(holdfast.Range{})
	for it.Next() {
		got = append(got, string(it.Key()))
	}
	closeAll(t, it)
	if want := []string{string(key(2)), string(key(9))}; !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
}

// Memtables are counted whole, as they are allocated, also those that wait to be flushed.
func TestMemory(t *testing.T) {
	e := mustOpen(t, t.TempDir(), hooks{})
	if got := e.Metrics().MemoryBytes; got < arenaBytes {
		t.Errorf("MemoryBytes is %d, and a memtable has %d", got, arenaBytes)
	}
}
