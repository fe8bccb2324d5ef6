package blockdev

import (
	"fmt"
	"io"
	"log"
	"os"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// The FUSE file system has a root directory and in it one file, the disk.
const (
	rootNode = 1
	diskNode = 2
	diskName = "disk"
	// unchanging is how long the kernel may keep names and attributes, which never change.
	unchanging = 24 * 3600 // seconds
)

// server is the FUSE file system. Requests are served one at a time, under rec.mu.
type server struct {
	fuse.RawFileSystem
	rec  *recorder
	live *os.File // what the disk holds now; sparse
	size int64

	// guarded by rec.mu
	fault Fault
	left  int64 // requests that fault lets through yet
	drop  bool  // writes are answered and not kept: the disk is being thrown away

	failures    int64 // requests that fault has made fail
	failedReads int64 // of any fault
}

// newServer serves a disk of that size, which the caller fills before serve.
func newServer(rec *recorder, size int64) *server {
	return &server{RawFileSystem: fuse.NewDefaultRawFileSystem(), rec: rec, size: size}
}

// serve mounts s at dir and answers until it is unmounted, when the channel is closed.
//
// It opens the device itself, so that children do not inherit it: a connection lasts as long as some process has the
// device open, so a killed run's would never end while a child of that run waits in the kernel for an answer on it.
func (s *server) serve(dir string) (ended <-chan struct{}, err error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	options := fmt.Sprintf("fd=%d,rootmode=%o,user_id=%d,group_id=%d,max_read=%d", fd, unix.S_IFDIR, os.Geteuid(),
		os.Getegid(), fuse.MAX_KERNEL_WRITE)
	if err := unix.Mount(scratchPrefix, dir, "fuse.holdfast", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		unix.Close(fd)
		return nil, err
	}
	fs, err := fuse.NewServer(s, fmt.Sprintf("/dev/fd/%d", fd), &fuse.MountOptions{ // which it owns from now on
		MaxWrite: fuse.MAX_KERNEL_WRITE, DisableXAttrs: true, DisableReadDirPlus: true,
		Logger: log.New(io.Discard, "", 0),
	})
	if err != nil {
		unix.Unmount(dir, unix.MNT_DETACH) // mounted, but not served
		return nil, err
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		fs.Serve()
	}()

	return done, nil
}

// String names the file system for package fuse.
func (s *server) String() string { return "holdfast" }

// attr fills the attributes of a node, which never change.
func (s *server) attr(node uint64, out *fuse.Attr) fuse.Status {
	switch node {
	case rootNode:
		*out = fuse.Attr{Ino: rootNode, Mode: syscall.S_IFDIR | 0o700, Nlink: 2}
	case diskNode:
		*out = fuse.Attr{Ino: diskNode, Mode: syscall.S_IFREG | 0o600, Nlink: 1, Size: uint64(s.size), Blksize: 4096}
	default:
		return fuse.ENOENT
	}

	return fuse.OK
}

// Lookup finds the one file there is.
func (s *server) Lookup(_ <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if header.NodeId != rootNode || name != diskName {
		return fuse.ENOENT
	}
	out.NodeId = diskNode
	out.SetEntryTimeout(unchanging * time.Second)
	out.SetAttrTimeout(unchanging * time.Second)

	return s.attr(diskNode, &out.Attr)
}

// GetAttr implements [fuse.RawFileSystem].
func (s *server) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.SetTimeout(unchanging * time.Second)
	return s.attr(in.NodeId, &out.Attr)
}

// SetAttr refuses every change: the disk has one size.
func (s *server) SetAttr(<-chan struct{}, *fuse.SetAttrIn, *fuse.AttrOut) fuse.Status {
	return fuse.EPERM
}

// StatFs tells a block size that the loop device works with.
func (s *server) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	// The loop device takes the granularity of discards from here.
	*out = fuse.StatfsOut{Blocks: uint64(s.size / 4096), Bsize: 4096, Frsize: 4096, NameLen: 255}
	return fuse.OK
}

// Open keeps the page cache of the kernel out of it: each write of the loop device becomes a request before it
// is answered.
func (s *server) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if in.NodeId != diskNode {
		return fuse.EISDIR
	}
	out.OpenFlags = fuse.FOPEN_DIRECT_IO

	return fuse.OK
}

