package migrate

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/raftlog"
	"github.com/holdfastdb/holdfast/store/raftlog/internal/format"
	"github.com/holdfastdb/holdfast/vfs"
)

// counted counts what is read.
type counted struct {
	io.ReaderAt
	reads, bytes, longest int64
}

func (c *counted) ReadAt(b []byte, off int64) (int, error) {
	c.reads++
	c.bytes += int64(len(b))
	c.longest = max(c.longest, int64(len(b)))
	return c.ReaderAt.ReadAt(b, off)
}

// tornSegment is a segment whose only batch, one entry with that data, has a damaged commit.
func tornSegment(t *testing.T, data []byte) []byte {
	t.Helper()
	path := makeWAL(t, 1<<20, func(to both) { ok(t, to.StoreLog(&raft.Log{Index: 1, Data: data})) })
	names, err := filepath.Glob(filepath.Join(path, "*.wal"))
	ok(t, err)
	b, err := os.ReadFile(names[0])
	ok(t, err)
	b = b[:usedBytes(t, names[0])]
	b[len(b)-1] ^= 1
	return b
}

func firstSegment() *walSegment {
	return &walSegment{walInfo: walInfo{BaseIndex: 1, MinIndex: 1, Codec: walCodec}, path: "1.wal"}
}

// TestTornFrames: data that looks like the ends and beginnings of batches, all over, does not make the search for later ones
// take the square of its length, and is not left out when it cannot be told from damage.
func TestTornFrames(t *testing.T) {
	for name, length := range map[string]uint32{"one frame to the end": 0, "chains of frames": 8, "chains of pieces": 1<<13 - 8} {
		t.Run(name, func(t *testing.T) {
			frames := bytes.Repeat([]byte{frameCommit, 0, 0, 0, 9, 9, 9, 9, frameEntry, 0, 0, 0, 0, 0, 0, 0}, 1<<19)
			for i := 8; i < len(frames); i += 16 {
				n := length
				if n == 0 {
					n = uint32(max(len(frames)-i-24, 0)) // to the last commit
				}
				binary.LittleEndian.PutUint32(frames[i+4:], n)
			}
			b := tornSegment(t, append([]byte{0}, frames...))
			if at := bytes.Index(b, frames[:16]); at%walFrame != 0 {
				t.Fatalf("the frames begin at byte %d, where none can", at)
			}
			f := &counted{ReaderAt: bytes.NewReader(b)}
			err := (&walSource{}).checkFile(f, int64(len(b)), firstSegment(), true)
			wantError(t, err, holdfast.ErrCorrupt, "cannot be told")
			if limit := 12*int64(len(b)) + 200<<20; f.bytes > limit || f.reads > int64(len(b))/128 {
				t.Errorf("%d reads of %d bytes, in a file of %d", f.reads, f.bytes, len(b))
			}
		})
	}
}

// TestTornDropped: what is left out is said from its index on.
func TestTornDropped(t *testing.T) {
	path := makeWAL(t, 1<<20, func(to both) {
		ok(t, to.StoreLog(&raft.Log{Index: 1}))
		ok(t, to.StoreLogs([]*raft.Log{{Index: 2}, {Index: 3}}))
	})
	names, err := filepath.Glob(filepath.Join(path, "*.wal"))
	ok(t, err)
	b, err := os.ReadFile(names[0])
	ok(t, err)
	b[usedBytes(t, names[0])-1] ^= 1
	ok(t, os.WriteFile(names[0], b, 0o644))
	got, err := readSource(path, Options{DropTorn: true})
	ok(t, err)
	if want := "everything after index 1: index 4: the entries up to 3, committed here, have a wrong checksum"; got.drop != want {
		t.Errorf("%q, want %q", got.drop, want)
	}
	ok(t, os.Remove(names[0]))
	got, err = readSource(path, Options{DropTorn: true})
	ok(t, err)
	if want := "everything after index 0: the file of the log from index 1 on is not there"; got.drop != want {
		t.Errorf("%q, want %q", got.drop, want)
	}
}

