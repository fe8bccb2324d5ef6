package pebble

import (
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/holdfastdb/holdfast"
)

// What is acknowledged is a prefix of what was applied, in whatever order the receipts are
// asked, and whenever the failure comes.
func TestAcknowledgedPrefix(t *testing.T) {
	e := startOn(t, vfs.NewMem(), never)
	var receipts []holdfast.Receipt
	var b holdfast.Batch
	for n := uint64(1); n <= 4; n++ {
		r, err := e.Apply(numbered(&b, n, 8), holdfast.Process)
		try(t, err)
		receipts = append(receipts, r)
	}
	barrier, err := e.Apply(new(holdfast.Batch), holdfast.Power)
	try(t, err)
	try(t, receipts[1].Wait())
	e.disk.fail("write", "data/000002.log", syscall.EIO)
	for range 2 {
		for i := len(receipts) - 1; i >= 0; i-- {
			if err := receipts[i].Wait(); (err == nil) != (i <= 1) {
				t.Errorf("commit %d of 4, the second was acknowledged before the failure: %v", i+1, err)
			}
		}
		if err := barrier.Wait(); err == nil {
			t.Error("a barrier is acknowledged after the failure")
		}
	}
}
