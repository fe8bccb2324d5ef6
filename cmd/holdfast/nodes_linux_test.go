package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/internal/pgserver"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

const (
	nodesToken = "ns_ZGVmYXVsdA_" + "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	peerToken  = "a-secret-of-the-processes"
)

var serverSettings = []string{"max_connections=1000", "shared_buffers=32MB", "fsync=on"}

// shared returns the addresses of spaces in the one server of all tests that do nothing to it. Each call has spaces of
// its own.
func shared(t *testing.T) func(space string) string {
	t.Helper()
	if _, err := pgserver.Find(); err != nil {
		t.Skip(err)
	}
	address, err := startShared()
	try(t, err)
	call := sharers.Add(1)
	return func(space string) string { return address(fmt.Sprintf("%s%d", space, call)) }
}

var sharers atomic.Int64

var startShared = sync.OnceValues(func() (address func(space string) string, err error) {
	dir := filepath.Join(ofAll, "s")
	if err := os.Mkdir(dir, 0o711); err != nil {
		return nil, err
	}
	address, server, err := startServer(dir)
	if server != nil {
		atEnd = server.Kill
	}
	return address, err
})

// database starts a server of PostgreSQL for a test, and returns the address of a space in it.
func database(t *testing.T) (address func(space string) string, server *pgserver.Server) {
	t.Helper()
	if _, err := pgserver.Find(); err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "hf")
	try(t, err)
	t.Cleanup(func() { try(t, os.RemoveAll(dir)) })
	address, server, err = startServer(dir)
	if server != nil {
		t.Cleanup(server.Kill)
	}
	try(t, err)
	return address, server
}

func startServer(dir string) (address func(space string) string, server *pgserver.Server, err error) {
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, nil, err
	}
	data := filepath.Join(dir, "data")
	server, err = pgserver.Open(data, pgserver.Config{New: true, Template: ofAll, Settings: serverSettings})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), pgserver.Patience)
	defer cancel()
	return func(space string) string {
		return "postgres://postgres@/postgres?host=" + data + "&space=" + space + "&patience=10s"
	}, server, server.Ready(ctx)
}

// serveNode starts a process that serves with others, and waits until it does.
func serveNode(t *testing.T, address, how string, args ...string) *process {
	t.Helper()
	p, ready := beginNode(t, address, how, args...)
	ready()
	return p
}

// beginNode starts a process that serves with others, which ready waits for.
func beginNode(t *testing.T, address, how string, args ...string) (p *process, ready func()) {
	t.Helper()
	scheme := "http"
	if how == "TLS" {
		scheme = "https"
	}
	p = &process{t: t, cmd: holdfastCommand(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--advertise",
		scheme + "://127.0.0.1:0", "--engine", address}, args...)...), log: new(lockedBuffer), token: nodesToken,
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}}
	p.cmd.Env = append(p.cmd.Env, "HOLDFAST_TOKEN="+nodesToken, "HOLDFAST_PEER_TOKEN="+peerToken,
		"HOLDFAST_DATA=") // as in docs/deploy: the image names a directory
	if how == "Stranger" {
		p.cmd.Env = append(p.cmd.Env, "HOLDFAST_PEER_TOKEN=of-others-than-these")
	}
	p.cmd.Stderr = p.log
	if how == "Gone" { // it has another number here than there, so that nobody can tell that it has ended
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	}
	out, err := p.cmd.StdoutPipe()
	try(t, err)
	try(t, p.cmd.Start())
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		if !p.stopped {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("log of %s: %s", p.url, regexp.MustCompile(`.*"/ready".*\n`).ReplaceAllString(p.log.String(), ""))
		}
	})
	return p, func() {
		t.Helper()
		in := bufio.NewScanner(out)
		for in.Scan() && !strings.HasPrefix(in.Text(), "address") {
		}
		p.url = regexp.MustCompile(`https?://[0-9.:]+`).FindString(in.Text())
		if p.url == "" {
			t.Fatalf("the server has not told its address; log: %s", p.log)
		}
		go func() { _, _ = io.Copy(io.Discard, out) }()
		p.eventually("ready", func() bool {
			res, err := p.client.Get(p.url + "/ready")
			if err != nil {
				return false
			}
			defer res.Body.Close()
			return res.StatusCode == http.StatusOK
		})
	}
}

