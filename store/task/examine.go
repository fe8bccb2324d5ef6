package task

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/registry"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// Examination is what Examine has found of one store.
type Examination struct {
	Store    string
	Counts   map[State]int // of tasks
	Problems []string      // the first hundred; none if all is well
}

// Examine checks the task stores in an engine: that each task is listed where it belongs and nowhere else, and that
// what blocks tasks, sequences, ids and unique texts agree with them. It reads everything, and needs one fixed state:
// a snapshot, or an engine that nobody writes to. The error is that of reading.
func Examine(r holdfast.Reader) (list []Examination, err error) {
	var e *examiner
	walked := keyspace.Walk(r, format.Kind, func(name string) {
		list = append(list, Examination{Store: name, Counts: map[State]int{}})
		e = &examiner{r: r, keys: format.New(name), out: &list[len(list)-1]}
	}, func(table byte, rest, key, value []byte) {
		if err == nil {
			err = e.key(table, slices.Clone(rest), value)
		}
	})
	return list, errors.Join(walked, err)
}

// accepted examines the store when a loss was accepted: tasks that are not listed where they belong would never run,
// and nobody would see it.
func (s *Store) accepted() error {
	stale, err := s.lease.Stale(s.keys.Prefix)
	if err != nil || !stale {
		return err
	}
	list, err := Examine(s.eng)
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.Store == s.o.Name && len(e.Problems) > 0 {
			return s.fail(
				"open",
				holdfast.ErrCorrupt,
				nil,
				"restore a backup, or remove the store's keys and make its tasks anew",
				"a loss was accepted here, and what is left contradicts itself (%d times or more): %s",
				len(e.Problems),
				e.Problems[0],
			)
		}
	}
	return nil
}

type examiner struct {
	r    holdfast.Reader
	keys format.Store
	out  *Examination
}

func (e *examiner) problem(format string, args ...any) {
	if len(e.out.Problems) < 100 {
		e.out.Problems = append(e.out.Problems, fmt.Sprintf(format, args...))
	}
}

// get returns the value of a key, nil if it is not there.
func (e *examiner) get(key []byte) ([]byte, error) {
	value, err := e.r.Get([]byte{}, key)
	if errors.Is(err, holdfast.ErrNotFound) {
		return nil, nil
	}
	return value, err
}

// task returns a task, nil if it is not there.
func (e *examiner) task(num uint64) (*task, error) {
	value, err := e.get(e.keys.Of(nil, format.TableTasks, num))
	t := &task{num: num}
	if err != nil || value == nil || !t.Parse(value) {
		return nil, err
	}
	return t, nil
}

