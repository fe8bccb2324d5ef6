package migrate

import (
	"encoding/binary"
	"errors"
	"fmt"
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

// Write makes it a writer that counts.
func (r reading) Write(b []byte) (int, error) { return len(b), r(int64(len(b)), int64(len(b))) }

// stableKey is a stable key with its value as it is to be stored.
type stableKey struct{ name, value []byte }

func (s *source) fail(class error, remedy, format string, args ...any) *holdfast.Error {
	return &holdfast.Error{Op: "import", Path: s.at, Class: class, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

// Remedies.
const (
	nameSource = "name the file of a raft-boltdb, or the directory of a raft-wal"
	restore    = "restore it from a backup, or let the node join anew"
)

func (s *source) corrupt(format string, args ...any) *holdfast.Error {
	return s.fail(holdfast.ErrCorrupt, restore, format, args...)
}

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
	case ofSystem(err):
		return &holdfast.Error{Op: "import", Path: s.at, Cause: err}
	}

	return s.corrupt("%v", err)
}

// ofSystem reports whether an error is the operating system's.
func ofSystem(err error) bool {
	return errors.As(err, new(*fs.PathError)) || errors.As(err, new(syscall.Errno))
}

// open finds out what the source is by what is in it, locks and copies it, and opens the copy.
func (s *source) open(o *Options, read reading) (err error) {
	if s.at, err = s.find(); err != nil {
		return err
	}

	return s.guard(func() error {
		if err := s.acquire(s.at); err != nil {
			return err
		}
		copied := filepath.Join(s.scratch, filepath.Base(s.at))
		if err := copyFile(s.at, copied, read); err != nil {
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

// find returns the file by which the source is locked, and finds out its kind.
func (s *source) find() (string, error) {
	s.at = s.path
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
		return "", s.fail(holdfast.ErrForeign, nameSource,
			"a source is a directory with either %s or raft.db, and this one has %q", metadb.FileName, found)
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
	case err == nil || ofSystem(err):
		return err
	case s.isWAL:
		return s.corrupt("it is no bolt file: %v", err)
	}

	return s.fail(holdfast.ErrForeign, nameSource, "it is no bolt file: %v", err)
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
	_, err = io.Copy(io.MultiWriter(out, read), in)

	return join(err, out.Close())
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
	}

	for i, index := range s.indexes {
		if i > 0 && index != s.indexes[i-1]+1 {
			r.Gaps++
		}
	}
	if n := len(s.indexes); n > 0 {
		r.Entries, r.First, r.Last = int64(n), s.indexes[0], s.indexes[n-1]
	}

	for _, k := range s.keys {
		name := string(k.name)
		r.Keys = append(r.Keys, name)

		isTerm, isNumber := name == currentTerm || name == lastVoteTerm, slices.Contains(o.Numbers, name)
		switch {
		case isTerm && len(k.value) != 8:
			return s.corrupt("the stable key %+q has %d bytes, and is a number", name, len(k.value))
		case !s.isWAL || name == lastVoteCand || len(k.value) != 8:
		case !isTerm && isNumber == slices.Contains(o.Bytes, name):
			return s.fail(holdfast.ErrBadOption, "name it among either the numbers (--number) or the bytes (--bytes)",
				"the stable key %+q has 8 bytes: raft-wal does not tell whether they are a number, "+
					"which it stores the other way round", name)
		case isTerm || isNumber:
			slices.Reverse(k.value)
		}
	}

	vote, voted := s.number(lastVoteTerm)
	term, has := s.number(currentTerm)
	switch r.CurrentTerm = term; {
	case vote > term:
		return s.corrupt("there is a vote in term %d, and the current term is %d", vote, term)
	case !voted && slices.Contains(r.Keys, lastVoteCand): // raft stores the term first
		return s.corrupt("there is a vote, and no term of it")
	case !has && r.Entries > 0:
		s.note("there is no %s: terms and votes of this server are kept elsewhere, and must be copied from there "+
			"before it runs again", currentTerm)
	}

	return nil
}

// number returns the value of a stable key that is a number, and whether it is there.
func (s *source) number(name string) (uint64, bool) {
	for _, k := range s.keys {
		if string(k.name) == name {
			return binary.BigEndian.Uint64(k.value), true
		}
	}

	return 0, false
}

// walk calls do for every entry, ascending, once it has been found plausible: raft's terms never go back, and none is
// above the current one.
func (s *source) walk(do func(*raft.Log) error) error {
	r := &s.result
	r.Bytes, r.LastTerm = 0, 0

	for i, index := range s.indexes {
		var log raft.Log
		err := s.guard(func() error { return s.log.GetLog(index, &log) })

		bad := ""
		switch {
		case errors.Is(err, holdfast.ErrCorrupt):
			bad = "the entry cannot be read: " + err.(*holdfast.Error).Detail
		case err != nil:
			return err
		case log.Index != index:
			bad = fmt.Sprintf("the entry is that of index %d", log.Index)
		case index == math.MaxUint64 || i > 0 && index <= s.indexes[i-1]:
			bad = "there cannot be an entry at this place"
		case log.Term < r.LastTerm:
			bad = fmt.Sprintf("term %d comes after term %d", log.Term, r.LastTerm)
		case log.Term > r.CurrentTerm && slices.Contains(r.Keys, currentTerm):
			bad = fmt.Sprintf("its term is %d, and the current one is %d", log.Term, r.CurrentTerm)
		case log.Type > raft.LogConfiguration:
			bad = fmt.Sprintf("its type is %d, which raft does not have", log.Type)
		}
		if bad != "" {
			return s.corrupt("index %d: %s", index, bad)
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
