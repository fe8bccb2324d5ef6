package crash

import (
	"bytes"
	"cmp"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/flawed"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
	"github.com/holdfastdb/holdfast/lab/crash/internal/subjects"
)

// The controls of every run: engines that say they give more than they do. The lab must find all of them out.
const (
	mutantBase = "pebble"
	noSyncs    = "pebble, syncs removed"
	notWritten = "pebble, memory for process"
	triesAgain = "a failed sync tried again"
	inTwo      = "pebble, transactions in two batches"
)

// mutant is an engine that breaks what it claims. Crashes of one kind can find that out.
type mutant struct {
	name    string
	kind    Kind
	control bool // it is in every run of its kind
	sure    bool // a round of [Lab.Mutants] that does not find it is a fault of the lab
	engine  all.Entry
	subject string // that alone shows it; "" for any
}

// shows is a subject that shows the mutant.
func (m mutant) shows() string { return cmp.Or(m.subject, subjects.KV.Name) }

// controls are the mutants that a run checks itself with.
func controls(engines []all.Entry) (list []mutant) {
	for _, m := range mutants(engines) {
		if m.control {
			list = append(list, m)
		}
	}

	return list
}

// mutants lists those made of an engine whose guarantees they weaken, none if it is not there, and those that break one
// rule of durable files each.
func mutants(engines []all.Entry) (list []mutant) {
	for _, e := range engines {
		if e.Name != mutantBase {
			continue
		}
		list = append(list,
			mutant{noSyncs, Power, true, true, weakened(e, noSyncs, holdfast.Process), ""},
			mutant{notWritten, Kill, true, true, weakened(e, notWritten, holdfast.Memory), ""},
			mutant{triesAgain, Faults, true, false, flawedEngine(triesAgain, flawed.Retries, 1), ""},
			mutant{inTwo, Kill, true, true, divided(e, inTwo, dividedFor), subjects.Transaction.Name})
	}

	for _, e := range engines {
		if e.Name == all.Default { // whose uploader it is: the subject does what it is named for
			list = append(list, mutant{subjects.EarlyBackup, Kill, true, true, renamed(e, subjects.EarlyBackup),
				subjects.Backup.Name})
		}
	}

	for _, m := range []struct {
		name  string
		kind  Kind
		sure  bool
		flaw  flawed.Flaw
		every uint64
	}{
		{"skips 1 sync in 20", Power, true, flawed.Skips, 20},
		{"skips 1 sync in 100", Power, false, flawed.Skips, 100},
		{"acknowledges before the sync", Power, true, flawed.EarlyAck, 1},
		{"syncs the wrong file", Power, true, flawed.WrongFile, 1},
		{"renames without a sync of the file", Power, false, flawed.NoFileSync, 1},
		{"renames without a sync of the directory", Power, false, flawed.NoDirSync, 1},
		{"its log has no checksums", Power, false, flawed.NoChecksum, 1},
		{"writes its index before the log is synced", Power, false, flawed.IndexFirst, 1},
		{"keeps writes in a buffer of 64 KiB", Kill, true, flawed.Buffers, 1},
		{"keeps 1 write in 20 until the next one", Kill, false, flawed.Buffers, 20},
		{"keeps 1 write in 100 until the next one", Kill, false, flawed.Buffers, 100},
		{"rewrites its manifest in place", Kill, false, flawed.InPlace, 1},
		{"its log has no checksums, killed", Kill, false, flawed.NoChecksum, 1},
		{"a failed sync taken for a good one", Faults, true, flawed.Ignores, 1},
		{"goes on after a failed sync", Faults, true, flawed.GoesOn, 1},
		{"takes a failed read for the end of its log", Faults, true, flawed.Unread, 1},
		{"checks nothing of what it reads", Lies, false, flawed.Trusts, 1},
	} {
		list = append(list, mutant{m.name, m.kind, false, m.sure, flawedEngine(m.name, m.flaw, m.every), ""})
	}

	return list
}

// row is the mutant against its kind of crash, through the same choices as every engine.
func (m mutant) row(subject string, mounts []blockdev.Mount) kinds.Row {
	return kinds.Row{Engine: m.name, Subject: subject, Level: m.kind.Survives(), Given: m.kind.Survives(), Kind: m.kind,
		Mounts: mounts, Capabilities: m.engine.Describe()}
}

