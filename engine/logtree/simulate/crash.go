package simulate

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"syscall"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/check"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/db"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/vfs"
)

var discard = slog.New(slog.DiscardHandler)

// crash ends the program or the machine, and opens what is left.
func (h *history) crash() error {
	h.gone()
	return h.crashed()
}

// crashed is crash when no database is open.
func (h *history) crashed() error {
	h.lose()
	return h.recover()
}

// lose replaces the file system by what a crash leaves of it.
func (h *history) lose() { h.loseBy(h.rnd.IntN(crashes)) }

// There are so many crashes to choose among, of which the first are kills.
const crashes, kills = 12, 5

// loseBy is lose with a given crash.
func (h *history) loseBy(n int) {
	if h.fs.Halted() {
		h.stats.Halts++
	}

	// Nothing of the old program may change the files from here on, also what goes on in its goroutines.
	h.fs.Halt()
	defer h.fs.Unmap()

	switch {
	case n < kills:
		h.stats.Kills++
		h.note("kill -9: %d of %d batches must be there", h.ledger.acked.Surviving(holdfast.Process), h.ledger.last())
		h.fs = h.fs.Kill()
	default:
		h.stats.Cuts++
		h.ledger.acked.Crash(holdfast.Power)
		h.note("power cut: %d of %d batches must be there", h.ledger.acked.Surviving(holdfast.Power), h.ledger.last())

		switch {
		case n < 6:
			h.fs = h.fs.CrashNothing()
		case n < 7:
			h.fs = h.fs.CrashAll()
		default:
			h.fs = h.fs.Crash(h.rnd)
		}
	}

	// What a file system leaves open, such as how much of an interrupted write is there, follows from the history's
	// seed.
	h.fs.Seed(h.rnd.Uint64())
	h.hook(nil)
	h.armed, h.reads = false, false
	if h.capped && h.rnd.IntN(2) == 0 {
		h.fs.SetCapacity(-1)
		h.capped = false
	}

	// A disk that is still limited can make any operation fail.
	h.armed = h.capped
}

// hook makes operations fail, and writes those that change something to the trace.
func (h *history) hook(faults func(vfs.Op) error) {
	if h.trace == nil {
		h.fs.SetHook(faults)
		return
	}
	h.fs.SetHook(func(op vfs.Op) (err error) {
		if faults != nil {
			err = faults(op)
		}
		if op.Kind.Mutates() || err != nil {
			h.note("  %v %s%s at %d, %d bytes: %v", op.Kind, op.Name, op.To, op.Offset, op.Len, err)
		}

		return err
	})
}

// disarm ends all faults; their damage stays.
func (h *history) disarm() {
	h.hook(nil)
	h.fs.Unspoil()
	h.fs.HaltAfter(0)
	h.fs.SetCapacity(-1)
	h.armed, h.reads, h.capped = false, false, false
}

// recover tries to open the database, through faults and further crashes, until it opens, and compares its contents
// with the ledger.
func (h *history) recover() error {
	for try := 0; ; try++ {
		// Openings are disturbed too, by a power cut or by faults, but not for ever.
		h.poisoned, h.dropped, h.unsaved = false, false, false
		if try > 4 {
			// Without an end a history could fail to open for ever.
			h.disarm()
		} else {
			switch h.rnd.IntN(10) {
			case 0, 1:
				h.halting(30)
			case 2:
				h.arm(25)
			}
		}

		// Opening must find the same however often it is interrupted, so it is tried on copies first.
		if h.made && h.rnd.IntN(5) == 0 {
			if err := h.twice(); err != nil {
				return err
			}
		}
		d, err := h.open(h.fs)
		if err == nil {
			h.db = d
			h.stats.Recoveries++
			break
		}
		h.note("open: %v", err)

		// Without faults Open must succeed, whatever the crashes have left.
		if !h.armed {
			return fmt.Errorf("db.Open fails without a reason: %w", err)
		}

		switch {
		case h.fs.Halted() || h.rnd.IntN(3) == 0:
			h.lose()
		case h.rnd.IntN(2) == 0:
			h.disarm()
		}
	}
	h.made = true
	if err := h.checkCopies(); err != nil {
		return err
	}
	found, err := commits.Contents(h.db, holdfast.Range{})
	if err != nil {
		if err := h.unread("a scan of everything after Open", err); err != nil {
			return err
		}
		// Only a read fault can be the cause.
		h.gone()
		if h.fs.Halted() {
			return h.crashed()
		}
		h.disarm()

		return h.recover()
	}
	if err := h.ledger.settle(found, holdfast.Process); err != nil {
		return err
	}
	h.note("%d batches are found, %d entries", h.ledger.last(), len(found))

	for range 3 {
		if err := h.getFrom(h.db, h.ledger.now); err != nil {
			return err
		}
	}

	return h.scanFrom(h.db, h.ledger.now)
}

