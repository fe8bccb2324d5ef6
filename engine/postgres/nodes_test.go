package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// shown is what a process sees: who lives, and of each space the owner and whether it may be taken.
func shown(t *testing.T, n *Nodes) (text string, spaces []Space) {
	t.Helper()
	seen, err := n.Look(t.Context())
	testkit.Try(t, err)
	for _, n := range seen.Nodes {
		text += fmt.Sprintf("%s %v ", n.Address, n.Alive)
	}
	for _, s := range seen.Spaces {
		text += fmt.Sprintf("%d:%s:%v ", s.Number, s.Owner, s.Free)
	}

	return text, seen.Spaces
}

// glances counts connections on which a space was looked at more than once before it was taken: who need not wait for
// it looks once.
type glances struct {
	looked sync.Map
	again  atomic.Int64
}

func (g *glances) TraceQueryStart(ctx context.Context, conn *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if q.SQL == look {
		if _, before := g.looked.LoadOrStore(conn, true); before {
			g.again.Add(1)
		}
	}

	return ctx
}

func (g *glances) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func joined(t *testing.T, at string, tune ...func(*pgx.ConnConfig)) *Nodes {
	t.Helper()
	n, err := Join(at, holdfast.Options{}, Self{Address: "http://" + t.Name(), Version: "v1", Protocol: 7}, tune...)
	testkit.Try(t, err)
	t.Cleanup(func() { _ = n.Close() })

	return n
}

// Processes that have joined see each other, and who has which space. One that is given up is taken at once, one whose
// owner says nothing after a while. Those who are gone are forgotten.
func TestNodes(t *testing.T) {
	needServer(t)
	address := at(os.Getenv(variable), spaceOf(t))
	var g glances
	node := func(self string) *Nodes {
		n := joined(t, address, func(c *pgx.ConnConfig) { c.Tracer = &g })
		n.self.Address = self
		return n
	}
	want := func(n *Nodes, want string) []Space {
		t.Helper()
		got, spaces := shown(t, n)
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
		return spaces
	}
	a, b := node("http://a:1"), node("http://b:1/x")
	atOnce := func(s Space) holdfast.Engine {
		t.Helper()
		before := g.again.Load()
		e, err := b.Open(s)
		testkit.Try(t, err)
		if n := g.again.Load() - before; n > 0 {
			t.Errorf("space %d is free, and was looked at %d times more before it was taken", s.Number, n)
		}
		return e
	}
	want(a, "http://a:1 true ")
	first, err := a.Open(Space{})
	testkit.Try(t, err)
	second, err := a.Open(Space{Number: 12})
	testkit.Try(t, err)
	spaces := want(b, "http://a:1 true http://b:1/x true 0:http://a:1:false 12:http://a:1:false ")
	if _, err := b.Open(spaces[0]); !errors.Is(err, holdfast.ErrLocked) {
		t.Error(err)
	}
	testkit.Try(t, first.Close())
	spaces = want(b, "http://a:1 true http://b:1/x true 0::true 12:http://a:1:false ")
	first = atOnce(spaces[0])
	want(a, "http://a:1 true http://b:1/x true 0:http://b:1/x:false 12:http://a:1:false ")

	// The owner says nothing any more: neither of itself, nor of its space. What Look has seen of that counts.
	lost := second.(*engine)
	lost.stopBeats()
	testkit.Until(t, "the space may be taken", func() bool {
		text, now := shown(t, b)
		spaces = now
		return text == "http://a:1 false http://b:1/x true 0:http://b:1/x:false 12:http://a:1:true "
	})
	taken := atOnce(spaces[1])
	if err := second.Sync(); !errors.Is(err, holdfast.ErrFenced) {
		t.Error(err)
	}

	// Another process has the address of one that lives; or of one that does not.
	if _, err := node("http://b:1/x").Look(t.Context()); !errors.Is(err, holdfast.ErrLocked) {
		t.Error(err)
	}
	other := node("http://a:1")
	testkit.Until(t, "the address is free", func() bool { _, err := other.Look(t.Context()); return err == nil })
	if _, err := a.Look(t.Context()); !errors.Is(err, holdfast.ErrLocked) {
		t.Errorf("a process that was taken for dead: %v", err)
	}
	testkit.Try(t, other.Leave(context.Background()))
	shown(t, b)
	want(other, "http://b:1/x true 0:http://b:1/x:false 12:http://b:1/x:false ")
	testkit.Try(t, errors.Join(first.Close(), taken.Close(), b.Leave(context.Background())))
	_ = second.Close()
}

