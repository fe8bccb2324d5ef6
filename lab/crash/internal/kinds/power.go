package kinds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

const (
	cutsPerRecord = 10 // of one recorded victim
	cutsPerFault  = 5
	diskSize      = 1 << 30 // sparse
	// enoughFlushes is how many flushes a recording has at least, if they come in time: on the disks of a row some 300
	// syncs are checked, so that one that is skipped by chance, 1 in 100, shows.
	enoughFlushes = 150
)

// diskOptions are those of a disk for a row. It is sparse, so its size costs nothing.
func (r *Runner) diskOptions(c Row) blockdev.Options {
	return blockdev.Options{
		FS: c.Mount.FS, Mount: c.Mount.Options, Size: max(diskSize, blockdev.MinSize(c.Mount.FS)), Dir: r.Dir,
	}
}

// recorded is one victim's run on a recorded disk.
type recorded struct {
	record *blockdev.Record
	ledger *protocol.Ledger
	spec   protocol.Spec
	acked  []int // positions of marks of acknowledgements
	flush  []int // positions of flushes
	wrote  []int // positions behind the first write after pages began to be written back
	begun  int   // position at which the victim began
	again  bool  // on what a cut had left
}

// background is what reaches the disk without a sync of the victim.
type background struct {
	writeBack bool
	seed      uint64
}

// backgroundOf chooses it for a session, and with it the mount options: ext4 and btrfs write their journal every second
// in half of them, or it would never come about in the life of a victim. What controls do not sync is to be lost.
func (c *Row) backgroundOf(rnd *rand.Rand) background {
	b := background{rnd.IntN(4) > 0 && !c.Control, rnd.Uint64()}
	if rnd.IntN(2) == 0 && blockdev.Commits(c.Mount.FS) && !c.Control {
		c.Mount.Options = strings.TrimPrefix(c.Mount.Options+",commit=1", ",")
	}

	return b
}

// record runs a victim on a disk for a while, and until it has flushed often enough, and cuts the power. during is
// called just before.
func (r *Runner) record(
	ctx context.Context, d *blockdev.Disk, c Row, s protocol.Spec, length time.Duration, enough int64, b background,
	t Tally, during func(),
) (*recorded, error) {
	// An acknowledgement is marked in the disk's record when it is heard: every flush that it relies on lies before the
	// mark.
	place := func(n uint64) protocol.Position {
		if at := d.Mark(n); at != blockdev.Unrecorded {
			return protocol.Position(at)
		}

		return protocol.Never
	}
	s.Waits = timesWaits(c)
	v := &victim{command: r.Child, spec: s, ledger: &protocol.Ledger{}, row: c, place: place}
	rec := &recorded{ledger: v.ledger, spec: s, begun: int(d.Position())}
	m, before := moment{delay: length}, d.Flushes()

	// Where syncs do not count, a victim may make none, and would be waited for in vain.
	if !c.Control && c.Given >= c.Kind.Survives() {
		m.enough = func() bool { return d.Flushes() >= before+enough }
	}
	t.Recorded()
	t.Did("recordings on "+c.Mount.String(), 1)
	if c.Capabilities.AtomicBatches { // or each key has a file
		defer watchFiles(ctx, d.Path(), t)()
	}
	endWriteBack := func() {}
	if b.writeBack {
		t.Did("recordings with pages written back", 1)
		endWriteBack = writeBack(ctx, d.Path(), b.seed, func() { rec.wrote = append(rec.wrote, int(d.Position())) })
	}

	// The record is frozen after the moment to kill and before the kill itself: what the kernel writes for a dead
	// process is no part of a power cut.
	err := r.runVictim(ctx, v, m, func() {
		if during != nil {
			during()
		}
		rec.record = d.Freeze()
	})
	endWriteBack() // it appends to rec.wrote until here
	if err != nil {
		if rec.record != nil {
			_ = rec.record.Close()
		}

		return nil, err
	}

	// A record that could not be written whole would show a state that never was on the disk.
	if err := rec.record.Err(); err != nil {
		return nil, errors.Join(err, rec.record.Close())
	}

	// Of each time that pages began to be written back, the first write that came of it is looked for. Between the two
	// there may be marks and nothing else, or the disk did something of its own.
	begins, pending := rec.wrote, false

	rec.wrote = nil
	for i := rec.begun; i < rec.record.Len(); i++ {
		for len(begins) > 0 && begins[0] <= i {
			begins, pending = begins[1:], true
		}
		e := rec.record.Event(i)
		if pending && e.Kind == blockdev.Write {
			rec.wrote = append(rec.wrote, i+1)
		}

		pending = pending && e.Kind == blockdev.Mark // else nothing was dirty, or it is written
		switch {
		case e.Kind == blockdev.Mark:
			rec.acked = append(rec.acked, i)
		case e.Kind == blockdev.Flush && e.Err == 0:
			rec.flush = append(rec.flush, i)
		}
	}

	return rec, nil
}

