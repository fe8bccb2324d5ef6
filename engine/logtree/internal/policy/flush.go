package policy

// Memtable is what is known of a memtable that is to be flushed.
type Memtable struct {
	Bytes    int64   // that it has in the log, without large values
	Large    int64   // bytes of large values, which stay in the log
	Replaced float64 // see State
	Urgent   bool    // there is little room on the disk

	Keys      int64 // whose newest versions are written
	Ascending int64 // of them, those that were put after the key before them
}

// A flush writes the values too, in the order of their keys, if few keys ascend in the log and values are small. The
// log is then garbage as a whole, and goes without moving anything, and a scan reads a few streams instead of the log
// from everywhere. It costs one more write of each value, so that it is left to sweeps where there will be some.
const (
	mostAscending = 0.75    // share of keys
	mostOrdered   = 2 << 10 // bytes of a key and its value
	leastOrdered  = 4       // a memtable of less than that share of a full one is not worth the file
	leaveOrdered  = 4       // times what is written has to be free on the disk
)

// MayOrder reports whether it is worth counting keys, see Orders, with so many bytes free on the disk.
func (z Sizes) MayOrder(m *Memtable, free int64) bool {
	return !m.Urgent && m.Replaced <= sweepReplaces && m.Bytes >= z.Memtable/leastOrdered &&
		m.Large <= m.Bytes/leastOrdered && free/leaveOrdered >= m.Bytes
}

// Orders reports whether a flush writes the memtable's values in the order of their keys.
func (m *Memtable) Orders() bool {
	return m.Bytes < mostOrdered*m.Keys && float64(m.Ascending) < mostAscending*float64(m.Keys)
}
