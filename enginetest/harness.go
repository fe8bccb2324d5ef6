// Package enginetest is the laws of the holdfast contract as a suite that every engine
// runs. A failing case explains the law that is broken.
//
// An engine's own test is
//
//	func TestLaws(t *testing.T) {
//		enginetest.Run(t, enginetest.Harness{Open: myengine.Open, Describe: myengine.Describe})
//	}
//
// Some cases start the test binary again as a child process, to be killed; Run plays the
// child's part there.
package enginetest

import (
	"sync"

	"github.com/holdfastdb/holdfast"
)

// Harness says how the suite opens the engine under test.
type Harness struct {
	// Open opens the engine in dir, which the suite chooses. An engine that keeps nothing on disk (its Describe gives no
	// level above Memory) is opened with dir empty and is never reopened.
	Open func(dir string, o holdfast.Options) (holdfast.Engine, error)

	// OpenFaulty is Open with every write and sync of the engine's files asking faults first. nil where the engine
	// cannot do that; laws 6 and 7 are then tested only with what the operating system can be made to refuse.
	OpenFaulty func(dir string, o holdfast.Options, faults *Faults) (holdfast.Engine, error)

	// OpenHeld is Open with every sync of the engine's files asking faults first, for engines that cannot offer
	// OpenFaulty: syncs may then be held up, but do not fail. nil where there is OpenFaulty.
	OpenHeld func(dir string, o holdfast.Options, faults *Faults) (holdfast.Engine, error)

	// Tail names the file of an engine in dir, open or just killed, to whose end commits
	// are written, and which a crash can tear. nil where there is no such file.
	Tail func(dir string) string

	// NoDirectory says why the engine keeps what it stores in no directory of this machine, as one in front of a server
	// does; it is empty for the others. Its Open takes a directory that the suite chooses as the name of a place, which is
	// empty at first. Cases that look at files, fill a disk or damage what is on it are left out, and print this.
	NoDirectory string

	// Scale divides how much the largest cases write, for engines on which every key costs a file; 0 means 1. If it is
	// more, levels for which another one is given are tested there alone.
	Scale int

	// Describe returns what the engine promises, without opening it.
	Describe func() holdfast.Capabilities
}

// Faults decides whether a write or sync fails, or how long a sync takes. The files of an engine under test call
// Write and Sync before the real operation, and return their error instead of doing it. It is safe for concurrent
// use; the zero Faults lets everything pass.
type Faults struct {
	mu         sync.Mutex
	write, fsy error
	begun      chan struct{} // while syncs are held up
	released   chan struct{}
}

// FailWrites makes every write fail with err; nil lets them pass again.
func (f *Faults) FailWrites(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.write = err
}

// FailSyncs makes every sync fail with err; nil lets them pass again.
func (f *Faults) FailSyncs(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fsy = err
}

// HoldSyncs makes every sync wait until release is called, which may be called again. begun receives
// when the first one waits.
func (f *Faults) HoldSyncs() (begun <-chan struct{}, release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun, f.released = make(chan struct{}, 1), make(chan struct{})

	return f.begun, sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		close(f.released)
		f.begun, f.released = nil, nil
	})
}

// Write is asked before bytes are written to the file at path.
func (f *Faults) Write(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.write
}

// Sync is asked before the file at path is synced.
func (f *Faults) Sync(path string) error {
	f.mu.Lock()
	begun, released := f.begun, f.released
	f.mu.Unlock()
	if released != nil {
		select {
		case begun <- struct{}{}:
		default:
		}
		<-released
	}
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.fsy
}
