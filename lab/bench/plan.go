package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// Limits of what can be asked for.
const (
	maxRounds  = 1000
	maxClients = 4096
	minFor     = time.Millisecond
	maxFor     = time.Hour
	minRAM     = 64 // MiB, of which Go's runtime and the harness take a part
)

// Preset is a named choice of what to measure.
type Preset struct {
	Name, About string
	Workloads   []string // patterns
	Clients     []int
	Rounds      int
	For         time.Duration
	Levels      []holdfast.Level // empty for all
}

// Presets returns the table of presets; the first is the default.
//
// Six rounds are the fewest for a claim who is faster, and the fewest from which the interval from the smallest to the
// largest value holds the median with 95 % confidence (97 %). A plan of six or more has as many as its largest table
// needs, unless a number is asked for. Presets with fewer, which measure for long, make no claim.
func Presets() []Preset {
	return []Preset{
		{"quick", "the event store with one client",
			[]string{"event/append-*", "event/read-100"}, []int{1}, 6, 200 * time.Millisecond,
			nil},
		{"event", "the event store with 1 and 64 clients",
			[]string{"event/append-*", "event/read-100", "event/cold-read"}, []int{1, 64}, 10, time.Second,
			nil},
		{"smoke", "some workloads of each kind once: does it work at all",
			[]string{"event/append-*", "event/read-100", "kv/mixed", "raft/stable-get", "raft/store-16",
				"message/mixed", "message/follow"},
			[]int{1}, 1, 10 * time.Millisecond, nil},
		{"kv", "the key-value table with one client; transactions with 1 and 64",
			[]string{"kv/seq-*", "kv/batch", "kv/mixed", "kv/overwrite", "kv/value-*", "kv/random-write",
				"kv/random-read", "kv/random-read-1m", "kv/scan", "kv/scan-1m", "kv/cold-read",
				"kv/transaction"},
			[]int{1}, 6, 100 * time.Millisecond, nil},
		{"kv-large", "ten million keys in random order, and cold reads of 60 million (9 GB); name --engines",
			[]string{"kv/load", "kv/steady", "kv/open-killed-1g", "kv/range", "kv/scan-loaded", "kv/scan-updated",
				"kv/*-1m-updated", "*/cold-read-60m"}, []int{4}, 6, 30 * time.Second,
			[]holdfast.Level{holdfast.Process}},
		{"mixed", "reads beside a writer, a table of constant size, and queues, with four clients; opening after a kill",
			[]string{"kv/read-while-writing*", "kv/retention", "kv/queue", "kv/open-killed"}, []int{4}, 6, time.Second,
			[]holdfast.Level{holdfast.Process, holdfast.Power}},
		{"ycsb", "the six core workloads of YCSB with four clients, which share 100,000 records of 1 KB",
			[]string{"ycsb/*"}, []int{4}, 6, 300 * time.Millisecond,
			[]holdfast.Level{holdfast.Process, holdfast.Power}},
		{"raft", "stores for Raft, others among them",
			[]string{"raft/stable-*", "raft/store-*", "raft/get-log", "raft/truncate", "raft/propose*"},
			[]int{1}, 6, 150 * time.Millisecond,
			[]holdfast.Level{holdfast.Process, holdfast.Power}},
		{"raft-long", "a Raft log that grows and is truncated", []string{"raft/long"}, []int{1}, 1,
			10 * time.Minute,
			[]holdfast.Level{holdfast.Power}},
		{"message", "the message store with ten clients",
			[]string{"message/[^l]*"}, []int{10}, 6, 300 * time.Millisecond, nil},
		{"message-long", "a message store that grows beyond the memory", []string{"message/long"},
			[]int{10}, 1, 10 * time.Minute,
			[]holdfast.Level{holdfast.Process, holdfast.Power}},
		{"task", "the task queue, 100 workers in life cycles, 1 and 64 behind a backlog, and files",
			[]string{"task/lifecycle", "task/throughput", "file/*"}, []int{1, 64, 100}, 6, 300 * time.Millisecond, nil},
		{"task-long", "a task queue with a million tasks that wait", []string{"task/long"},
			[]int{64}, 1, 5 * time.Minute, []holdfast.Level{holdfast.Process, holdfast.Power}},
	}
}

