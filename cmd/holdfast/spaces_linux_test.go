package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// fleet is several processes with several spaces.
type fleet struct {
	t    *testing.T
	list []*process
}

// startFleet starts processes, and waits until each space has an owner.
func startFleet(t *testing.T, address string, processes, spaces int) *fleet {
	t.Helper()
	f := &fleet{t: t}
	var ready []func()
	for range processes {
		p, one := beginNode(t, address, "", "--spaces", strconv.Itoa(spaces))
		f.list, ready = append(f.list, p), append(ready, one)
	}
	for _, one := range ready {
		one()
	}
	f.settle(spaces)
	return f
}

// settle waits until the processes own as many spaces as they should.
func (f *fleet) settle(spaces int) {
	f.t.Helper()
	deadline := time.Now().Add(time.Minute) // one is given up each 5 s
	for {
		has, all := map[string]int{}, true
		for _, s := range f.list[0].nodes().Spaces {
			has[s.Owner]++
			all = all && s.Owner != ""
		}
		for _, p := range f.list {
			all = all && has[p.url] >= spaces/len(f.list) && has[p.url] <= (spaces+len(f.list)-1)/len(f.list)
		}
		if all {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("spaces are with %v", has)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// owners tells who owns which space.
func (f *fleet) owners() map[int]string {
	f.t.Helper()
	all := map[int]string{}
	for _, s := range f.list[len(f.list)-1].nodes().Spaces {
		all[s.Space] = s.Owner
	}
	return all
}

// ownerOf tells who answers for a namespace.
func (p *process) ownerOf(namespace, token string) string {
	p.t.Helper()
	status, _, header := p.get("/v1/namespaces/"+namespace, token)
	if status != http.StatusOK {
		p.t.Fatalf("%s: %d", namespace, status)
	}
	return header.Get(api.HeaderOwner)
}

func (p *process) get(path, token string) (status int, text string, header http.Header) {
	p.t.Helper()
	return p.ask(http.MethodGet, path, token, "")
}

func (p *process) ask(method, path, token, body string) (status int, text string, header http.Header) {
	p.t.Helper()
	req, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	try(p.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := p.client.Do(req)
	try(p.t, err)
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	try(p.t, err)
	return res.StatusCode, string(got), res.Header
}

// TestSpaces: namespaces lie in different spaces, which different processes own. Each process answers for each.
func TestSpaces(t *testing.T) {
	t.Parallel() // it waits
	address := shared(t)
	f := startFleet(t, address("spaces"), 3, 4)
	ctx := t.Context()
	tokens := map[string]string{}
	for i := range 12 {
		name := fmt.Sprintf("n%d", i)
		made, err := f.list[i%3].api(client.Options{}).CreateNamespace(ctx,
			api.NewNamespace{ID: name, Description: "of " + name})
		try(t, err)
		tokens[name] = made.Token
	}
	owners := map[string]int{}
	for name, token := range tokens {
		for i, p := range f.list {
			if i == 0 {
				owners[p.ownerOf(name, token)]++
			}
			// By the token alone, and by the path; with EventoDB's API, and ebuse's.
			if status, text := p.rpc(token, `["stream.write","a-1",{"type":"T","data":{"of":"`+name+`"}}]`); status != 200 ||
				!strings.Contains(text, fmt.Sprintf(`"position":%d,`, i)) {
				t.Fatal(name, i, status, text)
			}
			status, text, _ := p.get("/v1/namespaces/"+name+"/messages?stream=a-1", token)
			if status != 200 || strings.Count(text, `"`+name+`"`) != i+1 || strings.Count(text, `"of"`) != i+1 {
				t.Error(name, status, text)
			}
			event := `{"type":"T","data":1,"timestamp":"2026-01-01T00:00:00Z"}`
			if status, text, _ := p.ask("POST", "/events", token, event); status != 200 ||
				!strings.Contains(text, fmt.Sprintf(`"position":%d,`, i+1)) {
				t.Error(name, status, text)
			}
			if status, text := p.rpc(nodesToken, `["ns.info","`+name+`"]`); status != 200 ||
				!strings.Contains(text, fmt.Sprintf(`"messageCount":%d,`, i+1)) || !strings.Contains(text, "of "+name) {
				t.Error(name, status, text)
			}
			// By SQL, too, at whatever process.
			columns, rows, err := p.api(client.Options{Token: token}).Namespace(name).Query(ctx,
				"select count(*) as n from messages where stream = ? and data ->> 'of' = ?", "a-1", name)
			try(t, err)
			for row, err := range rows {
				if err != nil || columns[0] != "n" || row[0] != int64(i+1) {
					t.Error(name, columns, row, err)
				}
			}
			// Others' tokens open nothing, whoever is asked.
			other := "n0"
			if name == other {
				other = "n1"
			}
			if status, text, _ := p.get("/v1/namespaces/"+name, tokens[other]); status != http.StatusForbidden {
				t.Error(name, status, text)
			}
			if status, text, _ := p.get("/v1/namespaces/"+name, token[:len(token)-1]+"g"); status != http.StatusUnauthorized {
				t.Error(name, status, text)
			}
		}
	}
	if len(owners) != 3 {
		t.Errorf("they are with %v", owners)
	}
	for _, p := range f.list {
		list, err := p.api(client.Options{}).Namespaces(ctx)
		try(t, err)
		order := func(a, b api.Namespace) int { return strings.Compare(a.ID, b.ID) }
		if len(list) != 13 || !slices.IsSortedFunc(list, order) {
			t.Errorf("%v", list)
		}
		for _, n := range list {
			if n.ID != message.Default && (n.Messages != 3 || n.Description != "of "+n.ID) {
				t.Errorf("%+v", n)
			}
		}
		if status, text := p.rpc(nodesToken, `["ns.list"]`); status != 200 || strings.Count(text, `"messageCount":3`) != 12 {
			t.Error(status, text)
		}
		if status, text, _ := p.get("/tenants", nodesToken); status != 200 || !strings.Contains(text, `"count":13`) {
			t.Error(status, text)
		}
		if status, text, _ := p.get("/v1/server", nodesToken); status != 200 || !strings.Contains(text, `"namespaces":13`) {
			t.Error(status, text)
		}
		verified, err := p.api(client.Options{}).Verify(ctx)
		try(t, err)
		if len(verified.Problems) > 0 || verified.Keys < 200 {
			t.Errorf("%+v", verified)
		}
		if status, text, _ := p.get("/v1/server/backup", nodesToken); status != http.StatusNotImplemented {
			t.Error(status, text)
		}
		if status, text, _ := p.get("/v1/server?space=3", nodesToken); status != 200 ||
			!strings.Contains(text, `"postgres"`) {
			t.Error(status, text)
		}
		if status, text, _ := p.get("/v1/server?space=9", nodesToken); status != http.StatusBadRequest {
			t.Error(status, text)
		}
	}

	// Tokens: a further one works through every process at once, and is gone at once.
	for i, p := range f.list {
		made, err := p.api(client.Options{}).CreateToken(ctx, api.NewToken{Namespace: "n5", Role: "write"})
		try(t, err)
		everywhere, err := p.api(client.Options{}).CreateToken(ctx, api.NewToken{Namespace: "*", Role: "write"})
		try(t, err)
		for _, other := range f.list {
			for range 2 {
				if status, text := other.rpc(made.Secret, `["stream.version","a-1"]`); status != 200 || text != "2" {
					t.Error(status, text)
				}
				if status, text, _ := other.get("/v1/namespaces/n7/streams", everywhere.Secret); status != 200 ||
					!strings.Contains(text, "a-1") {
					t.Error(status, text)
				}
			}
			if status, text := other.rpc(made.Secret, `["ns.create","x"]`); status != http.StatusForbidden {
				t.Error(status, text)
			}
		}
		try(t, p.api(client.Options{}).RevokeToken(ctx, made.ID))
		try(t, f.list[(i+1)%3].api(client.Options{}).RevokeToken(ctx, everywhere.ID))
		for _, other := range f.list {
			if status, text := other.rpc(made.Secret, `["stream.version","a-1"]`); status != http.StatusForbidden {
				t.Error(status, text)
			}
			if status, text, _ := other.get("/v1/namespaces/n7/streams", everywhere.Secret); status != http.StatusUnauthorized {
				t.Error(status, text)
			}
		}
	}

	// A transaction is in one space.
	in := map[string][]string{}
	for name, token := range tokens {
		owner := f.list[0].ownerOf(name, token)
		in[owner] = append(in[owner], name)
	}
	transaction := func(a, b string) string {
		write := `{"write":{"stream":"t-1","messages":[{"type":"T","data":{}}]},"namespace":"%s"}`
		return fmt.Sprintf(`{"operations":[`+write+`,`+write+`]}`, a, b)
	}
	a, b := in[f.list[0].url][0], in[f.list[1].url][0]
	for _, p := range f.list {
		if status, text, _ := p.ask("POST", "/v1/transactions", nodesToken, transaction(a, a)); status != 200 {
			t.Error(status, text)
		}
		if status, text, _ := p.ask("POST", "/v1/transactions", tokens[a], transaction(a, a)); status != 200 {
			t.Error(status, text)
		}
		status, text, _ := p.ask("POST", "/v1/transactions", nodesToken, transaction(a, b))
		if status != http.StatusBadRequest ||
			!strings.Contains(text, "different spaces") {
			t.Error(status, text)
		}
	}

	// A namespace that is deleted and made again is another one, wherever it lies, and whoever is asked.
	for round := range 6 {
		p := f.list[round%3]
		removed, err := p.api(client.Options{}).DeleteNamespace(ctx, "n3")
		try(t, err)
		if round == 0 && removed < 3 || round > 0 && removed != 1 {
			t.Error(round, removed)
		}
		for _, other := range f.list {
			if status, text := other.rpc(tokens["n3"], `["stream.version","a-1"]`); status != http.StatusForbidden {
				t.Error(round, status, text)
			}
			if status, text, _ := other.get("/v1/namespaces/n3", nodesToken); status != http.StatusNotFound {
				t.Error(round, status, text)
			}
		}
		_, err = p.api(client.Options{}).CreateNamespace(ctx, api.NewNamespace{ID: fmt.Sprintf("filler%d", round)})
		try(t, err) // takes its place, so that it lies elsewhere
		made, err := f.list[(round+1)%3].api(client.Options{}).CreateNamespace(ctx, api.NewNamespace{ID: "n3"})
		try(t, err)
		for _, other := range f.list {
			if status, text := other.rpc(tokens["n3"], `["stream.version","a-1"]`); status != http.StatusForbidden {
				t.Error(round, status, text)
			}
			if status, text := other.rpc(made.Token, `["stream.version","a-1"]`); status != 200 || text != "null" {
				t.Error(round, status, text)
			}
		}
		if status, text := p.rpc(made.Token, `["stream.write","a-1",{"type":"T","data":{}}]`); status != 200 {
			t.Error(round, status, text)
		}
		tokens["n3"] = made.Token
	}
}

// TestSpacesKilled: the owner of some spaces is killed while clients write, follow and work in all. What was
// acknowledged is there, once and where it was said to be; followers see each message once, in order; and who has to do
// with the other spaces notices nothing, whether the first space is among those or not.
func TestSpacesKilled(t *testing.T) {
	t.Parallel() // it waits
	address := shared(t)
	for name, kill := range map[string]func(*fleet) int{
		"First": func(f *fleet) int {
			return slices.IndexFunc(f.list, func(p *process) bool { return p.url == f.owners()[0] })
		},
		"Other": func(f *fleet) int {
			return slices.IndexFunc(f.list, func(p *process) bool { return p.url != f.owners()[0] })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSpacesKilled(t, startFleet(t, address(strings.ToLower(name)), 3, night.Or(8, 4)), kill)
		})
	}
}

func testSpacesKilled(t *testing.T, f *fleet, kill func(*fleet) int) {
	const namespaces = 24
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	victim := f.list[kill(f)]
	var survivors []*process
	for _, p := range f.list {
		if p != victim {
			survivors = append(survivors, p)
		}
	}

	type tenant struct {
		name, owner string
		ns, writes  *client.Namespace
		told        map[string]int64
		followed    []message.Message
		last        atomic.Int64
		longest     time.Duration
		lease       task.Lease
	}
	var tenants []*tenant
	for i := range namespaces {
		n := &tenant{name: fmt.Sprintf("n%d", i), told: map[string]int64{}}
		c := survivors[i%2].api(client.Options{})
		made, err := c.CreateNamespace(ctx, api.NewNamespace{ID: n.name})
		try(t, err)
		n.ns, n.owner = c.Namespace(n.name), f.list[0].ownerOf(n.name, made.Token)
		n.writes = n.ns
		if n.owner != victim.url {
			n.writes = survivors[i%2].api(client.Options{Retry: -1}).Namespace(n.name)
		}
		_, err = n.ns.Tasks().Enqueue(ctx, task.Spec{Kind: "work"})
		try(t, err)
		leases, err := n.ns.Tasks().Claim(ctx, task.ClaimOptions{Lease: time.Minute})
		try(t, err)
		n.lease = leases[0]
		tenants = append(tenants, n)
	}

	var written atomic.Int64
	var failed atomic.Value
	writing, halt := context.WithCancel(ctx)
	following, unfollow := context.WithCancel(ctx)
	var writers, followers sync.WaitGroup
	for _, n := range tenants {
		writers.Go(func() {
			for i := 0; writing.Err() == nil; i++ {
				breathe()
				id, began := strconv.Itoa(i), time.Now()
				r, err := n.writes.Write(ctx, "s-"+strconv.Itoa(i%3),
					message.Message{Type: "T", Data: []byte(`{"id":"` + id + `"}`)})
				if err != nil {
					failed.Store(fmt.Errorf("%s of %s: %w", n.name, n.owner, err))
					return
				}
				n.longest = max(n.longest, time.Since(began))
				n.told[id] = r.Global
				written.Add(1)
			}
		})
		followers.Go(func() {
			for m, err := range n.ns.Follow(following, message.Query{Category: "s"}) {
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						failed.Store(err)
					}
					return
				}
				n.followed = append(n.followed, m)
				n.last.Store(m.Global)
			}
		})
	}
	enough := func(more int64) {
		least := written.Load() + more
		testkit.Until(t, "written", func() bool { return written.Load() >= least || failed.Load() != nil }, victim.log)
	}
	enough(500)
	began := time.Now()
	victim.kill()
	testkit.Until(t, "taken over", func() bool {
		return !slices.ContainsFunc(survivors[0].nodes().Spaces, func(s api.Space) bool {
			return s.Owner != survivors[0].url && s.Owner != survivors[1].url
		})
	}, survivors[0].log, survivors[1].log)
	took := time.Since(began)
	enough(500)
	halt()
	writers.Wait()
	if err := failed.Load(); err != nil {
		t.Fatal(err)
	}

	disturbed := time.Duration(0)
	for _, n := range tenants {
		if n.owner != victim.url {
			disturbed = max(disturbed, n.longest)
		}
		seen, newest := map[string]int64{}, int64(0)
		for m, err := range n.ns.Read(ctx, message.Query{Category: "s"}) {
			try(t, err)
			var data struct{ ID string }
			try(t, json.Unmarshal(m.Data, &data))
			if at, ok := seen[data.ID]; ok {
				t.Errorf("%s: %s is at %d and at %d", n.name, data.ID, at, m.Global)
			}
			seen[data.ID], newest = m.Global, m.Global
		}
		for id, at := range n.told {
			if got, ok := seen[id]; !ok || got != at {
				t.Errorf("%s: %s was said to be at %d: %v at %d", n.name, id, at, ok, got)
			}
		}
		testkit.Until(t, "followed", func() bool { return n.last.Load() >= newest || failed.Load() != nil }, survivors[0].log)
	}
	unfollow()
	followers.Wait()
	if err := failed.Load(); err != nil {
		t.Fatal(err)
	}
	for _, n := range tenants {
		for i, m := range n.followed {
			if i > 0 && m.Global <= n.followed[i-1].Global {
				t.Errorf("%s: followed %d after %d", n.name, m.Global, n.followed[i-1].Global)
			}
		}
		if len(n.followed) < len(n.told) {
			t.Errorf("%s: followed %d of %d", n.name, len(n.followed), len(n.told))
		}
		try(t, n.ns.Tasks().Complete(ctx, n.lease))
	}
	t.Logf("taken over within %v, %d writes, the longest in other spaces took %v", took, written.Load(), disturbed)
	for _, p := range survivors {
		p.stop(syscall.SIGTERM)
	}
}

// TestSpacesMove: namespaces are moved while clients write and follow, and processes are killed in the midst of it.
// Each namespace stays whole, in one place: what was acknowledged is there once, where it was said to be, and followers
// see each message once, in order.
func TestSpacesMove(t *testing.T) {
	t.Parallel() // it waits
	const spaces = 3
	address := shared(t)
	f := startFleet(t, address("move"), 3, spaces)
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	entry := f.list[2] // which lives
	c := entry.api(client.Options{})
	names := []string{"a", "b", "c"}
	for _, name := range names {
		_, err := c.CreateNamespace(ctx, api.NewNamespace{ID: name})
		try(t, err)
	}
	all, done := tenants(t, ctx, entry, names...)
	moved, broken := 0, 0
	for i := range 12 {
		name := names[i%3]
		all[name].more(t, "written", 20, entry.log)
		killed := make(chan struct{})
		if i == 4 || i == 8 { // in the midst of the move, wherever that is
			p := f.list[i/4-1]
			go func() {
				defer close(killed)
				time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
				p.kill()
			}()
		} else {
			close(killed)
		}
		began := time.Now()
		move := func() (status int, stdout, stderr string) {
			return result(t, holdfastCommand(t, "namespace", "move", name, "--to", strconv.Itoa((i+i/3)%spaces),
				"--url", entry.url, "--token", nodesToken))
		}
		status, out, text := move()
		<-killed

		// A process that could not renew its ownership in time, on a busy machine, has lost it: the move says so.
		for strings.Contains(text, "move it again") {
			t.Logf("move %d again: %s", i, text)
			status, out, text = move()
		}
		switch {
		case status == exitOK && strings.Contains(out, "is in space"):
			moved++
		case i == 4 || i == 8:
			broken++
		default:
			t.Errorf("%d %s%s", status, out, text)
		}
		t.Logf("move %d took %v: %s%s", i, time.Since(began).Round(time.Millisecond), out, text)
	}
	done()
	t.Logf("%d moves, %d broken off", moved, broken)
}

// cpu is what a process has used of processors.
func (p *process) cpu() time.Duration {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	try(p.t, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	ticks := 0
	for _, field := range fields[11:13] { // in user mode and in the system's, in hundredths of a second
		n, err := strconv.Atoi(field)
		try(p.t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// memory is how many bytes a process has in memory.
func (p *process) memory() (bytes int64) {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	try(p.t, err)
	var all, resident int64
	_, err = fmt.Sscan(string(text), &all, &resident)
	try(p.t, err)
	return resident * int64(os.Getpagesize())
}

// TestSpacesMany: there can be many namespaces. They spread evenly, each is found from everywhere, and the next owner
// of the first space knows them all. The log says what making and writing take.
func TestSpacesMany(t *testing.T) {
	t.Parallel() // it waits
	const spaces, writers = 4, 16
	namespaces := night.Or(100_000, 500)
	address := shared(t)
	f := startFleet(t, address("many"), 2, spaces)
	memory := func(what string) {
		for i, p := range f.list {
			t.Logf("%s: process %d has %d MiB", what, i, p.memory()>>20)
		}
	}
	memory("before")
	ctx := t.Context()
	each := func(what string, do func(i int, p *process)) {
		var work sync.WaitGroup
		var next atomic.Int64
		began, used := time.Now(), time.Duration(0)
		for _, p := range f.list {
			used -= p.cpu()
		}
		for w := range writers {
			work.Go(func() {
				for i := int(next.Add(1)) - 1; i < namespaces; i = int(next.Add(1)) - 1 {
					do(i, f.list[w%len(f.list)])
				}
			})
		}
		work.Wait()
		for _, p := range f.list {
			used += p.cpu()
		}
		t.Logf("%s: %v each, %v of processors", what, time.Since(began)/time.Duration(namespaces),
			used/time.Duration(namespaces))
	}

	// On a busy machine a space may be without an owner for a while. Clients are told, and come again.
	until := func(i int, ask func() (ok bool, status int, text string)) {
		if !testkit.Holds(func() bool {
			ok, status, text := ask()
			again := status == http.StatusBadGateway || status == http.StatusServiceUnavailable
			if !ok && !again {
				t.Error(i, status, text)
			}
			return !again
		}) {
			t.Error(i, "never")
		}
	}
	each("made", func(i int, p *process) {
		asked := 0
		until(i, func() (bool, int, string) {
			asked++
			status, text := p.rpc(nodesToken, fmt.Sprintf(`["ns.create","n%d"]`, i))
			return status == http.StatusOK || status == http.StatusConflict && asked > 1, status, text
		})
	})
	memory("made")
	look := func(i int, p *process) {
		until(i, func() (bool, int, string) {
			status, text, _ := p.get(fmt.Sprintf("/v1/namespaces/n%d/streams", i), nodesToken)
			return status == http.StatusOK && text == "[]\n", status, text
		})
	}
	each("asked for", look)
	each("asked for again", look)
	memory("asked for")
	listing := time.Now()
	list, err := f.list[0].api(client.Options{}).Namespaces(ctx)
	try(t, err)
	t.Logf("listed all within %v", time.Since(listing))
	in := map[int]int{}
	for _, n := range list {
		in[n.Space]++
	}
	if len(list) != namespaces+1 || in[0] < namespaces/spaces-writers || in[0] > namespaces/spaces+writers {
		t.Errorf("%d namespaces lie in %v", len(list), in)
	}
	first := slices.IndexFunc(f.list, func(p *process) bool { return p.url == f.owners()[0] })
	began := time.Now()
	f.list[first].kill()
	other := f.list[1-first]
	f.list = []*process{other}
	testkit.Until(t, "taken over", func() bool { return other.nodes().Spaces[0].Owner == other.url }, other.log)
	t.Logf("taken over within %v", time.Since(began))
	listing = time.Now()
	list, err = other.api(client.Options{}).Namespaces(ctx)
	try(t, err)
	t.Logf("listed all by one process, which has read none of them, within %v", time.Since(listing))
	memory("taken over")
	if len(list) != namespaces+1 {
		t.Errorf("%d namespaces", len(list))
	}
}
