package policy

import (
	"math"
	"testing"
)

// TestStall: writers are as fast as they like while the log is short, the slower the longer it is, and stopped at its
// bound.
func TestStall(t *testing.T) {
	l := Load{Sizes: sizes, Tiers: []Tier{{ID: 1, Values: 100 << 20, Entries: 100 << 10}}, Sealed: 110 << 20,
		Payload: 100 << 20, Flushed: 1 << 30, NextSegment: sizes.Segment}
	s := l.Stall()
	// 110 MiB are alive with their frames, and 2 segments and 3 memtables are allowed anyway.
	if want := float64(1<<30 + (110*0.28+32)*(1<<20)); math.Abs(float64(s.Base)-want) > 10 {
		t.Errorf("writers are slowed down from %d on, not from %.0f", s.Base, want)
	}
	if want := float64((110*0.36 + 16) * (1 << 20)); math.Abs(float64(s.Half)-want) > 10 {
		t.Errorf("the rate is reached %d bytes further, not %.0f", s.Half, want)
	}
	last := 0.0
	for x := s.Base - 1<<20; ; x += 1 << 20 {
		seconds, stop := s.Seconds(x, 1000)
		if stop {
			if want := float64(1<<30 + (110+64)*(1<<20)); math.Abs(float64(x)-want) > 2<<20 {
				t.Errorf("writers stop at %d, not at %.0f", x, want)
			}
			break
		}
		if seconds < last || x > s.Base && seconds == last {
			t.Fatalf("%v s at %d, and %v before", seconds, x, last)
		}
		last = seconds
	}
	if seconds, _ := s.Seconds(s.Base+s.Half, 64<<20); seconds != 1 {
		t.Errorf("64 MiB take %v s where they should take 1", seconds)
	}
	if seconds, stop := (*Stall)(nil).Seconds(math.MaxUint64, 1); seconds != 0 || stop {
		t.Error("there is a stall before one was measured")
	}
}

// TestStallOfSweeps: where values are small and replaced, writers are slowed down sooner, to what they can write during
// a sweep.
func TestStallOfSweeps(t *testing.T) {
	l := Load{Sizes: sizes, Tiers: []Tier{{ID: 1, Values: 100 << 20, Entries: 1 << 20}}, Sealed: 100 << 20,
		Payload: 100 << 20, Flushed: 1 << 30, NextSegment: sizes.Segment}
	once := l.Stall()
	l.Replaced = 0.5
	often := l.Stall()
	if often.Base >= once.Base || often.Rate != 0.25*100*1e6 {
		t.Errorf("%+v, and without sweeps %+v", often, once)
	}
	// Of the slack of 32 MiB, 15 are in what is allowed above what is alive.
	if base, half := float64(1<<30+32<<20), float64((13+8.5)*(1<<20)); math.Abs(float64(often.Base)-base) > 10 ||
		math.Abs(float64(often.Half)-half) > 10 {
		t.Errorf("%+v, not %.0f and %.0f", often, base, half)
	}
	small := l
	small.NextSegment = sizes.Segment - 1<<20
	if s := small.Stall(); often.Base-s.Base != 2<<20 {
		t.Errorf("segments that are 1 MiB smaller make a difference of %d bytes", often.Base-s.Base)
	}
	l.Speed = 2e6
	if fast := l.Stall(); fast.Rate != 2*often.Rate {
		t.Errorf("a sweep twice as fast allows %v, not twice %v", fast.Rate, often.Rate)
	}
	l.Speed = 1
	if slow := l.Stall(); slow.Rate != 4<<20 {
		t.Errorf("a slow sweep allows %v", slow.Rate)
	}
	l.Returning = 10 << 20
	if r := l.Stall(); r.Base <= often.Base {
		t.Error("what a sweep gives back allows nothing more")
	}
}

// TestNothingAlive: a database with nothing in it has its slack.
func TestNothingAlive(t *testing.T) {
	s := (&Load{Sizes: sizes}).Stall()
	if s.Base != 32<<20 || s.Width != 32<<20 {
		t.Errorf("%+v", s)
	}
}

// TestAverages: the averages go to what is measured again and again, and start with the first.
func TestAverages(t *testing.T) {
	replaced, speed := 0.0, 0.0
	for range 100 {
		replaced = Replaced(replaced, 10, 4)
		speed = Speed(speed, 1000, 0.5)
	}
	if math.Abs(replaced-0.4) > 1e-6 || math.Abs(speed-2000) > 1e-6 {
		t.Error(replaced, speed)
	}
	if Replaced(0.3, 0, 0) != 0.3 || Speed(7, 0, 1) != 7 || Speed(7, 1, 0) != 7 {
		t.Error("what was not measured counts")
	}
	if s := Speed(1000, 1000, 9); math.Abs(s-1000/1.8) > 1e-6 { // nine times the time, a tenth of the weight
		t.Errorf("a slow step leaves a speed of %v", s)
	}
	if r := Replaced(0, 10, 5); r != 0.1 {
		t.Errorf("a flush of which half replaces makes the average %v", r)
	}
}
