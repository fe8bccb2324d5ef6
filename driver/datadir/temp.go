package datadir

import (
	"os"
	"path/filepath"
)

const tempName = "TEMP"

// Temp is the directory in dir, which an engine made, where a program that has dir open puts what it needs for a time:
// on the file system of the data, and with their room. The program makes and removes it. Checkpoints and copies may be
// made in it, nothing else takes it for a part of dir, and Open removes what a program has left there that was killed.
func Temp(dir string) string { return filepath.Join(dir, tempName) }

// removeTemp removes what is left of files that were there for a time. What cannot be removed does no harm.
func removeTemp(dir string) {
	_ = os.RemoveAll(Temp(dir))
	_ = os.Remove(filepath.Join(dir, MarkName+".tmp")) // a new mark that was not finished
}

// isTemp reports whether the directory name in dir is Temp's.
func isTemp(dir, name string) bool {
	return filepath.Base(name) == tempName && filepath.Dir(name) == filepath.Clean(dir)
}
