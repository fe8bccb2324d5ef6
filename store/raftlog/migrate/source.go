package migrate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
)

// Kind is what made a source.
type Kind string

// The kinds of sources.
const (
	RaftBoltDB Kind = "raft-boltdb" // a file of hashicorp/raft-boltdb, of version 1 or 2
	RaftWAL    Kind = "raft-wal"    // a directory of hashicorp/raft-wal
)

// The stable keys of hashicorp/raft. The terms are numbers.
const (
	currentTerm  = "CurrentTerm"
	lastVoteTerm = "LastVoteTerm"
	lastVoteCand = "LastVoteCand"
)

// source is an open source, locked against writers. Nothing in it is changed.
type source struct {
	kind  Kind
	path  string // of the file or directory
	bolt  *boltFile
	wal   *walSource // of RaftWAL
	keys  []stableKey
	notes []string
	read  func(n int64) error

	// What check has found.
	entries     int64
	first, last uint64
	bytes       int64 // of data and extensions
	gaps        int64 // places at which indexes are missing
	term        uint64
}

// stableKey is a stable key as it is to be stored.
type stableKey struct {
	name, value []byte
	number      bool // known to be one
}

// watched tells of every read of a source, before it, and fails if that does.
type watched struct {
	io.ReaderAt
	read func(n int64) error
}

func (w watched) ReadAt(b []byte, off int64) (int, error) {
	if w.read != nil {
		if err := w.read(int64(len(b))); err != nil {
			return 0, err
		}
	}
	return w.ReaderAt.ReadAt(b, off)
}

