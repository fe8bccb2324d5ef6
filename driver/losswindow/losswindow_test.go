package losswindow_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast/driver/losswindow"
)

const every = 5 * time.Second

// Each weak commit is followed by a sync within the window, and nothing is synced without one.
func TestSyncFollowsDirty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var syncs atomic.Int64
		w := losswindow.New(every, func() error { syncs.Add(1); return nil })
		for n := int64(1); n <= 3; n++ {
			w.Dirty()
			w.Dirty() // which the same sync covers
			time.Sleep(every - 1)
			synctest.Wait()
			if got := syncs.Load(); got != n-1 {
				t.Fatalf("%d syncs before the end of window %d", got, n)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if got := syncs.Load(); got != n {
				t.Fatalf("%d syncs at the end of window %d", got, n)
			}
		}
		time.Sleep(10 * every)
		synctest.Wait()
		if got := syncs.Load(); got != 3 {
			t.Errorf("%d syncs, and no commit since the third", got)
		}
		w.Dirty()
		w.Stop()
		w.Dirty()
		time.Sleep(10 * every)
		synctest.Wait()
		if syncs.Load() != 3 {
			t.Error("a sync after Stop")
		}
	})
}

// A commit that comes while a sync is running is not covered by it.
func TestDirtyDuringSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var syncs atomic.Int64
		var w *losswindow.Window
		w = losswindow.New(every, func() error {
			if syncs.Add(1) == 1 {
				w.Dirty()
			}
			return nil
		})
		w.Dirty()
		time.Sleep(10 * every)
		synctest.Wait()
		if got := syncs.Load(); got != 2 {
			t.Errorf("%d syncs of two commits", got)
		}
		w.Stop()
	})
}

func TestNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := losswindow.New(-1, func() error { t.Error("synced"); return nil })
		w.Dirty()
		time.Sleep(24 * time.Hour)
		w.Stop()
		if w.Every() != 0 {
			t.Errorf("a window that is off has length %v", w.Every())
		}
	})
}
