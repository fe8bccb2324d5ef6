package clustertest

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// nodeEnv makes the test binary a node. Its value is a nodeConfig as JSON.
const nodeEnv = "HOLDFAST_CLUSTER_NODE"

type nodeConfig struct {
	ID, Dir, Engine string
	Members         []string
	Monotonic       bool
	Level           holdfast.Level // of the raft store
}

// eventLevel is that of the state machine: Process, as raft's log has what a power cut takes from
// it; in the cluster that is to lose writes, Memory.
func (c nodeConfig) eventLevel() holdfast.Level { return min(c.Level, holdfast.Process) }

func (c nodeConfig) engineOptions() holdfast.Options {
	o := holdfast.Options{MemoryBytes: 16 << 20}
	if c.Level == holdfast.Memory {
		o.SyncEvery = -1
	}
	return o
}

// request and reply are lines on a node's standard input and output.
type request struct {
	N      uint64 // of the reply
	Op     string // append, read, snapshot, transfer, state, peers, cut, heal, stop
	ID     string // append: of the event
	Pick   uint64 // read: chooses the event
	Verify bool   // read: VerifyLeader, not Barrier
	Peers  map[string]string
}

type reply struct {
	N       uint64
	News    string // without being asked: up, leader, restored
	OK      bool
	Err     string
	Refused bool // it did not happen and will not
	ID      string
	Pos     uint64 // append: of the event; read: of the event with ID
	Last    uint64 // read, state: events
	Leader  string
	Addr    string // up
	Term    uint64
	Applied uint64 // state: raft index
	First   uint64 // state: of raft's log
}

// node is a member of the cluster: raft, its store, and events as the state machine.
type node struct {
	eng    holdfast.Engine
	logs   *raftlog.Store
	events *event.Store
	raft   *raft.Raft
	stream *stream
	trans  *raft.NetworkTransport

	applied  atomic.Uint64 // raft index of the last event
	barriers atomic.Uint64 // term in which a barrier was passed
	speaking sync.Mutex
}

// runNode serves its parent until that closes its standard input, by dying or otherwise.
func runNode() {
	var cfg nodeConfig
	if err := json.Unmarshal([]byte(os.Getenv(nodeEnv)), &cfg); err != nil {
		fail(err)
	}
	n, err := startNode(cfg)
	if err != nil {
		fail(err)
	}
	n.say(reply{News: "up", Addr: n.stream.Listener.Addr().String()})
	go n.watch()
	lines := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		var q request
		if err := lines.Decode(&q); err != nil {
			os.Exit(0)
		}
		switch q.Op {
		case "peers":
			n.stream.peers.Store(&q.Peers)
		case "cut":
			n.stream.setCut(true)
		case "heal":
			n.stream.setCut(false)
		default:
			go n.serve(q)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "node:", err)
	os.Exit(3)
}

