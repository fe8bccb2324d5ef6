package badger

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// witness records what of each log was there when it was synced.
type witness struct {
	t       *testing.T
	mu      sync.Mutex
	synced  map[string]int64 // by path: end of what a sync has covered
	alone   map[string]int64 // the same, for syncs before the next log was made
	dirs    int
	dirSeen map[string]bool // logs that were there when the directory was synced
}

func newWitness(t *testing.T) *witness {
	return &witness{t: t, synced: map[string]int64{}, alone: map[string]int64{}, dirSeen: map[string]bool{}}
}

// end is the end of what is written in the log at path, -1 if it is gone.
func (w *witness) end(path string, from int64) int64 {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return -1
	}
	if err != nil {
		w.t.Error(err)
		return -1
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() == 0 {
		return -1
	}
	end, err := lastByte(f, from)
	if err != nil {
		w.t.Error(err)
	}
	return end
}

func (w *witness) sync(path string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	ext := filepath.Ext(path)
	if ext == "" {
		w.dirs++
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		for _, e := range entries {
			w.dirSeen[filepath.Join(path, e.Name())] = true
		}
		return nil
	}
	if end := w.end(path, w.synced[path]); end >= 0 {
		w.synced[path] = end
		if _, err := os.Stat(w.next(path)); errors.Is(err, fs.ErrNotExist) {
			w.alone[path] = end
		}
	}
	return nil
}

func (w *witness) next(path string) string {
	dir := filepath.Dir(path)
	for n := 1; ; n++ {
		if walPath(dir, n) == path {
			return walPath(dir, n+1)
		}
		if valuePath(dir, n) == path {
			return valuePath(dir, n+1)
		}
	}
}

// covered fails unless every byte of every log was synced, and the directory with all logs
// in it. It returns the logs that are there.
func (w *witness) covered(dir string) []string {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var logs []string
	for _, pattern := range []string{"*.mem", "*.vlog"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			w.t.Fatal(err)
		}
		for _, path := range found {
			end := w.end(path, w.synced[path])
			if end < 0 {
				continue // a table has taken its place
			}
			logs = append(logs, path)
			if end > w.synced[path] && end > logHeader {
				w.t.Errorf("%s has %d bytes, of which a sync has covered %d", path, end, w.synced[path])
			}
			if !w.dirSeen[path] {
				w.t.Errorf("the directory was not synced with %s in it", path)
			}
		}
	}
	return logs
}

// When a Power commit is acknowledged, every byte of every log has been synced, whatever was
// written at Process before it and however many logs that took; and a log is synced to its
// end before the first transaction goes to the next one.
func TestPowerCoversAllLogs(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := newWitness(t)
	e := mustOpen(t, t.TempDir(), hooks{sync: w.sync})
	value := make([]byte, 2000)
	for i := range value {
		value[i] = byte(rnd.IntN(255) + 1)
	}
	ends := map[string]int64{} // of every log, as far as seen
	keys := 0
	for first := e.logs.wal.number; e.logs.wal.number < first+2; {
		large := rnd.IntN(40) == 0
		level := holdfast.Process
		if rnd.IntN(10) == 0 {
			level = holdfast.Power
		}
		commit(t, e, level, func(b *holdfast.Batch) {
			for range 1 + rnd.IntN(600) {
				b.Set(key(keys), value[:rnd.IntN(len(value))])
				keys++
			}
			if large {
				b.Set(key(keys), append(make([]byte, 1<<20), value...))
				keys++
			}
		})
		if level == holdfast.Power {
			w.covered(e.logs.dir)
		}
		if keys > 400_000 {
			t.Fatal("no second log after 400,000 keys")
		}
		path := e.logs.wal.Name()
		ends[path] = max(ends[path], w.end(path, ends[path]))
	}
	for path, end := range ends {
		if path != e.logs.wal.Name() && w.alone[path] != end {
			t.Errorf("%s has %d bytes, of which %d were synced before the next log was made", path, end, w.alone[path])
		}
	}
	if got := count(t, e); got != keys {
		t.Errorf("%d keys, want %d", got, keys)
	}
}

// What a killed process has left in the logs is synced before anything is built on it.
func TestOpenSyncsWhatItFinds(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	e := mustOpen(t, from, hooks{})
	commit(t, e, holdfast.Process, func(b *holdfast.Batch) {
		b.Set(key(1), []byte("v"))
		b.Set(key(2), make([]byte, 2<<20))
	})
	copyDir(t, to, from) // as a kill would leave it
	e = mustOpen(t, to, hooks{})
	if m := e.Metrics(); m.TornBytes != 0 {
		t.Errorf("%d bytes were torn", m.TornBytes)
	}
	if got := count(t, e); got != 2 {
		t.Errorf("%d keys, want 2", got)
	}
}

// fill says a memtable may be full before it is, but not long before.
func TestFill(t *testing.T) {
	t.Parallel()
	e := mustOpen(t, t.TempDir(), hooks{})
	value := make([]byte, 100)
	var early, written int64 = -1, 0
	for n, first := 0, e.logs.wal.number; e.logs.wal.number == first; {
		wasFull := e.logs.fill.full()
		commit(t, e, holdfast.Process, func(b *holdfast.Batch) {
			for range 200 {
				b.Set(key(n), value[:n%100])
				n++
			}
			written += int64(b.Size())
		})
		if written > 4*memTableSize {
			t.Fatalf("no second log after %d bytes", written)
		}
		if wasFull && early < 0 {
			early = written
		}
		if e.logs.wal.number == first {
			if _, err := os.Stat(walPath(e.logs.dir, first+1)); err == nil {
				t.Fatalf("the library went on to the next log unnoticed, after %d bytes", written)
			}
		}
	}
	if share := float64(written-early) / float64(written); early < 0 || share > 0.01 {
		t.Errorf("the memtable was taken for full during %.1f %% of its life", 100*share)
	}
}