// open opens the database on a file system.
func (h *history) open(on vfs.FS) (*db.DB, error) {
	c := h.config
	c.FS = on
	c.New = !h.made
	if h.wrap != nil {
		c.FS = h.wrap(on, &h.opening)
	}

	h.opening = true
	defer func() { h.opening = false }()

	return db.Open(c)
}

// twice opens two copies of the files, one of them twice, and checks that all have the same contents.
func (h *history) twice() error {
	one := h.fs.Clone()
	first, err := h.peek(one)
	if err != nil {
		return nil // opening the original is refused too
	}

	for what, on := range []*vfs.Mem{h.fs.Clone(), one.Clone(), one.CrashNothing(), one.Crash(h.rnd)} {
		again, err := h.peek(on)
		if err == nil {
			err = same(again, first)
		}
		if err != nil {
			return fmt.Errorf("opening again (%s) finds something else: %w",
				[...]string{"the same", "after a kill", "after a power cut", "after a power cut"}[what], err)
		}
	}

	return nil
}

// same returns an error where got is not want.
func same(got, want state) error {
	if d := commits.Difference(got, want); d != "" {
		return errors.New(d)
	}

	return nil
}

// peek opens a database without faults and returns what is in it.
func (h *history) peek(on *vfs.Mem) (state, error) {
	on.SetCapacity(-1)
	defer on.Unmap()
	d, err := h.open(on)
	if err != nil {
		return nil, err
	}

	return commits.Contents(d, holdfast.Range{})
}

// halt cuts the power during one of the next operations.
func (h *history) halt() error {
	h.halting(60)
	return nil
}

// halting cuts the power during one of the next operations of the file system, at the latest most operations from here.
func (h *history) halting(most int64) {
	// Drawn below a limit that is drawn too, so that most interruptions come soon.
	n := 1 + h.rnd.Int64N(1+h.rnd.Int64N(most))
	h.note("halts during operation %d from here", n)
	h.fs.HaltAfter(n)
	h.armed = true
}

// fault makes operations fail, or ends such faults.
func (h *history) fault() error {
	if h.armed && h.rnd.IntN(2) == 0 {
		h.hook(nil)
		h.fs.Unspoil()
		failing := h.reads
		h.reads = false
		if h.rnd.IntN(2) == 0 {
			// What no sync has covered is gone then, although no crash came. So the ledger counts it as one.
			h.note("caches are dropped")
			h.fs.DropCaches()
			h.ledger.acked.Crash(holdfast.Power)
			h.dropped = true

			// An engine that stops reads what it still needs of it. It may not have been able to.
			if failing {
				h.unsaved = true
				h.weaken()
			}
		}

		return nil
	}
	if h.mapped && h.rnd.IntN(4) == 0 {
		h.spoil()
		return nil
	}
	h.arm(40)

	return nil
}

