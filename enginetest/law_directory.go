package enginetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
)

// markName is the file in which a directory remembers what made it.
const markName = "HOLDFAST"

// directory says why cases that look at the files of a directory do not apply.
func directory(s *suite) string { return s.NoDirectory }

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// write makes a file and the directories it needs.
func (a *trial) write(name, text string) {
	a.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		a.Fatalf("%v", err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		a.Fatalf("%v", err)
	}
}

// mark returns the text of dir's mark.
func (a *trial) mark(dir string) string {
	a.Helper()
	text, err := os.ReadFile(filepath.Join(dir, markName))
	if err != nil {
		a.Fatalf("the directory does not remember what made it: %v", err)
	}

	return string(text)
}

// made makes a directory with one key in it, and closes it.
func (a *trial) made() string {
	a.Helper()
	dir := a.dir()
	e := a.open(dir)
	a.set(e, "k", "v")
	a.close(e)

	return dir
}

// wantsUnharmed fails unless dir, made by made, opens and has its key.
func (a *trial) wantsUnharmed(dir string) {
	a.Helper()
	e := a.open(dir)
	a.wantsAll(e, holdfast.Range{}, "k", "v")
	a.close(e)
}

// A directory has one owner, in this process and in all others, until that closes it.
func secondOpener(a *trial) {
	dir := a.dir()
	e := a.open(dir)
	a.set(e, "k", "v")
	a.wantsRefused("a directory that is open in this process", dir, a.options(), holdfast.ErrLocked)
	lines, err := a.runChild(order{Role: "lock", Dir: dir})
	if err != nil || len(lines) != 1 || lines[0] != "locked" {
		a.Errorf("a second process that opens the directory says %q, %v; want ErrLocked", lines, err)
	}
	a.wants(e, "k", "v")
	a.set(e, "k", "w")
	a.close(e)
	lines, err = a.runChild(order{Role: "lock", Dir: dir})
	if err != nil || len(lines) != 1 || lines[0] != "opened" {
		a.Errorf("a second process that opens the directory after Close says %q, %v", lines, err)
	}
	e = a.open(dir)
	a.wantsAll(e, holdfast.Range{}, "k", "w")
	a.close(e)
}

func (s *suite) childOpens(o order, t *reporter) error {
	e, err := s.Open(o.Dir, holdfast.Options{Level: o.Level})
	if err != nil {
		t.say("%s", className(err))
		return nil
	}
	t.say("opened")

	return e.Close()
}

// A directory of another engine is refused and left as it is.
func otherEngine(a *trial) {
	dir := filepath.Join(a.TempDir(), "engine")
	name, text := filepath.Join(dir, markName), "holdfast 1\nengine someother\nformat 1\n"
	a.write(name, text)
	a.write(filepath.Join(dir, "data"), "precious")
	a.wantsRefused("a directory of another engine", dir, a.options(), holdfast.ErrForeign)
	if got := a.mark(dir); got != text {
		a.Errorf("the mark of another engine was changed to %q", got)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		a.Fatalf("%v", err)
	}

	for _, f := range left {
		if f.Name() != markName && f.Name() != "data" && f.Name() != "LOCK" {
			a.Errorf("%s was left in a directory of another engine", f.Name())
		}
	}
}

// A directory that is bound to a level is refused at any other, unless the engine gives the same
// for both; one that is not opens.
func otherLevel(a *trial) {
	dir := a.made()
	bound := strings.Contains(a.mark(dir), "\nlevel ")

	for _, level := range a.s.levels() {
		if level == a.level {
			continue
		}
		o := holdfast.Options{Level: level}
		if bound && a.s.caps.Promise(level).Given != a.s.caps.Promise(a.level).Given {
			a.wantsRefused(fmt.Sprintf("a directory of level %v at %v", a.level, level), dir, o, holdfast.ErrForeign)
			continue
		}
		e, err := a.s.Open(dir, o)
		if err != nil {
			a.Errorf("a directory made at %v, opened at %v: %v", a.level, level, err)
			continue
		}
		a.wantsAll(e, holdfast.Range{}, "k", "v")
		a.close(e)
	}
	a.wantsUnharmed(dir)
}

