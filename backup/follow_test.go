package backup_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/backup"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// counted writes batches that are numbered: whoever has the first n of them has, for each key, what the last of them
// that set it has written.
const countedKeys = 300

func countedValue(n int) []byte {
	return bytes.Repeat([]byte{byte(n), byte(n >> 8)}, 20+n%400)
}

func count(t *testing.T, e holdfast.Engine, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		var b holdfast.Batch
		b.Set([]byte("n"), binary.BigEndian.AppendUint64(nil, uint64(n)))
		b.Set(fmt.Appendf(nil, "k-%03d", n%countedKeys), countedValue(n))
		testkit.Try(t, holdfast.Commit(e, &b, holdfast.Process))
	}
}

// counted returns the number of the last batch that is there, with all before it and nothing else.
func counted(t *testing.T, e holdfast.Engine) int {
	t.Helper()
	v, err := e.Get(nil, []byte("n"))
	if errors.Is(err, holdfast.ErrNotFound) {
		return 0
	}
	testkit.Try(t, err)
	n := int(binary.BigEndian.Uint64(v))
	it, keys := e.Scan(holdfast.Range{Lo: []byte("k-"), Hi: []byte("k.")}), 0
	for ; it.Next(); keys++ {
		var k int
		if _, err := fmt.Sscanf(string(it.Key()), "k-%d", &k); err != nil {
			t.Fatal(err)
		}
		last := n - (n-k+countedKeys)%countedKeys
		if !bytes.Equal(it.Value(), countedValue(last)) {
			t.Fatalf("of %d batches, %s is not that of %d", n, it.Key(), last)
		}
	}
	testkit.Try(t, it.Close())
	if keys != min(n, countedKeys) {
		t.Fatalf("of %d batches there are %d keys", n, keys)
	}

	return n
}

// read opens a directory for reading, and returns how many batches it has.
func read(t *testing.T, dir string) int {
	t.Helper()
	e, err := logtree.Open(dir, holdfast.Options{ReadOnly: true, MemoryBytes: 1 << 20})
	testkit.Try(t, err)
	n := counted(t, e)
	testkit.Try(t, e.Close())

	return n
}

var quick = backup.FollowOptions{Every: 3 * time.Millisecond, LookEvery: 10 * time.Millisecond, Source: "a test"}

func follow(t *testing.T, bucket *blob.Bucket, dir string) *backup.Follower {
	t.Helper()
	f, err := backup.Follow(bucket, dir, quick)
	testkit.Try(t, err)

	return f
}

// has waits until a follower has all that is in the bucket now.
func has(t *testing.T, f *backup.Follower) {
	t.Helper()
	now, done := time.Now(), false
	defer func() {
		if !done {
			t.Logf("%+v", f.Status())
		}
	}()
	until(t, "followed", func() bool { return f.Status().Checked.After(now) })
	done = true
}

// safe waits until all that was written is in the bucket.
func safe(t *testing.T, b *backup.Backup) {
	t.Helper()
	now := time.Now()
	until(t, "safe", func() bool { return b.Status().Safe.After(now) })
}

