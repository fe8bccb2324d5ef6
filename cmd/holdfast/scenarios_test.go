package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/internal/conformance"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/worker"
)

// step is what a scenario does next: clients/README.md says what each means.
type step struct {
	Do    string `json:"do"`
	NS    string `json:"ns"`
	As    string `json:"as"`
	Of    string `json:"of"`
	Name  string `json:"name"`
	ID    string `json:"id"`
	Level string `json:"level"`
	Role  string `json:"role"`
	With  struct {
		Direct  bool   `json:"direct"`
		Token   string `json:"token"`
		RetryMS int64  `json:"retry_ms"`
		Level   string `json:"level"`
	} `json:"with"`

	Stream   string           `json:"stream"`
	Category string           `json:"category"`
	Type     string           `json:"type"`
	Types    []string         `json:"types"`
	Prefix   string           `json:"prefix"`
	From     int64            `json:"from"`
	To       int64            `json:"to"`
	Limit    int              `json:"limit"`
	History  string           `json:"history"`
	Expected *int64           `json:"expected"`
	Before   int64            `json:"before"`
	Position int64            `json:"position"`
	Messages json.RawMessage  `json:"messages"` // of a write, or how many of a storm
	Log      string           `json:"log"`
	Events   []api.NewEvent   `json:"events"`
	After    *uint64          `json:"after"`
	N        int              `json:"n"`
	Max      int              `json:"max"`
	Globals  []int64          `json:"globals"`
	Reason   string           `json:"reason"`
	Deliver  []api.Delivery   `json:"deliveries"`
	Tasks    json.RawMessage  `json:"tasks"` // of an enqueue, or how many of a storm
	Then     []api.NewTask    `json:"then"`
	Queue    string           `json:"queue"`
	Queues   []string         `json:"queues"`
	State    string           `json:"state"`
	Worker   string           `json:"worker"`
	LeaseMS  int64            `json:"lease_ms"`
	Lease    api.Lease        `json:"lease"`
	Leases   []api.Lease      `json:"leases"`
	Message  string           `json:"message"`
	Dead     bool             `json:"dead"`
	ForMS    int64            `json:"for_ms"`
	Output   []byte           `json:"output"`
	Attempts int              `json:"max_attempts"`
	Ops      []api.Operation  `json:"operations"`
	Good     []string         `json:"good"`
	Bad      []string         `json:"bad"`
	LeastMS  int64            `json:"least_ms"`
	Half     bool             `json:"half"`
	Path     string           `json:"path"`
	Method   string           `json:"method"`
	What     string           `json:"what"`
	Times    int              `json:"times"`
	Status   int              `json:"status"`
	Code     string           `json:"code"`
	Retry    string           `json:"retry_after"`
	Kills    int              `json:"kills"`
	Night    *json.RawMessage `json:"night"`

	Concurrency int                 `json:"concurrency"`
	GraceMS     int64               `json:"grace_ms"`
	Script      map[string][]string `json:"script"`
}

// TestScenarios: package client does what clients/scenarios.json says, against a server in a process of its own, behind
// a proxy that cuts connections and loses answers. The clients for other languages are held to the same.
func TestScenarios(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../clients/scenarios.json")
	try(t, err)
	var scenarios []struct {
		Name  string `json:"name"`
		Steps []any  `json:"steps"`
	}
	try(t, json.Unmarshal(text, &scenarios))
	h, err := conformance.Start(t.TempDir(), func(args ...string) *exec.Cmd { return holdfastCommand(t, args...) })
	try(t, err)
	t.Cleanup(h.Close)
	if len(scenarios) < 10 {
		t.Fatalf("%d scenarios", len(scenarios))
	}

	for i, s := range scenarios {
		t.Run(strings.ReplaceAll(s.Name, " ", "-"), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := &scenario{h: h, ctx: ctx, ns: fmt.Sprintf("scenario-%d", i+1), saved: map[string]any{},
				followers: map[string]*follower{}, workers: map[string]*workers{}}
			_, err := r.client(&step{}).CreateNamespace(ctx, api.NewNamespace{ID: r.ns})
			try(t, err)
			defer h.Clear()
			for n, raw := range s.Steps {
				if err := r.step(raw.(map[string]any)); err != nil {
					t.Fatalf("step %d, %.400s: %v", n, shortly(raw), err)
				}
			}
			for _, w := range r.workers {
				try(t, w.end())
			}
		})
	}
}

