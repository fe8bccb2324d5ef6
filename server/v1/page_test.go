package v1_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	core "github.com/holdfastdb/holdfast/server"
)

// document is what the page needs of an OpenAPI document.
type document struct {
	Paths      map[string]map[string]described
	Components struct{ Schemas map[string]pageSchema }
}

type described struct {
	OperationID, Summary, Description string
	Tags                              []string
	Parameters                        []parameter
	RequestBody                       struct{ Content map[string]media }
	Responses                         map[string]response
}

type parameter struct {
	Name, In, Description string
	Required              bool
	Schema                pageSchema
}

type response struct {
	Description string
	Content     map[string]media
	Headers     map[string]struct{ Description string }
}

type media struct{ Schema pageSchema }

type pageSchema struct {
	Ref                 string `json:"$ref"`
	Type                any    // a name, or a list of names
	Format, Description string
	ContentEncoding     string
	Enum                []any
	Items               *pageSchema
	Properties          map[string]pageSchema
	Required            []string
}

// chapters are the page's parts: tags of operations, and what stands above them.
var chapters = []struct{ tag, title string }{
	{"messages", "Messages: write, read, follow"},
	{"streams", "Streams, categories, export and import"},
	{"subscriptions", "Subscriptions and positions"},
	{"logs", "Event logs"},
	{"tasks", "Tasks and leases"},
	{"queues", "Queues and periodic tasks"},
	{"transactions", "Transactions"},
	{"query", "Queries by SQL"},
	{"namespaces", "Managing namespaces"},
	{"tokens", "Managing tokens"},
	{"server", "The server itself"},
}

// everywhere are the codes of errors that the page names once, above all operations.
var everywhere = []string{"bad_request", "unauthorized", "forbidden", "no_namespace", "too_large", "encoding",
	"too_many", "internal", "corrupt", "stopping", "fenced", "unavailable", "level", "poisoned", "full"}

// TestAPIPage keeps docs/openapi.json and docs/api.md as the server has it.
func TestAPIPage(t *testing.T) {
	w := httptest.NewRecorder()
	start(t, nil, core.Options{}).server.ServeHTTP(w,
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/openapi.json", nil))
	var text bytes.Buffer
	if err := json.Indent(&text, w.Body.Bytes(), "", "\t"); err != nil {
		t.Fatal(err)
	}
	text.WriteByte('\n')
	var doc document
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	introduction, err := os.ReadFile("testdata/api.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(introduction)
	told := 0
	for _, c := range chapters {
		page += "* [" + c.title + "](#" + anchor(c.title) + ")\n"
	}
	page += "* [Types](#types)\n"
	for _, c := range chapters {
		page += "\n## " + c.title + "\n"
		for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
			for _, method := range []string{"get", "post", "put", "delete"} {
				if op, ok := doc.Paths[path][method]; ok && op.Tags[0] == c.tag {
					page += op.page(strings.ToUpper(method) + " " + path)
					told++
				}
			}
		}
	}
	operations := 0
	for _, methods := range doc.Paths {
		operations += len(methods)
	}
	if told != operations {
		t.Errorf("the page has %d of %d operations: is there a tag without a chapter?", told, operations)
	}
	page += "\n## Types\n"
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Schemas)) {
		page += doc.Components.Schemas[name].page(name)
	}
	for name, want := range map[string]string{"../../docs/openapi.json": text.String(), "../../docs/api.md": page} {
		if *update {
			if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the server says: run go test ./server/v1 -run TestAPIPage -update, once TestDocs passes",
				name)
		}
	}
}

func (op described) page(route string) string {
	about, role, _ := strings.Cut(op.Description, "Needs ")
	text := fmt.Sprintf("\n### %s\n\n`%s` needs %s\n", op.Summary, route, role)
	if about = strings.TrimSpace(about); about != "" {
		text += "\n" + about + "\n"
	}
	rows := ""
	for _, p := range op.Parameters {
		if p.Name == "ns" || p.In == "header" {
			continue
		}
		kind := p.Schema.kind()
		if p.Required {
			kind += ", required"
		}
		rows += row("`"+p.Name+"` in the "+p.In, kind, p.Description)
	}
	if rows != "" {
		text += "\n| Parameter | Type | |\n|---|---|---|\n" + rows
	}
	text += "\n"
	if body := kinds(op.RequestBody.Content); body != "" {
		text += "* Body: " + body + "\n"
	}
	var errors []string
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		r := op.Responses[status]
		if status < "300" {
			text += "* Answer: " + status
			if body := kinds(r.Content); body != "" {
				text += ", " + body
			}
			for name := range r.Headers {
				text += "; takes and answers the header `" + name + "`"
			}
			text += "\n"
			continue
		}
		for code := range strings.SplitSeq(r.Description, ", ") {
			if !slices.Contains(everywhere, strings.Trim(code, "`")) {
				errors = append(errors, code+" ("+status+")")
			}
		}
	}
	if len(errors) > 0 {
		text += "* Errors: " + strings.Join(errors, ", ") + "\n"
	}
	return text
}

// kinds says what a body can be.
func kinds(content map[string]media) string {
	var list []string
	for _, mime := range slices.Sorted(maps.Keys(content)) {
		kind := content[mime].Schema.kind()
		if mime != "application/json" {
			if kind == "bytes" {
				kind = ""
			} else {
				kind = " of " + kind
			}
			kind = mime + kind
		}
		list = append(list, kind)
	}
	return strings.Join(list, " or ")
}

func (s pageSchema) page(name string) string {
	text := "\n### " + name + "\n\n" + s.Description + "\n"
	rows := ""
	for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[field]
		kind := p.kind()
		if slices.Contains(s.Required, field) {
			kind += ", required"
		}
		rows += row("`"+field+"`", kind, p.Description)
	}
	if rows != "" {
		text += "\n| Field | Type | |\n|---|---|---|\n" + rows
	}
	return text
}

// kind says in a few words what a value is.
func (s pageSchema) kind() string {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return "[" + name + "](#" + anchor(name) + ")"
	}
	kind := fmt.Sprint(s.Type)
	if list, ok := s.Type.([]any); ok {
		kind = fmt.Sprint(list[0]) // the other one is null
	}
	switch {
	case len(s.Enum) > 0:
		var words []string
		for _, word := range s.Enum {
			if word != nil {
				words = append(words, fmt.Sprint(word))
			}
		}
		return strings.Join(words, ", ")
	case kind == "array" && s.Items != nil:
		return "list of " + s.Items.kind()
	case s.ContentEncoding == "base64":
		return "base64"
	case s.Format == "binary":
		return "bytes"
	case s.Format == "date-time":
		return "time"
	case s.Format == "uuid":
		return "UUID"
	}
	return map[string]string{"string": "text", "integer": "number", "boolean": "true or false"}[kind] +
		map[string]string{"object": "object", "number": "number", "array": "list"}[kind]
}

func row(cells ...string) string {
	for i := range cells {
		cells[i] = strings.NewReplacer("|", `\|`, "\n", " ").Replace(cells[i])
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// anchor is what a heading is linked by.
func anchor(heading string) string {
	return strings.ReplaceAll(strings.NewReplacer(":", "", ",", "").Replace(strings.ToLower(heading)), " ", "-")
}
