package storetest

import (
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
)

// LevelEngine is an engine in memory that acknowledges each level by itself, as the contract allows: commits below
// Power at once, also behind one at Power, and those at Power and Quorum when the test lets the device finish. It shows
// batches at once.
type LevelEngine struct {
	holdfast.Engine

	mu      sync.Mutex
	changed sync.Cond
	held    bool
	applied []holdfast.Level // of batches, until Applied is called
	count   uint64           // of all batches
	synced  uint64           // how many of them the device has
}

// NewLevelEngine returns an engine whose device finishes at once.
func NewLevelEngine() *LevelEngine {
	e := &LevelEngine{Engine: mem.New()}
	e.changed.L = &e.mu

	return e
}

// Capabilities implements [holdfast.Engine].
func (e *LevelEngine) Capabilities() holdfast.Capabilities {
	c := e.Engine.Capabilities()
	c.Engine = "levels"
	c.Process = holdfast.Promise{Given: holdfast.Process, How: "a pointer is replaced"}
	c.Power = holdfast.Promise{Given: holdfast.Power, How: "the test says when"}
	c.Quorum = holdfast.Promise{Given: holdfast.Quorum, How: "the test says when"}

	return c
}

// Apply implements [holdfast.Engine].
func (e *LevelEngine) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !level.Valid() {
		return holdfast.Receipt{}, e.Capabilities().CheckLevel(level)
	}
	if err := holdfast.Commit(e.Engine, b, holdfast.Memory); err != nil {
		return holdfast.Receipt{}, err
	}
	e.applied = append(e.applied, level)
	e.count++
	if !e.held {
		e.synced = e.count
	}
	if level < holdfast.Power {
		return holdfast.Receipt{}, nil
	}

	return holdfast.NewReceipt(e, e.count), nil
}

// Wait makes the engine the Waiter of its receipts at Power and Quorum.
func (e *LevelEngine) Wait(token uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()

	for e.synced < token {
		e.changed.Wait()
	}

	return nil
}

// Hold keeps the device from finishing.
func (e *LevelEngine) Hold() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held = true
}

// Release lets the device finish, from now on.
func (e *LevelEngine) Release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held, e.synced = false, e.count
	e.changed.Broadcast()
}

// Applied returns the levels of the batches that were applied since the last call.
func (e *LevelEngine) Applied() []holdfast.Level {
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.applied
	e.applied = nil

	return was
}
