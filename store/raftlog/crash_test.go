package raftlog_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// script is a sequence of operations like raft's, of which each follows from a seed, its number and
// the bounds of the log before it.
type script struct {
	seed        uint64
	n           uint64 // operations so far
	first, last uint64
}

// operation is one of them, for a store and for its model.
type operation struct {
	name  string
	store func(*raftlog.Store) error
	model func(*model)
}

// next returns the next operation.
func (s *script) next() operation {
	s.n++
	n, first, last := s.n, s.first, s.last
	r := rand.New(rand.NewPCG(s.seed, n))
	put := func(logs []*raft.Log) operation {
		if s.last == 0 {
			s.first = logs[0].Index
		}
		s.last = max(s.last, logs[len(logs)-1].Index)
		commit, staged := logs[0].Index, r.IntN(2) == 0
		return operation{fmt.Sprintf("store %d to %d", logs[0].Index, logs[len(logs)-1].Index),
			func(st *raftlog.Store) error {
				if staged {
					if err := st.StageCommitIndex(commit); err != nil {
						return err
					}
				}
				return st.StoreLogs(logs)
			},
			func(m *model) {
				if staged {
					m.staged = &commit
				}
				_ = m.store(logs)
			}}
	}
	cut := func(lo, hi uint64) operation {
		switch {
		case lo <= first && hi >= last:
			s.first, s.last = 0, 0
		case lo <= first:
			s.first = hi + 1
		default:
			s.last = lo - 1
		}
		return operation{fmt.Sprintf("delete %d to %d", lo, hi),
			func(st *raftlog.Store) error { return st.DeleteRange(lo, hi) },
			func(m *model) { _ = m.remove(lo, hi) }}
	}
	what := r.IntN(100)
	long := last-first > 40
	switch {
	case what < 15:
		return operation{fmt.Sprintf("set the term to %d", n),
			func(st *raftlog.Store) error { return st.SetUint64([]byte("CurrentTerm"), n) },
			func(m *model) { m.stable["CurrentTerm"] = string(binary.BigEndian.AppendUint64(nil, n)) }}
	case what < 25 && long:
		return cut(last-r.Uint64N(10), last+r.Uint64N(2)) // a conflict
	case what < 33 && long:
		return cut(first-min(first, r.Uint64N(2)), last-10-r.Uint64N(20)) // after a snapshot
	case what < 35 && last > 0:
		return cut(0, last) // after a snapshot was restored
	case what < 39 && long:
		at := last - r.Uint64N(10)
		return put(entries(at, at+r.Uint64N(20), n)) // an overwrite
	case what < 43 && last > 0:
		return put(entries(last+5_000, last+5_010, n)) // a gap
	}
	return put(entries(last+1, last+1+r.Uint64N(20), n))
}

// The bounds that a script keeps leave gaps out of account; the log's own are taken before each
// operation.
func (s *script) at(first, last uint64) { s.first, s.last = first, last }

// run does operations on a store until it fails, and tells each that succeeded.
func (s *script) run(st *raftlog.Store, did func(n uint64)) error {
	for {
		first, err := st.FirstIndex()
		if err != nil {
			return err
		}
		last, err := st.LastIndex()
		if err != nil {
			return err
		}
		s.at(first, last)
		if err := s.next().store(st); err != nil {
			return err
		}
		did(s.n)
	}
}

// follow does operations on the model, up to number n, and returns their names.
func (s *script) follow(m *model, n uint64) (names []string) {
	for s.n < n {
		s.at(m.bounds())
		o := s.next()
		o.model(m)
		names = append(names, o.name)
	}
	return names
}

// resume brings script and model, which are behind, to the state that a store is found in: after
// acked operations or one more.
func (s *script) resume(m *model, acked uint64, st *raftlog.Store) error {
	names := s.follow(m, acked)
	m.staged = nil
	without := m.differs(st)
	if without == nil {
		return nil
	}
	names = append(names, s.follow(m, acked+1)...)
	m.staged = nil
	if with := m.differs(st); with != nil {
		return fmt.Errorf("after operation %d of seed %d the store is neither as then (%v) nor as after the next one (%v); "+
			"the last ones are %q",
			acked, s.seed, without, with, names[max(0, len(names)-5):])
	}
	return nil
}

