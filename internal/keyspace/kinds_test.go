package keyspace_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Keys that are written out somewhere, and not made with New, are of a kind, too.
func TestLiterals(t *testing.T) {
	const letters = "egkmrst" // as docs/start/engine.md names them
	found := 0
	look := func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil || len(text) < 2 || text[0] < 'a' || text[0] > 'z' || text[1] >= ' ' || text[1] == '\n' {
				return true
			}
			found++
			if !strings.Contains(letters, text[:1]) {
				t.Errorf("%s: keys that begin with %q are of no kind", path, text)
			}
			return true
		})
		return nil
	}
	for _, dir := range []string{"store", "server", "cmd", "client", "examples"} {
		if err := filepath.WalkDir(filepath.Join("../..", dir), look); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if found < 3 {
		t.Fatal(found)
	}
}
