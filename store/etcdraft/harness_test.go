package etcdraft_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/etcdraft"
)

var inMemory = etcdraft.Options{Level: holdfast.Memory}

func try(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

func openStore(t testing.TB, eng holdfast.Engine, o etcdraft.Options) *etcdraft.Store {
	t.Helper()
	s, err := etcdraft.Open(eng, o)
	try(t, err)
	return s
}

// entry is the entry at index in term: all of it follows from them.
func entry(index, term uint64) *raftpb.Entry {
	e := &raftpb.Entry{Index: &index, Term: &term, Type: raftpb.EntryNormal.Enum()}
	switch index % 4 {
	case 0:
		e.Data = []byte{}
	case 1, 2:
		e.Data = fmt.Appendf(nil, "data of %d in %d", index, term)
	}
	return e
}

// entries are those from index first on, of these terms.
func entries(first uint64, terms ...uint64) (list []*raftpb.Entry) {
	for i, term := range terms {
		list = append(list, entry(first+uint64(i), term))
	}
	return list
}

func snapshot(index, term uint64, voters ...uint64) *raftpb.Snapshot {
	return &raftpb.Snapshot{Data: fmt.Appendf(nil, "state at %d", index), Metadata: &raftpb.SnapshotMetadata{
		Index: &index, Term: &term, ConfState: &raftpb.ConfState{Voters: voters}}}
}

func hardState(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

// same returns an error unless both are the same entries.
func same(got, want []*raftpb.Entry) error {
	if len(got) != len(want) {
		return fmt.Errorf("got %d entries, want %d", len(got), len(want))
	}
	for i := range got {
		if !proto.Equal(got[i], want[i]) {
			return fmt.Errorf("got %v, want %v", got[i], want[i])
		}
	}
	return nil
}

// ask asks a raft.Storage; what panics is an error.
func ask[T any](f func() (T, error)) (answer T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errPanic
		}
	}()
	return f()
}

var errPanic = errors.New("it panicked")

func init() { raft.SetLogger(&raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)}) }

// differs returns an error that names in what a store answers otherwise than raft's own.
func differs(s, want raft.Storage) error {
	hard, conf, err := s.InitialState()
	wantHard, wantConf, _ := want.InitialState()
	if err != nil || !proto.Equal(hard, wantHard) || !proto.Equal(conf, wantConf) {
		return fmt.Errorf("initial state %v, %v, %v, want %v, %v", hard, conf, err, wantHard, wantConf)
	}
	first, err := s.FirstIndex()
	if wantFirst, _ := want.FirstIndex(); err != nil || first != wantFirst {
		return fmt.Errorf("first index %d, %v, want %d", first, err, wantFirst)
	}
	last, err := s.LastIndex()
	if wantLast, _ := want.LastIndex(); err != nil || last != wantLast {
		return fmt.Errorf("last index %d, %v, want %d", last, err, wantLast)
	}
	snap, err := s.Snapshot()
	if wantSnap, _ := want.Snapshot(); err != nil || !proto.Equal(snap, wantSnap) {
		return fmt.Errorf("snapshot %v, %v, want %v", snap, err, wantSnap)
	}
	from := first - min(first, 3)
	for i := from; i < last+3; i++ {
		got, err := s.Term(i)
		if term, wantErr := want.Term(i); got != term || err != wantErr {
			return fmt.Errorf("term of %d: %d, %v, want %d, %v", i, got, err, term, wantErr)
		}
	}
	for lo := from; lo < last+2; lo += 1 + (last-from)/7 {
		for hi := lo; hi < last+3; hi += 1 + (last-from)/5 {
			for _, size := range []uint64{0, 60, math.MaxUint64} {
				got, err := s.Entries(lo, hi, size)
				list, wantErr := ask(func() ([]*raftpb.Entry, error) { return want.Entries(lo, hi, size) })
				if wantErr == errPanic {
					wantErr = raft.ErrUnavailable
				}
				if err != wantErr {
					return fmt.Errorf("entries %d to %d: %v, want %v", lo, hi, err, wantErr)
				}
				if err := same(got, list); err != nil {
					return fmt.Errorf("entries %d to %d of %d bytes: %w", lo, hi, size, err)
				}
			}
		}
	}
	return nil
}
