package clienttest_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// failedOver gives Quorum to commits that ask for Power, as the contract asks of an engine whose failover answers a
// power cut.
type failedOver struct{ *storetest.LevelEngine }

func (e failedOver) Capabilities() holdfast.Capabilities {
	c := e.LevelEngine.Capabilities()
	c.Power = holdfast.Promise{Given: holdfast.Quorum, How: "as quorum", Why: "a power cut is answered by a failover"}

	return c
}

// quorumWrites are requests that write.
var quorumWrites = map[string]struct{ path, body string }{
	"message": {"/v1/namespaces/default/messages", `{"stream": "a-1", "messages": [{"type": "T", "data": {}}]}`},
	"event":   {"/v1/namespaces/default/logs/l/events", `{"events": [{"type": "T", "data": "e30="}]}`},
	"task":    {"/v1/namespaces/default/tasks", `{"tasks": [{"kind": "k"}]}`},
	"transaction": {"/v1/transactions", `{"operations": [{"namespace": "default", "write": {"stream": "a-2", ` +
		`"messages": [{"type": "T", "data": {}}]}}]}`},
}

// A write that names the level quorum is applied at it, by each store, over HTTP and by the client, and the answer
// says so; where a failover answers a power cut, so does the answer to one at power. On one machine it is refused.
func TestQuorum(t *testing.T) {
	ask := func(t *testing.T, e holdfast.Engine, own holdfast.Level, level, what string) (status int, told, body string) {
		t.Helper()
		c, d := serveOn(t, e, own)
		w := quorumWrites[what]
		if what == "event" {
			_, err := c.Namespace(message.Default).Log("l").Append(ctx, event.Event{Type: "first"})
			check(t, err)
		}
		token := auth.NewNamespaceSecret(message.Default) // instead of the client's
		check(t, d.Tokens().SetOwn(ctx, message.Default, token))
		if l, ok := e.(interface{ Applied() []holdfast.Level }); ok {
			l.Applied()
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Address()+w.path, strings.NewReader(w.body))
		check(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set(api.HeaderLevel, level)
		answer, err := http.DefaultClient.Do(r)
		check(t, err)
		text, err := io.ReadAll(answer.Body)
		check(t, errors.Join(err, answer.Body.Close()))

		return answer.StatusCode, answer.Header.Get(api.HeaderLevel), string(text)
	}

	for what := range quorumWrites {
		t.Run(what, func(t *testing.T) {
			e := storetest.NewLevelEngine()
			status, told, body := ask(t, e, holdfast.Process, "quorum", what)
			if at := e.Applied(); status/100 != 2 || told != "quorum" || !slices.Contains(at, holdfast.Quorum) {
				t.Errorf("%d, told %q, applied at %v: %s", status, told, at, body)
			}

			over := failedOver{storetest.NewLevelEngine()}
			if status, told, body := ask(t, over, holdfast.Process, "power", what); status/100 != 2 || told != "quorum" {
				t.Errorf("at power: %d, told %q: %s", status, told, body)
			}

			status, told, body = ask(t, mem.New(), holdfast.Memory, "quorum", what)
			var p api.Problem
			check(t, json.Unmarshal([]byte(body), &p))
			if status != 400 || told != "" || p.Code != api.CodeLevel || !strings.Contains(p.Detail, "on one machine") {
				t.Errorf("on one machine: %d, told %q: %s", status, told, body)
			}
		})
	}
}

// The client passes the level of a context on; and a server that is at quorum writes everything at it.
func TestQuorumOfTheClient(t *testing.T) {
	at := holdfast.WithLevel(ctx, holdfast.Quorum)
	for _, own := range []holdfast.Level{holdfast.Process, holdfast.Quorum} {
		e := storetest.NewLevelEngine()
		c, _ := serveOn(t, e, own)
		s, err := c.Server(ctx)
		check(t, err)
		if s.Level != own.String() || s.Unsynced != (own < holdfast.Power) {
			t.Errorf("a server at %v says %q, unsynced %v", own, s.Level, s.Unsynced)
		}
		n := c.Namespace(message.Default)
		for name, write := range map[string]func() error{
			"message": func() error {
				_, err := n.Write(at, "a-1", message.Message{Type: "T", Data: []byte("{}")})
				return err
			},
			"event": func() error { _, err := n.Log("l").Append(at, event.Event{Type: "T"}); return err },
			"task":  func() error { _, err := n.Tasks().Enqueue(at, task.Spec{Kind: "k"}); return err },
		} {
			e.Applied()
			check(t, write())
			if levels := e.Applied(); !slices.Contains(levels, holdfast.Quorum) {
				t.Errorf("%s by the client at a server of %v: applied at %v", name, own, levels)
			}
		}
	}

	c, _ := serve(t)
	_, err := c.Namespace(message.Default).Write(at, "a-1", message.Message{Type: "T", Data: []byte("{}")})
	if !errors.Is(err, holdfast.ErrLevel) || !strings.Contains(err.Error(), "on one machine") {
		t.Errorf("on one machine: %v", err)
	}
}
