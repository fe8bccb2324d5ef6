package measure

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Fdatasync asks the device to keep what was written to f.
func Fdatasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err != unix.EINTR {
			return err
		}
	}
}

// CPUTimeOf is what a process has used up to now, user and system, -1 if that is not known.
func CPUTimeOf(pid int) time.Duration {
	const ofProcess = 2 // as clock_getcpuclockid makes them
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|ofProcess), &t); err != nil {
		return -1
	}

	return time.Duration(t.Nano())
}

// PeakRSS is the most memory that a process had resident, in bytes, -1 if that is not known. The
// kernel's own account in getrusage begins before exec, with what the parent had, and is
// of no use here.
func PeakRSS(pid int) int64 {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return -1
	}
	_, rest, ok := bytes.Cut(status, []byte("VmHWM:"))
	fields := bytes.Fields(rest)
	if !ok || len(fields) == 0 {
		return -1
	}
	kib, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return -1
	}

	return kib << 10
}

// Memory is what a process has in memory now, in bytes, -1 if that is not known: all that is resident, and of that what
// is its own alone, without the pages of files that are mapped, which the system takes back when it wants to.
func Memory(pid int) (resident, own int64) {
	statm, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	fields := bytes.Fields(statm)
	if err != nil || len(fields) < 3 {
		return -1, -1
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	files, err2 := strconv.ParseInt(string(fields[2]), 10, 64)
	if err != nil || err2 != nil {
		return -1, -1
	}
	page := int64(os.Getpagesize())

	return pages * page, (pages - files) * page
}
