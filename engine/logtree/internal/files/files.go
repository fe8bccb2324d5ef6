// Package files keeps files open for reading, but not more than a limit: others are closed, and opened again when they
// are read. Tables and segments share one [Set], so that the descriptors of a database do not grow with it.
package files

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/vfs"
)

// Set is files of which only so many are open. Its methods, and those of its files, may be called from many goroutines.
type Set struct {
	most int

	mu   sync.Mutex // taken after that of a file, which is only tried while it is held
	open []*File
	hand int // of open: files that were not read since it came by are closed first (CLOCK)
}

// NewSet returns a set that keeps at most so many files open, and those that are being read when it would close them.
func NewSet(most int) *Set { return &Set{most: max(most, 1)} }

// Most is the limit.
func (s *Set) Most() int { return s.most }

// File is one of a set. It must stay under its name until Close, and is opened again if it is read behind that.
type File struct {
	set  *Set
	fs   vfs.FS
	name string
	same func(vfs.File) error

	used atomic.Bool // since the hand came by

	mu sync.RWMutex // held for reading while the file is read
	f  vfs.File     // nil: closed, as too many were open
	at int          // in the set's open files, while f is; under the set's mu
}

// Add makes an open file of fs, to which nobody writes any more, one of the set. same is called when it was opened
// again, and returns an error if it is another one; nil: any will do.
func (s *Set) Add(fs vfs.FS, name string, f vfs.File, same func(vfs.File) error) *File {
	x := &File{set: s, fs: fs, name: name, same: same, f: f}
	x.mu.Lock()
	defer x.mu.Unlock()
	s.opened(x)

	return x
}

// Later is Add for a file that is not open yet.
func (s *Set) Later(fs vfs.FS, name string) *File { return &File{set: s, fs: fs, name: name} }

// Open opens a file. If there is no descriptor left, it closes one of the set's for it.
func (s *Set) Open(fs vfs.FS, name string) (vfs.File, error) {
	f, err := fs.Open(name)
	if format.IsTransient(err) {
		s.mu.Lock()
		s.shrink(len(s.open) - 1)
		s.mu.Unlock()
		f, err = fs.Open(name)
	}

	return f, err
}

// opened notes that x is open, whose mu is held.
func (s *Set) opened(x *File) {
	x.used.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shrink(s.most - 1)
	x.at = len(s.open)
	s.open = append(s.open, x)
}

// shrink closes files until so many are open, but none that is being read. It is called with mu held.
func (s *Set) shrink(to int) {
	// Two rounds: the first takes away that a file was read, the second closes it. Where all are being read, more stay
	// open.
	for looks := 2 * len(s.open); looks > 0 && len(s.open) > to; looks-- {
		if s.hand >= len(s.open) {
			s.hand = 0
		}
		x := s.open[s.hand]
		// The lock is only tried. Whoever opens a file again holds its lock, and waits for the set's mu, which is held
		// here.
		if x.used.Swap(false) || !x.mu.TryLock() {
			s.hand++
			continue
		}
		_ = s.close(x) // nothing was written through it
		x.mu.Unlock()
	}
}

// close closes a file; the last one takes its place. It is called with mu held.
func (s *Set) close(x *File) error {
	if x.f == nil {
		return nil
	}
	f := x.f

	// From here on readers find it closed, and open it again.
	x.f = nil
	n := len(s.open) - 1
	last := s.open[n]
	s.open[x.at], last.at = last, x.at
	s.open[n] = nil
	s.open = s.open[:n]

	return f.Close()
}

// ReadAt implements [io.ReaderAt]. An error of opening the file again is one of reading it.
func (x *File) ReadAt(b []byte, off int64) (n int, err error) {
	err = x.With(func(f vfs.File) error {
		n, err = f.ReadAt(b, off)
		return err
	})

	return n, err
}

var _ io.ReaderAt = (*File)(nil)

// With calls do with the file, which stays open meanwhile.
func (x *File) With(do func(vfs.File) error) error {
	if !x.used.Load() {
		x.used.Store(true)
	}

	// Between opening the file and locking it for reading it may be closed once more. Then it is tried again.
	for {
		x.mu.RLock()
		if x.f != nil {
			defer x.mu.RUnlock()
			return do(x.f)
		}
		x.mu.RUnlock()
		if err := x.reopen(); err != nil {
			return err
		}
	}
}

// reopen opens the file again, unless another goroutine has.
func (x *File) reopen() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.f != nil {
		return nil
	}
	f, err := x.set.Open(x.fs, x.name)
	if err != nil {
		return err
	}
	if x.same != nil {
		if err := x.same(f); err != nil {
			_ = f.Close() // the other error says more
			return err
		}
	}
	x.f = f
	x.set.opened(x)

	return nil
}

// Close closes the file, which nobody reads any more.
func (x *File) Close() error {
	x.set.mu.Lock()
	defer x.set.mu.Unlock()

	return x.set.close(x)
}
