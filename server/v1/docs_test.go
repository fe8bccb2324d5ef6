package v1_test

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
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
			names := map[string]bool{}
			for _, field := range fields.Fields.List {
				for _, name := range field.Names {
					names[name.Name] = true
				}
			}
			for _, field := range fields.Fields.List {
				for _, name := range field.Names {
					first, _, _ := strings.Cut(field.Doc.Text(), " ")
					if names[first] && first != name.Name {
						t.Errorf("the comment of %s.%s is about %s", s.Name, name, first)
					}
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
