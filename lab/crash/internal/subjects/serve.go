package subjects

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

const serveName = "serve"

// Serve is the server. The victim only serves; clients in the supervisor's process, which no crash reaches, work on it
// over HTTP, and tell each answer that it has done what it was asked for, with the level that the answer names. What is
// left is read through the stores.
//
// Followers go on over crashes behind what they were shown, which must survive as what was acknowledged.
//
// The clients do what the victims of Message and Task do: half of the histories are of messages, and of a log of
// events, half are of tasks, and they are judged as those are. What a store puts into a commit as a key of its caller's
// is a task here, in a queue that nobody claims from.
var Serve = Subject{
	Name: serveName, About: "the server: messages, events and tasks over HTTP, by clients and followers that outlive it",
	begin: func(h *protocol.History, _ string, _ bool) { h.Concurrent = true },
	work:  serveWork, clients: serveClients, read: serveRead, judge: serveJudge,
}

// servesTasks reports whether a history is of tasks.
func servesTasks(seed uint64) bool { return commits.Mix(seed, 91)%2 == 0 }

// serveToken is the token of the default namespace.
const serveToken = "ns_ZGVmYXVsdA_0000000000000000000000000000000000000000000000000000000000000000"

// serveStop is how long requests may take to end when the server stops.
const serveStop = 30 * time.Second

// serveWork serves an engine until stop is closed.
func serveWork(w *worker, e holdfast.Engine, stop <-chan struct{}) (err error) {
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	d, err := data.Open(e, data.Options{Level: w.spec.Level, Logger: logger})
	if err != nil {
		return w.failure(err, "opening the data")
	}

	// Closed after the server has stopped: its requests use the stores.
	defer func() { err = errors.Join(err, w.failure(d.Close(), "closing the data")) }()
	if err := d.Tokens().SetOwn(context.Background(), message.Default, serveToken); err != nil {
		return w.failure(err, "setting the token")
	}
	s, err := server.New(d, server.Options{Logger: logger})
	if err != nil {
		return w.failure(err, "making the server")
	}

	// The port is the system's choice, and the supervisor is told of it when requests can be answered.
	l, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(w.spec.Listen, "127.0.0.1"), "0"))
	if err != nil {
		return err
	}

	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	w.report.Serving("http://" + l.Addr().String())

	select {
	case err := <-served:
		return fmt.Errorf("serving: %w", err)
	case <-stop:
	}

	// Requests that are under way end first, as when an operator stops a server.
	ctx, cancel := context.WithTimeout(context.Background(), serveStop)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		return fmt.Errorf("stopping: %w", err)
	}

	return <-served
}

// namedLevel is the weakest level that the answers to the writes of one operation have named.
type namedLevel struct {
	asked holdfast.Level
	wrong func(format string, args ...any)

	mu    sync.Mutex
	level holdfast.Level // 0: there was none
}

// namedKey is the key of a namedLevel in a context.
type namedKey struct{}

// weakest is the weakest level that an answer has named, 0 if there was none.
func (n *namedLevel) weakest() holdfast.Level {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.level
}

// levelTransport asks for the level of a request's operation, and notes that of the answer.
type levelTransport struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t levelTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	// Reads, and requests of no operation, go through as they are.
	named, ok := r.Context().Value(namedKey{}).(*namedLevel)
	if !ok || r.Method == http.MethodGet {
		return t.next.RoundTrip(r)
	}

	// A transport must not change the request that it is given.
	r = r.Clone(r.Context())
	r.Header.Set(api.HeaderLevel, named.asked.String())
	answer, err := t.next.RoundTrip(r)

	// Only an answer that says yes promises something.
	if err != nil || answer.StatusCode/100 != 2 {
		return answer, err
	}
	level, err := holdfast.ParseLevel(answer.Header.Get(api.HeaderLevel))
	if err != nil || level < named.asked {
		named.wrong("%s %s asked for level %v, and its answer names %q", r.Method, r.URL.Path, named.asked,
			answer.Header.Get(api.HeaderLevel))
	}

	// An operation may make several requests at once. What it has is as strong as the weakest of them.
	named.mu.Lock()
	defer named.mu.Unlock()
	if named.level == 0 || level < named.level {
		named.level = level
	}

	return answer, nil
}

