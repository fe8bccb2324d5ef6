package table

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// readAll reads a table in every way; what it answers must be right, or ErrCorrupt. It returns whether there was an
// error.
func readAll(r *Reader, pairs []pair, absent [][]byte) (failed bool, problem string) {
	bad := func(err error) bool {
		if err == nil {
			return false
		}
		failed = true
		var e *holdfast.Error
		if !errors.Is(err, holdfast.ErrCorrupt) || !errors.As(err, &e) || e.Path == "" {
			problem = fmt.Sprintf("error of another class, or without path: %v", err)
		}
		return true
	}
	for _, p := range pairs {
		if e, ok, err := r.Get(p.key); !bad(err) && (!ok || e != p.e) {
			return failed, fmt.Sprintf("Get(%v): %+v, %v", p, e, ok)
		}
		if !r.MayContain(p.key) {
			return failed, fmt.Sprintf("MayContain(%v): false", p)
		}
	}
	for _, key := range absent {
		if e, ok, err := r.Get(key); !bad(err) && ok {
			return failed, fmt.Sprintf("Get(%q): %+v", key, e)
		}
	}
	it, i := r.Iter(), 0
	for ; it.Next(); i++ {
		if i == len(pairs) || !bytes.Equal(it.Key(), pairs[i].key) || it.Entry() != pairs[i].e {
			return failed, fmt.Sprintf("Next to %d: %.40q", i, it.Key())
		}
	}
	if !bad(it.Err()) && i != len(pairs) {
		return failed, fmt.Sprintf("a scan ended after %d", i)
	}
	r.Init(it)
	for i = len(pairs) - 1; it.Prev(); i-- {
		if i < 0 || !bytes.Equal(it.Key(), pairs[i].key) || it.Entry() != pairs[i].e {
			return failed, fmt.Sprintf("Prev to %d: %.40q", i, it.Key())
		}
	}
	if !bad(it.Err()) && i != -1 {
		return failed, fmt.Sprintf("a scan backwards ended at %d", i)
	}
	return failed, problem
}

func smallRun(t testing.TB) (image []byte, pairs []pair, absent [][]byte) {
	pairs = append(ascending(60), pair{[]byte("f"), Entry{Tombstone: true}},
		pair{[]byte("f/long/and/longer"), Entry{Place: 9<<32 | 77, Len: 5000, Sum: 1}},
		pair{[]byte("f/long/and/other"), Entry{Place: 3<<32 | 9000, Len: 1}})
	image, _ = build(t, pairs, 150)
	return image, pairs, absentKeys(pairs)[:60]
}

// TestEveryByte damages each byte of a table. Readers must notice or answer right, and Verify must notice.
func TestEveryByte(t *testing.T) {
	t.Parallel()
	image, pairs, absent := smallRun(t)
	t.Log(len(image), "bytes")
	noticed := 0
	for at := range image {
		for m, mode := range modes {
			for _, flip := range []byte{1 << ((at + m) % 8), 0xff} {
				damaged := bytes.Clone(image)
				damaged[at] ^= flip
				r, err := mode.open(damaged, testID)
				if err != nil {
					if !errors.Is(err, holdfast.ErrCorrupt) {
						t.Fatalf("%s, byte %d: %v", mode.name, at, err)
					}
					noticed++
					continue
				}
				failed, problem := readAll(r, pairs, absent)
				if problem != "" {
					t.Fatalf("%s, byte %d: %s", mode.name, at, problem)
				}
				if failed {
					noticed++
				}
				if err := r.Verify(); !errors.Is(err, holdfast.ErrCorrupt) {
					t.Fatalf("%s, byte %d: Verify: %v", mode.name, at, err)
				}
				r.Close()
			}
		}
	}
	if noticed < len(image)*len(modes) {
		t.Error("only", noticed, "noticed")
	}
}

