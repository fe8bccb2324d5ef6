package sqlite

import (
	"bytes"
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

func try(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// engines are those of this build.
var engines = map[string]func(string, holdfast.Options) (holdfast.Engine, error){NameGo: OpenGo}

// each runs a test on every engine of this build.
func each(t *testing.T, f func(t *testing.T, open func(dir string, o holdfast.Options) *engine)) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			f(t, func(dir string, o holdfast.Options) *engine {
				t.Helper()
				e, err := open(dir, o)
				try(t, err)
				t.Cleanup(func() {
					if err := e.Close(); err != nil && !errors.Is(err, holdfast.ErrClosed) {
						t.Error(err)
					}
				})
				return e.(*engine)
			})
		})
	}
}

func set(t *testing.T, e *engine, level holdfast.Level, pairs ...string) {
	t.Helper()
	var b holdfast.Batch
	for i := 0; i < len(pairs); i += 2 {
		b.Set([]byte(pairs[i]), []byte(pairs[i+1]))
	}
	try(t, holdfast.Commit(e, &b, level))
}

// all reads r as "k=v" pairs.
func all(t *testing.T, r holdfast.Reader, rng holdfast.Range) string {
	t.Helper()
	var got []string
	it := r.Scan(rng)
	for it.Next() {
		got = append(got, string(it.Key())+"="+string(it.Value()))
	}
	try(t, it.Close())
	return strings.Join(got, " ")
}

func setting(e *engine, name string) string {
	for _, s := range e.Capabilities().Settings {
		if s.Name == name {
			return s.Value
		}
	}
	return ""
}

// The level that a commit asks for sets synchronous on the connection that writes, although
// the cgo driver sets NORMAL itself when it opens one.
func TestSynchronousFollowsTheLevel(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		e := open(t.TempDir(), holdfast.Options{SyncEvery: -1})
		for i, step := range []struct {
			level holdfast.Level
			want  string // PRAGMA synchronous: 1 NORMAL, 2 FULL
			syncs int64
		}{
			{holdfast.Process, "1", 1}, {holdfast.Power, "2", 1}, {holdfast.Power, "2", 1}, // the first syncs the log's header
			{holdfast.Memory, "1", 0}, {holdfast.Process, "1", 0}, {holdfast.Power, "2", 1},
		} {
			before := e.Metrics().Syncs
			set(t, e, step.level, fmt.Sprint("k", i), "v")
			got, err := e.w.conn.text("PRAGMA synchronous")
			if err != nil || got != step.want {
				t.Errorf("step %d, %v: synchronous is %q, %v; want %s", i, step.level, got, err, step.want)
			}
			if n := e.Metrics().Syncs - before; n != step.syncs {
				t.Errorf("step %d, %v: %d syncs, want %d", i, step.level, n, step.syncs)
			}
		}
	})
}

// Sync, and an empty batch at Power, sync the log once when weaker commits are outstanding and
// do nothing otherwise.
func TestSyncOfWeakCommits(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		e := open(t.TempDir(), holdfast.Options{SyncEvery: -1})
		for name, sync := range map[string]func() error{
			"Sync":           e.Sync,
			"empty at power": func() error { return holdfast.Commit(e, new(holdfast.Batch), holdfast.Power) },
		} {
			set(t, e, holdfast.Process, "a", "1")
			for _, want := range []int64{1, 0} {
				before := e.Metrics().Syncs
				try(t, sync())
				if n := e.Metrics().Syncs - before; n != want {
					t.Errorf("%s: %d syncs, want %d", name, n, want)
				}
			}
		}
	})
}

// A commit at Power syncs weaker ones before it even when it changes nothing: SQLite writes
// nothing and syncs nothing then.
func TestPowerCommitThatChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		e := open(t.TempDir(), holdfast.Options{SyncEvery: -1})
		logged := func() int64 {
			n, err := e.w.conn.ints(kindLogLength)
			try(t, err)
			return n[1]
		}
		for i := range 2 {
			set(t, e, holdfast.Process, "a", fmt.Sprint(i))
			before := logged()
			set(t, e, holdfast.Power, "a", fmt.Sprint(i))
			if logged() == before {
				t.Error("a set of the same value: nothing was written, so nothing was synced")
			}
			set(t, e, holdfast.Process, "a", "other")
			before = logged()
			var b holdfast.Batch
			b.Delete([]byte("missing"))
			try(t, holdfast.Commit(e, &b, holdfast.Power))
			if logged() == before {
				t.Error("a delete of nothing: nothing was written, so nothing was synced")
			}
			if e.w.unsynced {
				t.Error("weak commits are still held for unsynced")
			}
		}
	})
}