// TestFollow follows a database over several openings, with bases that come often, and reads it on the way. Then the
// copy is promoted.
func TestFollow(t *testing.T) {
	bucket, at := memblob.OpenBucket(nil), t.TempDir()
	dir, copied := filepath.Join(at, "db"), filepath.Join(at, "deep", "copy")
	f := follow(t, bucket, copied)
	until(t, "an error that there is no state", func() bool { return errors.Is(f.Status().Err, holdfast.ErrNotFound) })
	n := 1
	for opening := range 3 {
		e := open(t, dir)
		b := start(t, e, bucket, small)
		for range 4 {
			count(t, e, n, n+400)
			n += 400
			safe(t, b)
			gen := b.Status().Generation
			until(t, "the new generation", func() bool { return f.Status().Generation == gen })
			has(t, f)
			if got := read(t, copied); got != n-1 {
				t.Fatalf("opening %d: the copy has %d of %d batches; %+v", opening, got, n-1, f.Status())
			}
		}
		testkit.Try(t, b.Close(t.Context()))
		testkit.Try(t, e.Close())
	}
	has(t, f) // whoever reads is an error for a moment
	s := f.Status()
	if s.Bases < 3 || s.Err != nil || s.Lag() > time.Minute {
		t.Errorf("%+v", s)
	}
	t.Logf("%+v", s)

	// Nobody else follows into it, promotes it, or writes to it.
	if _, err := backup.Follow(bucket, copied, quick); !errors.Is(err, holdfast.ErrLocked) {
		t.Errorf("a second follower: %v", err)
	}
	if _, err := backup.Promote(copied); !errors.Is(err, holdfast.ErrLocked) {
		t.Errorf("promoted while it follows: %v", err)
	}
	testkit.Try(t, f.Close())
	if _, err := logtree.Open(copied, holdfast.Options{}); !errors.Is(err, holdfast.ErrUnavailable) ||
		!strings.Contains(err.Error(), "promote") {
		t.Errorf("opened for writing: %v", err)
	}
	v, err := logtree.Verify(copied)
	if err != nil || len(v.Damage) > 0 {
		t.Errorf("%v %v", v, err)
	}

	// Promoted it is a database like any other.
	when, err := backup.Promote(copied)
	testkit.Try(t, err)
	if !when.Equal(s.Time) {
		t.Errorf("promoted as of %v, followed to %v", when, s.Time)
	}
	e := open(t, copied)
	if got := counted(t, e); got != n-1 {
		t.Errorf("promoted with %d of %d", got, n-1)
	}
	b := start(t, e, bucket, small)
	count(t, e, n, n+100)
	safe(t, b)
	testkit.Try(t, b.Close(t.Context()))
	testkit.Try(t, e.Close())
	if names, _ := filepath.Glob(filepath.Join(copied, "FOLLOW*")); len(names) > 1 { // its lock
		t.Errorf("left: %q", names)
	}
	if _, err := backup.Promote(copied); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("promoted again: %v", err)
	}
	if _, err := backup.Follow(bucket, copied, quick); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("followed into a database: %v", err)
	}
	into := filepath.Join(at, "restored")
	_, err = backup.Restore(t.Context(), bucket, into, backup.RestoreOptions{})
	testkit.Try(t, err)
	if got := read(t, into); got != n+99 {
		t.Errorf("what the promoted copy wrote is not in the bucket: %d of %d", got, n+99)
	}
}

// TestFollowKilled looks at the directory as a kill would leave it, between all steps: it can be promoted, and then has
// a state that was there before or comes next; and it can be followed on.
func TestFollowKilled(t *testing.T) {
	bucket, at := memblob.OpenBucket(nil), t.TempDir()
	dir, copied := filepath.Join(at, "db"), filepath.Join(at, "copy")
	var mu sync.Mutex
	var left []string
	steps, every := 0, night.Or(1, 3)
	defer backup.FollowStep(func(dir string) {
		mu.Lock()
		defer mu.Unlock()
		if steps++; dir != copied || steps%every != 0 {
			return
		}
		to := filepath.Join(at, fmt.Sprintf("left-%05d", steps))
		if err := datadir.CopyFiles(context.Background(), dir, to); err != nil {
			t.Error(err)
		}
		left = append(left, to)
	})()
	f := follow(t, bucket, copied)
	n := 1
	for range 2 {
		e := open(t, dir)
		b := start(t, e, bucket, small)
		for range 3 {
			count(t, e, n, n+700)
			n += 700
			safe(t, b)
			has(t, f)
		}
		testkit.Try(t, b.Close(t.Context()))
		testkit.Try(t, e.Close())
	}
	has(t, f)
	testkit.Try(t, f.Close())
	mu.Lock()
	all := left
	mu.Unlock()
	if len(all) < 10 {
		t.Fatalf("only %d steps", len(all))
	}
	most := 0
	for i, dir := range all {
		if i%2 == 0 {
			g := follow(t, bucket, dir)
			has(t, g)
			testkit.Try(t, g.Close())
			if got := read(t, dir); got != n-1 {
				t.Errorf("%s was followed to %d of %d", dir, got, n-1)
			}
		}
		before, err := backup.Promote(dir)
		if errors.Is(err, holdfast.ErrNotFound) && most == 0 {
			continue
		}
		testkit.Try(t, err)
		e := open(t, dir)
		got := counted(t, e)
		testkit.Try(t, e.Close())
		if i%2 == 0 {
			continue
		}
		if got < most {
			t.Errorf("%s was promoted at %d, %v, and one before at %d", dir, got, before, most)
		}
		most = got
		testkit.Try(t, os.RemoveAll(dir))
	}
	t.Logf("%d steps, %d looked at", steps, len(all))
}

