package v1_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/api"
	core "github.com/holdfastdb/holdfast/server"
)

func TestWriteAndRead(t *testing.T) {
	s := start(t, nil, core.Options{})
	resp, text := s.send(http.MethodPost, in("/messages"), `{"stream": "order-1", "expected": -1, "messages": [
			{"id": "11111111-2222-4333-8444-555555555555", "type": "Placed", "data": {"html": "<b>&",
				"n": 12345678901234567890}},
			{"type": "Paid", "data": {"half": "\ud800"}, "metadata": {"by": "alice"}}]}`)
	if resp.StatusCode != http.StatusOK || resp.Header.Get(api.HeaderLevel) != "memory" {
		t.Fatalf("%s, level %q: %s", resp.Status, resp.Header.Get(api.HeaderLevel), text)
	}
	var r api.Written
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if want := (api.Written{Stream: "order-1", Position: 0, Global: 1}); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	r = do[api.Written](s, http.MethodPost, in("/messages"),
		`{"stream": "invoice-1", "messages": [{"type": "Made", "data": {}, "metadata": null}]}`)
	if want := (api.Written{Stream: "invoice-1", Position: 0, Global: 3}); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	got := do[api.Messages](s, http.MethodGet, in("/messages?stream=order-1"), nil)
	if len(got.Messages) != 2 || got.Next != 2 ||
		string(got.Messages[0].Data) != `{"html":"<b>&","n":12345678901234567890}` ||
		got.Messages[0].ID != "11111111-2222-4333-8444-555555555555" ||
		string(got.Messages[1].Data) != `{"half":"\ud800"}` || string(got.Messages[1].Metadata) != `{"by":"alice"}` {
		t.Errorf("stream order-1: %+v", got)
	}
	got = do[api.Messages](s, http.MethodGet, in("/messages?type=Paid&type=Made&limit=1"), nil)
	if len(got.Messages) != 1 || got.Messages[0].Global != 2 || got.Next != 3 {
		t.Errorf("by types: %+v", got)
	}
	got = do[api.Messages](s, http.MethodGet, in("/messages?category=invoice&from=4"), nil)
	if got.Messages == nil || len(got.Messages) != 0 || got.Next != 4 {
		t.Errorf("behind the end: %+v", got)
	}
	last := do[api.Message](s, http.MethodGet, in("/messages/last?stream=order-1&type=Placed"), nil)
	if last.ID != "11111111-2222-4333-8444-555555555555" {
		t.Errorf("last: %+v", last)
	}
	p := s.refused(api.CodeConflict, http.MethodPost, in("/messages"),
		`{"stream": "order-1", "expected": 0, "messages": [{"type": "Paid", "data": {}}]}`)
	if p.Expected == nil || p.Actual == nil || *p.Expected != 0 || *p.Actual != 1 {
		t.Errorf("a conflict: %+v", p)
	}
	for _, c := range []struct{ code, method, path, body string }{
		{api.CodeNotFound, "GET", in("/messages/last?stream=order-2"), ""},
		{api.CodeBadRequest, "GET", in("/messages/last"), ""},
		{api.CodeBadRequest, "GET", in("/messages?stream=a&category=b"), ""},
		{api.CodeBadRequest, "GET", in("/messages?limit=-1"), ""},
		{api.CodeBadRequest, "GET", in("/messages?limit=1&limit=2"), ""},
		{api.CodeBadRequest, "GET", in("/messages?strem=a"), ""},
		{api.CodeBadRequest, "GET", in("/messages/follow?stream=a&category=b"), ""},
		{api.CodeNoNamespace, "GET", "/v1/namespaces/none/messages", ""},
		{api.CodeNoNamespace, "POST", "/v1/namespaces/none/messages",
			`{"stream": "a", "messages": []}`},
		{api.CodeBadRequest, "POST", in("/messages"),
			`{"stream": "\ud800", "messages": [{"type": "T", "data": {}}]}`},
		{api.CodeBadRequest, "POST", in("/messages"),
			`{"stream": "a", "expected": -7, "messages": [{"type": "T", "data": {}}]}`},
		{api.CodeBadRequest, "POST", in("/logs/l/events"), `{"events": [{"type": "T"}], "after": 18446744073709551615}`},
		{api.CodeBadRequest, "POST", in("/messages"), ``},
		{api.CodeBadRequest, "POST", in("/messages"), `{`},
		{api.CodeBadRequest, "POST", in("/messages"), `{"stream": "a", "messages": [{"type": "T", "data": {}}]} {}`},
		{api.CodeBadRequest, "POST", in("/messages"), `{"stream": "a", "messages": []}`},
		{api.CodeBadRequest, "POST", in("/messages"), `{"writes": []}`},
		{api.CodeBadRequest, "POST", in("/messages"),
			`{"stream": "a", "messages": [{"type": "T", "data": 1}]}`},
		{api.CodeIDTaken, "POST", in("/messages"),
			`{"stream": "other-1", "messages": [{"id": "11111111-2222-4333-8444-555555555555", "type": "T", "data": {}}]}`},
	} {
		var body any
		if c.method == "POST" {
			body = c.body
		}
		s.refused(c.code, c.method, c.path, body)
	}
}

