package event_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// After Close nobody is left in the engine, so that it can be closed too, whatever readers do.
func TestCloseLeavesTheEngineFree(t *testing.T) {
	for range 200 {
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
		done := make(chan error)
		go func() {
			for {
				for _, err := range log.Records(ctx, 1, 0) {
					if err != nil {
						done <- err
						return
					}
				}
			}
		}()
		time.Sleep(500 * time.Microsecond)
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

// An append whose generation ends while its batch is being built still finds an id that others
// have appended, and made durable, in the next one. The large event makes building slow.
func TestIDAcrossGenerations(t *testing.T) {
	eng := mem.New()
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
	data := make([]byte, 48<<20)
	go func() {
		r, err := log.Append(ctx, event.Event{ID: "same", Data: data})
		slow <- answer{r, err}
	}()
	time.Sleep(2 * time.Millisecond)
	fill(3999)
	quick, err := log.Append(ctx, event.Event{ID: "same", Data: data})
	if err != nil {
		t.Fatal(err)
	}
	fill(6000)
	other := <-slow
	if other.err != nil {
		t.Fatal(other.err)
	}
	if other.First != quick.First || other.Repeated == quick.Repeated {
		t.Errorf("one id is at %d (repeated: %v) and at %d (repeated: %v)", quick.First, quick.Repeated, other.First,
			other.Repeated)
	}
}