// Read answers from what the disk holds now, or with the error of a fault.
func (s *server) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	if in.Offset >= uint64(s.size) {
		return fuse.ReadResultData(nil), fuse.OK
	}
	buf = buf[:min(int64(len(buf)), int64(in.Size), s.size-int64(in.Offset))]
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	bad := s.fault.To == 0 || int64(in.Offset) < s.fault.To && int64(in.Offset)+int64(len(buf)) > s.fault.From
	if err := s.injected(s.fault.Reads && bad); err != 0 {
		s.failedReads++
		return nil, fuse.Status(err)
	}
	if _, err := s.live.ReadAt(buf, int64(in.Offset)); err != nil {
		return nil, fuse.EIO
	}

	return fuse.ReadResultData(buf), fuse.OK
}

// Write is Writev with one part.
func (s *server) Write(c <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	return s.Writev(c, in, [][]byte{data})
}

// Writev keeps data and records it, all under rec.mu: the order of the record is that in which the disk changed.
func (s *server) Writev(_ <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	var n int64
	for _, part := range data {
		n += int64(len(part))
	}
	if !s.inside(in.Offset, uint64(n)) {
		return 0, fuse.EINVAL
	}
	e := event{kind: Write, off: int64(in.Offset), n: n}
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	if err := s.injected(s.fault.Writes); err != 0 {
		return 0, fuse.Status(s.failed(e, err))
	}
	if s.drop {
		return uint32(n), fuse.OK
	}

	off := e.off
	for _, part := range data {
		if _, err := s.live.WriteAt(part, off); err != nil {
			return 0, fuse.Status(s.failed(e, syscall.EIO))
		}
		off += int64(len(part))
	}

	// It is recorded only after the disk has it, and before it is answered: what was answered is in the record.
	s.rec.add(e, data)
	s.rec.writes++

	return uint32(n), fuse.OK
}

// inside reports whether a request is for whole sectors of the disk, as all of a block device are.
func (s *server) inside(off, n uint64) bool {
	return off%Sector == 0 && n%Sector == 0 && n <= uint64(s.size) && off <= uint64(s.size)-n
}

// Fallocate serves what the loop device makes of discards and of writes of zeros.
func (s *server) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	return fuse.Status(s.fallocate(in.Mode, in.Offset, in.Length))
}

// fallocate makes a range zeros and records it as a discard.
func (s *server) fallocate(mode uint32, off, n uint64) syscall.Errno {
	switch mode {
	case unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE,
		unix.FALLOC_FL_ZERO_RANGE:
	default:
		return syscall.EOPNOTSUPP
	}
	if !s.inside(off, n) {
		return syscall.EINVAL
	}
	e := event{kind: Discard, off: int64(off), n: int64(n)}
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	if err := s.injected(s.fault.Writes); err != 0 {
		return s.failed(e, err)
	}
	if s.drop {
		return 0
	}
	if err := zero(s.live, e.off, e.n); err != nil {
		return s.failed(e, syscall.EIO)
	}
	s.rec.add(e, nil)

	return 0
}

// Fsync is a flush of the loop device. There is nothing to do: what is kept is decided by Cut.
func (s *server) Fsync(<-chan struct{}, *fuse.FsyncIn) fuse.Status {
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	if err := s.injected(s.fault.Flushes); err != 0 {
		return fuse.Status(s.failed(event{kind: Flush}, err))
	}
	s.rec.add(event{kind: Flush}, nil)
	s.rec.flushes++

	return fuse.OK
}

// discard answers writes from now on without keeping them.
func (s *server) discard() {
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	s.drop = true
}

// injected returns the error that a request must fail with, 0 if none; mine says that the fault is meant for its kind.
func (s *server) injected(mine bool) syscall.Errno {
	if !mine {
		return 0
	}

	// Requests are counted only while they are of the fault's kind.
	if s.left > 0 {
		s.left--
		return 0
	}
	if s.fault.Times > 0 {
		if s.failures >= s.fault.Times {
			return 0
		}
		s.failures++
	}

	return s.fault.Err
}

// failed records a request that changed nothing.
func (s *server) failed(e event, err syscall.Errno) syscall.Errno {
	e.err = uint32(err)
	s.rec.add(e, nil)

	return err
}

// setFault begins a fault, and ends the one before with its counts.
func (s *server) setFault(f Fault) {
	if f.Err == 0 {
		f.Err = syscall.EIO
	}
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	s.fault, s.left, s.failures = f, f.After, 0
}
