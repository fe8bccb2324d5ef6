package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// model is a slow and plain account of one file: what each sector may hold after a crash.
type model struct {
	now      []byte
	versions map[int][][]byte // by sector; each padded to a whole one
	dirty    map[int]bool     // since the last sync, or one that failed
	lengths  []int            // since the last sync
}

func (o *model) sector(i int) []byte {
	b := make([]byte, sectorSize)
	if i*sectorSize < len(o.now) {
		copy(b, o.now[i*sectorSize:])
	}
	return b
}

func (o *model) possible(i int) [][]byte {
	if v := o.versions[i]; v != nil {
		return v
	}
	return [][]byte{o.sector(i)}
}

func (o *model) write(b []byte, off int) {
	before := map[int][][]byte{}
	first, last := off/sectorSize, (off+len(b)-1)/sectorSize
	for i := first; i <= last; i++ {
		before[i] = o.possible(i)
	}
	if end := off + len(b); end > len(o.now) {
		o.grow(end)
	}
	copy(o.now[off:], b)
	for i := first; i <= last; i++ {
		o.versions[i] = append(before[i], o.sector(i))
		o.dirty[i] = true
	}
}

func (o *model) grow(size int) {
	if size > len(o.now) {
		o.now = append(o.now, make([]byte, size-len(o.now))...)
		o.lengths = append(o.lengths, size)
	}
}

func (o *model) sync(ok bool) {
	if ok {
		for i := range o.dirty {
			delete(o.versions, i)
			o.versions[i] = [][]byte{o.sector(i)}
		}
		o.lengths = []int{len(o.now)}
	}
	o.dirty = map[int]bool{}
}

// check returns how many sectors do not hold what is seen.
func (o *model) check(t *testing.T, found []byte) (stale int) {
	ok := slices.Contains(o.lengths, len(found)) ||
		len(found)%sectorSize == 0 && len(found) > slices.Min(o.lengths) && len(found) < slices.Max(o.lengths)
	if !ok {
		t.Fatalf("the length %d is none of %d", len(found), o.lengths)
	}
	for i := 0; i*sectorSize < len(found); i++ {
		b := found[i*sectorSize : min(len(found), (i+1)*sectorSize)]
		if !slices.ContainsFunc(o.possible(i), func(v []byte) bool { return bytes.Equal(v[:len(b)], b) }) {
			t.Fatalf("sector %d holds what it never held: %q, of %q", i, b, o.possible(i))
		}
		if !bytes.Equal(b, o.sector(i)[:len(b)]) {
			stale++
		}
	}
	return stale
}

// TestHistories crashes random histories of a file that grows, with syncs that fail among them, and
// compares with the model.
func TestHistories(t *testing.T) {
	t.Parallel()
	whole, stale, short := 0, 0, 0
	for run := range uint64(1000) {
		r := seeded(*seed + run)
		m, f := synced(t, "/f", nil)
		m.Seed(run)
		fail := false
		m.SetHook(func(op Op) error {
			if op.Kind == OpSync && fail {
				return syscall.EIO
			}
			return nil
		})
		o := &model{versions: map[int][][]byte{}, dirty: map[int]bool{}, lengths: []int{0}}
		for step := range r.IntN(30) + 1 {
			switch r.IntN(10) {
			case 0:
				must(t, f.Sync())
				o.sync(true)
			case 1:
				if fail = r.IntN(3) == 0; fail {
					wants(t, "a sync that must fail", f.Datasync(), syscall.EIO)
					o.sync(false)
				}
				fail = false
			case 2:
				size := r.IntN(20000)
				must(t, f.Allocate(int64(size)))
				o.grow(size)
			case 3:
				m.DropCaches()
				o.now = contentsOf(t, m, "/f") // any of what is possible
				if len(o.now) != o.lengths[len(o.lengths)-1] {
					t.Fatalf("seed %d: DropCaches changed the length", *seed+run)
				}
			default:
				off, n := r.IntN(12000), r.IntN(40)+1
				if r.IntN(4) == 0 {
					n = r.IntN(6000) + 1
				}
				b := bytes.Repeat([]byte{byte('a' + step%26)}, n)
				write(t, f, int64(off), b)
				o.write(b, off)
			}
			checkHistory(t, m.root, map[*node]bool{})
		}
		has(t, m, "/f", o.now)
		for range 4 {
			c := m.Crash(r)
			found := contentsOf(t, c, "/f")
			checkHistory(t, c.root, map[*node]bool{})
			before := t.Failed()
			n := o.check(t, found)
			if t.Failed() && !before {
				t.Fatalf("in the history of -vfs.seed=%d", *seed+run)
			}
			switch {
			case len(found) < len(o.now):
				short++
			case n > 0:
				stale++
			default:
				whole++
			}
			has(t, c.CrashNothing(), "/f", found) // what was found is durable
		}
	}
	if whole < 300 || stale < 300 || short < 300 {
		t.Errorf("%d whole, %d with stale sectors, %d short: too few of one kind", whole, stale, short)
	}
}