func TestSettingsAreReadBack(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		dir := t.TempDir()
		for level, want := range map[holdfast.Level]string{holdfast.Process: "1", holdfast.Power: "2"} {
			e := open(dir, holdfast.Options{Level: level})
			if got := setting(e, "synchronous"); got != want {
				t.Errorf("synchronous is %q at %v, want %q", got, level, want)
			}
			try(t, e.Close())
		}
		e := open(dir, holdfast.Options{MemoryBytes: 64 << 20})
		for name, want := range map[string]string{
			"journal_mode": "wal", "page_size": "4096", "mmap_size": "0", "wal_autocheckpoint": "0", "cache_size": "-32768",
			"fullfsync": "1", "checkpoint_fullfsync": "1",
		} {
			if got := setting(e, name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if v := setting(e, "sqlite_version"); !strings.HasPrefix(v, "3.") {
			t.Errorf("sqlite_version is %q", v)
		}
	})
}

// Values of no bytes, keys of any bytes, and both directions with all kinds of bounds.
func TestBytes(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		e := open(t.TempDir(), holdfast.Options{})
		set(t, e, holdfast.Power, "\x00", "", "\x00\x00", "zero", "a'b", "'", "\xff\xfe", "\x00")
		v, err := e.Get([]byte("x"), []byte("\x00"))
		if err != nil || string(v) != "x" {
			t.Errorf("an empty value reads as %q, %v", v, err)
		}
		want := []string{"\x00=", "\x00\x00=zero", "a'b='", "\xff\xfe=\x00"}
		if got := all(t, e, holdfast.Range{}); got != strings.Join(want, " ") {
			t.Errorf("forward: %q", got)
		}
		if got := all(t, e, holdfast.Range{Lo: []byte("\x00\x00"), Hi: []byte("\xff"),
			Reverse: true}); got != want[2]+" "+want[1] {
			t.Errorf("reverse: %q", got)
		}
		if got := all(t, e, holdfast.Range{Lo: []byte("b"), Reverse: true}); got != want[3] {
			t.Errorf("reverse from b: %q", got)
		}
		if got := all(t, e, holdfast.Range{Lo: []byte("b"), Hi: []byte("a")}); got != "" {
			t.Errorf("an empty range: %q", got)
		}
	})
}

// Sets that are merged into one statement keep their order with deletes between them.
func TestOrderWithinABatch(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		e := open(t.TempDir(), holdfast.Options{})
		for n := range 3*manyRows + 2 {
			var b holdfast.Batch
			for i := range n {
				b.Set([]byte{'k', byte(i)}, []byte("old"))
			}
			b.DeleteRange([]byte("k"), []byte("l"))
			for i := range n {
				b.Set([]byte{'k', byte(i)}, []byte("x"))
				b.Set([]byte{'k', byte(i)}, []byte{'v', byte(i)})
			}
			if n > 0 {
				b.Delete([]byte{'k', 0})
			}
			try(t, holdfast.Commit(e, &b, holdfast.Process))
			var want []string
			for i := 1; i < n; i++ {
				want = append(want, string([]byte{'k', byte(i), '=', 'v', byte(i)}))
			}
			if got := all(t, e, holdfast.Range{}); got != strings.Join(want, " ") {
				t.Fatalf("%d sets: %q", n, got)
			}
		}
	})
}

