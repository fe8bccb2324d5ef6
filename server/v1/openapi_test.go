package v1_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	core "github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
)

// The document is valid OpenAPI 3.1, and names the routes that are served below /v1, each with its role, and no others.
func TestOpenAPI(t *testing.T) {
	s := start(t, nil, core.Options{}).server
	get := func(path string) (*http.Response, []byte) {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return w.Result(), w.Body.Bytes()
	}
	resp, text := get("/openapi.json")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatal(resp.Status, resp.Header)
	}
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	schemas := jsonschema.NewCompiler() // of draft 2020-12, as OpenAPI 3.1 has them
	if err := schemas.AddResource("doc:openapi", whole); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		OpenAPI string
		Info    struct{ Title, Version string }
		Paths   map[string]map[string]struct {
			OperationID, Summary, Description string
			Parameters                        []struct{ Name, In string }
			Responses                         map[string]struct{ Description string }
		}
		Components struct {
			Schemas map[string]struct{ Description string }
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/tasks/claim", "/subscriptions/{name}/claim"} {
		if about := doc.Paths["/v1/namespaces/{ns}"+path]["post"].Description; !strings.Contains(about, "about 8 MiB of ") {
			t.Errorf("%s does not say how much is claimed at most: %s", path, about)
		}
	}
	if doc.OpenAPI != "3.1.0" || doc.Info.Title == "" || doc.Info.Version == "" {
		t.Errorf("it begins with %q, %+v", doc.OpenAPI, doc.Info)
	}
	check := func(at string) {
		if _, err := schemas.Compile("doc:openapi#" + at); err != nil {
			t.Errorf("%s is no schema: %v", at, err)
		}
	}
	// Every schema, and every reference in one, is followed, wherever it stands.
	var walk func(v any, at string)
	walk = func(v any, at string) {
		switch v := v.(type) {
		case map[string]any:
			for name, of := range v {
				below := at + "/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name)
				if name == "schema" || at == "/components/schemas" {
					check(below)
				} else {
					walk(of, below)
				}
			}
		case []any:
			for i, of := range v {
				walk(of, fmt.Sprint(at, "/", i))
			}
		}
	}
	walk(whole, "")
	ids := map[string]bool{}
	var named, served []string
	for path, methods := range doc.Paths {
		for method, op := range methods {
			named = append(named, strings.ToUpper(method)+" "+path)
			if op.OperationID == "" || ids[op.OperationID] || op.Summary == "" || len(op.Responses) == 0 {
				t.Errorf("%s %s has no name of its own, summary or responses", method, path)
			}
			ids[op.OperationID] = true
			for status, r := range op.Responses {
				if r.Description == "" {
					t.Errorf("%s %s: the response %s has no description", method, path, status)
				}
			}
			for _, p := range op.Parameters {
				if (p.In == "path") != strings.Contains(path, "{"+p.Name+"}") {
					t.Errorf("%s %s: the parameter %q is in %q", method, path, p.Name, p.In)
				}
			}
		}
	}
	for _, r := range s.Routes() {
		// What the metrics are called in /v1 is another package's.
		if !strings.HasPrefix(r.Pattern, "/v1/") || r.Pattern == "/v1/metrics" {
			continue
		}
		served = append(served, r.Method+" "+r.Pattern)
		op := doc.Paths[r.Pattern][strings.ToLower(r.Method)]
		if want := "Needs the role " + r.Role.String(); r.Role == auth.None || !strings.Contains(op.Description, want) {
			t.Errorf("%s %s: %q does not say %q", r.Method, r.Pattern, op.Description, want)
		}
	}
	slices.Sort(named)
	slices.Sort(served)
	if !slices.Equal(named, served) {
		t.Errorf("the document names\n%s\nserved are\n%s", strings.Join(named, "\n"), strings.Join(served, "\n"))
	}
	for name, schema := range doc.Components.Schemas {
		if schema.Description == "" {
			t.Errorf("the schema %s has no description", name)
		}
	}

	// What clients that are made of it rely on, and what readers of it can understand.
	at := func(path ...string) any {
		v := whole
		for _, name := range path {
			m, _ := v.(map[string]any)
			v = m[name]
		}
		return v
	}
	for want, path := range map[string][]string{
		"MIT":                      {"info", "license", "identifier"},
		"[position time]":          {"components", "schemas", "Event", "required"},
		"uuid":                     {"components", "schemas", "NewMessage", "properties", "id", "format"},
		"object":                   {"components", "schemas", "NewMessage", "properties", "data", "type"},
		"1":                        {"components", "schemas", "Write", "properties", "messages", "minItems"},
		"1024":                     {"components", "schemas", "Write", "properties", "stream", "maxLength"},
		"[admin write query read]": {"components", "schemas", "NewToken", "properties", "role", "enum"},
		"binary": {"paths", "/v1/namespaces/{ns}/export", "get", "responses", "200", "content", "application/gzip", "schema",
			"format"},
	} {
		if got := at(path...); fmt.Sprint(got) != want {
			t.Errorf("%v is %v, want %s", path, got, want)
		}
	}
	if servers, _ := at("servers").([]any); len(servers) != 1 {
		t.Errorf("servers: %v", servers)
	}
	for _, word := range []string{"task.Spec", "message.M", "event.M", "event.Options", "holdfast.Err", "DelayMS",
		"BackoffMaxMS"} {
		if strings.Contains(string(text), word) {
			t.Errorf("it says %q, which is Go", word)
		}
	}
	resp, text = get("/openapi.yaml")
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(text), "openapi: 3.1.0") {
		t.Errorf("%s: %.200s", resp.Status, text)
	}
}