// openSource finds out what path is by what is in it, and opens it. It reads all of it once, to see that its
// structure is sound. Whenever something is read, here and later, read is told how many bytes, and can end it; nil does not.
func openSource(path string, o *Options, read func(n int64) error) (_ *source, err error) {
	s := &source{path: path, read: read}
	foreign := func(detail string) error {
		return &holdfast.Error{Op: "import", Path: path, Class: holdfast.ErrForeign, Detail: detail,
			Remedy: "name the file of a raft-boltdb, or the directory of a raft-wal"}
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, &holdfast.Error{Op: "import", Path: path, Cause: err, Remedy: "name the file of a raft-boltdb, or the directory of a raft-wal"}
	}
	file := path
	if st.IsDir() {
		meta, db := filepath.Join(path, walMeta), filepath.Join(path, "raft.db")
		isWAL, isDB := isFile(meta), isFile(db)
		switch {
		case isWAL && isDB:
			return nil, foreign("it holds both " + walMeta + " and raft.db, and only one of them can be this server's log")
		case isWAL:
			file, s.kind = meta, RaftWAL
		case isDB:
			file = db
		case isFile(filepath.Join(path, "wal", walMeta)):
			return nil, foreign("it holds neither " + walMeta + " nor raft.db, but a directory wal that does")
		default:
			return nil, foreign("it holds neither " + walMeta + " nor raft.db")
		}
	}
	if !isFile(file) {
		return nil, foreign("it is neither a file nor a directory")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, &holdfast.Error{Op: "import", Path: file, Cause: err}
	}
	bolt := isBolt(f)
	f.Close()
	if !bolt && s.kind == RaftWAL {
		return nil, corrupt(file, 0, "it is no bolt file")
	}
	if !bolt {
		return nil, foreign("it is no bolt file")
	}
	if s.bolt, err = openBolt(file, read); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	return s, s.load(o, foreign)
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// load checks the bolt file, and reads all but the log.
func (s *source) load(o *Options, foreign func(string) error) error {
	if err := s.bolt.check(); err != nil {
		return err
	}
	want, stable := []string{"conf", "logs"}, "conf"
	if s.kind == RaftWAL {
		want, stable = []string{walStable, walBucket}, walStable
	}
	var found []string
	for _, name := range s.bolt.names {
		if slices.Contains(want, name) {
			found = append(found, name)
		} else {
			s.notes = append(s.notes, fmt.Sprintf("the file has a bucket %s besides, which is not Raft's and was not copied", quote([]byte(name))))
		}
	}
	switch {
	case len(found) == len(want):
	case s.kind == RaftWAL:
		return corrupt(s.bolt.path, 0, "it has buckets %q, and should have %q", s.bolt.names, want)
	case slices.Contains(s.bolt.names, walBucket):
		return foreign("it is the metadata of a raft-wal, which is a directory")
	default:
		return foreign(fmt.Sprintf("its buckets are %q, not %q", s.bolt.names, want))
	}
	if s.kind == "" {
		s.kind = RaftBoltDB
	} else {
		s.wal = &walSource{dir: filepath.Dir(s.bolt.path), meta: s.bolt, read: s.read}
		if err := s.wal.open(o.DropTorn); err != nil {
			return err
		}
		s.notes = append(s.notes, s.wal.notes...)
	}
	if err := s.readStable(stable, o); err != nil {
		return err
	}
	return s.checkStable()
}

func (s *source) close() error { return s.bolt.close() }

// readStable reads the stable keys. raft-boltdb stores a number as 8 bytes, big-endian, as raftlog does; raft-wal has it
// little-endian, so there it must be known which keys are numbers.
func (s *source) readStable(bucket string, o *Options) error {
	err := s.bolt.walk(s.bolt.buckets[bucket], func(it boltItem) error {
		if it.bucket {
			return corrupt(s.bolt.path, it.off, "the stable key %s is a bucket", quote(it.key))
		}
		k := stableKey{name: bytes.Clone(it.key), value: bytes.Clone(it.value)}
		name := string(k.name)
		k.number = name == currentTerm || name == lastVoteTerm || slices.Contains(o.Numbers, name)
		switch {
		case k.number && len(k.value) != 8:
			if slices.Contains(o.Numbers, name) {
				return &holdfast.Error{Op: "import", Path: s.path, Class: holdfast.ErrBadOption, Detail: fmt.Sprintf("the stable key %s has %d bytes, and is no number", quote(k.name), len(k.value))}
			}
			return corrupt(s.bolt.path, it.off, "the stable key %s has %d bytes, and is a number", quote(k.name), len(k.value))
		case s.kind != RaftWAL:
		case k.number:
			slices.Reverse(k.value)
		case len(k.value) == 8 && name != lastVoteCand && !slices.Contains(o.Bytes, name):
			return &holdfast.Error{Op: "import", Path: s.path, Class: holdfast.ErrBadOption,
				Detail: fmt.Sprintf("the stable key %s has 8 bytes: raft-wal does not tell whether they are a number, which it stores the other way round", quote(k.name)),
				Remedy: "say which: name it among the numbers (--number) or the bytes (--bytes)"}
		}
		s.keys = append(s.keys, k)
		return nil
	})
	if err != nil {
		return err
	}
	for _, list := range []struct {
		names []string
		as    string
	}{{o.Numbers, "a number"}, {o.Bytes, "bytes"}} {
		for _, name := range list.names {
			if _, ok := s.stable(name); !ok {
				s.notes = append(s.notes, fmt.Sprintf("there is no stable key %s, which was named as %s", quote([]byte(name)), list.as))
			}
		}
	}
	if s.kind != RaftWAL && o.DropTorn {
		s.notes = append(s.notes, "nothing was left out: a raft-boltdb has no torn end")
	}
	return nil
}

func (s *source) stable(name string) (value []byte, ok bool) {
	for _, k := range s.keys {
		if string(k.name) == name {
			return k.value, true
		}
	}
	return nil, false
}

func (s *source) number(name string) (v uint64, ok bool) {
	b, ok := s.stable(name)
	if ok {
		v = binary.BigEndian.Uint64(b)
	}
	return v, ok
}

// checkStable compares the stable keys with each other: raft notes its term before a vote in it, and the vote's term
// before the candidate.
func (s *source) checkStable() error {
	term, hasTerm := s.number(currentTerm)
	vote, hasVote := s.number(lastVoteTerm)
	_, hasCand := s.stable(lastVoteCand)
	switch {
	case hasVote && !hasTerm:
		return corrupt(s.bolt.path, 0, "there is a vote in term %d, and no current term", vote)
	case hasVote && vote > term:
		return corrupt(s.bolt.path, 0, "there is a vote in term %d, and the current term is %d", vote, term)
	case hasCand && !hasVote:
		return corrupt(s.bolt.path, 0, "there is a vote, and no term of it")
	}
	return nil
}

// walk calls do for every entry, ascending, once it has been found plausible: raft's terms never go back, and none is
// above the current one. log is do's until it returns; what it refers to may be kept.
func (s *source) walk(do func(*raft.Log) error) error {
	current, hasCurrent := s.number(currentTerm)
	var last, term uint64
	begun := false
	check := func(off int64, log *raft.Log) error {
		path := s.bolt.path
		if s.wal != nil {
			path = s.path
		}
		bad := func(format string, args ...any) error {
			return corrupt(path, off, "index %d: %s", log.Index, fmt.Sprintf(format, args...))
		}
		switch {
		case log.Index == math.MaxUint64:
			return bad("there is no such index")
		case begun && log.Index <= last:
			return bad("it comes after index %d", last)
		case log.Term < term:
			return bad("term %d comes after term %d", log.Term, term)
		case hasCurrent && log.Term > current:
			return bad("its term is %d, and the current one is %d", log.Term, current)
		case log.Type > raft.LogConfiguration:
			return bad("its type is %d, which raft does not have", log.Type)
		}
		begun, last, term = true, log.Index, log.Term
		return do(log)
	}
	if s.wal != nil {
		return s.wal.walk(check)
	}
	return s.walkLogs(check)
}

// walkLogs is walk for a raft-boltdb.
func (s *source) walkLogs(do func(int64, *raft.Log) error) error {
	inside := false // the error is about an entry
	begun := false
	var log raft.Log
	var index uint64
	after := func() string {
		if !begun {
			return "before the first index"
		}
		return fmt.Sprintf("after index %d", index)
	}
	err := s.bolt.walk(s.bolt.buckets["logs"], func(it boltItem) error {
		inside = true
		if it.bucket || len(it.key) != 8 {
			return corrupt(s.bolt.path, it.off, "%s: the key %s is no index", after(), quote(it.key))
		}
		index = binary.BigEndian.Uint64(it.key)
		if err := decodeMsgpack(it.value, &log); err != nil {
			return corrupt(s.bolt.path, it.off, "index %d: the entry cannot be read: %v", index, err)
		}
		if log.Index != index {
			return corrupt(s.bolt.path, it.off, "index %d: the entry is that of index %d", index, log.Index)
		}
		if err := do(it.off, &log); err != nil {
			return err
		}
		begun, inside = true, false
		return nil
	})
	var e *holdfast.Error
	if !inside && errors.As(err, &e) && errors.Is(e.Class, holdfast.ErrCorrupt) {
		e.Detail = after() + ": " + e.Detail
	}
	return err
}

// check reads the whole log once, before anything of it is stored.
func (s *source) check(step func(*raft.Log) error) error {
	err := s.walk(func(log *raft.Log) error {
		if s.entries == 0 {
			s.first = log.Index
		} else if log.Index != s.last+1 {
			s.gaps++
		}
		s.entries++
		s.last, s.term = log.Index, log.Term
		s.bytes += size(log)
		return step(log)
	})
	if err != nil {
		return err
	}
	if _, ok := s.stable(currentTerm); !ok && s.entries > 0 {
		s.notes = append(s.notes, "there is no "+currentTerm+": terms and votes of this server are kept elsewhere, and must be copied from there before it runs again")
	}
	return nil
}

func size(log *raft.Log) int64 { return int64(len(log.Data)) + int64(len(log.Extensions)) }

// same reports in which field two logs differ, with an empty slice being the same as none.
func same(a, b *raft.Log) (field string, ok bool) {
	switch {
	case a.Index != b.Index:
		return "Index", false
	case a.Term != b.Term:
		return "Term", false
	case a.Type != b.Type:
		return "Type", false
	case !bytes.Equal(a.Data, b.Data):
		return "Data", false
	case !bytes.Equal(a.Extensions, b.Extensions):
		return "Extensions", false
	case !a.AppendedAt.Equal(b.AppendedAt):
		return "AppendedAt", false
	}
	return "", true
}
