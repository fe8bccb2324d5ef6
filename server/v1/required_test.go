package v1_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	core "github.com/holdfastdb/holdfast/server"
)

// schema is what this test needs to know of a schema of OpenAPI.
type schema struct {
	Ref        string `json:"$ref"`
	Type       any
	Enum       []any
	Format     string
	Properties map[string]*schema
	Required   []string
	Items      *schema
}

// maker makes values of schemas.
type maker struct{ schemas map[string]*schema }

func (m maker) of(s *schema) *schema {
	if s.Ref != "" {
		return m.schemas[s.Ref[strings.LastIndex(s.Ref, "/")+1:]]
	}
	return s
}

// least is a value with all that is required, and nothing else; lists have one item.
func (m maker) least(s *schema) any {
	s = m.of(s)
	kind, _ := s.Type.(string)
	if list, ok := s.Type.([]any); ok {
		kind, _ = list[0].(string)
	}
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case kind == "array":
		return []any{m.least(s.Items)}
	case kind == "string" && s.Format == "date-time":
		return "2026-01-31T12:00:00Z"
	case kind == "string":
		return "xxxx" // which is base64, too
	case kind == "integer", kind == "number":
		return 1
	case kind == "boolean":
		return true
	}
	object := map[string]any{}
	for _, name := range s.Required {
		object[name] = m.least(s.Properties[name])
	}
	return object
}

// variant is a body in which one required field is wrong.
type variant struct {
	what, field string
	body        any
}

// doubled stands for an object with a field that is there twice.
type doubled struct {
	object map[string]any
	name   string
}

func (d doubled) MarshalJSON() ([]byte, error) {
	object, err := json.Marshal(d.object)
	if err != nil {
		return nil, err
	}
	value, err := json.Marshal(d.object[d.name])
	return append(object[:len(object)-1], fmt.Sprintf(",%q:%s}", d.name, value)...), err
}

// variants lists the bodies of s with one required field missing, null, in another case, or there twice, at any depth.
func (m maker) variants(s *schema, in string) (list []variant) {
	s = m.of(s)
	if s.Items != nil {
		for _, v := range m.variants(s.Items, in) {
			list = append(list, variant{v.what, v.field, []any{v.body}})
		}
		return list
	}
	for name, property := range s.Properties {
		if items := m.of(property).Items; items != nil && m.of(property).Type != nil {
			o := m.least(s).(map[string]any)
			o[name] = []any{nil}
			list = append(list, variant{"null in a list", "", o})
		}
		if m.of(property).Format == "date-time" && !slices.Contains(s.Required, name) {
			for _, zero := range []string{"0001-01-01T00:00:00Z", "0001-01-01T01:00:00+01:00", "0000-12-31T23:00:00-01:00"} {
				o := m.least(s).(map[string]any)
				o[name] = zero
				list = append(list, variant{"year 1", strings.TrimPrefix(in+"."+name, "."), o})
			}
		}
	}
	for name, property := range s.Properties {
		if kind := m.of(property).Type; kind == "integer" {
			o := m.least(s).(map[string]any)
			o[name] = json.Number("9223372036854775808")
			list = append(list, variant{"too large", strings.TrimPrefix(in+"."+name, "."), o})
		}
	}
	for _, name := range s.Required {
		whole := m.least(s).(map[string]any)
		with := func(change func(o map[string]any)) map[string]any {
			o := maps.Clone(whole)
			change(o)
			return o
		}
		field := strings.TrimPrefix(in+"."+name, ".")
		list = append(list,
			variant{"missing", field, with(func(o map[string]any) { delete(o, name) })},
			variant{"null", field, with(func(o map[string]any) { o[name] = nil })},
			variant{"upper case", "", with(func(o map[string]any) { o[strings.ToUpper(name)] = o[name]; delete(o, name) })},
			variant{"twice", field, doubled{whole, name}})
		for _, v := range m.variants(s.Properties[name], field) {
			list = append(list, variant{v.what, v.field, with(func(o map[string]any) { o[name] = v.body })})
		}
	}
	return list
}