// kill ends a process at once.
func (p *process) kill() {
	p.stopped = true
	try(p.t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
}

// nodes is what a process says of all.
func (p *process) nodes() (n api.Nodes) {
	p.t.Helper()
	req, err := http.NewRequest("GET", p.url+"/v1/nodes", nil)
	try(p.t, err)
	req.Header.Set("Authorization", "Bearer "+nodesToken)
	res, err := p.client.Do(req)
	try(p.t, err)
	defer res.Body.Close()
	try(p.t, json.NewDecoder(res.Body).Decode(&n))
	return n
}

func (p *process) api(o client.Options) *client.Client {
	o.Token = nodesToken
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := client.New(p.url, o)
	try(p.t, err)
	p.t.Cleanup(c.CloseIdleConnections)
	return c
}

// TestNodes: two processes are one server; one takes over from the other.
func TestNodes(t *testing.T) {
	t.Parallel() // it waits
	address := shared(t)
	for name, end := range map[string]func(*process){
		"Killed":  (*process).kill,
		"Stopped": func(p *process) { p.stop(syscall.SIGTERM) },
		"Gone":    (*process).kill,
		"Paused":  func(p *process) { try(p.t, p.cmd.Process.Signal(syscall.SIGSTOP)) },
	} {
		for _, direct := range []bool{false, true} {
			t.Run(name+map[bool]string{true: "Direct"}[direct], func(t *testing.T) {
				if name == "Gone" && os.Geteuid() != 0 {
					t.Skip("only root can start a process that others cannot tell from one of another machine")
				}
				t.Parallel()
				testNodesEnd(t, address(strings.ToLower(name)+map[bool]string{true: "d"}[direct]), name, direct, end)
			})
		}
	}
}

// proxied is how many requests a process has passed on.
func (p *process) proxied() (n float64) {
	p.t.Helper()
	req, err := http.NewRequest("GET", p.url+"/v1/metrics", nil)
	try(p.t, err)
	req.Header.Set("Authorization", "Bearer "+nodesToken)
	res, err := p.client.Do(req)
	try(p.t, err)
	defer res.Body.Close()
	for in := bufio.NewScanner(res.Body); in.Scan(); {
		if rest, ok := strings.CutPrefix(in.Text(), `holdfast_proxied_total{result="answered"} `); ok {
			n, err = strconv.ParseFloat(rest, 64)
			try(p.t, err)
			return n
		}
	}
	p.t.Fatal("the process does not say how many requests it has passed on")
	return 0
}

// TestNodesRefuse: a process with another's address does not begin; one with another peer token passes nothing on; an
// address or a token that cannot be is refused before anything is made.
func TestNodesRefuse(t *testing.T) {
	t.Parallel() // it waits
	address := shared(t)
	owner := serveNode(t, address("a"), "")
	owner.eventually("owns", func() bool { return owner.nodes().Spaces[0].Owner == owner.url })
	run := func(args ...string) (int, string) {
		cmd := holdfastCommand(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
		cmd.Env = append(cmd.Env, "HOLDFAST_PEER_TOKEN="+peerToken)
		status, _, text := result(t, cmd)
		return status, text
	}
	file := filepath.Join(t.TempDir(), "token")
	try(t, os.WriteFile(file, []byte("short\n"), 0o600))
	for _, c := range []struct{ args, text string }{
		{"--engine " + address("a") + " --advertise " + owner.url, "has the address " + owner.url},
		{"--engine " + address("a") + " --advertise nowhere", "http://10.0.0.2:8080"},
		{"--engine " + address("a") + " --advertise http://0.0.0.0:1", "cannot reach"},
		{"--engine " + address("a") + " --advertise https://10.0.0.2:1", "--tls-cert"},
		{"--engine " + address("a") + " --advertise http://10.0.0.2:1 --peer-token-file " + file, "too short"},
		{"--engine " + address("a") + " --advertise http://10.0.0.2:1 --peer-ca " + file, "no certificate"},
		{"--engine mem: --advertise http://10.0.0.2:1", "one directory"},
		{"--advertise http://10.0.0.2:1", "one directory"},
	} {
		status, text := run(strings.Fields(c.args)...)
		if status != exitError || !strings.Contains(text, c.text) || strings.Contains(text, peerToken) {
			t.Errorf("%s: %d %s", c.args, status, text)
		}
	}

	stranger := serveNode(t, address("a"), "Stranger")
	req, err := http.NewRequest("GET", stranger.url+"/v1/namespaces/default/streams", nil)
	try(t, err)
	req.Header.Set("Authorization", "Bearer "+nodesToken)
	res, err := stranger.client.Do(req)
	try(t, err)
	text, err := io.ReadAll(res.Body)
	try(t, errors.Join(err, res.Body.Close()))
	if res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(text), "peer token") ||
		res.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", res.StatusCode, res.Header, text)
	}
	if !strings.Contains(owner.log.String(), "another peer token") {
		t.Error("the owner's log says nothing")
	}
	// A client that claims to be a process gets no further than that.
	req, err = http.NewRequest("GET", owner.url+"/v1/namespaces", nil)
	try(t, err)
	req.Header.Set("Holdfast-Peer", peerToken+"x")
	req.Header.Set("Holdfast-Space", "0")
	res, err = owner.client.Do(req)
	try(t, err)
	try(t, res.Body.Close())
	if res.StatusCode != http.StatusMisdirectedRequest {
		t.Error(res.Status)
	}

	status, out, errText := result(t, holdfastCommand(t, "nodes", "--url", owner.url, "--token", nodesToken))
	if status != exitOK || !strings.Contains(out, owner.url) || !strings.Contains(out, stranger.url) ||
		strings.Contains(out, "nobody") || !strings.Contains(out, "alive, says this") {
		t.Errorf("%d %s%s", status, out, errText)
	}
}