// TestUnreadableIsNotTorn: what cannot be read is not left out.
func TestUnreadableIsNotTorn(t *testing.T) {
	b := tornSegment(t, bytes.Repeat([]byte{5}, 1<<20))
	broken := errors.New("broken")
	left := 3
	f := watched{bytes.NewReader(b), func(int64) error {
		if left--; left == 0 {
			return broken
		}
		return nil
	}}
	err := (&walSource{}).checkFile(f, int64(len(b)), firstSegment(), true)
	wantError(t, err, broken)
}

// TestCheckingIsSeenAndEnds: while the source is checked, before there are entries to be counted, Progress is called, and
// ctx ends it.
func TestCheckingIsSeenAndEnds(t *testing.T) {
	e := memory(t, vfs.NewMem())
	sources(t, func(t *testing.T, _ Kind, make func(func(both)) string) {
		path := make(func(to both) {
			for i := range uint64(40) {
				ok(t, to.StoreLog(&raft.Log{Index: i + 1, Data: bytes.Repeat([]byte{1}, 1<<17)}))
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		_, err := Import(ctx, path, e, Options{Progress: func(p Progress) {
			if calls++; p.Phase != Checking || p.Bytes == 0 || p.Entries != 0 {
				t.Errorf("%+v", p)
			}
			cancel()
		}})
		wantError(t, err, context.Canceled)
		if calls != 1 {
			t.Errorf("%d calls", calls)
		}
		wantNothing(t, e)
	})
}

// TestWALTime: a time that no clock shows is damage.
func TestWALTime(t *testing.T) {
	for nanoseconds, good := range map[uint32]bool{0: true, 999_999_999: true, 1_000_000_000: false, 1<<32 - 1: false} {
		var b bytes.Buffer
		ok(t, (&wal.BinaryCodec{}).Encode(&raft.Log{Index: 1}, &b))
		binary.BigEndian.PutUint32(b.Bytes()[b.Len()-6:], nanoseconds)
		if err := decodeWAL(b.Bytes(), new(raft.Log)); (err == nil) != good {
			t.Errorf("%d nanoseconds: %v", nanoseconds, err)
		}
	}
}

// TestOverflow: a page is read with as much as it holds, not as much as its header says.
func TestOverflow(t *testing.T) {
	const size, page = 1 << 32, 1 << 12
	head := make([]byte, boltHeader+boltElement+2)
	binary.LittleEndian.PutUint64(head, 5)
	binary.LittleEndian.PutUint16(head[10:], 1)
	binary.LittleEndian.PutUint32(head[12:], 1<<19)
	binary.LittleEndian.PutUint32(head[boltHeader+4:], boltElement)
	binary.LittleEndian.PutUint32(head[boltHeader+8:], 1)
	for _, flags := range []uint16{pageLeaf, pageBranch, pageFree, pageMeta, 0} {
		binary.LittleEndian.PutUint16(head[8:], flags)
		f := &counted{ReaderAt: sparse{5 * page: head}}
		b := &boltFile{r: f, path: "raft.db", size: size, page: page, high: size / page}
		_, err := b.readPage(5, nil)
		wantError(t, err, holdfast.ErrCorrupt, "page 5 goes on for")
		if f.bytes > page {
			t.Errorf("flags %d: %d bytes were read, up to %d at once", flags, f.bytes, f.longest)
		}
	}
	// A value as long as that is none of bolt's.
	binary.LittleEndian.PutUint16(head[8:], pageLeaf)
	binary.LittleEndian.PutUint32(head[boltHeader+12:], 1<<31)
	b := &boltFile{r: sparse{5 * page: head}, path: "raft.db", size: size, page: page, high: size / page}
	_, err := b.readPage(5, nil)
	wantError(t, err, holdfast.ErrCorrupt, "page 5 goes on for")
}

// sparse is zeros, but for a few pieces.
type sparse map[int64][]byte

func (s sparse) ReadAt(b []byte, off int64) (int, error) {
	clear(b)
	for at, piece := range s {
		for i, c := range piece {
			if p := at + int64(i) - off; p >= 0 && p < int64(len(b)) {
				b[p] = c
			}
		}
	}
	return len(b), nil
}

// TestOverflowAsBoltWritesIt: values and lists of free pages of all lengths around those of pages are read.
func TestOverflowAsBoltWritesIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: 1024, NoSync: true})
	ok(t, err)
	update := func(do func(logs *bbolt.Bucket) error) {
		t.Helper()
		ok(t, db.Update(func(tx *bbolt.Tx) error {
			for _, name := range []string{"conf", "logs"} {
				if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
					return err
				}
			}
			return do(tx.Bucket([]byte("logs")))
		}))
	}
	check := func(what string, n int) {
		t.Helper()
		ok(t, db.Close())
		f, err := openBolt(path, nil)
		ok(t, err)
		if err := f.check(); err != nil {
			t.Fatalf("%s %d: %v", what, n, err)
		}
		ok(t, f.close())
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
		ok(t, err)
	}
	for n := 900; n < 2200; n += 13 {
		update(func(logs *bbolt.Bucket) error { return logs.Put([]byte{1}, make([]byte, n)) })
		if n%5 == 0 || n > 940 && n < 1010 {
			check("a value of", n)
		}
	}
	// A freed value of n pages lengthens the list by that, or shortens it when its pages are used again.
	for _, n := range []int{0, 60, 110, 126, 130, 250, 500, 900, 5000, 66000} {
		update(func(logs *bbolt.Bucket) error { return logs.Put([]byte{2}, make([]byte, 1024*n)) })
		update(func(logs *bbolt.Bucket) error { return logs.Delete([]byte{2}) })
		check("pages freed:", n)
		for range 3 {
			update(func(logs *bbolt.Bucket) error { return logs.Put([]byte{3}, make([]byte, n)) })
			check("pages freed and used again, of", n)
		}
	}
	ok(t, db.Close())
}

