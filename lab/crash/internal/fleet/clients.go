package fleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

const (
	// tenants is how many namespaces are worked on, beside the default one, which has nothing.
	tenants = 4
	// answered is how long a request may take: a process that is paused or cut off does not answer.
	answered = 5 * time.Second
	// lease is how long a worker has a task. Some let it run out.
	lease = 3 * time.Second
	// rest is how long a writer rests between two writes, on average.
	rest = 60 * time.Millisecond
)

// Door is a way to a process.
type Door struct {
	Process string // what it is called in findings
	Address string
	// Dial connects from where the client is: on the process's own machine, which it reaches also if that is cut off from
	// all others, or elsewhere.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Options are what clients do.
type Options struct {
	Doors []Door
	Seed  uint64
	// OneClock says that all processes have the same, so that leases end when they are said to.
	OneClock bool
	// Repeats is the control: a write whose answer was lost is made again, without an id.
	Repeats bool
	// Acked is called with each acknowledgement of a write.
	Acked func()
}

// Clients work on the processes, all at the same time, through every door, until they are stopped: writers by /v1, by
// /rpc of EventoDB and by the API of ebuse, followers, readers, and workers with leases.
type Clients struct {
	o       Options
	ways    []*way
	tenants []*tenant
	stop    context.CancelFunc
	group   sync.WaitGroup
	gate    gate
	begun   uint64  // clients
	steps   []*step // of those who must go on

	mu    sync.Mutex
	wrong []string
}

// tenant is a namespace.
type tenant struct {
	name, token string
	messages    *book
	events      *book
	tasks       *tasks
}

// gate lets whoever must not be disturbed wait until nothing is under way.
type gate struct {
	mu     sync.Mutex
	inside int
	shut   bool
	opened chan struct{} // closed when it is open again
}

func (g *gate) enter() {
	g.mu.Lock()
	for g.shut {
		opened := g.opened
		g.mu.Unlock()
		<-opened
		g.mu.Lock()
	}
	g.inside++
	g.mu.Unlock()
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
}

// close returns when nobody is inside. Also if ctx ends before, open must follow.
func (g *gate) close(ctx context.Context) error {
	g.mu.Lock()
	g.shut, g.opened = true, make(chan struct{})
	g.mu.Unlock()
	for {
		g.mu.Lock()
		inside := g.inside
		g.mu.Unlock()
		if inside == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
	close(g.opened)
}

// step counts what a client has done.
type step struct {
	what string
	n    atomic.Int64
}

// way is a door with clients of its own.
type way struct {
	Door
	http   *http.Client
	client *client.Client
	used   atomic.Int64 // answers
}

// New makes clients, which begin with Start.
func New(o Options) (*Clients, error) {
	c := &Clients{o: o}
	for _, d := range o.Doors {
		w := &way{Door: d}
		w.http = &http.Client{Transport: seeing{c, &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 20 * time.Second,
			DisableCompression: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()

				return d.Dial(ctx, network, address)
			}}}}
		var err error
		w.client, err = client.New(d.Address, client.Options{Token: token, HTTP: w.http, Retry: 2 * time.Second,
			Timeout: answered, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		c.ways = append(c.ways, w)
	}

	return c, nil
}

// seeing looks at answers: each that says yes to a write names a level that survives the loss of a machine.
type seeing struct {
	clients *Clients
	next    http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (s seeing) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.next.RoundTrip(r)
	if err != nil || answer.StatusCode/100 != 2 || r.Method == http.MethodGet {
		return answer, err
	}
	if level, err := holdfast.ParseLevel(answer.Header.Get(api.HeaderLevel)); err != nil || level < holdfast.Quorum {
		s.clients.say("%s %s was answered with %s at the level %q", r.Method, r.URL.Path, answer.Status,
			answer.Header.Get(api.HeaderLevel))
	}

	return answer, err
}

// CloseIdleConnections lets client.Client close those of next.
func (s seeing) CloseIdleConnections() {
	s.next.(interface{ CloseIdleConnections() }).CloseIdleConnections()
}

// say enters what must not be.
func (c *Clients) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// Start makes the namespaces and starts the clients, which go on until Stop.
func (c *Clients) Start(ctx context.Context) error {
	for i := range tenants {
		n := &tenant{name: fmt.Sprintf("n%d", i)}
		n.messages = newBook("messages of "+n.name, "a follower", "a subscriber of EventoDB")
		n.events = newBook("events of "+n.name, "a reader of ebuse")
		valid := lease
		if !c.o.OneClock {
			valid = 0
		}
		n.tasks = newTasks("tasks of "+n.name, valid)
		for {
			made, err := c.ways[i%len(c.ways)].client.CreateNamespace(ctx, api.NewNamespace{ID: n.name})
			if n.token = made.Token; err == nil {
				break
			}
			if ctx.Err() != nil || !passing(err) {
				return fmt.Errorf("making namespace %s: %w", n.name, err)
			}
		}
		c.tenants = append(c.tenants, n)
	}
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	for _, n := range c.tenants {
		for _, one := range []struct {
			what string
			do   func(context.Context, *work)
		}{
			{"a writer by /v1", c.writeV1},
			{"a writer by /rpc", func(ctx context.Context, k *work) { c.writeRPC(ctx, k, true) }},
			{"a writer by /rpc without ids", func(ctx context.Context, k *work) { c.writeRPC(ctx, k, false) }},
			{"a writer of ebuse", c.writeEbuse},
			{"who enqueues", c.enqueue},
			{"a worker", c.labour},
			{"another worker", c.labour},
			{"a follower by /v1", c.follow},
			{"a subscriber of EventoDB", c.subscribe},
			{"a reader of ebuse", c.readEbuse},
		} {
			c.steps = append(c.steps, c.begin(ctx, n, one.what, one.do))
		}
		for _, w := range c.ways { // a process may have no answer for long
			c.begin(ctx, n, "a reader through "+w.Process, func(ctx context.Context, k *work) { c.look(ctx, k, w) })
		}
	}

	return nil
}

// work is what one client works with.
type work struct {
	*tenant
	name string
	rnd  *rand.Rand
	step *step
}

// begin starts a client.
func (c *Clients) begin(ctx context.Context, n *tenant, what string, f func(context.Context, *work)) *step {
	c.begun++
	k := &work{tenant: n, name: fmt.Sprintf("%s-%d", n.name, c.begun),
		rnd: rand.New(rand.NewPCG(c.o.Seed, c.begun)), step: &step{what: what + " of " + n.name}}
	c.group.Go(func() { f(ctx, k) })

	return k.step
}

// Stop ends the clients.
func (c *Clients) Stop() {
	if c.stop != nil {
		c.stop()
	}
	c.group.Wait()
	for _, w := range c.ways {
		w.http.CloseIdleConnections()
	}
}

// Progress returns when every client has done something that it began from now on, and answers have come through each
// process; the error says who has not when ctx ends.
func (c *Clients) Progress(ctx context.Context) error {
	const more = 3 // what was under way counts as one at most

	var from []int64
	used := map[string]int64{}
	for _, s := range c.steps {
		from = append(from, s.n.Load())
	}
	for _, w := range c.ways {
		used[w.Process] -= w.used.Load()
	}
	for {
		var late []string
		for i, s := range c.steps {
			if s.n.Load() < from[i]+more {
				late = append(late, s.what)
			}
		}
		now := map[string]int64{}
		for _, w := range c.ways {
			now[w.Process] += w.used.Load()
		}
		for process, n := range now {
			if n+used[process] < more {
				late = append(late, "who goes through "+process)
			}
		}
		if slices.Sort(late); len(late) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("these have done nothing since: %s", strings.Join(late, ", "))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// any is a door.
func (c *Clients) any(k *work) *way { return c.ways[k.rnd.IntN(len(c.ways))] }

// pause rests a little, and reports whether to go on.
func (k *work) pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Duration(k.rnd.Int64N(int64(2 * rest)))):
		return true
	}
}

// passing reports whether an error is one that clients meet while processes and machines are lost.
func passing(err error) bool {
	var e *client.Error
	if !errors.As(err, &e) {
		return errors.Is(err, context.DeadlineExceeded)
	}

	return passes(e.Status)
}

// passes is passing for a status, 0 if there was no answer.
func passes(status int) bool {
	return status == 0 || status == http.StatusBadGateway || status == http.StatusServiceUnavailable ||
		status == http.StatusTooManyRequests
}

// ask makes a request. The status is 0 if no answer came.
func (c *Clients) ask(ctx context.Context, w *way, method, path, token, body string) (status int, answer string,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, answered)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, w.Address+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := w.http.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, "", err
	}
	if res.StatusCode/100 == 2 {
		w.used.Add(1)
	}

	return res.StatusCode, string(text), nil
}

