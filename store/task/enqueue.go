package task

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/names"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// Enqueue adds tasks, all in one commit or none, and returns when they have reached the store's level. Their order is
// that of the specs.
//
// Errors, which name the spec: ErrBadOption, ErrTooLarge; ErrExists for an id that a task has; ErrNotFound for a task
// in After that is not there; ErrState for one that is cancelled or dead; ErrCycle.
func (s *Store) Enqueue(ctx context.Context, specs ...Spec) ([]Result, error) {
	if err := s.check(specs); err != nil {
		return nil, err
	}
	var results []Result
	err := s.change(ctx, func(x *tx) (err error) {
		if results, err = x.enqueue(specs); err == nil && x.unchanged() {
			err = x.barrier()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// check finds what is wrong with the specs themselves, and fetches what they will be compared with.
func (s *Store) check(specs []Spec) error {
	for i := range specs {
		if what, class := specs[i].wrong(); class != nil {
			return s.fail("enqueue", class, nil, "", "spec %d: %s", i, what)
		}
	}
	if s.fetch == nil {
		return nil
	}
	var keys [][]byte
	for i := range specs {
		if specs[i].ID != "" {
			keys = append(keys, s.keys.Key(nil, format.TableIDs, specs[i].ID))
		}
		if specs[i].Unique != "" {
			keys = append(keys, s.keys.Key(nil, format.TableUnique, specs[i].Unique))
		}
	}
	s.fetch.Fetch(keys)
	return nil
}

// wrong says what is wrong with a spec.
func (p *Spec) wrong() (what string, class error) {
	for _, f := range []struct {
		name, text string
		most       int
	}{{"id", p.ID, MaxTextSize}, {"queue", p.Queue, MaxNameSize}, {"kind", p.Kind, MaxTextSize}, {"key", p.Key,
		MaxTextSize},
		{"sequence", p.Sequence, MaxTextSize}, {"unique text", p.Unique, MaxTextSize}} {
		if what := names.Wrong(f.text, f.most); what != "" {
			return fmt.Sprintf("the %s %s", f.name, what), holdfast.ErrBadOption
		}
	}
	if _, made := parseID(p.ID); made {
		return fmt.Sprintf("the id %q has the form of those that the store makes", p.ID), holdfast.ErrBadOption
	}
	if len(p.Payload) > MaxPayloadSize {
		return fmt.Sprintf("the payload has %d bytes, the limit is %d", len(p.Payload),
			MaxPayloadSize), holdfast.ErrTooLarge
	}
	if len(p.After) > MaxAfter {
		return fmt.Sprintf("it runs after %d tasks, the limit is %d", len(p.After), MaxAfter), holdfast.ErrTooLarge
	}
	switch {
	case p.Kind == "":
		what = "it has no kind: no worker would know what to do with it"
	case p.Delay < 0:
		what = fmt.Sprintf("a delay of %v", p.Delay)
	case p.Delay > 0 && !p.At.IsZero():
		what = "both a time and a delay"
	case p.UniqueFor < 0:
		what = fmt.Sprintf("unique for %v", p.UniqueFor)
	case p.UniqueFor > 0 && p.Unique == "":
		what = "unique for a time, and no unique text"
	case p.MaxAttempts < 0:
		what = fmt.Sprintf("at most %d attempts", p.MaxAttempts)
	case p.Backoff.First < 0 || p.Backoff.Max < 0:
		what = fmt.Sprintf("a backoff from %v to %v", p.Backoff.First, p.Backoff.Max)
	default:
		return "", nil
	}
	return what, holdfast.ErrBadOption
}

// enqueue adds tasks whose specs have been checked.
func (x *tx) enqueue(specs []Spec) ([]Result, error) {
	s := x.s
	results := make([]Result, len(specs))
	nums := make([]uint64, len(specs))
	var named map[string]int // specs that are not there yet, by id

	// Ids and unique texts first: a spec may be a repeat, and others name tasks by ids.
	for i := range specs {
		p := &specs[i]

		if p.Unique != "" {
			id, _, err := x.holder(p.Unique)
			if err != nil {
				return nil, err
			}
			if id != "" {
				results[i] = Result{id, true}
				continue
			}
		}
		num := s.next()
		nums[i] = num
		if p.ID != "" {
			key := s.keys.Key(x.key, format.TableIDs, p.ID)
			if value, err := s.get(key); err != nil {
				return nil, err
			} else if value != nil {
				return nil, s.fail("enqueue", ErrExists, nil, "", "spec %d: there is a task %q", i, p.ID)
			}
			x.set(key, format.AppendNumbers(nil, num))
			x.key = key
			if named == nil {
				named = map[string]int{}
			}
			named[p.ID] = i
		}

		if p.Unique != "" {
			x.take(p.Unique, cmp.Or(p.ID, makeID(num)), num, p.UniqueFor)
		}
	}

	if named != nil {
		if err := s.acyclic(specs, nums, named); err != nil {
			return nil, err
		}
	}
	// Those that others run after are there before these.
	var later []int
	sequences := map[string]bool{}

	for i := range specs {
		if nums[i] == 0 {
			continue
		}
		if len(specs[i].After) > 0 {
			later = append(later, i)
		}

		t := s.make(&specs[i], nums[i], x.now)
		results[i].ID = t.id()

		// The first of its sequence may run. All others wait for the one before them.
		if len(t.Sequence) > 0 && !sequences[t.Sequence] {
			first, err := x.first(t.Sequence)
			if err != nil {
				return nil, err
			}
			sequences[t.Sequence] = first != nil
		}

		if len(specs[i].After) > 0 || sequences[t.Sequence] {
			t.State = byte(Blocked)
		}
		if t.Sequence != "" {
			sequences[t.Sequence] = true
		}
		x.add(t, specs[i].Payload)
	}

	for _, i := range later {
		if err := x.follow(nums[i], i, specs[i].After); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// make returns the task of a spec.
func (s *Store) make(p *Spec, num uint64, now int64) *task {
	t := &task{num: num, Record: format.Record{State: byte(Waiting), Priority: p.Priority, Created: now, Due: now,
		MaxAttempts: cmp.Or(p.MaxAttempts, DefaultMaxAttempts), First: cmp.Or(p.Backoff.First, DefaultFirstBackoff),
		Keep: p.Keep, UniqueFor: p.UniqueFor, ID: p.ID, Queue: cmp.Or(p.Queue, DefaultQueue), Kind: p.Kind, Key: p.Key,
		Sequence: p.Sequence, Unique: p.Unique}}

	t.Max = max(cmp.Or(p.Backoff.Max, DefaultMaxBackoff), t.First)
	if p.Backoff.Max > 0 {
		t.Max = p.Backoff.Max
		t.First = min(t.First, t.Max)
	}
	switch {
	case p.Delay > 0:
		t.At, t.Flags = after(now, p.Delay), format.Delayed
	case !p.At.IsZero():
		t.At = nanos(p.At)
	}

	t.Due = max(now, t.At)
	if t.Due > now {
		t.State = byte(Scheduled)
	}

	if p.Unique != "" && p.UniqueFor == 0 {
		t.Flags |= format.HasUnique
	}
	return t
}

// add adds a task.
func (x *tx) add(t *task, payload []byte) {
	if len(payload) > format.InlineSize {
		t.Flags |= format.BigPayload
		x.key = x.s.keys.Of(x.key, format.TablePayloads, t.num)
		x.set(x.key, payload)
	} else if len(payload) > 0 {
		t.Payload = slices.Clone(payload)
	}
	if t.Sequence != "" {
		x.turn(t, t.num)
	}
	x.put(nil, t)
}

// turn gives t a turn in its sequence.
func (x *tx) turn(t *task, turn uint64) {
	t.Turn = turn
	x.key = x.s.keys.Sequence(x.key, t.Sequence, turn)
	x.set(x.key, format.AppendNumbers(nil, t.num))
}

// first returns the task whose turn it is in a sequence, nil if there is none.
func (x *tx) first(sequence string) (*task, error) {
	s := x.s
	lo := s.keys.Sequence(nil, sequence, s.turns[sequence])
	hi := holdfast.Prefix(lo[:len(lo)-8]).Hi
	var num, turn uint64
	err := s.scan(lo, hi, 1, func(rest, value []byte) error {
		n, ok := format.Numbers(value)
		at, ok2 := format.Numbers(rest[max(len(rest)-8, 0):])
		if !ok || len(n) != 1 || !ok2 || len(at) != 1 {
			return s.strange("read", "the turn at key %q cannot be read", rest)
		}
		num, turn = n[0], at[0]
		return nil
	})
	if err != nil || num == 0 {
		return nil, err
	}
	x.passed(sequence, turn)
	t, err := s.read(num)
	if err == holdfast.ErrNotFound {
		err = s.strange("read", "task %s of sequence %q is not there", makeID(num), sequence)
	}
	return t, err
}

// maxTurns is of how many sequences it is in memory at most where the first turn is.
const maxTurns = 1 << 13

// passed keeps that a sequence has no turn below one.
func (x *tx) passed(sequence string, turn uint64) {
	turns := x.s.turns
	was := turns[sequence]
	if was == turn {
		return
	}
	if was == 0 && len(turns) >= maxTurns {
		clear(turns)
	}
	turns[sequence] = turn
	x.other = append(x.other, func() { turns[sequence] = was })
}

// follow lets a new task run after others.
func (x *tx) follow(num uint64, spec int, ids []string) error {
	s := x.s
	before := make([]format.Before, 0, len(ids))
	for _, id := range ids {
		t, err := s.find("enqueue", id)
		if err != nil {
			return s.fail("enqueue", nil, err, "", "spec %d runs after a task that cannot be found", spec)
		}
		before = append(before, format.Before{Task: t.num, ID: t.ID})
	}
	slices.SortFunc(before, func(a, b format.Before) int { return cmp.Compare(a.Task, b.Task) })
	before = slices.Compact(before)

	open := uint64(0)

	for _, parent := range before {
		t, err := s.read(parent.Task)
		if err != nil {
			return err
		}
		switch t.state() {
		case Completed:
			continue
		case Cancelled, Dead:
			return s.fail("enqueue", ErrState, nil, "retry that first", "spec %d runs after task %s, which is %s", spec,
				t.id(),
				t.state())
		}
		open++
		if t.Flags&format.Parent == 0 {
			to := *t
			to.Flags |= format.Parent
			x.put(t, &to)
		}
		x.key = s.keys.Child(x.key, parent.Task, num)
		x.set(x.key, empty)
	}

	x.key = s.keys.Of(x.key, format.TableAfter, num)
	x.set(x.key, format.AppendBefore(make([]byte, 0, 9*len(before)), before))
	if open > 0 {
		x.key = s.keys.Of(x.key, format.TableWaits, num)
		x.set(x.key, format.AppendNumbers(nil, open))
	}

	// It was added before: its record gets the mark that it runs after others.
	t, err := s.read(num)
	if err != nil {
		return err
	}
	to := *t
	to.Flags |= format.Child
	x.put(t, &to)
	if open > 0 {
		return nil
	}
	return x.unblock(&to)
}

// acyclic returns ErrCycle if tasks that are enqueued together wait for each other.
func (s *Store) acyclic(specs []Spec, nums []uint64, named map[string]int) error {
	before := make([]int, len(specs)) // how many of the others come before each
	next := make([][]int, len(specs))
	last := map[string]int{}
	edge := func(from, to int) {
		next[from] = append(next[from], to)
		before[to]++
	}
	for i := range specs {
		if nums[i] == 0 {
			continue
		}
		for _, id := range specs[i].After {
			if parent, ok := named[id]; ok {
				edge(parent, i)
			}
		}
		if name := specs[i].Sequence; name != "" {
			if first, ok := last[name]; ok {
				edge(first, i)
			}
			last[name] = i
		}
	}

	// What nothing comes before is free, and frees what comes after it. What is never freed is in a circle.
	var free []int
	for i := range specs {
		if before[i] == 0 {
			free = append(free, i)
		}
	}
	for n := 0; n < len(free); n++ {
		for _, i := range next[free[n]] {
			if before[i]--; before[i] == 0 {
				free = append(free, i)
			}
		}
	}

	if len(free) == len(specs) {
		return nil
	}
	i := slices.IndexFunc(before, func(n int) bool { return n > 0 })
	return s.fail("enqueue", ErrCycle, nil, "", "spec %d (%q) waits for itself, by way of After and sequences", i,
		specs[i].ID)
}

// holder returns the task that has a unique text now, "" if none. It may have been removed, if the text is kept for a
// time.
func (x *tx) holder(text string) (id string, num uint64, err error) {
	value, err := x.s.get(x.s.keys.Key(nil, format.TableUnique, text))
	if err != nil || value == nil {
		return "", 0, err
	}
	n, ok := format.Numbers(value[:min(16, len(value))])
	if !ok || len(n) != 2 {
		return "", 0, x.s.strange("read", "who has the unique text %q cannot be read", text)
	}

	if n[1] != 0 && int64(n[1]) <= x.now {
		return "", 0, nil
	}
	return string(value[16:]), n[0], nil
}

// take gives a unique text to a task.
func (x *tx) take(text, id string, num uint64, d time.Duration) {
	until := int64(0)
	if d > 0 {
		until = after(x.now, d)
		x.key = x.s.keys.Expiry(x.key, until, text)
		x.set(x.key, format.AppendNumbers(nil, uint64(d)))
		x.s.expiry = min(x.s.expiry, until)
		x.s.plan(d)
	}

	x.key = x.s.keys.Key(x.key, format.TableUnique, text)
	x.set(x.key, append(format.AppendNumbers(nil, num, uint64(until)), id...))
}
