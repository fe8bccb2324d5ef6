package blockdev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/holdfastdb/holdfast"
)

// Disk is a mounted file system whose disk is recorded. All methods may be called concurrently.
type Disk struct {
	scratch *scratch
	rec     *recorder
	server  *server
	loop    *os.File
	served  <-chan struct{} // closed when the server has ended
	taken   bool            // Freeze gave the record away; guarded by rec.mu
	stop    func() bool
	once    sync.Once
	err     error
}

// New makes a disk with a new file system and mounts it. Everything from the mount on is in its record. The disk is
// closed when ctx is done. The caller closes the record that Freeze returns.
func New(ctx context.Context, o Options) (*Disk, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := begin(ctx, o)
	if err != nil {
		return nil, err
	}
	base, err := newFileSystem(ctx, o, s)
	if err != nil {
		s.remove()
		return nil, failure("make "+o.FS, s.path, err)
	}

	return start(ctx, o, s, &Record{fs: o.FS, size: o.Size, base: base, shared: true}, &Image{size: o.Size, base: base})
}

// Restore makes a disk with the contents of an image and mounts it, which replays the file system's journal. It is New
// in everything else. The new disk does not need the image any more.
func Restore(ctx context.Context, o Options, im *Image) (*Disk, error) {
	o, err := o.of(im)
	if err != nil {
		return nil, err
	}
	s, err := begin(ctx, o)
	if err != nil {
		return nil, err
	}

	// The image is copied, so that it need not outlive this call.
	base, err := nameless(s.path)
	if err == nil {
		if err = im.fill(base); err != nil {
			base.Close()
		}
	}
	if err != nil {
		s.remove()
		return nil, failure("copy image", s.path, err)
	}

	return start(ctx, o, s, &Record{fs: o.FS, size: o.Size, base: base}, &Image{size: o.Size, base: base})
}

// of completes o with what is fixed by an image.
func (o Options) of(im *Image) (Options, error) {
	if o.FS == "" {
		o.FS = im.fs
	}
	o.Size = im.size
	o, err := o.withDefaults()
	if err == nil && o.FS != im.fs {
		return o, &holdfast.Error{Op: "block recorder", Class: holdfast.ErrBadOption,
			Detail: fmt.Sprintf("%s for an image of %s", o.FS, im.fs), Remedy: "leave FS empty"}
	}

	return o, err
}

// begin checks that disks can be made here and makes a scratch directory.
func begin(ctx context.Context, o Options) (*scratch, error) {
	if err := Check(o.FS); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := newScratch(o.Dir)
	if err != nil {
		return nil, failure("make scratch directory", o.Dir, err)
	}

	return s, nil
}

// failure is the error for what this machine could not do.
func failure(op, path string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}

	return &holdfast.Error{Op: op, Path: path, Class: holdfast.ErrUnavailable, Cause: err}
}

// start serves a disk with the contents of im, attaches it and mounts it. It owns s, and rec's files.
func start(ctx context.Context, o Options, s *scratch, rec *Record, im *Image) (_ *Disk, err error) {
	d := &Disk{scratch: s, rec: newRecorder(rec, maxRecord)}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()

	// From below: files without names, which go with the process; the FUSE server; the file that it serves; a loop device
	// over that; the file system.
	if rec.data, err = nameless(s.path); err != nil {
		return nil, failure("make scratch file", s.path, err)
	}
	d.server = newServer(d.rec, o.Size)
	if d.server.live, err = nameless(s.path); err != nil {
		return nil, failure("make scratch file", s.path, err)
	}
	if err = im.fill(d.server.live); err != nil {
		return nil, failure("copy image", s.path, err)
	}
	if d.served, err = d.server.serve(s.sub(fuseName)); err != nil {
		return nil, failure("mount FUSE", s.sub(fuseName), err)
	}
	// Package os would ask whether the file can be polled, in a system call that the runtime takes for one that
	// never waits: when the answer needs a thread that is not there, everything stops.
	backing, err := unix.Open(filepath.Join(s.sub(fuseName), diskName), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, failure("open disk", s.sub(fuseName), err)
	}
	d.loop, err = attach(backing)
	unix.Close(backing) // the loop device has its own hold
	if err != nil {
		return nil, failure("attach loop device", s.path, err)
	}
	if err = mount(ctx, d.loop.Name(), s.sub(mountName), o); err != nil {
		return nil, err
	}
	if err = ctx.Err(); err != nil {
		return nil, err
	}

	closeWhenDone(ctx, &d.stop, d.Close)

	return d, nil
}

