package v1_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast/engine/mem"
	core "github.com/holdfastdb/holdfast/server"
)

// TestAnswersNameIt: an answer says what is wrong by the names that the request has.
func TestAnswersNameIt(t *testing.T) {
	s := start(t, mem.New(), core.Options{})
	const ns = "/v1/namespaces/default"
	for _, c := range [][4]string{
		{"GET", ns + "/positions/mails", "", `there is none of the name "mails"`},
		{"POST", ns + "/leases/output", `{"id":"t","token":"1","output":""}`, "the field token is string"},
		{"POST", "/v1/transactions", `{"operations":[{"namespace":"default","complete":{"id":"t","token":[]}}]}`,
			"the field operations.complete.token is array"},
		{"POST", ns + "/logs/a/import", fmt.Sprintf("{\"position\":%d,\"type\":\"t\"}\n", int64(math.MaxInt64)),
			"the lines up to line 1: "},
		{"GET", ns + "/messages?stream=a%0Ab", "", `bad name: "a\nb": the name "a\nb" has a control character`},
	} {
		_, answer := s.send(c[0], c[1], c[2])
		var p struct{ Detail string }
		if err := json.Unmarshal([]byte(answer), &p); err != nil || !strings.Contains(p.Detail, c[3]) {
			t.Errorf("%s %s %s: %s, which has no %q", c[0], c[1], c[2], answer, c[3])
		}
	}
}

// TestNames: whatever is called something follows one rule: names are UTF-8 without control characters. What cannot be
// called that is refused with 400 and makes nothing, and other names are as they were given.
func TestNames(t *testing.T) {
	s := start(t, nil, core.Options{})
	for path, body := range map[string]string{
		"/messages":      `{"stream":"a-1","messages":[{"type":"t","data":{}}]}`,
		"/logs/l/events": `{"events":[{"type":"t","data":"e30="}]}`,
		"/tasks":         `{"tasks":[{"kind":"k"}]}`,
	} {
		if resp, text := s.send("POST", in(path), body); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status, string(text))
		}
	}
	path := func(before, after, body string) func(name string) (method, path, body string) {
		method, before, _ := strings.Cut(before, " ")
		return func(name string) (string, string, string) {
			return method, in(before + url.PathEscape(name) + after), body
		}
	}
	body := func(at, body string) func(name string) (method, path, body string) {
		return func(name string) (string, string, string) {
			text, err := json.Marshal(name)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(at, "/v1") {
				at = in(at)
			}
			return "POST", at, strings.ReplaceAll(body, "NAME", string(text))
		}
	}
	kinds := map[string]func(name string) (method, path, body string){
		"stream":                body("/messages", `{"stream":NAME,"messages":[{"type":"t","data":{}}]}`),
		"stream in the path":    path("PUT /streams/", "/retention", `{"max_count":1}`),
		"position":              path("PUT /positions/", "", `{"position":1}`),
		"subscription":          path("PUT /subscriptions/", "", `{"from":0}`),
		"log":                   path("POST /logs/", "/events", `{"events":[{"type":"t","data":"e30="}]}`),
		"subscription of a log": path("PUT /logs/l/offsets/", "", `{"position":1}`),
		"task":                  body("/tasks", `{"tasks":[{"kind":"k","id":NAME}]}`),
		"kind":                  body("/tasks", `{"tasks":[{"kind":NAME}]}`),
		"queue":                 body("/tasks", `{"tasks":[{"kind":"k","queue":NAME}]}`),
		"sequence":              body("/tasks", `{"tasks":[{"kind":"k","sequence":NAME}]}`),
		"unique":                body("/tasks", `{"tasks":[{"kind":"k","unique":NAME}]}`),
		"worker":                body("/tasks/claim", `{"worker":NAME}`),
		"queue of a claim":      body("/tasks/claim", `{"queues":[NAME]}`),
		"queue in the path":     path("PUT /queues/", "", `{}`),
		"namespace":             body("/v1/namespaces", `{"id":NAME}`),
		"token":                 body("/v1/tokens", `{"namespace":"*","role":"read","description":NAME}`),
	}
	for kind, request := range kinds {
		good := "n\u00fcr-1 \u4e16"
		if kind == "namespace" {
			good = "n1"
		}
		before := contents(t, s.engine)
		for _, bad := range []string{"a\x00b", "a\nb", "\x1b[2J", "a\x7f", "a\u0085b", "a\u009bb"} {
			method, path, text := request(bad)
			if resp, answer := s.send(method, path, text); resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s %q: %s %s: %s %s", kind, bad, method, path, resp.Status, answer)
			}
		}
		if after := contents(t, s.engine); after != before {
			t.Errorf("%s: refused names have made something: from\n%s\nto\n%s", kind, before, after)
		}
		method, path, text := request(good)
		if resp, answer := s.send(method, path, text); resp.StatusCode/100 != 2 {
			t.Errorf("%s %q: %s %s: %s %s", kind, good, method, path, resp.Status, answer)
		}
	}
}
