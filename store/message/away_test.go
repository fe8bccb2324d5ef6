package message_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/message"
)

// TestServerGoesAway: a server that goes away in the middle of a scan, and comes back, is nothing that readers and
// followers notice.
func TestServerGoesAway(t *testing.T) {
	eng := &storetest.Away{Engine: mem.New(), After: 3}
	s := openStore(t, eng, message.Options{Level: holdfast.Memory})
	storetest.CloseAtEnd(t, s)
	n := namespace(t, s, message.Default)
	const messages = 300
	for i := range messages {
		write(t, n, fmt.Sprint("a-", i%3), msg("x"))
	}

	eng.On.Store(true)
	for _, q := range []message.Query{{}, {Category: "a"}, {Stream: "a-1"}} {
		want := messages
		if q.Stream != "" {
			want /= 3
		}
		lost, got := eng.Lost.Load(), 0
		for m, err := range n.Read(ctx, q) {
			if got++; err != nil || q.Stream != "" && int(m.Position) != got-1 {
				t.Fatalf("%+v: message %d: %+v, %v", q, got, m, err)
			}
		}
		if got != want || eng.Lost.Load() == lost {
			t.Errorf("%+v: %d messages, %d scans were cut off", q, got, eng.Lost.Load()-lost)
		}

		got = 0
		following, stop := context.WithCancel(ctx)
		defer stop()
		for m, err := range n.Follow(following, q) {
			if errors.Is(err, context.Canceled) {
				break
			}
			if got++; err != nil {
				t.Fatalf("%+v: message %d: %+v, %v", q, got, m, err)
			}
			if got == want {
				stop()
			}
		}
	}
}
