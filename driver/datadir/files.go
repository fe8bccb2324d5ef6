package datadir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

var syncDir = SyncDir // another one in tests

// MkdirAll makes dir and its missing parents, and syncs the directories that hold them, so that a power cut does not
// take the directory away. It syncs the nearest one that is there already, too: its maker may have been killed
// before.
func MkdirAll(dir string) error {
	if st, err := os.Stat(dir); err == nil {
		if !st.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}

		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if _, err := os.Stat(parent); err == nil {
			_ = syncDir(filepath.Dir(parent)) // it need not be ours to sync
		} else if err := MkdirAll(parent); err != nil {
			return err
		}
	}

	// Another process may have made it since; its name is synced all the same.
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}

	return syncDir(parent)
}

// Rename renames from to to, in the same directory, replacing it, and returns when that survives a power cut. The
// contents of from must be synced before. If the process ends, to is either the old file or the new one.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}

	return SyncDir(filepath.Dir(to))
}

// syncAll makes everything below dir durable: not every engine syncs at the level it was opened with.
func syncAll(dir string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return SyncDir(name)
		}
		if !d.Type().IsRegular() {
			return nil
		}

		// Windows syncs only what is open for writing.
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return err
		}

		return errors.Join(f.Sync(), f.Close())
	})
}

// checkRegular finds what is neither a file nor a directory, in dir and in the directories in it: to open a pipe in the
// place of a file would wait for ever. What cannot be looked at is found by whoever opens it.
func checkRegular(dir string) error {
	return checkEntries(dir, true)
}

// checkEntries is checkRegular of one directory, and of those in it if below is set. Deeper ones are not looked at.
func checkEntries(dir string, below bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}

	for _, e := range entries {
		name, kind := filepath.Join(dir, e.Name()), e.Type()

		// A link counts as what it leads to; a dangling one is left to whoever opens it.
		if kind&fs.ModeSymlink != 0 {
			if info, err := os.Stat(name); err == nil {
				kind = info.Mode().Type()
			} else {
				continue
			}
		}

		switch {
		// What opens a socket fails at once; servers keep theirs beside their files.
		case kind.IsRegular(), kind&fs.ModeSocket != 0:
		case kind.IsDir() && below:
			if err := checkEntries(name, false); err != nil {
				return err
			}
		case kind.IsDir():
		default:
			return fmt.Errorf("%s is no file but a %s", name, describeKind(kind))
		}
	}

	return nil
}

// describeKind names a kind of file that is no regular file.
func describeKind(kind fs.FileMode) string {
	switch {
	case kind&fs.ModeNamedPipe != 0:
		return "pipe"
	case kind&fs.ModeSocket != 0:
		return "socket"
	case kind&fs.ModeDevice != 0:
		return "device"
	}

	return "special file"
}

// Usage counts the regular files below dir and the bytes they take on the device, but for those of [Temp]. What
// cannot be read, because it is just being removed, counts nothing.
func Usage(dir string) (files, bytes int64) {
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && isTemp(dir, name) {
			return fs.SkipDir
		}
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			files++
			bytes += allocated(info)
		}

		return nil
	})

	return files, bytes
}

// CopyFiles copies the directories and files below dir, but for [Temp], to the new directory to, without the holes of
// the files. Its parents are made. dir may be a link. In place of a link to a file the copy has the file: changes of
// the copy do not reach the original. Anything else, such as a link to a directory, is an error that names it, and so
// is the end of ctx.
func CopyFiles(ctx context.Context, dir, to string) error {
	dir, err := filepath.EvalSymlinks(dir) // a walk does not follow a link that it begins with
	if err != nil {
		return err
	}

	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}

		target := filepath.Join(to, rel)

		// WalkDir calls a directory before what is in it, so the target's is made in time.
		switch {
		case d.IsDir() && isTemp(dir, name):
			return fs.SkipDir
		case d.IsDir() && name == dir:
			return os.MkdirAll(target, 0o700)
		case d.IsDir():
			return os.Mkdir(target, 0o700)
		}

		// Stat follows a link, so that the copy has the file and not the link.
		if st, err := os.Stat(name); err != nil {
			return err
		} else if !st.Mode().IsRegular() {
			return &fs.PathError{Op: "copy", Path: name, Err: errors.New("it is neither a file nor a directory of its own")}
		}

		return copyFile(ctx, name, target)
	})
}

// copyAtOnce is how much of a file is copied between two looks at the context.
const copyAtOnce = 8 << 20

// copyFile copies one file, hole by hole. to must not be there. It is not synced; Make does that for all.
func copyFile(ctx context.Context, from, to string) (err error) {
	in, closeIn, err := OpenToRead(from)
	if err != nil {
		return err
	}
	defer closeIn()
	size, err := in.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()

	for at := int64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return err
		}

		// What lies between two stretches of data is a hole, which the copy gets by not writing there.
		data, end, err := dataAfter(in, at, size)
		if err != nil {
			return err
		}

		end = min(end, data+copyAtOnce)
		for _, f := range []*os.File{in, out} {
			if _, err := f.Seek(data, io.SeekStart); err != nil {
				return err
			}
		}
		if _, err := io.CopyN(out, in, end-data); err != nil {
			return err
		}
		at = end
	}

	return out.Truncate(size) // it may end with a hole
}
