package page_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	hserver "github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/query"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// server is a server with data of every kind.
type server struct {
	t      *testing.T
	data   *data.Data
	http   *httptest.Server
	tokens *auth.Tokens
	token  string // of everything
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
	real, err := hserver.New(d, hserver.Options{Version: "test", Logger: quiet, Backup: all.Backup, BackupDir: dir,
		Query: query.Served{}})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, data: d, tokens: real.Tokens(), token: auth.NewNamespaceSecret(message.Default)}
	if err := d.Tokens().SetOwn(t.Context(), message.Default, s.token); err != nil {
		t.Fatal(err)
	}
	s.http = httptest.NewServer(real)
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

func (s *server) must(err error) {
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
	ctx := holdfast.WithLevel(s.t.Context(), holdfast.Process) // it need not survive anything
	orders, err := s.data.Messages().Namespace(ctx, message.Default)
	s.must(err)
	workflow := `"correlationStreamName": "checkout-7"`
	for i := range 120 {
		stream, typ := fmt.Sprintf("order-%d", i%17), [...]string{"OrderPlaced", "OrderPaid", "OrderShipped"}[i%3]
		_, err = orders.Write(ctx, stream, message.Message{Type: typ, Data: fmt.Appendf(nil,
			`{"order": %d, "total": %d.%02d, "items": [{"sku": "A-%d", "count": %d}], "express": %t}`,
			i%17, i*7, i%100, i, i%4+1, i%2 == 0)})
		s.must(err)
	}
	cause, err := orders.Write(ctx, "checkout-7", message.Message{Type: "CheckoutStarted", Data: []byte(`{"cart": 7}`),
		Metadata: []byte("{" + workflow + "}")})
	s.must(err)
	_, err = orders.Write(ctx, "payment-7", message.Message{Type: "PaymentTaken",
		Data: []byte(`{"amount": 12345678901234567890, "currency": "EUR"}`),
		Metadata: fmt.Appendf(nil, `{%s, "causationMessageStreamName": "checkout-7", "causationMessagePosition": %d, `+
			`"causationMessageGlobalPosition": %d}`, workflow, cause.Position, cause.Global)})
	s.must(err)
	_, err = orders.Write(ctx, "mail-7", message.Message{Type: "MailSent", Data: []byte(`{"to": "anna@example.org"}`),
		Metadata: []byte("{" + workflow + `, "causationMessageStreamName": "payment-7", "causationMessagePosition": 0}`)})
	s.must(err)
	_, err = orders.Write(ctx, "hostile-1", message.Message{Type: hostile,
		Data: fmt.Appendf(nil, `{"text": %q}`, hostile)})
	s.must(err)
	_, err = orders.Write(ctx, "large-1", message.Message{Type: "Large",
		Data: []byte(`{"text": "` + strings.Repeat("0123456789 ", 95_000) + `"}`)})
	s.must(err)

	for name, n := range map[string]int{"orders": 230, "audit": 3} {
		log, err := s.data.Log(ctx, message.Default, name)
		s.must(err)
		var events []event.Event
		for i := range n {
			events = append(events, event.Event{ID: fmt.Sprintf("%s-%d", name, i),
				Type: [...]string{"OrderPlaced", "OrderPaid", "CustomerMoved", "OrderShipped"}[i%4],
				Data: fmt.Appendf(nil, `{"order":%d,"customer":"c-%d","total":%d}`, i, i%9, i*13)})
		}
		_, err = log.Append(ctx, events...)
		s.must(err)
		s.must(log.SaveOffset(ctx, "invoices", uint64(n)))
		s.must(log.SaveOffset(ctx, "search-index", uint64(n/3)))
	}

	s.must(s.data.SetSubscription(ctx, message.Default, "order-mails",
		message.SubscriptionOptions{Query: message.Query{Category: "order"}, MaxAttempts: 3, Lease: time.Hour}))
	mails, err := s.data.Subscription(ctx, message.Default, "order-mails")
	s.must(err)
	mails.Hold()
	deliveries, err := mails.Claim(ctx, 40)
	s.must(err)
	s.must(mails.Park(ctx, "smtp: 550 no such mailbox: "+hostile, deliveries[3], deliveries[9], deliveries[11]))
	s.must(mails.Ack(ctx, append(deliveries[:3:3], deliveries[12:30]...)...))
	s.must(s.data.SetSubscription(ctx, message.Default, "search-index", message.SubscriptionOptions{}))
	index, err := s.data.Subscription(ctx, message.Default, "search-index")
	s.must(err)
	for index.Info().Behind > 0 {
		deliveries, err := index.Claim(ctx, 100)
		s.must(err)
		s.must(index.Ack(ctx, deliveries...))
	}

	tasks, err := s.data.Tasks(ctx, message.Default)
	s.must(err)
	s.must(tasks.SetQueue(ctx, "mail", task.QueueOptions{KeyConcurrency: 2, KeyRate: task.Rate{N: 10, Per: time.Minute}}))
	for i := range 30 {
		_, err = tasks.Enqueue(ctx, task.Spec{Queue: "mail", Kind: "welcome", MaxAttempts: 2,
			Payload: fmt.Appendf(nil, `{"customer":%d,"template":"welcome"}`, i)},
			task.Spec{Queue: "reports", Kind: "render", Payload: []byte("\x00\x01\x02binary"), Delay: time.Hour})
		s.must(err)
	}
	leases, err := tasks.Claim(ctx, task.ClaimOptions{Queues: []string{"mail"}, N: 16, Worker: "worker-1"})
	s.must(err)
	s.must(tasks.SetOutput(ctx, leases[0], []byte(`{"sent":true}`)))
	s.must(tasks.Complete(ctx, leases[:11]...))
	for _, l := range leases[11:14] {
		s.must(tasks.Fail(ctx, l, task.Failure{Message: "smtp: 421 try again later", Stack: "main.send\n\tmail.go:17"},
			task.FailOptions{Dead: true}))
	}

	secret := auth.NewNamespaceSecret("warehouse")
	_, err = s.data.Create(ctx, message.NamespaceOptions{ID: "warehouse", Description: "Stock and deliveries"},
		secret)
	s.must(err)
	_, _, err = s.tokens.Create(ctx, auth.Token{Namespace: message.Default, Role: auth.Write,
		Description: "order service"})
	s.must(err)
	_, _, err = s.tokens.Create(ctx, auth.Token{Namespace: auth.Everywhere, Role: auth.Read, Description: "dashboards",
		Expires: time.Now().Add(30 * 24 * time.Hour)})
	s.must(err)
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
