package event

import (
	"cmp"
	"iter"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
)

// Appends returns a function that is asked about the operations of a batch that an engine has got. It reports whether
// they append events to the log of that name, and if so, whether all of those come before position (less than 0), one
// of them is at position (0), or all come behind it. It is for who looks through an engine's own log, as package backup
// does to restore the state right before an event. Imports and removals do not append.
func Appends(log string, position uint64) func(ops iter.Seq[holdfast.Op]) (order int, appends bool) {
	prefix := format.NewPrefix(log)
	lo, hi := prefix.Events()

	return func(ops iter.Seq[holdfast.Op]) (order int, appends bool) {
		for op := range ops {
			inEvents := string(op.Key) >= string(lo) && string(op.Key) < string(hi)
			switch {
			case op.Kind == holdfast.KindDeleteRange && string(op.Key) < string(hi) && string(op.Value) > string(lo),
				inEvents && (op.Kind == holdfast.KindDelete || format.IsHole(op.Value)):
				return 0, false
			case !inEvents || op.Kind != holdfast.KindSet:
				continue
			}
			last, ok := prefix.Number(op.Key)
			if !ok {
				continue
			}
			if first := last - min(format.Count(op.Value), last) + 1; first <= position && position <= last {
				order = 0
			} else if now := cmp.Compare(last, position); !appends || order < 0 {
				order = now
			}
			appends = true
		}

		return order, appends
	}
}
