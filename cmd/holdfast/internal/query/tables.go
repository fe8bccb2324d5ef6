package query

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// addMessages adds the messages of the namespace.
func addMessages(db *DB) error {
	type m = message.Message
	t := &table[m]{db: db, name: "messages", rows: 1e6, scan: db.scanMessages,
		rowid: func(m *m) int64 { return m.Global },
		columns: []column[m]{
			{"global", "INTEGER", func(m *m) any { return m.Global }, "= <", 1e-6},
			{"stream", "TEXT", func(m *m) any { return m.Stream }, "= prefix", 1e-4},
			{"position", "INTEGER", func(m *m) any { return m.Position }, "= <", 0.1},
			{"category", "TEXT", func(m *m) any { return message.Category(m.Stream) }, "= prefix", 0.1},
			{"type", "TEXT", func(m *m) any { return payload([]byte(m.Type)) }, "=", 0.5},
			{"id", "TEXT", func(m *m) any { return name(m.ID) }, "=", 1e-6},
			{"time", "TEXT", func(m *m) any { return at(m.Time) }, "", 1},
			{"data", "", func(m *m) any { return payload(m.Data) }, "", 1},
			{"metadata", "", func(m *m) any { return payload(m.Metadata) }, "", 1},
		}}

	return t.add()
}

func (db *DB) scanMessages(f filter) iter.Seq2[*message.Message, error] {
	return func(yield func(*message.Message, error) bool) {
		n, err := db.openMessages()
		if err != nil {
			yield(nil, err)
			return
		}
		first, last := f.span("global")
		first, last = max(first, 1), min(last, n.Last())
		if first > last || f.never() {
			return
		}
		if id, ok := f.equal("id"); ok {
			m, err := n.ByID(db.ctx, id)
			if !errors.Is(err, holdfast.ErrNotFound) && !errors.Is(err, event.ErrBadEvent) { // no id
				yield(&m, err)
			}
			return
		}
		queries, err := db.queries(n, f, first)
		if err != nil && !errors.Is(err, message.ErrBadName) {
			yield(nil, err)
			return
		}
		_, end := f.span("position")
		for _, q := range queries {
			for m, err := range n.Read(db.ctx, q) {
				if err != nil && errors.Is(err, message.ErrBadName) {
					break // nothing is called that
				}
				if err == nil && (q.Stream == "" && m.Global > last || q.Stream != "" && m.Position > end) {
					break
				}
				if !yield(&m, err) || err != nil {
					return
				}
			}
		}
	}
}

// queries returns what to read for the conditions, from a global position on.
func (db *DB) queries(n *message.Namespace, f filter, first int64) ([]message.Query, error) {
	q := message.Query{From: first}
	if typ, ok := f.equal("type"); ok {
		q.Types = []string{typ}
	}
	if stream, ok := f.equal("stream"); ok {
		from, last := f.span("position")
		version, _, err := n.Version(db.ctx, stream)
		if err != nil || max(from, 0) > min(last, version) {
			return nil, err
		}
		q.Stream, q.From = stream, max(from, 0)
		return []message.Query{q}, nil
	}
	if category, ok := f.equal("category"); ok && category != "" {
		q.Category = category
		return []message.Query{q}, nil
	}
	matches, err := db.categoriesOf(n, f)
	if err != nil || matches == nil {
		return []message.Query{q}, err
	}
	queries := []message.Query{}
	for _, category := range matches {
		q.Category = category
		queries = append(queries, q)
	}

	return queries, nil
}

// categoriesOf returns the categories that messages may belong to, nil for any.
func (db *DB) categoriesOf(n *message.Namespace, f filter) ([]string, error) {
	prefix, fold, ok := f.prefix("category")
	whole := false
	if stream, f, o := f.prefix("stream"); !ok && o {
		prefix, whole = message.Category(stream), strings.Contains(stream, "-")
		fold, ok = f, true
	}
	if !ok || prefix == "" {
		return nil, nil
	}
	if db.categories == nil {
		list, err := n.Categories(db.ctx)
		if err != nil {
			return nil, err
		}
		db.categories = []string{}
		for _, c := range list {
			db.categories = append(db.categories, c.Category)
		}
	}
	lower := func(s string) string { // as SQLite's like does it
		return strings.Map(func(r rune) rune {
			if 'A' <= r && r <= 'Z' {
				r += 'a' - 'A'
			}
			return r
		}, s)
	}
	matches := []string{}
	for _, category := range db.categories {
		c, p := category, prefix
		if fold {
			c, p = lower(c), lower(p)
		}
		if whole && c == p || !whole && strings.HasPrefix(c, p) {
			matches = append(matches, category)
		}
	}

	return matches, nil
}

// logged is an event of a log.
type logged struct {
	number int64 // of the log
	log    string
	*event.Record
}

// addEvents adds the events of the logs of the namespace.
func addEvents(db *DB) error {
	type e = logged
	t := &table[e]{db: db, name: "events", rows: 1e6, scan: db.scanEvents,
		rowid: func(e *e) int64 { return e.number<<48 | int64(e.Position) },
		columns: []column[e]{
			{"log", "TEXT", func(e *e) any { return payload([]byte(e.log)) }, "=", 0.1},
			{"position", "INTEGER", func(e *e) any { return int64(e.Position) }, "= <", 1e-6},
			{"type", "TEXT", func(e *e) any { return payload(e.Type) }, "=", 0.5},
			{"id", "TEXT", func(e *e) any { return name(e.ID) }, "", 1},
			{"origin", "TEXT", func(e *e) any { return name(e.Origin) }, "", 1},
			{"time", "TEXT", func(e *e) any { return at(e.Time) }, "", 1},
			{"data", "", func(e *e) any { return payload(e.Data) }, "", 1},
			{"metadata", "", func(e *e) any { return payload(e.Metadata) }, "", 1},
		}}

	return t.add()
}

