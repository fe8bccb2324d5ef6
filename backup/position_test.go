package backup_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"gocloud.dev/blob/memblob"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/backup"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// TestBefore restores the states right before events, over several openings and bases: the log then ends before the
// append that wrote the event, and another log, which is written in turn, has what was written until then.
func TestBefore(t *testing.T) {
	bucket, dir := memblob.OpenBucket(nil), filepath.Join(t.TempDir(), "db")
	ctx := t.Context()
	type moment struct{ first, last, other uint64 } // of an append, and where the other log was
	var all []moment
	other := uint64(0)
	for opening := range 2 {
		e := open(t, dir)
		b := start(t, e, bucket, backup.Options{Every: 5 * time.Millisecond, BaseBytes: 100 << 10})
		log, err := event.Open(kv.On(e), event.Options{Name: "a", Level: holdfast.Process})
		testkit.Try(t, err)
		second, err := event.Open(kv.On(e), event.Options{Name: "b", Level: holdfast.Process})
		testkit.Try(t, err)
		for i := range 300 {
			var events []event.Event
			for range 1 + i%4 {
				events = append(events, event.Event{Type: "E", Data: fmt.Appendf(nil, "%01500d", i)})
			}
			r, err := log.Append(ctx, events...)
			testkit.Try(t, err)
			all = append(all, moment{r.First, r.First + uint64(len(events)) - 1, other})
			if i%3 == 0 {
				_, err := second.Append(ctx, event.Event{Type: "F"})
				testkit.Try(t, err)
				other++
			}
			if i == 150 { // what is removed is no append
				_, err := log.TruncateBefore(ctx, r.First/2)
				testkit.Try(t, err)
				_, err = log.Remove(ctx, r.First/2+5, r.First/2+7)
				testkit.Try(t, err)
			}
			if i%60 == 0 {
				safe(t, b)
			}
			if i%60 == 0 && opening == 0 { // more than BaseBytes are written in between
				until(t, "another base", func() bool { return b.Status().Bases > int64(i/60) })
			}
		}
		testkit.Try(t, log.Close())
		testkit.Try(t, second.Close())
		testkit.Try(t, b.Close(ctx))
		testkit.Try(t, e.Close())
	}
	for i := 0; i < len(all); i += night.Or(1, 37) {
		m := all[i]
		for position := m.first; position <= m.last; position += max(1, m.last-m.first) {
			into := filepath.Join(t.TempDir(), "restored")
			_, err := backup.Restore(ctx, bucket, into, backup.RestoreOptions{Before: event.Appends("a", position)})
			if err != nil {
				// Right after an opening there may be no base yet.
				if i%300 < 5 && errors.Is(err, holdfast.ErrNotFound) {
					continue
				}
				t.Fatalf("before %d: %v", position, err)
			}
			e := open(t, into)
			log, err := event.Open(kv.On(e), event.Options{Name: "a"})
			testkit.Try(t, err)
			second, err := event.Open(kv.On(e), event.Options{Name: "b"})
			testkit.Try(t, err)
			if log.Last() != m.first-1 || second.Last() != m.other {
				t.Errorf("before %d: %d and %d, want %d and %d", position, log.Last(), second.Last(), m.first-1, m.other)
			}
			testkit.Try(t, log.Close())
			testkit.Try(t, second.Close())
			testkit.Try(t, e.Close())
		}
	}
	for _, what := range []struct {
		log      string
		position uint64
	}{{"a", all[len(all)-1].last + 1}, {"c", 1}} {
		_, err := backup.Restore(ctx, bucket, filepath.Join(t.TempDir(), "none"),
			backup.RestoreOptions{Before: event.Appends(what.log, what.position)})
		if !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("%v: %v", what, err)
		}
	}
}
