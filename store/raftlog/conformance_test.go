package raftlog_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// TestConformance checks the store's promises on every engine at every level that it gives.
func TestConformance(t *testing.T) {
	cases := []conformanceCase{
		{"Fields", testFields},
		{"Stable", testStable},
		{"Names", testNames},
		{"Reopen", testReopen},
		{"Closed", testClosed},
		{"EngineGone", testEngineGone},
	}
	text, err := os.ReadFile("testdata/conformance.txt")
	try(t, err)
	for _, script := range strings.Split(string(text), "\n== ")[1:] {
		name, lines, _ := strings.Cut(script, "\n")
		name, _, _ = strings.Cut(name, ":")
		cases = append(cases, conformanceCase{name, func(t *testing.T, tg *target, o raftlog.Options) {
			runScript(t, tg, o, lines)
		}})
	}
	targets(t, func(t *testing.T, tg *target) {
		for i, c := range cases {
			t.Run(c.name, func(t *testing.T) { c.run(t, tg, raftlog.Options{Name: fmt.Sprint("case", i), Level: tg.Level}) })
		}
	})
}

type conformanceCase struct {
	name string
	run  func(t *testing.T, tg *target, o raftlog.Options)
}

// runScript runs one script of testdata/conformance.txt.
func runScript(t *testing.T, tg *target, o raftlog.Options, lines string) {
	s := openStore(t, tg.Engine, o)
	defer func() { closeStore(t, s) }()
	for line := range strings.Lines(lines) {
		line, _, _ = strings.Cut(line, "#")
		args := strings.Fields(line)
		if len(args) == 0 {
			continue
		}
		class := error(nil)
		if args[0] == "refused" {
			args, class = args[1:], raftlog.ErrOrder
		}
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			var err error
			switch args[0] {
			case "store":
				err = s.StoreLogs(parseEntries(t, args[1:]))
			case "delete":
				err = s.DeleteRange(parseIndex(t, args[1]), parseIndex(t, args[2]))
			case "stage":
				err = s.StageCommitIndex(parseIndex(t, args[1]))
			case "reopen":
				if len(args) > 1 {
					o.Monotonic = args[1] == "monotonic"
				}
				if s = again(t, tg, o, s); s.IsMonotonic() != o.Monotonic || s.Level() != tg.Level {
					t.Fatal(s.IsMonotonic(), s.Level())
				}
			case "log":
				wantLog(t, s, parseEntries(t, args[1:])...)
			case "bounds":
				wantBounds(t, s, parseIndex(t, args[1]), parseIndex(t, args[2]))
			case "has":
				for _, log := range parseEntries(t, args[1:]) {
					wantEntry(t, s, log)
				}
			case "none":
				for _, arg := range args[1:] {
					wantNone(t, s, parseIndex(t, arg))
				}
			case "commit":
				wantCommit(t, s, parseIndex(t, args[1]))
			default:
				t.Fatal("no such command")
			}
			if class != nil || err != nil {
				wantError(t, err, class)
			}
		})
		if t.Failed() {
			t.FailNow()
		}
	}
}

// parseEntries reads entries as INDEX/TERM or FROM-TO/TERM.
func parseEntries(t *testing.T, args []string) (logs []*raft.Log) {
	t.Helper()
	for _, arg := range args {
		span, term, _ := strings.Cut(arg, "/")
		lo, hi, ok := strings.Cut(span, "-")
		if !ok {
			hi = lo
		}
		logs = append(logs, entries(parseIndex(t, lo), parseIndex(t, hi), parseIndex(t, term))...)
	}
	return logs
}

func parseIndex(t *testing.T, arg string) uint64 {
	t.Helper()
	if arg == "max" {
		return math.MaxUint64
	}
	n, err := strconv.ParseUint(arg, 10, 64)
	try(t, err)
	return n
}

// again closes the store and opens it, and the engine with it.
func again(t *testing.T, tg *target, o raftlog.Options, s *raftlog.Store) *raftlog.Store {
	t.Helper()
	closeStore(t, s)
	tg.Reopen(t)
	return openStore(t, tg.Engine, o)
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
	try(t, s.StoreLog(zone))
	wantEntry(t, s, zone)

	// What GetLog sets is the caller's.
	var log raft.Log
	try(t, s.GetLog(6, &log))
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
	try(t, s.Set(nil, nil))
	try(t, s.SetUint64([]byte("LastVoteTerm"), 1<<63+5))
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
		try(t, err)
		v[0] = 'x'
		wantStable(t, s, "CurrentTerm", "second")
		mine := []byte("mine")
		try(t, s.Set([]byte("large"), mine))
		mine[0] = 'x'
		wantStable(t, s, "large", "mine")
		set(t, s, "large", large)
		s = again(t, tg, o, s)
	}
	remove(t, s, 0, math.MaxUint64)
	wantStable(t, s, "CurrentTerm", "second")
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
		try(t, s.SetUint64([]byte("CurrentTerm"), round))
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
	tg := storetest.NewTarget(t, storetest.Engines()[0], holdfast.Power)
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
	try(t, err)
	entries := func(term uint64, from, to uint64) (list []*raft.Log) {
		for i := from; i <= to; i++ {
			list = append(list, &raft.Log{Index: i, Term: term})
		}
		return list
	}
	ok := func(err error) {
		t.Helper()
		try(t, err)
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
