package holdfast_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// narrow lists the wrappers of engines that need not have what an engine has besides the contract, and why.
var narrow = map[string]string{
	"internal/scratch.engine":                  "a command, or a query, reads and writes in it, and then it is gone",
	"engine/internal/enginecopy.interruptible": "it is filled, and closed",
	"lab/contender.copied":                     "a snapshot, which is read",
	"lab/contender.study4":                     "written to as the study did, which had no more",
	"lab/crash.openDivided":                    "it is written to, and crashed",
	"lab/crash.openWeakened":                   "it is written to, and crashed",
	"lab/crash/internal/flawed.engine":         "it is written to, and crashed",
}

// TestWrappers checks that whatever stands before an engine hands on what engines may have besides the contract: a
// server whose engine is measured could make no checkpoint. It finds the optional interfaces and the wrappers itself.
func TestWrappers(t *testing.T) {
	files := token.NewFileSet()
	parse := func(name string) *ast.File {
		f, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}

	// An optional interface is one that a function of the contract looks for in an engine: x, ok := e.(X).
	interfaces, asked := map[string][]string{}, map[string]bool{}
	ast.Inspect(parse("holdfast.go"), func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			if i, ok := n.Type.(*ast.InterfaceType); ok {
				for _, m := range i.Methods.List {
					for _, name := range m.Names {
						interfaces[n.Name.Name] = append(interfaces[n.Name.Name], name.Name)
					}
				}
			}
		case *ast.TypeAssertExpr:
			if name, ok := n.Type.(*ast.Ident); ok {
				asked[name.Name] = true
			}
		}
		return true
	})
	var optional []string
	for name := range asked {
		optional = append(optional, interfaces[name]...)
	}
	slices.Sort(optional)
	optional = append(optional, "StoreOpened") // which stores look for
	if want := []string{"Checkpoint", "Compact", "Verify", "StoreOpened"}; !slices.Equal(optional, want) {
		t.Errorf("the optional methods are %v, which this test knew as %v", optional, want)
	}

	// A wrapper is a struct in which an engine is embedded. has are the methods of all types.
	wrappers, has := map[string]bool{}, map[string]map[string]bool{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		in := filepath.ToSlash(filepath.Dir(name))
		if in == "internal/storetest" || in == "server/nodes/nodestest" { // fakes
			return nil
		}
		ast.Inspect(parse(name), func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				s, ok := n.Type.(*ast.StructType)
				for i := 0; ok && i < len(s.Fields.List); i++ {
					f := s.Fields.List[i]
					of, ok := f.Type.(*ast.SelectorExpr)
					if !ok || len(f.Names) > 0 || of.Sel.Name != "Engine" {
						continue
					}
					if from, ok := of.X.(*ast.Ident); ok && from.Name == "holdfast" {
						wrappers[in+"."+n.Name.Name] = true
					}
				}
			case *ast.FuncDecl:
				if n.Recv == nil {
					return true
				}
				of := n.Recv.List[0].Type
				if star, ok := of.(*ast.StarExpr); ok {
					of = star.X
				}
				if name, ok := of.(*ast.Ident); ok {
					at := in + "." + name.Name
					if has[at] == nil {
						has[at] = map[string]bool{}
					}
					has[at][n.Name.Name] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(wrappers)) {
		for _, method := range optional {
			if !has[name][method] && narrow[name] == "" {
				t.Errorf("%s hides %s of the engine below: let it call that", name, method)
			}
		}
	}
	for name := range narrow {
		if !wrappers[name] {
			t.Errorf("there is no wrapper %s", name)
		}
	}
	if !wrappers["internal/wrapped.Engine"] {
		t.Errorf("the wrappers are %v", wrappers)
	}
}