func startNode(cfg nodeConfig) (*node, error) {
	n := &node{}
	var err error
	if n.eng, err = all.Open(cfg.Engine, filepath.Join(cfg.Dir, "store"), cfg.engineOptions()); err != nil {
		return nil, err
	}
	o := raftlog.Options{Name: "raft", Level: cfg.Level, Monotonic: cfg.Monotonic}
	if n.logs, err = raftlog.Open(n.eng, o); err != nil {
		return nil, err
	}
	if n.events, err = event.Open(kv.On(n.eng), event.Options{Name: "events", Level: cfg.eventLevel()}); err != nil {
		return nil, err
	}
	for e, err := range n.events.Events(context.Background(), max(n.events.Last(), 1), 1) {
		if err != nil {
			return nil, err
		}
		n.applied.Store(binary.BigEndian.Uint64(e.Metadata))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n.stream = &stream{Listener: l, id: cfg.ID, conns: map[*conn]struct{}{}}
	logger := hclog.New(&hclog.LoggerOptions{Name: cfg.ID, Output: os.Stderr, Level: hclog.Warn})
	n.trans = raft.NewNetworkTransportWithLogger(n.stream, 3, 5*time.Second, logger)
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(cfg.Dir, 2, logger)
	if err != nil {
		return nil, err
	}
	c := raft.DefaultConfig()
	c.LocalID, c.Logger = raft.ServerID(cfg.ID), logger
	c.HeartbeatTimeout, c.ElectionTimeout = 300*time.Millisecond, 300*time.Millisecond
	c.LeaderLeaseTimeout, c.CommitTimeout = 200*time.Millisecond, 5*time.Millisecond
	c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = 100, 20, 100*time.Millisecond
	if n.raft, err = raft.NewRaft(c, n, n.logs, n.logs, snapshots, n.trans); err != nil {
		return nil, err
	}
	var members raft.Configuration
	for _, id := range cfg.Members {
		members.Servers = append(members.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	if err := n.raft.BootstrapCluster(members).Error(); err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
		return nil, err
	}
	return n, nil
}

func (n *node) say(r reply) {
	if n.raft != nil {
		r.Term = n.raft.CurrentTerm()
	}
	line, err := json.Marshal(r)
	if err != nil {
		fail(err)
	}
	n.speaking.Lock()
	defer n.speaking.Unlock()
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		os.Exit(4) // the parent is gone
	}
}

// watch tells in which terms this node leads.
func (n *node) watch() {
	said := uint64(0)
	for {
		// Terms only grow, so it led in that term if the term was the same before and after.
		term := n.raft.CurrentTerm()
		if n.raft.State() == raft.Leader && n.raft.CurrentTerm() == term && term != said {
			said = term
			n.say(reply{News: "leader", Pos: term})
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// requestTimeout is how long raft may take to begin with a request.
const requestTimeout = 5 * time.Second

func (n *node) serve(q request) {
	r, err := n.answer(q)
	r.N, r.OK = q.N, err == nil
	if err != nil {
		r.Err = err.Error()
		r.Refused = errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipTransferInProgress)
		_, leader := n.raft.LeaderWithID()
		r.Leader = string(leader)
	}
	n.say(r)
	if q.Op == "stop" {
		os.Exit(0)
	}
}

func (n *node) answer(q request) (reply, error) {
	switch q.Op {
	case "append":
		f := n.raft.Apply([]byte(q.ID), requestTimeout)
		if err := f.Error(); err != nil {
			return reply{}, err
		}
		return reply{Pos: f.Response().(uint64)}, nil
	case "read":
		return n.read(q)
	case "snapshot":
		return reply{}, n.raft.Snapshot().Error()
	case "transfer":
		return reply{}, n.raft.LeadershipTransfer().Error()
	case "state":
		first, err := n.logs.FirstIndex()
		_, leader := n.raft.LeaderWithID()
		return reply{Last: n.events.Last(), Applied: n.raft.AppliedIndex(), First: first, Leader: string(leader)}, err
	case "stop":
		return reply{}, errors.Join(n.shutdown(), n.trans.Close(), n.events.Close(), n.logs.Close(), n.eng.Close())
	}
	return reply{}, fmt.Errorf("no operation %q", q.Op)
}

// shutdownTimeout is how long raft may take to end before it is left alone.
const shutdownTimeout = 20 * time.Second

// shutdown ends raft. A leader of raft v1.7.3 has been seen to wait without end for the goroutine that replicates to a
// follower which had gone before, while its heartbeats went on. That is no failure of what is tested here, unless a
// call of a store is what it waits for.
func (n *node) shutdown() error {
	ended := make(chan error, 1)
	go func() { ended <- n.raft.Shutdown().Error() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(shutdownTimeout):
	}
	b := make([]byte, 1<<20)
	stacks := string(b[:runtime.Stack(b, true)])
	fmt.Fprintf(os.Stderr, "raft has not ended within %v:\n%s\n", shutdownTimeout, stacks)
	for _, of := range []string{"holdfast/store/raftlog.(", "holdfast/store/event.(", "holdfast/driver.("} {
		if strings.Contains(stacks, of) {
			return fmt.Errorf("raft has not ended, and waits in %s", of)
		}
	}
	return nil
}

// read is linearizable: after a barrier the state machine has all that was committed before; after
// VerifyLeader as well, once there was a barrier in this leader's term.
func (n *node) read(q request) (reply, error) {
	term := n.raft.CurrentTerm()
	if q.Verify && n.barriers.Load() == term {
		if err := n.raft.VerifyLeader().Error(); err != nil {
			return reply{}, err
		}
	} else {
		if err := n.raft.Barrier(requestTimeout).Error(); err != nil {
			return reply{}, err
		}
		if n.raft.CurrentTerm() == term {
			n.barriers.Store(term)
		}
	}
	r := reply{Last: n.events.Last()}
	if r.Last == 0 {
		return r, nil
	}
	r.Pos = q.Pick%r.Last + 1
	list, err := n.events.Read(context.Background(), r.Pos, 1)
	if err == nil {
		r.ID = list[0].ID
	}
	return r, err
}

// eventOf is the event with that id: all but its time and index follows from the id.
func eventOf(id string) event.Event {
	h := fnv.New64a()
	h.Write([]byte(id))
	r := rand.New(rand.NewPCG(h.Sum64(), 0))
	data := make([]byte, r.IntN(600))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return event.Event{ID: id, Type: "cluster", Data: data}
}

// The state machine. Each event carries the index of its raft entry, so that the store itself says
// what it has.

// add appends e unless it is there. An id that comes again, because a client did not hear the answer, gives the
// first position.
func (n *node) add(e event.Event) uint64 {
	index := binary.BigEndian.Uint64(e.Metadata)
	if index <= n.applied.Load() {
		return 0
	}
	r, err := n.events.Append(context.Background(), e)
	if err != nil {
		fail(err)
	}
	if !r.Repeated {
		n.applied.Store(index)
	}
	return r.First
}

func (n *node) Apply(l *raft.Log) any {
	e := eventOf(string(l.Data))
	e.Time, e.Metadata = l.AppendedAt, binary.BigEndian.AppendUint64(nil, l.Index)
	return n.add(e)
}

// Restore appends what the store lacks; what it has beyond the snapshot is committed as well.
func (n *node) Restore(from io.ReadCloser) error {
	before := n.events.Last()
	for d := gob.NewDecoder(from); ; {
		var e event.Event
		if err := d.Decode(&e); err == io.EOF {
			if added := n.events.Last() - before; added > 0 {
				n.say(reply{News: "restored", Pos: added})
			}
			return nil
		} else if err != nil {
			return err
		}
		n.add(e)
	}
}

func (n *node) Snapshot() (raft.FSMSnapshot, error) { return snapshot{n, n.events.Last()}, nil }

type snapshot struct {
	*node
	last uint64
}

func (snapshot) Release() {}

func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if s.logs.Level() == holdfast.Power { // the weaker cluster is made to lose
		if err := s.eng.Sync(); err != nil {
			return err
		}
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

// stream is TCP on loopback at a port that the operating system chose, so nodes are addressed by
// their ids and the parent says which ports they have. As a port can pass from a node that was killed to another, a
// connection begins with the id that it is meant for.
type stream struct {
	net.Listener
	id    string
	peers atomic.Pointer[map[string]string]

	mu    sync.Mutex
	cut   bool // off from the others
	conns map[*conn]struct{}
}

type nodeAddr string

func (nodeAddr) Network() string  { return "tcp" }
func (a nodeAddr) String() string { return string(a) }

func (s *stream) Addr() net.Addr { return nodeAddr(s.id) }

func (s *stream) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	peers := s.peers.Load()
	if peers == nil || (*peers)[string(to)] == "" {
		return nil, fmt.Errorf("node %s is not up", to)
	}
	c, err := net.DialTimeout("tcp", (*peers)[string(to)], timeout)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(append([]byte{byte(len(to))}, to...)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return s.keep(&conn{Conn: c, s: s, greeted: true})
}

func (s *stream) Accept() (net.Conn, error) {
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if kept, err := s.keep(&conn{Conn: c, s: s}); err == nil {
			return kept, nil
		}
	}
}

// setCut closes all connections and keeps new ones from being made, or allows them again.
func (s *stream) setCut(cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = cut
	for c := range s.conns {
		if cut {
			_ = c.Conn.Close()
		}
	}
}

func (s *stream) keep(c *conn) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		return nil, errors.Join(errors.New("cut off"), c.Conn.Close())
	}
	s.conns[c] = struct{}{}
	return c, nil
}

// conn is refused, when it is read from, if it is meant for another node.
type conn struct {
	net.Conn
	s       *stream
	greeted bool
}

func (c *conn) Read(b []byte) (int, error) {
	if !c.greeted {
		greeting := make([]byte, 1+len(c.s.id))
		if _, err := io.ReadFull(c.Conn, greeting); err != nil {
			return 0, err
		}
		if int(greeting[0]) != len(c.s.id) || string(greeting[1:]) != c.s.id {
			return 0, errors.Join(fmt.Errorf("a connection for %q", greeting[1:]), c.Close())
		}
		c.greeted = true
	}
	return c.Conn.Read(b)
}

func (c *conn) Close() error {
	c.s.mu.Lock()
	delete(c.s.conns, c)
	c.s.mu.Unlock()
	return c.Conn.Close()
}
