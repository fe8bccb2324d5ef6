// Package simulate runs histories of the engine logtree on a file system in memory that crashes, halts and fails, and
// checks after each crash that the contents are what the laws of the contract allow. Each history follows from its seed
// alone. In half of them the files are mapped; in a quarter checkpoints are made, opened and written to; some end with
// a crash during the Open that follows a crash, at each of its operations. Package vfs lists the faults.
//
//	stats, err := simulate.Run(ctx, seed) // an error says what broke, and in which history
package simulate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/db"
	"github.com/holdfastdb/holdfast/vfs"
)

// Stats counts what one history did.
type Stats struct {
	Steps       int // whatever was done
	Commits     int // batches applied
	Reads       int // gets and scans compared
	Cuts        int // power cuts
	Kills       int // kill -9
	Halts       int // crashes in the middle of an operation, among Cuts and Kills
	Doubles     int // crashes during the Open that follows a crash
	Faults      int // times that operations of the file system were made to fail
	Full        int // times that the disk was made full
	Damages     int // times that bits were flipped and files cut
	Declined    int // batches that were refused for a failure, and not applied
	Poisons     int // times that the engine stopped after a failure
	Compactions int // compactions that came to their end
	Checkpoints int // checkpoints made
	Recoveries  int // times that it opened after a crash
	Refusals    int // reads and opens that found damage
}

// Add adds the counts of another history.
func (s *Stats) Add(o Stats) {
	s.Steps += o.Steps
	s.Commits += o.Commits
	s.Reads += o.Reads
	s.Cuts += o.Cuts
	s.Kills += o.Kills
	s.Halts += o.Halts
	s.Doubles += o.Doubles
	s.Faults += o.Faults
	s.Full += o.Full
	s.Damages += o.Damages
	s.Declined += o.Declined
	s.Poisons += o.Poisons
	s.Compactions += o.Compactions
	s.Checkpoints += o.Checkpoints
	s.Recoveries += o.Recoveries
	s.Refusals += o.Refusals
}

// Run runs the history of that seed. The error, unless it is ctx's, is a broken law; it names the seed, the step and
// what is wrong.
func Run(ctx context.Context, seed uint64) (Stats, error) {
	return run(ctx, seed, mannerOf(seed), nil, nil)
}

// manner holds the options of a history. It follows from the seed, unless a test chooses it.
type manner struct {
	twofold bool // it ends with a crash during the Open after a crash
	mapped  bool // files are mapped
	copied  bool // checkpoints are made
}

// mannerOf is the manner that follows from a seed.
func mannerOf(seed uint64) manner {
	return manner{twofold: seed%8 == 0 || seed%8 == 5, mapped: seed%2 == 1, copied: seed%8 >= 6}
}

// wrapper makes a file system over the simulated one, for each that a history opens a database on. While
// opening is true, Open is at work.
type wrapper func(fsys vfs.FS, opening *bool) vfs.FS

// run is Run with a manner, and with a wrapper and a function that is told every step; both may be nil.
func run(ctx context.Context, seed uint64, m manner, wrap wrapper,
	trace func(step int, what string)) (s Stats, err error) {
	rnd := rand.New(rand.NewPCG(seed, 0x5eed))
	h := &history{ctx: ctx, manner: m, rnd: rnd, fs: vfs.NewMem(), wrap: wrap, trace: trace}

	// A panic of the engine is a broken law like any other, and named with its seed.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
		s = h.stats
		if err != nil && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
			err = fmt.Errorf("logtree, seed %d, step %d (%s): %w", seed, h.stats.Steps, h.last, err)
		}
	}()

	return h.stats, h.run()
}

// history is one in progress.
type history struct {
	manner
	ctx   context.Context
	rnd   *rand.Rand
	stats Stats
	wrap  wrapper
	trace func(step int, what string)
	last  string // what is being done

	fs          *vfs.Mem
	config      db.Config
	db          *db.DB // nil while none is open
	made        bool   // it has been open
	opening     bool
	traffic     *traffic
	frequencies frequencies

	ledger   ledger
	receipts []receipt
	views    []view
	walks    []walk
	copies   []copied

	copiesMade int

	// Of the time since the file system was found:
	armed    bool // operations may fail, or could: a poison needs no other reason
	reads    bool // reads may fail
	capped   bool // the disk may be full
	dropped  bool // the system has given up what a failed sync did not write
	unsaved  bool // and the engine may not have been able to read it before
	poisoned bool
}

