package contender

import (
	"slices"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
)

// Study4 is the name of the engine that the message store of the fourth study in docs/studies.md was on.
const Study4 = "study-4"

// Study is that engine: Pebble with memtables of 256 MB, and nothing synced. It claims what the study concluded, that
// this is safe but for the last second or two before a power cut.
func Study() all.Entry { return all.Entry{Name: Study4, Open: openStudy4, Describe: describeStudy4} }

// study4Base is Pebble as our engine, which is always there.
func study4Base() all.Entry {
	engines := all.Engines()
	return engines[slices.IndexFunc(engines, func(e all.Entry) bool { return e.Name == "pebble" })]
}

func describeStudy4() holdfast.Capabilities {
	c := study4Base().Describe()
	c.Engine = Study4
	claim := holdfast.Promise{Given: holdfast.Process, How: "commits are not synced; the study's claim"}
	c.Memory, c.Process = claim, claim
	c.Power = holdfast.Promise{Why: "the study's configuration syncs nothing"}
	c.LossWindow = time.Second // and up to another one
	c.Caveats = []string{"It does not keep its claim: see docs/studies.md."}

	return c
}

// study4Memory makes Pebble's memtables as large as the study's: a sixth of it.
const study4Memory = 6 * 256 << 20

func openStudy4(dir string, o holdfast.Options) (holdfast.Engine, error) {
	o.MemoryBytes, o.SyncEvery = study4Memory, -1
	e, err := study4Base().Open(dir, o)
	if err != nil {
		return nil, err
	}

	return study4{e}, nil
}

// study4 passes every commit on without a sync.
type study4 struct{ holdfast.Engine }

func (e study4) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if err := describeStudy4().CheckLevel(level); err != nil {
		return holdfast.Receipt{}, err
	}

	return e.Engine.Apply(b, holdfast.Memory)
}

func (e study4) Capabilities() holdfast.Capabilities {
	c := describeStudy4()
	c.Settings = e.Engine.Capabilities().Settings

	return c
}

// Sync does nothing, as the study's store never called it.
func (study4) Sync() error { return nil }
