package bench

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// defaultMemory is the budget in bytes of each contender for caches and write buffers, unless --memory names another:
// it lets Pebble have the memtables that its authors' own tool measures with.
const defaultMemory = 384 << 20

// Contender is what an engine ran with, at one level.
type Contender struct {
	Engine  string         `json:"engine"`
	Given   holdfast.Level `json:"given"`
	Library string         `json:"library"` // and its version
	// MemoryBytes is the budget that it was opened with: the plan's, or the least that it takes.
	MemoryBytes int64 `json:"memory_bytes"`
	// Mapped is true where its commits are stores to a mapping, and no calls of the operating system.
	Mapped bool `json:"mapped"`
	// Settings are what the engine says that it runs with, read back from its library where that tells.
	Settings map[string]string `json:"settings"`
}

// budget is what an engine is opened with where all have that much. One that needs more gets the least that it takes.
func budget(e all.Entry, memory int64) int64 {
	return max(memory, e.Describe().MinMemoryBytes)
}

// contenderOf is what an open engine runs with.
func contenderOf(name string, c holdfast.Capabilities, given holdfast.Level, memory int64) *Contender {
	own := &Contender{Engine: name, Given: given, Library: c.Library, MemoryBytes: memory,
		Mapped: c.Promise(given).Mapped, Settings: map[string]string{}}
	for _, s := range c.Settings {
		own.Settings[s.Name] = s.Value
	}

	return own
}

// ran notes what a contender ran with, once for each level.
func (r *Report) ran(c *Contender) {
	if c == nil || slices.ContainsFunc(r.Contenders, func(known Contender) bool {
		return known.Engine == c.Engine && known.Given == c.Given
	}) {
		return
	}
	r.Contenders = append(r.Contenders, *c)
	slices.SortStableFunc(r.Contenders, func(a, b Contender) int {
		place := func(c Contender) int { return slices.Index(r.Plan.Engines, c.Engine) }
		if a.Engine != b.Engine {
			return place(a) - place(b)
		}

		return int(a.Given) - int(b.Given)
	})
}

// parseMemory reads the budget that was asked for.
func parseMemory(text string, ram int64) (int64, error) {
	n, err := all.ParseSize(text)
	if err != nil {
		return 0, op.BadOption(fmt.Sprintf("--memory %q is no size", text), "write it as 268435456 or 256MiB")
	}
	if n < holdfast.MinMemoryBytes {
		return 0, op.BadOption(fmt.Sprintf("a budget of %d bytes", n),
			fmt.Sprintf("--memory takes %s at least", measure.Size(holdfast.MinMemoryBytes)))
	}
	if ram > 0 && n > ram {
		return 0, op.BadOption(fmt.Sprintf("a budget of %s where a measurement has %s of RAM", measure.Size(n),
			measure.Size(ram)), "name a --memory below --ram")
	}

	return n, nil
}

// fits refuses a budget that the machine does not have.
func (p Plan) fits(m measure.Machine) error {
	if m.MemoryBytes > 0 && p.MemoryBytes > m.MemoryBytes {
		return op.BadOption(fmt.Sprintf("a budget of %s on a machine with %s", measure.Size(p.MemoryBytes),
			measure.Size(m.MemoryBytes)), "name a smaller --memory")
	}

	return nil
}

// budgets says in a line or two what memory the contenders had, or with settings all that they ran with.
func (s screen) budgets(r *Report, settings bool) {
	if len(r.Contenders) == 0 {
		return
	}

	text := fmt.Sprintf("Each contender has %s for caches and write buffers (--memory)", measure.Size(r.Plan.MemoryBytes))
	var more []string
	for _, c := range r.Contenders {
		own := fmt.Sprintf("%s %s", c.Engine, measure.Size(c.MemoryBytes))
		if c.MemoryBytes > r.Plan.MemoryBytes && !slices.Contains(more, own) {
			more = append(more, own)
		}
	}
	if len(more) > 0 {
		text += "; " + strings.Join(more, ", ") + ", the least that it takes"
	}
	if settings {
		s.Wrapped("", text+".")

		for _, c := range r.Contenders {
			s.contender(c)
		}

		return
	}
	s.Wrapped("", text+". What each ran with is in the JSON; --settings shows it.")
}

// contender writes one contender's settings, in the order of their names.
func (s screen) contender(c Contender) {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
		list = append(list, name+"="+c.Settings[name])
	}
	if len(list) == 0 {
		list = append(list, "it tells none")
	}
	s.Hanging(fmt.Sprintf("  %s at %v: ", c.Engine, c.Given), strings.Join(list, "  "), 4)
}

// listSettings opens each engine once in a directory that it removes, and writes what it runs with. Servers are left
// out.
func (s screen) listSettings(l Lab, memory int64) {
	s.Title("settings with a budget of " + measure.Size(memory))

	for _, e := range l.entries() {
		level := e.Describe().Strongest()
		if level == 0 || l.isServer(e.Name) {
			continue
		}
		c, err := settingsOf(e, level, memory)
		if err != nil {
			s.Hanging("  "+e.Name+": ", "it cannot be opened: "+err.Error(), 4)
			continue
		}
		s.contender(*c)
	}
}

// settingsOf opens an engine and looks what it runs with.
func settingsOf(e all.Entry, level holdfast.Level, memory int64) (_ *Contender, err error) {
	dir, err := os.MkdirTemp("", "holdfast-settings-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	in := filepath.Join(dir, "engine")
	if level == holdfast.Memory {
		in = ""
	}
	memory = budget(e, memory)
	engine, err := e.Open(in, holdfast.Options{Level: level, MemoryBytes: memory})
	if err != nil {
		return nil, err
	}
	c := contenderOf(e.Name, engine.Capabilities(), level, memory)

	return c, engine.Close()
}
