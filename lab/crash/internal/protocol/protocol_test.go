package protocol

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
)

func TestMessages(t *testing.T) {
	found := commits.Found{Key: "a\x00b", N: 7, Gen: 2, Len: 1 << 20, Sum: commits.DigestOf([]byte("x"))}
	want := []Message{
		{Kind: TellAcked, A: 1<<63 + 5, B: 3}, {Kind: TellWrong, Text: "so it is"}, {Kind: TellMetrics, B: 1<<64 - 1},
		messageOf(found),
	}
	var stream []byte
	for _, m := range want {
		stream = m.Append(stream)
	}
	r := bufio.NewReader(bytes.NewReader(stream))
	var got []Message
	for {
		m, err := Receive(r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if e, err := EntryOf(got[3]); err != nil || e != found {
		t.Errorf("%v, %v", e, err)
	}
	if _, err := EntryOf(Message{Text: "short"}); err == nil {
		t.Error("an entry without a digest is one")
	}
	// A child that is killed in the middle of a message has not told it.
	whole := Message{Kind: TellAcked, A: 300, B: 3, Text: "x"}.Append(nil)
	for cut := 1; cut < len(whole); cut++ {
		if m, err := Receive(bufio.NewReader(bytes.NewReader(whole[:cut]))); !errors.Is(err, io.EOF) {
			t.Errorf("%d bytes of a message are %v, %v", cut, m, err)
		}
	}
	long := bufio.NewReader(strings.NewReader("w\x00\x00\xff\xff\xff\x7f"))
	if _, err := Receive(long); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a text of 256 MiB: %v", err)
	}
}

// TestFollowed: a follower goes on behind what it was shown before the crash of what that spares.
func TestFollowed(t *testing.T) {
	l := &Ledger{began: time.Now()}
	var out bytes.Buffer
	told := NewReporter(&out)
	told.Followed(1, 7, holdfast.Power)   // at 10
	told.Followed(0, 5, holdfast.Power)   // at 20
	told.Followed(1, 8, holdfast.Process) // at 30
	told.Followed(0, 6, holdfast.Power)   // at 40
	in, at := bufio.NewReader(&out), Position(0)
	for m, err := Receive(in); err == nil; m, err = Receive(in) {
		at += 10
		l.Hear(m, holdfast.Power, func(uint64) Position { return at })
	}
	for pos, want := range map[Position]Followed{10: {}, 11: {0, 7}, 40: {5, 7}, Never: {6, 7}} {
		h := &History{Survives: holdfast.Power}
		if h.Add(l, pos); h.Followed != want {
			t.Errorf("cut at %d: %d, want %d", pos, h.Followed, want)
		}
	}
}

// TestLedger: what counts as promised, and where in the record.
func TestLedger(t *testing.T) {
	l := &Ledger{began: time.Now()}
	at := Position(0)
	hear := func(kind byte, a, b uint64, text string) {
		at += 10
		l.Hear(Message{Kind: kind, A: a, B: b, Text: text}, holdfast.Power, func(uint64) Position { return at })
	}
	hear(TellPhase, PhaseOpened, 0, "")
	hear(TellIssued, 5, 0, "")
	hear(TellIssued, 4, 0, "")                       // told late
	hear(TellAcked, 2, uint64(holdfast.Power), "")   // at 40
	hear(TellAcked, 3, uint64(holdfast.Process), "") // at 50
	hear(TellSynced, 4, 0, "")                       // at 60
	hear(TellShown, 2, uint64(holdfast.Power), "")   // at 70
	hear(TellSaved, 9, 0, "")                        // at 80
	hear(TellSaved, 9, uint64(holdfast.Power), "")   // at 90
	hear(TellCut, 3, 0, "")                          // at 100
	hear(TellMetrics, 5, 2, "")
	hear(TellPhase, PhaseClosed, 5, "") // at 120
	hear(TellPhase, PhaseOpened, 0, "")
	hear(TellMetrics, 7, 1, "")
	for _, test := range []struct {
		pos           Position
		bound, shown  uint64
		acks          int
		offset, first Interval
	}{
		{0, 0, 0, 0, Interval{0, 9}, Interval{0, 3}},
		{40, 0, 0, 0, Interval{0, 9}, Interval{0, 3}},
		{41, 2, 0, 1, Interval{0, 9}, Interval{0, 3}},
		{51, 2, 0, 2, Interval{0, 9}, Interval{0, 3}}, // Process does not survive this
		{61, 4, 0, 3, Interval{0, 9}, Interval{0, 3}},
		{90, 4, 2, 3, Interval{0, 9}, Interval{0, 3}},
		{91, 4, 2, 3, Interval{9, 9}, Interval{0, 3}},
		{Never, 5, 2, 4, Interval{9, 9}, Interval{0, 3}},
	} {
		h := &History{Survives: holdfast.Power, Level: holdfast.Power}
		h.Begin(0, 1)
		h.Add(l, test.pos)
		if h.Issued != 5 || h.Bound != test.bound || h.Shown != test.shown || len(h.Acks) != test.acks ||
			h.Offset != test.offset || h.First != test.first {
			t.Errorf("cut at %d: %+v", test.pos, h)
		}
	}
	if commits, syncs := l.PerCommit(); commits != 12 || syncs != 3 {
		t.Errorf("%d commits, %d syncs", commits, syncs)
	}
	if list := l.Findings(); len(list) != 0 {
		t.Errorf("%q", list)
	}

	hear(tellRefused, 0, 0, "the disk is full") // a refusal that stops nothing
	hear(TellIssued, 6, 0, "")
	hear(TellAcked, 6, uint64(holdfast.Power), "")
	hear(tellRefused, 1, 0, "stopped")
	hear(TellAcked, 6, uint64(holdfast.Power), "") // was under way
	if list := l.Findings(); len(list) != 0 {
		t.Errorf("%q", list)
	}
	hear(TellIssued, 7, 0, "")
	hear(TellAcked, 7, uint64(holdfast.Power), "")
	hear(TellWrong, 0, 0, "two and two is five")
	hear(TellError, 1, 0, "no space")
	hear(TellMetrics, 1, 1<<64-1, "")
	list := strings.Join(l.Findings(), "\n")
	for _, want := range []string{
		"batch 7 was acknowledged after a failed write", "two and two is five", "the victim failed: no space",
	} {
		if !strings.Contains(list, want) {
			t.Errorf("no %q in %q", want, list)
		}
	}
	if !l.full {
		t.Error("a full disk is not told")
	}
	if _, syncs := l.PerCommit(); syncs != holdfast.Unknown {
		t.Errorf("%d syncs of an engine that does not tell", syncs)
	}
}

func TestGenerations(t *testing.T) {
	h := &History{}
	h.Begin(0, 1)
	h.Issued, h.Bound = 90, 40
	h.Begin(1, 51)
	if h.Issued != 50 || h.Bound != 40 {
		t.Errorf("%+v", h)
	}
	h.Begin(2, 45) // what the second one did was taken back too
	for n, gen := range map[uint64]uint32{1: 0, 44: 0, 45: 2, 51: 2, 99: 2} {
		if got := h.Generation(n); got != gen {
			t.Errorf("%d is of generation %d, want %d", n, got, gen)
		}
	}
	c := h.Clone()
	c.Begin(3, 10)
	if h.Generation(20) != 0 || c.Generation(20) != 3 {
		t.Error("a clone shares its segments")
	}
}

// TestConcurrent: where operations run concurrently, an acknowledgement or a follower's sight is of one operation, and
// stays required after later crashes; Sync and Close cover all before.
func TestConcurrent(t *testing.T) {
	l := &Ledger{began: time.Now()}
	at := Position(0)
	hear := func(kind byte, a, b uint64) {
		at += 10
		l.Hear(Message{Kind: kind, A: a, B: b}, holdfast.Power, func(uint64) Position { return at })
	}
	hear(TellIssued, 9, 0)
	hear(TellPlaced, 7, 70)
	hear(TellAcked, 7, uint64(holdfast.Power)) // at 30
	hear(TellShown, 5, uint64(holdfast.Power)) // at 40
	hear(TellSynced, 3, 0)                     // at 50
	hear(TellAcked, 8, uint64(holdfast.Process))
	h := &History{Survives: holdfast.Power, Level: holdfast.Power, Concurrent: true}
	h.Begin(0, 1)
	early := h.Clone()
	early.Add(l, 35)
	h.Add(l, Never)
	if !slices.Equal(early.Must, []uint64{7}) || early.Bound != 0 {
		t.Errorf("cut at 35: %+v", early)
	}
	if !slices.Equal(h.Must, []uint64{7, 5}) || h.Bound != 3 || h.Shown != 0 || h.Places[7] != 70 {
		t.Errorf("%+v", h)
	}
	if h.Acks[0].Issued != 9 {
		t.Errorf("the last one issued before the acknowledgement is %d", h.Acks[0].Issued)
	}
	for last, lost := range map[uint64]int{9: 0, 7: 0, 6: 1} {
		var j Judgement
		if j.Settle(h, commits.Verdict{Last: last}); j.Lost != lost {
			t.Errorf("with %d operations: %+v", last, j)
		}
	}
	var j Judgement
	if j.Settle(h, commits.Verdict{Last: 9, Missing: map[uint64]bool{4: true, 5: true, 6: true}}); j.Lost != 1 {
		t.Errorf("without one that was shown: %+v", j)
	}
	c := h.Clone()
	c.Begin(1, 6)
	if !slices.Equal(c.Must, []uint64{5}) || len(c.Places) != 0 || len(h.Must) != 2 || h.Places[7] != 70 {
		t.Errorf("the next generation: %+v, before %+v", c, h)
	}
	hear(TellPlaced, 7, 70)
	if list := l.Findings(); len(list) != 0 {
		t.Errorf("%q", list)
	}
	hear(TellPlaced, 7, 71)
	if list := l.Findings(); len(list) != 1 || !strings.Contains(list[0], "at 70 and at 71") {
		t.Errorf("%q", list)
	}
}

// TestUndoneIsRemembered: what a crash undid is known by its generation, and by the first operation that came after it.
func TestUndoneIsRemembered(t *testing.T) {
	h := &History{}
	h.Begin(0, 1)
	h.Issued = 10
	h.Begin(1, 8) // undoes 8 to 10
	h.Issued = 12
	h.Begin(2, 13) // nothing
	h.Issued = 15
	h.Begin(3, 6) // and all from 6 on, of three generations
	want := []Undone{{0, Span{8, 10}, 6}, {0, Span{6, 7}, 6}, {1, Span{8, 12}, 6}, {2, Span{13, 15}, 6}}
	if !slices.Equal(h.Undone, want) {
		t.Errorf("undone: %v, want %v", h.Undone, want)
	}
}