// Clients work on the server that a victim is, in turn at each address that comes, until the channel is closed. What
// they see and are told goes to t. It returns when nothing is under way any more.
func (subject Subject) Clients(s protocol.Spec, c holdfast.Capabilities, t *protocol.Reporter,
	addresses <-chan string) {
	w := &worker{spec: s, report: t, next: s.From, began: time.Now()}
	w.highest.Store(s.From - 1)

	// Followers go on where the last run of the clients had come to.
	for i := range w.followed {
		w.followed[i].Store(s.Followed[i])
	}

	var group sync.WaitGroup
	end := func() {}
	for address := range addresses {
		// A server that is gone ends the work on it, and what is under way has ended before the next one is worked on.
		end()
		group.Wait()
		if address == "" { // it is stopping
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		end = cancel
		group.Go(func() { subject.clients(ctx, w, c, address) })
	}
	end()
	group.Wait()
}

// Serves reports whether the victim is a server, which needs clients.
func (subject Subject) Serves() bool { return subject.clients != nil }

// serveClients are the clients of one server.
func serveClients(ctx context.Context, w *worker, caps holdfast.Capabilities, address string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// The first failure ends all clients of this server. What fails after that is a consequence.
	w.fatal = func(err error) {
		if ctx.Err() == nil {
			w.report.Failed(err)
		}
		cancel()
	}

	transport := &http.Transport{MaxIdleConnsPerHost: w.spec.Writers}
	defer transport.CloseIdleConnections()

	// The client must not try again by itself: each request is one operation of the history.
	c, err := client.New(address, client.Options{Token: serveToken, Retry: -1, Timeout: time.Minute,
		HTTP: &http.Client{Transport: levelTransport{transport}}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		w.fatal(err)
		return
	}
	s := &servedClient{worker: w, client: c, address: address, transport: transport,
		levels: append(w.weakerOf(caps), w.spec.Level)}
	given := caps.Promise(w.spec.Level).Given
	var group sync.WaitGroup
	if servesTasks(w.spec.Seed) {
		s.tasks(ctx, &group, given)
	} else {
		s.messages(ctx, &group, given)
	}
	group.Wait()
}

// servedClient works on one server.
type servedClient struct {
	*worker
	client    *client.Client
	address   string
	transport *http.Transport
	levels    []holdfast.Level // that writes ask for, the strongest last
}

// asking returns a context for the operation of a number. Most ask for the level of the test.
func (s *servedClient) asking(ctx context.Context, n uint64) (context.Context, *namedLevel) {
	asked := s.levels[len(s.levels)-1]
	if commits.Mix(s.spec.Seed, n, 92)%8 == 0 {
		asked = s.levels[commits.Mix(s.spec.Seed, n, 93)%uint64(len(s.levels))]
	}
	named := &namedLevel{asked: asked, wrong: s.wrong}

	return context.WithValue(ctx, namedKey{}, named), named
}

// excused reports whether the error of an operation is what a server that stops or dies may answer, or, where failures
// are made, a refusal.
func (s *servedClient) excused(ctx context.Context, err error) bool {
	var refusal *client.Error
	switch {
	// The server is gone, and what it said last does not matter.
	case ctx.Err() != nil:
		return true
	case !errors.As(err, &refusal), errors.Is(err, holdfast.ErrFenced): // that server will do nothing any more
		return false

	// No answer came, or the server is stopping. The pause keeps clients from asking a dead server without end.
	case refusal.Status == 0, !s.spec.Failing && errors.Is(err, client.ErrUnavailable):
		s.rest(ctx.Done(), time.Millisecond)
		return true
	}

	return refusal.Status >= 500 && s.refused(err)
}

// messages works on messages, and a log of events.
func (s *servedClient) messages(ctx context.Context, group *sync.WaitGroup, given holdfast.Level) {
	v := messageVictimOf(s.worker, servedScript(s.spec.Seed), nil, given)
	v.server = &servedMessages{s.client}

	for i := range servedFollowers {
		s.start(group, func() error { return s.follow(ctx, v, i) })
	}

	for range s.spec.Writers {
		s.start(group, func() error {
			for ctx.Err() == nil {
				s.pace()
				c := v.begin()
				asking, named := s.asking(ctx, c.n)
				c.named = named
				err := v.do(asking, c)

				// Finished before anything else can fail: others wait for it.
				v.finish(c, err)
				if err == nil && c.n%8 == 5 {
					s.awaitFollower(ctx, c)
				}
				if err != nil && !s.excused(ctx, err) {
					return fmt.Errorf("%v: %w", c, err)
				}
			}

			return nil
		})
	}
}

// servedFollowers are what is followed: all messages of the default namespace, and the log of events. In both each
// position is that of the one before and 1, and nothing is removed.
var servedFollowers = []struct {
	space int
	path  string
}{{0, "messages/follow"}, {keptSpace, "logs/" + servedLog + "/events/follow"}}

// follow follows until ctx ends, from one server to the next and over crashes behind the last position that it was
// shown. It reads what is sent itself, because package client passes over what comes twice.
func (s *servedClient) follow(ctx context.Context, v *messageVictim, i int) error {
	for ctx.Err() == nil {
		if err := s.connect(ctx, v, i); err != nil && ctx.Err() == nil {
			return fmt.Errorf("following %s: %w", servedFollowers[i].path, err)
		}
		s.rest(ctx.Done(), 2*time.Millisecond)
	}

	return nil
}

// connect follows on one connection. That it ends is no error.
func (s *servedClient) connect(ctx context.Context, v *messageVictim, i int) error {
	at := &s.followed[i]
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.address+"/v1/namespaces/"+message.Default+"/"+
		servedFollowers[i].path+"?from=1", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+serveToken)

	// As a browser does: it says what it has seen, and what follows must come once and without a gap. The header has the
	// position to go on from, which is one behind the last that was seen.
	if last := at.Load(); last > 0 {
		r.Header.Set(api.HeaderLastEventID, strconv.FormatUint(last+1, 10))
	}
	answer, err := s.transport.RoundTrip(r)
	if err != nil {
		return nil // the server is gone
	}
	defer answer.Body.Close()

	switch {
	case answer.StatusCode == http.StatusNotFound && at.Load() == 0, answer.StatusCode >= 500:
		return nil // there is no log yet, or the server stops
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("behind %d: status %s", at.Load(), answer.Status)
	}

	lines, shown := bufio.NewReader(answer.Body), uint64(0)
	begun := at.Load() > 0 // what is shown first may be in the middle of an operation

	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil
		}
		name, text, _ := bytes.Cut(line, []byte(": "))

		// Other lines are of the framing: ids, comments that keep the connection alive, blank ones.
		if string(name) != "data" {
			continue
		}
		m, err := servedMessage(i, text)
		if err != nil {
			return err
		}
		if m.Global == 0 { // bye
			continue
		}

		// Position by position, over connections and crashes: what a follower was shown survives like an acknowledged write.
		if want := at.Load() + 1; uint64(m.Global) != want {
			v.wrong("a follower of %s was shown position %d, not %d", servedFollowers[i].path, m.Global, want)
		}
		at.Store(uint64(m.Global))
		e := messageEntry("", m)
		if gen := (&protocol.History{Segments: s.spec.Segments}).Generation(e.N); e.Gen != gen {
			v.wrong("a follower of %s was shown operation %d of generation %d, which a crash had undone",
				servedFollowers[i].path, e.N, e.Gen)
		}
		if e.N != shown { // the first of an operation, unless that was begun before
			if shown = e.N; begun {
				v.report.Send(protocol.TellShown, e.N, uint64(v.given))
			} else {
				v.tellShown(e.N, m.Global)
			}
			begun = false
		}
		v.report.Followed(i, uint64(m.Global), v.given)
	}
}

