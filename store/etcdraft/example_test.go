package etcdraft_test

import (
	"encoding/binary"
	"fmt"
	stdlog "log"
	"os"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/store/etcdraft"
)

// A group of one member, whose state machine is in the same engine, started twice.
func Example() {
	dir, err := os.MkdirTemp("", "etcdraft")
	check(err)
	defer os.RemoveAll(dir)
	for _, command := range []string{"one", "two"} {
		engine, err := logtree.Open(dir, holdfast.Options{})
		check(err)
		propose(engine, command)
		check(engine.Close())
	}
	// Output:
	// entry 3: one
	// entry 5: two
}

var appliedKey = []byte("applied") // keys that begin with other letters than the stores'

func propose(engine holdfast.Engine, command string) {
	store, err := etcdraft.Open(engine, etcdraft.Options{Name: "group 7"})
	check(err)
	defer store.Close()
	if last, err := store.LastIndex(); err == nil && last == 0 { // a new group: its members, in a snapshot
		members := &raftpb.ConfState{Voters: []uint64{1}}
		check(store.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			ConfState: members, Index: new(uint64(1)), Term: new(uint64(1))}}))
	}
	var applied uint64
	if value, err := engine.Get(nil, appliedKey); err == nil {
		applied = binary.BigEndian.Uint64(value)
	}
	node, err := raft.NewRawNode(&raft.Config{ID: 1, Storage: store, Applied: applied, ElectionTick: 10, HeartbeatTick: 1,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 64})
	check(err)
	check(node.Campaign())

	proposed := false
	for node.HasReady() {
		rd := node.Ready()
		check(store.Save(rd))
		// Now rd.Messages can be sent.
		for _, entry := range rd.CommittedEntries {
			if len(entry.GetData()) > 0 {
				fmt.Printf("entry %d: %s\n", entry.GetIndex(), entry.GetData())
			}
			var b holdfast.Batch
			b.Set(appliedKey, binary.BigEndian.AppendUint64(nil, entry.GetIndex()))
			check(holdfast.Commit(engine, &b, holdfast.Process)) // what it changes would be in the batch, too
		}
		node.Advance(rd)
		if !proposed && node.BasicStatus().RaftState == raft.StateLeader {
			check(node.Propose([]byte(command)))
			proposed = true
		}
	}
}

func check(err error) {
	if err != nil {
		stdlog.Fatal(err)
	}
}
