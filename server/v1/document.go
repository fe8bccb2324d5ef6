package v1

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/server/route"
)

// docs are the comments of the types of package api and of their fields, by "Type" and "Type.Field". A test keeps them
// as they are there.
//
//go:embed docs.json
var docs []byte

// describe completes the schemas: with descriptions, and with what holds for all of them.
func describe(doc *huma.OpenAPI) {
	var comments map[string]string
	if err := json.Unmarshal(docs, &comments); err != nil {
		panic(err) // a test has read them
	}
	schemas := doc.Components.Schemas
	asked := map[string]bool{} // schemas of what requests have

	// Only what a request can reach refuses unknown fields.
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Post, item.Put} {
			if op != nil && op.RequestBody != nil {
				for _, media := range op.RequestBody.Content {
					reach(schemas, media.Schema, asked)
				}
			}
		}
	}

	for name, s := range schemas.Map() {
		t := schemas.TypeFromRef(refTo + name)
		names := map[string]string{} // of the fields, in Go and in JSON

		for _, f := range reflect.VisibleFields(t) {
			names[f.Name], _, _ = strings.Cut(f.Tag.Get("json"), ",")
		}
		s.Description = comments[t.Name()]
		if t == reflect.TypeFor[api.Operation]() { // its namespace, and one of the others
			s.MinProperties, s.MaxProperties = &two, &two
		}
		if !asked[name] { // answers may have more fields some day
			s.AdditionalProperties = nil
		}

		for _, f := range reflect.VisibleFields(t) {
			property, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			p := s.Properties[property]
			if f.Anonymous || p == nil {
				continue
			}

			// A field of an embedded type is documented there.
			owner := t
			for _, i := range f.Index[:len(f.Index)-1] {
				owner = owner.Field(i).Type
			}
			p.Description = inJSON(comments[owner.Name()+"."+f.Name], names)
			constrain(p, f.Type, f.Tag)
			// Lists are [], and other fields are left out. In a request null stands for what is left out.
			p.Nullable = asked[name] && p.Ref == "" && p.Type != "" && !slices.Contains(s.Required, property)
		}
	}
}

var goName = regexp.MustCompile(`^[A-Z]\w*|\b[A-Z]\w*[A-Z]\w*`)

// inJSON is a comment with the names that fields have in JSON: of the first word, and of those that can only be a name.
func inJSON(comment string, names map[string]string) string {
	return goName.ReplaceAllStringFunc(comment, func(word string) string {
		if name := names[word]; name != "" {
			return "`" + name + "`"
		}

		return word
	})
}

const refTo = "#/components/schemas/"

// reach adds the names of all schemas that are reached from s.
func reach(schemas huma.Registry, s *huma.Schema, names map[string]bool) {
	if s == nil {
		return
	}
	if name, ok := strings.CutPrefix(s.Ref, refTo); ok && !names[name] {
		names[name] = true
		reach(schemas, schemas.SchemaFromRef(s.Ref), names)
	}
	reach(schemas, s.Items, names)

	for _, p := range s.Properties {
		reach(schemas, p, names)
	}
}

// openAPI adds the routes of the document about the others.
func (s *service) openAPI() {
	for _, kind := range []struct {
		path, mime string
		text       func() ([]byte, error)
	}{
		{"/openapi.json", "application/json", sync.OnceValues(s.doc.MarshalJSON)},
		{"/openapi.yaml", "application/yaml", sync.OnceValues(s.doc.YAML)},
	} {
		s.routes = append(s.routes, route.Route{Method: http.MethodGet, Pattern: kind.path, Role: auth.None,
			Handler: func(w http.ResponseWriter, r *http.Request) {
				text, err := kind.text()
				if err != nil {
					problem.Write(w, r, err)
					return
				}
				w.Header().Set("Content-Type", kind.mime)
				_, _ = w.Write(text)
			}})
	}
}
