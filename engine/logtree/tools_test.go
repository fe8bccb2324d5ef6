package logtree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
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

func openFor(t *testing.T, dir string) holdfast.Engine {
	t.Helper()
	e, err := Open(dir, holdfast.Options{MemoryBytes: 1 << 20})
	try(t, err)
	return e
}

func contents(t *testing.T, r holdfast.Reader) map[string]string {
	t.Helper()
	all := map[string]string{}
	it := r.Scan(holdfast.Range{})
	defer it.Close()
	for it.Next() {
		all[string(it.Key())] = string(it.Value())
	}
	try(t, it.Err())
	return all
}

// opened returns what a directory holds when it is opened, and checks it with Verify.
func opened(t *testing.T, dir string) map[string]string {
	t.Helper()
	v, err := Verify(dir)
	if err != nil || len(v.Damage) > 0 {
		t.Fatalf("Verify of %s: %v, %+v", dir, err, v)
	}
	e := openFor(t, dir)
	all := contents(t, e)
	try(t, e.Close())
	return all
}

// TestBackupWhileWriting: writers keep the sum of all counters at the number of another key, batch by batch.
// Every backup must show one state between two batches, and at least what had been acknowledged when it began.
func TestBackupWhileWriting(t *testing.T) {
	dir := t.TempDir()
	e := openFor(t, filepath.Join(dir, "db"))
	var stop atomic.Bool
	var order sync.Mutex
	var writers sync.WaitGroup
	var applied atomic.Uint64
	total, counters := uint64(0), map[int]uint64{}
	for w := range 4 {
		writers.Go(func() {
			var b holdfast.Batch
			for i := 0; !stop.Load(); i++ {
				b.Reset()
				order.Lock()
				key := (i*7 + w) % 500
				total++
				counters[key]++
				b.Set(fmt.Appendf(nil, "c%03d", key), append(binary.BigEndian.AppendUint64(nil, counters[key]),
					bytes.Repeat([]byte{byte(i)}, 100)...))
				b.Set([]byte("total"), binary.BigEndian.AppendUint64(nil, total))
				r, err := e.Apply(&b, holdfast.Levels()[i%2])
				n := total
				order.Unlock()
				if err == nil {
					err = r.Wait()
				}
				if err != nil {
					t.Error(err)
					return
				}
				applied.Store(max(applied.Load(), n))
			}
		})
	}
	for i := range 4 {
		testkit.Until(t, "200 batches more", func() bool { return applied.Load() >= uint64(i+1)*200 || t.Failed() })
		least := applied.Load()
		copied := filepath.Join(dir, fmt.Sprint("copy", i))
		if _, err := Backup(t.Context(), e, copied); err != nil {
			t.Fatal(err)
		}
		sum, said := uint64(0), uint64(0)
		for key, value := range opened(t, copied) {
			if n := binary.BigEndian.Uint64([]byte(value)); key == "total" {
				said = n
			} else {
				sum += n
			}
		}
		if sum != said || said+4 < least {
			t.Errorf("backup %d: the counters' sum is %d, the total %d; %d had been applied", i, sum, said, least)
		}
	}
	stop.Store(true)
	writers.Wait()
	want, at := contents(t, e), filepath.Join(dir, "at")
	if n, err := Backup(t.Context(), e, at); err != nil || n != int64(len(want)) {
		t.Errorf("%d keys, want %d: %v", n, len(want), err)
	}
	if got := opened(t, at); !maps.Equal(got, want) {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
	if _, err := Backup(t.Context(), e, at); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("into a directory that is not empty: %v", err)
	}
	try(t, e.Close())
}

// TestUnfinishedBackup: what an interrupted backup leaves cannot be taken for one.
func TestUnfinishedBackup(t *testing.T) {
	dir := t.TempDir()
	e := openFor(t, filepath.Join(dir, "db"))
	defer e.Close()
	var b holdfast.Batch
	b.Set([]byte("k"), []byte("v"))
	try(t, holdfast.Commit(e, &b, holdfast.Power))
	s := &peeking{t: t, Engine: e, dir: filepath.Join(dir, "copy")}
	if _, err := Backup(t.Context(), s, s.dir); err != nil || !s.peeked {
		t.Fatalf("it was read: %v; %v", s.peeked, err)
	}
	try(t, errors.Join(os.Mkdir(filepath.Join(dir, "other.partial"), 0o755),
		os.WriteFile(filepath.Join(dir, "other.partial", "theirs"), nil, 0o644)))
	if _, err := Backup(t.Context(), e, filepath.Join(dir, "other")); !errors.Is(err, holdfast.ErrBadOption) ||
		!strings.Contains(err.Error(), "interrupted") {
		t.Errorf("next to what is not an interrupted one's: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "other.partial")); err != nil {
		t.Errorf("what was there is gone: %v", err)
	}
	failing := failingSnapshot{e, errors.New("the disk is on fire")}
	if _, err := Backup(t.Context(), failing, filepath.Join(dir, "failed")); !errors.Is(err, failing.err) {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "failed*"))
	if err != nil || len(left) > 0 {
		t.Errorf("a failed backup left %v, %v", left, err)
	}
}

// peeking looks at the directory that is being made while it is read from.
type peeking struct {
	holdfast.Engine
	t      *testing.T
	dir    string
	peeked bool
}

func (p *peeking) Snapshot() (holdfast.Snapshot, error) { return p, nil }
func (p *peeking) Close() error                         { return nil }

func (p *peeking) Scan(r holdfast.Range) holdfast.Iterator {
	p.peeked = true
	if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
		p.t.Errorf("the copy has its name already: %v", err)
	}
	if e, err := Open(p.dir+".partial", holdfast.Options{}); !errors.Is(err, holdfast.ErrForeign) {
		p.t.Errorf("a copy that is not complete was opened: %v, %v", e, err)
	}
	return p.Engine.Scan(r)
}