// Request is what the user asked for. What is empty or nil is taken from the preset.
type Request struct {
	Preset    string
	Engines   []string // names or patterns
	Workloads []string // names or patterns
	Levels    []string
	Clients   []int
	Rates     []string // of open loops, see ParseOffer; empty for closed loops
	Find      []string // bounds for which the highest rates are looked for, see ParseBound
	Rounds    *int
	For       *time.Duration
	Seed      *uint64
	RAM       *int64 // MiB
	Baseline  string // the engine that others are compared with; empty for the best
	Memory    string // a size, for the budget of each contender; empty for the default
	Format    string // of [Formats] that the report is shown in; empty for the first
	Resume    string // a report of the same plan, on this machine, that is not whole: what it has is not measured again
	Detail    Detail // how much of the report is shown
}

// Plan is what will be measured.
type Plan struct {
	PlanJSON
	For         time.Duration // of each measurement
	WarmUp      time.Duration // before it
	Detail      Detail        // how much is shown
	Format      string        // of what is shown
	Offers      []Offer       // of open loops; empty for what each workload has
	Cells       []Cell        // each is measured once per round
	Unavailable []Unavailable
}

// Cell is one thing to measure.
type Cell struct {
	Workload string         `json:"workload"`
	Engine   string         `json:"engine"`
	Asked    holdfast.Level `json:"asked"`
	Given    holdfast.Level `json:"given"`
	Clients  int            `json:"clients"`
	Offer    Offer          `json:"offer"`
	Reads    bool           `json:"-"` // of the workload
	Overhead time.Duration  `json:"-"` // of the workload, for the estimate
}

// Unavailable is a level that an engine does not give, or not under that name.
type Unavailable struct {
	Workload string         `json:"workload"`
	Engine   string         `json:"engine"`
	Asked    holdfast.Level `json:"asked"`
	Reason   string         `json:"reason"`

	instead holdfast.Level // that it gives when asked for this one, 0 if none
	why     string         // in the engine's own words
	never   bool           // it is the work that it cannot do, at any level
}