// servedMessage reads what a follower is sent.
func servedMessage(follower int, text []byte) (m message.Message, err error) {
	if follower == 0 {
		var sent api.Message
		err = json.Unmarshal(text, &sent)

		return sent.Store(), err
	}
	var sent api.Event
	err = json.Unmarshal(text, &sent)
	e := sent.Store()

	return message.Message{Stream: servedLog, Type: e.Type, ID: e.ID, Time: e.Time.UTC(), Metadata: e.Metadata,
		Data: e.Data, Global: int64(e.Position), Position: int64(e.Position)}, err
}

// shownWithin is how long it may take at most until a follower of a path is shown what was acknowledged.
var shownWithin = func(path string) time.Duration { return time.Minute }

// awaitFollower waits until who follows what an operation wrote was shown it.
func (s *servedClient) awaitFollower(ctx context.Context, c *messageCall) {
	for i, f := range servedFollowers {
		// Where failures are made, a follower may be cut off for longer than any limit.
		if f.space != c.space || c.deletes || s.spec.Failing {
			continue
		}

		within := shownWithin(f.path)
		for began := time.Now(); s.followed[i].Load() < uint64(c.highest); {
			if !s.rest(ctx.Done(), time.Millisecond) {
				return
			}
			if time.Since(began) > within {
				s.wrong("%v was acknowledged up to position %d, and %v later a follower of %s was shown those up to %d", c,
					c.highest, within, f.path, s.followed[i].Load())
				return
			}
		}
	}
}