// failingSnapshot is an engine whose snapshots cannot be read.
type failingSnapshot struct {
	holdfast.Engine
	err error
}

func (f failingSnapshot) Snapshot() (holdfast.Snapshot, error) { return f, nil }
func (f failingSnapshot) Close() error                         { return nil }
func (f failingSnapshot) Scan(holdfast.Range) holdfast.Iterator {
	return holdfast.FailedIterator(f.err)
}

// TestToolsRefuse: an open directory is not verified or repaired, and a repair makes only new directories.
func TestToolsRefuse(t *testing.T) {
	dir := t.TempDir()
	db, into := filepath.Join(dir, "db"), filepath.Join(dir, "into")
	e := openFor(t, db)
	if _, err := Verify(db); !errors.Is(err, holdfast.ErrLocked) {
		t.Errorf("Verify: %v", err)
	}
	if _, err := Repair(t.Context(), db, into, holdfast.Options{}); !errors.Is(err, holdfast.ErrLocked) {
		t.Errorf("Repair: %v", err)
	}
	if _, err := Inspect(db); err != nil {
		t.Errorf("Inspect: %v", err)
	}
	try(t, e.Close())
	if _, err := Repair(t.Context(), db, dir, holdfast.Options{}); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("Repair into a full directory: %v", err)
	}
	nothing := filepath.Join(dir, "nothing")
	_, repaired := Repair(t.Context(), nothing, into, holdfast.Options{})
	_, verified := Verify(nothing)
	_, inspected := Inspect(nothing)
	for _, err := range []error{repaired, verified, inspected} {
		if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "no such directory") {
			t.Errorf("of a directory that is not there: %v", err)
		}
	}
	if _, err := os.Stat(into); err == nil {
		t.Error("a refused repair made something")
	}
	try(t, os.Mkdir(into, 0o755))
	if r, err := Repair(t.Context(), db, into, holdfast.Options{}); err != nil || !r.Complete() {
		t.Errorf("Repair into an empty directory: %v, %+v", err, r)
	}
}

// TestLostMark: without HOLDFAST, a repair still knows the files.
func TestLostMark(t *testing.T) {
	dir := t.TempDir()
	db, into := filepath.Join(dir, "db"), filepath.Join(dir, "into")
	e := openFor(t, db)
	var b holdfast.Batch
	b.Set([]byte("k"), []byte("v"))
	if err := errors.Join(holdfast.Commit(e, &b, holdfast.Power), e.Close(),
		os.Remove(filepath.Join(db, "HOLDFAST"))); err != nil {
		t.Fatal(err)
	}
	if v, err := Verify(db); err != nil || len(v.Damage) != 1 || !errors.Is(v.Damage[0], holdfast.ErrCorrupt) {
		t.Errorf("Verify: %v, %+v", err, v)
	}
	if r, err := Repair(t.Context(), db, into, holdfast.Options{}); err != nil || !r.Complete() {
		t.Errorf("Repair: %v, %+v", err, r)
	}
	if got := opened(t, into); !maps.Equal(got, map[string]string{"k": "v"}) {
		t.Errorf("%v", got)
	}
}

// TestDamagedBackup: one flipped byte of a backup costs one key, which is named, and no other is in doubt. Without
// its manifest it is still one key, as in a database into which each was written alone.
func TestDamagedBackup(t *testing.T) {
	dir := t.TempDir()
	e := openFor(t, filepath.Join(dir, "db"))
	var b holdfast.Batch
	for i := range 500 {
		b.Reset()
		b.Set(fmt.Appendf(nil, "k%03d", i), bytes.Repeat([]byte{byte(i)}, 40))
		if _, err := e.Apply(&b, holdfast.Memory); err != nil {
			t.Fatal(err)
		}
	}
	whole := contents(t, e)
	copied := filepath.Join(dir, "copy")
	_, err := Backup(t.Context(), e, copied)
	try(t, errors.Join(err, e.Close()))
	segs, err := filepath.Glob(filepath.Join(copied, "*.seg"))
	if err != nil || len(segs) != 1 {
		t.Fatal(segs, err)
	}
	data, err := os.ReadFile(segs[0])
	try(t, err)
	bare := filepath.Join(dir, "bare") // without its manifest
	try(t, os.CopyFS(bare, os.DirFS(copied)))
	try(t, os.Remove(filepath.Join(bare, "MANIFEST")))
	for off := 200; off < len(data)-100; off += len(data) / 20 {
		flipped := bytes.Clone(data)
		flipped[off] ^= 0x10
		for _, at := range []string{copied, bare} {
			try(t, os.WriteFile(filepath.Join(at, filepath.Base(segs[0])), flipped, 0o644))
			into := fmt.Sprint(at, "-fixed-", off)
			r, err := Repair(t.Context(), at, into, holdfast.Options{})
			try(t, err)
			missing := int64(len(whole)) - r.Keys
			if missing > 1 || at == copied && (r.Doubt != "" || r.LostKeys != missing) {
				t.Errorf("byte %d of %s flipped: %+v", off, at, r)
			}
			for k, v := range opened(t, into) {
				if whole[k] != v {
					t.Errorf("%q is %q", k, v)
				}
			}
			e := openFor(t, into)
			if lost := e.Capabilities().Lost; r.Complete() != (lost == "") || r.Complete() != (r.Summary() == "") {
				t.Errorf("it lost %q, says the directory, %q the result", lost, r.Summary())
			}
			try(t, e.Close())
		}
	}
}
