package backup_test

import (
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
	"sync/atomic"
	"testing"
	"time"

	"gocloud.dev/blob"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/backup"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// restorer restores, and says what the restore has read and what was there.
func restorer() error {
	var o order
	out := os.Stdout
	if err := child.Serve("restorer", os.Stdin, &o); err != nil {
		return err
	}
	ctx := context.Background()
	bucket, err := backup.OpenBucket(ctx, o.Bucket)
	if err != nil {
		return err
	}
	r, err := backup.Restore(ctx, bucket, o.Dir, backup.RestoreOptions{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d %d\n", r.Bytes, r.Kept)

	return nil
}

// large backs up a database of several files and returns what it has.
func large(t *testing.T, bucket *blob.Bucket, o backup.Options) string {
	t.Helper()
	e := open(t, filepath.Join(t.TempDir(), "db"))
	b := start(t, e, bucket, o)
	r := rand.New(rand.NewPCG(1, 40))
	for range 6 {
		write(t, e, r, 150)
		at := time.Now()
		until(t, "safe", func() bool { return b.Status().Safe.After(at) })
	}
	want := contentsOf(t, e)
	testkit.Try(t, b.Close(t.Context()))
	testkit.Try(t, e.Close())

	return want
}

// TestRestoreKilled kills a restore again and again, and does damage to what it leaves. There is no directory until one
// comes to its end, and that one has read only what was missing, and the log.
func TestRestoreKilled(t *testing.T) {
	s := newS3(t)
	bucket := s.bucket(t)
	want := large(t, bucket, backup.Options{Every: 30 * time.Millisecond, BaseBytes: 512 << 10})
	whole, err := backup.Restore(t.Context(), bucket, filepath.Join(t.TempDir(), "whole"), backup.RestoreOptions{})
	testkit.Try(t, err)

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 41))
	into := filepath.Join(t.TempDir(), "restored")
	for round := range night.Or(30, 6) {
		// The server stops after so many objects, or in the middle of one, which is when the restore is killed.
		var objects atomic.Int64
		last, stopped := int64(2+r.IntN(4)), make(chan struct{}, 100)
		hang := make(chan struct{})
		s.put(func(w http.ResponseWriter, q *http.Request, server http.Handler) {
			n := int64(0)
			if q.Method == http.MethodGet && !q.URL.Query().Has("list-type") {
				n = objects.Add(1)
			}
			if n <= last {
				server.ServeHTTP(w, q)
				return
			}
			full := httptest.NewRecorder()
			server.ServeHTTP(full, q)
			for name, list := range full.Header() {
				w.Header()[name] = list
			}
			w.WriteHeader(full.Code)
			_, _ = w.Write(full.Body.Bytes()[:full.Body.Len()/2])
			w.(http.Flusher).Flush()
			stopped <- struct{}{}
			<-hang
		})
		self, err := child.Command(nil, "restorer")
		testkit.Try(t, err)
		p, err := child.Start(self, order{into, s.address()})
		testkit.Try(t, err)
		said := make(chan string, 1)
		go func() {
			text, _ := io.ReadAll(p.Out)
			said <- string(text)
		}()
		ended := ""
		select {
		case <-stopped:
			p.Kill()
			<-said
		case ended = <-said: // there was so much already
		}
		state, err := p.Wait()
		close(hang)
		s.put(nil)
		if ended != "" {
			t.Logf("round %d came to an end: %s", round, ended)
			break
		}
		if state == nil || state.ExitCode() != -1 {
			t.Fatal(p.Said(err))
		}
		if _, err := os.Stat(into); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("round %d: after a kill there is a directory: %v", round, err)
		}
		if _, err := logtree.Open(into+".partial", holdfast.Options{}); !errors.Is(err, holdfast.ErrForeign) {
			t.Fatalf("round %d: what a kill leaves can be opened: %v", round, err)
		}

		// What a power cut may do, and somebody.
		files, err := os.ReadDir(into + ".partial")
		testkit.Try(t, err)
		f := files[r.IntN(len(files))].Name()
		name := filepath.Join(into+".partial", f)
		b, err := os.ReadFile(name)
		testkit.Try(t, err)
		switch {
		case round%3 == 0 && len(b) > 0:
			b[r.IntN(len(b))] ^= 1
			testkit.Try(t, os.WriteFile(name, b, 0o644))
		case round%3 == 1:
			testkit.Try(t, os.WriteFile(name, append(b, "more"...), 0o644))
		default:
			testkit.Try(t, os.WriteFile(filepath.Join(into+".partial", "00009999.seg"), []byte("other"), 0o644))
		}
	}

	kept := int64(0)
	if _, err := os.Stat(into); err != nil {
		again, err := backup.Restore(t.Context(), bucket, into, backup.RestoreOptions{})
		testkit.Try(t, err)
		t.Logf("%+v, at once %+v", again, whole)
		kept = again.Kept
		if again.Bytes+again.Kept != whole.Bytes || again.Kept == 0 {
			t.Errorf("restored %+v, at once %+v", again, whole)
		}
	}
	v, err := logtree.Verify(into)
	testkit.Try(t, err)
	if len(v.Damage) > 0 {
		t.Error(v.Damage)
	}
	e := open(t, into)
	if contentsOf(t, e) != want {
		t.Errorf("the contents differ, of which %d bytes were kept", kept)
	}
	testkit.Try(t, e.Close())
	if _, err := os.Stat(into + ".partial"); err == nil {
		t.Error("DIR.partial is still there")
	}
}

