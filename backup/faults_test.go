package backup_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gocloud.dev/blob/memblob"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/backup"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// answer answers a request with an error as S3 does.
func answer(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
}

// is reports whether a request is one of a kind.
func is(q *http.Request, kind string) bool {
	switch kind {
	case "list":
		return q.Method == http.MethodGet && q.URL.Query().Has("list-type")
	case "get":
		return q.Method == http.MethodGet && !q.URL.Query().Has("list-type") || q.Method == http.MethodHead
	case "delete":
		return q.Method == http.MethodDelete
	}

	return q.Method == http.MethodPut || q.Method == http.MethodPost
}

// TestFaults has a server refuse each kind of request for each reason. The database goes on; the backup, or who
// restores, verifies or removes states, says why, and what to do; and when the server takes the requests again all is
// as it should be.
func TestFaults(t *testing.T) {
	for _, reason := range []struct {
		name, code, says string
		status           int
		class            error
		kinds            []string
	}{
		{"rights", "AccessDenied", "must be allowed", http.StatusForbidden, nil, []string{"put", "list", "get", "delete"}},
		{"full", "StorageFull", "make room", http.StatusInsufficientStorage, holdfast.ErrFull, []string{"put"}},
		{"clock", "RequestTimeTooSkewed", "clock", http.StatusForbidden, nil, []string{"put", "list", "get", "delete"}},
	} {
		for _, kind := range reason.kinds {
			t.Run(reason.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s := newS3(t)
				bucket := s.bucket(t)
				dir := filepath.Join(t.TempDir(), "db")
				check := func(what string, err error) {
					t.Helper()
					if err == nil || !strings.Contains(err.Error(), reason.says) ||
						reason.class != nil && !errors.Is(err, reason.class) {
						t.Errorf("%s: %v", what, err)
					}
				}
				var refused atomic.Int64
				refuse := func(w http.ResponseWriter, q *http.Request, server http.Handler) {
					if is(q, kind) {
						refused.Add(1)
						answer(w, reason.status, reason.code)
						return
					}
					server.ServeHTTP(w, q)
				}

				// One generation is there, so that a start has something to read.
				r := rand.New(rand.NewPCG(1, 43))
				e := open(t, dir)
				write(t, e, r, 50)
				testkit.Try(t, start(t, e, bucket, small).Close(t.Context()))

				s.put(refuse)
				b := start(t, e, bucket, small)
				write(t, e, r, 50)
				into := filepath.Join(t.TempDir(), "restored")
				switch kind {
				case "put", "list":
					until(t, "refused", func() bool { return b.Status().Err != nil })
					check("backup", b.Status().Err)
				case "get": // only what the last generation has is not known
					at := time.Now()
					until(t, "safe", func() bool { return b.Status().Safe.After(at) })
				}
				switch kind {
				case "list", "get":
					_, err := backup.Restore(t.Context(), bucket, into, backup.RestoreOptions{})
					check("restore", err)
					v, err := backup.Verify(t.Context(), bucket)
					if err == nil && len(v.Damage) > 0 {
						err = v.Damage[0]
					}
					if errors.Is(err, holdfast.ErrCorrupt) {
						t.Errorf("what cannot be read is no damage: %v", err)
					}
					check("verify", err)
				case "delete":
					until(t, "safe", func() bool { return !b.Status().Safe.IsZero() })
					_, err := backup.PruneNow(t.Context(), bucket, backup.Keep{Hourly: 1})
					check("prune", err)
				}
				if refused.Load() == 0 {
					t.Error("nothing was refused")
				}

				s.put(nil)
				write(t, e, r, 50)
				at := time.Now()
				until(t, "safe again", func() bool { return b.Status().Safe.After(at) })
				want := contentsOf(t, e)
				testkit.Try(t, b.Close(context.Background()))
				testkit.Try(t, e.Close())
				_, err := backup.PruneNow(t.Context(), bucket, backup.Keep{Hourly: 1})
				testkit.Try(t, err)
				if got, _ := restored(t, bucket, backup.RestoreOptions{}); got != want {
					t.Error("the contents differ")
				}
			})
		}
	}
}

// TestSkew backs up where the machine's clock is two hours wrong: S3 refuses what is signed so, says what time it is,
// and the next request is signed with that.
func TestSkew(t *testing.T) {
	s := newS3(t)
	bucket := s.bucket(t)
	there := func() time.Time { return time.Now().Add(2 * time.Hour) }
	var refused, taken atomic.Int64
	s.put(func(w http.ResponseWriter, q *http.Request, server http.Handler) {
		w.Header().Set("Date", there().UTC().Format(http.TimeFormat))
		signed, err := time.Parse("20060102T150405Z", q.Header.Get("X-Amz-Date"))
		if err != nil || there().Sub(signed).Abs() > 15*time.Minute {
			refused.Add(1)
			answer(w, http.StatusForbidden, "RequestTimeTooSkewed")
			return
		}
		taken.Add(1)
		server.ServeHTTP(w, q)
	})
	e := open(t, filepath.Join(t.TempDir(), "db"))
	b := start(t, e, bucket, small)
	write(t, e, rand.New(rand.NewPCG(1, 44)), 100)
	at := time.Now()
	until(t, "safe", func() bool { return b.Status().Safe.After(at) })
	want := contentsOf(t, e)
	testkit.Try(t, b.Close(t.Context()))
	testkit.Try(t, e.Close())
	if refused.Load() == 0 || taken.Load() == 0 {
		t.Errorf("%d requests were refused, %d taken", refused.Load(), taken.Load())
	}
	if got, _ := restored(t, bucket, backup.RestoreOptions{}); got != want {
		t.Error("the contents differ")
	}
}

