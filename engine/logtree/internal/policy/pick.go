package policy

import (
	"cmp"
	"slices"
)

// Reason is why a compaction is due.
type Reason int

const (
	// MakeRoom is a compaction of all tiers because the log waits for room: it takes the least room itself, and shows
	// where there is garbage.
	MakeRoom Reason = iota + 1

	// Sweep moves small values out of all segments of the log, and out of moved segments with some garbage.
	Sweep

	// EmptySegments moves values out of the segments with the greatest share of garbage, or out of many small ones.
	EmptySegments

	// NewerTiers merges all tiers because newer ones hold much compared with the oldest: what they replace is garbage
	// that is not known yet.
	NewerTiers

	// LikeSizes merges the newest tiers, which are of like size.
	LikeSizes

	// Worn rewrites a tier that range deletes have cut.
	Worn
)

// String names the reason for logs and traces.
func (r Reason) String() string {
	return [...]string{"nothing", "make room", "sweep", "empty segments", "newer tiers", "like sizes", "worn"}[r]
}

// Compaction is one that is due.
type Compaction struct {
	Reason         Reason
	Oldest, Newest uint64   // ids of the tiers; all between them take part
	Victims        []uint32 // segments to be emptied
}

// All reports whether all tiers take part because of what they hold together.
func (c *Compaction) All() bool { return c.Reason < LikeSizes }

// Pick returns the compaction that is due, and false if none is. The first rule that applies decides. Those for all
// tiers come first: each does what those after it would.
func Pick(s *State) (Compaction, bool) {
	rules := []func(*State) (Compaction, bool){makeRoom, sweep, emptySegments, newerTiers, likeSizes, worn}
	if s.Floor > 0 {
		rules = []func(*State) (Compaction, bool){likeSizes, worn}
	}
	if s.free() == 0 {
		return Compaction{}, false
	}

	for _, rule := range rules {
		if c, due := rule(s); due {
			return c, true
		}
	}

	return Compaction{}, false
}

// free is how many tiers may take part: the newest ones.
func (s *State) free() int {
	if i := slices.IndexFunc(s.Tiers, func(t Tier) bool { return t.ID <= s.Floor }); i >= 0 {
		return i
	}

	return len(s.Tiers)
}

// all is a compaction of all tiers.
func (s *State) all(r Reason, victims []uint32) Compaction {
	return Compaction{r, s.Tiers[len(s.Tiers)-1].ID, s.Tiers[0].ID, victims}
}

// makeRoom applies while the log waits for room. Victims come later: merging first shows where the garbage is.
func makeRoom(s *State) (Compaction, bool) {
	if !s.Urgent || len(s.Tiers) < 2 {
		return Compaction{}, false
	}

	return s.all(MakeRoom, nil), true
}

// maxNewer is what newer tiers may hold, as a share of the oldest one's values: garbage that no compaction has met is
// at most that much.
const maxNewer = 0.2

// newerTiers bounds the garbage that no compaction has met, as a share of what is alive.
func newerTiers(s *State) (Compaction, bool) {
	share, _ := newer(s.Tiers)
	if len(s.Tiers) < 2 || share <= maxNewer {
		return Compaction{}, false
	}

	return s.all(NewerTiers, nil), true
}

// MinTiers is how many tiers of like size are merged; fewer would rewrite keys too often.
const MinTiers = 4

// likeSizes takes tiers in, from the newest on, as long as each is at most twice as large as those before it together.
func likeSizes(s *State) (Compaction, bool) {
	sum, k := s.Tiers[0].FileBytes, 1

	for n := s.free(); k < n && s.Tiers[k].FileBytes <= 2*sum; k++ {
		sum += s.Tiers[k].FileBytes
	}
	if k < MinTiers {
		return Compaction{}, false
	}

	return Compaction{Reason: LikeSizes, Oldest: s.Tiers[k-1].ID, Newest: s.Tiers[0].ID}, true
}

// worn takes the oldest tier that is worn. It frees nothing, so that it can wait where there is no room.
func worn(s *State) (Compaction, bool) {
	for _, t := range slices.Backward(s.Tiers[:s.free()]) {
		if t.Worn && !s.Urgent {
			return Compaction{Reason: Worn, Oldest: t.ID, Newest: t.ID}, true
		}
	}

	return Compaction{}, false
}

