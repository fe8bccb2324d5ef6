package keyspace_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/internal/keyspace"
)

// TestCheckOwn: for each kind of store, every operation that reaches into its keys is found, and none beside them.
func TestCheckOwn(t *testing.T) {
	reaches := func(make func(b *holdfast.Batch)) bool {
		var b holdfast.Batch
		b.Set([]byte("own"), nil)
		make(&b)
		if err := b.Err(); err != nil {
			t.Fatal(err)
		}
		_, found := keyspace.CheckOwn(&b)
		return found
	}
	remove := func(lo, hi string) bool {
		return reaches(func(b *holdfast.Batch) { b.DeleteRange([]byte(lo), []byte(hi)) })
	}
	for _, kind := range []byte(keyspace.Kinds) {
		is, before, next := string(kind), string(kind-1), string(kind+1)
		for _, key := range []string{is, is + "\x00", is + "\x04name", is + "xyz", is + "\xff\xff"} {
			if !reaches(func(b *holdfast.Batch) { b.Set([]byte(key), nil) }) ||
				!reaches(func(b *holdfast.Batch) { b.Delete([]byte(key)) }) {
				t.Errorf("the key %q is taken for a user's", key)
			}
		}
		for _, r := range [][2]string{{"", ""}, {"a", ""}, {is, next}, {is + "\x05", is + "\x06"}, {before + "x", is + "\x00"},
			{before + "\xff", ""}, {is + "\xff", next}} {
			if !remove(r[0], r[1]) {
				t.Errorf("the range %q reaches into the keys of %q, unseen", r, kind)
			}
		}
		if remove(is+"b", is+"a") {
			t.Error("an empty range reaches nowhere")
		}
		if !strings.ContainsRune(keyspace.Kinds, rune(kind)-1) && remove(before, is) {
			t.Errorf("the range up to %q ends before its keys", is)
		}
	}
	for _, key := range []string{"own", "a", "z", "E", "\x00", "\xff", "f", "n/t"} {
		if reaches(func(b *holdfast.Batch) { b.Set([]byte(key), nil) }) || remove(key, key+"\xff") {
			t.Errorf("%q is a user's key", key)
		}
	}
}

// TestKinds: every store takes its letter from the table, so that a new kind of store cannot be forgotten there.
func TestKinds(t *testing.T) {
	var all []byte
	files := token.NewFileSet()
	err := filepath.WalkDir("../..", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			for i := 0; ok && i < len(spec.Names) && i < len(spec.Values); i++ {
				value, isText := spec.Values[i].(*ast.BasicLit)
				if spec.Names[i].Name == "Kind" && isText {
					t.Errorf("%s: the kind %s of a store is not from the table in package keyspace",
						files.Position(spec.Pos()), value.Value)
				}
				if isText && value.Kind == token.CHAR && f.Name.Name == "keyspace" {
					letter, _, _, err := strconv.UnquoteChar(value.Value[1:], '\'')
					if err != nil {
						t.Error(err)
					}
					all = append(all, byte(letter))
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	if string(all) != keyspace.Kinds {
		t.Errorf("the kinds are %q, the table of all kinds has %q", all, keyspace.Kinds)
	}
}
