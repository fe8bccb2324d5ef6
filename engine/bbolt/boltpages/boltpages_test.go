package boltpages_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast/engine/bbolt/boltpages"
)

// made makes a file with a tree of several levels, small buckets of which some are not aligned, nested ones, and
// large values.
func made(t *testing.T, noList bool) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "bolt")
	db, err := bbolt.Open(name, 0o600, &bbolt.Options{NoFreelistSync: noList, NoSync: true, PageSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		err := db.Update(func(tx *bbolt.Tx) error {
			for i := range 40 {
				b, err := tx.CreateBucketIfNotExists([]byte("small-" + strings.Repeat("x", i)))
				if err != nil {
					return err
				}
				for k := range 3 {
					if err := b.Put(fmt.Append(nil, k), fmt.Append(nil, "value", round, i)); err != nil {
						return err
					}
				}
			}
			large, err := tx.CreateBucketIfNotExists([]byte("large"))
			if err != nil {
				return err
			}
			for i := range 1000 {
				if err := large.Put(fmt.Appendf(nil, "%06d", i), make([]byte, 30)); err != nil {
					return err
				}
			}
			nested, err := large.CreateBucketIfNotExists([]byte("nested"))
			if err != nil {
				return err
			}
			return nested.Put([]byte("big"), make([]byte, 20_000))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

// readAll reads all that is in a file by bbolt, with garbage collections in between.
func readAll(name string) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	db, err := bbolt.Open(name, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer db.Close()
	var held [][]byte
	var walk func(b *bbolt.Bucket) error
	walk = func(b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			held = append(held, k, v)
			if len(held)%512 == 0 {
				runtime.GC()
			}
			if v == nil {
				return walk(b.Bucket(k))
			}
			return nil
		})
	}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error { return walk(b) })
	})
	runtime.GC()
	runtime.KeepAlive(held)
	return err
}

func TestSound(t *testing.T) {
	for _, noList := range []bool{false, true} {
		name := made(t, noList)
		for _, depth := range []boltpages.Depth{boltpages.Inline, boltpages.All} {
			if err := boltpages.CheckFile(name, depth); err != nil {
				t.Errorf("depth %d: %v", depth, err)
			}
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// With one meta page damaged bbolt reads from the other, and so does the check.
		for page := range 2 {
			c := bytes.Clone(b)
			c[page*4096+30] ^= 1
			if err := boltpages.Check(bytes.NewReader(c), int64(len(c)), boltpages.All); err != nil {
				t.Errorf("meta page %d is damaged: %v", page, err)
			}
		}
		if err := boltpages.Check(bytes.NewReader(nil), 0, boltpages.All); err != nil {
			t.Errorf("an empty file is bbolt's to refuse: %v", err)
		}
	}
}

const childEnv = "HOLDFAST_BOLTPAGES_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		scatter()
		fmt.Println("read:", readAll(name))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// scatter leaves a heap in which there are spans that are not in use any more, all over.
func scatter() {
	var all [][]byte
	for range 4096 {
		all = append(all, make([]byte, 32<<10))
	}
	for i := range all {
		if i%16 != 0 {
			all[i] = nil
		}
	}
	runtime.GC()
	runtime.GC()
	runtime.KeepAlive(all)
}

// TestEndsTheProcess damages the place of a key in a small bucket, so that it points elsewhere in the heap. A program
// that reads the file ends, whatever it recovers from; the check refuses the file.
func TestEndsTheProcess(t *testing.T) {
	name := made(t, false)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	ended, children := false, 0
	for at := range len(b) - 16 {
		// The elements of a small bucket of three keys, of one byte and seven: the first begins behind them all.
		if !bytes.HasPrefix(b[at:], elementsOfThree()) {
			continue
		}
		for _, far := range []uint32{1 << 24, 1 << 20, 1 << 30} {
			c := bytes.Clone(b)
			binary.NativeEndian.PutUint32(c[at+20:], far)
			for _, depth := range []boltpages.Depth{boltpages.Inline, boltpages.All} {
				var damage boltpages.Damage
				err := boltpages.Check(bytes.NewReader(c), int64(len(c)), depth)
				if inUse := reached(b, at); inUse && !errors.As(err, &damage) || !inUse && err != nil {
					t.Fatalf("a place %d bytes away at byte %d, in use: %v, depth %d: %v", far, at, inUse, depth, err)
				}
			}
			if children++; ended || children > 12 || !reached(b, at) {
				continue
			}
			if err := os.WriteFile(name, c, 0o600); err != nil {
				t.Fatal(err)
			}
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), childEnv+"="+name)
			out, err := child.CombinedOutput()
			if err != nil && strings.Contains(string(out), "found bad pointer in Go heap") {
				ended = true
			}
		}
	}
	if !ended {
		t.Log("reading the damaged files has not ended a process this time: it depends on where the heap lies")
	}
}

