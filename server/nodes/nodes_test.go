package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/store/message"
)

// board is a cluster in memory.
type board struct {
	mu    sync.Mutex
	peers map[string]Peer
	left  map[string]bool
	rows  map[int]*row
	marks map[int]string
	gone  bool // nobody reaches it
}

func newBoard() *board {
	return &board{peers: map[string]Peer{}, left: map[string]bool{}, rows: map[int]*row{}, marks: map[int]string{}}
}

// row is a space, which keeps its data.
type row struct {
	Space
	engine holdfast.Engine
	holder *held
	barred bool // nobody can take it
}

// member is the cluster as a process has it.
type member struct {
	*board
	self             string
	number, clusters int
}

// Look implements [Cluster].
func (m member) Look(context.Context) (seen Seen, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return Seen{}, holdfast.ErrUnavailable
	}
	if p, known := m.peers[m.self]; !known || !p.Alive && !m.left[m.self] {
		m.peers[m.self] = Peer{Address: m.self, Protocol: Protocol, Alive: true, Cluster: m.number, Clusters: m.clusters}
	}
	seen.Peers = slices.Collect(maps.Values(m.peers))
	for _, r := range m.rows {
		seen.Spaces = append(seen.Spaces, r.Space)
	}
	seen.Marks = maps.Clone(m.marks)
	return seen, nil
}

// Mark implements [Cluster].
func (m member) Mark(_ context.Context, number int, server string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.marks[number] == "" {
		m.marks[number] = server
	}
	return nil
}

func (m member) String() string { return "in memory" }

// Open implements [Cluster].
func (m member) Open(s Space) (holdfast.Engine, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rows[s.Number]
	if r == nil {
		r = &row{Space: Space{Number: s.Number, Free: true}, engine: mem.New()}
		m.rows[s.Number] = r
	}
	if !r.Free || r.barred {
		return nil, holdfast.ErrLocked
	}
	r.Epoch++
	r.Owner, r.Host, r.Free = m.self, "here", false
	r.holder = &held{Engine: r.engine, board: m.board, row: r, done: make(chan struct{})}
	return r.holder, nil
}

// Leave implements [Cluster].
func (m member) Leave(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left[m.self] = true
	p := m.peers[m.self]
	p.Alive = false
	m.peers[m.self] = p
	return nil
}

// held is a space's engine, as the process has it that owns the space.
type held struct {
	holdfast.Engine
	*board
	row  *row
	err  error
	done chan struct{}
}

func (h *held) end(err error) {
	if h.err == nil {
		h.err = err
		close(h.done)
	}
}

// Apply implements [holdfast.Engine].
func (h *held) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return holdfast.Receipt{}, h.err
	}
	return h.Engine.Apply(b, level)
}

// Done implements [holdfast.Engine].
func (h *held) Done() <-chan struct{} { return h.done }

// Err implements [holdfast.Engine].
func (h *held) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Close implements [holdfast.Engine].
func (h *held) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.row.holder == h {
		h.row.holder, h.row.Owner, h.row.Host, h.row.Free = nil, "", "", true
	}
	h.end(holdfast.ErrClosed)
	return nil
}

// take takes a space from its owner, and lets nobody have it, or somebody again.
func (b *board) take(number int, barred bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rows[number]
	if r.holder != nil {
		r.holder.end(errors.Join(holdfast.ErrPoisoned, holdfast.ErrFenced))
	}
	r.holder, r.Owner, r.Host, r.Free, r.barred = nil, "", "", true, barred
}

const (
	everything = "ns_ZGVmYXVsdA_" + "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	secret     = "a-secret-of-the-processes"
)

type testNode struct {
	*Node
	t    *testing.T
	stop context.CancelFunc
}

func (b *board) node(t *testing.T, spaces int) *testNode { t.Helper(); return nodeOf(t, spaces, b) }

