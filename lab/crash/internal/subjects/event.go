package subjects

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/event"
)

// Event is package store/event: appends through several writers, a follower that tells what it was
// shown, offsets, and truncation.
var Event = Subject{
	Name: "event", About: "the event store: appends, a follower, offsets, truncation",
	work: eventWork, read: eventRead, judge: eventJudge,
}

// follower is the subscription whose offset is saved.
const follower = "follower"

// appended makes the events of the append that begins at position first.
func (p script) appended(gen uint32, first uint64) []event.Event {
	r := p.Random(gen, first)
	list := make([]event.Event, 1+r.IntN(4))
	for i := range list {
		n := first + uint64(i)
		size := commits.HeaderSize + r.IntN(200)
		if r.IntN(60) == 0 {
			size += r.IntN(100 << 10)
		}
		id := ""

		// With ids the store remembers the append, so that a repeat is found out.
		if first%3 == 0 {
			id = fmt.Sprintf("%d-%d", gen, n)
		}
		list[i] = event.Event{
			Type: fmt.Sprintf("type-%d", n%5), ID: id, Origin: fmt.Sprint(gen), Time: time.Unix(0, int64(n)),
			Data: p.Value(nil, "event", commits.Written{N: n, Gen: gen, Size: size}),
		}
	}

	return list
}

// eventWork appends through several writers, while others follow, read the end and truncate, until stop is closed.
func eventWork(w *worker, e holdfast.Engine, stop <-chan struct{}) (err error) {
	s, err := event.Open(kv.On(e), event.Options{Level: w.spec.Level})
	if err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	defer func() { err = errors.Join(err, w.failure(s.Close(), "closing the store")) }()
	if s.Last()+1 != w.next {
		// The store is closed before it is opened again, or a check has seen what is there.
		w.wrong("the log ends with position %d, not with %d", s.Last(), w.next-1)
		return nil
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	given := e.Capabilities().Promise(w.spec.Level).Given
	p := scriptOf(w.spec.Seed)
	var group, readers sync.WaitGroup
	for range w.spec.Writers {
		w.start(&group, func() error {
			for !stopped(stop) {
				w.pace()
				w.mu.Lock()
				first := w.next
				list := p.appended(w.spec.Gen, first)
				last := first + uint64(len(list)) - 1
				w.next = last + 1
				w.report.Send(protocol.TellIssued, last, 0)

				// Number, report and place are taken under one lock, so that positions have the order of the numbers.
				pending, err := s.Submit(ctx, list...)
				w.mu.Unlock()

				for i := range list {
					w.spent.Add(int64(len(list[i].Data) + 100))
				}

				// Some appends are not waited for. They may be lost, and must not break the order.
				if err == nil && first%13 == 0 {
					continue
				}
				var at event.Result
				if err == nil {
					at, err = pending.Wait()
				}
				if err != nil {
					if !w.refused(err) {
						return fmt.Errorf("appending at position %d: %w", first, err)
					}
					continue
				}
				if at.First != first || at.Last != last || at.Repeated {
					w.wrong("an append of positions %d to %d was told %+v", first, last, at)
				}
				w.acked(last, given)
			}

			return nil
		})
	}

	// The follower: what it is shown must survive as if it had been acknowledged, so that is told.
	w.start(&readers, func() error {
		// It goes on behind what it had saved before the crash.
		offset, err := s.LoadOffset(ctx, follower)
		if ctx.Err() != nil {
			return nil // stopped before it began
		}
		if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
			return fmt.Errorf("loading the offset: %w", err)
		}

		// What was truncated meanwhile cannot be shown any more.
		next := max(s.First(), offset+1)
		for e, err := range s.Follow(ctx, next) {
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, event.ErrTruncated) {
				return nil // it was too slow
			}
			if err != nil {
				return w.failure(err, "following")
			}
			if e.Position != next {
				w.wrong("a follower was shown position %d, not %d", e.Position, next)
			}
			next++
			w.report.Send(protocol.TellShown, e.Position, uint64(given))

			// The intent is told before the offset is saved: after a crash either value is right.
			if e.Position%32 == 0 {
				w.report.Send(protocol.TellSaved, e.Position, 0)
				if err := s.SaveOffset(ctx, follower, e.Position); err != nil {
					if ctx.Err() != nil || w.refused(err) {
						return nil
					}

					return fmt.Errorf("saving an offset: %w", err)
				}
				w.report.Send(protocol.TellSaved, e.Position, uint64(given))
			}
		}

		return nil
	})

	// The reader of the end: it must never see the log end earlier than before.
	w.start(&readers, func() error {
		for shown := uint64(0); w.rest(stop, 3*time.Millisecond); {
			for e, err := range s.Events(ctx, max(s.First(), s.Last()), 0) { // those of the last moment
				if errors.Is(err, event.ErrTruncated) {
					break
				}
				if err != nil {
					if ctx.Err() != nil || w.refused(err) {
						return nil
					}

					return fmt.Errorf("reading the last events: %w", err)
				}
				if e.Position < shown {
					w.wrong("position %d was the last one, and then %d is", shown, e.Position)
				}
				shown = e.Position
				w.report.Send(protocol.TellShown, shown, uint64(given))
			}
		}

		return nil
	})

	// The truncation: half of what is kept stays, so that followers are not overtaken all the time.
	w.start(&readers, func() error {
		for w.rest(stop, 70*time.Millisecond) {
			last := s.Last()
			if last < 2*kept {
				continue
			}
			first := last - kept

			// The intent is told first, as for the offset: after a crash either beginning is right.
			w.report.Send(protocol.TellCut, first, 0)
			if _, err := s.TruncateBefore(ctx, first); err != nil {
				if ctx.Err() != nil || w.refused(err) {
					return nil
				}

				return fmt.Errorf("truncating: %w", err)
			}
			w.report.Send(protocol.TellCut, first, uint64(given))
		}

		return nil
	})

	// Writers end first. The readers would otherwise wait for events that nobody appends.
	group.Wait()
	cancel()
	readers.Wait()

	return nil
}

