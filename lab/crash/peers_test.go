package crash

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/bbolt"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/store/message"
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

// ownMessages is our own message store as that of a peer. Its spoil says what it does wrong.
type ownMessages struct {
	holdfast.Engine
	store *message.Store
	space *message.Namespace
	spoil string
}

// backAndForth is an engine of which half of the Gets answer from what was there at the last acknowledgement: a reader
// may see a batch that is not acknowledged yet, and the next reader may not.
type backAndForth struct {
	holdfast.Engine
	mu   sync.Mutex
	last holdfast.Snapshot
}

func openBackAndForth(dir string, o holdfast.Options) (holdfast.Engine, error) {
	e, err := logtree.Open(dir, o)
	return &backAndForth{Engine: e}, err
}

func (e *backAndForth) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	r, err := e.Engine.Apply(b, level)
	return holdfast.NewReceipt(acknowledges{e, r}, 0), err
}

// acknowledges is the Waiter of one batch.
type acknowledges struct {
	e *backAndForth
	r holdfast.Receipt
}

func (a acknowledges) Wait(uint64) error {
	err := a.r.Wait()
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	if now, snapErr := a.e.Engine.Snapshot(); err == nil && snapErr == nil {
		if a.e.last != nil {
			_ = a.e.last.Close()
		}
		a.e.last = now
	}
	return err
}

func (e *backAndForth) Get(dst, key []byte) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if rand.IntN(2) == 0 && e.last != nil {
		return e.last.Get(dst, key)
	}
	return e.Engine.Get(dst, key)
}

func (e *backAndForth) Close() error {
	if e.last != nil {
		_ = e.last.Close()
	}
	return e.Engine.Close()
}

// The spoils, which are also the names of peers.
const (
	faultless   = "faultless"
	showsTwice  = "shows the last message twice"
	changesData = "changes data"
	writesTwice = "writes twice"
	showsEarly  = "shows followers what is not synced yet"
)

func openOwnMessages(spoil string) opener {
	return func(dir string, o holdfast.Options) (holdfast.Engine, error) {
		base := bbolt.Open
		if spoil == showsEarly {
			base, o.Level, o.SyncEvery = logtree.Open, holdfast.Process, -1
		}
		e, err := base(dir, o)
		if err != nil {
			return nil, err
		}
		s, err := message.Open(kv.On(e), message.Options{Level: o.Level})
		if err != nil {
			return nil, errors.Join(err, e.Close())
		}
		space, err := s.Namespace(context.Background(), message.Default)
		if err != nil {
			return nil, errors.Join(err, s.Close(), e.Close())
		}
		return &ownMessages{e, s, space, spoil}, nil
	}
}

func (m *ownMessages) Close() error { return errors.Join(m.store.Close(), m.Engine.Close()) }

func (m *ownMessages) Write(ctx context.Context, stream, id, typ string, data, metadata []byte, expected *int64) (
	int64, error) {
	if m.spoil == writesTwice {
		id, expected = "", nil
	}
	msg := message.Message{ID: id, Type: typ, Data: data, Metadata: metadata}
	var r message.Result
	var err error
	if expected != nil {
		r, err = m.space.WriteAfter(ctx, stream, *expected, msg)
	} else {
		r, err = m.space.Write(ctx, stream, msg)
	}
	if err == nil && m.spoil == showsEarly {
		time.Sleep(20 * time.Millisecond)
		err = m.Sync()
	}
	if err != nil {
		return 0, err
	}
	return r.Position, nil
}

func (m *ownMessages) read(ctx context.Context, q message.Query, yield func(message.Message) error) error {
	for msg, err := range m.space.Read(ctx, q) {
		if err != nil {
			return err
		}
		if m.spoil == showsTwice && msg.Global == m.space.Last() {
			if err := yield(msg); err != nil {
				return err
			}
		}
		if m.spoil == changesData {
			msg.Data = append(msg.Data, ' ')
		}
		if err := yield(msg); err != nil {
			return err
		}
	}
	return nil
}

func (m *ownMessages) ReadStream(ctx context.Context, stream string, from int64, limit int,
	yield func(int64, []byte) error) error {
	return m.read(ctx, message.Query{Stream: stream, From: from, Limit: limit},
		func(msg message.Message) error { return yield(msg.Position, msg.Data) })
}

func (m *ownMessages) ReadCategory(ctx context.Context, category string, from int64, limit, member, size int,
	yield func(int64, string, []byte) error) error {
	q := message.Query{Category: category, From: from, Limit: limit, Group: message.Group{Member: member, Size: size}}
	return m.read(ctx, q, func(msg message.Message) error { return yield(msg.Global, msg.Stream, msg.Data) })
}

func (m *ownMessages) Follow(ctx context.Context, category string, from int64, yield func(int64, []byte) bool) error {
	for msg, err := range m.space.Follow(ctx, message.Query{Category: category, From: from}) {
		if err != nil || !yield(msg.Global, msg.Data) {
			return err
		}
	}
	return nil
}
