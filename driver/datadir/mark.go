package datadir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfastdb/holdfast"
)

const (
	MarkName   = "HOLDFAST"
	hiddenName = MarkName + ".partial" // what the mark is called in a directory that must not be opened yet
	version    = 3                     // of the mark itself, see Mark.text
)

// Mark is what a directory remembers.
type Mark struct {
	Engine string
	Format int            // the engine's own format, from 1
	Level  holdfast.Level // 0 unless the directory is bound to a level
	Loss
	Follows string // what the directory follows, empty if nothing; see [Follow]

	making bool // the engine's own files are not complete
}

// Loss is what a directory remembers of what was lost; see [holdfast.Capabilities]. Copies remember it too.
type Loss struct {
	Lost     string // what a repair could not salvage, empty if nothing, and once it was accepted
	Accepted string // identifies the loss that was accepted last, empty if none was
}

// ReadMark reads what made dir, without opening or locking it; op is for the errors. They are ErrForeign
// where no engine made it, ErrCorrupt, ErrVersion, and the operating system's, of no class, where dir is not there.
func ReadMark(op, dir string) (Mark, error) {
	fail := func(class error, detail, remedy string, cause error) (Mark, error) {
		return Mark{}, &holdfast.Error{Op: op, Path: dir, Class: class, Detail: detail, Remedy: remedy, Cause: cause}
	}
	const remedy = "name a directory that holdfast made"
	if st, err := os.Stat(dir); err != nil {
		return fail(nil, "", remedy, err)
	} else if !st.IsDir() {
		return fail(holdfast.ErrForeign, "it is a file", remedy, nil)
	}
	unmarked := func() (Mark, error) { return fail(holdfast.ErrForeign, "it has no file "+MarkName, remedy, nil) }
	if err := checkRegular(dir); err != nil {
		if _, err := os.Lstat(filepath.Join(dir, MarkName)); errors.Is(err, fs.ErrNotExist) {
			return unmarked() // as /, which has devices
		}

		return fail(holdfast.ErrCorrupt, err.Error(), "restore the file from a backup, or remove what is in its place", nil)
	}
	m, err := loadMark(dir)

	var damaged *holdfast.Error
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return unmarked()
	case errors.As(err, &damaged):
		damaged.Op, damaged.Path = op, dir
		return Mark{}, damaged
	case err != nil:
		return fail(nil, "", "", err)
	}

	return m, nil
}

// Accept removes from the mark of dir the note of what a repair could not salvage, and returns it. From then on the
// mark says that a loss was accepted: what stores keep of that tells them to make their indexes anew. ErrLocked: dir is
// open.
func Accept(dir string) (lost string, err error) {
	if _, err := ReadMark("accept", dir); err != nil { // which may be no directory
		return "", err
	}
	// The lock keeps engines out, so that the mark is not replaced by another at the same time.
	release, err := hold(dir, false)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, release()) }()
	m, err := ReadMark("accept", dir)
	if err != nil || m.Lost == "" {
		return "", err
	}

	// The text of the loss goes, and a new name for it stays: stores compare it with the one that they remember.
	lost, m.Loss = m.Lost, Loss{Accepted: rand.Text()}
	if err := writeMark(dir, m); err != nil {
		return "", Full(&holdfast.Error{Op: "accept", Path: dir, Cause: err, Remedy: "the directory must be writable"})
	}

	return lost, nil
}

// Hide makes a directory that is being filled look foreign: Open refuses it, whatever becomes of this process, until
// Make publishes it.
func Hide(dir string) error {
	return Rename(filepath.Join(dir, MarkName), filepath.Join(dir, hiddenName))
}

// show is the opposite of Hide. If loss is not empty, the mark records it from then on.
func show(dir string, loss Loss) error {
	hidden := filepath.Join(dir, hiddenName)
	if loss == (Loss{}) {
		return Rename(hidden, filepath.Join(dir, MarkName))
	}
	text, err := os.ReadFile(hidden)
	if err != nil {
		return err
	}
	m, err := parseMark(string(text))
	if err != nil {
		return err
	}
	m.Loss = loss

	// Both names may be there after a crash: the hidden one is only looked at where there is no mark.
	if err := writeMark(dir, m); err != nil {
		return err
	}
	if err := os.Remove(hidden); err != nil {
		return err
	}

	return SyncDir(dir)
}

