package bench

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/lab/contender"
)

// TestPropose: what both libraries commit, from clients at once, is in each kind of store afterwards.
func TestPropose(t *testing.T) {
	for i, w := range proposeWorkloads() {
		peers := [][]all.Entry{contender.Engines(), contender.EtcdEngines()}[i]
		peers = append(peers, all.Entry{Name: "logtree", Open: logtree.Open}, all.Entry{Name: "mem", Open: mem.Open})
		for _, e := range peers {
			t.Run(w.Name+"/"+e.Name, func(t *testing.T) {
				dir, level := t.TempDir(), holdfast.Power
				if e.Name == mem.Name {
					dir, level = "", holdfast.Memory
				}
				load, err := w.Engine(Task{Level: level, Clients: 8, Seed: 1,
					Open: func() (holdfast.Engine, error) { return e.Open(dir, holdfast.Options{Level: level}) }})
				if err != nil {
					t.Fatal(err)
				}
				var clients sync.WaitGroup
				for i := range 8 {
					clients.Go(func() {
						if err := times(10, load.Client(i)); err != nil {
							t.Error(err)
						}
					})
				}
				clients.Wait()
				verify := func() {
					if items, checked, err := load.Verify(); items != 80 || checked != 80 || err != nil {
						t.Errorf("%d items, %d checked, %v", items, checked, err)
					}
				}
				if load.Volatile {
					verify()
				}
				if err := load.Close(); err != nil {
					t.Fatal(err)
				}
				if !load.Volatile {
					verify()
				}
			})
		}
	}
}

// TestProposeVerificationCatches: a proposal that is lost, there twice, never made or spoilt is seen.
func TestProposeVerificationCatches(t *testing.T) {
	p := newProposals(1)
	var list [][]byte
	client := p.client(func(data []byte) error { list = append(list, data); return nil })
	if err := times(3, client); err != nil {
		t.Fatal(err)
	}
	look := func(list ...[]byte) error {
		s := &seen{p, map[uint64]bool{}}
		for _, data := range list {
			if err := s.add(data); err != nil {
				return err
			}
		}
		_, _, err := s.all()
		return err
	}
	if err := look(list...); err != nil {
		t.Fatal(err)
	}
	spoilt := append([]byte{}, list[2]...)
	spoilt[100] ^= 1
	other := p.values.lay(make([]byte, raftData))
	p.values.fill(other, 9, 0)
	for i, wrong := range [][][]byte{list[:2], {list[0], list[1], list[1]}, {list[0], list[1], spoilt},
		{list[0], list[1], other}, {list[0], list[1], list[2][:100]}} {
		if err := look(wrong...); !errors.Is(err, ErrWrong) {
			t.Errorf("case %d: %v", i, err)
		}
	}
}

// failing is a store of etcd's Raft whose writes fail from when the test says so.
type failing struct {
	contender.EtcdStore
	err atomic.Pointer[error]
}

func (f *failing) Save(rd raft.Ready) error {
	if err := f.err.Load(); err != nil {
		return *err
	}
	return f.EtcdStore.Save(rd)
}

// TestProposeFails: whoever waits for a proposal is told that it failed.
func TestProposeFails(t *testing.T) {
	below, shut, err := contender.OpenEtcd(mem.New(), holdfast.Memory)
	if err != nil {
		t.Fatal(err)
	}
	store := &failing{EtcdStore: below}
	n, err := startEtcd(store)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.propose([]byte("one")); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	store.err.Store(&boom)
	for range 2 {
		if err := n.propose([]byte("two")); !errors.Is(err, boom) {
			t.Error(err)
		}
	}
	if err := n.stop(); !errors.Is(err, boom) {
		t.Error(err)
	}
	if err := shut(); err != nil {
		t.Error(err)
	}
}