// nodeOf starts a process that has several clusters.
func nodeOf(t *testing.T, spaces int, boards ...*board) *testNode {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Try(t, err)
	self := "http://" + l.Addr().String()
	var clusters []Cluster
	for i, b := range boards {
		clusters = append(clusters, member{b, self, i, len(boards)})
	}
	n, err := New(clusters, Options{Self: self, PeerToken: secret, Spaces: spaces, Level: holdfast.Memory,
		Logger: slog.New(slog.DiscardHandler), StopTimeout: 20 * time.Second,
		Opened: func(ctx context.Context, d *data.Data) error {
			return d.Tokens().SetOwn(ctx, message.Default, everything)
		}})
	testkit.Try(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- n.Serve(l) }()
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		testkit.Try(t, errors.Join(<-ended, <-ended))
	})
	return &testNode{n, t, stop}
}

// nodes starts processes that share spaces: each owns every so manieth of them.
func start(t *testing.T, processes, spaces int) (*board, []*testNode) {
	t.Helper()
	b := newBoard()
	var list []*testNode
	for range processes {
		list = append(list, b.node(t, spaces))
	}
	// They need not have shared them yet: owners are made as the tests want them.
	testkit.Until(t, "owned", func() bool { return len(b.owners()) == spaces })
	for number := range spaces {
		b.move(t, number, list[number%processes])
	}
	for _, n := range list {
		testkit.Until(t, "seen", func() bool {
			owners := b.owners()
			for _, s := range n.Show().Spaces {
				if s.Owner != owners[s.Space] {
					return false
				}
			}
			return true
		})
	}
	return b, list
}

func (b *board) owners() map[int]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[int]string{}
	for number, r := range b.rows {
		if r.Owner != "" {
			all[number] = r.Owner
		}
	}
	return all
}

// move gives a space to a process.
func (b *board) move(t *testing.T, number int, to *testNode) {
	t.Helper()
	if b.owners()[number] == to.o.Self {
		return
	}
	b.take(number, true)
	b.mu.Lock()
	at := b.rows[number].Space
	b.rows[number].barred = false
	b.mu.Unlock()
	to.mu.Lock()
	s := to.spaces[number]
	to.mu.Unlock()
	testkit.Until(t, "given", func() bool {
		to.mu.Lock()
		free := !s.busy && s.serving == nil
		if free {
			s.busy = true
		}
		to.mu.Unlock()
		if free {
			to.open(s, at)
		}
		if b.owners()[number] == to.o.Self {
			return true
		}
		b.take(number, false)
		return false
	})
}

