// Package datadir manages data directories: engines open theirs through it, and tools make new ones with it.
//
//	h, err := datadir.Open(dir, datadir.Spec{Engine: "myengine", Format: 1})
//	err = h.Check() // before a sync is acknowledged: ErrReplaced if the directory is another one by now
//	err = h.Close()
//
// A directory that an engine made holds
//
//	HOLDFAST   the mark: what made the directory, as text (below)
//	LOCK       empty, locked while the directory is open
//	...        the engine's own files
//	TEMP       what a program has there for a time; Open removes what one has left that was killed
//
// and the mark reads
//
//	holdfast 1
//	engine bbolt
//	format 1
//	level power        only where the engine binds a directory to a level
//	lost 2 values      what the repair that made it could not salvage, until that is accepted
//	accepted UYH3...   which loss was accepted last; then the first line has 2
//	follows URL        it is a copy that is kept up to date, and open for reading only; then the first line has 3
//	state making       until the engine's own files are complete
//
// The last line tells a directory whose making was interrupted from one that has lost its data.
//
// What the package does, by file:
//
//	datadir.go   Open makes a directory durably, locks it and checks its mark; Check tells whether it was replaced
//	lock.go      Hold keeps writers out without opening
//	mark.go      ReadMark, Accept, Hide
//	temp.go      Temp is where a program that has a directory open puts files for a time
//	follow.go    Follow, Change and Unfollow are for who keeps a copy up to date
//	make.go      Make makes a directory whole or not at all, Checkpoint one that shares files with an open one
//	overlap.go   CheckOverlap keeps a copy out of what it is a copy of
//	files.go     MkdirAll, Rename, SyncDir: changes of names that survive a power cut; Usage, CopyFiles
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfastdb/holdfast"
)

// Spec describes the directory that an engine opens.
type Spec struct {
	Engine string
	Mark   string         // the engine's name in the mark, if that is another
	Format int            // the engine's own format, from 1
	Level  holdfast.Level // 0 unless the engine binds a directory to a level

	// ReadOnly opens the directory at the same time as other readers, and writes nothing in it.
	ReadOnly bool
	// Keeps names a file or directory of the engine's own that is there as soon as the directory is made.
	Keeps string
	// Recognize, if there is one, reports whether the files of a directory without a mark are the engine's. Then the
	// mark is lost, and the directory damaged; otherwise it is foreign.
	Recognize func(dir string) bool
	// Salvage names the tool that makes a sound copy of a directory whose mark or Keeps is damaged or gone, if there is
	// one.
	Salvage string
}

// or returns the remedy for a damaged directory.
func (s Spec) or(remedy string) string {
	if s.Salvage != "" {
		return s.Salvage + ", or " + remedy
	}

	return remedy
}

// Handle is an open, locked directory.
type Handle struct {
	Dir  string // as an absolute path
	New  bool   // being made: the engine calls Made when its files are complete
	Loss        // as in Mark
	name string // of the engine
	mark Mark
	lock *os.File    // nil for one that is open for reading and was never open for writing
	held os.FileInfo // of lock
	same quick       // the same, for Check
}

