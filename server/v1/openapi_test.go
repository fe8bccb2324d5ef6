package v1_test

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	core "github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
)

var update = flag.Bool("update", false, "write docs.json anew from the comments of package api")

// TestDocs checks that docs.json has the comments of package api.
func TestDocs(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../api/api.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	docs := map[string]string{}
	add := func(name string, groups ...*ast.CommentGroup) {
		var texts []string
		for _, g := range groups {
			if text := strings.Join(strings.Fields(g.Text()), " "); text != "" {
				texts = append(texts, text)
			}
		}
		if len(texts) > 0 {
			docs[name] = strings.Join(texts, " ")
		}
	}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		for _, spec := range g.Specs {
			s := spec.(*ast.TypeSpec)
			add(s.Name.Name, g.Doc, s.Doc)
			fields, ok := s.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, field := range fields.Fields.List {
				for _, name := range field.Names {
					add(s.Name.Name+"."+name.Name, field.Doc, field.Comment)
				}
			}
		}
	}
	want, err := json.MarshalIndent(docs, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile("docs.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile("docs.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("docs.json is not what package api says: run go test ./server/v1 -run TestDocs -update")
	}
}

// The document is valid OpenAPI 3.1, and names the routes that are served below /v1, each with its role, and no others.
func TestOpenAPI(t *testing.T) {
	s := start(t, nil, core.Options{})
	resp, text := s.send(http.MethodGet, "/openapi.json", nil, "Authorization", "")
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
	for _, r := range s.server.Routes() {
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
	resp, text = s.send(http.MethodGet, "/openapi.yaml", nil, "Authorization", "")
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(text), "openapi: 3.1.0") {
		t.Errorf("%s: %.200s", resp.Status, text)
	}
}
