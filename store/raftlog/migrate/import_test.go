package migrate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/hashicorp/raft-wal/metadb"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/bbolt"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/store/raftlog"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestImport imports what the libraries have made, and compares it with what was given to them.
func TestImport(t *testing.T) {
	shapes := map[string]struct {
		first, last uint64
		cut         [][2]uint64 // deleted afterwards
		more        uint64      // appended up to this index after that
		keys        bool
	}{
		"empty":            {},
		"only keys":        {keys: true},
		"one":              {first: 1, last: 1, keys: true},
		"no keys":          {first: 1, last: 40},
		"many":             {first: 1, last: 700, keys: true},
		"from far":         {first: 1 << 40, last: 1<<40 + 90, keys: true},
		"prefix":           {first: 1, last: 500, cut: [][2]uint64{{1, 333}}, keys: true},
		"suffix":           {first: 1, last: 500, cut: [][2]uint64{{200, 500}}, keys: true},
		"suffix, more":     {first: 1, last: 500, cut: [][2]uint64{{200, 500}}, more: 420, keys: true},
		"both":             {first: 7, last: 500, cut: [][2]uint64{{7, 180}, {430, 500}}, more: 600, keys: true},
		"all":              {first: 1, last: 100, cut: [][2]uint64{{1, 100}}, keys: true},
		"all, more":        {first: 1, last: 100, cut: [][2]uint64{{1, 100}}, more: 130, keys: true},
		"again and again":  {first: 1, last: 300, cut: [][2]uint64{{1, 20}, {290, 300}, {21, 100}, {250, 289}}, keys: true},
		"prefix, one left": {first: 1, last: 300, cut: [][2]uint64{{1, 299}}, keys: true},
	}
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			sources(t, func(t *testing.T, kind string, make func(func(both)) string) {
				rnd := rand.New(rand.NewPCG(shape.last, 1))
				var list []*raft.Log
				keys := map[string]any{}
				path := make(func(to both) {
					if shape.last > 0 {
						list = logs(rnd, shape.first, shape.last)
						store(t, rnd, to, list)
					}
					for _, c := range shape.cut {
						ok(t, to.DeleteRange(c[0], c[1]))
						var kept []*raft.Log
						for _, l := range list {
							if l.Index < c[0] || l.Index > c[1] {
								kept = append(kept, l)
							}
						}
						list = kept
					}
					if shape.more > 0 {
						next := shape.last + 1
						if n := len(list); n > 0 {
							next = list[n-1].Index + 1
						}
						more := logs(rnd, next, shape.more)
						store(t, rnd, to, more)
						list = append(list, more...)
					}
					if shape.keys {
						votes(t, to, 1<<40)
						keys = map[string]any{currentTerm: uint64(1 << 40), lastVoteTerm: uint64(1<<40 - 1), lastVoteCand: "10.0.0.7"}
						ok(t, to.Set([]byte("other"), []byte("text that is longer")))
						keys["other"] = "text that is longer"
						ok(t, to.Set([]byte("empty"), []byte{}))
						keys["empty"] = ""
					}
				})
				before := contentsOf(t, path)
				e := memory(t, vfs.NewMem())
				small(t, 1000)
				var phases []string
				r, err := Import(t.Context(), path, e, Options{Progress: func(phase string, done, of int64) {
					if n := len(phases); n == 0 || phases[n-1] != phase {
						phases = append(phases, phase)
					}
					if of != 0 && done > of {
						t.Errorf("%s: %d of %d", phase, done, of)
					}
				}})
				ok(t, err)
				want(t, e, "", list, keys)
				wantUnchanged(t, path, before)
				if r.Kind != kind || r.Entries != int64(len(list)) || len(r.Keys) != len(keys) || r.Gaps != 0 || r.Dropped != "" {
					t.Errorf("result: %+v", r)
				}
				if len(list) > 0 && (r.First != list[0].Index || r.Last != list[len(list)-1].Index ||
					r.LastTerm != list[len(list)-1].Term) {
					t.Errorf("result: %+v", r)
				}
				if term, _ := keys[currentTerm].(uint64); term != r.CurrentTerm {
					t.Errorf("result: %+v", r)
				}
				if (len(r.Notes) > 0) != (len(list) > 0 && !shape.keys) {
					t.Errorf("notes: %q", r.Notes)
				}
				if got := fmt.Sprint(phases); len(list) > 0 && !strings.HasSuffix(got, "copy verify]") {
					t.Errorf("phases: %v", phases)
				}
			})
		})
	}
}