// mount mounts the file system on dev, repaired if it has no journal.
func mount(ctx context.Context, dev, at string, o Options) error {
	if err := repair(ctx, dev, o.FS); err != nil {
		return err
	}
	fs, options := kernelName(o.FS), fileSystems[o.FS].options
	if options != "" && o.Mount != "" {
		options += ","
	}

	// These errors say that the file system found its own structures wrong, and not that the machine cannot mount.
	err := unix.Mount(dev, at, fs, 0, options+o.Mount)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EUCLEAN), errors.Is(err, unix.EBADMSG), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EIO):
		return &holdfast.Error{Op: "mount " + fs, Path: at, Class: holdfast.ErrCorrupt, Cause: err,
			Remedy: "the kernel log has the details"}
	}

	return failure("mount "+fs, at, err)
}

// repair does what a boot does after a power cut where no journal is replayed: the file system's check says yes to all
// that it would mend. One that was unmounted is left as it is.
func repair(ctx context.Context, dev, fs string) error {
	name := fileSystems[fs].check
	if name == "" {
		return nil
	}
	path, err := tool(name)
	if err != nil {
		return failure("repair "+fs, dev, err)
	}
	cmd := exec.CommandContext(ctx, path, "-y", dev)
	said, err := cmd.CombinedOutput()

	// The bits of its answer: 1 and 2 say that errors were found and mended, 4 and 8 that it could not, 32 that it was
	// interrupted. It is negative if the command did not come to its end, or did not run.
	code := cmd.ProcessState.ExitCode()
	switch {
	case err == nil, code == 1, code == 2, code == 3:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	err = fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(said))
	if code < 0 || code >= 16 {
		return failure("repair "+fs, dev, err)
	}

	return &holdfast.Error{Op: "repair " + fs, Path: dev, Class: holdfast.ErrCorrupt, Cause: err,
		Remedy: "run " + name + " by hand"}
}

// Path returns the mount point: the root of the file system, with the lost+found that ext4 has. Make a directory in it.
// See the package comment for what this process must not do there.
func (d *Disk) Path() string { return d.scratch.sub(mountName) }

// Mark puts v into the record, after every request that was answered before the call: a flush that made
// something durable is before the mark of its acknowledgement. It returns the position of the mark, or
// Unrecorded when the record has ended.
func (d *Disk) Mark(v uint64) Position { return d.rec.mark(v) }

// Position returns the number of events recorded so far.
func (d *Disk) Position() Position { return d.rec.position() }

// Flushes returns the number of flushes that succeeded so far, recorded or not.
func (d *Disk) Flushes() int64 {
	d.rec.mu.Lock()
	defer d.rec.mu.Unlock()

	return d.rec.flushes
}

// Writes returns the number of writes that succeeded so far, recorded or not.
func (d *Disk) Writes() int64 {
	d.rec.mu.Lock()
	defer d.rec.mu.Unlock()

	return d.rec.writes
}

// FailedReads returns the number of reads that a fault has made fail so far. They are not in the record.
func (d *Disk) FailedReads() int64 {
	d.rec.mu.Lock()
	defer d.rec.mu.Unlock()

	return d.server.failedReads
}

// Fail makes requests fail from now on as f says, and ends what an earlier call began. File systems stop writing for
// good when their own records cannot be written: the zero Fault repairs the disk, not the mounted file system.
func (d *Disk) Fail(f Fault) { d.server.setFault(f) }

// Freeze ends the record and returns it: the moment of the power cut. The disk goes on, unrecorded. The record outlives
// the disk; later calls return the same one. Called after Close for the first time it returns a record without data.
func (d *Disk) Freeze() *Record {
	rec := d.rec.freeze()
	d.rec.mu.Lock()
	d.taken = true
	d.rec.mu.Unlock()

	return rec
}

// Close unmounts the disk and removes all but the record. If some program still has files open there after thirty
// seconds, it detaches the mount, fails all further I/O, and returns an error. It may be called more than once, and
// waits for a Close that is running.
func (d *Disk) Close() error {
	d.once.Do(func() { d.err = d.close() })
	return d.err
}

// close is Close, once.
func (d *Disk) close() error {
	if d.stop != nil {
		d.stop()
	}

	// The order is that of making it, backwards. A mount in use is detached, and then everything below must go on until
	// its last user has gone.
	rec := d.rec.freeze()
	if d.server != nil {
		// Unmounting writes all that is not on the disk yet. Nobody reads it again, and the disk below may be busy.
		d.server.discard()
	}
	var err error

	// A fault that is still on would make unmounting fail. Where the mount stays in use, everything fails from now on,
	// so that its user ends.
	if mounted(d.Path()) {
		d.Fail(Fault{})
		err = unmount(d.Path(), unmountTimeout)
		if err != nil {
			d.Fail(Fault{Writes: true, Flushes: true})
		}
	}

	// The loop device detaches itself when its last user, the mount, has gone.
	if d.loop != nil {
		err = firstOf(err, d.loop.Close())
	}
	if d.served != nil {
		wait := unmountTimeout
		if err == errDetached {
			wait = 0
		}
		if e := unmount(d.scratch.sub(fuseName), wait); e != nil {
			err = firstOf(err, e)
		} else {
			<-d.served
		}
	}

	// The live file must stay as long as something may still be served from it.
	if err == nil && d.server != nil && d.server.live != nil {
		err = d.server.live.Close()
	}
	d.rec.mu.Lock()
	taken := d.taken
	d.rec.mu.Unlock()
	if !taken && rec.data != nil {
		err = firstOf(err, rec.Close())
	}
	if err = firstOf(err, d.scratch.remove()); err != nil {
		return failure("close disk", d.scratch.path, err)
	}

	return nil
}

