// Package nodes makes several processes one server. They share spaces, which are what directories are elsewhere: each
// has the data of some namespaces, and one process at a time that owns it. Each process answers every request: by the
// data that it owns, or by asking the owner.
//
//	n, err := nodes.New([]nodes.Cluster{cluster}, nodes.Options{Self: "http://10.0.0.2:8080", PeerToken: secret})
//	go n.Serve(listener)
//	err = n.Run(ctx) // until ctx ends; then spaces are given up, and the listener is closed
//
// Who may write is decided by the cluster alone, which fences off whoever has lost a space. What this package decides,
// from what it sees, is who tries to take which space, and where requests go. If that is wrong for a moment, a request
// is refused by whoever does not own the space, and goes to the next one.
package nodes

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/metrics"
)

// Protocol is what processes of this version say to each other. Those whose numbers differ by one work together.
const Protocol = 2

// severalSince is the protocol of the first processes that know of several spaces.
const severalSince = 2

// Peer is a process.
type Peer struct {
	Address  string // where others reach it
	Version  string
	Protocol int
	Alive    bool
	Cluster  int // the number that it gives the cluster
	Clusters int // how many it has
}

// Space is what a cluster knows of one.
type Space struct {
	Number int
	Owner  string // the address of its owner; "" if it has none, or one that is no peer
	Host   string // the owner's machine
	Epoch  int64
	Seq    int64         // its last transaction
	Free   bool          // it may be taken
	Still  time.Duration // for how long nothing was heard of its owner, if that is long
	Handle any           // the cluster's own
}

// Seen is what a process sees in a cluster.
type Seen struct {
	Peers  []Peer
	Spaces []Space
	// Marks say which cluster of which server it is, by its number, and in the first one also which others there are.
	// There are none if there is one cluster only.
	Marks map[int]string
}

// Cluster is where spaces are. Look, Mark and Leave are called by one goroutine at a time.
type Cluster interface {
	// Look gives a sign of life of this process, and returns what there is. It returns after a few seconds at the latest.
	// ErrLocked: another process has the same address. ErrBadOption: it is another cluster of a server.
	Look(ctx context.Context) (Seen, error)
	// Mark makes a mark, which is kept as what is committed is. One that is there stays.
	Mark(ctx context.Context, number int, server string) error
	// Open takes a space, or makes one that is not there yet and has only a number. ErrLocked: another process was faster.
	// It may be called from many goroutines at once.
	Open(s Space) (holdfast.Engine, error)
	// Leave makes the process unknown to the others.
	Leave(ctx context.Context) error
	// String is how it is shown. There is no secret in it.
	String() string
}

// Options are how a process works.
type Options struct {
	// Self is the address under which the others reach this process, as http://10.0.0.2:8080.
	Self string
	// PeerToken is the secret by which the processes know each other.
	PeerToken string
	// Spaces is how many there are in each cluster, if there are not more already; 0 means 1.
	Spaces int
	// Level is that of writes which name none; 0 means the strongest that the engine gives.
	Level holdfast.Level
	// Server is how requests are served.
	Server server.Options
	// Opened is called when the first space has been opened, before it serves; nil for nothing.
	Opened func(ctx context.Context, d *data.Data) error
	// Peers makes requests to others; nil means a transport of its own.
	Peers http.RoundTripper
	// StopTimeout is how long requests may take when a space is given up; 0 means 30 seconds.
	StopTimeout time.Duration
	Logger      *slog.Logger // nil means slog.Default
}

const (
	// every is how often the cluster is looked at.
	every = 100 * time.Millisecond
	// calm is how long nothing must have changed before a space is given up for the sake of others, and after that.
	calm = 5 * time.Second
	// onTheWay is how long an answer may take from an owner that has given its space up.
	onTheWay = 2 * time.Second
	// hold is how long a request waits for an owner.
	hold = time.Second
	// again is how long after a failure a space is tried again.
	again = time.Second
	// blind is how long nothing may have been seen of the cluster for it to count as reachable.
	blind = 5 * time.Second
	// addressTaken is how long an address may belong to an earlier process that may still be alive.
	addressTaken = 6 * time.Second
)

// Node is a process. All methods may be called from many goroutines at once.
type Node struct {
	o         Options
	began     time.Time
	clusters  []*cluster
	front     *server.Server
	transport http.RoundTripper
	registry  *prometheus.Registry
	counts    counts
	known     known
	lying     lying

	mu        sync.Mutex
	spaces    map[int]*space // all that were seen
	changed   chan struct{}  // closed, and replaced, when owners change
	calmSince time.Time      // when owners, or who lives, changed last
	begun     bool           // it has seen what it can be one of
	leaving   bool
	working   sync.WaitGroup // opens and closes spaces
}

