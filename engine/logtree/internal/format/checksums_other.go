//go:build !amd64

package format

// Checksums is [Checksum] of four at once.
func Checksums(of *[4][]byte) [4]uint32 { return checksumsEach(of) }
