package groupcommit_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/groupcommit"
)

func numbered(n uint64) *holdfast.Batch {
	var b holdfast.Batch
	b.Set(binary.BigEndian.AppendUint64(nil, n), []byte("v"))
	return &b
}

// Batches of many writers are committed in the order in which they were applied, none
// twice, none missing, in far fewer transactions than there are batches.
func TestOrderAndMerging(t *testing.T) { synctest.Test(t, testOrderAndMerging) }

func testOrderAndMerging(t *testing.T) {
	var got []uint64
	c := groupcommit.New("test", 1<<20, func(b *holdfast.Batch, _ holdfast.Level) error {
		time.Sleep(200 * time.Microsecond) // as long as a sync takes
		for op := range b.Ops() {
			got = append(got, binary.BigEndian.Uint64(op.Key))
		}
		return nil
	})
	const writers, each = 32, 50
	var mu sync.Mutex
	var next uint64
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				mu.Lock()
				next++
				r, err := c.Apply(numbered(next), holdfast.Power)
				mu.Unlock()
				if err == nil {
					err = r.Wait()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if len(got) != writers*each {
		t.Fatalf("%d batches committed, want %d", len(got), writers*each)
	}
	for i, n := range got {
		if n != uint64(i+1) {
			t.Fatalf("batch %d was committed at place %d", n, i+1)
		}
	}
	var m holdfast.Metrics
	c.Fill(&m)
	if m.Commits != writers*each || m.Groups*4 > m.Commits {
		t.Errorf("%d commits in %d groups: not merged", m.Commits, m.Groups)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(numbered(1), holdfast.Power); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("Apply after Close: %v", err)
	}
}

// A group runs at the strongest level that any of its batches asks for.
func TestStrongestLevel(t *testing.T) {
	var got holdfast.Level
	c := groupcommit.New("test", 1<<20, func(_ *holdfast.Batch, l holdfast.Level) error { got = l; return nil })
	for _, l := range []holdfast.Level{holdfast.Process, holdfast.Power, holdfast.Process} {
		if _, err := c.Apply(numbered(1), l); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	if got != holdfast.Power {
		t.Errorf("the group ran at %v", got)
	}
}

// The first failure poisons: the batch that failed, all queued behind it and all later
// ones get the cause, and nothing more is committed.
func TestPoison(t *testing.T) {
	cause := errors.New("no space left")
	calls := 0
	c := groupcommit.New("test", 1, func(*holdfast.Batch, holdfast.Level) error {
		calls++
		if calls == 2 {
			return cause
		}
		return nil
	})
	var told []error
	c.OnPoison(func(poison error) { told = append(told, poison) })
	var receipts []holdfast.Receipt
	for n := range uint64(4) {
		r, err := c.Apply(numbered(n), holdfast.Power)
		if err != nil && n < 2 {
			t.Fatal(err)
		}
		if err == nil {
			receipts = append(receipts, r)
		}
	}
	for i, r := range receipts {
		err := r.Wait()
		if i == 0 && err != nil {
			t.Errorf("the batch before the failure: %v", err)
		}
		if i > 0 && (!errors.Is(err, holdfast.ErrPoisoned) || !errors.Is(err, cause)) {
			t.Errorf("batch %d: %v", i, err)
		}
	}
	_, err := c.Apply(numbered(9), holdfast.Power)
	if !errors.Is(err, cause) {
		t.Errorf("Apply after the failure: %v", err)
	}
	if _ = c.Fail(errors.New("another")); len(told) != 1 || told[0] != err {
		t.Errorf("Apply fails with %v, and the engine was told %v", err, told)
	}
	if calls != 2 {
		t.Errorf("%d transactions, want 2", calls)
	}
}

// Batches without a waiter stay bounded, and Close commits them.
func TestDroppedReceipts(t *testing.T) {
	var committed atomic.Int64
	c := groupcommit.New("test", 1000, func(b *holdfast.Batch, _ holdfast.Level) error {
		committed.Add(int64(b.Len()))
		return nil
	})
	for n := range uint64(10_000) {
		if _, err := c.Apply(numbered(n), holdfast.Process); err != nil {
			t.Fatal(err)
		}
		if waiting := int64(n) + 1 - committed.Load(); waiting > 1000 {
			t.Fatalf("%d batches wait in memory", waiting)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if committed.Load() != 10_000 {
		t.Errorf("%d committed", committed.Load())
	}
}

// A group has no more operations than it may, unless one batch alone has.
func TestLimitOps(t *testing.T) {
	var sizes []int
	c := groupcommit.New("test", 1<<20, func(b *holdfast.Batch, _ holdfast.Level) error {
		sizes = append(sizes, b.Len())
		return nil
	})
	c.LimitOps(3)
	for n := range uint64(7) {
		b := numbered(n)
		if n == 4 {
			for range 4 {
				b.Append(numbered(n))
			}
		}
		if _, err := c.Apply(b, holdfast.Process); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(sizes, []int{3, 1, 5, 2}) {
		t.Errorf("the groups have %v operations", sizes)
	}
}

// A checked batch sees all that was applied before it, committed or not, and waits for nothing of it.
func TestApplyChecked(t *testing.T) {
	var mu sync.Mutex
	committed := map[uint64]bool{}
	c := groupcommit.New("test", 1000, func(b *holdfast.Batch, _ holdfast.Level) error {
		mu.Lock()
		defer mu.Unlock()
		for op := range b.Ops() {
			committed[binary.BigEndian.Uint64(op.Key)] = true
		}
		return nil
	})
	refused := errors.New("refused")
	var order sync.Mutex
	var next uint64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range 200 {
				order.Lock()
				next++
				before := next
				var r holdfast.Receipt
				var err error
				if n%10 > 0 {
					r, err = c.Apply(numbered(next), holdfast.Process)
				} else {
					seen := map[uint64]bool{}
					r, err = c.ApplyChecked(numbered(next), holdfast.Process, func(op holdfast.Op) {
						seen[binary.BigEndian.Uint64(op.Key)] = true
					}, func() error {
						mu.Lock()
						defer mu.Unlock()
						for n := uint64(1); n < before; n++ {
							if !seen[n] && !committed[n] {
								return fmt.Errorf("batch %d is not seen by %d", n, before)
							}
						}
						return nil
					})
				}
				order.Unlock()
				if err == nil {
					err = r.Wait()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 50 {
		if _, err := c.ApplyChecked(numbered(0), holdfast.Process, func(holdfast.Op) {},
			func() error { return refused }); err != refused {
			t.Error(err)
		}
	}
	wg.Wait()
	if len(committed) != 8*200 {
		t.Errorf("%d batches took effect", len(committed))
	}
}

// While a group is being committed, batches are applied, checked ones too, and counters read.
func TestApplyWaitsForNoDevice(t *testing.T) {
	begun, device := make(chan bool), make(chan bool)
	c := groupcommit.New("test", 1<<20, func(*holdfast.Batch, holdfast.Level) error {
		begun <- true
		<-device
		return nil
	})
	var wg sync.WaitGroup
	defer wg.Wait()
	commit := func() error {
		r, err := c.Apply(numbered(1), holdfast.Power)
		if err != nil {
			return err
		}
		return r.Wait()
	}
	for _, busy := range []func() error{commit, c.Sync} {
		wg.Go(func() {
			if err := busy(); err != nil {
				t.Error(err)
			}
		})
		<-begun
		first, err := c.Apply(numbered(2), holdfast.Power)
		if err != nil {
			t.Fatal(err)
		}
		var seen []holdfast.Op
		pending := func(op holdfast.Op) { seen = append(seen, op) }
		second, err := c.ApplyChecked(numbered(3), holdfast.Power, pending, func() error { return nil })
		if err != nil || len(seen) == 0 {
			t.Fatal(err, seen)
		}
		var m holdfast.Metrics
		c.Fill(&m)
		device <- true // the test would not come here
		wg.Go(func() { <-begun; device <- true })
		if err := errors.Join(first.Wait(), second.Wait()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	}
	var m holdfast.Metrics
	if c.Fill(&m); m.Commits != 5 || m.Groups != 4 { // Sync is a group and no commit
		t.Errorf("%d commits in %d groups", m.Commits, m.Groups)
	}
}

// A panic while a group is committed poisons, and every waiter returns; one in a check refuses the batch.
func TestPanic(t *testing.T) {
	bad := func() error { panic("no such page") }
	c := groupcommit.New("test", 12, func(*holdfast.Batch, holdfast.Level) error { return bad() })
	_, err := c.ApplyChecked(numbered(1), holdfast.Power, func(holdfast.Op) {}, bad)
	if err == nil || errors.Is(err, holdfast.ErrPoisoned) {
		t.Errorf("a panic in a check: %v", err)
	}
	var receipts []holdfast.Receipt
	for n := range uint64(3) {
		r, err := c.Apply(numbered(n), holdfast.Power)
		if err != nil {
			t.Fatal(err)
		}
		receipts = append(receipts, r)
	}
	if err := receipts[0].Wait(); !errors.Is(err, holdfast.ErrPoisoned) || !strings.Contains(err.Error(), "no such page") {
		t.Error(err)
	}
	for _, r := range receipts {
		if err := r.Wait(); !errors.Is(err, holdfast.ErrPoisoned) {
			t.Errorf("a later Wait: %v", err)
		}
	}
	if _, err := c.Apply(numbered(9), holdfast.Power); !errors.Is(err, holdfast.ErrPoisoned) {
		t.Errorf("a later Apply: %v", err)
	}
	if err := c.Sync(); !errors.Is(err, holdfast.ErrPoisoned) {
		t.Errorf("Sync: %v", err)
	}
	if err := c.Close(); !errors.Is(err, holdfast.ErrPoisoned) {
		t.Errorf("Close: %v", err)
	}
}

// A failed sync poisons before those who wait behind it can commit: nothing that is applied after the failure is
// acknowledged.
func TestSyncFailureIsFinal(t *testing.T) {
	cause := errors.New("input/output error")
	for range 300 {
		var failed atomic.Bool
		var late atomic.Int64
		c := groupcommit.New("test", 1<<20, func(_ *holdfast.Batch, level holdfast.Level) error {
			if failed.Load() {
				late.Add(1)
			}
			if level == holdfast.Power {
				runtime.Gosched()
				failed.Store(true)
				return cause
			}
			return nil
		})
		var wg sync.WaitGroup
		for n := range uint64(8) {
			wg.Go(func() {
				for {
					r, err := c.Apply(numbered(n), holdfast.Process)
					if err != nil || r.Wait() != nil {
						return
					}
				}
			})
		}
		err := c.Sync()
		wg.Wait()
		if !errors.Is(err, cause) || !errors.Is(err, holdfast.ErrPoisoned) {
			t.Fatal(err)
		}
		if late.Load() > 0 {
			t.Fatalf("%d groups were committed after the failure", late.Load())
		}
	}
}

// A poison says what failed, and where, and says it once.
func TestPoisonText(t *testing.T) {
	const path = "/data/x/data.bbolt"
	full := &fs.PathError{Op: "write", Path: path, Err: errors.New("no space left on device")}
	const remedy = "; nothing is acknowledged any more; fix the cause and reopen"
	for _, c := range []struct {
		cause      error
		path, want string
	}{
		{&holdfast.Error{Op: "commit", Engine: "bbolt", Path: path, Cause: full}, path,
			"bbolt commit " + path + ": stopped after a failed write: write: no space left on device" + remedy},
		{&holdfast.Error{Op: "write", Engine: "bbolt", Path: path, Cause: full}, path,
			"bbolt write " + path + ": stopped after a failed write: no space left on device" + remedy},
		{&holdfast.Error{Op: "read", Engine: "bbolt", Path: path, Offset: 4096, Class: holdfast.ErrCorrupt, Detail: "a page",
			Remedy: "restore it"}, path,
			"bbolt read " + path + " at byte 4096: stopped after a failed write: corrupt: a page; restore it" + remedy},
		{errors.New("device gone"), "", "bbolt write: stopped after a failed write: device gone" + remedy},
	} {
		var e *holdfast.Error
		err := groupcommit.Poisoned("bbolt", c.cause)
		if !errors.As(err, &e) || !errors.Is(err, holdfast.ErrPoisoned) || !errors.Is(err, c.cause) || e.Path != c.path ||
			err.Error() != c.want {
			t.Errorf("path %q, text\n%v, want\n%s", e.Path, err, c.want)
		}
		if again := groupcommit.Poisoned("bbolt", err); again != err {
			t.Errorf("wrapped twice: %v", again)
		}
	}
}

// A lone Sync allocates nothing: its group is used again.
func TestSyncAllocatesNothing(t *testing.T) {
	c := groupcommit.New("test", 0, func(*holdfast.Batch, holdfast.Level) error { return nil })
	if n := testing.AllocsPerRun(100, func() {
		if err := c.Sync(); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestGroupsUsedAgain: groups that are used again, those that are not, because others know of them, and a failure in
// between: each waiter learns what became of its own.
func TestGroupsUsedAgain(t *testing.T) {
	cause := errors.New("input/output error")
	var committed atomic.Int64 // batches, in order
	var failed atomic.Bool
	c := groupcommit.New("test", 1<<20, func(b *holdfast.Batch, _ holdfast.Level) error {
		if failed.Load() {
			return cause
		}
		runtime.Gosched()
		committed.Add(int64(b.Len()))
		return nil
	})
	var mu sync.Mutex
	applied := int64(0)
	var old []holdfast.Receipt
	apply := func() (holdfast.Receipt, int64, error) {
		mu.Lock()
		defer mu.Unlock()
		r, err := c.Apply(numbered(1), holdfast.Process)
		if err == nil {
			applied++
			old = append(old, r)
		}
		return r, applied, err
	}
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			for i := range 400 {
				if n == 0 && i == 300 {
					failed.Store(true)
				}
				r, place, err := apply()
				if err == nil {
					err = []func() error{r.Wait, c.Sync, c.Flush, c.Sync, func() error {
						return c.Exclusive(func() error { return nil })
					}}[(n+i)%5]()
				}
				if err == nil && committed.Load() < place {
					t.Errorf("batch %d is acknowledged, %d are committed", place, committed.Load())
				}
				if err != nil && !failed.Load() {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i, r := range old {
		if err := r.Wait(); (err == nil) != (int64(i) < committed.Load()) {
			t.Fatalf("batch %d of %d, of which %d are committed: %v", i, len(old), committed.Load(), err)
		}
	}
}
