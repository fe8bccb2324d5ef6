package datadir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfastdb/holdfast"
)

// partialSuffix is added to the name of a directory while it is being made.
const partialSuffix = ".partial"

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
// If Make fails it leaves nothing, not even the parents that it has made; only if its last step fails, the sync of
// dir's name, is dir there. If the process ends, it may leave DIR.partial, which the next Make of dir removes. Only one
// makes it at a time; while another one works there, or if what is there could be opened, or is nothing that Make has
// made, that is ErrBadOption, too. op is for the errors.
func Make(op, dir string, fill func(partial string) (loss Loss, err error)) (err error) {
	return publish(op, dir, false, func(partial string) (Loss, bool, error) {
		loss, err := fill(partial)
		return loss, false, err
	}, syncAll)
}

// Resume is [Make] of a directory that takes long to fill. If fill fails and says that what is there is of use, or if
// the process ends, DIR.partial stays, and the next Resume of dir gives it to fill as it is. That may be what another
// fill has begun, or what a power cut has left of it: fill has to look at all that is there. Whoever gives up removes
// DIR.partial.
//
// text is the file HOLDFAST, which is hidden until all is there. fill leaves files alone whose names begin so.
func Resume(op, dir string, text []byte, fill func(partial string) (stay bool, err error)) error {
	return publish(op, dir, true, func(partial string) (loss Loss, stay bool, err error) {
		// The hidden mark, even a torn one, tells the next Resume that the directory may be filled. Make leaves another
		// one, which says that the directory cannot be opened.
		if err := os.WriteFile(filepath.Join(partial, hiddenName), text, 0o644); err != nil {
			return loss, false, err
		}
		for _, name := range []string{MarkName, MarkName + ".tmp"} {
			if err := os.Remove(filepath.Join(partial, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return loss, false, err
			}
		}
		stay, err = fill(partial)

		return loss, stay, err
	}, syncAll)
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

	return publish(op, dir, false, func(partial string) (Loss, bool, error) {
		if err := errors.Join(ctx.Err(), h.Check()); err != nil {
			return Loss{}, false, err
		}
		// Marks are replaced, never changed. Under this name it does not count until all else is there.
		if err := os.Link(filepath.Join(h.Dir, MarkName), filepath.Join(partial, hiddenName)); err != nil {
			e := &holdfast.Error{Op: op, Engine: h.name, Path: dir, Cause: err, Class: holdfast.ErrUnavailable,
				Detail: "it cannot share files with " + h.Dir,
				Remedy: "name a directory on the same file system, or make a backup"}
			if NoRoom(err) {
				e.Class, e.Detail, e.Remedy = holdfast.ErrFull, "", MakeRoom
			}

			return Loss{}, false, e
		}
		if err := fill(partial); err != nil {
			return Loss{}, false, err
		}

		// Looked at once more: if the directory was replaced meanwhile, files of two may be mixed in the copy.
		return Loss{}, false, errors.Join(ctx.Err(), h.Check())
	}, SyncDir)
}

// publish is Make, or, with resume, Resume; sync makes durable what is in a directory. If fill fails, it says whether
// what is there is to stay.
func publish(op, dir string, resume bool, fill func(partial string) (loss Loss, stay bool, err error),
	sync func(dir string) error,
) (err error) {
	fail := func(class error, path, detail, remedy string, cause error) error {
		return Full(&holdfast.Error{Op: op, Path: path, Class: class, Detail: detail, Remedy: remedy, Cause: cause})
	}
	if err := CheckOverlap(op, dir); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fail(nil, dir, "", "", err)
	}

	// What is in the place of the new directory: nothing, or an empty one, whose mode it gets.
	was, err := os.Lstat(dir) // nil if it is not there
	mode := os.FileMode(0o755)
	if err == nil {
		const remedy = "name a directory that is new or empty"

		// A link stays, and what it leads to is replaced.
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

	// After a failure nothing is left, also of parents. They are removed from the nearest on, as far as they are empty.
	missing := missingAbove(dir)
	defer func() {
		if err == nil {
			return
		}

		for _, m := range missing { // those that hold nothing else
			if os.Remove(m) != nil {
				break
			}
		}
	}()
	if err := MkdirAll(parent); err != nil {
		return fail(nil, parent, "", "", err)
	}

	// The deferred calls run in the opposite order: partial is removed while it is still claimed.
	release, err := claim(op, partial, mode, resume)
	if err != nil {
		return err
	}
	defer release()
	stay := false
	defer func() {
		if err != nil && !stay {
			if left := os.RemoveAll(partial); left != nil {
				err = errors.Join(err, left)
			}
		}
	}()

	// The order makes a crash harmless: all is on the device, then the mark is shown, then the directory gets its name.
	// Before the last step it is DIR.partial, which nobody opens.
	loss, stay, err := fill(partial)
	if err != nil {
		return err
	}
	stay = resume
	if err := sync(partial); err != nil {
		return fail(nil, partial, "", "", err)
	}

	// The mark is shown when everything else is on the device: from then on the directory could be opened, with all it
	// should have.
	if _, err := os.Lstat(filepath.Join(partial, hiddenName)); err == nil || loss != (Loss{}) {
		if err := show(partial, loss); err != nil {
			return fail(nil, partial, "", "", err)
		}
	}

	// A directory cannot be renamed over another everywhere, so the empty one is removed first. A crash in between leaves
	// none of that name.
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

	// The only step whose failure leaves dir: it is whole, so that removing it would lose more.
	if err := SyncDir(parent); err != nil {
		return fail(nil, parent, "the copy is there, but a power cut could still take away its name", "", err)
	}

	return nil
}

// claim makes the directory partial and keeps others from it until release is called, where the system can lock
// directories. What a process has left there that was killed is removed, unless it is to be resumed.
func claim(op, partial string, mode os.FileMode, resume bool) (release func(), err error) {
	refuse := func(detail, remedy string, cause error) (func(), error) {
		return nil, &holdfast.Error{Op: op, Path: partial, Class: holdfast.ErrBadOption, Detail: detail, Remedy: remedy,
			Cause: cause}
	}
	for range 100 { // others may come and go, but not for ever

		// Whoever makes the directory and locks it has it. One that is there may be another's work, or left of a killed
		// process: the lock tells.
		made := os.Mkdir(partial, mode)
		if made != nil && !errors.Is(made, fs.ErrExist) {
			return nil, Full(&holdfast.Error{Op: op, Path: partial, Remedy: "the directory above must be writable", Cause: made})
		}
		held, err := os.Open(partial)

		// Another has renamed or removed it since; the next turn tries again.
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return refuse("it cannot be locked", "", err)
		}
		err = lockDir(held)
		release := func() { _ = errors.Join(unlockDir(held), held.Close()) }

		switch {
		case errors.Is(err, errLocked):
			held.Close()
			return refuse("another "+op+" is making it", "wait for that, or name another directory", nil)

		// The file system cannot lock directories.
		case err != nil && made == nil: // it is alone as far as it can know
			held.Close()
			return func() {}, nil
		case err != nil:
			held.Close()
			return refuse("it is there already", "remove it if it was left by an interrupted "+op, nil)
		}

		// What is locked may have been renamed, or removed, before it was.
		at, err := os.Stat(partial)
		st, failed := held.Stat()
		switch {
		// The lock is on what has another name by now. The next turn finds what has this one.
		case err != nil || failed != nil || !os.SameFile(at, st):
			release()
		case made == nil:
			return release, nil

		// Only what Make has left is removed: anything else may be somebody's data.
		case !abandoned(partial):
			release()

			return refuse("it is there already, and is not what an interrupted "+op+" leaves",
				"move it away, or name another directory", nil)
		case resume:
			return release, nil
		default:
			// Removed while it is locked, so that nobody else takes it over half removed.
			err := os.RemoveAll(partial)
			release()
			if err != nil {
				return refuse("an interrupted "+op+" has left it", "remove it", err)
			}
		}
	}

	return refuse("it comes and goes", "name another directory", nil)
}

// abandoned reports whether a directory that nobody is making was being made, and cannot be opened as it is.
func abandoned(dir string) bool {
	// A hidden mark says that it was not published; no mark and no files, that it was hardly begun.
	other, err := unmarked(dir)
	if err != nil || other != "" {
		return other == hiddenName
	}
	m, err := loadMark(dir)

	return errors.Is(err, fs.ErrNotExist) || err == nil && m.making
}

// missingAbove lists the directories above dir that are not there, the nearest first.
func missingAbove(dir string) (missing []string) {
	for parent := range above(filepath.Dir(dir)) {
		if _, err := os.Lstat(parent); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, parent)
	}

	return missing
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
