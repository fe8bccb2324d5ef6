package raftlog_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/internal/storetest"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// TestConformance checks the store's promises on every engine at every level that it gives.
func TestConformance(t *testing.T) {
	cases := []struct {
		name string
		run  func(t *testing.T, tg *target, o raftlog.Options)
	}{
		{"Empty", testEmpty},
		{"Fields", testFields},
		{"Append", testAppend},
		{"Overwrite", testOverwrite},
		{"Gaps", testGaps},
		{"Delete", testDelete},
		{"DeleteMany", testDeleteMany},
		{"Wipe", testWipe},
		{"Monotonic", testMonotonic},
		{"Stable", testStable},
		{"Commit", testCommit},
		{"Names", testNames},
		{"Reopen", testReopen},
		{"Closed", testClosed},
		{"EngineGone", testEngineGone},
	}
	targets(t, func(t *testing.T, tg *target) {
		for i, c := range cases {
			t.Run(c.name, func(t *testing.T) { c.run(t, tg, raftlog.Options{Name: fmt.Sprint("case", i), Level: tg.Level}) })
		}
	})
}

// again closes the store and opens it, and the engine with it.
func again(t *testing.T, tg *target, o raftlog.Options, s *raftlog.Store) *raftlog.Store {
	t.Helper()
	closeStore(t, s)
	tg.Reopen(t)
	return openStore(t, tg.Engine, o)
}

// First and last index are 0 and an entry is raft.ErrLogNotFound itself while there is none.
func testEmpty(t *testing.T, tg *target, o raftlog.Options) {
	s := openStore(t, tg.Engine, o)
	for range 2 {
		wantLog(t, s)
		wantCommit(t, s, 0)
		if s.IsMonotonic() || s.Level() != tg.Level {
			t.Fatal(s.IsMonotonic(), s.Level())
		}
		if err := s.StoreLogs(nil); err != nil {
			t.Fatal(err)
		}
		remove(t, s, 0, 100)
		wantLog(t, s)
		s = again(t, tg, o, s)
	}
	closeStore(t, s)
}

// Every field comes back as it went in.
func testFields(t *testing.T, tg *target, o raftlog.Options) {
	s := openStore(t, tg.Engine, o)
	wide, max := time.Unix(1<<62, 999_999_999).UTC(), bytes.Repeat([]byte{7}, 100_000)
	var logs []*raft.Log
	for i, log := range []raft.Log{
		{},
		{Term: 1, Type: raft.LogCommand, Data: []byte("data")},
		{Term: math.MaxUint64, Type: raft.LogNoop, Data: []byte{}},
		{Type: raft.LogBarrier, Extensions: []byte("extensions")},
		{Type: raft.LogConfiguration, Extensions: []byte{}, Data: []byte{0}},
		{Type: 255, Extensions: max, Data: max},
		{AppendedAt: time.Now().Round(0).UTC()},
		{AppendedAt: time.Unix(0, 1).UTC()},
		{AppendedAt: time.Unix(0, 0).UTC()},
		{AppendedAt: time.Time{}.Add(1)},
		{AppendedAt: wide},
		{AppendedAt: time.Date(1492, 10, 12, 2, 0, 0, 1, time.UTC)},
	} {
		log.Index = uint64(i + 1)
		logs = append(logs, &log)
	}
	for range 2 {
		store(t, s, logs...)
		wantLog(t, s, logs...)
		s = again(t, tg, o, s)
		wantLog(t, s, logs...)
	}
	zone := entry(100, 1)
	zone.AppendedAt = zone.AppendedAt.In(time.FixedZone("far", 5*3600))
	if err := s.StoreLog(zone); err != nil {
		t.Fatal(err)
	}
	wantEntry(t, s, zone)

	// What GetLog sets is the caller's.
	var log raft.Log
	if err := s.GetLog(6, &log); err != nil {
		t.Fatal(err)
	}
	_ = append(log.Extensions, 1)
	for i := range log.Data {
		log.Data[i], log.Extensions[i] = 9, 9
	}
	wantEntry(t, s, logs[5])
	// And what StoreLogs is given stays so.
	mine := entry(101, 1)
	store(t, s, mine)
	mine.Data[0] ^= 0xff
	wantEntry(t, s, entry(101, 1))
	closeStore(t, s)
}