// Plan checks the request and lays out the cells. Errors are ErrBadOption or ErrLevel, and
// list what is right.
func (l Lab) Plan(r Request) (Plan, error) {
	presets := Presets()
	if r.Preset == "" {
		r.Preset = presets[0].Name
	}
	i := slices.IndexFunc(presets, func(p Preset) bool { return p.Name == r.Preset })
	if i < 0 {
		var names []string
		for _, p := range presets {
			names = append(names, p.Name)
		}

		return Plan{}, op.Unknown("preset", r.Preset, names)
	}
	preset := presets[i]
	p := Plan{For: preset.For, PlanJSON: PlanJSON{Preset: preset.Name, Clients: preset.Clients, Rounds: preset.Rounds,
		Seed: uint64(rand.Uint32())}}

	var err error

	// What is named goes before the preset. Of the engines that were not named, those stay that can do one of the
	// workloads; peers that must be named do not, nor, where Quorum is or is not all that is named, those for which it is
	// the other way round.
	patterns := preset.Workloads
	if len(r.Workloads) > 0 {
		patterns = r.Workloads
	}
	if p.Workloads, err = op.Choose("workload", patterns, l.workloadNames()); err != nil {
		return Plan{}, err
	}
	if p.Levels, err = levelsAsked(r.Levels, preset.Levels); err != nil {
		return Plan{}, err
	}
	named := len(r.Engines) > 0
	patterns = r.Engines
	if !named {
		patterns = []string{"*"}
	}
	if p.Engines, err = op.Choose("engine", patterns, l.engineNames(), Null, Floor, FloorMap,
		FloorParallel); err != nil {
		return Plan{}, err
	}
	if !named {
		onlyQuorum := slices.Equal(p.Levels, []holdfast.Level{holdfast.Quorum}) &&
			slices.ContainsFunc(l.Peers, func(p Peer) bool { return p.Nodes > 1 })
		p.Engines = slices.DeleteFunc(p.Engines, func(engine string) bool {
			several := l.peer(engine).Nodes > 1
			return l.peer(engine).Named || several && !slices.Contains(p.Levels, holdfast.Quorum) ||
				onlyQuorum && !several && !l.givesQuorum(engine) || !slices.ContainsFunc(l.Workloads, func(w Workload) bool {
				_, ok := l.can(engine, w)
				return ok && slices.Contains(p.Workloads, w.Name)
			})
		})
	}

	if len(p.Levels) == 0 {
		p.Levels = l.levels(p.Engines)
	}
	if len(r.Clients) > 0 {
		p.Clients = slices.Compact(slices.Sorted(slices.Values(r.Clients)))
	}

	for _, n := range p.Clients {
		if n < 1 || n > maxClients {
			return Plan{}, op.BadOption(fmt.Sprintf("%d clients", n),
				fmt.Sprintf("--clients takes 1 to %d, several with commas", maxClients))
		}
	}
	if r.Rounds != nil {
		p.Rounds = *r.Rounds
	}
	if p.Rounds < 1 || p.Rounds > maxRounds {
		return Plan{}, op.BadOption(fmt.Sprintf("%d rounds", p.Rounds),
			fmt.Sprintf("--rounds takes 1 to %d; %d are the fewest for a claim", maxRounds, measure.MinRounds))
	}
	if r.For != nil {
		p.For = *r.For
	}
	if p.For < minFor || p.For > maxFor {
		return Plan{}, op.BadOption(fmt.Sprintf("measuring for %v", p.For),
			fmt.Sprintf("--for takes %v to %v", minFor, maxFor))
	}
	p.WarmUp = min(p.For/4, time.Second)
	p.Seconds, p.WarmUpSeconds = p.For.Seconds(), p.WarmUp.Seconds()
	if r.Seed != nil {
		p.Seed = *r.Seed
	}
	if r.RAM != nil {
		if p.RAMBytes = *r.RAM << 20; *r.RAM < minRAM || p.RAMBytes < 0 {
			return Plan{}, op.BadOption(fmt.Sprintf("%d MiB of RAM", *r.RAM),
				fmt.Sprintf("--ram takes MiB, %d at least", minRAM))
		}
	}
	if p.Baseline = r.Baseline; r.Baseline != "" && (reference(r.Baseline) || !slices.Contains(p.Engines, r.Baseline)) {
		return Plan{}, op.Unknown("baseline", r.Baseline, p.Engines)
	}

	// With less memory in the machine than the budget, half of it is the budget: the other half is the page cache's.
	if p.MemoryBytes = defaultMemory; p.RAMBytes > 0 {
		p.MemoryBytes = min(p.MemoryBytes, p.RAMBytes/2)
	}
	if r.Memory != "" {
		if p.MemoryBytes, err = parseMemory(r.Memory, p.RAMBytes); err != nil {
			return Plan{}, err
		}
	}
	p.Detail, p.Format = r.Detail, r.Format
	if err := checkFormat(op, r.Format); err != nil {
		return Plan{}, err
	}

	// Offers of open loops: rates that are named, and bounds for which the highest rate is looked for.
	for _, text := range r.Rates {
		offer, err := ParseOffer(text)
		if err == nil && !offer.Open() {
			err = op.BadOption("an empty rate", "name one, as --rate 80%")
		}
		if err != nil {
			return Plan{}, err
		}
		if !slices.Contains(p.Offers, offer) {
			p.Offers = append(p.Offers, offer)
		}
	}

	for _, text := range r.Find {
		bound, err := ParseBound(text)
		if err != nil {
			return Plan{}, err
		}
		if offer := (Offer{Bound: bound}); !slices.Contains(p.Offers, offer) {
			p.Offers = append(p.Offers, offer)
		}
	}
	var asked []int
	if len(r.Clients) > 0 {
		asked = p.Clients
	}
	if err := l.layOut(&p, asked, named); err != nil {
		return p, err
	}

	// How many rounds it takes to show a difference depends on the size of the largest table, which is known now.
	if r.Rounds == nil && p.Rounds >= measure.MinRounds {
		p.Rounds = max(p.Rounds, p.roundsToShow())
	}
	p.Command = command(r, p)

	return p, nil
}

