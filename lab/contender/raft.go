package contender

import (
	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// OpenRaft returns the Raft store on e whose writes survive what level names (0 means Power), and what closes it: a peer's own
// store, else a raftlog.Store. Closing the store leaves e open. The error is ErrLevel where e does not give level.
func OpenRaft(e holdfast.Engine, level holdfast.Level) (store RaftStore, closeStore func() error, err error) {
	if level == 0 {
		level = holdfast.Power
	}
	if err := e.Capabilities().CheckLevel(level); err != nil {
		return nil, nil, err
	}
	if peer, ok := e.(RaftEngine); ok {
		return peer.RaftStore(), func() error { return nil }, nil
	}
	s, err := raftlog.Open(e, raftlog.Options{Level: level})
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}
