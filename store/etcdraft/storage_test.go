package etcdraft_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/etcdraft"
)

// The cases here are those that etcd tests raft.MemoryStorage with. Each runs on every engine at every level, with the
// log in memory and without, and after a reopening too; the answers must be MemoryStorage's.

// both are a store and what it is to be like.
type both struct {
	*etcdraft.Store
	memory *raft.MemoryStorage
	o      etcdraft.Options
	tg     *storetest.Target
}

// begin is a log whose entry 3, of term 3, was compacted, and which goes on with these.
func begin(t *testing.T, tg *storetest.Target, o etcdraft.Options, list []*raftpb.Entry) *both {
	t.Helper()
	b := &both{openStore(t, tg.Engine, o), raft.NewMemoryStorage(), o, tg}
	snap := snapshot(3, 3, 1, 2, 3)
	try(t, b.Save(raft.Ready{Snapshot: snap, Entries: list}))
	try(t, b.memory.ApplySnapshot(snap))
	try(t, b.memory.Append(list))
	return b
}

// end compares them, reopens the store and compares again.
func (b *both) end(t *testing.T) {
	t.Helper()
	try(t, differs(b.Store, b.memory))
	try(t, b.Close())
	b.tg.Reopen(t)
	b.Store = openStore(t, b.tg.Engine, b.o)
	try(t, differs(b.Store, b.memory))
	try(t, b.Close())
}

func everywhere(t *testing.T, f func(t *testing.T, tg *storetest.Target, o func() etcdraft.Options)) {
	storetest.Targets(t, func(t *testing.T, tg *storetest.Target) {
		n := 0
		for _, cache := range []int{0, -1} {
			f(t, tg, func() etcdraft.Options {
				n++
				return etcdraft.Options{Name: fmt.Sprint("case ", n, cache), Level: tg.Level, CacheBytes: cache}
			})
		}
	})
}

func TestTerm(t *testing.T) {
	everywhere(t, func(t *testing.T, tg *storetest.Target, o func() etcdraft.Options) {
		b := begin(t, tg, o(), entries(4, 4, 5))
		for _, c := range []struct {
			index, term uint64
			err         error
		}{
			{2, 0, raft.ErrCompacted}, {3, 3, nil}, {4, 4, nil}, {5, 5, nil}, {6, 0, raft.ErrUnavailable},
			{0, 0, raft.ErrCompacted}, {math.MaxUint64, 0, raft.ErrUnavailable},
		} {
			if term, err := b.Term(c.index); term != c.term || err != c.err {
				t.Errorf("term of %d: %d, %v, want %d, %v", c.index, term, err, c.term, c.err)
			}
		}
		b.end(t)
	})
}

func TestEntries(t *testing.T) {
	everywhere(t, func(t *testing.T, tg *storetest.Target, o func() etcdraft.Options) {
		list := entries(4, 4, 5, 6)
		size := func(n int) (sum uint64) {
			for _, e := range list[:n] {
				sum += uint64(proto.Size(e))
			}
			return sum
		}
		b := begin(t, tg, o(), list)
		for _, c := range []struct {
			lo, hi, size uint64
			err          error
			want         []*raftpb.Entry
		}{
			{2, 6, math.MaxUint64, raft.ErrCompacted, nil},
			{3, 4, math.MaxUint64, raft.ErrCompacted, nil},
			{4, 5, math.MaxUint64, nil, list[:1]},
			{4, 6, math.MaxUint64, nil, list[:2]},
			{4, 7, math.MaxUint64, nil, list},
			{5, 5, math.MaxUint64, nil, nil},
			{4, 7, 0, nil, list[:1]},
			{4, 7, size(2), nil, list[:2]},
			{4, 7, size(2) + (size(3)-size(2))/2, nil, list[:2]},
			{4, 7, size(3) - 1, nil, list[:2]},
			{4, 7, size(3), nil, list},
			{4, 8, math.MaxUint64, raft.ErrUnavailable, nil}, // where raft's own panics
			{7, 5, math.MaxUint64, raft.ErrUnavailable, nil},
		} {
			got, err := b.Entries(c.lo, c.hi, c.size)
			if err != c.err {
				t.Errorf("%d to %d: %v, want %v", c.lo, c.hi, err, c.err)
			}
			try(t, same(got, c.want))
			_ = append(got, entry(99, 99)) // the slice is the caller's
		}
		b.end(t)
		// Only what is before the first entry is there.
		b = begin(t, tg, o(), nil)
		if _, err := b.Entries(4, 4, 0); err != raft.ErrUnavailable {
			t.Error(err)
		}
		b.end(t)
	})
}

func TestIndexes(t *testing.T) {
	everywhere(t, func(t *testing.T, tg *storetest.Target, o func() etcdraft.Options) {
		b := begin(t, tg, o(), entries(4, 4, 5))
		want := func(first, last uint64) {
			t.Helper()
			f, err := b.FirstIndex()
			try(t, err)
			l, err := b.LastIndex()
			try(t, err)
			if f != first || l != last {
				t.Fatalf("%d to %d, want %d to %d", f, l, first, last)
			}
		}
		want(4, 5)
		try(t, b.Save(raft.Ready{Entries: entries(6, 5)}))
		try(t, b.memory.Append(entries(6, 5)))
		want(4, 6)
		try(t, b.Compact(4))
		try(t, b.memory.Compact(4))
		want(5, 6)
		b.end(t)
	})
}

