package raftlog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// get is GetLog of an entry that must then be this one.
func get(s *raftlog.Store, want *raft.Log) func() error {
	return func() error {
		var got raft.Log
		if err := s.GetLog(want.Index, &got); err != nil {
			return err
		}
		return same(&got, want)
	}
}

func missing(s *raftlog.Store, index uint64) func() error {
	return func() error {
		if err := s.GetLog(index, new(raft.Log)); err != raft.ErrLogNotFound {
			return fmt.Errorf("entry %d: %v", index, err)
		}
		return nil
	}
}

// What is appended is not shown before it is durable: not by LastIndex, FirstIndex or GetLog, nor is
// the commit index. Appends do not wait for each other, and what is durable is shown though a later
// append is not.
func TestAppendIsShownWhenDurable(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		s := openStore(t, st, inMemory)
		defer closeStore(t, s)
		defer st.Release(-1)
		st.Hold()
		stageCommit(t, s, 10)
		first := async(func() error { return s.StoreLogs(entries(10, 12, 1)) })
		st.AwaitWaiters(1)
		second := async(func() error { return s.StoreLog(entry(13, 1)) })
		st.AwaitWaiters(2)
		wantLog(t, s)
		wantCommit(t, s, 0)
		st.Release(1)
		finished(t, nil, first)
		unfinished(t, second)
		wantBounds(t, s, 10, 12)
		wantNone(t, s, 13)
		wantCommit(t, s, 10)
		st.Release(-1)
		finished(t, nil, second)
		wantLog(t, s, entries(10, 13, 1)...)
	})
}

// A read of an entry that is being overwritten waits until that is settled; other entries are
// read meanwhile, and appended.
func TestOverwriteIsShownWhenDurable(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		s := openStore(t, st, inMemory)
		defer closeStore(t, s)
		defer st.Release(-1)
		store(t, s, entries(1, 9, 1)...)
		st.Hold()
		over := async(func() error { return s.StoreLogs(entries(4, 6, 2)) })
		st.AwaitWaiters(1)
		read := async(get(s, entry(5, 2)))
		more := async(func() error { return s.StoreLog(entry(10, 2)) })
		again := async(func() error { return s.StoreLog(entry(9, 3)) }) // edits come one by one
		st.AwaitWaiters(2)
		unfinished(t, over, read, more, again)
		wantEntry(t, s, entry(3, 1))
		wantEntry(t, s, entry(7, 1))
		wantEntry(t, s, entry(9, 1))
		wantBounds(t, s, 1, 9)
		st.Release(1)
		finished(t, nil, over, read)
		unfinished(t, more, again)
		st.Release(-1)
		finished(t, nil, more, again)
		want := append(entries(1, 3, 1), entries(4, 6, 2)...)
		want = append(append(want, entries(7, 8, 1)...), entry(9, 3), entry(10, 2))
		wantLog(t, s, want...)
	})
}

// A deletion is shown when it is durable, whole.
func TestDeletionIsShownWhenDurable(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		s := openStore(t, st, inMemory)
		defer closeStore(t, s)
		defer st.Release(-1)
		store(t, s, entries(1, 9, 1)...)
		st.Hold()
		prefix := async(func() error { return s.DeleteRange(0, 3) })
		st.AwaitWaiters(1)
		wantBounds(t, s, 1, 9)
		wantEntry(t, s, entry(4, 1))
		var read chan error
		if st.Late {
			wantEntry(t, s, entry(3, 1)) // still there
			read = async(func() error { return nil })
		} else {
			read = async(missing(s, 3))
			unfinished(t, read)
		}
		more := async(func() error { return s.StoreLog(entry(10, 1)) }) // does not wait for the edit
		st.AwaitWaiters(2)
		unfinished(t, prefix, more)
		st.Release(1)
		finished(t, nil, prefix, read)
		wantBounds(t, s, 4, 9)
		st.Release(-1)
		finished(t, nil, more)
		wantLog(t, s, entries(4, 10, 1)...)

		// A suffix goes and other entries come in its place before that is settled.
		st.Hold()
		suffix := async(func() error { return s.DeleteRange(8, 100) })
		st.AwaitWaiters(1)
		more = async(func() error { return s.StoreLogs(entries(8, 9, 2)) })
		st.AwaitWaiters(2)
		reads := []chan error{async(get(s, entry(9, 2))), async(missing(s, 10))}
		unfinished(t, append(reads, suffix, more)...)
		wantBounds(t, s, 4, 10)
		wantEntry(t, s, entry(7, 1))
		st.Release(-1)
		finished(t, nil, suffix, more, reads[1])
		if err := <-reads[0]; err != nil && err != raft.ErrLogNotFound { // or between the two
			t.Fatal(err)
		}
		wantLog(t, s, append(entries(4, 7, 1), entries(8, 9, 2)...)...)
	})
}

