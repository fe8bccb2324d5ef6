package bbolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/internal/intervals"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

func try(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string, o holdfast.Options) *engine {
	t.Helper()
	e, err := Open(dir, o)
	try(t, err)
	t.Cleanup(func() {
		if err := e.Close(); err != nil && !errors.Is(err, holdfast.ErrClosed) {
			t.Error(err)
		}
	})
	return e.(*engine)
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

// A directory made for process says that it may be lost, refuses Power, and cannot be
// opened for Power.
func TestProcessDirectory(t *testing.T) {
	for _, level := range []holdfast.Level{holdfast.Memory, holdfast.Process} {
		dir := t.TempDir()
		e := open(t, dir, holdfast.Options{Level: level})
		c := e.Capabilities()
		if c.Memory.Given != holdfast.Process || c.Process.Given != holdfast.Process || c.Power.Given != 0 ||
			c.Power.Why == "" {
			t.Errorf("made for %v: it gives %v, %v, %v", level, c.Memory, c.Process, c.Power)
		}
		if !c.Memory.CutMayCorrupt || !c.Process.CutMayCorrupt {
			t.Error("it does not say that a power cut may corrupt")
		}
		var b holdfast.Batch
		b.Set([]byte("k"), []byte("v"))
		if _, err := e.Apply(&b, holdfast.Power); !errors.Is(err, holdfast.ErrLevel) ||
			!strings.Contains(err.Error(), "made for process") {
			t.Errorf("Power: %v", err)
		}
		set(t, e, level, "k", "v")
		try(t, e.Close())
		if _, err := Open(dir, holdfast.Options{}); !errors.Is(err, holdfast.ErrForeign) ||
			!strings.Contains(err.Error(), "level process") {
			t.Errorf("opened for power: %v", err)
		}
	}
}

// A directory made for power gives it to every commit and needs no further syncs.
func TestPowerDirectory(t *testing.T) {
	e := open(t, t.TempDir(), holdfast.Options{})
	for _, l := range holdfast.Levels()[:3] {
		p := e.Capabilities().Promise(l)
		if p.Given != holdfast.Power || p.CutMayCorrupt || (p.Why == "") != (l == holdfast.Power) {
			t.Errorf("%v: %+v", l, p)
		}
		set(t, e, l, "k", fmt.Sprint(l)) // the file has grown after the first
		before := e.Metrics().Syncs
		set(t, e, l, "k", fmt.Sprint(l))
		try(t, e.Sync())
		if n := e.Metrics().Syncs - before; n != 2 {
			t.Errorf("%v: %d syncs for a commit, want 2", l, n)
		}
	}
}

// Sync, the loss window and Close sync a directory made for process when there is something
// to sync.
func TestSyncOfProcessDirectory(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir, holdfast.Options{Level: holdfast.Process, SyncEvery: -1})
	set(t, e, holdfast.Process, "k", "v") // grows the file
	for _, want := range []int64{1, 0} {
		before := e.Metrics().Syncs
		try(t, e.Sync())
		if n := e.Metrics().Syncs - before; n != want {
			t.Errorf("%d syncs, want %d", n, want)
		}
	}
	try(t, e.Close())
	e = open(t, dir, holdfast.Options{Level: holdfast.Process, SyncEvery: time.Millisecond})
	before := e.Metrics().Syncs
	set(t, e, holdfast.Process, "k", "w")
	testkit.Until(t, "a sync within the loss window", func() bool { return e.Metrics().Syncs > before })
}

