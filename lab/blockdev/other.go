//go:build !linux

package blockdev

import (
	"context"

	"github.com/holdfastdb/holdfast"
)

var errOther = &holdfast.Error{Op: "block recorder", Class: holdfast.ErrUnavailable, Detail: "it needs Linux",
	Remedy: "run it on Linux"}

// Disk is a mounted file system whose disk is recorded. There is none on this system.
type Disk struct{}

// Mounted is an image that is mounted. There is none on this system.
type Mounted struct{}

// Check returns ErrUnavailable: disks are made on Linux only.
func Check(string) error { return errOther }

// New returns ErrUnavailable.
func New(context.Context, Options) (*Disk, error) { return nil, errOther }

// Restore returns ErrUnavailable.
func Restore(context.Context, Options, *Image) (*Disk, error) { return nil, errOther }

// Places returns none.
func Places() []string { return nil }

// CleanUp finds nothing.
func CleanUp(string) (cleaned int, err error) { return 0, nil }

// OpenImage returns ErrUnavailable.
func OpenImage(string, string) (*Image, error) { return nil, errOther }

// MakeFileSystem returns ErrUnavailable.
func MakeFileSystem(context.Context, Options) (*Mounted, error) { return nil, errOther }

// Path returns the mount point.
func (*Disk) Path() string { return "" }

// Mark puts a mark into the record.
func (*Disk) Mark(uint64) Position { return Unrecorded }

// Position returns the number of events recorded so far.
func (*Disk) Position() Position { return Unrecorded }

// Flushes returns how many flushes were answered.
func (*Disk) Flushes() int64 { return 0 }

// FailedReads returns how many reads were refused.
func (*Disk) FailedReads() int64 { return 0 }

// Fail makes requests fail.
func (*Disk) Fail(Fault) {}

// Freeze ends the record and returns it.
func (*Disk) Freeze() *Record { return &Record{} }

// Close unmounts the disk.
func (*Disk) Close() error { return nil }

// Mount returns ErrUnavailable.
func (*Image) Mount(context.Context, Options) (*Mounted, error) { return nil, errOther }

// Save returns ErrUnavailable.
func (*Image) Save(string) error { return errOther }

// Path returns the mount point.
func (*Mounted) Path() string { return "" }

// Close unmounts the image.
func (*Mounted) Close() error { return nil }