// The same where the suffix begins in a gap: what is appended there, before what was deleted but
// behind what is left, is not shown as part of the old log.
func TestDeletionFromAGap(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		s := openStore(t, st, inMemory)
		defer closeStore(t, s)
		defer st.Release(-1)
		store(t, s, append(entries(1, 3, 1), entries(10, 12, 1)...)...)
		st.Hold()
		suffix := async(func() error { return s.DeleteRange(8, 12) })
		st.AwaitWaiters(1)
		more := async(func() error { return s.StoreLog(entry(5, 2)) }) // an append, to the log as it will be
		st.AwaitWaiters(2)
		read := async(func() error { _ = s.GetLog(5, new(raft.Log)); return nil })
		unfinished(t, suffix, more, read)
		st.Release(1)
		finished(t, nil, suffix, read)
		wantBounds(t, s, 1, 3)
		wantNone(t, s, 5)
		st.Release(-1)
		finished(t, nil, more)
		wantLog(t, s, append(entries(1, 3, 1), entry(5, 2))...)
	})
}

// A deletion counts the appends that are under way.
func TestDeletionOfWhatIsUnderWay(t *testing.T) {
	for _, c := range []struct {
		lo, hi uint64
		want   []*raft.Log
	}{
		{0, 5, entries(6, 9, 1)},
		{0, 7, entries(8, 9, 1)},
		{0, 100, nil},
		{7, 9, entries(1, 6, 1)},
		{8, 8, append(entries(1, 7, 1), entry(9, 1))},
		{3, 100, entries(1, 2, 1)},
	} {
		t.Run(fmt.Sprintf("%d to %d", c.lo, c.hi), func(t *testing.T) {
			fakeEngines(t, func(t *testing.T, st *fakeEngine) {
				s := openStore(t, st, inMemory)
				store(t, s, entries(1, 5, 1)...)
				st.Hold()
				first := async(func() error { return s.StoreLogs(entries(6, 7, 1)) })
				st.AwaitWaiters(1)
				second := async(func() error { return s.StoreLogs(entries(8, 9, 1)) })
				st.AwaitWaiters(2)
				gone := async(func() error { return s.DeleteRange(c.lo, c.hi) })
				st.AwaitWaiters(3)
				unfinished(t, gone)
				st.Release(-1)
				finished(t, nil, first, second, gone)
				wantLog(t, s, c.want...)
				closeStore(t, s)
				s = openStore(t, st, inMemory)
				wantLog(t, s, c.want...)
				closeStore(t, s)
			})
		})
	}
}