// Writers go on while a snapshot is open, although the file grows far beyond what bbolt would
// map by itself.
func TestGrowthUnderSnapshot(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip(mapCaveat)
	}
	e := open(t, t.TempDir(), holdfast.Options{Level: holdfast.Process})
	set(t, e, holdfast.Process, "a", "1")
	s, err := e.Snapshot()
	try(t, err)
	it := e.Scan(holdfast.Range{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 50 {
			set(t, e, holdfast.Process, fmt.Sprint("b", i), string(make([]byte, 1<<20)), "a", "2")
		}
	}()
	testkit.Receive(t, "a writer that does not wait for a snapshot", done)
	if got := all(t, s, holdfast.Range{}); got != "a=1" {
		t.Errorf("the snapshot reads %.40q", got)
	}
	if !it.Next() || string(it.Value()) != "1" || it.Next() {
		t.Errorf("the iterator reads %.40q", it.Value())
	}
	if err := errors.Join(it.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	<-done
}

// One snapshot serves many goroutines while others write, and its iterators outlive it.
func TestSharedSnapshot(t *testing.T) {
	e := open(t, t.TempDir(), holdfast.Options{Level: holdfast.Process})
	for i := range 1000 {
		set(t, e, holdfast.Process, fmt.Sprintf("k%04d", i), fmt.Sprint(i))
	}
	s, err := e.Snapshot()
	try(t, err)
	want := all(t, s, holdfast.Range{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 300 {
			set(t, e, holdfast.Process, fmt.Sprintf("k%04d", i*3), "changed")
		}
	})
	for range 4 {
		wg.Go(func() {
			for range 20 {
				if got := all(t, s, holdfast.Range{}); got != want {
					t.Error("the snapshot has changed")
				}
				if v, err := s.Get(nil, []byte("k0003")); string(v) != "3" || err != nil {
					t.Errorf("%q, %v", v, err)
				}
			}
		})
	}
	wg.Wait()
	it := s.Scan(holdfast.Range{Reverse: true})
	try(t, s.Close())
	if _, err := s.Get(nil, []byte("k0003")); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("Get on a closed snapshot: %v", err)
	}
	n := 0
	for it.Next() {
		n++
	}
	if err := it.Close(); n != 1000 || err != nil {
		t.Errorf("%d keys, %v", n, err)
	}
}

// Large transactions are carried out in key order; what a batch says last still wins.
func TestSortedBatch(t *testing.T) {
	e := open(t, t.TempDir(), holdfast.Options{Level: holdfast.Process})
	var b holdfast.Batch
	want := map[string]string{}
	for i := range uint64(10 * sortFrom) {
		key := binary.BigEndian.AppendUint64(nil, i*0x9e3779b97f4a7c15%200)
		if i%5 == 4 {
			b.Delete(key)
			delete(want, string(key))
		} else {
			b.Set(key, fmt.Append(nil, i))
			want[string(key)] = fmt.Sprint(i)
		}
	}
	try(t, holdfast.Commit(e, &b, holdfast.Process))
	n := 0
	it := e.Scan(holdfast.Range{})
	for ; it.Next(); n++ {
		if want[string(it.Key())] != string(it.Value()) {
			t.Errorf("%x is %q, want %q", it.Key(), it.Value(), want[string(it.Key())])
		}
	}
	if err := it.Close(); err != nil || n != len(want) {
		t.Errorf("%d keys, want %d, %v", n, len(want), err)
	}
}

// A deleted range leaves nothing behind, on pages that the same transaction has changed and on
// others.
func TestDeleteRange(t *testing.T) {
	e := open(t, t.TempDir(), holdfast.Options{Level: holdfast.Process})
	var b holdfast.Batch
	for i := range 5000 {
		b.Set(fmt.Appendf(nil, "k%05d", i), []byte("value"))
	}
	try(t, holdfast.Commit(e, &b, holdfast.Process))
	b.Reset()
	for i := 0; i < 5000; i += 7 {
		b.Set(fmt.Appendf(nil, "k%05d+", i), []byte("new"))
	}
	b.DeleteRange([]byte("k00010"), []byte("k04990"))
	b.Set([]byte("k02000"), []byte("after"))
	try(t, holdfast.Commit(e, &b, holdfast.Process))
	if got := all(t, e, holdfast.Range{Lo: []byte("k00009"),
		Hi: []byte("k04992")}); got != "k00009=value k02000=after k04990=value k04991=value k04991+=new" {
		t.Errorf("%.200q", got)
	}
	b.Reset()
	b.DeleteRange(nil, nil)
	try(t, holdfast.Commit(e, &b, holdfast.Process))
	if got := all(t, e, holdfast.Range{}); got != "" {
		t.Errorf("%.200q", got)
	}
}

// What is there but is no store of ours is an error: never an empty store, never a panic, and
// never a fault that ends the process.
func TestDamage(t *testing.T) {
	fill := func(from int64, to int64) func(string) error {
		return func(path string) error {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, int(to-from)), from)
			return errors.Join(err, f.Close())
		}
	}
	page := int64(os.Getpagesize())
	for name, do := range map[string]func(path string) error{
		"empty":      func(path string) error { return os.Truncate(path, 0) },
		"cut short":  func(path string) error { return os.Truncate(path, 3*page) },
		"one byte":   func(path string) error { return os.Truncate(path, 1) },
		"meta pages": fill(0, 2*page),
		"all others": fill(2*page, 40*page),
		"no store":   func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("x"), 9000), 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			e := open(t, dir, holdfast.Options{Level: holdfast.Process})
			for i := range 1000 {
				set(t, e, holdfast.Process, fmt.Sprintf("key%06d", i), "value of key")
			}
			try(t, e.Close())
			try(t, do(filepath.Join(dir, fileName)))
			again, err := Open(dir, holdfast.Options{Level: holdfast.Process})
			if !errors.Is(err, holdfast.ErrCorrupt) {
				t.Errorf("Open: %v, want ErrCorrupt", err)
			}
			if err == nil {
				again.Close()
			}
			if _, err := datadir.Open(dir, datadir.Spec{Engine: Name, Format: format, Level: holdfast.Process}); err != nil {
				t.Errorf("a failed Open keeps the directory: %v", err)
			}
		})
	}
}

