package nodes

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/ebuse"
	"github.com/holdfastdb/holdfast/server/eventodb"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/store/message"
)

// where is where a request goes.
type where struct {
	namespace string // the space that it lies in; "" for the first; several are of one space, with commas between them
	space     int    // this one, if it is named
}

// several reports whether there may be more than one space: also where a cluster has not been seen yet, or was not
// given.
func (n *Node) several() bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return len(n.spaces) > 1 || len(n.clusters) > 1 || len(n.clusters[0].marks) > 1
}

// ofPath returns the namespace that a path names, "" for none.
func ofPath(r *http.Request) string {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/v1/namespaces/")
	if !ok {
		return ""
	}
	segment, _, more := strings.Cut(rest, "/")
	if !more && r.Method == http.MethodDelete { // of the namespace itself: the list of all is the first space's
		return ""
	}
	namespace, err := url.PathUnescape(segment)
	if err != nil {
		return ""
	}

	return namespace
}

// ofToken returns how a request tells its token, if that says which namespace it is about.
func ofToken(r *http.Request) func(*http.Request) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch first {
	case "rpc", "subscribe", "import":
		return eventodb.Credentials
	case "events", "position", "subscriptions", "tenants", "metrics", "ebuse":
		return ebuse.Credentials
	}
	if r.URL.Path == "/v1/transactions" {
		return server.Bearer
	}

	return nil
}

// quick reports whether where a request goes can be told without asking anybody, or reading its body.
func (n *Node) quick(r *http.Request) (at where, ok bool) {
	if strings.HasPrefix(r.URL.Path, "/v1/server") || r.URL.Path == "/rpc" || r.URL.Path == "/v1/transactions" {
		return where{}, false
	}
	credentials := ofToken(r)
	if credentials == nil {
		return where{namespace: ofPath(r)}, true
	}
	secret, err := auth.Parse(credentials(r))
	if err != nil { // whoever has the tokens says so
		return where{}, true
	}

	return where{namespace: secret.Namespace}, secret.Namespace != ""
}

// route says where a request goes. It may read a part of the body, which stays to be read.
func (n *Node) route(r *http.Request) (where, error) {
	if at, ok := n.quick(r); ok {
		return at, nil
	}
	if strings.HasPrefix(r.URL.Path, "/v1/server") {
		return n.named(r)
	}
	if r.URL.Path == "/rpc" {
		first, namespace := peek(r)
		if first || namespace != "" {
			return where{namespace: namespace}, nil
		}
	}
	p, err := n.check(r.Context(), ofToken(r)(r))
	switch {
	case errors.Is(err, problem.ErrStopping):
		return where{}, err
	case err != nil: // the first space refuses it, in the way of the API
		return where{}, nil
	case p.Namespace != auth.Everywhere:
		return where{namespace: p.Namespace}, nil
	case r.URL.Path == "/v1/transactions":
		return n.ofTransaction(r)
	}

	return where{}, nil
}

// named is where a request about the server goes that may name a space.
func (n *Node) named(r *http.Request) (where, error) {
	query := r.URL.Query()
	text := query.Get("space")
	if text == "" {
		return where{}, nil
	}
	number, err := strconv.Atoi(text)
	n.mu.Lock()
	there := n.spaces[number] != nil
	n.mu.Unlock()
	if err != nil || !there {
		return where{}, problem.BadRequest("there is no space %.40q", text)
	}
	query.Del("space")
	r.URL.RawQuery = query.Encode()

	return where{space: number}, nil
}

// peeked is how much of a call is read to find out which method it calls.
const peeked = 4096