// A stable value is shown when it is durable. What it replaces is shown until then, or, if it is not
// in memory, readers wait.
func TestStableIsShownWhenDurable(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		s := openStore(t, st, inMemory)
		set(t, s, "voted", "for a")
		set(t, s, "cold", "before")
		set(t, s, "large", strings.Repeat("x", 100_000)) // too large to be kept in memory
		closeStore(t, s)
		s = openStore(t, st, inMemory)
		defer closeStore(t, s)
		defer st.Release(-1)
		wantStable(t, s, "voted", "for a") // from now on in memory
		st.Hold()
		var sets, gets []chan error
		for i, key := range []string{"voted", "cold", "new", "large"} {
			sets = append(sets, async(func() error { return s.Set([]byte(key), []byte("for b")) }))
			st.AwaitWaiters(i + 1)
		}
		wantStable(t, s, "voted", "for a")
		for _, key := range []string{"cold", "new", "large"} {
			gets = append(gets, async(func() error {
				v, err := s.Get([]byte(key))
				old := key == "new" && err == raftlog.ErrKeyNotFound || key == "cold" && string(v) == "before" ||
					key == "large" && len(v) == 100_000
				if string(v) != "for b" && !(st.Late && old) {
					return fmt.Errorf("%s: %q, %v", key, v, err)
				}
				return nil
			}))
		}
		list := async(func() error { _, err := s.Keys(); return err })
		unfinished(t, append(append(sets, gets...), list)...)
		st.Release(-1)
		finished(t, nil, append(append(sets, gets...), list)...)
		for _, key := range []string{"voted", "cold", "new", "large"} {
			wantStable(t, s, key, "for b")
		}
	})
}

// Of two writes of one key under way, the later one counts, whichever returns first.
func TestStableOrder(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		s := openStore(t, st, inMemory)
		defer closeStore(t, s)
		defer st.Release(-1)
		for round := range 20 {
			key := fmt.Sprint(round)
			st.Hold()
			first := async(func() error { return s.Set([]byte(key), []byte("first")) })
			st.AwaitWaiters(1)
			second := async(func() error { return s.Set([]byte(key), []byte("second")) })
			st.AwaitWaiters(2)
			st.Release(-1)
			finished(t, nil, second, first)
			wantStable(t, s, key, "second")
		}
	})
}

// After a failed Wait nothing of it, or of what comes later, is shown or acknowledged; what was
// durable can still be read, but what was being replaced, of which it is not known what is there; all
// later writes are told the cause.
func TestFailedWait(t *testing.T) {
	cause := errors.New("input/output error")
	for name, write := range map[string]func(s *raftlog.Store) error{
		"append":    func(s *raftlog.Store) error { return s.StoreLogs(entries(6, 7, 1)) },
		"overwrite": func(s *raftlog.Store) error { return s.StoreLogs(entries(2, 7, 2)) },
		"prefix":    func(s *raftlog.Store) error { return s.DeleteRange(0, 2) },
		"suffix":    func(s *raftlog.Store) error { return s.DeleteRange(2, 9) },
		"wipe":      func(s *raftlog.Store) error { return s.DeleteRange(0, 9) },
		"set":       func(s *raftlog.Store) error { return s.Set([]byte("k"), []byte("after")) },
	} {
		t.Run(name, func(t *testing.T) {
			fakeEngines(t, func(t *testing.T, st *fakeEngine) {
				s := openStore(t, st, inMemory)
				store(t, s, entries(1, 5, 1)...)
				set(t, s, "k", "before")
				st.Hold()
				failing := async(func() error { return write(s) })
				st.AwaitWaiters(1)
				waiting := async(get(s, entry(2, 2)))
				st.Locked(func() { st.Fail = cause })
				finished(t, holdfast.ErrPoisoned, failing)
				wantBounds(t, s, 1, 5)
				unsure := name != "append" && name != "set"
				if err := <-waiting; unsure && !errors.Is(err, cause) && !(st.Late && name == "prefix") {
					t.Fatalf("entry 2: %v", err)
				}
				err := s.GetLog(2, new(raft.Log))
				if err != nil && (!unsure || !errors.Is(err, cause)) || err == nil && unsure && !(st.Late && name == "prefix") {
					t.Fatalf("entry 2: %v", err)
				}
				if name != "wipe" && name != "suffix" && name != "overwrite" {
					wantEntry(t, s, entry(3, 1))
				}
				wantNone(t, s, 6, 7)
				wantStable(t, s, "k", "before")
				for _, err := range []error{
					s.StoreLog(entry(6, 3)), s.StoreLog(entry(1, 3)), s.DeleteRange(1, 1), s.Set([]byte("k"), nil),
					s.SetUint64([]byte("u"), 1),
				} {
					wantError(t, err, cause)
					wantError(t, err, holdfast.ErrPoisoned)
				}
				wantError(t, s.Close(), cause)
				// What is then found in the engine is either.
				st.Locked(func() { st.Fail, st.Held, st.Queue, st.Settled = nil, false, nil, st.Applied })
				s = openStore(t, st, inMemory)
				if st.Late {
					wantLog(t, s, entries(1, 5, 1)...)
				}
				closeStore(t, s)
			})
		})
	}
}

