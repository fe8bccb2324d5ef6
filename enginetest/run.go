package enginetest

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/night"
)

// Run checks every law of the contract on the engine, at every level that it gives. Each law
// is a subtest ("1 atomic"), each level a subtest of that, and each case one again. Engines
// that keep nothing on disk run the cases that make sense for them. Cases run one after another: they start
// processes, and a file lock that an engine ends by closing the file lives on for a moment in a process that another
// case is starting.
//
// It takes part of a minute, and with HOLDFAST_NIGHT=1 longer: more data, and more damage. Random choices follow from
// -enginetest.seed: 1 by default, and 0 for a new seed each time, which is printed. The comparison with the model
// searches longer with -enginetest.model and -rapid.checks.
// With -short the laws whose cases use one goroutine are left out, for runs with the race detector. Some cases start
// the test that called Run again, alone, in a child process: Run must be the first thing that test does.
func Run(t *testing.T, h Harness) {
	s := newSuite(h, t.Name())
	if s.playChild() {
		return
	}

	for _, l := range laws {
		t.Run(l.title(), func(t *testing.T) {
			if l.sequential && testing.Short() {
				t.Skip("-short: its cases use one goroutine")
			}

			for _, c := range l.cases {
				t.Run(c.name, func(t *testing.T) {
					s.ask(l, c, t, func(level holdfast.Level, f func(tb)) { t.Run(level.String(), func(t *testing.T) { f(t) }) })
				})
			}
		})
	}
	t.Run("model", func(t *testing.T) {
		if testing.Short() {
			t.Skip("-short: it uses one goroutine")
		}
		s.model(t)
	})
}

// tb is what a case needs of a test. It is testing.TB, except that the suite's own tests
// can stand in for it and see whether a case fails.
type tb interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Failed() bool
	TempDir() string
	Cleanup(func())
}

// law is one law of the contract and the cases that ask for it.
type law struct {
	number int
	name   string
	text   string
	cases  []lawCase

	sequential bool // its cases use one goroutine
}

func (l law) title() string { return fmt.Sprintf("%d %s", l.number, l.name) }

// lawCase is one question.
type lawCase struct {
	name   string
	run    func(*trial)
	onDisk bool                // only for engines that keep something on disk
	once   bool                // only at the strongest level: the result does not depend on it
	needs  func(*suite) string // says why it does not apply to this engine, if so
}

// suite is one engine under test.
type suite struct {
	Harness
	name   string // of the test that called Run
	caps   holdfast.Capabilities
	kept   bool // it keeps something on disk
	script script

	mu    sync.Mutex
	found map[string][]finding // by evidence
}

func newSuite(h Harness, name string) *suite {
	caps := h.Describe()
	h.Scale = max(h.Scale, 1)

	return &suite{
		Harness: h, name: name, caps: caps, kept: caps.Strongest() > holdfast.Memory, found: map[string][]finding{},
		script: script{commits.Script{Seed: 1, Large: 1, Single: !caps.AtomicBatches}},
	}
}

// some is n, or less by day, where writing is expensive, and in short runs, which the race detector makes slow.
func (s *suite) some(n int) int {
	if testing.Short() {
		n /= 4
	} else {
		n /= night.Or(1, 2)
	}

	return n / s.Scale
}

// levels lists the levels that the engine gives something for.
func (s *suite) levels() []holdfast.Level { return s.caps.Levels() }

// ask runs a case at every level that it applies to.
func (s *suite) ask(l law, c lawCase, t tb, at func(holdfast.Level, func(tb))) {
	if c.onDisk && !s.kept {
		t.Logf("does not apply: %s keeps nothing on disk", s.caps.Engine)
		return
	}
	if c.needs != nil {
		if why := c.needs(s); why != "" {
			t.Logf("does not apply: %s", why)
			return
		}
	}
	levels := s.levels()
	if len(levels) == 0 {
		t.Fatalf("%s gives no level at all", s.caps.Engine)
	}
	if c.once {
		levels = levels[len(levels)-1:]
	}
	if s.Scale > 1 && l.number != 4 { // where another level is given, it is tested there
		levels = slices.DeleteFunc(levels, func(level holdfast.Level) bool { return s.caps.Promise(level).Given != level })
	}

	for _, level := range levels {
		at(level, func(t tb) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("\nLaw %d, %s. %s", l.number, l.name, l.text)
				}
			})
			// A panic of the engine breaks the law that is checked. The other cases continue.
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("panic: %v\n%s", p, debug.Stack())
				}
			}()
			c.run(&trial{tb: t, s: s, level: level})
		})
	}
}
