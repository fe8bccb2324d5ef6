package kinds

import (
	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// timesWaits reports whether a victim tells when each of its batches was applied and acknowledged. A peer applies none.
func timesWaits(c Row) bool {
	return c.Given >= holdfast.Power && !c.Peer
}

// judgeFlushes compares each acknowledgement with what the disk was asked. The data of a batch that changes something
// is written after Apply was called, and the model of the disk keeps for sure only what a flush came after. So a write,
// and then a flush, must have been answered between Apply and the end of Wait. That holds for each engine, shared syncs
// and O_DSYNC as well: the loop device has no FUA, and the kernel sends a flush instead.
func (rec *recorded) judgeFlushes(t Tally) {
	var asked []protocol.Request
	for i := range rec.record.Len() {
		if e := rec.record.Event(i); e.Kind != blockdev.Mark && e.Err == 0 {
			asked = append(asked, protocol.Request{At: rec.record.Began() + e.At, Flush: e.Kind == blockdev.Flush})
		}
	}
	t.Flushed(rec.ledger.Unflushed(asked, rec.record.Ended()))
}
