//go:build !unix

package contender

import "io/fs"

func allocated(info fs.FileInfo) int64 { return info.Size() }

// syncDir does nothing: directories cannot be synced here.
func syncDir(string) error { return nil }
