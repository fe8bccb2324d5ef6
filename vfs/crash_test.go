package vfs

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var seed = flag.Uint64("vfs.seed", 1, "first seed of the random histories")

func seeded(n uint64) *rand.Rand { return rand.New(rand.NewPCG(n, 0)) }

// synced returns a Mem in which the given file is durable, with an open handle of it.
func synced(t testing.TB, name string, b []byte) (*Mem, File) {
	t.Helper()
	m := NewMem()
	f := create(t, m, name)
	write(t, f, 0, b)
	must(t, errors.Join(f.Sync(), m.SyncDir(path.Dir(name))))
	return m, f
}

// outcomes counts what describe says over many crashes.
func outcomes(m *Mem, describe func(*Mem) string) map[string]int {
	seen := map[string]int{}
	for i := range uint64(2000) {
		seen[describe(m.Crash(seeded(*seed+i)))]++
	}
	return seen
}

// exactly fails unless the outcomes seen are those wanted, each of them.
func exactly(t testing.TB, seen map[string]int, want ...string) {
	t.Helper()
	got := slices.Sorted(maps.Keys(seen))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("over 2000 crashes from seed %d on: saw %q, want %q", *seed, got, want)
	}
}

// show is a file by the first letters of its sectors, "-" if it is not there.
func show(t testing.TB, name string) func(*Mem) string {
	return func(m *Mem) string {
		if _, err := m.Size(name); err != nil {
			wants(t, "a file that is lost", err, fs.ErrNotExist)
			return "-"
		}
		var s strings.Builder
		for sector := range slices.Chunk(contentsOf(t, m, name), sectorSize) {
			switch letter := sector[0]; {
			case strings.Trim(string(sector), string(letter)) != "":
				s.WriteString("?")
			case letter == 0:
				s.WriteString("0")
			default:
				s.WriteByte(letter)
			}
		}
		return s.String()
	}
}

func sectors(letters string) []byte {
	var b []byte
	for i := range len(letters) {
		b = append(b, bytes.Repeat([]byte{letters[i]}, sectorSize)...)
	}
	return b
}

func TestTorn(t *testing.T) {
	m, f := synced(t, "/f", sectors("aaa"))
	exactly(t, outcomes(m, show(t, "/f")), "aaa")
	write(t, f, 0, sectors("bbb"))
	exactly(t, outcomes(m, show(t, "/f")), "aaa", "aab", "aba", "abb", "baa", "bab", "bba", "bbb")
	if got := show(t, "/f")(m.CrashNothing()); got != "aaa" {
		t.Errorf("CrashNothing has %s", got)
	}
	if got := show(t, "/f")(m.CrashAll()); got != "bbb" {
		t.Errorf("CrashAll has %s", got)
	}
	has(t, m, "/f", sectors("bbb"))
	must(t, f.Datasync())
	exactly(t, outcomes(m, show(t, "/f")), "bbb")
}

// TestVersions: of two writes to a sector the first, both or none is there, never the second alone.
func TestVersions(t *testing.T) {
	m, f := synced(t, "/f", []byte("..."))
	write(t, f, 0, []byte("1"))
	write(t, f, 1, []byte("2"))
	exactly(t, outcomes(m, func(m *Mem) string { return string(contentsOf(t, m, "/f")) }), "...", "1..", "12.")
}

// TestNoOrderBetweenWrites: of two writes to two files, or to two sectors, any.
func TestNoOrderBetweenWrites(t *testing.T) {
	m, f := synced(t, "/f", sectors("a...b"))
	g := create(t, m, "/g")
	write(t, g, 0, sectors("c"))
	must(t, errors.Join(g.Sync(), m.SyncDir("/")))
	write(t, f, 0, sectors("A"))
	write(t, g, 0, sectors("C"))
	write(t, f, 4*sectorSize, sectors("B"))
	var want []string
	for _, a := range "aA" {
		for _, b := range "bB" {
			for _, c := range "cC" {
				want = append(want, fmt.Sprintf("%c...%c %c", a, b, c))
			}
		}
	}
	exactly(t, outcomes(m, func(m *Mem) string { return show(t, "/f")(m) + " " + show(t, "/g")(m) }), want...)
}

