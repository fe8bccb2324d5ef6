package subjects

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// claims is an engine that says of one level that it gives Power.
type claims struct {
	holdfast.Engine
	level holdfast.Level
}

func (c claims) Capabilities() holdfast.Capabilities {
	caps := c.Engine.Capabilities()
	caps.Process = holdfast.Promise{Given: holdfast.Process}
	caps.Power = holdfast.Promise{Given: c.level}
	return caps
}

func (c claims) Apply(b *holdfast.Batch, _ holdfast.Level) (holdfast.Receipt, error) {
	return c.Engine.Apply(b, holdfast.Memory)
}

// TestTimed: batches are told of that ask for power loss and surely change something, once each.
func TestTimed(t *testing.T) {
	var sent bytes.Buffer
	e := timedEngine(claims{mem.New(), holdfast.Power}, protocol.NewReporter(&sent))
	do := func(level holdfast.Level, ops ...string) {
		var b holdfast.Batch
		for i := 0; i < len(ops); i += 2 {
			if ops[i+1] == "" {
				b.Delete([]byte(ops[i]))
				continue
			}
			b.Set([]byte(ops[i]), []byte(ops[i+1]))
		}
		r, err := e.Apply(&b, level)
		if err := errors.Join(err, r.Wait(), r.Wait()); err != nil {
			t.Fatal(err)
		}
	}
	do(holdfast.Power, "new", "1")
	do(holdfast.Power, "new", "1")               // it is there
	do(holdfast.Process, "process", "1")         // it need not be flushed
	do(holdfast.Power, "new", "")                // it may have been gone
	do(holdfast.Power, "new", "1")               // somebody may have been about to set it
	do(holdfast.Power)                           // nothing
	do(holdfast.Power, "process", "1", "b", "1") // the first is there
	do(holdfast.Power, "process", "2", "c", "1") // one change is enough
	var keys []string
	for in := bufio.NewReader(&sent); ; {
		m, err := protocol.Receive(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if keys = append(keys, m.Text); m.A >= m.B {
			t.Errorf("%q: applied at %d, acknowledged at %d", m.Text, m.A, m.B)
		}
	}
	if want := []string{"new", "b", "process"}; !slices.Equal(keys, want) {
		t.Errorf("told of %q, not %q", keys, want)
	}
}
