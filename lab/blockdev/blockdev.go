// Package blockdev records everything that a file system asks of its disk, and rebuilds the disks that
// a power cut at any moment could leave.
//
// A [Disk] is a real file system of [FileSystems], made with its own mkfs and mounted with its default options, on a
// loop device, on the one file of a small FUSE server in this process. The server sees every write,
// discard and flush of the loop device, whatever the program above does: mmap, cgo, anything. [Disk.Mark] puts
// acknowledgements into the same sequence. [Record.Cut] makes an [Image]: everything that the last flush before
// the cut covers, and of the later writes none, all, or a seeded subset, torn at sectors of 512 bytes.
//
// # The disk that is modelled
//
// It has a volatile write cache and handles one request at a time, in the order in which they reach the server, which
// is the order of the record; a flush covers every write before it. A device may cover less only with requests that are
// under way together with the flush, and no file system counts on those. Of the writes that no flush covers, a cut
// keeps any subset, and sectors of one write may part; a sector is old or new, never anything else, and when two kept
// writes overlap the later one wins. The loop device has no FUA, so the kernel sends a flush after such a write. A
// discarded range reads as zeros; a discard is cached like a write. A failed request (see [Fault]) changes nothing and
// covers nothing.
//
// # Rules for the process that holds a Disk
//
// It serves the disk, so it must not wait for the disk where the Go runtime cannot run something else: it must not map
// files of [Disk.Path] into memory, nor start programs with a working directory or an executable there. Plain system
// calls (open, read, write, fsync) are safe. What is tested runs in a child process and is told the path. An [Image]
// that is mounted is not served by this process: there, everything is allowed.
//
// Everything may be called concurrently. Disks and images of several processes do not disturb each other; what a killed
// process left, [CleanUp] removes. It needs Linux, root, /dev/fuse and loop devices: [Check] says what is missing.
package blockdev

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast"
)

// Sector is the unit in bytes in which writes tear.
const Sector = 512

// Bounds of Options in bytes. Each file system has its own lower bound on top: see [MinSize].
const (
	sizeUnit = 1 << 20
	maxSize  = 16 << 30
)

// maxRecord bounds a record in bytes of scratch space. Each event counts for 512 bytes more than its data, so that the
// 40 bytes of memory that each takes are bounded too. Beyond it recording ends: [Record.Err] says so.
const maxRecord = 4 << 30

// fsInfo is what is known of a file system.
type fsInfo struct {
	mkfs, pack        string // the command, and the Debian package that has it
	args              []string
	minSize, normSize int64
	options           string // of mount(2), beyond the defaults
	kernel            string // what the kernel calls it, if that is not its name here
	check             string // the command that repairs it before it is mounted, if no journal does
}

// Unjournaled is ext4 without a journal, as some hosts of virtual machines and containers make it. After a power cut it
// is mounted once e2fsck has repaired it.
const Unjournaled = "ext4-nojournal"

// fileSystems are those a Disk can have. The arguments leave everything that shows in use at its default. ext4 gets the
// block size of large disks, and its tables and journal are made at once instead of by a kernel thread after mounting,
// which would fill the record with writes of its own.
var fileSystems = map[string]fsInfo{
	"ext4": {
		mkfs: "mkfs.ext4", pack: "e2fsprogs", minSize: 16 << 20, normSize: 256 << 20,
		args: []string{"-q", "-F", "-b", "4096", "-I", "256", "-E", "lazy_itable_init=0,lazy_journal_init=0"},
	},
	Unjournaled: {
		mkfs: "mkfs.ext4", pack: "e2fsprogs", minSize: 16 << 20, normSize: 256 << 20,
		args:   []string{"-q", "-F", "-b", "4096", "-I", "256", "-O", "^has_journal", "-E", "lazy_itable_init=0"},
		kernel: "ext4", check: "e2fsck",
	},
	// Every image has the same UUID; xfs mounts two of them at a time only when told to.
	"xfs": {mkfs: "mkfs.xfs", pack: "xfsprogs", minSize: 300 << 20, normSize: 512 << 20, args: []string{"-q", "-f"},
		options: "nouuid"},
	"btrfs": {
		mkfs: "mkfs.btrfs", pack: "btrfs-progs", minSize: 128 << 20, normSize: 512 << 20, args: []string{"-q", "-f"},
	},
}

