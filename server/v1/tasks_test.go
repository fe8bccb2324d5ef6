package v1_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/internal/testkit"
	core "github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/route"
	v1 "github.com/holdfastdb/holdfast/server/v1"
	"github.com/holdfastdb/holdfast/store/task"
)

func TestEnqueueClaimComplete(t *testing.T) {
	s := start(t, nil, core.Options{})
	done := make(chan api.Leases)
	go func() {
		done <- do[api.Leases](s, http.MethodPost, in("/tasks/claim"), api.ClaimTasks{N: 5, Worker: "w", WaitMS: 60_000})
	}()
	r := do[api.EnqueueResult](s, http.MethodPost, in("/tasks"), api.Enqueue{Tasks: []api.NewTask{
		{Kind: "mail", Payload: []byte("\x00\xff"), Unique: "u", BackoffFirstMS: 10}}})
	if len(r.Results) != 1 || r.Results[0].ID == "" || r.Results[0].Existing {
		t.Fatalf("%+v", r)
	}
	l := (<-done).Leases
	if len(l) != 1 || l[0].Task.ID != r.Results[0].ID || string(l[0].Task.Payload) != "\x00\xff" || l[0].Token == 0 ||
		l[0].Task.State != "running" || l[0].Task.BackoffFirstMS != 10 {
		t.Fatalf("%+v", l)
	}
	again := do[api.EnqueueResult](s, http.MethodPost, in("/tasks"), api.Enqueue{Tasks: []api.NewTask{
		{Kind: "mail", Unique: "u"}}})
	if !again.Results[0].Existing || again.Results[0].ID != r.Results[0].ID {
		t.Errorf("%+v", again)
	}
	refs := api.LeaseRefs{Leases: []api.LeaseRef{{ID: l[0].Task.ID, Token: l[0].Token}, {ID: "none", Token: 1}}}
	results := do[api.LeaseResults](s, http.MethodPost, in("/leases/complete"), refs).Results
	if len(results) != 2 || results[0].Code != "" || results[1].Code != api.CodeLeaseLost {
		t.Errorf("%+v", results)
	}
	if l := do[api.Leases](s, http.MethodPost, in("/tasks/claim"), api.ClaimTasks{WaitMS: 1}); l.Leases == nil ||
		len(l.Leases) != 0 {
		t.Errorf("%+v", l)
	}
}

// 64 clients claim and complete: no task is held twice, and each is completed once.
func TestManyClients(t *testing.T) {
	s := start(t, nil, core.Options{})
	const tasks, clients = 640, 64
	var mu sync.Mutex
	held, completed := map[string]bool{}, 0
	tokens := map[uint64]bool{}
	var all sync.WaitGroup
	for w := range clients {
		all.Go(func() {
			for {
				mu.Lock()
				enough := completed == tasks
				mu.Unlock()
				if enough {
					return
				}
				l := do[api.Leases](s, "POST", in("/tasks/claim"), api.ClaimTasks{N: 3, WaitMS: 20, LeaseMS: 600_000,
					Worker: fmt.Sprint("w", w)}).Leases
				if len(l) == 0 {
					continue
				}
				var done api.LeaseRefs
				mu.Lock()
				for _, l := range l {
					if held[l.Task.ID] || tokens[l.Token] {
						t.Errorf("task %s is held twice", l.Task.ID)
					}
					held[l.Task.ID], tokens[l.Token] = true, true
					done.Leases = append(done.Leases, api.LeaseRef{ID: l.Task.ID, Token: l.Token})
				}
				mu.Unlock()
				for _, r := range do[api.LeaseResults](s, "POST", in("/leases/complete"), done).Results {
					if r.Code != "" {
						t.Errorf("completed: %+v", r)
					}
				}
				mu.Lock()
				completed += len(l)
				mu.Unlock()
			}
		})
	}
	all.Go(func() {
		for range tasks / 20 {
			var e api.Enqueue
			for range 20 {
				e.Tasks = append(e.Tasks, api.NewTask{Kind: "k"})
			}
			do[api.EnqueueResult](s, "POST", in("/tasks"), e)
		}
	})
	all.Wait()
	if q := do[api.Queue](s, "GET", in("/queues/default"), nil); q.Counts["completed"] != tasks {
		t.Errorf("%+v", q)
	}
}

