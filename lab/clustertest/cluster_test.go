package clustertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

var members = []string{"a", "b", "c"}

// answerTime bounds every wait for a node. Nothing takes as long unless it hangs.
const answerTime = time.Minute

// cluster is three nodes, each a process of its own, some of them dead.
type cluster struct {
	t     *testing.T
	cfg   nodeConfig // but ID and Dir
	dir   string
	began time.Time
	news  sync.WaitGroup // readers of the nodes' output

	mu       sync.Mutex
	nodes    map[string]*process // those running
	addrs    map[string]string
	terms    map[string]uint64 // highest told by each node
	leaders  map[uint64]string // by term
	restored int               // snapshots that brought a node something
	reads    int               // that clients were answered
	starts   int
	failed   error // the first thing that must not be
}

// process is a node that runs.
type process struct {
	*child.Process
	id   string
	up   chan struct{}
	gone chan struct{} // closed when it has ended and been waited for

	mu       sync.Mutex
	next     uint64
	waiting  map[uint64]chan reply
	expected bool // that it ends
}

func newCluster(t *testing.T, cfg nodeConfig) *cluster {
	c := &cluster{t: t, cfg: cfg, dir: t.TempDir(), began: time.Now(),
		nodes: map[string]*process{}, addrs: map[string]string{},
		terms: map[string]uint64{}, leaders: map[uint64]string{}}
	c.cfg.Members = members
	t.Cleanup(func() {
		for _, id := range members {
			c.kill(id)
		}
		c.news.Wait()
		if t.Failed() {
			c.complaints()
		}
	})
	return c
}

func (c *cluster) nodeConfig(id string) nodeConfig {
	cfg := c.cfg
	cfg.ID, cfg.Dir = id, filepath.Join(c.dir, id)
	return cfg
}

// complaints shows the end of what nodes wrote to their standard error.
func (c *cluster) complaints() {
	for _, id := range members {
		text, _ := os.ReadFile(filepath.Join(c.dir, id+".err"))
		c.t.Logf("node %s said last:\n%s", id, text[max(0, len(text)-4000):])
	}
}

// races fails the test if a node built with -race has reported one; its exit code is lost when it is killed.
func (c *cluster) races() {
	c.t.Helper()
	for _, id := range members {
		if text, err := os.ReadFile(filepath.Join(c.dir, id+".err")); err != nil {
			c.t.Error(err)
		} else if i := bytes.Index(text, []byte("WARNING: DATA RACE")); i >= 0 {
			c.t.Errorf("node %s: %s", id, text[i:min(i+3000, len(text))])
		}
	}
}

// wrong notes what must not be; the test fails with the first of it.
func (c *cluster) wrong(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = fmt.Errorf(format, args...)
	}
}

func (c *cluster) must() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil && c.wedged() {
		c.t.Skipf("%v: hashicorp/raft 1.7.3 has lost its place in a monotonic log after a snapshot older than the log's "+
			"end (its issue 697)", c.failed)
	}
	if c.failed != nil {
		c.t.Fatal(c.failed)
	}
}

// wedged reports whether a node has ended as hashicorp/raft's issue 697 tells: it was sent a snapshot that is older
// than the end of its log, empties a monotonic store, as it does after every snapshot, goes on from the old end all the
// same, and panics when it then applies an entry that it has deleted itself. Raft does not do this with a store that
// does not say that it is monotonic. A store that has lost the entry would look the same but for what it holds: then
// there are entries before it, or it is there. It is called with mu held.
func (c *cluster) wedged() bool {
	if !c.cfg.Monotonic || !errors.Is(c.failed, errEnded) {
		return false
	}
	for _, id := range members {
		text, _ := os.ReadFile(filepath.Join(c.dir, id+".err"))
		before, panicked, _ := strings.Cut(string(text), "panic: log not found")
		first, _, _ := strings.Cut(panicked, "\n\ngoroutine 1 ")
		if !strings.Contains(first, "(*Raft).processLogs(") {
			continue
		}
		asked := regexp.MustCompile(`failed to get log: index=(\d+)`).FindAllStringSubmatch(before, -1)
		if len(asked) == 0 {
			return false
		}
		index, err := strconv.ParseUint(asked[len(asked)-1][1], 10, 64)
		if err != nil {
			return false
		}
		begin, err := c.begins(id)
		c.t.Logf("node %s wanted entry %d of a log that begins with %d, %v", id, index, begin, err)
		return err == nil && (begin == 0 || index < begin)
	}
	return false
}

