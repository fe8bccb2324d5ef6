package raftlog

import (
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/registry"
	"github.com/holdfastdb/holdfast/store/raftlog/internal/format"
)

// Report describes a store, as far as its keys tell.
type Report struct {
	Name        string
	First, Last uint64    // indexes of the entries that are there; 0 without entries
	Entries     uint64    // that are there
	Gaps        []Missing // between First and Last, or before the first; gaps that raft itself has left are among them
	Stable      uint64    // stable values that are there
	Damaged     []string  // keys, by KeyName, whose values do not read back as they were written, and the import mark
	Undescribed bool      // its description is lost, without which it cannot be opened
}

// Missing is a run of indexes without entries, both included.
type Missing struct{ First, Last uint64 }

// Examine looks for the stores in r, an engine or a snapshot of one. It changes nothing, and works where a store
// cannot be opened: in an engine that is open for reading only, or that a repair has made. What was lost at the end
// of a log, and which stable values were, does not show.
func Examine(r holdfast.Reader) (reports []Report, err error) {
	var stores []*examined
	var log raft.Log
	err = keyspace.Walk(r, format.Kind, func(name string) {
		stores = append(stores, &examined{Report: Report{Name: name, Undescribed: true}})
	}, func(table byte, rest, key, value []byte) {
		s, ok := stores[len(stores)-1], true
		switch table {
		case format.TableLogs:
			var index uint64
			if index, ok = keyspace.Number(rest); ok {
				s.add(index)
				ok = format.DecodeLog(key, value, index, &log)
			}
		case format.TableStable:
			s.Stable++
			_, ok = format.DecodeStable(key, value)
		case format.TableCommit:
			_, ok = format.DecodeCommit(key, value)
		case format.TableImport:
			ok = false // it cannot be opened
		case format.TableMeta:
			m, err := format.DecodeMeta(key, value)
			if ok = err == nil; ok {
				s.meta, s.Undescribed = m, false
			}
		}
		if !ok {
			s.Damaged = append(s.Damaged, KeyName(key))
		}
	})

	for _, s := range stores {
		reports = append(reports, s.report())
	}

	return reports, err
}

// examined is what was found of a store.
type examined struct {
	Report
	meta  format.Meta
	there []Missing // runs of indexes that have entries, in order
}

func (e *examined) add(index uint64) {
	if n := len(e.there); n > 0 && index == e.there[n-1].Last+1 {
		e.there[n-1].Last = index
		return
	}
	e.there = append(e.there, Missing{index, index})
}

func (e *examined) report() Report {
	for _, d := range e.meta.Dead { // what is found there has been deleted
		var live []Missing
		for _, m := range e.there {
			if below := (Missing{m.First, min(m.Last, d.Lo-1)}); m.First < d.Lo {
				live = append(live, below)
			}
			if above := (Missing{max(m.First, d.Hi+1), m.Last}); m.Last > d.Hi {
				live = append(live, above)
			}
		}
		e.there = live
	}

	next := e.meta.First
	for _, m := range e.there {
		if e.Entries == 0 {
			e.First = m.First
		}
		if next > 0 && m.First > next {
			e.Gaps = append(e.Gaps, Missing{next, m.First - 1})
		}
		e.Entries += m.Last - m.First + 1
		e.Last, next = m.Last, m.Last+1
	}

	return e.Report
}

// KeyName says what a store keeps under a key of an engine; empty if the key belongs to no store.
func KeyName(key []byte) string {
	name, table, rest, ok := keyspace.Split(format.Kind, key)
	what := ""
	switch table {
	case format.TableLogs:
		index, _ := keyspace.Number(rest)
		what = fmt.Sprintf("entry %d", index)
	case format.TableStable:
		what = fmt.Sprintf("stable value %.40q", rest)
	case format.TableCommit:
		what = "the commit index"
	case format.TableImport:
		what = "the mark of an import that was not finished"
	case format.TableMeta:
		what = "the description"
	case registry.TableAccepted:
		what = "which loss was accepted"
	default:
		ok = false
	}
	if !ok {
		return ""
	}

	return fmt.Sprintf("%s of raft store %q", what, name)
}
