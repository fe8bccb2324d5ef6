package gate_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/internal/gate"
)

func nothing() error { return nil }

func TestCloseWaitsForThoseInside(t *testing.T) {
	var g gate.Gate
	var wg sync.WaitGroup
	inside := make(chan struct{}, 8)
	release := make(chan struct{})
	left := 0
	var mu sync.Mutex
	for range 8 {
		wg.Go(func() {
			if err := g.Enter(); err != nil {
				t.Error(err)
				return
			}
			inside <- struct{}{}
			<-release
			mu.Lock()
			left++
			mu.Unlock()
			g.Leave()
		})
	}
	for range 8 {
		<-inside
	}
	go close(release)
	err := g.Close(func() error {
		mu.Lock()
		defer mu.Unlock()
		if left != 8 {
			t.Errorf("Close went on with %d inside", 8-left)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if err := g.Enter(); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("Enter after Close: %v", err)
	}
	if err := g.Close(nothing); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
}

func TestCloseRefusesWhileInUse(t *testing.T) {
	var g gate.Gate
	g.AddIterator(1)
	g.AddSnapshot(1)
	settled := false
	if err := g.Close(func() error { settled = true; return nil }); !errors.Is(err, holdfast.ErrBusy) {
		t.Fatalf("Close with an open iterator: %v", err)
	}
	if !settled {
		t.Error("Close did not settle before it refused")
	}
	if err := g.Enter(); err != nil {
		t.Fatalf("a refused Close closed the gate: %v", err)
	}
	g.Leave()
	g.AddIterator(-1)
	g.AddSnapshot(-1)
	cause := errors.New("device gone")
	if err := g.Close(func() error { return cause }); !errors.Is(err, cause) || !g.Closed() {
		t.Errorf("Close that could not settle: %v, closed %v", err, g.Closed())
	}
}