// TestFollowCutOff takes from the follower what it needs: the log is removed by the rule of what is kept, an object is
// damaged, and the source lets go of log. The copy goes on from the next base.
func TestFollowCutOff(t *testing.T) {
	bucket, at := memblob.OpenBucket(nil), t.TempDir()
	dir, copied := filepath.Join(at, "db"), filepath.Join(at, "copy")
	e := open(t, dir)
	b := start(t, e, bucket, small)
	count(t, e, 1, 100)
	safe(t, b)
	f := follow(t, bucket, copied)
	has(t, f)
	testkit.Try(t, f.Close())
	n := 100
	check := func(what string) {
		t.Helper()
		f := follow(t, bucket, copied)
		has(t, f)
		testkit.Try(t, f.Close())
		if got := read(t, copied); got != n-1 {
			t.Errorf("%s: %d of %d", what, got, n-1)
		}
	}
	more := func() {
		t.Helper()
		was := b.Status().Bases
		until(t, "a base", func() bool {
			count(t, e, n, n+50)
			n += 50
			return b.Status().Bases > was
		})
		safe(t, b)
	}

	// All log before the last base is removed that no base names.
	more()
	more()
	testkit.Try(t, b.Close(t.Context())) // the files of a base that is being made would be removed
	pruned, err := backup.PruneNow(t.Context(), bucket, backup.Keep{Hourly: 1})
	testkit.Try(t, err)
	if pruned.Bases == 0 || pruned.Objects == 0 {
		t.Fatalf("removed %+v", pruned)
	}
	check("removed")
	b = start(t, e, bucket, small)

	// A file that the last base names is gone: the copy stays as it is, and goes on from the next base that is whole.
	f = follow(t, bucket, copied)
	has(t, f)
	testkit.Try(t, f.Close())
	more()
	testkit.Try(t, b.Close(t.Context())) // a base that is being made would be whole
	for _, key := range keysOf(t, bucket) {
		if strings.Contains(key, "/files/") {
			testkit.Try(t, bucket.Delete(t.Context(), key))
		}
	}
	f = follow(t, bucket, copied)
	until(t, "the lack is told", func() bool { return errors.Is(f.Status().Err, holdfast.ErrCorrupt) })
	testkit.Try(t, f.Close())
	if got := read(t, copied); got < 100 || got > n-1 {
		t.Errorf("with files gone: %d of %d", got, n-1)
	}
	b = start(t, e, bucket, small)
	safe(t, b)
	check("in another generation")

	// Damage to what comes next, until there is a base behind it.
	f = follow(t, bucket, copied)
	has(t, f)
	testkit.Try(t, f.Close())
	was := map[string]bool{}
	for _, key := range keysOf(t, bucket) {
		was[key] = true
	}
	count(t, e, n, n+20)
	n += 20
	safe(t, b)
	for _, key := range keysOf(t, bucket) {
		if strings.Contains(key, "/log/") && !was[key] {
			testkit.Try(t, bucket.WriteAll(t.Context(), key, []byte("nothing"), nil))
		}
	}
	f = follow(t, bucket, copied)
	until(t, "damage is told", func() bool { return errors.Is(f.Status().Err, holdfast.ErrCorrupt) })
	if lag := f.Status(); !lag.Checked.IsZero() {
		t.Errorf("it says that it has all: %+v", lag)
	}
	more()
	has(t, f)
	testkit.Try(t, f.Close())
	if got := read(t, copied); got != n-1 {
		t.Errorf("damaged: %d of %d", got, n-1)
	}
	testkit.Try(t, b.Close(t.Context()))
	testkit.Try(t, e.Close())

	// Another database in the same place is not followed.
	e = open(t, filepath.Join(at, "other"))
	b = start(t, e, bucket, small)
	count(t, e, 1, 10)
	safe(t, b)
	f = follow(t, bucket, copied)
	until(t, "another database is told", func() bool { return errors.Is(f.Status().Err, holdfast.ErrForeign) })
	testkit.Try(t, f.Close())
	testkit.Try(t, b.Close(t.Context()))
	testkit.Try(t, e.Close())
	if got := read(t, copied); got != n-1 {
		t.Errorf("it has followed another database: %d", got)
	}
}

