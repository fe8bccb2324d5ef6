package losswindow_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/driver/losswindow"
)

// Each weak commit is followed by a sync, and nothing is synced without one.
func TestSyncFollowsDirty(t *testing.T) {
	var syncs atomic.Int64
	synced := make(chan struct{}, 100)
	w := losswindow.New(5*time.Millisecond, func() error { syncs.Add(1); synced <- struct{}{}; return nil })
	for range 3 {
		w.Dirty()
		w.Dirty() // which the same sync covers, unless this comes after it
		<-synced
	}
	time.Sleep(50 * time.Millisecond)
	if n := syncs.Load(); n > 6 {
		t.Errorf("%d syncs after 6 commits", n)
	}
	w.Stop()
	n := syncs.Load()
	w.Dirty()
	time.Sleep(20 * time.Millisecond)
	if syncs.Load() > n {
		t.Error("a sync after Stop")
	}
}

// A commit that comes while a sync is running is not covered by it.
func TestDirtyDuringSync(t *testing.T) {
	var syncs atomic.Int64
	var w *losswindow.Window
	done := make(chan struct{})
	w = losswindow.New(time.Millisecond, func() error {
		switch syncs.Add(1) {
		case 1:
			w.Dirty()
		case 2:
			close(done)
		}
		return nil
	})
	w.Dirty()
	<-done
	w.Stop()
}

func TestNever(t *testing.T) {
	w := losswindow.New(-1, func() error { t.Error("synced"); return nil })
	w.Dirty()
	time.Sleep(10 * time.Millisecond)
	w.Stop()
	if w.Every() != 0 {
		t.Errorf("a window that is off has length %v", w.Every())
	}
}
