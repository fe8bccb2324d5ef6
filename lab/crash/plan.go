package crash

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/crash/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
	"github.com/holdfastdb/holdfast/lab/crash/internal/subjects"
)

// Request is what a run is asked for. The zero value is the default run.
type Request struct {
	Engines  []string // names or patterns; empty means all, but no peers
	Levels   []string
	Kinds    []string // empty means kill, and power and faults where the machine can
	Subjects []string // empty means kv and raft, and raft alone for peers
	Cuts     *int     // of each row; nil means defaultCuts, and half of them where less is to be learnt
	FS       string
	Seed     *uint64
	For      *time.Duration
}

// defaultCuts is how many crashes of a row are judged.
const defaultCuts = 20

// runPlan is what a run will do.
type runPlan struct {
	cells    []kinds.Row
	missing  []Missing
	engines  []string
	levels   []holdfast.Level
	kinds    []Kind
	subjects []string
	// Neither levels nor subjects were named.
	allLevels, allSubjects bool

	cuts      int
	cutsNamed bool
	fs        string
	seed      uint64
	length    time.Duration // 0 if not named
	command   string
}

// plan makes a plan of a request. The error is ErrBadOption, or ErrLevel if nothing is available at the levels, or
// ErrUnavailable if a kind is named that this machine cannot do.
func (l Lab) plan(q Request) (*runPlan, error) {
	p := &runPlan{cuts: defaultCuts, fs: cmp.Or(q.FS, blockdev.FileSystems()[0]), subjects: q.Subjects}
	var err error
	names := namesOf(l.Engines)
	if len(q.Engines) > 0 {
		names = append(names, namesOf(l.Peers)...)
	}
	if p.engines, err = match(q.Engines, names); err != nil {
		return nil, err
	}
	for _, name := range q.Levels {
		level, err := holdfast.ParseLevel(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(p.levels, level) {
			p.levels = append(p.levels, level)
		}
	}
	if slices.Sort(p.levels); len(p.levels) == 0 {
		p.levels, p.allLevels = holdfast.Levels(), true
	}
	onlyPeers := !slices.ContainsFunc(p.engines, func(name string) bool { return !l.peer(name) })
	switch {
	case len(p.subjects) > 0:
	case onlyPeers:
		p.subjects = []string{subjects.Raft.Name}
	default:
		p.subjects, p.allSubjects = []string{subjects.KV.Name, subjects.Raft.Name}, true
	}
	for _, name := range p.subjects {
		if _, err := l.subject(name); err != nil {
			return nil, err
		}
	}
	if !slices.Contains(blockdev.FileSystems(), p.fs) {
		return nil, unknown("file system", p.fs, blockdev.FileSystems())
	}
	if err := p.chooseKinds(q.Kinds); err != nil {
		return nil, err
	}
	if q.Cuts != nil {
		if p.cuts, p.cutsNamed = *q.Cuts, true; p.cuts < 1 || p.cuts > 1e6 {
			return nil, badOption(fmt.Sprintf("%d cuts", p.cuts), "use a number from 1 to a million")
		}
	}
	if q.For != nil {
		if p.length = *q.For; p.length <= 0 {
			return nil, badOption(fmt.Sprintf("a run of %v", p.length), "use a time like 10m")
		}
	}
	p.seed = uint64(rand.Uint32())
	if q.Seed != nil {
		p.seed = *q.Seed
	}
	p.command = commandOf(q, p.seed)
	if err := l.cells(p); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(p.cells, func(c kinds.Row) bool { return !c.Control && c.NotAvailable == "" }) {
		return nil, p.nothing()
	}
	p.keepLevels()
	return p, nil
}

// keepLevels leaves out the levels that were not named and no row has.
func (p *runPlan) keepLevels() {
	has := func(level holdfast.Level) bool {
		return slices.ContainsFunc(p.cells, func(c kinds.Row) bool { return !c.Control && c.Level == level })
	}
	if p.allLevels && slices.ContainsFunc(p.levels, has) { // simulations have none
		p.levels = slices.DeleteFunc(p.levels, func(level holdfast.Level) bool { return !has(level) })
	}
}

// Why a row is not tested, where the engine does not say it itself.
const (
	onlyRaft     = "it is a store for Raft and nothing else"
	noSimulation = "it has no simulation"
	noDevice     = "it keeps nothing on a device"
	faultsLevel  = "faults tests power alone: what a refused flush can break is of no other level"
)

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
		strongest := c.Capabilities.Strongest()
		switch name := c.Level.String(); {
		case c.NotAvailable == onlyRaft:
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
	}
	e := &holdfast.Error{Op: "crash", Class: holdfast.ErrBadOption, Detail: "there is nothing to test: " + strings.Join(reasons, "; "), Remedy: "name other --engines"}
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

// peer reports whether that is the name of a peer.
func (l Lab) peer(name string) bool { return slices.Contains(namesOf(l.Peers), name) }

// match returns the names that one of the patterns matches, in their own order; no patterns match all.
func match(patterns, names []string) ([]string, error) {
	if len(patterns) == 0 {
		return names, nil
	}
	chosen := map[string]bool{}
	for _, pattern := range patterns {
		found := false
		for _, name := range names {
			if ok, err := path.Match(pattern, name); err == nil && ok {
				chosen[name], found = true, true
			}
		}
		if !found {
			return nil, unknown("engine", strconv.Quote(pattern), names)
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !chosen[name] }), nil
}

// chooseKinds leaves out what this machine cannot do, unless it was named.
func (p *runPlan) chooseKinds(names []string) error {
	all := []Kind{Kill, Power, Faults}
	for _, name := range names {
		k := Kind(name)
		if !slices.Contains(Kinds(), k) {
			var have []string
			for _, k := range Kinds() {
				have = append(have, string(k))
			}
			return unknown("kind", name, have)
		}
		if !slices.Contains(p.kinds, k) {
			p.kinds = append(p.kinds, k)
		}
	}
	named := len(p.kinds) > 0
	if !named {
		p.kinds = all
	}
	cannot := blockdev.Check(p.fs)
	p.kinds = slices.DeleteFunc(p.kinds, func(k Kind) bool {
		if cannot == nil || k != Power && k != Faults || named {
			return false
		}
		p.missing = append(p.missing, Missing{k, cannot.Error()})
		return true
	})
	if named && cannot != nil && (slices.Contains(p.kinds, Power) || slices.Contains(p.kinds, Faults)) {
		return cannot
	}
	return nil
}

// cells lists the rows: controls first, then kinds, subjects and engines in their order.
func (l Lab) cells(p *runPlan) error {
	for _, kind := range p.kinds {
		for _, subject := range p.subjects {
			fs := ""
			if kind == Power || kind == Faults {
				fs = p.fs
			}
			if kind == Simulate {
				if subject == p.subjects[0] {
					p.cells = append(p.cells, l.simulated(p)...)
				}
				continue
			}
			for _, mutant := range mutants(l.Engines) {
				if mutant.kind == kind {
					p.cells = append(p.cells, kinds.Row{Engine: mutant.name, Subject: subject, Level: kind.Survives(), Given: kind.Survives(),
						Kind: kind, FS: fs, Control: true, Capabilities: mutant.claims(mutant.base.Describe())})
				}
			}
			for _, name := range p.engines {
				e, err := l.engine(name)
				if err != nil {
					return err
				}
				if l.peer(name) && subject != subjects.Raft.Name && p.allSubjects {
					continue
				}
				for _, level := range p.levels {
					if kind == Faults && level != holdfast.Power {
						continue // what a refused flush can break is Power's
					}
					if subject == subjects.Raft.Name && level == holdfast.Memory && p.allLevels {
						continue // votes must survive the end of the process
					}
					c := kinds.Row{Engine: name, Subject: subject, Level: level, Kind: kind, FS: fs, Peer: l.peer(name), Capabilities: e.Describe()}
					promise := c.Capabilities.Promise(level)
					c.Given = promise.Given
					switch {
					case c.Peer && subject != subjects.Raft.Name:
						c.NotAvailable = onlyRaft
					case c.Given == 0:
						c.NotAvailable = promise.Why
					case c.Given > level && slices.Contains(p.levels, c.Given):
						c.NotAvailable = fmt.Sprintf("gives %v, shown there", c.Given)
					case kind != Kill && c.Capabilities.Strongest() <= holdfast.Memory:
						c.NotAvailable = noDevice
					}
					p.cells = append(p.cells, c)
				}
			}
		}
	}
	return nil
}

// simulated lists the simulations of the engines asked for.
func (l Lab) simulated(p *runPlan) []kinds.Row {
	var list []kinds.Row
	for _, name := range p.engines {
		c := kinds.Row{Engine: name, Kind: Simulate, NotAvailable: noSimulation}
		if l.simulation(name) != nil {
			c.NotAvailable = ""
		}
		list = append(list, c)
	}
	return list
}

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
	words := []string{"holdfast crash"}
	list := func(flag string, values []string) {
		if len(values) > 0 {
			words = append(words, flag, strings.Join(values, ","))
		}
	}
	list("--engines", q.Engines)
	list("--levels", q.Levels)
	list("--kind", q.Kinds)
	list("--subject", q.Subjects)
	if q.Cuts != nil {
		words = append(words, "--cuts", strconv.Itoa(*q.Cuts))
	}
	if q.FS != "" {
		words = append(words, "--fs", q.FS)
	}
	if q.For != nil {
		words = append(words, "--for", q.For.String())
	}
	return strings.Join(append(words, "--seed", strconv.FormatUint(seed, 10)), " ")
}
