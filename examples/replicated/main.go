// Replicated is an event log on several machines. github.com/hashicorp/raft agrees on the order of events; on each
// machine one Holdfast engine keeps raft's log and the events. Every node prints them in order, and the leader appends
// what is typed into it.
//
//	replicated --id a --addr 127.0.0.1:7001 --dir a --peers a=127.0.0.1:7001,b=127.0.0.1:7002,c=127.0.0.1:7003
package main

import (
	"bufio"
	"cmp"
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
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

func main() {
	id, addr := flag.String("id", "a", "this node's name"),
		flag.String("addr", "127.0.0.1:7001", "its `address`, as the others reach it")
	dir, peers := flag.String("dir", "replicated", "its `directory`"),
		flag.String("peers", "a=127.0.0.1:7001", "all `nodes`, this one too: id=addr,...")
	flag.Parse()
	if !strings.Contains(","+*peers, ","+*id+"=") {
		log.Fatalf("--peers %q does not name this node, --id %s", *peers, *id)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	engine := must(logtree.Open(filepath.Join(*dir, "store"), holdfast.Options{}))
	logs := must(raftlog.Open(engine, raftlog.Options{Name: "raft"})) // at Power: raft relies on its entries and votes
	// Events are at Process: what a power cut takes is applied again from raft's log, which no snapshot cuts off before it
	// has synced.
	events := must(event.Open(kv.On(engine), event.Options{Name: "events", Level: holdfast.Process}))
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
	transport := must(raft.NewTCPTransport(*addr, nil, 3, 10*time.Second, io.Discard))
	node := must(raft.NewRaft(config, m, logs, logs, must(raft.NewFileSnapshotStore(*dir, 2, io.Discard)), transport))
	node.RegisterObserver(raft.NewObserver(nil, false, sayLeader))
	if err := node.BootstrapCluster(all).Error(); !errors.Is(err, raft.ErrCantBootstrap) { // that is: not the first start
		check(err)
	}
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Buffer(nil, 1<<20); lines.Scan(); {
			if err := node.Apply([]byte(lines.Text()), 10*time.Second).Error(); err != nil {
				log.Printf("perhaps not appended: %v", err)
			}
		}
		log.Print("no more lines are read: ", cmp.Or(lines.Err(), io.EOF))
	}()

	for e, err := range events.Follow(ctx, 1) {
		if err != nil {
			log.Print(err) // an interrupt, most likely
			break
		}
		fmt.Printf("%d %s\n", e.Position, e.Data)
	}
	check(errors.Join(node.Shutdown().Error(), transport.Close(), events.Close(), logs.Close(), engine.Close()))
}

// sayLeader sees all that raft tells its observers, and prints who leads from now on.
func sayLeader(o *raft.Observation) bool {
	if now, ok := o.Data.(raft.LeaderObservation); ok {
		log.Printf("the leader is %q", now.LeaderID)
	}

	return false
}

// machine is raft's state machine, the events. Each has the index of its raft entry, so the store itself tells what it
// has.
type machine struct {
	engine  holdfast.Engine
	events  *event.Store
	applied uint64 // the last event's index
}

func index(e event.Event) uint64 { return binary.BigEndian.Uint64(e.Metadata) }

// add appends e unless it is there. A node that cannot must stop: its positions would no longer be those of the others.
func (m *machine) add(e event.Event) (position uint64) {
	if index(e) > m.applied {
		position, m.applied = must(m.events.Append(context.Background(), e)).First, index(e)
	}

	return position
}

// Apply answers with the position. AppendedAt is the leader's time, and so the same on every node.
func (m *machine) Apply(entry *raft.Log) any {
	return m.add(event.Event{Time: entry.AppendedAt, Metadata: binary.BigEndian.AppendUint64(nil, entry.Index),
		Data: entry.Data})
}

// Restore appends what the store lacks of a newer snapshot. An older one, as at most starts, it has whole; what it has
// beyond that is committed too, and is skipped when raft applies it again. To go back to a backup with raft.Restore,
// begin with a new store.
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

type snapshot struct{ machine } // as it was

func (m *machine) Snapshot() (raft.FSMSnapshot, error) { return snapshot{*m}, m.engine.Sync() }
func (snapshot) Release()                              {}

// Persist writes the events up to the last that was applied then, while others are appended.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	encoder := gob.NewEncoder(sink)
	for e, err := range s.events.Events(context.Background(), 1, 0) {
		if err == nil && index(e) <= s.applied {
			err = encoder.Encode(e)
		}
		if err != nil {
			return err
		}
	}

	return sink.Close()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](value T, err error) T { check(err); return value }
