package pebble

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync/atomic"
)

// log is a write-ahead log file. Pebble asks for a sync of it for every commit that waits, at Process and at Power
// alike; only those that Power needs are real.
//
// Pebble writes and syncs a log from one goroutine and closes it from another that has
// waited for the first to end, so the fields need no lock. Only one log is written at a
// time.
type log struct {
	file
	written  int64 // bytes
	synced   int64 // bytes known to be on the device; written >= synced
	reserved int64 // bytes, from the beginning of the file
}

// Write hands p to the operating system, with honest sync offsets.
func (l *log) Write(p []byte) (int, error) {
	// synced is what was on the device before this write, so no chunk says of itself that it is synced.
	if !l.d.frozen() {
		if err := stampOffsets(p, l.written, l.synced); err != nil {
			l.d.fail("write", l.path, err)
		}
	}
	n, err := l.file.Write(p)
	l.written += int64(n)

	return n, err
}

// SyncData is what Pebble calls for commits that wait, and once more before it closes
// the log.
func (l *log) SyncData() error {
	// It counts as answered when it ends, whether it was real or not, which is what demand relies on.
	defer l.d.demand.asked()
	if !l.d.demand.power() {
		return nil
	}

	return l.sync()
}

// Sync is SyncData: what else there is to sync of a log does not matter.
func (l *log) Sync() error { return l.SyncData() }

// sync syncs the log for real if anything was written since the last time. It reports only what [file.done] does; a
// failure has frozen the disk when it returns.
func (l *log) sync() error {
	if l.synced == l.written {
		return nil
	}
	err := l.file.SyncData()
	if !l.d.lost() { // if its name leads elsewhere, nobody would find this log again
		l.synced = l.written
	}

	return err
}

// Close syncs what no Power commit has waited for. Pebble closes a log before it makes
// the next one, so a power cut never leaves a hole between two logs.
//
// Pebble reserves 1.1 times its largest memtable for each log, but begins with small
// memtables. What such a log did not need is given back: three of them took 210 MiB for 2 MiB
// of data, which a nearly full disk does not have.
func (l *log) Close() error {
	// Whether it worked is known to the disk, which is frozen if not.
	_ = l.sync()
	if l.reserved > l.written && !l.d.frozen() {
		// A crash before it leaves the reserved zeros, which a reader takes for the end of the log.
		_ = trim(l.Fd(), l.written) // space is all that is lost
	}

	return l.file.Close()
}

// Preallocate reserves space.
func (l *log) Preallocate(offset, length int64) error {
	err := l.file.Preallocate(offset, length)

	// Kept even if the call failed: part of the space may be there, and trim takes all behind the data away.
	l.reserved = max(l.reserved, offset+length)

	return err
}

// demand knows whether a commit at Power waits for the sync that Pebble asks for. Pebble's
// flush loop collects the commits that wait, writes, and then syncs; the sync itself does
// not say whose it is.
//
// A Power commit calls begin before Pebble gets it, queued once Pebble has it in its
// queue, and settled when its sync has been waited for, if ever. The sync that covers it
// is then either one that starts between begin and queued, or the first or second that
// ends after queued: the one being served may have collected its commits before.
type demand struct {
	syncs    atomic.Uint64 // answered, really or not
	entering atomic.Int64  // Power commits between begin and queued
	waiting  atomic.Int64  // Power commits between begin and settled
	until    atomic.Uint64 // the last sync that can cover a Power commit in the queue
}

// begin is called before Pebble gets the commit.
func (d *demand) begin() {
	// waiting rises first and falls last: power looks at it only when entering is 0.
	d.waiting.Add(1)
	d.entering.Add(1)
}

// queued is called when Pebble has the commit in its queue, or has refused it.
func (d *demand) queued() {
	// The sync that is being answered now may have collected its commits before this one came. So up to the second from
	// here on may be the one that covers it.
	last := d.syncs.Load() + 2

	// until only grows: another commit may have set it further already.
	for {
		until := d.until.Load()
		if until >= last || d.until.CompareAndSwap(until, last) {
			break
		}
	}

	// Only now, with until raised, may power decide without this commit.
	d.entering.Add(-1)
}

// settled is called when the commit's sync was waited for, or will never be asked for. A receipt that nobody waits for
// leaves waiting too high for good; until then bounds what that costs.
func (d *demand) settled() { d.waiting.Add(-1) }

// power reports whether the sync being asked for may cover a Power commit. A commit that
// leaves entering has raised until first, so the order of the loads matters.
func (d *demand) power() bool {
	if d.entering.Load() > 0 {
		return true
	}

	// The sync that asks is the next to be counted, hence the 1.
	return d.waiting.Load() > 0 && d.syncs.Load()+1 <= d.until.Load()
}

// asked counts a sync as answered.
func (d *demand) asked() { d.syncs.Add(1) }

// A log is a sequence of blocks, and a block a sequence of chunks, of which none crosses
// the end of a block:
//
//	checksum   4 bytes   CRC32C of what follows it, masked
//	length     2 bytes   of the payload
//	kind       1 byte    1-4, 5-8 or 9-12: full, first, middle or last of a record
//	log        4 bytes   number of the log; only kinds 5 to 12
//	synced     8 bytes   length of the log known synced before this; only kinds 9 to 12
//	payload
//
// The rest of a block that is too short for a header is zero. All numbers are little
// endian. When a chunk is damaged, Pebble looks for a later one that says it had been
// synced: there is the line between a torn tail and corruption.
const (
	blockSize     = 32 << 10
	plainHeader   = 7
	logHeader     = plainHeader + 4
	syncedHeader  = logHeader + 8
	lastPlainKind = 4
	lastLogKind   = 8
	lastKind      = 12
)

// chunkHeader returns the length of the header of a chunk of that kind, 0 if there is no
// such kind.
func chunkHeader(kind byte) int {
	switch {
	case kind == 0 || kind > lastKind:
		return 0
	case kind <= lastPlainKind:
		return plainHeader
	case kind <= lastLogKind:
		return logHeader
	}

	return syncedHeader
}

// stampOffsets replaces the synced offsets in p, which is to be written at offset at of a
// log, by the true one. Pebble's own counts syncs that were not real: after a power cut it
// would take a torn tail for corruption and refuse to open. It also leaves out whole
// blocks, and would take corruption for a torn tail.
//
// Pebble writes whole chunks only.
func stampOffsets(p []byte, at, synced int64) error {
	for len(p) > 0 {
		// Chunks never cross the end of a block, so each block is walked for itself.
		left := min(blockSize-int(at%blockSize), len(p))
		n := left // to the end of the block, if it is only filling
		if left >= plainHeader && p[6] != 0 {
			header := chunkHeader(p[6])
			n = header + int(binary.LittleEndian.Uint16(p[4:]))
			if header == 0 || n > left {
				return fmt.Errorf("unknown chunk of kind %d at byte %d of the log", p[6], at)
			}

			// The offset is covered by the checksum, which is made anew.
			if header == syncedHeader {
				binary.LittleEndian.PutUint64(p[logHeader:], uint64(synced))
				binary.LittleEndian.PutUint32(p, chunkSum(p[6:n]))
			}
		}
		p, at = p[n:], at+int64(n)
	}

	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunkSum is the checksum of a chunk: masked, because the payload may itself hold
// checksums.
func chunkSum(p []byte) uint32 {
	c := crc32.Checksum(p, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}
