package wal

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/files"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/vfs"
)

type noWatch struct{}

func (noWatch) Long(time.Time) bool              { return false }
func (noWatch) Waited(time.Time, string, ...any) {}

// testLog is a log in memory, with files that are not mapped.
func testLog(t *testing.T) (*Log, *vfs.Mem) {
	t.Helper()
	m := vfs.NewMem()
	f := &Files{FS: m, Set: files.NewSet(4), Dir: "/", DB: format.DatabaseID{1}, NoMap: true,
		Logger: slog.New(slog.DiscardHandler),
		Free:   func(*Segment) {}}
	return New(Config{Files: f, Watch: noWatch{}, OnFail: func(error) {}}), m
}

func (l *Log) begin(t *testing.T, id uint32, size int64) {
	t.Helper()
	s, err := l.Files.Create(id, size, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	l.Begin(s, false)
}

// frame is a batch's frame that is part of b, from off on.
func frame(b []byte, off int, body string) []byte {
	buf := b[off : off+format.FrameSize(len(body))]
	copy(buf[format.FrameHeader:], body)
	return buf
}

// TestFrames: what is appended lies in the file, frame by frame, numbered on over segments; frames that lie behind each
// other in one array are written by one call, others are not.
func TestFrames(t *testing.T) {
	l, m := testLog(t)
	l.begin(t, 7, 4096)
	var writes []int64
	m.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && op.Offset > 0 {
			writes = append(writes, op.Len)
		}
		return nil
	})
	var b holdfast.Batch
	b.Set([]byte("key"), []byte("value"))
	body := string(b.Bytes())
	n := format.FrameSize(len(body))
	one, other := make([]byte, 3*n), make([]byte, n)
	add := func(buf []byte) { l.Append(buf, len(body), format.Checksum([]byte(body)), 1) }
	add(frame(one, 0, body))
	add(frame(one, n, body))
	add(frame(other, 0, body))
	add(frame(one, 2*n, body))
	end := l.End()
	if want := (format.Position{Segment: 7, Offset: int64(format.SegmentHeaderSize + format.BeginSize + 4*n),
		LSN: uint64(format.BeginSize + 4*n), Seq: 4}); end != want {
		t.Fatalf("the log ends at %+v, not at %+v", end, want)
	}
	if err := l.Write(end.LSN); err != nil || l.Synced() != 0 {
		t.Fatal(err, l.Synced())
	}
	if want := []int64{format.BeginSize, int64(2 * n), int64(n), int64(n)}; !slices.Equal(writes, want) {
		t.Errorf("it was written in %v, not %v, bytes", writes, want)
	}
	l.begin(t, 9, 4096)
	add(frame(other, 0, body))
	if err := l.Sync(l.Appended()); err != nil || l.Synced() != l.Appended() {
		t.Fatal(err)
	}

	left := m.CrashNothing() // what is synced is there
	seq, lsn := uint32(0), uint64(0)
	var kinds []format.FrameKind
	for _, id := range []uint32{7, 9} {
		s, err := (&Files{FS: left, Set: files.NewSet(4), Dir: "/", DB: l.Files.DB}).Open(id)
		if err != nil {
			t.Fatal(err)
		}
		data, err := s.Read(nil, format.SegmentHeaderSize, int(s.Used.Load()-format.SegmentHeaderSize))
		if err != nil {
			t.Fatal(err)
		}
		for {
			x, ok := format.ParseFrame(data, s.Epoch)
			if !ok {
				break
			}
			first, isBegin := format.ParseBegin(x)
			if isBegin && (first.LSN != lsn || first.Seq != uint64(seq) || first.Prev != (id-7)/2*7) {
				t.Errorf("segment %d begins with %+v", id, first)
			}
			next, isEnd := format.ParseEnd(x)
			if isEnd && next != (format.Successor{ID: 9}) {
				t.Errorf("segment %d ends with %+v", id, next)
			}
			if isBegin || isEnd {
				kinds = append(kinds, x.Kind)
			} else if seq++; string(x.Body) != body {
				t.Errorf("batch %d is %q", seq, x.Body)
			}
			lsn += uint64(x.Size())
			data = data[x.Size():]
		}
		s.Release()
	}
	want := []format.FrameKind{format.KindBegin, format.KindEnd, format.KindBegin}
	if !slices.Equal(kinds, want) || seq != 5 || lsn != l.Appended() {
		t.Errorf("%v and %d batches in %d bytes", kinds, seq, lsn)
	}
}

