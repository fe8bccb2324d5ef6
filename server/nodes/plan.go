package nodes

import (
	"slices"
	"time"
)

// seat is a space, as a process sees it that decides whether to take it.
type seat struct {
	owner string        // "" for none
	free  bool          // it may be taken
	since time.Duration // for how long it has been free
}

// grace is for how long a free space is left to the process that has the fewest.
const grace = time.Second

// plan decides from what a process sees which spaces it tries to take, and whether it gives one up. alive are the
// processes that live, with itself. All that see the same decide on different spaces; where they do not, two try to
// take one, and one gets it.
//
// A free space is for the process that has the fewest, and after a while for whoever gets it. Spaces are given up only
// while another process has at least two fewer: then nobody gives one back.
func plan(me string, alive []string, seats []seat) (take []int, give bool) {
	alive = slices.Compact(slices.Sorted(slices.Values(alive)))
	has := make(map[string]int, len(alive))
	for _, a := range alive {
		has[a] = 0
	}
	for _, s := range seats {
		if _, ok := has[s.owner]; ok && !s.free {
			has[s.owner]++
		}
	}
	fewest := func() (who string) {
		for i, a := range alive {
			if i == 0 || has[a] < has[who] {
				who = a
			}
		}

		return who
	}

	free := false
	for i, s := range seats {
		if !s.free {
			continue
		}
		free = true
		who := fewest()
		has[who]++
		if who == me || s.since > grace {
			take = append(take, i)
		}
	}
	if free { // one thing after the other
		return take, false
	}
	most := alive[0]
	for _, a := range alive {
		if has[a] > has[most] {
			most = a
		}
	}

	return nil, most == me && has[me]-has[fewest()] >= 2
}
