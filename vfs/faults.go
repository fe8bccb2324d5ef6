package vfs

import (
	"io"
	"math"
	"path"
	"path/filepath"
	"sync"
	"syscall"
)

// Kind is a kind of operation on a [Mem].
type Kind uint8

// The kinds of operations. Datasync and Sync are both OpSync; Open and OpenWrite are both OpOpen; Map and
// MapWrite are both OpMap. What is done through a mapping is no operation.
const (
	OpCreate Kind = iota + 1
	OpRemove
	OpRename
	OpLink
	OpMkdir
	OpSyncDir
	OpWrite
	OpTruncate
	OpAllocate
	OpSync
	OpOpen // from here on nothing is changed
	OpList
	OpSize
	OpRead
	OpMap
	OpClose
)

var kindNames = [...]string{
	OpCreate: "create", OpRemove: "remove", OpRename: "rename", OpLink: "link", OpMkdir: "mkdir",
	OpSyncDir: "syncdir", OpWrite: "write", OpTruncate: "truncate", OpAllocate: "allocate", OpSync: "sync",
	OpOpen: "open", OpList: "list", OpSize: "size", OpRead: "read", OpMap: "map", OpClose: "close",
}

// String returns the kind's name in lower case.
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return "none"
	}

	return kindNames[k]
}

// Mutates reports whether operations of the kind can change what is on the disk. They are those
// that [Mem.Ops] counts.
func (k Kind) Mutates() bool { return k >= OpCreate && k <= OpSync }

// Op is an operation on a [Mem] that is about to be done.
type Op struct {
	Kind   Kind
	Name   string // as the file was opened, or as it was given
	To     string // the new name of an OpRename or OpLink
	Offset int64  // of the bytes read or written; the size in OpTruncate and OpAllocate
	Len    int64  // of the bytes read, written or mapped
}

// Short is an error that a hook may return for an OpWrite to have the first N bytes written before
// it fails.
type Short struct {
	N   int64
	Err error // what WriteAt returns; nil means io.ErrShortWrite
}

// Error implements error.
func (s *Short) Error() string { return s.cause().Error() }

// Unwrap returns what WriteAt returns.
func (s *Short) Unwrap() error { return s.cause() }

// cause is the error that WriteAt returns.
func (s *Short) cause() error {
	if s.Err == nil {
		return io.ErrShortWrite
	}

	return s.Err
}

// Fault says which operations fail, and how. The zero Fault is every operation, with EIO.
type Fault struct {
	// Kind is the kind of operation, 0: any.
	Kind Kind
	// Name is a pattern of [path.Match] for the last element of the name; empty: any. One that is no
	// pattern matches nothing.
	Name string
	// Lo and Hi, in bytes, limit the fault to reads and writes that touch [Lo, Hi). With Hi 0
	// there is no limit.
	Lo, Hi int64
	// Skip is how many such operations succeed first, and Count how many fail then; with
	// Count 0 all do.
	Skip, Count int64
	// Err is the error; nil means syscall.EIO.
	Err error
	// Short is how many bytes a failing OpWrite writes first.
	Short int64
}

// Faults returns a hook for [Mem.SetHook] that makes operations fail. The first fault that
// strikes counts. It may be called from many goroutines.
func Faults(list ...Fault) func(Op) error {
	var mu sync.Mutex
	matched := make([]int64, len(list))

	return func(op Op) error {
		mu.Lock()
		defer mu.Unlock()

		for i, f := range list {
			if !f.matches(op) {
				continue
			}

			// Each fault counts the operations that it matches, also those that an earlier one in the list does not let
			// fail.
			matched[i]++
			if n := matched[i] - f.Skip; n < 1 || f.Count > 0 && n > f.Count {
				continue
			}
			err := f.Err
			if err == nil {
				err = syscall.EIO
			}
			if op.Kind == OpWrite && f.Short > 0 {
				return &Short{f.Short, err}
			}

			return err
		}

		return nil
	}
}

