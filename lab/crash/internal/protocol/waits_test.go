package protocol

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestUnflushed: a flush counts between Apply and the end of Wait, and what ended after the record is not judged.
func TestUnflushed(t *testing.T) {
	var sent bytes.Buffer
	report := NewReporter(&sent)
	long := strings.Repeat("k", 3000)
	for _, w := range []Wait{
		{10, 30, "one flush"}, {21, 29, "two flushes"}, {20, 21, "begun with a flush"}, {31, 40, "none"},
		{15, 22, "shared"}, {5, 9, "before all"}, {90, 101, "after the end"}, {42, 43, long},
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
	checked, findings := l.Unflushed([]time.Duration{20, 24, 28}, 100)
	if checked != 7 || len(findings) != 3 {
		t.Fatalf("%d checked, %q", checked, findings)
	}
	for i, want := range []string{`"none"`, "not flushed anything yet", `"` + long[:waitKey] + `"`} {
		if !strings.Contains(findings[i], want) {
			t.Errorf("no %q in %q", want, findings[i])
		}
	}
}
