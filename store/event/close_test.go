package event_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// After Close nobody is left in the engine, so that it can be closed too, whatever readers do.
func TestCloseLeavesTheEngineFree(t *testing.T) {
	for round := range 30 { // a reader that never rests takes long on a single processor
		eng := mem.New()
		log, err := event.Open(kv.On(eng), event.Options{Level: holdfast.Memory})
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if _, err := log.Append(ctx, event.Event{Data: make([]byte, 1000)}); err != nil {
				t.Fatal(err)
			}
		}
		begun, done := make(chan struct{}), make(chan error)
		go func() {
			for n := 0; ; {
				for _, err := range log.Records(ctx, 1, 0) {
					if err != nil {
						done <- err
						return
					}
					if n++; n == round+1 { // so that Close comes at another event each time
						close(begun)
					}
				}
			}
		}()
		<-begun
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		if err := eng.Close(); err != nil {
			t.Fatalf("closing the engine after the store: %v", err)
		}
		if err := <-done; !errors.Is(err, holdfast.ErrClosed) {
			t.Fatalf("the reader got %v", err)
		}
	}
}

// A log that has lost its description stays refused: the first attempt to open it does not make
// a new one.
func TestLostDescriptionStaysRefused(t *testing.T) {
	eng := mem.New()
	defer eng.Close()
	log, err := event.Open(kv.On(eng), event.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append(ctx, event.Event{Type: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	var b holdfast.Batch
	b.DeleteRange([]byte("e\x00m"), []byte("e\x00n"))
	if err := holdfast.Commit(eng, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	for attempt := range 2 {
		if _, err := event.Open(kv.On(eng), event.Options{Level: holdfast.Memory}); !errors.Is(err, holdfast.ErrCorrupt) {
			t.Errorf("attempt %d: %v", attempt+1, err)
		}
	}
}

// heldGet is an engine whose first Get of a key with this in it waits until it is let go.
type heldGet struct {
	holdfast.Engine
	of        string
	had       atomic.Bool
	come, let chan struct{}
}

func (e *heldGet) Get(dst, key []byte) ([]byte, error) {
	if bytes.Contains(key, []byte(e.of)) && !e.had.Swap(true) {
		close(e.come)
		<-e.let
	}
	return e.Engine.Get(dst, key)
}

// An append whose generation ends while it looks for its id still finds one that others have appended, and made
// durable, in the next one.
func TestIDAcrossGenerations(t *testing.T) {
	eng := &heldGet{Engine: mem.New(), of: "same", come: make(chan struct{}), let: make(chan struct{})}
	defer eng.Close()
	log, err := event.Open(kv.On(eng), event.Options{Level: holdfast.Memory, IDWindow: 4000})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n := 0
	fill := func(to uint64) {
		for log.Last() < to {
			n++
			if _, err := log.Append(ctx, event.Event{ID: fmt.Sprint("other-", n)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(3998)
	type answer struct {
		event.Result
		err error
	}
	slow := make(chan answer)
	go func() {
		r, err := log.Append(ctx, event.Event{ID: "same"})
		slow <- answer{r, err}
	}()
	<-eng.come
	fill(3999)
	quick, err := log.Append(ctx, event.Event{ID: "same"})
	if err != nil {
		t.Fatal(err)
	}
	fill(6000)
	close(eng.let)
	other := <-slow
	if other.err != nil {
		t.Fatal(other.err)
	}
	if other.First != quick.First || !other.Repeated || quick.Repeated {
		t.Errorf("one id is at %d (repeated: %v) and at %d (repeated: %v)", quick.First, quick.Repeated, other.First,
			other.Repeated)
	}
}