// TestNodesTLS: processes speak TLS to each other, and check whom they speak to. A stream is passed on as it comes.
func TestNodesTLS(t *testing.T) {
	t.Parallel() // it waits
	address := shared(t)
	dir := t.TempDir()
	chain, key := filepath.Join(dir, "chain.pem"), filepath.Join(dir, "key.pem")
	writeCertificate(t, chain, key, 1)
	args := []string{"--tls-cert", chain, "--tls-key", key}
	owner := serveNode(t, address("tls"), "TLS", args...)
	owner.eventually("owns", func() bool { return owner.nodes().Spaces[0].Owner == owner.url })
	if status, text := owner.rpc(nodesToken, `["stream.write","a-1",{"type":"T","data":{"n":1}}]`); status != 200 {
		t.Fatal(status, text)
	}
	other := serveNode(t, address("tls"), "TLS", append(args, "--peer-ca", chain)...)
	if status, text := other.rpc(nodesToken, `["stream.version","a-1"]`); status != 200 || text != "0" {
		t.Error(status, text)
	}
	req, err := http.NewRequest("GET", other.url+"/v1/namespaces/default/messages/follow?stream=a-1&from=0", nil)
	try(t, err)
	req.Header.Set("Authorization", "Bearer "+nodesToken)
	res, err := other.client.Do(req)
	try(t, err)
	defer res.Body.Close()
	if got := res.Header.Get(api.HeaderOwner); got != owner.url {
		t.Errorf("the owner is %q", got)
	}
	lines := bufio.NewScanner(res.Body)
	data := func() string {
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "data:"); ok {
				return text
			}
		}
		return fmt.Sprint("the stream has ended: ", lines.Err())
	}
	if text := data(); !strings.Contains(text, `"n":1`) {
		t.Error(text)
	}
	if status, text := other.rpc(nodesToken, `["stream.write","a-1",{"type":"T","data":{"n":2}}]`); status != 200 {
		t.Error(status, text)
	}
	if text := data(); !strings.Contains(text, `"n":2`) {
		t.Error(text)
	}

	// One that does not know whose certificate that is sends nothing, and so no token.
	strange := serveNode(t, address("tls"), "TLS", args...)
	if status, text := strange.rpc(nodesToken, `["stream.version","a-1"]`); status == 200 {
		t.Error(status, text)
	}
}