// A refused Apply changes nothing, and what comes later has its place.
func TestRefusedApply(t *testing.T) {
	st := newFakeEngine()
	s := openStore(t, st, inMemory)
	defer closeStore(t, s)
	store(t, s, entries(1, 5, 1)...)
	set(t, s, "k", "before")
	full := errors.New("no space left on device")
	st.Locked(func() { st.Refuse = full })
	stageCommit(t, s, 4)
	for _, err := range []error{
		s.StoreLog(entry(6, 1)), s.StoreLog(entry(2, 2)), s.DeleteRange(0, 2), s.DeleteRange(4, 9), s.DeleteRange(0, 9),
		s.Set([]byte("k"), []byte("x")), s.Set([]byte("l"), nil),
	} {
		wantError(t, err, full)
		wantLog(t, s, entries(1, 5, 1)...)
		wantStable(t, s, "k", "before")
	}
	if _, err := s.Get([]byte("l")); err != raftlog.ErrKeyNotFound {
		t.Fatal(err)
	}
	st.Locked(func() { st.Refuse = nil })
	wantCommit(t, s, 0)
	store(t, s, entry(6, 1))
	wantCommit(t, s, 4) // it is still staged
	set(t, s, "k", "after")
	wantStable(t, s, "k", "after")
	remove(t, s, 1, 2)
	wantLog(t, s, entries(3, 6, 1)...)
}

// A call over the limit of a batch becomes several, in its order; an error on the way says how far
// it came.
func TestManyBatches(t *testing.T) {
	for _, c := range []struct {
		name string
		st   func() *fakeEngine
	}{
		{"bytes", func() *fakeEngine { st := newFakeEngine(); st.MaxBatch = 2400; return st }},
		{"operations", func() *fakeEngine { st := newFakeEngine(); st.Ops = 7; return st }},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := c.st()
			s := openStore(t, st, inMemory)
			stageCommit(t, s, 7)
			applied := st.Applied
			store(t, s, entries(1, 100, 1)...)
			if st.Applied-applied < 4 {
				t.Fatalf("%d batches", st.Applied-applied)
			}
			wantLog(t, s, entries(1, 100, 1)...)
			wantCommit(t, s, 7)
			store(t, s, entries(50, 120, 2)...)
			want := append(entries(1, 49, 1), entries(50, 120, 2)...)
			wantLog(t, s, want...)

			full := errors.New("no space left on device")
			for _, first := range []uint64{121, 100} { // an append, an edit
				st.Locked(func() { st.Refuse, st.Spare = full, 3 })
				stageCommit(t, s, 110)
				err := s.StoreLogs(entries(first, first+99, 3))
				wantError(t, err, full)
				if !strings.Contains(err.Error(), "entries of 100, up to index") {
					t.Fatal(err)
				}
				st.Locked(func() { st.Refuse = nil })
				var n uint64
				for n = 0; s.GetLog(first+n, new(raft.Log)) == nil && get(s, entry(first+n, 3))() == nil; n++ {
				}
				if n == 0 || n > 90 || !strings.Contains(err.Error(), fmt.Sprintf("first %d entries", n)) {
					t.Fatalf("%d entries are there: %v", n, err)
				}
				wantCommit(t, s, 7)
				if first == 121 {
					wantBounds(t, s, 1, first+n-1)
					remove(t, s, 121, 1000)
				}
			}
			remove(t, s, 2, 1000)
			wantLog(t, s, entry(1, 1))
			closeStore(t, s)
			if got := storetest.Keys(st, holdfast.Range{}); got > 3 {
				t.Fatalf("%d keys are left", got)
			}
		})
	}
}