// cut chooses where the power is cut, and what the disk makes of what it had not flushed.
func (rec *recorded) cut(rnd *rand.Rand) (blockdev.Position, blockdev.Policy) {
	// One cut in five is anywhere. The others are where faults are likely: at acknowledgements, at flushes, where pages
	// were written back, and while the engine opens. The draws below replace this place, or leave it.
	at := rec.begun + rnd.IntN(max(rec.record.Len()-rec.begun, 0)+1)
	policy := blockdev.Subset(rnd.Uint64())
	switch what := rnd.IntN(10); {
	case what < 3:
		policy = blockdev.Nothing()
	case what < 4:
		policy = blockdev.Everything()
	}

	switch what := rnd.IntN(20); {
	case what < 7 && len(rec.wrote) > 0:
		at = rec.wrote[rnd.IntN(len(rec.wrote))] + rnd.IntN(2)
		if rnd.IntN(2) == 0 {
			policy = blockdev.Everything() // what was written back is there, and nothing that came later
		}

	// Right behind an acknowledgement, what it promises must be there, and nothing later need be.
	case what < 7 && len(rec.acked) > 0:
		at = rec.acked[rnd.IntN(len(rec.acked))] + 1 + rnd.IntN(2)
	case what < 12 && len(rec.flush) > 0:
		at = rec.flush[rnd.IntN(len(rec.flush))]
		policy = blockdev.Torn(rnd.Uint64()) // what was about to be flushed
	case what < 14 && len(rec.flush) > 0:
		at = rec.flush[rnd.IntN(len(rec.flush))] + rnd.IntN(2)
	case what < 16 && len(rec.acked) > 0:
		at = rec.begun + rnd.IntN(rec.acked[0]-rec.begun+1) // while everything is being made, or recovered
	}
	if rec.again && len(rec.acked) > 0 && rnd.IntN(4) > 0 {
		at = rec.begun + rnd.IntN(rec.acked[0]-rec.begun+1) // a recovery that is cut must be able to begin anew
	}

	return blockdev.Position(min(at, rec.record.Len())), policy
}

// lies chooses how many of the flushes before a cut were lies: all in a victim's life now and then.
func (rec *recorded) lies(at blockdev.Position, rnd *rand.Rand) int {
	// Positions of flushes are in order.
	flushes, _ := slices.BinarySearch(rec.flush, int(at))
	if flushes == 0 || rnd.IntN(4) == 0 {
		return flushes
	}

	return 1 + rnd.IntN(flushes)
}