// key checks one key.
func (e *examiner) key(table byte, rest, value []byte) error {
	number := func(b []byte) uint64 {
		if n, ok := format.Numbers(b); ok && len(n) > 0 {
			return n[0]
		}
		return 0
	}
	var num uint64
	var agrees func(t *task) bool
	switch table {
	case format.TableTasks:
		t := &task{num: number(rest)}
		if len(rest) != 8 || !t.Parse(value) || !t.state().valid() {
			e.problem("the record at %x cannot be read", rest)
			return nil
		}
		e.out.Counts[t.state()]++
		return e.whole(t)
	case format.TableIndex:
		p, ok := e.keys.Place(rest)
		if !ok {
			e.problem("the index has a key %q", rest)
			return nil
		}
		num, agrees = p.Task, func(t *task) bool { return t.place() == p }
	case format.TablePayloads:
		num, agrees = number(rest), func(t *task) bool { return t.Flags&format.BigPayload != 0 }
	case format.TableOutputs:
		num, agrees = number(rest), func(t *task) bool { return t.Flags&format.BigOutput != 0 }
	case format.TableAfter:
		num, agrees = number(rest), func(t *task) bool { return t.Flags&format.Child != 0 }
	case format.TableWaits:
		num, agrees = number(rest), func(t *task) bool { return t.state() == Blocked && number(value) > 0 }
	case format.TableIDs:
		num, agrees = number(value), func(t *task) bool { return t.ID == string(rest) }
	case format.TableSequences:
		name, turn, _ := format.Texted(rest)
		num, agrees = number(value), func(t *task) bool {
			return t.Sequence == name && t.Turn == number(turn) && !t.state().Finished()
		}
	case format.TableChildren:
		if len(rest) != 16 {
			e.problem("there is a key %q among those that run after others", rest)
			return nil
		}
		parent, err := e.task(number(rest[:8]))
		if err != nil {
			return err
		}
		ended, err := e.get(e.keys.Of(nil, format.TableEnded, number(rest[:8])))
		if err != nil {
			return err
		}
		if ended == nil && (parent == nil || parent.state().Finished() || parent.Flags&format.Parent == 0) {
			e.problem("task %s waits for %s, which is not there, or finished", makeID(number(rest[8:])),
				makeID(number(rest[:8])))
		}
		num, agrees = number(rest[8:]), func(t *task) bool { return t.state() == Blocked && t.Flags&format.Child != 0 }
	case format.TableUnique:
		if len(value) < 16 {
			e.problem("who has the unique text %q cannot be read", rest)
			return nil
		}

		// With a time, the text stays taken until then, whatever becomes of the task.
		if number(value[8:16]) != 0 {
			return nil // the task may be gone
		}
		num, agrees = number(value[:8]), func(t *task) bool {
			return t.Flags&format.HasUnique != 0 && t.Unique == string(rest) && !t.state().Finished()
		}
	case format.TableMeta:
		return e.low(rest, value)
	case format.TableAway: // what is listed too early is looked at again
		if _, _, ok := format.ParseAway(rest); !ok || len(value) == 0 {
			e.problem("there is a key %q among the lanes that are away", rest)
		}
		return nil
	case format.TableExpiry, format.TableEnded, format.TableQueues, format.TableRates,
		format.TablePeriodic, registry.TableAccepted:
		return nil
	default:
		e.problem("there is no table %q", table)
		return nil
	}
	t, err := e.task(num)
	if err == nil && (t == nil || !agrees(t)) {
		e.problem("key %q in table %q does not agree with task %s", rest, table, makeID(num))
	}
	return err
}

// low checks that there is nothing below a low, if the key is that of one and lows hold.
func (e *examiner) low(rest, value []byte) error {
	part, is := bytes.CutPrefix(rest, []byte(format.LowPrefix))
	if !is {
		return nil
	}
	description, err := e.get(e.keys.Meta())
	if err != nil {
		return err
	}
	// Lows only hold for the description that they were written with.
	if stamp, err := e.get(e.keys.Stamp()); err != nil || !bytes.Equal(stamp, description) {
		return err
	}
	lo := append(slices.Clone([]byte(e.keys.Prefix)), part...)
	it := e.r.Scan(holdfast.Range{Lo: lo, Hi: append(lo[:len(e.keys.Prefix):len(e.keys.Prefix)], value...)})
	defer it.Close()
	if it.Next() {
		e.problem("the keys of %q begin with %q, and there is a key %q", part, value, it.Key()[len(e.keys.Prefix):])
	}
	return it.Err()
}