// levelsAsked are those that are named, in their order and each once, or those of the preset; none for what there is.
func levelsAsked(names []string, preset []holdfast.Level) (levels []holdfast.Level, err error) {
	if len(names) == 0 {
		return preset, nil
	}
	for _, name := range names {
		level, err := holdfast.ParseLevel(name)
		if err != nil {
			return nil, op.Unknown("level", name, levelNames(holdfast.Levels()))
		}
		levels = append(levels, level)
	}
	slices.Sort(levels)

	return slices.Compact(levels), nil
}

// roundsToShow is how many rounds the largest table needs so that differences can be shown in it.
func (p Plan) roundsToShow() int {
	engines, most := map[tableKey]int{}, 0
	for _, c := range p.Cells {
		if !reference(c.Engine) {
			engines[c.table()]++
			most = max(most, engines[c.table()])
		}
	}

	return measure.RoundsFor(comparisons(most, p.Baseline != ""))
}

// layOut fills in the cells and what is unavailable. Peers are only said to be missing where they were named.
func (l Lab) layOut(p *Plan, asked []int, named bool) error {
	for _, name := range p.Workloads {
		w, err := l.workload(name)
		if err != nil {
			return err
		}

		for i, at := range setups(w.clients(asked, p.Clients), p.Offers, w) {
			clients := at.clients
			add := func(engine string, asked, given holdfast.Level) {
				p.Cells = append(p.Cells, Cell{Workload: name, Engine: engine, Asked: asked, Given: given, Clients: clients,
					Offer: at.offer, Reads: w.Reads, Overhead: w.Overhead + nodeOverhead*time.Duration(l.peer(engine).Nodes)})
			}

			// The levels that some engine gives here: the references are measured where there is something to compare them with.
			given := map[holdfast.Level]bool{}
			for _, engine := range p.Engines {
				entry, err := l.engine(engine)
				if err != nil {
					return err
				}

				// Each reason takes cells away and says why. What is missing is told once for a workload, not for each number of
				// clients.
				cells, missing := levelsOf(entry, p.Levels, w.Reads)
				if why := refused(entry.Describe(), w); why != "" {
					given := slices.DeleteFunc(slices.Clone(p.Levels), func(level holdfast.Level) bool {
						return entry.Describe().Promise(level).Given == 0
					})
					missing = slices.DeleteFunc(missing, func(u Unavailable) bool { return u.instead != 0 })
					cells, missing = nil, append(missing, absent(engine, given, why, name+": "+why)...)
				}
				if why, ok := l.can(engine, w); !ok {
					cells, missing = nil, nil
					if named {
						missing = absent(engine, p.Levels, why, why)
					}
				}
				if w.Killed {
					const why = "what it acknowledged dies with the process"
					cells = slices.DeleteFunc(cells, func(c Cell) bool {
						if c.Given == holdfast.Memory {
							missing = append(missing, absent(engine, []holdfast.Level{c.Asked}, why, why)...)
						}

						return c.Given == holdfast.Memory
					})
				}
				if clients > 1 && l.peer(engine).OneClient {
					const why = "it answers one request after another, and is measured with one client"
					cells, missing = nil, absent(engine, p.Levels, why, why)
				}

				for _, c := range cells {
					add(engine, c.Asked, c.Given)
					given[c.Given] = true
				}
				if i == 0 {
					for _, u := range missing {
						u.Workload = name
						p.Unavailable = append(p.Unavailable, u)
					}
				}
			}
			if len(given) == 0 {
				continue
			}
			// At a share of its own rate, null would show how fast the pacer is.
			if !w.Samples && (at.offer == w.Offer || at.offer.Rate > 0) {
				add(Null, holdfast.Memory, holdfast.Memory)
			}
			if w.Floor == nil {
				continue
			}
			if w.Reads {
				add(Floor, holdfast.Power, holdfast.Power)
				continue
			}

			for _, level := range []holdfast.Level{holdfast.Process, holdfast.Power, holdfast.Quorum} {
				if given[level] {
					add(Floor, level, level)
				}
			}
			if given[holdfast.Process] && canMap && !w.Killed {
				add(FloorMap, holdfast.Process, holdfast.Process)
			}
			if given[holdfast.Quorum] {
				add(FloorParallel, holdfast.Quorum, holdfast.Quorum)
			}
		}
	}
	if len(p.Cells) == 0 {
		return l.nothing(p.Unavailable)
	}

	return nil
}

