package db

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
)

// Checkpoint puts into dir, an empty directory, a database with everything that is visible now. It shares with this one
// what nobody changes any more: tables, and segments but for the log's last and those that a compaction adds to. Those
// are copied, 64 MiB each at most unless a batch was larger. Writers, compactions and Compact go on; Close waits. When
// it returns, the files and their names in dir survive power loss. After an error, and the end of ctx is one, what it
// has put there is gone.
//
// In a database that is open for reading only it copies all of the log that no table names: nobody may have made that
// durable.
//
// What is shared is changed in one way alone, by this database or the other: an opening overwrites frames with
// themselves, and cuts off what lies behind the last one. Everything else is made anew, and removed by its name.
func (d *DB) Checkpoint(ctx context.Context, dir string) (err error) {
	if err := d.log.Err(); err != nil {
		return err
	}

	// From here on no file of this moment is removed. What is in the log is synced, so that the copy promises no more than
	// it has.
	p, release, err := d.Pin()
	if err != nil {
		return err
	}
	defer release()
	if !d.readOnly {
		if err := d.log.Sync(p.End.LSN); err != nil {
			return err
		}
	}

	// After an error everything that was made goes again, the last first. The context may have ended, so nothing here asks
	// it.
	c := &checkpoint{d: d, ctx: ctx, dir: dir}
	defer func() {
		if err == nil {
			return
		}

		for _, name := range slices.Backward(c.made) {
			d.files.Remove(name)
		}
		var e *holdfast.Error
		if format.IsNoRoom(err) && errors.As(err, &e) && e.Class == nil {
			e.Class = holdfast.ErrFull
		}
	}()

	// Files that are complete are linked; those that may grow are copied up to where they were.
	for _, id := range tablesOf(p.Manifest) {
		if err := c.link(format.TableName(d.files.Dir, id)); err != nil {
			return err
		}
	}

	put := func(s format.ManifestSegment, copied bool) error {
		name := format.SegmentName(d.files.Dir, s.ID)
		if copied {
			return c.copy(name, s.Size)
		}

		return c.link(name)
	}
	for _, s := range p.Manifest.Segments {
		if err := put(s, p.Growing[s.ID]); err != nil {
			return err
		}
	}

	for _, s := range p.Log {
		if err := put(s, p.Growing[s.ID] || d.readOnly); err != nil {
			return err
		}
	}

	// The manifest goes last: until its name is there, the directory holds no database. It says that all of the log was
	// synced, so that a copy cut short is found out.
	p.Manifest.Synced = p.End.LSN
	name := filepath.Join(dir, format.ManifestName)
	c.made = append(c.made, name, name+".new")
	d.otherSyncs.Add(2)

	return writeManifest(d.files.FS, dir, p.Manifest)
}

// checkpoint is one in the making.
type checkpoint struct {
	d    *DB
	ctx  context.Context
	dir  string
	made []string
}

// link shares a file.
func (c *checkpoint) link(name string) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	to := filepath.Join(c.dir, filepath.Base(name))
	if err := c.d.files.FS.Link(name, to); err != nil {
		e := &holdfast.Error{Op: "link", Engine: format.Name, Path: to, Cause: err}
		if !format.IsNoRoom(err) {
			e.Class, e.Remedy = holdfast.ErrUnavailable, "make a backup, or remove older checkpoints if there are too many"
		}

		return e
	}

	// Only what this checkpoint has made is removed after an error. A link that failed because the name was there is
	// not in the list.
	c.made = append(c.made, to)

	return nil
}

// copyAtOnce is how many bytes are copied between two looks at the context.
const copyAtOnce = 1 << 20

// copy copies the first size bytes of a file, durably but for its name.
func (c *checkpoint) copy(name string, size int64) (err error) {
	from, err := c.d.files.FS.Open(name)
	if err != nil {
		return format.IOError("open", name, err)
	}
	defer from.Close()
	to := filepath.Join(c.dir, filepath.Base(name))
	f, err := c.d.files.FS.Create(to)
	if err != nil {
		return format.IOError("create", to, err)
	}

	// It is noted before the first byte is written: what a failed copy leaves is removed too.
	c.made = append(c.made, to)
	defer func() {
		if closed := f.Close(); err == nil && closed != nil {
			err = format.IOError("close", to, closed)
		}
	}()

	b := make([]byte, min(size, copyAtOnce))
	for off := int64(0); off < size; {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		n, err := from.ReadAt(b[:min(size-off, int64(len(b)))], off)
		if n == 0 && errors.Is(err, io.EOF) {
			break // the file was cut in the padding of its last frame
		}
		if n == 0 {
			return format.ReadError(name, off, err)
		}
		if _, err := f.WriteAt(b[:n], off); err != nil {
			return format.IOError("write", to, err)
		}
		off += int64(n)
	}

	// The name becomes durable with the manifest, whose directory is synced after its rename.
	c.d.synced(size)
	if err := f.Sync(); err != nil {
		return format.IOError("sync", to, err)
	}

	return nil
}

// tablesOf returns the numbers of the tables that a manifest names, each once.
func tablesOf(m *format.Manifest) (ids []uint64) {
	for _, t := range m.Tiers {
		for _, r := range t.Refs {
			ids = append(ids, r.Table)
		}
	}
	slices.Sort(ids)

	return slices.Compact(ids)
}
