// Package bench measures engines and stores at equal durability.
//
// One measurement is a fresh child process on a fresh directory: it prepares its inputs,
// warms up, runs the workload in closed loops (or an open one), closes, reopens, and verifies that all it
// was told is safe is there and exact. What fails that is void. Measurements are
// repeated in shuffled rounds and summed up as a median with a nonparametric interval, and
// are only ever ranked within the level of durability that was really given.
//
// Some contenders are no engines. "null" does nothing, and so shows what the
// harness itself costs. "floor" does the least that this machine can do for the same
// bytes: one write call, and one fdatasync for [holdfast.Power]; "floor-map", at Process, stores to a mapping instead,
// as some engines do. At [holdfast.Quorum] it is two processes, which both write and sync: one after the other, or, as
// "floor-parallel", at the same time. Our stores for Raft, for messages and for tasks, and
// our transactions, on each engine, are compared with the peers of package contender, other stores as they are.
package bench

import (
	"fmt"
	"slices"

	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/contender"
)

// The contenders that are no engines.
const (
	Null  = "null"
	Floor = "floor"
	// FloorMap is Floor at Process by a store to a mapping of the file in the place of a write call.
	FloorMap = "floor-map"
	// FloorParallel is Floor at Quorum with both nodes writing at the same time, and not one after the other.
	FloorParallel = "floor-parallel"
)

// op is the command, for errors.
const op console.Op = "bench"

// Lab is what can be measured.
type Lab struct {
	Engines   []all.Entry
	Peers     []Peer
	Workloads []Workload
}

// StoreKind says what a kind of store holds, in words.
type StoreKind string

// The kinds of stores that have peers.
const (
	Keys     StoreKind = "keys"
	RaftLogs StoreKind = "Raft logs"
	EtcdLogs StoreKind = "logs of etcd's Raft"
	Messages StoreKind = "messages"
	Tasks    StoreKind = "tasks"
	Files    StoreKind = "one file a key"
)

// Peer is a store as it is, opened like an engine. It can do the work that is on a store of its kind, and nothing else;
// without a kind, what engines can.
type Peer struct {
	all.Entry
	Kind   StoreKind
	Server bool // in a process of its own, of which nothing is known
	Nodes  int  // how many it has; 0 for one. With several it is measured at Quorum, where that is named.
	// WritesOnly is true for one of which only work without reads of what was just written is measured.
	WritesOnly bool
	// Named is true for one that is measured only where it is named.
	Named bool
	// OneClient is true for one that answers one client after another, so that it is measured with one only.
	OneClient bool
	// Transactional is true for one that has transactions which read, or of tasks, in which there can be other things too.
	// Engines have those of package kv.
	Transactional bool
}

// Standard returns the lab with every engine, every peer and every workload.
func Standard() Lab {
	return Lab{Engines: all.Engines(), Peers: peers(), Workloads: Workloads()}
}

// peers is the table of peers, in the order in which they are shown.
func peers() []Peer {
	var list []Peer
	for _, e := range contender.Tuned() {
		list = append(list, Peer{Entry: e, Named: true})
	}

	for _, e := range contender.Bare() {
		list = append(list, Peer{Entry: e, Kind: Keys, Named: true, Transactional: contender.Transactional(e.Name)})
	}

	for _, e := range contender.RustEngines() {
		list = append(list, Peer{Entry: e, Kind: Keys, Named: true, OneClient: true})
	}

	for _, e := range contender.Engines() {
		list = append(list, Peer{Entry: e, Kind: RaftLogs})
	}

	for _, e := range contender.RaftBadgers() {
		list = append(list, Peer{Entry: e, Kind: RaftLogs, Named: true})
	}

	for _, e := range contender.EtcdEngines() {
		list = append(list, Peer{Entry: e, Kind: EtcdLogs})
	}

	for _, e := range contender.FileEngines() {
		list = append(list, Peer{Entry: e, Kind: Files})
	}

	for _, e := range contender.MessageEngines() {
		list = append(list, Peer{Entry: e, Kind: Messages, Server: true})
	}

	for _, e := range contender.TaskEngines() {
		list = append(list, Peer{Entry: e, Kind: Tasks, Server: e.Name == contender.River,
			Transactional: e.Name == contender.River})
	}

	for _, c := range contender.Clusters() {
		p := Peer{Entry: c.Entry, Server: true, Nodes: 3, WritesOnly: c.WritesOnly}
		switch {
		case c.Messages:
			p.Kind = Messages
		case c.Tasks:
			p.Kind, p.Transactional = Tasks, true
		}
		list = append(list, p)
	}

	return list
}

// entries are the engines and the peers.
func (l Lab) entries() []all.Entry {
	list := slices.Clone(l.Engines)
	for _, p := range l.Peers {
		list = append(list, p.Entry)
	}

	return list
}

func (l Lab) engineNames() []string {
	var names []string
	for _, e := range l.entries() {
		names = append(names, e.Name)
	}

	return names
}

// can reports whether the engine or peer of that name can do the work; if it cannot, why says what it is.
func (l Lab) can(name string, w Workload) (why string, ok bool) {
	switch p := l.peer(name); {
	case p.Kind == "":
	case p.Kind != w.Store:
		return fmt.Sprintf("holds %s only", p.Kind), false
	case p.WritesOnly && w.ReadsBack:
		return "may not have all yet, when it is read, that was acknowledged", false
	case w.Transactions && !p.Transactional:
		return "has no such transactions, or is measured without them", false
	}

	return "", true
}

// peer is the peer of that name, a zero Peer for an engine.
func (l Lab) peer(name string) Peer {
	if i := slices.IndexFunc(l.Peers, func(p Peer) bool { return p.Name == name }); i >= 0 {
		return l.Peers[i]
	}

	return Peer{}
}

// isServer reports whether the engine of that name is a peer that is a server, in a process of its own.
func (l Lab) isServer(name string) bool {
	return l.peer(name).Server
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