// tasks works on tasks.
func (s *servedClient) tasks(ctx context.Context, group *sync.WaitGroup, given holdfast.Level) {
	tasks := servedTasks{s.client.Namespace(message.Default).Tasks()}

	// It is set anew on each server; the second time it changes nothing.
	if err := tasks.SetQueue(ctx, taskQueues[1], taskLimits); err != nil && !s.excused(ctx, err) {
		s.fatal(fmt.Errorf("setting limits: %w", err))
		return
	}

	v := newTaskVictim(s.worker, tasks, given)
	for range s.spec.Writers {
		s.start(group, func() error {
			for ctx.Err() == nil {
				s.pace()
				o := v.begin()
				asking, named := s.asking(ctx, o.n)
				err := v.do(asking, o)
				if err == nil {
					v.acknowledged(o.n, named)
				}
				v.finish(o.n, err)
				if err != nil && !s.excused(ctx, err) {
					return fmt.Errorf("%v: %w", o, err)
				}
			}

			return nil
		})
	}
}

// servedLog is the log of events, whose operations stand where those on the namespace of message_kept.go are otherwise.
const servedLog = "events"

// servedScript is the script of what goes through a server.
func servedScript(seed uint64) script {
	p := scriptOf(seed)
	p.served = true

	return p
}

// servedOp makes an append of an operation of message_kept.go.
func servedOp(o messageOp) messageOp {
	return messageOp{n: o.n, gen: o.gen, space: keptSpace, ids: o.n%3 == 0,
		writes: []messageWrite{{stream: servedLog, size: 1 + int(o.n%7), after: o.n%2 == 0}}}
}

// append appends the messages of an operation to the log, as events.
func (v *messageVictim) append(ctx context.Context, c *messageCall) error {
	log := v.server.client.Namespace(message.Default).Log(servedLog)
	var events []event.Event

	for _, m := range v.script.messages(&c.messageOp) {
		events = append(events, event.Event{Type: m.Type, ID: m.ID, Time: m.Time, Metadata: m.Metadata, Data: m.Data})
		v.spent.Add(int64(len(m.Data) + 100))
	}
	write := log.Append
	if c.writes[0].after {
		last := uint64(0)
		write = func(ctx context.Context, events ...event.Event) (event.Result, error) {
			for {
				r, err := log.AppendAfter(ctx, last, events...)
				var conflict *event.Conflict
				if !errors.As(err, &conflict) {
					return r, err
				}
				if conflict.Actual <= conflict.Expected {
					v.wrong("%v expected position %d, and was told of position %d, an earlier one", c, conflict.Expected,
						conflict.Actual)
					return r, err // it could go on for ever
				}
				last = conflict.Actual
			}
		}
	}
	r, err := write(ctx, events...)
	if err != nil {
		return err
	}
	if r.Repeated || r.Last != r.First+uint64(len(events))-1 || int64(r.First) <= c.highest {
		v.wrong("%v, of %d events behind position %d, is told %+v", c, len(events), c.highest, r)
	}
	c.highest = int64(r.Last)
	v.report.Send(protocol.TellPlaced, c.n, r.First)
	if !c.ids {
		return nil
	}

	// With ids the same events are appended again, which must add nothing.
	again, err := log.Append(ctx, events...)
	if err != nil {
		return fmt.Errorf("repeated: %w", err)
	}
	if !again.Repeated || again.First != r.First {
		v.wrong("%v is repeated, and told %+v; the first time it was %+v", c, again, r)
	}

	return nil
}

// servedMessages is the store of messages behind a server.
type servedMessages struct{ client *client.Client }

// namespace is a namespace, which it makes if it is not there.
func (s *servedMessages) namespace(ctx context.Context, i int) (messageSpaceOf, error) {
	id := messageSpaces[i]
	n := servedSpace{s.client.Namespace(id), s.client}

	// The default namespace is always there. Another client may make this one, or delete it, at the same time.
	for i > 0 {
		_, err := n.Info(ctx)
		if !errors.Is(err, message.ErrNoNamespace) {
			return n, err
		}
		o := namespaceOptions(id)
		_, err = s.client.CreateNamespace(ctx, api.NewNamespace{ID: id, Description: o.Description, Metadata: o.Metadata})
		if err != nil && !errors.Is(err, message.ErrNamespaceExists) {
			return nil, err
		}
	}

	return n, nil
}

