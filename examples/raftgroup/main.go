// Raftgroup is a list of lines on several machines. go.etcd.io/raft agrees on their order; on each machine one Holdfast
// engine keeps raft's log and the lines. Every node prints them in order, and the leader appends what is typed into it.
//
//	raftgroup --id 1 --dir 1 --peers 1=127.0.0.1:7001,2=127.0.0.1:7002,3=127.0.0.1:7003
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/store/etcdraft"
)

const (
	every = 8 // entries from one snapshot to the next
	keep  = 4 // entries that stay in the log, for followers that are not far behind
)

func main() {
	id, dir := flag.Uint64("id", 1, "this node's `number`"), flag.String("dir", "raftgroup", "its `directory`")
	list := flag.String("peers", "1=127.0.0.1:7001", "all `nodes`, this one too: id=addr,...")
	flag.Parse()
	peers, members := map[uint64]string{}, &raftpb.ConfState{}
	for peer := range strings.SplitSeq(*list, ",") {
		id, addr, _ := strings.Cut(peer, "=")
		n := must(strconv.ParseUint(id, 10, 64))
		peers[n], members.Voters = addr, append(members.Voters, n)
	}
	if peers[*id] == "" {
		log.Fatalf("--peers %q does not name this node, --id %d", *list, *id)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	engine := must(logtree.Open(*dir, holdfast.Options{}))
	store := must(etcdraft.Open(engine, etcdraft.Options{Name: "lines"})) // at Power: raft relies on entries and votes
	if must(store.LastIndex()) == 0 {                                     // the first start: all begin with this snapshot
		check(store.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			ConfState: members, Index: new(uint64(1)), Term: new(uint64(1))}}))
	}
	m := &machine{engine: engine}
	m.load()
	m.restore(must(store.Snapshot())) // which the node may have saved just before it was killed
	raft.SetLogger(&raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)})
	node := must(raft.NewRawNode(&raft.Config{ID: *id, Storage: store, Applied: m.applied, ElectionTick: 10,
		HeartbeatTick: 1, MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 64, CheckQuorum: true, PreVote: true,
		DisableProposalForwarding: true}))

	do := make(chan func(), 64) // what is done with node, by this goroutine alone
	outboxes := map[uint64]chan *raftpb.Message{}
	for peer, addr := range peers {
		if peer != *id {
			outboxes[peer] = make(chan *raftpb.Message, 256)
			go send(addr, outboxes[peer], node, do)
		}
	}
	go receive(must(net.Listen("tcp", peers[*id])), node, do)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			line := []byte(lines.Text())
			do <- func() {
				if err := node.Propose(line); err != nil {
					log.Printf("not appended: %v", err)
				}
			}
		}
	}()

	for tick := time.Tick(50 * time.Millisecond); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-tick:
			node.Tick()
		case f := <-do:
			f()
		}
		for node.HasReady() {
			rd := node.Ready()
			check(store.Save(rd))
			for _, message := range rd.Messages {
				select {
				case outboxes[message.GetTo()] <- message:
				default: // the outbox is full. It is as if the network had lost it
					report(node, message, raft.SnapshotFailure)
				}
			}
			if rd.SoftState != nil && rd.Lead != 0 {
				log.Printf("the leader is %d", rd.Lead)
			}
			if !raft.IsEmptySnap(rd.Snapshot) {
				m.restore(rd.Snapshot)
			}
			m.apply(rd.CommittedEntries)
			node.Advance(rd)
		}
		if first := must(store.FirstIndex()); m.applied >= first+keep+every {
			_, err := store.CreateSnapshot(m.applied, nil, []byte(strings.Join(m.lines, "\n")))
			if !errors.Is(err, raft.ErrSnapOutOfDate) { // it is there if the node was killed before it had compacted
				check(err)
			}
			check(store.Compact(m.applied - keep))
		}
	}
	check(errors.Join(store.Close(), engine.Close()))
}