// A space that has moved since it was looked at is not taken, however old that is.
func TestNodesTakeNothingThatMoves(t *testing.T) {
	needServer(t)
	n := joined(t, at(os.Getenv(variable), spaceOf(t)))
	e, err := n.Open(Space{})
	testkit.Try(t, err)
	defer e.Close()
	_, spaces := shown(t, n)
	spaces[0].claim.since = time.Now().Add(-time.Hour)
	testkit.Try(t, e.Sync())
	if _, err := n.Open(spaces[0]); !errors.Is(err, holdfast.ErrLocked) {
		t.Error(err)
	}
	testkit.Try(t, e.Sync())
}

// Databases of one server say which of its clusters they are: none is taken for another one, and what another server
// has is not touched.
func TestMarks(t *testing.T) {
	needServer(t)
	base, run := spaceOf(t), 0
	node := func(space string, cluster, clusters int) *Nodes {
		t.Helper()
		run++
		n, err := Join(at(os.Getenv(variable), base+space), holdfast.Options{}, Self{Address: fmt.Sprintf("http://%d", run),
			Cluster: cluster, Clusters: clusters})
		testkit.Try(t, err)
		t.Cleanup(func() {
			testkit.Try(t, n.Leave(context.Background()))
			_ = n.Close()
		})
		return n
	}
	marks := func(n *Nodes) map[int]string {
		t.Helper()
		seen, err := n.Look(t.Context())
		testkit.Try(t, err)
		return seen.Marks
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, holdfast.ErrBadOption) || !strings.Contains(fmt.Sprint(err), "it cannot be cluster") {
			t.Errorf("%s: %v", what, err)
		}
	}
	look := func(space string, cluster int) error {
		t.Helper()
		_, err := node(space, cluster, 3).Look(t.Context())
		return err
	}

	// Two processes make the same marks.
	first, second := node("-a", 0, 3), node("-b", 1, 3)
	other, beside := node("-a", 0, 3), node("-b", 1, 3)
	for _, n := range []*Nodes{first, second, other, beside} {
		if m := marks(n); len(m) > 0 {
			t.Errorf("%v", m)
		}
	}
	testkit.Try(t, first.Mark(t.Context(), 0, "S"))
	testkit.Try(t, other.Mark(t.Context(), 0, "T"))
	testkit.Try(t, second.Mark(t.Context(), 1, "S"))
	testkit.Try(t, beside.Mark(t.Context(), 1, "S"))
	testkit.Try(t, first.Mark(t.Context(), 1, "S"))
	if m := marks(other); len(m) != 2 || m[0] != "S" || m[1] != "S" {
		t.Errorf("%v", m)
	}
	if m := marks(second); len(m) != 1 || m[1] != "S" {
		t.Errorf("%v", m)
	}
	refused("another server's", second.Mark(t.Context(), 1, "T"))
	refused("the first one as another", look("-a", 1))
	refused("the second one as the first", look("-b", 0))
	refused("the second one as the third", look("-b", 2))

	// Spaces have the numbers of their cluster.
	e, err := second.Open(Space{Number: 1002})
	testkit.Try(t, err)
	defer e.Close()
	seen, err := beside.Look(t.Context())
	testkit.Try(t, err)
	if len(seen.Spaces) != 1 || seen.Spaces[0].Number != 1002 || seen.Spaces[0].Owner != second.self.Address {
		t.Errorf("%+v", seen.Spaces)
	}
	if n := seen.Nodes[0]; n.Cluster != 1 || n.Clusters != 3 {
		t.Errorf("%+v", n)
	}
	if _, err := Open(at(os.Getenv(variable), base+"-a"+marksOf(0)), holdfast.Options{}); !errors.Is(err,
		holdfast.ErrBadOption) {
		t.Errorf("a mark as a space: %v", err)
	}

	// One that has been a server alone is no further cluster of another.
	alone, err := node("-c", 0, 1).Open(Space{})
	testkit.Try(t, err)
	defer alone.Close()
	refused("a server's only one", look("-c", 2))
	late := node("-d", 2, 3)
	marks(late)
	begun, err := node("-d", 0, 1).Open(Space{})
	testkit.Try(t, err)
	defer begun.Close()
	refused("one in which a server has just begun", late.Mark(t.Context(), 2, "S"))
}

func marksOf(cluster int) string { return url.PathEscape(fmt.Sprintf("%s%d", marks, cluster)) }