// Open makes dir if need be, locks it and checks that spec's engine made it. A directory that it makes is durable,
// and so is its mark; one that is being made is opened again, as New, until Made.
//
// The lock belongs to the Handle: a second Open fails with ErrLocked in this process as in another. It ends with
// Close at once, also while this process starts others, and otherwise with the process.
//
// Other errors are ErrForeign, ErrVersion, ErrCorrupt, ErrBadOption, ErrFull, or the operating system's with what to
// do. A directory that has files and no mark is refused before anything in it is changed.
func Open(dir string, spec Spec) (_ *Handle, err error) {
	fail := func(class error, detail, remedy string, cause error) error {
		return Full(&holdfast.Error{Op: "open", Engine: spec.Engine, Path: dir, Class: class,
			Detail: detail, Remedy: remedy, Cause: cause})
	}
	if dir == "" {
		return nil, fail(holdfast.ErrBadOption, "no directory is named", "name one", nil)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fail(nil, "", "", err)
	}

	// An error of Stat is left to what follows: the directory may not be there yet.
	if st, err := os.Stat(dir); err == nil && !st.IsDir() {
		return nil, fail(holdfast.ErrForeign, "it is a file", "name a directory", nil)
	}

	// Before anything is made: what is there must be files, and ours.
	if err := checkRegular(dir); err != nil {
		return nil, fail(
			holdfast.ErrCorrupt,
			err.Error(),
			"restore the file from a backup, or remove what is in its place",
			nil,
		)
	}

	switch other, err := unmarked(dir); {
	case err != nil:
		return nil, fail(nil, "", "", err)
	case other == hiddenName:
		return nil, fail(holdfast.ErrForeign, "it is a copy that was not finished",
			"remove it, or name another directory", nil)
	case other != "" && spec.Recognize != nil && spec.Recognize(dir):
		return nil, fail(holdfast.ErrCorrupt, "its file "+MarkName+" is missing; the other files are "+spec.Engine+"'s",
			spec.or("restore it from a backup"), nil)
	case other != "":
		return nil, fail(holdfast.ErrForeign, "it holds "+other+", which holdfast did not make",
			"name an empty or new directory", nil)
	}
	if spec.Mark == "" {
		spec.Mark = spec.Engine
	}

	// From here on the directory is locked, so that what is found in it does not change.
	h := &Handle{Dir: dir, name: spec.Engine, mark: Mark{Engine: spec.Mark, Format: spec.Format, Level: spec.Level}}
	remedy, err := h.open(spec.ReadOnly)
	for wait := 0; spec.ReadOnly && errors.Is(err, errLocked) && wait < followedWaits && follows(dir); wait++ {
		time.Sleep(followedWait)
		remedy, err = h.open(spec.ReadOnly)
	}
	if errors.Is(err, errLocked) {
		return nil, fail(holdfast.ErrLocked, Holder(filepath.Join(dir, lockName)),
			"close it there first, or choose another directory", nil)
	} else if err != nil {
		return nil, fail(nil, "", remedy, err)
	}
	defer func() {
		if err != nil {
			h.Close()
		}
	}()

	// The file that was opened may have been replaced before it was locked: the lock would then keep nobody out.
	if err := h.Check(); err != nil {
		return nil, err // between opening the lock and locking it
	}

	// With the lock held nobody works in there any more.
	if !spec.ReadOnly {
		removeTemp(dir)
	}

	found, err := loadMark(dir)
	var damaged *holdfast.Error
	switch {
	case errors.Is(err, fs.ErrNotExist) && spec.ReadOnly:
		return nil, fail(holdfast.ErrForeign, "it has no file "+MarkName, "name a directory that holdfast made", nil)
	case errors.Is(err, fs.ErrNotExist):
		// The mark says that the directory is being made until the engine's files are complete. After a crash in between the
		// next Open goes on as if it were new.
		h.New = true
		// Another program may have made dir, and not synced its entry.
		if err := syncDir(filepath.Dir(dir)); err != nil {
			return nil, fail(nil, "", "the directory above must be readable", err)
		}
		h.mark.making = true

		// From here on a crash leaves a directory that the next Open takes for new, whatever the engine has put there.
		if err := writeMark(dir, h.mark); err != nil {
			return nil, fail(nil, "", "", err)
		}

		return h, nil
	case errors.As(err, &damaged):
		if damaged.Op, damaged.Engine, damaged.Path = "open", spec.Engine, dir; damaged.Class == holdfast.ErrCorrupt {
			damaged.Remedy = spec.or(damaged.Remedy)
		}

		return nil, damaged
	case err != nil:
		return nil, fail(nil, "", "", err)

	// The order of these cases decides which error is told if several are true: first whose directory it is, then
	// whether this program knows it.
	case found.Engine != spec.Mark:
		return nil, fail(holdfast.ErrForeign, "it was made by engine "+found.Engine,
			"open it with "+found.Engine+", or name another directory", nil)
	case found.Format > spec.Format:
		return nil, fail(holdfast.ErrVersion, fmt.Sprintf("it has format %d of %s, this program knows %d",
			found.Format, spec.Engine, spec.Format), "use a newer holdfast", nil)
	case found.Level != spec.Level:
		detail := fmt.Sprintf("%s binds a directory to one level, and this one was made for %v, not %v",
			spec.Engine, found.Level, spec.Level)
		remedy := fmt.Sprintf("open it with level %v, or name another directory", found.Level)

		return nil, fail(holdfast.ErrForeign, detail, remedy, nil)
	case found.Follows != "" && found.making:
		return nil, fail(holdfast.ErrForeign, "it follows "+found.Follows+", and what keeps it up to date was interrupted",
			"start that again: holdfast follow", nil)
	case found.Follows != "" && !spec.ReadOnly:
		return nil, fail(holdfast.ErrUnavailable, "it follows "+found.Follows+", and can only be read",
			"to write to it from now on: holdfast promote", nil)
	case found.making && spec.ReadOnly:
		return nil, fail(holdfast.ErrForeign, "its making was interrupted; nothing is in it", "open it for writing once", nil)
	}

	// The mark is this engine's.
	h.New, h.Loss, h.mark.Loss = found.making, found.Loss, found.Loss
	if found.making {
		// Its maker may have been killed before the mark was durable; without it, the engine's files would be foreign.
		if err := syncDir(dir); err != nil {
			return nil, fail(nil, "", "the directory must be readable", err)
		}
	} else if spec.Keeps != "" {
		// A directory that was made must have it. Without this look an engine would make an empty database over what
		// is left.
		if _, err := os.Stat(filepath.Join(dir, spec.Keeps)); errors.Is(err, fs.ErrNotExist) {
			return nil, fail(holdfast.ErrCorrupt, spec.Keeps+" is gone",
				spec.or("restore it from a backup")+"; to start empty, name another directory", nil)
		}
	}

	return h, nil
}