// TestHistoriesWithCuts allows cuts as well, and checks each byte for itself.
func TestHistoriesWithCuts(t *testing.T) {
	t.Parallel()
	for run := range uint64(400) {
		r := seeded(*seed + run)
		m, f := synced(t, "/f", bytes.Repeat([]byte("."), 9000))
		now := contentsOf(t, m, "/f")
		durable, low := slices.Clone(now), len(now)
		lengths := []int{len(now)}
		values := map[int][]byte{}
		for step := range r.IntN(20) + 1 {
			switch r.IntN(8) {
			case 0:
				must(t, f.Sync())
				durable, low, lengths = slices.Clone(now), len(now), []int{len(now)}
				clear(values)
			case 1, 2:
				size := r.IntN(12000)
				must(t, f.Truncate(int64(size)))
				if size < len(now) {
					now = now[:size:size]
				} else {
					now = append(now, make([]byte, size-len(now))...)
				}
			default:
				off, b := r.IntN(9000), bytes.Repeat([]byte{byte('a' + step)}, r.IntN(3000)+1)
				write(t, f, int64(off), b)
				if end := off + len(b); end > len(now) {
					now = append(now, make([]byte, end-len(now))...)
				}
				copy(now[off:], b)
				for i := range b {
					values[off+i] = append(values[off+i], b[i])
				}
			}
			low = min(low, len(now))
			lengths = append(lengths, len(now))
			checkHistory(t, m.root, map[*node]bool{})
		}
		for range 4 {
			c := m.Crash(r)
			checkHistory(t, c.root, map[*node]bool{})
			found := contentsOf(t, c, "/f")
			if !slices.Contains(lengths, len(found)) && (len(found)%sectorSize != 0 || len(found) > slices.Max(lengths) ||
				len(found) < slices.Min(lengths)) {
				t.Fatalf("-vfs.seed=%d: the length %d is none of %d", *seed+run, len(found), lengths)
			}
			for i, b := range found {
				if i < len(durable) && b == durable[i] || b == 0 && (i >= low || i >= len(durable)) ||
					slices.Contains(values[i], b) {
					continue
				}
				t.Fatalf("-vfs.seed=%d: byte %d is %q: it was %q at the sync, and then %q", *seed+run, i, b,
					durable[i:min(i+1, len(durable))], values[i])
			}
		}
		has(t, m.CrashAll(), "/f", now)
		has(t, m.CrashNothing(), "/f", durable)
		has(t, m, "/f", now)
	}
}