// spoil makes pages of some files unreadable.
func (h *history) spoil() {
	names, err := h.fs.List("db")
	if err != nil {
		return
	}

	for range 1 + h.rnd.IntN(4) {
		name := "db/" + names[h.rnd.IntN(len(names))]
		at := h.rnd.Int64N(1 + h.rnd.Int64N(40<<10))
		h.note("%s cannot be read from byte %d on", name, at)
		if err := h.fs.Spoil(name, at, at+1+h.rnd.Int64N(20<<10)); err != nil {
			return
		}
	}
	h.stats.Faults++
	h.armed = true
	h.unreadable()
}

// unreadable notes that reads may fail from now on.
func (h *history) unreadable() {
	h.reads = true
	h.weaken()
}

// weaken notes that open walks may fail.
func (h *history) weaken() {
	for i := range h.walks {
		h.walks[i].weak = true
	}
}

var faultKinds = []vfs.Kind{
	vfs.OpWrite, vfs.OpWrite, vfs.OpWrite, vfs.OpSync, vfs.OpSync, vfs.OpSync, vfs.OpSync, vfs.OpSyncDir, vfs.OpSyncDir,
	vfs.OpCreate,
	vfs.OpRemove, vfs.OpRename, vfs.OpTruncate, vfs.OpAllocate, vfs.OpOpen, vfs.OpList, vfs.OpSize, vfs.OpRead, vfs.OpRead,
	vfs.OpRead, vfs.OpClose, 0,
}

// arm makes one kind of operation fail, within the next most of them or so.
func (h *history) arm(most int64) {
	r := h.rnd
	kinds := faultKinds
	if h.mapped {
		kinds = append(slices.Clip(kinds), vfs.OpMap, vfs.OpMap)
	}
	f := vfs.Fault{Kind: kinds[r.IntN(len(kinds))], Skip: r.Int64N(1 + r.Int64N(most))}
	if r.IntN(4) > 0 {
		f.Count = 1 + r.Int64N(2)
	}

	switch r.IntN(6) {
	case 0:
		f.Name = "*.seg"
	case 1:
		f.Name = []string{"*.run", "MANIFEST*"}[r.IntN(2)]
	}

	switch f.Kind {
	case vfs.OpWrite, vfs.OpAllocate, vfs.OpCreate, vfs.OpRename:
		if r.IntN(3) == 0 {
			f.Err = syscall.ENOSPC
		}
		if r.IntN(2) == 0 {
			f.Short = 1 + r.Int64N(200)
		}
	}
	h.stats.Faults++
	h.note("fails: %v of %q, %d after %d, short %d", f.Kind, f.Name, f.Count, f.Skip, f.Short)
	h.hook(vfs.Faults(f))
	h.armed = true

	// Kind 0 is every kind.
	if f.Kind == 0 || !f.Kind.Mutates() {
		h.unreadable()
	}
}

// full limits the disk to little more than what is used, or lifts the limit.
func (h *history) full() error {
	if h.rnd.IntN(4) == 0 {
		h.fs.SetCapacity(-1)
		h.capped = false

		return nil
	}
	room := h.rnd.Int64N(1 + h.rnd.Int64N(200<<10))
	h.note("the disk has room for %d bytes more", room)
	h.stats.Full++
	h.fs.SetCapacity(h.fs.Used() + room)
	h.armed, h.capped = true, true

	return nil
}

// end closes the database cleanly, or crashes it once more, looks at what is left, and damages it.
func (h *history) end() error {
	if h.rnd.IntN(2) == 0 || h.fs.Halted() {
		if err := h.crash(); err != nil {
			return err
		}
	}
	if err := h.release(); err != nil {
		return err
	}

	switch h.rnd.IntN(4) {
	case 0:
		return h.damageOpen()
	case 1:
		h.gone()
		h.note("kill -9, and then damage")

		h.fs.Halt()
		defer h.fs.Unmap()
		h.fs = h.fs.Kill()
		h.disarm()

		return h.damaged(false)
	}
	if err := h.close(); err != nil {
		return err
	}
	short := h.armed // the manifest may not have been written for want of room
	if h.fs.Halted() {
		return h.crashed()
	}
	h.disarm()
	if h.poisoned {
		return h.recover()
	}
	noted := true
	if short {
		in, err := check.Inspect(h.fs, "db")
		if err != nil {
			return err
		}
		noted = in.Manifest.Synced >= in.Log.End.LSN
		h.note("the manifest says how far the log goes: %v", noted)
	}

	return h.damaged(noted)
}

