package protocol

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
)

// Position is a place in what happened: in the record of a block device, or in time.
type Position = int64

// Never is after everything.
const Never = Position(math.MaxInt64)

// Ack is something that a victim was promised.
type Ack struct {
	N      uint64         // the last number that it covers; all before are covered too, unless History.Concurrent
	Batch  bool           // it answers one batch that ends there; false for Sync, Close and what followers saw
	Level  holdfast.Level // that it was given
	At     time.Duration  // since the victim was started, when the supervisor knew
	Issued uint64         // the last number that had been issued then
	pos    Position       // where in the record
}

// Ledger is what one victim has told. It is the supervisor's, and the victim cannot take
// anything back.
type Ledger struct {
	mu     sync.Mutex
	began  time.Time
	acks   []Ack
	shown  []Ack // what a follower saw
	places map[uint64]uint64
	issued uint64
	waits  []Wait
	saved  []mark
	first  []mark

	followed []mark

	wrong   []string
	refused []string
	stopAt  uint64 // the last number issued when a write was first refused because of an earlier one
	failure string // the victim could not go on
	full    bool   // because of the disk

	commits, syncs int64 // of engines that were closed or opened again
	metrics        Message
	syncsUnknown   bool
}

// mark is an intent or an acknowledgement of something of which the last one counts.
type mark struct {
	value uint64
	level holdfast.Level // of the acknowledgement, 0 for an intent
	pos   Position
}

// Hear enters a message. given tells the level that Sync and Close give; place is called for what may
// bind the engine and returns where in the record that is.
func (l *Ledger) Hear(m Message, strongest holdfast.Level, place func(n uint64) Position) {
	l.mu.Lock()
	defer l.mu.Unlock()

	at := time.Since(l.began)

	promised := func(n uint64, batch bool, level holdfast.Level) Ack {
		return Ack{N: n, Batch: batch, Level: level, At: at, Issued: l.issued, pos: place(n)}
	}

	// What is told of as issued was told before it was done, and what is acknowledged after: so what is missing between
	// the two may or may not be there.
	switch m.Kind {
	case TellIssued:
		l.issued = max(l.issued, m.A)
	case TellAcked:
		l.acks = append(l.acks, promised(m.A, true, holdfast.Level(m.B)))

		// An engine that has said that it stopped must not acknowledge what was issued later.
		if l.stopAt > 0 && m.A > l.stopAt {
			l.wrong = append(l.wrong, fmt.Sprintf("batch %d was acknowledged after a failed write had stopped the engine", m.A))
		}
	case TellSynced:
		l.acks = append(l.acks, promised(m.A, false, strongest))
	case TellShown:
		l.shown = append(l.shown, promised(m.A, false, holdfast.Level(m.B)))
	case TellPlaced:
		if l.places == nil {
			l.places = map[uint64]uint64{}
		}

		// An operation has one place, whoever tells of it.
		if old, ok := l.places[m.A]; ok && old != m.B {
			l.wrong = append(l.wrong, fmt.Sprintf("operation %d was told to be at %d and at %d", m.A, old, m.B))
		}
		l.places[m.A] = m.B
	case TellSaved:
		l.saved = append(l.saved, mark{m.A, holdfast.Level(m.B), place(m.A)})
	case TellFollowed:
		if int(m.A>>followedShift) < len(Followed{}) {
			l.followed = append(l.followed, mark{m.A, holdfast.Level(m.B), place(0)})
		}
	case TellCut:
		l.first = append(l.first, mark{m.A, holdfast.Level(m.B), place(m.A)})
	case tellWaited:
		l.waits = append(l.waits, Wait{time.Duration(m.A), time.Duration(m.B), m.Text})

	// Less than 0 means that the engine does not count its syncs, and then no sum of them is known.
	case TellMetrics:
		if int64(m.B) < 0 {
			l.syncsUnknown = true
			m.B = 0
		}
		l.metrics = m
	case TellWrong:
		l.wrong = append(l.wrong, m.Text)

	// The first refusal that stops the engine is noted with what had been begun by then.
	case tellRefused:
		l.refused = append(l.refused, m.Text)
		if m.A > 0 && l.stopAt == 0 {
			l.stopAt = l.issued
		}
	case TellError:
		l.failure, l.full = m.Text, m.A > 0
	case TellPhase:
		switch m.A {
		case PhaseOpening, PhaseOpened:
			// The counters of an engine begin anew with each opening, so those of the one before are added up.
			l.commits, l.syncs = l.commits+int64(l.metrics.A), l.syncs+int64(l.metrics.B)
			l.metrics = Message{}

		// Closing promises what Sync does, of all that had been applied before.
		case PhaseClosed:
			l.acks = append(l.acks, promised(m.B, false, strongest))
		}
	}
}

// Start is called when the victim is started.
func (l *Ledger) Start() { l.began = time.Now() }

// Fail enters why the victim could not go on, where it did not say so itself.
func (l *Ledger) Fail(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = why
}

// Failed is why the victim could not go on, empty if it could, and whether that was because of a full disk.
func (l *Ledger) Failed() (why string, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.failure, l.full
}

// Told is how many batches were acknowledged, and how many writes refused.
func (l *Ledger) Told() (acked, refused int) {
	l.mu.Lock()
	defer l.mu.Unlock()

	for _, a := range l.acks {
		if a.Batch {
			acked++
		}
	}

	return acked, len(l.refused)
}

// PerCommit is the number of syncs per batch that the engine told of, -1 if it does not tell.
func (l *Ledger) PerCommit() (commits, syncs int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.syncsUnknown {
		return 0, -1
	}

	return l.commits + int64(l.metrics.A), l.syncs + int64(l.metrics.B)
}

// Saw begins the findings that a victim itself saw.
const Saw = "the victim saw: "

// Findings are the breaches that the victim itself saw or was.
func (l *Ledger) Findings() []string {
	l.mu.Lock()
	defer l.mu.Unlock()

	var list []string
	for _, wrong := range l.wrong {
		list = append(list, Saw+wrong)
	}
	if l.failure != "" {
		list = append(list, "the victim failed: "+l.failure)
	}

	return list
}