// receipt is a receipt not yet waited for.
type receipt struct {
	holdfast.Receipt
	level holdfast.Level
	upto  uint64 // it covers this many batches
}

// view is an open snapshot, and walk an open iterator, with what is to be seen through it.
type view struct {
	holdfast.Snapshot
	want state
}

type walk struct {
	holdfast.Iterator
	want state // what is still to come, in the order of the walk
	of   int   // the view it belongs to, -1: none
	weak bool  // it may have met a read that failed, and remembers
}

// frequencies say how often each step is taken; they are chosen once for a history.
type frequencies struct {
	steps  int
	weight [deedCount]int
	total  int
	waits  int // of 100 commits so many are waited for at once
	level  [3]int
}

// deed is one kind of step of a history.
type deed struct {
	name  string
	usual int
	do    func(h *history) error
}

const deedCount = 15

var deeds = [deedCount]deed{
	{"commit", 300, (*history).commit},
	{"wait", 15, (*history).wait},
	{"sync", 8, (*history).sync},
	{"get", 40, (*history).get},
	{"scan", 20, (*history).scan},
	{"walk", 10, (*history).walk},
	{"snapshot", 10, (*history).snapshot},
	{"look", 10, (*history).look},
	{"work", 60, (*history).work},
	{"reopen", 4, (*history).reopen},
	{"crash", 8, (*history).crash},
	{"halt", 8, (*history).halt},
	{"fault", 5, (*history).fault},
	{"full", 2, (*history).full},
	{"checkpoint", 20, (*history).checkpoint}, // the last: histories without are what they were
}

// choose chooses the traffic, the frequencies and the sizes of the database. The order of the draws is part of what a
// seed means.
func (h *history) choose() {
	r := h.rnd
	h.traffic = newTraffic(r)
	g := &h.frequencies
	g.steps = 30 + r.IntN(250)
	if h.twofold {
		g.steps /= 4
	}

	for i := range deeds {
		if deeds[i].name == "checkpoint" && !h.copied {
			continue
		}

		w := deeds[i].usual * 10
		switch r.IntN(4) {
		case 0:
			w /= 10
		case 1:
			w *= 3
		}
		g.weight[i] = w
		g.total += w
	}
	g.waits = []int{0, 20, 60, 100}[r.IntN(4)]
	g.level = [][3]int{{1, 1, 1}, {0, 0, 1}, {1, 4, 1}, {5, 1, 1}, {0, 1, 0}}[r.IntN(5)]

	// The sizes are tiny, so that a short history fills memtables and segments, and merges tables.
	sizes := func(list ...int64) int64 { return list[r.IntN(len(list))] }
	h.config = db.Config{Dir: "db", Memory: 64 << 10, Manual: true, SyncEvery: -1, Logger: discard, Sizes: db.Sizes{
		// A memtable begins with some 132000 bytes of tree.
		Memtable: sizes(1, 136<<10, 144<<10, 160<<10, 256<<10), Segment: sizes(600, 2<<10, 8<<10, 32<<10),
		Table: sizes(1<<10, 4<<10, 64<<10),
	}}
	binary.LittleEndian.PutUint64(h.config.ID[:], r.Uint64())
}

// run takes steps as often as the frequencies say, and at last closes the database, checks its contents, and damages
// it.
func (h *history) run() error {
	h.choose()
	h.fs.SetMapping(h.mapped)
	defer func() { h.fs.Unmap() }()
	h.fs.Seed(h.rnd.Uint64())
	h.hook(nil)
	if err := errors.Join(h.fs.MkdirAll("db"), h.fs.SyncDir("/")); err != nil {
		return err
	}
	if err := h.recover(); err != nil {
		return err
	}

	for range h.frequencies.steps {
		if err := h.ctx.Err(); err != nil {
			return err
		}

		n := h.rnd.IntN(h.frequencies.total)

		// A draw below the total falls to the deed in whose share it lies.
		i := 0
		for n >= h.frequencies.weight[i] {
			n -= h.frequencies.weight[i]
			i++
		}
		if err := h.do(deeds[i]); err != nil {
			return err
		}

		// After a halt every call fails. Some histories go on all the same, to see that calls report it.
		if h.fs.Halted() && h.rnd.IntN(3) > 0 {
			if err := h.do(deed{"crash", 0, (*history).crash}); err != nil {
				return err
			}
		}
	}
	if h.twofold {
		return h.do(deed{"double", 0, (*history).double})
	}

	return h.do(deed{"end", 0, (*history).end})
}

