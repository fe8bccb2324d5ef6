package subjects

import (
	"bytes"
	"errors"
	"hash/maphash"
	"math/bits"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/wrapped"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/lab/internal/clock"
)

// timed tells when each batch that must survive power loss was applied and acknowledged. It stands between the engine
// and whatever works on it, a store or a server as well.
type timed struct {
	wrapped.Engine
	report *protocol.Reporter
	given  map[holdfast.Level]holdfast.Level

	mu   sync.Mutex
	seed maphash.Seed
	sets map[uint64]bool // hashes of the keys and values that were to be set
}

// timedEngine times the batches of e.
func timedEngine(e holdfast.Engine, report *protocol.Reporter) holdfast.Engine {
	t := &timed{Engine: wrapped.Engine{Engine: e}, report: report, given: map[holdfast.Level]holdfast.Level{},
		seed: maphash.MakeSeed(), sets: map[uint64]bool{}}
	for _, level := range holdfast.Levels() {
		t.given[level] = e.Capabilities().Promise(level).Given
	}

	return t
}

// Apply applies a batch and begins its time, if it must survive power loss and surely changes something.
func (t *timed) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	from := clock.Now() // before changes, see there
	key, ok := t.changes(b)
	r, err := t.Engine.Apply(b, level)
	if err != nil || !ok || t.given[level] < holdfast.Power {
		return r, err
	}

	return holdfast.NewReceipt(&timedReceipt{r: r, wait: protocol.Wait{From: from, Key: key}, report: t.report}, 0), nil
}

// changes returns a key that b surely changes. A batch that changes nothing need not be written, so it need not be
// flushed either: SQLite leaves a page alone when a value is there already, and there may be nothing to delete. The
// key's value is another one now, and nobody was about to set it before. If somebody who comes later is faster, then
// b's acknowledgement is one for that batch too, which has to be flushed after this call.
func (t *timed) changes(b *holdfast.Batch) (key string, ok bool) {
	for op := range b.Ops() {
		if op.Kind != holdfast.KindSet {
			continue
		}
		hash := maphash.Bytes(t.seed, op.Key) ^ bits.RotateLeft64(maphash.Bytes(t.seed, op.Value), 1)
		t.mu.Lock()
		known := t.sets[hash]
		t.sets[hash] = true
		t.mu.Unlock()
		if ok || known {
			continue
		}
		now, err := t.Engine.Get(nil, op.Key)
		if errors.Is(err, holdfast.ErrNotFound) || err == nil && !bytes.Equal(now, op.Value) {
			key, ok = string(op.Key), true
		}
	}

	return key, ok
}

// timedReceipt tells of the first Wait that returns.
type timedReceipt struct {
	r      holdfast.Receipt
	wait   protocol.Wait
	report *protocol.Reporter
	once   sync.Once
}

// Wait implements holdfast.Waiter.
func (w *timedReceipt) Wait(uint64) error {
	err := w.r.Wait()
	if err == nil {
		to := clock.Now()
		w.once.Do(func() {
			w.wait.To = to
			w.report.Waited(w.wait)
		})
	}

	return err
}
