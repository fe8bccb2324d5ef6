package kv

import (
	"testing"

	"github.com/holdfastdb/holdfast"
)

// What the engine may not show yet is kept, whatever was settled before it.
func TestPending(t *testing.T) {
	var p pending
	for commit := uint64(1); commit <= 100; commit++ {
		var top layer
		top.set(holdfast.Op{Kind: holdfast.KindSet, Key: []byte{byte(commit)}, Value: []byte{1}})
		p.add(commit, top, new(holdfast.Batch))
		if commit%3 == 0 { // it is known late, and twice
			p.settled(commit - 2)
			p.settled(commit - 2)
		}
		for c := commit - commit%3 - 1; commit >= 4 && c <= commit; c++ {
			_, old := p.old.get([]byte{byte(c)})
			_, young := p.new.get([]byte{byte(c)})
			if !old && !young {
				t.Fatalf("after commit %d, commit %d is not kept", commit, c)
			}
		}
	}
	if p.settled(100); p.size() > 0 {
		t.Errorf("%d bytes are kept of what is settled", p.size())
	}
}
