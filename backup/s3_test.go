package backup_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/s3blob"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/backup"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// TestMain makes the process a child if it was started as one.
func TestMain(m *testing.M) {
	os.Setenv("AWS_ACCESS_KEY_ID", "test")
	os.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	if len(os.Args) > 1 {
		if f := children[os.Args[1]]; f != nil {
			if err := f(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// children are what this executable does when a test starts it.
var children = map[string]func() error{"victim": victim, "restorer": restorer}

// s3 is a server of S3 in memory. What is in between, if it is not nil, handles requests before it.
type s3 struct {
	*httptest.Server
	between atomic.Pointer[func(w http.ResponseWriter, r *http.Request, server http.Handler)]
}

func newS3(t *testing.T) *s3 {
	t.Helper()
	s := &s3{}
	server := gofakes3.New(s3mem.New(), gofakes3.WithTimeSkewLimit(0)).Server() // tests have clocks of their own
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := s.between.Load(); f != nil {
			(*f)(w, r, server)
			return
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	req, err := http.NewRequest(http.MethodPut, s.URL+"/backups", nil)
	testkit.Try(t, err)
	answer, err := http.DefaultClient.Do(req)
	testkit.Try(t, err)
	answer.Body.Close()

	return s
}

func (s *s3) put(f func(w http.ResponseWriter, r *http.Request, server http.Handler)) {
	if f == nil {
		s.between.Store(nil)
		return
	}
	s.between.Store(&f)
}

// address is that of the bucket.
func (s *s3) address() string {
	return "s3://backups/orders?region=us-east-1&use_path_style=true&endpoint=" + s.URL
}

func (s *s3) bucket(t *testing.T) *blob.Bucket {
	t.Helper()
	bucket, err := backup.OpenBucket(t.Context(), s.address())
	testkit.Try(t, err)
	t.Cleanup(func() { testkit.Try(t, bucket.Close()) })

	return bucket
}

// order is what a victim does.
type order struct {
	Dir, Bucket string
}

// victim writes keys, one after the other, and backs up. It says "wrote N" when N is acknowledged, and "safe N" when N
// was acknowledged before a moment that the backup calls safe.
func victim() error {
	var o order
	out := os.Stdout // which Serve keeps from libraries
	if err := child.Serve("victim", os.Stdin, &o); err != nil {
		return err
	}
	e, err := logtree.Open(o.Dir, holdfast.Options{MemoryBytes: 4 << 20})
	if err != nil {
		return err
	}
	bucket, err := backup.OpenBucket(context.Background(), o.Bucket)
	if err != nil {
		return err
	}
	b, err := backup.Start(e, bucket, backup.Options{Every: 20 * time.Millisecond, BaseBytes: 1 << 20})
	if err != nil {
		return err
	}
	n, it := 0, e.Scan(holdfast.Range{Reverse: true})
	if it.Next() {
		n, _ = strconv.Atoi(string(it.Key()))
	}
	if err := it.Close(); err != nil {
		return err
	}

	var done atomic.Int64
	go func() {
		for {
			at, wrote := time.Now(), done.Load()
			for !b.Status().Safe.After(at) {
				time.Sleep(time.Millisecond)
			}
			fmt.Fprintf(out, "safe %d\n", wrote)
		}
	}()
	for ; ; n++ {
		var batch holdfast.Batch
		batch.Set(fmt.Appendf(nil, "%08d", n+1), value(n+1))
		if err := holdfast.Commit(e, &batch, holdfast.Process); err != nil {
			return err
		}
		done.Store(int64(n + 1))
		time.Sleep(100 * time.Microsecond) // so that uploads keep up
	}
}

func value(n int) []byte { return []byte(strings.Repeat(fmt.Sprint(n, " "), 1+n%200)) }

// TestKill kills a process that writes and backs up to a server of S3, at random moments and again and again in the
// same directory, and restores: everything is there that was called safe, without a gap, and nothing else.
func TestKill(t *testing.T) {
	s, dir := newS3(t), filepath.Join(t.TempDir(), "db")
	bucket := s.bucket(t)
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	safe, rounds := 0, night.Or(50, 4)
	for round := range rounds {
		self, err := child.Command(nil, "victim")
		testkit.Try(t, err)
		p, err := child.Start(self, order{dir, s.address()})
		testkit.Try(t, err)
		await := round == rounds-1 && safe == 0 // on a slow machine: something has to have been safe
		if !await {
			time.AfterFunc(time.Duration(300+r.IntN(2000))*time.Millisecond, p.Kill)
		}
		lines := bufio.NewScanner(p.Out)
		for lines.Scan() {
			if _, err := fmt.Sscanf(lines.Text(), "safe %d", &safe); err != nil {
				t.Fatal(lines.Text())
			}
			if await && safe > 0 {
				p.Kill()
			}
		}
		if state, err := p.Wait(); state == nil || state.ExitCode() != -1 {
			t.Fatal(p.Said(err))
		}

		into := filepath.Join(t.TempDir(), "restored")
		info, err := backup.Restore(t.Context(), bucket, into, backup.RestoreOptions{})
		if errors.Is(err, holdfast.ErrNotFound) && safe == 0 {
			continue
		}
		testkit.Try(t, err)
		v, err := logtree.Verify(into)
		testkit.Try(t, err)
		if len(v.Damage) > 0 {
			t.Fatal(v.Damage)
		}
		e := open(t, into)
		n, it := 0, e.Scan(holdfast.Range{})
		for it.Next() {
			n++
			if string(it.Key()) != fmt.Sprintf("%08d", n) || string(it.Value()) != string(value(n)) {
				t.Fatalf("round %d: key %d is %s", round, n, it.Key())
			}
		}
		testkit.Try(t, it.Close())
		testkit.Try(t, e.Close())
		t.Logf("round %d: %d keys, %d were safe, %+v", round, n, safe, *info)
		if n < safe {
			t.Fatalf("round %d: %d keys are restored, %d were safe", round, n, safe)
		}
	}
	if safe == 0 {
		t.Error("nothing was ever safe")
	}
	v, err := backup.Verify(t.Context(), bucket)
	testkit.Try(t, err)
	if len(v.Damage) > 0 {
		t.Error(v.Damage)
	}
	t.Logf("%+v", *v)
}

// TestBadServer backs up to a server that refuses, loses answers, stalls and breaks off, and restores what is safe
// whenever it works for a while. No object is ever put again with other contents.
func TestBadServer(t *testing.T) {
	s := newS3(t)
	bucket := s.bucket(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 2))
	contents, changed := map[string]string{}, []string{}
	s.put(func(w http.ResponseWriter, q *http.Request, server http.Handler) {
		body, err := io.ReadAll(q.Body)
		mu.Lock()
		x := r.IntN(12)
		if q.Method == http.MethodPut && err == nil && !q.URL.Query().Has("uploadId") {
			if was, ok := contents[q.URL.Path]; ok && was != string(body) {
				changed = append(changed, q.URL.Path)
			}
			contents[q.URL.Path] = string(body)
		}
		mu.Unlock()
		q.Body = io.NopCloser(strings.NewReader(string(body)))
		switch x {
		case 0:
			http.Error(w, "slow down", http.StatusServiceUnavailable)
		case 1: // it is done, and the answer is lost
			server.ServeHTTP(httptest.NewRecorder(), q)
			panic(http.ErrAbortHandler)
		case 2:
			panic(http.ErrAbortHandler)
		case 3: // an answer that is cut short
			full := httptest.NewRecorder()
			server.ServeHTTP(full, q)
			for name, list := range full.Header() {
				w.Header()[name] = list
			}
			w.Header().Set("Content-Length", fmt.Sprint(full.Body.Len()))
			w.WriteHeader(full.Code)
			w.Write(full.Body.Bytes()[:full.Body.Len()/2])
			if full.Body.Len() > 0 {
				panic(http.ErrAbortHandler)
			}
		default:
			server.ServeHTTP(w, q)
		}
	})
	e := open(t, filepath.Join(t.TempDir(), "db"))
	b := start(t, e, bucket, small)
	writes := rand.New(rand.NewPCG(seed, 3))
	for range 4 {
		write(t, e, writes, 200)
		at, want := time.Now(), ""
		want = contentsOf(t, e)
		until(t, "safe", func() bool { return b.Status().Safe.After(at) })
		good := s.between.Swap(nil)
		got, _ := restored(t, bucket, backup.RestoreOptions{At: b.Status().Safe})
		s.between.Store(good)
		if got != want {
			t.Fatalf("the contents differ: %d bytes, want %d", len(got), len(want))
		}
	}
	s.put(nil)
	testkit.Try(t, b.Close(context.Background()))
	testkit.Try(t, e.Close())
	slices.Sort(changed)
	if changed = slices.Compact(changed); len(changed) > 0 {
		t.Errorf("objects were put again with other contents: %q", changed)
	}
}
