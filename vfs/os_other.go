//go:build !linux

package vfs

// Allocate implements [File]: zeros are written behind the end.
func (f *osFile) Allocate(size int64) error {
	if err := f.checkSize("allocate", size); err != nil {
		return err
	}
	return f.lengthen(size)
}

// Datasync implements [File].
func (f *osFile) Datasync() error { return f.Sync() }
