package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/internal/pgserver"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/store/message"
)

// secretOf is a password in an address, which nobody is to see. The servers of the tests ask for none.
const secretOf = "a-password-for-nobody"

// twoClusters starts two servers of PostgreSQL, and returns the flags that name a space in both.
func twoClusters(t *testing.T) (flags func(space string) []string, servers []*pgserver.Server,
	open []func() *pgserver.Server) {
	t.Helper()
	var addresses []func(string) string
	for range 2 {
		address, server := database(t)
		addresses, servers = append(addresses, address), append(servers, server)
		open = append(open, func() *pgserver.Server {
			t.Helper()
			at, _, _ := strings.Cut(strings.SplitAfter(address("x"), "host=")[1], "&")
			server, err := pgserver.Open(at, pgserver.Config{Settings: serverSettings})
			try(t, err)
			t.Cleanup(server.Kill)
			ctx, cancel := context.WithTimeout(t.Context(), pgserver.Patience)
			defer cancel()
			try(t, server.Ready(ctx))
			return server
		})
	}
	return func(space string) (args []string) {
		for _, address := range addresses {
			at := strings.Replace(address(space), "postgres@", "postgres:"+secretOf+"@", 1)
			args = append(args, "--engine", strings.Replace(at, "patience=10s", "patience=5s", 1)) // they do go
		}
		return args
	}, servers, open
}

// serveClusters starts a process that has several clusters.
func serveClusters(t *testing.T, flags []string, args ...string) *process {
	t.Helper()
	return serveNode(t, flags[1], "", append(flags[2:len(flags):len(flags)], args...)...)
}

// tenant is a namespace with a client that writes and one that follows.
type tenant struct {
	name     string
	ns       *client.Namespace
	written  atomic.Int64
	told     []int64
	followed []int64
	last     atomic.Int64
}

