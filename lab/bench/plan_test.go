package bench

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// engineGiving is a table entry of which only the promises matter: what it gives for
// memory, process and power.
func engineGiving(name string, given ...holdfast.Level) all.Entry {
	promise := func(l holdfast.Level) holdfast.Promise {
		p := holdfast.Promise{Given: given[l-1]}
		if p.Given != l {
			p.Why = "because"
		}
		return p
	}
	return all.Entry{Name: name, Describe: func() holdfast.Capabilities {
		return holdfast.Capabilities{Engine: name, MaxBatchSize: holdfast.MaxBatchSize, AtomicBatches: true,
			Memory: promise(holdfast.Memory), Process: promise(holdfast.Process), Power: promise(holdfast.Power)}
	}}
}

// An engine that gives Quorum is measured at it, once also where it gives that for Power, and ranked among those
// that give it. Only then is the level measured unasked.
func TestPlanOfQuorum(t *testing.T) {
	lab := testLab()
	over := engineGiving("over", holdfast.Memory, holdfast.Process, holdfast.Quorum)
	describe := over.Describe
	over.Describe = func() holdfast.Capabilities {
		c := describe()
		c.Quorum = holdfast.Promise{Given: holdfast.Quorum}
		return c
	}
	lab.Engines = append(lab.Engines, over)
	for _, test := range []struct {
		engines []string
		want    []string // cells at Power and Quorum
	}{
		{[]string{"each"}, []string{"each power", "floor power"}},
		{[]string{"over"}, []string{"over quorum", "floor quorum", "floor-parallel quorum"}},
		{[]string{"each", "over"}, []string{"each power", "over quorum", "floor power", "floor quorum",
			"floor-parallel quorum"}},
	} {
		p, err := lab.Plan(Request{Engines: test.engines, Workloads: []string{"event/append-1"}, Clients: []int{1}})
		if err != nil {
			t.Fatal(err)
		}
		got := slices.DeleteFunc(cells(p, "event/append-1"), func(c string) bool {
			return !strings.HasSuffix(c, "power") && !strings.HasSuffix(c, "quorum")
		})
		if !slices.Equal(got, test.want) {
			t.Errorf("%v: %q, want %q", test.engines, got, test.want)
		}
		if offers := slices.Contains(test.engines, "over"); slices.Contains(p.Levels, holdfast.Quorum) != offers {
			t.Errorf("%v: levels %v", test.engines, p.Levels)
		}
	}
}

func testLab() Lab {
	const m, c, w = holdfast.Memory, holdfast.Process, holdfast.Power
	return Lab{
		Engines: []all.Entry{engineGiving("each", m, c, w), engineGiving("file", c, c, w), engineGiving("ram", m, 0, 0),
			engineGiving("absent", 0, 0, 0)},
		Workloads: Workloads(),
	}
}

// cells writes the plan's cells of one workload as "engine asked>given xclients".
func cells(p Plan, workload string) []string {
	var list []string
	for _, c := range p.Cells {
		if c.Workload != workload {
			continue
		}
		s := c.Engine + " " + c.Asked.String()
		if c.Given != c.Asked {
			s += ">" + c.Given.String()
		}
		if c.Clients > 1 {
			s += " x" + measure.Digits(float64(c.Clients))
		}
		list = append(list, s)
	}
	return list
}

func unavailable(p Plan, workload string) []string {
	var list []string
	for _, u := range p.Unavailable {
		if u.Workload == workload {
			list = append(list, u.Engine+" "+u.Asked.String()+": "+u.Reason)
		}
	}
	return list
}

