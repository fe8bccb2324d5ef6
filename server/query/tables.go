package query

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// addMessages adds the messages of the namespace.
func addMessages(db *DB) error {
	type m = message.Message
	t := &table[m]{db: db, name: "messages", rows: 1e6, scan: db.scanMessages,
		rowid: func(m *m) int64 { return m.Global },
		order: func(has func(string) bool) string {
			if has("stream") || has("category") {
				return ""
			}
			return "global"
		},
		columns: []column[m]{
			{"global", "INTEGER", func(m *m) any { return m.Global }, "= <", 1e-6},
			{"stream", "TEXT", func(m *m) any { return m.Stream }, "= like glob", 1e-4},
			{"position", "INTEGER", func(m *m) any { return m.Position }, "= <", 0.1},
			{"category", "TEXT", func(m *m) any { return message.Category(m.Stream) }, "= like glob", 0.1},
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
		read := func(q message.Query, last int64, yield func(*message.Message, error) bool) bool {
			for m, err := range n.Read(db.ctx, q) {
				if err != nil && errors.Is(err, message.ErrBadName) {
					break // nothing is called that
				}
				if err == nil && (q.Stream == "" && m.Global > last || q.Stream != "" && m.Position > end) {
					break
				}
				if !yield(&m, err) || err != nil {
					return false
				}
			}
			return true
		}
		if f.backwards() { // all of the namespace
			f.parts(first, last, func(first, last int64) (on, large bool) {
				q := queries[0]
				q.From = first
				size := func(m *message.Message) int { return len(m.Data) + len(m.Metadata) + len(m.Type) }
				return reversed(func(yield func(*message.Message, error) bool) { read(q, last, yield) }, size, yield)
			})
			return
		}
		for _, q := range queries {
			if !read(q, last, yield) {
				return
			}
		}
	}
}

// maxPart is how many bytes of rows are in memory to be yielded backwards, if it is more than one row.
const maxPart = 4 << 20

// reversed yields rows from the last on, and reports whether to go on. If they are large it yields none.
func reversed[T any](rows iter.Seq2[*T, error], size func(*T) int, yield func(*T, error) bool) (on, large bool) {
	var part []*T
	bytes := 0
	for row, err := range rows {
		if err != nil {
			yield(nil, err)
			return false, false
		}
		part = append(part, row)
		if bytes += size(row); bytes > maxPart && len(part) > 1 {
			return true, true
		}
	}
	for _, row := range slices.Backward(part) {
		if !yield(row, nil) {
			return false, false
		}
	}

	return true, false
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
		order: func(has func(string) bool) string {
			if !has("log") { // each comes by itself
				return ""
			}
			return "position"
		},
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
			read := func(first, last int64, yield func(*logged, error) bool) bool {
				for r, err := range s.Records(db.ctx, uint64(first), int(last-first+1)) {
					if err == nil && r.Position > uint64(last) { // positions may have gaps
						break
					}
					if err == nil && typed && string(r.Type) != typ {
						continue
					}
					row.Record = r
					if !yield(&row, err) || err != nil {
						return false
					}
				}
				return true
			}
			on := true
			f.parts(first, last, func(first, last int64) (_, large bool) {
				if !f.backwards() {
					on = read(first, last, yield)
					return on, false
				}
				size := func(e *logged) int { return len(e.Data) + len(e.Metadata) + len(e.Type) }
				on, large = reversed(func(yield func(*logged, error) bool) {
					read(first, last, func(e *logged, err error) bool {
						if err == nil {
							e = &logged{number: e.number, log: e.log, Record: kept(e.Record)}
						}
						return yield(e, err)
					})
				}, size, yield)
				return on, large
			})
			if !on {
				return
			}
		}
	}
}

// kept is a copy of a record, whose bytes are the log's.
func kept(r *event.Record) *event.Record {
	return &event.Record{Position: r.Position, Time: r.Time, Type: bytes.Clone(r.Type), ID: bytes.Clone(r.ID),
		Origin: bytes.Clone(r.Origin), Metadata: bytes.Clone(r.Metadata), Data: bytes.Clone(r.Data)}
}

// numbered is a row of a list that is short: each scan goes over all of it, and numbers the rows alike.
type numbered[T any] struct {
	number int64
	row    T
}

