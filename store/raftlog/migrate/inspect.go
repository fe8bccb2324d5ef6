package migrate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/raftlog"
	"github.com/holdfastdb/holdfast/store/raftlog/internal/format"
)

// Inspection is what can be said of a raftlog store without reading all of it.
type Inspection struct {
	Name        string      `json:"name"`
	First       uint64      `json:"first"` // indexes; 0 without entries
	Last        uint64      `json:"last"`
	FirstTerm   uint64      `json:"first_term"` // of the first entry
	LastTerm    uint64      `json:"last_term"`  // of the last entry
	Oldest      *time.Time  `json:"oldest,omitempty"`
	Newest      *time.Time  `json:"newest,omitempty"` // when the first and the last entry were appended, where raft has noted it
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

// Contents is what only reading every entry can tell.
type Contents struct {
	Entries int64            `json:"entries"`
	Bytes   int64            `json:"bytes"` // of data and extensions
	Gaps    int64            `json:"gaps"`  // places at which indexes are missing
	Terms   int64            `json:"terms"` // different ones, if they never go back
	Types   map[string]int64 `json:"types"` // how many entries of each
}

// Stores returns the names of the raftlog stores in e, and of those whose import is not finished, ascending by length
// and name. Other keys that begin as theirs do are passed over, and so is a store whose description is missing.
func Stores(e holdfast.Reader) ([]string, error) {
	names := []string{}
	lo, hi := []byte{format.NewPrefix("")[0]}, []byte{format.NewPrefix("")[0] + 1}
	for {
		prefix, err := nextPrefix(e, lo, hi)
		if err != nil || prefix == nil {
			return names, err
		}
		made, err := has(e, prefix.Meta())
		if err == nil && !made {
			made, err = has(e, markOf(prefix))
		}
		if err != nil {
			return nil, err
		}
		if made {
			names = append(names, string(prefix[2:]))
		}
		_, lo = (&importer{keys: prefix}).bounds()
	}
}

// nextPrefix returns what the first key from lo to hi that can be a store's begins with, nil if there is none.
func nextPrefix(e holdfast.Reader, lo, hi []byte) (_ format.Prefix, err error) {
	it := e.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer func() {
		if closed := it.Close(); err == nil {
			err = closed
		}
	}()
	for it.Next() {
		key := it.Key()
		if len(key) >= 2 && int(key[1]) > raftlog.MaxNameSize { // and so are all that follow
			break
		}
		if len(key) >= 2 && len(key) > 2+int(key[1]) {
			return bytes.Clone(key[:2+int(key[1])]), nil
		}
	}
	return nil, it.Err()
}

// Inspect opens the raftlog store of that name in e, which nobody else may have open, and says what is in it. With
// full, it reads every entry, which finds damage too. Errors: ErrNotFound if there is no such store, ErrLocked,
// ErrCorrupt, also for a store whose import is not finished.
func Inspect(e holdfast.Engine, name string, full bool) (_ *Inspection, err error) {
	keys := format.NewPrefix(name)
	fail := func(class error, remedy, detail string) error {
		return &holdfast.Error{Op: "inspect", Engine: e.Capabilities().Engine, Class: class, Detail: fmt.Sprintf("the store %q %s", name, detail), Remedy: remedy}
	}
	if len(name) > raftlog.MaxNameSize {
		return nil, fail(holdfast.ErrBadOption, "", "has too long a name")
	}
	if marked, err := has(e, markOf(keys)); err != nil {
		return nil, err
	} else if marked {
		return nil, fail(holdfast.ErrCorrupt, "import it again", "holds an import that was not finished")
	}
	if made, err := has(e, keys.Meta()); err != nil {
		return nil, err
	} else if !made {
		others, err := others(e)
		if err != nil {
			return nil, err
		}
		return nil, fail(holdfast.ErrNotFound, "", "is not there; "+others)
	}
	s, err := raftlog.Open(e, raftlog.Options{Name: name, Level: e.Capabilities().Strongest()})
	if err != nil {
		return nil, err
	}
	defer func() {
		if closed := s.Close(); err == nil {
			err = closed
		}
	}()
	in := &Inspection{Name: name, Keys: []StableKey{}}
	for _, get := range []struct {
		to   *uint64
		from func() (uint64, error)
	}{{&in.First, s.FirstIndex}, {&in.Last, s.LastIndex}, {&in.CommitIndex, s.GetCommitIndex}} {
		if *get.to, err = get.from(); err != nil {
			return nil, err
		}
	}
	if err := in.readKeys(s); err != nil {
		return nil, err
	}
	ends := func(index uint64, term *uint64, at **time.Time) error {
		var log raft.Log
		if err := s.GetLog(index, &log); err != nil {
			return err
		}
		if *term = log.Term; !log.AppendedAt.IsZero() {
			*at = &log.AppendedAt
		}
		return nil
	}
	if in.Last > 0 { // a log of one entry at index 0 is none that raft makes
		if err := ends(in.First, &in.FirstTerm, &in.Oldest); err != nil {
			return nil, err
		}
		if err := ends(in.Last, &in.LastTerm, &in.Newest); err != nil {
			return nil, err
		}
	}
	if full {
		in.Full, err = contents(e, s, keys)
	}
	return in, err
}

// others says which stores there are.
func others(e holdfast.Reader) (string, error) {
	const most = 20
	names, err := Stores(e)
	switch {
	case err != nil:
		return "", err
	case len(names) == 0:
		return "the engine has no stores", nil
	case len(names) == 1 && names[0] == "":
		return "the engine has one store, which has no name", nil
	case len(names) == 1:
		return fmt.Sprintf("the engine has the store %q", names[0]), nil
	case len(names) > most:
		return fmt.Sprintf("the engine has %d stores, from %q to %q", len(names), names[0], names[len(names)-1]), nil
	}
	for i, name := range names {
		names[i] = strconv.Quote(name)
	}
	return "the engine has the stores " + strings.Join(names, ", "), nil
}

func (in *Inspection) readKeys(s *raftlog.Store) error {
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
		if (k.Name == currentTerm || k.Name == lastVoteTerm) && len(value) == 8 {
			n := binary.BigEndian.Uint64(value)
			k.Number = &n
		}
		in.Keys = append(in.Keys, k)
	}
	return nil
}

// contents reads every entry, as the store shows it.
func contents(e holdfast.Engine, s *raftlog.Store, keys format.Prefix) (*Contents, error) {
	c := &Contents{Types: map[string]int64{}}
	lo, hi := keys.Logs()
	it := e.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()
	var last, term uint64
	for it.Next() {
		index, ok := keys.Index(it.Key())
		if !ok {
			return nil, &holdfast.Error{Op: "inspect", Class: holdfast.ErrCorrupt, Detail: fmt.Sprintf("there is a key %s among the entries", quote(it.Key()))}
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
		c.Bytes += size(&log)
		c.Types[log.Type.String()]++
	}
	return c, it.Err()
}
