package subjects

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/message"
)

// serveSeed is the first seed whose histories are of tasks, or are not.
func serveSeed(tasks bool) uint64 {
	for seed := uint64(1); ; seed++ {
		if servesTasks(seed) == tasks {
			return seed
		}
	}
}

// serveStory lets clients work on a server over an engine until so many operations are acknowledged, or something is
// wrong, and the server stops. It returns the history of that, and what the clients say is wrong. between, unless it is
// nil, is a proxy of the server at an address.
func serveStory(t *testing.T, e holdfast.Engine, seed uint64, acks int, between func(address string) string) (
	*protocol.History, string) {
	t.Helper()
	h := &protocol.History{Seed: seed, Survives: holdfast.Memory, Level: holdfast.Memory, Concurrent: true}
	h.Begin(0, 1)
	return h, serveOn(t, e, h, acks, between)
}

// serveOn goes on with a history.
func serveOn(t *testing.T, e holdfast.Engine, h *protocol.History, acks int, between func(string) string) string {
	t.Helper()
	last := h.Segments[len(h.Segments)-1]
	spec := protocol.Spec{Seed: h.Seed, Gen: last.Gen, From: last.From, Segments: slices.Clone(h.Segments),
		Followed: h.Followed, Level: holdfast.Memory, Writers: 4, Subject: serveName}
	ledger := &protocol.Ledger{}
	ledger.Start()
	r, w := io.Pipe()
	report := protocol.NewReporter(w)
	addresses, enough := make(chan string, 8), make(chan struct{})
	var hearing, clients sync.WaitGroup
	hearing.Go(func() {
		heard := 0
		stop := sync.OnceFunc(func() { close(enough) })
		defer stop()
		for in := bufio.NewReader(r); ; {
			m, err := protocol.Receive(in)
			if err != nil {
				return
			}
			ledger.Hear(m, holdfast.Memory, func(uint64) protocol.Position { return 0 })
			switch m.Kind {
			case protocol.TellServing:
				if between != nil {
					m.Text = between(m.Text)
				}
				addresses <- m.Text
			case protocol.TellAcked:
				heard++
			case protocol.TellError, protocol.TellWrong:
				stop()
			}
			if heard == acks {
				stop()
			}
		}
	})
	clients.Go(func() { Serve.Clients(spec, e.Capabilities(), report, addresses) })
	if err := serveWork(&worker{spec: spec, report: report, next: spec.From}, e, enough); err != nil {
		t.Error(err)
	}
	addresses <- ""
	close(addresses)
	clients.Wait()
	w.Close()
	hearing.Wait()
	h.Add(ledger, protocol.Never)
	return strings.Join(ledger.Findings(), "\n")
}

// spoiling is a proxy that sends the events of a path otherwise: times tells how often the one of a number is sent. To
// forget is to follow from the beginning whatever a client has seen.
func spoiling(t *testing.T, path string, times func(n int) int, forget bool) func(address string) string {
	return func(address string) string {
		target, err := url.Parse(address)
		if err != nil {
			t.Error(err)
		}
		proxy := &httputil.ReverseProxy{FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(target)
				if forget {
					r.Out.Header.Del(api.HeaderLastEventID)
				}
			},
			ModifyResponse: func(r *http.Response) error {
				if r.StatusCode != http.StatusOK || !strings.HasSuffix(r.Request.URL.Path, path) {
					return nil
				}
				in, out := io.Pipe()
				body, n, block := r.Body, 0, ""
				r.Body = in
				go func() {
					defer body.Close()
					for lines := bufio.NewReader(body); ; {
						line, err := lines.ReadString('\n')
						if err != nil {
							out.CloseWithError(err)
							return
						}
						if block += line; line != "\n" {
							continue
						}
						if strings.Contains(block, "data:") {
							n++
							block = strings.Repeat(block, times(n))
						}
						_, _ = io.WriteString(out, block)
						block = ""
					}
				}()
				return nil
			}}
		s := httptest.NewServer(proxy)
		t.Cleanup(s.Close)
		return s.URL
	}
}

// TestServeFollowers: followers of a server go on behind what they were shown before a crash; what is not sent, sent
// twice, held back, sent again after a crash, or sent though a crash has undone it is found out.
func TestServeFollowers(t *testing.T) {
	defer func(was func(string) time.Duration) { shownWithin = was }(shownWithin)
	patient := shownWithin
	seed := serveSeed(false)
	third := func(times int) func(int) int {
		return func(n int) int {
			if n == 3 {
				return times
			}
			return 1
		}
	}
	for _, f := range servedFollowers {
		for name, c := range map[string]struct {
			times func(int) int
			says  string
		}{
			"one is missed":      {third(0), "was shown position 4, not 3"},
			"one comes twice":    {third(2), "was shown position 3, not 4"},
			"they are held back": {func(n int) int { return max(4-n, 0) / max(4-n, 1) }, "was shown those up to"},
		} {
			shownWithin = patient
			if name == "they are held back" { // of this path alone: the others may be late on a busy machine
				shownWithin = func(path string) time.Duration {
					if path == f.path {
						return 100 * time.Millisecond
					}
					return patient(path)
				}
			}
			_, saw := serveStory(t, mem.New(), seed, 4000, spoiling(t, f.path, c.times, false))
			if !strings.Contains(saw, "a follower of "+f.path+" "+c.says) {
				t.Errorf("%s, %s: %q", f.path, name, saw)
			}
		}
	}
	shownWithin = patient
	for name, says := range map[string]string{"goes on": "", "in the middle": "", "forgets": "was shown position 1, not ",
		"undone": "which a crash had undone"} {
		e := mem.New()
		h, saw := serveStory(t, e, seed, 250, nil)
		before := h.Followed
		if saw != "" || before[0] == 0 || before[1] == 0 {
			t.Fatalf("%q, followed up to %d", saw, before)
		}
		var between func(string) string
		switch name {
		case "in the middle": // of an operation with several messages, of which the first was shown
			p := servedScript(seed)
			for n, at := range h.Places {
				if o := p.message(0, n); o.space == servedFollowers[0].space && len(p.messages(&o)) > 1 {
					h.Followed[0] = at
				}
			}
		case "forgets":
			between = spoiling(t, "none", nil, true)
		case "undone": // the server has all the same what it should not
			h.Issued, h.Followed = 4, protocol.Followed{}
		}
		h.Begin(1, h.Issued+1)
		places := maps.Clone(h.Places)
		saw = serveOn(t, e, h, 250, between)
		if !strings.Contains(saw, says) || says == "" && (saw != "" || h.Followed[0] <= before[0] ||
			h.Followed[1] <= before[1]) {
			t.Errorf("%s: %q, followed up to %d and %d", name, saw, before, h.Followed)
		}
		for n, at := range places {
			if now := h.Places[n]; now != at {
				t.Errorf("%s: operation %d is said to begin at %d, not at %d", name, n, now, at)
			}
		}
	}
}

