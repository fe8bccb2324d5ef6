package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/internal/inprocess"
)

// processes are several that are one server: each answers as its function says, by its host and port.
type processes struct {
	mu    sync.Mutex
	at    map[string]http.HandlerFunc
	asked []string
}

func (p *processes) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	h := p.at[r.URL.Host]
	p.asked = append(p.asked, r.URL.Host)
	p.mu.Unlock()
	if h == nil {
		return nil, fmt.Errorf("nobody is there: %w", r.Context().Err())
	}

	return inprocess.Transport(h).RoundTrip(r)
}

// took returns who was asked since the last time.
func (p *processes) took() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.asked = nil }()

	return strings.Join(p.asked, " ")
}

func (p *processes) client(t *testing.T, address string, allowed ...string) *Client {
	t.Helper()
	c, err := New(address, Options{Token: "secret", HTTP: &http.Client{Transport: p}, Logger: quiet, Owners: allowed})
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// says answers that a process owns the data.
func says(owner string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.HeaderOwner, owner)
		reply(w, 200, api.Token{ID: r.Host})
	}
}

// TestOwners: a request, and with it the token, goes to whom an answer names, if the program has said so of the host,
// and the scheme is the same.
func TestOwners(t *testing.T) {
	for _, c := range []struct {
		given, owner, allowed string
		direct                bool
	}{
		{"http://a:1", "http://b:1", "", false},
		{"http://a:1", "http://b:1", "b", true},
		{"http://a:1", "http://b:1", "*", true},
		{"http://a:1", "http://B:1", "x b", true},
		{"http://a:1", "http://c:1", "b", false},
		{"http://a:1", "http://b.evil:1", "b *.b", false},
		{"http://a:1", "http://x.b:1", "*.b", true},
		{"http://a:1", "http://xb:1", "*.b", false},
		{"http://a:1", "http://10.1.2.3:1", "10.0.0.0/8", true},
		{"http://a:1", "http://11.1.2.3:1", "10.0.0.0/8", false},
		{"http://a:1", "http://[::ffff:10.1.2.3]:1", "10.0.0.0/8", true},
		{"http://a:1", "http://[fd00::1]:1", "fd00::/8", true},
		{"http://a:1", "http://[fd00::1]:1", "fd00::1", true},
		{"http://a:1", "http://10.b:1", "10.0.0.0/8", false},
		{"http://a:1", "https://b:1", "*", false},
		{"https://a:1", "http://b:1", "*", false},
		{"https://a:1", "https://b:1", "b", true},
		{"http://a:1", "http://user@b:1", "*", false},
		{"http://a:1", "http://b:1/path", "*", false},
		{"http://a:1", "http://b:1?query", "*", false},
		{"http://a:1", "ftp://b:1", "*", false},
		{"http://a:1", "b", "*", false},
		{"http://a:1", "%%", "*", false},
	} {
		p := &processes{at: map[string]http.HandlerFunc{"a:1": says(c.owner)}}
		if u, err := url.Parse(c.owner); err == nil {
			p.at[u.Host] = says(c.owner)
		}
		client := p.client(t, c.given, strings.Fields(c.allowed)...)
		for range 3 {
			if _, err := client.Token(ctx); err != nil {
				t.Errorf("%+v: %v", c, err)
			}
		}
		if asked := p.took(); (strings.Count(asked, "a:1") == 1) != c.direct {
			t.Errorf("%+v: asked %s", c, asked)
		}
	}
	for _, host := range []string{"", "http://a", "a:1", "*a", "a*", "*.*", "10.0.0.0/33", "a/8", "a b", "[::1]"} {
		if _, err := New("http://a", Options{Owners: []string{host}}); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%q: %v", host, err)
		}
	}
}

// TestOwnerPerNamespace: each namespace has an owner of its own; what is about a process goes to the given address.
func TestOwnerPerNamespace(t *testing.T) {
	owner := func(w http.ResponseWriter, r *http.Request) {
		at := "http://b"
		if strings.HasPrefix(r.URL.Path, "/v1/namespaces/2") || r.URL.Path == "/v1/transactions" {
			at = "http://c"
		}
		says(at)(w, r)
	}
	p := &processes{at: map[string]http.HandlerFunc{"a": owner, "b": owner, "c": owner}}
	c := p.client(t, "http://a", "b", "c")
	for i, ask := range []func() error{
		func() error { _, err := c.Token(ctx); return err },
		func() error { _, err := c.Namespace("1").Last(ctx); return err },
		func() error { _, err := c.Namespace("2").Last(ctx); return err },
		func() error { return c.Ready(ctx) },
		func() error { _, err := c.Nodes(ctx); return err },
	} {
		want := []string{"a b", "a b", "a c", "a a", "a a"}[i]
		if err := errors.Join(ask(), ask()); err != nil {
			t.Error(i, err)
		}
		if asked := p.took(); asked != want {
			t.Errorf("%d: %s were asked, not %s", i, asked, want)
		}
	}
}

// TestOwnerGone: where the owner does not answer, or is none any more, the given address is asked, each write is done
// at most once, and an owner that cannot be reached is left alone for a while.
func TestOwnerGone(t *testing.T) {
	problem := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			reply(w, status, api.Problem{Status: status, Code: code})
		}
	}
	for name, c := range map[string]struct {
		at    http.HandlerFunc // what is at the owner's address when it is gone
		asked string
	}{
		"Nobody":   {nil, "b a a"},
		"Another":  {problem(401, api.CodeUnauthorized), "b a c"},
		"Stopping": {problem(503, api.CodeStopping), "b a c"},
		"Lost":     {problem(502, api.CodePoisoned), "b a c"},
		"Hangs":    {func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "b a c c"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := says("http://b")
				p := &processes{at: map[string]http.HandlerFunc{"a": b, "b": b, "c": says("http://c")}}
				client := p.client(t, "http://a", "b", "c")
				if _, err := client.Token(ctx); err != nil {
					t.Fatal(err)
				}
				p.took()
				p.at["b"], p.at["a"] = c.at, says("http://c")
				if name == "Nobody" {
					p.at["a"] = says("http://b")
				}
				began := time.Now()
				for range 2 {
					if _, err := client.Token(ctx); err != nil {
						t.Error(err)
					}
				}
				if asked := p.took(); asked != c.asked {
					t.Errorf("%s were asked, not %s", asked, c.asked)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("it took %v", took)
				}
				if name == "Nobody" { // later it may be back
					p.at["b"] = says("http://b")
					time.Sleep(avoidFirst)
					for range 2 {
						_, _ = client.Token(ctx)
					}
					if asked := p.took(); asked != "a b" {
						t.Errorf("%s were asked when the owner was back", asked)
					}
				}
			})
		})
	}
}
