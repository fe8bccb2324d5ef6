package contender

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/all"
)

// FilesPlain is the name of plain files.
const FilesPlain = "files-plain"

// FileEngines returns the peers that keep one file a key, in the order in which they are shown.
func FileEngines() []all.Entry {
	return []all.Entry{{Name: FilesPlain, Open: OpenFilesPlain, Describe: DescribeFilesPlain}}
}

// DescribeFilesPlain says what plain files give, as programs write them.
func DescribeFilesPlain() holdfast.Capabilities {
	return holdfast.Capabilities{
		Engine: FilesPlain,
		Memory: holdfast.Promise{Given: holdfast.Memory, How: "os.WriteFile over the old file", CutMayCorrupt: true},
		Process: holdfast.Promise{Given: holdfast.Process, How: "a temporary file, renamed over the old one",
			CutMayCorrupt: true},
		Power: holdfast.Promise{Given: holdfast.Power,
			How: "a temporary file, synced, renamed over the old one; its folder, synced; each write by itself"},
		MaxKeySize: 200, MaxValueSize: holdfast.MaxValueSize, MaxBatchSize: holdfast.MaxValueSize,
		Caveats: []string{
			"It is what programs do by hand: there are no checksums, no order of keys but that of a sorted listing, no " +
				"snapshots, and nothing keeps a second program out.",
			"At memory a kill in the middle of a write leaves half of the new value in the place of the old one.",
			"At memory and process a power cut can leave empty files; the value before may be gone, too.",
		},
	}
}

// filesPlain is a folder with a file for each key, under its name.
type filesPlain struct {
	peer
	folder string
}

// OpenFilesPlain makes or opens a folder.
func OpenFilesPlain(dir string, o holdfast.Options) (holdfast.Engine, error) {
	h, _, err := begin(DescribeFilesPlain(), dir, o, false)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(h.Dir, "files")
	if err = datadir.MkdirAll(folder); err == nil {
		err = h.Made()
	}
	if err != nil {
		return nil, errors.Join(&holdfast.Error{Op: "open", Engine: FilesPlain, Path: dir, Cause: err}, h.Close())
	}
	c := new(counts)

	return &filesPlain{peer{name: FilesPlain, dir: h.Dir, describe: DescribeFilesPlain, counts: c,
		written: c.bytes.Load, only: "has no other operations", shut: h.Close}, folder}, nil
}

// Apply implements [holdfast.Engine]. What is applied is done when it returns; writes to one key at a time are the
// caller's business. Only sets and deletes of names that can be files' are taken.
func (e *filesPlain) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if err := e.describe().CheckLevel(level); err != nil {
		return holdfast.Receipt{}, err
	}
	if err := b.Err(); err != nil {
		return holdfast.Receipt{}, err
	}

	for op := range b.Ops() {
		path, err := e.path(op.Key)
		switch {
		case err != nil:
		case op.Kind == holdfast.KindSet:
			err = e.write(path, op.Value, level)
		case op.Kind == holdfast.KindDelete:
			if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			if err == nil && level == holdfast.Power {
				err = e.syncDir()
			}
		default:
			err = e.refuse("delete range")
		}
		if err != nil {
			return holdfast.Receipt{}, err
		}
	}

	return holdfast.Receipt{}, e.counts.commit(nil)
}

func (e *filesPlain) path(key []byte) (string, error) {
	name := string(key)
	if name == "" || name[0] == '.' || !filepath.IsLocal(name) || filepath.Base(name) != name {
		return "", &holdfast.Error{Op: "name a file", Engine: FilesPlain, Path: e.dir, Class: holdfast.ErrBadKey,
			Detail: "the key is no name of a file"}
	}

	return filepath.Join(e.folder, name), nil
}

func (e *filesPlain) write(path string, value []byte, level holdfast.Level) (err error) {
	e.counts.bytes.Add(int64(len(value)))
	if level == holdfast.Memory {
		return os.WriteFile(path, value, 0o644)
	}
	f, err := os.CreateTemp(e.folder, ".new-*")
	if err != nil {
		return err
	}
	if _, err = f.Write(value); err == nil && level == holdfast.Power {
		e.counts.syncs.Add(1)
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if level == holdfast.Power {
		return e.syncDir()
	}

	return nil
}

func (e *filesPlain) syncDir() error {
	e.counts.syncs.Add(1)
	return datadir.SyncDir(e.folder)
}

// Get implements [holdfast.Engine].
func (e *filesPlain) Get(dst, key []byte) ([]byte, error) {
	path, err := e.path(key)
	if err != nil {
		return dst, err
	}
	value, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return dst, holdfast.ErrNotFound
	}

	return append(dst, value...), err
}

// Scan implements [holdfast.Engine], forwards only. It reads the folder at once, and each file when it comes to it.
func (e *filesPlain) Scan(r holdfast.Range) holdfast.Iterator {
	if r.Reverse {
		return holdfast.FailedIterator(e.refuse("scan backwards"))
	}
	list, err := os.ReadDir(e.folder) // in the order of bytes
	if err != nil {
		return holdfast.FailedIterator(err)
	}

	c := &plainCursor{engine: e}
	for _, f := range list {
		if name := f.Name(); name[0] != '.' && name >= string(r.Lo) && (len(r.Hi) == 0 || name < string(r.Hi)) {
			c.names = append(c.names, name)
		}
	}

	return driver.NewIterator(c)
}

// plainCursor walks over the names that there were.
type plainCursor struct {
	engine *filesPlain
	names  []string
	value  []byte
}

// Next implements [driver.Cursor].
func (c *plainCursor) Next() (key, value []byte, err error) {
	// What was removed since is passed over.
	for len(c.names) > 0 {
		key, c.names = []byte(c.names[0]), c.names[1:]
		if c.value, err = c.engine.Get(c.value[:0], key); !errors.Is(err, holdfast.ErrNotFound) {
			return key, c.value, err
		}
	}

	return nil, nil, nil
}

// Close implements [driver.Cursor].
func (c *plainCursor) Close() error { return nil }

// Sync implements [holdfast.Engine]: it syncs every file, and the folder.
func (e *filesPlain) Sync() error {
	if err := e.peer.Sync(); err != nil {
		return err
	}
	list, err := os.ReadDir(e.folder)
	if err != nil {
		return err
	}

	for _, entry := range list {
		f, err := os.OpenFile(filepath.Join(e.folder, entry.Name()), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}

	return e.syncDir()
}
