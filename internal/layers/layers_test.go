package layers

import (
	"testing"

	"github.com/holdfastdb/holdfast"
)

// What the engine may not show yet is kept, whatever was settled before it.
func TestPending(t *testing.T) {
	var p Pending
	for commit := uint64(1); commit <= 100; commit++ {
		var b holdfast.Batch
		b.Set([]byte{byte(commit)}, []byte{1})
		p.Add(commit, &b)
		if commit%3 == 0 { // it is known late, and twice
			p.Settled(commit - 2)
			p.Settled(commit - 2)
		}
		for c := commit - commit%3 - 1; commit >= 4 && c <= commit; c++ {
			_, old := p.old.get([]byte{byte(c)})
			_, young := p.new.get([]byte{byte(c)})
			if !old && !young {
				t.Fatalf("after commit %d, commit %d is not kept", commit, c)
			}
		}
	}
	if p.Settled(100); p.size() > 0 {
		t.Errorf("%d bytes are kept of what is settled", p.size())
	}
}