// A store of a few keys is a page within a value, which bbolt may copy to the heap: a damaged place of a key in it
// could end the process at the next garbage collection. So it is checked before bbolt reads it.
func TestDamageOfSmallStore(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir, holdfast.Options{Level: holdfast.Process})
	set(t, e, holdfast.Process, "first key", "1", "second key", "2")
	try(t, e.Close())
	path := filepath.Join(dir, fileName)
	b, err := os.ReadFile(path)
	try(t, err)
	for at := 0; ; at++ { // each place where the keys are, also of older states
		next := bytes.Index(b[at:], []byte("first key1second key2"))
		if next < 0 {
			break
		}
		at += next
		binary.NativeEndian.PutUint32(b[at-12:], 1<<24) // the second key's
	}
	try(t, os.WriteFile(path, b, 0o644))
	_, err = Open(dir, holdfast.Options{Level: holdfast.Process})
	if !errors.Is(err, holdfast.ErrCorrupt) || !strings.Contains(err.Error(), "key 1 of the bucket") {
		t.Errorf("Open: %v, want ErrCorrupt", err)
	}
}

// Damage that is found later fails the call that finds it: reads with ErrCorrupt, a commit with
// that as poison; and the engine still closes.
func TestDamageWhileOpen(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir, holdfast.Options{Level: holdfast.Process, SyncEvery: -1})
	for i := range 1000 {
		set(t, e, holdfast.Process, fmt.Sprintf("key%06d", i), "value of key")
	}
	path := filepath.Join(dir, fileName)
	st, err := os.Stat(path)
	try(t, err)
	page := int64(os.Getpagesize())
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, int(st.Size()-2*page)), 2*page)
		err = errors.Join(err, f.Close())
	}
	try(t, err)
	if _, err := e.Get(nil, []byte("key000500")); !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("Get: %v", err)
	}
	it := e.Scan(holdfast.Range{})
	if it.Next() {
		t.Error("Scan goes on")
	}
	if err := it.Close(); !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("Scan: %v", err)
	}
	var b holdfast.Batch
	b.Set([]byte("k"), []byte("v"))
	if err := holdfast.Commit(e, &b, holdfast.Process); !errors.Is(err, holdfast.ErrCorrupt) ||
		!errors.Is(err, holdfast.ErrPoisoned) {
		t.Errorf("a commit: %v", err)
	}
	if err := e.Close(); !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("Close: %v", err)
	}
	if _, err := datadir.Open(dir, datadir.Spec{Engine: Name, Format: format, Level: holdfast.Process}); err != nil {
		t.Errorf("the directory is not released: %v", err)
	}
}

// What a crash left of making the file is removed.
func TestCrashWhileMaking(t *testing.T) {
	dir := t.TempDir()
	h, err := datadir.Open(dir, datadir.Spec{Engine: Name, Format: format, Level: holdfast.Power, Keeps: fileName})
	try(t, err)
	path := filepath.Join(dir, fileName)
	try(t, errors.Join(os.WriteFile(path+".new", make([]byte, 5000), 0o644), h.Close()))
	e := open(t, dir, holdfast.Options{})
	set(t, e, holdfast.Power, "k", "v")
	if _, err := os.Stat(path + ".new"); err == nil {
		t.Error("it is still there")
	}
}

func TestBatchTooLarge(t *testing.T) {
	e := open(t, t.TempDir(), holdfast.Options{Level: holdfast.Process})
	var b holdfast.Batch
	value := make([]byte, holdfast.MaxValueSize)
	for b.Size() <= maxBatchSize {
		b.Set([]byte("k"), value)
	}
	if _, err := e.Apply(&b, holdfast.Process); !errors.Is(err, holdfast.ErrTooLarge) {
		t.Errorf("%v", err)
	}
	set(t, e, holdfast.Process, "k", "v")
}

// countingCursor notes where deleteRange looks.
type countingCursor struct {
	cursor
	seeks [][]byte
	nexts int
}

