package logtree

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// shortOf refuses to make files, with an error, while there are as many as it allows.
type shortOf struct {
	mu    sync.Mutex
	names map[string]bool
	most  int
	err   error
}

func (s *shortOf) hook(op vfs.Op) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch op.Kind {
	case vfs.OpCreate:
		if !s.names[op.Name] && len(s.names) >= s.most {
			return s.err
		}
		s.names[op.Name] = true
	case vfs.OpRemove:
		delete(s.names, op.Name)
	case vfs.OpRename:
		delete(s.names, op.Name)
		s.names[op.To] = true
	}
	return nil
}

func (s *shortOf) allow(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = most
}

// TestNoMoreFiles: where no file can be made, because there are no inodes, because of the user's quota, or because the
// process has too many files open, a write is refused and does not hang, nothing is lost, and with files again it goes
// on.
func TestNoMoreFiles(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE} {
		for most := 6; most < 14; most++ {
			t.Run(fmt.Sprint(cause, "/", most), func(t *testing.T) {
				t.Parallel()
				fsys := vfs.NewMem()
				short := &shortOf{names: map[string]bool{}, most: most, err: cause}
				fsys.SetHook(short.hook)
				o := holdfast.Options{MemoryBytes: holdfast.MinMemoryBytes}
				e, err := OpenMem(fsys, "db", o)
				try(t, err)
				want := map[string]string{}
				r := rand.New(rand.NewPCG(1, uint64(most)))
				write := func() error {
					key, value := fmt.Sprintf("key/%06d", r.IntN(4000)), string(make([]byte, 1+r.IntN(2000)))
					var b holdfast.Batch
					b.Set([]byte(key), []byte(value))
					err := holdfast.Commit(e, &b, holdfast.Process)
					if err == nil {
						want[key] = value
					}
					return err
				}
				refused := 0
				for n := 0; refused < 20 && n < 60_000; n++ {
					switch err := write(); {
					case err == nil:
					case errors.Is(err, holdfast.ErrPoisoned), errors.Is(err, holdfast.ErrCorrupt),
						errors.Is(err, holdfast.ErrFull) != (cause == syscall.ENOSPC || cause == syscall.EDQUOT):
						t.Fatalf("after %d writes: %v", len(want), err)
					default:
						refused++
					}
				}
				if refused == 0 {
					t.Errorf("nothing was refused with %d files", most)
				}

				// A flush that began before may still fail, and then so does the write that waits for it.
				short.allow(1 << 20)
				for done, late := 0, 0; done < 100; {
					switch err := write(); {
					case err == nil:
						done++
					case late == 3 || errors.Is(err, holdfast.ErrPoisoned):
						t.Fatalf("with files again: %v", err)
					default:
						late++
					}
				}
				try(t, e.Close())
				e, err = OpenMem(fsys, "db", o)
				try(t, err)
				for key, value := range want {
					if got, err := e.Get(nil, []byte(key)); err != nil || string(got) != value {
						t.Fatalf("%s: %d bytes, %v", key, len(got), err)
					}
				}
				try(t, e.Close())
			})
		}
	}
}