func (db *DB) scanEvents(f filter) iter.Seq2[*logged, error] {
	return func(yield func(*logged, error) bool) {
		logs, err := db.openLogs()
		if err != nil {
			yield(nil, err)
			return
		}
		only, one := f.equal("log")
		typ, typed := f.equal("type")
		from, to := f.span("position")
		for number, l := range logs {
			if one && l.shown != only || f.never() {
				continue
			}
			s, err := db.openLog(l.name)
			if err == nil && (s.Last() >= 1<<48 || number >= 1<<15) {
				err = fail(fmt.Sprintf("log %q has positions from 2^48 on, or is one of too many", l.shown), "")
			}
			if err != nil {
				yield(nil, err)
				return
			}
			first, last := max(from, int64(s.First())), min(to, int64(s.Last()))
			if first > last {
				continue
			}
			row := logged{number: int64(number), log: l.shown}
			for row.Record, err = range s.Records(db.ctx, uint64(first), int(last-first+1)) {
				if err == nil && row.Position > uint64(last) { // positions may have gaps
					break
				}
				if err == nil && typed && string(row.Type) != typ {
					continue
				}
				if !yield(&row, err) || err != nil {
					return
				}
			}
		}
	}
}

// addTasks adds the tasks of the namespace.
func addTasks(db *DB) error {
	type k = task.Task
	count := func(n int) any { return int64(n) }
	t := &table[k]{db: db, name: "tasks", rows: 1e5, scan: db.scanTasks,
		columns: []column[k]{
			{"id", "TEXT", func(k *k) any { return payload([]byte(k.ID)) }, "=", 1e-5},
			{"queue", "TEXT", func(k *k) any { return payload([]byte(k.Queue)) }, "=", 0.1},
			{"state", "TEXT", func(k *k) any { return k.State.String() }, "=", 0.1},
			{"kind", "TEXT", func(k *k) any { return payload([]byte(k.Kind)) }, "", 1},
			{"priority", "INTEGER", func(k *k) any { return int64(k.Priority) }, "", 1},
			{"key", "TEXT", func(k *k) any { return name(k.Key) }, "", 1},
			{"sequence", "TEXT", func(k *k) any { return name(k.Sequence) }, "", 1},
			{"attempt", "INTEGER", func(k *k) any { return count(k.Attempt) }, "", 1},
			{"max_attempts", "INTEGER", func(k *k) any { return count(k.MaxAttempts) }, "", 1},
			{"created", "TEXT", func(k *k) any { return at(k.Created) }, "", 1},
			{"due", "TEXT", func(k *k) any { return at(k.Due) }, "", 1},
			{"started", "TEXT", func(k *k) any { return at(k.Started) }, "", 1},
			{"finished", "TEXT", func(k *k) any { return at(k.Finished) }, "", 1},
			{"worker", "TEXT", func(k *k) any { return name(k.Worker) }, "", 1},
			{"lease_until", "TEXT", func(k *k) any { return at(k.LeaseUntil) }, "", 1},
			{"payload", "", func(k *k) any { return payload(k.Payload) }, "", 1},
			{"output", "", func(k *k) any { return payload(k.Output) }, "", 1},
			{"failures", "TEXT", func(k *k) any { return failures(k.Failures) }, "", 1},
			{"runs_after", "TEXT", func(k *k) any { return list(k.After) }, "", 1},
		}}

	return t.add()
}

// list is an array of JSON, null if it is empty.
func list[T any](l []T) any {
	if len(l) == 0 {
		return nil
	}
	b, err := json.Marshal(l)
	if err != nil {
		return nil // it has texts, numbers and times
	}

	return text(b)
}

func failures(l []task.Failure) any {
	type failure struct {
		Attempt int    `json:"attempt"`
		Time    any    `json:"time"`
		Message string `json:"message"`
		Stack   string `json:"stack,omitempty"`
	}
	var shown []failure
	for _, f := range l {
		shown = append(shown, failure{f.Attempt, at(f.Time), f.Message, f.Stack})
	}

	return list(shown)
}

func (db *DB) scanTasks(f filter) iter.Seq2[*task.Task, error] {
	return func(yield func(*task.Task, error) bool) {
		s, err := db.openTasks()
		if s == nil || f.never() {
			if err != nil {
				yield(nil, err)
			}
			return
		}
		if id, ok := f.equal("id"); ok {
			if t, err := s.Get(db.ctx, id); !errors.Is(err, holdfast.ErrNotFound) {
				yield(&t, err)
			}
			return
		}
		of := task.Filter{Limit: 1000}
		queue, ok := f.equal("queue")
		if of.Queue = queue; ok && queue == "" {
			return // none is called that
		}
		if state, ok := f.equal("state"); ok {
			if of.State, err = task.ParseState(state); err != nil {
				return
			}
		}
		for more := true; more; more = of.Cursor != "" {
			var tasks []task.Task
			tasks, of.Cursor, err = s.List(db.ctx, of)
			if errors.Is(err, holdfast.ErrNotFound) { // the queue
				return
			}
			for i := range tasks {
				if !yield(&tasks[i], nil) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}