// TestRestoreOther begins with one state and ends with another: nothing of the first stays.
func TestRestoreOther(t *testing.T) {
	s := newS3(t)
	bucket := s.bucket(t)
	e := open(t, filepath.Join(t.TempDir(), "db"))
	b := start(t, e, bucket, small)
	r := rand.New(rand.NewPCG(1, 42))
	write(t, e, r, 100)
	at := time.Now()
	until(t, "safe", func() bool { return b.Status().Safe.After(at) })
	first, want := b.Status().Safe, contentsOf(t, e)
	time.Sleep(2 * time.Millisecond) // states are told apart by milliseconds
	write(t, e, r, 400)
	testkit.Try(t, b.Close(t.Context()))
	testkit.Try(t, e.Close())

	// The last state, up to an object of the log that is damaged.
	v, err := backup.Verify(t.Context(), bucket)
	testkit.Try(t, err)
	if len(v.Damage) > 0 {
		t.Fatal(v.Damage)
	}
	var gets atomic.Int64
	s.put(func(w http.ResponseWriter, q *http.Request, server http.Handler) {
		if q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/files/") && gets.Add(1) > 3 {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "<Error><Code>AccessDenied</Code></Error>")
			return
		}
		server.ServeHTTP(w, q)
	})
	into := filepath.Join(t.TempDir(), "restored")
	_, err = backup.Restore(t.Context(), bucket, into, backup.RestoreOptions{})
	if err == nil || !strings.Contains(err.Error(), "must be allowed") || !strings.Contains(err.Error(), ".partial") {
		t.Errorf("a restore that is refused: %v", err)
	}
	if _, err := os.Stat(into + ".partial"); err != nil {
		t.Error(err)
	}
	s.put(nil)
	_, err = backup.Restore(t.Context(), bucket, into, backup.RestoreOptions{At: first})
	testkit.Try(t, err)
	e = open(t, into)
	if contentsOf(t, e) != want {
		t.Error("the contents differ")
	}
	testkit.Try(t, e.Close())
}

// TestRestoreStalls restores from a server that stalls in the middle of an object: that ends, with an error that says
// so, and what was read stays.
func TestRestoreStalls(t *testing.T) {
	s := newS3(t)
	bucket := s.bucket(t)
	want := large(t, bucket, small)
	defer backup.SetRequestTimeout(time.Second)()
	hang := make(chan struct{})
	defer close(hang)
	var gets atomic.Int64
	s.put(func(w http.ResponseWriter, q *http.Request, server http.Handler) {
		full := httptest.NewRecorder()
		server.ServeHTTP(full, q)
		for name, list := range full.Header() {
			w.Header()[name] = list
		}
		w.WriteHeader(full.Code)
		if q.Method == http.MethodGet && !q.URL.Query().Has("list-type") && gets.Add(1) > 3 {
			_, _ = w.Write(full.Body.Bytes()[:full.Body.Len()/2])
			w.(http.Flusher).Flush()
			<-hang
			return
		}
		_, _ = w.Write(full.Body.Bytes())
	})
	into := filepath.Join(t.TempDir(), "restored")
	_, err := backup.Restore(t.Context(), bucket, into, backup.RestoreOptions{})
	if err == nil || !strings.Contains(err.Error(), "stalled") || errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("a restore that stalls: %v", err)
	}
	s.put(nil)
	backup.SetRequestTimeout(time.Minute)
	_, none := os.Stat(into + ".partial") // if this machine is so busy that even the first object has stalled
	r, err := backup.Restore(t.Context(), bucket, into, backup.RestoreOptions{})
	testkit.Try(t, err)
	e := open(t, into)
	if contentsOf(t, e) != want || r.Kept == 0 && none == nil {
		t.Errorf("%+v, or the contents differ", r)
	}
	testkit.Try(t, e.Close())
}