// contents is all that is in an engine, for comparison.
func contents(t *testing.T, e holdfast.Engine) string {
	var b bytes.Buffer
	it := e.Scan(holdfast.Range{})
	defer it.Close()
	for it.Next() {
		fmt.Fprintf(&b, "%q=%q\n", it.Key(), it.Value())
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestRequired: for every operation, and each field that its schema requires, a body without it is refused with its
// name, and nothing is changed: an absent position is not zero. Nor is a number taken that the schema's int64 has not.
// A time that need not be there is not taken for absent if it is the zero time: a token with such an expiry never
// expired.
func TestRequired(t *testing.T) {
	s := start(t, nil, core.Options{})
	w := httptest.NewRecorder()
	s.server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/openapi.json", nil))
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Schema   *schema
			}
			RequestBody struct {
				Content map[string]struct{ Schema *schema }
			}
		}
		Components struct{ Schemas map[string]*schema }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	m := maker{doc.Components.Schemas}
	before, tried := contents(t, s.engine), map[string]int{}
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for method, op := range doc.Paths[path] {
			at := regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(strings.ReplaceAll(path, "{ns}", "default"), "x")
			for _, p := range op.Parameters {
				what, wrong := "year 1", "0001-01-01T00:00:00Z"
				if m.of(p.Schema).Type == "integer" {
					what, wrong = "too large", "9223372036854775808"
				} else if m.of(p.Schema).Format != "date-time" {
					continue
				}
				if p.In != "query" {
					continue
				}
				resp, answer := s.send(strings.ToUpper(method), at+"?"+p.Name+"="+wrong, nil)
				if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(answer), p.Name) {
					t.Errorf("%s %s with %s %s: %d %s", method, at, p.Name, what, resp.StatusCode, answer)
				}
				tried[what]++
			}
			body := op.RequestBody.Content["application/json"].Schema
			if body == nil {
				continue
			}
			for _, v := range append(m.variants(body, ""), variant{"null", "", nil}, variant{"a list", "", []any{}}) {
				text, err := json.Marshal(v.body)
				if err != nil {
					t.Fatal(err)
				}
				resp, answer := s.send(strings.ToUpper(method), at, string(text))
				if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(answer), v.field) {
					t.Errorf("%s %s with %s %s, %s: %d %s", method, at, v.field, v.what, text, resp.StatusCode, answer)
				}
				tried[v.what]++
			}
			if after := contents(t, s.engine); after != before {
				t.Fatalf("%s %s has changed something: from\n%s\nto\n%s", method, at, before, after)
			}
		}
	}
	if tried["missing"] < 25 || tried["missing"] != tried["twice"] || tried["year 1"] < 11 ||
		tried["too large"] < 25 {
		t.Errorf("too little was tried: %v", tried)
	}
}

// TestPositionAbsent: a consumer is not rewound by a body without a position.
func TestPositionAbsent(t *testing.T) {
	s := start(t, nil, core.Options{})
	s.send(
		"POST",
		in("/messages"),
		`{"stream":"a-1","messages":[{"type":"t","data":{}},{"type":"t","data":{}}]}`,
	)
	at := in("/positions/c1")
	if resp, text := s.send("PUT", at, `{"position":2}`); resp.StatusCode != http.StatusNoContent {
		t.Fatal(resp.Status, string(text))
	}
	for _, body := range []string{`{}`, `{"position":null}`, `{"position":1,"position":0}`, `{"Position":0}`} {
		if resp, text := s.send("PUT", at, body); resp.StatusCode != http.StatusBadRequest {
			t.Error(body, resp.Status, string(text))
		}
	}
	if _, text := s.send("GET", at, nil); !strings.Contains(string(text), `"position":2`) {
		t.Errorf("it is %s", text)
	}
}

// TestWholeNumbers: 2.0 is the number 2 for what is whole, and 2.5 is none; data of users keep their numbers.
func TestWholeNumbers(t *testing.T) {
	s := start(t, nil, core.Options{})
	const body = `{"stream":"a-1","expected":-1.0,"messages":[{"type":"t","data":{"n":1.0}},{"type":"t","data":{}}]}`
	if resp, text := s.send("POST", in("/messages"), body); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, string(text))
	}
	if _, text := s.send("GET", in("/messages?stream=a-1"), nil); !strings.Contains(string(text), `{"n":1.0}`) {
		t.Errorf("%s", text)
	}
	if resp, text := s.send("PUT", in("/positions/c"), `{"position": 2.00 }`); resp.StatusCode != http.StatusNoContent {
		t.Error(resp.Status, string(text))
	}
	for _, position := range []string{"2.5", "2.0e0", `"2"`, "99999999999999999999.0"} {
		resp, text := s.send("PUT", in("/positions/c"), `{"position":`+position+`}`)
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "position") ||
			strings.Contains(string(text), "Go struct") {
			t.Error(position, resp.Status, string(text))
		}
	}
	if _, text := s.send("GET", in("/positions/c"), nil); !strings.Contains(string(text), `"position":2`) {
		t.Errorf("%s", text)
	}
}