// elementsOfThree are the first bytes of the elements of a leaf with three keys: no flags, and the place.
func elementsOfThree() []byte {
	b := binary.NativeEndian.AppendUint32(nil, 0)
	b = binary.NativeEndian.AppendUint32(b, 48)
	return binary.NativeEndian.AppendUint32(b, 1)
}

// reached reports whether a check of the whole file reads what is at an offset.
func reached(b []byte, at int) bool {
	r := &watch{Reader: bytes.NewReader(b), at: int64(at)}
	_ = boltpages.Check(r, int64(len(b)), boltpages.All)
	return r.read
}

type watch struct {
	*bytes.Reader
	at   int64
	read bool
}

func (w *watch) ReadAt(b []byte, off int64) (int, error) {
	w.read = w.read || off <= w.at && w.at < off+int64(len(b))
	return w.Reader.ReadAt(b, off)
}

// TestDamage flips bits and writes garbage all over a file. The check finds it or not, and comes to an end; what it
// passes bbolt reads without ending the process, with garbage collections in between.
func TestDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, noList := range []bool{false, true} {
		name := made(t, noList)
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		used := len(bytes.TrimRight(b, "\x00"))
		found, passed := 0, 0
		for i := range 300 {
			c := bytes.Clone(b)
			for range 1 + i%3 {
				at := r.IntN(used)
				if i%2 == 0 { // in the headers and elements, where it matters
					at = at&^4095 + r.IntN(200)
				}
				c[at] ^= byte(1 << r.IntN(8))
			}
			if err := boltpages.Check(bytes.NewReader(c), int64(len(c)), boltpages.All); err != nil {
				found++
				continue
			}
			passed++
			if passed%16 > 0 {
				continue
			}
			if err := os.WriteFile(name, c, 0o600); err != nil {
				t.Fatal(err)
			}
			_ = readAll(name) // an error, or not
		}
		if found < 50 || passed < 50 {
			t.Errorf("%d found, %d passed", found, passed)
		}
	}
}

func TestFindings(t *testing.T) {
	name := made(t, false)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	meta := b[16:]
	if other := b[4096+16:]; binary.NativeEndian.Uint64(other[48:]) > binary.NativeEndian.Uint64(meta[48:]) {
		meta = other
	}
	root, list := binary.NativeEndian.Uint64(meta[16:]), binary.NativeEndian.Uint64(meta[32:])
	at := func(page uint64) int { return int(page * 4096) }
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		say    string
	}{
		"cut off":  {func(b []byte) []byte { return b[:at(max(root, list))] }, "it was cut off"},
		"another":  {func(b []byte) []byte { b[at(root)]++; return b }, "says that it is page"},
		"type":     {func(b []byte) []byte { b[at(root)+8] = 4; return b }, "should hold keys"},
		"fewer":    {func(b []byte) []byte { b[at(root)+10]--; return b }, "by where they begin"},
		"many":     {func(b []byte) []byte { b[at(root)+11] = 0xff; return b }, "room for fewer"},
		"overflow": {func(b []byte) []byte { b[at(root)+15] = 0xff; return b }, "does not end within the file"},
		"outside":  {func(b []byte) []byte { b[at(root)+16+16+7] = 0x7f; return b }, "does not lie within it"},
		"list":     {func(b []byte) []byte { b[at(list)+8] = 2; return b }, "list of free pages"},
		"too long": {func(b []byte) []byte { b[at(list)+11] = 0x80; return b }, "has room for"},
		"endless": {func(b []byte) []byte {
			copy(b[at(list)+10:], []byte{0xff, 0xff})
			copy(b[at(list)+16:], bytes.Repeat([]byte{0xff}, 8))
			return b
		}, "has room for"},
	} {
		c2 := c.change(bytes.Clone(b))
		err := boltpages.Check(bytes.NewReader(c2), int64(len(c2)), boltpages.All)
		if err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v, want %q", name, err, c.say)
		}
	}
}
