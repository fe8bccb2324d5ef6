// Package measure is what the measuring commands of the lab have in common: the machine that they run on, statistics,
// histograms of latencies, and numbers as their tables write them.
package measure

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Machine is what a result was measured on. It names no host.
type Machine struct {
	OS          string `json:"os"`
	Arch        string `json:"arch"`
	Kernel      string `json:"kernel"` // empty if not known, like all strings here
	CPU         string `json:"cpu"`
	CPUs        int    `json:"cpus"`
	MemoryBytes int64  `json:"memory_bytes"` // -1 if not known
	Go          string `json:"go"`
	VM          string `json:"vm"`        // what tells that this is a virtual machine; empty if nothing does
	Container   string `json:"container"` // what tells that this is a container
	// OtherWork is the share of all CPUs that was busy during the run with anything but it, stolen
	// time of a virtual machine included; -1 if not known.
	OtherWork float64 `json:"other_work"`
	Disk      Disk    `json:"disk"`
}

// Disk is where the measurements' directories were.
type Disk struct {
	FileSystem string `json:"file_system"`
	Device     string `json:"device"`
	Kind       string `json:"kind"`  // "virtual disk", "SSD", "rotating disk", "memory"
	Cache      string `json:"cache"` // what the kernel believes of the device's cache: "write back", "write through"
	// SyncP50 is the median time in microseconds of an fdatasync after one write of 4 KiB.
	SyncP50 float64 `json:"fdatasync_p50_us"`
}

// The kinds of disk.
const (
	kindVirtual  = "virtual disk"
	kindSSD      = "SSD"
	kindRotating = "rotating disk"
	kindMemory   = "memory"
)

// Unjournaled is the kind of file system of an ext4 that was made without a journal.
const Unjournaled = "ext4 without a journal"

// Mount is where a directory is mounted. All is empty where that is not known.
type Mount struct {
	Point      string
	FileSystem string
	Device     string
	Options    []string // of the mount and of the file system

	number string // of the device, as 8:1
}

// Family is the kind of file system, with or without a journal: reports from before that was told do not say which.
func (d Disk) Family() string {
	if d.FileSystem == Unjournaled {
		return "ext4"
	}

	return d.FileSystem
}

// InMemory reports that the file system is memory: nothing on it survives the machine.
func (d Disk) InMemory() bool { return d.FileSystem == "tmpfs" || d.FileSystem == "ramfs" }

// Name is the processor, how many there are, the system, and what the program was built with.
func (m Machine) Name() string {
	cpus := "1 CPU"
	if m.CPUs != 1 {
		cpus = fmt.Sprintf("%d CPUs", m.CPUs)
	}

	return fmt.Sprintf("%s, %s, %s %s", cmp.Or(m.CPU, m.Arch), cpus, m.OS, m.Go)
}

// FileSystem is the kind of file system that holds dir; empty if that is not known.
func FileSystem(dir string) string { return lookDisk(dir).FileSystem }

// InMemory reports that dir is on a file system that is memory, as far as that is known.
func InMemory(dir string) bool { return lookDisk(dir).InMemory() }

// Sentence says what kind of disk it is and whether its sync can be believed.
func (m Machine) Sentence() string {
	d := m.Disk
	var s strings.Builder
	s.WriteString("disk: " + cmp.Or(d.FileSystem, "unknown file system"))

	switch d.Kind {
	case "", kindMemory:
	case kindSSD:
		s.WriteString(" on an " + d.Kind)
	default:
		s.WriteString(" on a " + d.Kind)
	}
	if d.Cache != "" {
		s.WriteString(" (" + d.Cache + " cache)")
	}
	s.WriteString(", fdatasync p50 " + Duration(d.SyncP50) + ".")

	switch {
	case d.InMemory():
		s.WriteString(" Memory: a sync reaches nothing, and no figure here is one of a disk.")
	case m.VM != "":
		s.WriteString(" A VM: whether a sync reaches the device cannot be told.")
	case d.Kind == kindVirtual:
		s.WriteString(" A virtual disk: whether a sync reaches a device cannot be told.")
	case m.OS != "linux":
		s.WriteString(" What kind of disk this is cannot be told on " + m.OS + ".")
	case m.Container != "":
		s.WriteString(" A container: other work on the machine may disturb.")
	}

	return s.String()
}

// Describe looks at the machine and at the disk that holds dir, which must be writable.
func Describe(dir string) (Machine, error) {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0), MemoryBytes: -1, OtherWork: -1,
		Go: runtime.Version()}
	look(&m, dir)
	var err error
	m.Disk.SyncP50, err = syncTime(filepath.Join(dir, "sync"))

	return m, err
}

// syncTime writes and syncs 4 KiB in a file prepared for it, for up to a third of a second.
func syncTime(name string) (p50 float64, err error) {
	f, err := os.Create(name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(name)) }()
	const block, blocks, times = 4 << 10, 64, 200
	if _, err := f.Write(make([]byte, block*blocks)); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}

	var took []time.Duration
	buf := make([]byte, block)
	for began := time.Now(); len(took) < times && time.Since(began) < time.Second/3; {
		buf[0]++
		if _, err := f.WriteAt(buf, int64(len(took)%blocks)*block); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := Fdatasync(f); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)

	return Micros(took[len(took)/2]), nil
}