// matches reports whether the fault is meant for an operation, whatever its counts.
func (f Fault) matches(op Op) bool {
	if f.Kind != 0 && f.Kind != op.Kind {
		return false
	}
	if f.Name != "" {
		if ok, _ := path.Match(f.Name, filepath.Base(op.Name)); !ok {
			return false
		}
	}
	if f.Hi == 0 {
		return true
	}

	return (op.Kind == OpRead || op.Kind == OpWrite) && op.Offset < f.Hi && op.Offset+op.Len > f.Lo
}

// SetHook has hook called before every operation, on the goroutine that does it; nil ends that.
// If it returns an error, the operation fails with that (see [Mem] for what it then does, and
// [Short]). A hook may call the Mem's other methods, and its calls come back to it.
func (m *Mem) SetHook(hook func(Op) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = hook
}

// Seed sets what decides where an operation leaves something open: a write during which the power
// goes, a failed sync, an Allocate without room. The same seed and calls have the same effects.
func (m *Mem) Seed(seed uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pcg.Seed(seed, 0)
}

// Ops returns how many mutating operations were begun since NewMem or the crash that this file
// system was found after; failed ones count. See [Kind.Mutates].
func (m *Mem) Ops() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()

	return m.ops
}

// Halt makes all that is done from now on fail with [ErrHalted], in open files too. What the disk
// holds then is found by [Mem.Crash].
func (m *Mem) Halt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.halt()
}

// HaltAfter halts during the n-th mutating operation from now on, the next one being the first.
// That one fails with [ErrHalted] too, but, by the seed, a write may have written its first
// bytes, and another may have been done. With n below 1 a HaltAfter before is taken back.
func (m *Mem) HaltAfter(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.haltAt = 0; n > 0 {
		m.haltAt = m.ops + n
	}
}

// Halted reports whether the power has gone.
func (m *Mem) Halted() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()

	return m.halted
}

// Handles returns how many files and mappings are open. A crash leaves none.
func (m *Mem) Handles() int {
	m.mu.RLock()
	defer m.mu.RUnlock()

	return m.handles
}

// SetCapacity limits the disk to n bytes; a negative n ends that. Less than is used already
// takes nothing away.
func (m *Mem) SetCapacity(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = n
}

// Used returns the bytes of the disk that are taken: whole pages of 4096 bytes.
func (m *Mem) Used() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()

	return m.used
}

// Free implements [FS]: what is left of the capacity.
func (m *Mem) Free(string) int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.capacity < 0 {
		return math.MaxInt64
	}

	return m.free()
}

// Flip turns over one bit (0 to 7) of the byte at off of a file, on the disk and as it is seen.
// It is for bytes that were synced; what is not yet on the disk is written over it.
// The error is fs.ErrNotExist, or EINVAL where there is no such bit.
func (m *Mem) Flip(name string, off int64, bit int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.absorb()
	n, err := m.file(name)
	if err == nil && (off < 0 || off >= n.seen.size || bit < 0 || bit > 7) {
		err = syscall.EINVAL
	}
	if err != nil {
		return pathError("flip", name, err)
	}

	// The bit rots on the disk, so all that came from there shows it: what is seen, and what was seen before the
	// changes.
	for _, c := range []*contents{&n.seen, &n.disk, n.base} {
		if c != nil && off < c.size {
			c.own(int(off / pageSize)).bytes[off%pageSize] ^= 1 << bit
		}
	}
	m.show(n, off, off+1)

	return nil
}

// CutFile durably shortens a file without the knowledge of those who have it open; all of what is left of it becomes
// durable too. The error is fs.ErrNotExist, or EINVAL if it is not longer than size.
func (m *Mem) CutFile(name string, size int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.absorb()
	n, err := m.file(name)
	if err == nil && (size < 0 || size >= n.seen.size) {
		err = syscall.EINVAL
	}
	if err != nil {
		return pathError("cut", name, err)
	}
	n.seen.resize(size)
	n.disk = n.seen.share()
	n.base = nil
	n.forget()
	m.giveBack(n)
	m.show(n, size, maxMemFile)

	return nil
}
