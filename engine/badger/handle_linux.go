package badger

import (
	"fmt"
	"os"
)

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
