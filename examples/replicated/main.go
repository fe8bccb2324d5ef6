// Replicated is an event log on several machines. github.com/hashicorp/raft agrees on the order of events; on
// each machine one Holdfast engine keeps raft's log and the events themselves.
//
//	replicated --id a --addr 127.0.0.1:7001 --dir a --peers a=127.0.0.1:7001,b=127.0.0.1:7002,c=127.0.0.1:7003
//
// Every node prints its events in order. Lines on the leader's standard input are appended.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

func main() {
	id, addr := flag.String("id", "a", "this node's name"), flag.String("addr", "127.0.0.1:7001", "its `address`, as the others reach it")
	dir, peers := flag.String("dir", "replicated", "its `directory`"), flag.String("peers", "a=127.0.0.1:7001", "all `nodes`, this one too: id=addr,...")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	engine := must(logtree.Open(filepath.Join(*dir, "store"), holdfast.Options{}))
	logs := must(raftlog.Open(engine, raftlog.Options{Name: "raft"})) // at Power: raft relies on its entries and votes
	// Events are at Process: what a power cut takes from their end is applied again from raft's log,
	// which is cut off only after a snapshot, and Persist syncs before it writes one.
	events := must(event.Open(engine, event.Options{Name: "events", Level: holdfast.Process}))
	m := &machine{engine: engine, events: events}
	for _, e := range must(events.Read(ctx, max(events.Last(), 1), 1)) {
		m.applied = index(e)
	}
	var all raft.Configuration
	for peer := range strings.SplitSeq(*peers, ",") {
		id, addr, _ := strings.Cut(peer, "=")
		all.Servers = append(all.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(addr)})
	}
	config := raft.DefaultConfig()
	config.LocalID, config.LogLevel = raft.ServerID(*id), "OFF"
	snapshots := must(raft.NewFileSnapshotStore(*dir, 2, io.Discard))
	transport := must(raft.NewTCPTransport(*addr, nil, 3, 10*time.Second, io.Discard))
	node := must(raft.NewRaft(config, m, logs, logs, snapshots, transport))
	if err := node.BootstrapCluster(all).Error(); err != nil && !errors.Is(err, raft.ErrCantBootstrap) { // that is: not the first start
		log.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if err := node.Apply([]byte(lines.Text()), 10*time.Second).Error(); err != nil {
				_, leader := node.LeaderWithID()
				log.Printf("perhaps not appended: %v; the leader is %q", err, leader)
			}
		}
	}()
	for e, err := range events.Follow(ctx, 1) {
		if err != nil {
			log.Print(err) // an interrupt, most likely
			break
		}
		fmt.Printf("%d %s\n", e.Position, e.Data)
	}
	if err := errors.Join(node.Shutdown().Error(), transport.Close(), events.Close(), logs.Close(), engine.Close()); err != nil {
		log.Fatal(err)
	}
}

// machine is raft's state machine: the event store. Each event carries the index of its raft entry, so
// the store itself tells what it has, whatever was the last thing before a crash.
type machine struct {
	engine  holdfast.Engine
	events  *event.Store
	applied uint64 // the last event's index
}

func index(e event.Event) uint64 { return binary.BigEndian.Uint64(e.Metadata) }

// add appends e unless it is there, and returns its position. A node that cannot must stop: if it left one
// out, its positions would no longer be those of the others.
func (m *machine) add(e event.Event) (position uint64) {
	if index(e) > m.applied {
		position, m.applied = must(m.events.Append(context.Background(), e)).First, index(e)
	}
	return position
}

// Apply answers with the position. AppendedAt is the leader's time, and so the same on every node.
func (m *machine) Apply(entry *raft.Log) any {
	return m.add(event.Event{Time: entry.AppendedAt, Metadata: binary.BigEndian.AppendUint64(nil, entry.Index), Data: entry.Data})
}

// Restore appends what the store lacks of a newer snapshot. An older one, as at most starts, it has whole;
// what it has beyond that is committed too, and is skipped when raft applies it again. This needs one
// history: whoever calls raft.Restore to go back to a backup must put a new store in this one's place.
func (m *machine) Restore(from io.ReadCloser) error {
	for decoder := gob.NewDecoder(from); ; {
		var e event.Event
		if err := decoder.Decode(&e); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		m.add(e)
	}
}

type snapshot struct {
	*machine
	last uint64
}

func (m *machine) Snapshot() (raft.FSMSnapshot, error) { return snapshot{m, m.events.Last()}, nil }
func (snapshot) Release()                              {}

// Persist writes the events up to last, while others are appended.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.engine.Sync(); err != nil {
		return err
	}
	encoder := gob.NewEncoder(sink)
	for e, err := range s.events.Events(context.Background(), 1, 0) {
		if err == nil && e.Position <= s.last {
			err = encoder.Encode(e)
		}
		if err != nil {
			return err
		}
	}
	return sink.Close()
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
