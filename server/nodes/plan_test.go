package nodes

import (
	"fmt"
	"slices"
	"strings"
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
		take, give := plan(c.me, alive, seats, nil)
		if !slices.Equal(take, c.take) || give != c.give {
			t.Errorf("%s of %s, %s: %v %v, want %v %v", c.me, c.alive, c.seats, take, give, c.take, c.give)
		}
	}
}

// What processes have in other clusters decides where they have as many here, or one more.
func TestPlanElsewhere(t *testing.T) {
	for _, c := range []struct {
		me, alive, seats, elsewhere string
		take                        []int
		give                        bool
	}{
		{"a", "ab", "a", "a", nil, true},
		{"b", "ab", "a", "a", nil, false},
		{"a", "ab", "a", "b", nil, false},
		{"a", "ab", "a", "", nil, false},
		{"a", "ab", "ab", "aaa", nil, false}, // here it would be uneven
		{"a", "ab", "aab", "a", nil, true},
		{"a", "ab", "aab", "ab", nil, false},
		{"a", "ab", "aaab", "bbb", nil, true},
		{"b", "ab", ".", "a", []int{0}, false},
		{"a", "ab", ".", "a", nil, false},
		{"b", "abc", "..", "aab", []int{1}, false},
		{"c", "abc", "..", "aab", []int{0}, false},
	} {
		var seats []seat
		for _, who := range c.seats {
			seats = append(seats, seat{owner: strings.Trim(string(who), "."), free: who == '.'})
		}
		elsewhere := map[string]int{}
		for _, who := range c.elsewhere {
			elsewhere[string(who)]++
		}
		take, give := plan(c.me, strings.Split(c.alive, ""), seats, elsewhere)
		if !slices.Equal(take, c.take) || give != c.give {
			t.Errorf("%s of %s, %s and %s: %v %v, want %v %v", c.me, c.alive, c.seats, c.elsewhere, take, give, c.take, c.give)
		}
	}
}

// However processes come and go, spaces end where they should, and then stay: nothing flaps. In each cluster every
// process has as many as the others, or one more; and all told as far as single spaces can be exchanged for that.
func TestPlanSettles(t *testing.T) {
	for clusters := 1; clusters <= 3; clusters++ {
		for spaces := 1; spaces <= 9/clusters; spaces++ {
			for many := 1; many <= 5; many++ {
				testPlanSettles(t, clusters, spaces, many)
			}
		}
	}
}

func testPlanSettles(t *testing.T, clusters, spaces, many int) {
	name := fmt.Sprintf("%d clusters, %d spaces in each, %d processes", clusters, spaces, many)
	seats := make([][]seat, clusters)
	for k := range seats {
		seats[k] = make([]seat, spaces)
		for i := range seats[k] {
			seats[k][i].free = true
		}
	}
	// elsewhere is what a process knows of the other clusters, as (*Node).elsewhere.
	elsewhere := func(all [][]seat, than int) map[string]int {
		has := map[string]int{}
		for k := range all {
			for _, s := range all[k] {
				if k != than && s.free {
					return nil
				}
				if k != than {
					has[s.owner]++
				}
			}
		}
		return has
	}
	var alive []string
	moves := 0
	step := func() (moved bool) {
		now := make([][]seat, clusters)
		for k := range seats {
			now[k] = slices.Clone(seats[k])
		}
		for k := range seats {
			for _, me := range alive {
				take, give := plan(me, alive, now[k], elsewhere(now, k))
				for _, i := range take {
					if seats[k][i].free {
						seats[k][i], moved = seat{owner: me}, true
					}
				}
				if !give || elsewhere(seats, -1) == nil { // others have moved since
					continue
				}
				for i := range seats[k] {
					if seats[k][i].owner == me && !seats[k][i].free {
						seats[k][i], moved = seat{free: true}, true
						moves++
						break
					}
				}
			}
		}
		return moved
	}
	settle := func() {
		for n := 0; step(); n++ {
			if n > 10*clusters*spaces*many {
				t.Fatalf("%s: does not come to rest: %v", name, seats)
			}
		}
		all := map[string]int{}
		for k := range seats {
			has := map[string]int{}
			for _, s := range seats[k] {
				has[s.owner]++
				all[s.owner]++
			}
			for _, who := range alive {
				if n := has[who]; n < spaces/len(alive) || n > (spaces+len(alive)-1)/len(alive) {
					t.Errorf("%s: %d of %d of cluster %d are with %s of %v", name, n, spaces, k, who, alive)
				}
			}
		}
		if len(alive) > 0 {
			counts := []int{}
			for _, who := range alive {
				counts = append(counts, all[who])
			}
			if most := slices.Max(counts); most-slices.Min(counts) > 1 {
				t.Errorf("%s: %v with %v", name, all, alive)
			}
		}
	}
	for i := range many {
		alive = append(alive, string(rune('a'+i)))
		settle()
	}
	if moves > 2*clusters*spaces*many {
		t.Errorf("%s: %d moves", name, moves)
	}
	for len(alive) > 1 { // the first dies
		for k := range seats {
			for i := range seats[k] {
				if seats[k][i].owner == alive[0] {
					seats[k][i] = seat{owner: alive[0], free: true}
				}
			}
		}
		alive = alive[1:]
		moves = 0
		settle()
		if moves > clusters {
			t.Errorf("%s: a death moved %d of those who live", name, moves)
		}
	}
}
