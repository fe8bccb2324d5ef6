package nodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/server/auth"
)

// spaces returns the numbers of the spaces that a cluster has, and those of them that have an owner.
func (b *board) spaces() (all, owned []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for number, r := range b.rows {
		if all = append(all, number); r.Owner != "" {
			owned = append(owned, number)
		}
	}
	slices.Sort(all)
	slices.Sort(owned)
	return all, owned
}

// lose lets nobody reach the cluster any more, or everybody again. Engines in it stop.
func (b *board) lose(gone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = gone
	for _, r := range b.rows {
		if r.barred = gone; gone && r.holder != nil {
			r.holder.end(errors.Join(holdfast.ErrPoisoned, holdfast.ErrUnavailable))
		}
	}
}

// knows reports whether the process takes a token for good that it cannot ask for.
func (n *testNode) knows(token string) bool {
	n.known.mu.Lock()
	defer n.known.mu.Unlock()
	g, ok := n.known.good[auth.Hash(token)]
	return n.has(0) || ok && g.of == n.known.at && g.of.Run != ""
}

// refusal is why a process with these clusters does not begin.
func refusal(t *testing.T, self string, boards ...*board) error {
	t.Helper()
	var clusters []Cluster
	for i, b := range boards {
		clusters = append(clusters, member{b, self, i, len(boards)})
	}
	n, err := New(clusters, Options{Self: self, PeerToken: secret, Level: holdfast.Memory,
		Logger: slog.New(slog.DiscardHandler)})
	testkit.Try(t, err)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	err = n.Run(ctx)
	if ctx.Err() != nil {
		t.Error("the process has begun")
	}
	return err
}

