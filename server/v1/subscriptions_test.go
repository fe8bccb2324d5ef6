package v1_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast/api"
	core "github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/server/v1"
)

const mails = "/subscriptions/mails"

func claimed(s *server, most int) []api.Delivery {
	s.t.Helper()
	return do[api.Deliveries](
		s,
		http.MethodPost,
		in(mails+"/claim"),
		api.ClaimMessages{Max: most, WaitMS: 60_000},
	).Deliveries
}

func refs(list ...api.Delivery) (out api.Settle) {
	for _, d := range list {
		out.Deliveries = append(out.Deliveries, api.DeliveryRef{Global: d.Global, Token: d.Token})
	}
	return out
}

func TestSubscription(t *testing.T) {
	s := start(t, nil, core.Options{})
	none := s.refused(api.CodeNotFound, "POST", in(mails+"/claim"), api.ClaimMessages{})
	if none.Status != http.StatusNotFound {
		t.Error(none)
	}
	asked := api.Subscription{Category: "order", Types: []string{"Placed"}, LeaseMS: 600_000, MaxAttempts: 2}
	made := do[api.Subscription](s, "PUT", in(mails), asked)
	if made.Name != "mails" || made.Category != "order" || made.LeaseMS != 600_000 || made.Done != 0 {
		t.Errorf("made %+v", made)
	}
	do[api.Written](s, "POST", in("/messages"), write("invoice-1", 1))
	do[api.Written](s, "POST", in("/messages"), write("order-1", 5))
	d := claimed(s, 3)
	if len(d) != 3 || d[0].Global != 2 || d[0].Attempt != 1 || d[0].Token == 0 || d[0].Stream != "order-1" {
		t.Fatalf("claimed %+v", d)
	}
	do[api.Subscription](s, "PUT", in(mails), asked) // the same again takes nothing from anybody
	settle := func(what string, in_ api.Settle) { t.Helper(); do[any](s, "POST", in(mails+"/"+what), in_) }
	settle("extend", refs(d[0]))
	settle("ack", refs(d[0]))
	s.refused(api.CodeLeaseLost, "POST", in(mails+"/ack"), refs(d[0]))
	s.refused(
		api.CodeLeaseLost,
		"POST",
		in(mails+"/extend"),
		refs(api.Delivery{Message: d[1].Message, Token: d[1].Token + 1}),
	)
	park := refs(d[1])
	park.Reason = "bad address"
	settle("park", park)
	settle("fail", refs(d[2]))
	// The failed one comes again after a while; then that was its last attempt.
	var again api.Delivery
	for again.Global != d[2].Global {
		for _, got := range claimed(s, 1) {
			if got.Global == d[2].Global {
				again = got
			} else {
				settle("ack", refs(got))
			}
		}
	}
	if again.Attempt != 2 || again.Token == d[2].Token {
		t.Errorf("again: %+v", again)
	}
	fail := refs(again)
	fail.Reason = "no server"
	settle("fail", fail)
	parked := do[[]api.ParkedMessage](s, "GET", in(mails+"/parked"), nil)
	if len(parked) != 2 || parked[0].Global != d[1].Global || parked[0].Reason != "bad address" ||
		parked[1].Attempts != 2 {
		t.Errorf("parked %+v", parked)
	}
	if p := do[[]api.ParkedMessage](s, "GET", in(mails+"/parked?after=3&limit=1"), nil); len(p) != 1 || p[0].Global != 4 {
		t.Errorf("parked behind 3: %+v", p)
	}
	n := do[api.Counted](s, "POST", in(mails+"/replay"), api.Globals{Globals: []int64{d[1].Global, 77}})
	if n.Count != 1 {
		t.Errorf("replayed %d", n.Count)
	}
	settle("ack", refs(claimed(s, 5)...))
	if n := do[api.Counted](s, "POST", in(mails+"/discard"), api.Globals{Globals: []int64{again.Global}}); n.Count != 1 {
		t.Errorf("discarded %d", n.Count)
	}
	left := do[api.Deliveries](s, "POST", in(mails+"/claim"), api.ClaimMessages{})
	if left.Deliveries == nil || len(left.Deliveries) > 0 {
		t.Errorf("left are %+v", left)
	}
	want := api.Subscription{Name: "mails", Category: "order", Types: []string{"Placed"}, LeaseMS: 600_000, MaxAttempts: 2,
		Done: 6}
	if got := do[api.Subscription](s, "GET", in(mails), nil); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if list := do[[]api.Subscription](s, "GET", in("/subscriptions"), nil); len(list) != 1 ||
		!reflect.DeepEqual(list[0], want) {
		t.Errorf("%+v", list)
	}
	do[any](s, "DELETE", in(mails), nil)
	s.refused(api.CodeNotFound, "DELETE", in(mails), nil)
	s.refused(api.CodeNotFound, "GET", in(mails), nil)
	s.refused(api.CodeNotFound, "POST", in(mails+"/claim"), api.ClaimMessages{})
	s.refused(api.CodeBadRequest, "PUT", in(mails), api.Subscription{Window: -1})
	if list := do[[]api.Subscription](s, "GET", in("/subscriptions"), nil); list == nil || len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

// Other options while somebody claims: the claim goes on with them. Those that were claimed come again.
func TestSubscriptionOptionsChange(t *testing.T) {
	s := start(t, nil, core.Options{})
	do[api.Subscription](s, "PUT", in(mails), api.Subscription{Category: "none"})
	got := make(chan []api.Delivery)
	go func() { got <- claimed(s, 1) }()
	do[api.Written](s, "POST", in("/messages"), write("order-1", 1))
	do[api.Subscription](s, "PUT", in(mails), api.Subscription{Category: "order"})
	first := <-got
	if len(first) != 1 {
		t.Fatal(first)
	}
	do[api.Subscription](s, "PUT", in(mails), api.Subscription{Category: "order", Window: 5})
	// The consumer keeps what it has.
	do[any](s, "POST", in(mails+"/ack"), refs(first...))
	do[api.Written](s, "POST", in("/messages"), write("order-1", 1))
	if second := claimed(s, 1); len(second) != 1 || second[0].Attempt != 1 || second[0].Global == first[0].Global {
		t.Errorf("%+v after %+v", second, first)
	}
}

// Consumers that compete, and a restart of the server: each message is done once.
func TestCompetingConsumers(t *testing.T) {
	s := start(t, nil, core.Options{})
	engine := s.engine
	do[api.Subscription](s, "PUT", in(mails), api.Subscription{Category: "order"})
	const messages = 300
	for i := range messages / 10 {
		do[api.Written](s, "POST", in("/messages"), write(fmt.Sprint("order-", i), 10))
	}
	var mu sync.Mutex
	done := map[int64]int{}
	work := func(until int) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for {
					mu.Lock()
					enough := len(done) >= until
					mu.Unlock()
					if enough {
						return
					}
					d := do[api.Deliveries](s, "POST", in(mails+"/claim"), api.ClaimMessages{Max: 7, WaitMS: 20}).Deliveries
					if len(d) == 0 {
						continue
					}
					do[any](s, "POST", in(mails+"/ack"), refs(d...))
					mu.Lock()
					for _, m := range d {
						done[m.Global]++
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
	}
	work(100)
	// What was claimed and not acknowledged is the consumer's after the restart, too.
	unacknowledged := claimed(s, 5)
	s.stop()
	s = start(t, engine, core.Options{})
	do[any](s, "POST", in(mails+"/ack"), refs(unacknowledged...))
	for _, d := range unacknowledged {
		done[d.Global]++
	}
	work(messages)
	for global, n := range done {
		if n != 1 {
			t.Errorf("message %d was done %d times", global, n)
		}
	}
	if len(done) != messages {
		t.Errorf("%d messages were done", len(done))
	}
}

// What is claimed for a client that is gone is given back at once: nobody waits for the leases, of an hour. A client
// that has the answer keeps it, even if it disconnects at once, as curl does.
func TestClientIsGone(t *testing.T) {
	s := start(t, nil, core.Options{})
	do[api.Subscription](s, "PUT", in(mails), api.Subscription{Category: "order", LeaseMS: 3_600_000})
	do[api.Written](s, "POST", in("/messages"), write("order-1", 1))
	do[api.EnqueueResult](s, "POST", in("/tasks"), api.Enqueue{Tasks: []api.NewTask{{Kind: "k"}}})
	routes := v1.Routes(s.data, v1.Options{})
	claims := map[string]string{
		"/subscriptions/{name}/claim": `{"max": 2, "wait_ms": 60000}`,
		"/tasks/claim":                `{"n": 2, "wait_ms": 60000, "lease_ms": 3600000}`,
	}
	claim := func(answered error) {
		for path, body := range claims {
			i := slices.IndexFunc(routes, func(r route.Route) bool { return r.Pattern == "/v1/namespaces/{ns}"+path })
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			r := httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader(body))
			r.SetPathValue("ns", "default")
			r.SetPathValue("name", "mails")
			w := &leaving{err: answered, leave: leave}
			routes[i].Handler(w, r)
			if !strings.Contains(w.body.String(), `"token"`) {
				t.Fatalf("%s: %s", path, &w.body)
			}
		}
	}
	claim(net.ErrClosed)
	claim(nil)
	ds := do[api.Deliveries](s, "POST", in(mails+"/claim"), api.ClaimMessages{Max: 2}).Deliveries
	leases := do[api.Leases](s, "POST", in("/tasks/claim"), api.ClaimTasks{N: 2}).Leases
	if len(ds) != 0 || len(leases) != 0 {
		t.Errorf("claimed by two at once: %+v, %+v", ds, leases)
	}
	running := do[api.Tasks](s, "GET", in("/tasks?state=running"), nil).Tasks
	if len(running) != 1 || running[0].Attempt != 1 {
		t.Errorf("%+v", running)
	}
}

// leaving is the connection to a client that is gone as soon as it has the answer, or before.
type leaving struct {
	httptest.ResponseRecorder
	err   error // of sending
	leave func()
	body  bytes.Buffer
}

func (l *leaving) Header() http.Header { return http.Header{} }

func (l *leaving) Write(p []byte) (int, error) { return l.body.Write(p) }

func (l *leaving) FlushError() error {
	l.leave()
	return l.err
}
