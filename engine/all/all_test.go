package all_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		address, name, dir string
		o                  holdfast.Options
	}{
		{"mem:", "mem", "", holdfast.Options{}},
		{":data", all.Default, "data", holdfast.Options{}},
		{"bbolt:data", "bbolt", "data", holdfast.Options{}},
		{"pebble:/var/lib/x?level=process", "pebble", "/var/lib/x", holdfast.Options{Level: holdfast.Process}},
		{"badger:C:\\data?sync-every=250ms&memory=64MiB", "badger", "C:\\data",
			holdfast.Options{SyncEvery: 250 * time.Millisecond, MemoryBytes: 64 << 20}},
		{"sqlite-go:what%3F?sync-every=never&memory=1000", "sqlite-go", "what?",
			holdfast.Options{SyncEvery: -1, MemoryBytes: 1000}},
	} {
		name, dir, o, err := all.ParseURL(c.address)
		if err != nil || name != c.name || dir != c.dir || o != c.o {
			t.Errorf("%s: %q %q %+v %v", c.address, name, dir, o, err)
		}
	}
	for address, say := range map[string]string{
		"pebble":                    "no colon",
		"leveldb:x":                 "the engines are logtree, ",
		"pebble:x?level=strong":     "memory, process, power",
		"pebble:x?cache=1":          "level, sync-every, memory",
		"pebble:x?sync-every=-1s":   "sync-every",
		"pebble:x?sync-every=soon":  "sync-every",
		"pebble:x?memory=-5":        "memory",
		"pebble:x?memory=99999TiB":  "memory",
		"pebble:x?memory=1&memory=": "twice",
		"pebble:100%?level=power":   "%25",
		"logtree://data/x?level=process": `write "logtree:data/x?level=process" for a directory below the current one, ` +
			`"logtree:/data/x?level=process" for`,
		"://data/x":       `"logtree:/data/x"`,
		"bbolt:///data/x": `; write "bbolt:/data/x"`,
	} {
		if _, _, _, err := all.ParseURL(address); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v; want an error with %q", address, err, say)
		}
		if _, err := all.OpenURL(address); err == nil {
			t.Errorf("%s was opened", address)
		}
	}
}

// What an engine says of itself unopened is consistent, and true once it is open.
func TestDescriptions(t *testing.T) {
	for _, e := range all.Engines() {
		t.Run(e.Name, func(t *testing.T) {
			d := e.Describe()
			if d.Engine != e.Name {
				t.Errorf("it calls itself %q", d.Engine)
			}
			for _, asked := range holdfast.Levels() {
				switch p := d.Promise(asked); {
				case p.Given == 0 && p.Why == "":
					t.Errorf("it refuses %v and does not say why", asked)
				case p.Given != 0 && p.Given < asked:
					t.Errorf("asked for %v it gives only %v", asked, p.Given)
				case p.Given > asked && p.Why == "":
					t.Errorf("asked for %v it gives %v and does not say why", asked, p.Given)
				case p.Given != 0 && p.How == "":
					t.Errorf("it does not say how it gives %v", asked)
				case (d.CheckLevel(asked) == nil) != (p.Given != 0):
					t.Errorf("CheckLevel(%v) = %v", asked, d.CheckLevel(asked))
				}
			}
			if d.Strongest() == 0 {
				if _, err := e.Open(t.TempDir(), holdfast.Options{}); !errors.Is(err, holdfast.ErrUnavailable) {
					t.Errorf("it refuses every level, but Open says %v", err)
				}
				return
			}
			for _, asked := range holdfast.Levels() {
				if d.Promise(asked).Given == 0 {
					continue
				}
				dir := filepath.Join(t.TempDir(), "db")
				if d.Strongest() <= holdfast.Memory {
					dir = ""
				}
				eng, err := e.Open(dir, holdfast.Options{Level: asked})
				try(t, err)
				c := eng.Capabilities()
				if err := eng.Close(); err != nil {
					t.Error(err)
				}
				if c.Promise(asked) != d.Promise(asked) || c.MaxBatchSize != d.MaxBatchSize {
					t.Errorf("opened for %v it promises\n%+v\nnot\n%+v", asked, c.Promise(asked), d.Promise(asked))
				}
				if dir != "" && len(c.Settings) == 0 {
					t.Error("open it reports no settings")
				}
			}
		})
	}
}

// Every engine here is on one machine: it refuses Quorum, says why, and is not opened for it.
func TestQuorumIsRefused(t *testing.T) {
	for _, e := range all.Engines() {
		refused := func(what string, err error) {
			if !errors.Is(err, holdfast.ErrLevel) || !strings.Contains(fmt.Sprint(err), "quorum: it is on one machine") {
				t.Errorf("%s: %s at quorum: %v", e.Name, what, err)
			}
		}
		refused("a commit", e.Describe().CheckLevel(holdfast.Quorum))
		if e.Describe().Strongest() == 0 {
			t.Logf("%s is not in this build", e.Name)
			continue
		}
		dir := ""
		if e.Describe().Strongest() > holdfast.Memory {
			dir = filepath.Join(t.TempDir(), "db")
		}
		_, err := e.Open(dir, holdfast.Options{Level: holdfast.Quorum})
		refused("Open", err)
		if _, err := os.Stat(dir); dir != "" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the refused Open has made a directory: %v", e.Name, err)
		}

		eng, err := e.Open(dir, holdfast.Options{})
		try(t, err)
		_, err = eng.Apply(new(holdfast.Batch), holdfast.Quorum)
		refused("Apply", err)
		if given := eng.Capabilities().Levels(); slices.Contains(given, holdfast.Quorum) {
			t.Errorf("%s lists %v", e.Name, given)
		}
		try(t, eng.Close())
	}
}

