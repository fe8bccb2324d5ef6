package backup_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"gocloud.dev/blob/memblob"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/backup"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// fillLogtree is a Fill that makes a directory of logtree, whatever it is a copy of.
func fillLogtree(_ context.Context, c backup.Copy, dir string, fill func(func(key, value []byte) error) error) error {
	if c.Engine != mem.Name {
		return fmt.Errorf("a copy of %q", c.Engine)
	}
	return datadir.Make("restore", dir, func(partial string) (l datadir.Loss, err error) {
		e, err := logtree.Open(partial, holdfast.Options{})
		if err != nil {
			return l, err
		}
		defer func() { err = errors.Join(err, e.Close()) }()
		return l, fill(func(key, value []byte) error {
			var b holdfast.Batch
			b.Set(key, value)
			return holdfast.Commit(e, &b, holdfast.Process)
		})
	})
}

// TestCopies backs up an engine that can only be copied as a whole, and restores copies of two moments.
func TestCopies(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	testkit.Try(t, err)
	for name, o := range map[string]backup.Options{
		"plain": {}, "encoded": {Compress: true, Recipients: []string{identity.Recipient().String()}},
	} {
		t.Run(name, func(t *testing.T) {
			how := backup.RestoreOptions{Identities: []age.Identity{identity}, Fill: fillLogtree}
			bucket, e := memblob.OpenBucket(nil), mem.New()
			o.CopyEvery, o.CopyDir = 20*time.Millisecond, filepath.Join(t.TempDir(), "spool")
			b := start(t, e, bucket, o)
			r := rand.New(rand.NewPCG(1, 55))
			wants := map[time.Time]string{}
			for range 2 {
				writeAt(t, e, r, 100)
				at, want := time.Now(), contentsOf(t, e)
				until(t, "safe", func() bool { return b.Status().Safe.After(at) })
				wants[time.Now()] = want
				time.Sleep(2 * time.Millisecond) // copies are told apart by milliseconds
			}
			if s := b.Status(); s.Err != nil || s.Lag() > time.Minute || s.Bases < 2 {
				t.Errorf("%+v", s)
			}
			testkit.Try(t, b.Close(t.Context()))
			if left, _ := os.ReadDir(o.CopyDir); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			v, err := backup.Verify(t.Context(), bucket)
			if err != nil || len(v.Damage) > 0 || int64(v.Bases) != b.Status().Bases {
				t.Errorf("%+v %v", v, err)
			}
			for at, want := range wants {
				how.At = at
				if got, r := restored(t, bucket, how); got != want || r.Time.After(at.Add(time.Millisecond)) {
					t.Errorf("at %v: %d bytes, want %d; %+v", at, len(got), len(want), r)
				}
			}

			// Who cannot make such an engine says so, and so does who would follow it.
			_, err = backup.Restore(t.Context(), bucket, filepath.Join(t.TempDir(), "none"), backup.RestoreOptions{})
			if !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("without Fill: %v", err)
			}
			f := follow(t, bucket, filepath.Join(t.TempDir(), "copy"))
			until(t, "it cannot be followed", func() bool { return errors.Is(f.Status().Err, holdfast.ErrForeign) })
			testkit.Try(t, f.Close())

			// Damage of any object leaves no directory.
			how.At = time.Time{}
			keys := keysOf(t, bucket)
			for _, key := range keys[len(keys)-1:] {
				good, err := bucket.ReadAll(t.Context(), key)
				testkit.Try(t, err)
				for _, bad := range [][]byte{good[:len(good)/2], append([]byte("x"), good[1:]...)} {
					testkit.Try(t, bucket.WriteAll(t.Context(), key, bad, nil))
					into := filepath.Join(t.TempDir(), "none")
					_, err := backup.Restore(t.Context(), bucket, into, how)
					if _, there := os.Stat(into); !errors.Is(err, holdfast.ErrCorrupt) || there == nil {
						t.Errorf("%s damaged: %v, %v", key, err, there)
					}
				}
				if !strings.Contains(key, "/files/") {
					t.Errorf("the last key is %s", key)
				}
			}
		})
	}

	// Without a time such an engine is refused.
	if _, err := backup.Start(mem.New(), memblob.OpenBucket(nil), backup.Options{}); !errors.Is(err,
		holdfast.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// TestLastCopy: what was written since the last copy is copied when the backup is closed. If there was no time for it,
// Close says so.
func TestLastCopy(t *testing.T) {
	o := backup.Options{CopyEvery: time.Hour, CopyDir: t.TempDir()}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, within := range map[string]context.Context{"time": t.Context(), "no time": over} {
		bucket, e := memblob.OpenBucket(nil), mem.New()
		b := start(t, e, bucket, o)
		until(t, "the first copy", func() bool { return b.Status().Bases == 1 })
		writeAt(t, e, rand.New(rand.NewPCG(1, 56)), 10)
		err := b.Close(within)
		got, _ := restored(t, bucket, backup.RestoreOptions{Fill: fillLogtree})
		if all := got == contentsOf(t, e); all != (err == nil) || !all && within != over {
			t.Errorf("%s: it has all: %v, and closing says %v", name, all, err)
		}
	}
}

// writeAt is write at the level of an engine in memory.
func writeAt(t *testing.T, e holdfast.Engine, r *rand.Rand, n int) {
	t.Helper()
	for i := range n {
		var b holdfast.Batch
		b.Set(fmt.Appendf(nil, "key-%04d", r.IntN(1000)), fmt.Appendf(nil, "%d-%d", i, r.Uint64()))
		testkit.Try(t, holdfast.Commit(e, &b, holdfast.Memory))
	}
}
