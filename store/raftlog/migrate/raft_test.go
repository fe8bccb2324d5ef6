package migrate

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// lines is a state machine that remembers what was applied.
type lines struct {
	mu   sync.Mutex
	list []string
}

func (l *lines) Apply(log *raft.Log) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, fmt.Sprintf("%d %d %s", log.Index, log.Term, log.Data))
	return nil
}

func (l *lines) state() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

func (l *lines) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("no snapshots") }
func (l *lines) Restore(io.ReadCloser) error         { return errors.New("no snapshots") }

// node is a cluster of one server.
func node(t *testing.T, to interface {
	raft.LogStore
	raft.StableStore
}, bootstrap bool) (*raft.Raft, *lines) {
	t.Helper()
	c := raft.DefaultConfig()
	c.LocalID, c.Logger = "one", hclog.NewNullLogger()
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout, c.CommitTimeout = 100*time.Millisecond,
		100*time.Millisecond, 50*time.Millisecond, 5*time.Millisecond
	address, transport := raft.NewInmemTransport("one")
	snapshots := raft.NewInmemSnapshotStore()
	if bootstrap {
		ok(t, raft.BootstrapCluster(c, to, to, snapshots, transport,
			raft.Configuration{Servers: []raft.Server{{ID: "one", Address: address}}}))
	}
	fsm := &lines{}
	r, err := raft.NewRaft(c, fsm, to, to, snapshots, transport)
	ok(t, err)
	if !testkit.Holds(func() bool { return r.State() == raft.Leader }) {
		t.Fatal("it does not become the leader")
	}
	ok(t, r.Barrier(time.Minute).Error())
	return r, fsm
}

// TestRaftGoesOn: a server that ran on a raft-boltdb or a raft-wal goes on from what was imported: it has the same
// state and a later term, and it can go on again.
func TestRaftGoesOn(t *testing.T) {
	for _, kind := range []string{"raft-boltdb", "raft-wal"} {
		for _, engine := range []string{"logtree", "bbolt"} {
			t.Run(fmt.Sprintf("%s to %s", kind, engine), func(t *testing.T) {
				source := filepath.Join(t.TempDir(), "raft.db")
				var old both
				var err error
				if kind == "raft-wal" {
					source = t.TempDir()
					old = openWAL(t, source, 4<<10)
				} else {
					old, err = raftboltdb.NewBoltStore(source)
					ok(t, err)
				}
				r, fsm := node(t, old, true)
				for i := range 100 {
					ok(t, r.ApplyLog(raft.Log{Data: fmt.Appendf(nil, "line %d", i), Extensions: []byte{byte(i)}}, time.Minute).Error())
				}
				before := fsm.state()
				if len(before) != 100 {
					t.Fatalf("%d lines", len(before))
				}
				ok(t, r.Shutdown().Error())
				ok(t, old.Close())

				dir := t.TempDir()
				e, err := engines[engine].open(dir, holdfast.Options{})
				ok(t, err)
				result, err := Import(t.Context(), source, e, Options{})
				ok(t, err)
				if result.Entries < 102 || result.CurrentTerm == 0 ||
					fmt.Sprint(result.Keys) != "[CurrentTerm LastVoteCand LastVoteTerm]" || len(result.Notes) > 0 {
					t.Errorf("%+v", result)
				}
				for more := range 2 {
					s, err := raftlog.Open(e, raftlog.Options{})
					ok(t, err)
					term, err := s.GetUint64([]byte(currentTerm))
					ok(t, err)
					r, fsm := node(t, s, false)
					if got := fsm.state(); !slices.Equal(got, before) {
						t.Fatalf("its state is\n%q, and was\n%q", got, before)
					}
					if after, err := s.GetUint64([]byte(currentTerm)); err != nil || after <= term {
						t.Errorf("its term is %d, and was %d; %v", after, term, err)
					}
					ok(t, r.Apply(fmt.Appendf(nil, "more %d", more), time.Minute).Error())
					before = fsm.state()
					ok(t, r.Shutdown().Error())
					ok(t, s.Close())
					ok(t, e.Close())
					e, err = engines[engine].open(dir, holdfast.Options{})
					ok(t, err)
				}
				ok(t, e.Close())
			})
		}
	}
}
