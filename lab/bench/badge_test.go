package bench

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast/internal/console"
)

// TestBadge: each rule counts for itself, and what is not known counts against a report.
func TestBadge(t *testing.T) {
	good := func() *Report {
		_, plan, r := inventedOf(Request{Preset: "kv", Workloads: []string{"kv/steady"}}, "pebble", "bbolt", "mem")
		r.Plan.Seconds, r.Machine.Disk.FileSystem = 30, "ext4"
		r.Build = &console.Build{Version: "v1.2.3", Commit: "abc"}
		r.Contenders = []Contender{{Engine: "pebble", Library: "x v1"}, {Engine: "logtree"}}
		r.summarise(plan.Cells)
		return r
	}
	if b := good().Badge; b.Grade != Publishable || len(b.Reasons) > 0 {
		t.Fatalf("%v", b)
	}
	for says, test := range map[string]struct {
		grade Grade
		spoil func(*Report)
	}{
		"nothing was measured":           {Smoke, func(r *Report) { r.Results, r.Summary = nil, nil }},
		"1 round, and":                   {Smoke, func(r *Report) { r.Summary = slices.Clone(r.Summary); oneRound(r) }},
		"50 ms a measurement":            {Smoke, func(r *Report) { r.Plan.Seconds = 0.05 }},
		"the disk is memory":             {Smoke, func(r *Report) { r.Machine.Disk.FileSystem = "tmpfs" }},
		"9 s a measurement":              {Indicative, func(r *Report) { r.Plan.Seconds = 9 }},
		"not whole":                      {Indicative, func(r *Report) { r.Partial = "interrupted" }},
		"1 void measurement":             {Indicative, func(r *Report) { r.Results[3].Verified = false }},
		"too few for claims":             {Indicative, func(r *Report) { r.Summary[0].Rank.Verdict = TooFewRounds }},
		"other work took 5 %":            {Indicative, func(r *Report) { r.Machine.OtherWork = 0.05 }},
		"what else the machine did":      {Indicative, func(r *Report) { r.Machine.OtherWork = -1 }},
		"no clean build":                 {Indicative, func(r *Report) { r.Build = nil }},
		"no clean build of a commit":     {Indicative, func(r *Report) { r.Build.Modified = true }},
		"commit or version":              {Indicative, func(r *Report) { *r.Build = console.Build{Version: "(devel)"} }},
		"the versions of the":            {Indicative, func(r *Report) { r.Contenders = nil }},
		"the versions of pebble":         {Indicative, func(r *Report) { r.Contenders[0].Library = "x" }},
		"hold all the data of kv/steady": {Indicative, func(r *Report) { r.Plan.MemoryBytes = 2e9 }},
	} {
		r := good()
		test.spoil(r)
		if b := r.badge(); b.Grade != test.grade || len(b.Reasons) != 1 || !strings.Contains(b.String(), says) {
			t.Errorf("%s: %v", says, b)
		}
	}
}

func oneRound(r *Report) {
	for i := range r.Summary {
		r.Summary[i].Rounds = 1
	}
}

// TestBadgeOfOldReport: a report from before there were badges gets one as it is read, whatever it says itself.
func TestBadgeOfOldReport(t *testing.T) {
	_, _, r := invented(6)
	r.Badge = Badge{Grade: Publishable, Reasons: []string{}}
	again, err := ReadReport(saved(t, r))
	if err != nil || again.Badge.Grade != Indicative {
		t.Errorf("%v, %v", again.Badge, err)
	}
}
