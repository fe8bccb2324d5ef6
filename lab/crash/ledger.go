package crash

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
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

// perCommit is the number of syncs per batch that the engine told of, -1 if it does not tell.
func (l *ledger) perCommit() (commits, syncs int64) {
	if l.syncsUnknown {
		return 0, -1
	}
	return l.commits + int64(l.metrics.a), l.syncs + int64(l.metrics.b)
}

// findings are the breaches that the victim itself saw or was.
func (l *ledger) findings() []string {
	var list []string
	for _, wrong := range l.wrong {
		list = append(list, "the victim saw: "+wrong)
	}
	if l.failure != "" {
		list = append(list, "the victim failed: "+l.failure)
	}
	return list
}

// segment is a part of a history: the batches from a number on that one generation applied.
type segment struct {
	Gen  uint32
	From uint64
}

// history is what is known of a directory: who applied which numbers, and what was promised.
// Numbers count from 1.
type history struct {
	Seed     uint64
	Segments []segment
	Issued   uint64 // the last number that may be there
	Bound    uint64 // the last number that must be there
	Shown    uint64 // the last number that a follower saw, where that must stay
	Acks     []ack  // of the last generation
	Survives holdfast.Level
	Level    holdfast.Level // that the batches which count are given; weaker ones among them are company
	Offset   interval       // of the offset that was saved
	First    interval       // of the log's beginning

	// Of a store for Raft.
	Monotonic bool   // it has no gaps
	Skipped   []span // deletions that a crash has taken back, though not what ran beside them
}

// interval holds a value that is known up to what was under way.
type interval struct{ Low, High uint64 }

// begin adds a generation that applies the numbers from n on.
func (h *history) begin(gen uint32, from uint64) {
	for len(h.Segments) > 0 && h.Segments[len(h.Segments)-1].From >= from {
		h.Segments = h.Segments[:len(h.Segments)-1]
	}
	h.Segments = append(h.Segments, segment{gen, from})
	h.Skipped = slices.DeleteFunc(h.Skipped, func(s span) bool { return s.From >= from })
	h.Issued, h.Acks = from-1, nil
}

// generation is that which applied n.
func (h *history) generation(n uint64) uint32 {
	for i := len(h.Segments) - 1; i >= 0; i-- {
		if h.Segments[i].From <= n {
			return h.Segments[i].Gen
		}
	}
	return 0
}

// add enters what a ledger held before pos.
func (h *history) add(l *ledger, pos position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.Issued = max(h.Issued, l.issued)
	for _, a := range l.acks {
		if a.pos < pos {
			h.Acks = append(h.Acks, a)
			if a.level >= h.Survives {
				h.Bound = max(h.Bound, a.n)
			}
		}
	}
	for _, v := range l.shown {
		if v.pos < pos && v.level >= h.Survives {
			h.Shown = max(h.Shown, v.n)
		}
	}
	enter := func(to *interval, marks []mark) {
		for _, m := range marks {
			switch {
			case m.level == 0:
				to.High = max(to.High, m.value)
			case m.pos < pos && m.level >= h.Survives:
				to.Low = max(to.Low, m.value)
			}
		}
	}
	enter(&h.Offset, l.saved)
	enter(&h.First, l.first)
}

// counts reports whether a is one of the acknowledgements that are added up. A row is about one level: what was
// acknowledged below it may be gone, and says nothing about it.
func (h *history) counts(a ack) bool { return a.batch && a.level >= h.Level }

// clone returns a history that shares nothing that changes.
func (h *history) clone() *history {
	c := *h
	c.Segments, c.Acks, c.Skipped = slices.Clone(h.Segments), slices.Clone(h.Acks), slices.Clone(h.Skipped)
	return &c
}

// Judgement is what a crash has left, counted in batches. What must not be is in Findings, in words.
type Judgement struct {
	Survived   uint64   `json:"survived"` // the last number of which nothing and nothing before is missing
	Last       uint64   `json:"last"`     // the last number of which something is there
	Acked      int      `json:"acked"`    // acknowledged in the last generation, at history.Level or above
	Kept       int      `json:"kept"`     // of them, there
	Lost       int      `json:"lost"`     // acknowledged at a level that must survive this, and not there
	Gone       int      `json:"gone"`     // acknowledged at a weaker level, and not there
	Torn       int      `json:"torn"`     // there in part
	OutOfOrder int      `json:"out_of_order"`
	Wrong      int      `json:"wrong"` // found and never written, damaged, or different when opened again
	Window     float64  `json:"window_ms"`
	Findings   []string `json:"findings,omitempty"`
	Skipped    []span   `json:"skipped,omitempty"` // of a store for Raft: see history
}

// maxFindings is how many findings are kept in words.
const maxFindings = 12

func (j *Judgement) find(count *int, format string, args ...any) {
	*count++
	if len(j.Findings) < maxFindings {
		j.Findings = append(j.Findings, fmt.Sprintf(format, args...))
	}
}

// broken reports a breach of anything.
func (j *Judgement) broken() bool { return j.Lost+j.Torn+j.OutOfOrder+j.Wrong > 0 }

// settle enters a verdict, and counts what was acknowledged and is not there.
func (j *Judgement) settle(h *history, v commits.Verdict) {
	counts := map[commits.Class]*int{commits.Wrong: &j.Wrong, commits.Torn: &j.Torn, commits.OutOfOrder: &j.OutOfOrder}
	for _, f := range v.Findings {
		j.find(counts[f.Class], "%s", f.Text)
	}
	j.Last, j.Survived = v.Last, v.Survived()
	firstGone, lastAck := time.Duration(-1), time.Duration(0) // since the victim was started
	lost := 0
	for _, a := range h.Acks {
		lastAck = max(lastAck, a.at)
		if !h.counts(a) {
			continue
		}
		j.Acked++
		if a.n <= j.Last && !v.Missing[a.n] {
			j.Kept++
			continue
		}
		if firstGone < 0 || a.at < firstGone {
			firstGone = a.at
		}
		if a.level >= h.Survives {
			lost++
		} else {
			j.Gone++
		}
	}
	if firstGone >= 0 {
		j.Window = float64((lastAck - firstGone).Microseconds()) / 1000
	}
	// One acknowledgement covers all before it.
	if h.Bound > j.Survived {
		lost = max(lost, 1)
		j.find(new(int), "batch %d and all before it had been acknowledged to survive this, but only the first %d are there: %d acknowledged ones are lost", h.Bound, j.Survived, lost)
	}
	j.Lost = lost
	if h.Shown > j.Survived {
		j.find(&j.Wrong, "a follower was shown everything up to %d, but only %d survived", h.Shown, j.Survived)
	}
}

// again compares what was found at a second opening.
func (j *Judgement) again(first, second []entry) {
	if d := commits.Difference(second, first); d != "" {
		j.find(&j.Wrong, "opened again, it holds something else: %s", d)
	}
}
