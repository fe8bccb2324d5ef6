package protocol

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
)

// TestUnflushed: a write and a flush after it count between Apply and the end of Wait, and what ended after the record is not judged.
func TestUnflushed(t *testing.T) {
	var sent bytes.Buffer
	report := NewReporter(&sent)
	long := strings.Repeat("k", 3000)
	for _, w := range []Wait{
		{10, 30, "one flush"}, {21, 29, "two flushes"}, {17, 21, "begun with a write"}, {31, 40, "none"},
		{15, 22, "shared"}, {5, 9, "before all"}, {90, 101, "after the end"}, {42, 43, long},
		{19, 21, "the end of another's sync"}, {24, 29, "begun with a flush"},
	} {
		report.Waited(w)
	}
	l := &Ledger{}
	for in := bufio.NewReader(&sent); ; {
		m, err := Receive(in)
		if err != nil {
			break
		}
		l.Hear(m, 0, nil)
	}
	checked, findings := l.Unflushed([]Request{{17, false}, {18, false}, {20, true}, {23, false}, {24, true},
		{25, false}, {28, true}, {35, false}}, 100)
	if checked != 9 || len(findings) != 4 {
		t.Fatalf("%d checked, %q", checked, findings)
	}
	for i, want := range []string{`"none"`, "not flushed anything yet", `"` + long[:waitKey] + `"`, "another's sync"} {
		if !strings.Contains(findings[i], want) {
			t.Errorf("no %q in %q", want, findings[i])
		}
	}
}
