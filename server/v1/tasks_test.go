package v1_test

import (
	"net/http"
	"testing"

	"github.com/holdfastdb/holdfast/api"
	core "github.com/holdfastdb/holdfast/server"
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
	if l := do[api.Leases](s, http.MethodPost, in("/tasks/claim"), api.ClaimTasks{WaitMS: 1}); l.Leases == nil || len(l.Leases) != 0 {
		t.Errorf("%+v", l)
	}
}