// setup is how clients do the work of a table.
type setup struct {
	clients int
	offer   Offer
}

// setups are those of a workload with these numbers of clients. If offers are none, its own is taken.
func setups(clients []int, offers []Offer, w Workload) (list []setup) {
	if len(offers) == 0 || w.Killed {
		offers = []Offer{w.Offer}
	}

	for _, n := range clients {
		for _, offer := range offers {
			list = append(list, setup{n, offer})
		}
	}

	return list
}

// refused says why an engine cannot do the work at any level, "" if it can.
func refused(have holdfast.Capabilities, w Workload) string {
	switch most := have.MaxBatchSize; {
	case w.Cold && !measure.CanDropPages:
		return "files can be dropped from memory on Linux only"
	case w.Cold && have.Strongest() == holdfast.Memory:
		return "it has no files that could be dropped from memory"
	case w.BatchBytes > most:
		return fmt.Sprintf("%d MB in one transaction are more than the %d MB that it takes", w.BatchBytes/1e6, most/1e6)
	case !have.AtomicBatches && !w.OneKey && have.Strongest() > 0:
		return "it has no atomic batches, which the work needs"
	}

	return ""
}

// nothing is the error of a plan in which nothing is available, ErrLevel, or ErrBadOption where no engine named can do
// the work: each reason once, with what would help.
func (l Lab) nothing(missing []Unavailable) error {
	type absence struct{ engine, reason string }

	var order []absence
	levels := map[absence][]holdfast.Level{} // none where no level helps
	otherLevels, otherWork := false, false
	for _, u := range missing {
		a := absence{u.Engine, u.Reason}
		if _, ok := levels[a]; !ok {
			order, levels[a] = append(order, a), nil
		}
		if u.never {
			otherWork = true
			continue
		}
		if !slices.Contains(levels[a], u.Asked) {
			levels[a] = append(levels[a], u.Asked)
		}
		e, err := l.engine(u.Engine)
		otherLevels = otherLevels || err == nil && e.Describe().Strongest() > 0
	}

	var reasons []string
	for _, a := range order {
		at := ""
		if slices.Sort(levels[a]); len(levels[a]) > 0 {
			at = " at " + strings.Join(levelNames(levels[a]), ", ")
		}
		reasons = append(reasons, a.engine+at+": "+a.reason)
	}
	class, remedy := holdfast.ErrLevel, "name other --engines"
	if otherWork && !otherLevels {
		class = holdfast.ErrBadOption
	}
	if otherLevels {
		remedy += " or --levels"
	}
	if otherWork {
		remedy += " or --workloads"
	}

	return &holdfast.Error{Op: "bench", Class: class, Detail: strings.Join(reasons, "; "), Remedy: remedy}
}

