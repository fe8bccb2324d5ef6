// Package policy decides what logtree does in the background, what writers have to wait for, and when they are refused.
// It knows numbers only: no lock, file, clock or goroutine. Package db gathers the numbers, asks, and does what the
// answer says, so that what is decided can be tested as a table and simulated without a database.
//
// What the numbers are about: values lie in segments, most of them of the log. Tables name keys and where their values
// lie, and stand in tiers, of which a newer one is right about a key that both have. A value that was overwritten or
// deleted is garbage. A compaction merges tiers, which shows where there is garbage, and can move what is alive out of
// segments (its victims), which gives the garbage back.
//
//   - [Pick] says which compaction is due, [PickRequested] what is next of one that was asked for.
//   - [StepLimits], [Shrink] and [Takes] say how far a step of a compaction goes.
//   - [Load.Stall] says how much garbage writers may leave before they are slowed down, and how much that is.
//   - [Tidy] says when what was deleted is flushed for the sake of its space.
//   - The rest are the sizes of files, and how much room each leaves on the disk for others.
package policy

// Sizes are how large files and memtables become, in bytes.
type Sizes struct {
	Memtable int64
	Segment  int64
	Table    int64
}

// Tier is what is known of a tier of tables.
type Tier struct {
	ID         uint64 // a newer tier has a greater one
	FileBytes  int64
	Values     int64 // bytes of keys and values that the tables name
	Entries    int64 // how many those are
	Tombstones int64
	Worn       bool // range deletes have cut a table so often that rewriting it is cheaper than keeping it
}

// Segment is what is known of a file of values.
type Segment struct {
	ID      uint32
	Moved   bool  // compactions or flushes have written it; otherwise it is part of the log
	Flushed bool  // a flush has
	InLog   bool  // the log needs it: what it holds is not in tables yet
	Open    bool  // a compaction writes to it
	Damaged bool  // a value in it cannot be read: it is not emptied
	Used    int64 // bytes of the file
	Payload int64 // bytes of keys and values that were written to it
	Live    int64 // bytes of keys and values that tables name in it
}

// garbage is how many bytes of the file are known to be garbage, with their share of what frames need.
func (s *Segment) garbage() int64 {
	switch dead := s.Payload - s.Live; {
	case s.Live == 0:
		return s.Used
	case s.Payload > 0 && dead > 0:
		return int64(float64(s.Used) * float64(dead) / float64(s.Payload))
	}

	return 0
}

// State is what is known of a database when a compaction is chosen.
type State struct {
	Sizes
	Tiers    []Tier    // newest first
	Segments []Segment // that tables name

	// Floor is 0 while no compaction is under way. Otherwise only tiers with greater ids may take part, and no segments
	// are emptied.
	Floor uint64

	// Urgent says that the log waits for room on the disk, or did for its last segment.
	Urgent bool

	// Replaced is the share of the keys flushed lately that tables had before.
	Replaced float64

	// Room is how many bytes of values can be moved. What a compaction moves takes room until it is done.
	Room int64
}

// newer returns how much newer tiers hold compared with the oldest one, and how many bytes a key and its value usually
// have together. What a tombstone deletes is garbage, too, and taken to be of the usual size.
func newer(tiers []Tier) (share float64, usual int64) {
	if len(tiers) == 0 {
		return 0, 0
	}
	oldest := tiers[len(tiers)-1]
	usual = oldest.Values / max(oldest.Entries, 1)

	newer := int64(0)

	for _, t := range tiers[:len(tiers)-1] {
		newer += t.Values + usual*t.Tombstones
	}

	return float64(newer) / float64(max(oldest.Values, 1)), usual
}

// Replaced returns the share of flushed keys that tables had before, after a flush in which filters say that replaced
// of keys were there.
func Replaced(was float64, keys, replaced int64) float64 {
	const weight = 0.2 // of one flush
	if keys == 0 {
		return was
	}

	return was + weight*(float64(replaced)/float64(keys)-was)
}

// Speed returns how many keys a second sweeps come to, after a step that took so long for so many; was is 0 before the
// first one.
func Speed(was float64, keys int64, seconds float64) float64 {
	const weight = 0.1 // of one step
	if seconds <= 0 || keys == 0 {
		return was
	}
	speed := float64(keys) / seconds
	if was == 0 {
		return speed
	}

	return 1 / ((1-weight)/was + weight/speed) // the times are averaged, not the speeds
}
