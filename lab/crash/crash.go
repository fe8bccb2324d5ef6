// Package crash tests by crashing what an engine's capabilities claim.
//
// A victim, a child process, opens an engine and works on it; it reports each batch before it
// applies it and each acknowledgement after Wait returned. The supervisor keeps that ledger outside
// the victim, ends the victim's world in one of several ways, lets a fresh child open what is
// left, and decides from the ledger whether what is there may be there. What a batch contains
// follows from a seed and the batch's number, so that the state after any number of batches
// can be computed without having been told.
//
//	kill      SIGKILL, at random moments, chosen ones and before chosen system calls, on the real file system
//	power     a recorded block device, cut at any write; see package blockdev
//	faults    the same device refuses flushes or writes
//	lies      the same device answers flushes and keeps nothing for them; what comes of it breaks no claim
//	simulate  an engine's own simulation of its file system
//	machine   three machines with PostgreSQL, of which one is lost; see package machines
//
// What the victim does is a subject; how its world ends is a kind. They know of each other only the protocol. This
// package plans a run from them, adds up what it finds, and shows it.
//
// Every run has controls: engines that give less than they say. A run that does not find that out is not to be
// believed.
package crash

import (
	"errors"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
	"github.com/holdfastdb/holdfast/lab/crash/internal/subjects"
)

// Kind is how the victim's world ends.
type Kind = kinds.Kind

// The kinds.
const (
	Kill     = kinds.Kill
	Power    = kinds.Power
	Faults   = kinds.Faults
	Lies     = kinds.Lies
	Simulate = kinds.Simulate
	Machine  = kinds.Machine
)

// Simulation is an engine's own simulation of its file system.
type Simulation = kinds.Simulation

// Simulated is what was done in simulated histories.
type Simulated = kinds.Simulated

// What a run can find.
var (
	// ErrBroken: an engine does not keep what it claims.
	ErrBroken = errors.New("a claim is broken")
	// ErrControl: an engine that is known to give less than it says was not found out.
	ErrControl = errors.New("a control held: this lab is not to be believed")
)

// Status is the exit status for an error of [Lab.Command] or [Lab.Replay].
func Status(err error) int {
	return console.Status(err,
		console.Exit{Err: ErrControl, Status: console.ExitControl}, console.Exit{Err: ErrBroken, Status: console.ExitWrong},
		console.Exit{Err: console.ErrIncomplete, Status: console.ExitIncomplete},
		console.Exit{Err: holdfast.ErrUnavailable, Status: console.ExitCannot})
}

// op is the command, for errors.
const op console.Op = "crash"

// Lab is what can be crashed.
type Lab struct {
	Engines []all.Entry
	// Peers are other stores, by the one subject that they are for. They are tested when they are named.
	Peers       map[string][]all.Entry
	Simulations []Simulation

	timeouts     kinds.Timeouts // zero means the standard ones
	controlTries int            // how many more units a control gets that has not been found out, 0 for 10
}

// Standard returns the lab with every engine, every peer and every subject.
func Standard() Lab {
	return Lab{Engines: all.Engines(), Peers: map[string][]all.Entry{
		subjects.KV.Name:      contender.RustEngines(),
		subjects.Raft.Name:    contender.Engines(),
		subjects.Message.Name: append(contender.MessageEngines(), contender.Study()),
	}}
}

// engine returns the entry of a name among engines, peers and mutants. The error names all but mutants, which nobody
// asks for by name.
func (l Lab) engine(name string) (all.Entry, error) {
	entries := slices.Concat(l.Engines, l.peers())
	for _, mutant := range mutants(l.Engines) {
		entries = append(entries, mutant.engine)
	}

	for _, e := range entries {
		if e.Name == name {
			return e, nil
		}
	}

	return all.Entry{}, op.Unknown("engine", name, append(namesOf(l.Engines), namesOf(l.peers())...))
}

// peers lists the peers in the order of their subjects.
func (l Lab) peers() (list []all.Entry) {
	for _, s := range subjects.Subjects() {
		list = append(list, l.Peers[s.Name]...)
	}

	return list
}

// only is the one subject of a peer, empty if that is not the name of one.
func (l Lab) only(name string) string {
	for subject, peers := range l.Peers {
		if slices.Contains(namesOf(peers), name) {
			return subject
		}
	}

	return ""
}

// namesOf lists the names of engines.
func namesOf(engines []all.Entry) []string {
	var names []string
	for _, e := range engines {
		names = append(names, e.Name)
	}

	return names
}

// subjectOf finds a subject by its name. The error names those that there are.
func subjectOf(name string) (subjects.Subject, error) {
	var names []string
	for _, s := range subjects.Subjects() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}

	return subjects.Subject{}, op.Unknown("subject", name, names)
}
