package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/backup"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// keysOf lists a bucket.
func keysOf(t *testing.T, bucket *blob.Bucket) (keys []string) {
	t.Helper()
	list := bucket.List(nil)
	for {
		o, err := list.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return keys
		}
		testkit.Try(t, err)
		keys = append(keys, o.Key)
	}
}

// backedUp is a bucket with a backup of two openings, and what the database has.
func backedUp(t *testing.T, o backup.Options) (*blob.Bucket, string) {
	t.Helper()
	o.Every, o.BaseBytes = 30*time.Millisecond, 256<<10
	bucket, dir := memblob.OpenBucket(nil), filepath.Join(t.TempDir(), "db")
	r := rand.New(rand.NewPCG(1, 34))
	want := ""
	for range 2 {
		e := open(t, dir)
		b := start(t, e, bucket, o)
		for range 2 {
			write(t, e, r, 60)
			at := time.Now()
			until(t, "safe", func() bool { return b.Status().Safe.After(at) })
		}
		want = contentsOf(t, e)
		testkit.Try(t, b.Close(t.Context()))
		testkit.Try(t, e.Close())
	}

	return bucket, want
}

// TestDamage changes, shortens and removes each object in turn. A restore fails with an error that says so, or is of
// the right contents, because the object is of another state; Verify finds all of it.
func TestDamage(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	testkit.Try(t, err)
	t.Run("plain", func(t *testing.T) { damage(t, backup.Options{}, backup.RestoreOptions{}) })
	t.Run("encoded", func(t *testing.T) {
		damage(t, backup.Options{Compress: true, Recipients: []string{identity.Recipient().String()}},
			backup.RestoreOptions{Identities: []age.Identity{identity}})
	})
}

func damage(t *testing.T, o backup.Options, how backup.RestoreOptions) {
	bucket, want := backedUp(t, o)
	ctx := t.Context()
	first := map[string]string{} // the number of the first base of each generation; nothing needs the log before it
	all := keysOf(t, bucket)
	named := "" // by bases; Close leaves files of a base that was not finished
	for _, key := range all {
		if part := strings.Split(key, "/"); part[1] == "base" {
			if first[part[0]] == "" {
				first[part[0]], _, _ = strings.Cut(part[2], "-")
			}
			b, err := bucket.ReadAll(ctx, key)
			testkit.Try(t, err)
			named += string(b)
		}
	}
	for i, key := range all {
		if part := strings.Split(key, "/"); part[1] == "log" && part[2] <= first[part[0]] {
			continue
		}
		if strings.Contains(key, "/files/") && !strings.Contains(named, key) {
			continue
		}
		if i%4 != 0 && !night.Is() { // each kind of damage has its turn, because there are three
			continue
		}
		b, err := bucket.ReadAll(ctx, key)
		testkit.Try(t, err)
		switch i % 3 {
		case 0:
			bad := append([]byte{}, b...)
			bad[(i*37)%len(bad)] ^= 0x10
			err = bucket.WriteAll(ctx, key, bad, nil)
		case 1:
			err = bucket.WriteAll(ctx, key, b[:len(b)/2], nil)
		default:
			err = bucket.Delete(ctx, key)
		}
		testkit.Try(t, err)

		into := filepath.Join(t.TempDir(), "restored")
		_, err = backup.Restore(ctx, bucket, into, how)
		kind := strings.Split(key, "/")[1]
		switch {
		case err == nil:
			e := open(t, into)
			got := contentsOf(t, e)
			testkit.Try(t, e.Close())

			// The last base or the last states of the log may be gone without a trace, if they were removed.
			if got != want && i%3 != 2 {
				t.Errorf("%s: the restored contents are wrong", key)
			}
		case errors.Is(err, holdfast.ErrBadOption) && strings.Contains(err.Error(), "encrypted for other keys"):
			// A flipped bit in what age writes about the recipients cannot be told from another recipient.
		case !errors.Is(err, holdfast.ErrCorrupt) && i%3 != 2:
			t.Errorf("%s: %v", key, err)
		case !strings.Contains(err.Error(), key):
			t.Errorf("the error of %s does not name it: %v", key, err)
		}
		if _, gone := os.Stat(into); err != nil && gone == nil {
			t.Errorf("%s: the directory is there after %v", key, err)
		}
		v, err := backup.Verify(ctx, bucket)
		testkit.Try(t, err)
		if len(v.Damage) == 0 && !(i%3 == 2 && kind != "files") {
			t.Errorf("%s: Verify finds nothing", key)
		}
		testkit.Try(t, bucket.WriteAll(ctx, key, b, nil))
	}
	v, err := backup.Verify(ctx, bucket)
	testkit.Try(t, err)
	if len(v.Damage) > 0 || v.Generations != 2 {
		t.Errorf("%+v", v)
	}
}