func claimTask(s *server) api.Lease {
	s.t.Helper()
	l := do[api.Leases](s, "POST", in("/tasks/claim"), api.ClaimTasks{WaitMS: 60_000, LeaseMS: 600_000}).Leases
	if len(l) != 1 {
		s.t.Fatal("claimed ", l)
	}
	return l[0]
}

func TestTasks(t *testing.T) {
	s := start(t, nil, core.Options{})
	if list := do[[]api.Queue](s, "GET", in("/queues"), nil); list == nil || len(list) != 0 {
		t.Errorf("queues before there is a task: %v", list)
	}
	if list := do[api.Tasks](s, "GET", in("/tasks"), nil); list.Tasks == nil || len(list.Tasks) != 0 {
		t.Errorf("tasks before there is one: %v", list)
	}
	s.refused(api.CodeNotFound, "GET", in("/tasks/a"), nil)
	if there, err := task.Exists(s.engine, ""); err != nil || there {
		t.Errorf("reading has made a task store: %v", err)
	}
	add := func(tasks ...api.NewTask) {
		t.Helper()
		do[api.EnqueueResult](s, "POST", in("/tasks"), api.Enqueue{Tasks: tasks})
	}
	state := func(id, want string) (got api.Task) {
		t.Helper()
		if got = do[api.Task](s, "GET", in("/tasks/"+id), nil); got.State != want {
			t.Errorf("task %s is %s, want %s", id, got.State, want)
		}
		return got
	}
	ref := func(l api.Lease) api.LeaseRef { return api.LeaseRef{ID: l.Task.ID, Token: l.Token} }

	add(api.NewTask{ID: "a", Kind: "k", MaxAttempts: 2, BackoffFirstMS: 1, BackoffMaxMS: 1, Payload: []byte("p")})
	l := claimTask(s)
	do[any](s, "POST", in("/leases/output"), api.TaskOutput{LeaseRef: ref(l), Output: []byte("half")})
	beat := do[api.LeaseResults](s, "POST", in("/leases/heartbeat"), api.LeaseRefs{Leases: []api.LeaseRef{ref(l),
		{ID: "a", Token: 1}}}).Results
	if beat[0].Until.IsZero() || beat[0].Code != "" || beat[1].Code != api.CodeLeaseLost {
		t.Errorf("heartbeat: %+v", beat)
	}
	do[any](s, "POST", in("/leases/snooze"), api.SnoozeTask{LeaseRef: ref(l)})
	s.refused(api.CodeLeaseLost, "POST", in("/leases/snooze"), api.SnoozeTask{LeaseRef: ref(l)})
	l = claimTask(s)
	do[any](s, "POST", in("/leases/fail"), api.FailTask{LeaseRef: ref(l), Failure: api.TaskFailure{Message: "no"}})
	l = claimTask(s)
	if l.Task.Attempt != 2 || string(l.Task.Output) != "half" {
		t.Errorf("after a snooze and a failure: %+v", l)
	}
	do[any](s, "POST", in("/leases/fail"), api.FailTask{LeaseRef: ref(l), Failure: api.TaskFailure{Message: "never"}})
	if a := state("a", "dead"); len(a.Failures) != 2 || a.Failures[1].Message != "never" {
		t.Errorf("%+v", a)
	}
	s.refused(api.CodeState, "POST", in("/tasks/a/cancel"), nil)
	if n := do[api.Counted](s, "POST", in("/queues/default/retry"), nil); n.Count != 1 {
		t.Errorf("retried %d", n.Count)
	}
	l = claimTask(s)
	do[any](s, "POST", in("/leases/fail"), api.FailTask{LeaseRef: ref(l), Dead: true})
	do[any](s, "POST", in("/tasks/a/retry"), nil)
	l = claimTask(s)
	then := do[api.EnqueueResult](s, "POST", in("/leases/complete-then"), api.CompleteTask{LeaseRef: ref(l),
		Then: []api.NewTask{{ID: "b", Kind: "k"}}})
	if len(then.Results) != 1 || then.Results[0].ID != "b" {
		t.Errorf("%+v", then)
	}
	state("a", "completed")
	s.refused(api.CodeLeaseLost, "POST", in("/leases/complete-then"), api.CompleteTask{LeaseRef: ref(l)})

	do[any](s, "POST", in("/queues/default/pause"), nil)
	if none := do[api.Leases](s, "POST", in("/tasks/claim"), api.ClaimTasks{}); none.Leases == nil ||
		len(none.Leases) != 0 {
		t.Errorf("of a paused queue: %+v", none)
	}
	do[any](s, "PUT", in("/queues/default"), api.QueueOptions{Concurrency: 3, KeyRateN: 2, KeyRatePerMS: 1000})
	if q := do[api.Queue](s, "GET", in("/queues/default"), nil); !q.Paused || q.Options.Concurrency != 3 ||
		q.Options.KeyRatePerMS != 1000 || q.Counts["waiting"] != 1 {
		t.Errorf("%+v", q)
	}
	do[any](s, "POST", in("/queues/default/resume"), nil)
	l = claimTask(s)
	s.refused(api.CodeState, "DELETE", in("/tasks/b"), nil)
	do[any](s, "POST", in("/tasks/b/cancel"), nil)
	s.refused(api.CodeCancelled, "POST", in("/leases/output"), api.TaskOutput{LeaseRef: ref(l), Output: []byte{}})
	do[any](s, "DELETE", in("/tasks/b"), nil)
	s.refused(api.CodeNotFound, "GET", in("/tasks/b"), nil)
	s.refused(api.CodeNotFound, "GET", in("/queues/none"), nil)
	s.refused(api.CodeNotFound, "POST", in("/queues/none/resume"), nil)
	s.refused(api.CodeExists, "POST", in("/tasks"), api.Enqueue{Tasks: []api.NewTask{{ID: "a", Kind: "k"}}})
	s.refused(api.CodeBadRequest, "POST", in("/tasks/claim"), api.ClaimTasks{WaitMS: -1})
	s.refused(api.CodeBadRequest, "GET", in("/tasks?state=none"), nil)
	s.refused(api.CodeNoNamespace, "POST", "/v1/namespaces/none/tasks/claim", api.ClaimTasks{})

	for i := range 5 {
		add(api.NewTask{ID: fmt.Sprint("c", i), Kind: "k", Queue: "q"})
	}
	var ids []string
	for cursor := ""; ; {
		p := do[api.Tasks](s, "GET", in("/tasks?queue=q&state=waiting&limit=2&cursor="+cursor), nil)
		for _, t := range p.Tasks {
			ids = append(ids, t.ID)
		}
		if cursor = p.Next; cursor == "" {
			break
		}
	}
	if fmt.Sprint(ids) != "[c0 c1 c2 c3 c4]" {
		t.Errorf("listed %v", ids)
	}
	if list := do[[]api.Queue](s, "GET", in("/queues"), nil); len(list) != 2 || list[1].Name != "q" {
		t.Errorf("queues: %+v", list)
	}
}