// whole checks that all is there that a task needs.
func (e *examiner) whole(t *task) error {
	p := t.place()
	needs := [][]byte{e.keys.Index(nil, &p)}
	need := func(when bool, key []byte) {
		if when {
			needs = append(needs, key)
		}
	}
	need(t.Flags&format.BigPayload != 0, e.keys.Of(nil, format.TablePayloads, t.num))
	need(t.Flags&format.BigOutput != 0, e.keys.Of(nil, format.TableOutputs, t.num))
	need(t.Flags&format.Child != 0, e.keys.Of(nil, format.TableAfter, t.num))
	need(t.ID != "", e.keys.Key(nil, format.TableIDs, t.ID))
	need(t.Flags&format.HasUnique != 0, e.keys.Key(nil, format.TableUnique, t.Unique))
	turn := e.keys.Sequence(nil, t.Sequence, t.Turn)
	need(t.Sequence != "" && !t.state().Finished(), turn)
	for _, key := range needs {
		if value, err := e.get(key); err != nil {
			return err
		} else if value == nil {
			e.problem("task %s, which is %s, has no key %q", t.id(), t.state(), key)
		}
	}
	// What blocks it.
	first := true
	if t.Sequence != "" && !t.state().Finished() {
		it := e.r.Scan(holdfast.Range{Lo: turn[:len(turn)-8], Hi: turn})
		first = !it.Next()
		if err := it.Close(); err != nil {
			return err
		}
	}
	before, open := []format.Before(nil), uint64(0)
	if t.Flags&format.Child != 0 {
		value, err := e.get(e.keys.Of(nil, format.TableAfter, t.num))
		if err != nil {
			return err
		}
		before, _ = format.ParseBefore(value)
	}
	for _, b := range before {
		if value, err := e.get(e.keys.Child(nil, b.Task, t.num)); err != nil {
			return err
		} else if value != nil {
			open++
		}
	}
	value, err := e.get(e.keys.Of(nil, format.TableWaits, t.num))
	if n, _ := format.Numbers(value); err == nil && (value == nil && open > 0 || value != nil && (len(n) != 1 ||
		n[0] != open)) {
		e.problem("task %s waits for %d tasks, and is said to wait for %v", t.id(), open, n)
	}
	if blocked := !first || open > 0; !t.state().Finished() && blocked != (t.state() == Blocked) {
		e.problem("task %s is %s, with %d tasks before it that are not completed, first of its sequence: %v", t.id(),
			t.state(),
			open, first)
	}
	return err
}

// KeyName says what a task store keeps under a key of an engine; empty if the key belongs to none.
func KeyName(key []byte) string {
	store, table, rest, ok := keyspace.Split(format.Kind, key)
	if !ok {
		return ""
	}
	of := map[byte]string{format.TableTasks: "task", format.TablePayloads: "payload of task",
		format.TableOutputs: "output of task",
		format.TableAfter:   "what comes before task", format.TableWaits: "how many tasks come before task",
		format.TableEnded: "the end of task"}
	what := ""
	numbers, whole := format.Numbers(rest)
	switch text, more, texted := format.Texted(rest); table {
	case format.TableMeta:
		what = "the description"
		if len(rest) > 0 {
			what = "where keys of a table begin, which is part of the description"
		}
	case registry.TableAccepted:
		what = "which loss was accepted"
	case format.TableIDs:
		what = fmt.Sprintf("id %.40q", rest)
	case format.TableIndex:
		if p, ok := format.New(store).Place(rest); ok {
			what = fmt.Sprintf("place of task %s in queue %.40q (%s)", makeID(p.Task), p.Queue, State(p.State))
		}
	case format.TableAway:
		if q, _, ok := format.ParseAway(rest); ok {
			what = fmt.Sprintf("the first task of a key in queue %.40q", q)
		}
	case format.TableSequences:
		if texted && len(more) == 8 {
			what = fmt.Sprintf("a turn in sequence %.40q", text)
		}
	case format.TableChildren:
		if whole && len(numbers) == 2 {
			what = fmt.Sprintf("that task %s runs after task %s", makeID(numbers[1]), makeID(numbers[0]))
		}
	case format.TableUnique:
		what = fmt.Sprintf("unique text %.40q", rest)
	case format.TableExpiry:
		if len(rest) >= 8 {
			what = fmt.Sprintf("the end of unique text %.40q", rest[8:])
		}
	case format.TableQueues:
		what = fmt.Sprintf("options of queue %.40q", rest)
	case format.TableRates:
		if texted {
			what = fmt.Sprintf("starts in queue %.40q", text)
		}
	case format.TablePeriodic:
		what = fmt.Sprintf("the last tick of %.40q", rest)
	default:
		if of[table] != "" && whole && len(numbers) == 1 {
			what = of[table] + " " + makeID(numbers[0])
		}
	}
	if what == "" {
		return ""
	}
	return fmt.Sprintf("%s of task store %q", what, store)
}
