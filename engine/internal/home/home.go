// Package home looks after an engine's directory: it makes it durably, remembers in it
// which engine and format made it, and keeps a second opener out.
//
// A directory holds
//
//	HOLDFAST   what made it, as text (below)
//	LOCK       empty, locked while the directory is open
//	...        the engine's own files
//
// and HOLDFAST reads
//
//	holdfast 1
//	engine bbolt
//	format 1
//	level power        only where the engine binds a directory to a level
//	lost 2 values      what a repair that made it could not salvage, until somebody accepts that
//	state making       until the engine's own files are complete
//
// The last line tells a directory whose making was interrupted from one that has lost its
// data.
package home

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/holdfastdb/holdfast"
)

const (
	markName = "HOLDFAST"
	lockName = "LOCK"
	version  = 1 // of the HOLDFAST file itself
)

// Identity is what a directory remembers.
type Identity struct {
	Engine string
	Format int            // the engine's own format, from 1
	Level  holdfast.Level // 0 unless the directory is bound to a level
	Lost   string         // what a repair could not salvage, empty if nothing; see [holdfast.Capabilities]

	// ReadOnly opens the directory beside others who do, and writes nothing in it. It is not remembered.
	ReadOnly bool

	// Keeps names a file or directory of the engine's own that is there as soon as the
	// directory is made. It is not remembered.
	Keeps string

	// Salvage says what makes a sound copy of a directory whose mark or Keeps is damaged or gone, if anything
	// does. It is not remembered.
	Salvage string
}

// Home is an open, locked directory.
type Home struct {
	Dir  string // as an absolute path
	New  bool   // being made: the engine calls Made when its files are complete
	Lost string // as in Identity
	id   Identity
	lock *os.File    // nil for one that is open for reading and was never open for writing
	held os.FileInfo // of lock
	same quick       // the same, for Check
}

