package event_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// TestOpenOnFullDisk: where there is no room, a log is opened for reading. Its history goes on as it was until a
// position is given, so that a reader who has kept it is told rightly whether it can go on.
func TestOpenOnFullDisk(t *testing.T) {
	disk := storetest.NewDisk(t)
	s := openLog(t, disk.Engine, event.Options{})
	appendN(t, s, 3)
	before := s.History()
	var s2 *event.Store
	for range 2 {
		disk.Restart(true)
		_, err := event.Open(kv.On(disk.Engine), event.Options{Name: "new"})
		wantError(t, err, holdfast.ErrFull)
		s2 = openLog(t, disk.Engine, event.Options{})
		wantTypes(t, s2, 1, "t", "t", "t")
		for _, write := range []func() error{
			func() error { _, err := s2.Append(ctx, event.Event{Type: "t"}); return err },
			func() error { _, err := s2.AppendAfter(ctx, 3, event.Event{Type: "t"}); return err },
			func() error { _, err := s2.Submit(ctx, event.Event{Type: "t"}); return err },
			func() error { _, err := s2.Import(ctx, event.Event{Type: "t", Position: 9}); return err },
		} {
			wantError(t, write(), holdfast.ErrFull)
		}
		wantHead(t, s2, 1, 3)
		if got := s2.History(); got != before {
			t.Fatalf("history %s, which is not kept; before it was %s", got, before)
		}
		fatal(t, s2.CheckHistory(before, 4))
		wantError(t, s2.CheckHistory(before, 5), event.ErrAhead)
	}

	disk.MakeRoom()
	appendN(t, s2, 2)
	after := s2.History()
	if after == before {
		t.Error("what was appended in this opening has the history of the one before")
	}
	check := func(s *event.Store) {
		t.Helper()
		fatal(t, s.CheckHistory(before, 4))
		wantError(t, s.CheckHistory(before, 5), event.ErrAhead) // the fourth that it has read is not this one
		fatal(t, s.CheckHistory(after, 6))
	}
	check(s2)
	disk.Restart(false)
	s3 := openLog(t, disk.Engine, event.Options{})
	wantTypes(t, s3, 1, "t", "t", "t", "t", "t")
	check(s3)
	closeLog(t, s3)
}

// TestRemoveOnFullDisk: on a full disk of an engine that goes on, events can be removed, and then there is room again.
func TestRemoveOnFullDisk(t *testing.T) {
	const size = 24 << 20
	data := make([]byte, 10_000)
	some := make([]uint64, 500)
	for i := range some {
		some[i] = uint64(2*i + 1)
	}
	for name, remove := range map[string]func(s *event.Store) error{
		"TruncateBefore": func(s *event.Store) error {
			removed, err := s.TruncateBefore(ctx, 801)
			if err == nil && removed != 800 {
				t.Errorf("%d were removed", removed)
			}
			return err
		},
		"Retain": func(s *event.Store) error {
			_, err := s.Retain(ctx, event.Retention{MaxAge: time.Nanosecond})
			return err
		},
		"Remove": func(s *event.Store) error {
			for len(some) > 0 { // each leaves a hole of its own, which is noted
				if _, err := s.Remove(ctx, some[:50]...); err != nil {
					return fmt.Errorf("%d left: %w", len(some), err)
				}
				some = some[50:]
			}
			return nil
		},
	} {
		if testing.Short() && name != "Retain" {
			continue // one goroutine calls, and the race detector sees no more in the others
		}
		t.Run(name, func(t *testing.T) {
			disk := storetest.NewSmallDisk(t, size)
			s := openLog(t, disk.Engine, event.Options{})
			for range 1000 {
				_, err := s.Append(ctx, event.Event{Type: "t", Data: data})
				fatal(t, err)
			}
			disk.Fill()
			_, err := s.Append(ctx, event.Event{Type: "t", Data: data})
			wantError(t, err, holdfast.ErrFull)
			fatal(t, remove(s))
			for range 300 {
				disk.Freed(func() error {
					_, err := s.Append(ctx, event.Event{Type: "t", Data: data})
					return err
				})
			}
			closeLog(t, s)
		})
	}
}