// TestImportWithOthers imports into an engine that has other stores, and reopens it.
func TestImportWithOthers(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	list := logs(rnd, 5, 120)
	path := makeWAL(t, 8<<10, func(to both) {
		store(t, rnd, to, list)
		votes(t, to, 90)
	})
	keys := map[string]any{currentTerm: uint64(90), lastVoteTerm: uint64(89), lastVoteCand: "10.0.0.7"}
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if name == mem.Name {
				dir = ""
			}
			e, err := engine.open(dir, holdfast.Options{})
			ok(t, err)
			_, err = Import(t.Context(), path, e, Options{Name: "b"})
			if engine.describe().Power.Given == 0 {
				wantError(t, err, holdfast.ErrLevel, "ask for memory")
				wantNothing(t, e)
				ok(t, e.Close())
				return
			}
			ok(t, err)
			for _, name := range []string{"", "a", "bb"} {
				s, err := raftlog.Open(e, raftlog.Options{Name: name})
				ok(t, err)
				ok(t, s.StoreLog(&raft.Log{Index: 9, Data: []byte(name)}))
				ok(t, s.Close())
			}
			// An import that fails takes away nothing else.
			ctx, cancel := context.WithCancel(t.Context())
			_, err = Import(ctx, path, e, Options{Name: "ba", Progress: func(phase string, _, _ int64) {
				if phase == "verify" {
					cancel()
				}
			}})
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			ok(t, e.Close())
			e, err = engine.open(dir, holdfast.Options{})
			ok(t, err)
			want(t, e, "b", list, keys)
			for _, name := range []string{"", "a", "bb"} {
				want(t, e, name, []*raft.Log{{Index: 9, Data: []byte(name)}}, nil)
			}
			names, err := raftlog.Stores(e)
			if err != nil || fmt.Sprint(names) != "[ a b bb]" {
				t.Errorf("stores: %q, %v", names, err)
			}
			ok(t, e.Close())
		})
	}
}

// TestGaps imports a log in which indexes are missing, which raft-boltdb allows.
func TestGaps(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 2))
	list := logs(rnd, 0, 300)
	var kept []*raft.Log
	path := makeBolt(t, true, func(to both) {
		store(t, rnd, to, list)
		ok(t, to.DeleteRange(17, 17))
		ok(t, to.DeleteRange(100, 250))
		for _, l := range list {
			if l.Index != 17 && (l.Index < 100 || l.Index > 250) {
				kept = append(kept, l)
			}
		}
		far := logs(rnd, 1<<50, 1<<50)
		ok(t, to.StoreLogs(far))
		kept = append(kept, far...)
	})
	e := memory(t, vfs.NewMem())
	r, err := Import(t.Context(), path, e, Options{})
	ok(t, err)
	want(t, e, "", kept, nil)
	if r.Gaps != 3 {
		t.Errorf("%d gaps", r.Gaps)
	}
	in, err := raftlog.Inspect(e, "", true)
	ok(t, err)
	if in.Full == nil || in.Full.Gaps != 3 || in.Full.Entries != int64(len(kept)) || in.Full.Bytes != r.Bytes ||
		in.Last != 1<<50 || in.First != 0 {
		t.Errorf("inspection: %+v %+v", in, in.Full)
	}
}

// TestBigEntries imports entries that take many pages and batches.
func TestBigEntries(t *testing.T) {
	sources(t, func(t *testing.T, kind string, make func(func(both)) string) {
		rnd := rand.New(rand.NewPCG(3, 3))
		list := logs(rnd, 1, 12)
		for i, n := range []int{1 << 20, 3 << 20, 65535, 65536, 4096 - 16, 31, 32, 255, 256} {
			list[i].Data = bytesOf(rnd, n)
			list[i].Extensions = bytesOf(rnd, n%7000)
		}
		path := make(func(to both) {
			ok(t, to.StoreLogs(list[:3]))
			store(t, rnd, to, list[3:])
			votes(t, to, 5)
		})
		e := memory(t, vfs.NewMem())
		_, err := Import(t.Context(), path, e, Options{})
		ok(t, err)
		want(t, e, "", list, map[string]any{currentTerm: uint64(5), lastVoteTerm: uint64(4), lastVoteCand: "10.0.0.7"})

		// What the engine does not take is named, and nothing is left.
		small := &limited{Engine: memory(t, vfs.NewMem())}
		_, err = Import(t.Context(), path, small, Options{})
		wantError(t, err, holdfast.ErrTooLarge, "entry 2")
		wantNothing(t, small)
	})
}

// limited takes values up to 2 MiB.
type limited struct{ holdfast.Engine }

func (l *limited) Capabilities() holdfast.Capabilities {
	c := l.Engine.Capabilities()
	c.MaxValueSize = 2 << 20
	return c
}

