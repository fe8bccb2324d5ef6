package keyspace

import "github.com/holdfastdb/holdfast"

// Kind is a kind of store, whose keys all begin with the same letter. Only this file makes them.
type Kind struct{ letter byte }

// All is the range of the keys of all stores of a kind.
func (k Kind) All() holdfast.Range { return holdfast.Prefix([]byte{k.letter}) }

// Named is the range of the keys of all stores of a kind whose names have a size and begin with prefix.
func (k Kind) Named(size int, prefix string) holdfast.Range {
	return holdfast.Prefix(append([]byte{k.letter, byte(size)}, prefix...))
}

// The kinds that there are. The server keeps subscriptions and the like in tables of the one store without a name, and
// so did earlier versions of projections with their prefixes.
var (
	Databases  = Kind{'k'}
	Events     = Kind{'e'}
	Messages   = Kind{'m'}
	RaftGroups = Kind{'g'} // of etcd's Raft
	RaftLogs   = Kind{'r'} // of hashicorp's
	Server     = Kind{'s'}
	Tasks      = Kind{'t'}
)
