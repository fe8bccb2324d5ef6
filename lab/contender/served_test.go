package contender

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/lab/contender/rust"
)

// eachRust runs a test on every engine in Rust, if their program is there: tests build nothing.
func eachRust(t *testing.T, test func(t *testing.T, entry all.Entry)) {
	if _, err := rust.Path(); err != nil {
		t.Skip("THE ENGINES IN RUST ARE NOT TESTED: ", err)
	}
	for _, entry := range RustEngines() {
		t.Run(entry.Name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			test(t, entry)
		})
	}
}

// openRust opens an engine in dir for its strongest level.
func openRust(t *testing.T, entry all.Entry, dir string) *served {
	t.Helper()
	e, err := entry.Open(dir, holdfast.Options{Level: entry.Describe().Strongest(), MemoryBytes: 100 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return e.(*served)
}

// model is what there should be.
type model map[string]string

func (m model) check(t *testing.T, r holdfast.Reader, within holdfast.Range) {
	t.Helper()
	want := slices.DeleteFunc(slices.Sorted(maps.Keys(m)), func(key string) bool {
		return key < string(within.Lo) || len(within.Hi) > 0 && key >= string(within.Hi)
	})
	it := r.Scan(within)
	for _, key := range want {
		if !it.Next() || string(it.Key()) != key || string(it.Value()) != m[key] {
			t.Fatalf("%q where %q should be, %v", it.Key(), key, it.Err())
		}
	}
	for range 2 {
		if it.Next() {
			t.Fatalf("%q behind the last", it.Key())
		}
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
}

// apply makes a batch that changes keys more than once, in the engine and in the model.
func (m model) apply(t *testing.T, e holdfast.Engine, level holdfast.Level, random *rand.Rand) {
	t.Helper()
	var b holdfast.Batch
	key := func() string { return fmt.Sprintf("key %04d", random.IntN(1000)) }
	for range random.IntN(60) {
		switch k := key(); random.IntN(10) {
		case 0, 1:
			b.Delete([]byte(k))
			delete(m, k)
		case 2:
			to := key()
			if random.IntN(10) == 0 {
				to = ""
			}
			b.DeleteRange([]byte(k), []byte(to))
			maps.DeleteFunc(m, func(key, _ string) bool { return key >= k && (to == "" || key < to) })
		default:
			value := bytes.Repeat([]byte{byte(random.IntN(256))}, random.IntN(3)*random.IntN(4000))
			b.Set([]byte(k), value)
			m[k] = string(value)
		}
	}
	if err := holdfast.Commit(e, &b, level); err != nil {
		t.Fatal(err)
	}
}

// TestServedMemory: an engine runs with the budget that it is opened with, and says so.
func TestServedMemory(t *testing.T) {
	want := map[string]map[string]string{
		Redb:      {"cache_size": "104857600"},
		Fjall:     {"cache_size": "78643200", "max_memtable_size": "26214400"},
		Thunderdb: {"memory_budget": "none: all data is in memory", "wal_enabled": "false"},
		RustNull:  {"memory_budget": "none: all data is in memory"},
	}
	eachRust(t, func(t *testing.T, entry all.Entry) {
		e := openRust(t, entry, filepath.Join(t.TempDir(), "new"))
		got := map[string]string{}
		for _, s := range e.Capabilities().Settings {
			got[s.Name] = s.Value
		}
		for name, value := range want[entry.Name] {
			if got[name] != value {
				t.Errorf("%s is %q, and not %q", name, got[name], value)
			}
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestServedKeepsKeys compares an engine with a map, at each level and over a close.
func TestServedKeepsKeys(t *testing.T) {
	eachRust(t, func(t *testing.T, entry all.Entry) {
		for _, level := range holdfast.Levels() {
			if entry.Describe().Promise(level).Given == 0 {
				continue
			}
			random, m := rand.New(rand.NewPCG(1, uint64(level))), model{}
			dir := filepath.Join(t.TempDir(), "new")
			e := openRust(t, entry, dir)
			m.check(t, e, holdfast.Range{})
			if _, err := e.Get(nil, []byte("none")); !errors.Is(err, holdfast.ErrNotFound) {
				t.Errorf("a key of an empty engine: %v", err)
			}
			for i := range 60 {
				m.apply(t, e, level, random)
				if i%20 == 0 {
					m.check(t, e, holdfast.Range{})
				}
			}
			m["large"] = strings.Repeat("0123456789abcdef", 1<<17) // more than a pipe or a chunk holds
			var b holdfast.Batch
			b.Set([]byte("large"), []byte(m["large"]))
			if err := holdfast.Commit(e, &b, level); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				lo, hi := fmt.Sprintf("key %04d", random.IntN(1000)), fmt.Sprintf("key %04d", random.IntN(1000))
				m.check(t, e, holdfast.Range{Lo: []byte(lo), Hi: []byte(hi)})
			}
			keys := [][]byte{[]byte("large"), []byte("none"), []byte(slices.Sorted(maps.Keys(m))[0])}
			err := e.GetAll(keys, func(i int, value []byte) error {
				if want, ok := m[string(keys[i])]; string(value) != want || (value == nil) == ok {
					t.Errorf("%q is %.20q", keys[i], value)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			for key, want := range m {
				if got, err := e.Get([]byte("x"), []byte(key)); err != nil || string(got) != "x"+want {
					t.Errorf("%q is %.20q, %v", key, got, err)
				}
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			if err := e.Close(); !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("closed again: %v", err)
			}
			if _, err := e.Get(nil, []byte("large")); !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("read after Close: %v", err)
			}
			if entry.Describe().Strongest() == holdfast.Memory {
				continue
			}
			e = openRust(t, entry, dir)
			m.check(t, e, holdfast.Range{})
			if _, err := entry.Open(dir, holdfast.Options{Level: level}); !errors.Is(err, holdfast.ErrLocked) {
				t.Errorf("opened twice: %v", err)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestServedIteratorsSeeOneState: none shows what was written since, and a snapshot stays as it was.
func TestServedIteratorsSeeOneState(t *testing.T) {
	eachRust(t, func(t *testing.T, entry all.Entry) {
		e := openRust(t, entry, t.TempDir())
		defer e.Close()
		level, random, m := entry.Describe().Strongest(), rand.New(rand.NewPCG(2, 2)), model{}
		for len(m) < 100 {
			m.apply(t, e, level, random)
		}
		snapshot, err := e.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		before, it := maps.Clone(m), e.Scan(holdfast.Range{})
		m.apply(t, e, level, random)
		if it.Next() || !errors.Is(it.Close(), holdfast.ErrUnavailable) {
			t.Errorf("an iterator goes on after a write: %q, %v", it.Key(), it.Err())
		}
		before.check(t, snapshot, holdfast.Range{})
		m.check(t, e, holdfast.Range{})
		if err := errors.Join(snapshot.Close(), snapshot.Close()); err != nil {
			t.Error(err)
		}
		if it := e.Scan(holdfast.Range{Reverse: true}); it.Next() || !errors.Is(it.Close(), holdfast.ErrUnavailable) {
			t.Errorf("backwards: %v", it.Err())
		}
	})
}

// TestServedIsCounted: commits, syncs, time and memory of the other process.
func TestServedIsCounted(t *testing.T) {
	eachRust(t, func(t *testing.T, entry all.Entry) {
		e := openRust(t, entry, t.TempDir())
		m, random, level := model{}, rand.New(rand.NewPCG(3, 3)), entry.Describe().Strongest()
		before, cpu := e.Metrics(), measureUse(t, e)
		const n = 20
		for range n {
			m.apply(t, e, level, random)
		}
		after := e.Metrics()
		if after.Commits != before.Commits+n {
			t.Errorf("%d commits, then %d", before.Commits, after.Commits)
		}
		// thunderdb does not sync what changes nothing.
		if syncs := after.Syncs - before.Syncs; runtime.GOOS == "linux" && (syncs >= n-2) != (level == holdfast.Power) {
			t.Errorf("%d syncs of %d commits at %v", syncs, n, level)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if now := measureUse(t, e); now < cpu {
			t.Errorf("%v of a processor, then %v", cpu, now)
		}
		if closed := e.Metrics(); closed.Commits != after.Commits || closed.Syncs < after.Syncs {
			t.Errorf("%+v after Close, %+v before", closed, after)
		}
	})
}

func measureUse(t *testing.T, e *served) float64 {
	t.Helper()
	use := e.Use()
	if runtime.GOOS == "linux" && (use.CPU <= 0 || use.PeakRSS < 1<<20) {
		t.Errorf("%v of a processor, %d bytes", use.CPU, use.PeakRSS)
	}
	return use.CPU.Seconds()
}

// TestServedDies: once its process is gone, an engine says so, and acknowledges nothing.
func TestServedDies(t *testing.T) {
	eachRust(t, func(t *testing.T, entry all.Entry) {
		dir := t.TempDir()
		e := openRust(t, entry, dir)
		var b holdfast.Batch
		b.Set([]byte("key"), []byte("value"))
		level := entry.Describe().Strongest()
		if err := holdfast.Commit(e, &b, level); err != nil {
			t.Fatal(err)
		}
		e.process.Kill()
		for range 2 {
			if err := holdfast.Commit(e, &b, level); !errors.Is(err, holdfast.ErrPoisoned) {
				t.Errorf("committed: %v", err)
			}
		}
		if _, err := e.Get(nil, []byte("key")); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("it says %v", err)
		}
		if m := e.Metrics(); m.Commits != 1 || m.Poison == nil {
			t.Errorf("%+v", m)
		}
		if err := e.Close(); err == nil {
			t.Error("closed without an error")
		}
		if level == holdfast.Memory {
			return
		}
		e = openRust(t, entry, dir)
		model{"key": "value"}.check(t, e, holdfast.Range{})
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestServedIsNotThere: without cargo, and where the build fails, the engines say why they are not available.
func TestServedIsNotThere(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the program is for Unix")
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	t.Setenv("PATH", home)
	t.Cleanup(func() { rustFailed.err = nil })
	refused := func(why string) {
		t.Helper()
		for _, entry := range RustEngines() {
			if c := entry.Describe(); c.Strongest() != 0 || !strings.Contains(c.Power.Why, why) {
				t.Errorf("%s: %+v", entry.Name, c)
			}
			_, err := entry.Open(filepath.Join(home, entry.Name), holdfast.Options{})
			if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), why) {
				t.Errorf("%s: %v", entry.Name, err)
			}
		}
	}
	refused("there is no cargo")
	var said bytes.Buffer
	if err := Prepare(t.Context(), []string{Redb}, &said); err != nil || said.Len() > 0 {
		t.Errorf("%v, %s", err, &said)
	}
	script := "#!/bin/sh\necho 'error: no crates' >&2\nexit 101\n"
	if err := os.WriteFile(filepath.Join(home, "cargo"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, entry := range RustEngines() {
		if c := entry.Describe(); c.Strongest() == 0 {
			t.Errorf("%s: %+v, but it could be built", entry.Name, c)
		}
	}
	if err := Prepare(t.Context(), []string{"logtree"}, io.Discard); err != nil {
		t.Errorf("what is not named is built: %v", err)
	}
	if err := Prepare(t.Context(), []string{"logtree", Redb}, &said); err == nil || said.Len() == 0 {
		t.Errorf("%v, %s", err, &said)
	}
	refused("error: no crates")
	if left, err := filepath.Glob(filepath.Join(home, "cache", "holdfast", "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
