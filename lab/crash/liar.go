package crash

import (
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
)

// The controls: Pebble, saying that it gives more than it does. The lab must find both out.
const (
	liarBase   = "pebble"
	noSyncs    = "pebble, syncs removed"
	notWritten = "pebble, memory for process"
)

// liars are the engines that a run checks itself with, made from the engine they lie about; none if it is
// not there.
func liars(engines []all.Entry) []liar {
	for _, e := range engines {
		if e.Name == liarBase {
			return []liar{{e, noSyncs, Power, holdfast.Process}, {e, notWritten, Kill, holdfast.Memory}}
		}
	}
	return nil
}

// liar passes commits on at most at really, and nothing syncs. Crashes of one kind must find that out.
type liar struct {
	base   all.Entry
	name   string
	kind   Kind
	really holdfast.Level
}

func (l liar) entry() all.Entry {
	return all.Entry{Name: l.name, Describe: func() holdfast.Capabilities { return l.claims(l.base.Describe()) },
		Open: func(dir string, o holdfast.Options) (holdfast.Engine, error) {
			o.SyncEvery = -1 * time.Second // never
			e, err := l.base.Open(dir, o)
			if err != nil {
				return nil, err
			}
			return &lying{e, l}, nil
		}}
}

func (l liar) claims(c holdfast.Capabilities) holdfast.Capabilities {
	c.Engine = l.name
	return c
}

// lying is an open liar.
type lying struct {
	holdfast.Engine
	liar liar
}

func (l *lying) Capabilities() holdfast.Capabilities {
	return l.liar.claims(l.Engine.Capabilities())
}

func (l *lying) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	return l.Engine.Apply(b, min(level, l.liar.really))
}

// Sync says that it did.
func (l *lying) Sync() error { return holdfast.Commit(l.Engine, &holdfast.Batch{}, l.liar.really) }