// damage flips bits, or cuts a file.
func (h *history) damage() {
	names, err := h.fs.List("db")
	if err != nil || len(names) == 0 {
		return
	}

	h.stats.Damages++
	for range 1 + h.rnd.IntN(2) {
		name := "db/" + names[h.rnd.IntN(len(names))]
		size, err := h.fs.Size(name)
		if err != nil || size == 0 {
			continue
		}
		at := h.rnd.Int64N(size)
		if h.rnd.IntN(4) == 0 {
			at = h.rnd.Int64N(min(size, 200))
		}
		if h.rnd.IntN(8) == 0 {
			h.note("%s is cut to %d bytes of %d", name, at, size)
			h.fs.CutFile(name, at)
			continue
		}
		h.note("byte %d of %s is flipped, of %d", at, name, size)
		h.fs.Flip(name, at, h.rnd.IntN(8))
	}
}

// intact judges an error of a database with damage.
func (h *history) intact(what string, err error) error {
	if !errors.Is(err, holdfast.ErrCorrupt) {
		return fmt.Errorf("%s of a damaged database fails with an error that is not ErrCorrupt: %w", what, err)
	}
	h.stats.Refusals++
	h.note("%s: %v", what, err)

	return nil
}

// sound looks at a database that is not open and has no damage: none is found, and a repair loses nothing.
func (h *history) sound() error {
	v, err := check.Verify(h.fs, "db")
	if err != nil || len(v.Damage) > 0 {
		return fmt.Errorf("verify of a database without damage: %w", errors.Join(append(v.Damage, err)...))
	}
	if h.rnd.IntN(4) > 0 {
		return nil
	}

	// The repair goes to another file system, and must not change this one.
	c := h.config
	c.FS, c.New = vfs.NewMem(), true
	if err := c.FS.MkdirAll("db"); err != nil {
		return err
	}
	into, err := db.Open(c)
	if err != nil {
		return err
	}
	r, err := check.Repair(h.fs, "db", into)
	if err != nil || len(r.Lost) > 0 || r.Doubt != "" {
		return fmt.Errorf("repair of a database without damage: %+v, %w", r, err)
	}
	found, err := commits.Contents(into, holdfast.Range{})
	if err != nil {
		return err
	}
	repaired := false

	// Of what no crash has settled, any state since the last sync may be there.
	h.ledger.states(func(_ int, st state) bool {
		repaired = commits.Difference(found, st) == ""
		return !repaired
	})
	if !repaired {
		return fmt.Errorf("repair of a database without damage makes what was never there: compared with all, %s",
			commits.Difference(found, h.ledger.now))
	}

	return into.Close()
}