// TestNumbers: raft-wal has its numbers the other way round, and does not tell which values are some.
func TestNumbers(t *testing.T) {
	fill := func(to both) {
		votes(t, to, 0x0102030405060708)
		ok(t, to.SetUint64([]byte("count"), 513))
		ok(t, to.Set([]byte("label"), []byte("12345678")))
	}
	keys := map[string]any{currentTerm: uint64(0x0102030405060708), lastVoteTerm: uint64(0x0102030405060707),
		lastVoteCand: "10.0.0.7", "count": uint64(513), "label": "12345678"}
	path := makeWAL(t, 1<<20, fill)
	e := memory(t, vfs.NewMem())
	_, err := Import(t.Context(), path, e, Options{})
	wantError(t, err, holdfast.ErrBadOption, `"count"`, "8 bytes")
	_, err = Import(t.Context(), path, e, Options{Numbers: []string{"count"}})
	wantError(t, err, holdfast.ErrBadOption, `"label"`)
	_, err = Import(t.Context(), path, e, Options{Numbers: []string{"count"}, Bytes: []string{"count", "label"}})
	wantError(t, err, holdfast.ErrBadOption, `"count"`, "either")
	_, err = Import(t.Context(), path, e, Options{Numbers: []string{"count", lastVoteCand}})
	wantError(t, err, holdfast.ErrBadOption, `"label"`)
	wantNothing(t, e)
	_, err = Import(t.Context(), path, e, Options{Numbers: []string{"count"}, Bytes: []string{"label"}})
	ok(t, err)
	want(t, e, "", nil, keys)

	e = memory(t, vfs.NewMem())
	_, err = Import(t.Context(), makeBolt(t, false, fill), e, Options{})
	ok(t, err)
	want(t, e, "", nil, keys)
}

// TestKinds: what a source is, is told by what is in it.
func TestKinds(t *testing.T) {
	at := t.TempDir()
	path := func(names ...string) string { return filepath.Join(append([]string{at}, names...)...) }
	bolt := makeBolt(t, false, func(both) {})
	waldir := makeWAL(t, 1<<20, func(both) {})
	ok(t, os.WriteFile(path("empty"), nil, 0o644))
	ok(t, os.WriteFile(path("text"),
		[]byte("this is no database, but it is long enough for the beginning of one, which takes eighty bytes"), 0o644))
	ok(t, os.Mkdir(path("nothing"), 0o755))
	ok(t, os.Mkdir(path("node"), 0o755))
	ok(t, os.CopyFS(path("node", "wal"), os.DirFS(waldir)))
	ok(t, os.CopyFS(path("two"), os.DirFS(waldir)))
	b, err := os.ReadFile(bolt)
	ok(t, err)
	ok(t, os.WriteFile(path("two", "raft.db"), b, 0o644))
	ok(t, os.Mkdir(path("fake"), 0o755))
	ok(t, os.WriteFile(path("fake", metadb.FileName), []byte("this is no database"), 0o644))
	ok(t, os.Mkdir(path("lost"), 0o755))
	ok(t, os.WriteFile(path("lost", metadb.FileName), b, 0o644)) // a bolt file with other buckets
	other, err := bbolt.Open(path("bbolt"), holdfast.Options{})
	ok(t, err)
	ok(t, other.Close())

	e := memory(t, vfs.NewMem())
	for source, test := range map[string]struct {
		class error
		say   string
	}{
		path("missing"):                        {os.ErrNotExist, "missing"},
		path("empty"):                          {holdfast.ErrForeign, "no bolt file"},
		path("text"):                           {holdfast.ErrForeign, "no bolt file"},
		path("nothing"):                        {holdfast.ErrForeign, "either"},
		path("node"):                           {holdfast.ErrForeign, "[]"},
		path("two"):                            {holdfast.ErrForeign, `["wal-meta.db" "raft.db"]`},
		path("fake"):                           {holdfast.ErrCorrupt, "no bolt file"},
		path("lost"):                           {holdfast.ErrCorrupt, "buckets"},
		filepath.Join(waldir, metadb.FileName): {holdfast.ErrForeign, "wal-meta"},
		path("bbolt"):                          {holdfast.ErrForeign, "either"},
		os.DevNull:                             {holdfast.ErrForeign, "no bolt file"},
	} {
		_, err := Import(t.Context(), source, e, Options{})
		wantError(t, err, test.class, test.say)
	}
	files, err := filepath.Glob(path("bbolt", "*"))
	ok(t, err)
	for _, f := range files {
		if f == path("bbolt", "LOCK") || f == path("bbolt", "HOLDFAST") {
			continue
		}
		_, err := Import(t.Context(), f, e, Options{})
		wantError(t, err, holdfast.ErrForeign, "buckets")
	}
	wantNothing(t, e)
	for i, source := range []string{bolt, filepath.Dir(bolt), waldir, path("node", "wal")} {
		r, err := Import(t.Context(), source, e, Options{Name: fmt.Sprint(i)})
		ok(t, err)
		if kind := []string{"raft-boltdb", "raft-boltdb", "raft-wal", "raft-wal"}[i]; r.Kind != kind {
			t.Errorf("%s is a %s", source, r.Kind)
		}
	}
}

