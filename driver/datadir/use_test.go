package datadir

import (
	"path/filepath"
	"testing"
)

// TestLookingIsNoUse: a directory is not in use because this process looks at it meanwhile, to learn what made it or
// where it is. Of two copies made at the same time one failed by chance.
func TestLookingIsNoUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	h, err := Open(dir, Spec{Engine: "fake", Format: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	for name, look := range map[string]func() error{
		"ReadMark":     func() error { _, err := ReadMark("look", dir); return err },
		"CheckOverlap": func() error { return CheckOverlap("look", filepath.Join(filepath.Dir(dir), "other"), dir) },
		"marked":       func() error { marked(dir); return nil },
	} {
		stop, looked := make(chan struct{}), make(chan error)
		go func() {
			for {
				select {
				case <-stop:
					looked <- nil
					return
				default:
				}
				if err := look(); err != nil {
					looked <- err
					return
				}
			}
		}()
		for range 1000 {
			if err := CheckUnused("ask", dir); err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
		}
		close(stop)
		if err := <-looked; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
