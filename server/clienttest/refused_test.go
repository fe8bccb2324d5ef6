package clienttest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// rewriting changes what a server answers.
type rewriting struct{ old, new string }

func (w rewriting) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || !strings.HasSuffix(r.URL.Path, "/claim") {
		return res, err
	}
	body, err := io.ReadAll(res.Body)
	err = errors.Join(err, res.Body.Close())
	res.Body = io.NopCloser(bytes.NewReader(bytes.ReplaceAll(body, []byte(w.old), []byte(w.new))))
	res.ContentLength = -1
	return res, err
}

// TestRefusedClaims: what was claimed with an answer that the client cannot use is given back at once, however often
// that happens: it has had no attempt, and is neither parked nor dead.
func TestRefusedClaims(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the race detector makes it slow, and there is one request at a time")
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // claims wait
	defer cancel()
	whole, d := serve(t)
	token := auth.NewNamespaceSecret(message.Default)
	check(t, d.Tokens().SetOwn(ctx, message.Default, token))
	whole = withToken(t, whole, token)
	const many = 20
	n := whole.Namespace(message.Default)
	var list []message.Message
	var specs []task.Spec
	for i := range many {
		text := fmt.Sprintf(`{"global":777,"token":8,"s":"\"}]%s"}`, strings.Repeat("x", 20<<10))
		list = append(list, message.Message{Type: "t", Data: []byte(text)})
		specs = append(
			specs,
			task.Spec{ID: fmt.Sprintf("é\"%d", i), Kind: "k", MaxAttempts: 2, Payload: bytes.Repeat([]byte{1}, 20<<10)},
		)
	}
	_, err := n.Write(ctx, "a-1", list...)
	check(t, err)
	_, err = n.Tasks().Enqueue(ctx, specs...)
	check(t, err)
	_, err = n.Subscribe(ctx, "s", message.SubscriptionOptions{Lease: time.Hour, MaxAttempts: 2})
	check(t, err)

	deep := strings.Repeat(`{"a":`, 10_001) + "1" + strings.Repeat("}", 10_001)
	for what, o := range map[string]client.Options{
		"too large": {MaxResponse: 100 << 10},
		"too deep":  {HTTP: &http.Client{Transport: rewriting{`"global":777`, `"deep":` + deep}}},
		"unknown":   {HTTP: &http.Client{Transport: rewriting{`"running"`, `"resting"`}}},
		"no JSON":   {HTTP: &http.Client{Transport: rewriting{`"time":`, `"time"=`}}},
	} {
		o.Token, o.Logger = token, quiet
		c, err := client.New(whole.Address(), o)
		check(t, err)
		for range 4 { // more than there are attempts
			if what != "unknown" {
				got, err := c.Namespace(message.Default).Subscription("s").Claim(ctx, many)
				var e *client.Error
				if !errors.As(err, &e) || errors.Is(err, holdfast.ErrTooLarge) != (what == "too large") {
					t.Errorf("%s: %d messages, %v", what, len(got), err)
				}
			}
			if what == "too large" || what == "unknown" {
				leases, err := c.Namespace(message.Default).Tasks().Claim(ctx, task.ClaimOptions{N: many, Lease: time.Hour})
				var e *client.Error
				if !errors.As(err, &e) {
					t.Errorf("%s: %d tasks, %v", what, len(leases), err)
				}
			}
		}
		c.CloseIdleConnections()
	}

	got, err := n.Subscription("s").Claim(ctx, many)
	check(t, err)
	leases, err := n.Tasks().Claim(ctx, task.ClaimOptions{N: many, Lease: time.Hour})
	check(t, err)
	if len(got) != many || len(leases) != many {
		t.Errorf("%d messages and %d tasks are there, of %d", len(got), len(leases), many)
	}
	for i := range got {
		if got[i].Attempt != 1 || !json.Valid(got[i].Data) {
			t.Errorf("message %d: attempt %d", got[i].Global, got[i].Attempt)
		}
	}
	for i := range leases {
		if leases[i].Task.Attempt != 1 {
			t.Errorf("task %s: attempt %d", leases[i].Task.ID, leases[i].Task.Attempt)
		}
	}
	if i, err := n.Subscription("s").Info(ctx); err != nil || i.Parked != 0 || i.Pending != many {
		t.Errorf("%+v, %v", i, err)
	}

	// Return does it on purpose.
	check(t, n.Subscription("s").Return(ctx, got[:3]...))
	if again, err := n.Subscription("s").Claim(ctx, many); err != nil || len(again) != 3 || again[0].Attempt != 1 {
		t.Errorf("%d, %v", len(again), err)
	}
	if err := n.Subscription("s").Return(ctx, got[:3]...); !errors.Is(err, message.ErrLeaseLost) {
		t.Error(err)
	}
}
