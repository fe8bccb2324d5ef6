package bench

import (
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// Group is what may be compared: the summaries of one workload, level given and number of clients.
type Group struct {
	Workload string
	About    string // the work, in words
	Title    string // what was measured, at which level, with how many clients
	Given    holdfast.Level
	Reads    bool // durability plays no part, and Given is 0
	Clients  int
	Offer    Offer // how fast operations are offered; an open loop claims nothing
	// Unit is what rates are of, in the plural. One operation does PerOp of it.
	Unit  string
	PerOp float64
	Rows  []Row    // best first
	Void  []string // engines that were measured, but failed verification or broke off
	Claim Claim
}

// Row is a summary in a group.
type Row struct {
	Summary
	Results   []Result // that it sums up
	Reference bool     // null or floor, which take no place among the engines
	// Against compares it with the best; empty for references. It claims no more than the statistics do.
	Against string
	Best    bool
	Tie     bool    // no difference to the best is shown
	OfFloor float64 // its share of what the floor makes, 0 if that is not known
	Study   string  // what a study said of it; empty if it had no such work, or no figure for the engine at the level
}

// Claim is what a group shows.
type Claim struct {
	// Fastest are the engines between which no difference is shown, the one with the highest median first. With one,
	// it is the fastest, if Shown is above 0.
	Fastest []string
	// Next is the best of those that are shown to be slower, and Times how many times as fast the fastest is. Next is
	// empty if there is none.
	Next  string
	Times float64
	// Low to High is the interval of Times; 0 where it is not known.
	Low, High float64
	// Shown is the confidence of that; 0 if nothing is shown, as for too few rounds, and Why says so.
	Shown float64
	Why   string
}

// Groups returns what of the report may be compared, in the order of the plan, the strongest level first. A workload
// that this build does not know counts operations.
func (l Lab) Groups(r *Report) []Group {
	var list []Group
	for _, name := range r.Plan.Workloads {
		w, err := l.workload(name)
		if err != nil {
			w = Workload{Name: name, About: name, Unit: "operations", Items: 1}
		}

		for _, at := range r.setups(name) {
			for _, g := range groups(w, r, at) {
				list = append(list, g.exported(r))
			}
		}
	}

	return list
}

func (g group) exported(r *Report) Group {
	unit, perOp := g.workload.rates()
	out := Group{Workload: g.workload.Name, About: g.workload.About, Title: g.title(), Given: g.given,
		Reads: g.workload.Reads, Clients: g.clients, Offer: g.offer, Unit: unit, PerOp: perOp, Void: g.void, Claim: g.claim()}

	for _, sum := range g.rows {
		row := Row{Summary: sum, Reference: reference(sum.Engine) || sum.FromMemory, Against: sum.Rank.text()}
		row.Best = len(g.engines) > 0 && !g.offer.Open() && sum.Engine == g.engines[0].Engine
		row.Tie = slices.Contains(out.Claim.Fastest, sum.Engine) && !row.Best
		if g.floor != nil && sum.Engine != Null && !g.offer.Open() && g.floor.Median > 0 {
			row.OfFloor = sum.Median / g.floor.Median
		}

		row.Study = g.workload.figure(sum)
		for _, result := range r.Results {
			if result.Cell == sum.cell && result.Round <= sum.Rounds {
				row.Results = append(row.Results, result)
			}
		}
		out.Rows = append(out.Rows, row)
	}

	return out
}

// claim is what the ranks show.
func (g group) claim() Claim {
	switch {
	case len(g.engines) > 0:
	case len(g.warm) > 0:
		return Claim{Why: "no read was cold"}
	default:
		return Claim{Why: "every measurement is void"}
	}
	claim := Claim{Fastest: []string{g.engines[0].Engine}, Why: strings.TrimPrefix(g.noClaim(), "no claim: ")}
	if claim.Why == "" && g.comparedWith() == Baseline {
		claim.Why = "the run compares with " + g.engines[0].Rank.To
	}
	if claim.Why != "" {
		return claim
	}

	claim.Shown = 1 - measure.Alpha
	for _, row := range g.engines[1:] {
		switch {
		case row.Rank.Verdict == NotShown:
			claim.Fastest = append(claim.Fastest, row.Engine)
		case claim.Next == "":
			claim.Next, claim.Times = row.Engine, g.engines[0].Median/row.Median
			if row.Rank.Ratio > 0 {
				claim.Times, claim.Low, claim.High = row.Rank.factor()
			}
		}
	}

	return claim
}
