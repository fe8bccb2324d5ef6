package event_test

import (
	"testing"

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
