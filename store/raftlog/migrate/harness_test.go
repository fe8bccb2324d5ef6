package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/bbolt"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/raftlog"
	"github.com/holdfastdb/holdfast/vfs"
)

// engines are those that this package's tests import into; the command's tests have them all. They are few because the
// fuzzer compiles them anew.
var engines = map[string]struct {
	open     func(string, holdfast.Options) (holdfast.Engine, error)
	describe func() holdfast.Capabilities
}{
	logtree.Name: {logtree.Open, logtree.Describe},
	bbolt.Name:   {bbolt.Open, bbolt.Describe},
	mem.Name:     {mem.Open, mem.Describe},
}

// both is what raft-boltdb and raft-wal have in common.
type both interface {
	raft.LogStore
	raft.StableStore
	Close() error
}

// makeBolt makes a raft-boltdb file.
func makeBolt(t testing.TB, newTimes bool, fill func(both)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "raft.db")
	db, err := raftboltdb.New(raftboltdb.Options{Path: path, NoSync: true, MsgpackUseNewTimeFormat: newTimes})
	if err != nil {
		t.Fatal(err)
	}
	fill(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func openWAL(t testing.TB, dir string, segment int) *wal.WAL {
	t.Helper()
	w, err := wal.Open(dir, wal.WithSegmentSize(segment), wal.WithLogger(hclog.NewNullLogger()))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// makeWAL makes a raft-wal directory with segments of about that size.
func makeWAL(t testing.TB, segment int, fill func(both)) string {
	t.Helper()
	dir := t.TempDir()
	w := openWAL(t, dir, segment)
	fill(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// sources calls f with a way to make each kind of source.
func sources(t *testing.T, f func(t *testing.T, kind string, make func(fill func(both)) string)) {
	t.Run("raft-boltdb", func(t *testing.T) {
		f(t, "raft-boltdb", func(fill func(both)) string { return makeBolt(t, false, fill) })
	})
	t.Run("raft-boltdb, new times", func(t *testing.T) {
		f(t, "raft-boltdb", func(fill func(both)) string { return makeBolt(t, true, fill) })
	})
	t.Run("raft-wal", func(t *testing.T) {
		f(t, "raft-wal", func(fill func(both)) string { return makeWAL(t, 1<<20, fill) })
	})
	t.Run("raft-wal, small segments", func(t *testing.T) {
		f(t, "raft-wal", func(fill func(both)) string { return makeWAL(t, 4<<10, fill) })
	})
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t testing.TB, err, class error, say ...string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("%v, want %v", err, class)
	}
	var e *holdfast.Error
	if !errors.As(err, &e) {
		t.Errorf("%T is no holdfast.Error", err)
	}
	for _, s := range say {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("no %q in %v", s, err)
		}
	}
}

// logs returns entries from first to last, of growing terms and all types.
func logs(rnd *rand.Rand, first, last uint64) []*raft.Log {
	var list []*raft.Log
	zones := []*time.Location{time.UTC, time.FixedZone("", 3600), time.FixedZone("", -90*60), time.FixedZone("", 90)}
	for i := first; i <= last; i++ {
		l := &raft.Log{Index: i, Term: 1 + i/37, Type: raft.LogType(rnd.IntN(int(raft.LogConfiguration) + 1)),
			Data: bytesOf(rnd, rnd.IntN(300))}
		switch rnd.IntN(5) {
		case 0:
			l.Data = nil
		case 1:
			l.Extensions = bytesOf(rnd, rnd.IntN(40))
		}
		switch rnd.IntN(8) {
		case 0: // the zero time
		case 1:
			l.AppendedAt = time.Unix(rnd.Int64N(1<<33), 0).In(zones[rnd.IntN(len(zones))])
		case 2:
			l.AppendedAt = time.Unix(rnd.Int64N(1<<40)-1<<39, rnd.Int64N(1e9))
		default:
			l.AppendedAt = time.Unix(1.7e9+rnd.Int64N(1e8), rnd.Int64N(1e9)).In(zones[rnd.IntN(len(zones))])
		}
		list = append(list, l)
	}
	return list
}

func bytesOf(rnd *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

// store stores entries in batches of several sizes.
func store(t testing.TB, rnd *rand.Rand, to both, list []*raft.Log) {
	t.Helper()
	for len(list) > 0 {
		n := min(1+rnd.IntN(20), len(list))
		ok(t, to.StoreLogs(list[:n]))
		list = list[n:]
	}
}

// votes stores what raft does.
func votes(t testing.TB, to both, term uint64) {
	t.Helper()
	ok(t, to.SetUint64([]byte(currentTerm), term))
	ok(t, to.SetUint64([]byte(lastVoteTerm), term-1))
	ok(t, to.Set([]byte(lastVoteCand), []byte("10.0.0.7"))) // 8 bytes, and no number
}

// memory is a new engine on a simulated disk.
func memory(t testing.TB, fsys *vfs.Mem) holdfast.Engine {
	t.Helper()
	e := openOn(t, fsys)
	t.Cleanup(func() { ok(t, e.Close()) })
	return e
}

func openOn(t testing.TB, fsys *vfs.Mem) holdfast.Engine {
	t.Helper()
	e, err := logtree.OpenMem(fsys, "db", holdfast.Options{MemoryBytes: 8 << 20})
	ok(t, err)
	return e
}

// want checks that the store of that name is exactly this.
func want(t testing.TB, e holdfast.Engine, name string, list []*raft.Log, keys map[string]any) {
	t.Helper()
	s, err := raftlog.Open(e, raftlog.Options{Name: name})
	ok(t, err)
	defer func() { ok(t, s.Close()) }()
	var first, last uint64
	if len(list) > 0 {
		first, last = list[0].Index, list[len(list)-1].Index
	}
	if got, err := s.FirstIndex(); err != nil || got != first {
		t.Errorf("the first index is %d, want %d; %v", got, first, err)
	}
	if got, err := s.LastIndex(); err != nil || got != last {
		t.Errorf("the last index is %d, want %d; %v", got, last, err)
	}
	at := uint64(0)
	for _, l := range list {
		var got raft.Log
		if at > 0 && l.Index > at+1 {
			if err := s.GetLog(at+1, &got); err != raft.ErrLogNotFound {
				t.Errorf("index %d: %v", at+1, err)
			}
		}
		at = l.Index
		ok(t, s.GetLog(l.Index, &got))
		if field := different(l, &got); field != "" {
			t.Fatalf("index %d: %s differs:\n%+v\n%+v", l.Index, field, got, l)
		}
	}
	names, err := s.Keys()
	ok(t, err)
	if len(names) != len(keys) {
		t.Errorf("keys %q, want %v", names, keys)
	}
	for name, value := range keys {
		switch value := value.(type) {
		case uint64:
			if got, err := s.GetUint64([]byte(name)); err != nil || got != value {
				t.Errorf("%s is %d, want %d; %v", name, got, value, err)
			}
		case string:
			if got, err := s.Get([]byte(name)); err != nil || string(got) != value {
				t.Errorf("%s is %q, want %q; %v", name, got, value, err)
			}
		}
	}
}

// contentsOf returns every file of a source with what it holds and when it was changed.
func contentsOf(t testing.TB, path string) map[string]string {
	t.Helper()
	m := map[string]string{}
	ok(t, filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || d.IsDir() {
			m[name] = "directory " + info.ModTime().String()
			return err
		}
		b, err := os.ReadFile(name)
		m[name] = fmt.Sprint(info.ModTime(), info.Mode(), len(b), string(b))
		return err
	}))
	return m
}

func wantUnchanged(t testing.TB, path string, before map[string]string) {
	t.Helper()
	after := contentsOf(t, path)
	for name := range before {
		if before[name] != after[name] {
			t.Errorf("%s was changed", name)
		}
	}
	if len(before) != len(after) {
		t.Errorf("%d files, there were %d", len(after), len(before))
	}
}

// copySource copies a source to where it may be damaged.
func copySource(t testing.TB, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(path))
	if st, err := os.Stat(path); err != nil {
		t.Fatal(err)
	} else if st.IsDir() {
		ok(t, os.CopyFS(to, os.DirFS(path)))
		return to
	}
	b, err := os.ReadFile(path)
	ok(t, err)
	ok(t, os.WriteFile(to, b, 0o644))
	return to
}

// wantNothing checks that no store is there.
func wantNothing(t testing.TB, e holdfast.Engine) {
	t.Helper()
	it := e.Scan(holdfast.Range{})
	defer it.Close()
	for it.Next() {
		t.Errorf("there is %q", it.Key())
	}
	ok(t, it.Err())
}

// different returns a field in which two entries differ, with an empty slice being the same as none; empty if there is
// none.
func different(a, b *raft.Log) string {
	switch {
	case a.Index != b.Index:
		return "Index"
	case a.Term != b.Term:
		return "Term"
	case a.Type != b.Type:
		return "Type"
	case !bytes.Equal(a.Data, b.Data):
		return "Data"
	case !bytes.Equal(a.Extensions, b.Extensions):
		return "Extensions"
	case !a.AppendedAt.Equal(b.AppendedAt):
		return "AppendedAt"
	}
	return ""
}

// small makes batches small while a test runs.
func small(t *testing.T, size int64) {
	t.Helper()
	was := batchBytes
	batchBytes = size
	t.Cleanup(func() { batchBytes = was })
}