func testAppend(t *testing.T, tg *target, o raftlog.Options) {
	s := openStore(t, tg.Engine, o)
	store(t, s, entry(1, 1))
	wantBounds(t, s, 1, 1)
	store(t, s, entries(2, 40, 1)...)
	for i := uint64(41); i <= 50; i++ {
		if err := s.StoreLog(entry(i, 2)); err != nil {
			t.Fatal(err)
		}
		wantBounds(t, s, 1, i)
	}
	want := append(entries(1, 40, 1), entries(41, 50, 2)...)
	wantLog(t, s, want...)
	s = again(t, tg, o, s)
	wantLog(t, s, want...)
	closeStore(t, s)
}

// Without the monotonic promise an index may be stored again, in one call too; the order of a call
// does not matter.
func testOverwrite(t *testing.T, tg *target, o raftlog.Options) {
	s := openStore(t, tg.Engine, o)
	store(t, s, entries(5, 10, 1)...)
	store(t, s, entry(7, 2), entry(9, 2), entry(7, 3))
	store(t, s, entries(10, 12, 4)...)
	store(t, s, entry(3, 5))
	store(t, s, entry(15, 6), entry(13, 6), entry(2, 6))
	want := []*raft.Log{entry(2, 6), entry(3, 5), entry(5, 1), entry(6, 1), entry(7, 3), entry(8, 1), entry(9, 2),
		entry(10, 4), entry(11, 4), entry(12, 4), entry(13, 6), entry(15, 6)}
	wantLog(t, s, want...)
	s = again(t, tg, o, s)
	wantLog(t, s, want...)
	closeStore(t, s)
}

// Index gaps, as raft leaves one after it has restored a snapshot, are accepted; the index 0 is one
// like any other.
func testGaps(t *testing.T, tg *target, o raftlog.Options) {
	s := openStore(t, tg.Engine, o)
	store(t, s, entry(0, 1))
	wantLog(t, s, entry(0, 1))
	s = again(t, tg, o, s)
	wantLog(t, s, entry(0, 1))
	store(t, s, entry(1, 1), entry(5, 1), entry(6, 1))
	store(t, s, entry(100, 2), entry(101, 2))
	wantLog(t, s, entry(0, 1), entry(1, 1), entry(5, 1), entry(6, 1), entry(100, 2), entry(101, 2))
	remove(t, s, 0, 3) // ends in a gap
	wantBounds(t, s, 5, 101)
	remove(t, s, 5, 6)
	wantBounds(t, s, 100, 101)
	store(t, s, entry(6, 3), entry(50, 3)) // into the gap, and before it
	remove(t, s, 60, 101)
	wantLog(t, s, entry(6, 3), entry(50, 3))
	remove(t, s, 7, 49)
	wantLog(t, s, entry(6, 3), entry(50, 3))
	s = again(t, tg, o, s)
	wantLog(t, s, entry(6, 3), entry(50, 3))
	remove(t, s, 0, 6)
	remove(t, s, 50, math.MaxUint64)
	wantLog(t, s)
	high := entries(math.MaxUint64-3, math.MaxUint64-1, 1)
	store(t, s, high...)
	s = again(t, tg, o, s)
	wantBounds(t, s, math.MaxUint64-3, math.MaxUint64-1)
	for _, log := range high {
		wantEntry(t, s, log)
	}
	wantNone(t, s, math.MaxUint64, math.MaxUint64-4)
	remove(t, s, 0, math.MaxUint64-2)
	wantBounds(t, s, math.MaxUint64-1, math.MaxUint64-1)
	closeStore(t, s)
}

// DeleteRange includes both ends, may be said again, and may name what is not there.
func testDelete(t *testing.T, tg *target, o raftlog.Options) {
	s := openStore(t, tg.Engine, o)
	store(t, s, entries(1, 30, 1)...)
	remove(t, s, 1, 5) // a prefix
	wantLog(t, s, entries(6, 30, 1)...)
	remove(t, s, 26, 30) // a suffix
	wantLog(t, s, entries(6, 25, 1)...)
	for range 2 {
		remove(t, s, 1, 5)
		remove(t, s, 26, 30)
		remove(t, s, 10, 12) // the middle
		wantLog(t, s, append(entries(6, 9, 1), entries(13, 25, 1)...)...)
		remove(t, s, 20, 19) // nothing
		remove(t, s, 0, 3)
		remove(t, s, 40, 50)
		remove(t, s, 11, 11)
		wantLog(t, s, append(entries(6, 9, 1), entries(13, 25, 1)...)...)
		s = again(t, tg, o, s)
		wantLog(t, s, append(entries(6, 9, 1), entries(13, 25, 1)...)...)
	}
	remove(t, s, 0, 9) // to the gap
	wantLog(t, s, entries(13, 25, 1)...)
	remove(t, s, 24, 100)
	wantLog(t, s, entries(13, 23, 1)...)
	// A conflict: the end of the log is written anew.
	remove(t, s, 20, 23)
	store(t, s, entries(20, 22, 2)...)
	want := append(entries(13, 19, 1), entries(20, 22, 2)...)
	wantLog(t, s, want...)
	s = again(t, tg, o, s)
	wantLog(t, s, want...)
	closeStore(t, s)
}