func TestCompact(t *testing.T) {
	everywhere(t, func(t *testing.T, tg *storetest.Target, o func() etcdraft.Options) {
		for index, want := range map[uint64]error{2: raft.ErrCompacted, 3: raft.ErrCompacted, 4: nil, 5: nil,
			6: holdfast.ErrBadOption} {
			b := begin(t, tg, o(), entries(4, 4, 5))
			err := b.Compact(index)
			_, wantErr := ask(func() (int, error) { return 0, b.memory.Compact(index) })
			if wantErr == errPanic {
				storetest.WantError(t, err, holdfast.ErrBadOption)
			} else if err != wantErr || err != want {
				t.Errorf("up to %d: %v, want %v", index, err, want)
			}
			b.end(t)
		}
	})
}

func TestCreateSnapshot(t *testing.T) {
	everywhere(t, func(t *testing.T, tg *storetest.Target, o func() etcdraft.Options) {
		conf := &raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}}
		for index, want := range map[uint64]error{2: raft.ErrSnapOutOfDate, 3: raft.ErrSnapOutOfDate, 4: nil, 5: nil,
			6: holdfast.ErrBadOption} {
			for _, conf := range []*raftpb.ConfState{conf, nil} {
				b := begin(t, tg, o(), entries(4, 4, 5))
				snap, err := b.CreateSnapshot(index, conf, []byte("data"))
				wantSnap, wantErr := ask(func() (*raftpb.Snapshot, error) {
					return b.memory.CreateSnapshot(index, conf, []byte("data"))
				})
				if wantErr == errPanic {
					storetest.WantError(t, err, holdfast.ErrBadOption)
				} else if err != wantErr || err != want || !proto.Equal(snap, wantSnap) {
					t.Errorf("at %d: %v, %v, want %v, %v", index, snap, err, wantSnap, want)
				}
				b.end(t)
			}
		}
		b := begin(t, tg, o(), entries(4, 4, 5))
		try(t, b.Compact(5))
		try(t, b.memory.Compact(5))
		if _, err := b.CreateSnapshot(4, nil, nil); err != raft.ErrCompacted {
			t.Error(err)
		}
		b.end(t)
	})
}

func TestAppend(t *testing.T) {
	everywhere(t, func(t *testing.T, tg *storetest.Target, o func() etcdraft.Options) {
		for _, list := range [][]*raftpb.Entry{
			nil,
			entries(1, 1, 2),
			entries(3, 3, 4, 5),
			entries(3, 3, 6, 6),
			entries(3, 3, 4, 5, 5),
			entries(2, 3, 3, 5), // its beginning was compacted, and it replaces the end
			entries(4, 5),
			entries(6, 5),
		} {
			b := begin(t, tg, o(), entries(4, 4, 5))
			try(t, b.Save(raft.Ready{Entries: list}))
			try(t, b.memory.Append(list))
			b.end(t)
		}
		b := begin(t, tg, o(), entries(4, 4, 5))
		for _, list := range [][]*raftpb.Entry{
			entries(7, 5), // a gap
			append(entries(6, 5), entries(8, 5)...),
			append(entries(6, 5), entries(6, 5)...),
		} {
			storetest.WantError(t, b.Save(raft.Ready{Entries: list, HardState: hardState(9, 9, 5)}), holdfast.ErrBadOption)
		}
		b.end(t)
	})
}

func TestApplySnapshot(t *testing.T) {
	everywhere(t, func(t *testing.T, tg *storetest.Target, o func() etcdraft.Options) {
		members := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{ConfState: &raftpb.ConfState{Voters: []uint64{1}}}}
		for _, list := range [][]*raftpb.Snapshot{
			{snapshot(4, 4, 1, 2, 3)},
			{snapshot(4, 4, 1, 2, 3), snapshot(3, 3, 1, 2, 3)},
			{snapshot(4, 4, 1, 2, 3), snapshot(4, 5, 1, 2, 3)},
			{members},
			{members, members, snapshot(4, 4, 1)},
		} {
			b := &both{openStore(t, tg.Engine, o()), raft.NewMemoryStorage(), etcdraft.Options{}, tg}
			try(t, differs(b.Store, b.memory))
			for i, snap := range list {
				if err, want := b.ApplySnapshot(snap), b.memory.ApplySnapshot(snap); err != want {
					t.Errorf("snapshot %d: %v, want %v", i, err, want)
				}
			}
			try(t, differs(b.Store, b.memory))
			try(t, b.Close())
		}
		// One that begins a group does not empty a log that has begun.
		begun := openStore(t, tg.Engine, o())
		try(t, errors.Join(begun.ApplySnapshot(members), begun.Save(raft.Ready{Entries: entries(1, 1, 1)})))
		if err := begun.ApplySnapshot(members); err != raft.ErrSnapOutOfDate {
			t.Errorf("begun again: %v", err)
		}
		if last, err := begun.LastIndex(); last != 2 || err != nil {
			t.Errorf("the last index is %d, %v", last, err)
		}
		storetest.WantError(t, begun.ApplySnapshot(nil), holdfast.ErrBadOption)
		try(t, begun.Close())
		// One of before what was compacted without a snapshot.
		b := &both{o: o(), memory: raft.NewMemoryStorage(), tg: tg}
		b.Store = openStore(t, tg.Engine, b.o)
		list := entries(1, 1, 1, 1, 1, 1)
		try(t, errors.Join(b.Save(raft.Ready{Entries: list}), b.memory.Append(list), b.Compact(4), b.memory.Compact(4)))
		try(t, errors.Join(b.ApplySnapshot(snapshot(2, 1, 1)), b.memory.ApplySnapshot(snapshot(2, 1, 1))))
		b.end(t)
	})
}