func TestGrowth(t *testing.T) {
	m, f := synced(t, "/f", sectors("a"))
	write(t, f, sectorSize, sectors("bc"))
	exactly(t, outcomes(m, show(t, "/f")), "a", "a0", "ab", "a00", "ab0", "a0c", "abc")

	m, f = synced(t, "/f", sectors("a")) // with room taken first, only the writes are open
	must(t, errors.Join(f.Allocate(3*sectorSize), f.Sync()))
	write(t, f, sectorSize, sectors("bc"))
	exactly(t, outcomes(m, show(t, "/f")), "a00", "ab0", "a0c", "abc")

	m, f = synced(t, "/f", sectors("a"))
	write(t, f, sectorSize, sectors("b"))
	must(t, f.Datasync()) // the length too
	exactly(t, outcomes(m, show(t, "/f")), "ab")
}

func TestCut(t *testing.T) {
	before := sectors("abcdefghij") // the first page ends behind h
	m, f := synced(t, "/f", before)
	must(t, f.Truncate(2*sectorSize))
	seen := outcomes(m, show(t, "/f"))
	for got := range seen {
		if len(got) == 2 && got == "ab" {
			continue
		}
		ok := len(got) == 10 && got[:2] == "ab" && got[8:] == "ij"
		for i := 2; ok && i < 8; i++ {
			ok = got[i] == before[i*sectorSize] || got[i] == '0'
		}
		if !ok {
			t.Errorf("after a cut to two sectors: %s", got)
		}
	}
	if seen["ab"] == 0 || seen["abcdefghij"] == 0 || seen["ab000000ij"] == 0 {
		t.Errorf("not seen: the cut done, not done, or half done: %v", seen)
	}
	// What is written behind the page of a cut that is lost, is lost.
	write(t, f, 8*sectorSize, sectors("X"))
	for got := range outcomes(m, show(t, "/f")) {
		if strings.Contains(got, "X") && (len(got) != 9 || strings.ContainsAny(got, "cdefgh")) || strings.Contains(got, "Xj") {
			t.Errorf("after a cut and a write behind it: %s", got)
		}
	}
	must(t, f.Sync())
	exactly(t, outcomes(m, show(t, "/f")), "ab000000X")
}

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
			if !slices.Contains(lengths, len(found)) && (len(found)%sectorSize != 0 || len(found) > slices.Max(lengths) || len(found) < slices.Min(lengths)) {
				t.Fatalf("-vfs.seed=%d: the length %d is none of %d", *seed+run, len(found), lengths)
			}
			for i, b := range found {
				if i < len(durable) && b == durable[i] || b == 0 && (i >= low || i >= len(durable)) || slices.Contains(values[i], b) {
					continue
				}
				t.Fatalf("-vfs.seed=%d: byte %d is %q: it was %q at the sync, and then %q", *seed+run, i, b, durable[i:min(i+1, len(durable))], values[i])
			}
		}
		has(t, m.CrashAll(), "/f", now)
		has(t, m.CrashNothing(), "/f", durable)
		has(t, m, "/f", now)
	}
}

// tree shows all names of a Mem with what the files hold.
func tree(t testing.TB, m *Mem) string {
	var s []string
	var visit func(dir string)
	visit = func(dir string) {
		names, err := m.List(dir)
		must(t, err)
		for _, name := range names {
			name = path.Join(dir, name)
			if _, err := m.List(name); err == nil {
				s = append(s, name[1:]+"/")
				visit(name)
			} else {
				s = append(s, name[1:]+"="+string(contentsOf(t, m, name)))
			}
		}
	}
	visit("/")
	return strings.Join(s, " ")
}

func put(t testing.TB, m *Mem, name, text string) {
	t.Helper()
	f := create(t, m, name)
	write(t, f, 0, []byte(text))
	must(t, errors.Join(f.Sync(), f.Close()))
}

