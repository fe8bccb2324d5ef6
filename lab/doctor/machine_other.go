//go:build !linux

package doctor

const dsyncFlag, directFlag = 0, 0 // not known, or not there

// lookAt says that nothing is known: where to look is only known on Linux.
func lookAt(string) Place {
	return Place{ReadAhead: -1, FreeBytes: -1, TotalBytes: -1, MemoryLimit: -1, OpenFiles: -1, Mappings: -1}
}

// alignedBlock needs no alignment, because nothing here opens a file past the cache.
func alignedBlock() []byte { return make([]byte, block) }