// space is what a process knows of one, and has of it. It is covered by the node's mu.
type space struct {
	Space
	freeSince time.Time
	tried     time.Time     // when opening it failed last
	busy      bool          // it is being opened or closed
	serving   *serving      // nil if this process does not serve it
	left      chan struct{} // closed some time after the owner has changed
}

// leave breaks off what is asked of the owner, who has lost the space: one that was gone answers nothing any more. If
// it has given the space up, an answer may be on its way.
func (s *space) leave() {
	left, after := s.left, onTheWay
	if s.Free && s.Owner != "" {
		after = 0
	}
	s.left = make(chan struct{})
	time.AfterFunc(after, func() { close(left) })
}

// serving is the open data of a space.
type serving struct {
	number   int
	engine   holdfast.Engine
	data     *data.Data
	server   *server.Server
	registry *prometheus.Registry
	changes  *changes // of the first space, for others
	visiting sync.Mutex
	crowds   map[string]*crowd // by namespace; covered by visiting

	requests int           // in hand, covered by the node's mu
	idle     chan struct{} // closed when it is closing and there are none
	closing  bool
}

// New makes a process that has clusters, the first of them with the list of namespaces. Run makes it work.
func New(clusters []Cluster, o Options) (*Node, error) {
	o.Spaces, o.StopTimeout = max(o.Spaces, 1), cmp.Or(o.StopTimeout, 30*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Server.Logger = o.Logger
	n := &Node{o: o, began: time.Now(), spaces: map[int]*space{}, changed: make(chan struct{}), transport: o.Peers,
		known: known{good: map[string]good{}}}
	if n.transport == nil {
		n.transport = transport(nil)
	}
	for i, c := range clusters {
		n.clusters = append(n.clusters, &cluster{Cluster: c, number: i, look: make(chan struct{}, 1)})
	}
	n.add(n.clusters[0])
	n.registry = prometheus.NewRegistry()
	n.registry.MustRegister(n)
	front := o.Server
	front.Check = n.check
	n.front = server.NewFront(server.Front{Handler: n, Ready: n.ready, Metrics: prometheus.GathererFunc(n.gather),
		Routes: n.routes()}, front)

	return n, nil
}

// Serve serves the connections of a listener, which it closes, until Run has ended.
func (n *Node) Serve(l net.Listener) error { return n.front.Serve(l) }

// Run looks at the clusters, and takes and gives up spaces, until ctx ends. Then it gives up all, lets others take
// them, and stops serving. The error is why the process cannot be one of them.
func (n *Node) Run(ctx context.Context) error {
	n.mu.Lock()
	n.calmSince = time.Now()
	n.mu.Unlock()
	if err := n.join(ctx); err != nil {
		return errors.Join(err, n.leave())
	}
	n.mu.Lock()
	n.begun = true
	n.mu.Unlock()
	hearing, deaf := context.WithCancel(context.WithoutCancel(ctx))
	defer deaf()
	go n.follow(hearing)
	go n.settle(hearing)

	watching, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, len(n.clusters))
	var all sync.WaitGroup
	for i, c := range n.clusters {
		all.Go(func() {
			errs[i] = n.watch(watching, c)
			stop() // all the others, if it was an error
		})
	}
	all.Wait()

	return errors.Join(append(errs, n.leave())...)
}

// wait waits for the next tick, or what is sooner than that.
func wait(ctx context.Context, tick *time.Ticker, sooner <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-tick.C:
	case <-sooner:
	}
}

func living(peers []Peer) (alive []string) {
	for _, p := range peers {
		if p.Alive {
			alive = append(alive, p.Address)
		}
	}
	slices.Sort(alive)

	return alive
}

// tell lets the other processes look at the cluster at once, as something has changed. They would within 100 ms. It is
// called with mu held.
func (n *Node) tell() {
	for _, address := range living(n.peers()) {
		if address == n.o.Self {
			continue
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, address+pathLook, nil)
			if err != nil {
				return
			}
			r.Header.Set(headerPeer, n.o.PeerToken)
			if res, err := n.transport.RoundTrip(r); err == nil {
				_ = res.Body.Close()
			}
		}()
	}
}

// wake tells those who wait for an owner. It is called with mu held.
func (n *Node) wake() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// hasten lets the clusters be looked at at once.
func (n *Node) hasten() {
	for _, c := range n.clusters {
		select {
		case c.look <- struct{}{}:
		default: // it will be
		}
	}
}

