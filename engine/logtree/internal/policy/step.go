package policy

// Limits say how far a step of a compaction goes: what it writes and moves takes room until the step is done.
type Limits struct {
	Written int64 // bytes of tables
	Moved   int64 // bytes of values
}

// StepLimits returns the limits that a compaction begins with.
func (z Sizes) StepLimits(r Reason) Limits {
	l := Limits{Written: z.Table, Moved: z.Table}
	if r == Sweep {
		l.Moved = max(l.Moved, z.Segment*3/4)
	}

	return l
}

// LeastStep is the least limit of a step, in bytes.
const LeastStep = 64 << 10

// Shrink returns the limits for a step that has found no room, and false if they cannot be less.
func (z Sizes) Shrink(l Limits) (Limits, bool) {
	least := min(LeastStep, z.Table)
	if l.Written <= least {
		return l, false
	}

	// An eighth at a time, so that few tries are made before the least is reached.
	l.Written = max(l.Written/8, least)
	l.Moved = l.Written

	return l, true
}

// RoomToMove is how many bytes of values can be moved where so many are free, with room for the tables that are written
// with them, which need so many: a little at least.
func (z Sizes) RoomToMove(free, needed int64) int64 {
	return free - min(free, max(needed, min(LeastStep/2, z.Table)))
}

// A walk from the head of a queue passes over all the keys that were deleted there. Once walks have passed over
// MostPassed since the last time that something was done about it, it is worth the work.
const MostPassed = 256 << 10

// DeadKeys reports whether a stretch of keys is compacted because walks have passed over so many deleted keys: as many
// as there are entries in it.
func DeadKeys(passed, entries int64) bool { return passed >= MostPassed && passed >= entries }
