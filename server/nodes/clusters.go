package nodes

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/server/problem"
)

// A server may have several clusters of PostgreSQL, each with spaces of its own, with its own signs of life, and with
// its own owners. What happens in one concerns no other, but for two things: the first space of the first cluster has
// the list of namespaces and all tokens, and a process that has fewer spaces than others, all told, gets some.
//
// That a database is cluster 2 of a server is marked in it, and in the first one. The mark in the first one is made
// when all processes that live have been given the cluster: from then on its spaces are made and used, and a process
// without it does not begin.

// PerCluster is how many spaces a cluster can have: cluster 2 has those from 2000 to 2999.
const PerCluster = 1000

// cluster is one of the clusters, as the process knows it. The node's mu covers it, but for what its own goroutine
// uses.
type cluster struct {
	Cluster
	number int
	look   chan struct{} // asks for a look before it is time

	peers []Peer
	alive string // of the peers
	seen  time.Time
	marks map[int]string
	err   error // why it is not seen, or what was seen cannot be

	joined bool      // its goroutine's
	locked time.Time // its goroutine's: since when another process has the address
}

// usable reports whether it has been seen of late.
func (c *cluster) usable() bool { return c.err == nil && time.Since(c.seen) < blind }

// of returns the cluster of a space, nil if the process does not have it. It is called with mu held.
func (n *Node) of(space int) *cluster {
	if k := space / PerCluster; k < len(n.clusters) {
		return n.clusters[k]
	}

	return nil
}

// spacesOf returns the numbers of the spaces of a cluster, in order. It is called with mu held.
func (n *Node) spacesOf(c *cluster) (numbers []int) {
	for number := range n.spaces {
		if number/PerCluster == c.number {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)

	return numbers
}

// peers are all processes, from what is seen now, or was seen last if nothing is. It is called with mu held.
func (n *Node) peers() (all []Peer) {
	any := slices.ContainsFunc(n.clusters, (*cluster).usable)
	for _, c := range n.clusters {
		if any && !c.usable() {
			continue
		}
		for _, p := range c.peers {
			i := slices.IndexFunc(all, func(other Peer) bool { return other.Address == p.Address })
			if i < 0 {
				all = append(all, p)
			} else if p.Alive {
				all[i].Alive = true
			}
		}
	}

	return all
}

// join looks at all clusters for the first time, before anything is taken. One that cannot be reached is waited for
// later. The error is why the process cannot be one of the server's.
func (n *Node) join(ctx context.Context) error {
	errs := make([]error, len(n.clusters))
	var all sync.WaitGroup
	for i, c := range n.clusters {
		all.Go(func() { errs[i] = n.meet(ctx, c) })
	}
	all.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.clusters {
		errs = append(errs, n.strange(c), n.suits(c), n.missing(c))
	}

	return cmp.Or(errs...)
}

// meet looks at a cluster for the first time.
func (n *Node) meet(ctx context.Context, c *cluster) error {
	for until := time.Now().Add(addressTaken); ; {
		seen, err := c.Look(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, holdfast.ErrUnavailable):
			return nil
		case errors.Is(err, holdfast.ErrLocked) && time.Now().Before(until):
			pause(ctx, until, nil)
			continue
		case err != nil:
			return err
		}
		c.joined = true
		n.note(c, seen)

		return nil
	}
}

// strange says which process that lives this one cannot be beside.
func (n *Node) strange(c *cluster) error {
	for _, p := range c.peers {
		if p.Address == n.o.Self && p.Cluster != c.number {
			return wrong(c, fmt.Sprintf("it is cluster %d, too: it was given twice", p.Cluster))
		}
	}
	for _, p := range c.peers {
		d := p.Protocol - Protocol
		switch {
		case !p.Alive:
		case p.Cluster != c.number:
			return wrong(c, fmt.Sprintf("the process at %s has it as cluster %d", p.Address, p.Cluster))
		case d < -1 || d > 1:
			return &holdfast.Error{Op: "join", Class: holdfast.ErrVersion,
				Detail: fmt.Sprintf("the process at %s has version %s, with protocol %d; this one has %d", p.Address,
					p.Version, p.Protocol, Protocol), Remedy: "go from one release to the next, not past one"}
		}
	}

	return nil
}

func wrong(c *cluster, detail string) error {
	return &holdfast.Error{Op: "join", Class: holdfast.ErrBadOption, Path: c.String(),
		Detail: fmt.Sprintf("it cannot be cluster %d: %s", c.number, detail),
		Remedy: "give all processes the same clusters in the same order, new ones behind the others"}
}

// suits says why a cluster cannot be one of those that the first one has named, nil if it can, or that is not known.
func (n *Node) suits(c *cluster) error {
	first, mark := n.clusters[0], c.marks[c.number]
	switch listed := first.marks[c.number] != ""; {
	case c.number == 0 || c.seen.IsZero() || first.seen.IsZero():
		return nil
	case mark != "" && mark != first.marks[0]:
		return wrong(c, "it is a cluster of a server whose first cluster is another one")
	case mark == "" && listed:
		return wrong(c, "it is not the database that it was: nothing of the server is in it")
	}

	return nil
}

// missing says which cluster the process was not given that others have.
func (n *Node) missing(c *cluster) error {
	for k := range c.marks {
		if c.number == 0 && k >= len(n.clusters) {
			return &holdfast.Error{Op: "join", Class: holdfast.ErrBadOption, Path: c.String(),
				Detail: fmt.Sprintf("the server has a cluster %d, and this process was given %d, from 0", k, len(n.clusters)),
				Remedy: "give it the same clusters as the other processes, in the same order"}
		}
	}

	return nil
}