// unmarked names a file in dir if dir has files but no mark.
func unmarked(dir string) (string, error) {
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
		case MarkName:
			return "", nil
		case hiddenName:
			return hiddenName, nil
		case lockName, MarkName + ".tmp", "lost+found": // left by a crash while it was being made; a fresh file system's own
		default:
			other = name
		}
	}

	return other, nil
}

// text is what the file of the mark says. Its version is the first whose programs know what it says.
func (m Mark) text() string {
	v := 1
	if m.Accepted != "" { // programs that know only version 1 do not know that stores may be stale
		v = 2
	}
	if m.Follows != "" { // older ones would write where another writes
		v = 3
	}
	text := fmt.Sprintf("holdfast %d\nengine %s\nformat %d\n", v, m.Engine, m.Format)
	if m.Level != 0 {
		text += fmt.Sprintf("level %v\n", m.Level)
	}
	if m.Lost != "" {
		// The mark has one thing on a line, so line breaks in the words become spaces.
		text += "lost " + strings.Join(strings.Fields(m.Lost), " ") + "\n"
	}
	if m.Accepted != "" {
		text += "accepted " + m.Accepted + "\n"
	}
	if m.Follows != "" {
		text += "follows " + strings.Join(strings.Fields(m.Follows), " ") + "\n"
	}
	if m.making {
		text += "state making\n"
	}

	return text
}

// writeMark replaces the mark of dir durably. It is synced under another name before the rename, so a crash leaves the
// old mark or the new one, whole.
func writeMark(dir string, m Mark) error {
	return Replace(filepath.Join(dir, MarkName), []byte(m.text()))
}

// loadMark reads the mark of dir. What it says itself is an Error without an operation and a path.
func loadMark(dir string) (Mark, error) {
	name := filepath.Join(dir, MarkName)
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() { // to open a pipe could take for ever
		return Mark{}, &holdfast.Error{Class: holdfast.ErrCorrupt, Remedy: "restore the file from a backup",
			Detail: fmt.Sprintf("%s is no file but a %s", MarkName, describeKind(info.Mode().Type()))}
	}
	f, closeFile, err := OpenToRead(name) // others may ask meanwhile whether the directory is in use
	if err != nil {
		return Mark{}, err
	}
	text, err := io.ReadAll(f)
	if err = errors.Join(err, closeFile()); err != nil {
		return Mark{}, err
	}
	return parseMark(string(text))
}

// parseMark returns ErrCorrupt or ErrVersion.
func parseMark(text string) (Mark, error) {
	corrupt := func(err error) (Mark, error) {
		return Mark{}, &holdfast.Error{Class: holdfast.ErrCorrupt, Detail: MarkName, Cause: err,
			Remedy: "restore the file from a backup"}
	}

	var m Mark
	v, strange := 0, "" // a line that is not known

	// The first line says the version. In version 1 every line is known, so that any other is damage; from 2 on it may
	// be one of a newer program's.
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok {
			return corrupt(fmt.Errorf("a line reads %q", line))
		}

		var err error
		switch {
		case key == "holdfast":
			v, err = strconv.Atoi(value)
		case key == "engine":
			m.Engine = value
		case key == "format":
			m.Format, err = strconv.Atoi(value)
		case key == "level":
			m.Level, err = holdfast.ParseLevel(value)
		case key == "lost":
			m.Lost = value
		case key == "accepted":
			m.Accepted = value
		case key == "follows":
			m.Follows = value
		case key == "state" && value == "making":
			m.making = true
		case v <= 1:
			err = fmt.Errorf("a line reads %q", line)
		default:
			strange = line
		}
		if err != nil {
			return corrupt(err)
		}
	}

	// Newer comes first: what an unknown version lacks need not be missing.
	switch {
	case v > version, strange != "":
		return Mark{}, &holdfast.Error{Class: holdfast.ErrVersion, Remedy: "use a newer holdfast",
			Detail: fmt.Sprintf("%s has version %d, or lines, that this program does not know", MarkName, v)}
	case v < 1 || m.Engine == "" || m.Format < 1:
		return corrupt(errors.New("it is incomplete"))
	}

	return m, nil
}