// TestForeignKeys: keys of others that begin as those of Raft stores do hide none of them.
func TestForeignKeys(t *testing.T) {
	e := memory(t, vfs.NewMem())
	long := strings.Repeat("n", raftlog.MaxNameSize)
	for _, name := range []string{"", "b", long} {
		s, err := raftlog.Open(e, raftlog.Options{Name: name})
		ok(t, err)
		ok(t, s.Close())
	}
	unfinished := importer{eng: e, keys: format.NewPrefix("unfinished"), src: &source{kind: RaftWAL}}
	unfinished.mark = markOf(unfinished.keys)
	ok(t, unfinished.begin())
	var b holdfast.Batch
	for _, key := range []string{"q", "r", "r\x00", "r\x05ab", "r\x05abcde", "r\x05abcdf-and-more", "record/17", "record/" + strings.Repeat("y", 200), "r\xff" + strings.Repeat("z", 300), "r\x80short", "s"} {
		b.Set([]byte(key), []byte("other"))
	}
	ok(t, holdfast.Commit(e, &b, holdfast.Power))
	names, err := Stores(e)
	ok(t, err)
	if want := []string{"", "b", "unfinished", long}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	_, err = Inspect(e, "zz", false)
	wantError(t, err, holdfast.ErrNotFound, `"zz" is not there; the engine has the stores "", "b", "unfinished", "nnn`)
}

// TestOptionsWithoutEffect are said to be.
func TestOptionsWithoutEffect(t *testing.T) {
	e := memory(t, vfs.NewMem())
	sources(t, func(t *testing.T, kind Kind, make func(func(both)) string) {
		path := make(func(to both) { ok(t, to.Set([]byte("mine"), []byte("12345678"))) })
		r, err := Import(t.Context(), path, e, Options{Name: t.Name(), Numbers: []string{"no"}, Bytes: []string{"mine", "nor"}, DropTorn: true})
		ok(t, err)
		want := []string{`there is no stable key "no", which was named as a number`, `there is no stable key "nor", which was named as bytes`}
		if kind == RaftBoltDB {
			want = append(want, "nothing was left out: a raft-boltdb has no torn end")
		}
		if !slices.Equal(r.Notes, want) {
			t.Errorf("%q, want %q", r.Notes, want)
		}
	})
}

// A nil context is an error.
func TestNilContext(t *testing.T) {
	var none context.Context
	if _, err := Import(none, t.TempDir(), memory(t, vfs.NewMem()), Options{}); !errors.Is(err, holdfast.ErrBadOption) {
		t.Error(err)
	}
}