// peek reports whether a call of /rpc is about all namespaces, or which one it names; "" if it is about that of its
// token.
func peek(r *http.Request) (first bool, namespace string) {
	buffered := bufio.NewReaderSize(r.Body, peeked)
	text, _ := buffered.Peek(peeked) // what is wrong with it is found when it is read
	r.Body = &struct {
		io.Reader
		io.Closer
	}{buffered, r.Body}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return false, ""
	}
	name, _ := d.Token()
	i := slices.IndexFunc(eventodb.Methods, func(m eventodb.Method) bool { return m.Name == name })
	if i < 0 {
		return false, ""
	}
	switch eventodb.Methods[i].Scope {
	case eventodb.Everywhere:
		return true, ""
	case eventodb.Named:
		argument, _ := d.Token()
		namespace, _ = argument.(string)
	}

	return false, namespace
}

// ofTransaction is where a transaction goes whose token is good everywhere: its operations name namespaces. What is
// wrong with it is said by the first space.
func (n *Node) ofTransaction(r *http.Request) (where, error) {
	limit := cmp.Or(n.o.Server.MaxBody, server.DefaultMaxBody)
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, limit))
	if err != nil {
		return where{}, err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	var t struct {
		Operations []struct{ Namespace string }
	}
	if json.Unmarshal(text, &t) != nil || len(t.Operations) == 0 {
		return where{}, nil
	}
	first := t.Operations[0].Namespace
	in, err := n.lies(r.Context(), first)
	if err != nil {
		return where{}, err
	}
	asked := map[string]bool{first: true}
	for i, o := range t.Operations {
		if asked[o.Namespace] {
			continue
		}
		asked[o.Namespace] = true
		switch space, err := n.lies(r.Context(), o.Namespace); {
		case err != nil:
			return where{}, err
		case space != in:
			return where{}, problem.InOperation(i, &holdfast.Error{Op: "transaction", Class: problem.ErrBadRequest,
				Detail: fmt.Sprintf("the namespaces %.80q and %.80q lie in different spaces", first, o.Namespace),
				Remedy: "use one transaction for each"})
		}
	}

	all := slices.Sorted(maps.Keys(asked))
	if len(all) > maxNamespaces {
		return where{}, problem.BadRequest("a transaction is in at most %d namespaces", maxNamespaces)
	}

	return where{namespace: strings.Join(all, ",")}, nil
}

// maxNamespaces is in how many namespaces a transaction may be where they can be moved.
const maxNamespaces = 100

// lying is where namespaces lie, as far as it is remembered. It may be wrong: whoever does not have a namespace says
// so.
type lying struct {
	mu    sync.Mutex
	space map[string]int
}

const maxRoutes = 1 << 18

func (c *lying) get(namespace string) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	space, ok := c.space[namespace]

	return space, ok
}

func (c *lying) set(namespace string, space int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if space == 0 { // there may be no such namespace, and later one in any space
		delete(c.space, namespace)
		return
	}
	if c.space == nil || len(c.space) >= maxRoutes {
		c.space = map[string]int{}
	}
	c.space[namespace] = space
}

// lies returns the space that a namespace lies in, or 0 if there is none.
func (n *Node) lies(ctx context.Context, namespace string) (int, error) {
	namespace, _, _ = strings.Cut(namespace, ",")
	if namespace == "" || namespace == message.Default || len(namespace) > message.MaxNameSize || !n.several() {
		return 0, nil
	}
	if o := n.enter(0); o != nil {
		defer n.exit(o)
		space := o.data.Lies(namespace)
		if known, _ := n.lying.get(namespace); space != known { // for when this process has it no more
			n.lying.set(namespace, space)
		}

		return space, nil
	}
	if space, ok := n.lying.get(namespace); ok {
		return space, nil
	}
	var space int
	if err := n.call(ctx, 0, "lies", namespace, &space); err != nil {
		return 0, err
	}
	n.lying.set(namespace, space)

	return space, nil
}

// remembered reports whether lies has to ask nobody.
func (n *Node) remembered(namespace string) bool {
	_, ok := n.lying.get(namespace)

	return ok || namespace == message.Default || n.has(0)
}

// misplaced reports whether a namespace is not where a request for it has come to. space is the right one, if that is
// known.
func (o *serving) misplaced(namespace string) (space int, misplaced bool) {
	if o.number > 0 {
		return 0, !o.data.Has(namespace)
	}
	space = o.data.Lies(namespace)

	return space, space > 0
}

