package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

// logs syncs the library's logs. There are two kinds: each memtable has its
// own write-ahead log (00001.mem, ...), and large values go to the value log (000001.vlog,
// ...). Files of a kind are numbered without gaps and written one after the other.
//
// DB.Sync is not enough for a Power commit. It syncs the log of the memtable in use, not
// that of a full one that waits to be flushed, and it does not sync the directory when a log is made. So logs keeps the
// newest file of each kind open, looks for the next one by its name, and syncs in this order:
//
//   - the value log, with every transaction that wrote to it: neither the log nor a
//     table made of it may be on the device before the values they point to;
//   - a log that has been left for the next one, whatever the level, before anything of
//     the next one: else a power cut takes the end of the one and leaves the other;
//   - the directory, once for each new file;
//   - the log in use, if the group is to be at Power.
//
// The library itself syncs a table and its entry in the manifest before it deletes the log
// that the table was made of, and a value-log file before it goes on to the next. It does
// not sync the directory for a table made of a log; it relies, and so does this engine, on
// file systems that keep a new file's name when the file is synced, as ext4, xfs, btrfs and
// APFS do.
//
// logs is used by one goroutine at a time, the one that commits.
type logs struct {
	dir    string
	hooks  hooks
	wal    file
	values file
	fill   fill
	last   usage // of the latest transaction
	dirty  bool  // wal has a transaction that no sync has covered
	due    bool  // the latest transaction may have begun a new log
	syncs  atomic.Int64
}

// file is the newest one of its kind.
type file struct {
	*os.File
	number int
}

// walPath and valuePath are the names that the library gives to its files.
func walPath(dir string, n int) string   { return filepath.Join(dir, fmt.Sprintf("%05d.mem", n)) }
func valuePath(dir string, n int) string { return filepath.Join(dir, fmt.Sprintf("%06d.vlog", n)) }

// newLogs follows the logs that the library has just made in dir.
func newLogs(dir string, h hooks) (*logs, error) {
	l := &logs{dir: dir, hooks: h}

	// The library may have replayed and made several logs while it opened; all of them are synced here.
	if err := l.catchUp(); err != nil {
		return nil, errors.Join(err, l.close())
	}
	l.fill.reset()

	return l, nil
}

// before is called before a transaction is written. If the log in use may be full, so that
// the transaction begins a new one, the log is synced first.
func (l *logs) before() error {
	if l.hooks.write != nil {
		if err := l.hooks.write(l.wal.Name()); err != nil {
			return err
		}
	}

	// Full or not is an estimate, on the safe side: a sync too many costs time, one too few could lose the order.
	l.due = l.fill.full()
	if !l.due || !l.dirty {
		return nil
	}

	// Done before the transaction, because afterwards part of the next log may reach the device first.
	return l.syncWAL()
}

// after is called when a transaction has been written.
func (l *logs) after(u usage, level holdfast.Level) error {
	// Counted first: the transaction is written, whatever becomes of the syncs below.
	l.fill.add(u)
	l.last = u

	// Before anything can sync the log that points to the values.
	if u.values {
		if err := l.syncValues(); err != nil {
			return err
		}
	}

	// A log that has been left must be on the device before anything of the next one is; at Power sync follows anyway.
	if l.due && level < holdfast.Power {
		if _, err := l.follow(); err != nil {
			return err
		}
	}

	// Set last: if follow has gone on to the next log above, before had synced the one that is left.
	l.dirty = true

	return nil
}

// sync brings everything written to the device.
func (l *logs) sync() error {
	if _, err := l.follow(); err != nil || !l.dirty {
		return err
	}

	return l.syncWAL()
}

// syncWAL syncs the log in use. After a failure the log stays dirty.
func (l *logs) syncWAL() error {
	err := l.syncFile(l.wal.File)
	l.dirty = l.dirty && err != nil

	return err
}

// follow goes on to the next log if the library has.
func (l *logs) follow() (bool, error) {
	next, err := openNext(walPath(l.dir, l.wal.number+1))
	if next == nil {
		return false, err
	}

	// The log that is left is synced before the name of the next one is made durable.
	if l.dirty {
		err = l.syncWAL()
	}
	err = errors.Join(err, l.wal.Close())

	// The latest transaction may be in it, so it counts as dirty.
	l.wal = file{next, l.wal.number + 1}
	l.dirty = true
	l.fill.reset()

	// The latest transaction may be in the new log or in the old one: it counts for both.
	l.fill.add(l.last)

	return true, errors.Join(err, l.syncDir())
}

// syncValues syncs the value log.
func (l *logs) syncValues() error {
	for {
		if err := l.syncFile(l.values.File); err != nil {
			return err
		}

		// The library may have gone on to the next file while it wrote; it is looked for until there is none.
		next, err := openNext(valuePath(l.dir, l.values.number+1))
		if next == nil {
			return err
		}
		err = l.values.Close()
		l.values = file{next, l.values.number + 1}
		if err = errors.Join(err, l.syncDir()); err != nil {
			return err
		}
	}
}

