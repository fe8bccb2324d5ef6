package raftlog

import (
	"errors"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/raftlog/internal/format"
)

// encoder is the memory that one call of StoreLogs needs.
type encoder struct {
	batch holdfast.Batch
	one   [1]*raft.Log // for StoreLog
	key   []byte       // of an entry; only the index in it changes
	other []byte       // key of a stable value
	value []byte
}

// keepSize is the largest batch in bytes whose memory is kept for the next call.
const keepSize = 1 << 20

func (s *Store) free(e *encoder) {
	e.one[0] = nil
	if cap(e.batch.Bytes()) <= keepSize && cap(e.value) <= keepSize {
		s.encoders.Put(e)
	}
}

// StoreLog is StoreLogs of one entry.
func (s *Store) StoreLog(log *raft.Log) error {
	e := s.encoders.Get().(*encoder)
	defer s.free(e)
	e.one[0] = log

	return s.store(e, e.one[:])
}

// StoreLogs stores the entries, in one atomic batch, and returns when they have reached the store's
// level. An entry replaces what is at its index; of two with one index in a call, the later one
// counts. The store keeps nothing of what the caller passes.
//
// A call whose entries do not fit into one batch of the engine becomes several batches, in the order
// given; if it fails between them, or a crash comes, the first of them are stored.
//
// Errors, after which nothing was stored unless they say otherwise: ErrTooLarge for an entry over the
// engine's limit, ErrBadOption for a nil entry or the index 2^64-1, which can have no successor,
// ErrOrder in a monotonic store, ErrClosed. ErrPoisoned means that the outcome is unknown until the
// engine is opened again.
func (s *Store) StoreLogs(logs []*raft.Log) error {
	e := s.encoders.Get().(*encoder)
	defer s.free(e)

	return s.store(e, logs)
}

func (s *Store) store(e *encoder, logs []*raft.Log) error {
	if len(logs) == 0 {
		if s.life.Closed() {
			return holdfast.ErrClosed
		}

		return nil
	}
	touched, ascending, err := s.check(logs)
	if err != nil {
		return err
	}
	// Everything that takes time is done before the lock is taken.
	n, err := s.build(e, logs)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.edits(touched, ascending, n == len(logs)) {
		s.mu.Unlock()
		return s.alone(touched, func() error { return s.overwrite(e, logs, n, touched, ascending) })
	}
	err = s.place(e, logs, n, touched, ascending)
	m := s.mark()
	s.mu.Unlock()

	return s.outcome(m, err)
}

// outcome waits for m after applying it ended with err. With an error, a part may have been applied.
func (s *Store) outcome(m mark, err error) error {
	if err != nil && !inPart(err) {
		return err
	}
	if waited := s.settle(m); waited != nil {
		return waited
	}

	return err
}

// partly is the cause of an error after some entries were applied.
type partly struct{ cause error }

func (p *partly) Error() string { return p.cause.Error() }
func (p *partly) Unwrap() error { return p.cause }

func inPart(err error) bool {
	var p *partly
	return errors.As(err, &p)
}

// check finds what is wrong with the entries themselves, and the span of their indexes.
func (s *Store) check(logs []*raft.Log) (touched format.Span, ascending bool, err error) {
	touched, ascending = format.Span{Lo: noEnd}, true
	for i, log := range logs {
		if log == nil {
			return touched, false, s.fail("store", holdfast.ErrBadOption, nil, "", "entry %d of the call is nil", i)
		}
		if log.Index == noEnd {
			return touched, false, s.fail("store", holdfast.ErrBadOption, nil, "",
				"entry %d of the call has the index %d", i, log.Index)
		}
		if size := format.LogSize(log); size > s.maxValue {
			return touched, false, s.fail("store", holdfast.ErrTooLarge, nil, "use a smaller command",
				"entry %d takes %d bytes, the limit is %d", log.Index, size, s.maxValue)
		}
		if i > 0 && log.Index <= logs[i-1].Index {
			ascending = false
		}
		if s.monotonic && i > 0 && log.Index != logs[i-1].Index+1 {
			return touched, false, s.fail("store", ErrOrder, nil, "",
				"entry %d follows entry %d in the call", log.Index, logs[i-1].Index)
		}
		touched.Lo, touched.Hi = min(touched.Lo, log.Index), max(touched.Hi, log.Index)
	}

	return touched, ascending, nil
}

