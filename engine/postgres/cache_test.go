package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// The cache agrees with a server that shows a group at some moment while it is under way, answers reads late, and may
// be replaced; and a state that was fixed earlier never gets what was written later.
func TestCacheModel(t *testing.T) {
	hits := 0
	for range 200 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) { hits += modelCache(t, rand.New(rand.NewPCG(seed, 0))) })
	}
	if hits < 20000 {
		t.Errorf("the cache knew %d of 400,000 keys", hits)
	}
}

func modelCache(t *testing.T, r *rand.Rand) (hits int) {
	type state = map[string]string
	type read struct { // that was sent
		key   string
		at    state // the answer, taken at some moment; nil before
		since int64
	}
	type view struct {
		state
		since int64
	}
	c := newCache(8*slots + 16*(entryBytes+2)*(1+r.Int64N(40))) // few to all keys have room
	key := func() string { return fmt.Sprintf("%02d", r.IntN(30)) }
	shown := state{}
	var group *holdfast.Batch // under way
	var after state           // with the group
	visible := false          // the server shows it
	left := false             // the server is left: what was read before may still arrive
	var reads []*read
	var views []view
	agree := func(what string, known bool, value []byte, want string, there bool) {
		if t.Helper(); known && (string(value) != want || (value != nil) != there) {
			t.Fatalf("%s: the cache says %q, the server %q, %v", what, value, want, there)
		}
	}
	for range 2000 {
		switch r.IntN(10) {
		case 0: // a group is sent
			if group != nil {
				break
			}
			group, after, visible = new(holdfast.Batch), maps.Clone(shown), false
			for range r.IntN(4) {
				k := key()
				switch r.IntN(8) {
				case 0:
					hi := fmt.Sprintf("%02d", r.IntN(31))
					group.DeleteRange([]byte(k), []byte(hi))
					maps.DeleteFunc(after, func(at, _ string) bool { return at >= k && at < hi })
				case 1, 2:
					group.Delete([]byte(k))
					delete(after, k)
				default:
					value := fmt.Sprint(r.IntN(1000))[r.IntN(2):]
					group.Set([]byte(k), []byte(value))
					after[k] = value
				}
			}
			c.begin(group)
		case 1: // the server shows it
			if group != nil && !visible {
				shown, visible = after, true
			}
		case 2: // its outcome is known
			if group != nil && visible && !left {
				c.settle(group)
				group = nil
			}
		case 3: // its answer is lost, with the server; the next one may lack something
			switch {
			case group == nil || r.IntN(2) == 0:
			case !left:
				c.drop()
				left = true
			default:
				left, views = false, nil
				reads = slices.DeleteFunc(reads, func(one *read) bool { return one.at != nil })
				shown, after = maps.Clone(shown), maps.Clone(after)
				k, own := key(), false
				for op := range group.Ops() {
					own = own || op.Kind == holdfast.KindDeleteRange || string(op.Key) == k
				}
				if !own { // of a group that is not there nothing is settled
					delete(shown, k)
					delete(after, k)
				}
			}
		case 4, 5:
			reads = append(reads, &read{key: key(), since: c.now()})
		case 6: // the server answers one, which arrives later
			if len(reads) > 0 {
				if one := reads[r.IntN(len(reads))]; one.at == nil {
					one.at = shown
				}
			}
		case 7: // an answer arrives
			for i, one := range reads {
				if one.at != nil {
					if value, ok := one.at[one.key]; !ok {
						c.read([]byte(one.key), nil, one.since)
					} else {
						c.read([]byte(one.key), []byte(value), one.since)
					}
					reads = append(reads[:i], reads[i+1:]...)
					break
				}
			}
		case 8: // a state is fixed, and others end
			since := c.now()
			if len(views) > 3 {
				views = views[1:]
			}
			views = append(views, view{shown, since})
		case 9:
			for _, v := range views {
				k := key()
				value, known := c.getIn([]byte(k), v.since)
				want, there := v.state[k]
				agree("in a state, key "+k, known, value, want, there)
				if !known {
					if there {
						c.read([]byte(k), []byte(want), v.since)
					} else {
						c.read([]byte(k), nil, v.since)
					}
				}
			}
		}
		k := key()
		value, known := c.get([]byte(k))
		want, there := shown[k]
		agree("key "+k, known, value, want, there)
		if was, ok := after[k]; known && group != nil && (ok != there || was != want) {
			t.Fatalf("key %s, which a group changes that is under way, is known to be %q", k, value)
		}
		if known {
			hits++
		}
		bytes := int64(0)
		for _, at := range c.entries {
			bytes += at.Value.(*entry).cost()
		}
		if bytes != c.bytes || bytes > c.limit || len(c.entries) != c.recent.Len() {
			t.Fatalf("%d bytes are counted of %d, the limit is %d", c.bytes, bytes, c.limit)
		}
	}

	return hits
}