// A snapshot keeps its state over writes and checkpoints, is shared by many goroutines, holds up
// no other reader, and when it is closed its connection is used again.
func TestSnapshotUnderWrites(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		dir := t.TempDir()
		e := open(dir, holdfast.Options{SyncEvery: -1})
		set(t, e, holdfast.Process, "a", "1", "b", "1")
		s, err := e.Snapshot()
		try(t, err)
		it := s.Scan(holdfast.Range{})
		value := bytes.Repeat([]byte("x"), 100_000)
		for i := range 100 { // 10 MB: the log is checkpointed as far as it can be
			set(t, e, holdfast.Process, fmt.Sprint("c", i), string(value), "a", "2")
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 50 {
					if got := all(t, s, holdfast.Range{}); got != "a=1 b=1" {
						t.Errorf("the snapshot reads %.40q", got)
					}
					if v, err := s.Get(nil, []byte("a")); string(v) != "1" || err != nil {
						t.Errorf("the snapshot reads %q, %v", v, err)
					}
				}
			})
		}
		wg.Wait()
		if err := e.Close(); !errors.Is(err, holdfast.ErrBusy) {
			t.Errorf("Close with an open snapshot: %v", err)
		}
		try(t, s.Close())
		if _, err := s.Get(nil, []byte("a")); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Get on a closed snapshot: %v", err)
		}
		if !it.Next() || string(it.Key()) != "a" || string(it.Value()) != "1" {
			t.Errorf("an iterator after its snapshot was closed: %q %q %v", it.Key(), it.Value(), it.Err())
		}
		try(t, it.Close())
		if n := len(e.idle); n != 1 {
			t.Errorf("%d connections were kept", n)
		}
		if v, err := e.Get(nil, []byte("a")); string(v) != "2" || err != nil {
			t.Errorf("afterwards: %q, %v", v, err)
		}
	})
}

// The log stays near its bound without a waiter, and restarts.
func TestCheckpoint(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		dir := t.TempDir()
		e := open(dir, holdfast.Options{SyncEvery: -1})
		for i := range 6000 {
			set(t, e, holdfast.Process, fmt.Sprint("k", i%100), strings.Repeat(fmt.Sprintf("%04d", i), 2500))
		}
		if e.Metrics().Stalls < 3 {
			t.Errorf("%d checkpoints for 60 MB of writes", e.Metrics().Stalls)
		}
		st, err := os.Stat(filepath.Join(dir, fileName+"-wal"))
		if err != nil || st.Size() > 20<<20 {
			t.Errorf("the log has %d bytes, %v", st.Size(), err)
		}
	})
}

// Syncs counts none where SQLite makes none: a checkpoint that a snapshot does not let copy anything, a commit at
// Power that changes nothing.
func TestSyncsThatAreNotMade(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		e := open(t.TempDir(), holdfast.Options{SyncEvery: -1})
		s, err := e.Snapshot()
		try(t, err)
		for i := range 2400 {
			set(t, e, holdfast.Process, fmt.Sprint("k", i%100), strings.Repeat(fmt.Sprintf("%04d", i), 2500))
		}
		if m := e.Metrics(); m.Syncs != 1 || m.Stalls == 0 { // of the log's header
			t.Errorf("%d syncs of a log that nothing can be copied from, in %d tries", m.Syncs, m.Stalls)
		}
		try(t, s.Close())
		set(t, e, holdfast.Power, "a", "1")
		before := e.Metrics().Syncs
		var b holdfast.Batch
		b.Delete([]byte("missing"))
		try(t, holdfast.Commit(e, &b, holdfast.Power))
		if n := e.Metrics().Syncs - before; n != 0 {
			t.Errorf("%d syncs for a transaction that writes nothing", n)
		}
	})
}

// A long log restarts although readers always overlap: the commit that makes it too long waits for those who read
// from it, first until it can be copied, then until none of them reads from it. Later readers do not wait, nor are
// they waited for.
func TestLogUnderReadersThatOverlap(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		e := open(t.TempDir(), holdfast.Options{SyncEvery: -1})
		e.w.pauseAt, e.w.pause = 2*checkpointPages, time.Hour
		set(t, e, holdfast.Process, "a", "1")
		reader := func() func() {
			it := e.Scan(holdfast.Range{Hi: []byte("b")})
			if !it.Next() || string(it.Value()) != "1" {
				t.Errorf("a reader sees %q, %v", it.Value(), it.Err())
			}
			return func() {
				if err := it.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		awaited := func(turn uint64) { // until readers of earlier turns are waited for
			for {
				e.mu.Lock()
				waits := e.turn == turn && e.gone != nil
				e.mu.Unlock()
				if waits {
					return
				}
				runtime.Gosched()
			}
		}
		first := reader()
		var written sync.WaitGroup
		written.Go(func() {
			for i := 0; e.w.pauseAt == 2*checkpointPages; i++ {
				set(t, e, holdfast.Process, fmt.Sprint("k", i%100), strings.Repeat(fmt.Sprintf("%04d", i), 2500))
			}
		})
		awaited(1)
		second := reader()
		first()
		awaited(2)
		third := reader()
		second()
		written.Wait()
		long := e.w.pages
		set(t, e, holdfast.Process, "l", "1")
		if err := e.look(); err != nil || e.w.pages >= long {
			t.Errorf("the log had %d pages and has %d, %v", long, e.w.pages, err)
		}
		third()
	})
}

