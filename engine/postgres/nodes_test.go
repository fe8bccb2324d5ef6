package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// shown is what a process sees: who lives, and of each space the owner and whether it may be taken.
func shown(t *testing.T, n *Nodes) (text string, spaces []Space) {
	t.Helper()
	nodes, spaces, err := n.Look(t.Context())
	testkit.Try(t, err)
	for _, n := range nodes {
		text += fmt.Sprintf("%s %v ", n.Address, n.Alive)
	}
	for _, s := range spaces {
		text += fmt.Sprintf("%d:%s:%v ", s.Number, s.Owner, s.Free)
	}

	return text, spaces
}

func joined(t *testing.T, at string) *Nodes {
	t.Helper()
	n, err := Join(at, holdfast.Options{}, Self{Address: "http://" + t.Name(), Version: "v1", Protocol: 7})
	testkit.Try(t, err)
	t.Cleanup(func() { _ = n.Close() })

	return n
}

// Processes that have joined see each other, and who has which space. One that is given up is taken at once, one whose
// owner says nothing after a while. Those who are gone are forgotten.
func TestNodes(t *testing.T) {
	needServer(t)
	address := at(os.Getenv(variable), spaceOf(t))
	node := func(self string) *Nodes {
		n := joined(t, address)
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
	began := time.Now()
	first, err = b.Open(spaces[0])
	testkit.Try(t, err)
	if took := time.Since(began); took > takeOver/2 {
		t.Errorf("a space that was given up was taken after %v", took)
	}
	want(a, "http://a:1 true http://b:1/x true 0:http://b:1/x:false 12:http://a:1:false ")

	// The owner says nothing any more: neither of itself, nor of its space. What Look has seen of that counts.
	lost := second.(*engine)
	lost.stopBeats()
	testkit.Until(t, "the space may be taken", func() bool {
		text, now := shown(t, b)
		spaces = now
		return text == "http://a:1 false http://b:1/x true 0:http://b:1/x:false 12:http://a:1:true "
	})
	began = time.Now()
	taken, err := b.Open(spaces[1])
	testkit.Try(t, err)
	if took := time.Since(began); took > takeOver/2 {
		t.Errorf("a space whose owner was seen to be gone was taken after %v", took)
	}
	if err := second.Sync(); !errors.Is(err, holdfast.ErrFenced) {
		t.Error(err)
	}

	// Another process has the address of one that lives; or of one that does not.
	if _, _, err := node("http://b:1/x").Look(t.Context()); !errors.Is(err, holdfast.ErrLocked) {
		t.Error(err)
	}
	other := node("http://a:1")
	testkit.Until(t, "the address is free", func() bool { _, _, err := other.Look(t.Context()); return err == nil })
	if _, _, err := a.Look(t.Context()); !errors.Is(err, holdfast.ErrLocked) {
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