// TestStallsAndGoesOn backs up to a server that does not answer any request for a while, each kind: that ends, and the
// backup goes on by itself when the server answers again.
func TestStallsAndGoesOn(t *testing.T) {
	t.Cleanup(backup.SetRequestTimeout(time.Second))
	for _, kind := range []string{"put", "list", "get"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newS3(t)
			bucket := s.bucket(t)
			dir := filepath.Join(t.TempDir(), "db")
			r := rand.New(rand.NewPCG(1, 45))
			e := open(t, dir)
			write(t, e, r, 50)
			b := start(t, e, bucket, small)
			until(t, "safe", func() bool { return !b.Status().Safe.IsZero() })
			testkit.Try(t, b.Close(context.Background()))
			hang := make(chan struct{})
			var hung atomic.Int64
			s.put(func(w http.ResponseWriter, q *http.Request, server http.Handler) {
				if is(q, kind) {
					hung.Add(1)
					<-hang
				}
				server.ServeHTTP(w, q)
			})
			b = start(t, e, bucket, small)
			write(t, e, r, 50)
			if kind == "get" {
				until(t, "hung", func() bool { return hung.Load() > 0 })
			} else {
				until(t, "stalled", func() bool {
					err := b.Status().Err
					return err != nil && strings.Contains(err.Error(), "stalled")
				})
			}
			s.put(nil)
			at := time.Now()
			until(t, "safe again", func() bool { return b.Status().Safe.After(at) })
			close(hang)
			want := contentsOf(t, e)
			testkit.Try(t, b.Close(context.Background()))
			testkit.Try(t, e.Close())
			if got, _ := restored(t, bucket, backup.RestoreOptions{}); got != want {
				t.Error("the contents differ")
			}
		})
	}
}

// TestRate uploads a large base slowly. The log does not wait for it: half of the base comes only after two writes. The
// rate is kept.
func TestRate(t *testing.T) {
	s := newS3(t)
	bucket := s.bucket(t)
	const total = 16 << 20 // of which a burst goes at once
	var logs, others atomic.Int64
	two := make(chan struct{}) // writes
	goOn := sync.OnceFunc(func() { close(two) })
	defer goOn() // or what serves the bucket does not end
	s.put(func(w http.ResponseWriter, q *http.Request, server http.Handler) {
		if q.Method == http.MethodPut && strings.Contains(q.URL.Path, "/log/") {
			logs.Add(1)
		} else if q.Method == http.MethodPut && strings.Contains(q.URL.Path, "/files/") &&
			others.Add(q.ContentLength) > total/2 {
			<-two
		}
		server.ServeHTTP(w, q)
	})
	e := open(t, filepath.Join(t.TempDir(), "db"))
	r := rand.New(rand.NewPCG(1, 46))
	value := make([]byte, 1<<20)
	for i := range total >> 20 {
		for j := range value {
			value[j] = byte(r.Uint32())
		}
		var batch holdfast.Batch
		batch.Set(fmt.Appendf(nil, "large-%d", i), value)
		testkit.Try(t, holdfast.Commit(e, &batch, holdfast.Process))
	}
	begun := time.Now()
	const rate = 8 << 20
	b := start(t, e, bucket, backup.Options{Every: 5 * time.Millisecond, BaseBytes: 1 << 40, Rate: rate})

	for range 2 {
		had := logs.Load()
		write(t, e, r, 1)
		until(t, "log", func() bool { return logs.Load() > had })
	}
	if b.Status().Bases > 0 {
		t.Error("the base is there already")
	}
	goOn()
	until(t, "base", func() bool { return b.Status().Bases > 0 })
	if took, least := time.Since(begun), time.Second*(total-9<<20)/rate; took < least {
		t.Errorf("%d bytes took %v, and should take %v", others.Load(), took, least)
	}
	if others.Load() < total {
		t.Errorf("%d bytes were uploaded", others.Load())
	}
	want := contentsOf(t, e)
	testkit.Try(t, b.Close(context.Background()))
	testkit.Try(t, e.Close())
	if got, _ := restored(t, bucket, backup.RestoreOptions{}); got != want {
		t.Error("the contents differ")
	}
	if _, err := backup.Start(nil, bucket, backup.Options{Rate: 1000}); !errors.Is(err, holdfast.ErrBadOption) {
		t.Error(err)
	}
}

