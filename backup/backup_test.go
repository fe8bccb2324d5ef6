package backup_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/backup"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/night"
)

// small makes everything happen often.
var small = backup.Options{Every: 5 * time.Millisecond, BaseBytes: 256 << 10}

func open(t *testing.T, dir string) holdfast.Engine {
	t.Helper()
	e, err := logtree.Open(dir, holdfast.Options{MemoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}

	return e
}

// contentsOf is what an engine has, as text.
func contentsOf(t *testing.T, e holdfast.Engine) string {
	t.Helper()
	var s strings.Builder
	it := e.Scan(holdfast.Range{})
	for it.Next() {
		fmt.Fprintf(&s, "%s=%x\n", it.Key(), it.Value())
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}

	return s.String()
}

// restored is what a restored directory has; it is also checked from outside, opened, written to, and opened again.
func restored(t *testing.T, bucket *blob.Bucket, o backup.RestoreOptions) (string, *backup.Restored) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "restored")
	r, err := backup.Restore(t.Context(), bucket, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	v, err := logtree.Verify(dir)
	if err != nil || len(v.Damage) > 0 {
		t.Fatalf("%v %v", v, err)
	}
	e := open(t, dir)
	got := contentsOf(t, e)
	var batch holdfast.Batch
	batch.Set([]byte("zzz"), []byte("after"))
	if err := holdfast.Commit(e, &batch, holdfast.Power); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = open(t, dir)
	if again := contentsOf(t, e); again != got+"zzz=6166746572\n" {
		t.Error("the restored database does not keep what it gets")
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}

	return got, r
}

// write commits some batches of random keys.
func write(t *testing.T, e holdfast.Engine, r *rand.Rand, n int) {
	t.Helper()
	for range n {
		var batch holdfast.Batch
		for range 1 + r.IntN(20) {
			key := fmt.Appendf(nil, "key-%04d", r.IntN(3000))
			switch x := r.IntN(100); {
			case x < 20:
				batch.Delete(key)
			case x == 20:
				batch.DeleteRange(key, fmt.Appendf(nil, "%s-", key[:6]))
			default:
				batch.Set(key, bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(1000)))
			}
		}
		if err := holdfast.Commit(e, &batch, holdfast.Process); err != nil {
			t.Fatal(err)
		}
	}
}

func start(t *testing.T, e holdfast.Engine, bucket *blob.Bucket, o backup.Options) *backup.Backup {
	t.Helper()
	b, err := backup.Start(e, bucket, o)
	if err != nil {
		t.Fatal(err)
	}

	return b
}

// until waits until cond holds.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

// TestRestore backs up a database that is written to, flushed and compacted, over three openings, and restores the last
// state, and states that were noted on the way.
func TestRestore(t *testing.T) {
	for seed := range night.Or[uint64](20, 1) {
		r := rand.New(rand.NewPCG(seed, 34))
		bucket, dir := memblob.OpenBucket(nil), filepath.Join(t.TempDir(), "db")
		noted := map[time.Time]string{}
		for range 3 {
			e := open(t, dir)
			b := start(t, e, bucket, small)
			for range 4 {
				write(t, e, r, 200)

				// Nothing is written while a state is made that has everything.
				at, want := time.Now(), contentsOf(t, e)
				until(t, "safe", func() bool { return b.Status().Safe.After(at) })
				noted[b.Status().Safe] = want
				time.Sleep(2 * time.Millisecond) // states are told apart by milliseconds
			}
			write(t, e, r, 50)
			want := contentsOf(t, e)
			if err := b.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", b.Status())
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			got, info := restored(t, bucket, backup.RestoreOptions{})
			if got != want {
				t.Fatalf("seed %d: restored %d bytes of contents, want %d", seed, len(got), len(want))
			}
			if info.Generation != b.Status().Generation {
				t.Errorf("restored %v", info)
			}
		}
		for at, want := range noted {
			if got, info := restored(t, bucket, backup.RestoreOptions{At: at}); got != want {
				t.Errorf("seed %d: at %v the contents differ: %+v", seed, at, info)
			}
		}
	}
}