// scenario is one under way.
type scenario struct {
	h         *conformance.Harness
	ctx       context.Context
	ns        string
	saved     map[string]any
	followers map[string]*follower
	workers   map[string]*workers
	marked    time.Time
}

// follower is a loop over what comes.
type follower struct {
	mu       sync.Mutex
	got      []any
	position int64
	err      error
	taken    int
}

// workers are a runner at work.
type workers struct {
	stop  context.CancelFunc
	ended chan error
	once  sync.Once
	mu    sync.Mutex
	saw   []any // why those that wait ended, the same in a row once
	waits int   // how many do
}

func (w *workers) end() (err error) {
	w.once.Do(func() {
		w.stop()
		err = <-w.ended
	})
	return err
}

func shortly(v any) string {
	text, _ := json.Marshal(v)
	return fmt.Sprintf("%.400s", text)
}

// step does a step, and compares what came of it with what is wanted. One with "until" is repeated until it is so.
func (r *scenario) step(raw map[string]any) error {
	made := r.made(raw).(map[string]any)
	text, err := json.Marshal(made)
	if err != nil {
		return err
	}
	var s step
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	want, wanted := made["want"]
	refusal, refused := made["error"]
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out, err := r.do(&s)
		got := generic(out)
		if name, ok := made["save"].(string); ok && err == nil {
			r.saved[name] = got
		}
		wrong := ""
		switch {
		case refused && err == nil:
			wrong = "it was done: " + shortly(got)
		case refused:
			if wrong = unlike(refusal, described(err), "error"); wrong != "" {
				wrong += fmt.Sprintf(" (%v)", err)
			}
		case err != nil:
			wrong = err.Error()
		case wanted:
			wrong = unlike(want, got, "")
		}
		if wrong == "" {
			return nil
		}
		if made["until"] != true || time.Now().After(end) {
			return errors.New(wrong)
		}
	}
}

// described is an error as scenarios have it.
func described(err error) any {
	var e *client.Error
	if !errors.As(err, &e) {
		return fmt.Sprintf("no *client.Error: %v", err)
	}
	d := map[string]any{"code": e.Code, "status": float64(e.Status), "unknown": e.Unknown}
	if e.Operation != nil {
		d["operation"] = float64(*e.Operation)
	}
	var m *message.Conflict
	var v *event.Conflict
	if errors.As(err, &m) {
		d["expected"], d["actual"] = float64(m.Expected), float64(m.Actual)
	} else if errors.As(err, &v) {
		d["expected"], d["actual"] = float64(v.Expected), float64(v.Actual)
	}
	return d
}

// generic makes of a value what JSON has of it.
func generic(v any) (out any) {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	_ = json.Unmarshal(text, &out) // it was just made
	return out
}

// made puts in values that are made or saved.
func (r *scenario) made(v any) any {
	switch v := v.(type) {
	case string:
		if name, ok := strings.CutPrefix(v, "$"); ok {
			at := strings.Split(name, ".")
			got := r.saved[at[0]]
			for _, key := range at[1:] {
				if list, ok := got.([]any); ok {
					i, _ := strconv.Atoi(key)
					got = list[i]
				} else {
					got = got.(map[string]any)[key]
				}
			}
			return got
		}
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = r.made(v[i])
		}
		return list
	case map[string]any:
		if of, ok := v["$repeat"].([]any); ok {
			return strings.Repeat(of[0].(string), int(of[1].(float64)))
		}
		if n, ok := v["$bytes"].(float64); ok {
			b := make([]byte, int(n))
			for i := range b {
				b[i] = byte(i % 251)
			}
			return generic(b)
		}
		if n, ok := v["$deep"].(float64); ok {
			deep := map[string]any{}
			for range int(n) - 1 {
				deep = map[string]any{"a": deep}
			}
			return deep
		}
		to := map[string]any{}
		for key := range v {
			to[key] = r.made(v[key])
		}
		return to
	}
	return v
}