// What a newer version wrote is left to newer versions.
func newerFormat(a *trial) {
	for _, c := range []struct{ what, line, newer string }{
		{"a newer format", "format", "999"},
		{"a newer mark", "holdfast", "999"},
	} {
		dir := a.made()
		old := a.mark(dir)
		var lines []string
		for line := range strings.Lines(old) {
			if strings.HasPrefix(line, c.line+" ") {
				line = c.line + " " + c.newer + "\n"
			}
			lines = append(lines, line)
		}
		a.write(filepath.Join(dir, markName), strings.Join(lines, ""))
		a.wantsRefused("a directory of "+c.what, dir, a.options(), holdfast.ErrVersion)
		a.write(filepath.Join(dir, markName), old)
		a.wantsUnharmed(dir)
	}
}

// A mark that cannot be read is damage.
func damagedMark(a *trial) {
	for _, text := range []string{"", "holdfast", "holdfast x\n", "holdfast 1\nengine\n",
		"holdfast 1\nengine x\nformat 1\nlevel high\n", "\x00\x01\x02"} {
		dir := a.made()
		old := a.mark(dir)
		a.write(filepath.Join(dir, markName), text)
		a.wantsRefused(fmt.Sprintf("a directory whose mark reads %q", text), dir, a.options(), holdfast.ErrCorrupt)
		a.write(filepath.Join(dir, markName), old)
		a.wantsUnharmed(dir)
	}
}

// A directory with files of something else is not taken over.
func foreignDirectory(a *trial) {
	dir := filepath.Join(a.TempDir(), "home")
	name := filepath.Join(dir, "letters", "letter.txt")
	a.write(name, "a letter")
	a.wantsRefused("a directory with a user's files", dir, a.options(), holdfast.ErrForeign)
	if exists(filepath.Join(dir, markName)) {
		a.Errorf("a directory with a user's files was marked as the engine's")
	}
	if got, err := os.ReadFile(name); string(got) != "a letter" {
		a.Errorf("the user's file now reads %q, %v", got, err)
	}
}

// A file is no directory, and cannot hold one.
func noDirectory(a *trial) {
	file := filepath.Join(a.TempDir(), "file")
	a.write(file, "text")
	a.wantsRefused("a file", file, a.options(), holdfast.ErrForeign)
	a.wantsRefused("a directory below a file", filepath.Join(file, "below"), a.options(), nil)
	if got, err := os.ReadFile(file); string(got) != "text" {
		a.Errorf("the file now reads %q, %v", got, err)
	}
}

// Directories that are missing are made. An empty one is as good as none.
func missingParents(a *trial) {
	for _, made := range []string{"", "one/two/three"} {
		root := a.TempDir()
		if err := os.MkdirAll(filepath.Join(root, made), 0o755); err != nil {
			a.Fatalf("%v", err)
		}
		dir := filepath.Join(root, "one", "two", "three")
		e := a.open(dir)
		a.set(e, "k", "v")
		a.close(e)
		a.wantsUnharmed(dir)
	}
}

// Where nothing may be written, Open says so, and harms nothing.
func readOnly(a *trial) {
	if runtime.GOOS == "windows" {
		a.Skipf("permissions of directories do not keep files out on Windows")
	}
	if os.Getuid() != 0 {
		a.withoutPermission()
		return
	}
	// Permissions do not bind root, but no user can make a directory below a device, or in
	// /proc where there is one.
	a.wantsRefused("a directory below a device", "/dev/null/engine", a.options(), nil)
	if exists("/proc/self") {
		a.wantsRefused("a directory in /proc", "/proc/self/holdfast", a.options(), nil)
	}
	root := a.TempDir()
	o := order{Role: "readonly", Dir: filepath.Join(root, "engine")}
	lines, err := a.roomless(o, root)
	if err != nil || len(lines) != 1 || lines[0] != "refused" && lines[0] != "no room" {
		a.Errorf("opening a directory in a file system that was made read-only: %q, %v; want an error", lines, err)
	}
	a.Logf("read-only file system: %q", lines)
}