// What opening on a full disk fails with says what to do.
func TestNoRoomToOpen(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		e := open(t.TempDir(), holdfast.Options{})
		lib := *e.lib
		lib.code = func(error) (int, syscall.Errno) { return codeIndexSize, syscall.EDQUOT }
		e.lib = &lib
		if err := e.fail("open", errors.New("disk I/O error")); !errors.Is(err, holdfast.ErrFull) ||
			!strings.Contains(err.Error(), "32 KiB of room") {
			t.Error(err)
		}
	})
}

// Any number of Gets at a time share a few connections.
func TestGetsShareConnections(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		e := open(t.TempDir(), holdfast.Options{})
		set(t, e, holdfast.Process, "a", "1")
		counted := countedDriver{Driver: e.lib.driver, first: make(chan struct{}), all: make(chan struct{})}
		lib := *e.lib
		lib.driver = &counted
		e.lib = &lib
		var begun, done sync.WaitGroup
		for range 8 * maxIdle {
			begun.Add(1)
			done.Go(func() {
				begun.Done()
				if v, err := e.Get(nil, []byte("a")); string(v) != "1" || err != nil {
					t.Errorf("%q, %v", v, err)
				}
			})
		}
		<-counted.first
		begun.Wait()
		for range 1000 {
			runtime.Gosched()
		}
		close(counted.all)
		done.Wait()
		if n := counted.opened.Load(); n > maxIdle {
			t.Errorf("%d Gets opened %d connections, want at most %d", 8*maxIdle, n, maxIdle)
		}
	})
}

// countedDriver counts connections, and opens none before all is closed.
type countedDriver struct {
	sqldriver.Driver
	opened     atomic.Int64
	first, all chan struct{}
}

func (d *countedDriver) Open(name string) (sqldriver.Conn, error) {
	if d.opened.Add(1) == 1 {
		close(d.first)
	}
	<-d.all
	return d.Driver.Open(name)
}

// What is there but is no store of ours is an error, never an empty store.
func TestDamage(t *testing.T) {
	damage := map[string]func(path string) error{
		"empty":         func(path string) error { return os.Truncate(path, 0) },
		"no database":   func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("x"), 9000), 0o644) },
		"half a header": func(path string) error { return os.Truncate(path, 50) },
		"pages": func(path string) error {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			st, err := f.Stat()
			if err == nil {
				_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, int(st.Size())-4096), 4096)
			}
			return errors.Join(err, f.Close())
		},
	}
	for name, do := range damage {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
				dir := t.TempDir()
				e := open(dir, holdfast.Options{})
				for i := range 1000 {
					set(t, e, holdfast.Process, fmt.Sprintf("key%06d", i), "value")
				}
				try(t, e.Close())
				try(t, do(filepath.Join(dir, fileName)))
				again, err := engines[e.lib.name](dir, holdfast.Options{})
				if err == nil {
					_, err = again.Get(nil, []byte("key000500"))
					if it := again.Scan(holdfast.Range{}); !it.Next() && !errors.Is(it.Close(), holdfast.ErrCorrupt) {
						t.Errorf("Scan: %v", it.Err())
					}
					if err := again.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
				}
				if !errors.Is(err, holdfast.ErrCorrupt) {
					t.Errorf("%v, want ErrCorrupt", err)
				}
			})
		})
	}
}

// A directory's name may hold what has a meaning in an address.
func TestOddDirectory(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		dir := filepath.Join(t.TempDir(), "a b%20?c=#d&mode=memory")
		e := open(dir, holdfast.Options{})
		set(t, e, holdfast.Power, "k", "v")
		if _, err := os.Stat(filepath.Join(dir, fileName)); err != nil {
			t.Error(err)
		}
		if v, err := e.Get(nil, []byte("k")); string(v) != "v" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
	})
}

