package all

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/all/internal/bare"
	"github.com/holdfastdb/holdfast/engine/internal/enginecopy"
	"github.com/holdfastdb/holdfast/engine/postgres"
)

// CopyOptions are the options of [Copy].
type CopyOptions struct {
	Engine string           // of the new directory; [Default] if empty
	Open   holdfast.Options // options of the new directory

	// Only and Separator are for sources of bbolt and SQLite, see [Copy].
	Only      string
	Separator byte
}

// CopyResult says what was copied.
type CopyResult struct {
	Source string   // what made it: an engine, or a library
	Engine string   // of the new directory
	Keys   int64    // copied and compared
	Bytes  int64    // of keys and values
	Notes  []string // features of the source that were not copied

	// Buckets is how many buckets of a database of package kv were made; -1 if the copy has no database.
	Buckets int64
}

// Copy makes a new directory, into, with all keys and values of from, and compares each before the directory gets its
// name. After an error nothing is left. from is not changed: a store that cannot be opened read-only is copied
// next to the new one first. Both may be spaces of a server: from is its address then, and into the dir of [ParseURL].
// from is a directory that an engine made, not open elsewhere for writing, or a store of one
// of these libraries, not in use:
//
//	Badger, Pebble   a directory; keys are as they are
//	bbolt            a file; its buckets are those of the new engine's database, which kv.On opens, with what is in them
//	                 and their sequences. With Only or Separator there is no database, and a key is the names of its
//	                 buckets, a Separator after each, and the key
//	SQLite           a file; a key is the table's name, a Separator, and the primary key: text and blobs as they are,
//	                 integers as 8 bytes, big-endian. The value is that of the only other column, as text if it is a
//	                 number, or a JSON object of all others, in which a blob is {"base64":"..."}
//
// The Separator is a slash unless it is named. Only names one bucket or table, whose keys then have no prefix. Notes
// lists what was not copied, such as times to live. Data that would be changed or lost is refused, with its key: keys
// and values over the limits of the new engine, names of buckets of over 1024 bytes, range keys of Pebble, negative or
// composite primary keys, names that have the separator in them.
func Copy(ctx context.Context, from, into string, o CopyOptions) (*CopyResult, error) {
	if o.Engine == "" {
		o.Engine = Default
	}
	entry, err := Lookup(o.Engine)
	if err != nil {
		return nil, err
	}
	if entry.Describe().Strongest() == holdfast.Memory || o.Open.ReadOnly {
		return nil, &holdfast.Error{Op: "copy", Engine: o.Engine, Path: into, Class: holdfast.ErrBadOption,
			Detail: "the copy must be written to a directory", Remedy: "name another engine, and no read-only"}
	}
	_, fromServer := serverOf(from)
	if !fromServer && !OnServer(o.Engine) {
		if err := datadir.CheckOverlap("copy", into, from); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(from); err != nil && !fromServer {
		return nil, &holdfast.Error{Op: "copy", Path: from, Cause: err}
	}
	c := &CopyResult{Engine: o.Engine, Buckets: -1}
	open := func(dir string) (holdfast.Engine, error) { return entry.Open(dir, o.Open) }
	fill := func(to holdfast.Engine, scratch string) (loss datadir.Loss, err error) {
		defer func() { err = errors.Join(aboutSource(err, scratch, from), os.RemoveAll(scratch)) }()
		s, err := c.open(ctx, from, scratch, o)
		if err != nil {
			return loss, err
		}
		if s.buckets != nil {
			err = c.fillBuckets(ctx, to, s.buckets)
		} else {
			err = c.fill(ctx, to, s)
		}
		err = opFor("copy", err)
		if closed := s.close(); err == nil {
			err = closed
		}
		c.Notes = s.notes()

		return s.loss, err
	}
	if OnServer(o.Engine) {
		err = fillServer(into, o.Open, fill)
	} else {
		err = enginecopy.Make(ctx, "copy", into, open, fill)
	}
	if err != nil {
		return nil, err
	}

	return c, nil
}

// fillServer is enginecopy.Make of a space of a server.
func fillServer(into string, o holdfast.Options,
	fill func(to holdfast.Engine, scratch string) (datadir.Loss, error)) error {
	scratch, err := os.MkdirTemp("", "holdfast-copy-")
	if err != nil {
		return &holdfast.Error{Op: "copy", Cause: err}
	}
	defer os.RemoveAll(scratch)

	return postgres.Fill(into, o, func(to holdfast.Engine) (lost, accepted string, err error) {
		loss, err := fill(to, filepath.Join(scratch, "source"))
		return loss.Lost, loss.Accepted, err
	})
}

// source is an open source of a copy.
type source struct {
	walk  func(each func(key, value []byte) error) error
	close func() error
	notes func() []string
	loss  datadir.Loss
	// named is set where keys begin with the name of a bucket or table, which CopyOptions.Only leaves out.
	named bool
	// buckets is set where they become those of a database, and walk is not used.
	buckets *bare.Source
}

func (c *CopyResult) open(ctx context.Context, from, scratch string, o CopyOptions) (*source, error) {
	var mark datadir.Mark
	var maker Entry
	var err error
	if name, ok := serverOf(from); ok {
		return c.openServer(name, from, o)
	}
	// A file is not opened to look at it: closing it would give up this process's locks on it.
	file := isFile(from)
	if !file {
		var damage error
		if mark, maker, damage, err = identify("copy", from); damage != nil {
			return nil, damage
		}
		if err != nil && !errors.Is(err, holdfast.ErrForeign) {
			return nil, err
		}
	}
	if file || err != nil {
		b, err := bare.Open(ctx, from, scratch, bare.Options{Only: o.Only, Separator: o.Separator})
		if err != nil {
			return nil, opFor("copy", err)
		}
		c.Source = b.Kind
		s := &source{walk: b.Walk, close: b.Close, notes: func() []string { return b.Notes }, named: file && o.Only == ""}
		if b.HasBuckets() && o.Only == "" && o.Separator == 0 {
			s.buckets = b
		}
		return s, nil
	}
	if o.Only != "" || o.Separator != 0 {
		return nil, &holdfast.Error{Op: "copy", Engine: mark.Engine, Path: from, Class: holdfast.ErrBadOption,
			Detail: "an engine's directory has neither buckets nor tables", Remedy: "leave --only and --separator out"}
	}
	at := from
	if maker.Open == nil || !maker.Describe().ReadOnly { // opening it could change it
		if err := copyFiles(ctx, "copy", from, scratch); err != nil {
			return nil, err
		}
		at = scratch
	}
	e, err := OpenDir("", at, holdfast.Options{ReadOnly: true})
	if err != nil {
		return nil, opFor("copy", err)
	}

	return c.read(mark.Engine, e)
}

// openServer opens a space of a server, which must not be open elsewhere.
func (c *CopyResult) openServer(name, from string, o CopyOptions) (*source, error) {
	if o.Only != "" || o.Separator != 0 {
		return nil, &holdfast.Error{Op: "copy", Engine: name, Path: Shown(from), Class: holdfast.ErrBadOption,
			Detail: "a server has neither buckets nor tables", Remedy: "leave --only and --separator out"}
	}
	e, err := OpenURL(from)
	if err != nil {
		return nil, opFor("copy", err)
	}

	return c.read(name, e)
}

// read is the source that an engine is. Closing it closes the engine.
func (c *CopyResult) read(name string, e holdfast.Engine) (*source, error) {
	snapshot, err := e.Snapshot()
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	c.Source = name
	walk := func(each func(key, value []byte) error) error {
		it := snapshot.Scan(holdfast.Range{})
		defer it.Close()

		for it.Next() {
			if err := each(it.Key(), it.Value()); err != nil {
				return err
			}
		}

		return it.Err()
	}

	return &source{walk: walk, notes: func() []string { return nil }, loss: enginecopy.LossOf(e),
		close: func() error { return errors.Join(snapshot.Close(), e.Close()) }}, nil
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// copyFiles copies the files of a directory that no program has open for writing, with Holdfast or with the library
// that its engine uses.
func copyFiles(ctx context.Context, op, from, to string) error {
	release, err := datadir.Hold(from)
	if err != nil {
		return opFor(op, err)
	}
	defer release()
	if err := datadir.CheckUnused(op, from); err != nil {
		return err
	}
	if err := datadir.CopyFiles(ctx, from, to); err != nil {
		return datadir.Full(&holdfast.Error{Op: op, Path: from, Cause: err})
	}

	return nil
}

// aboutSource makes an error about what is in the copy of a source, which will be gone, one about the source.
func aboutSource(err error, scratch, from string) error {
	var e *holdfast.Error
	if errors.As(err, &e) && e.Class != nil {
		return sourceError{err, scratch, from}
	}

	return err
}

type sourceError struct {
	error
	scratch, from string
}

func (e sourceError) Error() string { return strings.ReplaceAll(e.error.Error(), e.scratch, e.from) }

func (e sourceError) Unwrap() error { return e.error }

// opFor names the operation that an error is about.
func opFor(op string, err error) error {
	if e, ok := err.(*holdfast.Error); ok {
		e.Op = op
	}

	return err
}

// fill writes every key to a new engine and compares what is there then.
func (c *CopyResult) fill(ctx context.Context, to holdfast.Engine, s *source) error {
	limits := to.Capabilities()
	polled := func(each func(key, value []byte) error) error {
		return s.walk(func(key, value []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}

			return each(key, value)
		})
	}
	w := enginecopy.NewWriter(to)
	if err := polled(func(key, value []byte) error {
		if err := fits(limits, key, value, s.named); err != nil {
			return err
		}

		return w.Set(key, value)
	}); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	c.Keys, c.Bytes = w.Keys, w.Bytes

	// What is compared comes from files where the engine has a way to write its memory to them.
	if f, ok := to.(interface{ Flush() error }); ok {
		if err := f.Flush(); err != nil {
			return err
		}
	}
	compared, there := int64(0), int64(0)
	var got []byte
	if err := polled(func(key, value []byte) (err error) {
		if got, err = to.Get(got[:0], key); datadir.OfSystem(err) {
			return err
		} else if err != nil || !bytes.Equal(got, value) {
			return &holdfast.Error{Op: "compare", Engine: c.Engine, Class: holdfast.ErrCorrupt,
				Detail: fmt.Sprintf("key %.40q has not the value that was copied", key), Cause: err}
		}
		compared++

		return nil
	}); err != nil {
		return err
	}

	it := to.Scan(holdfast.Range{})
	defer it.Close()

	for ctx.Err() == nil && it.Next() {
		there++
	}
	if err := cmp.Or(ctx.Err(), it.Err()); err != nil {
		return err
	}
	if compared != c.Keys || there != c.Keys {
		return &holdfast.Error{Op: "compare", Engine: c.Engine, Class: holdfast.ErrCorrupt,
			Detail: fmt.Sprintf("%d keys were copied, %d compared, and %d are there", c.Keys, compared, there)}
	}

	return nil
}

// fits refuses a key or value over the limits of an engine. named is that of its source.
func fits(limits holdfast.Capabilities, key, value []byte, named bool) error {
	remedy := "change it in the source"
	if named {
		remedy += ", or copy its bucket or table alone (--only), without the name before its keys"
	}

	refuse := func(class error, detail string, args ...any) error {
		return &holdfast.Error{Op: "copy", Engine: limits.Engine, Class: class,
			Detail: fmt.Sprintf("key %.40q ", key) + fmt.Sprintf(detail, args...), Remedy: remedy}
	}
	switch {
	case len(key) == 0:
		return refuse(holdfast.ErrBadKey, "is empty")
	case int64(len(key)) > limits.MaxKeySize:
		return refuse(holdfast.ErrBadKey, "has %d bytes, and keys there have at most %d", len(key), limits.MaxKeySize)
	case int64(len(value)) > limits.MaxValueSize:
		return refuse(holdfast.ErrTooLarge, "has a value of %d bytes, and values there have at most %d", len(value),
			limits.MaxValueSize)
	}

	return nil
}
