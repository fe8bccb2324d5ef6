package vfs

// WriteMapper is a File that can be written through memory. What is written there is the
// operating system's at once, as with a write call, and Datasync makes it durable. Where the
// device or the file system cannot take a page (an error, or no room in a file whose blocks
// were not written before), the store to it is a memory fault: see debug.SetPanicOnFault.
type WriteMapper interface {
	// MapWrite maps the first size bytes, which must be there, for reading and writing. The
	// mapping outlives the file's Close.
	MapWrite(size int64) (Mapping, error)
}
