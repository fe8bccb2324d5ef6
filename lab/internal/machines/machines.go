// Package machines makes three "machines" on this one, each with a PostgreSQL server, to try what the loss of a machine
// does: a is the primary, b and c are its synchronous standbys (ANY 1).
//
// A machine is a network namespace with one address on a bridge that the three share with the host, and a disk of its
// own (see lab/blockdev). Everything that runs in the namespace belongs to the machine: its server, and whatever
// [Machine.StartProgram] starts. A machine can lose its power, its disk and its connections:
//
//	lab, err := machines.New(ctx, machines.Options{})
//	defer lab.Close()
//	lab.Isolate(machines.A)                              // a's packets reach nobody, nor do others' reach a
//	primary, err := lab.Failover(ctx, machines.Longest)  // b or c, whichever has more
//	lab.Heal()
//	err = lab.Rejoin(ctx, machines.A)                    // as a standby, by a base backup
//
// # What is modelled
//
// The network loses packets without telling anybody, in one direction or both: a neighbour entry of the sender names
// an interface that nobody has. It neither delays nor reorders. A power cut ends all processes of a machine while none
// of their packets gets out; the disk keeps what was flushed and a subset of the rest.
//
// # What is left
//
// Namespaces have no names and end with the last process in them; those end with this one. The host gets one
// interface, holdfast and a number, which goes with its peer. Labs of several processes do not disturb each other.
// Killed processes leave mounts and directories, which the next lab in the same directory removes.
//
// It needs Linux, root, the ip command and PostgreSQL: [Check] says what is missing.
package machines

import (
	"slices"

	"github.com/holdfastdb/holdfast"
)

// Name is the name of a place in the network.
type Name string

// The machines, and the host, which is where this process runs.
const (
	A    Name = "a"
	B    Name = "b"
	C    Name = "c"
	Host Name = "host"
)

// Names lists the machines.
func Names() []Name { return []Name{A, B, C} }

// others returns the machines but for one.
func others(name Name) []Name {
	return slices.DeleteFunc(Names(), func(n Name) bool { return n == name })
}

// Options say what lab to make. The zero value is one with recorded disks below the directory for temporary files.
type Options struct {
	// Dir is an existing directory on a real disk; empty means what rundir.Choose chooses.
	Dir string
	// Plain keeps each machine's files in a directory instead of a disk of its own. Power cannot be cut then.
	Plain bool
	// Manager is what starts the servers and promotes standbys instead of the lab, one of [Managers], whose three etcds
	// are on the machines, too. Of what a Lab does, Failover and Rejoin then only wait. Empty means the lab.
	Manager string
	// Bare makes machines without servers: what runs on them is the caller's.
	Bare bool
	// DiskSize is that of each recorded disk in bytes, as in blockdev.Options; 0 means its default. What is not written
	// takes no room.
	DiskSize int64
	// Template is a directory in which the files of new servers are made once, to be copied by all labs that name it;
	// empty means that each lab makes its own.
	Template string
}

// The managers: Patroni by the second version of etcd's interface, and by the third. By that its version 3.0.2 loses
// acknowledged commits (docs/findings/patroni.md).
const (
	Patroni      = "patroni"
	PatroniEtcd3 = "patroni-etcd3"
)

// Managers lists them.
func Managers() []string { return []string{Patroni, PatroniEtcd3} }

// DirPrefix begins the name of a lab's directory.
const DirPrefix = "holdfast-machines-"

// CountFlushed is the query that counts, right after a commit, the synchronous standbys that have flushed it.
// A commit is on another machine only if this is at least 1: see the tests for the four ways in which the answer to
// COMMIT alone is wrong. A standby that is async, or not connected, does not count.
const CountFlushed = `SELECT count(*) FROM pg_stat_replication
	WHERE sync_state IN ('sync', 'quorum') AND flush_lsn >= pg_current_wal_flush_lsn()`

// A Rule is what the promoter of [Lab.Failover] goes by.
type Rule int

// The rules.
const (
	// Longest promotes the standby that has more of the log: no commit that a standby has flushed is lost.
	Longest Rule = iota
	// Shortest promotes the other one. It is wrong, for controls: it loses what only one standby has.
	Shortest
)

// failure is the error of an operation that this machine could not do.
func failure(op, detail string, err error) error {
	return &holdfast.Error{Op: op, Class: holdfast.ErrUnavailable, Detail: detail, Cause: err}
}

// refused is the error of a call that makes no sense now.
func refused(op, detail, remedy string) error {
	return &holdfast.Error{Op: op, Class: holdfast.ErrBadOption, Detail: detail, Remedy: remedy}
}
