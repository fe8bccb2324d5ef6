//go:build !unix

package db

import "os"

func allocated(name string) int64 {
	info, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return info.Size()
}
