package kinds

import (
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// TestAwaitEnough: after its delay a moment waits until enough has come about, and a victim that dies ends that.
func TestAwaitEnough(t *testing.T) {
	for _, dies := range []bool{false, true} {
		events, asked := make(chan heard, 1), 0
		events <- heard{ack: true}
		m := moment{delay: time.Nanosecond, enough: func() bool {
			if asked++; dies && asked == 2 {
				close(events)
			}
			return !dies && asked == 3
		}}
		v := &victim{ledger: &protocol.Ledger{}}
		if lives := await(t.Context(), v, m, events, time.Minute); lives == dies || asked < 2 || !dies && asked != 3 {
			t.Errorf("dies %v: await says %v after it asked %d times", dies, lives, asked)
		}
	}
}