// notBegun reports whether nothing was done of a request for sure: no connection was made, or the answer says so.
func notBegun(status int, answer string, err error) bool {
	var op *net.OpError

	return errors.As(err, &op) && op.Op == "dial" ||
		status == http.StatusServiceUnavailable && strings.Contains(answer, `"`+api.CodeStopping+`"`)
}

// writeV1 writes messages by the Go client. A write that is not known to be done is made again with the same id, by
// another way.
func (c *Clients) writeV1(ctx context.Context, k *work) {
	stream := "s-" + k.name
	for i := 0; k.pause(ctx); i++ {
		text := fmt.Sprintf("%s/%d", k.name, i)
		m := message.Message{ID: newID(k.rnd), Type: "T", Data: []byte(`{"of":"` + text + `"}`)}
		c.write(ctx, k, k.messages, text, func(ctx context.Context, w *way) (at int64, version int64, again bool) {
			r, err := w.client.Namespace(k.tenant.name).Write(ctx, stream, m)
			if err == nil {
				w.used.Add(1)
				return r.Global, r.Position, false
			}
			c.check(ctx, "a write through "+w.Process, err)

			return 0, 0, passing(err)
		}, stream)
	}
}

// check enters an error that no client must meet.
func (c *Clients) check(ctx context.Context, what string, err error) {
	if ctx.Err() == nil && !passing(err) {
		c.say("%s was answered with: %v", what, err)
	}
}