// TestFollowRead keeps a copy open: it does not change meanwhile, says so, and goes on after that.
func TestFollowRead(t *testing.T) {
	bucket, at := memblob.OpenBucket(nil), t.TempDir()
	copied := filepath.Join(at, "copy")
	e := open(t, filepath.Join(at, "db"))
	b := start(t, e, bucket, small)
	count(t, e, 1, 100)
	safe(t, b)
	f := follow(t, bucket, copied)
	has(t, f)
	reader, err := logtree.Open(copied, holdfast.Options{ReadOnly: true})
	testkit.Try(t, err)
	count(t, e, 100, 200)
	until(t, "the lock is told", func() bool { return errors.Is(f.Status().Err, holdfast.ErrLocked) })
	if got := counted(t, reader); got != 99 {
		t.Errorf("a reader sees %d", got)
	}
	testkit.Try(t, f.Close())
	f = follow(t, bucket, copied) // also when it begins
	until(t, "the lock is told", func() bool { return errors.Is(f.Status().Err, holdfast.ErrLocked) })
	testkit.Try(t, reader.Close())
	safe(t, b)
	has(t, f)
	if got := read(t, copied); got != 199 {
		t.Errorf("then it has %d", got)
	}
	testkit.Try(t, f.Close())
	testkit.Try(t, b.Close(t.Context()))
	testkit.Try(t, e.Close())
}

// TestFollowHistory: who has read more of a log than the copy has is told so after it was promoted and has gone on.
func TestFollowHistory(t *testing.T) {
	bucket, at := memblob.OpenBucket(nil), t.TempDir()
	copied := filepath.Join(at, "copy")
	ctx := t.Context()
	events := func(e holdfast.Engine, n int) *event.Store {
		t.Helper()
		log, err := event.Open(kv.On(e), event.Options{})
		testkit.Try(t, err)
		for range n {
			_, err := log.Append(ctx, event.Event{Type: "E"})
			testkit.Try(t, err)
		}
		return log
	}
	e := open(t, filepath.Join(at, "db"))
	b := start(t, e, bucket, small)
	log := events(e, 10)
	safe(t, b)
	f := follow(t, bucket, copied)
	has(t, f)
	testkit.Try(t, f.Close())
	_, err := log.Append(ctx, event.Event{Type: "E"})
	testkit.Try(t, err)
	history := log.History()
	testkit.Try(t, log.Close())
	testkit.Try(t, b.Close(ctx))
	testkit.Try(t, e.Close())

	_, err = backup.Promote(copied)
	testkit.Try(t, err)
	e = open(t, copied)
	log = events(e, 5)
	if err := log.CheckHistory(history, 11); err != nil {
		t.Errorf("what both have: %v", err)
	}
	if err := log.CheckHistory(history, 12); !errors.Is(err, event.ErrAhead) {
		t.Errorf("what only the source had: %v", err)
	}
	testkit.Try(t, log.Close())
	testkit.Try(t, e.Close())
}

