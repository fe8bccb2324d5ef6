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
	messages := func(t *testing.T, e holdfast.Engine) (*message.Store, *message.Namespace) {
		s, err := message.Open(kv.On(e), message.Options{})
		try(t, err)
		n, err := s.Namespace(ctx, message.Default)
		try(t, err)
		return s, n
	}
	write := func(s *message.Namespace) error {
		_, err := s.Write(ctx, "a-1", message.Message{Type: "T", Data: data})
		return err
	}
	stores := map[string]struct {
		write, remove func(t *testing.T, e holdfast.Engine) error
	}{
		"message Delete": {
			func(t *testing.T, e holdfast.Engine) error {
				s, n := messages(t, e)
				defer s.Close()
				return write(n)
			},
			func(t *testing.T, e holdfast.Engine) error {
				s, n := messages(t, e)
				defer s.Close()
				_, err := n.Delete(ctx, "a-1")
				return err
			},
		},
		"message Truncate": {
			func(t *testing.T, e holdfast.Engine) error {
				s, n := messages(t, e)
				defer s.Close()
				return write(n)
			},
			func(t *testing.T, e holdfast.Engine) error {
				s, n := messages(t, e)
				defer s.Close()
				_, err := n.Truncate(ctx, "a-1", 500)
				return err
			},
		},
		"event TruncateBefore": {
			func(t *testing.T, e holdfast.Engine) error {
				s, err := event.Open(kv.On(e), event.Options{})
				try(t, err)
				defer s.Close()
				_, err = s.Append(ctx, event.Event{Type: "t", Data: data})
				return err
			},
			func(t *testing.T, e holdfast.Engine) error {
				s, err := event.Open(kv.On(e), event.Options{})
				try(t, err)
				defer s.Close()
				_, err = s.TruncateBefore(ctx, 500)
				return err
			},
		},
		"task Complete": {
			func(t *testing.T, e holdfast.Engine) error {
				s, err := task.Open(kv.On(e), task.Options{Keep: -1})
				try(t, err)
				defer s.Close()
				_, err = s.Enqueue(ctx, task.Spec{Kind: "k", Payload: data})
				return err
			},
			func(t *testing.T, e holdfast.Engine) error {
				s, err := task.Open(kv.On(e), task.Options{Keep: -1})
				try(t, err)
				defer s.Close()
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
		},
	}
	for name, s := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits for the disk
			root := fileSystem(t, blockdev.Options{FS: "ext4", Size: 64 << 20})
			try(t, os.WriteFile(filepath.Join(root, "ballast"), make([]byte, 24<<20), 0o644))
			dir := filepath.Join(root, "db")
			e, err := logtree.Open(dir, holdfast.Options{})
			try(t, err)
			defer func() { try(t, e.Close()) }()
			n := 0
			for err = nil; err == nil; n++ {
				err = s.write(t, e)
			}
			if !errors.Is(err, holdfast.ErrFull) || n < 600 {
				t.Fatalf("after %d: %v", n, err)
			}
			try(t, e.Close())
			e, err = logtree.Open(dir, holdfast.Options{})
			try(t, err)
			try(t, s.remove(t, e))
			for i := range 200 {
				var err error
				if !testkit.Holds(func() bool {
					err = s.write(t, e)
					return !errors.Is(err, holdfast.ErrFull)
				}) || err != nil {
					t.Fatalf("write %d after the removal: %v", i, err)
				}
			}
		})
	}
}