// catchUp syncs all logs from the current ones on and goes on to the newest, whatever was written, made and deleted
// since.
func (l *logs) catchUp() error {
	for _, kind := range []struct {
		at   *file
		ext  string
		path func(string, int) string
	}{{&l.values, ".vlog", valuePath}, {&l.wal, ".mem", walPath}} {
		numbers, err := numbered(l.dir, kind.ext)
		if err != nil {
			return err
		}

		for _, n := range numbers {
			// A file that is followed already is synced once more: it may have grown.
			if n < kind.at.number {
				continue
			}
			next, err := openNext(kind.path(l.dir, n))
			if err != nil {
				return err
			}

			// The library deletes a log in the background when its table is on the device.
			if next == nil {
				continue // deleted since it was listed
			}
			if kind.at.File != nil {
				if err := kind.at.Close(); err != nil {
					return err
				}
			}
			*kind.at = file{next, n}
			if err := l.syncFile(next); err != nil {
				return err
			}
		}
		if kind.at.File == nil {
			return fmt.Errorf("there is no %s file in %s", kind.ext, l.dir)
		}
	}

	// The names of all files are synced last, in one go.
	l.dirty = false

	return l.syncDir()
}

// syncFile syncs f and counts it. The hook lets tests fail or watch the sync.
func (l *logs) syncFile(f *os.File) error {
	if l.hooks.sync != nil {
		if err := l.hooks.sync(f.Name()); err != nil {
			return err
		}
	}
	l.syncs.Add(1)

	return syncFile(f)
}

// syncDir syncs the directory, for the names of new files.
func (l *logs) syncDir() error {
	if l.hooks.sync != nil {
		if err := l.hooks.sync(l.dir); err != nil {
			return err
		}
	}
	l.syncs.Add(1)

	return datadir.SyncDir(l.dir)
}

// close closes the files without a sync.
func (l *logs) close() error {
	var errs []error
	for _, f := range []file{l.wal, l.values} {
		if f.File != nil {
			errs = append(errs, f.Close())
		}
	}

	return errors.Join(errs...)
}

// openNext returns nil where there is no such file.
func openNext(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	return f, err
}

// numbered lists the numbers of the files in dir with that extension, in order.
func numbered(dir, ext string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}

	var numbers []int
	for _, e := range entries {
		if base, ok := strings.CutSuffix(e.Name(), ext); ok {
			if n, err := strconv.Atoi(base); err == nil {
				numbers = append(numbers, n)
			}
		}
	}

	return numbers, nil // names are padded, so ReadDir's order is that of the numbers
}

// usage is what transactions take of a memtable and of its log.
type usage struct {
	arena  int64 // of the skip list, without what is by chance
	nodes  int64
	wal    int64
	values bool // some are in the value log
}

// add counts an entry, the way the library lays it out: the key with 8 bytes of version, the
// value with 3 of flags, a node of 23 bytes and 4 for each level.
func (u *usage) add(key, value int) {
	k, v := int64(key)+8, int64(value)
	if value >= valueThreshold {
		v, u.values = pointerSize, true
	}
	u.arena += 23 + k + v + 3
	u.nodes++
	u.wal += int64(3+uvarintLen(k)+uvarintLen(v)) + k + v + 4
}

// end counts the mark at the end of a transaction.
func (u *usage) end() { u.wal += 48 }

// uvarintLen is how many bytes n takes in a record.
func uvarintLen(n int64) int {
	var b [binary.MaxVarintLen64]byte
	return binary.PutUvarint(b[:], uint64(n))
}

// fill follows how full the memtable in use is: once it may be full, the next
// transaction may begin another.
type fill struct {
	arena      atomic.Int64 // read by Metrics
	nodes, wal int64
}

// reset begins a new memtable, which has the head of its list and the header of its log.
func (f *fill) reset() {
	f.arena.Store(256) // the list's head
	f.nodes, f.wal = 0, 20
}

// add counts what a transaction takes.
func (f *fill) add(u usage) {
	f.arena.Add(u.arena)
	f.nodes += u.nodes
	f.wal += u.wal
}

// bound is what the memtable takes at most. A node has 1.5 levels on average, with a variance
// of 0.75, so that six standard deviations more are exceeded once in a billion times; all
// that hangs on it is that sync of a log comes before and not after the next log's first
// transaction.
func (f *fill) bound() int64 {
	levels := 1.5*float64(f.nodes) + 6*math.Sqrt(0.75*float64(f.nodes))
	return max(f.wal, f.arena.Load()+int64(4*levels)+128)
}

// full reports whether the next transaction may begin another memtable.
func (f *fill) full() bool { return f.bound() >= memTableSize }