// begins returns the first index of a node that has ended.
func (c *cluster) begins(id string) (_ uint64, err error) {
	cfg := c.nodeConfig(id)
	eng, err := all.Open(cfg.Engine, filepath.Join(cfg.Dir, "store"), cfg.engineOptions())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	logs, err := raftlog.Open(eng, raftlog.Options{Name: "raft", Level: cfg.Level, Monotonic: cfg.Monotonic})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, logs.Close()) }()
	return logs.FirstIndex()
}

// errEnded: a node ended that the test had not ended.
var errEnded = errors.New("ended by itself")

// start starts a node that is not running and waits until it is up, or has ended.
func (c *cluster) start(id string) {
	cfg := c.nodeConfig(id)
	value, err := json.Marshal(cfg)
	if err == nil {
		err = os.MkdirAll(cfg.Dir, 0o700)
	}
	if err != nil {
		c.wrong("%w", err)
		return
	}
	p := &process{id: id, up: make(chan struct{}), gone: make(chan struct{}),
		waiting: map[uint64]chan reply{}}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), nodeEnv+"="+string(value))
	stderr, err := os.OpenFile(filepath.Join(c.dir, id+".err"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.wrong("%w", err)
		return
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	if p.Process, err = child.StartProgram(cmd); err != nil {
		c.wrong("starting node %s: %w", id, err)
		return
	}
	c.mu.Lock()
	c.nodes[id] = p
	c.starts++
	c.mu.Unlock()
	c.news.Add(1)
	go c.hear(p)
	select {
	case <-p.up:
		c.introduce()
	case <-p.gone:
	case <-time.After(answerTime):
		c.wrong("node %s is not up after %v", id, answerTime)
	}
}

// introduce tells all nodes where all of them are.
func (c *cluster) introduce() {
	c.mu.Lock()
	addrs, nodes := maps.Clone(c.addrs), maps.Clone(c.nodes)
	c.mu.Unlock()
	for _, p := range nodes {
		p.send(request{Op: "peers", Peers: addrs})
	}
}

// hear reads what a node says until it ends.
func (c *cluster) hear(p *process) {
	defer c.news.Done()
	lines, up := json.NewDecoder(bufio.NewReader(p.Out)), false
	for {
		var r reply
		if lines.Decode(&r) != nil {
			break // what is cut short was not said
		}
		c.mu.Lock()
		// Terms are stored before they are used, so none may ever be forgotten.
		was := c.terms[p.id]
		c.terms[p.id] = max(was, r.Term)
		switch r.News {
		case "up":
			c.addrs[p.id] = r.Addr
			if r.Term < was && c.failed == nil {
				c.failed = fmt.Errorf("node %s has forgotten term %d and is in %d", p.id, was, r.Term)
			}
		case "leader":
			if other, ok := c.leaders[r.Pos]; ok && other != p.id && c.failed == nil {
				c.failed = fmt.Errorf("nodes %s and %s both led in term %d", other, p.id, r.Pos)
			}
			c.leaders[r.Pos] = p.id
		case "restored":
			c.restored++
		}
		c.mu.Unlock()
		if r.News == "up" && !up {
			up = true
			close(p.up)
		}
		if r.News == "" {
			p.mu.Lock()
			if answer := p.waiting[r.N]; answer != nil {
				answer <- r
				delete(p.waiting, r.N)
			}
			p.mu.Unlock()
		}
	}
	_, err := p.Wait()
	p.mu.Lock()
	expected := p.expected
	p.mu.Unlock()
	if !expected {
		c.wrong("node %s %w: %v", p.id, errEnded, err)
	}
	c.mu.Lock()
	if c.nodes[p.id] == p {
		delete(c.nodes, p.id)
	}
	c.mu.Unlock()
	close(p.gone)
}

func (p *process) send(q request) {
	line, err := json.Marshal(q)
	if err != nil {
		panic(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.Write(append(line, '\n')) // a node that is gone does not answer
}

// call asks a node and returns false if it gave no answer: what was asked may have been done, or may
// be done yet.
func (c *cluster) call(id string, q request) (reply, bool) {
	r, ok, late := c.ask(id, q, answerTime)
	if late {
		c.wrong("node %s has not answered %q within %v", id, q.Op, answerTime)
	}
	return r, ok
}

// ask is call that may take only that long, and tells if it was too long.
func (c *cluster) ask(id string, q request, within time.Duration) (r reply, ok, late bool) {
	c.mu.Lock()
	p := c.nodes[id]
	c.mu.Unlock()
	if p == nil {
		return reply{Refused: true, Err: "the node is not running"}, true, false
	}
	answer := make(chan reply, 1)
	p.mu.Lock()
	p.next++
	q.N = p.next
	p.waiting[q.N] = answer
	p.mu.Unlock()
	p.send(q)
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case r := <-answer:
		return r, true, false
	case <-p.gone:
		select {
		case r := <-answer: // its last word
			return r, true, false
		default:
			return reply{}, false, false
		}
	case <-limit.C:
		return reply{}, false, true
	}
}

// end makes a node end, by SIGKILL or in order, and waits for that.
func (c *cluster) end(id string, kill bool) {
	c.mu.Lock()
	p := c.nodes[id]
	c.mu.Unlock()
	if p == nil {
		return
	}
	p.mu.Lock()
	p.expected = true
	p.mu.Unlock()
	if !kill {
		if r, ok := c.call(id, request{Op: "stop"}); !ok || !r.OK {
			c.wrong("stopping node %s: %q", id, r.Err)
		}
	}
	p.Kill()
	<-p.gone
}

// pid is that of a node, 0 if it is not running.
func (c *cluster) pid(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.nodes[id]; p != nil {
		return p.PID()
	}
	return 0
}

// tell asks a node for something that is not answered.
func (c *cluster) tell(id, what string) {
	c.mu.Lock()
	p := c.nodes[id]
	c.mu.Unlock()
	if p != nil {
		p.send(request{Op: what})
	}
}

func (c *cluster) kill(id string) { c.end(id, true) }

func (c *cluster) running(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[id] != nil
}

// leader asks around until there is one, and gives up after answerTime.
func (c *cluster) leader() string {
	for until := time.Now().Add(answerTime); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		for _, id := range members {
			if !c.running(id) {
				continue
			}
			if r, ok := c.call(id, request{Op: "read"}); ok && r.OK {
				return id
			}
		}
		c.must()
	}
	c.t.Fatalf("no leader within %v", answerTime)
	return ""
}

// settle waits until all nodes have applied the same entries, and returns the index of the last.
func (c *cluster) settle() uint64 {
	c.t.Helper()
	leader := c.leader()
	var states [3]reply
	var even time.Time // since when they are, but for what a state machine has yet to do
	for until := time.Now().Add(answerTime); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		ok, applied := true, true
		for i, id := range members {
			r, answered := c.call(id, request{Op: "state"})
			states[i] = r
			applied = applied && answered && r.OK && r.Applied == states[0].Applied
			ok = ok && r.Last == states[0].Last
		}
		if !applied {
			even = time.Time{}
		} else if even.IsZero() {
			even = time.Now()
		}
		if applied && (ok || time.Since(even) > 10*time.Second) { // if it is not ok, check will say so
			return states[0].Applied
		}
		c.must()
	}
	c.t.Fatalf("nodes do not come to one state within %v; %s led: %+v", answerTime, leader, states)
	return 0
}

