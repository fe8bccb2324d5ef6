package gate_test

import (
	"errors"
	"strings"
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
	var gone int // when it settled last
	err := g.Close(func() error {
		mu.Lock()
		defer mu.Unlock()
		gone = left
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if gone != 8 {
		t.Errorf("Close went on with %d inside", 8-gone)
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

// A gate that has a name gives it in every error, and a refused Enter allocates nothing.
func TestName(t *testing.T) {
	var g gate.Gate
	g.Name("bbolt", "/data/x")
	g.AddIterator(1)
	if err := g.Close(nothing); !errors.Is(err, holdfast.ErrBusy) || !strings.HasPrefix(err.Error(), "bbolt close /data/x: in use: 1 iterators") {
		t.Errorf("Close while in use: %v", err)
	}
	g.AddIterator(-1)
	if err := g.Close(nothing); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{g.Enter(), g.Close(nothing), g.ErrClosed()} {
		if !errors.Is(err, holdfast.ErrClosed) || err.Error() != "bbolt /data/x: closed" {
			t.Errorf("after Close: %v", err)
		}
	}
	if err := g.ErrSnapshotClosed(); !errors.Is(err, holdfast.ErrClosed) || err.Error() != "bbolt /data/x: closed: the snapshot" {
		t.Errorf("a closed snapshot: %v", err)
	}
	if n := testing.AllocsPerRun(100, func() { _ = g.Enter() }); n > 0 {
		t.Errorf("Enter after Close allocates %v times", n)
	}
}

// While Close brings to the device what was applied, others go in and out, whether it then closes or
// refuses; once it has, nobody new is let in while the rest is brought there.
func TestCloseSettlesBesideOthers(t *testing.T) {
	var g gate.Gate
	pass := func() error {
		passed := make(chan error)
		go func() {
			err := g.Enter()
			if err == nil {
				g.Leave()
			}
			passed <- err
		}()
		return <-passed
	}
	g.AddSnapshot(1)
	if err := g.Close(pass); !errors.Is(err, holdfast.ErrBusy) || errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("Close with an open snapshot: %v", err)
	}
	g.AddSnapshot(-1)
	settles := 0
	err := g.Close(func() error {
		if settles++; settles == 1 {
			return pass()
		}
		return nil
	})
	if err != nil || settles != 2 {
		t.Errorf("Close: %v, settled %d times", err, settles)
	}
	// A snapshot that is opened while Close settles keeps it from closing.
	g = gate.Gate{}
	if err := g.Close(func() error { g.AddSnapshot(1); return nil }); !errors.Is(err, holdfast.ErrBusy) || g.Closed() {
		t.Errorf("Close with a snapshot opened meanwhile: %v, closed %v", err, g.Closed())
	}
}
