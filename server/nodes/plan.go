package nodes

import (
	"cmp"
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

// plan decides from what a process sees of a cluster which of its spaces it tries to take, and whether it gives one up.
// alive are the processes that live, with itself. All that see the same decide on different spaces; where they do not,
// two try to take one, and one gets it.
//
// A free space is for the process that has the fewest, and after a while for whoever gets it. Spaces are given up only
// while another process has at least two fewer: then nobody gives one back. What processes have elsewhere, in other
// clusters, decides between those that have as many here, or one more. That is not known (nil) if not all see the same.
func plan(me string, alive []string, seats []seat, elsewhere map[string]int) (take []int, give bool) {
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
	order := func(a, b string) int { // of equal ones the first counts
		return cmp.Or(cmp.Compare(has[a], has[b]), cmp.Compare(elsewhere[a], elsewhere[b]))
	}

	free := false
	for i, s := range seats {
		if !s.free {
			continue
		}
		free = true
		who := slices.MinFunc(alive, order)
		has[who]++
		if who == me || s.since > grace {
			take = append(take, i)
		}
	}
	if free { // one thing after the other
		return take, false
	}
	fewest := slices.MinFunc(alive, order)
	here := has[me] - has[fewest]
	all := here + elsewhere[me] - elsewhere[fewest]

	return nil, slices.MaxFunc(alive, order) == me && (here >= 2 || here == 1 && all >= 2)
}