// Mounted is an image that is mounted. Programs may use it freely; what they write there is not recorded.
type Mounted struct {
	scratch *scratch
	loop    *os.File
	stop    func() bool
	once    sync.Once
	err     error
}

// Mount mounts the image, which replays the file system's journal. Its contents are in memory: what is not zero of the
// disk. Of o, only Dir and Mount are used, and FS if it is named. The error is ErrCorrupt if the file
// system refuses the image.
// The mount is closed when ctx is done. The image may be mounted again, also at the same time.
func (im *Image) Mount(ctx context.Context, o Options) (_ *Mounted, err error) {
	o, err = o.of(im)
	if err != nil {
		return nil, err
	}
	s, err := begin(ctx, o)
	if err != nil {
		return nil, err
	}

	m := &Mounted{scratch: s}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	// A flush of a file on a real disk would be one, and nothing here needs to last.
	fd, err := unix.MemfdCreate(filepath.Base(s.path), unix.MFD_CLOEXEC)
	if err != nil {
		return nil, failure("make memory file", s.path, err)
	}

	backing := os.NewFile(uintptr(fd), "memfd")
	defer backing.Close()
	if err = im.fill(backing); err != nil {
		return nil, failure("copy image", s.path, err)
	}
	if m.loop, err = attach(fd); err != nil {
		return nil, failure("attach loop device", s.path, err)
	}
	if err = mount(ctx, m.loop.Name(), m.Path(), o); err != nil {
		return nil, err
	}
	if err = ctx.Err(); err != nil {
		return nil, err
	}
	closeWhenDone(ctx, &m.stop, m.Close)

	return m, nil
}

// MakeFileSystem makes an empty file system of o.Size in a sparse file below o.Dir, and mounts it. Programs may use it
// freely. Nothing is recorded: a flush is one of that file, and so of the disk that it is on. The mount is closed when
// ctx is done.
func MakeFileSystem(ctx context.Context, o Options) (_ *Mounted, err error) {
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	s, err := begin(ctx, o)
	if err != nil {
		return nil, err
	}

	m := &Mounted{scratch: s}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	backing, err := os.OpenFile(s.sub(makeName), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, failure("make image", s.path, err)
	}
	defer backing.Close() // the loop device has its own hold
	if err = makeFileSystem(ctx, backing, o); err != nil {
		return nil, failure("make file system", s.path, err)
	}
	if m.loop, err = attach(int(backing.Fd())); err != nil {
		return nil, failure("attach loop device", s.path, err)
	}
	if err = mount(ctx, m.loop.Name(), m.Path(), o); err != nil {
		return nil, err
	}
	closeWhenDone(ctx, &m.stop, m.Close)

	return m, nil
}

// Path returns the mount point.
func (m *Mounted) Path() string { return m.scratch.sub(mountName) }

// Close unmounts the image, with the same timeout as Disk.Close, and removes what is left. It may be called more than
// once.
func (m *Mounted) Close() error {
	m.once.Do(func() { m.err = m.close() })
	return m.err
}

// close is Close, once: from the top down.
func (m *Mounted) close() error {
	if m.stop != nil {
		m.stop()
	}
	var err error
	if mounted(m.Path()) {
		err = unmount(m.Path(), unmountTimeout)
	}
	if m.loop != nil {
		err = firstOf(err, m.loop.Close())
	}
	if err = firstOf(err, m.scratch.remove()); err != nil {
		return failure("close image", m.scratch.path, err)
	}

	return nil
}

// Save writes the image to a new sparse file, as evidence. OpenImage reads it; so does mount -o loop.
func (im *Image) Save(path string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return failure("save image", path, err)
	}
	if err = firstOf(im.fill(f), f.Sync(), f.Close()); err != nil {
		os.Remove(path)
		return failure("save image", path, err)
	}

	return nil
}

// OpenImage opens a file that Save wrote, or any raw image of a file system. The file must not change while the image
// is used; it is closed once the image is unreachable.
func OpenImage(path, fs string) (*Image, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, failure("open image", path, err)
	}
	info, err := f.Stat()
	if err == nil {
		_, err = Options{FS: fs, Size: info.Size()}.withDefaults()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	if fs == "" {
		fs = "ext4"
	}

	return &Image{fs: fs, size: info.Size(), base: f}, nil
}