// TestNameHistories compares random operations on names with all outcomes that the rules allow,
// found by trying every choice.
func TestNameHistories(t *testing.T) {
	t.Parallel()
	type step struct{ sides [][2]string } // path and new contents, "" for none
	shares := func(a, b step) bool {
		for _, x := range a.sides {
			for _, y := range b.sides {
				if x[0] == y[0] {
					return true
				}
			}
		}
		return false
	}
	apply := func(state map[string]string, s step) {
		for _, x := range s.sides {
			if state[x[0]] = x[1]; x[1] == "" {
				delete(state, x[0])
			}
		}
	}
	text := func(state map[string]string) string {
		var s []string
		for _, name := range slices.Sorted(maps.Keys(state)) {
			s = append(s, name[1:]+"="+state[name])
		}
		return strings.Join(s, " ")
	}
	names := []string{"/d/a", "/d/b", "/e/a"}
	covered, possible := 0, 0
	for run := range uint64(100) {
		r := seeded(*seed + run)
		m := NewMem()
		must(t, errors.Join(m.MkdirAll("/d"), m.MkdirAll("/e"), m.SyncDir("/")))
		now, durable := map[string]string{}, map[string]string{}
		var pending []step
		for i := range 9 {
			name, other := names[r.IntN(3)], names[r.IntN(3)]
			var s step
			switch {
			case r.IntN(6) == 0:
				dir := path.Dir(name)
				must(t, m.SyncDir(dir))
				needed := make([]bool, len(pending))
				for i := len(pending) - 1; i >= 0; i-- {
					for _, x := range pending[i].sides {
						needed[i] = needed[i] || path.Dir(x[0]) == dir
					}
					for j := i + 1; j < len(pending); j++ {
						needed[i] = needed[i] || needed[j] && shares(pending[i], pending[j])
					}
				}
				var left []step
				for i, s := range pending {
					if needed[i] {
						apply(durable, s)
					} else {
						left = append(left, s)
					}
				}
				pending = left
				continue
			case now[name] == "":
				put(t, m, name, fmt.Sprint(i))
				s.sides = [][2]string{{name, fmt.Sprint(i)}}
			case r.IntN(3) == 0 && now[other] == "":
				must(t, m.Link(name, other))
				s.sides = [][2]string{{other, now[name]}}
			case r.IntN(2) == 0 && now[name] != now[other]:
				must(t, m.Rename(name, other))
				s.sides = [][2]string{{name, ""}, {other, now[name]}}
			default:
				must(t, m.Remove(name))
				s.sides = [][2]string{{name, ""}}
			}
			apply(now, s)
			pending = append(pending, s)
		}
		allowed := map[string]bool{}
	choices:
		for choice := range 1 << len(pending) {
			state := maps.Clone(durable)
			for i, s := range pending {
				if choice>>i&1 == 0 {
					continue
				}
				for j := range i {
					if choice>>j&1 == 0 && shares(pending[j], s) {
						continue choices
					}
				}
				apply(state, s)
			}
			allowed[text(state)] = true
		}
		seen := map[string]bool{}
		for range 600 {
			got := tree(t, m.Crash(r))
			got = strings.Join(slices.DeleteFunc(strings.Fields(got),
				func(s string) bool { return strings.HasSuffix(s, "/") }), " ")
			if !allowed[got] {
				t.Fatalf("-vfs.seed=%d: found %q; durable %q, then %v", *seed+run, got, text(durable), pending)
			}
			seen[got] = true
		}
		covered, possible = covered+len(seen), possible+len(allowed)
	}
	if covered*100 < possible*85 {
		t.Errorf("saw %d of %d outcomes", covered, possible)
	}
}

// TestLongHistory: a file that is never synced takes no memory without end, and a crash of it finds
// what was written.
func TestLongHistory(t *testing.T) {
	t.Parallel()
	before := bytes.Repeat([]byte("."), 64<<10)
	m, f := synced(t, "/f", before)
	r := seeded(*seed)
	limit := 1<<20 + 3*64<<10
	check := func() {
		n := m.root.entries["f"]
		if len(n.log) > limit {
			t.Fatalf("the history has %d bytes", len(n.log))
		}
		checkHistory(t, m.root, map[*node]bool{})
	}
	for i := range 8000 {
		if write(t, f, r.Int64N(30<<10), bytes.Repeat([]byte{byte(i)}, 1000)); i%500 == 0 {
			must(t, f.Truncate(31<<10+r.Int64N(10<<10)))
			must(t, f.Truncate(50<<10))
			check()
		}
	}
	check()
	has(t, m.CrashAll(), "/f", contentsOf(t, m, "/f"))
	has(t, m.CrashNothing(), "/f", before)
	must(t, f.Sync())
	has(t, m.CrashNothing(), "/f", contentsOf(t, m, "/f"))

	m, f = synced(t, "/g", nil) // many small and scattered writes
	for i := range int64(40_000) {
		write(t, f, i*1024, []byte{1})
	}
	if n := m.root.entries["g"]; len(n.changes) > 100_000 {
		t.Errorf("%d changes", len(n.changes))
	}
	checkHistory(t, m.root, map[*node]bool{})
}

// BenchmarkHistory is one history of a log in a preallocated file: 200 records of 100 bytes with a
// sync after each ten, a crash, and a read of what is found.
func BenchmarkHistory(b *testing.B) {
	for _, size := range []int64{4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			record, back := bytes.Repeat([]byte("r"), 100), make([]byte, size)
			r := seeded(1)
			b.ReportAllocs()
			for b.Loop() {
				m := NewMem()
				f, err := m.Create("/log")
				must(b, err)
				must(b, errors.Join(f.Allocate(size), f.Sync(), m.SyncDir("/")))
				for i := range int64(200) {
					f.WriteAt(record, i*100%(size-100))
					if i%10 == 9 {
						f.Datasync()
					}
				}
				m.Halt()
				g, err := m.Crash(r).Open("/log")
				must(b, err)
				if n, err := g.ReadAt(back, 0); n != len(back) {
					b.Fatal(err)
				}
			}
		})
	}
}