func TestNames(t *testing.T) {
	see := func(m *Mem) string { return tree(t, m) }
	m := NewMem()
	put(t, m, "/a", "1") // synced, but its name is not
	exactly(t, outcomes(m, see), "", "a=1")
	must(t, m.SyncDir("/"))
	exactly(t, outcomes(m, see), "a=1")

	put(t, m, "/new", "2")
	must(t, m.Rename("/new", "/a")) // the one or the other, never none; and new may be there
	exactly(t, outcomes(m, see), "a=1", "a=1 new=2", "a=2")
	must(t, m.SyncDir("/"))
	exactly(t, outcomes(m, see), "a=2")

	must(t, m.Remove("/a"))
	exactly(t, outcomes(m, see), "", "a=2") // back with its contents
	put(t, m, "/a", "3")
	exactly(t, outcomes(m, see), "", "a=2", "a=3")
	must(t, m.SyncDir("/"))
	exactly(t, outcomes(m, see), "a=3")

	must(t, m.MkdirAll("/d/e")) // a directory that is lost takes along what is in it
	put(t, m, "/d/e/x", "4")
	must(t, errors.Join(m.SyncDir("/d/e"), m.SyncDir("/d")))
	exactly(t, outcomes(m, see), "a=3", "a=3 d/ d/e/ d/e/x=4")
	must(t, m.SyncDir("/"))
	exactly(t, outcomes(m, see), "a=3 d/ d/e/ d/e/x=4")

	must(t, m.Rename("/a", "/d/a")) // between directories: never two, never none
	exactly(t, outcomes(m, see), "a=3 d/ d/e/ d/e/x=4", "d/ d/a=3 d/e/ d/e/x=4")
	must(t, m.SyncDir("/")) // either directory carries both sides
	exactly(t, outcomes(m, see), "d/ d/a=3 d/e/ d/e/x=4")
}

// TestNameHistories compares random operations on names with all outcomes that the rules allow,
// found by trying every choice.
func TestNameHistories(t *testing.T) {
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
			case r.IntN(2) == 0 && name != other:
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
			got = strings.Join(slices.DeleteFunc(strings.Fields(got), func(s string) bool { return strings.HasSuffix(s, "/") }), " ")
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

func TestFailedSync(t *testing.T) {
	lostSome, keptSome := 0, 0
	for run := range uint64(200) {
		m, f := synced(t, "/f", sectors("aaaa"))
		m.Seed(*seed + run)
		write(t, f, 0, sectors("bb"))
		m.SetHook(Faults(Fault{Kind: OpSync, Count: 1}))
		wants(t, "the sync", f.Sync(), syscall.EIO)
		has(t, m, "/f", sectors("bbaa")) // still seen
		write(t, f, 3*sectorSize, sectors("c"))
		must(t, f.Sync()) // says that all is well
		found := show(t, "/f")(m.CrashNothing())
		switch found {
		case "aaac":
			lostSome++
		case "baac", "abac", "bbac":
			keptSome++
		default:
			t.Fatalf("-vfs.seed=%d: found %s", *seed+run, found)
		}
		for _, c := range []*Mem{m.CrashAll(), m.Crash(seeded(run)), m.Kill().CrashAll()} {
			if got := show(t, "/f")(c); got != found {
				t.Fatalf("-vfs.seed=%d: found %s and then %s", *seed+run, found, got)
			}
		}
		has(t, m.Kill(), "/f", sectors("bbac"))
		again := m.Clone()
		again.DropCaches()
		if got := show(t, "/f")(again); got != found {
			t.Fatalf("without caches %s is seen, on the disk is %s", got, found)
		}
		write(t, f, 0, sectors("bb")) // what helps is to write it again
		must(t, f.Sync())
		exactly(t, map[string]int{show(t, "/f")(m.CrashNothing()): 1}, "bbac")
	}
	if lostSome < 20 || keptSome < 20 {
		t.Errorf("lost all %d times, kept some %d times", lostSome, keptSome)
	}
}

// TestFailedSyncOfGrowth: the length stays to be synced, and comes with zeros.
func TestFailedSyncOfGrowth(t *testing.T) {
	seen := map[string]bool{}
	for run := range uint64(100) {
		m, f := synced(t, "/f", sectors("a"))
		m.Seed(*seed + run)
		write(t, f, sectorSize, sectors("b"))
		m.SetHook(Faults(Fault{Kind: OpSync, Count: 1}))
		wants(t, "the sync", f.Sync(), syscall.EIO)
		seen["then "+show(t, "/f")(m.CrashNothing())] = true
		must(t, f.Sync())
		seen["later "+show(t, "/f")(m.CrashNothing())] = true
	}
	want := []string{"later a0", "later ab", "then a", "then a0", "then ab"}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
		t.Errorf("saw %q, want %q", got, want)
	}
}

