package vfs

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// maxMemFile is the longest file of a Mem, in bytes; beyond it is EFBIG.
const maxMemFile = 64 << 30

// ErrHalted is the error of everything that is done to a [Mem] after its power went.
var ErrHalted = errors.New("vfs: the file system has lost its power")

// Mem is a file system in memory that remembers what was synced, so that it can be found again as
// it might be after a power cut. It models a POSIX file system on a disk with a volatile cache:
// one page cache, one journal of names. The same calls and seeds give the same results.
//
// # What a power cut does
//
// Of a file, what was there at its last sync is kept. What was done to it since, in any
// relation to other files:
//
//   - A sector of 512 bytes holds what it held at the last sync or after any one write since,
//     each sector for itself. A write is so kept, lost, or torn at sectors, and a later one
//     may be there without an earlier. What a sector held includes what earlier writes put
//     into it: the page cache has only one state of it at a time.
//   - The length is what it was after some number of the changes since, taken in their order, and
//     when the next one would have made it longer, perhaps a multiple of a sector in between.
//     It is independent of the bytes: a longer file may hold zeros where the writes are lost,
//     and writes beyond the length that came out are lost.
//   - A cut (Truncate) may have cleared the rest of its 4096-byte page while the length
//     is still the old one. If it did not happen, what was written later behind that
//     page is lost.
//
// Names are changed by operations (create, remove, rename, link, make a directory). SyncDir makes
// those durable that touched the directory, with every earlier one that shares a name with one
// of them. Of the others any may be lost or kept, in whatever order they were made, except
// that one is kept only if all earlier ones that share a name with it are kept. A rename is
// atomic, between directories too. This allows all that ext4 and XFS do, which keep a prefix
// of all operations, and what btrfs does, where a sync of one file carries its own names
// ahead of others. So a new file that was synced may be gone if its directory was not, a removed
// file may come back with its contents, and what is in a directory is lost with the directory's
// own name, however much of it was synced. Syncing a file makes no name durable.
//
// # What fails
//
// [Mem.SetHook] and [Faults] make any operation fail. A write may be short. A failed sync drops what was not synced,
// as Linux does: the process continues to read it, the next sync returns nil without writing it, and a power cut
// loses it; only sectors that are written again are synced again, whole. Half of the time, by the seed, some of it
// had reached the disk, with the file's new length. Otherwise that stays to be synced. [Mem.DropCaches] shows the
// process what is on the disk. A failed SyncDir makes nothing durable, and a later one may. A failed operation of
// another kind has no effect.
//
// Syncing a file that was opened with Open fails with EBADF, as Windows refuses it.
//
// [Mem.SetCapacity] limits the space in pages of 4096 bytes that were written or allocated. What
// was allocated can be written to on a full disk. A write that finds too little writes what fits.
// Names need no space.
//
// [Mem.Flip] and [Mem.CutFile] damage what is on the disk. [Mem.HaltAfter] cuts the power in the
// middle of an operation.
//
// # Mappings
//
// After [Mem.SetMapping] files implement [Mapper] and [WriteMapper], on Unix. All mappings of a file show what
// is seen of it, at once. What is stored through one is a write that is not synced: it survives [Mem.Kill], a
// sync of the file makes it durable, a failed sync drops it. The system may write a page to the disk at any
// time, also during a store to it: so each sector that a power cut finds holds what it held at the
// last sync, after any of the stores and writes since, or in the middle of a store, of which it then has the
// first bytes or the last. A store of the bytes that were there already is not noticed.
//
// Pages are read again too: what [Mem.Flip], [Mem.CutFile] and [Mem.DropCaches] do shows in mappings that were read
// before. A memory fault (see debug.SetPanicOnFault) is the result of touching a page behind the end of the file, or
// one that [Mem.Spoil] made unreadable, and of storing to a page without room on the disk, through a mapping for
// reading, or after the power went. A hook makes Map and MapWrite fail, by OpMap; what is done through a mapping is
// no operation.
//
// # What real disks may do beyond it
//
// Acknowledge a sync and lose it. Tear a sector that it is writing, or lose synced bytes next to a write
// (the erase block of a flash disk). Show what a file held before that was removed. Put a
// write in another place. Lose or double a file that is renamed (file systems without a
// journal). Want room for overwriting (file systems that copy on write). Fail a system call for
// reasons not simulated here, and become read-only.
//
// A history without a sync is not kept forever: once it is longer than 1 MiB and twice the file, earlier states of
// sectors that were written again are forgotten, which means that no cut shows them.
//
// Names may be written as the operating system wants them. There is one root, and relative names start there. Symbolic
// links, permissions, times and locks do not exist; directories cannot be renamed. A file with several names takes
// space once. A file that was removed, by all of its names, stays readable for those who have it open, and takes space
// until they close it.
type Mem struct {
	mu       sync.RWMutex
	root     *node
	journal  []entryChange // of names, not yet durable, oldest first
	capacity int64         // in bytes, negative: none
	used     int64         // in bytes
	hook     func(Op) error
	ops      int64 // mutating operations so far
	haltAt   int64 // the one during which the power goes, 0: none
	halted   bool
	mapping  bool
	handles  int     // open files and mappings
	mapped   []*node // that have a region
	spoiled  []*node
	pcg      rand.PCG
	rnd      *rand.Rand // over pcg: what an operation leaves open
}