// levelsOf says at which of the levels an engine is measured: once for each level that it really
// gives, asked for under that level's own name if that is among them.
func levelsOf(e all.Entry, levels []holdfast.Level, reads bool) (cells []Cell, missing []Unavailable) {
	have := e.Describe()
	asked := map[holdfast.Level]holdfast.Level{} // by the level given; the strongest asked wins

	for _, level := range levels {
		if given := have.Promise(level).Given; given != 0 {
			asked[given] = level
		}
	}

	for _, level := range levels {
		promise := have.Promise(level)
		switch {
		case promise.Given == 0:
			// Reads only need some level to write with.
			if !reads || len(asked) == 0 {
				missing = append(missing, Unavailable{Engine: e.Name, Asked: level, Reason: promise.Why, why: promise.Why})
			}
		case asked[promise.Given] == level:
			cells = append(cells, Cell{Asked: level, Given: promise.Given})
		case !reads:
			reason := fmt.Sprintf("gives %v, shown there", promise.Given)
			if promise.Why != "" {
				reason += ": " + promise.Why
			}
			missing = append(missing, Unavailable{Engine: e.Name, Asked: level, Reason: reason, instead: promise.Given,
				why: promise.Why})
		}
	}
	if reads && len(cells) > 1 {
		cells = cells[len(cells)-1:]
	}

	return cells, missing
}

// absent is what is missing of an engine that cannot do the work at these levels. Tables say why.
func absent(engine string, levels []holdfast.Level, reason, why string) []Unavailable {
	var missing []Unavailable
	for _, level := range levels {
		missing = append(missing, Unavailable{Engine: engine, Asked: level, Reason: reason, why: why, never: true})
	}

	return missing
}

// Shuffled returns the cells in the order of one round, which follows from the seed.
func (p Plan) Shuffled(round int) []Cell {
	cells := slices.Clone(p.Cells)
	rand.New(rand.NewPCG(p.Seed, uint64(round))).Shuffle(len(cells), func(i, j int) {
		cells[i], cells[j] = cells[j], cells[i]
	})

	return cells
}

// expectedOverhead is what a measurement takes in addition to warming up and measuring, for the first
// guess of the time left.
const expectedOverhead = 130 * time.Millisecond

// nodeOverhead is what making and starting a node takes where there are several.
const nodeOverhead = 2 * time.Second

// Estimate estimates how long the plan takes.
func (p Plan) Estimate() time.Duration {
	round := time.Duration(0)
	for _, c := range p.Cells {
		runs := time.Duration(1)
		if c.Offer.Bound != (Bound{}) {
			runs = usualRuns
		}
		round += runs * (p.For + p.WarmUp + expectedOverhead + c.Overhead)
	}

	return round * time.Duration(p.Rounds)
}

// levels are those that are measured if none is named: all, and Quorum only where one of the engines gives it. Most are
// on one machine, and need not all say so.
func (l Lab) levels(engines []string) []holdfast.Level {
	return slices.DeleteFunc(holdfast.Levels(), func(level holdfast.Level) bool {
		return level == holdfast.Quorum && !slices.ContainsFunc(engines, l.givesQuorum)
	})
}

// givesQuorum reports whether the engine of that name gives Quorum.
func (l Lab) givesQuorum(engine string) bool {
	e, err := l.engine(engine)
	return err == nil && e.Describe().Quorum.Given != 0
}

func levelNames(levels []holdfast.Level) []string {
	var names []string
	for _, level := range levels {
		names = append(names, level.String())
	}

	return names
}

// command is the command line that repeats the plan.
func command(r Request, p Plan) string {
	return "holdfast bench " + p.Preset + console.Flag("engines", r.Engines...) +
		console.Flag("workloads", r.Workloads...) + console.Flag("levels", r.Levels...) +
		console.Flag("clients", r.Clients...) + console.Flag("rate", r.Rates...) + console.Flag("find-rate", r.Find...) +
		console.FlagOf("rounds", r.Rounds) + console.FlagOf("for", r.For) +
		console.Flag("seed", p.Seed) + console.FlagOf("ram", r.RAM) + console.Flag("memory", r.Memory) +
		console.Flag("baseline", r.Baseline)
}