// open makes the directory, unless it is only read, and locks it. It says what to do about an error.
func (h *Handle) open(readOnly bool) (remedy string, err error) {
	if readOnly {
		_, err = os.Stat(h.Dir)
	} else {
		err = MkdirAll(h.Dir)
	}
	if err != nil {
		return "", err
	}
	if readOnly {
		h.lock, err = openLock(h.Dir)
	} else {
		h.lock, err = os.OpenFile(filepath.Join(h.Dir, lockName), os.O_CREATE|os.O_RDWR, 0o644)
	}
	if err != nil || h.lock == nil {
		return "the directory must be writable", err
	}
	if err = lockFile(h.lock, readOnly); err == nil {
		// Check compares with this. It is asked of the open file, not by name, which may lead elsewhere already.
		h.held, err = h.lock.Stat()
	}
	if err != nil {
		return "the file system must support file locks", errors.Join(err, h.lock.Close())
	}
	h.same = newQuick(h.lock.Name(), h.lock)

	return "", nil
}

// Made notes that the engine's files are complete and synced. It does nothing in a directory that was made before.
func (h *Handle) Made() error {
	if !h.New {
		return nil
	}

	// A new mark replaces the old one, and the rename makes both steps one.
	h.mark.making = false
	if err := writeMark(h.Dir, h.mark); err != nil {
		return Full(&holdfast.Error{Op: "open", Engine: h.name, Path: h.Dir, Cause: err,
			Remedy: "the directory must be writable"})
	}

	return nil
}

// Check returns ErrReplaced if the path no longer leads to the directory that was opened: its files
// could be another's. Engines ask before they make, rename or remove a file by its name, after
// they have opened one, and between a sync and acknowledging it. It takes a microsecond.
//
// A directory that is replaced between Check and the use of a file's name is not noticed.
func (h *Handle) Check() error {
	// Without a lock the directory was never open for writing, and there is nothing to compare.
	if h.lock == nil || h.same.same() {
		return nil
	}

	// The quick look says no, or cannot say. The path decides.
	st, err := os.Stat(h.lock.Name())
	if err == nil && os.SameFile(st, h.held) {
		return nil
	}
	e := &holdfast.Error{Op: "check", Engine: h.name, Path: h.Dir, Class: holdfast.ErrReplaced, Cause: err,
		Detail: "its LOCK is not the file that was locked when it was opened",
		Remedy: "close this engine, and open the directory that is meant"}
	if err != nil {
		e.Detail = ""
	}
	if errors.Is(err, fs.ErrPermission) { // whether it is still the same cannot be seen
		e.Class, e.Detail, e.Remedy = nil, "its files cannot be looked up any more",
			"give this process the permission to search the directory, and those above it, again"
	}

	return e
}

// Close releases the directory.
func (h *Handle) Close() error {
	if h.lock == nil {
		return nil
	}

	// Unlocked before it is closed; see unlockFile.
	return errors.Join(unlockFile(h.lock), h.lock.Close())
}
