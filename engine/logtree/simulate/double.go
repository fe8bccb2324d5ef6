package simulate

import (
	"fmt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/vfs"
)

// haltBehind makes the power go during the operation after one of a kind: after a rename as often as after a
// write, of which there are many more.
func (h *history) haltBehind() {
	kinds := [...]vfs.Kind{
		vfs.OpRename, vfs.OpRename, vfs.OpRename, vfs.OpRemove, vfs.OpSyncDir, vfs.OpCreate, vfs.OpSync, vfs.OpWrite,
	}
	kind, left := kinds[h.rnd.IntN(len(kinds))], h.rnd.IntN(6)
	fs := h.fs
	h.hook(func(op vfs.Op) error {
		// A rename counts only where it is that of the manifest.
		if op.Kind == kind && (kind != vfs.OpRename || op.To == "db/MANIFEST") {
			if left--; left == -1 {
				fs.HaltAfter(1)
			}
		}

		return nil
	})
	h.note("halts after %d times %v", left+1, kind)
	h.armed = true
}

// double crashes once more while the crash before is recovered from. It lets the power go in the middle of the
// work, and then, on a copy each, during every operation of the next Open, and looks at what the second crash
// leaves.
func (h *history) double() error {
	if h.fs.Halted() || h.poisoned {
		if err := h.crash(); err != nil {
			return err
		}
	}
	h.disarm()
	h.haltBehind()

	for range 200 {
		// Commits, syncs and work go on until the power goes, in the middle of one of them.
		if h.fs.Halted() {
			break
		}
		d := deeds[0]
		if n := h.rnd.IntN(4); n > 0 {
			d = [...]deed{{"work", 0, (*history).work}, {"work", 0, (*history).work}, {"sync", 0, (*history).sync}}[n-1]
		}
		if err := h.do(d); err != nil {
			return err
		}
	}

	h.gone()
	if h.rnd.IntN(2) == 0 {
		h.loseBy(0) // after a kill there is more to lose for the next crash than after a power cut
	} else {
		h.lose()
	}
	h.disarm()

	for n := int64(1); ; n++ {
		if err := h.ctx.Err(); err != nil {
			return err
		}

		// Each round opens a fresh copy of what the first crash left, and lets the power go one operation later.
		fs := h.fs.Clone()
		fs.Seed(h.rnd.Uint64())
		fs.HaltAfter(n)
		var shown state
		d, err := h.open(fs)
		if err == nil {
			shown, err = commits.Contents(d, holdfast.Range{})
		}

		// An Open that fails although the power is on is a fault of the engine.
		opened := err == nil
		if !opened && !fs.Halted() {
			return fmt.Errorf("db.Open after a crash: %w", err)
		}

		// The program goes on in its goroutines; nothing of it may reach the copies.
		fs.Halt()
		fs.Unmap()

		for _, again := range []struct {
			how      string
			fs       *vfs.Mem
			survives holdfast.Level
		}{
			{"kill -9", fs.Kill(), holdfast.Process},
			{"a power cut", fs.CrashNothing(), holdfast.Power},
			{"a power cut", fs.Crash(h.rnd), holdfast.Power},
			{"a power cut", fs.Crash(h.rnd), holdfast.Power},
			{"a power cut", fs.Crash(h.rnd), holdfast.Power},
		} {
			found, err := h.peek(again.fs)
			if err != nil {
				return fmt.Errorf("%s during operation %d of Open after the first crash: %w", again.how, n, err)
			}
			h.stats.Doubles++

			if opened { // what it has shown is durable
				err = same(found, shown)
			} else {
				// The ledger is copied, because settle changes it, and five crashes are judged against the same one.
				l := h.ledger
				err = l.settle(found, again.survives)
			}
			if err != nil {
				return fmt.Errorf("%s during operation %d of Open after the first crash: %w", again.how, n, err)
			}
		}

		// Once an Open has come to its end before the power went, all of its operations have been tried.
		if opened {
			return nil
		}
	}
}
