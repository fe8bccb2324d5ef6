package db

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
)

// Feed is one reader of the database's files: it gets whole states of them, and what the log grows by. The segments of
// the log that it has not passed are kept, up to limit bytes.
type Feed struct {
	d     *DB
	limit int64

	// Guarded by d.mu.
	at     format.Position // the log from here on is kept
	held   []*wal.Segment  // of the log from at.Segment on, in order, each with a reference
	bytes  int64           // of held
	gone   bool            // there was more than limit, and it was given up
	closed bool
}

// Stretch is a part of one file.
type Stretch struct {
	Name string // within the directory
	From int64
	To   int64
}

// Feed begins to keep the log from its present end on. Until it is closed the database does not close.
func (d *DB) Feed(limit int64) (*Feed, error) {
	if err := d.Life.Enter(); err != nil {
		return nil, err
	}
	defer d.Life.Leave()
	if d.readOnly {
		return nil, &holdfast.Error{Op: "feed", Engine: format.Name, Path: d.files.Dir, Class: holdfast.ErrUnavailable,
			Detail: "the database is open for reading only", Remedy: "open it for writing, or make a backup"}
	}
	f := &Feed{d: d, limit: limit}
	d.mu.Lock()
	f.at = d.log.End()
	if s := d.log.Current(); s != nil {
		f.hold(s)
	}
	d.mu.feeds = append(d.mu.feeds, f)
	d.mu.Unlock()
	d.Life.AddSnapshot(1)

	return f, nil
}

// hold keeps a segment that the log goes on in. It is called with mu held.
func (f *Feed) hold(s *wal.Segment) {
	if f.gone {
		return
	}
	s.Acquire()
	f.held, f.bytes = append(f.held, s), f.bytes+s.Size

	// The present segment is kept whatever its size: the log needs it anyway.
	if f.bytes > f.limit && len(f.held) > 1 {
		f.gone = true
		f.drop(len(f.held))
	}
}

// drop gives up the first n segments. It is called with mu held.
func (f *Feed) drop(n int) {
	for _, s := range f.held[:n] {
		f.bytes -= s.Size
		s.Release()
	}
	f.held = append(f.held[:0], f.held[n:]...)
}

// Begin is from where on the log is kept.
func (f *Feed) Begin() format.Position {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()

	return f.at
}

// Log makes the log durable, and returns what it has grown by since the last Advance, in order, and where it ends. If
// some of that was given up, ok is false.
func (f *Feed) Log() (list []Stretch, end format.Position, ok bool, err error) {
	d := f.d
	if err := d.log.Err(); err != nil {
		return nil, end, false, err
	}
	d.mu.Lock()
	end = d.log.End()
	d.mu.Unlock()
	if end.LSN > d.log.Synced() {
		if err := d.log.Sync(end.LSN); err != nil {
			return nil, end, false, err
		}
	}

	// All up to end is written: what the segments before the last have is final.
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.gone || f.closed {
		return nil, end, false, nil
	}
	if f.at.LSN == end.LSN {
		return nil, end, true, nil
	}

	for _, s := range f.held {
		if s.ID > end.Segment {
			break // begun since
		}
		x := Stretch{Name: filepath.Base(s.File.Name()), To: s.Used.Load()}
		if s.ID == f.at.Segment {
			x.From = f.at.Offset
		}
		if s.ID == end.Segment {
			x.To = end.Offset
		}
		if x.From < x.To {
			list = append(list, x)
		}
	}

	return list, end, true, nil
}

// Advance says that the log before end is no longer needed, and returns from where on it is kept: from end on, or, if
// some of it was given up, from its present end on.
func (f *Feed) Advance(end format.Position) (at format.Position) {
	defer f.d.removeObsolete()
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.gone && !f.closed {
		f.gone, f.at = false, f.d.log.End()
		if s := f.d.log.Current(); s != nil {
			f.hold(s)
		}
	} else {
		n := 0
		for n < len(f.held) && f.held[n].ID < end.Segment {
			n++
		}
		f.drop(n)
		f.at = end
	}

	return f.at
}

