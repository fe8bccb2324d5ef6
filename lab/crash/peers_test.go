package crash

import (
	"errors"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// spoiltRaft is a peer that breaks one thing each time it is opened.
type spoiltRaft struct {
	holdfast.Engine
	store *raftlog.Store
}

func (s spoiltRaft) RaftStore() contender.RaftStore { return s.store }

func (s spoiltRaft) Close() error { return errors.Join(s.store.Close(), s.Engine.Close()) }

// fullRaft takes no entries, as raft-wal does after a kill at the wrong moment.
type fullRaft struct{ spoiltRaft }

func (s fullRaft) RaftStore() contender.RaftStore { return takesNoMore{s.store} }

type takesNoMore struct{ *raftlog.Store }

var errNoMore = errors.New("it takes no more")

func (takesNoMore) StoreLog(*raft.Log) error    { return errNoMore }
func (takesNoMore) StoreLogs([]*raft.Log) error { return errNoMore }

// spoils are the things, by the name of the peer; nil is taking no more entries once it is opened again.
var spoils = map[string]func(s *raftlog.Store) error{
	"takes no more": nil,
	"forgets the vote": func(s *raftlog.Store) error {
		if n, err := s.GetUint64([]byte("LastVoteTerm")); err != nil || n == 0 {
			return nil // nothing yet
		}
		return s.SetUint64([]byte("LastVoteTerm"), 0)
	},
	"forgets the term": func(s *raftlog.Store) error {
		n, err := s.GetUint64([]byte("CurrentTerm"))
		if err != nil {
			return nil // nothing yet
		}
		return s.SetUint64([]byte("CurrentTerm"), n+1<<40)
	},
	"resurrects": func(s *raftlog.Store) error {
		return changeLast(s, func(l *raft.Log) { l.Index += 2 })
	},
	"mixes up": func(s *raftlog.Store) error {
		return changeLast(s, func(l *raft.Log) { l.Data = append(l.Data, 'x') })
	},
	"leaves a hole": func(s *raftlog.Store) error {
		first, err := s.FirstIndex()
		if err != nil {
			return err
		}
		last, err := s.LastIndex()
		if err != nil || last-first < 3 {
			return err
		}
		return s.DeleteRange(last-1, last-1)
	},
	"shortens": func(s *raftlog.Store) error {
		last, err := s.LastIndex()
		if last == 0 || err != nil {
			return err
		}
		return s.DeleteRange(last, last)
	},
}

// changeLast stores a changed copy of the last entry, if there is one.
func changeLast(s *raftlog.Store, change func(*raft.Log)) error {
	last, err := s.LastIndex()
	if last == 0 || err != nil {
		return err
	}
	var l raft.Log
	if err := s.GetLog(last, &l); err != nil {
		return err
	}
	change(&l)
	return s.StoreLog(&l)
}
