//go:build !cgo

package sqlite

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
)

func TestWithoutCgo(t *testing.T) {
	if _, err := Open(t.TempDir(), holdfast.Options{}); !errors.Is(err, holdfast.ErrUnavailable) ||
		!strings.Contains(err.Error(), NameGo) {
		t.Errorf("Open: %v", err)
	}
	c := Describe()
	for _, l := range holdfast.Levels()[:3] { // there is one machine
		if p := c.Promise(l); p.Given != 0 || p.Why != "built without cgo" {
			t.Errorf("%v: %+v", l, p)
		}
	}
}