// TestLocked: what is open elsewhere is refused at once, and is free again after an import.
func TestLocked(t *testing.T) {
	sources(t, func(t *testing.T, kind string, makeSource func(func(both)) string) {
		rnd := rand.New(rand.NewPCG(4, 4))
		e := memory(t, vfs.NewMem())
		list := logs(rnd, 1, 30)
		path := makeSource(func(to both) {
			store(t, rnd, to, list)
			votes(t, to, 10)
		})
		open := func() both {
			if kind == "raft-wal" {
				return openWAL(t, path, 1<<20)
			}
			db, err := raftboltdb.NewBoltStore(path)
			ok(t, err)
			return db
		}
		held := open()
		done := make(chan error, 1)
		go func() {
			_, err := Import(t.Context(), path, e, Options{})
			done <- err
		}()
		wantError(t, testkit.Receive(t, "an import that does not wait for the source", done), holdfast.ErrLocked)
		ok(t, held.Close())
		wantNothing(t, e)
		_, err := Import(t.Context(), path, e, Options{})
		ok(t, err)
		want(t, e, "", list, map[string]any{currentTerm: uint64(10), lastVoteTerm: uint64(9), lastVoteCand: "10.0.0.7"})
		ok(t, open().Close())
	})
}

// TestTargets: only a store that is not there, or empty, at Power.
func TestTargets(t *testing.T) {
	path := makeBolt(t, false, func(to both) {
		ok(t, to.StoreLog(&raft.Log{Index: 1, Term: 1}))
		votes(t, to, 1)
	})
	e := memory(t, vfs.NewMem())
	_, err := Import(t.Context(), path, mem.New(), Options{})
	wantError(t, err, holdfast.ErrLevel)
	_, err = Import(t.Context(), path, e, Options{Name: string(make([]byte, 129))})
	wantError(t, err, holdfast.ErrBadOption, "129 bytes")
	_, err = Import(t.Context(), path, nil, Options{})
	wantError(t, err, holdfast.ErrBadOption)
	wantNothing(t, e)

	open := func(name string) *raftlog.Store {
		s, err := raftlog.Open(e, raftlog.Options{Name: name})
		ok(t, err)
		return s
	}
	s := open("open")
	_, err = Import(t.Context(), path, e, Options{Name: "open"})
	wantError(t, err, holdfast.ErrLocked)
	ok(t, s.Close())

	s = open("a log")
	ok(t, s.StoreLog(&raft.Log{Index: 3, Term: 2}))
	ok(t, s.Close())
	_, err = Import(t.Context(), path, e, Options{Name: "a log"})
	wantError(t, err, holdfast.ErrBadOption, "not empty")
	want(t, e, "a log", []*raft.Log{{Index: 3, Term: 2}}, nil)

	s = open("a key")
	ok(t, s.Set([]byte("k"), []byte("v")))
	ok(t, s.Close())
	_, err = Import(t.Context(), path, e, Options{Name: "a key"})
	wantError(t, err, holdfast.ErrBadOption, "not empty")
	want(t, e, "a key", nil, map[string]any{"k": "v"})

	ok(t, open("empty").Close())
	_, err = Import(t.Context(), path, e, Options{Name: "empty"})
	ok(t, err)
	_, err = Import(t.Context(), path, e, Options{Name: "empty"})
	wantError(t, err, holdfast.ErrBadOption, "not empty")
	want(t, e, "empty", []*raft.Log{{Index: 1, Term: 1}},
		map[string]any{currentTerm: uint64(1), lastVoteTerm: uint64(0), lastVoteCand: "10.0.0.7"})
}

// TestLogHasNoOtherFields: a new field of raft.Log would have to be stored too.
func TestLogHasNoOtherFields(t *testing.T) {
	if n := reflect.TypeFor[raft.Log]().NumField(); n != 6 {
		t.Errorf("raft.Log has %d fields", n)
	}
}

// A nil context is an error.
func TestNilContext(t *testing.T) {
	var none context.Context
	if _, err := Import(none, t.TempDir(), memory(t, vfs.NewMem()), Options{}); !errors.Is(err, holdfast.ErrBadOption) {
		t.Error(err)
	}
}