// child runs a script and votes at the same time, reads what it has written, and tells its parent what was
// acknowledged, one line each:
//
//	o NUMBER   the operation
//	v NUMBER   the vote
//
// Its arguments are the script's seed, and the last operation and vote there are.
func child(c *storetest.Child) {
	var vote uint64
	var sc script
	_, err := fmt.Sscan(c.Args, &sc.seed, &sc.n, &vote)
	c.Check(err)
	s, err := raftlog.Open(c.Engine, raftlog.Options{Level: c.Level})
	c.Check(err)
	s.SmallChunks(3) // so that most deletions are killed between two of them
	voter, err := raftlog.Open(c.Engine, raftlog.Options{Level: c.Level, Name: "voter"})
	c.Check(err)
	go func() {
		for {
			vote++
			c.Check(voter.SetUint64([]byte("LastVoteTerm"), vote))
			c.Say("v %d", vote)
		}
	}()
	go func() {
		var log raft.Log
		for {
			last, err := s.LastIndex()
			if err == nil {
				err = s.GetLog(last, &log)
			}
			if err == nil {
				err = same(&log, entry(last, log.Term))
			}
			if err != nil && err != raft.ErrLogNotFound {
				c.Fail(err)
			}
		}
	}()
	c.Fail(sc.run(s, func(n uint64) { c.Say("o %d", n) }))
}

// TestKill kills processes in the middle of their work, and checks what their successor finds
// against what they had said.
func TestKill(t *testing.T) {
	storetest.Survivors(t, func(t *testing.T, tg *target, r *rand.Rand) {
		m, sc, vote := newModel(), script{seed: r.Uint64()}, uint64(0)
		for range 3 {
			acked, voted := kill(t, tg, sc, vote, time.Duration(20+r.IntN(250))*time.Millisecond)
			sc, vote = checkKilled(t, tg, sc, m, acked, voted)
		}
		if sc.n == 0 || vote == 0 {
			t.Fatalf("%d operations, %d votes: nothing was tested", sc.n, vote)
		}
	})
}

// kill starts a child, kills it when it has been working for that long, and returns what it said.
func kill(t *testing.T, tg *target, sc script, vote uint64, after time.Duration) (acked, voted uint64) {
	t.Helper()
	acked, voted = sc.n, vote
	storetest.Kill(t, tg, fmt.Sprint(sc.seed, sc.n, vote), after, func(line string) bool {
		var kind string
		var n uint64
		fmt.Sscan(line, &kind, &n)
		switch kind {
		case "o":
			acked = n
		case "v":
			voted = n
		default:
			t.Errorf("the child said %q", line)
		}
		return acked > 0 && voted > 0
	})
	return acked, voted
}

// checkKilled returns where the next child goes on.
func checkKilled(t *testing.T, tg *target, sc script, m *model, acked, voted uint64) (script, uint64) {
	t.Helper()
	tg.Open(t)
	defer tg.Close(t)
	s := openStore(t, tg.Engine, raftlog.Options{Level: tg.Level})
	defer closeStore(t, s)
	try(t, sc.resume(m, acked, s))
	voter := openStore(t, tg.Engine, raftlog.Options{Level: tg.Level, Name: "voter"})
	defer closeStore(t, voter)
	vote, err := voter.GetUint64([]byte("LastVoteTerm"))
	if err != nil && (err != raftlog.ErrKeyNotFound || voted > 0) || vote < voted {
		t.Fatalf("the vote is %d, %v, and %d was acknowledged", vote, err, voted)
	}
	return sc, vote
}

// TestCrashImages cuts the power under logtree, or kills it, at any moment, and opens what is left: it is the state
// after the operations that were acknowledged, or one more.
func TestCrashImages(t *testing.T) {
	storetest.CrashImages(t, 60, func(seed uint64, level holdfast.Level) error {
		m, sc, o, acked := newModel(), script{seed: seed}, raftlog.Options{Level: level}, uint64(0)
		return storetest.CrashImage(seed, level, func(e holdfast.Engine, _ *rand.Rand) error {
			acked = sc.n
			s, err := raftlog.Open(e, o)
			if err != nil {
				return err
			}
			running := sc
			return errors.Join(running.run(s, func(n uint64) { acked = n }), s.Close())
		}, func(e holdfast.Engine) error {
			s, err := raftlog.Open(e, o)
			if err != nil {
				return err
			}
			return errors.Join(sc.resume(m, acked, s), s.Close())
		})
	})
}
