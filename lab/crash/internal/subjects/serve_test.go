package subjects

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// serveSeed is the first seed whose histories are of tasks, or are not.
func serveSeed(tasks bool) uint64 {
	for seed := uint64(1); ; seed++ {
		if servesTasks(seed) == tasks {
			return seed
		}
	}
}

// serveStory lets clients work on a server over an engine until so many operations are acknowledged, and the server
// stops. It returns the history of that, and what the clients say is wrong.
func serveStory(t *testing.T, e holdfast.Engine, seed uint64, acks int) (*protocol.History, string) {
	t.Helper()
	spec := protocol.Spec{Seed: seed, From: 1, Level: holdfast.Memory, Writers: 4, Subject: serveName}
	h := &protocol.History{Seed: seed, Survives: holdfast.Memory, Level: holdfast.Memory, Concurrent: true}
	h.Begin(0, 1)
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
				addresses <- m.Text
			case protocol.TellAcked:
				heard++
			case protocol.TellError:
				stop()
			}
			if heard == acks {
				stop()
			}
		}
	})
	clients.Go(func() { Serve.Clients(spec, e.Capabilities(), report, addresses) })
	if err := serveWork(&worker{spec: spec, report: report, next: 1}, e, enough); err != nil {
		t.Error(err)
	}
	addresses <- ""
	close(addresses)
	clients.Wait()
	w.Close()
	hearing.Wait()
	h.Add(ledger, protocol.Never)
	return h, strings.Join(ledger.Findings(), "\n")
}

// TestServe: what clients do to a server is what is there, and whatever is changed in that is found out.
func TestServe(t *testing.T) {
	for _, tasks := range []bool{false, true} {
		t.Run(map[bool]string{false: "messages and events", true: "tasks"}[tasks], func(t *testing.T) {
			e := mem.New()
			h, saw := serveStory(t, e, serveSeed(tasks), 250)
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