// unlike says where something is not as it is wanted, "" if it is. Objects may have more than is wanted.
func unlike(want, got any, at string) string {
	wrong := fmt.Sprintf("%s is %s, want %s", at, shortly(got), shortly(want))
	switch w := want.(type) {
	case map[string]any:
		if least, ok := w["$least"].(float64); ok {
			if n, ok := got.(float64); ok && n >= least {
				return ""
			}
			return wrong
		}
		if n, ok := w["$length"].(float64); ok {
			if text, ok := got.(string); ok && len(text) == int(n) {
				return ""
			}
			return wrong
		}
		if bounds, ok := w["$numbered"].([]any); ok {
			list, _ := got.([]any)
			first, last := int(bounds[0].(float64)), int(bounds[1].(float64))
			right := len(list) == last-first+1
			for i, m := range list {
				data, _ := m.(map[string]any)["data"].(map[string]any)
				right = right && data["n"] == float64(first+i)
			}
			if right {
				return ""
			}
			return wrong
		}
		g, ok := got.(map[string]any)
		if !ok {
			return wrong
		}
		for key, value := range w {
			if text := unlike(value, g[key], at+"."+key); text != "" {
				return text
			}
		}
		return ""
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			return wrong
		}
		for i := range w {
			if text := unlike(w[i], g[i], fmt.Sprintf("%s[%d]", at, i)); text != "" {
				return text
			}
		}
		return ""
	}
	if want == got || got == nil && (want == false || want == "") { // what is false or empty may be absent
		return ""
	}
	return wrong
}

func (r *scenario) client(s *step) *client.Client {
	o := client.Options{Token: r.h.Token(), Logger: slog.New(slog.DiscardHandler),
		Retry: time.Duration(s.With.RetryMS) * time.Millisecond}
	if s.With.Token != "" {
		o.Token = s.With.Token
	}
	if s.With.Level != "" {
		o.Level, _ = holdfast.ParseLevel(s.With.Level) // an invalid one is none
	}
	address := r.h.URL()
	if s.With.Direct {
		address = r.h.Direct()
	}
	c, err := client.New(address, o)
	if err != nil {
		panic(err) // the options are ours
	}
	context.AfterFunc(r.ctx, c.CloseIdleConnections)
	return c
}

// collect yields all of a loop.
func collect[T, U any](seq iter.Seq2[T, error], as func(*T) U) ([]U, error) {
	list := []U{}
	for v, err := range seq {
		if err != nil {
			return nil, err
		}
		list = append(list, as(&v))
	}
	return list, nil
}

// leases are those of the store.
func leases(from ...api.Lease) (to []task.Lease, err error) {
	for i := range from {
		t, err := from[i].Task.Store()
		if err != nil {
			return nil, err
		}
		to = append(to, task.Lease{Task: t, Token: from[i].Token, Until: from[i].Until})
	}
	return to, nil
}

// codes are those of several leases, "" where all is well.
func codes(n int, err error) (any, error) {
	list := make([]string, n)
	var each *task.LeaseErrors
	if err != nil && !errors.As(err, &each) {
		return nil, err
	}
	for i := range list {
		var e *client.Error
		if each != nil && errors.As(each.Errs[i], &e) {
			list[i] = e.Code
		}
	}
	return list, nil
}

func enqueued(list []task.Result, err error) (any, error) {
	to := make([]api.Enqueued, len(list))
	for i := range list {
		to[i] = api.Enqueued(list[i])
	}
	return to, err
}

func (r *scenario) query(s *step) message.Query {
	return message.Query{Stream: s.Stream, Category: s.Category, Types: s.Types, Prefix: s.Prefix, From: s.From,
		Limit: s.Limit, History: s.History}
}

func (r *scenario) messages(s *step) (list []message.Message, err error) {
	var w api.Write
	err = json.Unmarshal(s.Messages, &w.Messages)
	return w.Store(), err
}

func (r *scenario) specs(s *step) (list []task.Spec, err error) {
	var tasks []api.NewTask
	err = json.Unmarshal(s.Tasks, &tasks)
	return api.Specs(tasks), err
}