// damaged damages a database that is not open. If the manifest says how far the log goes, only all that was in it or
// ErrCorrupt will do. After a crash, or a Close without room for the manifest, what had been synced last may also be
// taken for a torn tail.
func (h *history) damaged(noted bool) error {
	if err := h.sound(); err != nil {
		return err
	}
	h.damage()

	// Either it refuses, with ErrCorrupt, or what it shows is right.
	d, err := h.open(h.fs)
	if err != nil {
		if err := h.intact("Open", err); err != nil {
			return err
		}
		// It must stay refused after the first attempt.
		if d, err = h.open(h.fs); err != nil {
			return h.intact("Open", err)
		}
	}
	found, unread := commits.Contents(d, holdfast.Range{})
	if unread != nil {
		if err := h.intact("Scan", unread); err != nil {
			return err
		}
	}
	// What was found, even in part, must be of one state.
	fits, want := 0, h.ledger.now
	h.ledger.states(func(n int, st state) bool {
		if noted && n < len(h.ledger.batches) {
			return true
		}
		if unread == nil && commits.Difference(found, st) == "" ||
			unread != nil && len(st) >= len(found) && slices.Equal(found, st[:len(found)]) {
			want = slices.Clone(st)
			fits++
		}

		return true
	})
	if fits == 0 {
		return fmt.Errorf("after damage, what is found was never there, or should be all (%v): compared with all, %s",
			noted, commits.Difference(found, h.ledger.now))
	}
	if unread != nil && fits > 1 {
		return nil // it is not known which state it is
	}
	h.db = d

	return h.readDamaged(want)
}

// readDamaged reads what can be read, lets the engine work and looks again.
func (h *history) readDamaged(want state) error {
	check := func() error {
		for range 20 {
			h.stats.Reads++
			key := h.traffic.key()
			if len(want) > 0 && h.rnd.IntN(4) > 0 {
				key = want[h.rnd.IntN(len(want))].Key
			}
			got, err := h.db.Get(nil, []byte(key))

			value, there := want.Get(key)
			switch {
			case err == nil && there && string(got) == value, errors.Is(err, holdfast.ErrNotFound) && !there:
			case err == nil || errors.Is(err, holdfast.ErrNotFound):
				return fmt.Errorf("db.Get of a damaged database finds %v, %v; it should be %q, %v",
					entry{Key: key, Value: string(got)}, err, value, there)
			default:
				if err := h.intact("Get", err); err != nil {
					return err
				}
			}
		}

		for range 3 {
			h.stats.Reads++
			r, part := h.span(want)
			got, err := commits.Contents(h.db, r)
			if err == nil {
				if !slices.Equal(got, part) {
					return fmt.Errorf("db.Scan of a damaged database, of [%q, %q), reverse %v, finds %d entries of %d, and no error",
						r.Lo, r.Hi, r.Reverse, len(got), len(part))
				}
				continue
			}
			if len(got) > len(part) || !slices.Equal(got, part[:len(got)]) {
				return fmt.Errorf("db.Scan of a damaged database, of [%q, %q), reverse %v, finds what should not be there before "+
					"it fails", r.Lo, r.Hi, r.Reverse)
			}
			if err := h.intact("Scan", err); err != nil {
				return err
			}
		}

		return nil
	}

	// Before and after background work, and after opening again: the answer may become an error, and never a wrong one.
	if err := check(); err != nil {
		return err
	}

	// Merges read more than the checks have, and may meet the damage.
	if _, err := h.db.Work(1 + h.rnd.IntN(20)); err != nil {
		if err := h.intact("Work", err); err != nil {
			return err
		}
	}
	if err := check(); err != nil {
		return err
	}
	if err := h.db.Close(); err != nil {
		return h.intact("Close", err)
	}
	d, err := h.open(h.fs)
	if err != nil {
		return h.intact("Open", err)
	}
	h.db = d

	return check()
}

// damageOpen damages a database while it is open.
func (h *history) damageOpen() error {
	if h.fs.Halted() {
		return h.crash()
	}
	// A write that nobody has waited for may have failed while operations could.
	if p := h.db.Metrics().Poison; p != nil {
		if err := h.failed("a write", p); err != nil {
			return err
		}
	}
	h.disarm()
	if h.poisoned {
		return h.crash()
	}
	if _, err := h.db.Work(h.rnd.IntN(30)); err != nil {
		return h.failed("Work", err)
	}

	// Synced, so that what is found can be compared with all that was written.
	if err := h.db.Sync(); err != nil {
		return h.failed("Sync", err)
	}
	h.damage()

	return h.readDamaged(h.ledger.now)
}
