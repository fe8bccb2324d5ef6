package main

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/worker"
	"github.com/holdfastdb/holdfast/store/task/workertest"
)

// TestService signs users up, and lets the mail fail at first.
func TestService(t *testing.T) {
	broken := true
	var sent []string
	s := &service{send: func(_ context.Context, to string) error {
		if broken {
			return errors.New("no connection")
		}
		sent = append(sent, to)
		return nil
	}}
	tasks := workertest.Open(t, s.workers(), worker.Options{})
	s.db, s.tasks = tasks.DB, tasks.Store
	if err := s.nightly(t.Context()); err != nil {
		t.Fatal(err)
	}
	request := func(method, path string, want int) string {
		t.Helper()
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if w.Code != want {
			t.Errorf("%s %s: %d %s, want %d", method, path, w.Code, w.Body, want)
		}
		return w.Body.String()
	}
	request("POST", "/users?mail=ann@example.org", http.StatusOK)
	request("POST", "/users?mail=nobody", http.StatusOK)
	request("POST", "/users?mail=ann@example.org", http.StatusConflict)
	request("POST", "/users", http.StatusBadRequest)
	request("GET", "/tasks?state=asleep", http.StatusBadRequest)
	users := func(want map[string]string) {
		t.Helper()
		if got, err := s.users(t.Context()); err != nil || !maps.Equal(got, want) {
			t.Errorf("users are %v, want %v: %v", got, want, err)
		}
	}
	if n := len(tasks.Run()); n != 2 {
		t.Errorf("%d tasks have run, want 2", n)
	}
	users(map[string]string{"ann@example.org": "new", "nobody": "new"})
	if dead := request("GET", "/tasks?state=dead", http.StatusOK); !strings.Contains(dead, "welcome nobody") ||
		strings.Contains(dead, "ann") {
		t.Errorf("dead tasks: %s", dead)
	}
	broken = false
	tasks.Advance(time.Minute)
	tasks.Run()
	users(map[string]string{"ann@example.org": "welcomed", "nobody": "new"})
	if len(sent) != 1 {
		t.Errorf("sent %q", sent)
	}
	tasks.Advance(24 * time.Hour) // half past two has been
	runs := tasks.Run()
	if len(runs) != 1 || runs[0].State != task.Completed || string(runs[0].Output) != `{"users":2,"waiting":1}` {
		t.Errorf("at night, there ran %v", runs)
	}
}