// withoutPermission runs as a user whom permissions bind.
func (a *trial) withoutPermission() {
	parent := filepath.Join(a.TempDir(), "parent")
	dir := filepath.Join(parent, "engine")
	for _, made := range []string{parent, dir} {
		if err := os.Mkdir(made, 0o755); err != nil {
			a.Fatalf("%v", err)
		}
		if err := os.Chmod(made, 0o555); err != nil {
			a.Fatalf("%v", err)
		}
		a.wantsRefused("a directory that may not be written to", dir, a.options(), nil)
		if err := os.Chmod(made, 0o755); err != nil {
			a.Fatalf("%v", err)
		}
	}
}

// childReadOnly makes a directory in a file system of its own, makes that read-only and opens
// the directory again.
func (s *suite) childReadOnly(o order, t *reporter) error {
	leave, err := o.enterRoom()
	if err != nil {
		return err
	}
	defer leave()
	e, err := s.Open(o.Dir, holdfast.Options{Level: o.Level})
	if err != nil {
		return err
	}
	if err := holdfast.Commit(e, sets("k", "v"), o.Level); err != nil {
		return err
	}
	if err := e.Close(); err != nil {
		return err
	}
	if ok, err := o.protectRoom(true); err != nil {
		return err
	} else if !ok {
		t.say("no room")
		return nil
	}
	e, err = s.Open(o.Dir, holdfast.Options{Level: o.Level})
	if err == nil {
		return fmt.Errorf("it was opened, and closed with %v", e.Close())
	}
	if !strings.Contains(err.Error(), o.Dir) {
		return fmt.Errorf("the error does not name the directory: %w", err)
	}
	if _, err := o.protectRoom(false); err != nil {
		return err
	}
	if e, err = s.Open(o.Dir, holdfast.Options{Level: o.Level}); err != nil {
		return fmt.Errorf("when it could be written to again: %w", err)
	}
	if got, err := e.Get(nil, []byte("k")); string(got) != "v" {
		return fmt.Errorf("when it could be written to again, Get returned %q, %v", got, err)
	}
	t.say("refused")

	return e.Close()
}

// An engine whose directory is removed under it may fail, and may not notice; it does not
// take the process with it.
func vanishes(a *trial) {
	if runtime.GOOS == "windows" {
		a.Skipf("files that are open cannot be removed on Windows")
	}
	dir := a.dir()
	lines, err := a.runChild(order{Role: "vanish", Dir: dir})
	if err != nil || len(lines) != 1 || lines[0] != "survived" {
		a.Errorf("the process whose directory was removed says %q, %v", lines, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		a.Fatalf("%v", err)
	}
	e := a.open(dir)
	a.wantsAll(e, holdfast.Range{})
	a.close(e)
}

// removeUnder removes a directory whose engine is open. It may make a file there just then, and then it is tried again.
func removeUnder(dir string) (err error) {
	for range 100 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
	}

	return err
}

func (s *suite) childVanishes(o order, t *reporter) error {
	e, err := s.Open(o.Dir, holdfast.Options{Level: o.Level})
	if err != nil {
		return err
	}

	for n := uint64(1); n <= 100; n++ {
		if n == 50 {
			if err := removeUnder(o.Dir); err != nil {
				return err
			}
		}
		if err := holdfast.Commit(e, s.script.batch(n), o.Level); err != nil && n < 50 {
			return err
		}
	}
	_, _ = commits.Contents(e, holdfast.Range{})
	_ = e.Sync()
	_ = e.Close()
	t.say("survived")

	return nil
}