// Open makes dir if need be, locks it and checks that id made it. Errors are ErrLocked,
// ErrForeign, ErrVersion, ErrCorrupt, or the operating system's with what to do.
func Open(dir string, id Identity) (_ *Home, err error) {
	fail := func(class error, detail, remedy string, cause error) error {
		return &holdfast.Error{Op: "open", Engine: id.Engine, Path: dir, Class: class, Detail: detail, Remedy: remedy, Cause: cause}
	}
	if dir == "" {
		return nil, fail(holdfast.ErrBadOption, "no directory is named", "name one", nil)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fail(nil, "", "", err)
	}
	if st, err := os.Stat(dir); err == nil && !st.IsDir() {
		return nil, fail(holdfast.ErrForeign, "it is a file", "name a directory", nil)
	}
	if held, err := foreign(dir); err != nil {
		return nil, fail(nil, "", "", err)
	} else if held == hidden {
		return nil, fail(holdfast.ErrForeign, "it is a copy that was not finished", "remove it, or name another directory", nil)
	} else if held != "" {
		return nil, fail(holdfast.ErrForeign, "it holds "+held+", which holdfast did not make", "name an empty or new directory", nil)
	}
	var lock *os.File
	if id.ReadOnly {
		if _, err := os.Stat(dir); err != nil {
			return nil, fail(nil, "", "", err)
		}
		lock, err = openLock(dir)
	} else {
		if err := MkdirAll(dir); err != nil {
			return nil, fail(nil, "", "", err)
		}
		lock, err = os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o644)
	}
	if err != nil {
		return nil, fail(nil, "", "the directory must be writable", err)
	}
	h := &Home{Dir: dir, id: id, lock: lock}
	if err := lockFile(lock, id.ReadOnly); err != nil {
		lock.Close()
		if errors.Is(err, errLocked) {
			return nil, fail(holdfast.ErrLocked, Holder(filepath.Join(dir, lockName)), "close it there first, or choose another directory", nil)
		}
		return nil, fail(nil, "lock", "the file system must support file locks", err)
	}
	defer func() {
		if err != nil {
			h.Close()
		}
	}()
	if lock != nil {
		if h.held, err = lock.Stat(); err != nil {
			return nil, fail(nil, "", "", err)
		}
		h.same = newQuick(lock.Name(), lock)
		if err := h.Check(); err != nil {
			return nil, err // between opening the lock and locking it
		}
	}

	text, err := os.ReadFile(filepath.Join(dir, markName))
	if errors.Is(err, fs.ErrNotExist) && id.ReadOnly {
		return nil, fail(holdfast.ErrForeign, "it has no file "+markName, "name a directory that holdfast made", nil)
	}
	if errors.Is(err, fs.ErrNotExist) {
		h.New = true
		// Somebody else may have made dir, and not synced its entry.
		if err := SyncDir(filepath.Dir(dir)); err != nil {
			return nil, fail(nil, "", "the directory above must be readable", err)
		}
		if err := writeMark(dir, id, true); err != nil {
			return nil, fail(nil, "", "", err)
		}
		return h, nil
	}
	if err != nil {
		return nil, fail(nil, "", "", err)
	}
	found, v, making, err := parseMark(string(text))
	h.New, h.Lost = making, found.Lost
	h.id.Lost = found.Lost
	switch {
	case err != nil:
		return nil, fail(holdfast.ErrCorrupt, markName+": "+err.Error(), id.salvageOr("restore the file from a backup"), nil)
	case v > version:
		return nil, fail(holdfast.ErrVersion, fmt.Sprintf("%s has version %d, this program knows %d", markName, v, version), "use a newer holdfast", nil)
	case found.Engine != id.Engine:
		return nil, fail(holdfast.ErrForeign, "it was made by engine "+found.Engine, "open it with "+found.Engine+", or name another directory", nil)
	case found.Format > id.Format:
		return nil, fail(holdfast.ErrVersion, fmt.Sprintf("it has format %d of %s, this program knows %d", found.Format, id.Engine, id.Format), "use a newer holdfast", nil)
	case found.Level != id.Level:
		return nil, fail(holdfast.ErrForeign, fmt.Sprintf("%s binds a directory to one level, and this one was made for %v, not %v", id.Engine, found.Level, id.Level),
			fmt.Sprintf("open it with level %v, or name another directory", found.Level), nil)
	}
	if making && id.ReadOnly {
		return nil, fail(holdfast.ErrForeign, "its making was interrupted; nothing is in it", "open it for writing once", nil)
	}
	if id.Keeps != "" && !making {
		if _, err := os.Stat(filepath.Join(dir, id.Keeps)); errors.Is(err, fs.ErrNotExist) {
			return nil, fail(holdfast.ErrCorrupt, id.Keeps+" is gone", id.salvageOr("restore it from a backup")+"; to begin anew, name another directory", nil)
		}
	}
	if making { // by whom, may have been killed before the mark was durable; without it, files would be somebody else's
		if err := syncDir(dir); err != nil {
			return nil, fail(nil, "", "the directory must be readable", err)
		}
	}
	return h, nil
}

func (id Identity) salvageOr(remedy string) string {
	if id.Salvage != "" {
		return id.Salvage + ", or " + remedy
	}
	return remedy
}

// Made notes that the engine's files are complete and synced. It does nothing in a directory
// that was made before.
func (h *Home) Made() error {
	if !h.New {
		return nil
	}
	if err := writeMark(h.Dir, h.id, false); err != nil {
		return &holdfast.Error{Op: "open", Engine: h.id.Engine, Path: h.Dir, Cause: err, Remedy: "the directory must be writable and have room"}
	}
	return nil
}

// Check returns ErrReplaced if the path no longer leads to the directory that was opened: its files
// could be another's. Engines ask before they make, rename or remove a file by its name, after
// they have opened one, and between a sync and acknowledging it. It takes a microsecond.
//
// What is replaced in the very moment between Check and what it is asked for is not found out.
func (h *Home) Check() error {
	if h.lock == nil || h.same.same() {
		return nil
	}
	st, err := os.Stat(h.lock.Name())
	if err == nil && os.SameFile(st, h.held) {
		return nil
	}
	e := &holdfast.Error{Op: "check", Engine: h.id.Engine, Path: h.Dir, Class: holdfast.ErrReplaced, Cause: err,
		Detail: "its LOCK is not the file that was locked when it was opened",
		Remedy: "close this engine, and open the directory that is meant"}
	if err != nil {
		e.Detail = ""
	}
	return e
}