// do does what a step says.
func (r *scenario) do(s *step) (any, error) {
	ctx, cancel := context.WithTimeout(r.ctx, 5*time.Minute) // what hangs fails, and says where
	defer cancel()
	if s.Level != "" {
		level, err := holdfast.ParseLevel(s.Level)
		if err != nil {
			return nil, err
		}
		ctx = holdfast.WithLevel(ctx, level)
	}
	c := r.client(s)
	ns := s.NS
	if ns == "" {
		ns = r.ns
	}
	n := c.Namespace(ns)
	k, l, sub := n.Tasks(), n.Log(s.Log), n.Subscription(s.Name)
	var deliveries []message.Delivery
	for i := range s.Deliver {
		d := &s.Deliver[i]
		deliveries = append(deliveries, message.Delivery{Message: d.Message.Store(), Attempt: d.Attempt, Token: d.Token})
	}

	switch s.Do {
	case "write":
		list, err := r.messages(s)
		if err != nil {
			return nil, err
		}
		var w message.Result
		if s.Expected != nil {
			w, err = n.WriteAfter(ctx, s.Stream, *s.Expected, list...)
		} else {
			w, err = n.Write(ctx, s.Stream, list...)
		}
		return api.Written{Stream: s.Stream, Position: w.Position, Global: w.Global, Repeated: w.Repeated}, err
	case "write_numbered":
		for i := s.From; i <= s.To; i++ {
			if _, err := n.Write(ctx, s.Stream, message.Message{Type: "T", Data: fmt.Appendf(nil, `{"n":%d}`, i)}); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case "read":
		return collect(n.Read(ctx, r.query(s)), api.FromMessage)
	case "last":
		m, err := n.LastMessage(ctx, s.Stream, s.Type)
		return api.FromMessage(&m), err
	case "version":
		v, ok, err := n.Version(ctx, s.Stream)
		if !ok {
			return nil, err
		}
		return v, err
	case "streams":
		list, err := n.Streams(ctx, s.Prefix, "", 0)
		to := make([]api.Stream, len(list))
		for i, x := range list {
			to[i] = api.Stream{Stream: x.Stream, Version: x.Version, Last: x.Last}
		}
		return to, err
	case "categories":
		list, err := n.Categories(ctx)
		to := make([]api.Category, len(list))
		for i, x := range list {
			to[i] = api.Category{Category: x.Category, Messages: x.Messages, Streams: x.Streams}
		}
		return to, err
	case "truncate":
		return n.Truncate(ctx, s.Stream, s.Before)
	case "delete":
		return n.Delete(ctx, s.Stream)
	case "tombstone":
		return n.Tombstone(ctx, s.Stream)
	case "save_position":
		return nil, n.SavePosition(ctx, s.Name, s.Position)
	case "load_position":
		return n.LoadPosition(ctx, s.Name)
	case "delete_position":
		return nil, n.DeletePosition(ctx, s.Name)
	case "history":
		return n.History(ctx)

	case "append":
		a := api.Append{Events: s.Events}
		var e event.Result
		var err error
		if s.After != nil {
			e, err = l.AppendAfter(ctx, *s.After, a.Store()...)
		} else {
			e, err = l.Append(ctx, a.Store()...)
		}
		return api.Appended(e), err
	case "events":
		return collect(l.Events(ctx, 0, 0), api.FromEvent)
	case "log_info":
		return l.Info(ctx)
	case "truncate_log":
		return l.TruncateBefore(ctx, uint64(s.Before))
	case "save_offset":
		return nil, l.SaveOffset(ctx, s.Name, uint64(s.Position))
	case "load_offset":
		return l.LoadOffset(ctx, s.Name)

	case "follow":
		f := &follower{}
		r.followers[s.As] = f
		if s.Log != "" {
			go track(f, l.FollowSince(r.ctx, s.History, uint64(s.From)),
				func(e *event.Event) (any, int64) { return api.FromEvent(e), int64(e.Position) })
			return nil, nil
		}
		go track(f, n.Follow(r.ctx, r.query(s)), func(m *message.Message) (any, int64) {
			if s.Stream != "" {
				return api.FromMessage(m), m.Position
			}
			return api.FromMessage(m), m.Global
		})
		return nil, nil
	case "take":
		return r.followers[s.Of].take(ctx, s.N)
	case "ended":
		f := r.followers[s.Of]
		if err := until(ctx, func() bool { return f.ended() != nil }); err != nil {
			return nil, err
		}
		return nil, f.ended()
	case "position": // a program keeps it by itself
		f := r.followers[s.Of]
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.position, nil
	case "follower_history":
		return c.Namespace("again").History(ctx)

	case "enqueue":
		specs, err := r.specs(s)
		if err != nil {
			return nil, err
		}
		return enqueued(k.Enqueue(ctx, specs...))
	case "claim":
		list, err := k.Claim(ctx, task.ClaimOptions{Queues: s.Queues, N: s.N, Worker: s.Worker,
			Lease: time.Duration(s.LeaseMS) * time.Millisecond})
		to := make([]api.Lease, len(list))
		for i := range list {
			to[i] = api.Lease{Task: api.FromTask(&list[i].Task), Token: list[i].Token, Until: list[i].Until}
		}
		return to, err
	case "heartbeat", "complete":
		list, err := leases(s.Leases...)
		if err != nil {
			return nil, err
		}
		if s.Do == "complete" {
			return codes(len(list), k.Complete(ctx, list...))
		}
		_, err = k.Heartbeat(ctx, list...)
		return codes(len(list), err)
	case "complete_then", "fail", "snooze", "output":
		held, err := leases(s.Lease)
		switch {
		case err != nil:
			return nil, err
		case s.Do == "complete_then":
			return enqueued(k.CompleteThen(ctx, held[0], api.Specs(s.Then)...))
		case s.Do == "fail":
			return nil, k.Fail(ctx, held[0], task.Failure{Message: s.Message}, task.FailOptions{Dead: s.Dead})
		case s.Do == "snooze":
			return nil, k.Snooze(ctx, held[0], time.Duration(s.ForMS)*time.Millisecond)
		}
		return nil, k.SetOutput(ctx, held[0], s.Output)
	case "task":
		t, err := k.Get(ctx, s.ID)
		return api.FromTask(&t), err
	case "tasks":
		state, err := task.ParseState(s.State)
		if err != nil {
			return nil, err
		}
		list, _, err := k.List(ctx, task.Filter{State: state, Queue: s.Queue})
		to := make([]api.Task, len(list))
		for i := range list {
			to[i] = api.FromTask(&list[i])
		}
		return to, err
	case "cancel":
		return nil, k.Cancel(ctx, s.ID)
	case "retry":
		return nil, k.Retry(ctx, s.ID)
	case "delete_task":
		return nil, k.Delete(ctx, s.ID)
	case "queue":
		q, err := k.Queue(ctx, s.Name)
		return api.FromQueue(q), err
	case "pause_queue":
		return nil, k.Pause(ctx, s.Name)
	case "resume_queue":
		return nil, k.Resume(ctx, s.Name)

	case "subscribe":
		_, err := n.Subscribe(ctx, s.Name, message.SubscriptionOptions{Query: message.Query{Category: s.Category},
			Lease: time.Duration(s.LeaseMS) * time.Millisecond, MaxAttempts: s.Attempts})
		return nil, err
	case "subscription":
		return sub.Info(ctx)
	case "claim_messages":
		list, err := sub.Claim(ctx, s.Max)
		to := make([]api.Delivery, len(list))
		for i := range list {
			to[i] = api.Delivery{Message: api.FromMessage(&list[i].Message), Attempt: list[i].Attempt, Token: list[i].Token}
		}
		return to, err
	case "ack":
		return nil, sub.Ack(ctx, deliveries...)
	case "extend":
		return nil, sub.Extend(ctx, deliveries...)
	case "fail_messages":
		return nil, sub.Fail(ctx, s.Reason, deliveries...)
	case "return_messages":
		return nil, sub.Return(ctx, deliveries...)
	case "park":
		return nil, sub.Park(ctx, s.Reason, deliveries...)
	case "parked":
		list, err := sub.Parked(ctx, 0, 0)
		to := make([]api.ParkedMessage, len(list))
		for i := range list {
			to[i] = api.ParkedMessage{Message: api.FromMessage(&list[i].Message), Attempts: list[i].Attempts,
				Reason: list[i].Reason, At: list[i].At}
		}
		return to, err
	case "replay":
		return sub.Replay(ctx, s.Globals...)
	case "discard":
		return sub.Discard(ctx, s.Globals...)

	case "update":
		return r.update(ctx, c, s.Ops)
	case "create_namespace":
		return c.CreateNamespace(ctx, api.NewNamespace{ID: s.As})
	case "delete_namespace":
		return c.DeleteNamespace(ctx, s.As)
	case "create_token":
		return c.CreateToken(ctx, api.NewToken{Namespace: r.ns, Role: s.Role})
	case "revoke_token":
		return nil, c.RevokeToken(ctx, s.ID)

	case "names":
		return nil, r.names(ctx, c, n, s)
	case "work":
		return nil, r.work(k, s)
	case "worker_saw":
		w := r.workers[s.Of]
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Clone(w.saw), nil
	case "worker_waits":
		w := r.workers[s.Of]
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.waits, nil
	case "stop_worker":
		return nil, r.workers[s.Of].end()
	case "storm":
		return r.storm(ctx, s)

	case "lose":
		r.h.Clear()
		what := "unheard"
		if s.Half {
			what = "half"
		}
		return nil, r.h.Fail(conformance.Fault{Path: "*", What: what})
	case "tries":
		count := 0
		for _, try := range r.h.Tries() {
			if strings.HasSuffix(try, s.Path) {
				count++
			}
		}
		return count, nil
	case "mark":
		r.marked = time.Now()
		return nil, nil
	case "elapsed":
		if took := time.Since(r.marked); took < time.Duration(s.LeastMS)*time.Millisecond {
			return nil, fmt.Errorf("after %v", took)
		}
		return nil, nil
	}
	f := conformance.Fault{Method: s.Method, Path: s.Path, What: s.What, Times: s.Times, Status: s.Status, Code: s.Code,
		RetryAfter: s.Retry}
	if s.After != nil {
		f.After = int64(*s.After)
	}
	return r.h.Do(s.Do, f)
}

// track follows until it ends.
func track[T any](f *follower, seq iter.Seq2[T, error], as func(*T) (any, int64)) {
	for v, err := range seq {
		f.mu.Lock()
		if err != nil {
			f.err = err
		} else {
			got, at := as(&v)
			f.got, f.position = append(f.got, got), at+1
		}
		f.mu.Unlock()
	}
}

func (f *follower) ended() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *follower) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.got)
}

