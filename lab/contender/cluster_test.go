package contender

import (
	"context"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
)

// What a message store on three nodes has acknowledged is there when it is opened again, and ids are known.
func TestMessagesOnThreeNodes(t *testing.T) {
	t.Parallel() // it waits
	for _, c := range Clusters() {
		if !c.Messages {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if p := c.Describe().Quorum; p.Given == 0 {
				t.Skip(p.Why)
			}
			t.Parallel() // it waits
			testOnThreeNodes(t, c.Entry)
		})
	}
}

func testOnThreeNodes(t *testing.T, entry all.Entry) {
	dir := t.TempDir()
	var last int64
	for n := range int64(2) {
		e, err := entry.Open(dir, holdfast.Options{Level: holdfast.Quorum})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Capabilities().Promise(holdfast.Quorum).Given; got != holdfast.Quorum {
			t.Errorf("it gives %v", got)
		}
		if err := e.Sync(); err != nil {
			t.Error(err)
		}
		m := e.(MessagesEngine)
		id := []string{"00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-000000000002"}[n]
		for range 2 { // the second time it is there
			if last, err = m.Write(context.Background(), "a-1", id, "T", []byte(`{"n":1}`), nil, nil); err != nil || last != n {
				t.Errorf("position %d, %v, want %d", last, err, n)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := entry.Open(t.TempDir(), holdfast.Options{Level: holdfast.Power}); err == nil {
		t.Error("it is opened at power")
	}
}