// Candidate is a segment that could be emptied.
type Candidate struct {
	*Segment
	Garbage int64 // bytes of the file that are known to be garbage
}

// ToMove is how many bytes have to be moved to empty it.
func (c *Candidate) ToMove() int64 { return c.Used - c.Garbage }

// Candidates returns the segments that could be emptied, those with the greatest share of known garbage first, and the
// bytes and the garbage of all that nobody writes to. Damaged ones are none, but count: what they hold takes room.
func Candidates(segments []Segment) (all []Candidate, total, garbage int64) {
	all = make([]Candidate, 0, len(segments))
	for i := range segments {
		s := &segments[i]
		if s.InLog || s.Open {
			continue
		}
		c := Candidate{s, s.garbage()}
		total += c.Used
		garbage += c.Garbage
		if !s.Damaged {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(float64(b.Garbage)/float64(b.Used), float64(a.Garbage)/float64(a.Used)),
			cmp.Compare(a.ID, b.ID))
	})

	return all, total, garbage
}

const (
	// maxGarbage is the share of the log that may be known garbage before segments are emptied, and leftGarbage the share
	// that is left then, if no more than maxMoved of the log has to be moved for that.
	maxGarbage  = 0.2
	leftGarbage = 0.1
	maxMoved    = 0.1

	// MinGarbage is how many bytes of garbage are worth the work.
	MinGarbage = 1 << 20

	// A segment of which less than a tenth is garbage is not worth moving the rest. Where the log waits for room, a
	// twentieth is.
	worthOne       = 10
	worthOneUrgent = 20

	// MaxSmallSegments is the number of small segments, over one for each that is not small, before their values are moved
	// together: each time that a database is opened and little is written, it gets one. A segment is small below
	// smallSegment of the usual size.
	MaxSmallSegments = 32
	smallSegment     = 1.0 / 16
)

// least is how much garbage there has to be before any is removed.
func (s *State) least() int64 { return min(MinGarbage, 2*s.Segment) }

// emptySegments first gathers small segments, which cost files, and otherwise those with the most garbage.
func emptySegments(s *State) (Compaction, bool) {
	all, total, garbage := Candidates(s.Segments)
	victims := s.smallOnes(all)
	if victims == nil {
		victims = s.worst(all, total, garbage)
	}
	if len(victims) == 0 {
		return Compaction{}, false
	}

	return s.all(EmptySegments, victims), true
}

// smallOnes returns as many small segments as fit into one of the usual size, nil where there are few.
func (s *State) smallOnes(all []Candidate) (victims []uint32) {
	small, sum := 0, int64(0)
	for i := range all {
		c := &all[i]
		if float64(c.Used) >= smallSegment*float64(s.Segment) {
			continue
		}
		small++
		if sum += c.Used; sum <= s.Segment {
			victims = append(victims, c.ID)
		}
	}

	if 2*small-len(s.Segments) <= MaxSmallSegments {
		return nil
	}

	return victims
}

// worst returns the segments with the greatest share of garbage, where there is much garbage. Where the log waits for
// room, little is enough.
func (s *State) worst(all []Candidate, total, garbage int64) (victims []uint32) {
	left, moved := total, int64(0)
	worth, most := int64(worthOne), max(int64(maxMoved*float64(total)), s.Segment)
	if s.Urgent {
		worth, most = worthOneUrgent, s.Memtable/4 // of what LeaveForOthers leaves
	} else if float64(garbage) < maxGarbage*float64(total) || garbage < s.least() {
		return nil
	}

	for i := range all {
		c := &all[i]
		enough := !s.Urgent && float64(garbage) < leftGarbage*float64(left)
		if enough || c.Garbage*worth < c.Used {
			break
		}
		// One that is emptied in part has taken room and gives none back.
		if moved+c.ToMove() > s.Room {
			continue
		}
		if moved += c.ToMove(); len(victims) > 0 && moved > most {
			break
		}
		victims = append(victims, c.ID)
		garbage -= c.Garbage
		left -= c.Garbage
	}

	return victims
}

