// Package bare reads stores that programs have made with a library itself, without Holdfast: a file of bbolt, a
// directory of Badger or Pebble, a database of SQLite. Each is read with its library.
//
// The library gets a copy of the files. So nothing in the source can change, also where a library recovers or
// tidies up what it opens. The source must not be in use: Open asks for its locks, and sees that no file
// changes while it is copied.
package bare

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

// Options say how buckets and tables become keys.
type Options struct {
	// Only names the bucket of bbolt or the table of SQLite to read; its keys get no prefix. Empty means all. Buckets
	// inside others are named as in a prefix, with Separator between the names.
	Only string
	// Separator follows each name of a bucket or table in a prefix; 0 means a slash.
	Separator byte
}

// Source is an open store.
type Source struct {
	Kind  string   // the library
	Notes []string // what is in it and has no place in a map of keys; complete after the first Walk
	path  string
	ctx   context.Context // of Open and of all that follows
	walk  func(each func(key, value []byte) error) error
	tree  func(bucket func(*Bucket) error, each func(b *Bucket, key, value []byte) error) error // nil if there are none
	close func() error
}

// Bucket is a bucket of a source.
type Bucket struct {
	Path     []string // the names of the buckets that it is in, and its own
	Sequence uint64
}

// kind is one library.
type kind struct {
	name   string
	isFile bool // otherwise a directory
	is     func(path string) bool
	lock   string   // what is locked while it is in use, below the path
	also   []string // what other files' names end in, after the path
	open   func(s *Source, copied string, o Options) error
}

var kinds = []kind{
	{name: "bbolt", isFile: true, is: isBolt, open: openBolt},
	{name: "badger", is: isBadger, open: openBadger},
	{name: "pebble", is: isPebble, lock: "LOCK", open: openPebble},
	{name: "sqlite", isFile: true, is: isSQLite, also: []string{"-wal", "-journal"}, open: openSQLite},
}

func fail(path string, class error, detail, remedy string, cause error) error {
	return &holdfast.Error{Op: "read", Path: path, Class: class, Detail: detail, Remedy: remedy, Cause: cause}
}

// Open copies the files of the store at path to scratch, which must not exist, and opens the copy. ErrForeign: this
// package does not know its format. ErrLocked: it is in use, also by this process. The caller removes scratch, also
// after an error. When ctx ends, Open and Walk return its error soon.
func Open(ctx context.Context, path, scratch string, o Options) (_ *Source, err error) {
	// Before anything is opened: closing a file gives up all locks of processes that this one has on it.
	release, err := datadir.HoldFile("read", path)
	if err != nil {
		return nil, err
	}
	defer release()
	k, err := detect(path)
	if err != nil {
		return nil, err
	}
	s := &Source{Kind: k.name, path: path, ctx: ctx}
	if o.Separator == 0 {
		o.Separator = '/'
	}
	if o.Only != "" && !k.isFile {
		return nil, fail(path, holdfast.ErrBadOption, k.name+" has neither buckets nor tables", "leave --only out", nil)
	}
	copied, err := k.copy(ctx, path, scratch)
	if err != nil {
		return nil, err
	}
	defer s.recovered(&err)

	return s, k.open(s, copied, o)
}

// Walk calls each with every key and value, which are valid during the call. It stops at the first error, and can be
// called again.
func (s *Source) Walk(each func(key, value []byte) error) (err error) {
	s.Notes = nil
	defer s.recovered(&err)

	return s.walk(each)
}

// HasBuckets reports whether the source can be walked bucket by bucket.
func (s *Source) HasBuckets() bool { return s.tree != nil }

// WalkBuckets calls bucket with every bucket, before it calls each with the keys of that. Buckets that are in another
// come between its keys. Otherwise it is as Walk.
func (s *Source) WalkBuckets(bucket func(*Bucket) error, each func(b *Bucket, key, value []byte) error) (err error) {
	s.Notes = nil
	defer s.recovered(&err)
	return s.tree(bucket, each)
}

// recovered turns a panic into an error: libraries panic on some damage. A damaged offset in a mapped file is a memory
// fault.
func (s *Source) recovered(err *error) {
	if r := recover(); r != nil {
		*err = fail(s.path, holdfast.ErrCorrupt, fmt.Sprintf("%s failed: %v", s.Kind, r), "restore it from a backup", nil)
	}
}

// Close closes the library.
func (s *Source) Close() error { return s.close() }

