//go:build cgo

package sqlite

import (
	"testing"

	"github.com/holdfastdb/holdfast"
)

func init() { engines[Name] = Open }

// What one of the two has written the other reads, and goes on with.
func TestInterchange(t *testing.T) {
	dir := t.TempDir()
	want := ""
	for i, name := range []string{Name, NameGo, Name, NameGo} {
		e, err := engines[name](dir, holdfast.Options{})
		try(t, err)
		if got := all(t, e, holdfast.Range{}); got != want {
			t.Errorf("%s reads %q, want %q", name, got, want)
		}
		key := string(rune('a' + i))
		set(t, e.(*engine), holdfast.Levels()[i%3], key, name)
		if want != "" {
			want += " "
		}
		want += key + "=" + name
		try(t, e.Close())
	}
}
