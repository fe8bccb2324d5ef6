package policy

// Tidy is what is known when it is decided whether what was deleted is flushed for the sake of its space, though
// nothing else brings that about.
type Tidy struct {
	Tiers   []Tier // newest first
	Covered int64  // bytes that tables name and range deletes of the memtable cover
	Deletes int64  // of the memtable
	Tail    int64  // bytes of the log that the memtable has
	Disk    int64  // bytes of all segments
}

// gain is how many bytes that tables name the memtable deletes, each key for as much as the oldest tier has for one.
func (t *Tidy) gain() int64 {
	gain := t.Covered
	if n := len(t.Tiers); n > 0 {
		oldest := t.Tiers[n-1]
		gain += oldest.Values / max(oldest.Entries, 1) * t.Deletes
	}

	return gain
}

// least is how many bytes have to come back for the work to be worth it.
func (t *Tidy) least() int64 { return max(MinGarbage, t.Disk/8) }

// Promising reports whether it is worth counting how many bytes of the memtable's part of the log are alive; otherwise
// all of it is taken to be.
func (t *Tidy) Promising() bool { return t.Deletes > 0 && t.gain()+t.Tail >= t.least() }

// Flush reports whether the memtable is ended, of which so many bytes are alive.
func (t *Tidy) Flush(live int64) bool { return t.Deletes > 0 && t.gain()+t.Tail-live >= t.least() }

// Shrinks reports whether the log's segment of that size is left for a small one: it is much larger than what is left.
func (t *Tidy) Shrinks(size, live int64) bool {
	named := int64(0)
	for _, x := range t.Tiers {
		named += x.Values
	}
	left := max(named-t.gain(), 0) + live

	return size >= 4*max(left, MinSegment)
}