// write makes one write, again and again if it is to be made again, and enters what came of it.
func (c *Clients) write(ctx context.Context, k *work, b *book, text string,
	try func(ctx context.Context, w *way) (at, version int64, again bool), stream string) {
	c.gate.enter()
	defer c.gate.leave()
	b.issue(text)
	for ctx.Err() == nil {
		at, version, again := try(ctx, c.any(k))
		if at > 0 {
			place := ""
			if stream != "" {
				place = fmt.Sprintf("%s:%d", stream, version)
			}
			b.acked(at, entry{text, place})
			c.o.Acked()
			k.step.n.Add(1)
		}
		if !again {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// writeRPC writes messages as clients of EventoDB do, with ids or without. A write without one, of which no answer has
// come, is there or not.
func (c *Clients) writeRPC(ctx context.Context, k *work, ids bool) {
	stream := "s-" + k.name
	for i := 0; k.pause(ctx); i++ {
		text := fmt.Sprintf("%s/%d", k.name, i)
		body := fmt.Sprintf(`["stream.write",%q,{"type":"T","data":{"of":%q}}`, stream, text)
		if ids {
			body += fmt.Sprintf(`,{"id":%q}`, newID(k.rnd))
		}
		c.write(ctx, k, k.messages, text, func(ctx context.Context, w *way) (int64, int64, bool) {
			status, answer, err := c.ask(ctx, w, http.MethodPost, "/rpc", k.token, body+"]")
			var r struct{ Position, GlobalPosition int64 }
			return c.told(ctx, "a write by /rpc through "+w.Process, status, answer, err, ids, &r,
				func() (int64, int64) { return r.GlobalPosition, r.Position })
		}, stream)
	}
}

// told reads the answer to a write, and says whether it is to be made again.
func (c *Clients) told(ctx context.Context, what string, status int, answer string, err error, ids bool, into any,
	at func() (int64, int64)) (position, version int64, again bool) {
	switch {
	case status == http.StatusOK:
		if err := json.Unmarshal([]byte(answer), into); err != nil {
			c.say("%s was answered with %q: %v", what, answer, err)
			return 0, 0, false
		}
		position, version = at()

		return position, version, false
	case !passes(status):
		c.say("%s was answered with %d: %s", what, status, answer)
	}

	return 0, 0, passes(status) && (ids || c.o.Repeats || notBegun(status, answer, err))
}

// writeEbuse writes events as clients of ebuse do, which have no ids.
func (c *Clients) writeEbuse(ctx context.Context, k *work) {
	for i := 0; k.pause(ctx); i++ {
		text := fmt.Sprintf("%s/%d", k.name, i)
		body := fmt.Sprintf(`{"type":"T","data":{"of":%q},"timestamp":"2026-01-01T00:00:00Z"}`, text)
		c.write(ctx, k, k.events, text, func(ctx context.Context, w *way) (int64, int64, bool) {
			status, answer, err := c.ask(ctx, w, http.MethodPost, "/events", k.token, body)
			var r struct{ Position int64 }
			return c.told(ctx, "an event of ebuse through "+w.Process, status, answer, err, false, &r,
				func() (int64, int64) { return r.Position, 0 })
		}, "")
	}
}

// newID is a UUID of version 4.
func newID(rnd *rand.Rand) string {
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", rnd.Uint32(), rnd.Uint32()&0xffff, rnd.Uint32()&0xfff,
		rnd.Uint32()&0xfff, rnd.Uint64()&0xffffffffffff)
}

// written is what a message or an event has as its data.
type written struct{ Of string }

// follow follows the messages by /v1, through one process after the other.
func (c *Clients) follow(ctx context.Context, k *work) {
	f := k.messages.followers[0]
	for ctx.Err() == nil {
		w := c.any(k)
		c.events(ctx, k, w, fmt.Sprintf("/v1/namespaces/%s/messages/follow?from=%d", k.tenant.name, f.next()), token,
			func(text []byte) {
				var m api.Message
				if err := json.Unmarshal(text, &m); err != nil || m.Global == 0 {
					var p api.Problem // or a goodbye, which has no status
					if _ = json.Unmarshal(text, &p); !passes(p.Status) {
						c.say("a follower through %s was sent %s", w.Process, text)
					}
					return
				}
				var data written
				_ = json.Unmarshal(m.Data, &data) // of what is something else the text is empty
				f.show(k.messages, m.Global, entry{data.Of, fmt.Sprintf("%s:%d", m.Stream, m.Position)})
				k.step.n.Add(1)
			})
	}
}

// subscribe follows them as clients of EventoDB do, which are told of positions alone.
func (c *Clients) subscribe(ctx context.Context, k *work) {
	f := k.messages.followers[1]
	for ctx.Err() == nil {
		w := c.any(k)
		c.events(ctx, k, w, fmt.Sprintf("/subscribe?category=s&position=%d&token=%s", f.next(), k.token), "",
			func(text []byte) {
				var m struct {
					Stream                   string
					Position, GlobalPosition int64
				}
				if err := json.Unmarshal(text, &m); err != nil || m.GlobalPosition == 0 {
					return
				}
				f.show(k.messages, m.GlobalPosition, entry{"", fmt.Sprintf("%s:%d", m.Stream, m.Position)})
				k.step.n.Add(1)
			})
	}
}

// stays is how long a follower stays with a process at most, and silent how long nothing may come: the server gives a
// sign of life every 15 seconds, and here somebody always writes, unless nobody can.
const (
	stays  = 20 * time.Second
	silent = 8 * time.Second
)

// events reads a stream of them through a process until it ends, or long enough.
func (c *Clients) events(ctx context.Context, k *work, w *way, path, token string, each func(data []byte)) {
	ctx, cancel := context.WithTimeout(ctx, stays)
	defer cancel()
	watch := time.AfterFunc(silent, cancel)
	defer watch.Stop()
	defer k.pause(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.Address+path, nil)
	if err != nil {
		return
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := w.http.Do(r)
	if err != nil {
		return
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		if text, _ := io.ReadAll(res.Body); !passes(res.StatusCode) {
			c.say("a follower (%s) through %s was answered with %d: %s", k.step.what, w.Process, res.StatusCode, text)
		}

		return
	}
	for lines := bufio.NewReader(res.Body); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		watch.Reset(silent)
		if text, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			w.used.Add(1)
			each(text)
		}
	}
}

// readEbuse reads events as clients of ebuse do, page by page.
func (c *Clients) readEbuse(ctx context.Context, k *work) {
	f := k.events.followers[0]
	for k.pause(ctx) {
		list, ok := c.page(ctx, k, c.any(k), f.next())
		if !ok {
			continue
		}
		for _, e := range list {
			f.show(k.events, e.Position, entry{e.Data.Of, ""})
		}
		k.step.n.Add(1)
	}
}

// ebuseEvent is an event as ebuse has it.
type ebuseEvent struct {
	Position int64
	Data     written
}

// page reads events from a position on; ok is false if it cannot.
func (c *Clients) page(ctx context.Context, k *work, w *way, from int64) (list []ebuseEvent, ok bool) {
	status, answer, _ := c.ask(ctx, w, http.MethodGet, fmt.Sprintf("/events?from=%d", from), k.token, "")
	if status != http.StatusOK {
		if !passes(status) {
			c.say("%s through %s was answered with %d: %s", k.step.what, w.Process, status, answer)
		}

		return nil, false
	}
	if err := json.Unmarshal([]byte(answer), &list); err != nil {
		c.say("%s through %s was answered with %q: %v", k.step.what, w.Process, answer, err)
		return nil, false
	}

	return list, true
}

// look reads how far the namespace has come, by one way, again and again. It must have what was acknowledged before the
// request was made, to whomever.
func (c *Clients) look(ctx context.Context, k *work, w *way) {
	number := func(what string, floor int64, method, path, token, body string, read func(answer string) (int64, error)) {
		status, answer, _ := c.ask(ctx, w, method, path, token, body)
		switch {
		case passes(status) || ctx.Err() != nil:
			return
		case status != http.StatusOK:
			c.say("%s through %s was answered with %d: %s", what, w.Process, status, answer)
			return
		}
		if n, err := read(answer); err != nil || n < floor {
			c.say("%s of %s: %s answered %q, %v, after %d had been acknowledged", what, k.tenant.name, w.Process, answer, err,
				floor)
		}
		k.step.n.Add(1)
	}
	for k.pause(ctx) {
		switch k.rnd.IntN(5) {
		case 0:
			number("the last position of ebuse", k.events.floor(), http.MethodGet, "/position", k.token, "",
				func(answer string) (int64, error) {
					var p struct{ Position int64 }
					err := json.Unmarshal([]byte(answer), &p)
					return p.Position, err
				})
		case 1:
			floor := k.events.floor()
			if list, ok := c.page(ctx, k, w, max(floor, 1)); ok && floor > 0 && (len(list) == 0 || list[0].Position != floor) {
				c.say("events of %s: %s has %v from position %d on, which had been acknowledged", k.tenant.name, w.Process, list,
					floor)
			}
		case 2:
			number("the last position", k.messages.floor(), http.MethodGet, "/v1/namespaces/"+k.tenant.name, token, "",
				func(answer string) (int64, error) {
					var n api.Namespace
					err := json.Unmarshal([]byte(answer), &n)
					return n.Last, err
				})
		case 3:
			floor := k.messages.floor()
			number("the messages from the last position on", floor, http.MethodGet,
				fmt.Sprintf("/v1/namespaces/%s/messages?from=%d&limit=1", k.tenant.name, max(floor, 1)), token, "",
				func(answer string) (int64, error) {
					list, err := messagesIn(answer)
					if err != nil || len(list) == 0 {
						return 0, err
					}
					return list[0].Global, nil
				})
		default:
			at := k.messages.highest()
			if at.place == "" {
				continue
			}
			stream, version, _ := strings.Cut(at.place, ":")
			floor, _ := strconv.ParseInt(version, 10, 64)
			number(
				"the version of "+stream,
				floor,
				http.MethodPost,
				"/rpc",
				k.token,
				fmt.Sprintf(`["stream.version",%q]`, stream),
				func(answer string) (int64, error) { return strconv.ParseInt(strings.TrimSpace(answer), 10, 64) },
			)
		}
	}
}

// messagesIn reads a page of messages.
func messagesIn(answer string) ([]api.Message, error) {
	var page struct{ Messages []api.Message }
	err := json.Unmarshal([]byte(answer), &page)

	return page.Messages, err
}

// enqueue enqueues tasks, each with an id of its own. Some are for later.
func (c *Clients) enqueue(ctx context.Context, k *work) {
	for i := 0; k.pause(ctx); i++ {
		s := task.Spec{ID: fmt.Sprintf("%s-%d", k.name, i), Kind: "T"}
		if i%8 == 0 {
			s.Delay = 500 * time.Millisecond
		}
		c.gate.enter()
		k.tasks.enqueued(s.ID, false)
		for told := false; !told && ctx.Err() == nil; {
			w := c.any(k)
			_, err := w.client.Namespace(k.tenant.name).Tasks().Enqueue(ctx, s)
			// A try whose answer was lost has done it, and the task is there: perhaps completed by now.
			if told = err == nil || errors.Is(err, task.ErrExists); told {
				k.tasks.enqueued(s.ID, true)
				c.o.Acked()
				k.step.n.Add(1)
				w.used.Add(1)
			} else if c.check(ctx, "enqueueing through "+w.Process, err); !passing(err) {
				break
			}
		}
		c.gate.leave()
	}
}

// labour claims tasks by one way and completes them by another. Some leases are let run out.
func (c *Clients) labour(ctx context.Context, k *work) {
	for k.pause(ctx) {
		c.gate.enter()
		asked, w := time.Now(), c.any(k)
		leases, err := w.client.Namespace(k.tenant.name).Tasks().Claim(ctx, task.ClaimOptions{Lease: lease, N: 2})
		if err != nil {
			c.check(ctx, "claiming through "+w.Process, err)
		}
		for _, l := range leases {
			w.used.Add(1)
			mine := k.tasks.claimed(l.Task.ID, l.Token, asked)
			if k.rnd.IntN(20) == 0 {
				continue // let run out
			}
			if k.rnd.IntN(20) == 0 { // too late, mostly
				c.gate.leave()
				select {
				case <-ctx.Done():
				case <-time.After(lease - 100*time.Millisecond + time.Duration(k.rnd.Int64N(int64(200*time.Millisecond)))):
				}
				c.gate.enter()
			}
			for ctx.Err() == nil {
				by, begun := c.any(k), k.tasks.completing(mine)
				err := by.client.Namespace(k.tenant.name).Tasks().Complete(ctx, l)
				if err == nil {
					k.tasks.completed(l.Task.ID, mine, begun)
					c.o.Acked()
					k.step.n.Add(1)
					by.used.Add(1)
				}
				if err == nil || leaseLost(err) {
					break
				}
				if c.check(ctx, "completing through "+by.Process, err); !passing(err) {
					break
				}
			}
		}
		c.gate.leave()
	}
}

// leaseLost reports whether a lease was not valid any more, or not known to be.
func leaseLost(err error) bool {
	var list *task.LeaseErrors
	if errors.As(err, &list) {
		return !slices.ContainsFunc(list.Errs, func(err error) bool { return !errors.Is(err, task.ErrLeaseLost) })
	}

	return errors.Is(err, task.ErrLeaseLost)
}

// Judge reads what there is while nobody writes, and compares it with what all clients were told. If whole, what was
// read before is read again.
func (c *Clients) Judge(ctx context.Context, whole bool) (j protocol.Judgement, err error) {
	defer c.gate.open()
	if err := c.gate.close(ctx); err != nil {
		return j, fmt.Errorf("a client waits for an answer all the time: %w", err)
	}
	c.mu.Lock()
	for _, text := range c.wrong {
		j.Find(&j.Wrong, "%s", text)
	}
	c.wrong = nil
	c.mu.Unlock()
	for _, n := range c.tenants {
		k := &work{tenant: n, rnd: rand.New(rand.NewPCG(c.o.Seed, 1<<32)), step: &step{what: "the judge"}}
		from, next := n.messages.before(), n.events.before()
		if whole {
			from, next = 1, 1
		}
		list, err := c.messages(ctx, k, from)
		if err != nil {
			return j, err
		}
		n.messages.judge(&j, from, list)
		if list, err = c.allEvents(ctx, k, next); err != nil {
			return j, err
		}
		n.events.judge(&j, next, list)
		there, err := c.allTasks(ctx, k)
		if err != nil {
			return j, err
		}
		n.tasks.judge(&j, there)
	}

	return j, nil
}

// tries calls f, by one way after the other, until it does without an error that passes.
func (c *Clients) tries(ctx context.Context, k *work, f func(w *way) error) error {
	for {
		err := f(c.any(k))
		if err == nil || !passing(err) || ctx.Err() != nil {
			return err
		}
		if !k.pause(ctx) {
			return errors.Join(err, ctx.Err())
		}
	}
}

// messages reads the messages of a namespace from a position on. One that is not behind the one before it by 1 is there
// as nothing.
func (c *Clients) messages(ctx context.Context, k *work, from int64) (list []entry, err error) {
	err = c.tries(ctx, k, func(w *way) error {
		list = nil
		for m, err := range w.client.Namespace(k.tenant.name).Read(ctx, message.Query{From: from}) {
			if err != nil {
				return err
			}
			for int64(len(list)) < m.Global-from {
				list = append(list, entry{})
			}
			var data written
			_ = json.Unmarshal(m.Data, &data)
			list = append(list, entry{data.Of, fmt.Sprintf("%s:%d", m.Stream, m.Position)})
		}

		return nil
	})

	return list, err
}

// allEvents reads the events of a namespace from a position on.
func (c *Clients) allEvents(ctx context.Context, k *work, from int64) (list []entry, err error) {
	for end := false; !end; {
		page, ok := c.page(ctx, k, c.any(k), from+int64(len(list)))
		if !ok && !k.pause(ctx) {
			return nil, ctx.Err()
		}
		end = ok && len(page) == 0
		for _, e := range page {
			for int64(len(list)) < e.Position-from {
				list = append(list, entry{})
			}
			list = append(list, entry{e.Data.Of, ""})
		}
	}

	return list, nil
}

// allTasks reads the tasks of a namespace. One whose lease runs out meanwhile may be on no page of the list, and so
// those that are missing there are asked for one by one.
func (c *Clients) allTasks(ctx context.Context, k *work) (there map[string]task.State, err error) {
	err = c.tries(ctx, k, func(w *way) error {
		there = map[string]task.State{}
		for cursor := ""; ; {
			list, next, err := w.client.Namespace(k.tenant.name).Tasks().List(ctx, task.Filter{Cursor: cursor, Limit: 1000})
			if err != nil {
				return err
			}
			for _, t := range list {
				there[t.ID] = t.State
			}
			if cursor = next; next == "" {
				break
			}
		}
		for _, id := range k.tasks.missing(there) {
			switch t, err := w.client.Namespace(k.tenant.name).Tasks().Get(ctx, id); {
			case err == nil:
				there[id] = t.State
			case !errors.Is(err, holdfast.ErrNotFound):
				return err
			}
		}

		return nil
	})

	return there, err
}