// Deletions of more than is removed at a time.
func testDeleteMany(t *testing.T, tg *target, o raftlog.Options) {
	s := openStore(t, tg.Engine, o)
	store(t, s, entries(1, 10_000, 1)...)
	store(t, s, entries(1<<40, 1<<40+10, 1)...)
	remove(t, s, 4, 5_000)
	wantNone(t, s, 4, 2500, 5_000)
	wantEntry(t, s, entry(3, 1))
	wantEntry(t, s, entry(5_001, 1))
	remove(t, s, 1, 9_990)
	wantBounds(t, s, 9_991, 1<<40+10)
	remove(t, s, 10_000, 1<<40+10)
	wantLog(t, s, entries(9_991, 9_999, 1)...)
	store(t, s, entries(10_000, 10_003, 2)...)
	want := append(entries(9_991, 9_999, 1), entries(10_000, 10_003, 2)...)
	wantLog(t, s, want...)
	s = again(t, tg, o, s)
	wantLog(t, s, want...)
	store(t, s, entries(10_004, 15_000, 2)...)
	remove(t, s, 0, math.MaxUint64)
	wantLog(t, s)
	s = again(t, tg, o, s)
	wantLog(t, s)
	closeStore(t, s)
}

// After everything is deleted the log may begin anew anywhere.
func testWipe(t *testing.T, tg *target, o raftlog.Options) {
	s := openStore(t, tg.Engine, o)
	for round, first := range []uint64{100, 7, 5_000, 0, 3} {
		term := uint64(round + 1)
		want := entries(first, first+20, term)
		store(t, s, want...)
		wantLog(t, s, want...)
		if round%2 == 0 {
			s = again(t, tg, o, s)
			wantLog(t, s, want...)
		}
		remove(t, s, first, first+20)
		wantLog(t, s)
		if round%2 == 1 {
			s = again(t, tg, o, s)
			wantLog(t, s)
		}
	}
	closeStore(t, s)
}

// A monotonic store refuses gaps and overwrites, and begins anywhere when it is empty.
func testMonotonic(t *testing.T, tg *target, o raftlog.Options) {
	o.Monotonic = true
	s := openStore(t, tg.Engine, o)
	if !s.IsMonotonic() {
		t.Fatal("it says it is not")
	}
	store(t, s, entries(10, 20, 1)...)
	for _, logs := range [][]*raft.Log{
		{entry(22, 1)}, {entry(20, 1)}, {entry(9, 1)}, {entry(0, 1)}, {entry(15, 1)},
		{entry(21, 1), entry(23, 1)}, {entry(21, 1), entry(21, 1)}, {entry(22, 1), entry(21, 1)},
	} {
		wantError(t, s.StoreLogs(logs), raftlog.ErrOrder)
	}
	wantError(t, s.DeleteRange(11, 19), raftlog.ErrOrder)
	wantError(t, s.DeleteRange(15, 15), raftlog.ErrOrder)
	wantLog(t, s, entries(10, 20, 1)...)
	store(t, s, entries(21, 22, 2)...)
	remove(t, s, 0, 12)
	remove(t, s, 0, 12)
	remove(t, s, 19, 22)
	remove(t, s, 30, 40)
	wantError(t, s.StoreLog(entry(20, 3)), raftlog.ErrOrder)
	store(t, s, entry(19, 3))
	s = again(t, tg, o, s)
	wantLog(t, s, append(entries(13, 18, 1), entry(19, 3))...)
	remove(t, s, 13, 19)
	wantError(t, s.StoreLogs([]*raft.Log{entry(6, 1), entry(5, 1)}), raftlog.ErrOrder)
	store(t, s, entries(5, 6, 4)...)
	wantLog(t, s, entries(5, 6, 4)...)
	// The promise is not bound to what is stored.
	o.Monotonic = false
	s = again(t, tg, o, s)
	store(t, s, entry(9, 5), entry(2, 5))
	o.Monotonic = true
	s = again(t, tg, o, s)
	wantLog(t, s, entry(2, 5), entry(5, 4), entry(6, 4), entry(9, 5))
	wantError(t, s.StoreLog(entry(11, 5)), raftlog.ErrOrder)
	store(t, s, entry(10, 5))
	closeStore(t, s)
}