// TestVerifyEvery verifies on a schedule. A good one is known to the next start; damage is counted, and the present
// state is uploaded again, while older ones stay damaged.
func TestVerifyEvery(t *testing.T) {
	s := newS3(t)
	bucket, dir := s.bucket(t), filepath.Join(t.TempDir(), "db")
	r := rand.New(rand.NewPCG(1, 47))
	o := small
	o.VerifyEvery, o.Logger = time.Hour, slog.New(slog.DiscardHandler)
	e := open(t, dir)
	write(t, e, r, 300)
	b := start(t, e, bucket, o)
	until(t, "verified", func() bool { return !b.Status().Verified.IsZero() })
	verified := b.Status().Verified
	testkit.Try(t, b.Close(context.Background()))
	b = start(t, e, bucket, o)
	until(t, "known", func() bool { return !b.Status().Verified.IsZero() })
	if was := b.Status().Verified; was.Sub(verified).Abs() > time.Millisecond {
		t.Errorf("verified at %v, and then known as %v", verified, was)
	}
	testkit.Try(t, b.Close(context.Background()))

	// Each object in turn of the last state.
	o.VerifyEvery = 50 * time.Millisecond
	b = start(t, e, bucket, o)
	until(t, "safe", func() bool { return !b.Status().Safe.IsZero() })
	bad := 0
	for _, key := range keysOf(t, bucket) {
		if !strings.Contains(key, ".seg-") && !strings.Contains(key, "/base/") {
			continue
		}
		bad++
		text, err := bucket.ReadAll(t.Context(), key)
		testkit.Try(t, err)
		text[len(text)/2] ^= 1
		testkit.Try(t, bucket.WriteAll(t.Context(), key, text, nil))
	}
	until(t, "damage", func() bool { return b.Status().Damage > 0 })
	was := b.Status()
	write(t, e, r, 10)
	until(t, "mended", func() bool {
		now := b.Status()
		if now.Bases <= was.Bases || !now.Safe.After(was.Safe) {
			return false
		}
		_, err := backup.Restore(t.Context(), bucket, filepath.Join(t.TempDir(), "tried"), backup.RestoreOptions{})

		return err == nil
	})
	if b.Status().Verified.After(time.Now()) || b.Status().Damage == 0 {
		t.Errorf("%+v", b.Status())
	}
	want := contentsOf(t, e)
	testkit.Try(t, b.Close(context.Background()))
	testkit.Try(t, e.Close())
	if got, _ := restored(t, bucket, backup.RestoreOptions{}); got != want {
		t.Error("the contents differ")
	}
	if v, err := backup.Verify(t.Context(), bucket); err != nil || len(v.Damage) == 0 || bad == 0 {
		t.Errorf("%d objects were damaged: %+v %v", bad, v, err)
	}
}

// TestAdoptsWhatIsThere starts a backup where objects that the last base names were removed or cut short: they are
// uploaded again, and the others are not.
func TestAdoptsWhatIsThere(t *testing.T) {
	bucket, dir := memblob.OpenBucket(nil), filepath.Join(t.TempDir(), "db")
	e := open(t, dir)
	write(t, e, rand.New(rand.NewPCG(1, 48)), 400)
	first := start(t, e, bucket, small)
	until(t, "based", func() bool { return first.Status().Bases > 0 })
	testkit.Try(t, first.Close(t.Context()))
	lost, kept := 0, map[string]bool{} // without the number of the base
	for i, key := range keysOf(t, bucket) {
		if !strings.Contains(key, "/files/") || strings.Contains(key, "MANIFEST") {
			continue
		}
		switch i % 3 {
		case 0:
			testkit.Try(t, bucket.Delete(t.Context(), key))
			lost++
		case 1:
			text, err := bucket.ReadAll(t.Context(), key)
			testkit.Try(t, err)
			testkit.Try(t, bucket.WriteAll(t.Context(), key, text[:len(text)/2], nil))
			lost++
		default:
			kept[path.Base(key[:strings.LastIndex(key, "-")])] = true
		}
	}
	second := start(t, e, bucket, small)
	until(t, "based", func() bool { return second.Status().Bases > 0 })
	want := contentsOf(t, e)
	testkit.Try(t, second.Close(t.Context()))
	testkit.Try(t, e.Close())
	if got, _ := restored(t, bucket, backup.RestoreOptions{}); got != want {
		t.Error("the contents differ")
	}
	for _, key := range keysOf(t, bucket) {
		if strings.HasPrefix(key, second.Status().Generation+"/files/") &&
			kept[path.Base(key[:strings.LastIndex(key, "-")])] {
			t.Errorf("%s is uploaded again", key)
		}
	}
	if lost == 0 || len(kept) == 0 {
		t.Errorf("%d files were lost, %d were there", lost, len(kept))
	}
}
