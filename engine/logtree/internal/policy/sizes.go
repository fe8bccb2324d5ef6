package policy

import "cmp"

const (
	// MaxFull is how many full memtables may wait to be flushed; then writers wait.
	MaxFull = 2

	// MaxRangeTombstones is the number of range deletes that fill a memtable.
	MaxRangeTombstones = 1 << 12

	// MaxSegment and MaxTable are the full sizes of files in bytes, roughly, where there is memory and room for them, and
	// MinSegment that of the log's first segment, if the budget allows.
	MaxSegment = 64 << 20
	MinSegment = 256 << 10
	MaxTable   = 8 << 20

	maxMemtable = 256 << 20
	minMemtable = 1 << 20 // on a small disk
)

// Budget is what the sizes of files follow from.
type Budget struct {
	Chosen Sizes // those that are not 0 are taken as they are
	Memory int64 // bytes of memtables and caches
	Room   int64 // bytes that the database can have on its disk
}

// Memtable is how large one becomes.
func (b *Budget) Memtable() int64 {
	return cmp.Or(b.Chosen.Memtable, min(b.Memory/5, maxMemtable, max(b.Room/16, minMemtable)))
}

// fileShare is how many files of a kind there are before they are made larger, up to their full size: of the log, the
// present segment and the next take room that nothing is in, and one is given back as a whole.
const fileShare = 64

// Files returns the full sizes of segments and tables for a log and tables of so many bytes. They grow with what is
// stored, so that the number of files stays small.
func (b *Budget) Files(log, tables int64) (segment, table int64) {
	segment = min(max(b.Memory/4, log/fileShare), MaxSegment, max(b.Room/16, MinSegment))
	table = min(max(b.Memory/16, tables/fileShare), MaxTable, max(b.Room/64, LeastStep))

	return cmp.Or(b.Chosen.Segment, segment), cmp.Or(b.Chosen.Table, table)
}

// MaxMoveWrite is how many bytes of moved values are written at a time, from one multiple of that in the file to the
// next: where the system's cache may have large pages, as on XFS, and on ext4 since Linux 6.16, that is one, which
// costs less to fill and to find than one for each 4 KiB.
const MaxMoveWrite = 256 << 10

// MoveWrite is that within the budget. There are two such buffers, a compaction's and a flush's.
func (b *Budget) MoveWrite() int64 {
	if b.Memory < 64*MaxMoveWrite {
		return MaxMoveWrite / 4
	}

	return MaxMoveWrite
}

// leastFull is the size in bytes up to which segments double, whatever the log's size.
const leastFull = 8 << 20

// NextSegment is the size of the log's next segment after one of size last: they grow with the log until they have
// their full size, so that a small database is a small directory.
func (z Sizes) NextSegment(last, log int64) int64 {
	return min(max(2*last, MinSegment), max(log/fileShare, leastFull), z.Segment)
}

const (
	// lastSegment is the size in bytes of a segment that is made for deletes where there is no room for others.
	lastSegment = 64 << 10

	// leastSegment is the size of the smallest segment that is tried.
	leastSegment = 4 << 10
)

// NewSegment is the size of a segment that is made for a frame of n bytes, for which it needs so many; next is what
// NextSegment says. last says that it may take all the room there is, which comes out of what compactions need.
func (z Sizes) NewSegment(next, need int64, n int, last bool) int64 {
	size := max(need, next)
	if n > MinSegment { // room for more like this one
		size = max(size, min(4*need, z.Segment))
	}
	if last {
		size = max(need, min(size, lastSegment))
	}

	return size
}

// SmallerSegment is the size that is tried where there is no room for a segment of that size, and false if none is.
func SmallerSegment(size, need int64, last bool) (int64, bool) {
	least := int64(lastSegment)
	if last {
		least = leastSegment
	}

	return size / 2, size/2 >= max(need, least)
}

// LeaveForOthers is how much room a new segment leaves on the disk for what makes more of it: a flush, and a compaction
// of everything that empties one segment. largest is the size of the largest segment, needed what [Load.NeededRoom]
// says.
func (z Sizes) LeaveForOthers(largest, needed int64) int64 {
	return largest + z.Memtable/4 + needed + min(LeastStep, z.Table)
}

// A segment is filled with zeros if Power commits in the last one came at least as often as every zeroEvery bytes:
// writing every byte once more costs more than it saves where commits are large. Up to zeroAlways bytes it costs
// little, and at first there is nothing to go by.
const (
	zeroEvery  = 64 << 10
	zeroAlways = 4 << 20
)

// Zeros reports whether a segment of that size is filled with zeros, after one of size last that had so many Power
// commits.
func Zeros(size, last, commits int64) bool { return commits >= last/zeroEvery || size <= zeroAlways }

// Full reports whether nothing more is put into a memtable that weighs so much, and would then have so many range
// deletes.
func (z Sizes) Full(weight int64, ranges int) bool {
	return weight > z.Memtable || ranges >= MaxRangeTombstones
}

// EarlyRanges is the number of range deletes up to which it is looked at what they cover.
const EarlyRanges = MaxRangeTombstones / 64

// FlushesEarly reports whether a memtable is ended after a range delete because its range deletes cover so many bytes
// of what tables name: to have the space back is worth more than the flush.
func (z Sizes) FlushesEarly(covered int64) bool { return covered >= z.Memtable }

const (
	reserveShare = 16 // of the log's bytes
	leastReserve = 64 << 10

	// LeastRestored is the size in bytes of the smallest reserve that is made again after it was given up.
	LeastRestored = leastReserve / 4
)

// Reserve is the size of the file that is made to take room for later where there is one of size have, and whether it
// is made: the database has grown.
func (z Sizes) Reserve(log, have int64) (size int64, grows bool) {
	size = min(log/reserveShare, z.Segment/2)
	return size, size >= leastReserve && size >= 2*have
}
