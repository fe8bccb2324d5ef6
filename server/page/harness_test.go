package page_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/engine/all"
	hserver "github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

type ctx = context.Context

// server is a server with data of every kind.
type server struct {
	t      *testing.T
	data   *data.Data
	http   *httptest.Server
	tokens *auth.Tokens
	token  string // of everything
	rest   *rest
}

func serve(t *testing.T) *server {
	t.Helper()
	dir := t.TempDir()
	engine, err := all.OpenURL("logtree:" + dir + "/data")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	quiet := slog.New(slog.DiscardHandler)
	d, err := data.Open(engine, data.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	real, err := newServer(d, dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, data: d, tokens: real.Tokens(), token: auth.NewNamespaceSecret(message.Default)}
	if err := d.Messages().SetToken(t.Context(), message.Default, s.token); err != nil {
		t.Fatal(err)
	}
	s.rest = &rest{t: t, subs: map[string]*message.Subscription{}, opts: map[string]api.Subscription{}}
	mux, known := http.NewServeMux(), map[string]bool{}
	for _, rt := range real.Routes() {
		known[rt.Method+" "+rt.Pattern] = true
	}
	mux.Handle("/", real)
	for _, rt := range s.rest.routes() {
		if pattern := rt.Method + " " + rt.Pattern; !known[pattern] {
			mux.Handle(pattern, s.check(rt))
		}
	}
	s.http = httptest.NewServer(mux)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := real.Stop(ctx); err != nil { // followers end
			t.Error(err)
		}
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

func newServer(d *data.Data, dir string, logger *slog.Logger) (*hserver.Server, error) {
	return hserver.New(d, hserver.Options{Version: "test", Logger: logger, Backup: all.Backup, BackupDir: dir})
}

// check does what package server does before a handler is called.
func (s *server) check(rt route.Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := s.tokens.Check(r.Context(), strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		if err == nil && !p.May(rt.Role, r.PathValue("ns")) {
			err = &holdfast.Error{Class: auth.ErrForbidden, Detail: "this needs another role"}
		}
		if err != nil {
			problem.Write(w, r, err)
			return
		}
		rt.Handler(w, r)
	})
}

func (s *server) check1(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// hostile is text that would be seen if it became a part of the page.
const hostile = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`

// fill puts data of every kind into the server.
func (s *server) fill() {
	s.t.Helper()
	ctx := s.t.Context()
	orders, err := s.data.Messages().Namespace(ctx, message.Default)
	s.check1(err)
	workflow := `"correlationStreamName": "checkout-7"`
	var first message.Result
	for i := range 120 {
		stream, typ := fmt.Sprintf("order-%d", i%17), [...]string{"OrderPlaced", "OrderPaid", "OrderShipped"}[i%3]
		first, err = orders.Write(ctx, stream, message.Message{Type: typ, Data: fmt.Appendf(nil,
			`{"order": %d, "total": %d.%02d, "items": [{"sku": "A-%d", "count": %d}], "express": %t}`, i%17, i*7, i%100, i, i%4+1, i%2 == 0)})
		s.check1(err)
	}
	cause, err := orders.Write(ctx, "checkout-7", message.Message{Type: "CheckoutStarted", Data: []byte(`{"cart": 7}`),
		Metadata: []byte("{" + workflow + "}")})
	s.check1(err)
	_, err = orders.Write(ctx, "payment-7", message.Message{Type: "PaymentTaken", Data: []byte(`{"amount": 12345678901234567890, "currency": "EUR"}`),
		Metadata: fmt.Appendf(nil, `{%s, "causationMessageStreamName": "checkout-7", "causationMessagePosition": %d, `+
			`"causationMessageGlobalPosition": %d}`, workflow, cause.Position, cause.Global)})
	s.check1(err)
	_, err = orders.Write(ctx, "mail-7", message.Message{Type: "MailSent", Data: []byte(`{"to": "anna@example.org"}`),
		Metadata: []byte("{" + workflow + `, "causationMessageStreamName": "payment-7", "causationMessagePosition": 0}`)})
	s.check1(err)
	_, err = orders.Write(ctx, "hostile-1", message.Message{Type: hostile, Data: fmt.Appendf(nil, `{"text": %q}`, hostile)})
	s.check1(err)
	_, err = orders.Write(ctx, "large-1", message.Message{Type: "Large", Data: []byte(`{"text": "` + strings.Repeat("0123456789 ", 95_000) + `"}`)})
	s.check1(err)
	_ = first

	for name, n := range map[string]int{"orders": 230, "audit": 3} {
		log, err := s.data.Log(ctx, message.Default, name)
		s.check1(err)
		var events []event.Event
		for i := range n {
			events = append(events, event.Event{Type: [...]string{"OrderPlaced", "OrderPaid", "CustomerMoved", "OrderShipped"}[i%4], ID: fmt.Sprintf("%s-%d", name, i),
				Data: fmt.Appendf(nil, `{"order":%d,"customer":"c-%d","total":%d}`, i, i%9, i*13)})
		}
		_, err = log.Append(ctx, events...)
		s.check1(err)
		s.check1(log.SaveOffset(ctx, "invoices", uint64(n)))
		s.check1(log.SaveOffset(ctx, "search-index", uint64(n/3)))
	}

	o := message.SubscriptionOptions{Query: message.Query{Category: "order"}, MaxAttempts: 3}
	mails, err := orders.Subscribe(ctx, "order-mails", o)
	s.check1(err)
	deliveries, err := mails.Claim(ctx, 40)
	s.check1(err)
	s.check1(mails.Park(ctx, "smtp: 550 no such mailbox: "+hostile, deliveries[3], deliveries[9], deliveries[11]))
	s.check1(mails.Ack(ctx, append(deliveries[:3:3], deliveries[12:30]...)...))
	index, err := orders.Subscribe(ctx, "search-index", message.SubscriptionOptions{})
	s.check1(err)
	for index.Info().Behind > 0 {
		deliveries, err := index.Claim(ctx, 100)
		s.check1(err)
		s.check1(index.Ack(ctx, deliveries...))
	}
	s.rest.subs["order-mails"], s.rest.opts["order-mails"] = mails, api.Subscription{Category: "order", MaxAttempts: 3}
	s.rest.subs["search-index"] = index

	tasks, err := s.data.Tasks(ctx, message.Default)
	s.check1(err)
	s.check1(tasks.SetQueue(ctx, "mail", task.QueueOptions{KeyConcurrency: 2, KeyRate: task.Rate{N: 10, Per: time.Minute}}))
	for i := range 30 {
		_, err = tasks.Enqueue(ctx, task.Spec{Queue: "mail", Kind: "welcome", Payload: fmt.Appendf(nil, `{"customer":%d,"template":"welcome"}`, i), MaxAttempts: 2},
			task.Spec{Queue: "reports", Kind: "render", Payload: []byte("\x00\x01\x02binary"), Delay: time.Hour})
		s.check1(err)
	}
	leases, err := tasks.Claim(ctx, task.ClaimOptions{Queues: []string{"mail"}, N: 16, Worker: "worker-1"})
	s.check1(err)
	s.check1(tasks.SetOutput(ctx, leases[0], []byte(`{"sent":true}`)))
	s.check1(tasks.Complete(ctx, leases[:11]...))
	for _, l := range leases[11:14] {
		s.check1(tasks.Fail(ctx, l, task.Failure{Message: "smtp: 421 try again later", Stack: "main.send\n\tmail.go:17"}, task.FailOptions{Dead: true}))
	}

	secret := auth.NewNamespaceSecret("warehouse")
	_, err = s.data.Messages().Create(ctx, message.NamespaceOptions{ID: "warehouse", Description: "Stock and deliveries", Token: secret})
	s.check1(err)
	_, _, err = s.tokens.Create(ctx, auth.Token{Namespace: message.Default, Role: auth.Write, Description: "order service"})
	s.check1(err)
	_, _, err = s.tokens.Create(ctx, auth.Token{Namespace: auth.Everywhere, Role: auth.Read, Description: "dashboards", Expires: time.Now().Add(30 * 24 * time.Hour)})
	s.check1(err)
}

// busyWriter writes now and then, so that there is something to see, until the test ends.
func (s *server) busyWriter(every time.Duration) {
	var wait sync.WaitGroup
	stop := make(chan struct{})
	s.t.Cleanup(func() { close(stop); wait.Wait() })
	orders, err := s.data.Messages().Namespace(s.t.Context(), message.Default)
	s.check1(err)
	wait.Add(1)
	go func() {
		defer wait.Done()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(every * time.Duration(1+i/50%5)):
			}
			if _, err := orders.Write(context.Background(), fmt.Sprintf("order-%d", i%17), message.Message{Type: "OrderPlaced", Data: []byte(`{"live": true}`)}); err != nil {
				return
			}
		}
	}()
}

type recorded = httptest.ResponseRecorder

// record serves one request without a network.
func record(h http.Handler, path string, header ...string) *recorded {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