// powerSession records one victim, and judges what cuts of the power would have left.
func (r *Runner) powerSession(ctx context.Context, c Row, seed uint64, cuts int, t Tally) error {
	rnd := rand.New(rand.NewPCG(commits.Mix(seed, 2), 0))
	b := c.backgroundOf(rnd)
	rec, h, err := r.newRecord(ctx, c, seed, rnd, b, t)
	if err != nil {
		return r.lost(ctx, err)
	}
	defer rec.record.Close()

	for i := range cuts {
		at, policy := rec.cut(rnd)
		if i == 0 && c.Given < c.Kind.Survives() { // the most that can be lost

			at, policy = blockdev.Position(rec.record.Len()), blockdev.Nothing()
		}

		// A control must lose something: right behind an acknowledgement, with nothing kept that was not flushed.
		if c.Control && len(rec.acked) > 0 {
			at, policy = blockdev.Position(rec.acked[rnd.IntN(len(rec.acked))]+1), blockdev.Nothing()
		}
		if c.Kind == Lies {
			policy = policy.Lied(rec.lies(at, rnd))
		}

		last, p, err := r.powerCut(ctx, c, rec, h, at, policy, rnd, t)
		if err != nil {
			return err
		}
		// Of each third cut, writing goes on from what survived, and the power is cut again.
		if last != nil && i%3 == 0 && cuts >= 3 && !c.Control && c.Kind != Lies {
			if err := r.powerAgain(ctx, c, rec, last, p, at, policy, rnd, b, t); err != nil {
				return err
			}
		}
	}

	return nil
}

// newDisk makes an empty disk, and begins its history.
func (r *Runner) newDisk(ctx context.Context, c Row, seed uint64) (*blockdev.Disk, *protocol.History, error) {
	h, err := r.history(c, seed)
	if err != nil {
		return nil, nil, err
	}
	h.Begin(0, 1)
	d, err := blockdev.New(ctx, r.diskOptions(c))

	return d, h, err
}

// newRecord records a victim on a new disk, which may be aged before.
func (r *Runner) newRecord(ctx context.Context, c Row, seed uint64, rnd *rand.Rand, b background, t Tally) (*recorded,
	*protocol.History, error) {
	d, h, err := r.newDisk(ctx, c, seed)
	if err != nil {
		return nil, nil, err
	}

	defer d.Close()
	if err := r.age(ctx, c, d.Path(), h, c.agedBytes(rnd), rnd.IntN(2) == 0, 0, t); err != nil {
		return nil, nil, err
	}
	rec, err := r.powerRecord(ctx, d, c, h, rnd, r.recordLength(c, rnd), enoughFlushes, b, t)

	return rec, h, err
}

// powerRecord records a victim that goes on with a history, and closes its disk.
func (r *Runner) powerRecord(
	ctx context.Context, d *blockdev.Disk, c Row, h *protocol.History, rnd *rand.Rand, length time.Duration,
	enough int64, b background, t Tally,
) (*recorded, error) {
	s := r.victimSpec(c, d.Path(), h, powerRate)
	if !c.Control && rnd.IntN(2) == 0 && c.Given >= c.Kind.Survives() { // closing syncs, which hides what can be lost
		s.Reopen = int64(250 * time.Millisecond)
	}
	rec, err := r.record(ctx, d, c, s, length, enough, b, t, nil)
	if err != nil {
		return nil, err
	}
	rec.judgeVictim("", t)

	// The disk goes before its record is cut: images are made of the record alone.
	if err := d.Close(); err != nil {
		return nil, errors.Join(err, rec.record.Close())
	}

	return rec, nil
}

// lost tells an interrupt from a failure.
func (r *Runner) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return console.ErrInterrupted
	}

	return err
}

// recordLength is how long a victim works before the power is cut, from its first acknowledgement on.
func (r *Runner) recordLength(c Row, rnd *rand.Rand) time.Duration {
	if c.Given < c.Kind.Survives() {
		// Longer than the limit that its loss window is held to, if that is no matter of minutes. A peer may sync only when
		// a file is full, and its first files may be small.
		length := c.WindowLimit() + 1500*time.Millisecond
		if c.Peer {
			length = min(4*c.WindowLimit(), 8*time.Second)
		}

		return length
	}

	return 600*time.Millisecond + time.Duration(rnd.Int64N(int64(1200*time.Millisecond)))
}