// node is a file or a directory.
type node struct {
	// A directory: its entries as they are seen, nil in a file, and as they are on the disk.
	entries, durable map[string]*node

	// A file: its contents as they are seen, and on the disk.
	seen, disk contents
	// base is what was seen before the first of changes, nil if that is what is on the disk. It
	// is not after a failed sync.
	base    *contents
	changes []change       // not yet on the disk, oldest first
	log     []byte         // what changes wrote
	most    int            // changes before the history is shortened, 0: as many as bound says
	blocks  []uint64       // a bit for each page that has room on the disk
	names   int            // entries that are seen
	handles int            // open files and mappings
	region  *region        // nil if it is not mapped
	bad     map[int64]bool // pages that cannot be read
}

// change is a write or a change of length that was not synced.
type change struct {
	seq    int64 // Mem.ops when it was made
	off, n int64 // the bytes written; n is 0 if none were
	at     int   // of the bytes in node.log
	size   int64 // the file's length after it
	stored bool  // through a mapping: no more than a byte of it is sure to be there at once
}

// entryChange is a change of one name, or of two by a rename, that was not synced.
type entryChange struct {
	seq   int64
	sides [2]side // the second without a dir if there is one only
}

// side says that name in dir became node, or went if that is nil.
type side struct {
	dir  *node
	name string
	node *node
}

// entry is a name in a directory.
type entry struct {
	dir  *node
	name string
}

// NewMem returns an empty file system of no limited capacity, with seed 0.
func NewMem() *Mem {
	return newMem(&node{entries: map[string]*node{}, durable: map[string]*node{}})
}

// newMem is a file system of that root. What an operation leaves open is decided by seed 0.
func newMem(root *node) *Mem {
	m := &Mem{root: root, capacity: -1}
	m.rnd = rand.New(&m.pcg)
	m.pcg.Seed(0, 0)

	return m
}

// isDir reports whether the node is a directory.
func (n *node) isDir() bool { return n.entries != nil }

// begin counts op and asks the hook about it. It returns with m.mu locked, whatever the error.
// If last, the power goes during the operation: it may have some of its effect, and fails
// with ErrHalted.
func (m *Mem) begin(op Op) (last bool, err error) {
	m.mu.Lock()
	if m.halted {
		return false, ErrHalted
	}
	m.absorb()
	if op.Kind.Mutates() {
		m.ops++
		if m.ops == m.haltAt {
			m.halt()
			return true, nil
		}
	}

	// The hook is called without the lock, since it may call the file system itself. The power may go meanwhile.
	if hook := m.hook; hook != nil {
		m.mu.Unlock()
		err = hook(op)
		m.mu.Lock()
		if m.halted {
			err = ErrHalted
		}
	}

	return false, err
}

// mutate does an operation that happens as a whole or not at all.
func (m *Mem) mutate(op Op, do func() error) error {
	last, err := m.begin(op)
	defer m.mu.Unlock()
	if last {
		if m.rnd.IntN(2) == 0 {
			do()
		}

		return ErrHalted
	}
	if err != nil {
		return err
	}

	return do()
}

// beginRead is begin for what changes nothing: it returns with m.mu locked for reading.
func (m *Mem) beginRead(op Op) error {
	m.mu.RLock()
	if hook := m.hook; hook != nil && !m.halted {
		m.mu.RUnlock()
		err := hook(op)
		m.mu.RLock()
		if err != nil {
			return err
		}
	}
	if m.halted {
		return ErrHalted
	}

	return nil
}

