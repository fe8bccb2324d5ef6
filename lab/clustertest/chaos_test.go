package clustertest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
)

var (
	soak = flag.Duration("cluster.for", 0, "for how long TestCluster goes on with new clusters; 0 is one of each kind")
	seed = flag.Uint64("cluster.seed", 0, "the first seed of TestCluster; 0 takes the time")
)

var kinds = []struct {
	engine    string
	monotonic bool
}{
	{"logtree", false},
	{"logtree", true},
	{"pebble", true},
	{"bbolt", false},
}

// TestCluster runs clusters while nodes are killed and restarted, leadership moves, and snapshots
// cut logs off.
func TestCluster(t *testing.T) {
	began, first := time.Now(), *seed
	if first == 0 {
		first = uint64(began.UnixNano())
	}
	for round := uint64(0); round == 0 || time.Since(began) < *soak; round++ {
		for i, kind := range kinds {
			s := first + round*uint64(len(kinds)) + uint64(i)
			t.Run(fmt.Sprintf("%s/monotonic=%v", kind.engine, kind.monotonic), func(t *testing.T) {
				if *soak == 0 {
					t.Parallel() // it waits for elections and pauses
				}
				storm(t, nodeConfig{Engine: kind.engine, Monotonic: kind.monotonic, Level: holdfast.Power}, s, 4*time.Second)
			})
			if t.Failed() {
				return
			}
		}
	}
}

// tally counts what was done to a cluster.
type tally struct{ kills, all, cuts, pauses, transfers, snapshots int }

// storm runs one cluster for about that long and checks it.
func storm(t *testing.T, cfg nodeConfig, seed uint64, lasts time.Duration) {
	t.Logf("seed %d", seed)
	c := newCluster(t, cfg)
	for _, id := range members {
		c.start(id)
	}
	c.leader()

	const clients = 6
	var histories [clients + 1][]op
	var working sync.WaitGroup
	done := make(chan struct{})
	for i := range clients {
		working.Go(func() { histories[i] = c.client(i, seed, done) })
	}
	stop := sync.OnceFunc(func() {
		close(done)
		working.Wait()
	})
	defer stop()
	count := c.disturb(rand.New(rand.NewPCG(seed, 100)), time.Now().Add(lasts))
	for _, id := range members {
		if !c.running(id) {
			c.start(id)
		}
	}
	c.must()
	c.leader()
	stop()
	histories[clients] = c.overtake(clients)
	applied := c.settle()
	for i, id := range members {
		c.end(id, i == int(seed%3)) // one is killed, the others end in order
	}
	c.must()

	c.races()
	var history []op
	for _, h := range histories {
		history = append(history, h...)
	}
	replicas := c.contents(applied)
	if err := check(history, replicas); err != nil {
		t.Fatalf("%v (seed %d)", err, seed)
	}
	by := map[outcome]int{}
	for _, o := range history {
		by[o.outcome]++
	}
	t.Logf("%d events, %d appends acknowledged, %d unknown, %d refused, %d reads",
		len(replicas["a"]), by[acked], by[unknown], by[refused], by[0])
	t.Logf("%+v; %d terms with a leader, %d snapshots installed", count, len(c.leaders), c.restored)
	if by[acked] < 100 || by[0] == 0 || count.kills == 0 || len(c.leaders) < 2 || c.restored == 0 {
		t.Errorf("too little has happened for a test")
	}
}

