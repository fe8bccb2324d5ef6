package raftlog_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// Open looks for the last entry, and a deletion for its neighbour, without walking over what was deleted behind
// it, or before it: after the end of the log is gone, while it grows again, and when a log that was emptied goes on
// in the middle of what it was.
func TestTheDeletedIsLeftBehind(t *testing.T) {
	for _, native := range []bool{false, true} {
		t.Run(fmt.Sprint("native ", native), func(t *testing.T) {
			eng := storetest.NewBuried(native)
			s := openStore(t, eng, inMemory)
			again := func(first, last uint64) {
				t.Helper()
				wantBounds(t, s, first, last)
				closeStore(t, s)
				eng.Walked = 0
				s = openStore(t, eng, inMemory)
				wantBounds(t, s, first, last)
				if eng.Walked > 1024 { // the most that the last entry may have come into what was deleted
					t.Fatalf("Open walked over %d of %d deleted entries", eng.Walked, len(eng.Dead))
				}
			}
			const n = 20_000
			fill(t, s, n)
			remove(t, s, 1, 99)
			remove(t, s, 101, n)
			again(100, 100)
			for at := uint64(101); at < 4000; at += 300 {
				store(t, s, entries(at, at+299, 2)...)
				again(100, at+299)
			}
			store(t, s, entries(n-500, n-400, 3)...) // leaves a gap
			again(100, n-400)
			store(t, s, entries(n+500, n+600, 3)...)
			again(100, n+600)
			remove(t, s, n, n+600)
			again(100, n-400)
			remove(t, s, 5000, n)
			eng.Walked = 0
			remove(t, s, 4050, n) // it looks for the entry before it
			if eng.Walked > 1024 {
				t.Errorf("a deletion walked over %d deleted entries", eng.Walked)
			}
			remove(t, s, 0, n)
			again(0, 0)
			store(t, s, entries(n/2, n/2, 4)...)
			again(n/2, n/2)
			store(t, s, entries(n/2+1, n/2+1, 4)...)
			again(n/2, n/2+1)
			store(t, s, entries(n/2+2, n, 4)...)
			again(n/2, n)
			closeStore(t, s)
		})
	}
}

// Storing in the middle of what has been deleted, and is not removed yet, needs one chunk, not half of all, and the
// log goes on there as anywhere; so does another deletion. What is left is removed in the end.
func TestStoreAmongTheDead(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		st.Native = false
		s := openStore(t, st, inMemory)
		const n = 100 * chunks.Keys
		fill(t, s, n)
		full := errors.New("no space left on device")
		st.Locked(func() { st.Refuse, st.Spare = full, 1 })
		wantError(t, s.DeleteRange(0, n), full)
		st.Locked(func() { st.Refuse = nil })
		wantLog(t, s)
		logs := entries(n/2, n/2+2*chunks.Keys, 2)
		before := st.Applied
		for _, log := range logs {
			store(t, s, log)
		}
		if took := st.Applied - before - uint64(len(logs)); took > 3 {
			t.Errorf("%d entries in the middle took %d batches more", len(logs), took)
		}
		wantLog(t, s, logs...)
		// Now here and there, so that more dead spans would come of it than a description may have.
		for i := uint64(1); i < 40; i++ {
			more := entries(i*chunks.Keys+i, i*chunks.Keys+i, 3)
			logs = append(logs, more...)
			store(t, s, more...)
		}
		wantLog(t, s, logs...)
		closeStore(t, s)
		s = openStore(t, st, inMemory)
		wantLog(t, s, logs...)
		remove(t, s, n+1, n+1)
		wantLog(t, s, logs...)
		if left := storetest.Keys(st, holdfast.Range{Lo: []byte("r\x00l"), Hi: []byte("r\x00m")}); left != len(logs) {
			t.Errorf("%d entries are left, %d are in the log", left, len(logs))
		}
		closeStore(t, s)
	})
}

// Nothing that is removed makes the engine expand a range, for which it lets all others wait; where a range costs the
// same for any number of entries, a few are deleted singly.
func TestRanges(t *testing.T) {
	for _, native := range []bool{false, true} {
		st := newFakeEngine()
		st.Native = native
		s := openStore(t, st, raftlog.Options{Level: holdfast.Memory})
		fill(t, s, 3*chunks.Keys)
		remove(t, s, 1, 10)
		remove(t, s, 3*chunks.Keys, 4*chunks.Keys)
		remove(t, s, 20, 25)
		if st.Ranges > 0 {
			t.Errorf("native %v: few entries took %d ranges", native, st.Ranges)
		}
		remove(t, s, 0, 2*chunks.Keys)
		if native != (st.Ranges == 1) {
			t.Errorf("native %v: many entries took %d ranges", native, st.Ranges)
		}
		wantBounds(t, s, 2*chunks.Keys+1, 3*chunks.Keys-1)
		closeStore(t, s)
	}
}