// elsewhere is the error of a request that came to a space in which its namespace does not lie.
type elsewhere struct{ space int }

func (*elsewhere) Error() string { return "the namespace lies elsewhere" }

// What processes ask each other, beside what clients have asked.

// making is the question to make a namespace.
type making struct {
	Info message.Info
	Mark string
}

// removal is the question to remove one.
type removal struct{ Namespace, Mark string }

// feed is how far somebody has heard what changed in the first space.
type feed struct {
	Run    string // of the first space's data
	Number uint64
}

// hearing is the question for changes.
type hearing struct {
	From feed
	Self string
}

// answerTo answers what a process asks whoever has a space.
func (n *Node) answerTo(ctx context.Context, o *serving, op string, body []byte) (any, error) {
	read := func(in any) error { return json.Unmarshal(body, in) }
	switch op {
	case "lies":
		var namespace string
		err := read(&namespace)
		return o.data.Lies(namespace), err
	case "make":
		var in making
		if err := read(&in); err != nil {
			return nil, err
		}
		return o.data.Make(ctx, in.Info, in.Mark)
	case "remove":
		var in removal
		if err := read(&in); err != nil {
			return nil, err
		}
		return o.data.Remove(ctx, in.Namespace, in.Mark)
	case "totals":
		var in []string
		if err := read(&in); err != nil {
			return nil, err
		}
		return o.data.OwnTotals(ctx, in)
	case "standbys":
		return n.standbys(), nil
	case "where":
		var namespace string
		if err := read(&namespace); err != nil {
			return nil, err
		}
		return o.data.Where(ctx, namespace)
	case "answers":
		var namespace string
		err := read(&namespace)
		return o.data.Has(namespace) && !o.data.IsMoving(namespace), err
	case "move":
		var in api.Move
		if err := read(&in); err != nil {
			return nil, err
		}
		return nil, o.data.Move(ctx, in.Namespace, in.Space)
	case "step":
		var in data.Step
		if err := read(&in); err != nil {
			return nil, err
		}
		return nil, n.step(ctx, o, in)
	case "fill":
		var in data.Chunk
		if err := read(&in); err != nil {
			return nil, err
		}
		return nil, o.data.Fill(in)
	case "changes":
		var in hearing
		if err := read(&in); err != nil {
			return nil, err
		}
		return o.changes.next(ctx, in, o.server.Stopping()), nil
	}

	return nil, &holdfast.Error{Class: problem.ErrNoRoute, Detail: fmt.Sprintf("a process asked for %.40q", op)}
}

// call asks whoever has a space. Nothing that is asked does harm if it is asked twice.
func (n *Node) call(ctx context.Context, number int, op string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	until := time.Now().Add(hold)
	for {
		owner, left, changed := n.owner(number)
		if o := n.enter(number); o != nil {
			defer n.exit(o)
			v, err := n.answerTo(ctx, o, op, body)
			if err == nil {
				body, err = json.Marshal(v)
			}

			return cmp.Or(err, json.Unmarshal(body, out))
		}
		if owner != "" {
			answered, err := n.post(ctx, owner, left, number, op, body, out)
			if answered {
				return err
			}
			n.o.Logger.Debug("a process did not answer", "owner", owner, "space", number, "asked", op, "error", err.Error())
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return cmp.Or(ctx.Err(), n.noOwner(number))
		}
		pause(ctx, until, changed)
	}
}

// classes are those of errors of other processes that are told apart here.
var classes = map[string]error{api.CodeNoNamespace: message.ErrNoNamespace, api.CodeExists: message.ErrNamespaceExists,
	api.CodeLocked: holdfast.ErrLocked}

