package badger

import (
	"fmt"
	"os"
)

// openHandle keeps dir open and names it by its descriptor in /proc, which leads to the same directory whatever
// becomes of its path.
func openHandle(dir string) (handle, error) {
	f, err := os.Open(dir)
	if err != nil {
		return handle{}, err
	}
	name := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	held, err := f.Stat()
	if st, e := os.Stat(name); err != nil || e != nil || !os.SameFile(st, held) { // there is no /proc
		return handle{name: dir, dir: dir}, f.Close()
	}

	return handle{name, dir, f}, nil
}
