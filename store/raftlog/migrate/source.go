package migrate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/types"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/holdfastdb/holdfast"
)

// The stable keys of hashicorp/raft. The terms are numbers.
const (
	currentTerm  = "CurrentTerm"
	lastVoteTerm = "LastVoteTerm"
	lastVoteCand = "LastVoteCand"
)

// The buckets of a raft-boltdb, whose names the library does not export.
const (
	boltLogs   = "logs"
	boltStable = "conf"
)

// source is a source, locked against writers, and a copy of it, opened by the library that wrote it.
type source struct {
	path    string                // what was named
	scratch string                // directory of the copy
	at      string                // what of it is read, for errors
	isWAL   bool                  // it is a raft-wal, not a raft-boltdb
	lock    *bbolt.DB             // the original, which is only read
	log     raft.LogStore         // the copy
	closer  io.Closer             // of log
	state   types.PersistentState // of a raft-wal: its segments
	indexes []uint64              // of the entries, ascending
	keys    []stableKey           // ascending
	result  Result
}

// reading is told how much of the source was read. Its error ends that.
type reading func(done, bytes int64) error

// stableKey is a stable key with its value as it is to be stored.
type stableKey struct{ name, value []byte }

func (s *source) fail(class error, remedy, format string, args ...any) *holdfast.Error {
	return &holdfast.Error{Op: "import", Path: s.at, Class: class, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

func (s *source) corrupt(format string, args ...any) *holdfast.Error {
	return s.fail(holdfast.ErrCorrupt, "restore it from a backup, or let the node join anew", format, args...)
}

func (s *source) foreign(format string, args ...any) error {
	return s.fail(holdfast.ErrForeign, nameSource, format, args...)
}

const nameSource = "name the file of a raft-boltdb, or the directory of a raft-wal"

// guard runs f, in which a library reads, and says of its errors where they come from. bbolt trusts every offset in a
// page: a damaged one makes it panic, or read memory that is not mapped.
func (s *source) guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = s.corrupt("the library that wrote it cannot read it: %v", r)
		}
	}()
	switch err = f(); {
	case err == nil || errors.As(err, new(*holdfast.Error)):
		return err
	case errors.As(err, new(*fs.PathError)), errors.As(err, new(syscall.Errno)):
		return &holdfast.Error{Op: "import", Path: s.at, Cause: err}
	}
	return s.corrupt("%v", err)
}

// open finds out what the source is by what is in it, locks and copies it, and opens the copy.
func (s *source) open(o *Options, read reading) error {
	s.at = s.path
	file, err := s.find()
	if err != nil {
		return err
	}
	s.at = file
	return s.guard(func() error {
		if err := s.acquire(file); err != nil {
			return err
		}
		copied := filepath.Join(s.scratch, filepath.Base(file))
		if err := copyFile(file, copied, read); err != nil {
			return err
		}
		if err := s.readBolt(copied); err != nil {
			return err
		}
		if s.isWAL {
			s.at = s.path
			err = s.openWAL(o.DropTorn, read)
		} else {
			err = s.openBolt(copied)
		}
		if err != nil {
			return err
		}
		return s.complete(o)
	})
}

// find says which file of the source locks it, and what kind it is.
func (s *source) find() (string, error) {
	st, err := os.Stat(s.path)
	if err != nil {
		return "", &holdfast.Error{Op: "import", Path: s.path, Cause: err, Remedy: nameSource}
	}
	if !st.IsDir() {
		return s.path, nil
	}
	var found []string
	for _, name := range []string{metadb.FileName, "raft.db"} {
		if _, err := os.Stat(filepath.Join(s.path, name)); err == nil {
			found = append(found, name)
		}
	}
	if len(found) != 1 {
		return "", s.foreign("a source is a directory with either %s or raft.db, and this one has %q", metadb.FileName, found)
	}
	s.isWAL = found[0] == metadb.FileName
	return filepath.Join(s.path, found[0]), nil
}

// acquire locks the source by its bolt file, as bbolt's readers do, which both libraries respect.
func (s *source) acquire(file string) error {
	st, err := os.Stat(file)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() == 0 { // bbolt would wait for it, or write to it
		err = berrors.ErrInvalid
	} else { // the timeout is so short that it tries once
		s.lock, err = bbolt.Open(file, 0, &bbolt.Options{ReadOnly: true, Timeout: time.Millisecond})
	}
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return s.fail(holdfast.ErrLocked, "stop that process first", "a process has it open")
	case err == nil, errors.As(err, new(*fs.PathError)), errors.As(err, new(syscall.Errno)):
		return err
	case s.isWAL:
		return s.corrupt("it is no bolt file: %v", err)
	}
	return s.foreign("it is no bolt file: %v", err)
}