// post asks a process. It reports whether that has answered, if only with an error.
func (n *Node) post(ctx context.Context, owner string, left <-chan struct{}, number int, op string, body []byte,
	out any) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-left:
			cancel()
		}
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, owner+"/", bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	r.Header.Set(headerPeer, n.o.PeerToken)
	r.Header.Set(headerSpace, strconv.Itoa(number))
	r.Header.Set(headerAsk, op)
	res, err := n.transport.RoundTrip(r)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return false, err
	case res.StatusCode == http.StatusOK:
		return true, json.Unmarshal(text, out)
	case res.Header.Get(headerRefused) != "":
		return false, errors.New(res.Header.Get(headerRefused))
	}
	var p api.Problem
	if err := json.Unmarshal(text, &p); err != nil {
		return false, fmt.Errorf("%s was answered with %s", op, res.Status)
	}
	if class := classes[p.Code]; class != nil {
		return true, &holdfast.Error{Class: class, Detail: p.Detail}
	}

	return p.Status != http.StatusServiceUnavailable && p.Status != problem.StatusClosed, &problem.Error{Problem: p}
}

// changes tells other processes that tokens are gone.
type changes struct {
	open  atomic.Bool // others can hear of them
	mu    sync.Mutex
	at    feed
	heard map[string]uint64 // by the addresses of processes
	wake  chan struct{}     // closed, and replaced, when something has changed or was heard
}

func newChanges(run string) *changes {
	return &changes{at: feed{Run: run}, heard: map[string]uint64{}, wake: make(chan struct{})}
}

// listen is how long a question for changes waits for some.
const listen = 500 * time.Millisecond

// now is what has changed so far.
func (c *changes) now() feed {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.at
}

// next waits a little for changes after those that were heard.
func (c *changes) next(ctx context.Context, in hearing, stopping <-chan struct{}) feed {
	late := time.NewTimer(listen)
	defer late.Stop()
	for {
		c.mu.Lock()
		at, wake := c.at, c.wake
		if in.From.Run == at.Run && in.From.Number > c.heard[in.Self] {
			c.heard[in.Self] = in.From.Number
			close(c.wake)
			c.wake = make(chan struct{})
			wake = c.wake
		}
		c.mu.Unlock()
		if at != in.From {
			return at
		}
		select {
		case <-wake:
		case <-late.C:
			return at
		case <-stopping:
			return at
		case <-ctx.Done():
			return at
		}
	}
}

