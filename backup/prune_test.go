package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// TestKeep chooses from bases of every twenty minutes of ten days.
func TestKeep(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 30, 0, 0, time.UTC) // a Friday
	var all []baseName
	for at := now.Add(-10 * 24 * time.Hour); !at.After(now); at = at.Add(20 * time.Minute) {
		all = append(all, baseName{key: at.Format("02 15:04"), time: at})
	}
	for _, x := range []struct{ keep, want string }{
		{"all=1h", "27 11:30, 27 11:50, 27 12:10, 27 12:30"},
		{"all=50m", "27 11:30, 27 11:50, 27 12:10, 27 12:30"}, // 11:30 leads to 11:40
		{"hourly=3", "27 10:50, 27 11:50, 27 12:30"},
		{"daily=2,hourly=1", "26 23:50, 27 12:30"},
		{"weekly=2", "22 23:50, 27 12:30"},
	} {
		k, err := ParseKeep(x.keep)
		testkit.Try(t, err)
		var got []string
		for key := range k.bases(all, now) {
			got = append(got, key)
		}
		slices.Sort(got)
		if s := strings.Join(got, ", "); s != x.want {
			t.Errorf("%s keeps %s, want %s", x.keep, s, x.want)
		}
	}
	for _, bad := range []string{"", "all", "all=-1h", "hourly=0", "hourly=x", "yearly=1", "all=24h,"} {
		if _, err := ParseKeep(bad); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestPrune removes what need not be kept of backups of four openings, again and again while the last one runs, and cut
// off at random. What is kept can be restored, byte by byte as it was; nothing is damaged; and the bucket gets smaller.
func TestPrune(t *testing.T) {
	ctx := t.Context()
	bucket, dir := memblob.OpenBucket(nil), filepath.Join(t.TempDir(), "db")
	r := rand.New(rand.NewPCG(3, 34))
	stay := times{unnamed: 10 * time.Minute} // no base here takes as long, however busy the machine
	removed := Pruned{}
	states := map[time.Time]string{}
	for range 4 {
		e, err := logtree.Open(dir, holdfast.Options{MemoryBytes: 1 << 20})
		testkit.Try(t, err)
		b, err := Start(e, bucket, Options{Every: time.Millisecond, BaseBytes: 100 << 10})
		testkit.Try(t, err)
		for range 3 {
			for range 100 {
				var batch holdfast.Batch
				batch.Set(fmt.Appendf(nil, "key-%d", r.IntN(500)), fmt.Appendf(nil, "%0*d", r.IntN(4000), r.IntN(1000)))
				testkit.Try(t, holdfast.Commit(e, &batch, holdfast.Process))
			}
			at := time.Now()
			testkit.Until(t, "safe", func() bool { return b.Status().Safe.After(at) })
			states[b.Status().Safe] = scan(t, e)

			// A prune that is cut off in the middle, and one that goes to its end.
			keep := Keep{All: 300 * time.Millisecond, Hourly: 1}
			cut, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(3000))*time.Microsecond)
			p, err := prune(cut, bucket, keep, "", time.Now(), stay)
			removed.Bases, removed.Objects = removed.Bases+p.Bases, removed.Objects+p.Objects
			cancel()
			if err != nil && cut.Err() == nil {
				t.Fatal(err)
			}
			v, err := Verify(ctx, bucket)
			testkit.Try(t, err)
			if len(v.Damage) > 0 {
				t.Fatalf("after a prune that was cut off: %v", v.Damage)
			}
			begin := time.Now()
			p, err = prune(ctx, bucket, keep, "", begin, stay)
			testkit.Try(t, err)
			removed.Bases, removed.Objects = removed.Bases+p.Bases, removed.Objects+p.Objects
			if v, err = Verify(ctx, bucket); err != nil || len(v.Damage) > 0 {
				t.Fatal(err, v.Damage)
			}
			for at, want := range states {
				if at.Before(begin.Add(-keep.All)) {
					delete(states, at)
					continue
				}
				into := filepath.Join(t.TempDir(), "restored")
				_, err := Restore(ctx, bucket, into, RestoreOptions{At: at})
				testkit.Try(t, err)
				restored, err := logtree.Open(into, holdfast.Options{})
				testkit.Try(t, err)
				if scan(t, restored) != want {
					t.Errorf("the state of %v is another", at)
				}
				testkit.Try(t, restored.Close())
			}
		}
		testkit.Try(t, b.Close(ctx))
		testkit.Try(t, e.Close())
	}
	// As a kill leaves it in a directory.
	gens, err := generations(ctx, bucket)
	testkit.Try(t, err)
	for _, gen := range []string{gens[0], gens[len(gens)-1]} {
		testkit.Try(t, bucket.WriteAll(ctx, logKey(gen, 1)+".18ec10fa7d41abd5.tmp", []byte("torn"), nil))
	}

	// All but the last is too old.
	_, err = prune(ctx, bucket, Keep{All: 300 * time.Millisecond}, "", time.Now().Add(2*stay.unnamed), stay)
	testkit.Try(t, err)
	v, err := Verify(ctx, bucket)
	testkit.Try(t, err)
	left := list(t, bucket)
	t.Logf("removed %+v, %d objects are left, %+v", removed, len(left), *v)
	if v.Bases != 1 || len(v.Damage) > 0 || removed.Bases == 0 {
		t.Errorf("%+v", v)
	}

	// What is there is what Verify has read, the mark, and the log before the last base that is a piece of it.
	if len(left) > v.Objects+1 {
		t.Errorf("%d objects are left, %d are of use: %q", len(left), v.Objects, left)
	}
}