// A missing stable key is an error of exactly that text, and 0 with it.
func testStable(t *testing.T, tg *target, o raftlog.Options) {
	s := openStore(t, tg.Engine, o)
	for _, key := range []string{"CurrentTerm", "", "\x00"} {
		if v, err := s.Get([]byte(key)); v != nil || err != raftlog.ErrKeyNotFound || err.Error() != "not found" {
			t.Fatalf("%q: %q, %v", key, v, err)
		}
		if v, err := s.GetUint64([]byte(key)); v != 0 || err == nil || err.Error() != "not found" {
			t.Fatalf("%q: %d, %v", key, v, err)
		}
	}
	store(t, s, entry(1, 1)) // an entry is no stable value
	set(t, s, "CurrentTerm", "first")
	set(t, s, "CurrentTerm", "second")
	set(t, s, "", "of the empty key")
	set(t, s, "\x00", "")
	if err := s.Set(nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.SetUint64([]byte("LastVoteTerm"), 1<<63+5); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("large", 100_000)
	set(t, s, "large", large)
	for range 3 {
		wantStable(t, s, "CurrentTerm", "second")
		wantStable(t, s, "", "")
		wantStable(t, s, "\x00", "")
		wantStable(t, s, "large", large)
		wantStable(t, s, "LastVoteTerm", "\x80\x00\x00\x00\x00\x00\x00\x05") // as raft-boltdb has it
		if v, err := s.GetUint64([]byte("LastVoteTerm")); err != nil || v != 1<<63+5 {
			t.Fatal(v, err)
		}
		_, err := s.GetUint64([]byte("CurrentTerm"))
		wantError(t, err, holdfast.ErrBadOption)
		keys, err := s.Keys()
		if got := fmt.Sprintf("%q", keys); err != nil || got != `["" "\x00" "CurrentTerm" "LastVoteTerm" "large"]` {
			t.Fatal(got, err)
		}
		// What Get returns is the caller's, and what Set is given stays so.
		v, err := s.Get([]byte("CurrentTerm"))
		if err != nil {
			t.Fatal(err)
		}
		v[0] = 'x'
		wantStable(t, s, "CurrentTerm", "second")
		mine := []byte("mine")
		if err := s.Set([]byte("large"), mine); err != nil {
			t.Fatal(err)
		}
		mine[0] = 'x'
		wantStable(t, s, "large", "mine")
		set(t, s, "large", large)
		s = again(t, tg, o, s)
	}
	remove(t, s, 0, math.MaxUint64)
	wantStable(t, s, "CurrentTerm", "second")
	closeStore(t, s)
}

// The staged commit index is stored with the next StoreLogs and never exceeds the last index.
func testCommit(t *testing.T, tg *target, o raftlog.Options) {
	s := openStore(t, tg.Engine, o)
	stageCommit(t, s, 3)
	wantCommit(t, s, 0)
	store(t, s, entries(1, 5, 1)...)
	wantCommit(t, s, 3)
	stageCommit(t, s, 4)
	wantCommit(t, s, 3)
	remove(t, s, 1, 1)
	wantCommit(t, s, 3)
	s = again(t, tg, o, s)
	wantCommit(t, s, 3) // what was only staged is gone
	store(t, s, entry(6, 1))
	wantCommit(t, s, 3)
	stageCommit(t, s, 5)
	stageCommit(t, s, 100)
	store(t, s, entry(7, 1))
	wantCommit(t, s, 7)
	s = again(t, tg, o, s)
	wantCommit(t, s, 7)
	store(t, s, entry(8, 1))
	wantCommit(t, s, 8)
	// Deleted and written anew: what is new is not committed.
	remove(t, s, 5, 8)
	wantCommit(t, s, 4)
	store(t, s, entries(5, 8, 2)...)
	wantCommit(t, s, 4)
	s = again(t, tg, o, s)
	wantCommit(t, s, 4)
	remove(t, s, 0, 5)
	wantCommit(t, s, 4)
	remove(t, s, 0, 100)
	wantCommit(t, s, 0)
	store(t, s, entries(50, 60, 3)...)
	wantCommit(t, s, 0)
	stageCommit(t, s, math.MaxUint64)
	store(t, s, entry(61, 3))
	wantCommit(t, s, 61)
	stageCommit(t, s, 0)
	store(t, s, entry(62, 3))
	s = again(t, tg, o, s)
	wantCommit(t, s, 0)
	closeStore(t, s)
}

// Stores of different names in one engine do not see each other, though one name begins with
// another; a name is open once.
func testNames(t *testing.T, tg *target, o raftlog.Options) {
	names := []string{"", "n", "na", strings.Repeat("n", raftlog.MaxNameSize)}
	var stores []*raftlog.Store
	open := func(i int) *raftlog.Store {
		return openStore(t, tg.Engine, raftlog.Options{Name: o.Name[:1] + names[i], Level: o.Level})
	}
	names[3] = names[3][1:]
	for i := range names {
		s := open(i)
		stores = append(stores, s)
		store(t, s, entries(uint64(i+1), uint64(10*i+10), uint64(i))...)
		set(t, s, "name", names[i])
		stageCommit(t, s, uint64(i+2))
		store(t, s, entry(uint64(10*i+11), uint64(i)))
		_, err := raftlog.Open(tg.Engine, raftlog.Options{Name: o.Name[:1] + names[i], Level: o.Level})
		wantError(t, err, holdfast.ErrLocked)
	}
	remove(t, stores[1], 0, math.MaxUint64)
	closeStore(t, stores[1])
	stores[1] = open(1)
	for i, s := range stores {
		if i == 1 {
			wantLog(t, s)
			wantCommit(t, s, 0)
		} else {
			wantLog(t, s, entries(uint64(i+1), uint64(10*i+11), uint64(i))...)
			wantCommit(t, s, uint64(i+2))
		}
		wantStable(t, s, "name", names[i])
		if keys, err := s.Keys(); err != nil || len(keys) != 1 {
			t.Fatal(keys, err)
		}
		closeStore(t, s)
	}
	_, err := raftlog.Open(tg.Engine, raftlog.Options{Name: strings.Repeat("n", raftlog.MaxNameSize+1), Level: o.Level})
	wantError(t, err, holdfast.ErrBadOption)
}

// Everything is there when store and engine are opened again, at another level too, and time and
// again.
func testReopen(t *testing.T, tg *target, o raftlog.Options) {
	s := openStore(t, tg.Engine, o)
	var want []*raft.Log
	for round := range uint64(5) {
		next := entries(10*round+1, 10*round+10, round)
		store(t, s, next...)
		want = append(want, next...)
		if round > 0 {
			remove(t, s, 0, want[3].Index)
			want = want[4:]
		}
		if err := s.SetUint64([]byte("CurrentTerm"), round); err != nil {
			t.Fatal(err)
		}
		s = again(t, tg, o, s)
		wantLog(t, s, want...)
		if v, err := s.GetUint64([]byte("CurrentTerm")); err != nil || v != round {
			t.Fatal(v, err)
		}
	}
	closeStore(t, s)
}

// After Close there is nothing but ErrClosed, and the name is free.
func testClosed(t *testing.T, tg *target, o raftlog.Options) {
	s := openStore(t, tg.Engine, o)
	store(t, s, entry(1, 1))
	set(t, s, "k", "v")
	closeStore(t, s)
	for name, err := range map[string]error{
		"FirstIndex": func() error { _, err := s.FirstIndex(); return err }(),
		"LastIndex":  func() error { _, err := s.LastIndex(); return err }(),
		"GetLog":     s.GetLog(1, new(raft.Log)),
		"StoreLog":   s.StoreLog(entry(2, 1)),
		"overwrite":  s.StoreLog(entry(1, 1)),
		"StoreLogs":  s.StoreLogs(nil),
		"Delete":     s.DeleteRange(1, 1),
		"Set":        s.Set([]byte("k"), nil),
		"Get":        func() error { _, err := s.Get([]byte("k")); return err }(),
		"Get none":   func() error { _, err := s.Get([]byte("none")); return err }(),
		"SetUint64":  s.SetUint64([]byte("k"), 1),
		"GetUint64":  func() error { _, err := s.GetUint64([]byte("k")); return err }(),
		"Stage":      s.StageCommitIndex(1),
		"Commit":     func() error { _, err := s.GetCommitIndex(); return err }(),
		"Keys":       func() error { _, err := s.Keys(); return err }(),
		"Close":      s.Close(),
	} {
		if err != holdfast.ErrClosed {
			t.Errorf("%s: %v", name, err)
		}
	}
	s = openStore(t, tg.Engine, o)
	wantLog(t, s, entry(1, 1))
	closeStore(t, s)
}

// What cannot be done is an error that says why, and changes nothing.
func TestBadInput(t *testing.T) {
	s := memStore(t, raftlog.Options{})
	store(t, s, entry(1, 1))
	for _, c := range []struct {
		err, class error
		text       string
	}{
		{s.StoreLog(nil), holdfast.ErrBadOption, "nil"},
		{s.StoreLogs([]*raft.Log{entry(2, 1), nil}), holdfast.ErrBadOption, "entry 1 of the call is nil"},
		{s.StoreLogs([]*raft.Log{entry(2, 1), entry(math.MaxUint64, 1)}), holdfast.ErrBadOption, "18446744073709551615"},
		{s.GetLog(1, nil), holdfast.ErrBadOption, "entry 1"},
		{s.StoreLogs([]*raft.Log{entry(2, 1), {Index: 3, Data: make([]byte, holdfast.MaxValueSize)}}), holdfast.ErrTooLarge,
			"entry 3 takes 67108871 bytes, the limit is 67108864"},
		{s.Set([]byte("key"), make([]byte, holdfast.MaxValueSize)), holdfast.ErrTooLarge,
			"67108869 bytes, the limit is 67108864"},
		{s.Set(make([]byte, holdfast.MaxKeySize), nil), holdfast.ErrBadKey, "16387 bytes, the limit is 16384"},
	} {
		wantError(t, c.err, c.class)
		if !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("%q does not say %q", c.err, c.text)
		}
	}
	if _, err := s.Get(make([]byte, holdfast.MaxKeySize)); err != raftlog.ErrKeyNotFound {
		t.Error(err)
	}
	wantLog(t, s, entry(1, 1))
	// The largest that fits.
	large := &raft.Log{Index: 2, Data: make([]byte, holdfast.MaxValueSize-7)}
	store(t, s, large)
	wantEntry(t, s, large)
}