// controlRow is the mutant as the control of a run, which crashes where it must show.
func (m mutant) controlRow(subject string, mounts []blockdev.Mount) kinds.Row {
	c := m.row(subject, mounts)
	c.Control = true

	return c
}

// renamed is an entry under another name.
func renamed(base all.Entry, name string) all.Entry {
	return all.Entry{Name: name, Describe: func() holdfast.Capabilities { return claims(name, base.Describe()) },
		Open: base.Open}
}

// flawedEngine is an entry for the small engine with one flaw. It claims what the sound one does.
func flawedEngine(name string, flaw flawed.Flaw, every uint64) all.Entry {
	return all.Entry{Name: name, Describe: func() holdfast.Capabilities { return claims(name, flawed.Describe()) },
		Open: func(dir string, _ holdfast.Options) (holdfast.Engine, error) { return flawed.Open(dir, flaw, every) }}
}

// weakened passes commits on at most at really, and nothing syncs.
func weakened(base all.Entry, name string, really holdfast.Level) all.Entry {
	return all.Entry{Name: name, Describe: func() holdfast.Capabilities { return claims(name, base.Describe()) },
		Open: func(dir string, o holdfast.Options) (holdfast.Engine, error) {
			// The loss window would sync behind the mutant's back, and the lost sync would not show.
			o.SyncEvery = -1 * time.Second // never
			e, err := base.Open(dir, o)
			if err != nil {
				return nil, err
			}

			return &openWeakened{e, name, really}, nil
		}}
}

// divided commits the messages of a batch first, and the rest of it some time later.
func divided(base all.Entry, name string, by time.Duration) all.Entry {
	return all.Entry{Name: name, Describe: func() holdfast.Capabilities { return claims(name, base.Describe()) },
		Open: func(dir string, o holdfast.Options) (holdfast.Engine, error) {
			e, err := base.Open(dir, o)
			if err != nil {
				return nil, err
			}
			return &openDivided{e, name, by}, nil
		}}
}

// openDivided is an open engine of divided.
type openDivided struct {
	holdfast.Engine
	name string
	by   time.Duration
}

// Capabilities are those of the base under the mutant's name.
func (e *openDivided) Capabilities() holdfast.Capabilities {
	return claims(e.name, e.Engine.Capabilities())
}

// The time between the two batches, so that most kills come between some; on machines a commit takes longer.
const (
	dividedFor        = time.Millisecond
	dividedOnMachines = 50 * time.Millisecond
)

// Apply commits a batch in two, so that a kill between them leaves the messages without the rest.
func (e *openDivided) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	var messages, rest holdfast.Batch
	for op := range b.Ops() {
		to := &rest
		if bytes.Contains(op.Key, []byte(subjects.MessagesOfTransactions)) {
			to = &messages
		}
		switch op.Kind {
		case holdfast.KindSet:
			to.Set(op.Key, op.Value)
		case holdfast.KindDelete:
			to.Delete(op.Key)
		case holdfast.KindDeleteRange:
			to.DeleteRange(op.Key, op.Value)
		}
	}
	if messages.Len() == 0 || rest.Len() == 0 {
		return e.Engine.Apply(b, level)
	}

	// The first one is there for as long as the second one is not.
	r, err := e.Engine.Apply(&messages, level)
	if err == nil {
		err = r.Wait()
	}
	if err != nil {
		return r, err
	}
	time.Sleep(e.by)
	return e.Engine.Apply(&rest, level)
}

// claims are those of an engine under another name.
func claims(name string, c holdfast.Capabilities) holdfast.Capabilities {
	c.Engine = name
	return c
}

// openWeakened is an open engine of weakened.
type openWeakened struct {
	holdfast.Engine
	name   string
	really holdfast.Level
}

// Capabilities are those of the base under the mutant's name.
func (e *openWeakened) Capabilities() holdfast.Capabilities {
	return claims(e.name, e.Engine.Capabilities())
}

// Apply passes a batch on at no more than really, whatever was asked for.
func (e *openWeakened) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	return e.Engine.Apply(b, min(level, e.really))
}

// Sync says that it did.
func (e *openWeakened) Sync() error { return holdfast.Commit(e.Engine, &holdfast.Batch{}, e.really) }