// TestRefused backs up to a server that refuses everything, for want of rights or room, long enough for the log to be
// let go. The database goes on, Status has the error and no state, and when the server takes uploads again everything
// is there.
func TestRefused(t *testing.T) {
	s := newS3(t)
	bucket := s.bucket(t)
	var refused atomic.Int64
	s.put(func(w http.ResponseWriter, q *http.Request, server http.Handler) {
		if q.Method == http.MethodPut || q.Method == http.MethodPost {
			refused.Add(1)
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "<Error><Code>AccessDenied</Code></Error>")
			return
		}
		server.ServeHTTP(w, q)
	})
	o := small
	o.HeldBytes = 1 << 20
	e := open(t, filepath.Join(t.TempDir(), "db"))
	b := start(t, e, bucket, o)
	r := rand.New(rand.NewPCG(1, 35))
	write(t, e, r, 100)
	until(t, "refused", func() bool { return b.Status().Err != nil })
	if s := b.Status(); !strings.Contains(s.Err.Error(), "must be allowed") || !s.Safe.IsZero() {
		t.Errorf("%+v", s)
	}
	write(t, e, r, 1000)
	s.put(nil)
	at := time.Now()
	until(t, "safe", func() bool { return b.Status().Safe.After(at) })
	if err := b.Status().Err; err != nil {
		t.Error(err)
	}
	write(t, e, r, 100)
	want := contentsOf(t, e)
	testkit.Try(t, b.Close(context.Background()))
	testkit.Try(t, e.Close())
	if got, _ := restored(t, bucket, backup.RestoreOptions{}); got != want {
		t.Error("the contents differ")
	}
}

// TestStalled backs up to a server that does not answer. Close ends with its context, and says so.
func TestStalled(t *testing.T) {
	s := newS3(t)
	bucket := s.bucket(t)
	hang := make(chan struct{})
	s.put(func(w http.ResponseWriter, q *http.Request, server http.Handler) { <-hang })
	defer close(hang)
	e := open(t, filepath.Join(t.TempDir(), "db"))
	b := start(t, e, bucket, small)
	write(t, e, rand.New(rand.NewPCG(1, 36)), 10)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := b.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close returns %v", err)
	}
	testkit.Try(t, e.Close())
}

// TestTwo backs up two databases that were the same, a database and its restored copy, to one bucket at once. Each has
// generations of its own, and both can be restored. The one whose states are not the last ones says so.
func TestTwo(t *testing.T) {
	defer backup.SetLookEvery(time.Millisecond)()
	bucket, _ := backedUp(t, backup.Options{})
	dir := t.TempDir()
	var engines [2]holdfast.Engine
	var backups [2]*backup.Backup
	for i := range engines {
		into := filepath.Join(dir, fmt.Sprint(i))
		_, err := backup.Restore(t.Context(), bucket, into, backup.RestoreOptions{})
		testkit.Try(t, err)
		engines[i] = open(t, into)
	}
	for i := range engines {
		backups[i] = start(t, engines[i], bucket, small)
	}
	var want [2]string
	for i := range engines {
		write(t, engines[i], rand.New(rand.NewPCG(uint64(i), 37)), 300)
		want[i] = contentsOf(t, engines[i])
	}
	first, second := backups[0], backups[1]
	until(t, "generations", func() bool { return first.Status().Generation != "" && second.Status().Generation != "" })
	if first.Status().Generation > second.Status().Generation {
		first, second = second, first
	}
	until(t, "found", func() bool { return errors.Is(first.Status().Err, holdfast.ErrUnavailable) })
	if s := second.Status(); s.Err != nil {
		t.Errorf("the last one: %v", s.Err)
	}
	for i := range engines {
		testkit.Try(t, backups[i].Close(t.Context()))
		testkit.Try(t, engines[i].Close())
	}
	for i := range engines {
		got, _ := restored(t, bucket, backup.RestoreOptions{Generation: backups[i].Status().Generation})
		if got != want[i] {
			t.Errorf("database %d: the contents differ", i)
		}
	}
}