// A weaker level is said once, as unsafe for votes.
func TestWarning(t *testing.T) {
	targets(t, func(t *testing.T, tg *target) {
		var said bytes.Buffer
		s := openStore(t, tg.Engine, raftlog.Options{Level: tg.Level, Logger: slog.New(slog.NewTextHandler(&said, nil))})
		store(t, s, &raft.Log{Index: 1})
		closeStore(t, s)
		want := map[bool]int{false: 1}[tg.Level == holdfast.Power]
		if strings.Count(said.String(), "level=WARN") != want || strings.Count(said.String(), "unsafe for votes") != want {
			t.Errorf("%q", said.String())
		}
	})
}

// The zero options mean Power, which not every engine gives.
func TestDefaultLevel(t *testing.T) {
	_, err := raftlog.Open(mem.New(), raftlog.Options{})
	wantError(t, err, holdfast.ErrLevel)
	tg := storetest.NewTarget(t, all.Engines()[0], holdfast.Power)
	defer tg.Close(t)
	s := openStore(t, tg.Engine, raftlog.Options{})
	if s.Level() != holdfast.Power {
		t.Error(s.Level())
	}
	closeStore(t, s)
}

// TestStagedGoesDownWithTheLog: what was staged for entries that have been deleted says nothing of those that take
// their places.
func TestStagedGoesDownWithTheLog(t *testing.T) {
	s, err := raftlog.Open(mem.New(), raftlog.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	entries := func(term uint64, from, to uint64) (list []*raft.Log) {
		for i := from; i <= to; i++ {
			list = append(list, &raft.Log{Index: i, Term: term})
		}
		return list
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(s.StoreLogs(entries(1, 1, 10)))
	stageCommit(t, s, 12) // ahead of the log
	ok(s.DeleteRange(1, 2))
	stageCommit(t, s, 10)
	ok(s.DeleteRange(6, 10))
	ok(s.StoreLogs(entries(2, 6, 9)))
	if got, err := s.GetCommitIndex(); err != nil || got != 5 {
		t.Errorf("the commit index is %d, %v, want 5", got, err)
	}
	stageCommit(t, s, 12)
	ok(s.DeleteRange(3, 4)) // from the front: what is staged stays
	ok(s.StoreLogs(entries(2, 10, 12)))
	if got, err := s.GetCommitIndex(); err != nil || got != 12 {
		t.Errorf("the commit index is %d, %v, want 12", got, err)
	}
}