// TestDropCachesKeepsCuts: what is still to be synced stays, a cut too.
func TestDropCachesKeepsCuts(t *testing.T) {
	for run := range uint64(20) {
		m, f := synced(t, "/f", sectors("aaaaaaaaaaaa"))
		m.Seed(*seed + run)
		write(t, f, 0, sectors("b"))
		m.SetHook(Faults(Fault{Kind: OpSync, Count: 1}))
		wants(t, "the sync", f.Sync(), syscall.EIO)
		write(t, f, 2*sectorSize, sectors("c"))
		must(t, f.Truncate(4*sectorSize))
		must(t, f.Truncate(10*sectorSize))
		m.DropCaches()
		checkHistory(t, m.root, map[*node]bool{})
		if got := show(t, "/f")(m); got != "aaca000000" && got != "baca000000" {
			t.Fatalf("-vfs.seed=%d: seen is %s", *seed+run, got)
		}
		must(t, f.Sync())
		has(t, m.CrashNothing(), "/f", contentsOf(t, m, "/f"))
	}
}

// TestFailedSyncDir makes nothing durable.
func TestFailedSyncDir(t *testing.T) {
	m := NewMem()
	put(t, m, "/a", "1")
	m.SetHook(Faults(Fault{Kind: OpSyncDir, Count: 1}))
	wants(t, "SyncDir", m.SyncDir("/"), syscall.EIO)
	if got := tree(t, m.CrashNothing()); got != "" {
		t.Errorf("after a failed SyncDir: %q", got)
	}
	must(t, m.SyncDir("/"))
	if got := tree(t, m.CrashNothing()); got != "a=1" {
		t.Errorf("after the next SyncDir: %q", got)
	}
}

// journal is the least that a store does: it writes a record and syncs it before it says so, in a
// new file after every five.
func journal(m *Mem, records int) (acknowledged int) {
	var f File
	for i := range records {
		if i%5 == 0 {
			if f != nil && f.Close() != nil {
				return i
			}
			var err error
			if f, err = m.Create(fmt.Sprintf("/log%d", i/5)); err != nil {
				return i
			}
			if f.Allocate(5*1000) != nil || f.Sync() != nil || m.SyncDir("/") != nil {
				return i
			}
		}
		if _, err := f.WriteAt(bytes.Repeat([]byte{byte('a' + i)}, 1000), int64(i%5)*1000); err != nil {
			return i
		}
		if f.Datasync() != nil {
			return i
		}
	}
	return records
}

