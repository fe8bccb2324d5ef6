package datadir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/holdfastdb/holdfast"
)

// What is added to the name of a directory that is being made for the directories next to it.
const (
	partialSuffix = ".partial" // what it is called meanwhile
	scratchSuffix = ".source"  // a copy of what it is made from
)

// Make makes the directory dir, whole or not at all. fill puts files in a new directory next to it, DIR.partial, and
// ends all use of them; when all are on the device, DIR.partial gets the name dir. If fill has hidden it, it is shown
// just before: dir can then be opened, and its mark says what fill says is lost, in words. Only a hidden directory can
// record a loss.
//
// dir must not lie in a directory that an engine made: that is most likely the source. It must not exist, or be empty;
// an empty one gives the new one its mode and, where the system lets it, its owner, and a symbolic link to it stays.
// It must not be the working directory: a shell in it would see none of the new files. Missing parents are made.
// Everything else is ErrBadOption.
//
// If Make fails it leaves nothing but parents; only if its last step fails, the sync of dir's name, is dir there. If
// the process ends, it may leave DIR.partial. The next Make refuses to go on, since another one may be working there,
// and names it. op is for the errors.
func Make(op, dir string, fill func(partial string) (loss Loss, err error)) (err error) {
	return publish(op, dir, fill, syncAll)
}

// Checkpoint is [Make] of a directory that shares files with h's, by hard links, for the engine that has h open: it
// gets h's mark. fill makes durable what it does not share, and the names in the directories that it makes in partial.
// ErrUnavailable: no file can be linked there, most likely because it is another file system. ErrFull: there is no
// room.
func (h *Handle) Checkpoint(ctx context.Context, dir string, fill func(partial string) error) error {
	const op = "checkpoint"
	if err := holdfast.CheckContext(ctx); err != nil {
		return err
	}
	return publish(op, dir, func(partial string) (Loss, error) {
		if err := errors.Join(ctx.Err(), h.Check()); err != nil {
			return Loss{}, err
		}
		// Marks are replaced, never changed. Under this name it does not count until all else is there.
		if err := os.Link(filepath.Join(h.Dir, markName), filepath.Join(partial, hiddenName)); err != nil {
			e := &holdfast.Error{Op: op, Engine: h.name, Path: dir, Cause: err, Class: holdfast.ErrUnavailable,
				Detail: "it cannot share files with " + h.Dir,
				Remedy: "name a directory on the same file system, or make a backup"}
			if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
				e.Class, e.Detail, e.Remedy = holdfast.ErrFull, "", "make room on the disk"
			}
			return Loss{}, e
		}
		if err := fill(partial); err != nil {
			return Loss{}, err
		}
		return Loss{}, errors.Join(ctx.Err(), h.Check())
	}, SyncDir)
}

// publish is Make; sync makes durable what is in a directory.
func publish(
	op, dir string, fill func(partial string) (loss Loss, err error), sync func(dir string) error,
) (err error) {
	fail := func(class error, path, detail, remedy string, cause error) error {
		return &holdfast.Error{Op: op, Path: path, Class: class, Detail: detail, Remedy: remedy, Cause: cause}
	}
	if err := CheckOverlap(op, dir); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fail(nil, dir, "", "", err)
	}
	was, err := os.Lstat(dir) // nil if it is not there
	mode := os.FileMode(0o755)
	if err == nil {
		const remedy = "name a directory that is new or empty"
		target, err := filepath.EvalSymlinks(dir)
		if err == nil {
			was, err = os.Stat(target)
		}
		var entries []os.DirEntry
		if err == nil {
			entries, err = os.ReadDir(target)
		}
		switch {
		case err != nil:
			return fail(holdfast.ErrBadOption, dir, "it cannot be replaced", remedy, err)
		case len(entries) > 0:
			return fail(holdfast.ErrBadOption, dir, "it is not empty", remedy, nil)
		case isWorking(was):
			return fail(holdfast.ErrBadOption, dir, "it is the working directory, which cannot be replaced",
				"name a new directory in it, or run this elsewhere", nil)
		}
		dir, mode = target, 0o700 // private until it has its mode
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fail(holdfast.ErrBadOption, dir, "", "name another directory", err)
	}
	parent, partial := filepath.Dir(dir), dir+partialSuffix
	if err := MkdirAll(parent); err != nil {
		return fail(nil, parent, "", "", err)
	}
	if err := os.Mkdir(partial, mode); errors.Is(err, fs.ErrExist) {
		return leftOver(op, partial, dir+scratchSuffix)
	} else if err != nil {
		return fail(nil, partial, "", "the directory above must be writable", err)
	}
	defer func() {
		if err != nil {
			if left := os.RemoveAll(partial); left != nil {
				err = errors.Join(err, left)
			}
		}
	}()
	loss, err := fill(partial)
	if err != nil {
		return err
	}
	if err := sync(partial); err != nil {
		return fail(nil, partial, "", "", err)
	}
	if _, err := os.Lstat(filepath.Join(partial, hiddenName)); err == nil || loss != (Loss{}) {
		if err := show(partial, loss); err != nil {
			return fail(nil, partial, "", "", err)
		}
	}
	if was != nil {
		if err := become(partial, was); err != nil {
			return fail(nil, partial, "it cannot be given the mode of the directory that it replaces",
				"name a new directory", err)
		}
		if err := os.Remove(dir); err != nil {
			return fail(nil, dir, "it cannot be replaced", "name a new directory", err)
		}
	}
	if err := os.Rename(partial, dir); err != nil {
		return fail(nil, dir, "", "", err)
	}
	if err := SyncDir(parent); err != nil {
		return fail(nil, parent, "the copy is there, but a power cut could still take away its name", "", err)
	}
	return nil
}

// Scratch returns where a tool that makes dir puts a copy of its source meanwhile: DIR.source. ErrBadOption: that
// exists already. op is for the errors.
func Scratch(op, dir string) (string, error) {
	dir, err := filepath.Abs(dir) // without a slash at its end, behind which the name would be one in dir
	if err != nil {
		return "", &holdfast.Error{Op: op, Path: dir, Cause: err}
	}
	scratch := dir + scratchSuffix
	if _, err := os.Lstat(scratch); err == nil {
		return "", leftOver(op, scratch, dir+partialSuffix)
	}
	return scratch, nil
}

// leftOver is the error about a directory that is there already. If other is, too, it says so: both can be removed at
// once.
func leftOver(op, path, other string) error {
	detail, remedy := "it is there already", "remove it if it was left by an interrupted "+op
	if _, err := os.Lstat(other); err == nil {
		detail, remedy = "it is there already, and so is "+other, "remove both if they were left by an interrupted "+op
	}
	return &holdfast.Error{Op: op, Path: path, Class: holdfast.ErrBadOption, Detail: detail, Remedy: remedy}
}

// isWorking reports whether dir is the working directory.
func isWorking(dir fs.FileInfo) bool {
	st, err := os.Stat(".")
	return err == nil && os.SameFile(st, dir)
}

// become gives the directory the mode of another, durably, and its owner if that is allowed.
func become(dir string, other fs.FileInfo) error {
	chown(dir, other) // which may take bits from the mode
	if err := os.Chmod(dir, other.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky)); err != nil {
		return err
	}
	if other.Mode()&0o400 == 0 { // it cannot be opened to be synced
		return nil
	}
	return SyncDir(dir)
}