// client appends and reads through the leader until done is closed, and returns what it saw.
func (c *cluster) client(number int, seed uint64, done <-chan struct{}) (history []op) {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	leader := members[r.IntN(3)]
	// A client waits long, or it turns to another node while the one it has asked is paused.
	waits := func() time.Duration { return time.Duration(100+r.IntN(1000)) * time.Millisecond }
	now := func() int64 { return int64(time.Since(c.began)) }
	follow := func(hint string) {
		if leader = hint; leader == "" {
			leader = members[r.IntN(3)]
		}
		time.Sleep(time.Duration(2+r.IntN(10)) * time.Millisecond)
	}
	for n := 0; ; n++ {
		select {
		case <-done:
			return history
		default:
		}
		if r.IntN(3) == 0 {
			from := leader
			if r.IntN(3) == 0 {
				from = members[r.IntN(3)] // one that has been deposed must not answer
			}
			o := op{client: number, call: now()}
			a, ok, _ := c.ask(from, request{Op: "read", Pick: r.Uint64(), Verify: r.IntN(2) == 0}, waits())
			if !ok || !a.OK {
				follow(a.Leader)
				continue
			}
			o.ret, o.last, o.at, o.seen = now(), a.Last, a.Pos, a.ID
			history = append(history, o)
			c.mu.Lock()
			c.reads++
			c.mu.Unlock()
			continue
		}
		// An append that was not answered is repeated with the same id, mostly, or given up.
		o := op{client: number, call: now(), id: fmt.Sprintf("%d-%d", number, n), outcome: refused}
		for o.outcome != acked {
			a, ok, _ := c.ask(leader, request{Op: "append", ID: o.id}, waits())
			switch {
			case ok && a.OK:
				o.outcome, o.pos = acked, a.Pos
				continue
			case !ok || !a.Refused:
				o.outcome = unknown
			}
			follow(a.Leader)
			if over(done) || r.IntN(4) == 0 {
				break
			}
		}
		o.ret = now()
		history = append(history, o)
		time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
	}
}

