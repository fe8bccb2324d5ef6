package bbolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io/fs"
	"math"
	"os"
	"runtime/debug"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

const (
	// compactFrom is the number of free pages from which a file is copied without them. Every commit
	// writes their list, which then has 256 KiB.
	compactFrom = 32 << 10
	// compactLive is the limit of what is copied while the engine is in use, since commits wait for it, and
	// compactLiveOpening the limit when it is opened.
	compactLive        = 64 << 20
	compactLiveOpening = 256 << 20
	// lookEvery is how many bytes are written between two looks at the list.
	lookEvery = 16 << 20
)

// meta is what is read from bbolt's file.
type meta struct{ freelist, pages, txid uint64 }

// readMeta reads the newer of the two meta pages: behind the page's header of 16 bytes magic, version, page size and
// flags of 4 bytes each, root and sequence of the root bucket, the page of the free list, the number of pages, the
// transaction, and a checksum of what is before it, of 8 bytes each, in the order of the machine's bytes.
func (e *engine) readMeta() (newest meta, err error) {
	for i := range int64(2) {
		var b [80]byte

		// The meta pages are the first two of the file.
		if _, err := e.file.ReadAt(b[:], i*int64(e.pageSize)); err != nil {
			return meta{}, err
		}
		sum := fnv.New64a()
		sum.Write(b[16:72])
		word := func(at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }

		// The word behind the checked ones is their checksum. A page that does not fit it was being written, or is
		// damaged.
		if m := (meta{word(48), word(56), word(64)}); word(72) == sum.Sum64() && m.txid >= newest.txid {
			newest = m
		}
	}

	return newest, nil
}

// pages returns how many pages of the file are in use and how many are free, those that a reader still needs among
// them. A file that has no list of free pages says nothing of them: MaxInt64 and 0.
func (e *engine) pages() (live, free int64, err error) {
	m, err := e.readMeta()
	if err != nil || m.freelist == 0 || m.freelist >= m.pages {
		return math.MaxInt64, 0, err
	}
	var b [24]byte // id 8, flags 2, count 2, overflow 4, and the first entry, which is the count if that is 0xffff
	if _, err := e.file.ReadAt(b[:], int64(m.freelist)*int64(e.pageSize)); err != nil {
		return 0, 0, err
	}
	n := uint64(binary.NativeEndian.Uint16(b[10:]))
	if n == math.MaxUint16 {
		n = binary.NativeEndian.Uint64(b[16:])
	}

	return int64(m.pages - n), int64(n), nil
}

// Compact implements [holdfast.Compactor]. Commits wait while the live pages are copied, for which there must be room.
// The old file takes its room until those who read from it are done. A part cannot be compacted: ErrUnavailable.
func (e *engine) Compact(ctx context.Context, r holdfast.Range) error {
	return e.CompactingAll(ctx, r, func(ctx context.Context) error {
		return e.committer.Exclusive(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}

			// A file without free pages stays as it is; one that does not say goes through the copy.
			if live, free, err := e.pages(); err == nil && free == 0 && live < math.MaxInt64 {
				return nil
			}

			// Refused and failed differ: what is refused has changed nothing, while a failure leaves open which file is in
			// use, and poisons.
			refused, err := e.replace(ctx)
			if err != nil {
				return e.committer.Fail(e.fail("compact", err))
			}
			if refused != nil && errors.Is(refused, ctx.Err()) {
				return refused
			}
			if refused != nil {
				return datadir.Full(e.fail("compact", refused))
			}

			return nil
		})
	})
}

// compactIfSparse replaces the file by a copy without free pages, if most pages are free and the live ones have at most
// so many bytes. If there is no room for it, or damage, the file stays as it is, and that is no error. After an error
// it is not known which of the two files a crash would leave.
func (e *engine) compactIfSparse(most int64) error {
	live, free, err := e.pages()
	if err != nil || free < e.sparseFrom || live > free/2 || live*int64(e.pageSize) > most {
		return nil
	}

	// A copy that was refused, say for want of room, is not tried again before twice as much is free.
	e.sparseFrom = 2 * free // unless it succeeds
	_, err = e.replace(context.Background())

	return err
}

