package nodes

import (
	"fmt"
	"slices"
	"testing"
)

// What a process does about spaces, from what it sees: a letter for the owner, a point for a free space, a comma for
// one that has been free for long, and X for an owner that is no peer.
func TestPlan(t *testing.T) {
	for _, c := range []struct {
		me, alive, seats string
		take             []int
		give             bool
	}{
		{"a", "a", ".", []int{0}, false},
		{"a", "a", "....", []int{0, 1, 2, 3}, false},
		{"a", "ab", ".", []int{0}, false},
		{"b", "ab", ".", nil, false},
		{"b", "ab", ",", []int{0}, false}, // a had its time
		{"a", "ab", "....", []int{0, 2}, false},
		{"b", "ab", "....", []int{1, 3}, false},
		{"b", "ab", "aa..", []int{2, 3}, false},
		{"a", "ab", "aa..", nil, false},
		{"a", "ab", "ab", nil, false},
		{"a", "ab", "aab", nil, false}, // one more is as it should be
		{"b", "ab", "aab", nil, false},
		{"a", "ab", "aaab", nil, true},
		{"b", "ab", "aaab", nil, false},
		{"a", "abc", "aabb", nil, true}, // the first of those who have most
		{"b", "abc", "aabb", nil, false},
		{"b", "abc", "acbb", nil, false},
		{"a", "abc", "aaa.", nil, false}, // first what is free
		{"b", "abc", "aaa.", []int{3}, false},
		{"c", "abc", "aaa.", nil, false},
		{"a", "ab", "aaXX", nil, true}, // what others have is not ours to spread
		{"a", "a", "aaXX", nil, false},
		{"a", "ba", "b.", []int{1}, false}, // in any order
	} {
		var alive []string
		for _, who := range c.alive {
			alive = append(alive, string(who))
		}
		var seats []seat
		for _, who := range c.seats {
			switch who {
			case '.':
				seats = append(seats, seat{free: true})
			case ',':
				seats = append(seats, seat{free: true, since: 2 * grace})
			default:
				seats = append(seats, seat{owner: string(who)})
			}
		}
		take, give := plan(c.me, alive, seats)
		if !slices.Equal(take, c.take) || give != c.give {
			t.Errorf("%s of %s, %s: %v %v, want %v %v", c.me, c.alive, c.seats, take, give, c.take, c.give)
		}
	}
}

// However processes come and go, spaces end where they should, and then stay: nothing flaps.
func TestPlanSettles(t *testing.T) {
	for spaces := 1; spaces <= 9; spaces++ {
		for many := 1; many <= 5; many++ {
			name := fmt.Sprintf("%d spaces, %d processes", spaces, many)
			seats := make([]seat, spaces)
			for i := range seats {
				seats[i].free = true
			}
			var alive []string
			moves := 0
			step := func() (moved bool) {
				now := slices.Clone(seats)
				for _, me := range alive {
					take, give := plan(me, alive, now)
					for _, i := range take {
						if seats[i].free {
							seats[i], moved = seat{owner: me}, true
						}
					}
					if !give {
						continue
					}
					for i := range seats {
						if seats[i].owner == me && !seats[i].free {
							seats[i], moved = seat{free: true}, true
							moves++
							break
						}
					}
				}
				return moved
			}
			settle := func() {
				for n := 0; step(); n++ {
					if n > 10*spaces*many {
						t.Fatalf("%s: does not come to rest: %v", name, seats)
					}
				}
				has := map[string]int{}
				for _, s := range seats {
					has[s.owner]++
				}
				for _, who := range alive {
					if n := has[who]; n < spaces/len(alive) || n > (spaces+len(alive)-1)/len(alive) {
						t.Errorf("%s: %d of %d are with %s of %v", name, n, spaces, who, alive)
					}
				}
			}
			for i := range many {
				alive = append(alive, string(rune('a'+i)))
				settle()
			}
			if moves > 2*spaces*many {
				t.Errorf("%s: %d moves", name, moves)
			}
			for len(alive) > 1 { // the first dies
				for i := range seats {
					if seats[i].owner == alive[0] {
						seats[i] = seat{owner: alive[0], free: true}
					}
				}
				alive = alive[1:]
				moves = 0
				settle()
				if moves > 1 {
					t.Errorf("%s: a death moved %d of those who live", name, moves)
				}
			}
		}
	}
}
