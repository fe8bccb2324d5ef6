package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/raftlog/internal/format"
)

// Inspection describes a raftlog store without reading all of it.
type Inspection struct {
	Name        string      `json:"name"`
	First       uint64      `json:"first"` // indexes; 0 without entries
	Last        uint64      `json:"last"`
	FirstTerm   uint64      `json:"first_term"`       // of the first entry
	LastTerm    uint64      `json:"last_term"`        // of the last entry
	Oldest      *time.Time  `json:"oldest,omitempty"` // when the first entry was appended, where raft has noted it
	Newest      *time.Time  `json:"newest,omitempty"` // and the last one
	CommitIndex uint64      `json:"commit_index"`     // 0 where it is not tracked
	Keys        []StableKey `json:"keys"`
	Full        *Contents   `json:"contents,omitempty"`
}

// StableKey is a stable key. Number is set for the terms that hashicorp/raft stores.
type StableKey struct {
	Name   string  `json:"name"`
	Value  []byte  `json:"value"`
	Number *uint64 `json:"number,omitempty"`
}

// Contents is what only reading every entry can find.
type Contents struct {
	Entries int64            `json:"entries"`
	Bytes   int64            `json:"bytes"` // of data and extensions
	Gaps    int64            `json:"gaps"`  // places at which indexes are missing
	Terms   int64            `json:"terms"` // different ones, if they never go back
	Types   map[string]int64 `json:"types"` // how many entries of each
}

// Stores returns the names of the raftlog stores in e, and of those whose import is not finished, ascending by length
// and name. Other keys that begin as theirs do are skipped, and so is a store whose description is missing.
func Stores(e holdfast.Reader) ([]string, error) {
	names := []string{}
	for all := format.Kind.All(); ; {
		it := e.Scan(all)
		name, found := "", false
		for !found && it.Next() {
			name, _, _, found = keyspace.Split(format.Kind, it.Key())
			found = found && len(name) <= MaxNameSize
		}
		if err := it.Close(); err != nil || !found {
			return names, err
		}
		keys := format.NewPrefix(name)
		if made, err := has(e, keys.Meta()); err != nil {
			return nil, err
		} else if made {
			names = append(names, name)
		}
		_, all.Lo = keys.Bounds()
	}
}

func has(r holdfast.Reader, key []byte) (bool, error) {
	_, err := r.Get(nil, key)
	if errors.Is(err, holdfast.ErrNotFound) {
		return false, nil
	}

	return err == nil, err
}

// Inspect opens the raftlog store of that name in e, which must not be open elsewhere, and says what is in it. With
// full, it reads every entry, which finds damage too. Errors: ErrNotFound if there is no such store, ErrLocked,
// ErrCorrupt, also for a store whose import is not finished.
func Inspect(e holdfast.Engine, name string, full bool) (_ *Inspection, err error) {
	if made, err := has(e, format.NewPrefix(name).Meta()); err != nil {
		return nil, err
	} else if !made {
		return nil, &holdfast.Error{Op: "inspect", Engine: e.Capabilities().Engine, Class: holdfast.ErrNotFound,
			Detail: fmt.Sprintf("the store %q is not there; %s", name, OtherStores(e))}
	}
	s, err := Open(e, Options{Name: name, Level: e.Capabilities().Strongest()})
	if err != nil {
		return nil, err
	}
	defer func() {
		if closed := s.Close(); err == nil {
			err = closed
		}
	}()
	in := &Inspection{Name: name, Keys: []StableKey{}}
	in.First, _ = s.FirstIndex() // they fail only once it is closed
	in.Last, _ = s.LastIndex()
	in.CommitIndex, _ = s.GetCommitIndex()
	if err := in.readKeys(s); err != nil {
		return nil, err
	}
	if in.Last > 0 { // a log of one entry at index 0 is none that raft makes
		if in.FirstTerm, in.Oldest, err = s.termAndTime(in.First); err == nil {
			in.LastTerm, in.Newest, err = s.termAndTime(in.Last)
		}
	}
	if err == nil && full {
		in.Full, err = s.contents()
	}

	return in, err
}

// termAndTime reads the term and time of an entry; nil if it has no time.
func (s *Store) termAndTime(index uint64) (uint64, *time.Time, error) {
	var log raft.Log
	err := s.GetLog(index, &log)
	if log.AppendedAt.IsZero() {
		return log.Term, nil, err
	}

	return log.Term, &log.AppendedAt, err
}

// OtherStores says which stores e has, for an error about one.
func OtherStores(e holdfast.Reader) string {
	names, err := Stores(e)
	switch {
	case err != nil:
		return fmt.Sprintf("which stores the engine has cannot be read: %v", err)
	case len(names) == 0:
		return "the engine has no stores"
	case len(names) == 1 && names[0] == "":
		return "the engine has one store, which has no name"
	case len(names) > 20:
		return fmt.Sprintf("the engine has %d stores, from %q to %q", len(names), names[0], names[len(names)-1])
	}

	return fmt.Sprintf("the engine has the stores %q", names)
}

func (in *Inspection) readKeys(s *Store) error {
	names, err := s.Keys()
	if err != nil {
		return err
	}

	for _, name := range names {
		value, err := s.Get(name)
		if err != nil {
			return err
		}
		k := StableKey{Name: string(name), Value: value}
		if (k.Name == "CurrentTerm" || k.Name == "LastVoteTerm") && len(value) == 8 {
			n := binary.BigEndian.Uint64(value)
			k.Number = &n
		}
		in.Keys = append(in.Keys, k)
	}

	return nil
}

// contents reads every entry, as the store shows it.
func (s *Store) contents() (*Contents, error) {
	c := &Contents{Types: map[string]int64{}}
	lo, hi := s.keys.Logs()
	it := s.eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()

	var last, term uint64
	for it.Next() {
		index, ok := s.keys.Number(it.Key())
		if !ok {
			return nil, s.strange(it.Key())
		}
		var log raft.Log
		if err := s.GetLog(index, &log); err == raft.ErrLogNotFound {
			continue // deleted, and not removed yet
		} else if err != nil {
			return nil, err
		}
		if c.Entries > 0 && index != last+1 {
			c.Gaps++
		}
		if c.Entries == 0 || log.Term != term {
			c.Terms++
		}
		last, term = index, log.Term
		c.Entries++
		c.Bytes += int64(len(log.Data) + len(log.Extensions))
		c.Types[log.Type.String()]++
	}

	return c, it.Err()
}
