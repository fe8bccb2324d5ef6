package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// Sync says whether what was synced can be believed to be kept.
type Sync string

// What a verdict can be. Software above a disk can show that a sync is untrue, and never that it is true.
const (
	Untrue    Sync = "no"
	Unknown   Sync = "cannot be told"
	Plausible Sync = "nothing speaks against it"
)

// Verdict is what the figures and the system say of the directory's sync.
type Verdict struct {
	Sync Sync     `json:"sync"`
	Why  []string `json:"why"` // sentences
}

// Item is something to change.
type Item struct {
	What string `json:"what"`
	Do   string `json:"do"`
}

const (
	// halfTurn is half a turn of a disk with 15,000 turns a minute, the fastest that were sold: what a write waits for
	// on average, if it is not kept in the disk's memory.
	halfTurn = 2000 // us
	// callOnly is less than any command to a device takes: an NVMe command has 5 us and more, by the bus alone.
	callOnly = 4 // us
	// tooFast is more bytes a microsecond than any bus to one device has (PCIe 5.0 with four lanes has 16,000).
	tooFast = 20_000
	// flash is below what a flush takes of flash memory without a capacitor, by some margin: programming a page takes
	// hundreds of us.
	flash = 150 // us
)

// judge says what the figures and the system say of a sync.
func judge(r *Report) (v Verdict) {
	v.Sync = Plausible

	// A verdict only gets worse: what was found untrue stays so, whatever else is seen.
	say := func(sync Sync, format string, args ...any) {
		if sync == Untrue || sync == Unknown && v.Sync == Plausible {
			v.Sync = sync
		}
		v.Why = append(v.Why, fmt.Sprintf(format, args...))
	}
	m, p := r.Machine, r.Place
	d := m.Disk
	has := func(option string) bool { return slices.Contains(p.MountOptions, option) }

	// Nothing else matters then.
	if d.InMemory() {
		say(Untrue, "It is a file system in memory: nothing there survives the machine.")
		return v
	}

	for _, option := range []string{"nobarrier", "barrier=0"} {
		if has(option) {
			say(Untrue, "It is mounted with %s: the file system never asks the device to keep anything.", option)
		}
	}
	if d.FileSystem == "overlay" && has("volatile") {
		say(Untrue, "It is an overlay mounted with volatile, which leaves syncs out.")
	}
	synced, clean, large := r.step(stepSync), r.step(stepClean), r.step(stepLarge)

	// What the call itself takes is not the device's.
	took := max(synced.P50-r.step(stepWrite).P50, 0)
	switch {
	case synced.Times == 0:
	case took < callOnly:
		say(Untrue, "A sync takes %s: that is the call alone, and no device was asked.", measure.Duration(took))
	case d.Kind == "rotating disk" && took < halfTurn:
		say(Untrue, "A sync takes %s, but half a turn of the disk takes %s or more: it answers from its memory.",
			measure.Duration(took), measure.Duration(halfTurn))
	case large.P50 > 0 && ladderBytes/large.P50 > tooFast:
		say(Untrue, "16 MiB were kept within %s, faster than any bus to a disk.", measure.Duration(large.P50))
	}

	// Only the first of these is said: each alone means that a device below cannot be seen.
	switch {
	case slices.Contains([]string{"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "virtiofs"}, d.FileSystem) ||
		strings.HasPrefix(d.FileSystem, "fuse"):
		say(Unknown, "%s hands a sync to another program or machine, which may keep it or not.", d.FileSystem)
	case m.VM != "" || d.Kind == "virtual disk":
		say(Unknown, "It is a virtual machine: the host decides what becomes of a flush, and some are told to drop it.")
	case strings.HasPrefix(d.Device, "/dev/loop"):
		say(Unknown, "It is an image in a file: examine the directory which that lies in.")
	case d.FileSystem == "zfs":
		say(Unknown, "ZFS can be told to drop syncs (zfs get sync), which no program can see.")
	case m.OS != "linux" || d.Device == "":
		say(Unknown, "The device is not known here.")
	}
	if v.Sync != Untrue && d.Cache == "write through" {
		say(Plausible, "The device says that it has no cache that loses power (write through), so that the system "+
			"sends no flush.")
	}
	if v.Sync == Plausible && d.Kind == "SSD" && d.Cache == "write back" && took < flash {
		say(Plausible, "%s is fast for flash memory: right for a drive whose cache has a capacitor (its data sheet says "+
			"power loss protection), and wrong for one without.", measure.Duration(took))
	}
	if v.Sync != Untrue && clean.P50 > 0 && clean.P50 > took*3/4 && clean.P50 > callOnly {
		say(v.Sync, "A sync of nothing takes %s: the device is asked each time.", measure.Duration(clean.P50))
	}
	if v.Sync != Untrue {
		say(v.Sync, "Only a plug that is pulled shows more: holdfast doctor witness --help.")
	}

	return v
}

// step returns a step of the ladder, empty if it was not taken.
func (r *Report) step(name string) Step {
	for _, s := range r.Ladder {
		if s.Name == name && s.Refused == "" {
			return s
		}
	}

	return Step{}
}

const (
	muchReadAhead = 1 << 20
	fewOpenFiles  = 4096
	fewMappings   = 65530
)

// advise says what to change.
func advise(r *Report) (list []Item) {
	add := func(what, do string) { list = append(list, Item{what, do}) }
	p, d := r.Place, r.Machine.Disk
	if r.Verdict.Sync == Untrue {
		add("Power means nothing here", "put the data on another disk or mount, or ask for Process and know that a power "+
			"cut may cost anything")
	}
	if p.ReadAhead > muchReadAhead {
		add(fmt.Sprintf("the device reads %s ahead", measure.Size(p.ReadAhead)), "engines that read by mappings (bbolt) "+
			"read that much for each page; as root, echo 128 > the device's queue/read_ahead_kb in /sys/class/block. logtree "+
			"advises the system itself")
	}
	if p.OpenFiles >= 0 && p.OpenFiles < fewOpenFiles {
		add(fmt.Sprintf("this process may open %d files", p.OpenFiles),
			fmt.Sprintf("let it open %d: ulimit -n, or LimitNOFILE= of systemd", fewOpenFiles))
	}
	if p.Mappings >= 0 && p.Mappings < fewMappings {
		add(fmt.Sprintf("a process may have %d mappings", p.Mappings), fmt.Sprintf("sysctl vm.max_map_count=%d", fewMappings))
	}
	if p.TotalBytes > 0 && p.FreeBytes < p.TotalBytes/10 {
		add("less than a tenth of the disk is free", "engines need room to rewrite data: docs/sizing.md says how much")
	}
	if p.MemoryLimit >= 0 && p.MemoryLimit < 512<<20 {
		add(fmt.Sprintf("the process may take %s of memory", measure.Size(p.MemoryLimit)),
			"name a budget that fits (Options.MemoryBytes, serve --memory): docs/sizing.md has what is on top of it")
	}
	if d.FileSystem == measure.Unjournaled {
		add("the file system has no journal", "what is synced there need not survive a power cut: e2fsck removes what was "+
			"being renamed, and the end of files that grew (holdfast crash --kind power --fs ext4-nojournal). Put the data on "+
			"one with a journal; tune2fs -j, unmounted, gives it one. Syncs that change a file's size cost less without")
	}
	if d.FileSystem == "btrfs" && !slices.Contains(p.MountOptions, "nodatacow") {
		add("btrfs writes each overwritten block to a new place", "a sync costs more there: compare with bench --fs ext4")
	}
	if took := r.step(stepSync).P50; r.Verdict.Sync != Untrue && took > 0 && took < 500 && r.Machine.VM != "" {
		add(fmt.Sprintf("a sync takes %s", measure.Duration(took)), "many disks that people have take 0.5 to 10 ms: "+
			"figures of this machine at Power flatter whoever syncs often")
	}

	return list
}
