//go:build !linux

package doctor

const dsyncFlag, directFlag = 0, 0 // not known, or not there

func lookAt(string) Place {
	return Place{ReadAhead: -1, FreeBytes: -1, TotalBytes: -1, MemoryLimit: -1, OpenFiles: -1, Mappings: -1}
}

func alignedBlock() []byte { return make([]byte, block) }