// replace replaces the file by a copy without free pages. If it is refused, the file stays as it is, and the end of ctx
// is one reason. After an error it is not known which of the two files a crash would leave. It is called by the
// committer's leader, or by Open.
func (e *engine) replace(ctx context.Context) (refused, err error) {
	file, making := e.file, e.path()+".new"
	if err := e.datadir.Check(); err != nil { // files are made and renamed by name
		return nil, err
	}

	// The copy is whole and on the device before it is renamed; a crash before the rename leaves the old file.
	db, err := e.copyTo(ctx, making)
	if err == nil {
		err = e.datadir.Check()
	}
	if err == nil {
		err = os.Rename(making, e.path())
	}

	// bbolt opened the copy through options that note its file. Until the copy has the name, the engine's file is the old
	// one.
	copied := e.file
	e.file = file
	if err != nil {
		if db != nil {
			_ = db.Close()
		} else if copied != file {
			_ = copied.Close()
		}
		_ = os.Remove(making)

		return err, nil
	}

	// From here on the new name is in place, and no error can be taken back.
	if err := datadir.SyncDir(e.datadir.Dir); err != nil {
		return nil, errors.Join(e.fail("compact", err), db.Close())
	}

	// Readers that come from here on read the copy. Those of the old file keep it until the last of them has left. View
	// counts itself as a user under the same lock, so old is not closed between its look at db and its use.
	e.swap.Lock()
	old, users := e.db, e.users
	e.db, e.users = db, new(atomic.Int64)
	e.users.Store(1)
	e.swap.Unlock()
	leave(old, users)

	// The copy was synced whole, so nothing in it waits for a sync.
	e.file, e.sparseFrom, e.unsynced = copied, compactFrom, false
	e.fileSize, err = e.size()

	return nil, err
}

// leave ends one use of db. bbolt's own Close waits for readers, but keeps them from ending if there are several.
func leave(db *bbolt.DB, users *atomic.Int64) {
	// users cannot rise again from 0: new readers have got another counter.
	if users.Add(-1) == 0 {
		_ = db.Close() // all that was in it is in the file that replaced it
	}
}

// copyTo makes a file of all that is in this one, and brings it to the device.
func (e *engine) copyTo(ctx context.Context, making string) (db *bbolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer e.catch("compact", &err)
	if err := os.Remove(making); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	// The same page size, and room to grow as the file in use has.
	o := e.options(e.mapped)
	o.PageSize = e.pageSize
	if db, err = bbolt.Open(making, 0o644, o); err != nil {
		return nil, err
	}
	db.NoSync = true // once at the end is enough
	if err := e.copyKeys(ctx, db); err != nil {
		return db, err
	}

	// A tree whose keys are out of order would lose some of them in the copy, and the original is removed.
	if err := e.compare(ctx, db); err != nil {
		return db, err
	}
	if err := db.Sync(); err != nil {
		return db, err
	}
	e.syncs.Add(1)

	// From now on it syncs as the directory's level says.
	db.NoSync = e.db.NoSync

	return db, nil
}

// lookAtContext is after how many keys a copy looks whether its context has ended.
const lookAtContext = 1 << 10

// copyKeys puts all keys into db, which is empty, in full pages. bbolt's own Compact cannot be ended.
func (e *engine) copyKeys(ctx context.Context, db *bbolt.DB) error {
	return e.db.View(func(from *bbolt.Tx) error {
		c := from.Bucket(bucketName).Cursor()
		k, v := c.First()

		// The copy is made in several transactions: one for all would hold every page in memory. The loop runs once even
		// without keys, for the bucket.
		for first := true; first || k != nil; first = false {
			err := db.Update(func(to *bbolt.Tx) error {
				kv, err := to.CreateBucketIfNotExists(bucketName)
				if err != nil {
					return err
				}

				// Keys come in order, so that pages can be filled whole.
				kv.FillPercent = 1
				for n, size := 0, 0; k != nil && size < maxGroupSize; k, v = c.Next() {
					if n++; n%lookAtContext == 0 && ctx.Err() != nil {
						return ctx.Err()
					}
					size += len(k) + len(v)
					if err := kv.Put(k, v); err != nil {
						return err
					}
				}

				return ctx.Err()
			})
			if err != nil {
				return err
			}
		}

		return nil
	})
}

// compare fails unless db holds what the engine holds, which damage to the order of keys would show.
func (e *engine) compare(ctx context.Context, db *bbolt.DB) error {
	return e.db.View(func(from *bbolt.Tx) error {
		return db.View(func(to *bbolt.Tx) error {
			a, b := from.Bucket(bucketName).Cursor(), to.Bucket(bucketName).Cursor()

			// Both are walked side by side, to the end of the longer one.
			ak, av := a.First()
			n := 0
			for bk, bv := b.First(); ak != nil || bk != nil; bk, bv = b.Next() {
				if n++; n%lookAtContext == 0 && ctx.Err() != nil {
					return ctx.Err()
				}
				if !bytes.Equal(ak, bk) || !bytes.Equal(av, bv) {
					return e.corrupt("compact", "keys are out of order", nil)
				}
				ak, av = a.Next()
			}

			return nil
		})
	})
}