// A sweep keeps small values in the order of the keys. It starts when an estimated sweepGarbage of the log is garbage.
// It rewrites (a) every value in segments of the log, and (b) moved segments of which at least sweepLeast is taken to
// be garbage by the time that it comes to them (Takes).
//
// A moved segment holds a stretch of keys, and goes away when the sweep has passed those. A segment of the log holds
// keys from anywhere and stays until the sweep has come to its end, so that it takes segments of the log only as far as
// no more than sweepMoved of the log has to be moved for that, or leastMoved full segments: a small database is put in
// order as a whole.
const (
	smallValue   = 512 // bytes of a key and its value
	sweepGarbage = 0.15
	sweepLeast   = 0.1
	sweepMoved   = 0.3
	leastMoved   = 4
)

// sweeps reports whether values are kept in order by sweeps: they are small.
func sweeps(usual int64) bool { return usual > 0 && usual < smallValue }

// sweep applies where values are small, and so much of the log is or will be garbage that moving all is worth it.
func sweep(s *State) (Compaction, bool) {
	share, usual := newer(s.Tiers)
	if s.Urgent || !sweeps(usual) {
		return Compaction{}, false
	}

	// What newer tiers hold is taken to replace as much as was replaced lately.
	all, _, _ := Candidates(s.Segments)
	total, garbage := int64(0), int64(0) // without what is damaged, which a sweep leaves
	for i := range all {
		total += all[i].Used
		garbage += all[i].Garbage
	}
	expected := float64(garbage) + share*s.Replaced*float64(s.Tiers[len(s.Tiers)-1].Values)

	// A sweep needs room for a segment at least, or its first step would fail.
	if expected < sweepGarbage*float64(total) || expected < float64(s.least()) || s.Room < s.Segment {
		return Compaction{}, false
	}

	var victims []uint32
	moved, most := int64(0), min(s.Room, max(int64(sweepMoved*float64(total)), leastMoved*s.Segment))

	for i := range all {
		if c := &all[i]; (!c.Moved || c.Flushed) && moved+c.ToMove() <= most {
			moved += c.ToMove()
			victims = append(victims, c.ID)
		}
	}

	return s.all(Sweep, victims), true
}

// Takes reports whether the next step of a sweep empties a moved segment that it comes to. share is what newer tiers
// hold there, compared with the tables that name the segment, and replaced the share of that which is taken to replace
// something.
func Takes(s *Segment, share, replaced float64) bool {
	left := float64(s.Live) / float64(max(s.Payload, 1))
	return left*(1-share*replaced) < 1-sweepLeast
}

const (
	// A request empties segments of which a twentieth or more is garbage.
	requestGarbage = 20

	// It moves at most a quarter of the log at a time: that takes room until it is done.
	requestMoved = 4
)

// Worth reports whether a compaction that was asked for empties a segment with so many bytes of garbage.
func (s *Segment) Worth(garbage int64) bool { return garbage*requestGarbage >= s.Used }

// Request is a compaction that was asked for, as far as its segments are concerned.
type Request struct {
	Below   uint32           // segments with smaller ids are emptied; the others are newer than the request
	Garbage map[uint32]int64 // nil, or what is garbage of the keys that it is for: the other segments stay
	Tried   map[uint32]bool  // segments that were emptied, or could not be
}

// PickRequested returns the segments to be emptied next for a request, and whether there is one that there is no room
// for.
func PickRequested(s *State, r *Request) (victims []uint32, short bool) {
	all, total, _ := Candidates(s.Segments)
	most, moved := max(total/requestMoved, s.Segment), int64(0)

	// The candidates come with the greatest share of garbage first, so what is moved gives back the most.
	for i := range all {
		c := &all[i]
		if c.ID >= r.Below || !c.Worth(c.Garbage) || r.Garbage != nil && r.Garbage[c.ID] == 0 || r.Tried[c.ID] {
			continue
		}
		if c.ToMove() > s.Room {
			short = true
		} else if len(victims) == 0 || moved+c.ToMove() <= min(s.Room, most) {
			victims = append(victims, c.ID)
			moved += c.ToMove()
		}
	}

	return victims, short
}

// LeastToMove returns the candidate that is emptied with the least room. There is one at least.
func LeastToMove(all []Candidate) Candidate {
	return slices.MinFunc(all, func(a, b Candidate) int { return cmp.Compare(a.ToMove(), b.ToMove()) })
}
