package v1_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast/api"
	core "github.com/holdfastdb/holdfast/server"
)

// Positions beyond the end, or of another history, are the problem "ahead", and never an answer that waits.
func TestAhead(t *testing.T) {
	s := start(t, nil, core.Options{})
	for range 3 {
		do[api.Written](s, "POST", in("/messages"), `{"stream":"a-1","messages":[{"type":"t","data":{}}]}`)
		do[api.Appended](s, "POST", in("/logs/l/events"), `{"events":[{"type":"t"}]}`)
	}
	read := do[api.Messages](s, "GET", in("/messages"), nil)
	events := do[api.Events](s, "GET", in("/logs/l/events"), nil)
	if len(read.History) != 32 || len(events.History) != 32 || read.History == events.History {
		t.Fatalf("histories %q and %q", read.History, events.History)
	}
	other := strings.Repeat("0", 32)
	for _, c := range []struct {
		path string
		next int
		of   string
	}{
		{"/messages%s?from=%d", 4, read.History},
		{"/messages%s?category=a&from=%d", 4, read.History},
		{"/messages%s?category=none&from=%d", 4, read.History},
		{"/messages%s?stream=a-1&from=%d", 3, read.History},
		{"/logs/l/events%s?from=%d", 4, events.History},
	} {
		path := func(follow string, from int) string { return in(fmt.Sprintf(c.path, follow, from)) }
		for _, follow := range []string{"", "/follow"} {
			s.refused(api.CodeAhead, "GET", path(follow, c.next+1), nil)
			s.refused(api.CodeAhead, "GET", path(follow, 5001), nil)
			s.refused(api.CodeAhead, "GET", path(follow, c.next+1)+"&history="+c.of, nil)
			s.refused(api.CodeAhead, "GET", path(follow, c.next)+"&history="+other, nil)
			s.refused(api.CodeAhead, "GET", path(follow, c.next)+"&history=no-history", nil)
		}
		do[any](s, "GET", path("", c.next), nil)
		do[any](s, "GET", path("", c.next)+"&history="+c.of, nil)
		do[any](s, "GET", path("", 0)+"&history="+other, nil) // it has read nothing
		s.follow(path("/follow", c.next), "")
		s.follow(path("/follow", c.next)+"&history="+c.of, "").close()
		resp, _ := s.send("HEAD", path("/follow", c.next), nil)
		if got := resp.Header.Get(api.HeaderHistory); got != c.of {
			t.Errorf("%s: history %q, want %q", c.path, got, c.of)
		}
		// What comes in Last-Event-ID goes before from.
		resp, text := s.send("GET", path("/follow", 0), nil, api.HeaderLastEventID, "5001")
		if resp.StatusCode != 409 || !strings.Contains(string(text), `"ahead"`) {
			t.Errorf("%s: %s %s", c.path, resp.Status, text)
		}
	}
	s.refused(api.CodeAhead, "PUT", in("/subscriptions/w"), api.Subscription{From: 5001})
	s.refused(api.CodeNotFound, "GET", in("/subscriptions/w"), nil)
	do[any](s, "PUT", in("/subscriptions/w"), api.Subscription{From: 4})

	// A namespace that is made anew has another history.
	do[any](s, "POST", "/v1/namespaces", `{"id":"n"}`)
	put := func() {
		do[any](s, "POST", "/v1/namespaces/n/messages", `{"stream":"a","messages":[{"type":"t","data":{}}]}`)
	}
	put()
	was := do[api.Messages](s, "GET", "/v1/namespaces/n/messages", nil)
	do[any](s, "DELETE", "/v1/namespaces/n", nil)
	do[any](s, "POST", "/v1/namespaces", `{"id":"n"}`)
	put()
	s.refused(api.CodeAhead, "GET", "/v1/namespaces/n/messages/follow?from=2&history="+was.History, nil)
}