func (s *Source) note(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

// damaged is the error for what a library says of the files.
func (s *Source) damaged(err error) error {
	if err == nil {
		return nil
	}
	if s.ctx.Err() != nil { // SQLite says that it was interrupted
		return s.ctx.Err()
	}
	if err = datadir.SystemError(sqliteError(err)); datadir.OfSystem(err) { // about the copy
		return datadir.Full(fail(s.path, nil, s.Kind+" cannot read a copy of it", "", err))
	}

	return fail(s.path, holdfast.ErrCorrupt, s.Kind+" cannot read it",
		"open it once with the program that made it, or restore it from a backup", err)
}

// refused is the error for something that cannot become a key with a value.
func (s *Source) refused(class error, what, why, remedy string) error {
	return fail(s.path, class, what+" "+why, remedy, nil)
}

// faults makes memory faults of this goroutine panics, until what it returns is called.
func faults() func() {
	was := debug.SetPanicOnFault(true)
	return func() { debug.SetPanicOnFault(was) }
}

func detect(path string) (kind, error) {
	st, err := os.Stat(path)
	if err != nil {
		return kind{}, fail(path, nil, "", "", err)
	}

	for _, k := range kinds {
		if k.isFile != st.IsDir() && k.is(path) {
			return k, nil
		}
	}

	return kind{}, fail(path, holdfast.ErrForeign,
		"it was made neither by holdfast nor by bbolt, Badger, Pebble or SQLite",
		"name a directory that holdfast made, a file of bbolt or SQLite, or a directory of Badger or Pebble", nil)
}

// head reads the first bytes of a file.
func head(path string, n int) []byte {
	f, closeFile, err := datadir.OpenToRead(path)
	if err != nil {
		return nil
	}
	defer closeFile()
	b := make([]byte, n)
	read, _ := io.ReadFull(f, b)

	return b[:read]
}

func isBolt(path string) bool {
	b := head(path, 20)
	return len(b) == 20 && binary.NativeEndian.Uint32(b[16:]) == 0xED0CDAED
}

func isSQLite(path string) bool { return string(head(path, 16)) == "SQLite format 3\x00" }

func isBadger(path string) bool { return string(head(filepath.Join(path, "MANIFEST"), 4)) == "Bdgr" }

func isPebble(path string) bool {
	entries, err := os.ReadDir(path) // a path can have characters that mean something to filepath.Glob

	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return strings.HasPrefix(e.Name(), "marker.manifest.")
	})
}

// copy copies the files, and returns where the copy is. They must be the same before and after.
func (k kind) copy(ctx context.Context, path, scratch string) (string, error) {
	if k.lock != "" {
		release, err := datadir.HoldFile("read", filepath.Join(path, k.lock))
		if err != nil {
			return "", err
		}
		defer release()
	}
	before, err := state(path, k.also)
	if err != nil {
		return "", fail(path, nil, "", "", err)
	}
	copied := scratch
	if k.isFile {
		copied = filepath.Join(scratch, "store")
		if err := os.Mkdir(scratch, 0o700); err != nil {
			return "", fail(scratch, nil, "", "", err)
		}
	}

	for _, suffix := range append([]string{""}, k.also...) {
		if _, err := os.Stat(path + suffix); suffix != "" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		// A link is resolved: the files are copied, not it.
		from, err := filepath.EvalSymlinks(path + suffix)
		if err == nil {
			err = datadir.CopyFiles(ctx, from, copied+suffix)
		}
		if err != nil {
			return "", datadir.Full(fail(path, nil, "copy to "+scratch, "", err))
		}
	}
	after, err := state(path, k.also)
	if err != nil || after != before {
		return "", fail(path, holdfast.ErrLocked, "it changed while it was copied", "close it there first", nil)
	}

	return copied, nil
}

// state returns what changes when files are written to.
func state(path string, also []string) (string, error) {
	var s strings.Builder
	add := func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err == nil {
			fmt.Fprintln(&s, name, st.Size(), st.ModTime().UnixNano())
		}

		return err
	}
	for i, suffix := range append([]string{""}, also...) {
		name := path + suffix
		if real, err := filepath.EvalSymlinks(name); err == nil {
			name = real
		}
		if err := filepath.WalkDir(name, add); err != nil && (i == 0 || !errors.Is(err, fs.ErrNotExist)) {
			return "", err
		}
	}

	return s.String(), nil
}

// prefixed returns prefix and key as one key.
func prefixed(dst []byte, prefix string, key []byte) []byte {
	return append(append(dst[:0], prefix...), key...)
}
