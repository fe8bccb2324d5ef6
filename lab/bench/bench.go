// Package bench measures engines and stores at equal durability.
//
// One measurement is a fresh child process on a fresh directory: it prepares its inputs,
// warms up, runs the workload in closed loops, closes, reopens, and verifies that all it
// was told is safe is there and exact. What fails that is void. Measurements are
// repeated in shuffled rounds and summed up as a median with a nonparametric interval, and
// are only ever ranked within the level of durability that was really given.
//
// Two contenders are no engines. "null" does nothing, and so shows what the
// harness itself costs. "floor" does the least that this machine can do for the same
// bytes: one write call, and one fdatasync for [holdfast.Power]. Our store for Raft, on each engine, is compared with
// the peers of package contender, other stores for Raft as they are.
package bench

import (
	"slices"

	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/lab/console"
	"github.com/holdfastdb/holdfast/lab/contender"
)

// The contenders that are no engines.
const (
	Null  = "null"
	Floor = "floor"
)

// op is the command, for errors.
const op console.Op = "bench"

// Lab is what can be measured.
type Lab struct {
	Engines   []all.Entry
	Peers     []all.Entry // that hold Raft logs only
	Workloads []Workload
}

// Standard returns the lab with every engine, every peer and every workload.
func Standard() Lab {
	return Lab{Engines: all.Engines(), Peers: contender.Engines(), Workloads: Workloads()}
}

// entries are the engines and the peers.
func (l Lab) entries() []all.Entry { return slices.Concat(l.Engines, l.Peers) }

func (l Lab) engineNames() []string {
	var names []string
	for _, e := range l.entries() {
		names = append(names, e.Name)
	}
	return names
}

func (l Lab) isPeer(name string) bool {
	return slices.ContainsFunc(l.Peers, func(e all.Entry) bool { return e.Name == name })
}

func (l Lab) workloadNames() []string {
	var names []string
	for _, w := range l.Workloads {
		names = append(names, w.Name)
	}
	return names
}

func (l Lab) engine(name string) (all.Entry, error) {
	entries := l.entries()
	i := slices.IndexFunc(entries, func(e all.Entry) bool { return e.Name == name })
	if i < 0 {
		return all.Entry{}, op.Unknown("engine", name, l.engineNames())
	}
	return entries[i], nil
}

func (l Lab) workload(name string) (Workload, error) {
	i := slices.IndexFunc(l.Workloads, func(w Workload) bool { return w.Name == name })
	if i < 0 {
		return Workload{}, op.Unknown("workload", name, l.workloadNames())
	}
	return l.Workloads[i], nil
}