// FileSystems lists the file systems that a Disk can have, the default first.
func FileSystems() []string { return []string{"ext4", "xfs", "btrfs", Unjournaled} }

// Mount is a file system with options of its mount beyond the defaults, separated by commas.
type Mount struct{ FS, Options string }

// String returns both, as in "ext4 commit=1".
func (m Mount) String() string { return strings.TrimSpace(m.FS + " " + m.Options) }

// Mounts lists the mounts of a file system on which programs meet different orders of their writes, its default one
// first; those of all file systems with a journal if fs is empty, in an order in which neighbours differ most.
func Mounts(fs string) []Mount {
	if fs == Unjournaled {
		return []Mount{{FS: fs}, {FS: fs, Options: "noauto_da_alloc"}}
	}

	// By default ext4 starts to write a file when it replaces another by rename. That hides a sync that is missing.
	all := []Mount{{FS: "ext4"}, {FS: "xfs"}, {FS: "ext4", Options: "noauto_da_alloc"}, {FS: "btrfs"}}
	return slices.DeleteFunc(all, func(m Mount) bool { return fs != "" && m.FS != fs })
}

// Commits reports whether the mount option commit=SECONDS tells a file system how often it writes what it has in mind.
func Commits(fs string) bool { return fs == "ext4" || fs == "btrfs" }

// MinSize returns the smallest Options.Size of a file system in bytes, 0 if it is not known.
func MinSize(fs string) int64 { return fileSystems[fs].minSize }

// Options say what disk to make. The zero value is an ext4 of 256 MiB with its scratch data in the directory for
// temporary files.
type Options struct {
	// FS is ext4, xfs, btrfs or [Unjournaled]; empty means ext4, or that of the image.
	FS string
	// Size is that of the disk in bytes, a multiple of 1 MiB up to 16 GiB; 0 means 256 MiB for ext4, 512 MiB for the
	// others. What is not written takes no space. Images have the size of their disk.
	Size int64
	// Inodes is how many files and directories ext4 can have, about; 0 means as many as it chooses. Others have no limit.
	Inodes int
	// Mount are options of the mount beyond the defaults, such as commit=1, separated by commas.
	Mount string
	// Dir is an existing directory on a real disk for mount points and scratch data; empty means os.TempDir.
	Dir string
}

// withDefaults fills in what is 0 and refuses what no disk can be made with, before anything of it is made.
func (o Options) withDefaults() (Options, error) {
	if o.FS == "" {
		o.FS = "ext4"
	}
	fs, ok := fileSystems[o.FS]
	if !ok {
		return o, &holdfast.Error{Op: "block recorder", Class: holdfast.ErrBadOption,
			Detail: fmt.Sprintf("file system %q", o.FS), Remedy: "use " + strings.Join(FileSystems(), ", ")}
	}
	if o.Inodes != 0 && o.FS != "ext4" || o.Inodes < 0 {
		return o, &holdfast.Error{Op: "block recorder", Class: holdfast.ErrBadOption,
			Detail: fmt.Sprintf("%d inodes of %s", o.Inodes, o.FS), Remedy: "choose a number for ext4 only"}
	}
	if o.Size == 0 {
		o.Size = fs.normSize
	}
	if o.Size < fs.minSize || o.Size > maxSize || o.Size%sizeUnit != 0 {
		return o, &holdfast.Error{Op: "block recorder", Class: holdfast.ErrBadOption,
			Detail: fmt.Sprintf("a disk of %d bytes for %s", o.Size, o.FS),
			Remedy: fmt.Sprintf("use a multiple of 1 MiB from %d MiB to %d MiB", fs.minSize>>20, int64(maxSize)>>20)}
	}

	return o, nil
}

