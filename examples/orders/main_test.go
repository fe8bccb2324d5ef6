package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast/store/projection"
)

var ctx = context.Background()

// ask sends a request to the service and returns the status and body of the answer.
func ask(s *service, method, path string) (int, string) {
	w := httptest.NewRecorder()
	s.routes().ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, nil))
	return w.Code, strings.TrimSpace(w.Body.String())
}

func want(t *testing.T, s *service, method, path string, status int, body string) {
	t.Helper()
	if code, got := ask(s, method, path); code != status || !strings.Contains(got, body) {
		t.Fatalf("%s %s: %d %s, want %d %s", method, path, code, got, status, body)
	}
}

// TestOrders has many clients place and pay the same orders: each is placed and paid once, its mail is sent once, and
// the customers are charged once, after the service was opened again, and the model made anew, too.
func TestOrders(t *testing.T) {
	dir, sent := t.TempDir(), make(chan mail, 100)
	s := open(ctx, dir, func(m mail) error { sent <- m; return nil })
	const clients, orders = 4, 10
	var placed, paid atomic.Int32
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for id := range orders {
				for path, done := range map[string]*atomic.Int32{"place?customer=ann&cents=5": &placed, "pay": &paid} {
					switch code, body := ask(s, "POST", fmt.Sprintf("/orders/%d/%s", id, path)); code {
					case http.StatusOK:
						done.Add(1)
					case http.StatusConflict:
					default:
						t.Error(code, body)
					}
				}
				// Now it is there, whoever has placed it.
				if code, _ := ask(s, "POST", fmt.Sprintf("/orders/%d/pay", id)); code == http.StatusOK {
					paid.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if placed.Load() != orders || paid.Load() != orders {
		t.Fatalf("%d orders were placed, %d paid", placed.Load(), paid.Load())
	}
	stop, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- s.run(stop) }()
	texts, last := map[string]bool{}, ""
	for range orders {
		last = (<-sent).Text
		texts[last] = true
	}
	cancel() // before it is noted, perhaps, that the last one was sent
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(texts) != orders {
		t.Fatalf("%v", slices.Sorted(maps.Keys(texts)))
	}
	check := func() {
		t.Helper()
		if err := errors.Join(s.customers.CatchUp(ctx), s.mails.CatchUp(ctx)); err != nil {
			t.Fatal(err)
		}
		want(t, s, "GET", "/customers", 200, `{"ann":{"Orders":10,"Cents":50}}`)
		for len(sent) > 0 {
			if m := <-sent; m.Text != last {
				t.Fatalf("sent again: %v", m)
			}
		}
		last = "" // from now on it is noted
	}
	check()
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	s = open(ctx, dir, func(m mail) error { sent <- m; return nil })
	defer s.close()
	check()
	if err := s.customers.Rebuild(ctx); err != nil {
		t.Fatal(err)
	}
	want(t, s, "GET", "/customers", 200, `{}`)
	check()
}

// What is refused says why. Mail that cannot be sent stays in the outbox, and is sent in its order.
func TestRefused(t *testing.T) {
	down := errors.New("the mail server is down")
	var sent []string
	s := open(ctx, t.TempDir(), func(m mail) error {
		if down != nil {
			return down
		}
		sent = append(sent, m.To)
		return nil
	})
	defer s.close()
	want(t, s, "POST", "/orders/1/pay", 409, "it is not there")
	want(t, s, "POST", "/orders/1/place?customer=ann", 409, "lacks a customer or cents")
	want(t, s, "POST", "/orders/1/place?customer=ann&cents=-5", 409, "lacks a customer or cents")
	for i, customer := range []string{"ann", "bob"} {
		path := fmt.Sprintf("/orders/%d/", i)
		want(t, s, "POST", path+"place?cents=5&customer="+customer, 200, `"Customer":"`+customer+`"`)
		want(t, s, "POST", path+"place?cents=5&customer="+customer, 409, "it is there already")
		want(t, s, "POST", path+"pay", 200, `"Paid":true`)
		want(t, s, "POST", path+"pay", 409, "paid already")
	}
	for range 2 {
		if err := s.run(ctx); !errors.Is(err, projection.ErrApply) || !errors.Is(err, down) {
			t.Fatal(err)
		}
	}
	down = nil
	if err := s.mails.CatchUp(ctx); err != nil || !slices.Equal(sent, []string{"ann", "bob"}) {
		t.Fatal(sent, err)
	}
}
