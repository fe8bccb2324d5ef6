package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/server/route"
)

// crowd is the requests in hand for a namespace.
type crowd struct {
	requests int
	leaving  chan struct{} // closed when followers are to end
	empty    chan struct{} // not nil while somebody waits for none; closed then
}

// drainIn is how long requests in hand may take of a namespace that is to be moved.
const drainIn = 10 * time.Second

// errMoving is the error of a request for a namespace that is being moved.
var errMoving = &holdfast.Error{Class: problem.ErrStopping, Detail: "the namespace is being moved",
	Remedy: "come again in a second"}

// visit begins a request for namespaces, with commas between them. It is refused if one of them is being moved, or, if
// it need not lie here, does not lie here. leaving is closed when followers are to end. The caller calls end.
func (o *serving) visit(namespaces string, sure bool) (end func(), leaving <-chan struct{}, err error) {
	if namespaces == "" {
		return func() {}, nil, nil
	}
	var in []*crowd
	o.visiting.Lock()
	for namespace := range strings.SplitSeq(namespaces, ",") {
		c := o.crowds[namespace]
		if c == nil {
			c = &crowd{leaving: make(chan struct{})}
			o.crowds[namespace] = c
		}
		c.requests++
		in, leaving = append(in, c), c.leaving
	}
	o.visiting.Unlock()
	end = func() {
		o.visiting.Lock()
		defer o.visiting.Unlock()
		i := 0
		for namespace := range strings.SplitSeq(namespaces, ",") {
			c := in[i]
			i++
			if c.requests--; c.requests > 0 {
				continue
			}
			delete(o.crowds, namespace)
			if c.empty != nil {
				close(c.empty)
				c.empty = nil
			}
		}
	}
	// It is counted by now: whoever moves a namespace says so first, and then waits for those who are counted.
	for namespace := range strings.SplitSeq(namespaces, ",") {
		if o.data.IsMoving(namespace) {
			end()
			return nil, nil, errMoving
		}
		if space, wrong := o.misplaced(namespace); wrong && !(sure && o.number > 0) {
			end()
			return nil, nil, &elsewhere{space}
		}
	}

	return end, leaving, nil
}

// endVisits ends followers of all namespaces.
func (o *serving) endVisits() {
	o.visiting.Lock()
	defer o.visiting.Unlock()
	for _, c := range o.crowds {
		c.dismiss()
	}
}

// dismiss ends followers. Those who come later are not concerned.
func (c *crowd) dismiss() {
	close(c.leaving)
	c.leaving = make(chan struct{})
}

// drain waits until no request for a namespace is in hand.
func (o *serving) drain(ctx context.Context, namespace string) error {
	o.visiting.Lock()
	c := o.crowds[namespace]
	if c == nil {
		o.visiting.Unlock()
		return nil
	}
	c.dismiss()
	if c.empty == nil {
		c.empty = make(chan struct{})
	}
	empty := c.empty
	o.visiting.Unlock()
	late := time.NewTimer(drainIn)
	defer late.Stop()
	select {
	case <-empty:
		return nil
	case <-late.C:
		return &holdfast.Error{Op: "move namespace", Class: holdfast.ErrLocked,
			Detail: fmt.Sprintf("requests for %q take longer than %v", namespace, drainIn), Remedy: "try again later"}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// step does a step of a move in a space that this process has.
func (n *Node) step(ctx context.Context, o *serving, s data.Step) error {
	if s.Op != "leave" {
		return o.data.Do(ctx, s)
	}
	if err := o.data.Leave(ctx, s.Namespace, s.ID); err != nil {
		return err
	}
	if err := o.drain(ctx, s.Namespace); err != nil {
		return err
	}

	return o.data.Copy(ctx, s.Namespace, s.ID, func(c data.Chunk) error {
		return n.call(ctx, s.To, "fill", c, &struct{}{})
	})
}

// Step implements [data.Spaces].
func (f first) Step(ctx context.Context, space int, s data.Step) error {
	return f.call(ctx, space, "step", s, &struct{}{})
}

// settle ends, until ctx ends, what is left of moves.
func (n *Node) settle(ctx context.Context) {
	tick := time.NewTicker(again)
	defer tick.Stop()
	for ; ctx.Err() == nil; wait(ctx, tick, nil) {
		n.mu.Lock()
		var numbers []int
		for number, s := range n.spaces {
			if s.serving != nil {
				numbers = append(numbers, number)
			}
		}
		n.mu.Unlock()
		for _, number := range numbers {
			o := n.enter(number)
			if o == nil {
				continue
			}
			for namespace, stage := range o.data.Moving() {
				if err := n.settleOne(ctx, o, namespace, stage); err != nil {
					n.o.Logger.Warn("a move of a namespace was not ended; it is tried again", "namespace", namespace,
						"space", number, "error", err.Error())
				}
			}
			n.exit(o)
		}
	}
}

// settleOne does with a namespace in a move what the first space says.
func (n *Node) settleOne(ctx context.Context, o *serving, namespace string, stage data.Stage) error {
	var at data.Where
	if err := n.call(ctx, 0, "where", namespace, &at); err != nil {
		return err
	}
	if at.ID == stage.ID {
		return nil // it goes on
	}
	op := ""
	switch here := at.Space == o.number; {
	case stage.Arriving && here && (at.Mark == stage.Mark || o.number == 0):
		op = "live"
	case stage.Arriving:
		op = "drop"
	case here:
		op = "stay"
	default:
		there := false
		if err := n.call(ctx, at.Space, "answers", namespace, &there); err != nil || !there {
			return err
		}
		op = "gone"
	}
	n.o.Logger.Info("a move of a namespace is ended", "namespace", namespace, "space", o.number, "here", op)

	return o.data.Do(ctx, data.Step{Op: op, Namespace: namespace, ID: stage.ID})
}

// move serves the request to move a namespace.
func (n *Node) move(w http.ResponseWriter, r *http.Request) {
	var in api.Move
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(&in)
	n.mu.Lock()
	there := n.spaces[in.Space] != nil
	seen := there && n.of(in.Space).usable()
	n.mu.Unlock()
	switch {
	case err != nil:
		err = problem.BadRequest("the body: %v", err)
	case !there:
		err = problem.BadRequest("there is no space %d", in.Space)
	case !seen: // else the namespace would wait for it
		err = n.noOwner(in.Space)
	default:
		err = n.call(r.Context(), 0, "move", in, &struct{}{})
	}
	if err != nil {
		problem.Write(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// localOnce is local that leaves the data.
func (n *Node) localOnce(w http.ResponseWriter, r *http.Request, o *serving, namespaces string, sure bool) error {
	defer n.exit(o)
	return n.local(w, r, o, namespaces, sure)
}

// local answers a request by data that this process owns; err says why it does not.
func (n *Node) local(w http.ResponseWriter, r *http.Request, o *serving, namespaces string, sure bool) (err error) {
	end, leaving, err := o.visit(namespaces, sure)
	if err != nil {
		return err
	}
	defer end()
	if leaving != nil {
		r = r.WithContext(route.WithLeaving(r.Context(), leaving))
	}
	w.Header().Set(api.HeaderOwner, n.o.Self)
	o.server.ServeHTTP(w, r)

	return nil
}