// The entries that are no events.
const (
	entryFirst  = "first"
	entryOffset = "offset"
)

// eventRead tells where the log begins, the saved offset, and all events in order.
func eventRead(c *check, e holdfast.Engine, emit func(commits.Found)) error {
	s, err := event.Open(kv.On(e), event.Options{Level: c.spec.Level})
	if err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	ctx := context.Background()
	read := func() error {
		emit(commits.Found{Key: entryFirst, N: s.First()})
		offset, err := s.LoadOffset(ctx, follower)
		if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
			return err
		}
		emit(commits.Found{Key: entryOffset, N: offset})

		next := s.First()
		for ev, err := range s.Events(ctx, s.First(), 0) {
			if err != nil {
				return err
			}
			if ev.Position != next {
				c.wrong("position %d follows %d", ev.Position, next-1)
			}
			next = ev.Position + 1
			emit(eventEntry(ev))
		}
		if next != s.Last()+1 {
			c.wrong("the log says it ends with position %d, but reading ends with %d", s.Last(), next-1)
		}

		return nil
	}

	return errors.Join(read(), s.Close())
}

// eventEntry describes an event; its digest covers all of it.
func eventEntry(e event.Event) commits.Found {
	text := fmt.Appendf(nil, "%q %q %q %d %q ", e.Type, e.ID, e.Origin, e.Time.UnixNano(), e.Metadata)
	found := commits.NewFound(fmt.Sprintf("e/%d", e.Position), e.Data)
	found.N = e.Position
	found.Sum = commits.DigestOf(append(text, e.Data...))

	return found
}

// eventJudge walks through the appends that were made and compares.
func eventJudge(h *protocol.History, found []commits.Found) protocol.Judgement {
	var (
		j protocol.Judgement
		v = commits.Verdict{Missing: map[uint64]bool{}}
	)

	// What was appended follows from the seed and the generations, so it is made again and compared, append by append.
	p := scriptOf(h.Seed)
	first, offset := uint64(1), uint64(0)
	there := map[uint64]commits.Found{}
	for _, e := range found {
		switch e.Key {
		case entryFirst:
			first = e.N
		case entryOffset:
			offset = e.N
		default:
			there[e.N] = e
			v.Last = max(v.Last, e.N)
		}
	}

	// Where all was truncated no event is left, and the first position says how far the log had come.
	if first > 0 {
		v.Last = max(v.Last, first-1)
	}

	for n := uint64(1); n <= v.Last; {
		if n > h.Issued {
			v.Find(commits.Wrong, "positions from %d to %d are there, which were never appended", n, v.Last)
			break
		}

		gen := h.Generation(n)
		list := p.appended(gen, n)
		last := n + uint64(len(list)) - 1
		inside, gone := 0, 0
		for i := range list {
			at := n + uint64(i)

			// Positions before the first one were truncated. That may have cut an append in the middle.
			if at < first {
				inside++
				continue
			}
			e, ok := there[at]
			list[i].Position = at
			want := eventEntry(list[i])
			switch {
			case !ok:
				gone++
			case e != want:
				v.Find(commits.Wrong, "position %d does not hold what was appended there: %v instead of %v", at, e, want)
				inside++
			default:
				inside++
			}
		}

		switch {
		// An append is there whole or not at all, and if it is not, nothing behind it may be.
		case gone > 0 && inside > 0:
			v.Find(commits.Torn, "the append of positions %d to %d is there in part: %d events are missing", n, last, gone)
		case gone > 0:
			v.Find(commits.OutOfOrder, "positions %d to %d are missing, but %d is there", n, last, v.Last)
		}
		if gone > 0 {
			for i := n; i <= last; i++ {
				v.Missing[i] = true
			}
		}
		n = last + 1
	}

	within := func(what string, got uint64, want protocol.Interval) {
		if got < want.Low || got > max(want.High, want.Low) {
			v.Find(commits.Wrong, "%s is %d, and must be from %d to %d", what, got, want.Low, max(want.High, want.Low))
		}
	}

	// A first position, or an offset, that was only begun to be set may be there or not.
	within("the first position", first, protocol.Interval{Low: max(h.First.Low, 1), High: max(h.First.High, 1)})
	within("the saved offset", offset, h.Offset)

	// An offset is saved when its event was shown, and what was shown survives.
	if offset > v.Last {
		v.Find(commits.Wrong, "the saved offset is %d, but the log ends with %d", offset, v.Last)
	}
	j.Settle(h, v)

	return j
}