// What the cache counts is what it takes.
func TestCacheBytes(t *testing.T) {
	for _, size := range []int{0, 20, 100, 1000, 10000} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		c := newCache(16 << 20)
		value := make([]byte, size)
		for i := range (48 << 20) / (size + entryBytes) {
			c.read(fmt.Appendf(nil, "a key of some length %08d", i), value, 0)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		takes, counted := int64(after.HeapAlloc-before.HeapAlloc), c.used()
		t.Logf("%d entries with values of %d bytes take %d, counted %d", len(c.entries), size, takes, counted)
		if counted > 16<<20 || takes > counted*11/10 || takes < counted/2 {
			t.Errorf("values of %d bytes: it takes %d bytes, and counts %d", size, takes, counted)
		}
		runtime.KeepAlive(c)
	}

	// One that would drive out many is not kept.
	c := newCache(holdfast.MinMemoryBytes)
	if c.read([]byte("k"), make([]byte, 100<<10), 0); len(c.entries) > 0 {
		t.Error("a value of a tenth of the cache is in it")
	}
}

// An owner that was paused for so long that another has the space reads nothing from its cache.
func TestCachePaused(t *testing.T) {
	t.Parallel() // it waits
	needServer(t)
	address := at(os.Getenv(variable), spaceOf(t)) + "&patience=1s"
	opened, err := Open(address, holdfast.Options{})
	if err != nil {
		t.Fatal(err)
	}
	old := opened.(*engine)
	defer old.Close()
	old.window.Stop()
	old.stopBeats()
	put(t, old, holdfast.Power, "k", "1")
	view, err := old.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	if value, known := old.cache.get([]byte("k")); !known || string(value) != "1" {
		t.Fatalf("what was committed is not in the cache: %q, %v", value, known)
	}
	var next holdfast.Engine
	for next == nil {
		if next, err = Open(address, holdfast.Options{}); err != nil && !errors.Is(err, holdfast.ErrLocked) {
			t.Fatal(err)
		}
	}
	defer next.Close()
	put(t, next, holdfast.Power, "k", "2")
	if value, err := old.Get(nil, []byte("k")); err == nil {
		t.Errorf("the old owner reads %q", value)
	}
	if old.Confirm() == nil {
		t.Error("what the old owner's stores have in memory is confirmed")
	}
	if err := next.(*engine).Confirm(); err != nil {
		t.Error(err)
	}
	if value, err := view.Get(nil, []byte("k")); err != nil || string(value) != "1" {
		t.Errorf("its snapshot, which is of a fixed state, reads %q, %v", value, err)
	}
	if _, known := old.cache.get([]byte("k")); !known {
		t.Error("the value was not in the cache, and the test shows nothing")
	}
}