// do takes one step, and names it in errors and in the trace.
func (h *history) do(d deed) error {
	h.stats.Steps++
	h.last = d.name
	h.note("%s", d.name)

	return d.do(h)
}

// note writes to the trace.
func (h *history) note(format string, args ...any) {
	if h.trace != nil {
		h.trace(h.stats.Steps, fmt.Sprintf(format, args...))
	}
}

// level draws a level by the history's weights.
func (h *history) level() holdfast.Level {
	w := h.frequencies.level
	n := h.rnd.IntN(w[0] + w[1] + w[2])
	switch {
	case n < w[0]:
		return holdfast.Memory
	case n < w[0]+w[1]:
		return holdfast.Process
	}

	return holdfast.Power
}

// failed judges the error of something that writes. It returns a broken law if there was no reason for the error, or if
// the laws want another one.
func (h *history) failed(what string, err error) error {
	if !h.armed {
		return fmt.Errorf("%s fails without a reason: %w", what, err)
	}
	if !errors.Is(err, holdfast.ErrPoisoned) {
		return fmt.Errorf("%s fails with an error that is not ErrPoisoned: %w", what, err)
	}
	if p := h.db.Metrics().Poison; p == nil {
		return fmt.Errorf("%s fails, and Metrics tell of no poison: %w", what, err)
	}
	if !h.poisoned {
		h.poisoned = true
		h.stats.Poisons++
		h.note("poisoned: %v", err)
	}

	return nil
}

// refused returns an error if something that writes succeeds though the engine has stopped.
func (h *history) refused(what string, err error) error {
	if h.poisoned && err == nil {
		return fmt.Errorf("%s succeeds after a failed write or sync", what)
	}

	return nil
}

// commit applies a batch, and waits for it at once, later or never.
func (h *history) commit() error {
	list := h.traffic.batch()
	var b holdfast.Batch
	encode(&b, list)
	level := h.level()
	r, err := h.db.Apply(&b, level)
	if err := h.refused("Apply", err); err != nil {
		return err
	}

	// A batch that is refused for want of room or by a fault, without poison, must leave nothing behind.
	if err != nil && h.armed && !errors.Is(err, holdfast.ErrPoisoned) && h.db.Metrics().Poison == nil {
		h.stats.Declined++ // none of it may be visible
		return nil
	}
	if err != nil {
		return h.failed("Apply", err)
	}
	h.stats.Commits++

	// An empty batch has no number: it is a barrier for those before it.
	if len(list) > 0 {
		h.ledger.apply(list)
	}
	h.note("batch %d at %v: %d operations, %d bytes", h.ledger.last(), level, len(list), b.Size())
	rc := receipt{r, level, h.ledger.last()}
	if h.rnd.IntN(100) < h.frequencies.waits {
		return h.settle(rc)
	}
	if len(h.receipts) < 8 {
		h.receipts = append(h.receipts, rc)
	}

	return nil
}

// settle waits for a receipt and enters what it promises.
func (h *history) settle(r receipt) error {
	if err := r.Wait(); err != nil {
		return h.failed("Wait", err)
	}
	h.note("%d batches are acknowledged at %v", r.upto, r.level)
	if r.level == holdfast.Process && h.dropped {
		return nil // it was written before the system dropped it
	}
	h.ledger.acked.Add(r.upto, r.level)

	return nil
}

// wait waits for one of the receipts that are kept, in any order.
func (h *history) wait() error {
	if len(h.receipts) == 0 {
		return nil
	}
	i := h.rnd.IntN(len(h.receipts))
	r := h.receipts[i]
	h.receipts = append(h.receipts[:i], h.receipts[i+1:]...)

	return h.settle(r)
}

