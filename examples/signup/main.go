// Signup is a service whose users get a mail. A user and the task that welcomes them are written in one transaction, so
// that there is no user without a welcome and no welcome without a user. Mail is tried again until it is sent; that a
// user has been welcomed is written in the transaction that completes the task. Every night, users without a mail are
// counted.
//
//	signup --dir /tmp/signup --addr 127.0.0.1:8080
//	curl -X POST '127.0.0.1:8080/users?mail=ann@example.org'
//	curl '127.0.0.1:8080/users'
//	curl '127.0.0.1:8080/tasks?state=dead'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/cron"
	"github.com/holdfastdb/holdfast/store/task/worker"
)

// welcome sends a mail to a new user.
type welcome struct{ Mail string }

func (welcome) Kind() string { return "welcome" }
func (welcome) Defaults() task.Spec {
	return task.Spec{MaxAttempts: 10, Backoff: task.Backoff{First: time.Second, Max: time.Hour}}
}

// census counts the users who were not welcomed.
type census struct{}

func (census) Kind() string { return "census" }

// users is the bucket of the users, by mail address: the value says whether they were welcomed.
const users = "users"

type service struct {
	db    *kv.DB
	tasks *task.Store
	send  func(ctx context.Context, to string) error
}

func (s *service) workers() *worker.Workers {
	var ws worker.Workers
	worker.Register(&ws, s.welcome).Timeout = time.Minute
	worker.Register(&ws, s.census)

	return &ws
}

func (s *service) welcome(ctx context.Context, t *worker.Task[welcome]) error {
	if !strings.Contains(t.Args.Mail, "@") {
		return worker.Dead(errors.New("that is no address"))
	}
	if err := s.send(ctx, t.Args.Mail); err != nil {
		return err
	}
	return s.db.Update(ctx, func(tx *kv.Tx) error {
		if err := tx.Bucket(users).Put([]byte(t.Args.Mail), []byte("welcomed")); err != nil {
			return err
		}
		_, err := t.CompleteIn(tx)
		return err
	})
}

func (s *service) census(ctx context.Context, t *worker.Task[census]) error {
	waiting := 0
	users, err := s.users(ctx)
	for _, state := range users {
		if state != "welcomed" {
			waiting++
		}
	}
	if err != nil {
		return err
	}

	return t.SetOutput(ctx, map[string]int{"users": len(users), "waiting": waiting})
}

func (s *service) users(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}
	err := s.db.View(ctx, func(tx *kv.Tx) error {
		for mail, state := range tx.Bucket(users).All() {
			found[string(mail)] = string(state)
		}
		return nil
	})
	return found, err
}

// nightly lets the users be counted at half past two.
func (s *service) nightly(ctx context.Context) error {
	schedule, err := cron.Parse("30 2 * * *", time.Local)
	if err != nil {
		return err
	}
	spec, err := worker.NewSpec(census{}, task.Spec{Keep: 30 * 24 * time.Hour})
	if err != nil {
		return err
	}

	return s.tasks.AddPeriodic(ctx, task.Periodic{Name: "census", Schedule: schedule, Spec: spec})
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any, err error) {
		switch {
		case errors.Is(err, holdfast.ErrBadOption):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			_ = json.NewEncoder(w).Encode(v) // the client may be gone
		}
	}
	mux.HandleFunc("POST /users", func(w http.ResponseWriter, r *http.Request) {
		mail := r.FormValue("mail")
		if mail == "" || len(mail) > 200 {
			http.Error(w, "a user has a mail address", http.StatusBadRequest)
			return
		}
		// One welcome for each user, ever: the id of the task is that of the user.
		spec, err := worker.NewSpec(welcome{mail}, task.Spec{ID: "welcome " + mail, Keep: 100 * 365 * 24 * time.Hour})
		if err != nil {
			answer(w, nil, err)
			return
		}
		var results []task.Result
		err = s.db.Update(r.Context(), func(tx *kv.Tx) (err error) {
			if results, err = s.tasks.In(tx).Enqueue(spec); err != nil {
				return err
			}
			return tx.Bucket(users).Put([]byte(mail), []byte("new"))
		})
		if errors.Is(err, task.ErrExists) {
			http.Error(w, "that user is there already", http.StatusConflict)
			return
		}
		answer(w, results, err)
	})
	mux.HandleFunc("GET /users", func(w http.ResponseWriter, r *http.Request) {
		users, err := s.users(r.Context())
		answer(w, users, err)
	})
	mux.HandleFunc("GET /tasks", func(w http.ResponseWriter, r *http.Request) {
		f := task.Filter{Cursor: r.FormValue("after")}
		var err error
		if text := r.FormValue("state"); text != "" {
			f.State, err = task.ParseState(text)
		}
		var found struct {
			Tasks []task.Task
			Next  string
		}
		if err == nil {
			found.Tasks, found.Next, err = s.tasks.List(r.Context(), f)
		}
		answer(w, found, err)
	})

	return mux
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}

	return v
}

func main() {
	dir, addr := flag.String("dir", "signup", "its `directory`"), flag.String("addr", "127.0.0.1:8080", "its `address`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	engine := must(logtree.Open(*dir, holdfast.Options{}))
	db := kv.On(engine) // at Power: what was answered survives a power cut
	s := &service{db, must(task.Open(db, task.Options{})), func(_ context.Context, to string) error {
		log.Printf("mail to %s: welcome", to)
		return nil
	}}
	runner := must(worker.New(s.tasks, s.workers(), worker.Options{}))
	server := &http.Server{Addr: *addr, Handler: s.handler()}
	err := s.nightly(ctx)

	go func() { log.Print(server.ListenAndServe()); stop() }()
	err = errors.Join(err, runner.Run(ctx)) // until an interrupt, and what runs then is completed
	log.Print(errors.Join(err, server.Shutdown(context.Background()), s.tasks.Close(), engine.Close()))
}
