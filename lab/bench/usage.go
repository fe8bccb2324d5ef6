package bench

import "github.com/holdfastdb/holdfast/driver/datadir"

// usage is the space that the regular files below dir take on the device, in bytes.
func usage(dir string) int64 {
	_, bytes := datadir.Usage(dir)
	return bytes
}