// Where a deletion is done in chunks and ends early, it is nevertheless whole for readers, now and
// after the store is opened again; the next one goes on with it, and what is stored where the rest
// lies is not taken for it.
func TestDeletionEndsEarly(t *testing.T) {
	full := errors.New("no space left on device")
	for name, c := range map[string]struct {
		lo, hi uint64
		want   []*raft.Log
	}{
		"prefix": {0, 1_500, entries(1_501, 2_000, 1)},
		"suffix": {501, 3_000, entries(1, 500, 1)},
		"middle": {11, 1_990, append(entries(1, 10, 1), entries(1_991, 2_000, 1)...)},
		"wipe":   {0, 3_000, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, goOn := range []string{"again", "another", "reopen", "store"} {
				for chunks := 1; chunks < 4; chunks += 2 {
					st := newFakeEngine()
					st.Native = false
					s := openStore(t, st, inMemory)
					s.SmallChunks(50)
					for at := uint64(1); at < 2_000; at += 500 {
						store(t, s, entries(at, at+499, 1)...)
					}
					st.Locked(func() { st.Refuse, st.Spare = full, chunks })
					wantError(t, s.DeleteRange(c.lo, c.hi), full)
					st.Locked(func() { st.Refuse = nil })
					wantSome(t, s, c.want)
					if left := storetest.Keys(st, holdfast.Range{}); left <= 1+len(c.want) {
						t.Fatalf("%d keys are left", left)
					}
					want := c.want
					switch goOn {
					case "again":
						remove(t, s, c.lo, c.hi)
					case "another":
						remove(t, s, 10_000, 10_001)
					case "reopen":
						closeStore(t, s)
						s = openStore(t, st, inMemory)
						s.SmallChunks(50)
						wantSome(t, s, want)
						remove(t, s, c.lo, c.lo)
					case "store":
						at := c.hi - c.hi%2
						if at > 2_000 {
							at = 1_900
						}
						store(t, s, entry(at, 2))
						want = append(append([]*raft.Log(nil), want...), entry(at, 2))
						wantSome(t, s, want)
						remove(t, s, 1, 0) // what is not in the way of the entry is left to a deletion
					}
					wantSome(t, s, want)
					if got := storetest.Keys(st, holdfast.Range{}); got != 1+len(want) {
						t.Fatalf("%d keys, want %d", got, 1+len(want))
					}
					closeStore(t, s)
					s = openStore(t, st, inMemory)
					wantSome(t, s, want)
					closeStore(t, s)
				}
			}
		})
	}
}

// wantSome is wantLog for many entries, up to index 2,001, of which it looks at some.
func wantSome(t testing.TB, s *raftlog.Store, logs []*raft.Log) {
	t.Helper()
	if len(logs) == 0 {
		wantBounds(t, s, 0, 0)
	}
	there := map[uint64]*raft.Log{}
	first, last := uint64(1<<63), uint64(0)
	for _, log := range logs {
		there[log.Index] = log
		first, last = min(first, log.Index), max(last, log.Index)
	}
	if len(logs) > 0 {
		wantBounds(t, s, first, last)
	}
	look := []uint64{10, 11, 500, 501, 1_500, 1_501, 1_900, 1_990, 1_991, 2_000, 2_001,
		first, last, first - 1, last + 1}
	for index := uint64(0); index < 2_001; index += 19 {
		look = append(look, index)
	}
	for _, index := range look {
		if log := there[index]; log != nil {
			wantEntry(t, s, log)
		} else {
			wantNone(t, s, index)
		}
	}
}