// sync calls Sync, after which all batches must survive a power cut.
func (h *history) sync() error {
	err := h.db.Sync()
	if err := h.refused("Sync", err); err != nil {
		return err
	}
	if err != nil {
		return h.failed("Sync", err)
	}
	h.ledger.acked.Add(h.ledger.last(), holdfast.Power)

	return nil
}

// work lets the engine do some of its background work, which is done on call here, or compacts.
func (h *history) work() error {
	limit := 1 + h.rnd.IntN(3)
	if h.rnd.IntN(6) == 0 {
		limit = 50
	}
	if limit == 50 && h.ledger.last()%2 == 0 {
		return h.compact()
	}
	n, err := h.db.Work(limit)
	if err != nil {
		return h.failed("Work", err)
	}
	h.note("%d pieces of work", n)

	return nil
}

// compact compacts everything, or every second time a stretch of keys.
func (h *history) compact() error {
	var r holdfast.Range
	if n := h.ledger.last() / 2; n%2 == 1 {
		r.Lo = fmt.Appendf(nil, "k%04d", n*7%50)
		r.Hi = fmt.Appendf(nil, "k%04d", n*7%50+1+n%40)
		if n%5 == 0 {
			r.Lo, r.Hi = nil, []byte("b")
		}
	}
	err := h.db.Compact(context.Background(), r)
	h.note("compacted from %q to %q: %v", r.Lo, r.Hi, err)
	if err := h.refused("Compact", err); err != nil {
		return err
	}
	if err != nil && h.armed && h.db.Metrics().Poison == nil {
		return nil // what has failed was undone
	}
	if err != nil {
		return h.failed("Compact", err)
	}
	h.stats.Compactions++

	return nil
}

// reopen closes the database and opens it again.
func (h *history) reopen() error {
	if h.rnd.IntN(3) == 0 && len(h.views)+len(h.walks) > 0 {
		return h.busy()
	}
	if err := h.release(); err != nil {
		return err
	}
	if err := h.close(); err != nil {
		return err
	}
	if h.fs.Halted() {
		return h.crashed()
	}
	if h.armed && h.rnd.IntN(2) == 0 {
		h.disarm()
	}

	return h.recover()
}

// busy calls Close while a snapshot or iterator is open.
func (h *history) busy() error {
	err := h.db.Close()
	if !errors.Is(err, holdfast.ErrBusy) {
		return fmt.Errorf("db.Close with %d snapshots and %d iterators open: %w", len(h.views), len(h.walks), err)
	}

	// Close has synced everything before it finds out that it is busy.
	if !errors.Is(err, holdfast.ErrPoisoned) {
		h.ledger.acked.Add(h.ledger.last(), holdfast.Power)
		return h.refused("Close", nil)
	}

	return h.failed("Close", err)
}

// close closes the database, in which nothing is open any more.
func (h *history) close() error {
	err := h.db.Close()
	if !h.db.Life.Closed() {
		return fmt.Errorf("db.Close leaves it open: %w", err)
	}
	if err := h.refused("Close", err); err != nil {
		return err
	}

	all := h.ledger.last()
	switch {
	case err == nil:
		h.ledger.acked.Add(all, holdfast.Power)

		// Receipts outlive the engine: what Close has made durable they must say.
		for _, r := range h.receipts {
			if err := r.Wait(); err != nil {
				return fmt.Errorf("a receipt's Wait after Close: %w", err)
			}
		}
	case !h.armed:
		return fmt.Errorf("db.Close fails without a reason: %w", err)
	default:
		h.note("close: %v", err)
		h.poisoned = true
	}
	if _, err := h.db.Apply(new(holdfast.Batch), holdfast.Power); !errors.Is(err, holdfast.ErrClosed) {
		return fmt.Errorf("db.Apply after Close: %w", err)
	}
	h.gone()

	return nil
}

// release closes all snapshots and iterators.
func (h *history) release() error {
	for len(h.walks) > 0 {
		if err := h.endWalk(0); err != nil {
			return err
		}
	}

	for len(h.views) > 0 {
		if err := h.dropView(0); err != nil {
			return err
		}
	}

	return nil
}

// gone forgets the database that was open.
func (h *history) gone() {
	h.db, h.receipts, h.views, h.walks = nil, nil, nil, nil
}