func (c *countingCursor) Seek(key []byte) (k, v []byte) {
	c.seeks = append(c.seeks, bytes.Clone(key))
	return c.cursor.Seek(key)
}

func (c *countingCursor) Next() (k, v []byte) {
	c.nexts++
	return c.cursor.Next()
}

// TestDeleteRangeWork: a DeleteRange takes as many steps as it finds keys, and never looks again at
// leaves that it has emptied; what it deletes is the range and nothing else, or nothing.
func TestDeleteRangeWork(t *testing.T) {
	e := open(t, t.TempDir(), holdfast.Options{Level: holdfast.Process})
	const n = 3*rangeChunk + 17
	key := func(i int) []byte { return fmt.Appendf(nil, "key/%06d", i) }
	var b holdfast.Batch
	for i := range n + 20 {
		b.Set(key(i), []byte("value"))
	}
	try(t, holdfast.Commit(e, &b, holdfast.Process))
	refused := errors.New("refused")
	err := e.db.Update(func(tx *bbolt.Tx) error {
		kv := tx.Bucket(bucketName)
		c := &countingCursor{cursor: kv.Cursor()}
		if err := e.deleteRange(c, kv.Delete, intervals.Interval{Lo: key(10), Hi: key(n + 10)}); err != nil {
			return err
		}
		if len(c.seeks) > n/rangeChunk+2 || c.nexts > n {
			t.Errorf("%d keys took %d seeks and %d steps", n, len(c.seeks), c.nexts)
		}
		for i := 1; i < len(c.seeks); i++ {
			if bytes.Compare(c.seeks[i-1], c.seeks[i]) >= 0 {
				t.Errorf("seek %d goes back from %q to %q", i, c.seeks[i-1], c.seeks[i])
			}
		}
		return refused
	})
	if !errors.Is(err, refused) {
		t.Fatal(err)
	}
	count := func() (keys int) {
		it := e.Scan(holdfast.Range{})
		defer it.Close()
		for it.Next() {
			keys++
		}
		return keys
	}
	if got := count(); got != n+20 {
		t.Errorf("after a deletion that was rolled back there are %d keys, not %d", got, n+20)
	}
	b.Reset()
	b.DeleteRange(key(10), key(n+10))
	try(t, holdfast.Commit(e, &b, holdfast.Process))
	if got := count(); got != 20 {
		t.Errorf("%d keys are left, not 20", got)
	}
	for i, there := range map[int]bool{0: true, 9: true, 10: false, n + 9: false, n + 10: true, n + 19: true} {
		if _, err := e.Get(nil, key(i)); (err == nil) != there {
			t.Errorf("%s: %v", key(i), err)
		}
	}
}

// TestDeleteRangeAfterSets: a range deletes what its own batch has set before it, and not what it sets
// after it, though ranges are carried out first.
func TestDeleteRangeAfterSets(t *testing.T) {
	e := open(t, t.TempDir(), holdfast.Options{Level: holdfast.Process})
	set(t, e, holdfast.Process, "a", "1", "k5", "old", "z", "1")
	var b holdfast.Batch
	for i := range 1000 {
		b.Set(fmt.Appendf(nil, "k%d", i), []byte("new"))
	}
	b.DeleteRange([]byte("k"), []byte("l"))
	b.Set([]byte("k7"), []byte("newest"))
	try(t, holdfast.Commit(e, &b, holdfast.Process))
	if got := all(t, e, holdfast.Range{}); got != "a=1 k7=newest z=1" {
		t.Errorf("it holds %s", got)
	}
}