// While answers are lost and connections break, nobody reads what is older than what was acknowledged, or part of a
// batch, and a snapshot stays as it is.
func TestCacheWithLostAnswers(t *testing.T) {
	t.Parallel() // it waits
	needServer(t)
	p := newProxy(t, os.Getenv(variable), nil)
	e := openSpace(t, p.dir)
	if err := e.clear(); err != nil { // of an earlier run on the same server
		t.Fatal(err)
	}
	p.every.Store(211)
	const keys, rounds = 8, 400
	name := func(i int) []byte { return fmt.Appendf(nil, "key %d", i) }
	var acked atomic.Int64
	var stop atomic.Bool
	var readers sync.WaitGroup
	number := func(value []byte, err error) int64 {
		var n int64
		if err == nil {
			_, err = fmt.Sscan(string(value), &n)
		}
		if errors.Is(err, holdfast.ErrNotFound) {
			return -1
		}
		if err != nil {
			t.Error(err)
		}
		return n
	}
	var snapshots atomic.Int64
	for w := range 6 {
		readers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for seen := int64(0); !stop.Load() && !t.Failed(); {
				if r.IntN(5) == 0 {
					e.Fetch([][]byte{name(0), name(r.IntN(keys)), []byte("absent")})
				}
				if w < 4 { // each round writes all keys that it does not delete
					least := max(acked.Load(), seen)
					n := number(e.Get(nil, name(r.IntN(keys))))
					if n >= 0 && n < least {
						t.Errorf("read %d, after %d was there", n, least)
					}
					seen = max(seen, n)
					continue
				}
				least := acked.Load()
				s, err := e.Snapshot()
				if err != nil {
					t.Error(err)
					return
				}
				one := int64(-1)
				for range 2 * keys {
					value, err := s.Get(nil, name(r.IntN(keys)))
					if errors.Is(err, holdfast.ErrUnavailable) { // its connection broke
						break
					}
					n := number(value, err)
					if n < 0 {
						continue
					}
					if n < least || one >= 0 && n != one {
						t.Errorf("a snapshot made after %d has %d and %d", least, one, n)
					}
					one = n
					snapshots.Add(1)
				}
				_ = s.Close()
			}
		})
	}
	var b holdfast.Batch
	for n := range int64(rounds) {
		b.Reset()
		gone := -1
		switch n % 5 {
		case 3:
			b.DeleteRange(nil, nil)
		case 4:
			gone = int(n/5) % keys
			b.Delete(name(gone))
		}
		for i := range keys {
			if i != gone {
				b.Set(name(i), fmt.Appendf(nil, "%d", n))
			}
		}
		if err := holdfast.Commit(e, &b, holdfast.Power); err != nil {
			t.Error(err)
			break
		}
		acked.Store(n)
		for i := range keys {
			if value, err := e.Get(nil, name(i)); i == gone != errors.Is(err, holdfast.ErrNotFound) {
				t.Errorf("after round %d, key %d: %q, %v", n, i, value, err)
			}
		}
		if n%4 == 0 { // or readers find everything in the cache
			e.cache.drop()
		}
	}
	stop.Store(true)
	readers.Wait()
	p.every.Store(0)
	t.Logf("%d connections broke, %d reads of snapshots", p.lost.Load(), snapshots.Load())
	if p.lost.Load() < 10 {
		t.Error("few connections broke")
	}

	// On another server, as it may be now, what was acknowledged at weak levels is perhaps not there.
	p.cut()
	put(t, e, holdfast.Power, "another", "1")
	if value, known := e.cache.get(name(0)); known {
		t.Errorf("after its connections broke, the cache says %q", value)
	}
}

// What a Get returns is the caller's.
func TestCachedValueIsTheCallers(t *testing.T) {
	needServer(t)
	e := openSpace(t, os.Getenv(variable))
	put(t, e, holdfast.Power, "k", "value", "empty", "")
	for range 2 {
		value, err := e.Get(nil, []byte("k"))
		if err != nil || string(value) != "value" {
			t.Fatalf("Get = %q, %v", value, err)
		}
		clear(value)
		value, err = e.Get([]byte("before "), []byte("k"))
		if err != nil || !bytes.Equal(value, []byte("before value")) {
			t.Fatalf("Get = %q, %v", value, err)
		}
		if value, err := e.Get(nil, []byte("empty")); err != nil || len(value) > 0 {
			t.Fatalf("Get = %q, %v", value, err)
		}
		e.cache.drop() // and now from the server
	}
}

// What is fetched need not be read again: keys that are there, and keys that are not.
func TestFetch(t *testing.T) {
	needServer(t)
	var c counter
	opened, err := OpenWith(at(os.Getenv(variable), spaceOf(t)), holdfast.Options{}, c.tune)
	if err != nil {
		t.Fatal(err)
	}
	e := opened.(*engine)
	defer e.Close()
	quiet(e)
	const n = 2*fetchKeys + 1
	fill(t, e, n)
	large := make([]byte, 100<<10)
	put(t, e, holdfast.Memory, "large", string(large), "empty", "")
	e.cache.drop()
	put(t, e, holdfast.Memory, "k", "v") // from here on it takes what is read
	keys := [][]byte{[]byte("large"), []byte("empty"), []byte("absent")}
	for i := range n {
		keys = append(keys, fmt.Appendf(nil, "%06d", i))
	}
	e.Fetch(keys)
	sent := c.sent.Load()
	for i := range n {
		if value, err := e.Get(nil, keys[i+3]); err != nil || string(value) != fmt.Sprintf("value %d", i) {
			t.Fatalf("key %d: %q, %v", i, value, err)
		}
	}
	if value, err := e.Get(nil, []byte("empty")); err != nil || len(value) > 0 {
		t.Errorf("an empty value: %q, %v", value, err)
	}
	if value, err := e.Get(nil, []byte("absent")); err != holdfast.ErrNotFound {
		t.Errorf("an absent key: %q, %v", value, err)
	}
	if trips := c.sent.Load() - sent; trips > 0 {
		t.Errorf("%d round trips after all was fetched", trips)
	}
	if value, err := e.Get(nil, []byte("large")); err != nil || !bytes.Equal(value, large) {
		t.Errorf("a large value: %d bytes, %v", len(value), err)
	}
}