// Position is a place in a record: the number of events before it.
type Position int

// Unrecorded is the Position of a mark that came after the record had ended.
const Unrecorded Position = -1

// Kind is what an Event is.
type Kind uint8

// The kinds of events.
const (
	Write   Kind = iota + 1 // data was written to the cache of the disk
	Flush                   // everything before it became durable
	Discard                 // a range was made to read as zeros
	Mark                    // Disk.Mark was called
)

// String returns the kind in one lower-case word.
func (k Kind) String() string {
	switch k {
	case Write:
		return "write"
	case Flush:
		return "flush"
	case Discard:
		return "discard"
	case Mark:
		return "mark"
	}

	return "kind " + strconv.Itoa(int(k))
}

// Event is one entry of a Record.
type Event struct {
	Kind   Kind
	Offset int64         // in bytes; of a write or discard
	Length int64         // in bytes; of a write or discard
	Value  uint64        // of a mark
	At     time.Duration // since the disk was made
	Err    syscall.Errno // with which the request failed; it then changed nothing
}

// String returns the event in one line.
func (e Event) String() string {
	s := e.Kind.String()
	switch e.Kind {
	case Write, Discard:
		s += fmt.Sprintf(" of %d bytes at %d", e.Length, e.Offset)
	case Mark:
		s += " " + strconv.FormatUint(e.Value, 10)
	}
	if e.Err != 0 {
		s += ", failed: " + e.Err.Error()
	}

	return s
}

// Fault makes requests of a disk fail, as a broken or full device does. The zero value makes none fail.
type Fault struct {
	Writes  bool // writes and discards fail
	Flushes bool // flushes fail
	Reads   bool // reads fail that touch a byte of From to To; 0 for To means all of the disk
	From    int64
	To      int64

	// Err is the error, 0 for EIO. The loop device may show the file system EIO for any error.
	Err syscall.Errno

	// The first After such requests still succeed. Then Times of them fail, and the disk is well again; 0 for Times means
	// that all fail.
	After int64
	Times int64
}

// A Policy says what a power cut leaves of the writes that no flush covers. The zero value is Nothing.
type Policy struct {
	mode policyMode
	seed uint64
	lied int
}

// policyMode is which of the writes that no flush covers a cut keeps.
type policyMode uint8

const (
	modeNothing policyMode = iota
	modeEverything
	modeTorn
	modeSubset
)

// Nothing is a cut that loses every write that was not flushed.
func Nothing() Policy { return Policy{} }

// Everything is a cut that loses no write that had reached the disk.
func Everything() Policy { return Policy{mode: modeEverything} }

// Torn is a cut in the middle of the last write: it parts at sectors, and none before it is lost. The seed and the
// position decide where.
func Torn(seed uint64) Policy { return Policy{mode: modeTorn, seed: seed} }

// Subset is a cut that keeps some of the writes that were not flushed, whole or torn at sectors, in whatever order. The
// seed and the position decide which; the same two give the same image again.
func Subset(seed uint64) Policy { return Policy{mode: modeSubset, seed: seed} }

// Lied returns the policy of a disk that lied: it answered the last n flushes before the cut and kept nothing for them,
// so that p is about everything since the flush before these.
func (p Policy) Lied(n int) Policy {
	p.lied = max(n, 0)
	return p
}

// String returns nothing, everything, torn:SEED or subset:SEED, and how many flushes were a lie.
func (p Policy) String() string {
	text := "nothing"
	switch p.mode {
	case modeEverything:
		text = "everything"
	case modeTorn:
		text = "torn:" + strconv.FormatUint(p.seed, 10)
	case modeSubset:
		text = "subset:" + strconv.FormatUint(p.seed, 10)
	}
	if p.lied > 0 {
		text += fmt.Sprintf(" since %d flushes before", p.lied)
	}

	return text
}