// watch looks at a cluster, takes and gives up its spaces, until ctx ends. The error is why the process cannot be one
// of those that do.
func (n *Node) watch(ctx context.Context, c *cluster) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for said := ""; ctx.Err() == nil; wait(ctx, tick, c.look) {
		err := n.sight(ctx, c)
		if err == nil {
			err = n.enlist(ctx, c)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, holdfast.ErrLocked):
			if c.locked.IsZero() {
				c.locked = time.Now()
			}
			if c.joined || time.Since(c.locked) > addressTaken {
				return err
			}
			continue
		case err != nil:
			if text := err.Error(); said == "" || !errors.Is(err, holdfast.ErrUnavailable) && said != text {
				n.o.Logger.Error("the cluster cannot be seen; this process goes on with what it knows", "cluster", c.number,
					"error", text)
				said = text
			}
			n.closeBroken()
			continue
		case said != "":
			n.o.Logger.Info("the cluster is seen again", "cluster", c.number)
			said = ""
		}
		c.joined, c.locked = true, time.Time{}
		n.closeBroken()
		n.act(c)
	}

	return nil
}

// sight looks at a cluster once.
func (n *Node) sight(ctx context.Context, c *cluster) error {
	seen, err := c.Look(ctx)
	if err == nil {
		return n.note(c, seen)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c.err = err

	return err
}

// note takes over what was seen of a cluster. The error is why it cannot be used.
func (n *Node) note(c *cluster, seen Seen) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	told := n.missing(c) != nil
	c.peers, c.marks, c.seen = seen.Peers, seen.Marks, time.Now()
	if c.err = n.suits(c); c.err != nil {
		return c.err
	}
	if err := n.missing(c); err != nil && n.begun && !told {
		n.o.Logger.Error("what lies in a cluster that this process does not have is answered by others only", "error",
			err.Error())
	}
	changed := false
	if now := strings.Join(living(c.peers), " "); now != c.alive {
		c.alive, n.calmSince = now, time.Now()
	}
	if c.number > 0 && n.clusters[0].marks[c.number] != "" {
		n.add(c)
	}
	for _, now := range seen.Spaces {
		s := n.spaces[now.Number]
		if s == nil {
			s = &space{left: make(chan struct{})}
			n.spaces[now.Number] = s
		}
		if now.Owner != s.Owner || now.Epoch != s.Epoch || now.Free != s.Free {
			changed = true
		}
		if now.Epoch != s.Epoch {
			s.leave()
		}
		if s.Space = now; !now.Free {
			s.freeSince = time.Time{}
		}
	}
	if changed {
		n.calmSince = time.Now()
		n.wake()
	}

	return nil
}

// add adds the spaces that a cluster is to have. It is called with mu held, or before others know of the node.
func (n *Node) add(c *cluster) {
	for i := range n.o.Spaces {
		if number := c.number*PerCluster + i; n.spaces[number] == nil {
			n.spaces[number] = &space{Space: Space{Number: number}, left: make(chan struct{})}
		}
	}
}

// enlist marks clusters as the server's, when all processes that live have been given them.
func (n *Node) enlist(ctx context.Context, c *cluster) error {
	n.mu.Lock()
	number, mark := n.unmarked(c)
	n.mu.Unlock()
	if mark == "" {
		return nil
	}

	return c.Mark(ctx, number, mark)
}

// unmarked returns which mark is to be made in a cluster, "" for none. It is called with mu held.
func (n *Node) unmarked(c *cluster) (number int, mark string) {
	first := n.clusters[0]
	known := func(k int) bool { // by all
		return !slices.ContainsFunc(first.peers, func(p Peer) bool { return p.Alive && p.Clusters <= k })
	}
	server := first.marks[0]
	switch {
	case len(n.clusters) == 1 || !first.usable():
		return 0, ""
	case c.number > 0 && c.marks[c.number] == "" && server != "" && known(c.number):
		return c.number, server
	case c.number > 0:
		return 0, ""
	case server == "" && known(1):
		return 0, rand.Text()
	}
	for k, other := range n.clusters[1:] {
		if server != "" && first.marks[k+1] == "" && other.marks[k+1] == server && other.err == nil {
			return k + 1, server
		}
	}

	return 0, ""
}

// elsewhere tells how many spaces processes have in other clusters, if those have owners, and the same processes live
// in all: then all of these see the same, and none gives a space to one that would give it back. It is called with mu
// held.
func (n *Node) elsewhere(c *cluster) map[string]int {
	all := map[string]int{}
	for _, other := range n.clusters {
		numbers := n.spacesOf(other)
		if other == c || len(numbers) == 0 {
			continue
		}
		if !other.usable() || other.alive != c.alive {
			return nil
		}
		for _, number := range numbers {
			s := n.spaces[number]
			if s.busy || s.Free || s.Owner == "" {
				return nil
			}
			all[s.Owner]++
		}
	}

	return all
}

// noOwner is the error of who needs a space that nobody owns. It is not called with mu held.
func (n *Node) noOwner(space int) error {
	n.mu.Lock()
	c := n.of(space)
	seen := c != nil && c.usable()
	n.mu.Unlock()
	e := &holdfast.Error{Class: problem.ErrStopping, Detail: "no process owns the data at the moment",
		Remedy: "come again in a second"}
	switch {
	case c == nil:
		e.Detail = fmt.Sprintf("it lies in space %d, of a cluster that this process was not given", space)
		e.Remedy = "ask another process, and give this one the same clusters as the others"
	case !seen && len(n.clusters) > 1:
		e.Detail = fmt.Sprintf("the data are in space %d, in cluster %d, which does not answer", space, c.number)
	}

	return e
}