// powerCut judges one image. It returns the history up to the cut and what survived; nil if no more is to be made
// of it.
func (r *Runner) powerCut(
	ctx context.Context, c Row, rec *recorded, h *protocol.History,
	at blockdev.Position, policy blockdev.Policy, rnd *rand.Rand, t Tally,
) (*protocol.History, uint64, error) {
	if ctx.Err() != nil {
		return nil, 0, console.ErrInterrupted
	}

	// What was promised up to this cut, and no more: later cuts of the same record have other histories.
	h = h.Clone()
	h.Add(rec.ledger, protocol.Position(at))
	image := rec.record.Cut(at, policy)
	mounted, err := image.Mount(ctx, r.diskOptions(c))

	// A file system that refuses its own image is no fault of the engine.
	if errors.Is(err, holdfast.ErrCorrupt) && c.Kind == Lies {
		t.Did("images refused by "+c.Mount.FS+" itself", 1)
		return nil, 0, nil
	}
	if errors.Is(err, holdfast.ErrCorrupt) {
		cause := err // without the place, which is another each time
		if e := (*holdfast.Error)(nil); errors.As(err, &e) && e.Cause != nil {
			cause = e.Cause
		}
		t.Note("%s itself refused an image (%v)", c.Mount, cause)

		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, r.lost(ctx, err)
	}
	defer mounted.Close()
	j, fatal, err := r.judge(ctx, c, h, rec.spec, mounted.Path(), rnd, t, nil)
	if err != nil {
		return nil, 0, r.lost(ctx, err)
	}
	if fatal || j.Broken() {
		ev := &Scene{Row: c, History: h, Spec: rec.spec, Image: image,
			When: fmt.Sprintf("power cut before event %d of %d, keeping %v of what was not flushed: %+v",
				at, rec.record.Len(), policy, image.Counts())}
		t.Breaks(ev, j)

		return nil, 0, mounted.Close()
	}

	// Whoever goes on from here has to know which batches are missing.
	h.Skipped = append(h.Skipped, j.Skipped...)

	return h, j.Survived, mounted.Close()

}

// powerAgain lets a victim go on with what a cut has left, and cuts the power again.
func (r *Runner) powerAgain(
	ctx context.Context, c Row, first *recorded, h *protocol.History, survived uint64,
	at blockdev.Position, policy blockdev.Policy, rnd *rand.Rand, b background, t Tally,
) error {
	// The same cut gives the same image again, because the policy has its own seed.
	d, err := blockdev.Restore(ctx, r.diskOptions(c), first.record.Cut(at, policy))
	if err != nil {
		return r.lost(ctx, err)
	}
	defer d.Close()

	// What the cut has taken is not written again: the numbers go on behind what survived, in a new generation.
	h.Begin(first.spec.Gen+1, survived+1)
	length := 100*time.Millisecond + time.Duration(rnd.Int64N(int64(300*time.Millisecond)))
	rec, err := r.powerRecord(ctx, d, c, h, rnd, length, 0, b, t)
	if err != nil {
		return r.lost(ctx, err)
	}
	defer rec.record.Close()

	// The second record begins with a recovery, which cuts prefer.
	rec.again = true
	t.Did(CutAgain, 1)
	at, policy = rec.cut(rnd)
	if len(rec.acked) > 0 && int(at) <= rec.acked[0] {
		t.Did("cuts of a recovery", 1)
	}
	_, _, err = r.powerCut(ctx, c, rec, h, at, policy, rnd, t)

	return err
}

// CutAgain is what [Tally] is told of a disk on which a victim went on after a cut, and whose power was cut again.
const CutAgain = "disks cut again"

