package crash

import (
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
)

// The controls: Pebble, saying that it gives more than it does. The lab must find both out.
const (
	mutantBase = "pebble"
	noSyncs    = "pebble, syncs removed"
	notWritten = "pebble, memory for process"
)

// mutants are the engines that a run checks itself with, made from an engine whose guarantees they weaken; none if
// it is not there.
func mutants(engines []all.Entry) []mutant {
	for _, e := range engines {
		if e.Name == mutantBase {
			return []mutant{{e, noSyncs, Power, holdfast.Process}, {e, notWritten, Kill, holdfast.Memory}}
		}
	}
	return nil
}

// mutant passes commits on at most at really, and nothing syncs. Crashes of one kind must find that out.
type mutant struct {
	base   all.Entry
	name   string
	kind   Kind
	really holdfast.Level
}

func (l mutant) entry() all.Entry {
	return all.Entry{Name: l.name, Describe: func() holdfast.Capabilities { return l.claims(l.base.Describe()) },
		Open: func(dir string, o holdfast.Options) (holdfast.Engine, error) {
			o.SyncEvery = -1 * time.Second // never
			e, err := l.base.Open(dir, o)
			if err != nil {
				return nil, err
			}
			return &openMutant{e, l}, nil
		}}
}

func (l mutant) claims(c holdfast.Capabilities) holdfast.Capabilities {
	c.Engine = l.name
	return c
}

// openMutant is an open mutant.
type openMutant struct {
	holdfast.Engine
	mutant mutant
}

func (l *openMutant) Capabilities() holdfast.Capabilities {
	return l.mutant.claims(l.Engine.Capabilities())
}

func (l *openMutant) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	return l.Engine.Apply(b, min(level, l.mutant.really))
}

// Sync says that it did.
func (l *openMutant) Sync() error {
	return holdfast.Commit(l.Engine, &holdfast.Batch{}, l.mutant.really)
}