// take returns the next n, as soon as they are there.
func (f *follower) take(ctx context.Context, n int) (any, error) {
	if err := until(ctx, func() bool { return f.count() >= f.taken+n || f.ended() != nil }); err != nil {
		return nil, err
	}
	if f.count() < f.taken+n {
		return nil, f.ended()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken += n
	return slices.Clone(f.got[f.taken-n : f.taken]), nil
}

// until waits for a condition.
func until(ctx context.Context, done func() bool) error {
	for !done() {
		select {
		case <-ctx.Done():
			return errors.New("it has not come")
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// update does operations by the parts of a transaction.
func (r *scenario) update(ctx context.Context, c *client.Client, ops []api.Operation) (any, error) {
	n := c.Namespace(r.ns)
	k := n.Tasks()
	results := make([]func() api.OperationResult, len(ops))
	err := c.Update(ctx, func(tx *client.Tx) error {
		for i, o := range ops {
			switch {
			case o.Write != nil:
				var w *message.Result
				if o.Write.Expected != nil {
					w = n.In(tx).WriteAfter(o.Write.Stream, *o.Write.Expected, o.Write.Store()...)
				} else {
					w = n.In(tx).Write(o.Write.Stream, o.Write.Store()...)
				}
				results[i] = func() api.OperationResult {
					return api.OperationResult{Written: &api.Written{Position: w.Position, Global: w.Global, Repeated: w.Repeated}}
				}
			case o.Append != nil:
				var e *event.Result
				if log := n.Log(o.Append.Log).In(tx); o.Append.After != nil {
					e = log.AppendAfter(*o.Append.After, o.Append.Store()...)
				} else {
					e = log.Append(o.Append.Store()...)
				}
				results[i] = func() api.OperationResult {
					a := api.Appended(*e)
					return api.OperationResult{Appended: &a}
				}
			default:
				var list []task.Result
				if o.Enqueue != nil {
					list = k.In(tx).Enqueue(api.Specs(o.Enqueue.Tasks)...)
				} else {
					list = k.In(tx).Complete(task.Lease{Task: task.Task{Spec: task.Spec{ID: o.Complete.ID}},
						Token: o.Complete.Token}, api.Specs(o.Complete.Then)...)
				}
				results[i] = func() (to api.OperationResult) {
					for _, e := range list {
						to.Enqueued = append(to.Enqueued, api.Enqueued(e))
					}
					return to
				}
			}
		}
		return nil
	})
	list := make([]api.OperationResult, len(ops))
	for i := range list {
		if err == nil {
			list[i] = results[i]()
		}
	}
	return list, err
}

// names: those that can stand in a path arrive as they are, and others are not sent.
func (r *scenario) names(ctx context.Context, c *client.Client, n *client.Namespace, s *step) error {
	k := n.Tasks()
	for i, name := range s.Good {
		m := message.Message{Type: "T", Data: fmt.Appendf(nil, `{"n":%d}`, i)}
		_, err := n.WriteAfter(ctx, name, message.NoStream, m)
		v, ok, err2 := n.Version(ctx, name)
		err3 := n.SavePosition(ctx, name, 1)
		at, err4 := n.LoadPosition(ctx, name)
		_, err5 := k.Enqueue(ctx, task.Spec{ID: name, Kind: "k"})
		t, err6 := k.Get(ctx, name)
		if err := errors.Join(err, err2, err3, err4, err5, err6); err != nil || !ok || v != 0 || at != 1 || t.ID != name {
			return fmt.Errorf("%q: version %d, %v, position %d, task %q, %w", name, v, ok, at, t.ID, err)
		}
	}
	list, err := n.Streams(ctx, "", "", 0)
	var names []string
	for _, x := range list {
		names = append(names, x.Stream)
	}
	good := slices.Sorted(slices.Values(s.Good))
	if slices.Sort(names); err != nil || !slices.Equal(names, good) {
		return fmt.Errorf("the streams are %q, %w", names, err)
	}

	r.h.Clear()
	for _, name := range s.Bad {
		_, _, version := n.Version(ctx, name)
		_, deleted := n.Delete(ctx, name)
		_, position := n.LoadPosition(ctx, name)
		_, info := n.Subscription(name).Info(ctx)
		_, got := k.Get(ctx, name)
		_, namespace := c.DeleteNamespace(ctx, name)
		_, follow := collect(n.Log(name).Follow(ctx, 0), api.FromEvent)
		for i, err := range []error{version, deleted, position, info, got, namespace, n.Log(name).Delete(ctx),
			k.Pause(ctx, name), c.RevokeToken(ctx, name), n.Log("l").DeleteOffset(ctx, name), follow} {
			if d, _ := described(err).(map[string]any); d["code"] != api.CodeBadRequest {
				return fmt.Errorf("%q, %d: %w", name, i, err)
			}
		}
	}
	if tries := r.h.Tries(); len(tries) > 0 {
		return fmt.Errorf("sent: %q", tries)
	}
	return nil
}

// scripted is a kind of which there is no task: a runner needs one. The tasks of scenarios are run by the middleware.
type scripted struct{}

func (scripted) Kind() string { return "scripted" }

// work runs tasks as a script says, by kind and attempt.
func (r *scenario) work(k *client.Tasks, s *step) error {
	ctx, stop := context.WithCancel(r.ctx)
	w := &workers{stop: stop, ended: make(chan error, 1)}
	r.workers[s.As] = w
	var mu sync.Mutex
	calls := map[string]int{}
	act := func(next worker.Handler) worker.Handler {
		return func(ctx context.Context, x *worker.Execution) error {
			script := s.Script[x.Kind]
			if len(script) == 0 {
				return next(ctx, x)
			}
			mu.Lock()
			what, text, _ := strings.Cut(script[min(calls[x.Kind], len(script)-1)], ":")
			calls[x.Kind]++
			mu.Unlock()
			ms, _ := strconv.Atoi(text)
			switch what {
			case "fail":
				return errors.New(text)
			case "dead":
				return worker.Dead(errors.New(text))
			case "snooze":
				return worker.Snooze(time.Duration(ms) * time.Millisecond)
			case "sleep":
				time.Sleep(time.Duration(ms) * time.Millisecond)
			case "output":
				return x.SetOutput(ctx, []byte(text))
			case "then":
				_, err := x.CompleteThen(ctx, task.Spec{Kind: text, Queue: "then"})
				return err
			case "wait":
				w.mu.Lock()
				w.waits++
				w.mu.Unlock()
				<-ctx.Done()
				cause := context.Cause(ctx)
				saw := map[error]string{task.ErrCancelled: api.CodeCancelled, task.ErrLeaseLost: api.CodeLeaseLost,
					worker.ErrStopping: "stopping"}[cause]
				w.mu.Lock()
				w.waits--
				if len(w.saw) == 0 || w.saw[len(w.saw)-1] != saw {
					w.saw = append(w.saw, saw)
				}
				w.mu.Unlock()
				return cause
			}
			return nil
		}
	}
	var ws worker.Workers
	worker.Register(&ws, func(context.Context, *worker.Task[scripted]) error { return nil })
	runner, err := worker.New(k, &ws, worker.Options{Queues: s.Queues, Concurrency: s.Concurrency,
		Lease: time.Duration(s.LeaseMS) * time.Millisecond, Grace: time.Duration(s.GraceMS) * time.Millisecond,
		Middleware: []worker.Middleware{act}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	go func() { w.ended <- runner.Run(ctx) }()
	return nil
}

// storm writes from eight writers, follows, and works, while the server is killed.
func (r *scenario) storm(ctx context.Context, s *step) (any, error) {
	if night.Is() {
		if err := json.Unmarshal(*s.Night, s); err != nil {
			return nil, err
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(r.ctx, time.Hour)
		defer cancel()
	}
	var total, tasks int
	if err := errors.Join(json.Unmarshal(s.Messages, &total), json.Unmarshal(s.Tasks, &tasks)); err != nil {
		return nil, err
	}
	s.With.Direct, s.With.RetryMS = true, 300_000
	n := r.client(s).Namespace(r.ns)
	k := n.Tasks()
	if err := r.work(k, &step{As: "storm", LeaseMS: 3000, Script: map[string][]string{"k": {"ok"}}}); err != nil {
		return nil, err
	}
	f := &follower{}
	following, stop := context.WithCancel(ctx)
	defer stop()
	go track(f, n.Follow(following, message.Query{Category: "s"}),
		func(m *message.Message) (any, int64) { return string(m.Data), m.Global })

	var done atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, 9)
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < total; i += 8 {
				m := message.Message{Type: "T", Data: fmt.Appendf(nil, `{"n":%d,"text":"ü🦊"}`, i)}
				_, err := n.Write(ctx, fmt.Sprintf("s-%d", w), m)
				if err == nil && i < tasks {
					_, err = k.Enqueue(ctx, task.Spec{ID: fmt.Sprintf("t-%d", i), Kind: "k", Keep: time.Hour})
				}
				if err != nil {
					errs <- err
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Go(func() {
		for i := 1; i <= s.Kills; i++ {
			if err := until(ctx, func() bool { return done.Load() >= int64(total*i/(s.Kills+1)) || len(errs) > 0 }); err != nil {
				errs <- err
				return
			}
			_, err := r.h.Do([]string{"stop", "kill"}[i%2], conformance.Fault{})
			if err = errors.Join(err, r.h.StartServer()); err != nil {
				errs <- err
				return
			}
		}
	})
	wg.Wait()
	select {
	case err := <-errs:
		return nil, err
	default:
	}

	err := until(ctx, func() bool { return f.count() >= total || f.ended() != nil })
	if err = errors.Join(err, f.ended()); err != nil {
		return nil, err
	}
	there, err := collect(
		n.Read(ctx, message.Query{Category: "s"}),
		func(m *message.Message) any { return string(m.Data) },
	)
	if err != nil {
		return nil, err
	}
	open := math.MaxInt
	err = until(ctx, func() bool {
		counts, err := k.Count(ctx, task.DefaultQueue)
		if err == nil {
			open = tasks - counts[task.Completed]
		}
		return open == 0
	})
	if err = errors.Join(err, r.workers["storm"].end()); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	different := func(list []any) int {
		set := map[any]bool{}
		for _, x := range list {
			set[x] = true
		}
		return len(set)
	}
	return map[string]int{"lost": total - different(there), "twice": len(there) - different(there),
		"followed_lost": total - different(f.got), "followed_twice": len(f.got) - different(f.got), "tasks_open": open}, nil
}

// TestUnlike: the comparison of scenarios finds what is not as it is wanted.
func TestUnlike(t *testing.T) {
	for _, c := range []struct {
		want, got string
		alike     bool
	}{
		{`1`, `1`, true}, {`1`, `2`, false}, {`""`, `null`, true}, {`false`, `null`, true}, {`0`, `null`, false},
		{`null`, `null`, true}, {`null`, `1`, false}, {`{"a":1}`, `{"a":1,"b":2}`, true}, {`{"a":1}`, `{"b":1}`, false},
		{`{"a":1}`, `null`, false}, {`[]`, `[]`, true}, {`[]`, `[1]`, false}, {`[1,2]`, `[1]`, false},
		{`[{"a":1}]`, `[{"a":2}]`, false}, {`{"$least":2}`, `2`, true}, {`{"$least":2}`, `1`, false},
		{`{"$length":2}`, `"ab"`, true}, {`{"$length":2}`, `"a"`, false}, {`{"$length":2}`, `null`, false},
		{`{"$numbered":[2,3]}`, `[{"data":{"n":2}},{"data":{"n":3}}]`, true},
		{`{"$numbered":[2,3]}`, `[{"data":{"n":3}},{"data":{"n":2}}]`, false},
		{`{"$numbered":[2,3]}`, `[{"data":{"n":2}},{"data":{"n":2}},{"data":{"n":3}}]`, false},
		{`{"$numbered":[2,3]}`, `[{"data":{"n":2}}]`, false},
	} {
		if text := unlike(generic(json.RawMessage(c.want)), generic(json.RawMessage(c.got)), ""); (text == "") != c.alike {
			t.Errorf("%s and %s: %q", c.want, c.got, text)
		}
	}
}
