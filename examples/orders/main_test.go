package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/worker"
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

// mailsOf returns how many mails there are of each text, in whatever state.
func mailsOf(t *testing.T, s *service) map[string]int {
	t.Helper()
	found := map[string]int{}
	for f := (task.Filter{}); ; {
		page, next, err := s.tasks.List(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range page {
			m, err := worker.Decode[mail](one)
			if err != nil {
				t.Fatal(err)
			}
			found[m.Text]++
		}
		if f.Cursor = next; next == "" {
			return found
		}
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
	texts := map[string]bool{}
	for range orders {
		texts[(<-sent).Text] = true
	}
	cancel() // what was sent is completed
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(texts) != orders {
		t.Fatalf("%v", slices.Sorted(maps.Keys(texts)))
	}
	check := func() {
		t.Helper()
		if err := s.customers.CatchUp(ctx); err != nil {
			t.Fatal(err)
		}
		want(t, s, "GET", "/customers", 200, `{"ann":{"Orders":10,"Cents":50}}`)
		if n, err := s.mails.RunDue(ctx); n != 0 || err != nil {
			t.Fatalf("%d mails were sent again, %v", n, err)
		}
		for text, n := range mailsOf(t, s) {
			if n != 1 || !texts[text] {
				t.Errorf("%d mails: %s", n, text)
			}
		}
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

// What is refused says why. Mail that cannot be sent is sent later.
func TestRefused(t *testing.T) {
	var tries atomic.Int32
	sent := make(chan mail, 10)
	s := open(ctx, t.TempDir(), func(m mail) error {
		if tries.Add(1) <= 2 {
			return errors.New("the mail server is down")
		}
		sent <- m
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
	if n, err := s.mails.RunDue(ctx); n != 2 || err != nil || len(sent) > 0 {
		t.Fatal(n, err, len(sent))
	}
	stop, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- s.run(stop) }()
	to := []string{(<-sent).To, (<-sent).To} // after a second
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if slices.Sort(to); !slices.Equal(to, []string{"ann", "bob"}) || tries.Load() != 4 {
		t.Fatal(to, tries.Load())
	}
}

// dirEnv is set for a process that TestKill kills: the directory, and behind it which time this is.
const dirEnv = "HOLDFAST_TEST_ORDERS"

func TestMain(m *testing.M) {
	if at := os.Getenv(dirEnv); at != "" {
		dir, round, _ := strings.Cut(at, "\n")
		placeAndPay(dir, round)
		return
	}
	os.Exit(m.Run())
}

// placeAndPay places and pays orders until it is killed, and says of each what was answered.
func placeAndPay(dir, round string) {
	s := open(ctx, dir, func(mail) error { return nil })
	go func() { log.Fatal(s.run(ctx)) }()
	var wg sync.WaitGroup
	for client := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%s.%d.%d", round, client, i)
				for _, path := range []string{"place?customer=ann&cents=5", "pay"} {
					if code, body := ask(s, "POST", "/orders/"+id+"/"+path); code != http.StatusOK {
						log.Fatal(code, body)
					}
					what, _, _ := strings.Cut(path, "?")
					fmt.Println(what, id)
				}
			}
		})
	}
	wg.Wait()
}

// TestKill kills the service while it works, again and again. Then all is there that it has answered; every order that
// is paid has exactly one mail, and no other has one; and the read model has each order once.
func TestKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "orders")
	placedIDs, paidIDs := map[string]bool{}, map[string]bool{} // as was answered
	for round := range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s\n%d", dirEnv, dir, round))
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill() }()
		answered := 0
		for in := bufio.NewReader(out); ; {
			line, err := in.ReadString('\n')
			if err != nil { // it is gone, and may have been in the middle of a line
				break
			}
			what, id, _ := strings.Cut(strings.TrimSpace(line), " ")
			map[string]map[string]bool{"place": placedIDs, "pay": paidIDs}[what][id] = true
			if answered++; answered == 50+13*round {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || answered < 50 {
			t.Fatalf("%v after %d answers: %s", err, answered, said.String())
		}

		s := open(ctx, dir, func(mail) error { return nil })
		n, err := s.store.Namespace(ctx, message.Default)
		if err != nil {
			t.Fatal(err)
		}
		placed, mails := map[string]bool{}, mailsOf(t, s)
		for st, err := range n.Read(ctx, message.Query{Category: "order", Types: []string{"Placed"}}) {
			if err != nil {
				t.Fatal(err)
			}
			id := strings.TrimPrefix(st.Stream, "order-")
			if placed[id] {
				t.Errorf("order %s was placed twice", id)
			}
			placed[id] = true
			o, err := s.orders.Load(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			text := "order " + id + " is paid"
			if has := mails[text]; has > 1 || has == 1 != o.State.Paid {
				t.Errorf("order %s, paid: %t, has %d mails", id, o.State.Paid, has)
			}
			if paidIDs[id] && !o.State.Paid {
				t.Errorf("it was answered that order %s is paid", id)
			}
			delete(mails, text)
		}
		if len(mails) > 0 {
			t.Errorf("mails of no order: %v", mails)
		}
		for id := range placedIDs {
			if !placed[id] {
				t.Errorf("order %s is gone", id)
			}
		}
		if err := s.customers.CatchUp(ctx); err != nil {
			t.Fatal(err)
		}
		want(t, s, "GET", "/customers", 200, fmt.Sprintf(`{"ann":{"Orders":%d,"Cents":%d}}`, len(placed), 5*len(placed)))
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
}