func list(t *testing.T, bucket *blob.Bucket) (keys []string) {
	t.Helper()
	all := bucket.List(nil)
	for {
		o, err := all.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return keys
		}
		testkit.Try(t, err)
		keys = append(keys, o.Key)
	}
}

func scan(t *testing.T, e holdfast.Engine) string {
	t.Helper()
	var s strings.Builder
	it := e.Scan(holdfast.Range{})
	for it.Next() {
		fmt.Fprintf(&s, "%s=%s\n", it.Key(), it.Value())
	}
	testkit.Try(t, it.Close())

	return s.String()
}

// TestClock: nothing is removed while the clock here differs much from the bucket's, or was set.
func TestClock(t *testing.T) {
	bucket := memblob.OpenBucket(nil)
	e, err := logtree.Open(filepath.Join(t.TempDir(), "db"), holdfast.Options{})
	testkit.Try(t, err)
	b, err := Start(e, bucket, Options{Every: time.Millisecond})
	testkit.Try(t, err)
	testkit.Until(t, "safe", func() bool { return !b.Status().Safe.IsZero() })
	testkit.Try(t, b.clock())
	b.mu.Lock()
	right := b.lastAt
	b.mu.Unlock()
	for _, wrong := range []time.Time{
		right.Add(2 * time.Hour), right.Add(-2 * time.Hour), // when the base was uploaded
		right.Round(0).Add(-25 * time.Hour),
	} {
		b.mu.Lock()
		b.lastAt = wrong
		b.mu.Unlock()
		if err := b.clock(); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "clock") {
			t.Errorf("%v instead of %v: %v", wrong, right, err)
		}
	}
	testkit.Try(t, b.Close(t.Context()))
	testkit.Try(t, e.Close())
}

// TestPruneOthers: of a bucket that several programs were given by mistake, the last state of each database stays,
// whoever prunes, and however long ago it was. The last one of a program that prunes stays as well, also if one that is
// not there any more had begun behind it with a copy of the same database.
func TestPruneOthers(t *testing.T) {
	ctx := t.Context()
	bucket, dir := memblob.OpenBucket(nil), t.TempDir()
	begin := func(name string) (e holdfast.Engine, b *Backup) {
		e, err := logtree.Open(filepath.Join(dir, name), holdfast.Options{})
		testkit.Try(t, err)
		var batch holdfast.Batch
		batch.Set([]byte("name"), []byte(name))
		testkit.Try(t, holdfast.Commit(e, &batch, holdfast.Process))
		b, err = Start(e, bucket, Options{Every: time.Millisecond})
		testkit.Try(t, err)
		testkit.Until(t, "a base", func() bool { return b.Status().Bases == 1 })

		return e, b
	}
	end := func(e holdfast.Engine, b *Backup) {
		testkit.Try(t, b.Close(ctx))
		testkit.Try(t, e.Close())
	}
	own, first := begin("own")
	_, err := Restore(ctx, bucket, filepath.Join(dir, "copy"), RestoreOptions{})
	testkit.Try(t, err)
	end(begin("copy"))
	end(begin("other"))

	// As it is for the program that has nothing to write for long.
	later := time.Now().Add(time.Hour)
	_, err = prune(ctx, bucket, Keep{All: time.Minute}, first.last, later, times{})
	testkit.Try(t, err)
	for gen, there := range map[string]bool{first.gen: true, "": true} {
		r, err := Restore(ctx, bucket, filepath.Join(t.TempDir(), "restored"), RestoreOptions{Generation: gen})
		if (err == nil) != there {
			t.Errorf("generation %q: %+v %v", gen, r, err)
		}
	}
	end(own, first)

	// As it is for the program of the other database: of the first one, the copy is what began last.
	_, err = prune(ctx, bucket, Keep{All: time.Minute}, "", later, times{})
	testkit.Try(t, err)
	v, err := Verify(ctx, bucket)
	if err != nil || len(v.Damage) > 0 || v.Bases != 2 {
		t.Errorf("%+v %v", v, err)
	}
	gens, err := generations(ctx, bucket)
	testkit.Try(t, err)
	for _, gen := range gens[1:] {
		_, err := Restore(ctx, bucket, filepath.Join(t.TempDir(), "restored"), RestoreOptions{Generation: gen})
		testkit.Try(t, err)
	}
}
