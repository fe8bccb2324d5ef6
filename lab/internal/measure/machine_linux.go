package measure

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// look finds out more about the machine from /proc and /sys. What cannot be read stays
// unknown.
func look(m *Machine, dir string) {
	m.Kernel = line("/proc/sys/kernel/osrelease")
	cpuinfo := contents("/proc/cpuinfo")
	m.CPU = field(cpuinfo, "model name")
	if fields := strings.Fields(field(contents("/proc/meminfo"), "MemTotal")); len(fields) > 0 {
		if kib, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
			m.MemoryBytes = kib << 10
		}
	}
	m.VM = hypervisor(cpuinfo)
	m.Container = container()
	m.Disk = lookDisk(dir)
}

// hypervisor says what tells that this is a virtual machine.
func hypervisor(cpuinfo string) string {
	for _, flag := range strings.Fields(field(cpuinfo, "flags")) {
		if flag == "hypervisor" {
			return "the processor's hypervisor flag"
		}
	}

	product := line("/sys/class/dmi/id/sys_vendor") + " " + line("/sys/class/dmi/id/product_name")
	for _, name := range []string{"QEMU", "KVM", "VMware", "VirtualBox", "Virtual Machine", "Xen", "Bochs", "Parallels",
		"Amazon EC2", "Google Compute Engine", "OpenStack", "Firecracker"} {
		if strings.Contains(product, name) {
			return "the firmware says " + name
		}
	}
	if kind := line("/sys/hypervisor/type"); kind != "" {
		return "the kernel says " + kind
	}

	return ""
}

func container() string {
	for _, name := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(name); err == nil {
			return name
		}
	}

	groups := contents("/proc/1/cgroup")
	for _, name := range []string{"docker", "kubepods", "containerd", "lxc", "libpod"} {
		if strings.Contains(groups, name) {
			return "control group of " + name
		}
	}

	return ""
}

func lookDisk(dir string) Disk {
	mount := MountOf(dir)
	d := Disk{FileSystem: mount.fileSystem("/sys"), Device: mount.Device}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil {
		switch int64(fs.Type) {
		case unix.TMPFS_MAGIC:
			d.FileSystem = "tmpfs"
		case unix.RAMFS_MAGIC:
			d.FileSystem = "ramfs"
		}
	}
	if d.InMemory() {
		d.Kind = kindMemory
		return d
	}
	sys := mount.Sys()
	if sys == "" {
		return d
	}

	model := line(filepath.Join(sys, "device/model"))
	base := filepath.Base(sys)
	switch {
	case strings.HasPrefix(base, "vd"), strings.HasPrefix(base, "xvd"),
		strings.Contains(model, "QEMU"), strings.Contains(model, "Virtual"), strings.Contains(model, "VBOX"),
		strings.Contains(model, "PersistentDisk"), strings.Contains(model, "Elastic Block Store"):
		d.Kind = kindVirtual
	case line(filepath.Join(sys, "queue/rotational")) == "1":
		d.Kind = kindRotating
	default:
		d.Kind = kindSSD
	}
	d.Cache = line(filepath.Join(sys, "queue/write_cache"))

	return d
}

// fileSystem is the kind of file system of a mount, by what the system says in sys. ext4 without a journal is
// named as a kind of its own: a sync costs less there, and a power cut leaves more to fsck.
func (m Mount) fileSystem(sys string) string {
	if m.FileSystem == "ext4" && line(filepath.Join(sys, "fs/ext4", m.block(sys), "journal_task")) == "<none>" {
		return Unjournaled
	}

	return m.FileSystem
}

// block is what the system calls the device of a mount, empty if it is none: by its number, where the file system has
// that of its device, because a name as /dev/root need not be there.
func (m Mount) block(sys string) string {
	if m.number != "" {
		if real, err := filepath.EvalSymlinks(filepath.Join(sys, "dev/block", m.number)); err == nil {
			return filepath.Base(real)
		}
	}
	name, ok := strings.CutPrefix(m.Device, "/dev/")
	if !ok {
		return ""
	}
	if real, err := filepath.EvalSymlinks(m.Device); err == nil {
		name = filepath.Base(real)
	}

	return name
}

// Sys is the directory of /sys that describes the mount's whole device; empty if there is none.
func (m Mount) Sys() string {
	name := m.block("/sys")
	if name == "" {
		return ""
	}
	sys, err := filepath.EvalSymlinks("/sys/class/block/" + name)
	if err != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(sys, "partition")); err == nil {
		sys = filepath.Dir(sys)
	}

	return sys
}

// MountOf finds the mount that holds dir: the longest mount point above it, and of equal ones the last, which
// hides the others. It is the zero Mount if that cannot be told.
func MountOf(dir string) Mount {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Mount{}
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	}

	var m Mount
	for l := range strings.Lines(contents("/proc/self/mountinfo")) {
		// 36 35 98:0 /root /point options [optional...] - type source options
		head, tail, ok := strings.Cut(l, " - ")
		before, after := strings.Fields(head), strings.Fields(tail)
		if !ok || len(before) < 6 || len(after) < 3 {
			continue
		}
		point := unescape.Replace(before[4])
		if (abs == point || point == "/" || strings.HasPrefix(abs, point+"/")) && len(point) >= len(m.Point) {
			m = Mount{Point: point, FileSystem: after[0], Device: unescape.Replace(after[1]), number: before[2],
				Options: append(strings.Split(before[5], ","), strings.Split(after[2], ",")...)}
		}
	}

	return m
}

// unescape undoes how mountinfo writes blanks and backslashes.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func contents(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}

	return string(b)
}

func line(name string) string { return strings.TrimSpace(contents(name)) }

// field is the value of the first line "name : value".
func field(text, name string) string {
	for l := range strings.Lines(text) {
		key, value, ok := strings.Cut(l, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}

	return ""
}

// Work returns a function that tells the share of all CPUs that was busy since with anything but this
// process and the children it has waited for; -1 if that is not known.
func Work() func() float64 {
	busy, total := cpuTicks()
	own := ownCPU()

	return func() float64 {
		busyNow, totalNow := cpuTicks()
		all := float64(totalNow - total)
		if all <= 0 {
			return -1
		}
		ownTicks := (ownCPU() - own).Seconds() * ticksPerSecond

		return min(max((float64(busyNow-busy)-ownTicks)/all, 0), 1)
	}
}

// ticksPerSecond is USER_HZ, which is 100 on every Linux that Go runs on.
const ticksPerSecond = 100

// cpuTicks reads how long all CPUs together were busy, and the whole time, since the start.
func cpuTicks() (busy, total int64) {
	first, _, _ := strings.Cut(contents("/proc/stat"), "\n")
	fields := strings.Fields(first)
	// cpu user nice system idle iowait irq softirq steal guest guest_nice; guest time is in
	// user time already.
	for i, f := range fields[min(1, len(fields)):min(9, len(fields))] {
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, 0
		}
		total += ticks
		if i != 3 && i != 4 {
			busy += ticks
		}
	}

	return busy, total
}

func ownCPU() time.Duration {
	var children unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &children); err != nil {
		return 0
	}

	return max(CPUTime(), 0) + time.Duration(children.Utime.Nano()+children.Stime.Nano())
}