func (n *testNode) once(
	method, path, token, body string, more ...string,
) (status int, text string, header http.Header) {
	n.t.Helper()
	r, err := http.NewRequest(method, n.o.Self+path, strings.NewReader(body))
	testkit.Try(n.t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(more); i += 2 {
		r.Header.Set(more[i], more[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	testkit.Try(n.t, err)
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	testkit.Try(n.t, err)
	return res.StatusCode, string(got), res.Header
}

// ask asks again as clients do: on a busy machine an owner may be taken for gone.
func (n *testNode) ask(method, path, token, body string, more ...string) (status int, text string, header http.Header) {
	n.t.Helper()
	testkit.Until(n.t, "an answer of an owner", func() bool {
		status, text, header = n.once(method, path, token, body, more...)
		return status != http.StatusServiceUnavailable
	})
	return status, text, header
}

func (n *testNode) rpc(token, call string) (status int, text string) {
	n.t.Helper()
	status, text, _ = n.ask(http.MethodPost, "/rpc", token, call)
	return status, text
}

// namespaces makes so many, and returns their tokens, and where they lie.
func (n *testNode) namespaces(count int) (tokens map[string]string, lie map[string]int) {
	n.t.Helper()
	tokens, lie = map[string]string{}, map[string]int{}
	for i := range count {
		name := fmt.Sprintf("n%d", i)
		tokens[name] = auth.NewNamespaceSecret(name)
		if status, text := n.rpc(everything, `["ns.create","`+name+`",{"token":"`+tokens[name]+`"}]`); status != 200 {
			n.t.Fatal(status, text)
		}
		write := `["stream.write","a-1",{"type":"T","data":{"of":"` + name + `"}}]`
		if status, text := n.rpc(tokens[name], write); status != 200 {
			n.t.Fatal(status, text)
		}
		space, err := n.lies(n.t.Context(), name)
		testkit.Try(n.t, err)
		lie[name] = space
	}
	return tokens, lie
}

// A space that nobody owns takes only its namespaces with it; so does the first one, for those who were there before.
func TestSpaceWithoutOwner(t *testing.T) {
	b, nodes := start(t, 3, 4)
	tokens, lie := nodes[2].namespaces(8)
	in := map[int]int{}
	for _, space := range lie {
		in[space]++
	}
	if len(in) != 4 || in[1] != 2 {
		t.Errorf("they lie in %v", in)
	}
	for _, gone := range []int{2, 0} {
		// Each process knows each token then. An owner that has just lost its space may say so once.
		for _, token := range tokens {
			for _, n := range nodes {
				testkit.Until(t, "answered by each", func() bool {
					status, _ := n.rpc(token, `["stream.version","a-1"]`)
					return status == 200
				})
			}
		}
		b.take(gone, true)
		for _, n := range nodes {
			testkit.Until(t, "seen", func() bool { return n.Show().Spaces[gone].Owner == "" && !n.has(gone) })
		}
		for name, token := range tokens {
			for _, n := range nodes {
				path := "/v1/namespaces/" + name + "/streams"
				if lie[name] == gone {
					status, text, header := n.once("GET", path, token, "")
					if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
						t.Errorf("without space %d, %s, which lies there: %d %s", gone, name, status, text)
					}
					continue
				}
				// It waits for no owner. A machine that is busy may take as long as that wait, but not each time.
				what := fmt.Sprintf("without space %d, %s, which lies in %d, is answered at once", gone, name, lie[name])
				testkit.Until(t, what, func() bool {
					began := time.Now()
					status, text, _ := n.once("GET", path, token, "")
					return status == 200 && strings.Contains(text, "a-1") && time.Since(began) < hold
				})
			}
		}
		if gone > 0 {
			status, text, _ := nodes[1].ask("GET", "/v1/namespaces", everything, "")
			if status != 200 || strings.Count(text, `"messages":-1`) != 2 || strings.Count(text, `"messages":1,`) != 6 {
				t.Error(status, text)
			}
			if status, text := nodes[1].rpc(everything, `["ns.create","more"]`); status != 200 { // where somebody is
				t.Error(status, text)
			}
		}
		b.take(gone, false)
		testkit.Until(t, "taken", func() bool { return b.owners()[gone] != "" })
		for _, token := range tokens {
			testkit.Until(t, "answered", func() bool {
				status, _ := nodes[1].rpc(token, `["stream.version","a-1"]`)
				return status == 200
			})
		}
	}
}

// What a process remembers of a namespace may be wrong: nothing is answered from another space than it lies in.
func TestStaleRoutes(t *testing.T) {
	_, nodes := start(t, 3, 4)
	tokens, lie := nodes[0].namespaces(8)
	for name, token := range tokens {
		for wrong := range 4 {
			for _, n := range nodes {
				n.lying.set(name, wrong)
				status, text, _ := n.ask("POST", "/v1/namespaces/"+name+"/messages", token, "[]")
				if status == http.StatusNotFound || status >= 500 {
					t.Errorf("%s, which lies in %d, asked for in %d: %d %s", name, lie[name], wrong, status, text)
				}
				n.lying.set(name, wrong)
				if status, text := n.rpc(token, `["stream.version","a-1"]`); status != 200 || text != "0" {
					t.Errorf("%s, which lies in %d, asked for in %d: %d %s", name, lie[name], wrong, status, text)
				}
			}
		}
	}
	// Deleted behind their backs, too.
	for name, token := range tokens {
		if status, text := nodes[1].rpc(everything, `["ns.delete","`+name+`"]`); status != 200 {
			t.Fatal(status, text)
		}
		for _, n := range nodes {
			n.lying.set(name, lie[name])
			if status, text := n.rpc(token, `["stream.version","a-1"]`); status != http.StatusForbidden {
				t.Error(name, status, text)
			}
			n.lying.set(name, lie[name])
			path := "/v1/namespaces/" + name + "/streams"
			if status, text, _ := n.ask("GET", path, everything, ""); status != http.StatusNotFound {
				t.Error(name, status, text)
			}
		}
	}
}

// What processes say to each other is nothing that clients can say.
func TestForged(t *testing.T) {
	_, nodes := start(t, 2, 2)
	tokens, lie := nodes[0].namespaces(4)
	for name, token := range tokens {
		for _, n := range nodes {
			for _, forged := range [][]string{
				{headerAsk, "remove"}, {headerNamespace, "n0"}, {headerSure, "1"}, {headerSpace, "1"}, {headerFrom, "1.2.3.4"},
			} {
				status, text, _ := n.ask("POST", "/rpc", token, `["stream.version","a-1"]`, forged...)
				if status != 200 || text != "0" {
					t.Errorf("%s in %d with %v: %d %s", name, lie[name], forged, status, text)
				}
			}
			status, text, header := n.ask("POST", "/", everything, `"`+name+`"`, headerAsk, "lies",
				headerPeer, secret+"x", headerSpace, "0")
			if status != http.StatusMisdirectedRequest || header.Get(headerLies) != "" {
				t.Error(status, text)
			}
		}
	}
	// A process that passes on what belongs to no namespace is not answered from another space than the first.
	for _, path := range []string{"/v1/namespaces", "/v1/namespaces/default/streams", "/v1/token"} {
		status, text, _ := nodes[1].ask("GET", path, everything, "", headerPeer, secret, headerSpace, "1")
		if status != http.StatusMisdirectedRequest {
			t.Error(path, status, text)
		}
	}
}

// A namespace whose making was cut short is made again; one that was removed in its space is removed from the list.
func TestHalfMade(t *testing.T) {
	_, nodes := start(t, 2, 2)
	ctx := t.Context()
	mark, second := "", ""
	call := func(value string, into *string) {
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			err := nodes[0].call(ctx, 1, "make", making{message.Info{ID: "half"}, value}, into)
			// On a machine that is busy an owner may be taken for gone: the next one is asked.
			if err == nil || !errors.Is(err, holdfast.ErrFenced) || time.Now().After(end) {
				testkit.Try(t, err)
				return
			}
		}
	}
	call("one", &mark)
	call("two", &second)
	if mark != "one" || second != "one" {
		t.Errorf("its marks are %q, %q", mark, second)
	}
	if status, text, _ := nodes[0].ask("GET", "/v1/namespaces/half", everything, ""); status != http.StatusNotFound {
		t.Error(status, text)
	}
	tokens, lie := nodes[0].namespaces(4)
	if status, text := nodes[1].rpc(everything, `["ns.create","half"]`); status != 200 {
		t.Error(status, text)
	}
	for name := range tokens {
		var removed int64
		err := nodes[0].call(ctx, lie[name], "remove", removal{name, "another"}, &removed)
		if !errors.Is(err, message.ErrNoNamespace) {
			t.Errorf("%s was removed by another's mark: %v", name, err)
		}
		if lie[name] == 0 {
			continue
		}
		o := nodes[1].enter(1)
		_, err = o.data.Delete(ctx, name)
		nodes[1].exit(o)
		testkit.Try(t, err)
		if status, text, _ := nodes[0].ask("GET", "/v1/namespaces/"+name, everything, ""); status != http.StatusNotFound {
			t.Error(status, text)
		}
		if status, text := nodes[0].rpc(everything, `["ns.create","`+name+`"]`); status != http.StatusConflict {
			t.Error(status, text)
		}
		if status, text := nodes[1].rpc(everything, `["ns.delete","`+name+`"]`); status != 200 {
			t.Error(status, text)
		}
		if status, text := nodes[1].rpc(everything, `["ns.create","`+name+`"]`); status != 200 {
			t.Error(status, text)
		}
	}
}

// broken reads nothing.
type broken struct{ err error }

func (broken) Next() bool     { return false }
func (broken) Key() []byte    { return nil }
func (broken) Value() []byte  { return nil }
func (b broken) Err() error   { return b.err }
func (b broken) Close() error { return b.err }

// Get implements [holdfast.Engine]: who has lost a space reads nothing either.
func (h *held) Get(dst, key []byte) ([]byte, error) {
	if err := h.Err(); err != nil {
		return dst, err
	}
	return h.Engine.Get(dst, key)
}

// Scan implements [holdfast.Engine].
func (h *held) Scan(r holdfast.Range) holdfast.Iterator {
	if err := h.Err(); err != nil {
		return broken{err}
	}
	return h.Engine.Scan(r)
}

// Snapshot implements [holdfast.Engine].
func (h *held) Snapshot() (holdfast.Snapshot, error) {
	if err := h.Err(); err != nil {
		return nil, err
	}
	return h.Engine.Snapshot()
}

// moveTo moves a namespace. It asks again if a space has got another owner meanwhile, as whoever moves one is told to.
func (n *testNode) moveTo(namespace string, space int) (status int, text string) {
	n.t.Helper()
	body := fmt.Sprintf(`{"namespace":%q,"space":%d}`, namespace, space)
	for {
		status, text, _ = n.once("POST", "/v1/nodes/move", everything, body)
		if status != http.StatusConflict || !strings.Contains(text, "another owner") {
			return status, text
		}
	}
}

// All of a namespace moves: messages, logs, tasks with their leases, subscriptions, tokens, what describes it.
func TestMove(t *testing.T) {
	_, nodes := start(t, 3, 4)
	tokens, _ := nodes[0].namespaces(4)
	post := func(path, body string) string {
		t.Helper()
		status, text, _ := nodes[1].ask("POST", "/v1/namespaces/n1"+path, everything, body)
		if status >= 300 {
			t.Fatal(path, status, text)
		}
		return text
	}
	options := `{"category":"a","lease_ms":60000}`
	status, text, _ := nodes[1].ask("PUT", "/v1/namespaces/n1/subscriptions/s", everything, options)
	if status >= 300 {
		t.Fatal(status, text)
	}
	var deliveries api.Deliveries
	testkit.Try(t, json.Unmarshal([]byte(post("/subscriptions/s/claim", `{}`)), &deliveries))
	post("/tasks", `{"tasks":[{"id":"one","kind":"k"},{"id":"two","kind":"k","after":["one"]}]}`)
	var leases api.Leases
	testkit.Try(t, json.Unmarshal([]byte(post("/tasks/claim", `{"lease_ms":60000}`)), &leases))
	_, described, _ := nodes[1].ask("GET", "/v1/namespaces/n1", everything, "")
	event := `{"type":"T","data":1,"timestamp":"2026-01-01T00:00:00Z"}`
	if status, text, _ := nodes[1].ask("POST", "/events", tokens["n1"], event); status != 200 {
		t.Fatal(status, text)
	}
	for i, to := range []int{2, 3, 0, 0, 1, 2, 0, 3, 1} {
		n := nodes[i%3]
		if status, text := n.moveTo("n1", to); status != http.StatusNoContent {
			t.Fatal(i, to, status, text)
		}
		for _, n := range nodes {
			if space, err := n.lies(t.Context(), "n1"); space != to && n.has(0) || err != nil {
				t.Error(space, to, err)
			}
			want := fmt.Sprint(i)
			if status, text := n.rpc(tokens["n1"], `["stream.version","a-1"]`); status != 200 || text != want {
				t.Error(i, status, text)
			}
			want = fmt.Sprintf(`{"position":%d}`+"\n", i+1)
			if status, text, _ := n.ask("GET", "/position", tokens["n1"], ""); status != 200 || text != want {
				t.Error(i, status, text)
			}
			status, text, _ := n.ask("GET", "/v1/namespaces", everything, "")
			if status != 200 || strings.Count(text, `"id"`) != 5 {
				t.Error(i, status, text)
			}
		}
		if status, text := n.rpc(tokens["n1"], `["stream.write","a-1",{"type":"T","data":{}}]`); status != 200 {
			t.Error(i, status, text)
		}
		if status, text, _ := n.ask("POST", "/events", tokens["n1"], event); status != 200 {
			t.Error(i, status, text)
		}
	}
	_, text, _ = nodes[2].ask("GET", "/v1/namespaces/n1", everything, "")
	if strings.Split(text, `"messages"`)[0] != strings.Split(described, `"messages"`)[0] {
		t.Error(text, described)
	}
	// What consumers and workers had before, they have.
	d, l := deliveries.Deliveries[0], leases.Leases[0]
	post("/subscriptions/s/ack", fmt.Sprintf(`{"deliveries":[{"global":%d,"token":%d}]}`, d.Global, d.Token))
	got := post("/leases/complete", fmt.Sprintf(`{"leases":[{"id":%q,"token":%d}]}`, l.Task.ID, l.Token))
	if strings.Contains(got, "code") {
		t.Error(got)
	}
	if got := post("/tasks/claim", `{}`); !strings.Contains(got, `"two"`) {
		t.Error(got)
	}
	testkit.Try(t, json.Unmarshal([]byte(post("/subscriptions/s/claim", `{}`)), &deliveries))
	if got := deliveries.Deliveries[0]; got.Global != d.Global+1 || got.Attempt != 1 {
		t.Errorf("%+v after %+v", got, d)
	}
	for _, bad := range []struct {
		namespace string
		to        int
	}{{"n1", 9}, {"n1", -1}, {"default", 1}, {"nobody", 1}} {
		if status, text := nodes[1].moveTo(bad.namespace, bad.to); status < 400 || status >= 500 {
			t.Error(bad, status, text)
		}
	}
	status, text, _ = nodes[1].ask("POST", "/v1/nodes/move", tokens["n1"], `{"namespace":"n1","space":2}`)
	if status != http.StatusForbidden {
		t.Error(status, text)
	}
}

// While clients write, namespaces are moved, and owners lose spaces in the midst of it, the first one too. In the end
// each namespace is in one space, whole: what was acknowledged is there, once, and where it was said to be.
func TestMoveBroken(t *testing.T) {
	const spaces = 4
	b, nodes := start(t, 3, spaces)
	tokens, _ := nodes[0].namespaces(4)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	least, most := time.Now().Add(3*time.Second), time.Now().Add(40*time.Second)
	told := map[string]map[string]string{}
	var work sync.WaitGroup
	var moved, broken, refused atomic.Int64
	going := func() bool {
		now := time.Now()
		return now.Before(least) || (moved.Load() < 5 || broken.Load() < 5) && now.Before(most)
	}
	retry := func(n *testNode, token, call string) string {
		for ctx.Err() == nil {
			switch status, text := n.rpc(token, call); {
			case status == 200:
				return text
			case status == 503 || status == 502:
				refused.Add(1)
			default:
				t.Errorf("%s: %d %s", call, status, text)
				return ""
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Errorf("%s: not done within a minute", call)
		return ""
	}
	for name, token := range tokens {
		mine := map[string]string{}
		told[name] = mine
		work.Go(func() {
			for i := 0; going(); i++ {
				id := fmt.Sprintf("00000000-0000-4000-8000-%s%011d", name[1:], i)
				mine[id] = retry(nodes[i%3], token, `["stream.write","b-1",{"type":"T","data":{}},{"id":"`+id+`"}]`)
			}
		})
	}
	work.Go(func() {
		for i := 0; going(); i++ {
			name := fmt.Sprintf("n%d", rand.IntN(len(tokens)))
			if status, _ := nodes[i%3].moveTo(name, rand.IntN(spaces)); status == http.StatusNoContent {
				moved.Add(1)
			}
		}
	})
	work.Go(func() {
		for going() {
			time.Sleep(time.Duration(100+rand.IntN(900)) * time.Millisecond)
			b.take(rand.IntN(spaces), false)
			broken.Add(1)
		}
	})
	work.Wait()
	testkit.Until(t, "settled", func() bool {
		for number := range spaces {
			left := -1
			for _, n := range nodes {
				o := n.enter(number)
				if o == nil {
					continue
				}
				gone := o.engine.Err() != nil
				left = len(o.data.Moving())
				n.exit(o)
				if gone { // it has not noticed yet
					return false
				}
			}
			if left != 0 {
				return false
			}
		}
		return true
	})
	var first *data.Data
	in := map[string][]int{}
	for number := range spaces {
		for _, n := range nodes {
			o := n.enter(number)
			if o == nil {
				continue
			}
			if number == 0 {
				first = o.data
			}
			list, err := o.data.Messages().Namespaces(ctx, "", 0)
			testkit.Try(t, err)
			for _, info := range list {
				if info.ID != message.Default {
					in[info.ID] = append(in[info.ID], number)
				}
			}
			n.exit(o)
		}
	}
	for name, token := range tokens {
		if len(in[name]) != 1 || in[name][0] != first.Lies(name) {
			t.Errorf("%s is in %v, and listed in %d", name, in[name], first.Lies(name))
		}
		for _, n := range nodes {
			text := retry(n, token, `["stream.get","b-1",{"batchSize":-1}]`)
			var all [][]any
			testkit.Try(t, json.Unmarshal([]byte(text), &all))
			if len(all) != len(told[name]) {
				t.Errorf("%s has %d messages, %d were written", name, len(all), len(told[name]))
			}
			for i, m := range all {
				id, want := m[0].(string), fmt.Sprintf(`{"position":%d,"globalPosition":%v}`, i, m[3])
				if told[name][id] != want {
					t.Errorf("%s: %s is at %s, and was said to be at %s", name, id, want, told[name][id])
				}
			}
		}
	}
	t.Logf("%d moves, %d times an owner lost a space, %d requests were to come again", moved.Load(), broken.Load(),
		refused.Load())
	if moved.Load() < 5 || broken.Load() < 5 {
		t.Error("too few")
	}
}

// transportOf makes requests by a function.
type transportOf func(*http.Request) (*http.Response, error)

func (f transportOf) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTakenForGone: an owner that was paused takes for gone who has waited for it. That is no answer: reads are asked
// again, and of a write nobody knows whether it was done.
func TestTakenForGone(t *testing.T) {
	asked := 0
	n, err := New([]Cluster{member{&board{peers: map[string]Peer{}, rows: map[int]*row{}}, "http://self", 0, 1}}, Options{
		Self: "http://self", PeerToken: "secret-of-the-processes",
		Peers: transportOf(func(*http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			if asked++; asked == 1 {
				w.WriteHeader(problem.StatusClosed)
			}

			return w.Result(), nil
		})})
	testkit.Try(t, err)
	n.spaces[0].Owner = "http://owner"
	for _, c := range []struct {
		method        string
		status, asked int
	}{{http.MethodGet, http.StatusOK, 2}, {http.MethodPost, http.StatusBadGateway, 1}} {
		asked = 0
		w := httptest.NewRecorder()
		n.find(w, httptest.NewRequest(c.method, "http://self/v1/token", nil), where{})
		if w.Code != c.status || asked != c.asked {
			t.Errorf("%s: %d after %d requests: %s", c.method, w.Code, asked, w.Body)
		}
	}
}
