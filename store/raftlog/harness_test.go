package raftlog_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

func TestMain(m *testing.M) { storetest.Main(m, child) }

type (
	fakeEngine = storetest.FakeEngine
	target     = storetest.Target
)

var (
	newFakeEngine = storetest.NewFakeEngine
	fakeEngines   = storetest.FakeEngines
	targets       = storetest.Targets

	wantError  = storetest.WantError
	async      = storetest.Async
	unfinished = storetest.Unfinished
	finished   = storetest.Finished
)

func openStore(t testing.TB, eng holdfast.Engine, o raftlog.Options) *raftlog.Store {
	t.Helper()
	s, err := raftlog.Open(eng, o)
	try(t, err)
	return s
}

func closeStore(t testing.TB, s *raftlog.Store) {
	t.Helper()
	storetest.Close(t, s)
}

var inMemory = raftlog.Options{Level: holdfast.Memory}

// memStore is a store in a new engine in memory, closed at the end of the test.
func memStore(t testing.TB, o raftlog.Options) *raftlog.Store {
	t.Helper()
	o.Level = holdfast.Memory
	s := openStore(t, mem.New(), o)
	storetest.CloseAtEnd(t, s)
	return s
}

// entry is the entry at index in term: all of it follows from them.
func entry(index, term uint64) *raft.Log {
	log := &raft.Log{Index: index, Term: term, Type: raft.LogType(index % 6),
		Data: fmt.Appendf(nil, "data of %d in %d", index, term)}
	if index%3 == 0 {
		log.Extensions = fmt.Appendf(nil, "extensions of %d", index)
	}
	if index%5 != 0 {
		log.AppendedAt = time.Unix(1_700_000_000+int64(index), int64(term)).UTC()
	}
	return log
}

// entries are those from lo to hi in term.
func entries(lo, hi, term uint64) []*raft.Log {
	var logs []*raft.Log
	for i := lo; i <= hi; i++ {
		logs = append(logs, entry(i, term))
	}
	return logs
}

func store(t testing.TB, s *raftlog.Store, logs ...*raft.Log) {
	t.Helper()
	try(t, s.StoreLogs(logs))
}

func remove(t testing.TB, s *raftlog.Store, min, max uint64) {
	t.Helper()
	try(t, s.DeleteRange(min, max))
}

// same returns an error that names in what two entries differ.
func same(got, want *raft.Log) error {
	g, w := *got, *want
	g.AppendedAt, w.AppendedAt = time.Time{}, time.Time{}
	if !reflect.DeepEqual(g, w) || !got.AppendedAt.Equal(want.AppendedAt) || got.AppendedAt.Location() != time.UTC {
		return fmt.Errorf("got %+v, want %+v", got, want)
	}
	return nil
}

func wantBounds(t testing.TB, s *raftlog.Store, first, last uint64) {
	t.Helper()
	f, err := s.FirstIndex()
	try(t, err)
	l, err := s.LastIndex()
	try(t, err)
	if f != first || l != last {
		t.Fatalf("the log goes from %d to %d, want %d to %d", f, l, first, last)
	}
}

func wantEntry(t testing.TB, s *raftlog.Store, want *raft.Log) {
	t.Helper()
	var got raft.Log
	if err := s.GetLog(want.Index, &got); err != nil {
		t.Fatalf("entry %d: %v", want.Index, err)
	}
	try(t, same(&got, want))
}

func wantNone(t testing.TB, s *raftlog.Store, indexes ...uint64) {
	t.Helper()
	for _, index := range indexes {
		if err := s.GetLog(index, new(raft.Log)); err != raft.ErrLogNotFound {
			t.Fatalf("entry %d: %v", index, err)
		}
	}
}

// wantLog checks that the log holds these entries and no others.
func wantLog(t testing.TB, s *raftlog.Store, logs ...*raft.Log) {
	t.Helper()
	if len(logs) == 0 {
		wantBounds(t, s, 0, 0)
		wantNone(t, s, 0, 1)
		return
	}
	logs = slices.Clone(logs)
	slices.SortFunc(logs, func(a, b *raft.Log) int { return int(int64(a.Index - b.Index)) })
	wantBounds(t, s, logs[0].Index, logs[len(logs)-1].Index)
	at := logs[0].Index
	if at > 0 {
		wantNone(t, s, at-1)
	}
	for _, log := range logs {
		for ; at < log.Index; at++ {
			wantNone(t, s, at)
		}
		wantEntry(t, s, log)
		at++
	}
	wantNone(t, s, at, at+1, 1<<64-1)
}

func wantStable(t testing.TB, s *raftlog.Store, key, want string) {
	t.Helper()
	if got, err := s.Get([]byte(key)); err != nil || string(got) != want {
		t.Fatalf("key %q: %q, %v, want %q", key, got, err, want)
	}
}

func wantCommit(t testing.TB, s *raftlog.Store, want uint64) {
	t.Helper()
	if got, err := s.GetCommitIndex(); err != nil || got != want {
		t.Fatalf("the commit index is %d, %v, want %d", got, err, want)
	}
}

func set(t testing.TB, s *raftlog.Store, key, value string) {
	t.Helper()
	try(t, s.Set([]byte(key), []byte(value)))
}

func stageCommit(t testing.TB, s *raftlog.Store, index uint64) {
	t.Helper()
	try(t, s.StageCommitIndex(index))
}

// try ends the test with err, unless it is nil.
func try(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}