// faultSession lets a disk refuse flushes or writes while a victim works, and judges what is on the
// disk then.
func (r *Runner) faultSession(ctx context.Context, c Row, seed uint64, cuts int, t Tally) error {
	rnd := rand.New(rand.NewPCG(commits.Mix(seed, 3), 0))
	b := c.backgroundOf(rnd)
	d, h, err := r.newDisk(ctx, c, seed)
	if err != nil {
		return r.lost(ctx, err)
	}
	defer d.Close()
	s := r.victimSpec(c, d.Path(), h, powerRate)

	// The victim reports failed writes and goes on trying: whether one succeeds after the engine has stopped is a claim
	// too.
	s.Failing = true

	fault := faultOf(rnd)
	if c.Control {
		fault = blockdev.Fault{Writes: true} // a flush that fails can be tried again, and loses nothing here
	}
	length := 50*time.Millisecond + time.Duration(rnd.Int64N(int64(200*time.Millisecond)))
	rec, err := r.record(ctx, d, c, s, length, 0, b, t, func() {
		// The fault begins while the victim works, and lasts long enough for it to meet it and to go on.
		d.Fail(fault)
		sleep(ctx, 400*time.Millisecond)
	})
	if err != nil {
		return r.lost(ctx, err)
	}
	defer rec.record.Close()
	rec.judgeVictim(fmt.Sprintf("with %+v: ", fault), t)
	if _, refused := rec.ledger.Told(); refused == 0 && len(rec.ledger.Findings()) == 0 {
		t.Note("in some rounds no write was refused in time")
	}
	if err := d.Close(); err != nil {
		// A file system that cannot write its own records may refuse to unmount cleanly.
		t.Note("unmounting after a fault: %v", err)
	}

	// The whole record is cut at its end, each time with another part of what was not flushed.
	for i := range cuts {
		policy := blockdev.Subset(rnd.Uint64())
		switch i {
		case 0:
			policy = blockdev.Nothing()
		case 1:
			policy = blockdev.Everything()
		}
		if _, _, err := r.powerCut(ctx, c, rec, h, blockdev.Position(rec.record.Len()), policy, rnd, t); err != nil {
			return err
		}
	}

	return nil
}

// readSession records a victim, restarts its engine on disks whose reads fail, and judges what is there when they do no
// more: what it could not read must neither be taken for lost nor be thrown away.
func (r *Runner) readSession(ctx context.Context, c Row, seed uint64, cuts int, t Tally) error {
	rnd := rand.New(rand.NewPCG(commits.Mix(seed, 4), 0))
	b := c.backgroundOf(rnd)
	rec, h, err := r.newRecord(ctx, c, seed, rnd, b, t)
	if err != nil {
		return r.lost(ctx, err)
	}
	defer rec.record.Close()

	for range cuts {
		at, policy := rec.cut(rnd)
		if rnd.IntN(2) == 0 {
			at = blockdev.Position(rec.record.Len())
		}
		if err := r.readFault(ctx, c, rec, h, at, policy, rnd, t); err != nil {
			return r.lost(ctx, err)
		}
	}

	return nil
}

// readFault compares what is read of an image where reads fail with what is read of it where they do not, and judges
// what a cut leaves after that.
func (r *Runner) readFault(
	ctx context.Context, c Row, rec *recorded, h *protocol.History,
	at blockdev.Position, policy blockdev.Policy, rnd *rand.Rand, t Tally,
) error {
	// First the image is read in order. What comes of that, the engine must tell from a disk whose reads fail, or answer
	// with an error.
	want, err := r.contents(ctx, c, rec, at, policy)
	if err != nil {
		return err
	}
	if want == "" { // as every crash is judged
		_, _, err := r.powerCut(ctx, c, rec, h, at, policy, rnd, t)
		return err
	}
	defer os.Remove(want)
	d, err := blockdev.Restore(ctx, r.diskOptions(c), rec.record.Cut(at, policy))
	if err != nil {
		return err
	}
	defer d.Close()
	s, fault := rec.spec, rec.readFaultOf(int(at), rnd)

	// The child reads while reads fail, and compares what it gets with the file.
	s.Role, s.Dir, s.Expect, s.Leave = "reread", d.Path(), want, rnd.IntN(2) == 0

	d.Fail(fault)
	dump, err := check(ctx, r.Child, s, r.Timeouts.Checking)
	if err != nil {
		return err
	}
	failed := d.FailedReads()
	t.Did("reads that failed", int(failed))

	// What the engine wrote while reads failed is on this disk's record. A cut of it shows whether it threw away what it
	// could not read.
	after := &recorded{record: d.Freeze(), ledger: &protocol.Ledger{}, spec: rec.spec}
	defer after.record.Close()

	when := fmt.Sprintf("of %d reads that failed, with %+v: ", failed, fault)
	for _, wrong := range dump.Wrong {
		t.Wrong(when + wrong)
	}

	switch {
	case dump.Died: // who has mapped files may meet a fault in a goroutine of a library, and it has answered nothing wrong
		t.Did("processes ended by reads that failed", 1)
		t.Note("reads that failed ended its process, in place of an error")
	case dump.Failure != "":
		t.Wrong(when + dump.Failure)
	}
	if err := d.Close(); err != nil {
		t.Note("unmounting after reads had failed: %v", err)
	}

	// The promises are those up to the first cut. What the engine wrote after that was its recovery alone.
	h = h.Clone()
	h.Add(rec.ledger, protocol.Position(at))
	_, _, err = r.powerCut(ctx, c, after, h, blockdev.Position(after.record.Len()), blockdev.Subset(rnd.Uint64()), rnd, t)

	return err
}