func TestPlanLaysOutWhatIsGiven(t *testing.T) {
	const append1, read = "event/append-1", "event/read-100"
	for _, test := range []struct {
		name          string
		request       Request
		workload      string
		cells, absent []string
	}{
		{"all levels", Request{}, append1,
			[]string{"each memory", "each process", "each power", "file process", "file power", "ram memory", "null memory",
				"floor process", "floor power", "floor-map process"},
			[]string{"file memory: gives process, shown there: because", "ram process: because", "ram power: because",
				"absent memory: because", "absent process: because", "absent power: because"}},
		{"a level given under another name", Request{Levels: []string{"memory"}, Engines: []string{"file"}}, append1,
			[]string{"file memory>process", "null memory", "floor process", "floor-map process"}, nil},
		{"levels in any order, twice", Request{Levels: []string{"Power", "process", "power"}, Engines: []string{"each"}},
			append1,
			[]string{"each process", "each power", "null memory", "floor process", "floor power", "floor-map process"}, nil},
		{"several clients", Request{Clients: []int{8, 1, 8}, Engines: []string{"ram"}, Levels: []string{"memory"}}, append1,
			[]string{"ram memory", "null memory", "ram memory x8", "null memory x8"}, nil},
		{"reads once, at the strongest level", Request{}, read,
			[]string{"each power", "file power", "ram memory", "null memory", "floor power"},
			[]string{"absent memory: because", "absent process: because", "absent power: because"}},
		{"the references can be named", Request{Engines: []string{"floor", "ra?"}, Levels: []string{"memory"}}, append1,
			[]string{"ram memory", "null memory"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := testLab().Plan(test.request)
			if err != nil {
				t.Fatal(err)
			}
			if !canMap {
				test.cells = slices.DeleteFunc(test.cells, func(c string) bool { return strings.HasPrefix(c, FloorMap) })
			}
			if got := cells(p, test.workload); !slices.Equal(got, test.cells) {
				t.Errorf("cells\n%q\nwant\n%q", got, test.cells)
			}
			if got := unavailable(p, test.workload); !slices.Equal(got, test.absent) {
				t.Errorf("unavailable\n%q\nwant\n%q", got, test.absent)
			}
		})
	}
}

func TestPlanRefuses(t *testing.T) {
	number := func(n int) *int { return &n }
	span := func(d time.Duration) *time.Duration { return &d }
	for _, test := range []struct {
		request Request
		class   error
		want    []string // in the message
	}{
		{Request{Preset: "slow"}, holdfast.ErrBadOption, []string{`no preset "slow"`, "quick, event, smoke"}},
		{Request{Engines: []string{"rocks"}}, holdfast.ErrBadOption,
			[]string{`no engine "rocks"`, "each, file, ram, absent"}},
		{Request{Engines: []string{"each", "x*"}}, holdfast.ErrBadOption, []string{`no engine "x*"`}},
		{Request{Engines: []string{"null"}}, holdfast.ErrBadOption, []string{"always measured", "each, file"}},
		{Request{Workloads: []string{"event"}}, holdfast.ErrBadOption,
			[]string{`no workload "event"`, "event/append-1, event/append-100, event/read-100"}},
		{Request{Workloads: []string{"event/[" /* no end */}}, holdfast.ErrBadOption, []string{"pattern", "syntax error"}},
		{Request{Workloads: []string{""}}, holdfast.ErrBadOption, []string{`no workload ""`}},
		{Request{Levels: []string{"disk"}}, holdfast.ErrBadOption, []string{`no level "disk"`, "memory, process, power"}},
		{Request{Clients: []int{0}}, holdfast.ErrBadOption, []string{"0 clients", "1 to"}},
		{Request{Clients: []int{1, -3}}, holdfast.ErrBadOption, []string{"-3 clients"}},
		{Request{Clients: []int{1 << 20}}, holdfast.ErrBadOption, []string{"1048576 clients"}},
		{Request{Rounds: number(0)}, holdfast.ErrBadOption, []string{"0 rounds"}},
		{Request{Rounds: number(-1)}, holdfast.ErrBadOption, []string{"-1 rounds"}},
		{Request{Rounds: number(1 << 30)}, holdfast.ErrBadOption, []string{"rounds takes 1 to 1000"}},
		{Request{For: span(-time.Second)}, holdfast.ErrBadOption, []string{"-1s", "1ms to 1h"}},
		{Request{For: span(0)}, holdfast.ErrBadOption, []string{"0s"}},
		{Request{For: span(1000 * time.Hour)}, holdfast.ErrBadOption, []string{"1000h"}},
		{Request{Memory: "1"}, holdfast.ErrBadOption, []string{"a budget of 1 bytes", "at least"}},
		{Request{Memory: "-1"}, holdfast.ErrBadOption, []string{`"-1" is no size`}},
		{Request{Memory: "much"}, holdfast.ErrBadOption, []string{`"much" is no size`, "256MiB"}},
		{Request{Memory: "512MiB", RAM: new(int64(256))}, holdfast.ErrBadOption, []string{"--memory below --ram"}},
		{Request{Engines: []string{"ram"}, Levels: []string{"power"}}, holdfast.ErrLevel,
			[]string{"ram at power: because", "name other --engines or --levels"}},
		{Request{Levels: []string{"quorum"}}, holdfast.ErrLevel,
			[]string{"each at quorum: it is on one machine", "file at quorum: it is on one machine", "ram at quorum",
				"absent at quorum", "name other --engines or --levels"}},
		{Request{Engines: []string{"absent"}}, holdfast.ErrLevel,
			[]string{": absent at memory, process, power: because; name other --engines"}},
		{Request{Preset: "kv", Engines: []string{"peer"}}, holdfast.ErrBadOption,
			[]string{": peer: holds Raft logs only; name other --engines or --workloads"}},
	} {
		lab := testLab()
		lab.Peers = []Peer{{Entry: engineGiving("peer", 0, 0, holdfast.Power), Kind: RaftLogs}}
		_, err := lab.Plan(test.request)
		if !errors.Is(err, test.class) {
			t.Errorf("%+v: %v, want %v", test.request, err, test.class)
			continue
		}
		for _, part := range test.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: %q does not say %q", test.request, err, part)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %q has several lines", test.request, err)
		}
	}
}