// send sends messages to a node, or drops them while it is away: raft sends again what is needed.
func send(addr string, messages chan *raftpb.Message, node *raft.RawNode, do chan func()) {
	var conn net.Conn
	for message := range messages {
		status, err := raft.SnapshotFinish, error(nil)
		if conn == nil {
			conn, err = net.DialTimeout("tcp", addr, time.Second)
		}
		if err == nil {
			if _, err = protodelim.MarshalTo(conn, message); err != nil {
				_ = conn.Close()
			}
		}
		if err != nil {
			conn, status = nil, raft.SnapshotFailure
			do <- func() { node.ReportUnreachable(message.GetTo()) }
		}
		do <- func() { report(node, message, status) }
	}
}

// report tells raft what became of a snapshot.
func report(node *raft.RawNode, message *raftpb.Message, status raft.SnapshotStatus) {
	if message.GetType() == raftpb.MsgSnap {
		node.ReportSnapshot(message.GetTo(), status)
	}
}

func receive(listener net.Listener, node *raft.RawNode, do chan func()) {
	for {
		conn := must(listener.Accept())
		go func() {
			defer conn.Close()
			for from := bufio.NewReader(conn); ; {
				message := new(raftpb.Message)
				if err := (protodelim.UnmarshalOptions{MaxSize: 64 << 20}).UnmarshalFrom(from, message); err != nil {
					return
				}
				do <- func() { _ = node.Step(message) } // it refuses what comes from nobody that it knows
			}
		}()
	}
}

// machine is raft's state machine: the lines, in the engine and in memory. A batch has lines, and the index of the last
// entry that they come from, so what is there belongs together. It is at Process: what a power cut takes is applied
// again from raft's log, of which no crash leaves less than of what was written after it.
type machine struct {
	engine  holdfast.Engine
	lines   []string
	applied uint64
}

// The keys begin with letters that no store has.
var appliedKey = []byte("applied")

func lineKey(n int) []byte { return binary.BigEndian.AppendUint64([]byte("line"), uint64(n)) }

func (m *machine) load() {
	if value, err := m.engine.Get(nil, appliedKey); err == nil {
		m.applied = binary.BigEndian.Uint64(value)
	} else if !errors.Is(err, holdfast.ErrNotFound) {
		log.Fatal(err)
	}
	it := m.engine.Scan(holdfast.Prefix([]byte("line")))
	for it.Next() {
		m.lines = append(m.lines, string(it.Value()))
		fmt.Println(len(m.lines), m.lines[len(m.lines)-1])
	}
	check(it.Close())
}

// add appends lines, with which the entries up to applied are.
func (m *machine) add(lines []string, applied uint64) {
	var b holdfast.Batch
	for i, line := range lines {
		b.Set(lineKey(len(m.lines)+i), []byte(line))
	}
	b.Set(appliedKey, binary.BigEndian.AppendUint64(nil, applied))
	check(holdfast.Commit(m.engine, &b, holdfast.Process))
	for _, line := range lines {
		m.lines = append(m.lines, line)
		fmt.Println(len(m.lines), line)
	}
	m.applied = applied
}

func (m *machine) apply(entries []*raftpb.Entry) {
	var lines []string
	for _, entry := range entries {
		if len(entry.GetData()) > 0 { // else a new leader's
			lines = append(lines, string(entry.GetData()))
		}
	}
	if len(entries) > 0 {
		m.add(lines, entries[len(entries)-1].GetIndex())
	}
}

// restore adds what a newer snapshot has beyond what is there: lines are never taken back.
func (m *machine) restore(snapshot *raftpb.Snapshot) {
	if index := snapshot.GetMetadata().GetIndex(); index > m.applied {
		lines := strings.FieldsFunc(string(snapshot.GetData()), func(r rune) bool { return r == '\n' })
		m.add(lines[len(m.lines):], index)
		log.Printf("restored a snapshot of entry %d", index)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](value T, err error) T { check(err); return value }