// short makes a scan of a list.
func short[T any](read func(filter) ([]T, error)) func(filter) iter.Seq2[*numbered[T], error] {
	return func(f filter) iter.Seq2[*numbered[T], error] {
		return func(yield func(*numbered[T], error) bool) {
			list, err := read(f)
			for i, row := range list {
				if !yield(&numbered[T]{int64(i), row}, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
			}
		}
	}
}

// addStreams adds the streams of the namespace.
func addStreams(db *DB) error {
	type s = message.StreamInfo
	t := &table[s]{db: db, name: "streams", rows: 1e5, scan: db.scanStreams,
		columns: []column[s]{
			{"stream", "TEXT", func(s *s) any { return s.Stream }, "= glob", 1e-5},
			{"category", "TEXT", func(s *s) any { return message.Category(s.Stream) }, "", 1},
			{"version", "INTEGER", func(s *s) any { return s.Version }, "", 1},
			{"last", "TEXT", func(s *s) any { return at(s.Last) }, "", 1},
		}}

	return t.add()
}

func (db *DB) scanStreams(f filter) iter.Seq2[*message.StreamInfo, error] {
	return func(yield func(*message.StreamInfo, error) bool) {
		n, err := db.openMessages()
		if err != nil {
			yield(nil, err)
			return
		}
		if f.never() {
			return
		}
		prefix, _, _ := f.prefix("stream")
		stream, one := f.equal("stream")
		limit := 1000
		if one {
			prefix, limit = stream, 1 // the first that begins with a name is that of the name
		}
		after := ""
		for {
			list, err := n.Streams(db.ctx, prefix, after, limit)
			if errors.Is(err, message.ErrBadName) {
				return // nothing is called that
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range list {
				if !yield(&list[i], nil) {
					return
				}
			}
			if one || len(list) < limit {
				return
			}
			after = list[len(list)-1].Stream
		}
	}
}

// subscription is one of messages or, if log is not nil, of a log.
type subscription struct {
	log             any
	name            string
	position        int64
	behind          int64
	pending, parked any // of messages
	missed          any // of a log
}

// addSubscriptions adds the subscriptions of the namespace's messages and logs.
func addSubscriptions(db *DB) error {
	type s = numbered[subscription]
	t := &table[s]{db: db, name: "subscriptions", rows: 100, scan: short(db.subscriptions),
		rowid: func(s *s) int64 { return s.number },
		columns: []column[s]{
			{"log", "TEXT", func(s *s) any { return s.row.log }, "", 1},
			{"name", "TEXT", func(s *s) any { return payload([]byte(s.row.name)) }, "", 1},
			{"position", "INTEGER", func(s *s) any { return s.row.position }, "", 1},
			{"behind", "INTEGER", func(s *s) any { return s.row.behind }, "", 1},
			{"pending", "INTEGER", func(s *s) any { return s.row.pending }, "", 1},
			{"parked", "INTEGER", func(s *s) any { return s.row.parked }, "", 1},
			{"missed", "INTEGER", func(s *s) any { return s.row.missed }, "", 1},
		}}

	return t.add()
}

func (db *DB) subscriptions(filter) (list []subscription, err error) {
	n, err := db.openMessages()
	if err != nil {
		return nil, err
	}
	states, err := n.Subscriptions(db.ctx, "", 0)
	if err != nil {
		return nil, err
	}
	for _, s := range states {
		list = append(list, subscription{name: s.Name, position: s.Done, behind: s.Behind, pending: int64(s.Pending),
			parked: int64(s.Parked)})
	}
	logs, err := db.openLogs()
	if err != nil {
		return nil, err
	}
	for _, l := range logs {
		s, err := db.openLog(l.name)
		if err != nil {
			return nil, err
		}
		cursors, err := s.Subscriptions(db.ctx)
		if err != nil {
			return nil, err
		}
		for _, c := range cursors {
			list = append(list, subscription{log: payload([]byte(l.shown)), name: c.Name, position: int64(c.Position),
				behind: int64(c.Lag), missed: int64(c.Missed)})
		}
	}

	return list, nil
}

// addQueues adds the queues of the namespace's tasks.
func addQueues(db *DB) error {
	type q = numbered[task.QueueInfo]
	t := &table[q]{db: db, name: "queues", rows: 100, rowid: func(q *q) int64 { return q.number },
		scan: short(func(filter) ([]task.QueueInfo, error) {
			s, err := db.openTasks()
			if s == nil || err != nil {
				return nil, err
			}
			return s.Queues(db.ctx)
		}),
		columns: []column[q]{
			{"name", "TEXT", func(q *q) any { return payload([]byte(q.row.Name)) }, "", 1},
			{"paused", "INTEGER", func(q *q) any { return map[bool]int64{true: 1}[q.row.Paused] }, "", 1},
		}}
	for _, state := range task.States() {
		t.columns = append(t.columns, column[q]{state.String(), "INTEGER",
			func(q *q) any { return int64(q.row.Counts[state]) }, "", 1})
	}
	t.columns = append(t.columns, column[q]{"next", "TEXT", func(q *q) any { return at(q.row.Next) }, "", 1})

	return t.add()
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

// pair is a key of a bucket.
type pair struct {
	bucket     string
	key, value []byte
}

// addKeys adds the keys in the buckets of the database.
func addKeys(db *DB) error {
	seen := map[string]int64{} // SQLite asks for few: of conditions that are joined by or
	t := &table[pair]{db: db, name: "keys", rows: 1e6, scan: db.scanKeys,
		rowid: func(p *pair) int64 {
			place := p.bucket + "\x00" + string(p.key)
			if _, ok := seen[place]; !ok {
				seen[place] = int64(len(seen))
			}
			return seen[place]
		},
		columns: []column[pair]{
			{"bucket", "TEXT", func(p *pair) any { return p.bucket }, "=", 0.1},
			{"key", "", func(p *pair) any { return payload(p.key) }, "=", 1e-5},
			{"value", "", func(p *pair) any { return payload(p.value) }, "", 1},
		}}

	return t.add()
}

func (db *DB) scanKeys(f filter) iter.Seq2[*pair, error] {
	return func(yield func(*pair, error) bool) {
		if f.never() {
			return
		}
		keys, err := kv.Open(db.state, kv.Options{Name: db.database, Level: holdfast.Memory,
			Now: func() time.Time { return db.now }})
		if err != nil {
			yield(nil, err)
			return
		}
		err = keys.View(db.ctx, func(tx *kv.Tx) error {
			in(tx.Buckets(), nil, tx, func(name string, b *kv.Bucket) bool { return scanBucket(f, name, b, yield) })
			return nil // a read that has failed is the transaction's
		})
		if err != nil {
			yield(nil, err)
		}
	}
}

// in calls do for each bucket, and those in it, until that returns false.
func in(names iter.Seq[string], path []string, tx *kv.Tx, do func(name string, b *kv.Bucket) bool) bool {
	for name := range names {
		path := append(slices.Clip(path), name)
		shown := []string{}
		for _, name := range path {
			shown = append(shown, Name([]byte(name)))
		}
		b := tx.Bucket(path...)
		if !do(strings.Join(shown, " > "), b) || !in(b.Buckets(), path, tx, do) {
			return false
		}
	}

	return true
}

// scanBucket yields the keys of a bucket, and reports whether to go on.
func scanBucket(f filter, name string, b *kv.Bucket, yield func(*pair, error) bool) bool {
	if bucket, ok := f.equal("bucket"); ok && bucket != name {
		return true
	}
	for _, c := range f {
		var key []byte
		switch v := c.value.(type) {
		case string:
			key = []byte(v)
		case []byte:
			key = v
		}
		if c.column != "key" || len(key) == 0 {
			continue
		}
		value, err := b.Get(key)
		return errors.Is(err, holdfast.ErrNotFound) || err == nil && yield(&pair{name, key, value}, nil)
	}
	for key, value := range b.All() {
		if !yield(&pair{name, key, value}, nil) {
			return false
		}
	}

	return b.Tx().Err() == nil
}

// Name writes the name of a bucket: as it is, or in quotes where it is not printable, or would be unclear.
func Name(name []byte) string {
	plain := len(name) > 0 && name[0] != '"' && utf8.Valid(name) && len(bytes.TrimSpace(name)) == len(name) &&
		!bytes.Contains(name, []byte(" > ")) &&
		!strings.ContainsFunc(string(name), func(r rune) bool { return !unicode.IsPrint(r) })
	if plain {
		return string(name)
	}
	return strconv.QuoteToASCII(string(name))
}