// disturb kills and restarts nodes, cuts them off, pauses them, moves leadership and asks for snapshots, at random.
func (c *cluster) disturb(r *rand.Rand, until time.Time) (n tally) {
	latest := until.Add(answerTime) // however slow the machine, enough must come of it
	for time.Now().Before(until) || time.Now().Before(latest) && (n.kills == 0 || !c.lively()) {
		time.Sleep(time.Duration(50+r.IntN(250)) * time.Millisecond)
		id := members[r.IntN(3)]
		switch r.IntN(14) {
		case 0, 1, 2, 3: // one
			c.kill(id)
			n.kills++
			time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
			c.start(id)
		case 4: // two, so that nothing can be committed
			other := members[r.IntN(3)]
			c.kill(id)
			c.kill(other)
			n.kills++
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			c.start(id)
			if other != id {
				c.start(other)
			}
		case 5: // all
			var dying sync.WaitGroup
			for _, id := range members {
				dying.Go(func() { c.kill(id) })
			}
			dying.Wait()
			n.kills++
			n.all++
			for _, i := range r.Perm(3) {
				c.start(members[i])
			}
		case 6, 7: // off from the others, most often the leader
			id = c.likely(id)
			c.tell(id, "cut")
			time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
			c.tell(id, "heal")
			n.cuts++
		case 8, 9: // standing still, and then in the belief that it still leads
			id = c.likely(id)
			if pid := c.pid(id); pause(pid) {
				time.Sleep(time.Duration(500+r.IntN(1000)) * time.Millisecond)
				resume(pid)
				n.pauses++
			}
		case 10, 11:
			for _, id := range members {
				if a, ok := c.call(id, request{Op: "transfer"}); ok && a.OK {
					n.transfers++
				}
			}
		default:
			if a, ok := c.call(id, request{Op: "snapshot"}); ok && a.OK {
				n.snapshots++
			}
		}
		c.mu.Lock()
		failed := c.failed != nil
		c.mu.Unlock()
		if failed {
			break
		}
	}
	return n
}

// lively reports whether leadership has changed and a client has been answered a read.
func (c *cluster) lively() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.leaders) > 1 && c.reads > 0
}

// likely returns the node that led last, or otherwise if there was none.
func (c *cluster) likely(otherwise string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := uint64(0)
	for term := range c.leaders {
		last = max(last, term)
	}
	if last == 0 {
		return otherwise
	}
	return c.leaders[last]
}

// overtake lets a node fall so far behind that the others' logs no longer have what it lacks: a
// snapshot must bring it.
func (c *cluster) overtake(number int) []op {
	c.t.Helper()
	c.mu.Lock()
	before := c.restored
	c.mu.Unlock()
	behind := members[0]
	if c.leader() == behind {
		behind = members[1]
	}
	c.kill(behind)
	history := c.write(number, 150)
	for _, id := range members {
		if id == behind {
			continue
		}
		if r, ok := c.call(id, request{Op: "snapshot"}); !ok || !r.OK && !strings.Contains(r.Err, "nothing new") {
			c.t.Fatalf("a snapshot on node %s: %q", id, r.Err)
		}
		// It has cut the log off but for the last twenty entries, and what came since.
		if r, ok := c.call(id, request{Op: "state"}); !ok || !r.OK || r.First < 2 {
			c.t.Fatalf("after a snapshot the log of node %s begins at %d: %q", id, r.First, r.Err)
		}
	}
	history = append(history, c.write(number, 30)...)
	c.start(behind)
	c.settle()
	c.must()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.restored == before {
		c.t.Fatalf("node %s was overtaken and has got no snapshot", behind)
	}
	return history
}

// write appends that many events, each of which must be acknowledged.
func (c *cluster) write(number, events int) (history []op) {
	c.t.Helper()
	leader, base := c.leader(), time.Since(c.began)
	for i := range events {
		o := op{client: number, call: int64(time.Since(c.began)), outcome: acked,
			id: fmt.Sprintf("%d-%d-%d", number, base, i)}
		for {
			a, ok := c.call(leader, request{Op: "append", ID: o.id})
			if ok && a.OK {
				o.pos = a.Pos
				break
			}
			c.must()
			leader = c.leader()
		}
		o.ret = int64(time.Since(c.began))
		history = append(history, o)
	}
	return history
}

// TestControl takes durability away: a raft store at Memory forgets, when all nodes are killed, what
// the cluster had acknowledged. The same check must find that out.
func TestControl(t *testing.T) {
	c := newCluster(t, nodeConfig{Engine: "logtree", Level: holdfast.Memory})
	for _, id := range members {
		c.start(id)
	}
	history := c.write(0, 50)
	for _, id := range members {
		c.kill(id)
	}
	c.must()
	c.mu.Lock()
	c.terms = map[string]uint64{} // that terms are forgotten as well is not the point here
	c.leaders = map[uint64]string{}
	c.mu.Unlock()
	for _, id := range members {
		c.start(id)
	}
	history = append(history, c.write(1, 10)...)
	applied := c.settle()
	for _, id := range members {
		c.end(id, false)
	}
	c.must()
	err := check(history, c.contents(applied))
	if err == nil || !strings.Contains(err.Error(), "lost") {
		t.Fatalf("a cluster that cannot have kept its writes has passed: %v", err)
	}
	t.Logf("found out: %v", err)
}