// servedSpace is a namespace behind a server.
type servedSpace struct {
	*client.Namespace
	client *client.Client
}

// writeAll writes to several streams in one transaction over HTTP.
func (n servedSpace) writeAll(ctx context.Context, writes []streamWrite) ([]message.Result, error) {
	results := make([]*message.Result, len(writes))
	err := n.client.Update(ctx, func(tx *client.Tx) error {
		for i, w := range writes {
			if w.expected != nil {
				results[i] = n.In(tx).WriteAfter(w.stream, *w.expected, w.messages...)
			} else {
				results[i] = n.In(tx).Write(w.stream, w.messages...)
			}
		}
		return nil
	})
	if err != nil { // the function may not even have been called
		return nil, err
	}
	list := make([]message.Result, len(writes))
	for i, r := range results {
		list[i] = *r
	}
	return list, nil
}

// Delete deletes a namespace.
func (s *servedMessages) Delete(ctx context.Context, id string) (int64, error) {
	return s.client.DeleteNamespace(ctx, id)
}

// Info tells whether there is a namespace.
func (s *servedMessages) Info(ctx context.Context, id string) (message.Info, error) {
	_, err := s.client.Namespace(id).Info(ctx)
	return message.Info{ID: id}, err
}

// servedTasks is the store of tasks behind a server. Its marks are tasks, of a queue of their own.
type servedTasks struct{ *client.Tasks }

// with adds the mark as a task that nobody claims.
func (m mark) with(specs []task.Spec) []task.Spec {
	return append(slices.Clip(specs), task.Spec{ID: m.key, Queue: taskMarks, Kind: "mark", Payload: m.value})
}

// EnqueueMarked implements [taskStore].
func (s servedTasks) EnqueueMarked(ctx context.Context, m mark, specs ...task.Spec) ([]task.Result, error) {
	// The mark comes last, and its result is none of the caller's.
	results, err := s.Enqueue(ctx, m.with(specs)...)
	return results[:min(len(results), len(specs))], err
}

// CompleteMarked implements [taskStore].
func (s servedTasks) CompleteMarked(ctx context.Context, l task.Lease, m mark, then ...task.Spec) (
	[]task.Result, error) {
	results, err := s.CompleteThen(ctx, l, m.with(then)...)
	return results[:min(len(results), len(then))], err
}

// serveRead reads through the stores.
func serveRead(c *check, e holdfast.Engine, emit func(commits.Found)) error {
	if servesTasks(c.spec.Seed) {
		return taskRead(c, e, emit)
	}
	if err := messageRead(c, e, emit); err != nil {
		return err
	}

	// Opening a log would make it, and reading must not change what is there.
	if _, err := event.Describe(e, servedLog); err != nil {
		if errors.Is(err, holdfast.ErrNotFound) {
			return nil // nothing was appended
		}

		return fmt.Errorf("describing the log: %w", err)
	}
	log, err := event.Open(kv.On(e), event.Options{Name: servedLog, Level: c.spec.Level})
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	read := func() error {
		ctx := context.Background()
		last := uint64(0)
		events, err := log.Read(ctx, 1, 0)
		if err != nil {
			return fmt.Errorf("reading the log: %w", err)
		}

		for _, e := range events {
			if e.Position != last+1 {
				c.wrong("the log has position %d behind %d", e.Position, last)
			}
			last = e.Position
			emit(messageEntry(messageSpaces[keptSpace], message.Message{Stream: servedLog, Type: e.Type, ID: e.ID,
				Time: e.Time.UTC(), Metadata: e.Metadata, Data: e.Data, Global: int64(e.Position),
				Position: int64(e.Position)}))
		}
		if got := log.Last(); got != last {
			c.wrong("the log says that it ends with position %d, and %d is the last that is read", got, last)
		}

		return nil
	}

	return errors.Join(read(), log.Close())
}

// serveJudge judges a history as that of the messages or the tasks that its clients work on.
func serveJudge(h *protocol.History, found []commits.Found) protocol.Judgement {
	if servesTasks(h.Seed) {
		return taskJudge(h, found)
	}

	return messageJudgeOf(h, servedScript(h.Seed), found)
}