// testNodesEnd: the owner ends while clients write, follow and work. What was acknowledged is there, and at one place;
// a follower gets each message once, in order; a lease that was taken before is good afterwards.
// A client that goes to the owner directly (direct) asks another process only for who that is.
func testNodesEnd(t *testing.T, address, name string, direct bool, end func(*process)) {
	well := name == "Stopped"
	owner := serveNode(t, address, name)
	owner.eventually("owns", func() bool {
		n := owner.nodes()
		return len(n.Spaces) == 1 && n.Spaces[0].Owner == owner.url
	})
	other := serveNode(t, address, "")
	if n := other.nodes(); n.Spaces[0].Owner != owner.url || len(n.Nodes) != 2 {
		t.Fatalf("%+v", n)
	}

	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	var o client.Options
	if direct {
		o.Owners = []string{"127.0.0.0/8"}
	}
	ns := other.api(o).Namespace(message.Default)
	_, err := ns.Info(ctx)
	try(t, err)
	known := other.proxied()
	queued, err := ns.Tasks().Enqueue(ctx, task.Spec{Kind: "work"})
	try(t, err)
	leases, err := ns.Tasks().Claim(ctx, task.ClaimOptions{Lease: time.Minute})
	try(t, err)
	if len(leases) != 1 {
		t.Fatal(queued, leases)
	}

	// What clients were told.
	const writers = 4
	var mu sync.Mutex
	told := map[string]int64{}
	var longest atomic.Int64
	writing, halt := context.WithCancel(ctx)
	var work sync.WaitGroup
	var failed atomic.Value
	for w := range writers {
		work.Go(func() {
			for i := 0; writing.Err() == nil; i++ {
				breathe()
				id := fmt.Sprintf("%d-%d", w, i)
				began := time.Now()
				r, err := ns.Write(ctx, fmt.Sprintf("s-%d", w), message.Message{Type: "T", Data: []byte(`{"id":"` + id + `"}`)})
				if err != nil {
					failed.Store(err)
					return
				}
				if took := time.Since(began).Milliseconds(); took > longest.Load() {
					longest.Store(took)
				}
				mu.Lock()
				told[id] = r.Global
				mu.Unlock()
			}
		})
	}
	var followed []message.Message
	var last atomic.Int64
	following, unfollow := context.WithCancel(ctx)
	followers := make(chan error, 1)
	go func() {
		for m, err := range ns.Follow(following, message.Query{Category: "s"}) {
			if err != nil {
				followers <- err
				return
			}
			followed = append(followed, m)
			last.Store(m.Global)
		}
	}()
	enough := func(n int) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return len(told) >= n || failed.Load() != nil }
	}
	testkit.Until(t, "written", enough(200), owner.log)
	if n := other.proxied() - known; direct != (n < 20) { // questions for owners and the token that may read metrics
		t.Errorf("%v requests were passed on", n)
	}

	usual := longest.Load() // of writes on this machine, as busy as it is
	began := time.Now()
	end(owner)
	testkit.Until(t, "taken over", func() bool { return other.nodes().Spaces[0].Owner == other.url }, other.log)
	took := time.Since(began)
	mu.Lock()
	n := len(told)
	mu.Unlock()
	testkit.Until(t, "written on", enough(n+200), other.log)
	halt()
	work.Wait()
	if err := failed.Load(); err != nil {
		t.Fatal(err)
	}
	t.Logf("taken over within %v, the longest write took %d ms, before that %d, %d writes", took, longest.Load(), usual,
		len(told))

	// Each is there once, where it was said to be.
	seen, newest := map[string]int64{}, int64(0)
	for m, err := range ns.Read(ctx, message.Query{Category: "s"}) {
		try(t, err)
		id := strings.TrimSuffix(strings.TrimPrefix(string(m.Data), `{"id":"`), `"}`)
		if at, ok := seen[id]; ok {
			t.Errorf("%s is at %d and at %d", id, at, m.Global)
		}
		seen[id], newest = m.Global, m.Global
	}
	for id, at := range told {
		if got, ok := seen[id]; !ok || got != at {
			t.Errorf("%s was said to be at %d: %v at %d", id, at, ok, got)
		}
	}
	testkit.Until(t, "followed", func() bool { return last.Load() >= newest }, other.log)
	unfollow()
	if err := <-followers; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(followed) != len(seen) {
		t.Errorf("followed %d of %d", len(followed), len(seen))
	}
	for i, m := range followed {
		if i > 0 && m.Global <= followed[i-1].Global {
			t.Errorf("followed %d after %d", m.Global, followed[i-1].Global)
		}
	}
	try(t, ns.Tasks().Complete(ctx, leases[0]))
	if well {
		if strings.Contains(owner.log.String(), `"ERROR"`) || strings.Contains(owner.log.String(), "cut off") {
			t.Errorf("log: %s", owner.log)
		}
	}
	for _, p := range []*process{owner, other} {
		if strings.Contains(p.log.String(), peerToken) || strings.Contains(p.log.String(), nodesToken) {
			t.Error("the log has a secret")
		}
	}
	if name == "Paused" { // it finds out, and takes its place behind the other
		try(t, owner.cmd.Process.Signal(syscall.SIGCONT))
		owner.eventually("fenced", func() bool { return strings.Contains(owner.log.String(), "a space is closed") })
		owner.eventually("passes on", func() bool {
			status, text := owner.rpc(nodesToken, `["stream.version","s-0"]`)
			return status == http.StatusOK && text != "null"
		})
		other.stop(syscall.SIGTERM)
		owner.eventually("owns", func() bool { return owner.nodes().Spaces[0].Owner == owner.url })
		owner.stop(syscall.SIGTERM)
		return
	}
	other.stop(syscall.SIGTERM)
}
