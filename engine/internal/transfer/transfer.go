// Package transfer makes a directory with the contents of another one: whole under its name, or not
// at all.
package transfer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/internal/home"
	"github.com/holdfastdb/holdfast/internal/apart"
)

// Make makes the directory dir: open opens the engine in a new directory beside it, fill fills that, and when
// everything in it is on the device it gets its name. What fill says is lost, in words, the new directory
// remembers. dir must not be there, or be empty, and not lie in a directory that an engine made: that is most
// likely the one to be copied.
//
// If it fails it leaves nothing. If the process ends, it may leave DIR.partial, which no engine opens once
// something is in it.
func Make(
	dir string, open func(dir string) (holdfast.Engine, error), fill func(holdfast.Engine) (lost string, err error),
) (err error) {
	fail := func(class error, path, detail, remedy string, cause error) error {
		return &holdfast.Error{Op: "make", Path: path, Class: class, Detail: detail, Remedy: remedy, Cause: cause}
	}
	if dir == "" {
		return fail(holdfast.ErrBadOption, "", "no directory is named", "name a new one", nil)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fail(nil, dir, "", "", err)
	}
	if err := apart.Check("make", dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	there := err == nil
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fail(holdfast.ErrBadOption, dir, "it cannot be replaced", "name a new directory", err)
	case len(entries) > 0:
		return fail(holdfast.ErrBadOption, dir, "it is not empty", "name a new directory", nil)
	}
	parent, partial := filepath.Dir(dir), dir+".partial"
	if err := home.MkdirAll(parent); err != nil {
		return fail(nil, parent, "", "", err)
	}
	if err := os.Mkdir(partial, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fail(holdfast.ErrBadOption, partial, "it is there already", "remove it if it was left by an interrupted backup or repair", nil)
		}
		return fail(nil, partial, "", "", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(partial))
		}
	}()
	e, err := open(partial)
	if err != nil {
		return err
	}
	if err := home.Hide(partial); err != nil {
		return errors.Join(fail(nil, partial, "", "", err), e.Close())
	}
	lost, err := fill(e)
	if f, ok := e.(interface{ Flush() error }); ok && err == nil {
		// Damage to a log takes whole batches, and what follows them may be in doubt; in an index it has a key.
		err = f.Flush()
	}
	if err != nil {
		return errors.Join(err, e.Close())
	}
	if err := e.Close(); err != nil {
		return err
	}
	if err := syncAll(partial); err != nil {
		return fail(nil, partial, "", "", err)
	}
	if err := home.Show(partial, lost); err != nil {
		return fail(nil, partial, "", "", err)
	}
	if there {
		if err := os.Remove(dir); err != nil {
			return fail(nil, dir, "it cannot be replaced", "name a new directory", err)
		}
	}
	if err := os.Rename(partial, dir); err != nil {
		return fail(nil, dir, "", "", err)
	}
	if err := home.SyncDir(parent); err != nil {
		return fail(nil, parent, "", "", err)
	}
	return nil
}

// Lost joins what earlier and later repairs could not salvage.
func Lost(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; and ")
}

// syncAll makes everything below dir durable: not every engine syncs at the level it was opened with.
func syncAll(dir string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return home.SyncDir(name)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

// batchBytes is the size of the batches in which a copy is written to an engine that makes a transaction of each.
const batchBytes = 1 << 20

// Copied counts what was copied.
type Copied struct {
	Keys, Bytes int64 // of keys and values
}

// Writer writes keys to an engine at the weakest level it gives; whoever closes or syncs the engine makes them
// durable. The batches are large only where each is a transaction on disk. Elsewhere each key has its own: damage
// takes whole batches.
type Writer struct {
	into  holdfast.Engine
	level holdfast.Level
	limit int
	batch holdfast.Batch
	Done  Copied
}

// NewWriter returns a writer to that engine.
func NewWriter(into holdfast.Engine) *Writer {
	c := into.Capabilities()
	w := &Writer{into: into, limit: int(min(batchBytes, c.MaxBatchSize/2))}
	for _, l := range holdfast.Levels() {
		if w.level == 0 && c.Promise(l).Given != 0 {
			w.level = l
		}
	}
	if c.Promise(w.level).Given == holdfast.Memory {
		w.limit = 0
	}
	return w
}

// Set writes one key.
func (w *Writer) Set(key, value []byte) error {
	w.batch.Set(key, value)
	w.Done.Keys++
	w.Done.Bytes += int64(len(key) + len(value))
	if w.batch.Size() >= w.limit || w.batch.Err() != nil {
		return w.Flush()
	}
	return nil
}

// Flush writes what is left.
func (w *Writer) Flush() error {
	if w.batch.Len() == 0 && w.batch.Err() == nil {
		return nil
	}
	err := holdfast.Commit(w.into, &w.batch, w.level)
	w.batch.Reset()
	return err
}

// Copy copies everything that from shows.
func Copy(into holdfast.Engine, from holdfast.Reader) (Copied, error) {
	w := NewWriter(into)
	it := from.Scan(holdfast.Range{})
	defer it.Close()
	for it.Next() {
		if err := w.Set(it.Key(), it.Value()); err != nil {
			return w.Done, err
		}
	}
	if err := it.Err(); err != nil {
		return w.Done, err
	}
	return w.Done, w.Flush()
}

// Snapshot copies what e shows now to the new directory dir, while others go on writing to e.
func Snapshot(e holdfast.Engine, dir string, open func(dir string) (holdfast.Engine, error)) (n Copied, err error) {
	s, err := e.Snapshot()
	if err != nil {
		return n, err
	}
	defer s.Close()
	err = Make(dir, open, func(into holdfast.Engine) (string, error) {
		n, err = Copy(into, s)
		return e.Capabilities().Lost, err
	})
	return n, err
}

// Files copies the regular files below dir to the new directory to.
func Files(dir, to string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.Mkdir(target, 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		return copyFile(name, target)
	})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}