// TestOldLists restores where lists are old: they do not have the last objects.
func TestOldLists(t *testing.T) {
	s := newS3(t)
	bucket := s.bucket(t)
	e := open(t, filepath.Join(t.TempDir(), "db"))
	b := start(t, e, bucket, backup.Options{Every: 5 * time.Millisecond})
	until(t, "based", func() bool { return b.Status().Bases == 1 })
	var old sync.Map // a query, and the first answer to it; the backup and the restore ask at the same time
	list := func(w http.ResponseWriter, q *http.Request, server http.Handler) {
		if q.Method != http.MethodGet || !q.URL.Query().Has("list-type") {
			server.ServeHTTP(w, q)
			return
		}
		answer, found := old.Load(q.URL.RawQuery)
		if !found {
			made := httptest.NewRecorder()
			server.ServeHTTP(made, q)
			answer, _ = old.LoadOrStore(q.URL.RawQuery, made)
		}
		w.Header().Set("Content-Type", "application/xml")
		w.Write(answer.(*httptest.ResponseRecorder).Body.Bytes())
	}
	s.put(list)
	into := filepath.Join(t.TempDir(), "first")
	_, err := backup.Restore(t.Context(), bucket, into, backup.RestoreOptions{}) // which makes the lists
	testkit.Try(t, err)
	write(t, e, rand.New(rand.NewPCG(1, 38)), 200)
	want := contentsOf(t, e)
	testkit.Try(t, b.Close(t.Context()))
	testkit.Try(t, e.Close())
	if got, _ := restored(t, bucket, backup.RestoreOptions{}); got != want {
		t.Error("the contents differ")
	}
}

// TestEncrypted restores what is compressed and encrypted with the key that it was encrypted for, and with no other.
// Nothing of the contents can be read in the bucket; Verify needs no key; and another key begins anew.
func TestEncrypted(t *testing.T) {
	ctx := t.Context()
	var keys [2]*age.X25519Identity
	for i := range keys {
		var err error
		keys[i], err = age.GenerateX25519Identity()
		testkit.Try(t, err)
	}
	bucket, dir := memblob.OpenBucket(nil), filepath.Join(t.TempDir(), "db")
	for i, key := range keys {
		e := open(t, dir)
		b := start(t, e, bucket, backup.Options{Recipients: []string{key.Recipient().String()}, Compress: i == 1})
		var batch holdfast.Batch
		batch.Set(fmt.Appendf(nil, "a secret %d", i), bytes.Repeat([]byte("the secret "), 200_000)) // a piece of its own
		testkit.Try(t, holdfast.Commit(e, &batch, holdfast.Power))
		want := contentsOf(t, e)
		testkit.Try(t, b.Close(ctx))
		testkit.Try(t, e.Close())

		into := filepath.Join(t.TempDir(), "restored")
		for _, wrong := range [][]age.Identity{nil, {keys[1-i]}} {
			_, err := backup.Restore(ctx, bucket, into, backup.RestoreOptions{Identities: wrong})
			if !errors.Is(err, holdfast.ErrBadOption) || !strings.Contains(err.Error(), "encrypted") {
				t.Errorf("with %d wrong keys: %v", len(wrong), err)
			}
		}
		_, err := backup.Restore(ctx, bucket, into, backup.RestoreOptions{Identities: []age.Identity{key}})
		testkit.Try(t, err)
		e = open(t, into)
		if contentsOf(t, e) != want {
			t.Error("the contents differ")
		}
		testkit.Try(t, e.Close())
	}
	v, err := backup.Verify(ctx, bucket)
	testkit.Try(t, err)
	if len(v.Damage) > 0 || v.Bases < 2 {
		t.Errorf("%+v", v)
	}
	for _, key := range keysOf(t, bucket) {
		b, err := bucket.ReadAll(ctx, key)
		testkit.Try(t, err)
		if bytes.Contains(b, []byte("secret")) {
			t.Errorf("%s can be read", key)
		}
	}
	_, err = backup.Start(nil, bucket, backup.Options{Recipients: []string{"me"}})
	if !errors.Is(err, holdfast.ErrBadOption) {
		t.Error(err)
	}
}