// parts splits a name; the root has none.
func parts(name string) ([]string, error) {
	if name == "" {
		return nil, syscall.ENOENT
	}
	if strings.IndexByte(name, 0) >= 0 {
		return nil, syscall.EINVAL
	}
	clean := strings.Trim(filepath.ToSlash(filepath.Clean("/"+name)), "/")
	if clean == "" {
		return nil, nil
	}

	return strings.Split(clean, "/"), nil
}

// find looks a name up. Its node is nil if there is no such entry in dir; the root has no dir.
func (m *Mem) find(name string) (dir *node, base string, n *node, err error) {
	list, err := parts(name)
	if err != nil {
		return nil, "", nil, err
	}

	n = m.root
	for i, part := range list {
		if !n.isDir() {
			return nil, "", nil, syscall.ENOTDIR
		}
		dir, base, n = n, part, n.entries[part]
		if n == nil && i < len(list)-1 {
			return nil, "", nil, syscall.ENOENT
		}
	}

	return dir, base, n, nil
}

// file looks up a file, and directory a directory, that must be there.
func (m *Mem) file(name string) (*node, error) {
	_, _, n, err := m.find(name)
	switch {
	case err != nil:
		return nil, err
	case n == nil:
		return nil, syscall.ENOENT
	case n.isDir():
		return nil, syscall.EISDIR
	}

	return n, nil
}

// directory looks up a directory that must be there.
func (m *Mem) directory(name string) (*node, error) {
	_, _, n, err := m.find(name)
	switch {
	case err != nil:
		return nil, err
	case n == nil:
		return nil, syscall.ENOENT
	case !n.isDir():
		return nil, syscall.ENOTDIR
	}

	return n, nil
}

// change makes entries seen, and remembers that they are not durable.
func (m *Mem) change(sides ...side) {
	e := entryChange{seq: m.ops}

	var old [2]*node

	for i, s := range sides {
		e.sides[i], old[i] = s, s.dir.entries[s.name]
		if s.node != nil {
			s.node.names++
		}
		set(s.dir.entries, s)
	}

	// The new entries count before the old ones are released: a file that is renamed would else have no name for a
	// moment, and lose its room.
	for _, n := range old {
		if n != nil {
			n.names--
			m.giveBack(n)
		}
	}
	m.journal = append(m.journal, e)
}

// Create implements [FS].
func (m *Mem) Create(name string) (File, error) {
	var f *memFile
	err := m.mutate(Op{Kind: OpCreate, Name: name}, func() error {
		dir, base, n, err := m.find(name)
		if err != nil {
			return err
		}
		if n != nil {
			return syscall.EEXIST
		}
		n = &node{}
		m.hold(n)
		m.change(side{dir, base, n})
		f = &memFile{m: m, n: n, name: name, writable: true}

		return nil
	})
	if err != nil {
		return nil, pathError("create", name, err)
	}

	return m.opened(f), nil
}

// Open implements [FS].
func (m *Mem) Open(name string) (File, error) { return m.open(name, false) }

// OpenWrite implements [FS].
func (m *Mem) OpenWrite(name string) (File, error) { return m.open(name, true) }

// open is Open and OpenWrite. Opening counts as no change, but is done like one: it may fail.
func (m *Mem) open(name string, writable bool) (File, error) {
	var f *memFile
	err := m.mutate(Op{Kind: OpOpen, Name: name}, func() error {
		n, err := m.file(name)
		if err != nil {
			return err
		}
		m.hold(n)
		f = &memFile{m: m, n: n, name: name, writable: writable}

		return nil
	})
	if err != nil {
		return nil, pathError("open", name, err)
	}

	return m.opened(f), nil
}

// opened makes f one that can be mapped if it is to be.
func (m *Mem) opened(f *memFile) File {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.mapping {
		return mappedFile{f}
	}

	return f
}

// Remove implements [FS].
func (m *Mem) Remove(name string) error {
	return pathError("remove", name, m.mutate(Op{Kind: OpRemove, Name: name}, func() error {
		dir, base, n, err := m.find(name)
		switch {
		case err != nil:
			return err
		case n == nil:
			return syscall.ENOENT
		case dir == nil:
			return syscall.EINVAL
		case len(n.entries) > 0:
			return syscall.ENOTEMPTY
		}
		m.change(side{dir, base, nil})

		return nil
	}))
}