// Close releases the directory.
func (h *Home) Close() error {
	if h.lock == nil {
		return nil
	}
	return errors.Join(unlockFile(h.lock), h.lock.Close())
}

// Identify reads what made dir, without opening or locking it. It returns ErrForeign
// where nothing of ours did, and an error of no class, of the operating system, where dir is not there.
func Identify(dir string) (Identity, error) {
	id, _, err := identify(dir)
	return id, err
}

func identify(dir string) (id Identity, making bool, err error) {
	foreign := &holdfast.Error{Op: "identify", Path: dir, Class: holdfast.ErrForeign, Remedy: "name a directory that holdfast made"}
	if st, err := os.Stat(dir); err != nil {
		foreign.Class, foreign.Cause = nil, err
		return Identity{}, false, foreign
	} else if !st.IsDir() {
		foreign.Detail = "it is a file"
		return Identity{}, false, foreign
	}
	text, err := os.ReadFile(filepath.Join(dir, markName))
	if errors.Is(err, fs.ErrNotExist) {
		foreign.Detail = "it has no file " + markName
		return Identity{}, false, foreign
	} else if err != nil {
		foreign.Class, foreign.Cause, foreign.Remedy = nil, err, ""
		return Identity{}, false, foreign
	}
	id, v, making, err := parseMark(string(text))
	if err != nil {
		return Identity{}, false, &holdfast.Error{Op: "identify", Path: dir, Class: holdfast.ErrCorrupt, Detail: markName,
			Cause: err, Remedy: "restore the file from a backup"}
	}
	if v > version {
		return Identity{}, false, &holdfast.Error{Op: "identify", Path: dir, Class: holdfast.ErrVersion,
			Detail: fmt.Sprintf("%s has version %d", markName, v), Remedy: "use a newer holdfast"}
	}
	return id, making, nil
}

// foreign names a file in dir if dir has files but no mark.
func foreign(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	other := ""
	for _, e := range entries {
		switch name := e.Name(); name {
		case markName:
			return "", nil
		case hidden:
			return hidden, nil
		case lockName, markName + ".tmp", "lost+found": // left by a crash while it was being made; a fresh file system's own
		default:
			other = name
		}
	}
	return other, nil
}

func writeMark(dir string, id Identity, making bool) error {
	text := fmt.Sprintf("holdfast %d\nengine %s\nformat %d\n", version, id.Engine, id.Format)
	if id.Level != 0 {
		text += fmt.Sprintf("level %v\n", id.Level)
	}
	if id.Lost != "" {
		text += "lost " + strings.Join(strings.Fields(id.Lost), " ") + "\n"
	}
	if making {
		text += "state making\n"
	}
	name := filepath.Join(dir, markName)
	if err := writeSynced(name+".tmp", text); err != nil {
		os.Remove(name + ".tmp")
		return err
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		return err
	}
	return SyncDir(dir)
}

func writeSynced(name, text string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func parseMark(text string) (id Identity, v int, making bool, err error) {
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok {
			return id, 0, false, fmt.Errorf("a line reads %q", line)
		}
		switch {
		case key == "holdfast":
			v, err = strconv.Atoi(value)
		case key == "engine":
			id.Engine = value
		case key == "format":
			id.Format, err = strconv.Atoi(value)
		case key == "level":
			id.Level, err = holdfast.ParseLevel(value)
		case key == "lost":
			id.Lost = value
		case key == "state" && value == "making":
			making = true
		case v <= version:
			err = fmt.Errorf("a line reads %q", line)
		}
		if err != nil {
			return id, 0, false, err
		}
	}
	if v < 1 || v == version && (id.Engine == "" || id.Format < 1) {
		return id, 0, false, errors.New("it is incomplete")
	}
	return id, v, making, nil
}

// MkdirAll makes dir and its missing parents, and syncs the directories that hold them,
// so that a power cut does not take the directory away.
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
			// Whoever made it may have been killed before its entry was synced. It need not be ours to sync.
			_ = syncDir(filepath.Dir(parent))
		} else if err := MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(parent)
}

var syncDir = SyncDir // another one in tests

// Usage counts the regular files below dir and the bytes they take on the device. What
// cannot be read, because it is just being removed, counts nothing.
func Usage(dir string) (files, bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
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
