package blockdev

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/internal/clock"
)

// event is an Event as it is kept, in 40 bytes.
type event struct {
	off, n int64
	arg    uint64 // where the data of a write begins in the scratch file, in bytes; the value of a mark
	at     time.Duration
	err    uint32
	kind   Kind
}

// changes reports whether the disk holds something else after e.
func (e *event) changes() bool { return e.err == 0 && (e.kind == Write || e.kind == Discard) }

// recorder builds a Record. It is safe for concurrent use; one request is recorded at a time.
type recorder struct {
	mu    sync.Mutex
	rec   *Record
	end   int64 // of rec.data
	limit int64
	done  bool // the record has ended

	writes, flushes int64 // that succeeded, recorded or not
}

// Record is what a disk was asked for, in order, and what it held before. It does not change any more. Its data is in a
// scratch file without a name, which Close, or the end of the process, gives back.
type Record struct {
	fs     string
	size   int64
	base   *os.File // what the disk held before the first event; sparse
	shared bool     // base belongs to others as well
	data   *os.File // of the writes, one after another
	events []event
	err    error
	began  time.Duration // on the clock of package clock
	ended  time.Duration // when Freeze ended it, 0 before
}

// newRecorder begins a record now. It takes at most limit bytes of scratch space.
func newRecorder(rec *Record, limit int64) *recorder {
	rec.began = clock.Now()
	return &recorder{rec: rec, limit: limit}
}

// add records one event; the caller has r.mu. Data that cannot be kept ends the record, not the disk.
func (r *recorder) add(e event, data [][]byte) {
	if r.done {
		return
	}

	var n int64
	for _, part := range data {
		n += int64(len(part))
	}

	if r.end+n+Sector*int64(len(r.rec.events)+1) > r.limit {
		r.done = true
		r.rec.err = &holdfast.Error{Op: "record", Class: holdfast.ErrTooLarge,
			Detail: fmt.Sprintf("more than %d bytes after %d events", r.limit, len(r.rec.events)),
			Remedy: "write less"}

		return
	}

	// The data goes first: an event without its data would be worth nothing.
	if e.kind == Write {
		e.arg = uint64(r.end)
		for _, part := range data {
			if _, err := r.rec.data.WriteAt(part, r.end); err != nil {
				r.done = true
				r.rec.err = &holdfast.Error{Op: "record", Class: holdfast.ErrUnavailable, Cause: err,
					Remedy: "make room for scratch data"}

				return
			}
			r.end += int64(len(part))
		}
	}
	e.at = clock.Now() - r.rec.began
	r.rec.events = append(r.rec.events, e)
}

// mark adds a mark, unless the record has ended.
func (r *recorder) mark(v uint64) Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := len(r.rec.events)
	r.add(event{kind: Mark, arg: v}, nil)
	if r.done {
		return Unrecorded
	}

	return Position(at)
}

// position is the number of events so far.
func (r *recorder) position() Position {
	r.mu.Lock()
	defer r.mu.Unlock()

	return Position(len(r.rec.events))
}

// freeze ends the record. Only the first call sets the time.
func (r *recorder) freeze() *Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done = true; r.rec.ended == 0 {
		r.rec.ended = clock.Now()
	}

	return r.rec
}

// Len returns the number of events.
func (r *Record) Len() int { return len(r.events) }

// Err tells why the record ended before the disk was frozen: ErrTooLarge when it grew beyond its limit, ErrUnavailable
// when its scratch data could not be written. What it has is right either way.
func (r *Record) Err() error { return r.err }

// Event returns event i, the zero Event if there is none.
func (r *Record) Event(i int) Event {
	if i < 0 || i >= len(r.events) {
		return Event{}
	}
	e := r.events[i]
	out := Event{Kind: e.kind, Offset: e.off, Length: e.n, At: e.at, Err: syscall.Errno(e.err)}
	if e.kind == Mark {
		out.Value = e.arg
	}

	return out
}

// Began is when the disk was made, and Ended when Freeze ended the record, on the clock of package clock: the times of
// events count from the first.
func (r *Record) Began() time.Duration { return r.began }

// Ended is described with Began.
func (r *Record) Ended() time.Duration { return r.ended }

// Durable returns the number of events before at that the last flush before at covers, that flush included.
func (r *Record) Durable(at Position) int { return r.durable(at, 0) }

// durable is Durable if the last flushes, so many of them, were lies.
func (r *Record) durable(at Position, lied int) int {
	// A flush that failed covers nothing.
	for i := r.clamp(at) - 1; i >= 0; i-- {
		if e := &r.events[i]; e.kind != Flush || e.err != 0 {
			continue
		}
		if lied == 0 {
			return i + 1
		}
		lied--
	}

	return 0
}