// TestFollowDamaged changes the follower's own files: it says so, and does nothing with the copy.
func TestFollowDamaged(t *testing.T) {
	bucket, at := memblob.OpenBucket(nil), t.TempDir()
	copied := filepath.Join(at, "copy")
	e := open(t, filepath.Join(at, "db"))
	b := start(t, e, bucket, small)
	count(t, e, 1, 100)
	safe(t, b)
	f := follow(t, bucket, copied)
	has(t, f)
	testkit.Try(t, f.Close())
	for _, name := range []string{"FOLLOW", "FOLLOW.base"} {
		path := filepath.Join(copied, name)
		good, err := os.ReadFile(path)
		testkit.Try(t, err)
		for i := range good {
			bad := bytes.Clone(good)
			bad[i] ^= 4
			testkit.Try(t, os.WriteFile(path, bad, 0o644))
			_, err := backup.Follow(bucket, copied, quick)
			if !errors.Is(err, holdfast.ErrCorrupt) && !errors.Is(err, holdfast.ErrVersion) {
				t.Fatalf("%s with byte %d changed: %v", name, i, err)
			}
			if _, err := backup.Promote(copied); err == nil {
				t.Fatalf("%s with byte %d changed was promoted", name, i)
			}
		}
		testkit.Try(t, os.WriteFile(path, good, 0o644))
	}
	if got := read(t, copied); got != 99 {
		t.Errorf("%d are left", got)
	}
	f = follow(t, bucket, copied)
	has(t, f)
	testkit.Try(t, f.Close())
	if err := os.WriteFile(filepath.Join(at, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{at, filepath.Join(at, "file"), filepath.Join(at, "db")} {
		if _, err := backup.Follow(bucket, dir, quick); err == nil {
			t.Errorf("it follows into %s", dir)
		}
		if _, err := backup.Promote(dir); err == nil {
			t.Errorf("%s is promoted", dir)
		}
	}
	testkit.Try(t, b.Close(t.Context()))
	testkit.Try(t, e.Close())
}

// TestFollowProcess kills a process that follows, again and again, and promotes what is left.
func TestFollowProcess(t *testing.T) {
	if dir := os.Getenv("BACKUP_FOLLOW_INTO"); dir != "" {
		bucket, err := backup.OpenBucket(t.Context(), os.Getenv("BACKUP_FOLLOW_URL"))
		testkit.Try(t, err)
		follow(t, bucket, dir)
		select {}
	}
	at := t.TempDir()
	copied, url := filepath.Join(at, "copy"), "file://"+filepath.Join(at, "bucket")
	bucket, err := backup.MakeBucket(t.Context(), url)
	testkit.Try(t, err)
	e := open(t, filepath.Join(at, "db"))
	b := start(t, e, bucket, small)
	n := 1
	for round := range night.Or(200, 8) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFollowProcess$")
		cmd.Env = append(os.Environ(), "BACKUP_FOLLOW_INTO="+copied, "BACKUP_FOLLOW_URL="+url)
		testkit.Try(t, cmd.Start())
		until(t, "a copy", func() bool {
			count(t, e, n, n+20)
			n += 20
			_, err := os.Stat(filepath.Join(copied, "FOLLOW"))
			return err == nil
		})
		for end := time.Now().Add(time.Duration(20+37*round%150) * time.Millisecond); time.Now().Before(end); n += 5 {
			count(t, e, n, n+5)
		}
		testkit.Try(t, cmd.Process.Kill())
		_ = cmd.Wait()
		to := filepath.Join(at, fmt.Sprint("left-", round))
		testkit.Try(t, datadir.CopyFiles(t.Context(), copied, to))
		_, err := backup.Promote(to)
		testkit.Try(t, err)
		p := open(t, to)
		if got := counted(t, p); got >= n {
			t.Errorf("round %d: %d of %d", round, got, n)
		}
		testkit.Try(t, p.Close())
		testkit.Try(t, os.RemoveAll(to))
	}
	safe(t, b)
	f := follow(t, bucket, copied)
	has(t, f)
	testkit.Try(t, f.Close())
	if got := read(t, copied); got != n-1 {
		t.Errorf("%d of %d", got, n-1)
	}
	testkit.Try(t, b.Close(t.Context()))
	testkit.Try(t, e.Close())
	testkit.Try(t, bucket.Close())
}

// TestFollowCut follows over S3, where answers of the follower's requests are cut off in the middle, or are errors: at
// last it has what the source has, and until then nothing else.
func TestFollowCut(t *testing.T) {
	s, at := newS3(t), t.TempDir()
	copied := filepath.Join(at, "copy")
	e := open(t, filepath.Join(at, "db"))
	b := start(t, e, s.bucket(t), small)
	count(t, e, 1, 1000)
	safe(t, b)
	r, broken := rand.New(rand.NewPCG(1, 56)), 0
	var mu sync.Mutex
	s.put(func(w http.ResponseWriter, req *http.Request, server http.Handler) {
		mu.Lock()
		what := r.IntN(12)
		if broken == 0 {
			what %= 3
		}
		whole := req.Method != http.MethodGet || what > 2
		if !whole {
			broken++
		}
		mu.Unlock()
		if whole {
			server.ServeHTTP(w, req)
			return
		}
		if what == 0 {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, req)
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Length", fmt.Sprint(answer.Body.Len()))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
		panic(http.ErrAbortHandler)
	})
	f := follow(t, s.bucket(t), copied)
	has(t, f)
	count(t, e, 1000, 1500)
	for got := 0; got != 1499; {
		has(t, f)
		if got = read(t, copied); got < 999 {
			t.Fatalf("it has %d", got)
		}
	}
	s.put(nil)
	testkit.Try(t, f.Close())
	testkit.Try(t, b.Close(t.Context()))
	testkit.Try(t, e.Close())
	mu.Lock()
	defer mu.Unlock()
	if broken == 0 {
		t.Error("nothing was broken")
	}
	t.Logf("%d answers were broken; %+v", broken, f.Status())
}

// TestPromoteOthers: what no follower has made is refused, and left as it is.
func TestPromoteOthers(t *testing.T) {
	other := t.TempDir()
	testkit.Try(t, os.WriteFile(filepath.Join(other, "letter"), []byte("dear"), 0o600))
	for _, dir := range []string{other, filepath.Join(other, "missing"), t.TempDir()} {
		if _, err := backup.Promote(dir); err == nil || strings.Contains(err.Error(), "lock") {
			t.Errorf("promote %s: %v", dir, err)
		}
	}
	entries, err := os.ReadDir(other)
	if testkit.Try(t, err); len(entries) != 1 {
		t.Errorf("%v is there now", entries)
	}
}
