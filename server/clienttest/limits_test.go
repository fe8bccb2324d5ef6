package clienttest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// post sends a body as another client would, and returns the status and the answer.
func post(t *testing.T, c *client.Client, token, path string, body []byte) (int, []byte) {
	t.Helper()
	r, err := http.NewRequest("POST", c.Address()+path, bytes.NewReader(body))
	check(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	check(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	check(t, err)
	return answer.StatusCode, text
}

// TestAcceptedIsReadable: what any API accepts, at each limit, the client reads in every way that there is, with what
// is beside it, and it can be moved to another namespace.
func TestAcceptedIsReadable(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the race detector makes it slow, and there is one request at a time")
	}
	t.Parallel()
	c, _ := serve(t)
	nest := func(n int) string { return strings.Repeat(`{"a":`, n-1) + `{}` + strings.Repeat(`}`, n-1) }
	type sample struct {
		name           string
		typ, data, met string
		accepted       bool
	}
	var samples []sample
	const most = message.MaxDepth
	for _, n := range night.Or([]int{most - 1, most, most + 1, 9_900, 9_991, 9_995, 9_998, 10_000},
		[]int{most, most + 1, 10_000}) {
		ok := n <= most
		samples = append(samples, sample{fmt.Sprint("data-", n), "t", nest(n), `{}`, ok},
			sample{fmt.Sprint("metadata-", n), "t", `{}`, nest(n), ok})
	}
	for _, n := range []int{message.MaxTypeSize - 1, message.MaxTypeSize, message.MaxTypeSize + 1} {
		for i, letter := range []string{"<", "\x01", "x"} {
			samples = append(samples, sample{fmt.Sprintf("type-%d-%d", n, i), strings.Repeat(letter, n), `{}`, `{}`,
				n <= message.MaxTypeSize})
		}
	}
	samples = append(samples, sample{"size-1", "t", `{"a":"` + strings.Repeat("<", 20<<20) + `"}`, `{}`, true})
	for _, how := range []string{"rpc", "v1", "client", "import"} {
		for _, s := range samples {
			if len(s.data) > 1<<20 && how != "v1" && !night.Is() {
				continue // the size in one way is enough by day
			}
			ns := "n-" + how + "-" + s.name
			made, err := c.CreateNamespace(ctx, api.NewNamespace{ID: ns})
			check(t, err)
			nc, err := client.New(c.Address(), client.Options{Token: made.Token, Logger: quiet, Retry: -1})
			check(t, err)
			n := nc.Namespace(ns)
			typ, err := json.Marshal(s.typ)
			check(t, err)
			status := 200
			switch how {
			case "rpc":
				status, _ = post(t, c, made.Token, "/rpc", fmt.Appendf(nil,
					`["stream.write","s-1",{"type":%s,"data":%s,"metadata":%s}]`, typ, s.data, s.met))
			case "v1":
				status, _ = post(t, c, made.Token, "/v1/namespaces/"+ns+"/messages", fmt.Appendf(nil,
					`{"stream":"s-1","messages":[{"type":%s,"data":%s,"metadata":%s}]}`, typ, s.data, s.met))
			case "client":
				_, err := n.Write(ctx, "s-1", message.Message{Type: s.typ, Data: []byte(s.data), Metadata: []byte(s.met)})
				if err != nil {
					if status = 400; !errors.Is(err, message.ErrBadMessage) && !strings.Contains(err.Error(), "max depth") {
						t.Errorf("%s: %.200v", ns, err)
					}
				}
			case "import":
				if !s.accepted { // old lines may be deeper
					continue
				}
				line := fmt.Sprintf(`{"id":"c1d2e3f4-0001-4aaa-8bbb-00000000abcd","stream":"s-1","type":%s,"pos":0,"gpos":1,`+
					`"time":"2026-01-01T00:00:00Z","data":%s,"meta":%s}`, typ, s.data, s.met)
				_, err := n.Import(ctx, strings.NewReader(line))
				check(t, err)
			}
			if (status == 200) != s.accepted || !s.accepted && status != 400 {
				t.Errorf("%s: status %d, want it accepted: %v", ns, status, s.accepted)
			}
			_, err = n.Write(ctx, "s-1", message.Message{Type: "after", Data: []byte(`{}`)})
			check(t, err)
			want := 1
			if s.accepted {
				want = 2
			}
			compare := func(what string, i int, m *message.Message) {
				t.Helper()
				if i == want-1 && m.Type == "after" {
					return
				}
				if i != 0 || m.Type != s.typ || string(m.Data) != s.data || string(m.Metadata) != s.met {
					t.Errorf("%s, %s: message %d has another content", ns, what, i)
				}
			}
			got := 0
			for m, err := range n.Read(ctx, message.Query{}) {
				check(t, err)
				compare("read", got, &m)
				got++
			}
			if got != want {
				t.Errorf("%s: %d read, want %d", ns, got, want)
			}
			stop, cancel := context.WithTimeout(ctx, time.Minute)
			got = 0
			for m, err := range n.Follow(stop, message.Query{}) {
				check(t, err)
				compare("followed", got, &m)
				if got++; got == want {
					break
				}
			}
			cancel()
			sub, err := n.Subscribe(ctx, "w", message.SubscriptionOptions{MaxAttempts: 1})
			check(t, err)
			var deliveries []message.Delivery
			for len(deliveries) < want { // a claim has as many as fit
				more, err := sub.Claim(ctx, 10)
				check(t, err)
				if len(more) == 0 {
					t.Fatalf("%s: %d delivered, want %d", ns, len(deliveries), want)
				}
				deliveries = append(deliveries, more...)
			}
			for i := range deliveries {
				compare("delivered", i, &deliveries[i].Message)
			}
			if len(deliveries) > 0 {
				check(t, sub.Park(ctx, "so", deliveries...))
				parked, err := sub.Parked(ctx, 0, 10)
				check(t, err)
				for i := range parked {
					compare("parked", i, &parked[i].Message)
				}
			}
			var lines bytes.Buffer
			_, err = n.Export(ctx, &lines, message.ExportOptions{})
			check(t, err)
			to, err := c.CreateNamespace(ctx, api.NewNamespace{ID: "to-" + ns})
			check(t, err)
			tc, err := client.New(c.Address(), client.Options{Token: to.Token, Logger: quiet, Retry: -1})
			check(t, err)
			r, err := tc.Namespace("to-"+ns).Import(ctx, &lines)
			check(t, err)
			if r.Imported != int64(want) {
				t.Errorf("%s: %+v imported, want %d", ns, r, want)
			}
			tc.CloseIdleConnections()
			nc.CloseIdleConnections()
		}
	}

	// Events and tasks have bytes, which are in base64: they do not nest. Texts have limits.
	log := c.Namespace(message.Default).Log("l")
	deep := []byte(nest(10_001))
	_, err := log.Append(ctx, event.Event{Type: strings.Repeat("\x01", event.MaxTypeSize), Data: deep, Metadata: deep,
		Origin: strings.Repeat("<", event.MaxTypeSize), ID: strings.Repeat("\x02", 900)})
	check(t, err)
	_, err = log.Append(ctx, event.Event{Type: strings.Repeat("x", event.MaxTypeSize+1)})
	if !errors.Is(err, event.ErrBadEvent) {
		t.Error(err)
	}
	events, err := log.Read(ctx, 0, 0)
	check(t, err)
	if len(events) != 1 || !bytes.Equal(events[0].Data, deep) || !bytes.Equal(events[0].Metadata, deep) {
		t.Error(len(events))
	}
	tasks := c.Namespace(message.Default).Tasks()
	_, err = tasks.Enqueue(ctx, task.Spec{Kind: "k", ID: "deep", Payload: deep})
	check(t, err)
	one, err := tasks.Get(ctx, "deep")
	check(t, err)
	if !bytes.Equal(one.Payload, deep) {
		t.Error("another payload")
	}
}

// TestIDTaken: over the network too, an id with another content is refused, and in other letters it is the same.
func TestIDTaken(t *testing.T) {
	c, _ := serve(t)
	n := c.Namespace(message.Default)
	m := message.Message{ID: "C1D2E3F4-0001-4AAA-8BBB-00000000ABCD", Type: "Paid", Data: []byte(`{"n":1}`)}
	first, err := n.Write(ctx, "acc-1", m)
	check(t, err)
	m.ID, m.Data = strings.ToLower(m.ID), []byte(`{ "n": 1 }`)
	again, err := n.Write(ctx, "acc-1", m)
	check(t, err)
	if !again.Repeated || again.Global != first.Global {
		t.Error(again)
	}
	m.Data = []byte(`{"n":2}`)
	var refused *client.Error
	if _, err := n.Write(ctx, "acc-1", m); !errors.Is(err, message.ErrIDTaken) || !errors.As(err, &refused) ||
		refused.Status != http.StatusConflict || refused.Code != api.CodeIDTaken {
		t.Error(err)
	}
	log := n.Log("l")
	_, err = log.Append(ctx, event.Event{ID: "x", Type: "Paid", Data: []byte("1")})
	check(t, err)
	r, err := log.Append(ctx, event.Event{ID: "x", Type: "Paid", Data: []byte("1")})
	check(t, err)
	if !r.Repeated {
		t.Error(r)
	}
	_, err = log.Append(ctx, event.Event{ID: "x", Type: "Paid", Data: []byte("2")})
	if !errors.Is(err, event.ErrIDTaken) ||
		!errors.As(err, &refused) || refused.Status != http.StatusConflict {
		t.Error(err)
	}
}