// TestServe: what clients do to a server is what is there, and whatever is changed in that is found out.
func TestServe(t *testing.T) {
	for _, tasks := range []bool{false, true} {
		t.Run(map[bool]string{false: "messages and events", true: "tasks"}[tasks], func(t *testing.T) {
			e := mem.New()
			h, saw := serveStory(t, e, serveSeed(tasks), 250, nil)
			c := &check{spec: protocol.Spec{Seed: h.Seed, Level: holdfast.Memory, Subject: serveName}}
			read := func() (found []commits.Found) {
				if err := serveRead(c, e, func(f commits.Found) { found = append(found, f) }); err != nil {
					t.Fatal(err)
				}
				return found
			}
			found := read()
			j := serveJudge(h, found)
			if saw != "" || len(c.said) > 0 || j.Broken() || len(j.Findings) > 0 || j.Kept < 250 || j.Kept != j.Acked {
				t.Fatalf("%q, %q, %+v", saw, c.said, j)
			}
			if d := commits.Difference(read(), found); d != "" {
				t.Errorf("read again: %s", d)
			}
			if log := messageSpaces[keptSpace] + " "; !tasks &&
				!slices.ContainsFunc(found, func(f commits.Found) bool { return strings.HasPrefix(f.Key, log) }) {
				t.Error("there are no events")
			}
			acked := func(f commits.Found) bool { return slices.Contains(h.Must, f.N) }
			one := slices.IndexFunc(found, acked)
			for name, spoil := range map[string]func(list []commits.Found) []commits.Found{
				"an operation that is lost": func(list []commits.Found) []commits.Found {
					n := list[one].N
					return slices.DeleteFunc(list, func(f commits.Found) bool { return f.N == n })
				},
				"an entry twice": func(list []commits.Found) []commits.Found { return append(list, list[one]) },
				"another value": func(list []commits.Found) []commits.Found {
					list[one].Sum[0] ^= 1
					return list
				},
				"an operation that nobody made": func(list []commits.Found) []commits.Found {
					list[one].N = h.Issued + 1
					return list
				},
			} {
				if j := serveJudge(h, spoil(slices.Clone(found))); !j.Broken() {
					t.Errorf("%s is not found out", name)
				}
			}
		})
	}
}

// TestServeNamesLevels: an answer that names a weaker level than was asked for, or none, is a breach; of several
// answers the weakest counts.
func TestServeNamesLevels(t *testing.T) {
	var answers []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked := r.Header.Get(api.HeaderLevel); asked != "process" {
			t.Errorf("it asks for %q", asked)
		}
		w.Header().Set(api.HeaderLevel, answers[0])
		answers = answers[1:]
	}))
	defer s.Close()
	for _, test := range []struct {
		answers []string
		want    holdfast.Level
		wrong   int
	}{
		{[]string{"process"}, holdfast.Process, 0}, {[]string{"power", "process"}, holdfast.Process, 0},
		{[]string{"power", "power"}, holdfast.Power, 0}, {[]string{"power", "memory"}, holdfast.Memory, 1},
		{[]string{""}, 0, 1},
	} {
		said := 0
		answers = test.answers
		named := &namedLevel{asked: holdfast.Process, wrong: func(format string, args ...any) {
			t.Logf(format, args...)
			said++
		}}
		c := http.Client{Transport: levelTransport{http.DefaultTransport}}
		for range len(test.answers) {
			r, err := http.NewRequestWithContext(context.WithValue(t.Context(), namedKey{}, named), "POST", s.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
		}
		if got := named.weakest(); got != test.want || said != test.wrong {
			t.Errorf("%q: %v, and %d times wrong", test.answers, got, said)
		}
	}
}

// A write that has not even begun is an error, whatever it would have written.
func TestServedWriteOfAnEndedContext(t *testing.T) {
	c, err := client.New("http://localhost:1", client.Options{Retry: -1})
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(context.Background())
	end()
	n := servedSpace{c.Namespace(message.Default), c}
	if _, err := n.writeAll(ended, []streamWrite{{stream: "a-1"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