func TestHaltEverywhere(t *testing.T) {
	const records = 12
	whole := NewMem()
	if n := journal(whole, records); n != records {
		t.Fatalf("only %d records without a halt", n)
	}
	if got, want := whole.Ops(), int64(3*4+2*records); got != want {
		t.Fatalf("%d operations, want %d", got, want)
	}
	torn, ahead := 0, 0
	for at := int64(1); at <= whole.Ops(); at++ {
		for run := range uint64(40) {
			m := NewMem()
			m.Seed(*seed + run)
			m.HaltAfter(at)
			n := journal(m, records)
			if n == records || !m.Halted() || m.Ops() != at {
				t.Fatalf("halted in operation %d of %d: %d records, halted is %v", m.Ops(), at, n, m.Halted())
			}
			for _, c := range []*Mem{m.Crash(seeded(run)), m.CrashNothing(), m.CrashAll(), m.Kill()} {
				for i := range n {
					log := contentsOf(t, c, fmt.Sprintf("/log%d", i/5))
					if !bytes.Equal(log[i%5*1000:][:1000], bytes.Repeat([]byte{byte('a' + i)}, 1000)) {
						t.Fatalf("-vfs.seed=%d: power went in operation %d: record %d of %d is lost", *seed, at, i, n)
					}
				}
				if _, err := c.Size(fmt.Sprintf("/log%d", n/5)); err != nil {
					continue
				}
				log := contentsOf(t, c, fmt.Sprintf("/log%d", n/5))
				if len(log) < 5000 {
					continue
				}
				switch rest := bytes.Count(log[n%5*1000:], []byte{byte('a' + n)}); {
				case rest == 1000:
					ahead++
				case rest > 0:
					torn++
				}
			}
		}
	}
	if torn == 0 || ahead == 0 {
		t.Errorf("%d torn records and %d that were not yet acknowledged: want some of both", torn, ahead)
	}
}

func TestHalt(t *testing.T) {
	m, f := synced(t, "/f", []byte("safe"))
	m.HaltAfter(5)
	m.HaltAfter(0) // taken back
	for range 10 {
		write(t, f, 0, []byte("s"))
	}
	m.Halt()
	for what, err := range map[string]error{
		"WriteAt":  second(f.WriteAt([]byte("x"), 0)),
		"ReadAt":   second(f.ReadAt(make([]byte, 1), 0)),
		"Size":     second(f.Size()),
		"Sync":     f.Sync(),
		"Datasync": f.Datasync(),
		"Truncate": f.Truncate(0),
		"Allocate": f.Allocate(10),
		"Create":   second(m.Create("/g")),
		"Open":     second(m.Open("/f")),
		"Remove":   m.Remove("/f"),
		"Rename":   m.Rename("/f", "/g"),
		"MkdirAll": m.MkdirAll("/d"),
		"List":     second(m.List("/")),
		"FS.Size":  second(m.Size("/f")),
		"SyncDir":  m.SyncDir("/"),
		"Close":    f.Close(),
	} {
		wants(t, what, err, ErrHalted)
	}
	has(t, m.CrashNothing(), "/f", []byte("safe"))
	has(t, m.Clone(), "/f", []byte("safe"))
}

