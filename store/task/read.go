package task

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"

	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// full returns what is known of a task.
func (s *Store) full(t *task) (Task, error) {
	out := Task{Spec: Spec{ID: t.id(), Queue: t.Queue, Kind: t.Kind, Payload: slices.Clone(t.Payload),
		Priority: t.Priority,
		At:       date(t.At), Key: t.Key, Sequence: t.Sequence, Unique: t.Unique, UniqueFor: t.UniqueFor,
		MaxAttempts: t.MaxAttempts, Backoff: Backoff{t.First, t.Max}, Keep: t.Keep},
		State: t.state(), Attempt: t.Attempt, Created: date(t.Created), Due: date(t.Due), Started: date(t.Started),
		Finished: date(t.Finished), Worker: t.Worker, Output: slices.Clone(t.Output)}
	if t.state() == Running {
		out.LeaseUntil = date(t.Until)
	}
	for _, f := range t.Failures {
		out.Failures = append(out.Failures, Failure{f.Attempt, date(f.Time), f.Message, f.Stack})
	}
	for _, part := range []struct {
		flag, table byte
		into        *[]byte
	}{{format.BigPayload, format.TablePayloads, &out.Payload}, {format.BigOutput, format.TableOutputs, &out.Output}} {
		if t.Flags&part.flag == 0 {
			continue
		}
		value, err := s.get(s.keys.Of(nil, part.table, t.num))
		if err != nil {
			return out, err
		}
		if value == nil {
			return out, s.strange("read", "the payload or output of task %s is not there", t.id())
		}
		*part.into = value
	}
	before, err := s.before(t)
	for _, b := range before {
		out.After = append(out.After, cmp.Or(b.ID, makeID(b.Task)))
	}
	return out, err
}

// Get returns what is known of a task. What it shows has been decided, and may not have reached the store's level yet.
// ErrNotFound: there is none with that id.
func (s *Store) Get(ctx context.Context, id string) (Task, error) {
	if err := s.enter(ctx); err != nil {
		return Task{}, err
	}
	defer s.leave()
	t, err := s.find("get", id)
	if err != nil {
		return Task{}, err
	}
	return s.full(t)
}

// ClaimBytes is about how many bytes of payloads, outputs and failures a claim, or a list of tasks, has at most. One
// task is returned whatever its size.
const ClaimBytes = 8 << 20

var claimBytes = ClaimBytes // tests have fewer

// cursor returns where a list goes on behind p.
func (s *Store) cursor(p *format.Place) string {
	return base64.RawURLEncoding.EncodeToString(s.keys.Rest(s.keys.Index(nil, p)))
}

// runningFrom returns where up to most running tasks of a queue are listed, from a key of the index on. They are all in
// memory, and come and go in the middle of their part of the index.
func (s *Store) runningFrom(q *queue, from []byte, most int) (found []format.Place) {
	for _, h := range s.running {
		if h.Queue == q.name {
			found = append(found, h.place())
		}
	}
	slices.SortFunc(found, func(a, b format.Place) int { return cmp.Compare(a.Task, b.Task) })
	i, _ := slices.BinarySearchFunc(found, from, func(p format.Place, from []byte) int {
		return bytes.Compare(s.keys.Index(nil, &p), from)
	})
	return found[i:][:min(most, len(found)-i)]
}

// List returns tasks that match a filter, and the cursor of the next list, "" if there are no more. Where payloads
// are large they are fewer than Limit. They come queue by queue, shorter names first, and in each in the order of
// States; waiting ones by key and in the order in which they may be claimed, scheduled ones by when they are due,
// finished ones by when they are to be removed. Tasks that change while a list is read in parts may be in it twice or
// not at all. ErrNotFound: there is no such queue. ErrBadOption: there is no such state, the limit is over 1000, or
// the cursor is not from a list.
func (s *Store) List(ctx context.Context, f Filter) (tasks []Task, next string, err error) {
	if f.Limit < 0 || f.Limit > 1000 {
		return nil, "", s.bad("list", "a limit of %d", f.Limit)
	}
	if f.State != 0 && !f.State.valid() {
		return nil, "", s.bad("list", "there is no state %d", f.State)
	}
	cursor, err := base64.RawURLEncoding.DecodeString(f.Cursor)
	if _, ok := s.keys.Place(cursor); err != nil || f.Cursor != "" && !ok {
		return nil, "", s.bad("list", "the cursor %.80q is not from a list", f.Cursor)
	}
	if err := s.enter(ctx); err != nil {
		return nil, "", err
	}
	defer s.leave()
	var queues []*queue
	if f.Queue != "" {
		q, err := s.lookUp("list", f.Queue)
		if err != nil {
			return nil, "", err
		}
		queues = append(queues, q)
	} else {
		for _, q := range s.queues {
			queues = append(queues, q)
		}
		slices.SortFunc(queues, func(a, b *queue) int {
			return cmp.Or(len(a.name)-len(b.name), strings.Compare(a.name, b.name))
		})
	}
	limit := cmp.Or(f.Limit, 100)
	from := s.keys.Key(nil, format.TableIndex, string(cursor))
	if f.Cursor != "" {
		from = append(from, 0)
	}
	var found []format.Place
	for _, q := range queues {
		for _, state := range States() {
			most := min(q.counts[state], limit+1-len(found))
			if most == 0 || f.State != 0 && f.State != state {
				continue // without a look at what engines keep of removed keys
			}
			r := holdfast.Prefix(s.keys.Listed(q.name, byte(state)))
			if bytes.Compare(from, r.Lo) > 0 {
				r.Lo = from
			}
			if bytes.Compare(r.Lo, r.Hi) >= 0 {
				continue
			}
			if state == Running {
				found = append(found, s.runningFrom(q, r.Lo, most)...)
				continue
			}
			if err := s.scan(r.Lo, r.Hi, most, func(rest, _ []byte) error {
				p, ok := s.keys.Place(rest)
				if !ok {
					return s.strange("list", "the index has a key %q", rest)
				}
				found = append(found, p)
				return nil
			}); err != nil {
				return nil, "", err
			}
		}
		if len(found) > limit {
			found = found[:limit]
			next = s.cursor(&found[limit-1])
			break
		}
	}
	size := 0
	for i, p := range found {
		t, err := s.listed(p)
		if err != nil {
			return nil, "", err
		}
		full, err := s.full(t)
		if err != nil {
			return nil, "", err
		}
		tasks = append(tasks, full)
		if size += full.bytes(); size >= claimBytes && i < len(found)-1 {
			next = s.cursor(&p)
			break
		}
	}
	return tasks, next, nil
}