// Close ends the feed.
func (f *Feed) Close() {
	f.d.mu.Lock()
	done := f.closed
	f.closed = true
	f.drop(len(f.held))
	for i, x := range f.d.mu.feeds {
		if x == f {
			f.d.mu.feeds = append(f.d.mu.feeds[:i], f.d.mu.feeds[i+1:]...)
			break
		}
	}
	f.d.mu.Unlock()
	if done {
		return
	}
	f.d.removeObsolete()
	f.d.Life.AddSnapshot(-1)
}

// State is one moment of the database as files.
type State struct {
	Files    []Stretch // each from its begin; its tables, and its segments as far as they belong to the moment
	Manifest []byte    // the file MANIFEST of the moment
	End      format.Position
	release  func()
}

// Release ends the keeping of the state's files.
func (s *State) Release() { s.release() }

// State returns this moment, durable, with everything that is visible. Its files stay until it is released.
func (f *Feed) State() (_ *State, err error) {
	d := f.d
	if err := d.log.Err(); err != nil {
		return nil, err
	}
	p, release, err := d.Pin()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	if err := d.log.Sync(p.End.LSN); err != nil {
		return nil, err
	}

	s := &State{End: p.End, release: release}
	for _, id := range tablesOf(p.Manifest) {
		name := format.TableName(d.files.Dir, id)
		size, err := d.files.FS.Size(name)
		if err != nil {
			return nil, format.IOError("open", name, err)
		}
		s.Files = append(s.Files, Stretch{Name: filepath.Base(name), To: size})
	}
	for _, x := range p.Manifest.Segments {
		s.Files = append(s.Files, Stretch{Name: filepath.Base(format.SegmentName(d.files.Dir, x.ID)), To: x.Size})
	}
	for _, x := range p.Log {
		// Frames may have been queued when the moment was taken: what has left the log is as long as it is now.
		name := format.SegmentName(d.files.Dir, x.ID)
		if x.ID != p.End.Segment {
			if x.Size, err = d.used(x.ID, name); err != nil {
				return nil, err
			}
		}
		s.Files = append(s.Files, Stretch{Name: filepath.Base(name), To: x.Size})
	}
	p.Manifest.Synced = p.End.LSN
	s.Manifest = p.Manifest.Encode()

	return s, nil
}

// used is how far a segment that the log has left is used; a file that nothing but a pin keeps counts as a whole.
func (d *DB) used(id uint32, name string) (int64, error) {
	d.mu.Lock()
	s := d.mu.segs[id]
	d.mu.Unlock()
	if s != nil {
		return s.Used.Load(), nil
	}
	size, err := d.files.FS.Size(name)
	if err != nil {
		return 0, format.IOError("open", name, err)
	}

	return size, nil
}

// Read calls visit with the bytes of a stretch, in pieces of at most 1 MiB, which visit must not keep.
func (f *Feed) Read(ctx context.Context, x Stretch, visit func([]byte) error) error {
	name := filepath.Join(f.d.files.Dir, x.Name)
	file, err := f.d.files.FS.Open(name)
	if err != nil {
		return format.IOError("open", name, err)
	}
	defer file.Close()
	b := make([]byte, min(x.To-x.From, copyAtOnce))
	for off := x.From; off < x.To; {
		if err := ctx.Err(); err != nil {
			return err
		}
		want := b[:min(x.To-off, int64(len(b)))]
		n, err := file.ReadAt(want, off)
		if n == 0 && errors.Is(err, io.EOF) {
			// The padding of a last frame may be cut off, and is zeros.
			if x.To-off >= format.FrameAlign {
				return format.ReadError(name, off, err)
			}
			clear(want)
			n = len(want)
		} else if n == 0 {
			return format.ReadError(name, off, err)
		}
		if err := visit(want[:n]); err != nil {
			return err
		}
		off += int64(n)
	}

	return nil
}
