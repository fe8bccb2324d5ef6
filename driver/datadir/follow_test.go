package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
)

// TestFollow: a directory that follows something is opened for reading only, one that is not ready not at all, and one
// that is promoted like any other. A reader waits while it is changed.
func TestFollow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	spec := Spec{Engine: "test", Format: 1}
	open := func(readOnly bool) error {
		s := spec
		s.ReadOnly = readOnly
		h, err := Open(dir, s)
		if err != nil {
			return err
		}

		return h.Close()
	}
	h, err := Open(dir, spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Made(), h.Close()); err != nil {
		t.Fatal(err)
	}
	mark, err := os.ReadFile(filepath.Join(dir, MarkName))
	if err != nil {
		t.Fatal(err)
	}

	if err := Follow(dir, mark, "a\nplace", false); err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []bool{true, false} {
		if err := open(readOnly); !errors.Is(err, holdfast.ErrForeign) || !strings.Contains(err.Error(), "a place") {
			t.Errorf("not ready, for reading %v: %v", readOnly, err)
		}
	}
	if err := Follow(dir, mark, "a place", true); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, MarkName)); err != nil || !strings.HasPrefix(string(text),
		"holdfast 3\n") {
		t.Errorf("programs that do not know it would open it: %q, %v", text, err)
	}
	if err := open(false); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("for writing: %v", err)
	}
	if err := open(true); err != nil {
		t.Errorf("for reading: %v", err)
	}
	if m, err := ReadMark("test", dir); err != nil || m.Follows != "a place" {
		t.Errorf("%+v %v", m, err)
	}

	release, err := Change(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Change(dir); !errors.Is(err, holdfast.ErrLocked) {
		t.Errorf("changed by two: %v", err)
	}
	opened := make(chan error, 1)
	go func() { opened <- open(true) }()
	select {
	case err := <-opened:
		t.Errorf("opened while it is changed: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Errorf("a reader that has waited: %v", err)
	}

	if err := Unfollow(dir); err != nil {
		t.Fatal(err)
	}
	if err := open(false); err != nil {
		t.Errorf("promoted: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, MarkName)); err != nil || string(text) != string(mark) {
		t.Errorf("promoted, the mark is %q, %v", text, err)
	}
}