// TestHaltedHalfWay: the operation during which the power goes may have been done, or not, or in part.
func TestHaltedHalfWay(t *testing.T) {
	for what, test := range map[string]struct {
		do   func(*Mem, File) error
		see  func(*Mem) string
		want []string
	}{
		"write": {
			func(_ *Mem, f File) error { return second(f.WriteAt([]byte("bb"), 0)) },
			func(m *Mem) string { return string(contentsOf(t, m.Kill(), "/f")) }, []string{"aa", "ba", "bb"},
		},
		"sync": {
			func(_ *Mem, f File) error { return f.Sync() },
			func(m *Mem) string { return string(contentsOf(t, m.CrashNothing(), "/f")) }, []string{"aa", "ac"},
		},
		"truncate": {
			func(_ *Mem, f File) error { return f.Truncate(1) },
			func(m *Mem) string { return string(contentsOf(t, m.Kill(), "/f")) }, []string{"a", "ac"},
		},
		"create": {
			func(m *Mem, _ File) error { return second(m.Create("/g")) },
			func(m *Mem) string { return tree(t, m.Kill()) }, []string{"f=ac", "f=ac g="},
		},
	} {
		seen := map[string]int{}
		for run := range uint64(100) {
			m, f := synced(t, "/f", []byte("aa"))
			if what != "write" {
				write(t, f, 1, []byte("c"))
			}
			m.Seed(*seed + run)
			m.HaltAfter(1)
			wants(t, what, test.do(m, f), ErrHalted)
			seen[test.see(m)]++
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, test.want) {
			t.Errorf("halted in a %s: saw %q, want %q", what, got, test.want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestKill: what a process wrote is there after kill -9, and what was not synced may still be lost.
func TestKill(t *testing.T) {
	m, f := synced(t, "/f", sectors("a"))
	write(t, f, 0, sectors("b"))
	put(t, m, "/g", "new")
	m.Halt()
	killed := m.Kill()
	has(t, killed, "/f", sectors("b"))
	has(t, killed, "/g", []byte("new"))
	exactly(t, outcomes(killed, show(t, "/f")), "a", "b")
	lists(t, killed.CrashNothing(), "/", "f")
	again, err := killed.OpenWrite("/f")
	must(t, err)
	must(t, errors.Join(again.Sync(), killed.SyncDir("/")))
	exactly(t, outcomes(killed, show(t, "/f")), "b")
	lists(t, killed.CrashNothing(), "/", "f", "g")
}

func TestCloneIsApart(t *testing.T) {
	m, f := synced(t, "/f", sectors("ab"))
	write(t, f, 0, sectors("c"))
	copies := []*Mem{m.Clone(), m.CrashAll()}
	write(t, f, 0, sectors("x"))
	must(t, errors.Join(f.Sync(), m.Remove("/f"), m.SyncDir("/")))
	for _, c := range copies {
		has(t, c, "/f", sectors("cb"))
		g, err := c.OpenWrite("/f")
		must(t, err)
		write(t, g, sectorSize, sectors("y"))
		has(t, c, "/f", sectors("cy"))
	}
	for _, c := range copies {
		has(t, c, "/f", sectors("cy"))
	}
	b := make([]byte, 2*sectorSize)
	_, err := f.ReadAt(b, 0)
	must(t, err)
	if !bytes.Equal(b, sectors("xb")) {
		t.Error("a write to the copy is seen in the original")
	}
}

// TestSameSeed: the same calls and seeds give the same.
func TestSameSeed(t *testing.T) {
	run := func() string {
		var all strings.Builder
		for i := range uint64(100) {
			r, m := seeded(*seed+i), NewMem()
			m.Seed(i)
			m.SetCapacity(50_000)
			m.SetHook(Faults(Fault{Kind: OpSync, Skip: 2, Count: 1}))
			for j := range 10 {
				f, err := m.Create(fmt.Sprint("/", j))
				must(t, err)
				f.WriteAt(bytes.Repeat([]byte{'a' + byte(j)}, 3000), r.Int64N(9000))
				f.Allocate(20_000)
				f.Sync()
				f.WriteAt(bytes.Repeat([]byte{'A' + byte(j)}, 3000), r.Int64N(9000))
			}
			all.WriteString(tree(t, m.Crash(r)))
		}
		return all.String()
	}
	if first, again := run(), run(); first != again {
		t.Error("two runs differ")
	}
}

// TestLongHistory: a file that is never synced takes no memory without end, and a crash of it finds
// what was written.
func TestLongHistory(t *testing.T) {
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

func TestCapacity(t *testing.T) {
	m, f := synced(t, "/f", make([]byte, 5000)) // two pages
	if m.Used() != 2*pageSize {
		t.Fatalf("%d bytes are used", m.Used())
	}
	m.SetCapacity(3*pageSize + 100)
	write(t, f, 8000, []byte("xxxx")) // in room that is there
	n, err := f.WriteAt(make([]byte, 10_000), 8000)
	wants(t, "a write over the capacity", err, syscall.ENOSPC)
	if n != 3*pageSize-8000 {
		t.Errorf("%d bytes of it were written", n)
	}
	if size, _ := f.Size(); size != 3*pageSize || m.Used() != 3*pageSize {
		t.Errorf("the file has %d bytes, %d are used", size, m.Used())
	}
	n, err = f.WriteAt([]byte("x"), 3*pageSize)
	wants(t, "a write to a full disk", err, syscall.ENOSPC)
	if n != 0 {
		t.Error("it wrote")
	}
	write(t, f, 0, make([]byte, 3*pageSize)) // over what is there
	must(t, f.Truncate(100_000))             // a hole needs no room
	_, err = f.WriteAt([]byte("x"), 90_000)
	wants(t, "a write into a hole", err, syscall.ENOSPC)
	must(t, f.Truncate(pageSize+1))
	if m.Used() != 2*pageSize {
		t.Errorf("after a cut %d bytes are used", m.Used())
	}

	g := create(t, m, "/g")
	must(t, g.Allocate(pageSize))
	none, some := 0, 0
	for run := range uint64(50) {
		c := m.Clone()
		c.Seed(*seed + run)
		c.SetCapacity(5 * pageSize)
		h, err := c.OpenWrite("/g")
		must(t, err)
		wants(t, "Allocate", h.Allocate(4*pageSize), syscall.ENOSPC)
		switch size, _ := h.Size(); size {
		case pageSize:
			none++
		case 3 * pageSize:
			some++
		default:
			t.Fatalf("it made the file %d bytes long", size)
		}
	}
	if none == 0 || some == 0 {
		t.Errorf("Allocate took nothing %d times, something %d times", none, some)
	}

	must(t, m.Remove("/f")) // f is open and keeps its room
	if m.Used() != 3*pageSize {
		t.Errorf("an open file was removed: %d bytes are used", m.Used())
	}
	must(t, f.Close())
	if m.Used() != pageSize {
		t.Errorf("and closed: %d bytes are used", m.Used())
	}
	h := create(t, m, "/h")
	write(t, h, 0, make([]byte, 2*pageSize))
	must(t, m.Rename("/h", "/g")) // frees the old g, once that is closed
	must(t, g.Close())
	if m.Used() != 2*pageSize {
		t.Errorf("after a rename over it: %d bytes are used", m.Used())
	}
	if used := m.CrashNothing().Used(); used != 2*pageSize { // of f, which is back
		t.Errorf("what was removed comes back with %d bytes", used)
	}
	must(t, errors.Join(h.Sync(), m.SyncDir("/")))
	write(t, h, 0, make([]byte, 2*pageSize))
	must(t, h.Truncate(1))
	if used := m.CrashNothing().Used(); m.Used() != pageSize || used != 2*pageSize {
		t.Errorf("cut to %d bytes, what was cut off comes back with %d", m.Used(), used)
	}
	must(t, errors.Join(h.Allocate(2*pageSize), h.Sync()))
	write(t, h, 2*pageSize-1, []byte("1"))
	grown := m.Clone()
	grown.SetCapacity(-1)
	hh, err := grown.OpenWrite("/g")
	must(t, err)
	write(t, hh, 0, make([]byte, 9*pageSize))
	if used := grown.CrashNothing().Used(); grown.Used() != 9*pageSize || used != 2*pageSize {
		t.Errorf("grown to %d bytes, what is durable has %d", grown.Used(), used)
	}
	for _, c := range []*Mem{m.Clone(), m.CrashAll()} {
		if c.Used() != 2*pageSize {
			t.Errorf("a copy uses %d bytes", c.Used())
		}
		full, err := c.OpenWrite("/g")
		must(t, err)
		_, err = full.WriteAt(make([]byte, 4*pageSize), 0)
		wants(t, "a copy's capacity", err, syscall.ENOSPC)
		c.SetCapacity(-1)
		write(t, full, 0, make([]byte, 100*pageSize))
	}
}

func TestFaults(t *testing.T) {
	m, f := synced(t, "/dir.log", []byte("0123456789"))
	full := errors.New("a cause of its own")
	m.SetHook(Faults(
		Fault{Kind: OpWrite, Name: "*.log", Skip: 1, Count: 2, Err: full, Short: 3},
		Fault{Kind: OpRead, Lo: 4, Hi: 6},
		Fault{Kind: OpRemove, Err: syscall.EROFS},
		Fault{Kind: OpClose, Count: 1},
	))
	write(t, f, 0, []byte("AAAAA"))
	for range 2 {
		n, err := f.WriteAt([]byte("BBBBB"), 5)
		wants(t, "WriteAt", err, full)
		if n != 3 {
			t.Errorf("a short write wrote %d bytes", n)
		}
	}
	g := create(t, m, "/other")
	write(t, g, 0, []byte("not matched"))
	b := make([]byte, 4)
	for off := range int64(7) {
		_, err := f.ReadAt(b, off)
		if want := off > 0 && off < 6; errors.Is(err, syscall.EIO) != want || !want && err != nil {
			t.Errorf("a read of [%d, %d): %v", off, off+4, err)
		}
	}
	wants(t, "Remove", m.Remove("/other"), syscall.EROFS)
	wants(t, "Close", g.Close(), syscall.EIO)
	wants(t, "Close again", g.Close(), fs.ErrClosed)
	write(t, f, 8, []byte("C"))
	m.SetHook(nil)
	has(t, m, "/dir.log", []byte("AAAAABBBC9"))
	m.SetHook(func(Op) error { return &Short{N: 1} })
	n, err := f.WriteAt([]byte("DD"), 8)
	wants(t, "a Short without a cause", err, io.ErrShortWrite)
	if n != 1 {
		t.Errorf("it wrote %d bytes", n)
	}
	m.SetHook(nil)
	has(t, m, "/dir.log", []byte("AAAAABBBD9"))

	var ops []Op
	m.SetHook(func(op Op) error {
		m.Ops() // a hook may ask
		ops = append(ops, op)
		return nil
	})
	before := m.Ops()
	write(t, f, 2, []byte("xy"))
	must(t, errors.Join(f.Datasync(), f.Truncate(5), m.Rename("/dir.log", "/z"), m.SyncDir("/")))
	_, err = m.Size("/z")
	must(t, err)
	want := []Op{
		{Kind: OpWrite, Name: "/dir.log", Offset: 2, Len: 2}, {Kind: OpSync, Name: "/dir.log"},
		{Kind: OpTruncate, Name: "/dir.log", Offset: 5}, {Kind: OpRename, Name: "/dir.log", To: "/z"},
		{Kind: OpSyncDir, Name: "/"}, {Kind: OpSize, Name: "/z"},
	}
	if !slices.Equal(ops, want) || m.Ops()-before != 5 {
		t.Errorf("%d operations counted, seen %v, want %v", m.Ops()-before, ops, want)
	}
}

func TestDamage(t *testing.T) {
	m, f := synced(t, "/f", bytes.Repeat([]byte("a"), 10_000))
	must(t, m.Flip("/f", 5000, 1))
	damaged := bytes.Repeat([]byte("a"), 10_000)
	damaged[5000] = 'c'
	has(t, m, "/f", damaged)
	has(t, m.CrashNothing(), "/f", damaged)
	for what, err := range map[string]error{
		"behind the end": m.Flip("/f", 10_000, 0), "before the start": m.Flip("/f", -1, 0), "a ninth bit": m.Flip("/f", 0, 8),
		"a longer file": m.CutFile("/f", 10_000), "no length": m.CutFile("/f", -1),
	} {
		wants(t, what, err, syscall.EINVAL)
	}
	wants(t, "Flip of nothing", m.Flip("/none", 0, 0), fs.ErrNotExist)
	wants(t, "CutFile of nothing", m.CutFile("/none", 0), fs.ErrNotExist)
	must(t, m.CutFile("/f", 5001))
	has(t, m.CrashNothing(), "/f", damaged[:5001])
	if size, err := f.Size(); size != 5001 || err != nil {
		t.Errorf("who has it open sees %d bytes, %v", size, err)
	}
	if m.Used() != 2*pageSize {
		t.Errorf("%d bytes are used", m.Used())
	}
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
