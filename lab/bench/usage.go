package bench

import "github.com/holdfastdb/holdfast/lab/contender"

// usage is the space that the regular files below dir take on the device, in bytes.
func usage(dir string) int64 {
	_, bytes := contender.Usage(dir)
	return bytes
}
