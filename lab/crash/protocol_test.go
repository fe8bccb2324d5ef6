package crash

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
	want := []message{{kind: tellAcked, a: 1<<63 + 5, b: 3}, {kind: tellWrong, text: "so it is"}, {kind: tellMetrics, b: 1<<64 - 1}}
	found := entry{Key: "a\x00b", N: 7, Gen: 2, Len: 1 << 20, Sum: commits.DigestOf([]byte("x"))}
	want = append(want, messageOf(found))
	var stream []byte
	for _, m := range want {
		stream = m.append(stream)
	}
	r := bufio.NewReader(bytes.NewReader(stream))
	var got []message
	for {
		m, err := receive(r)
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
	if e, err := entryOf(got[3]); err != nil || e != found {
		t.Errorf("%v, %v", e, err)
	}
	if _, err := entryOf(message{text: "short"}); err == nil {
		t.Error("an entry without a digest is one")
	}
	// A child that is killed in the middle of a message has not told it.
	for cut := 1; cut < len(message{kind: tellAcked, a: 300, b: 3, text: "x"}.append(nil)); cut++ {
		part := message{kind: tellAcked, a: 300, b: 3, text: "x"}.append(nil)[:cut]
		if m, err := receive(bufio.NewReader(bytes.NewReader(part))); !errors.Is(err, io.EOF) {
			t.Errorf("%d bytes of a message are %v, %v", cut, m, err)
		}
	}
	if _, err := receive(bufio.NewReader(strings.NewReader("w\x00\x00\xff\xff\xff\x7f"))); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a text of 256 MiB: %v", err)
	}
}

// TestLedger: what counts as promised, and where in the record.
func TestLedger(t *testing.T) {
	l := &ledger{began: time.Now()}
	at := position(0)
	hear := func(kind byte, a, b uint64, text string) {
		at += 10
		l.hear(message{kind: kind, a: a, b: b, text: text}, holdfast.Power, func(uint64) position { return at })
	}
	hear(tellPhase, phaseOpened, 0, "")
	hear(tellIssued, 5, 0, "")
	hear(tellIssued, 4, 0, "")                       // told late
	hear(tellAcked, 2, uint64(holdfast.Power), "")   // at 40
	hear(tellAcked, 3, uint64(holdfast.Process), "") // at 50
	hear(tellSynced, 4, 0, "")                       // at 60
	hear(tellShown, 2, uint64(holdfast.Power), "")   // at 70
	hear(tellSaved, 9, 0, "")                        // at 80
	hear(tellSaved, 9, uint64(holdfast.Power), "")   // at 90
	hear(tellCut, 3, 0, "")                          // at 100
	hear(tellMetrics, 5, 2, "")
	hear(tellPhase, phaseClosed, 5, "") // at 120
	hear(tellPhase, phaseOpened, 0, "")
	hear(tellMetrics, 7, 1, "")
	for _, test := range []struct {
		pos           position
		bound, shown  uint64
		acks          int
		offset, first interval
	}{
		{0, 0, 0, 0, interval{0, 9}, interval{0, 3}},
		{40, 0, 0, 0, interval{0, 9}, interval{0, 3}},
		{41, 2, 0, 1, interval{0, 9}, interval{0, 3}},
		{51, 2, 0, 2, interval{0, 9}, interval{0, 3}}, // Process does not survive this
		{61, 4, 0, 3, interval{0, 9}, interval{0, 3}},
		{90, 4, 2, 3, interval{0, 9}, interval{0, 3}},
		{91, 4, 2, 3, interval{9, 9}, interval{0, 3}},
		{never, 5, 2, 4, interval{9, 9}, interval{0, 3}},
	} {
		h := &history{Survives: holdfast.Power, Level: holdfast.Power}
		h.begin(0, 1)
		h.add(l, test.pos)
		if h.Issued != 5 || h.Bound != test.bound || h.Shown != test.shown || len(h.Acks) != test.acks || h.Offset != test.offset || h.First != test.first {
			t.Errorf("cut at %d: %+v", test.pos, h)
		}
	}
	if commits, syncs := l.perCommit(); commits != 12 || syncs != 3 {
		t.Errorf("%d commits, %d syncs", commits, syncs)
	}
	if list := l.findings(); len(list) != 0 {
		t.Errorf("%q", list)
	}

	hear(tellRefused, 0, 0, "the disk is full") // a refusal that stops nothing
	hear(tellIssued, 6, 0, "")
	hear(tellAcked, 6, uint64(holdfast.Power), "")
	hear(tellRefused, 1, 0, "stopped")
	hear(tellAcked, 6, uint64(holdfast.Power), "") // was under way
	if list := l.findings(); len(list) != 0 {
		t.Errorf("%q", list)
	}
	hear(tellIssued, 7, 0, "")
	hear(tellAcked, 7, uint64(holdfast.Power), "")
	hear(tellWrong, 0, 0, "two and two is five")
	hear(tellError, 1, 0, "no space")
	hear(tellMetrics, 1, 1<<64-1, "")
	list := strings.Join(l.findings(), "\n")
	for _, want := range []string{"batch 7 was acknowledged after a failed write", "two and two is five", "the victim failed: no space"} {
		if !strings.Contains(list, want) {
			t.Errorf("no %q in %q", want, list)
		}
	}
	if !l.full {
		t.Error("a full disk is not told")
	}
	if _, syncs := l.perCommit(); syncs != holdfast.Unknown {
		t.Errorf("%d syncs of an engine that does not tell", syncs)
	}
}

func TestGenerations(t *testing.T) {
	h := &history{}
	h.begin(0, 1)
	h.Issued, h.Bound = 90, 40
	h.begin(1, 51)
	if h.Issued != 50 || h.Bound != 40 {
		t.Errorf("%+v", h)
	}
	h.begin(2, 45) // what the second one did was taken back too
	for n, gen := range map[uint64]uint32{1: 0, 44: 0, 45: 2, 51: 2, 99: 2} {
		if got := h.generation(n); got != gen {
			t.Errorf("%d is of generation %d, want %d", n, got, gen)
		}
	}
	c := h.clone()
	c.begin(3, 10)
	if h.generation(20) != 0 || c.generation(20) != 3 {
		t.Error("a clone shares its segments")
	}
}