// TestRotAfterFirstRead damages each byte of a table that an open reader has read before. What it answers must still be
// right, or an error.
func TestRotAfterFirstRead(t *testing.T) {
	t.Parallel()
	image, pairs, absent := smallRun(t)
	for _, mode := range modes {
		file := bytes.Clone(image)
		r, err := mode.open(file, testID)
		if err != nil {
			t.Fatal(err)
		}
		for at := range file {
			if failed, problem := readAll(r, pairs, absent); failed || problem != "" {
				t.Fatalf("%s, byte %d, in order: %v, %s", mode.name, at, failed, problem)
			}
			file[at] ^= 1 << (at % 8)
			if _, problem := readAll(r, pairs, absent); problem != "" {
				t.Fatalf("%s, byte %d: %s", mode.name, at, problem)
			}
			file[at] = image[at]
		}
		r.Close()
	}
}

// TestEveryLength cuts a table at every length, and makes it longer.
func TestEveryLength(t *testing.T) {
	t.Parallel()
	image, pairs, absent := smallRun(t)
	for n := range len(image) + 200 {
		cut := append(bytes.Clone(image[:min(n, len(image))]), make([]byte, max(0, n-len(image)))...)
		for _, mode := range modes {
			if _, err := mode.open(cut, testID); (n == len(image)) != (err == nil) || err != nil &&
				!errors.Is(err, holdfast.ErrCorrupt) {
				t.Fatalf("%s, %d of %d bytes: %v", mode.name, n, len(image), err)
			}
		}
		// A file cut under an open reader.
		f := &memFile{b: bytes.Clone(image)}
		r, err := openMem(f, testID, NewCache(0))
		if err != nil {
			t.Fatal(err)
		}
		f.b = cut
		if _, problem := readAll(r, pairs, absent); problem != "" {
			t.Fatalf("cut to %d bytes when open: %s", n, problem)
		}
	}
}