// clamp takes a position into the record.
func (r *Record) clamp(at Position) int { return min(max(int(at), 0), len(r.events)) }

// Close gives the scratch data back. Images of the record cannot be read or mounted after it; those that are mounted
// are not touched.
func (r *Record) Close() error {
	err := r.data.Close()
	if !r.shared {
		err = firstOf(err, r.base.Close())
	}

	return err
}

// firstOf is the first error that is not nil. It is evaluated after all calls are made, so each is made.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}

	return nil
}

// Image is what a disk holds after a power cut. It has no data of its own: it is good until its Record is closed.
type Image struct {
	fs         string
	size       int64
	base, data *os.File
	// sectors says for each sector where its contents are: in base, nowhere (zeros), or in data at
	// sector n-inData. nil: all in base.
	sectors []uint32
	counts  CutCounts
}

// Values of Image.sectors.
const (
	inBase uint32 = iota
	zeros
	inData
)

// CutCounts says how many of the writes and discards that no flush covered a cut kept, tore and lost.
type CutCounts struct{ Kept, Torn, Lost int }

// Cut returns the disk as a power cut just before event at could leave it: with everything before the last flush that
// came before at and was no lie, and with what policy leaves of the later writes. Positions outside the record count as
// its ends. It takes 4 bytes of memory for each sector of the disk.
func (r *Record) Cut(at Position, policy Policy) *Image {
	// An image is a table: for each sector, whether it is as before, zeros, or in which write of the record.
	im := &Image{fs: r.fs, size: r.size, base: r.base, data: r.data, sectors: make([]uint32, r.size/Sector)}
	durable := r.durable(at, policy.lied)

	// What a flush covers is there in any case, and in order: later writes win.
	for i := range r.events[:durable] {
		im.apply(&r.events[i], nil)
	}
	rng := rand.New(rand.NewPCG(policy.seed, uint64(at)))

	// One cut is generous and the next is not: were each write kept with the same odds, a long tail would never
	// be lost, or kept, almost whole.
	keep, tear := rng.Float64(), 0.3*rng.Float64()

	// The last event that changes something is the one that can be torn in that mode.
	last := r.clamp(at) - 1
	for last >= durable && !r.events[last].changes() {
		last--
	}

	// Of what no flush covers each write is there, or in part, or not, as the policy says.
	for i := range r.events[durable:r.clamp(at)] {
		e := &r.events[durable+i]
		if !e.changes() {
			continue
		}

		switch {
		case policy.mode == modeTorn && durable+i < last:
			im.apply(e, nil)
			im.counts.Kept++
		case policy.mode == modeTorn && e.n > Sector:
			im.apply(e, tornBy(rng, int(e.n/Sector)))
			im.counts.Torn++
		case policy.mode == modeEverything:
			im.apply(e, nil)
			im.counts.Kept++
		case policy.mode == modeNothing:
			im.counts.Lost++
		case e.n > Sector && rng.Float64() < tear:
			im.apply(e, tornBy(rng, int(e.n/Sector)))
			im.counts.Torn++
		case rng.Float64() < keep:
			im.apply(e, nil)
			im.counts.Kept++
		default:
			im.counts.Lost++
		}
	}

	return im
}

// tornBy chooses which of n sectors reach the disk: the first ones, the last ones, or any.
func tornBy(rng *rand.Rand, n int) func(int) bool {
	at := 1 + rng.IntN(n-1)
	switch rng.IntN(3) {
	case 0:
		return func(i int) bool { return i < at }
	case 1:
		return func(i int) bool { return i >= at }
	}

	return func(int) bool { return rng.Uint64()&1 == 0 }
}

// apply lets those sectors of e reach the disk that kept names, nil for all.
func (im *Image) apply(e *event, kept func(int) bool) {
	if !e.changes() {
		return
	}

	first := e.off / Sector
	for i := range int(e.n / Sector) {
		if kept != nil && !kept(i) {
			continue
		}
		if e.kind == Discard {
			im.sectors[first+int64(i)] = zeros
		} else {
			im.sectors[first+int64(i)] = inData + uint32(e.arg/Sector) + uint32(i)
		}
	}
}

// Counts returns what the cut did to the writes that were not flushed.
func (im *Image) Counts() CutCounts { return im.counts }

// run returns the source of sector i and how many sectors from it on, at most n, come from there one after another;
// from is where they begin in data, in bytes.
func (im *Image) run(i, n int64) (source uint32, from, length int64) {
	if im.sectors == nil {
		return inBase, 0, n
	}
	first := im.sectors[i]
	source = min(first, inData)

	for length = 1; length < n; length++ {
		next := im.sectors[i+length]
		if source < inData && next != first || source == inData && next != first+uint32(length) {
			break
		}
	}

	return source, int64(first-source) * Sector, length
}