// tenants make and use namespaces until stop is called, which checks that what was acknowledged is there once, at the
// position that was told, and was followed in order.
func tenants(t *testing.T, ctx context.Context, p *process, names ...string) (all map[string]*tenant, stop func()) {
	t.Helper()
	all = map[string]*tenant{}
	c := p.api(client.Options{Retry: 2 * time.Minute})
	writing, halt := context.WithCancel(ctx)
	following, unfollow := context.WithCancel(ctx)
	var writers, followers sync.WaitGroup
	fail := func(err error) {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	for _, name := range names {
		n := &tenant{name: name, ns: c.Namespace(name)}
		all[name] = n
		writers.Go(func() {
			for ; writing.Err() == nil; breathe() {
				r, err := n.ns.Write(ctx, "s-1", message.Message{Type: "T", Data: []byte(`{}`)})
				if err != nil {
					fail(fmt.Errorf("%s: %w", name, err))
					return
				}
				n.told = append(n.told, r.Position)
				n.written.Add(1)
			}
		})
		followers.Go(func() {
			for m, err := range n.ns.Follow(following, message.Query{Stream: "s-1"}) {
				if err != nil {
					fail(err)
					return
				}
				n.followed = append(n.followed, m.Position)
				n.last.Store(m.Position)
			}
		})
	}
	return all, func() {
		t.Helper()
		halt()
		writers.Wait()
		for name, n := range all {
			i := 0
			for m, err := range n.ns.Read(ctx, message.Query{Stream: "s-1"}) {
				try(t, err)
				if m.Position != int64(i) {
					t.Fatalf("%s: position %d after %d messages", name, m.Position, i)
				}
				i++
			}
			for j, at := range n.told {
				if at != int64(j) {
					t.Errorf("%s: write %d was said to be at %d", name, j, at)
					break
				}
			}
			if i != len(n.told) {
				t.Errorf("%s has %d messages, %d were acknowledged", name, i, len(n.told))
			}
			testkit.Until(t, "followed", func() bool { return n.last.Load() >= int64(i-1) }, p.log)
		}
		unfollow()
		followers.Wait()
		for name, n := range all {
			for i, at := range n.followed {
				if at != int64(i) {
					t.Fatalf("%s: followed %d after %d messages", name, at, i)
				}
			}
		}
	}
}

// breathe is between the writes of a client that writes for as long as something lasts, which leaves it the processors.
func breathe() { time.Sleep(5 * time.Millisecond) }

// more waits until so many more writes of a tenant are acknowledged.
func (n *tenant) more(t *testing.T, what string, count int64, logs ...fmt.Stringer) {
	t.Helper()
	least := n.written.Load() + count
	testkit.Until(t, what+" "+n.name, func() bool { return n.written.Load() >= least }, logs...)
}

// lies tells where a namespace lies, -1 for nowhere.
func (p *process) lies(name string) int {
	p.t.Helper()
	list, err := p.api(client.Options{}).Namespaces(p.t.Context())
	try(p.t, err)
	for _, n := range list {
		if n.ID == name {
			return n.Space
		}
	}
	return -1
}

// TestClusters: two processes with two clusters of PostgreSQL. Namespaces are moved from one to the other while clients
// write. Each of the clusters goes, and comes back: those who have to do with the other one go on meanwhile, and
// afterwards all do. Nothing is lost, or has another position than was said.
func TestClusters(t *testing.T) {
	t.Parallel() // it waits
	const spaces = 2
	flags, servers, open := twoClusters(t)
	at := flags("clusters")
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	args := append(at[2:len(at):len(at)], "--spaces", strconv.Itoa(spaces))
	p, first := beginNode(t, at[1], "", args...)
	q, second := beginNode(t, at[1], "", args...)
	first()
	second()
	for _, one := range []*process{p, q} {
		one.eventually("shared", func() bool {
			has := map[string]int{}
			for _, s := range one.nodes().Spaces {
				has[s.Owner]++
			}
			return has[p.url] == spaces && has[q.url] == spaces
		})
	}
	c := p.api(client.Options{})
	in := map[int][]string{}
	var names []string
	for i := range 7 {
		name := fmt.Sprintf("n%d", i)
		_, err := c.CreateNamespace(ctx, api.NewNamespace{ID: name})
		try(t, err)
		at := q.lies(name)
		in[at] = append(in[at], name)
		names = append(names, name)
	}
	if len(in[0]) != 1 || len(in[1]) != 2 || len(in[1000]) != 2 || len(in[1001]) != 2 {
		t.Fatalf("namespaces lie in %v", in)
	}
	all, done := tenants(t, ctx, p, names...)
	for _, n := range all {
		n.more(t, "written", 20, p.log, q.log)
	}
	for _, one := range []*process{p, q} { // each knows each token, and where each namespace lies
		for _, name := range names {
			one.ownerOf(name, nodesToken)
		}
	}

	// From one cluster to the other and back, while clients write.
	for i, name := range []string{in[0][0], in[1000][0], in[1001][0], in[1][0]} {
		to := []int{1001, 1, 0, 1000}[i]
		status, out, text := result(t, holdfastCommand(t, "namespace", "move", name, "--to", strconv.Itoa(to), "--url", q.url,
			"--token", nodesToken))
		if at := p.lies(name); status != exitOK || at != to {
			t.Errorf("%s is in space %d, not %d: %d %s%s", name, at, to, status, out, text)
		}
		all[name].more(t, "written after the move", 20, p.log, q.log)
	}
	clusterOf := map[string]int{}
	for _, name := range names {
		clusterOf[name] = p.lies(name) / 1000
	}

	for gone := range 2 {
		began := time.Now()
		servers[gone].Kill()
		for _, one := range []*process{p, q} {
			one.eventually("seen to be gone", func() bool {
				n := one.nodes()
				return n.Clusters[gone].Trouble != "" && n.Clusters[1-gone].Trouble == ""
			})
		}
		for _, name := range names { // before, and after the owners have given up what is gone
			if clusterOf[name] != gone {
				all[name].more(t, fmt.Sprintf("without cluster %d, written in", gone), 50, p.log, q.log)
			}
		}
		for _, one := range []*process{p, q} {
			one.eventually("given up", func() bool {
				return !slices.ContainsFunc(one.nodes().Spaces, func(s api.Space) bool {
					return s.Cluster == gone && s.Owner == one.url
				})
			})
		}
		for _, name := range names {
			if clusterOf[name] != gone {
				all[name].more(t, fmt.Sprintf("long without cluster %d, written in", gone), 50, p.log, q.log)
			} else if status, text, _ := q.get("/v1/namespaces/"+name+"/streams", nodesToken); status != 503 {
				t.Errorf("without cluster %d, %s: %d %s", gone, name, status, text)
			}
		}
		status, out, text := result(t, holdfastCommand(t, "nodes", "--url", q.url, "--token", nodesToken))
		if status != exitOK || !strings.Contains(out, "not seen for") || strings.Contains(out+text, secretOf) {
			t.Errorf("%d %s%s", status, out, text)
		}
		if status, text, _ := q.get("/v1/metrics", nodesToken); status != http.StatusOK || strings.Contains(text, secretOf) ||
			!strings.Contains(text, `holdfast_space_owner{cluster="1",space="1001"}`) {
			t.Errorf("%d %s", status, text)
		}
		if gone == 1 {
			made, err := c.CreateNamespace(ctx, api.NewNamespace{ID: "late"})
			try(t, err)
			if at := p.lies("late"); at/1000 != 0 {
				t.Errorf("a new namespace lies in space %d", at)
			}
			if status, text := q.rpc(made.Token, `["stream.write","s-1",{"type":"T","data":{}}]`); status != http.StatusOK {
				t.Error(status, text)
			}
		}
		servers[gone] = open[gone]()
		for _, name := range names {
			all[name].more(t, fmt.Sprintf("with cluster %d again, written in", gone), 20, p.log, q.log)
		}
		t.Logf("cluster %d was gone, and back after %v", gone, time.Since(began).Round(time.Second))
	}
	done()
	for _, one := range []*process{p, q} {
		if strings.Contains(one.log.String(), secretOf) {
			t.Errorf("the log has a password: %s", one.log)
		}
		text, err := json.Marshal(one.nodes())
		if try(t, err); strings.Contains(string(text), secretOf) {
			t.Errorf("%s", text)
		}
		one.stop(syscall.SIGTERM)
	}
}

// TestClustersRefuse: what a process cannot be given it says at its start, and touches nothing.
func TestClustersRefuse(t *testing.T) {
	t.Parallel() // it waits
	flags, _, _ := twoClusters(t)
	run := func(args ...string) (int, string) {
		t.Helper()
		cmd := holdfastCommand(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
		cmd.Env = append(cmd.Env, "HOLDFAST_PEER_TOKEN="+peerToken)
		status, out, text := result(t, cmd)
		if strings.Contains(out+text, secretOf) {
			t.Errorf("a password is shown: %s%s", out, text)
		}
		return status, text
	}
	refused := func(what, want string, args ...string) {
		t.Helper()
		if status, text := run(args...); status != exitError || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", what, status, text)
		}
	}
	beside := func(of []string) []string { return append([]string{"--advertise", "http://127.0.0.1:0"}, of...) }
	swapped := func(of []string) []string { return []string{of[0], of[3], of[2], of[1]} }
	twice := func(of []string) []string { return []string{of[0], of[1], of[0], of[1]} }

	refused("several for one process", "--advertise", flags("a")...)
	refused("a directory", "one directory", append(beside(flags("a")), "--engine", "pebble:x")...)
	refused("one twice, when nothing is there", "twice", beside(twice(flags("a")))...)

	// One process has one cluster, and another has two: the second one is not used.
	at := flags("b")
	old := serveNode(t, at[1], "")
	old.eventually("owns", func() bool { return old.nodes().Spaces[0].Owner == old.url })
	refused("the second one first", "cannot be cluster", beside(swapped(at))...)
	refused("one twice, when a server is in it", "cannot be cluster", beside(twice(at))...)
	first := serveClusters(t, at)
	first.eventually("seen", func() bool {
		n := first.nodes()
		return n.Spaces[0].Owner == old.url && len(n.Clusters) == 2 && n.Clusters[1].Alive == 1 && n.Clusters[1].SeenMS < 500
	})
	if n := first.nodes(); len(n.Spaces) != 1 || n.Clusters[1].Spaces != 0 {
		t.Errorf("%+v", n)
	}
	status, out, text := result(t, holdfastCommand(t, "nodes", "--url", first.url, "--token", nodesToken))
	if status != exitOK || !strings.Contains(out, "not used before all processes have it") ||
		!strings.Contains(out, "but not in cluster 1") {
		t.Errorf("%d %s%s", status, out, text)
	}
	old.stop(syscall.SIGTERM)
	first.eventually("used", func() bool {
		n := first.nodes()
		return len(n.Spaces) == 2 && n.Spaces[1].Space == 1000 && n.Spaces[1].Owner == first.url
	})
	refused("fewer", "was given 1", beside(at[:2])...)
	refused("the second one alone", "cannot be cluster", beside(at[2:])...)
	refused("the second one as the third", "cannot be cluster", beside([]string{at[0], at[1], at[0],
		strings.Replace(at[3], "space=b", "space=c", 1), at[2], at[3]})...)
	refused("another server's", "cannot be cluster", beside([]string{at[0],
		strings.Replace(at[1], "space=b", "space=d", 1), at[2], at[3]})...)
	refused("not the one that it was", "cannot be cluster", beside([]string{at[0], at[1], at[0],
		strings.Replace(at[3], "space=b", "space=e", 1)})...)
	refused("a name that is taken", "has the address", append([]string{"--advertise", first.url}, at...)...)

	// What lies in the second cluster is there all the while.
	c := first.api(client.Options{})
	for i := range 3 {
		_, err := c.CreateNamespace(t.Context(), api.NewNamespace{ID: fmt.Sprintf("n%d", i)})
		try(t, err)
	}
	second := serveClusters(t, at)
	for i := range 3 {
		if status, text, _ := second.get(fmt.Sprintf("/v1/namespaces/n%d/streams", i), nodesToken); status != 200 {
			t.Errorf("%d %s", status, text)
		}
	}
}

// TestClusterGoneAtStart: a process begins with the clusters that are there, and takes the others when they come.
func TestClusterGoneAtStart(t *testing.T) {
	t.Parallel() // it waits
	flags, servers, open := twoClusters(t)
	at := flags("late")
	p := serveClusters(t, at)
	p.eventually("owns", func() bool { n := p.nodes(); return len(n.Spaces) == 2 && n.Spaces[1].Owner == p.url })
	c := p.api(client.Options{})
	in := map[string]int{}
	for i := range 3 {
		name := fmt.Sprintf("n%d", i)
		_, err := c.CreateNamespace(t.Context(), api.NewNamespace{ID: name})
		try(t, err)
		in[name] = p.lies(name) / 1000
		_, err = c.Namespace(name).Write(t.Context(), "s-1", message.Message{Type: "T", Data: []byte(`{}`)})
		try(t, err)
	}
	for gone := range 2 {
		p.stop(syscall.SIGTERM)
		servers[gone].Kill()
		p = serveClusters(t, at)
		answers := func(name string) bool {
			status, text, _ := p.get("/v1/namespaces/"+name+"/messages?stream=s-1", nodesToken)
			return status == http.StatusOK && strings.Count(text, `"stream"`) == 1
		}
		p.eventually("owns what is there", func() bool {
			res, err := p.client.Get(p.url + "/ready")
			if err != nil {
				return false
			}
			defer res.Body.Close()
			return res.StatusCode == http.StatusOK
		})
		for name, cluster := range in {
			// Without the first one nobody knows whose tokens are good.
			want := gone == 1 && cluster == 0
			if want {
				p.eventually("answers", func() bool { return answers(name) })
			} else if answers(name) {
				t.Errorf("without cluster %d, %s, of cluster %d, is answered for", gone, name, cluster)
			}
		}
		servers[gone] = open[gone]()
		for name := range in {
			p.eventually("answers again", func() bool { return answers(name) })
		}
	}
}