// Many open iterators each have a connection; those beyond maxIdle are closed afterwards.
func TestManyIterators(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		e := open(t.TempDir(), holdfast.Options{})
		set(t, e, holdfast.Process, "a", "1", "b", "2")
		var open2 []holdfast.Iterator
		for range 3 * maxIdle {
			open2 = append(open2, e.Scan(holdfast.Range{}))
		}
		set(t, e, holdfast.Power, "a", "9", "c", "3")
		for _, it := range open2 {
			if !it.Next() || string(it.Value()) != "1" || !it.Next() || it.Next() {
				t.Error("an iterator does not see the state it was made on")
			}
			if err := it.Close(); err != nil {
				t.Error(err)
			}
		}
		if len(e.idle) != maxIdle {
			t.Errorf("%d connections were kept, want %d", len(e.idle), maxIdle)
		}
	})
}

// Both engines' directories carry one name.
func TestIdentity(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		dir := t.TempDir()
		open(dir, holdfast.Options{})
		if id, err := datadir.ReadMark("read", dir); err != nil || id.Engine != Name {
			t.Errorf("%+v, %v", id, err)
		}
	})
}

// A Compact that is interrupted changes nothing, and the engine goes on; one that is not makes the files small, though
// what an open snapshot sees waits until that is closed.
func TestCompact(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		e := open(t.TempDir(), holdfast.Options{SyncEvery: -1})
		for i := range 300 {
			set(t, e, holdfast.Process, fmt.Sprintf("k%03d", i), strings.Repeat(fmt.Sprintf("%04d", i), 10_000))
		}
		want := all(t, e, holdfast.Range{})
		for wait := time.Millisecond; ; wait *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			err := e.Compact(ctx, holdfast.Range{})
			cancel()
			set(t, e, holdfast.Power, "k000", strings.Repeat("0000", 10_000))
			if all(t, e, holdfast.Range{}) != want {
				t.Fatal("it has changed what is stored")
			}
			if err == nil {
				break
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		s, err := e.Snapshot()
		try(t, err)
		var b holdfast.Batch
		b.DeleteRange([]byte("k001"), nil)
		try(t, holdfast.Commit(e, &b, holdfast.Process))
		try(t, e.Compact(t.Context(), holdfast.Range{}))
		if all(t, s, holdfast.Range{}) != want {
			t.Error("the snapshot has changed")
		}
		try(t, s.Close())
		try(t, e.Compact(t.Context(), holdfast.Range{}))
		if size := e.Metrics().DiskBytes; size > 1<<20 {
			t.Errorf("the directory has %d bytes", size)
		}
		if got := all(t, e, holdfast.Range{}); got != "k000="+strings.Repeat("0000", 10_000) {
			t.Errorf("%d bytes are left", len(got))
		}
	})
}

// TestTuning: a table with rowids takes little more room than large values have, and a directory opens with the table
// that it has, whatever is asked for.
func TestTuning(t *testing.T) {
	sizes := map[bool]int64{}
	for _, rowID := range []bool{false, true} {
		dir := t.TempDir()
		for i, asked := range []bool{rowID, !rowID} {
			e, err := OpenGoWith(dir, holdfast.Options{}, Tuning{RowID: asked, MapBytes: 1 << 20, CheckpointPages: 10})
			try(t, err)
			var b holdfast.Batch
			for n := range 200 {
				b.Set(fmt.Appendf(nil, "key-%d-%d", i, n), make([]byte, 1000))
			}
			try(t, holdfast.Commit(e, &b, holdfast.Power))
			settings := fmt.Sprint(e.Capabilities().Settings)
			if strings.Contains(settings, "WITHOUT ROWID") == rowID || !strings.Contains(settings, "mmap_size 1048576") {
				t.Errorf("with %v, made with %v, it runs with %s", asked, rowID, settings)
			}
			v, err := e.Get(nil, []byte("key-0-17"))
			if len(v) != 1000 || err != nil {
				t.Errorf("%d bytes, %v", len(v), err)
			}
			try(t, e.Close())
		}
		st, err := os.Stat(filepath.Join(dir, fileName))
		try(t, err)
		sizes[rowID] = st.Size()
	}
	if sizes[true] > 400*1000*3/2 || sizes[false] < 400*1000*4 {
		t.Errorf("400 values of 1,000 bytes take %d bytes with rowids and %d without", sizes[true], sizes[false])
	}
}
