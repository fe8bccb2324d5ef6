package inprocess_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast/internal/inprocess"
)

// TestTransport: bodies go both ways, answers are streamed, a handler learns that its client is gone, and a panic is an
// answer that breaks off.
func TestTransport(t *testing.T) {
	gone := make(chan error, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /echo/{name}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Name", r.PathValue("name"))
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-Late", "yes")
		_, _ = io.Copy(w, r.Body)
	})
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) {
		for n := 0; ; n++ {
			if _, err := fmt.Fprintln(w, n); err != nil {
				<-r.Context().Done()
				gone <- err
				return
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
	})
	mux.HandleFunc("GET /panic", func(w http.ResponseWriter, r *http.Request) { panic("at once") })
	mux.HandleFunc("GET /late", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "half")
		panic(http.ErrAbortHandler)
	})
	mux.HandleFunc("GET /nothing", func(w http.ResponseWriter, r *http.Request) {})
	mux.HandleFunc("GET /waits", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := http.Client{Transport: inprocess.Transport(mux)}
	resp, err := c.Post("http://localhost/echo/a%2Fb", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if string(body) != "hello" || err != nil || resp.StatusCode != http.StatusTeapot ||
		resp.Header.Get("X-Name") != "a/b" || resp.Header.Get("X-Late") != "" {
		t.Errorf("%q, %v, %d, %v", body, err, resp.StatusCode, resp.Header)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	get := func(path string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, "GET", "http://localhost"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c.Do(req)
	}
	if _, err := get("/panic"); err == nil || !strings.Contains(err.Error(), "at once") {
		t.Error(err)
	}
	if resp, err = get("/late"); err == nil {
		body, err = io.ReadAll(resp.Body)
	}
	if string(body) != "half" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", body, err)
	}
	if resp, err = get("/nothing"); err != nil || resp.StatusCode != http.StatusOK {
		t.Error(resp, err)
	}
	if resp, err = get("/stream"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	for n := range 100 {
		if !lines.Scan() || lines.Text() != fmt.Sprint(n) {
			t.Fatalf("line %d is %q", n, lines.Text())
		}
	}
	cancel()
	if err := <-gone; err == nil {
		t.Error("the handler has not learnt that its client is gone")
	}
	if _, err := get("/waits"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
