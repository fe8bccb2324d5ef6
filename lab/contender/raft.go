package contender

import (
	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// OpenRaft returns the Raft store on e whose writes survive what o.Level names (0 means Power), and what closes it: a
// peer's own store, for which the other options play no part, else a raftlog.Store. Closing the store leaves e open.
// The error is ErrLevel where e does not give the level.
func OpenRaft(e holdfast.Engine, o raftlog.Options) (store RaftStore, closeStore func() error, err error) {
	if o.Level == 0 {
		o.Level = holdfast.Power
	}
	if err := e.Capabilities().CheckLevel(o.Level); err != nil {
		return nil, nil, err
	}
	if peer, ok := e.(RaftEngine); ok {
		return peer.RaftStore(), func() error { return nil }, nil
	}
	s, err := raftlog.Open(e, o)
	if err != nil {
		return nil, nil, err
	}

	return s, s.Close, nil
}

// KeyMissing reports whether err is how Get and GetUint64 of a [RaftStore] say that a key is not there. It goes by the
// text, as hashicorp/raft does: each library has a value of its own. Stores that answer nil without an error say it by
// that.
func KeyMissing(err error) bool { return err != nil && err.Error() == raftlog.ErrKeyNotFound.Error() }
