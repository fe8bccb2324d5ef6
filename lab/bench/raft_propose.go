package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	etcd "go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfastdb/holdfast/lab/contender"
)

// raftPropose is proposals to a node that is a group of its own, so that nothing is measured but the library and its
// store. With many clients those that wait together are one append: up to raftBatch, as both libraries have it.
type raftPropose struct{}

// proposeWorkloads are the same proposals to both libraries.
func proposeWorkloads() []Workload {
	p := raftPropose{}
	w := func(name, library string, store StoreKind, engine func(Task) (Load, error)) Workload {
		return Workload{
			Name: name, About: "proposals of 128 bytes to a node of " + library + " that is alone, until they are committed",
			Unit: "proposals", Items: 1, ItemBytes: raftIndexSize + raftData, Store: store, Clients: []int{1, raftBatch},
			Overhead: 500 * time.Millisecond,
			Engine:   engine, Floor: p.floor, Null: p.null,
		}
	}

	return []Workload{
		w("raft/propose", "hashicorp/raft", RaftLogs, p.hashicorp),
		w("raft/propose-etcd", "etcd's raft", EtcdLogs, p.etcd),
	}
}

// proposals are numbered from 1 on, and follow from their number.
type proposals struct {
	values kvValues
	issued atomic.Uint64
}

func newProposals(seed uint64) *proposals { return &proposals{values: newKVValues(raftData, seed)} }

// client proposes, one after another. The library keeps what it is handed.
func (p *proposals) client(propose func(data []byte) error) func() error {
	return func() error {
		n := p.issued.Add(1)
		data := p.values.lay(make([]byte, raftData))
		p.values.fill(data, uint32(n), uint32(n>>32))

		return propose(data)
	}
}

// seen are the proposals that a log has.
type seen struct {
	*proposals
	numbers map[uint64]bool
}

// add checks a proposal, and notes it.
func (s *seen) add(data []byte) error {
	if len(data) != raftData {
		return fmt.Errorf("%w: a proposal of %d bytes", ErrWrong, len(data))
	}
	stamp := binary.LittleEndian.Uint64(data)
	n := stamp<<32 | stamp>>32
	if n == 0 || n > s.issued.Load() || s.numbers[n] {
		return fmt.Errorf("%w: proposal %d is there, again or of %d", ErrWrong, n, s.issued.Load())
	}
	s.numbers[n] = true

	return s.values.check(data, uint32(n), uint32(n>>32))
}

// all returns what [Load.Verify] does, once the log was read: all that were issued were acknowledged.
func (s *seen) all() (items, checked int64, err error) {
	items = int64(s.issued.Load())
	if len(s.numbers) != int(items) {
		err = fmt.Errorf("%w: %d proposals of %d are there", ErrWrong, len(s.numbers), items)
	}

	return items, int64(len(s.numbers)), err
}

// load is a load of proposals to a node on the table, which stop ends.
func proposeLoad[S any](table *table[S], p *proposals, propose func([]byte) error, stop func() error,
	read func(S, func([]byte) error) error) Load {
	load := table.load(
		func(int) func() error { return p.client(propose) },
		func(store S) (int64, int64, error) {
			s := &seen{p, map[uint64]bool{}}
			if err := read(store, s.add); err != nil {
				return 0, int64(len(s.numbers)), err
			}

			return s.all()
		})
	load.Put = func() int64 { return int64(p.issued.Load()) * (raftIndexSize + raftData) }
	load.Close = func() error { return errors.Join(stop(), table.close()) }

	return load
}

func (raftPropose) hashicorp(t Task) (Load, error) {
	table, err := openRaft(t)
	if err != nil {
		return Load{}, err
	}
	node, err := startHashicorp(table.store)
	if err != nil {
		return Load{}, errors.Join(err, table.close())
	}

	return proposeLoad(table, newProposals(t.Seed),
		func(data []byte) error { return node.Apply(data, 0).Error() },
		func() error { return node.Shutdown().Error() },
		func(store contender.RaftStore, proposal func([]byte) error) error {
			last, err := store.LastIndex()
			if err != nil {
				return err
			}
			for index := uint64(1); index <= last; index++ {
				var log raft.Log
				if err := store.GetLog(index, &log); err != nil {
					return fmt.Errorf("entry %d: %w", index, err)
				}
				if log.Type != raft.LogCommand {
					continue
				}
				if err := proposal(log.Data); err != nil {
					return err
				}
			}

			return nil
		}), nil
}

// leaderWithin is how long a node that is alone may take to lead.
const leaderWithin = 20 * time.Second

// startHashicorp returns a node that leads itself.
func startHashicorp(store contender.RaftStore) (*raft.Raft, error) {
	config := raft.DefaultConfig()
	config.LocalID, config.LogOutput, config.LogLevel = "a", io.Discard, "OFF"
	config.HeartbeatTimeout, config.ElectionTimeout = 50*time.Millisecond, 50*time.Millisecond
	config.LeaderLeaseTimeout, config.CommitTimeout = 50*time.Millisecond, 5*time.Millisecond
	config.MaxAppendEntries, config.BatchApplyCh = raftBatch, true
	config.SnapshotInterval, config.SnapshotThreshold = 24*time.Hour, math.MaxInt64
	_, transport := raft.NewInmemTransport("a")
	snapshots := raft.NewInmemSnapshotStore()
	all := raft.Configuration{Servers: []raft.Server{{ID: "a", Address: "a"}}}
	if err := raft.BootstrapCluster(config, store, store, snapshots, transport, all); err != nil {
		return nil, err
	}
	node, err := raft.NewRaft(config, nothing{}, store, store, snapshots, transport)
	if err != nil {
		return nil, err
	}
	select {
	case <-node.LeaderCh():
		return node, nil
	case <-time.After(leaderWithin):
		return nil, errors.Join(errors.New("the node does not lead itself"), node.Shutdown().Error())
	}
}