// copyFile copies a file of the source to the new file to.
func copyFile(from, to string, read reading) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	for err == nil {
		var n int64
		if n, err = io.CopyN(out, in, 1<<18); n > 0 && (err == nil || err == io.EOF) {
			err = join(err, read(n, n))
		}
	}
	if err == io.EOF {
		err = nil
	}
	return join(err, out.Close())
}

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
	page := s.lock.Info().PageSize
	listed, err := s.checkMetas(f, page)
	if err != nil {
		return err
	}
	db, err := bbolt.Open(copied, 0, &bbolt.Options{ReadOnly: true, PreLoadFreelist: listed})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bbolt.Tx) error {
		if tx.Size() > st.Size() {
			return s.corrupt("the file should have %d bytes: it was cut off", tx.Size())
		}
		if err := s.readBuckets(tx); err != nil || !listed {
			return err // without a list of free pages bbolt's check ends the process if it finds damage
		}
		if err := s.checkHeaders(tx, f, page); err != nil {
			return err
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

// checkHeaders checks the numbers in the headers of pages that bbolt trusts. With fewer keys than there are, it would
// leave out entries; as many pages as one goes on for, its check counts, without end.
func (s *source) checkHeaders(tx *bbolt.Tx, f io.ReaderAt, page int) error {
	pages := int(tx.Size()) / page
	for id := 2; id < pages; id++ {
		p, err := tx.Page(id)
		if err != nil {
			return err
		}
		if p.Type == "free" {
			continue
		}
		if p.OverflowCount >= pages-id {
			return s.corrupt("page %d does not end within the file", id)
		}
		if p.Count > 0 && (p.Type == "leaf" || p.Type == "branch") {
			var b [24]byte // the header, and of the first key's 16 bytes where it is: behind those of all keys
			if _, err := f.ReadAt(b[:], int64(id)*int64(page)); err != nil {
				return err
			}
			at := 16
			if p.Type == "leaf" {
				at = 20
			}
			if got := int(binary.NativeEndian.Uint32(b[at:])); got != 16*p.Count {
				return s.corrupt("page %d has %d keys by its header, and %d by where they begin", id, p.Count, got/16)
			}
		}
		id += p.OverflowCount
	}
	return nil
}

// shortKeys shows the beginnings of keys: the length of a damaged one may reach beyond the file.
type shortKeys struct{}

func (shortKeys) KeyToString(k []byte) string { return fmt.Sprintf("%.16x", k) }
func (shortKeys) ValueToString([]byte) string { return "" }

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

// readBuckets reads the stable keys, and of a raft-boltdb the indexes too: it allows gaps.
func (s *source) readBuckets(tx *bbolt.Tx) error {
	want := []string{boltLogs, boltStable}
	if s.isWAL {
		want = []string{metadb.MetaBucket, metadb.StableBucket}
	}
	var found []string
	err := tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
		if found = append(found, string(name)); !slices.Contains(want, string(name)) {
			s.note("the file has another bucket %+q, which is not Raft's and was not copied", name)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case slices.Contains(found, want[0]) && slices.Contains(found, want[1]):
	case s.isWAL:
		return s.corrupt("its buckets are %q, not %q", found, want)
	default:
		return s.foreign("its buckets are %q, not %q", found, want)
	}
	b := tx.Bucket([]byte(want[0]))
	if s.isWAL {
		err = s.readState(b)
	} else {
		err = b.ForEach(func(k, _ []byte) error {
			if len(k) != 8 || b.Get(k) == nil {
				return s.corrupt("the key %+.40q among the entries is no index, or is not found", k)
			}
			s.indexes = append(s.indexes, binary.BigEndian.Uint64(k))
			return nil
		})
	}
	if err != nil {
		return err
	}
	b = tx.Bucket([]byte(want[1]))
	return b.ForEach(func(k, v []byte) error {
		if b.Get(k) == nil {
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

// close closes the copy, removes it, and unlocks the source.
func (s *source) close() (err error) {
	if s.closer != nil {
		err = s.closer.Close()
	}
	if s.lock != nil {
		err = join(err, s.lock.Close())
	}
	return join(err, os.RemoveAll(s.scratch))
}

func (s *source) note(format string, args ...any) {
	s.result.Notes = append(s.result.Notes, fmt.Sprintf(format, args...))
}

// complete makes the stable keys what is to be stored, and the result of what is known by now. raft-boltdb stores a
// number as raftlog does, big-endian; raft-wal has it little-endian, so there it must be known which keys are numbers.
func (s *source) complete(o *Options) error {
	r := &s.result
	if r.Kind = "raft-boltdb"; s.isWAL {
		r.Kind = "raft-wal"
	} else if o.DropTorn {
		s.note("nothing was left out: a raft-boltdb has no torn end")
	}
	for i, index := range s.indexes {
		if i > 0 && index != r.Last+1 {
			r.Gaps++
		}
		r.Last = index
	}
	if r.Entries = int64(len(s.indexes)); r.Entries > 0 {
		r.First = s.indexes[0]
	}
	for _, k := range s.keys {
		name, size := string(k.name), len(k.value)
		r.Keys = append(r.Keys, name)
		number := name == currentTerm || name == lastVoteTerm || slices.Contains(o.Numbers, name)
		switch {
		case number && slices.Contains(o.Bytes, name):
			return s.fail(holdfast.ErrBadOption, "name it once", "the stable key %+q is named as a number and as bytes", name)
		case slices.Contains(o.Numbers, name) && size != 8:
			return s.fail(holdfast.ErrBadOption, "", "the stable key %+q has %d bytes, and is no number", name, size)
		case number && size != 8:
			return s.corrupt("the stable key %+q has %d bytes, and is a number", name, size)
		case s.isWAL && number:
			slices.Reverse(k.value)
		case s.isWAL && size == 8 && name != lastVoteCand && !slices.Contains(o.Bytes, name):
			return s.fail(holdfast.ErrBadOption, "say which: name it among the numbers (--number) or the bytes (--bytes)",
				"the stable key %+q has 8 bytes: raft-wal does not tell whether they are a number, "+
					"which it stores the other way round", name)
		}
	}
	for as, names := range map[string][]string{"a number": o.Numbers, "bytes": o.Bytes} {
		for _, name := range names {
			if !slices.Contains(r.Keys, name) {
				s.note("there is no stable key %+q, which was named as %s", name, as)
			}
		}
	}
	slices.Sort(r.Notes)
	vote := s.number(lastVoteTerm)
	if r.CurrentTerm = s.number(currentTerm); vote > r.CurrentTerm {
		return s.corrupt("there is a vote in term %d, and the current term is %d", vote, r.CurrentTerm)
	}
	if slices.Contains(r.Keys, lastVoteCand) && !slices.Contains(r.Keys, lastVoteTerm) { // raft stores the term first
		return s.corrupt("there is a vote, and no term of it")
	}
	if !slices.Contains(r.Keys, currentTerm) && r.Entries > 0 {
		s.note("there is no %s: terms and votes of this server are kept elsewhere, and must be copied from there "+
			"before it runs again", currentTerm)
	}
	return nil
}

// number returns the value of a stable key that is a number, 0 if it is not there.
func (s *source) number(name string) uint64 {
	for _, k := range s.keys {
		if string(k.name) == name {
			return binary.BigEndian.Uint64(k.value)
		}
	}
	return 0
}

// walk calls do for every entry, ascending, once it has been found plausible: raft's terms never go back, and none is
// above the current one.
func (s *source) walk(do func(*raft.Log) error) error {
	r := &s.result
	r.Bytes, r.LastTerm = 0, 0
	for i, index := range s.indexes {
		var log raft.Log
		err := s.guard(func() error { return s.log.GetLog(index, &log) })
		bad := func(format string, args ...any) error {
			return s.corrupt("index %d: %s", index, fmt.Sprintf(format, args...))
		}
		switch {
		case errors.Is(err, holdfast.ErrCorrupt):
			return bad("the entry cannot be read: %v", err.(*holdfast.Error).Detail)
		case err != nil:
			return err
		case log.Index != index:
			return bad("the entry is that of index %d", log.Index)
		case index == math.MaxUint64:
			return bad("there is no such index")
		case i > 0 && index <= s.indexes[i-1]:
			return bad("it comes after index %d", s.indexes[i-1])
		case log.Term < r.LastTerm:
			return bad("term %d comes after term %d", log.Term, r.LastTerm)
		case log.Term > r.CurrentTerm && slices.Contains(r.Keys, currentTerm):
			return bad("its term is %d, and the current one is %d", log.Term, r.CurrentTerm)
		case log.Type > raft.LogConfiguration:
			return bad("its type is %d, which raft does not have", log.Type)
		}
		r.Bytes += size(&log)
		r.LastTerm = log.Term
		if err := do(&log); err != nil {
			return err
		}
	}
	return nil
}

func size(log *raft.Log) int64 { return int64(len(log.Data)) + int64(len(log.Extensions)) }