// readFaultOf chooses which reads fail: those of a place that was written, or some or all after the first ones.
func (rec *recorded) readFaultOf(at int, rnd *rand.Rand) blockdev.Fault {
	f := blockdev.Fault{Reads: true}
	if rnd.IntN(2) == 0 {
		// Events are drawn until one is a write; a record without any gets a fault of the other kind.
		for range 20 {
			if e := rec.record.Event(rec.begun + rnd.IntN(max(at-rec.begun, 0)+1)); e.Kind == blockdev.Write {
				f.From, f.To = e.Offset, e.Offset+e.Length
				return f
			}
		}
	}

	// Small numbers come more often: most engines read little before they show what is there.
	f.After = rnd.Int64N(1 << (1 + rnd.IntN(7)))
	if rnd.IntN(3) > 0 {
		f.Times = 1 + rnd.Int64N(4)
	}

	return f
}

// contents reads an image and returns a file of what is there, empty if it cannot be read.
func (r *Runner) contents(ctx context.Context, c Row, rec *recorded, at blockdev.Position, policy blockdev.Policy) (
	file string, err error) {
	mounted, err := rec.record.Cut(at, policy).Mount(ctx, r.diskOptions(c))
	if errors.Is(err, holdfast.ErrCorrupt) {
		return "", nil
	}
	if err != nil {
		return "", err
	}

	defer mounted.Close()
	s := rec.spec
	s.Role, s.Dir, s.Opens = "check", mounted.Path(), 1
	dump, err := check(ctx, r.Child, s, r.Timeouts.Checking)
	if err != nil || dump.Failure != "" {
		return "", err
	}
	text, err := json.Marshal(dump.Found[0])
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(r.Dir, "expect-")
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)

	return f.Name(), errors.Join(err, f.Close(), mounted.Close())
}

// judgeVictim enters what the victim itself saw, once for all cuts, and what its acknowledgements took.
func (rec *recorded) judgeVictim(when string, t Tally) {
	findings := rec.ledger.Findings()
	acked, _ := rec.ledger.Told()
	t.Synced(int64(acked), int64(len(rec.flush)))
	rec.judgeFlushes(t)

	for _, finding := range findings {
		t.Wrong(when + finding)
	}
}

// faultOf chooses what the disk refuses.
func faultOf(rnd *rand.Rand) blockdev.Fault {
	f := blockdev.Fault{Err: syscall.EIO, After: rnd.Int64N(4)}
	if rnd.IntN(3) == 0 {
		f.Err = syscall.ENOSPC
	}

	switch rnd.IntN(3) {
	case 0:
		f.Flushes = true
	case 1:
		f.Writes = true
	default:
		f.Flushes, f.Writes = true, true
	}
	if rnd.IntN(3) == 0 {
		f.Times = 1 + rnd.Int64N(4) // who goes on then must know what is lost
	}

	return f
}

// sleep waits for so long, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