func TestPresetsArePlans(t *testing.T) {
	for _, preset := range Presets() {
		p, err := testLab().Plan(Request{Preset: preset.Name})
		if err != nil {
			t.Fatal(err)
		}
		if p.Rounds != preset.Rounds || p.For != preset.For || len(p.Workloads) == 0 || p.Estimate() <= 0 {
			t.Errorf("%s became %+v", preset.Name, p)
		}
	}
	if p, err := testLab().Plan(Request{}); err != nil || p.Preset != "quick" {
		t.Errorf("without a name: %q, %v", p.Preset, err)
	}
}

func TestShuffledRoundsFollowFromTheSeed(t *testing.T) {
	seed := uint64(7)
	p, err := testLab().Plan(Request{Seed: &seed})
	if err != nil {
		t.Fatal(err)
	}
	first := p.Shuffled(1)
	if !slices.Equal(first, p.Shuffled(1)) {
		t.Error("one round has two orders")
	}
	if slices.Equal(first, p.Shuffled(2)) {
		t.Error("two rounds have one order")
	}
	for _, c := range p.Cells {
		if !slices.Contains(first, c) {
			t.Errorf("%+v is missing", c)
		}
	}
	if len(first) != len(p.Cells) {
		t.Errorf("%d cells of %d", len(first), len(p.Cells))
	}
}

func TestPlanRepeatsItself(t *testing.T) {
	rounds, seed, length := 3, uint64(42), 20*time.Millisecond
	r := Request{Preset: "smoke", Engines: []string{"each", "ra*"}, Workloads: []string{"event/append-*"},
		Levels: []string{"memory"}, Clients: []int{1, 4}, Rounds: &rounds, For: &length, Seed: &seed}
	p, err := testLab().Plan(r)
	if err != nil {
		t.Fatal(err)
	}
	want := "holdfast bench smoke --engines 'each,ra*' --workloads 'event/append-*' --levels memory --clients 1,4 " +
		"--rounds 3 --for 20ms --seed 42"
	if p.Command != want {
		t.Errorf("%s\nwant\n%s", p.Command, want)
	}
}