// Rename implements [FS]. Directories are refused with errors.ErrUnsupported.
func (m *Mem) Rename(from, to string) error {
	err := m.mutate(Op{Kind: OpRename, Name: from, To: to}, func() error {
		fromDir, fromBase, n, err := m.find(from)
		if err != nil {
			return err
		}

		toDir, toBase, old, err := m.find(to)
		switch {
		case err != nil:
			return err
		case n == nil:
			return syscall.ENOENT
		case n.isDir():
			return errors.ErrUnsupported
		case old != nil && old.isDir():
			return syscall.EEXIST
		case n == old:
			return nil
		}
		m.change(side{fromDir, fromBase, nil}, side{toDir, toBase, n})

		return nil
	})
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}

	return nil
}

// Link implements [FS].
func (m *Mem) Link(from, to string) error {
	err := m.mutate(Op{Kind: OpLink, Name: from, To: to}, func() error {
		n, err := m.file(from)
		if err != nil {
			return err
		}

		dir, base, taken, err := m.find(to)
		switch {
		case err != nil:
			return err
		case taken != nil || dir == nil:
			return syscall.EEXIST
		}
		m.change(side{dir, base, n})

		return nil
	})
	if err != nil {
		return &os.LinkError{Op: "link", Old: from, New: to, Err: err}
	}

	return nil
}

// MkdirAll implements [FS].
func (m *Mem) MkdirAll(dir string) error {
	return pathError("mkdir", dir, m.mutate(Op{Kind: OpMkdir, Name: dir}, func() error {
		list, err := parts(dir)
		if err != nil {
			return err
		}

		at := m.root
		for _, part := range list {
			next := at.entries[part]
			if next == nil {
				next = &node{entries: map[string]*node{}, durable: map[string]*node{}}
				m.change(side{at, part, next})
			}
			if !next.isDir() {
				return syscall.ENOTDIR
			}
			at = next
		}

		return nil
	}))
}

// List implements [FS].
func (m *Mem) List(dir string) ([]string, error) {
	err := m.beginRead(Op{Kind: OpList, Name: dir})
	defer m.mu.RUnlock()
	if err == nil {
		var n *node
		if n, err = m.directory(dir); err == nil {
			return slices.Sorted(maps.Keys(n.entries)), nil
		}
	}

	return nil, pathError("list", dir, err)
}

// Size implements [FS].
func (m *Mem) Size(name string) (int64, error) {
	err := m.beginRead(Op{Kind: OpSize, Name: name})
	defer m.mu.RUnlock()
	if err == nil {
		var n *node
		if n, err = m.file(name); err == nil {
			return n.seen.size, nil
		}
	}

	return 0, pathError("size", name, err)
}

// SyncDir implements [FS].
func (m *Mem) SyncDir(dir string) error {
	return pathError("syncdir", dir, m.mutate(Op{Kind: OpSyncDir, Name: dir}, func() error {
		n, err := m.directory(dir)
		if err != nil {
			return err
		}
		m.syncDir(n)

		return nil
	}))
}

// syncDir makes durable what touched dir, and before that what shares a name with it.
func (m *Mem) syncDir(dir *node) {
	if len(m.journal) == 0 {
		return
	}

	needed := map[entry]bool{}
	marked := make([]bool, len(m.journal))

	// Backward: a change that is needed makes those before it needed which share a name with it.
	for i, e := range slices.Backward(m.journal) {
		for _, s := range e.sides {
			marked[i] = marked[i] || s.dir == dir || s.dir != nil && needed[entry{s.dir, s.name}]
		}
		if marked[i] {
			for _, s := range e.sides {
				needed[entry{s.dir, s.name}] = true
			}
		}
	}

	var left []entryChange
	for i, e := range m.journal {
		if !marked[i] {
			left = append(left, e)
			continue
		}

		for _, s := range e.sides {
			if s.dir != nil {
				set(s.dir.durable, s)
			}
		}
	}
	m.journal = left
}

// set makes an entry what a side says.
func set(entries map[string]*node, s side) {
	if s.node == nil {
		delete(entries, s.name)
	} else {
		entries[s.name] = s.node
	}
}