// act begins to take spaces of a cluster, or to give one up.
func (n *Node) act(c *cluster) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := slices.ContainsFunc(c.peers, func(p Peer) bool { return p.Alive && p.Protocol < severalSince })
	var numbers []int
	for _, i := range n.spacesOf(c) {
		s := n.spaces[i]
		if s.Epoch == 0 && i > 0 && old { // they would take it, and not know what belongs there
			continue
		}
		if s.Epoch == 0 { // there is none yet
			s.Free = true
		}
		if numbers = append(numbers, i); s.Free && s.freeSince.IsZero() {
			s.freeSince = time.Now()
		}
	}
	seats := make([]seat, len(numbers))
	for i, number := range numbers {
		s := n.spaces[number]
		seats[i] = seat{owner: s.Owner, free: s.Free && s.serving == nil, since: time.Since(s.freeSince)}
		if s.serving != nil {
			seats[i].owner = n.o.Self
		}
	}

	take, give := plan(n.o.Self, append(living(c.peers), n.o.Self), seats, n.elsewhere(c))
	for _, i := range take {
		if s := n.spaces[numbers[i]]; !s.busy && time.Since(s.tried) > again {
			s.busy = true
			at := s.Space
			n.working.Go(func() { n.open(s, at) })
		}
	}
	if !give || time.Since(n.calmSince) <= calm {
		return
	}
	for _, number := range slices.Backward(numbers) {
		if s := n.spaces[number]; s.serving != nil && !s.busy {
			n.o.Logger.Info("a space is given up for a process that has fewer", "space", number)
			n.end(s, n.o.StopTimeout)
			n.calmSince = time.Now()

			return
		}
	}
}

// open takes a space and opens its data.
func (n *Node) open(s *space, at Space) {
	began := time.Now()
	o, err := n.serve(at)
	n.mu.Lock()
	defer n.mu.Unlock()
	s.busy = false
	if err != nil {
		s.tried = time.Now()
		if errors.Is(err, holdfast.ErrLocked) { // another process was faster
			n.o.Logger.Debug("a space was not taken", "space", at.Number, "error", err.Error())
		} else {
			n.o.Logger.Error("a space cannot be opened; it is tried again", "space", at.Number, "error", err.Error())
		}

		return
	}
	s.leave()
	s.serving, s.Owner, s.Free = o, n.o.Self, false
	o.changes.open.Store(true)
	n.counts.taken++
	n.o.Logger.Info("owns a space", "space", at.Number, "took", time.Since(began).Round(time.Millisecond).String())
	if n.leaving {
		n.end(s, n.o.StopTimeout)
	}
	n.wake()
	n.tell()
}

// serve opens a space and makes a server of it.
func (n *Node) serve(at Space) (_ *serving, err error) {
	opened, err := n.of(at.Number).Open(at)
	if err != nil {
		return nil, err
	}
	engine := metrics.Watch(opened)
	defer func() {
		if err != nil {
			_ = engine.Close()
		}
	}()
	level := cmp.Or(n.o.Level, engine.Capabilities().Strongest())
	o := n.o.Server
	options, changed := data.Options{Level: level, Logger: n.o.Logger}, newChanges(rand.Text())
	if at.Number == 0 {
		options.Spaces = first{n, changed}
	} else {
		o.Check = n.check
	}
	d, err := data.Open(engine, options)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = d.Close()
		}
	}()
	s, err := server.New(d, o)
	if err != nil {
		return nil, err
	}
	if at.Number == 0 && n.o.Opened != nil {
		if err := n.o.Opened(context.Background(), d); err != nil {
			return nil, err
		}
	}
	r := prometheus.NewRegistry()
	s.Register(prometheus.WrapRegistererWith(prometheus.Labels{"space": fmt.Sprint(at.Number),
		"cluster": fmt.Sprint(at.Number / PerCluster)}, r))

	return &serving{number: at.Number, engine: engine, data: d, server: s, registry: r, changes: changed,
		crowds: map[string]*crowd{}, idle: make(chan struct{})}, nil
}

// closeBroken closes the spaces whose engines have stopped: another process owns them, or the cluster could not be
// reached for too long. They are taken again as any other.
func (n *Node) closeBroken() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.spaces {
		if s.serving == nil || s.busy {
			continue
		}
		if err := s.serving.engine.Err(); err != nil {
			if errors.Is(err, holdfast.ErrFenced) {
				n.counts.fenced++
			}
			n.o.Logger.Warn("a space is closed, and waited for", "space", s.Number, "error", err.Error())
			n.end(s, time.Second)
		}
	}
}