// TestForeign puts other files, and parts of them, in the place of a table.
func TestForeign(t *testing.T) {
	image, pairs, absent := smallRun(t)
	refused := func(what string, b []byte, class error) {
		t.Helper()
		for _, mode := range modes {
			r, err := mode.open(b, testID)
			if err == nil {
				failed, problem := readAll(r, pairs, absent)
				if err = r.Verify(); !failed || problem != "" {
					t.Errorf("%s, %s: not noticed. %s", what, mode.name, problem)
				}
			}
			if !errors.Is(err, class) {
				t.Errorf("%s, %s: %v", what, mode.name, err)
			}
		}
	}
	other := func(id Identity) []byte {
		f := new(memFile)
		w := NewWriter(f, id)
		w.target = 150
		for _, p := range pairs {
			if err := w.Add(p.key, p.e); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Finish(1234); err != nil {
			t.Fatal(err)
		}
		return f.b
	}
	table, db := testID, testID
	table.ID++
	db.DB[3]++
	refused("another table", other(table), holdfast.ErrCorrupt)
	refused("another store's table", other(db), holdfast.ErrCorrupt)
	r, err := modes[0].open(image, testID)
	if err != nil {
		t.Fatal(err)
	}
	x, _ := r.index()
	for i := range x.n {
		lo, hi := x.block(i)
		mixed := bytes.Clone(image)
		copy(mixed[lo:hi], other(table)[lo:hi])
		refused("a block of another table", mixed, holdfast.ErrCorrupt)
		for j := range i {
			if l, h := x.block(j); h-l == hi-lo {
				mixed := bytes.Clone(image)
				copy(mixed[lo:hi], image[l:h])
				copy(mixed[l:h], image[lo:hi])
				refused("two blocks exchanged", mixed, holdfast.ErrCorrupt)
			}
		}
	}
	headless := append(bytes.Clone(image[:headerSize]), other(table)[headerSize:]...)
	refused("another table behind our header", headless, holdfast.ErrCorrupt)
	newer := bytes.Clone(image)
	newer[8] = Version + 1
	refused("another version, bad checksum", newer, holdfast.ErrCorrupt)
	reseal(newer)
	refused("another version", newer, holdfast.ErrVersion)
	refused("zeros", make([]byte, 5000), holdfast.ErrCorrupt)
	refused("nothing", nil, holdfast.ErrCorrupt)
}

// reseal makes every checksum of a table right again that can be found, and leaves the rest as it is.
func reseal(b []byte) {
	if len(b) < headerSize+footerSize {
		return
	}
	s := testID.seed()
	le.PutUint32(b[60:], crcOf(b[:60]))
	n := int64(len(b))
	foot := b[n-footerSize:]
	at := func(i int) int64 { return int64(min(le.Uint64(foot[i:]), 1<<40)) }
	filter, index, meta, blocks, lines := at(0), at(8), at(16), int64(le.Uint32(foot[48:])), int64(le.Uint32(foot[52:]))
	if sums := 4 * filterPages(lines); filter <= index && index <= meta && meta <= n-footerSize &&
		sums <= n-footerSize-meta {
		for page := range filterPages(lines) {
			if lo, hi := filter+page*pageSize, min(filter+(page+1)*pageSize, index); lo <= hi {
				le.PutUint32(b[n-footerSize-sums+4*page:], s.sum(lo, b[lo:hi]))
			}
		}
		for i := range blocks {
			o := index + 8*blocks + 4*i
			if o+8 > meta {
				break
			}
			if lo, hi := int64(le.Uint32(b[o:])), int64(le.Uint32(b[o+4:])); lo+4 <= hi && hi <= n {
				le.PutUint32(b[hi-4:], s.sum(lo, b[lo:hi-4]))
			}
		}
		le.PutUint32(foot[56:], s.sum(index, b[index:meta]))
		le.PutUint32(foot[60:], s.sum(meta, b[meta:n-footerSize]))
	}
	le.PutUint32(foot[92:], s.sum(n-footerSize, foot[:92]))
}

// TestVerify damages each byte and makes the checksums right again: what no checksum shows must show in what the
// parts say of each other. Some bytes may change without that, see below.
func TestVerify(t *testing.T) {
	t.Parallel()
	image, pairs, _ := smallRun(t)
	if again := bytes.Clone(image); !bytes.Equal(image, again) {
		t.Fatal()
	} else if reseal(again); !bytes.Equal(image, again) {
		t.Fatal("reseal changes a table that is in order")
	}
	unnoticed := 0
	for at := headerSize; at < len(image); at++ {
		damaged := bytes.Clone(image)
		damaged[at] ^= 1 << (at % 8)
		reseal(damaged)
		for _, mode := range modes {
			r, err := mode.open(damaged, testID)
			if err == nil {
				err = r.Verify()
			}
			if err == nil {
				// It is another table, in order: it has another entry, or the same ones coded otherwise.
				unnoticed++
			} else if !errors.Is(err, holdfast.ErrCorrupt) {
				t.Fatalf("%s, byte %d: %v", mode.name, at, err)
			}
		}
	}
	// The sums of values, four bytes an entry, can say anything; so can places within a segment, one byte for some of
	// them, and maxSeq.
	free := len(pairs)*(4+1) + 8
	t.Logf("%d of %d bytes can be changed", unnoticed/len(modes), len(image))
	if unnoticed > free*len(modes) {
		t.Errorf("%d of %d bytes can be changed without Verify noticing", unnoticed/len(modes), len(image))
	}
}

func TestReadError(t *testing.T) {
	image, pairs, _ := smallRun(t)
	f := &memFile{b: image}
	if _, err := openMem(&memFile{b: image, failRead: syscall.EIO}, testID, NewCache(0)); !errors.Is(err, syscall.EIO) ||
		errors.Is(err, holdfast.ErrCorrupt) {
		t.Error("Open:", err)
	}
	r, err := openMem(f, testID, NewCache(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	it := r.Iter()
	f.failRead = syscall.EIO
	if _, _, err := r.Get(pairs[0].key); !errors.Is(err, syscall.EIO) || !r.MayContain(pairs[0].key) {
		t.Error("Get:", err)
	}
	if it.Next() || !errors.Is(it.Err(), syscall.EIO) || it.Next() || it.Prev() || !errors.Is(it.Err(), syscall.EIO) {
		t.Error("Next:", it.Err())
	}
	f.failRead = nil
	if !it.First() || it.Err() != nil || !bytes.Equal(it.Key(), pairs[0].key) {
		t.Error("First when it is over:", it.Err())
	}
	if err := r.Close(); err != nil || f.closed != 1 {
		t.Error(err, f.closed)
	}
	if err := r.Close(); err != nil || f.closed != 1 {
		t.Error("Close again:", err, f.closed)
	}
}
