// Package documenttest has the test of the OpenAPI document. It is apart from package v1 because what validates the
// document takes longer to compile than everything else there.
package documenttest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
)

// The document is valid OpenAPI 3.1, and names the routes that are served below /v1, each with its role, and no others.
func TestOpenAPI(t *testing.T) {
	engine := mem.New()
	d, err := data.Open(engine, data.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s, err := server.New(d, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) (*http.Response, []byte) {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return w.Result(), w.Body.Bytes()
	}
	resp, text := get("/openapi.json")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatal(resp.Status, resp.Header)
	}
	parsed, err := libopenapi.NewDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(parsed)
	for _, err := range errs {
		t.Error(err)
	}
	if len(errs) > 0 {
		return
	}
	if parsed.GetVersion() != "3.1.0" {
		t.Errorf("version %q", parsed.GetVersion())
	}
	_, problems := v.ValidateDocument()
	for _, p := range problems {
		t.Errorf("%s: %s", p.Message, p.Reason)
		for _, e := range p.SchemaValidationErrors {
			t.Errorf("%s at %s", e.Reason, e.KeywordLocation)
		}
	}
	var doc struct {
		Paths      map[string]map[string]struct{ OperationID, Summary, Description string }
		Components struct {
			Schemas map[string]struct{ Description string }
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	var named, served []string
	for path, methods := range doc.Paths {
		for method, op := range methods {
			named = append(named, strings.ToUpper(method)+" "+path)
			if op.OperationID == "" || op.Summary == "" {
				t.Errorf("%s %s has no name or summary", method, path)
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
	resp, text = get("/openapi.yaml")
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(text), "openapi: 3.1.0") {
		t.Errorf("%s: %.200s", resp.Status, text)
	}
}