// TestLargeAndFailure: a large batch is in the file when AppendLarge returns, though nothing is written or synced yet;
// when a sync has failed, its values are read even if the system has dropped them, and nothing more is taken.
func TestLargeAndFailure(t *testing.T) {
	for _, size := range []int{3, maxJoined + 1} {
		l, m := testLog(t)
		l.begin(t, 1, 1<<20)
		if err := l.Sync(l.Appended()); err != nil {
			t.Fatal(err)
		}
		body := bytes.Repeat([]byte{5}, size)
		at, synced := l.End(), l.Synced()
		if !l.AppendLarge(body, format.Checksum(body), 1) || l.Written() != synced {
			t.Fatalf("%v, %d bytes are written", l.Err(), l.Written())
		}
		read := func() {
			t.Helper()
			got, err := l.Current().Unflushed(nil, at.Offset+format.FrameHeader, size, format.Checksum(body))
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("%d of %d bytes are read, %v", len(got), size, err)
			}
		}
		read()
		m.SetHook(vfs.Faults(vfs.Fault{Kind: vfs.OpSync, Name: "*.seg"}))
		if err := l.Sync(l.Appended()); !errors.Is(err, holdfast.ErrPoisoned) || l.Synced() != synced {
			t.Errorf("a failed sync returned %v", err)
		}
		m.SetHook(nil)
		m.DropCaches()
		read()
		if l.AppendLarge(body, format.Checksum(body), 1) || l.Sync(synced) != nil || l.Sync(synced+1) == nil {
			t.Error("the log goes on")
		}
	}
}

// TestFits: a frame fits as long as an end frame fits behind it, and its operations can be numbered.
func TestFits(t *testing.T) {
	l, _ := testLog(t)
	if l.Fits(0, 0) {
		t.Error("a frame fits where there is no segment")
	}
	l.begin(t, 1, 4096)
	room := 4096 - format.SegmentHeaderSize - format.BeginSize - format.EndSize
	most := int64(1)<<32 - 1 // as many operations no batch has where an int has 32 bits
	many := strconv.IntSize == 64
	if !l.Fits(room, 1) || l.Fits(room+1, 1) || many && (!l.Fits(room, int(most)) || l.Fits(room, int(most+1))) {
		t.Errorf("with room for %d bytes: %v, %v, %v, %v", room, l.Fits(room, 1), l.Fits(room+1, 1),
			l.Fits(room, int(most)), l.Fits(room, int(most+1)))
	}
}

// TestPanic: what a write that panics has taken from the queue is never written, so nothing behind it is acknowledged.
func TestPanic(t *testing.T) {
	l, m := testLog(t)
	l.begin(t, 1, 4096)
	if err := l.Write(l.Appended()); err != nil {
		t.Fatal(err)
	}
	add := func() {
		var b holdfast.Batch
		b.Set([]byte("key"), []byte("value"))
		buf := frame(make([]byte, format.FrameSize(b.Size())), 0, string(b.Bytes()))
		l.Append(buf, b.Size(), format.Checksum(b.Bytes()), 1)
	}
	add()
	m.SetHook(func(vfs.Op) error { panic("a bug") })
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is swallowed")
			}
		}()
		_ = l.Write(l.Appended())
	}()
	m.SetHook(nil)
	add()
	for _, wait := range []func(uint64) error{l.Write, l.Sync} {
		if err := wait(l.Appended()); !errors.Is(err, holdfast.ErrPoisoned) {
			t.Errorf("what follows it is acknowledged: %v", err)
		}
	}
}

// TestFilledInSmallWrites: one write call brings a page into the system's cache that one store makes dirty as a whole.
// With calls of 1 MiB each sync behind a store wrote as much.
func TestFilledInSmallWrites(t *testing.T) {
	l, m := testLog(t)
	var filled, most int64
	m.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite {
			filled, most = filled+op.Len, max(most, op.Len)
		}
		return nil
	})
	const size = 1<<20 + 512
	if _, err := l.Files.Create(3, size, 0, true); err != nil {
		t.Fatal(err)
	}
	if filled < size || most > 16<<10 {
		t.Errorf("%d of %d bytes are filled, the longest write is of %d", filled, size, most)
	}
}
