package keyspace

import (
	"bytes"
	"fmt"

	"github.com/holdfastdb/holdfast"
)

// Kind is a kind of store, whose keys all begin with the same letter. Only this file makes them, so that a new one
// cannot be forgotten where keys of programs are checked.
type Kind struct{ letter byte }

// All is the range of the keys of all stores of a kind.
func (k Kind) All() holdfast.Range { return holdfast.Prefix([]byte{k.letter}) }

// Named is the range of the keys of all stores of a kind whose names have a size and begin with prefix.
func (k Kind) Named(size int, prefix string) holdfast.Range {
	return holdfast.Prefix(append([]byte{k.letter, byte(size)}, prefix...))
}

// The kinds that there are. The server keeps subscriptions and the like, and projections their prefixes, in tables of the one
// store without a name.
var (
	Databases = Kind{'k'}
	Events    = Kind{'e'}
	Messages  = Kind{'m'}
	RaftLogs  = Kind{'r'}
	Server    = Kind{'s'}
	Tasks     = Kind{'t'}
)

// kinds is what is said of them. longest is how long the names are that keys are kept for: a program's key whose second
// byte is above it is no store's. With 128 that is all ASCII.
//
// Names of task stores may have 128 bytes, but keys are kept for 64: otherwise "totals/" would have to be refused as a
// prefix, because a task store could be called "tals/" and 106 more letters. Package registry refuses such a prefix
// while that store is open.
var kinds = [...]struct {
	Kind
	longest byte
	what    string
}{
	{Databases, 31, "databases"},
	{Events, 128, "logs of events"},
	{Messages, 128, "message stores"},
	{RaftLogs, 128, "Raft stores"},
	{Server, 0, "the server or projections"},
	{Tasks, 64, "task stores"},
}

// Reserved says which stores' keys can lie in a range; "" means none.
func Reserved(r holdfast.Range) (what string) {
	for _, k := range kinds {
		// After the letter comes the length of a name. The letter by itself is no store's key.
		first, end := []byte{k.letter, 0}, []byte{k.letter, k.longest + 1}
		if bytes.Compare(r.Lo, end) < 0 && (len(r.Hi) == 0 || bytes.Compare(r.Hi, first) > 0) {
			return k.what
		}
	}

	return ""
}

// ReservedKey says which stores' key it can be; "" means none's. A key that is shorter than a store's prefix is none:
// "email/7" is no key of the log with a name of 109 bytes.
func ReservedKey(key []byte) (what string) {
	if len(key) < 2 {
		return ""
	}

	for _, k := range kinds {
		if key[0] == k.letter {
			if key[1] <= k.longest && len(key) >= 2+int(key[1]) {
				return k.what
			}

			return ""
		}
	}

	return ""
}

// Check refuses a program's own operations, in a batch that is to be a part of a commit of the store of that name,
// where they reach for keys that can be a store's. The error is ErrBadKey.
func Check(op string, b *holdfast.Batch) error {
	for o := range b.Ops() {
		what, name := "", "key"
		if o.Kind == holdfast.KindDeleteRange {
			what, name = Reserved(holdfast.Range{Lo: o.Key, Hi: o.Value}), "range from"
		} else {
			what = ReservedKey(o.Key)
		}
		if what != "" {
			return &holdfast.Error{Op: op, Class: holdfast.ErrBadKey, Remedy: Remedy,
				Detail: fmt.Sprintf("the %s %.40q can have keys of %s", name, o.Key, what)}
		}
	}

	return nil
}

// Remedy is what a program does whose keys are refused.
const Remedy = "begin your own keys with another letter than e, k, m, r, s and t, which stores begin theirs with"