// A directory of each engine is refused by all the others, and left as it was.
func TestForeignDirectories(t *testing.T) {
	for _, maker := range all.Engines() {
		if maker.Describe().Strongest() < holdfast.Process {
			continue
		}
		dir := t.TempDir()
		eng, err := maker.Open(dir, holdfast.Options{})
		try(t, err)
		if _, err := maker.Open(dir, holdfast.Options{}); !errors.Is(err, holdfast.ErrLocked) {
			t.Errorf("%s: a second opener got %v", maker.Name, err)
		}
		try(t, eng.Close())
		mark, err := os.ReadFile(filepath.Join(dir, "HOLDFAST"))
		try(t, err)
		for _, other := range all.Engines() {
			// The two drivers of SQLite share one format.
			if other.Describe().Strongest() < holdfast.Process || family(other.Name) == family(maker.Name) {
				continue
			}
			_, err := other.Open(dir, holdfast.Options{})
			if !errors.Is(err, holdfast.ErrForeign) || !strings.Contains(err.Error(), family(maker.Name)) {
				t.Errorf("%s opens a directory of %s: %v", other.Name, maker.Name, err)
			}
		}
		if after, err := os.ReadFile(filepath.Join(dir, "HOLDFAST")); err != nil || string(after) != string(mark) {
			t.Errorf("%s: HOLDFAST changed: %q, %v", maker.Name, after, err)
		}
	}
}

func family(engine string) string { return strings.TrimSuffix(engine, "-go") }

// A directory that has lost its data is an error, not a new and empty store.
func TestLostData(t *testing.T) {
	onDisk(t, func(t *testing.T, e all.Entry) {
		dir := t.TempDir()
		eng, err := e.Open(dir, holdfast.Options{})
		try(t, err)
		var b holdfast.Batch
		b.Set([]byte("key"), []byte("value"))
		try(t, errors.Join(holdfast.Commit(eng, &b, holdfast.Power), eng.Close()))
		entries, err := os.ReadDir(dir)
		try(t, err)
		for _, f := range entries {
			if f.Name() != "HOLDFAST" && f.Name() != "LOCK" {
				try(t, os.RemoveAll(filepath.Join(dir, f.Name())))
			}
		}
		if eng, err := e.Open(dir, holdfast.Options{}); !errors.Is(err, holdfast.ErrCorrupt) {
			t.Errorf("opened without its data: %v", err)
			if err == nil {
				eng.Close()
			}
		}
	})
}

// Every engine takes the least budget, and refuses a smaller one; its errors name it, and an iterator that was closed
// only ends.
func TestSmallThings(t *testing.T) {
	for _, e := range all.Engines() {
		if e.Describe().Strongest() == 0 {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			dir := ""
			if e.Describe().Strongest() > holdfast.Memory {
				dir = filepath.Join(t.TempDir(), "db")
			}
			least := max(holdfast.MinMemoryBytes, e.Describe().MinMemoryBytes)
			url := func(memory int64) string { return fmt.Sprintf("%s:%s?memory=%d", e.Name, dir, memory) }
			names := regexp.MustCompile(fmt.Sprintf(`\b(%d|%d MiB)\b`, least, least>>20))
			for _, memory := range []int64{1, least - 1} {
				_, err := all.OpenURL(url(memory))
				if !errors.Is(err, holdfast.ErrBadOption) || !names.MatchString(err.Error()) {
					t.Errorf("a budget of %d bytes, the least is %d: %v", memory, least, err)
				}
			}
			eng, err := all.OpenURL(url(least))
			try(t, err)
			var b holdfast.Batch
			for i := range 100 {
				b.Set([]byte{'k', byte(i)}, make([]byte, 1000))
			}
			try(t, holdfast.Commit(eng, &b, e.Describe().Strongest()))
			it := eng.Scan(holdfast.Range{})
			if !it.Next() {
				t.Error(it.Err())
			}
			named := func(what string, err, class error) {
				t.Helper()
				var named *holdfast.Error
				if !errors.Is(err, class) || !errors.As(err, &named) || named.Engine != e.Name || dir != "" && named.Path != dir {
					t.Errorf("%s: %v", what, err)
				}
			}
			named("Close with an open iterator", eng.Close(), holdfast.ErrBusy)
			if err := it.Close(); err != nil || it.Next() || it.Err() != nil || it.Close() != nil {
				t.Errorf("a closed iterator: %v, %v", err, it.Err())
			}
			s, err := eng.Snapshot()
			try(t, err)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if _, err := s.Get(nil, []byte("k")); !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("Get from a closed snapshot: %v", err)
			} else {
				named("Get from a closed snapshot", err, holdfast.ErrClosed)
			}
			try(t, eng.Close())
			_, err = eng.Get(nil, []byte("k"))
			named("Get after Close", err, holdfast.ErrClosed)
			_, err = eng.Apply(&b, holdfast.Memory)
			named("Apply after Close", err, holdfast.ErrClosed)
			named("Scan after Close", eng.Scan(holdfast.Range{}).Err(), holdfast.ErrClosed)
			named("Sync after Close", eng.Sync(), holdfast.ErrClosed)
			named("Close after Close", eng.Close(), holdfast.ErrClosed)
		})
	}
}
