package bench

import (
	"io/fs"
	"path/filepath"
)

// usage is the space that the regular files below dir take on the device, in bytes.
func usage(dir string) int64 {
	total := int64(0)
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // what just went takes nothing
		}
		if info, err := d.Info(); err == nil {
			total += allocated(info)
		}
		return nil
	})
	return total
}