// A body that breaks off is the client's fault.
func TestBrokenOff(t *testing.T) {
	s := start(t, nil, core.Options{})
	for _, path := range []string{"/messages", "/logs/l/import"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\nContent-Length: 9\r\n\r\n \n",
			in(path), s.token)
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %v, %v", path, resp, err)
		}
		c.Close()
	}
}

// A follower that comes again misses nothing and gets nothing twice, across a restart of the server too.
func TestFollow(t *testing.T) {
	s := start(t, nil, core.Options{})
	engine := s.engine
	at := ""
	seen := int64(0)
	take := func(f *sse, n int) {
		for range n {
			e := f.want("message")
			var m api.Message
			if err := json.Unmarshal([]byte(e.data), &m); err != nil {
				t.Fatal(err)
			}
			if seen++; m.Global != seen || e.id != strconv.FormatInt(seen+1, 10) {
				t.Fatalf("message %d, id %s; want %d", m.Global, e.id, seen)
			}
			at = e.id
		}
	}
	do[api.Written](s, http.MethodPost, in("/messages"), write("order-1", 3))
	f := s.follow(in("/messages/follow?category=order"), "")
	take(f, 2)
	f.close() // one more may be on its way
	f = s.follow(in("/messages/follow?category=order"), at)
	do[api.Written](s, http.MethodPost, in("/messages"), write("order-2", 2))
	take(f, 3)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.stop()
	}()
	if bye := f.want("bye"); bye.retry == "" {
		t.Errorf("bye without retry: %+v", bye)
	}
	<-stopped
	s = start(t, engine, core.Options{})
	do[api.Written](s, http.MethodPost, in("/messages"), write("order-1", 1))
	f = s.follow(in("/messages/follow?category=order"), at)
	do[api.Written](s, http.MethodPost, in("/messages"), write("order-1", 1))
	take(f, 2)

	f = s.follow(in("/messages/follow?stream=order-2&from=-1"), "") // only what is new
	do[api.Written](s, http.MethodPost, in("/messages"), write("order-2", 1))
	if e := f.want("message"); e.id != "3" {
		t.Errorf("the event %+v, want the message at position 2", e)
	}
	f = s.follow(in("/messages/follow?stream=order-none&from=-1"), "") // the first is new, too
	do[api.Written](s, http.MethodPost, in("/messages"), write("order-none", 1))
	if e := f.want("message"); e.id != "1" {
		t.Errorf("the event %+v, want the message at position 0", e)
	}
}

func TestKeepAlive(t *testing.T) {
	s := start(t, nil, core.Options{KeepAlive: time.Millisecond})
	f := s.follow(in("/messages/follow"), "")
	for range 5 { // the first comes at once
		if line, err := f.lines.ReadString('\n'); err != nil || line != ":\n" {
			t.Fatalf("%q, %v", line, err)
		}
		if line, err := f.lines.ReadString('\n'); err != nil || line != "\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
}

// What a follower is sent at once is one write to its connection, however long: that is most of what a delivery costs.
func TestFollowInOneWrite(t *testing.T) {
	s := start(t, nil, core.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	writes := make(chan string, 100)
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(noting{l, writes}) }()
	t.Cleanup(func() {
		s.stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\n\r\n", in("/messages/follow"), s.token)

	// The header and the first comment: from then on the server follows.
	for text := ""; !strings.Contains(text, ":\n\n"); {
		text += within(t, writes)
	}

	for _, size := range []int{10, 3 << 10, 20 << 10} {
		data := `{"text":"` + strings.Repeat("x", size) + `"}`
		do[api.Written](s, http.MethodPost, in("/messages"), api.Write{Stream: "order-1",
			Messages: []api.NewMessage{{Type: "Made", Data: json.RawMessage(data)}}})
		if got := within(t, writes); !strings.HasPrefix(got, "id: ") || !strings.Contains(got, data) ||
			!strings.HasSuffix(got, "}\n\n") {
			t.Errorf("an event with %d bytes of data begins with a write of %d bytes: %.60q", len(data), len(got), got)
		}
	}
}

// noting is a listener that notes what is written to its connections.
type noting struct {
	net.Listener
	writes chan<- string
}

func (n noting) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if err != nil {
		return nil, err
	}

	return &noted{c, n.writes}, nil
}

type noted struct {
	net.Conn
	writes chan<- string
}

func (n *noted) Write(b []byte) (int, error) {
	n.writes <- string(b)
	return n.Conn.Write(b)
}

// within returns what comes next.
func within(t *testing.T, texts <-chan string) string {
	t.Helper()
	select {
	case text := <-texts:
		return text
	case <-time.After(patience):
		t.Fatal("nothing comes")
		return ""
	}
}
