package crash

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
	"github.com/holdfastdb/holdfast/lab/crash/internal/subjects"
	"github.com/holdfastdb/holdfast/lab/internal/machines"
)

// Request is what a run is asked for. The zero value is the default run.
type Request struct {
	Engines  []string // names or patterns; empty means all, but no peers
	Levels   []string
	Kinds    []string // empty means kill, and power and faults where the machine can
	Subjects []string // empty means all, the stores at the level that a kind must not cost, and of peers their own
	Cuts     *int     // of each row; nil means defaultCuts, and fewer where less is to be learnt
	FS       string
	Seed     *uint64
	For      *time.Duration
	// Losses are the ways to lose a machine, names or patterns; empty means all. They are of the kind machine.
	Losses []string
	// Manager is what promotes standbys of machines: patroni; empty means the lab.
	Manager string
	// Mutants asks for [Detection] instead of results: how well the lab finds engines that break one rule each.
	Mutants bool
}

// defaultCuts is how many crashes of a row are judged.
const defaultCuts = 20

// runPlan is what a run will do.
type runPlan struct {
	PlanJSON
	cells       []kinds.Row
	mounts      []blockdev.Mount
	missing     []Missing
	allLevels   bool // no levels were named
	ownSubjects bool // no subjects were named
	allSubjects bool // nor are there only peers, which have theirs
	cutsNamed   bool
	mutants     bool          // there is nothing else
	losses      []string      // of machines; nil means all
	manager     string        // of machines; empty means the lab
	writer      bool          // machines are crashed under the lab's own writer
	length      time.Duration // 0 if not named
}