// nothing is a state machine that has no state.
type nothing struct{}

func (nothing) Apply(*raft.Log) any                 { return nil }
func (nothing) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("there is no state") }
func (nothing) Restore(from io.ReadCloser) error    { return from.Close() }

func (raftPropose) etcd(t Task) (Load, error) {
	table, err := openTable(t, contender.OpenEtcd)
	if err != nil {
		return Load{}, err
	}
	node, err := startEtcd(table.store)
	if err != nil {
		return Load{}, errors.Join(err, table.close())
	}

	return proposeLoad(table, newProposals(t.Seed), node.propose, node.stop,
		func(store contender.EtcdStore, proposal func([]byte) error) error {
			next, err := store.FirstIndex()
			if err != nil {
				return err
			}
			last, err := store.LastIndex()
			for err == nil && next <= last {
				var list []*raftpb.Entry
				list, err = store.Entries(next, last+1, 1<<20)
				for _, e := range list {
					if next++; len(e.GetData()) == 0 { // a new leader's
						continue
					}
					if err := proposal(e.GetData()); err != nil {
						return err
					}
				}
			}

			return err
		}), nil
}

// etcdNode is a node that is driven by a goroutine of its own.
type etcdNode struct {
	node     *etcd.RawNode
	store    contender.EtcdStore
	proposed chan etcdProposal
	waiting  []etcdProposal // in the order of their entries
	done     chan struct{}
	err      error // why it has ended, once it is done
}

type etcdProposal struct {
	data      []byte
	committed chan error
}

// startEtcd returns a node that leads itself.
func startEtcd(store contender.EtcdStore) (*etcdNode, error) {
	node, err := etcd.NewRawNode(&etcd.Config{ID: 1, Storage: store, ElectionTick: 10, HeartbeatTick: 1,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 256, Logger: etcdSilent{}})
	if err != nil {
		return nil, err
	}
	n := &etcdNode{node: node, store: store, proposed: make(chan etcdProposal, raftBatch), done: make(chan struct{})}
	if err := errors.Join(node.Campaign(), n.ready()); err != nil {
		return nil, err
	}
	if state := node.BasicStatus().RaftState; state != etcd.StateLeader {
		return nil, fmt.Errorf("the node does not lead itself, it is %v", state)
	}
	go n.run()

	return n, nil
}

// propose returns when data is committed.
func (n *etcdNode) propose(data []byte) error {
	p := etcdProposal{data, make(chan error, 1)}
	n.proposed <- p

	return <-p.committed
}

// stop ends the node. Nobody proposes any more.
func (n *etcdNode) stop() error {
	close(n.proposed)
	<-n.done

	return n.err
}

// run proposes together what waits together.
func (n *etcdNode) run() {
	defer close(n.done)
	for p := range n.proposed {
		n.add(p)
		for more := true; more && len(n.waiting) < raftBatch; {
			select {
			case p, ok := <-n.proposed:
				if more = ok; ok {
					n.add(p)
				}
			default:
				more = false
			}
		}
		if err := n.ready(); n.err == nil {
			n.err = err
		}
		if n.err != nil {
			for _, p := range n.waiting {
				p.committed <- n.err
			}
			n.waiting = nil
		}
	}
}

func (n *etcdNode) add(p etcdProposal) {
	if n.err == nil {
		n.err = n.node.Propose(p.data)
	}
	n.waiting = append(n.waiting, p)
}

// ready does what the node wants until it wants nothing.
func (n *etcdNode) ready() error {
	for n.err == nil && n.node.HasReady() {
		rd := n.node.Ready()
		if err := n.store.Save(rd); err != nil {
			return err
		}
		for _, e := range rd.CommittedEntries {
			if len(e.GetData()) > 0 {
				n.waiting[0].committed <- nil
				n.waiting = n.waiting[1:]
			}
		}
		n.node.Advance(rd)
	}

	return nil
}

// etcdSilent is a logger that says nothing, but panics where raft does.
type etcdSilent struct{}

func (etcdSilent) Debug(...any)              {}
func (etcdSilent) Debugf(string, ...any)     {}
func (etcdSilent) Error(...any)              {}
func (etcdSilent) Errorf(string, ...any)     {}
func (etcdSilent) Info(...any)               {}
func (etcdSilent) Infof(string, ...any)      {}
func (etcdSilent) Warning(...any)            {}
func (etcdSilent) Warningf(string, ...any)   {}
func (etcdSilent) Fatal(v ...any)            { panic(fmt.Sprint(v...)) }
func (etcdSilent) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
func (etcdSilent) Panic(v ...any)            { panic(fmt.Sprint(v...)) }
func (etcdSilent) Panicf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }

func (raftPropose) null(t Task) (Load, error) {
	p := newProposals(t.Seed)

	return nullLoad(func(int) func() error { return p.client(func([]byte) error { return nil }) },
		func() int64 { return int64(p.issued.Load()) }), nil
}

func (raftPropose) floor(t Task) (Load, error) { return floorAppends(t, 1, raftData) }
