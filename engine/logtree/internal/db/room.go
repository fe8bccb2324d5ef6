package db

import (
	"fmt"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
)

// Before a batch gets its place in the log, the memtable and the log's segment must have room for it. Mostly they have.
// Otherwise room is made by a ladder of steps, the cheapest first. Each step says how to go on:
//
//	done    there is room
//	retry   something has changed: begin again at the top
//	refuse  the batch is refused with the error in ladder.err; nothing of it is there
//	next    take the next step
//
// The steps, in order:
//
//	log failed?     refuse
//	too large?      refuse a batch that does not fit an empty memtable
//
//	if the memtable has room:
//	inLog           done if it fits the log's segment, or another segment could be made
//	flushForRoom    once: flush what can be flushed, remove what is not needed then; retry
//	compactForRoom  wait for a compaction; retry if there was one. Refuse all but deletes and removals
//	lastInLog       done if another segment could be made of the room that was left for compactions
//	giveReserve     give up the reserve, for a removal half of it, next; refuse if there is none
//
//	if it has none, or the reserve was given up:
//	newMemtable     begin another memtable, and retry, if not too many wait for a flush
//	awaitFlush      wait for a flush and retry. If one has failed meanwhile, refuse; but deletes go on in the memtable
//	                as it is, since they make room for what cannot be flushed
//
// A segment made by lastInLog, out of what compactions and deletes need, is only for deletes and removals: inLog makes
// others find another one.
//
// All steps are called with mu held. Most release it and take it again, so that nothing is known any more afterwards:
// that is why they retry.
type ladder struct {
	d       *DB
	frame   int   // bytes that the batch takes in the log
	ops     int   // its operations
	weight  int64 // bytes that count in the memtable
	view    *view // when the ladder was begun at the top
	class   class
	err     error
	flushed bool // flushForRoom was taken
	waited  bool // awaitFlush was taken
	over    bool // a memtable may become larger than it should
}

// class is what a batch may take on a full disk, the more the higher.
type class int

const (
	ordinary class = iota
	removal        // a delete with a little that notes it: half of the reserve
	deletes        // nothing else: all of the reserve
)

// maxNoted is how many bytes the keys and values that a removal sets have together. A store that removes something
// notes it in a head and a few counters, some hundred bytes; and
// 4 KiB fit the smallest half of a reserve several times.
const maxNoted = 4 << 10

// classOf returns what a batch is.
func classOf(body []byte) class {
	removes, sets, noted := false, false, 0
	for at := 0; at < len(body); {
		r, _ := format.ParseRecord(body[at:])
		if r.Kind == holdfast.KindSet {
			sets, noted = true, noted+len(r.Key)+len(r.Value)
		} else {
			removes = true
		}
		at += r.Size
	}
	switch {
	case !sets:
		return deletes
	case removes && noted <= maxNoted:
		return removal
	}
	return ordinary
}

// outcome is how a ladder goes on after a step.
type outcome int

const (
	next outcome = iota
	retry
	done
	refuse
)

// room makes sure that a frame of n bytes with so many operations fits the memtable, which it is copied to unless it
// is large, and the segment. If it returns an error, nothing of the batch is there. It is called with mu held, and may
// release and take it again.
func (d *DB) room(n, ops int, large bool, body []byte) error {
	weight := int64(n)
	if large {
		weight /= largeWeight
	}

	// The common case: everything fits, and no ladder is begun.
	mem := d.view.Load().mem
	if d.log.Err() == nil && mem.index.Fits(ops) && d.hasRoom(mem, weight) && d.log.Fits(n, ops) && !d.mu.kept {
		return nil
	}
	l := ladder{d: d, frame: n, ops: ops, weight: weight, class: classOf(body)}
	if l.class > ordinary {
		// While it is counted, restoreReserve leaves to this batch what it has given up for it.
		d.mu.removing++
	}
	then := retry
	for then == retry {
		then = l.climb()
	}
	if l.class > ordinary {
		d.mu.removing--
	}
	if then == refuse {
		// A refused batch has no use for the reserve it was given. It is made again before the caller hears of the error.
		d.unlocked(d.restoreReserve)
		return l.err
	}
	return nil
}

// hasRoom reports whether so much more fits a memtable, whose index has room for it. Everything fits an empty one.
func (d *DB) hasRoom(mem *memTable, weight int64) bool {
	return mem.empty() || !d.full().Full(mem.weight()+weight, mem.rangeTombstones.Load().Len())
}

// climb takes the steps until one is not followed by the next.
func (l *ladder) climb() outcome {
	if l.err = l.d.log.Err(); l.err != nil {
		return refuse
	}

	// Every round begins with the present memtable: the lock may have been released since the last one.
	l.view = l.d.view.Load()
	mem := l.view.mem
	fits := mem.index.Fits(l.ops)
	if !fits && mem.empty() {
		l.err = &holdfast.Error{Op: "apply", Engine: format.Name, Class: holdfast.ErrTooLarge,
			Detail: fmt.Sprintf("the batch has %d operations", l.ops), Remedy: "split it"}
		return refuse
	}

	// There is room in the memtable, so the log is what may be short of it.
	if fits && (l.over || l.d.hasRoom(mem, l.weight)) {
		for _, step := range []func(*ladder) outcome{(*ladder).inLog, (*ladder).flushForRoom, (*ladder).compactForRoom,
			(*ladder).lastInLog, (*ladder).giveReserve} {
			if then := step(l); then != next {
				return then
			}
		}
	}
	if then := l.newMemtable(); then != next {
		return then
	}

	return l.awaitFlush()
}