// plan makes a plan of a request. The error is ErrBadOption, or ErrLevel if nothing is available at the levels, or
// ErrUnavailable if a kind is named that this machine cannot do.
func (l Lab) plan(q Request) (*runPlan, error) {
	p := &runPlan{PlanJSON: PlanJSON{
		Cuts: defaultCuts, Subjects: q.Subjects, Seed: uint64(rand.Uint32()),
	}}
	if q.Mutants {
		return l.planMutants(p, q)
	}
	var err error

	p.Engines = namesOf(l.Engines)
	if len(q.Engines) > 0 {
		names := append(p.Engines, namesOf(l.peers())...)
		if p.Engines, err = op.Choose("engine", q.Engines, names); err != nil {
			return nil, err
		}
	}

	for _, name := range q.Levels {
		level, err := holdfast.ParseLevel(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(p.Levels, level) {
			p.Levels = append(p.Levels, level)
		}
	}
	if slices.Sort(p.Levels); len(p.Levels) == 0 {
		p.Levels, p.allLevels = l.levels(p.Engines), true
	}

	// Without a subject named, stores of others are crashed as the one thing they are, and engines as everything.
	if p.ownSubjects = len(p.Subjects) == 0; p.ownSubjects {
		wanted := map[string]bool{}
		for _, name := range p.Engines {
			wanted[l.only(name)] = true
		}

		p.allSubjects = wanted[""]
		for _, s := range subjects.Subjects() {
			if s.OnlyKilled() && !slices.Contains(p.Engines, all.Default) {
				continue
			}
			if p.allSubjects && s.Name != kinds.Nodes || wanted[s.Name] {
				p.Subjects = append(p.Subjects, s.Name)
			}
		}
	}

	for _, name := range p.Subjects {
		if _, err := subjectOf(name); err != nil {
			return nil, err
		}
	}
	if err := knownFS(q.FS); err != nil {
		return nil, err
	}
	if err := p.chooseKinds(q.Kinds, []Kind{Kill, Power, Faults}, blockdev.Mounts(q.FS)); err != nil {
		return nil, err
	}
	if err := p.chooseMachines(q); err != nil {
		return nil, err
	}
	if err := p.numbers(q); err != nil {
		return nil, err
	}
	if err := l.cells(p); err != nil {
		return nil, err
	}

	// A plan of controls alone would test the lab and no engine.
	if !slices.ContainsFunc(p.cells, func(c kinds.Row) bool { return !c.Control && c.NotAvailable == "" }) {
		return nil, p.nothing()
	}
	p.keepLevels()

	return p, nil
}

// levels are those that are tested if none is named: all, and Quorum only where one of the engines gives it. Most are
// on one machine, and need not all say so.
func (l Lab) levels(engines []string) []holdfast.Level {
	return slices.DeleteFunc(holdfast.Levels(), func(level holdfast.Level) bool {
		return level == holdfast.Quorum && !slices.ContainsFunc(engines, func(name string) bool {
			e, err := l.engine(name)
			return err == nil && e.Describe().Quorum.Given != 0
		})
	})
}

// knownFS refuses a file system that this package cannot make. "" is all of them.
func knownFS(name string) error {
	if name != "" && !slices.Contains(blockdev.FileSystems(), name) {
		return op.Unknown("file system", name, blockdev.FileSystems())
	}

	return nil
}

// numbers takes over the numbers of a request.
func (p *runPlan) numbers(q Request) error {
	if q.Cuts != nil {
		if p.Cuts, p.cutsNamed = *q.Cuts, true; p.Cuts < 1 || p.Cuts > 1e6 {
			return op.BadOption(fmt.Sprintf("%d cuts", p.Cuts), "use a number from 1 to a million")
		}
	}
	if q.For != nil {
		if p.length = *q.For; p.length <= 0 {
			return op.BadOption(fmt.Sprintf("a run of %v", p.length), "use a time like 10m")
		}
	}
	p.Seconds = p.length.Seconds()
	if q.Seed != nil {
		p.Seed = *q.Seed
	}

	// The command line has the seed even where none was named, so that the run can be made again.
	p.Command = commandOf(q, p.Seed)

	return nil
}

// planMutants makes a plan of mutants alone.
func (l Lab) planMutants(p *runPlan, q Request) (*runPlan, error) {
	for _, named := range []struct {
		flag   string
		values []string
	}{{"engines", q.Engines}, {"levels", q.Levels}, {"subject", q.Subjects}, {"losses", q.Losses}} {
		if len(named.values) > 0 {
			return nil, op.BadOption("--mutants with --"+named.flag, "leave that out: mutants are engines of their own, at "+
				"the level that they break, under a subject that shows it")
		}
	}
	p.mutants = true
	for _, s := range subjects.Subjects() {
		if slices.ContainsFunc(mutants(l.Engines), func(m mutant) bool { return m.shows() == s.Name }) {
			p.Subjects = append(p.Subjects, s.Name)
		}
	}
	if err := knownFS(q.FS); err != nil {
		return nil, err
	}
	if err := p.chooseKinds(q.Kinds, kinds.Kinds(), blockdev.Mounts(q.FS)); err != nil {
		return nil, err
	}

	for _, kind := range p.Kinds {
		for _, m := range mutants(l.Engines) {
			if m.kind == kind {
				p.cells = append(p.cells, m.row(m.shows(), p.mounts))
			}
		}

		for _, s := range l.Simulations {
			for _, m := range s.Mutants {
				if kind == Simulate {
					p.cells = append(p.cells, kinds.Row{Engine: m.Engine, Kind: Simulate})
				}
			}
		}
	}

	for i := range p.cells {
		c := &p.cells[i]

		if !c.Kind.Recorded() {
			c.Mounts = nil
		}
		p.Engines = append(p.Engines, c.Engine)
		if c.Level > 0 && !slices.Contains(p.Levels, c.Level) {
			p.Levels = append(p.Levels, c.Level)
		}
	}
	if slices.Sort(p.Levels); len(p.Levels) == 0 {
		p.Levels = l.levels(p.Engines)
	}
	if len(p.cells) == 0 {
		return nil, op.BadOption("there are no mutants", "name another --kind")
	}

	return p, p.numbers(q)
}

// mountsText lists mounts.
func mountsText(mounts []blockdev.Mount) string {
	var list []string
	for _, m := range mounts {
		list = append(list, m.String())
	}

	return strings.Join(list, ", ")
}

// keepLevels leaves out the levels that were not named and no row has.
func (p *runPlan) keepLevels() {
	has := func(level holdfast.Level) bool {
		return slices.ContainsFunc(p.cells, func(c kinds.Row) bool { return !c.Control && c.Level == level })
	}
	if p.allLevels && slices.ContainsFunc(p.Levels, has) { // simulations have none
		p.Levels = slices.DeleteFunc(p.Levels, func(level holdfast.Level) bool { return !has(level) })
	}
}

// Why a row is not tested, where the engine does not say it itself.
const (
	tornBatches  = "a crash can tear its batches, and stores refuse it"
	noSimulation = "it has no simulation"
	noDevice     = "it keeps nothing on a device"
	oneMachine   = "all that it keeps is on one machine"
	machinesTest = "machines test quorum alone, and not under raft"
	onlyKilled   = "a machine that is lost with its disk is lost, however it ends: kill tests that"
	noBackup     = "it has no log that is uploaded all the time"
	needMachines = "several processes need machines of their own: --kind machine"
	faultsLevel  = "faults and lies test power alone: what comes of a flush is of no other level"
)

// onlyFor says that peers have one subject.
var onlyFor = map[string]string{
	subjects.KV.Name:      "it is a store of keys and nothing else here",
	subjects.Raft.Name:    "it is a store for Raft and nothing else",
	subjects.Message.Name: "it is a store of messages and nothing else",
}

// nothing is the error of a plan of which only the controls are left: ErrLevel where another level would do, else
// ErrBadOption.
func (p *runPlan) nothing() error {
	type absence struct{ engine, why string }

	var order []absence
	levels := map[absence][]string{}
	helps := map[string]bool{}
	for _, c := range p.cells {
		if c.Control {
			continue
		}
		a := absence{c.Engine, c.NotAvailable}
		if _, ok := levels[a]; !ok {
			order, levels[a] = append(order, a), nil
		}

		// What would help is named by flag. Each reason is said once for an engine, with its levels.
		strongest := c.Capabilities.Strongest()
		switch name := c.Level.String(); {
		case c.NotAvailable == needMachines:
			helps["--kind"] = true
		case c.NotAvailable == tornBatches, slices.Contains(slices.Collect(maps.Values(onlyFor)), c.NotAvailable):
			helps["--subject"] = true
		case c.Kind == Simulate:
			helps["--kind"] = true
		case !slices.Contains(levels[a], name):
			levels[a] = append(levels[a], name)
			helps["--levels"] = helps["--levels"] || strongest > holdfast.Memory || strongest > 0 && c.Kind == Kill
			helps["--kind"] = helps["--kind"] || strongest == holdfast.Memory && c.Kind != Kill
		}
	}

	var reasons []string
	for _, a := range order {
		at := ""
		if len(levels[a]) > 0 {
			at = " at " + strings.Join(levels[a], ", ")
		}
		reasons = append(reasons, a.engine+at+": "+a.why)
	}

	if len(reasons) == 0 {
		reasons, helps["--levels"] = []string{faultsLevel}, true
		if slices.Contains(p.Kinds, Machine) {
			reasons, helps["--subject"] = []string{machinesTest}, true
		}
	}
	e := &holdfast.Error{Op: string(op), Class: holdfast.ErrBadOption,
		Detail: "there is nothing to test: " + strings.Join(reasons, "; "), Remedy: "name other --engines"}
	if helps["--levels"] {
		e.Class = holdfast.ErrLevel
	}

	for _, flag := range []string{"--levels", "--subject", "--kind"} {
		if helps[flag] {
			e.Remedy += " or " + flag
		}
	}

	return e
}

// chooseKinds leaves out what this machine cannot do, unless it was named: kinds, and the mounts that recorded disks
// have in turns.
func (p *runPlan) chooseKinds(names []string, all []Kind, mounts []blockdev.Mount) error {
	for _, name := range names {
		k := Kind(name)
		if !slices.Contains(kinds.Kinds(), k) {
			var have []string
			for _, k := range kinds.Kinds() {
				have = append(have, string(k))
			}

			return op.Unknown("kind", name, have)
		}
		if !slices.Contains(p.Kinds, k) {
			p.Kinds = append(p.Kinds, k)
		}
	}

	named := len(p.Kinds) > 0
	if !named {
		p.Kinds = all
	}

	// A kind that was named and cannot be done is an error; one that was not is left out, and the report says so.
	var cannot error // the first reason, if no mount is left
	missing := map[string]error{}
	for _, m := range mounts {
		err := blockdev.Check(m.FS)
		if err == nil {
			p.mounts = append(p.mounts, m)
		} else if missing[m.FS] == nil {
			missing[m.FS], cannot = err, cmp.Or(cannot, err)
		}
	}
	if p.FS = mountsText(p.mounts); len(p.mounts) > 0 {
		cannot = nil

		for _, k := range p.Kinds {
			for _, fs := range slices.Sorted(maps.Keys(missing)) {
				if k.Recorded() {
					p.missing = append(p.missing, Missing{k, fmt.Sprintf("on %s: %v", fs, missing[fs])})
				}
			}
		}
	} else {
		p.FS = mountsText(mounts)
	}
	p.Kinds = slices.DeleteFunc(p.Kinds, func(k Kind) bool {
		if cannot == nil || !k.Recorded() || named {
			return false
		}
		p.missing = append(p.missing, Missing{k, cannot.Error()})

		return true
	})
	if err := machines.Check(machines.Options{}); err != nil && slices.Contains(p.Kinds, Machine) {
		if named {
			return err
		}
		p.missing = append(p.missing, Missing{Machine, err.Error()})
		p.Kinds = slices.DeleteFunc(p.Kinds, func(k Kind) bool { return k == Machine })
	}
	if named && cannot != nil && slices.ContainsFunc(p.Kinds, Kind.Recorded) {
		return cannot
	}

	return nil
}

// cells lists the rows: controls first, then kinds, subjects and engines in their order.
func (l Lab) cells(p *runPlan) error {
	for _, kind := range p.Kinds {
		for _, subject := range p.Subjects {
			var mounts []blockdev.Mount
			if kind.Recorded() {
				mounts = p.mounts
			}
			if kind == Simulate {
				// A simulation has no subject, so it is planned once and not for each.
				if subject == p.Subjects[0] {
					p.cells = append(p.cells, l.simulated(p)...)
				}
				continue
			}

			if s, _ := subjectOf(subject); s.OnlyKilled() && kind != Kill && p.ownSubjects {
				continue
			}

			if kind == Machine {
				if slices.Contains(kinds.MachineSubjects(), subject) && slices.Contains(p.Levels, holdfast.Quorum) {
					p.cells = append(p.cells, machineRows(p, subject)...)
				}
				continue
			}

			if subject == kinds.Nodes {
				for _, name := range p.Engines {
					p.cells = append(p.cells, kinds.Row{Engine: name, Subject: subject, Level: kind.Survives(), Kind: kind,
						NotAvailable: needMachines})
				}
				continue
			}

			for _, mutant := range controls(l.Engines) {
				if mutant.kind == kind && (mutant.subject == subject || mutant.subject == "" && subject != subjects.Backup.Name) {
					p.cells = append(p.cells, mutant.controlRow(subject, mounts))
				}
			}

			for _, name := range p.Engines {
				e, err := l.engine(name)
				if err != nil {
					return err
				}
				only := l.only(name)

				// A peer is left out under other subjects, unless those were named: then its row says why.
				if only != "" && only != subject && p.ownSubjects {
					continue
				}

				if subject == subjects.Backup.Name && name != all.Default && p.ownSubjects {
					continue
				}

				for _, level := range p.levelsOf(kind, subject, e.Describe(), only != "") {
					c := kinds.Row{
						Engine: name, Subject: subject, Level: level, Kind: kind, Mounts: mounts, Peer: only != "",
						Capabilities: e.Describe(),
					}

					// A row that is not tested stays in the plan with its reason: the report shows it.
					promise := c.Capabilities.Promise(level)
					c.Given = promise.Given
					switch {
					case c.Peer && only != subject:
						c.NotAvailable = onlyFor[only]
					case c.Given == 0:
						c.NotAvailable = promise.Why
					case subject == subjects.Backup.Name && name != all.Default:
						c.NotAvailable = noBackup
					case subject == subjects.Backup.Name && kind != Kill:
						c.NotAvailable = onlyKilled
					case !c.Capabilities.AtomicBatches && subject != subjects.KV.Name:
						c.NotAvailable = tornBatches
					case c.Given > level && slices.Contains(p.Levels, c.Given):
						c.NotAvailable = fmt.Sprintf("gives %v, shown there", c.Given)
					case kind != Kill && c.Capabilities.Strongest() <= holdfast.Memory:
						c.NotAvailable = noDevice
					}
					p.cells = append(p.cells, c)
				}
			}
		}
	}

	// A control shows that the lab would find something of its kind and subject. Where nothing of that is tested, it goes.
	type place struct {
		kind    Kind
		subject string
	}

	tested := map[place]bool{}
	for _, c := range p.cells {
		if !c.Control && c.NotAvailable == "" {
			tested[place{c.Kind, c.Subject}] = true
		}
	}
	p.cells = slices.DeleteFunc(p.cells, func(c kinds.Row) bool { // controls of nothing
		return c.Control && !tested[place{c.Kind, c.Subject}]
	})

	return nil
}

// levelsOf lists the levels of an engine's rows.
func (p *runPlan) levelsOf(kind Kind, subject string, c holdfast.Capabilities, peer bool) (list []holdfast.Level) {
	for _, level := range p.Levels {
		switch {
		case (kind == Faults || kind == Lies) && level != holdfast.Power: // what a flush can break is Power's
		case !p.allLevels:
			list = append(list, level)
		case p.allSubjects && !peer && subject != subjects.KV.Name:
			// What an engine gives at each level is tested with its keys. The stores pass levels on.
			if level == max(kind.Survives(), c.Promise(kind.Survives()).Given) {
				list = append(list, level)
			}
		case subject == subjects.Raft.Name && level == holdfast.Memory: // votes must survive the end of the process
		default:
			list = append(list, level)
		}
	}

	return list
}

// chooseMachines completes a plan with machines: where no levels are named, Quorum is among them, and where no engines
// are, and there is no other kind, the one engine that is on several, with its subjects.
func (p *runPlan) chooseMachines(q Request) (err error) {
	if !slices.Contains(p.Kinds, Machine) {
		for flag, given := range map[string]bool{"losses": len(q.Losses) > 0, "manager": q.Manager != ""} {
			if given {
				return op.BadOption("--"+flag+" without machines", "add --kind machine")
			}
		}
		return nil
	}
	have := kinds.Losses()
	if q.Manager != "" {
		if err := machines.Check(machines.Options{Manager: q.Manager}); err != nil {
			return err
		}
		p.manager, p.losses, have = q.Manager, kinds.ManagedLosses(), kinds.ManagedLosses()
	}
	if len(q.Losses) > 0 {
		if p.losses, err = op.Choose("loss", q.Losses, have); err != nil {
			return err
		}
	}
	if p.allLevels && !slices.Contains(p.Levels, holdfast.Quorum) {
		p.Levels = append(p.Levels, holdfast.Quorum)
	}
	if p.writer = len(q.Engines) == 0; p.writer && len(p.Kinds) == 1 {
		p.Engines = []string{kinds.MachineEngine}
		if p.ownSubjects {
			p.Subjects = kinds.MachineSubjects()
			if p.manager != "" { // which is what is tried
				p.Subjects = p.Subjects[:1]
			}
		}
	}

	return nil
}

// machineRows lists the rows of machines with a subject: an engine and its controls, or why the engines that were named
// have none.
func machineRows(p *runPlan, subject string) (list []kinds.Row) {
	row := kinds.Row{Subject: subject, Level: holdfast.Quorum, Given: holdfast.Quorum, Kind: Machine}
	if !p.writer {
		for _, name := range p.Engines {
			row.Engine, row.NotAvailable = name, oneMachine
			list = append(list, row)
		}

		return list
	}

	for _, name := range kinds.OnMachines(subject, p.losses) {
		row.Engine, row.Control, row.Losses = name, kinds.FlawedOnMachines(name), p.losses
		if name == kinds.MachineEngine { // controls have flaws of theirs: the lab promotes
			row.Manager = p.manager
		}
		list = append(list, row)
	}

	return list
}

// simulated lists the simulations of the engines asked for.
func (l Lab) simulated(p *runPlan) []kinds.Row {
	var list []kinds.Row
	for _, name := range p.Engines {
		c := kinds.Row{Engine: name, Kind: Simulate, NotAvailable: noSimulation}
		if l.simulation(name) != nil {
			c.NotAvailable = ""
		}
		list = append(list, c)
	}

	return list
}

// simulation is that of an engine, nil if it has none.
func (l Lab) simulation(engine string) *Simulation {
	for i := range l.Simulations {
		if l.Simulations[i].Engine == engine {
			return &l.Simulations[i]
		}
	}

	return nil
}

// commandOf is the command line of a request.
func commandOf(q Request, seed uint64) string {
	return "holdfast crash" + console.Flag("engines", q.Engines...) + console.Flag("levels", q.Levels...) +
		console.Flag("kind", q.Kinds...) + console.Flag("subject", q.Subjects...) + console.FlagOf("cuts", q.Cuts) +
		console.Flag("losses", q.Losses...) + console.Flag("manager", q.Manager) + console.Flag("fs", q.FS) +
		console.FlagOf("for", q.For) + console.Flag("seed", seed) + mutantsFlag(q)
}

// mutantsFlag is the flag for a run of mutants.
func mutantsFlag(q Request) string {
	if q.Mutants {
		return " --mutants"
	}

	return ""
}
