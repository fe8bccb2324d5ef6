package contender

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/metadb"
	"go.uber.org/goleak"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// each runs a test on every peer.
func each(t *testing.T, test func(t *testing.T, peer all.Entry)) {
	eachOf(t, Engines(), test)
}

// eachStore runs a test on the peers, and on the stores on Badger's own calls.
func eachStore(t *testing.T, test func(t *testing.T, peer all.Entry)) {
	eachOf(t, slices.Concat(Engines(), RaftBadgers()), test)
}

func eachOf(t *testing.T, peers []all.Entry, test func(t *testing.T, peer all.Entry)) {
	for _, peer := range peers {
		t.Run(peer.Name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			test(t, peer)
		})
	}
}

func open(t *testing.T, peer all.Entry, dir string) holdfast.Engine {
	t.Helper()
	e, err := peer.Open(dir, holdfast.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// entry follows from its index, in all fields.
func entry(index uint64) *raft.Log {
	return &raft.Log{
		Index: index, Term: 1 + index/10, Type: raft.LogCommand, Data: fmt.Appendf(nil, "data %d", index),
		Extensions: fmt.Appendf(nil, "more %d", index),
		AppendedAt: time.Date(2024, 5, 6, 7, 8, 9, int(index), time.UTC),
	}
}

func entries(first, last uint64) (list []*raft.Log) {
	for index := first; index <= last; index++ {
		list = append(list, entry(index))
	}
	return list
}

// holds checks that the log is first to last, every field of it.
func holds(t *testing.T, s RaftStore, first, last uint64) {
	t.Helper()
	gotFirst, err := s.FirstIndex()
	if err != nil || gotFirst != first {
		t.Errorf("the log begins with %d, %v, want %d", gotFirst, err, first)
	}
	gotLast, err := s.LastIndex()
	if err != nil || gotLast != last {
		t.Errorf("the log ends with %d, %v, want %d", gotLast, err, last)
	}
	for index := max(first, 1); index <= last; index++ {
		var got raft.Log
		if err := s.GetLog(index, &got); err != nil {
			t.Fatalf("entry %d: %v", index, err)
		}
		want := entry(index)
		if got.Index != index || got.Term != want.Term || got.Type != want.Type || !bytes.Equal(got.Data, want.Data) ||
			!bytes.Equal(got.Extensions, want.Extensions) || !got.AppendedAt.Equal(want.AppendedAt) {
			t.Fatalf("entry %d is %+v, want %+v", index, got, want)
		}
	}
	for _, index := range []uint64{first - 1, last + 1} {
		if index+1 == 0 {
			continue
		}
		if err := s.GetLog(index, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry %d, which is not there: %v", index, err)
		}
	}
}

// TestPeerKeepsARaftLog: what both peers do, through the seam that the lab uses, over a close.
func TestPeerKeepsARaftLog(t *testing.T) {
	eachStore(t, func(t *testing.T, peer all.Entry) {
		dir := filepath.Join(t.TempDir(), "new", "dir")
		e := open(t, peer, dir)
		s, shut, err := OpenRaft(e, raftlog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		holds(t, s, 0, 0)
		if v, err := s.Get([]byte("CurrentTerm")); len(v) != 0 || err != nil && !KeyMissing(err) {
			t.Errorf("a key that is not there: %q, %v", v, err)
		}
		for _, err := range []error{
			s.StoreLogs(entries(1, 40)), s.StoreLog(entry(41)), s.DeleteRange(1, 10), s.DeleteRange(36, 41),
			s.StoreLogs(entries(36, 50)),
			s.Set([]byte("LastVoteCand"), []byte("node-b")), s.SetUint64([]byte("CurrentTerm"), 7),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		check := func(s RaftStore) {
			t.Helper()
			holds(t, s, 11, 50)
			if v, err := s.Get([]byte("LastVoteCand")); err != nil || string(v) != "node-b" {
				t.Errorf("the vote is %q, %v", v, err)
			}
			if v, err := s.GetUint64([]byte("CurrentTerm")); err != nil || v != 7 {
				t.Errorf("the term is %d, %v", v, err)
			}
		}
		check(s)
		m := e.Metrics()
		if m.Commits != 7 || m.Groups != 7 || m.Syncs < 7 || m.BytesWritten < 1000 || m.Files < 1 || m.DiskBytes < 4096 {
			t.Errorf("metrics %+v", m)
		}
		if err := errors.Join(shut(), e.Sync(), e.Close()); err != nil {
			t.Fatal(err)
		}
		if after := e.Metrics(); after.Commits != 7 {
			t.Errorf("metrics after closing %+v", after)
		}
		for name, err := range map[string]error{"close": e.Close(), "sync": e.Sync()} {
			if !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("%s twice: %v", name, err)
			}
		}
		e = open(t, peer, dir)
		if s, _, err = OpenRaft(e, raftlog.Options{Level: holdfast.Power}); err != nil {
			t.Fatal(err)
		}
		check(s)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestPeerMonotonic: raft asks the store whether it takes gaps, through what dresses it.
func TestPeerMonotonic(t *testing.T) {
	each(t, func(t *testing.T, peer all.Entry) {
		e := open(t, peer, t.TempDir())
		m, ok := e.(RaftEngine).RaftStore().(raft.MonotonicLogStore)
		if got := ok && m.IsMonotonic(); got != (peer.Name == RaftWAL) {
			t.Errorf("monotonic: %v", got)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestPeerRefusesKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, peer all.Entry) {
		e := open(t, peer, t.TempDir())
		var b holdfast.Batch
		b.Set([]byte("a"), []byte("b"))
		_, applied := e.Apply(&b, holdfast.Power)
		_, got := e.Get(nil, []byte("a"))
		_, snapped := e.Snapshot()
		it := e.Scan(holdfast.Range{})
		for name, err := range map[string]error{"apply": applied, "get": got, "snapshot": snapped, "scan": it.Err()} {
			if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), onlyRaft) ||
				!strings.Contains(err.Error(), peer.Name) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if it.Next() {
			t.Error("it found something")
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestPeerCapabilities(t *testing.T) {
	each(t, func(t *testing.T, peer all.Entry) {
		e := open(t, peer, t.TempDir())
		defer e.Close()
		for _, c := range []holdfast.Capabilities{peer.Describe(), e.Capabilities()} {
			if c.Engine != peer.Name || !strings.HasPrefix(c.Library, "github.com/hashicorp/raft-") ||
				c.Strongest() != holdfast.Power || c.Power.How == "" || !c.AtomicBatches || len(c.Caveats) < 3 {
				t.Errorf("%+v", c)
			}
			for _, level := range []holdfast.Level{holdfast.Memory, holdfast.Process} {
				if p := c.Promise(level); p.Given != 0 || p.Why == "" {
					t.Errorf("%v: %+v", level, p)
				}
			}
		}
		if len(peer.Describe().Settings) > 0 || len(e.Capabilities().Settings) == 0 {
			t.Error("settings are those of an open store")
		}
	})
}

func TestPeerOpenRefuses(t *testing.T) {
	each(t, func(t *testing.T, peer all.Entry) {
		with := func(name string) string {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
			return dir
		}
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		own := map[string]string{RaftWAL: metadb.FileName, RaftBoltDB: boltFile}[peer.Name]
		engine, damaged := filepath.Join(t.TempDir(), "engine"), filepath.Join(t.TempDir(), "damaged")
		e, err := all.Open(all.Default, engine, holdfast.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(e.Close(), open(t, peer, damaged).Close(),
			os.WriteFile(filepath.Join(damaged, own), []byte("x"), 0o644)); err != nil {
			t.Fatal(err)
		}
		for name, test := range map[string]struct {
			dir   string
			o     holdfast.Options
			class error
			want  string
		}{
			"memory":           {t.TempDir(), holdfast.Options{Level: holdfast.Memory}, holdfast.ErrLevel, "as it is"},
			"process":          {t.TempDir(), holdfast.Options{Level: holdfast.Process}, holdfast.ErrLevel, "as it is"},
			"no level":         {t.TempDir(), holdfast.Options{Level: 9}, holdfast.ErrLevel, "use one of memory"},
			"no directory":     {"", holdfast.Options{}, holdfast.ErrBadOption, "name one"},
			"a file":           {file, holdfast.Options{}, holdfast.ErrForeign, "it is a file"},
			"an engine's":      {engine, holdfast.Options{}, holdfast.ErrForeign, all.Default},
			"the library's":    {with(own), holdfast.Options{}, holdfast.ErrForeign, own},
			"anything":         {with("notes.txt"), holdfast.Options{}, holdfast.ErrForeign, "notes.txt"},
			"damage":           {damaged, holdfast.Options{}, holdfast.ErrCorrupt, "backup"},
			"for reading only": {t.TempDir(), holdfast.Options{ReadOnly: true}, holdfast.ErrUnavailable, "reading only"},
		} {
			before := names(t, test.dir)
			e, err := peer.Open(test.dir, test.o)
			if err == nil {
				e.Close()
			}
			if !errors.Is(err, test.class) || !strings.Contains(err.Error(), test.want) ||
				!strings.Contains(err.Error(), peer.Name) && name != "no level" {
				t.Errorf("%s: %v", name, err)
			}
			if after := names(t, test.dir); !slices.Equal(before, after) {
				t.Errorf("%s: it leaves %q of %q", name, after, before)
			}
		}
	})
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // it is a file, or not there
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// TestPeerIsLocked: a second opener is told so, where the libraries would wait without end; and a failed one leaves no
// lock.
func TestPeerIsLocked(t *testing.T) {
	eachStore(t, func(t *testing.T, peer all.Entry) {
		dir := t.TempDir()
		e := open(t, peer, dir)
		var second sync.WaitGroup
		for range 3 {
			second.Go(func() {
				if _, err := peer.Open(dir, holdfast.Options{}); !errors.Is(err, holdfast.ErrLocked) {
					t.Errorf("opened twice: %v", err)
				}
			})
		}
		second.Wait()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if err := open(t, peer, dir).Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestWALDamageIsToldAndUnlocked: a segment that is gone is damage, and what failed to open can be tried again.
func TestWALDamageIsToldAndUnlocked(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	e, err := OpenRaftWAL(dir, holdfast.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "no-number.wal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := OpenRaftWAL(dir, holdfast.Options{}); !errors.Is(err, holdfast.ErrCorrupt) {
			t.Fatalf("it says %v", err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "no-number.wal")); err != nil {
		t.Fatal(err)
	}
	if e, err = OpenRaftWAL(dir, holdfast.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestWALDeletedEntriesCanBeGot is what a caveat says: what was deleted from the front is still found in the file that
// is appended to, until it is opened again. Whatever the log says of itself is right.
func TestWALDeletedEntriesCanBeGot(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	for _, again := range []bool{false, true} {
		e, err := OpenRaftWAL(dir, holdfast.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := e.(RaftEngine).RaftStore()
		if !again {
			if err := errors.Join(s.StoreLogs(entries(1, 20)), s.DeleteRange(1, 5)); err != nil {
				t.Fatal(err)
			}
		}
		if first, err := s.FirstIndex(); err != nil || first != 6 {
			t.Errorf("the log begins with %d, %v", first, err)
		}
		if err := s.GetLog(5, new(raft.Log)); (err == nil) == again || again && !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("opened again: %v: getting a deleted entry: %v", again, err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpenRaftOnEngines: on an engine the store is ours, at each level that the engine gives.
func TestOpenRaftOnEngines(t *testing.T) {
	for _, entry := range append(all.Engines(), Engines()...) {
		for _, level := range holdfast.Levels() {
			given := entry.Describe().Promise(level).Given
			if given == 0 {
				continue
			}
			dir := filepath.Join(t.TempDir(), "engine")
			if entry.Name == mem.Name {
				dir = ""
			}
			e, err := entry.Open(dir, holdfast.Options{Level: level})
			if err != nil {
				t.Fatal(err)
			}
			s, shut, err := OpenRaft(e, raftlog.Options{Level: level})
			if !entry.Describe().AtomicBatches && errors.Is(err, holdfast.ErrBadOption) {
				if err := e.Close(); err != nil {
					t.Error(err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s at %v: %v", entry.Name, level, err)
			}
			if err := errors.Join(s.StoreLogs(entries(1, 20)), s.DeleteRange(1, 5),
				s.Set([]byte("k"), []byte("v"))); err != nil {
				t.Errorf("%s at %v: %v", entry.Name, level, err)
			}
			if n, err := s.GetUint64([]byte("none")); n != 0 || KeyMissing(err) == (entry.Name == RaftWAL) ||
				err != nil && !KeyMissing(err) {
				t.Errorf("%s: a number that is not there: %d, %v", entry.Name, n, err)
			}
			if entry.Name == RaftWAL { // see TestWALDeletedEntriesCanBeGot
				if err := errors.Join(shut(), e.Close()); err != nil {
					t.Fatal(err)
				}
				e = open(t, entry, dir)
				if s, shut, err = OpenRaft(e, raftlog.Options{Level: level}); err != nil {
					t.Fatal(err)
				}
			}
			holds(t, s, 6, 20)
			if err := errors.Join(shut(), e.Close()); err != nil {
				t.Errorf("%s at %v: %v", entry.Name, level, err)
			}
		}
	}
}

// TestOpenRaftPassesOptionsOn to our store; a peer is as it is.
func TestOpenRaftPassesOptionsOn(t *testing.T) {
	e := mem.New()
	defer e.Close()
	for _, monotonic := range []bool{false, true} {
		s, shut, err := OpenRaft(e, raftlog.Options{Level: holdfast.Memory, Monotonic: monotonic})
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := s.(raft.MonotonicLogStore); !ok || m.IsMonotonic() != monotonic {
			t.Errorf("monotonic %v is not what the store says", monotonic)
		}
		if err := shut(); err != nil {
			t.Fatal(err)
		}
	}
	if KeyMissing(nil) || KeyMissing(raft.ErrLogNotFound) || !KeyMissing(raftlog.ErrKeyNotFound) {
		t.Error("KeyMissing tells errors apart wrongly")
	}
}

func TestOpenRaftRefusesLevels(t *testing.T) {
	e := mem.New()
	for _, level := range []holdfast.Level{0, holdfast.Process, holdfast.Power, 9} {
		if _, _, err := OpenRaft(e, raftlog.Options{Level: level}); !errors.Is(err, holdfast.ErrLevel) {
			t.Errorf("%v on an engine in memory: %v", level, err)
		}
	}
	each(t, func(t *testing.T, peer all.Entry) {
		e := open(t, peer, t.TempDir())
		if _, _, err := OpenRaft(e, raftlog.Options{Level: holdfast.Process}); !errors.Is(err, holdfast.ErrLevel) {
			t.Errorf("process on %s: %v", peer.Name, err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
