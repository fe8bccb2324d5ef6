//go:build unix

package bbolt

import (
	"errors"
	"math/bits"
	"os"
	"syscall"
)

const mapCaveat = "Snapshots and iterators do not hold up writers until the file reaches 256 GiB, or twice its size " +
	"at Open (512 MiB on 32-bit systems, less where address space is limited; see initial_mmap_size). Beyond that a " +
	"commit that must map more waits for them to be closed."

// mapSize is how much address space to reserve for the file at path. It costs nothing: the
// file does not grow with it, and no memory is used for what is not read.
func mapSize(path string) int {
	if bits.UintSize == 32 {
		return 512 << 20
	}
	size := int64(256 << 30)
	if st, err := os.Stat(path); err == nil {
		size = max(size, 2*st.Size())
	}

	return int(size)
}

// outOfAddressSpace reports whether the system would not map as much.
func outOfAddressSpace(err error) bool { return errors.Is(err, syscall.ENOMEM) }