// notApplied refuses a batch that there is no room for, on the disk or in memory that could not be flushed. It changes
// nothing: the next batch may find room. Only what leaves two manifests stops the database.
func (l *ladder) notApplied(cause error) outcome {
	l.err = l.d.notApplied(cause)
	return refuse
}

// inLog is done if the frame fits the present segment, or another one can be made that leaves room for others.
func (l *ladder) inLog() outcome {
	d := l.d
	if d.log.Fits(l.frame, l.ops) && (!d.mu.kept || l.class > ordinary) {
		return done
	}
	err := d.rotateSegment(l.frame, false)
	switch {
	case err == nil:
		return done
	case format.IsTransient(err):
		return l.notApplied(err)

	// What is neither a full disk nor passing leaves it open what the log's files are: the log stops.
	case !format.IsNoRoom(err):
		l.err = d.log.Fail(err)
		return refuse
	}
	l.err = err

	return next
}

// flushForRoom is taken once for each batch: a second one would find little that the first has left.
func (l *ladder) flushForRoom() outcome {
	if l.flushed {
		return next
	}
	l.flushed = true
	if l.err = l.d.flushForRoom(); l.err != nil {
		return refuse
	}

	return retry
}

// compactForRoom says, by the class it stores, how much of the reserve a compaction for this batch may have.
func (l *ladder) compactForRoom() outcome {
	if l.class > ordinary {
		l.d.compactor.removing.Store(int32(l.class))
	}
	if l.d.compactor.awaitRoom() {
		return retry
	}
	if l.class == ordinary {
		return l.notApplied(l.err)
	}

	return next
}

// lastInLog takes the room that compactions would need. Only deletes and removals come here, which give back more.
func (l *ladder) lastInLog() outcome {
	if l.err = l.d.rotateSegment(l.frame, true); l.err == nil {
		return done
	}

	return next
}

// giveReserve goes on to newMemtable, not back to the top: with what was given up the memtable is flushed, and the
// retry that follows finds the log's room.
func (l *ladder) giveReserve() outcome {
	gave := false
	l.d.unlocked(func() { gave = l.d.giveRoom(l.class) })
	if !gave {
		return l.notApplied(l.err)
	}

	return next
}

// newMemtable ends the present memtable, so that the batch finds an empty one, unless too many wait for a flush.
func (l *ladder) newMemtable() outcome {
	if len(l.view.imm) >= policy.MaxFull {
		return next
	}
	l.d.rotateMemtable()

	return retry
}

// awaitFlush waits for the oldest memtable to be flushed. It is a stall, and counted as one.
func (l *ladder) awaitFlush() outcome {
	d := l.d
	d.stalls.Add(1)
	if d.manual {
		var err error
		d.unlocked(func() { _, err = d.flushOnce() })

		return l.stuck(err)
	}

	// A failure counts only if it came after this batch began to wait.
	if l.waited && d.mu.stuck != nil {
		return l.stuck(d.mu.stuck)
	}
	l.waited, d.mu.stuck = true, nil
	d.wake(d.work)
	start := time.Now()
	d.mu.changed.Wait()
	if d.watch.Long(start) {
		d.watch.Waited(start, "a flush: memtables are full")
	}

	return retry
}

// stuck goes on after a flush that has failed, if err is not nil.
func (l *ladder) stuck(err error) outcome {
	if err == nil {
		l.over = false
		return retry
	}
	if l.class == ordinary {
		return l.notApplied(err)
	}

	l.d.compactor.removing.Store(int32(l.class)) // the next flush may have of the reserve
	l.over = true
	return retry
}

// notApplied is the error of a batch that is refused for that cause, see [ladder.notApplied].
func (d *DB) notApplied(cause error) error {
	if format.IsFatal(cause) {
		return d.log.Fail(cause)
	}
	if err := d.log.Err(); err != nil {
		return err
	}
	e := &holdfast.Error{Op: "apply", Engine: format.Name, Path: d.files.Dir, Cause: cause,
		Remedy: "try again once the cause is removed; nothing was written"}
	if format.IsNoRoom(cause) {
		e.Class, e.Remedy = holdfast.ErrFull, "make room on the disk, or delete a range of keys; nothing was written"
	}

	return e
}

// flushForRoom flushes what can be flushed and removes the files that are not needed then, because there was no room
// for the log to go on. The next segment stays: the log can go on in it. It is called with mu held, and releases and
// takes it again.
func (d *DB) flushForRoom() error {
	// The present memtable is flushed too: a flush lets go of the log's segments that only the memtables need.
	if v := d.view.Load(); !v.mem.empty() && len(v.imm) < policy.MaxFull {
		d.rotateMemtable()
	}
	d.mu.stuck = nil
	d.wake(d.work)

	// The wait gives up mu, so the list is looked at anew. A flush takes one memtable at a time.
	for len(d.view.Load().imm) > 0 && d.mu.stuck == nil {
		if err := d.log.Err(); err != nil {
			return err
		}
		if !d.manual {
			d.mu.changed.Wait()
			continue
		}
		var err error
		d.unlocked(func() { _, err = d.flushOnce() })
		if format.IsFatal(err) {
			return d.log.Fail(err)
		}
	}
	d.unlocked(func() { d.removeObsolete() })

	return nil
}
