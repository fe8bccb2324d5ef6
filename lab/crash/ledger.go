package crash

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
)

// Position is a place in what happened: in the record of a block device, or in time.
type position = int64

// never is after everything.
const never = position(math.MaxInt64)

// ack is something that a victim was promised.
type ack struct {
	n     uint64         // the last number that it covers; all before are covered too
	batch bool           // it answers one batch that ends there; false for Sync, Close and what followers saw
	level holdfast.Level // that it was given
	at    time.Duration  // since the victim was started, when the supervisor knew
	pos   position       // where in the record
}

// ledger is what one victim has told. It is the supervisor's, and the victim cannot take
// anything back.
type ledger struct {
	mu      sync.Mutex
	began   time.Time
	acks    []ack
	shown   []ack // what a follower saw
	issued  uint64
	saved   []mark
	first   []mark
	wrong   []string
	refused []string
	stopAt  uint64 // the last number issued when a write was first refused because of an earlier one
	failure string // the victim could not go on
	full    bool   // because of the disk

	commits, syncs int64 // of engines that were closed or opened again
	metrics        message
	syncsUnknown   bool
}

// mark is an intent or an acknowledgement of something of which the last one counts.
type mark struct {
	value uint64
	level holdfast.Level // of the acknowledgement, 0 for an intent
	pos   position
}

// hear enters a message. given tells the level that Sync and Close give; place is called for what may
// bind the engine and returns where in the record that is.
func (l *ledger) hear(m message, strongest holdfast.Level, place func(n uint64) position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Since(l.began)
	promised := func(n uint64, batch bool, level holdfast.Level) ack {
		return ack{n: n, batch: batch, level: level, at: at, pos: place(n)}
	}
	switch m.kind {
	case tellIssued:
		l.issued = max(l.issued, m.a)
	case tellAcked:
		l.acks = append(l.acks, promised(m.a, true, holdfast.Level(m.b)))
		if l.stopAt > 0 && m.a > l.stopAt {
			l.wrong = append(l.wrong, fmt.Sprintf("batch %d was acknowledged after a failed write had stopped the engine", m.a))
		}
	case tellSynced:
		l.acks = append(l.acks, promised(m.a, false, strongest))
	case tellShown:
		l.shown = append(l.shown, promised(m.a, false, holdfast.Level(m.b)))
	case tellSaved:
		l.saved = append(l.saved, mark{m.a, holdfast.Level(m.b), place(m.a)})
	case tellCut:
		l.first = append(l.first, mark{m.a, holdfast.Level(m.b), place(m.a)})
	case tellMetrics:
		if int64(m.b) < 0 {
			l.syncsUnknown = true
			m.b = 0
		}
		l.metrics = m
	case tellWrong:
		l.wrong = append(l.wrong, m.text)
	case tellRefused:
		l.refused = append(l.refused, m.text)
		if m.a > 0 && l.stopAt == 0 {
			l.stopAt = l.issued
		}
	case tellError:
		l.failure, l.full = m.text, m.a > 0
	case tellPhase:
		switch m.a {
		case phaseOpening, phaseOpened:
			l.commits, l.syncs = l.commits+int64(l.metrics.a), l.syncs+int64(l.metrics.b)
			l.metrics = message{}
		case phaseClosed:
			l.acks = append(l.acks, promised(m.b, false, strongest))
		}
	}
}

// start is called when the victim is started.
func (l *ledger) start() { l.began = time.Now() }

// fail enters why the victim could not go on, where it did not say so itself.
func (l *ledger) fail(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = why
}

// failed is why the victim could not go on, empty if it could, and whether that was because of a full disk.
func (l *ledger) failed() (why string, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure, l.full
}

// told is how many batches were acknowledged, and how many writes refused.
func (l *ledger) told() (acked, refused int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.acks {
		if a.batch {
			acked++
		}
	}
	return acked, len(l.refused)
}

// perCommit is the number of syncs per batch that the engine told of, -1 if it does not tell.
func (l *ledger) perCommit() (commits, syncs int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.syncsUnknown {
		return 0, -1
	}
	return l.commits + int64(l.metrics.a), l.syncs + int64(l.metrics.b)
}

// findings are the breaches that the victim itself saw or was.
func (l *ledger) findings() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []string
	for _, wrong := range l.wrong {
		list = append(list, "the victim saw: "+wrong)
	}
	if l.failure != "" {
		list = append(list, "the victim failed: "+l.failure)
	}
	return list
}
