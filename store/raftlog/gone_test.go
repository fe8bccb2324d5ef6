package raftlog_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// testEngineGone closes an engine before the store, while everything is under way: no call waits for ever, not even for
// the edit of another one, and later ones return ErrClosed.
func testEngineGone(t *testing.T, tg *target, o raftlog.Options) {
	own := storetest.NewTarget(t, tg.Entry, tg.Level)
	s := openStore(t, own.Engine, o)
	store(t, s, entries(1, 1200, 1)...) // more than a chunk
	var rounds atomic.Int64
	until := func(call func(i uint64) error) chan error {
		return storetest.Async(func() error {
			for i := uint64(0); ; i++ {
				if err := call(i); err != nil {
					return err
				}
				rounds.Add(1)
			}
		})
	}
	calls := []chan error{
		until(func(i uint64) error { return s.StoreLogs(entries(1201+i, 1201+i, 2)) }),
		until(func(i uint64) error { return s.StoreLogs(entries(900, 903, 3+i)) }), // overwrites
		until(func(uint64) error {
			if err := s.StoreLogs(entries(1, 2, 1)); err != nil {
				return err
			}
			return s.DeleteRange(0, 800)
		}),
		until(func(uint64) error { return s.GetLog(901, new(raft.Log)) }),
		until(func(i uint64) error { return s.SetUint64([]byte("term"), i) }),
		until(func(uint64) error {
			_, err := s.Keys()
			time.Sleep(5 * time.Millisecond) // else an iterator is open nearly always, and Close is refused for minutes
			return err
		}),
	}
	for rounds.Load() < 100 {
		storetest.Unfinished(t, calls...)
	}
	for err := holdfast.ErrBusy; err != nil; { // the store reads
		if err = own.Engine.Close(); errors.Is(err, holdfast.ErrStoresOpen) {
			break
		}
		if !errors.Is(err, holdfast.ErrBusy) {
			t.Fatalf("%v, want ErrStoresOpen", err)
		}
	}
	storetest.Finished(t, holdfast.ErrClosed, calls...)
	for i, call := range []func() error{
		func() error { return s.StoreLogs(entries(5000, 5000, 9)) },
		func() error { return s.StoreLogs(entries(900, 900, 9)) },
		func() error { return s.DeleteRange(0, 1000) },
		func() error { return s.GetLog(1100, new(raft.Log)) },
		func() error { return s.Set([]byte("vote"), nil) },
		func() error { _, err := s.Get([]byte("not in memory")); return err },
	} {
		if err := call(); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	closeStore(t, s)
}