// An engine whose directory was removed or renamed does nothing to the one that has its name
// now, which may be another's, and acknowledges nothing at Power: it could not be found again.
func replaced(a *trial) {
	if runtime.GOOS == "windows" {
		a.Skipf("a directory with open files cannot be removed or renamed on Windows")
	}

	for _, how := range []string{"removed", "renamed"} {
		for _, end := range []string{"closed", "died"} {
			dir := a.dir()
			e := a.open(dir)
			a.apply(e, sets("mine", "before"))
			if err := e.Sync(); err != nil && a.s.caps.Power.Given != 0 && !errors.Is(err, holdfast.ErrLevel) {
				a.Fatalf("Sync: %v", err)
			}

			// The directory goes, and another of the same name comes, first empty and then another engine's.
			err := os.Rename(dir, dir+".away")
			if how == "removed" {
				err = removeUnder(dir)
			}
			if err != nil {
				a.Fatalf("%v", err)
			}
			if err := os.Mkdir(dir, 0o755); err != nil {
				a.Fatalf("%v", err)
			}
			a.usesReplaced(e)
			made, err := os.ReadDir(dir)
			if err != nil || len(made) > 0 {
				a.Errorf("the engine whose directory was %s made files where it had been: %v, %v", how, made, err)
			}
			if err := os.RemoveAll(dir); err != nil {
				a.Fatalf("%v", err)
			}

			lines, err := a.runChild(order{Role: "own", Dir: dir, How: end, To: ownBatches})
			if err != nil || len(lines) != 1 || lines[0] != "owned" {
				a.Fatalf("a process that opens the new directory says %q, %v", lines, err)
			}
			a.usesReplaced(e)
			if err := e.Close(); err == nil && e.Capabilities().Strongest() >= holdfast.Power {
				a.Errorf("Close of an engine whose directory was %s succeeds", how)
			}
			e = a.open(dir)
			a.wantsScript(e, ownBatches, ownBatches)
			a.close(e)
		}
	}
}

const ownBatches = 100

// usesReplaced reads and writes with an engine whose directory is another's by now.
func (a *trial) usesReplaced(e holdfast.Engine) {
	a.Helper()

	value := filler(1, 64<<10)
	var b holdfast.Batch
	for n := range a.s.some(400) { // enough for new files
		b.Reset()
		b.Set(fmt.Appendf(nil, "mine %d", n), value)
		r, err := e.Apply(&b, a.level)
		if err == nil {
			err = r.Wait()
		}
		if err == nil && a.given() >= holdfast.Power {
			a.Errorf("a commit at %v is acknowledged", a.level)
			return
		}
		if err != nil {
			a.wantsNamed("a commit to a directory that was replaced", err, holdfast.ErrReplaced)
			a.wantsErr("a commit to a directory that was replaced", err, holdfast.ErrPoisoned)
			break
		}
	}
	if e.Capabilities().Strongest() >= holdfast.Power {
		a.wantsNamed("Sync of a directory that was replaced", e.Sync(), holdfast.ErrReplaced)
		_, err := e.Apply(sets("mine", "after"), a.level)
		a.wantsErr("Apply after that", err, holdfast.ErrPoisoned)
	}
	if got, err := e.Get(nil, []byte("mine")); err == nil && string(got) != "before" ||
		errors.Is(err, holdfast.ErrNotFound) {
		a.Errorf("Get(mine) = %s, %v; want before, or what hinders it", commits.Quote(got), err)
	}
}

// childOwns makes a directory and commits to it.
func (s *suite) childOwns(o order, t *reporter) error {
	e, err := s.Open(o.Dir, holdfast.Options{Level: o.Level})
	if err != nil {
		return err
	}
	if err := s.script.commit(e, 1, o.To, o.Level); err != nil {
		return err
	}
	if err := e.Sync(); err != nil && !errors.Is(err, holdfast.ErrLevel) { // at Memory they would be lost
		return err
	}
	t.say("owned")
	if o.How == "died" {
		return nil
	}

	return e.Close()
}