// build makes the batch of as many entries as fit into one, and returns their number.
func (s *Store) build(e *encoder, logs []*raft.Log) (int, error) {
	e.batch.Reset()

	for i, log := range logs {
		if size := int64(e.batch.Size()) + format.LogSize(log) + int64(len(e.key)) + 16; i > 0 && size > s.maxBatch {
			return i, nil
		}
		keyspace.SetNumber(e.key, log.Index)
		e.value = format.AppendLog(e.value[:0], e.key, log)
		e.batch.Set(e.key, e.value)
	}

	return len(logs), e.batch.Err()
}

// edits reports whether storing the entries is an edit rather than an append. It is called with mu held.
func (s *Store) edits(touched format.Span, ascending, whole bool) bool {
	p := &s.planned

	return !p.empty() && touched.Lo < p.end || // overwrites, or fills a gap
		p.dead.meets(touched) || // the dead entries must be removed first
		!ascending && !whole // the second part may overwrite the first
}

// place applies the entries, of which the first n are in e's batch. It is called with mu held. An
// error that is *partly came when some had been applied.
func (s *Store) place(e *encoder, logs []*raft.Log, n int, touched format.Span, ascending bool) error {
	if err := s.state(); err != nil {
		return err
	}
	if s.monotonic && !s.planned.empty() && touched.Lo != s.planned.end {
		return s.fail("store", ErrOrder, nil, "", "entry %d cannot follow entry %d", touched.Lo, s.planned.last())
	}

	for at := 0; at < len(logs); {
		span := format.Span{Lo: logs[at].Index, Hi: logs[n-1].Index}
		if !ascending {
			for _, log := range logs[at:n] {
				span.Lo, span.Hi = min(span.Lo, log.Index), max(span.Hi, log.Index)
			}
		}
		after := s.planned
		if after.empty() {
			after.begin, after.end = span.Lo, span.Hi+1
		} else {
			after.begin, after.end = min(after.begin, span.Lo), max(after.end, span.Hi+1)
		}
		after.fill(span)
		staged := s.staged.Load()
		if n < len(logs) {
			staged = 0 // it is stored with the last part
		}
		if staged != 0 {
			after.commit = staged - 1
		}
		s.describe(&e.batch, e, after)
		receipt, err := s.eng.Apply(&e.batch, s.level)
		if err == nil {
			s.applied(receipt, after)
			if at = n; at == len(logs) {
				s.staged.CompareAndSwap(staged, 0)
				return nil
			}
			n, err = s.build(e, logs[at:])
			n += at
		} else if errors.Is(err, holdfast.ErrTooLarge) && n-at > 1 {
			// An engine may have a limit of its own, such as for the number of operations.
			n, err = s.build(e, logs[at:at+(n-at)/2])
			n += at
		}
		if err != nil && at > 0 {
			return s.fail("store", nil, &partly{err}, "",
				"only the first %d entries of %d, up to index %d, have been stored", at, len(logs), logs[at-1].Index)
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// describe adds to b what after changes in the description and in the commit index. It is called
// with mu held.
func (s *Store) describe(b *holdfast.Batch, e *encoder, after bounds) {
	before := &s.planned
	if after.begin != before.begin || after.empty() != before.empty() || after.dead != before.dead ||
		after.void != before.void {
		e.value = format.AppendMeta(e.value[:0], s.metaKey, after.meta())
		b.Set(s.metaKey, e.value)
	}
	if after.commit != s.planned.commit {
		e.value = format.AppendCommit(e.value[:0], s.commitKey, after.commit)
		b.Set(s.commitKey, e.value)
	}
}
