//go:build !(linux || darwin || freebsd)

package crash

import "os"

func dataAfter(f *os.File, at int64) (from, to int64, err error) { return wholeAfter(f, at) }
