// Raft is one node of hashicorp/raft whose log, votes and terms are in the directory raft-data. It counts how often it
// was run. For a cluster see examples/replicated.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

func main() {
	engine := must(logtree.Open("raft-data", holdfast.Options{}))
	store := must(raftlog.Open(engine, raftlog.Options{})) // at Power: a node that forgets its vote can vote twice
	snapshots := must(raft.NewFileSnapshotStore("raft-data-snapshots", 2, io.Discard))

	config := raft.DefaultConfig()
	config.LocalID, config.LogLevel = "a", "OFF"
	address, transport := raft.NewInmemTransport("a") // a real node has raft.NewTCPTransport
	runs := new(counter)
	node := must(raft.NewRaft(config, runs, store, store, snapshots, transport))
	err := node.BootstrapCluster(raft.Configuration{Servers: []raft.Server{{ID: "a", Address: address}}}).Error()
	if err != nil && !errors.Is(err, raft.ErrCantBootstrap) { // that is: it was run before
		log.Fatal(err)
	}
	<-node.LeaderCh() // until it leads

	run := node.Apply([]byte("run"), time.Minute)
	if err := run.Error(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("run", run.Response())
	if err := errors.Join(node.Shutdown().Error(), store.Close(), engine.Close()); err != nil {
		log.Fatal(err)
	}
}

type counter int // the state machine: it is made of the log anew at each start

func (c *counter) Apply(*raft.Log) any                  { *c++; return int(*c) }
func (c *counter) Snapshot() (raft.FSMSnapshot, error)  { return nil, errors.New("it has none") }
func (c *counter) Restore(snapshot io.ReadCloser) error { return snapshot.Close() }

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}

	return v
}