// tell tells of a change, and returns when all have heard it, or some time later.
func (c *changes) tell(ctx context.Context, all func() []string) {
	c.mu.Lock()
	c.at.Number++
	number := c.at.Number
	close(c.wake)
	c.wake = make(chan struct{})
	c.mu.Unlock()
	late := time.NewTimer(onTheWay)
	defer late.Stop()
	for {
		others := all()
		c.mu.Lock()
		wake := c.wake
		deaf := slices.ContainsFunc(others, func(who string) bool { return c.heard[who] < number })
		c.mu.Unlock()
		if !deaf {
			return
		}
		select {
		case <-wake:
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// follow hears of changes until ctx ends.
func (n *Node) follow(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ; ctx.Err() == nil; wait(ctx, tick, nil) {
		for ctx.Err() == nil && n.several() && !n.has(0) {
			n.known.mu.Lock()
			from := n.known.at
			n.known.mu.Unlock()
			var at feed
			if err := n.call(ctx, 0, "changes", hearing{from, n.o.Self}, &at); err != nil {
				break
			}
			n.known.mu.Lock()
			n.known.at, n.known.heard = at, time.Now()
			n.known.mu.Unlock()
		}
	}
}

// has reports whether this process serves a space.
func (n *Node) has(number int) bool {
	o := n.enter(number)
	if o != nil {
		n.exit(o)
	}

	return o != nil
}

// first is how the first space's data reaches the others.
type first struct {
	*Node
	changes *changes
}

// Choose implements [data.Spaces]: of those that somebody has it is the one with the fewest.
func (f first) Choose(has func(space int) int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	best, fewest := 0, has(0)
	for number, s := range f.spaces {
		if number == 0 || s.serving == nil && (s.Owner == "" || s.Free) || !f.of(number).usable() {
			continue
		}
		if count := has(number); count < fewest || count == fewest && number < best {
			best, fewest = number, count
		}
	}

	return best
}

// Make implements [data.Spaces].
func (f first) Make(ctx context.Context, space int, info message.Info, mark string) (at string, err error) {
	err = f.call(ctx, space, "make", making{info, mark}, &at)

	return at, err
}

// Remove implements [data.Spaces].
func (f first) Remove(ctx context.Context, space int, namespace, mark string) (messages int64, err error) {
	err = f.call(ctx, space, "remove", removal{namespace, mark}, &messages)

	return messages, err
}

// totalsIn is how long what namespaces have may take to be told: an owner waits longer for a cluster that is gone.
const totalsIn = 5 * time.Second

// Totals implements [data.Spaces].
func (f first) Totals(ctx context.Context, space int, namespaces []string) (map[string]data.Total, error) {
	f.mu.Lock()
	c := f.of(space)
	there := c != nil && c.usable()
	f.mu.Unlock()
	if !there {
		return nil, f.noOwner(space)
	}
	ctx, cancel := context.WithTimeout(ctx, totalsIn)
	defer cancel()
	type answer struct {
		all map[string]data.Total
		err error
	}
	got := make(chan answer, 1)
	go func() { // it may be this process itself that waits
		var a answer
		a.err = f.call(ctx, space, "totals", namespaces, &a.all)
		got <- a
	}()
	select {
	case a := <-got:
		return a.all, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Revoked implements [data.Spaces].
func (f first) Revoked(ctx context.Context) {
	if !f.several() || !f.changes.open.Load() { // whoever hears of it for the first time remembers nothing
		return
	}
	f.changes.tell(ctx, func() (others []string) {
		at := f.changes.now()
		f.known.mu.Lock()
		if f.known.at.Run == at.Run { // the first space is being given up
			f.known.at = at
		}
		f.known.mu.Unlock()
		f.mu.Lock()
		defer f.mu.Unlock()

		return slices.DeleteFunc(living(f.peers()), func(who string) bool { return who == f.o.Self })
	})
}

// joins answer what is about all spaces.
var joins = map[string]func(n *Node, w http.ResponseWriter, r *http.Request){
	"/v1/server/verify": func(n *Node, w http.ResponseWriter, r *http.Request) {
		all := api.Verified{Problems: []string{}}
		if n.each(w, r, func(space int, body []byte) error {
			var one api.Verified
			err := json.Unmarshal(body, &one)
			all.Keys += one.Keys
			all.Bytes += one.Bytes
			for _, text := range one.Problems {
				all.Problems = append(all.Problems, fmt.Sprintf("space %d: %s", space, text))
			}

			return err
		}) {
			writeJSON(w, all)
		}
	},
	"/v1/server/compact": func(n *Node, w http.ResponseWriter, r *http.Request) {
		if n.each(w, r, func(int, []byte) error { return nil }) {
			w.WriteHeader(http.StatusNoContent)
		}
	},
	"/v1/server/backup": func(_ *Node, w http.ResponseWriter, r *http.Request) {
		problem.Write(w, r, &holdfast.Error{Op: "backup", Class: holdfast.ErrUnavailable,
			Detail: "there are several spaces, and a backup is of one", Remedy: "name it: ?space=0"})
	},
}

// each asks whoever has a space, one space after the other. If one of them answers with anything but that it was done,
// that is the answer, and each reports false.
func (n *Node) each(w http.ResponseWriter, r *http.Request, f func(space int, body []byte) error) bool {
	for _, space := range n.Show().Spaces {
		one := &answer{header: http.Header{}}
		n.find(one, r.Clone(r.Context()), where{space: space.Space})
		err := error(nil)
		if one.status < 300 {
			err = f(space.Space, one.body)
		}
		switch {
		case err != nil:
			problem.Write(w, r, err)
			return false
		case one.status >= 300:
			for name, values := range one.header {
				w.Header()[name] = values
			}
			w.WriteHeader(one.status)
			_, _ = w.Write(one.body) // the client is gone

			return false
		}
	}

	return true
}