func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// contents opens the stores of nodes that have ended, and compares what raft's logs have up to
// applied: entries at one index must be one.
func (c *cluster) contents(applied uint64) map[string][]event.Event {
	c.t.Helper()
	replicas, entries := map[string][]event.Event{}, map[uint64]raft.Log{}
	for _, id := range members {
		events, err := c.replica(id, applied, entries)
		if err != nil {
			c.t.Fatalf("node %s: %v", id, err)
		}
		replicas[id] = events
	}
	return replicas
}

func (c *cluster) replica(id string, applied uint64, entries map[uint64]raft.Log) (list []event.Event, err error) {
	cfg := c.nodeConfig(id)
	eng, err := all.Open(cfg.Engine, filepath.Join(cfg.Dir, "store"), cfg.engineOptions())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	events, err := event.Open(kv.On(eng), event.Options{Name: "events", Level: cfg.eventLevel()})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	if list, err = events.Read(context.Background(), 1, 0); err != nil {
		return nil, err
	}
	logs, err := raftlog.Open(eng, raftlog.Options{Name: "raft", Level: cfg.Level, Monotonic: cfg.Monotonic})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, logs.Close()) }()
	first, err := logs.FirstIndex()
	if err != nil {
		return nil, err
	}
	last, err := logs.LastIndex()
	if err != nil {
		return nil, err
	}
	term, err := logs.GetUint64([]byte("CurrentTerm"))
	if err != nil {
		return nil, fmt.Errorf("the current term: %w", err)
	}
	c.mu.Lock()
	told := c.terms[id]
	c.mu.Unlock()
	if term < told {
		return nil, fmt.Errorf("term %d was told, %d is stored", told, term)
	}
	was := raft.Log{}
	for i := first; first > 0 && i <= last; i++ {
		var l raft.Log
		if err := logs.GetLog(i, &l); errors.Is(err, raft.ErrLogNotFound) && !cfg.Monotonic {
			continue // below a snapshot from another node
		} else if err != nil {
			return nil, fmt.Errorf("entry %d of %d to %d: %w", i, first, last, err)
		}
		if l.Index != i || l.Term < was.Term || l.Term > term {
			return nil, fmt.Errorf("entry %d has index %d and term %d, the one before it term %d, the node is in %d",
				i, l.Index, l.Term, was.Term, term)
		}
		was = l
		if i > applied {
			continue
		}
		if other, ok := entries[i]; ok && (other.Term != l.Term || other.Type != l.Type || !bytes.Equal(other.Data, l.Data)) {
			return nil, fmt.Errorf("entry %d is %+v, on another node %+v", i, l, other)
		}
		entries[i] = l
	}
	return list, nil
}
