package event

import (
	"fmt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/registry"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
)

// Report describes what a log should hold and does not, as far as its keys tell. Events, holes and what is lost are
// as many as there are positions from First to Last.
type Report struct {
	Name        string
	First, Last uint64 // positions that the log has had, as far as what is left tells; Last is First-1 if there are none
	Events      uint64 // of them that are there
	Holes       uint64 // of them that have no event, because none was imported there or it was removed
	Lost        []Gap  // in between
	Undescribed bool   // its description is lost, without which it cannot be opened
}

// Examine looks for the logs in r, an engine or a snapshot of one, and for what each has lost. It changes nothing,
// and works where a log cannot be opened: in an engine that is open for reading only, or that a repair has made.
// What was lost at the end of a log shows only if the events had ids.
func Examine(r holdfast.Reader) (reports []Report, err error) {
	var logs []*examined
	err = keyspace.Walk(r, format.Kind, func(name string) {
		logs = append(logs, &examined{name: name})
	}, func(table byte, rest, key, value []byte) {
		log := logs[len(logs)-1]
		switch table {
		case format.TableEvents:
			if pos, _ := keyspace.Number(rest); pos >= format.Count(value) {
				log.add(pos-format.Count(value)+1, pos+1, format.IsHole(value))
			}
		case format.TableIDs:
			if pos, ok := keyspace.Number(value); ok {
				log.known = max(log.known, pos)
			}
		case format.TableMeta:
			if m, err := format.DecodeMeta(value); err == nil {
				log.first = m.First
			}
		}
	})
	for _, log := range logs {
		reports = append(reports, log.report())
	}
	return reports, err
}

// examined is what was found of a log.
type examined struct {
	name  string
	there []Gap // stretches of events and holes, in order
	holes []Gap
	first uint64 // as the description has it, 0 if there is none
	known uint64 // the last position that an id has
}

// add notes that the events from pos up to before next are there, or are not meant to be.
func (e *examined) add(pos, next uint64, hole bool) {
	if hole {
		e.holes = append(e.holes, Gap{pos, next})
	}
	if n := len(e.there); n > 0 && pos <= e.there[n-1].Next {
		e.there[n-1].Next = max(e.there[n-1].Next, next)
		return
	}
	e.there = append(e.there, Gap{pos, next})
}

func (e *examined) report() Report {
	r := Report{Name: e.name, First: e.first, Undescribed: e.first == 0}
	if r.First == 0 && len(e.there) > 0 {
		r.First = e.there[0].Position
	}
	r.First = max(r.First, 1)
	at := r.First
	for _, g := range e.there {
		if g.Next <= at { // truncated
			continue
		}
		if g.Position > at {
			r.Lost = append(r.Lost, Gap{at, g.Position})
			at = g.Position
		}
		r.Events += g.Next - at
		at = g.Next
	}
	for _, g := range e.holes {
		if from := max(g.Position, r.First); from < g.Next {
			r.Holes += g.Next - from
		}
	}
	r.Events -= r.Holes
	if e.known >= at {
		r.Lost = append(r.Lost, Gap{at, e.known + 1})
		at = e.known + 1
	}
	r.Last = at - 1
	return r
}

// KeyName says what a log keeps under a key of an engine; empty if the key belongs to no log.
func KeyName(key []byte) string {
	name, table, rest, ok := keyspace.Split(format.Kind, key)
	what := ""
	switch table {
	case format.TableEvents:
		var pos uint64
		pos, _ = keyspace.Number(rest)
		what, ok = fmt.Sprintf("event %d", pos), ok && pos > 0
	case format.TableIDs:
		if ok = ok && len(rest) > 8; ok {
			what = fmt.Sprintf("id %.40q", rest[8:])
		}
	case format.TableMeta:
		what = "the description"
	case registry.TableAccepted:
		what = "which loss was accepted"
	case format.TableHistory:
		var no uint64
		no, ok = keyspace.Number(rest)
		what = fmt.Sprintf("part %d of the history", no)
	case format.TableOffsets:
		what = fmt.Sprintf("offset %.40q", rest)
	case format.TableSnapshots:
		what = fmt.Sprintf("snapshot %.40q", rest)
	case format.TableMark:
		what = "the mark of retention"
	default:
		ok = false
	}
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s of log %q", what, name)
}
