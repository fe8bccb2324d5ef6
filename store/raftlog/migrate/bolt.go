package migrate

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"slices"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/hashicorp/raft-wal/metadb"
	"go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/bbolt/boltpages"
)

// The buckets of a raft-boltdb, whose names the library does not export.
const (
	boltLogs   = "logs"
	boltStable = "conf"
)

// readBolt checks the copy of a bolt file, with bbolt's own check too, and reads which entries and keys are in it.
func (s *source) readBolt(copied string) error {
	f, err := os.Open(copied)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	listed, err := s.checkMetas(f, s.lock.Info().PageSize)
	if err != nil {
		return err
	}
	if err := boltpages.Check(f, st.Size(), boltpages.All); err != nil {
		return err
	}
	db, err := bbolt.Open(copied, 0, &bbolt.Options{ReadOnly: true, PreLoadFreelist: listed})
	if err != nil {
		return err
	}
	defer db.Close()

	return db.View(func(tx *bbolt.Tx) error {
		if err := s.readBuckets(tx); err != nil || !listed {
			return err // without a list of free pages bbolt's check ends the process if it finds damage
		}

		var first error
		for err := range tx.Check(bbolt.WithKVStringer(shortKeys{})) {
			if first == nil {
				first = s.corrupt("bbolt's check: %v", err)
			}
		}

		return first
	})
}

// checkMetas compares the checksums of both meta pages: if one is wrong, bbolt goes on from the other without a word,
// and without what was committed last, which may be a vote. listed means that the file lists its free pages.
func (s *source) checkMetas(f io.ReaderAt, page int) (listed bool, err error) {
	listed = true
	for i := range int64(2) {
		var m [64]byte // behind a header: the list's page is the fifth number of 8 bytes, the sum of all the eighth
		if _, err := f.ReadAt(m[:], i*int64(page)+16); err != nil {
			return false, err
		}
		sum := fnv.New64a()
		sum.Write(m[:56])
		if binary.NativeEndian.Uint64(m[56:]) != sum.Sum64() {
			e := s.corrupt("meta page %d has a wrong checksum: what was committed last may be missing", i)
			e.Remedy = "if the machine stopped while it was written, start and stop the program it belongs to, " +
				"and try again; otherwise " + e.Remedy

			return false, e
		}
		listed = listed && binary.NativeEndian.Uint64(m[32:]) != math.MaxUint64
	}

	return listed, nil
}

// shortKeys shows the beginnings of keys: the length of a damaged one may reach beyond the file.
type shortKeys struct{}

func (shortKeys) KeyToString(k []byte) string { return fmt.Sprintf("%.16x", k) }
func (shortKeys) ValueToString([]byte) string { return "" }

// readBuckets reads the stable keys, and of a raft-boltdb the indexes too, because it allows gaps. Each key is looked
// up: that finds most damage where a panic can be caught.
func (s *source) readBuckets(tx *bbolt.Tx) error {
	want, class, remedy := []string{boltLogs, boltStable}, holdfast.ErrForeign, nameSource
	if s.isWAL {
		want, class, remedy = []string{metadb.MetaBucket, metadb.StableBucket}, holdfast.ErrCorrupt, restore
	}
	log, stable := tx.Bucket([]byte(want[0])), tx.Bucket([]byte(want[1]))
	if log == nil || stable == nil {
		return s.fail(class, remedy, "it does not have the buckets %q", want)
	}
	err := tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
		if !slices.Contains(want, string(name)) {
			s.note("the file has another bucket %+q, which is not Raft's and was not copied", name)
		}

		return nil
	})
	if err == nil && s.isWAL {
		err = s.readState(log)
	} else if err == nil {
		err = log.ForEach(func(k, _ []byte) error {
			if len(k) != 8 || log.Get(k) == nil {
				return s.corrupt("the key %+.40q among the entries is no index, or is not found", k)
			}
			s.indexes = append(s.indexes, binary.BigEndian.Uint64(k))

			return nil
		})
	}
	if err != nil {
		return err
	}

	return stable.ForEach(func(k, v []byte) error {
		if stable.Get(k) == nil {
			return s.corrupt("the stable key %+.40q is a bucket, or is not found", k)
		}
		s.keys = append(s.keys, stableKey{slices.Clone(k), slices.Clone(v)})

		return nil
	})
}

func (s *source) openBolt(copied string) error {
	db, err := raftboltdb.New(raftboltdb.Options{Path: copied, BoltOptions: &bbolt.Options{ReadOnly: true}})
	if err == nil {
		s.log, s.closer = db, db
	}

	return err
}