// Claims that wait end when the server stops, with nothing and without an error.
func TestClaimsEndWithTheServer(t *testing.T) {
	s := start(t, nil, core.Options{})
	do[api.Subscription](s, "PUT", in(mails), api.Subscription{Category: "order"})
	for _, r := range v1.Routes(s.data, v1.Options{}) {
		if !strings.HasSuffix(r.Pattern, "/claim") {
			continue
		}
		stopping := make(chan struct{})
		req := httptest.NewRequestWithContext(route.With(t.Context(), &route.Request{Stopping: stopping}), "POST", "/",
			strings.NewReader(`{"wait_ms": 60000}`))
		req.SetPathValue("ns", "default")
		req.SetPathValue("name", "mails")
		w := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Handler(w, req)
		}()
		close(stopping)
		<-done
		if text := strings.TrimSpace(w.Body.String()); w.Code != 200 ||
			text != `{"leases":[]}` && text != `{"deliveries":[]}` {
			t.Errorf("%s: %d %s", r.Pattern, w.Code, text)
		}
	}
}

// Claims that wait in a namespace that is deleted are told that there is none.
func TestClaimsEndWithTheNamespace(t *testing.T) {
	s := start(t, nil, core.Options{})
	do[api.Namespace](s, "POST", "/v1/namespaces", api.NewNamespace{ID: "gone"})
	const gone = "/v1/namespaces/gone"
	do[api.Subscription](s, "PUT", gone+mails, api.Subscription{Category: "order"})
	var claims sync.WaitGroup
	for _, path := range []string{"/tasks/claim", mails + "/claim"} {
		claims.Go(func() { s.refused(api.CodeNoNamespace, "POST", gone+path, `{"wait_ms": 60000}`) })
	}
	if !testkit.Holds(func() bool { return len(s.data.OpenTasks()) > 0 }) { // open while there is a claim
		t.Fatal("the claim does not arrive")
	}
	do[api.Removed](s, "DELETE", gone, nil)
	claims.Wait()
}
