package vfs

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
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
		if strings.Contains(got, "X") && (len(got) != 9 || strings.ContainsAny(got, "cdefgh")) ||
			strings.Contains(got, "Xj") {
			t.Errorf("after a cut and a write behind it: %s", got)
		}
	}
	must(t, f.Sync())
	exactly(t, outcomes(m, show(t, "/f")), "ab000000X")
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

// TestLinks: a file with two names is one after a crash too, takes room once, and stays while one of them does.
func TestLinks(t *testing.T) {
	see := func(m *Mem) string { return tree(t, m) }
	m := NewMem()
	put(t, m, "/a", "1")
	must(t, errors.Join(m.MkdirAll("/d"), m.SyncDir("/")))
	used := m.Used()
	must(t, m.Link("/a", "/d/b"))
	exactly(t, outcomes(m, see), "a=1 d/", "a=1 d/ d/b=1")
	must(t, m.SyncDir("/d"))
	exactly(t, outcomes(m, see), "a=1 d/ d/b=1")
	for how, c := range map[string]*Mem{"as it was": m, "a clone": m.Clone(), "crashed": m.CrashAll()} {
		if c.Used() != used {
			t.Errorf("%s: two names take %d bytes, one %d", how, c.Used(), used)
		}
		f, err := c.OpenWrite("/d/b")
		must(t, err)
		write(t, f, 0, []byte("2"))
		must(t, errors.Join(f.Sync(), f.Close()))
		has(t, c, "/a", []byte("2"))
		must(t, errors.Join(c.Remove("/a"), c.SyncDir("/")))
		if c.Used() != used {
			t.Errorf("%s: one name left, and %d bytes are taken, not %d", how, c.Used(), used)
		}
		exactly(t, outcomes(c, see), "d/ d/b=2")
		must(t, c.Remove("/d/b"))
		if c.Used() != 0 {
			t.Errorf("%s: no name is left, and %d bytes are taken", how, c.Used())
		}
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
	t.Parallel()
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
	t.Parallel()
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