// end closes the data of a space, when the requests in hand are answered, or after a time. It is called with mu held,
// and returns at once.
func (n *Node) end(s *space, timeout time.Duration) {
	o := s.serving
	s.busy, o.closing = true, true
	if o.number == 0 { // it was this process that knew of all that had changed
		n.known.mu.Lock()
		n.known.at, n.known.heard = o.changes.now(), time.Now()
		n.known.mu.Unlock()
	}
	if o.requests == 0 {
		close(o.idle)
	}
	n.working.Go(func() {
		// Followers end, and those who wait for work.
		o.endVisits()
		_ = o.server.Stop(context.Background())
		o.endVisits() // of those who came in between
		late := time.NewTimer(timeout)
		defer late.Stop()
		select {
		case <-o.idle:
		case <-late.C:
			n.o.Logger.Warn("requests were cut off", "space", o.number, "timeout", timeout.String())
		}
		err := errors.Join(o.data.Close(), o.engine.Close())
		if err != nil && !errors.Is(err, holdfast.ErrPoisoned) { // which was told when it came
			n.o.Logger.Warn("a space was not closed as it should be", "space", o.number, "error", err.Error())
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		// What was seen of it is of the time before. It is another's first, if there is one.
		s.busy, s.serving, s.Owner, s.Free, s.freeSince = false, nil, "", false, time.Time{}
		n.wake()
		n.tell()
	})
}

// leave gives up all spaces, and ends. Requests wait meanwhile, and go to those who take the spaces.
func (n *Node) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), n.o.StopTimeout)
	defer cancel()
	// Not alive for the others any more, it gets none of the spaces that become free.
	var all sync.WaitGroup
	for _, c := range n.clusters {
		all.Go(func() {
			if err := c.Leave(ctx); err != nil { // they find out
				n.o.Logger.Warn("the cluster was not told that this process ends", "cluster", c.number, "error", err.Error())
			}
		})
	}
	all.Wait()
	n.mu.Lock()
	n.leaving = true
	for _, s := range n.spaces {
		if s.serving != nil && !s.busy {
			n.end(s, n.o.StopTimeout)
		}
	}
	n.mu.Unlock()
	given := make(chan struct{})
	go func() {
		n.working.Wait()
		close(given)
	}()

	// It looks on until all have been taken, if there is anybody who could take them.
	looking, stop := context.WithCancel(ctx)
	defer stop()
	looked := make(chan struct{}, 1)
	for _, c := range n.clusters {
		all.Go(func() {
			tick := time.NewTicker(every / 2)
			defer tick.Stop()
			for ; looking.Err() == nil; wait(looking, tick, c.look) {
				_ = n.sight(looking, c)
				select {
				case looked <- struct{}{}:
				default:
				}
			}
		})
	}
	var late <-chan time.Time
	for over := false; !over; {
		select {
		case <-given:
			given, late = nil, time.After(hold)
		case <-late:
			over = true
		case <-looked:
		}
		over = over || given == nil && n.needless()
	}
	stop()
	all.Wait()

	return n.front.Stop(ctx)
}

// needless reports whether nobody needs this process any more to find the owners of spaces, or nobody else is there.
func (n *Node) needless() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.ContainsFunc(n.peers(), func(p Peer) bool { return p.Alive && p.Address != n.o.Self }) {
		return true
	}
	for number, s := range n.spaces {
		if n.of(number).usable() && (s.Owner == "" || s.Owner == n.o.Self || s.Free) {
			return false
		}
	}

	return true
}

// enter returns the open data of a space, if this process serves it. The caller calls exit.
func (n *Node) enter(number int) *serving {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.spaces[number]
	if s == nil || s.serving == nil || s.serving.closing {
		return nil
	}
	s.serving.requests++

	return s.serving
}

func (n *Node) exit(o *serving) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if o.requests--; o.requests == 0 && o.closing {
		close(o.idle)
	}
}

// ready says why requests cannot be answered here, nil if they can.
func (n *Node) ready() error {
	n.mu.Lock()
	for number, s := range n.spaces {
		if s.serving != nil && !s.serving.closing && s.serving.engine.Err() == nil ||
			s.Owner != "" && s.Owner != n.o.Self && !s.Free && time.Since(n.of(number).seen) < blind {
			n.mu.Unlock()
			return nil
		}
	}
	n.mu.Unlock()

	return n.noOwner(0)
}