// A cluster is used when all processes that live have been given it, and then none begins without it, or takes it for
// another one.
func TestClusterIsAdded(t *testing.T) {
	t.Parallel() // it waits
	a, b := newBoard(), newBoard()
	old := nodeOf(t, 1, a)
	testkit.Until(t, "owned", func() bool { _, owned := a.spaces(); return len(owned) == 1 })
	first := nodeOf(t, 2, a, b)
	testkit.Until(t, "seen", func() bool {
		seen := first.Show()
		return len(seen.Nodes) == 2 && len(seen.Clusters) == 2 && seen.Clusters[1].Alive == 1
	})
	testkit.Until(t, "shared", func() bool { _, owned := a.spaces(); return len(owned) == 2 })
	if all, _ := b.spaces(); len(all) > 0 || len(a.marks) > 0 || len(b.marks) > 0 {
		t.Errorf("a cluster that a process does not know of has the spaces %v, marks %v and %v", all, a.marks, b.marks)
	}
	if err := refusal(t, "http://swapped", b, a); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("in another order: %v", err)
	}
	if err := refusal(t, "http://twice", a, a); !errors.Is(err, holdfast.ErrBadOption) ||
		!strings.Contains(fmt.Sprint(err), "twice") {
		t.Errorf("one cluster twice: %v", err)
	}
	old.stop()
	second := nodeOf(t, 2, a, b)
	testkit.Until(t, "used", func() bool {
		_, owned := b.spaces()
		return slices.Equal(owned, []int{1000, 1001}) && !slices.ContainsFunc(first.Show().Spaces, func(s api.Space) bool {
			return s.Owner == ""
		}) && len(second.Show().Spaces) == 4
	})
	if a.marks[0] == "" || a.marks[1] != a.marks[0] || b.marks[1] != a.marks[0] || len(b.marks) != 1 {
		t.Errorf("marks %v and %v", a.marks, b.marks)
	}
	for what, boards := range map[string][]*board{"fewer": {a}, "replaced": {a, newBoard()}} {
		if err := refusal(t, "http://"+what, boards...); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, lie := second.namespaces(8)
	in := map[int]int{}
	for _, space := range lie {
		in[space]++
	}
	if len(in) != 4 { // one that is handed over meanwhile may get fewer than the others
		t.Errorf("namespaces lie in %v", in)
	}
	for name, space := range lie { // from everywhere to everywhere
		to := map[int]int{0: 1001, 1: 1000, 1000: 0, 1001: 1000}[space]
		if status, text := first.moveTo(name, to); status != http.StatusNoContent {
			t.Errorf("%s from space %d to %d: %d %s", name, space, to, status, text)
		}
		status, text, _ := second.ask("GET", "/v1/namespaces/"+name+"/messages?stream=a-1", everything, "")
		if status != http.StatusOK || !strings.Contains(text, `"`+name+`"`) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}

// Two clusters with one space each go to two processes, also if one of them was there before.
func TestClustersAreShared(t *testing.T) {
	t.Parallel() // it waits
	a, b := newBoard(), newBoard()
	first := nodeOf(t, 1, a, b)
	testkit.Until(t, "owned", func() bool { return len(a.owners()) == 1 && b.owners()[1000] == first.o.Self })
	second := nodeOf(t, 1, a, b)
	testkit.Until(t, "shared", func() bool {
		owners := []string{a.owners()[0], b.owners()[1000]}
		return slices.Contains(owners, first.o.Self) && slices.Contains(owners, second.o.Self)
	})
}

// A cluster that is gone takes only its own namespaces with it, also if it is the first one; when it is back they go
// on.
func TestClusterIsGone(t *testing.T) {
	t.Parallel() // it waits
	boards := []*board{newBoard(), newBoard()}
	var nodes []*testNode
	for range 2 {
		nodes = append(nodes, nodeOf(t, 1, boards...))
	}
	for _, n := range nodes {
		testkit.Until(t, "owned", func() bool {
			spaces := n.Show().Spaces
			return len(spaces) == 2 && spaces[0].Owner != "" && spaces[1].Owner != ""
		})
	}
	tokens, lie := nodes[0].namespaces(6)
	every := func(f func(n *testNode, name, token string)) {
		for _, n := range nodes {
			for name, token := range tokens {
				f(n, name, token)
			}
		}
	}
	answered := func() {
		t.Helper()
		every(func(n *testNode, name, token string) {
			testkit.Until(t, "answered", func() bool {
				status, _ := n.rpc(token, `["stream.version","a-1"]`)
				return status == http.StatusOK && n.knows(token)
			})
		})
	}
	for gone := range boards {
		answered()
		boards[gone].lose(true)
		for _, n := range nodes {
			testkit.Until(t, "seen", func() bool {
				return n.Show().Clusters[gone].Trouble != "" && !n.has(gone*PerCluster) && n.ready() == nil
			})
		}
		every(func(n *testNode, name, token string) {
			path := "/v1/namespaces/" + name + "/streams"
			if lie[name]/PerCluster == gone {
				status, text, header := n.once("GET", path, token, "")
				if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
					t.Errorf("without cluster %d, %s, which lies there: %d %s", gone, name, status, text)
				}
			} else if status, text, _ := n.ask("GET", path, token, ""); status != http.StatusOK ||
				!strings.Contains(text, "a-1") {
				t.Errorf("without cluster %d, %s, which lies in space %d: %d %s", gone, name, lie[name], status, text)
			}
		})
		if gone == 1 { // new ones lie where there is somebody
			for i, n := range nodes {
				name := fmt.Sprintf("new%d", i)
				if status, text := n.rpc(everything, `["ns.create","`+name+`"]`); status != http.StatusOK {
					t.Errorf("%d %s", status, text)
				}
				if space, err := n.lies(t.Context(), name); space != 0 || err != nil {
					t.Errorf("%s lies in space %d, %v", name, space, err)
				}
				status, text, _ := n.ask("GET", "/v1/namespaces", everything, "")
				if status != http.StatusOK || strings.Count(text, `"messages":-1`) != 3 {
					t.Errorf("%d %s", status, text)
				}
				status, text = n.moveTo(name, PerCluster)
				if status != http.StatusServiceUnavailable || !strings.Contains(text, "cluster 1") {
					t.Errorf("a move to a cluster that is gone: %d %s", status, text)
				}
			}
		}
		boards[gone].lose(false)
		answered()
	}
}

// What lies in a cluster that has not answered yet is not taken for what is not there.
func TestClusterIsLate(t *testing.T) {
	boards := []*board{newBoard(), newBoard()}
	first := nodeOf(t, 1, boards...)
	testkit.Until(t, "owned", func() bool {
		spaces := first.Show().Spaces
		return len(spaces) == 2 && spaces[0].Owner != "" && spaces[1].Owner != ""
	})
	_, lie := first.namespaces(4)
	boards[1].lose(true)
	second := nodeOf(t, 1, boards...)
	testkit.Until(t, "ready", func() bool { return second.ready() == nil })
	for name, space := range lie {
		ask, want := second.ask, http.StatusOK
		if space == PerCluster {
			ask, want = second.once, http.StatusServiceUnavailable
		}
		if status, text, _ := ask("GET", "/v1/namespaces/"+name+"/streams", everything, ""); status != want {
			t.Errorf("%s, in space %d: %d %s", name, space, status, text)
		}
	}
	boards[1].lose(false)
}

// A namespace in a cluster that a process was not given is not taken for one that is not there.
func TestClusterIsMissing(t *testing.T) {
	_, nodes := start(t, 2, 2)
	nodes[1].lying.set("far", 1003) // nodes[0] has the first space
	status, text, _ := nodes[1].once("GET", "/v1/namespaces/far/streams", everything, "")
	if status != http.StatusServiceUnavailable || !strings.Contains(text, "was not given") {
		t.Errorf("%d %s", status, text)
	}
}
