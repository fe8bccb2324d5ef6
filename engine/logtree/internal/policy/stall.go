package policy

import "cmp"

// Stall says how far writers are slowed down while the log is longer than what is alive in it is worth. It is measured
// at each change of the tables; the log grows on.
//
// Where x is the position of the log's end, all writers together may write
//
//	as fast as they can      for x <= Base
//	Rate * Half / (x - Base) bytes a second for x < Base + Width
//	nothing                  beyond, as long as compactions are at work
type Stall struct {
	Base, Half, Width uint64  // bytes of the log
	Rate              float64 // bytes a second
}

// Seconds returns how long a write of n bytes takes at a log's end, and whether it has to stop there. A nil Stall lets
// everything through.
func (s *Stall) Seconds(end uint64, n int) (seconds float64, stop bool) {
	if s == nil || end <= s.Base {
		return 0, false
	}
	over := end - s.Base
	if over >= s.Width {
		return 0, true
	}

	return float64(n) * (float64(over) / float64(max(s.Half, 1))) / s.Rate, false
}

// Load is what is known of a database when it is decided how far its writers are slowed down.
type Load struct {
	Sizes
	Tiers       []Tier // newest first
	Sealed      int64  // bytes of all segments that are in tables
	Payload     int64  // bytes of keys and values among them
	Flushed     uint64 // position up to which the log is in tables
	NextSegment int64  // size of the log's next segment

	Replaced  float64 // see State
	Speed     float64 // keys a second that sweeps come to, 0 until it is measured
	Returning int64   // bytes that the sweep under way gives back when it ends
}

// NeededRoom is about how many bytes a compaction of all tiers needs for its tables.
func (l *Load) NeededRoom() int64 {
	needed := 2 * l.Table
	for _, t := range l.Tiers[:max(len(l.Tiers)-1, 0)] {
		needed += t.FileBytes
	}

	return needed
}

// A log of startStall times what is alive needs no stall; the longer it is, the slower writers are, and at stopStall
// times they stop. Where it is halfStall times longer than at the start they write stallRate bytes a second, all of
// them together.
//
// Where there are sweeps it is less, and so many bytes as make sweepWrites of what is alive in the time of a sweep.
const (
	startStall = 1.28
	halfStall  = 0.36
	stopStall  = 2.0
	stallRate  = 64 << 20

	startSweeping = 1.15
	halfSweeping  = 0.13
	sweepWrites   = 0.25
	sweepReplaces = 0.05    // share of keys replaced from which on there will be sweeps
	usualSpeed    = 1e6     // keys a second, until it is measured
	leastRate     = 4 << 20 // bytes a second
)

// Stall measures it.
func (l *Load) Stall() *Stall {
	newer, usual := newer(l.Tiers)
	live := l.live(newer)

	// The segments' own size, and what is not flushed yet, is allowed anyway.
	slack := 2*l.Segment + int64(MaxFull+1)*l.Memtable
	start, half, rate := startStall, halfStall, float64(stallRate)

	// Where there are sweeps, it is allowed only as far as it is more than the share of what is alive that is. Small
	// segments need less of it, and what the sweep under way gives back is taken to be alive until it does.
	if sweeps(usual) && l.Replaced > sweepReplaces {
		start, half = startSweeping, halfSweeping
		rate = max(sweepWrites*float64(usual)*cmp.Or(l.Speed, usualSpeed), leastRate)
		live += l.Returning
		slack -= 2 * (l.Segment - l.NextSegment)
		slack -= min(slack, int64((start-1)*float64(live)))
	}

	// What is sealed already counts against what is allowed; the rest is how far the log may still grow.
	allowed := int64(start*float64(live)) + slack

	return &Stall{
		Base:  uint64(max(int64(l.Flushed)+allowed-l.Sealed, 0)),
		Half:  uint64(int64(half*float64(live)) + slack/2),
		Width: uint64(int64((stopStall-start)*float64(live)) + slack),
		Rate:  rate,
	}
}

// live estimates how many bytes of the log are alive, with their frames: what the oldest tier names, and what newer
// ones hold without replacing something.
func (l *Load) live(newer float64) int64 {
	if len(l.Tiers) == 0 {
		return 0
	}
	live := l.Tiers[len(l.Tiers)-1].Values
	live += int64((1 - l.Replaced) * newer * float64(live))

	return int64(float64(live) * max(float64(l.Sealed)/float64(max(l.Payload, 1)), 1))
}
