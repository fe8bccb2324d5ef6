package raftlog_test

import (
	"fmt"
	"log"
	"os"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// One store is raft's log and its stable store.
func Example() {
	dir, err := os.MkdirTemp("", "raft")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	engine, err := logtree.Open(dir, holdfast.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	store, err := raftlog.Open(engine, raftlog.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	// Raft does this: raft.NewRaft(config, fsm, store, store, snapshots, transport).
	if err := store.SetUint64([]byte("CurrentTerm"), 3); err != nil {
		log.Fatal(err)
	}
	if err := store.StoreLogs([]*raft.Log{
		{Index: 1, Term: 3, Type: raft.LogNoop},
		{Index: 2, Term: 3, Data: []byte("a command")},
	}); err != nil {
		log.Fatal(err)
	}
	first, _ := store.FirstIndex()
	last, _ := store.LastIndex()
	var entry raft.Log
	if err := store.GetLog(2, &entry); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d to %d, %q, at %s\n", first, last, entry.Data, store.Level())
	// Output: 1 to 2, "a command", at power
}

// The logs of several groups share one engine, and so one sync when they write at the same time.
func ExampleOpen_groups() {
	dir, err := os.MkdirTemp("", "raft")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	engine, err := logtree.Open(dir, holdfast.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	for group := range 3 {
		store, err := raftlog.Open(engine, raftlog.Options{Name: fmt.Sprint("group ", group)})
		if err != nil {
			log.Fatal(err)
		}
		if err := store.StoreLog(&raft.Log{Index: uint64(group + 1), Term: 1}); err != nil {
			log.Fatal(err)
		}
		last, _ := store.LastIndex()
		fmt.Println(group, last)
		if err := store.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 0 1
	// 1 2
	// 2 3
}