// A file of which most is free is replaced by a copy of what is live, while readers of the old one go on with what they
// see, and others read and write. The copy is what a reopened store finds.
func TestCompact(t *testing.T) {
	for _, level := range []holdfast.Level{holdfast.Process, holdfast.Power} {
		dir := t.TempDir()
		e := open(t, dir, holdfast.Options{Level: level})
		e.sparseFrom = 1000
		large := func(n int) { // writes 20 MiB, and deletes them
			var b holdfast.Batch
			for i := range 20 {
				b.Set(fmt.Appendf(nil, "large/%d", i), make([]byte, 1<<20))
			}
			try(t, holdfast.Commit(e, &b, level))
			b.Reset()
			b.DeleteRange([]byte("large/"), []byte("large0"))
			b.Set([]byte("n"), fmt.Append(nil, n))
			try(t, holdfast.Commit(e, &b, level))
		}
		set(t, e, level, "a", "1", "n", "first")
		s, err := e.Snapshot()
		try(t, err)
		it := e.Scan(holdfast.Range{})
		var readers sync.WaitGroup
		stop := make(chan struct{})
		for range 4 {
			readers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if got := all(t, e, holdfast.Range{Hi: []byte("b")}); got != "a=1" {
						t.Errorf("a reader sees %q", got)
					}
					if v, err := e.Get(nil, []byte("a")); string(v) != "1" || err != nil {
						t.Errorf("a reader sees %q, %v", v, err)
					}
				}
			})
		}
		first := e.db
		for n := range 3 {
			large(n)
		}
		close(stop)
		readers.Wait()
		if e.db == first {
			t.Error("the file was not replaced")
		}
		if st, err := os.Stat(e.path()); err != nil || st.Size() > 50<<20 {
			t.Errorf("after 60 MiB were written and deleted, it has %d bytes, %v", st.Size(), err)
		}
		if got := all(t, s, holdfast.Range{}); got != "a=1 n=first" {
			t.Errorf("the snapshot reads %.100q", got)
		}
		if !it.Next() || string(it.Key()) != "a" || !it.Next() || string(it.Value()) != "first" || it.Next() {
			t.Errorf("the iterator reads %q=%.40q, %v", it.Key(), it.Value(), it.Err())
		}
		try(t, errors.Join(it.Close(), s.Close(), e.Close()))
		e = open(t, dir, holdfast.Options{Level: level})
		if got := all(t, e, holdfast.Range{}); got != "a=1 n=2" {
			t.Errorf("reopened, it holds %.100q", got)
		}
	}
}

// Opening gives back what is free of a file that is mostly free, and what a process left that died while it copied.
func TestCompactWhileOpening(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir, holdfast.Options{Level: holdfast.Process})
	e.sparseFrom = math.MaxInt64
	var b holdfast.Batch
	for i := range 3 {
		b.Set([]byte{'l', byte(i)}, make([]byte, 60<<20))
	}
	try(t, holdfast.Commit(e, &b, holdfast.Process))
	b.Reset()
	b.DeleteRange([]byte("l"), []byte("m"))
	b.Set([]byte("a"), []byte("1"))
	err := holdfast.Commit(e, &b, holdfast.Process)
	try(t, errors.Join(err, e.Close(), os.WriteFile(e.path()+".new", make([]byte, 5000), 0o644)))
	for range 2 {
		e = open(t, dir, holdfast.Options{Level: holdfast.Process})
		if st, err := os.Stat(e.path()); err != nil || st.Size() > 40<<20 {
			t.Errorf("it has %d bytes, %v", st.Size(), err)
		}
		if m := e.Metrics(); m.Files != 3 {
			t.Errorf("the directory has %d files", m.Files)
		}
		if got := all(t, e, holdfast.Range{}); got != "a=1" {
			t.Errorf("it holds %.100q", got)
		}
		try(t, e.Close())
	}
}

// Where the file cannot be copied it stays as it is, and the store goes on.
func TestCompactFails(t *testing.T) {
	for name, obstruct := range map[string]func(t *testing.T, e *engine){
		"no place for the copy": func(t *testing.T, e *engine) {
			try(t, os.MkdirAll(filepath.Join(e.path()+".new", "x"), 0o755))
		},
		"damage": func(t *testing.T, e *engine) { // two keys change places
			data, err := os.ReadFile(e.path())
			try(t, err)
			a, b := bytes.LastIndex(data, []byte("key-a")), bytes.LastIndex(data, []byte("key-b"))
			_, err = e.file.WriteAt([]byte("key-b"), int64(a))
			if err == nil {
				_, err = e.file.WriteAt([]byte("key-a"), int64(b))
			}
			if a < 0 || b < 0 || err != nil {
				t.Fatal(a, b, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, t.TempDir(), holdfast.Options{Level: holdfast.Process})
			set(t, e, holdfast.Process, "large", string(make([]byte, 8<<20)))
			var b holdfast.Batch
			b.Delete([]byte("large"))
			try(t, holdfast.Commit(e, &b, holdfast.Process))
			set(t, e, holdfast.Process, "key-a", "1", "key-b", "2")
			obstruct(t, e)
			want, first := all(t, e, holdfast.Range{}), e.db
			e.sparseFrom = 1000
			if err := e.compactIfSparse(compactLive); err != nil || e.db != first || e.sparseFrom < 2000 {
				t.Errorf("%v, replaced %v, the next try at %d free pages", err, e.db != first, e.sparseFrom)
			}
			if got := all(t, e, holdfast.Range{}); got != want {
				t.Errorf("it holds %.100q, not %.100q", got, want)
			}
			set(t, e, holdfast.Process, "x", "3")
		})
	}
}
