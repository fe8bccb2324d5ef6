package kinds

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// writeBack lets pages that nobody has synced reach the disk, as the kernel does when it needs memory or time has
// passed: it starts the writing of random ranges of random files below dir at random moments, on descriptors of its
// own, and calls wrote after each, until end is called. Victims live too short for the kernel to do it by itself, so
// that a page that must not be written before the log that covers it is synced would never come before it.
func writeBack(ctx context.Context, dir string, seed uint64, wrote func()) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)

		rnd := rand.New(rand.NewPCG(seed, 0))
		for ctx.Err() == nil {
			sleep(ctx, time.Duration(rnd.Int64N(int64(writeBackPause))))
			names := slices.Sorted(maps.Keys(files(dir)))
			if len(names) == 0 {
				continue
			}

			for range 1 + rnd.IntN(3) {
				if writeBackOne(names[rnd.IntN(len(names))], rnd) {
					wrote()
				}
			}
		}
	}()

	return func() {
		cancel()
		<-done
	}
}

// writeBackPause is the longest pause of writeBack.
const writeBackPause = 16 * time.Millisecond

// writeBackOne starts to write a range of a file, and reports whether it could: the file may be gone, or no file.
func writeBackOne(name string, rnd *rand.Rand) bool {
	// Without these flags a pipe or a link in the directory could hold the lab up, or lead it elsewhere.
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return false
	}
	from, length := writeBackRange(st.Size, rnd)

	// Only the writing is started. Nothing waits for it, and no flush is sent: this makes nothing durable.
	return unix.SyncFileRange(fd, from, length, unix.SYNC_FILE_RANGE_WRITE) == nil
}
