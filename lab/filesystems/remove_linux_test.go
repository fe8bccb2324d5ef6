package filesystems_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// TestRemoveOnFullDisk: on a full disk stores in logtree remove what they are told to, and space comes back, so that
// writing goes on, in a process that was started on the full disk, too.
func TestRemoveOnFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("it fills disks")
	}
	t.Parallel()
	ctx := t.Context()
	data := []byte(`{"x":"` + strings.Repeat("x", 20_000) + `"}`)
	// A store that is open: what writes to it, what removes much of it, and what closes it.
	type store struct {
		write, remove func() error
		close         func() error
	}
	messages := func(remove func(*message.Namespace) error) func(t *testing.T, e holdfast.Engine) store {
		return func(t *testing.T, e holdfast.Engine) store {
			s, err := message.Open(kv.On(e), message.Options{Level: holdfast.Process})
			try(t, err)
			n, err := s.Namespace(ctx, message.Default)
			try(t, err)
			return store{
				write: func() error {
					_, err := n.Write(ctx, "a-1", message.Message{Type: "T", Data: data})
					return err
				},
				remove: func() error { return remove(n) },
				close:  s.Close,
			}
		}
	}
	stores := map[string]func(t *testing.T, e holdfast.Engine) store{
		"message Delete": messages(func(n *message.Namespace) error {
			_, err := n.Delete(ctx, "a-1")
			return err
		}),
		"message Truncate": messages(func(n *message.Namespace) error {
			_, err := n.Truncate(ctx, "a-1", 500)
			return err
		}),
		"event TruncateBefore": func(t *testing.T, e holdfast.Engine) store {
			s, err := event.Open(kv.On(e), event.Options{Level: holdfast.Process})
			try(t, err)
			return store{
				write: func() error {
					_, err := s.Append(ctx, event.Event{Type: "t", Data: data})
					return err
				},
				remove: func() error {
					_, err := s.TruncateBefore(ctx, 500)
					return err
				},
				close: s.Close,
			}
		},
		"task Complete": func(t *testing.T, e holdfast.Engine) store {
			s, err := task.Open(kv.On(e), task.Options{Level: holdfast.Process, Keep: -1})
			try(t, err)
			return store{
				write: func() error {
					_, err := s.Enqueue(ctx, task.Spec{Kind: "k", Payload: data})
					return err
				},
				remove: func() error {
					for range 500 {
						leases, err := s.Claim(ctx, task.ClaimOptions{N: 1})
						if err != nil {
							return err
						}
						if err := s.Complete(ctx, leases...); err != nil {
							return err
						}
					}
					return nil
				},
				close: s.Close,
			}
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits for the disk
			root := fileSystem(t, blockdev.Options{FS: "ext4", Size: 64 << 20})
			try(t, os.WriteFile(filepath.Join(root, "ballast"), make([]byte, 24<<20), 0o644))
			dir := filepath.Join(root, "db")
			e, err := logtree.Open(dir, holdfast.Options{})
			try(t, err)
			defer func() { try(t, e.Close()) }()
			s := open(t, e)
			defer func() { try(t, s.close()) }()
			n := 0
			for err = nil; err == nil; n++ {
				err = s.write()
			}
			if !errors.Is(err, holdfast.ErrFull) || n < 600 {
				t.Fatalf("after %d: %v", n, err)
			}

			try(t, s.close())
			try(t, e.Close())
			e, err = logtree.Open(dir, holdfast.Options{})
			try(t, err)
			s = open(t, e)
			try(t, s.remove())
			for i := range 200 {
				var err error
				if !testkit.Holds(func() bool {
					err = s.write()
					return !errors.Is(err, holdfast.ErrFull)
				}) || err != nil {
					t.Fatalf("write %d after the removal: %v", i, err)
				}
			}
		})
	}
}
