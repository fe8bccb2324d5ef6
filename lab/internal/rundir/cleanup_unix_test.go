//go:build unix

package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// TestClaimedFromTheBeginning: a file with the name is locked from its first moment on, so that no clean-up can lock it
// before. The one here is what such a clean-up would hold.
func TestClaimedFromTheBeginning(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, Lock)
	cleaner, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer cleaner.Close()
	if err := unix.Flock(int(cleaner.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	lock, err := claim(dir)
	if err != nil {
		t.Fatalf("it locks what it has made under its name: %v", err)
	}
	defer lock.Close()
	other, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Errorf("it is not locked: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestCleanUpSparesRunsThatEnd: a run that removes its directory is no killed one.
func TestCleanUpSparesRunsThatEnd(t *testing.T) {
	parent := t.TempDir()
	var done atomic.Bool
	cleaned := make(chan []string)
	go func() {
		var all []string
		for !done.Load() {
			all = append(all, CleanUp(parent, Options{Prefix: prefix})...)
		}
		cleaned <- all
	}()
	for range 300 {
		dir, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			t.Error(err)
			break
		}
		lock, err := claim(dir)
		if err != nil {
			t.Errorf("claiming: %v", err)
			break
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
		lock.Close()
	}
	done.Store(true)
	if all := <-cleaned; len(all) > 0 {
		t.Errorf("%d directories of runs that ended were cleaned", len(all))
	}
}

// TestCleanUpSparesWhatIsNotOurs: the system's temporary directory is everybody's. A link that has the name of a run's
// directory there leads to what is not a run's, and another user's directory is that user's.
func TestCleanUpSparesWhatIsNotOurs(t *testing.T) {
	parent, precious := t.TempDir(), t.TempDir()
	for _, name := range []string{Lock, "precious"} {
		if err := os.WriteFile(filepath.Join(precious, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(precious, filepath.Join(parent, prefix+"link")); err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(parent, prefix+"theirs")
	if err := os.Mkdir(theirs, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(theirs, Lock), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	want := 2
	if err := os.Chown(theirs, 12345, -1); err != nil {
		t.Logf("not root: %v", err)
		want = 1 // it is ours still
	}
	if cleaned := CleanUp(parent, Options{Prefix: prefix}); len(cleaned) != 2-want {
		t.Errorf("cleaned %q", cleaned)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != want {
		t.Errorf("left %v, %v", left, err)
	}
	if left, err := os.ReadDir(precious); err != nil || len(left) != 2 {
		t.Errorf("left behind a link: %v, %v", left, err)
	}
}

// TestCleanUpWhileChildrenDie: the children of a killed run may still be making files when it is cleaned.
func TestCleanUpWhileChildrenDie(t *testing.T) {
	for range 20 {
		parent := t.TempDir()
		dir, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			t.Fatal(err)
		}
		lock, err := claim(dir)
		if err != nil {
			t.Fatal(err)
		}
		made := filepath.Join(dir, "made")
		if err := os.Mkdir(made, 0o755); err != nil {
			t.Fatal(err)
		}
		began, ended := make(chan struct{}), make(chan error)
		for child := range 2 {
			go func() {
				for i := 0; ; i++ {
					if err := os.WriteFile(filepath.Join(made, fmt.Sprint(child, "-", i)), nil, 0o644); err != nil {
						ended <- err
						return
					}
					if i == 10 {
						began <- struct{}{}
					}
				}
			}()
		}
		<-began
		<-began
		lock.Close() // the run is dead
		cleaned := CleanUp(parent, Options{Prefix: prefix})
		left, err := os.ReadDir(parent)
		if len(cleaned) != 1 || cleaned[0] != dir || err != nil || len(left) > 0 {
			t.Errorf("cleaned %q, left %v, %v", cleaned, left, err)
		}
		if err := os.RemoveAll(dir); err != nil { // or the children go on
			t.Error(err)
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("making a file: %v", err)
			}
		}
		if t.Failed() {
			return
		}
	}
}