// Open shows nothing before it is durable at the store's level, and Close waits for what is under
// way.
func TestOpenAndCloseWait(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		s := openStore(t, st, inMemory)
		store(t, s, entry(1, 1))
		st.Hold()
		under := async(func() error { return s.StoreLog(entry(2, 1)) })
		st.AwaitWaiters(1)
		closing := async(s.Close)
		st.AwaitWaiters(2)
		_, err := raftlog.Open(st, inMemory)
		wantError(t, err, holdfast.ErrLocked)
		unfinished(t, under, closing)
		st.Release(-1)
		finished(t, nil, under, closing)
		st.Hold()
		opening := async(func() (err error) { s, err = raftlog.Open(st, inMemory); return err })
		st.AwaitWaiters(1)
		unfinished(t, opening)
		st.Release(-1)
		finished(t, nil, opening)
		wantLog(t, s, entries(1, 2, 1)...)
		closeStore(t, s)

		// An Open that fails leaves the name free.
		st.Locked(func() { st.Refuse = errors.New("full") })
		_, err = raftlog.Open(st, inMemory)
		wantError(t, err, st.Refuse)
		st.Locked(func() { st.Refuse = nil })
		closeStore(t, openStore(t, st, inMemory))
	})
}

// What Open finds that is not its own.
func TestBadStores(t *testing.T) {
	key := func(table string) []byte { return []byte("r\x00" + table) }
	at := func(index byte) string { return "l\x00\x00\x00\x00\x00\x00\x00" + string(index) }
	for _, c := range []struct {
		name  string
		made  bool // there is a store with entry 1
		key   []byte
		value string // "" deletes
		want  error
		text  string
	}{
		{"no description", false, key(at(1)), "x", holdfast.ErrCorrupt, "no description"},
		{"an empty description", true, key("m"), "\x00", holdfast.ErrCorrupt, "checksum"},
		{"a lost description", true, key("m"), "", holdfast.ErrCorrupt, "no description"},
		{"a lost first entry", true, key(at(1)), "", holdfast.ErrCorrupt, "begins at index 1"},
		{"another first entry", true, key(at(0)), "x", nil, ""},
		{"a short key", true, key("l\xff"), "x", holdfast.ErrCorrupt, "among the entries"},
		{"a long key", true, key(at(5) + "x"), "x", holdfast.ErrCorrupt, "among the entries"},
		{"the last index of all", true, key("l\xff\xff\xff\xff\xff\xff\xff\xff"), "x", holdfast.ErrCorrupt,
			"18446744073709551615"},
		{"a bad commit index", true, key("c"), "12345678", holdfast.ErrCorrupt, "commit index"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eng := mem.New()
			if c.made {
				s := openStore(t, eng, inMemory)
				store(t, s, entry(1, 1))
				closeStore(t, s)
			}
			var b holdfast.Batch
			if b.Set(c.key, []byte(c.value)); c.value == "" {
				b.Delete(c.key)
			}
			try(t, holdfast.Commit(eng, &b, holdfast.Memory))
			for range 2 { // what is refused once is refused again
				s, err := raftlog.Open(eng, inMemory)
				if c.want == nil {
					try(t, err)
					wantLog(t, s, entry(1, 1)) // it does not belong to the log
					closeStore(t, s)
					continue
				}
				wantError(t, err, c.want)
				if !strings.Contains(err.Error(), c.text) {
					t.Fatalf("%q does not say %q", err, c.text)
				}
			}
		})
	}
	_, err := raftlog.Open(mem.New(), raftlog.Options{Level: 9})
	wantError(t, err, holdfast.ErrLevel)
	_, err = raftlog.Open(nil, raftlog.Options{})
	wantError(t, err, holdfast.ErrBadOption)
	_, err = raftlog.Open(storetest.Torn(), inMemory)
	wantError(t, err, holdfast.ErrBadOption)
}
