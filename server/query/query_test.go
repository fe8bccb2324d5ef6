package query_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/server/query"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// stores are those of an engine in memory.
type stores struct {
	engine   holdfast.Engine
	store    *message.Store
	messages *message.Namespace
	log      *event.Store
	tasks    *task.Store
}

// fill makes an engine with some of everything.
func fill(t testing.TB) *stores {
	t.Helper()
	s := &stores{engine: mem.New()}
	db := kv.On(s.engine).At(holdfast.Memory)
	var err error
	s.store, err = message.Open(db, message.Options{Level: holdfast.Memory})
	testkit.Try(t, err)
	s.messages, err = s.store.Namespace(t.Context(), message.Default)
	testkit.Try(t, err)
	at := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	streams := []string{"order-1", "order-2", "Order-1", "order", "orderly-1", "mail-7", "päck-ß", "-1", "ord_r-1"}
	for i := range 200 {
		_, err := s.messages.Write(t.Context(), streams[i%len(streams)], message.Message{
			ID:   fmt.Sprintf("00000000-0000-4000-8000-%012x", i),
			Type: []string{"Placed", "placed", "Paid"}[i%3],
			Data: fmt.Appendf(nil, `{"n":%d}`, i), Time: at.Add(time.Duration(i)),
		})
		testkit.Try(t, err)
	}
	for _, name := range []string{"audit", ""} {
		log, err := event.Open(db, event.Options{Name: name})
		testkit.Try(t, err)
		for i := range 50 {
			e := event.Event{Type: []string{"In", "Out"}[i%2], Data: fmt.Appendf(nil, `{"n":%d}`, i), Origin: "me"}
			if i == 7 {
				e.Type, e.Data = "odd\x00type", []byte{0xff, 0, 1}
			}
			_, err := log.Append(t.Context(), e)
			testkit.Try(t, err)
		}
		s.log = log
	}
	s.tasks, err = task.Open(db, task.Options{})
	testkit.Try(t, err)
	for i := range 30 {
		_, err := s.tasks.Enqueue(t.Context(), task.Spec{ID: fmt.Sprint("t", i), Queue: []string{"a", "b"}[i%2], Kind: "k",
			Payload: []byte("x")})
		testkit.Try(t, err)
	}
	leases, err := s.tasks.Claim(t.Context(), task.ClaimOptions{Queues: []string{"a"}, N: 3, Worker: "w"})
	testkit.Try(t, err)
	testkit.Try(t, s.tasks.Fail(t.Context(), leases[0], task.Failure{Message: "broke"}, task.FailOptions{Dead: true}))
	testkit.Try(t, s.tasks.Complete(t.Context(), leases[1]))
	sub, err := s.messages.Subscribe(t.Context(), "mailer", message.SubscriptionOptions{})
	testkit.Try(t, err)
	_, err = sub.Claim(t.Context(), 3)
	testkit.Try(t, err)
	testkit.Try(t, sub.Close())
	testkit.Try(t, s.log.SaveOffset(t.Context(), "audit", 20))
	testkit.Try(t, db.Update(t.Context(), func(tx *kv.Tx) error {
		for i := range 20 {
			testkit.Try(t, tx.Bucket("users").Put(fmt.Append(nil, "u", i), fmt.Appendf(nil, `{"n":%d}`, i)))
			testkit.Try(t, tx.Bucket("users", "by\x00id").Put([]byte{0xff, byte(i)}, nil))
		}
		return tx.Bucket("a > b").Put([]byte("u1"), []byte("x"))
	}))
	t.Cleanup(func() { // as far as the test has not closed them
		s.tasks.Close()
		s.store.Close()
		s.engine.Close()
	})

	return s
}

func open(t testing.TB, s *stores) *query.DB {
	t.Helper()
	db, err := query.Open(s.engine, query.Options{})
	testkit.Try(t, err)
	t.Cleanup(func() { testkit.Try(t, db.Close()) })

	return db
}

// ask returns rows, each as a text.
func ask(ctx context.Context, db *query.DB, sql string) (found []string, err error) {
	_, rows, err := db.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	for row, err := range rows {
		if err != nil {
			return found, err
		}
		texts := []string{}
		for _, v := range row {
			if v == nil {
				v = "NULL"
			}
			texts = append(texts, fmt.Sprint(v))
		}
		found = append(found, strings.Join(texts, "|"))
	}

	return found, nil
}

func TestQuery(t *testing.T) {
	db := open(t, fill(t))
	for sql, want := range map[string][]string{
		"select type, count(*) from messages where stream like 'order-%' group by 1 order by 1": {"Paid|22", "Placed|23",
			"placed|23"},
		"select global, stream, position, category, type, id, time, data, metadata from messages where global = 2": {
			"2|order-2|0|order|placed|00000000-0000-4000-8000-000000000001|2026-01-02T03:04:05.000000601Z|{\"n\":1}|NULL"},
		"select sum(data ->> 'n') from messages where stream = 'mail-7' and position < 2": {"19"},
		"select log, count(*), max(position) from events group by 1 order by 1":           {"|50|50", "audit|50|50"},
		"select typeof(data), hex(data), hex(type), origin, id from events where position = 8": {
			"blob|FF0001|6F64640074797065|me|NULL", "blob|FF0001|6F64640074797065|me|NULL"},
		"select state, count(*) from tasks group by 1 order by 1": {"completed|1", "dead|1", "running|1",
			"waiting|27"},
		"select id, failures ->> '$[0].message' from tasks where state = 'dead'": {"t0|broke"},
		"select count(*) from tasks where queue = 'b' and state = 'waiting'":     {"15"},
		"select count(*) from tasks where state = 'none'":                        nil,
		"select stream, version from streams where stream glob 'order-*'":        {"order-1|22", "order-2|22"},
		"select * from subscriptions": {"NULL|mailer|0|200|3|0|NULL",
			"|audit|20|30|NULL|NULL|0"},
		"select name, paused, waiting, running, dead from queues": {"a|0|12|1|1", "b|0|15|0|0"},
		"select bucket, key, value, count(*) from keys group by bucket": {`"a > b"|u1|x|1`, "users|u0|{\"n\":0}|20",
			`users > "by\x00id"|[255 0]||20`},
		"select value ->> 'n' from keys where bucket = 'users' and key = 'u7'":          {"7"},
		"select count(*) from keys where key = x'ff03' or key = 'u1'":                   {"3"},
		"select kind, worker from tasks where id = 't4'":                                {"k|w"},
		"select count(*) from messages m join events e on e.position = m.global":        {"100"},
		"select count(*) from messages where stream = 'ORDER-1' collate nocase":         nil,
		"select max(global) from messages":                                              {"200"},
		"select count(*) from messages where stream = '' or category = ''":              nil,
		"select count(*) from (select 1 from messages where global in (1, 2, 2, 1000))": {"2"},
	} {
		got, err := ask(t.Context(), db, sql)
		if want == nil && err == nil { // the same without what goes down to the scan
			want, err = ask(t.Context(), db, blunt(sql))
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\ngot  %q, %v\nwant %q", sql, got, err, want)
		}
	}
	if got, want := db.Tables(), []string{"messages", "streams", "events", "subscriptions", "tasks",
		"queues", "keys"}; !slices.Equal(got, want) {
		t.Error(got)
	}
	for _, table := range db.Tables() {
		if _, rows, err := db.Query(t.Context(), "select * from "+table); err != nil || rows == nil {
			t.Error(table, err)
		}
	}
}

// blunt makes conditions that SQLite alone can judge of those with names of columns, by a unary plus.
func blunt(sql string) string {
	for _, column := range []string{"stream ", "category ", "state ", "global ", "position ", "type ", "id "} {
		for _, before := range []string{"where ", "and ", "or ", "("} {
			sql = strings.ReplaceAll(sql, before+column, before+"+"+column)
		}
	}

	return sql
}

// TestPushdown compares what conditions that go down to the scan find with what SQLite finds in a table of its own.
func TestPushdown(t *testing.T) {
	s := fill(t)
	// Positions with gaps.
	_, err := s.messages.Truncate(t.Context(), "mail-7", 5)
	testkit.Try(t, err)
	_, err = s.log.TruncateBefore(t.Context(), 4)
	testkit.Try(t, err)
	db := open(t, s)
	own, err := sqlite3.Open(":memory:")
	testkit.Try(t, err)
	defer own.Close()
	for _, table := range db.Tables() {
		testkit.Try(t, own.Exec(strings.Replace(db.Schema(table), "CREATE TABLE", "create table", 1)))
		columns, rows, err := db.Query(t.Context(), "select * from "+table)
		testkit.Try(t, err)
		for row, err := range rows {
			testkit.Try(t, err)
			insert, _, err := own.Prepare("insert into " + table + " values (?" + strings.Repeat(",?", len(columns)-1) + ")")
			testkit.Try(t, err)
			for i, v := range row {
				testkit.Try(t, query.Bind(insert, i+1, v))
			}
			testkit.Try(t, insert.Exec())
			testkit.Try(t, insert.Close())
		}
	}
	ownRows := func(sql string) (found []string) {
		s, _, err := own.Prepare(sql)
		testkit.Try(t, err)
		defer s.Close()
		for s.Step() {
			found = append(found, s.ColumnText(0))
		}
		testkit.Try(t, s.Err())

		return found
	}
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	number := func() string {
		return pick("0", "1", "2", "7", "48", "49", "50", "51", "100", "199", "200", "201", "-1", "2.5",
			"-0.5", "3.0", "1e30",
			"-1e30", "9e999", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "'7'", "'x'",
			"null", "x'37'", "'7.0'", "1 + 1", "+7")
	}
	text := func() string {
		return pick("'order-1'", "'order'", "'Order-1'", "'ORDER-1'", "'mail-7'", "'mail'", "'Paid'", "'placed'", "''",
			"'-1'", "null", "7", "x'6d61696c'", "'orderly'", "'päck'", "'no'", "'a'", "'t4'", "'waiting'", "'audit'",
			"'users'", "'u7'", "x'ff07'",
			"'a'||char(0)||'b'", "'00000000-0000-4000-8000-00000000000a'", "'00000000-0000-4000-8000-00000000000A'",
			"'"+strings.Repeat("x", 3000)+"'")
	}
	pattern := func() string {
		return pick("'order-%'", "'ORDER-%'", "'ord%'", "'order'", "'o_der-1'", "'%'", "'%1'", "''", "null", "'order-1'",
			"'mail-7%'", "'päck%'", "'PÄCK%'", "'-%'", "7", "'order*'", "'o[r]der-?'", "'Order-*'", "'ord_r-%'",
			"'order-1%'", "'pa%'")
	}
	numbers := map[string][]string{"messages": {"global", "position"}, "events": {"position"}, "tasks": {"priority"},
		"streams": {"version"}}
	texts := map[string][]string{"messages": {"stream", "category", "type", "id"}, "events": {"log", "type", "id"},
		"tasks": {"id", "queue", "state", "key"}, "streams": {"stream", "category"}}
	shown := map[string]string{"messages": "global", "events": "log || position", "tasks": "id",
		"streams": "stream", "keys": "bucket || hex(key)"}
	numbers["keys"], texts["keys"] = []string{"key"}, []string{"bucket", "key"}
	condition := func(table string) string {
		switch r.IntN(4) {
		case 0:
			column := pick(numbers[table]...)
			switch r.IntN(5) {
			case 0:
				return column + " between " + number() + " and " + number()
			case 1:
				return column + " in (" + number() + ", " + number() + ")"
			}
			return column + pick(" = ", " < ", " <= ", " > ", " >= ", " == ", " is ", " <> ") + number()
		case 1:
			return pick(texts[table]...) + pick(" like ", " glob ", " not like ") + pattern()
		case 2:
			return pick(texts[table]...) + " in (" + text() + ", " + text() + ")"
		}
		return pick(texts[table]...) + pick(" = ", " = ", " is ", " > ") + text() +
			pick("", "", " collate nocase", " collate rtrim")
	}
	found := 0
	for i := range 3000 {
		table := pick("messages", "messages", "events", "tasks", "streams", "keys")
		sql := "select " + shown[table] + " from " + table + " where " + condition(table)
		for range r.IntN(3) {
			sql += pick(" and ", " and ", " or ") + condition(table)
		}
		ordered := r.IntN(3) == 0
		if ordered { // by what no two have, so that there is one order
			column := map[string]string{"messages": "global", "events": pick("position", "log, position"), "tasks": "id",
				"streams": "stream", "keys": "bucket desc, key"}[table]
			sql += " order by " + column + pick("", " desc") + pick("", "", " limit 3", " limit 2 offset 20")
			if column == "position" {
				sql = strings.Replace(sql, "where ", "where log = "+pick("''", "'audit'")+" and (", 1)
				sql = strings.Replace(sql, " order by", ") order by", 1)
			}
		}
		got, err := ask(t.Context(), db, sql)
		want := ownRows(sql)
		if !ordered {
			slices.Sort(got)
			slices.Sort(want)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d: %s\ngot  %q, %v\nwant %q", i, sql, got, err, want)
		}
		found += min(len(got), 1)
	}
	if found < 500 {
		t.Errorf("only %d conditions found something", found)
	}
}

// TestOnlyReads: whatever is not a statement that reads is refused, and changes nothing.
func TestOnlyReads(t *testing.T) {
	s := fill(t)
	db := open(t, s)
	t.Chdir(t.TempDir())
	for _, sql := range []string{
		"insert into messages(stream) values ('x')", "update messages set type = 'x'", "delete from messages",
		"with x as (select 1) delete from events", "replace into tasks(id) values ('x')", "drop table messages",
		"create table t(x)", "create temp table t(x)", "create view v as select 1",
		"create virtual table v using messages",
		"create trigger x after insert on messages begin select 1; end", "create index i on messages(type)",
		"alter table messages rename to m", "attach 'file.db' as f", "attach ':memory:' as f", "detach main", "vacuum",
		"vacuum into 'file.db'", "pragma user_version = 7", "pragma temp_store = file", "pragma writable_schema = on",
		"pragma journal_mode = wal", "begin", "begin immediate", "commit", "rollback", "savepoint s", "analyze",
		"select 1; select 2", "select 1; drop table messages", "", ";", "-- nothing", "selec 1", "select 1 from nowhere",
		"select '\xff'", "select 1\x00", "\xff", "select load_extension('x')", "select writefile('file.db', 'x')",
		"insert into sqlite_schema values (1, 2, 3, 4, 5)", "select * from pragma_user_version",
		"explain delete from messages",
		"select fts5(1)", "update sqlite_schema set sql = ''", "select (", "select 1 from messages where",
	} {
		if got, err := ask(t.Context(), db, sql); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%q: %q, %v", sql, got, err)
		}
	}
	if got, err := ask(t.Context(), db, "select count(*), (select count(*) from events), (select count(*) from tasks), "+
		"(select count(*) from sqlite_schema) from messages"); err != nil || !slices.Equal(got, []string{"200|100|30|0"}) {
		t.Error(got, err)
	}
	if list, err := os.ReadDir("."); err != nil || len(list) > 0 {
		t.Errorf("files were made: %v, %v", list, err)
	}
}

// TestFixed: a DB shows what was there when it was opened, while others write and remove, and its engine is closed in
// peace.
func TestFixed(t *testing.T) {
	s := fill(t)
	db := open(t, s)
	sql := "select (select count(*) from messages where stream = 'order-1'), (select count(*) from messages), " +
		"(select count(*) from events where log = ''), (select count(*) from tasks where state = 'waiting')"
	for i := range 3 {
		for range 20 {
			_, err := s.messages.Write(t.Context(), "order-1", message.Message{Type: "x", Data: []byte("{}")})
			testkit.Try(t, err)
			_, err = s.log.Append(t.Context(), event.Event{Type: "x"})
			testkit.Try(t, err)
			_, err = s.tasks.Claim(t.Context(), task.ClaimOptions{Queues: []string{"b"}})
			testkit.Try(t, err)
		}
		if i == 1 {
			_, err := s.messages.Delete(t.Context(), "order-1")
			testkit.Try(t, err)
			_, err = s.log.TruncateBefore(t.Context(), s.log.Last()-3)
			testkit.Try(t, err)
		}
		got, err := ask(t.Context(), db, sql)
		if err != nil || !slices.Equal(got, []string{"23|200|50|27"}) {
			t.Errorf("%d: %q, %v", i, got, err)
		}
	}
	later := open(t, s)
	if got, err := ask(t.Context(), later, sql); err != nil || !slices.Equal(got, []string{"20|197|24|12"}) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestLimits: what never ends, ends: by its context, and by its memory.
func TestLimits(t *testing.T) {
	s := fill(t)
	db := open(t, s)
	for _, sql := range []string{
		"with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c",
		"with recursive c(x) as (select 1 union all select x + 1 from c) select x from c where x = 1", // behind a row
		"select count(*) from messages a, messages b, messages c, messages d, messages e",
		"select a.data from messages a, messages b, messages c, messages d where a.data || b.data || c.data || d.data = 'x'",
	} {
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := ask(ctx, db, sql); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", sql, err)
		}
		stop()
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, rows, err := db.Query(ctx, "select global from messages")
	testkit.Try(t, err)
	n := 0
	for _, err = range rows {
		if n++; n == 3 {
			stop()
		}
	}
	if !errors.Is(err, context.Canceled) || n > 4 {
		t.Errorf("%d rows, %v", n, err)
	}
	// The DB is as good as before.
	if got, err := ask(t.Context(), db, "select count(*) from messages"); err != nil || got[0] != "200" {
		t.Error(got, err)
	}

	small, err := query.Open(s.engine, query.Options{Memory: 1})
	testkit.Try(t, err)
	defer small.Close()
	for _, sql := range []string{
		"select a.data from messages a, messages b order by a.data || b.data || hex(zeroblob(1000))",
		"select length(group_concat(hex(zeroblob(10000)))) from messages a, messages b",
		"select hex(zeroblob(1000000000))",
		"with recursive c(x) as (select 1 union select x + 1 from c) select count(*) from c",
	} {
		if got, err := ask(t.Context(), small, sql); !errors.Is(err, holdfast.ErrTooLarge) {
			t.Errorf("%s: %.100q, %v", sql, got, err)
		}
	}
	if got, err := ask(t.Context(), small, "select count(*) from messages"); err != nil || got[0] != "200" {
		t.Error(got, err)
	}
}

// TestNamespaces: each shows what is its own, and logs of programs may have slashes in their names.
func TestNamespaces(t *testing.T) {
	s := fill(t)
	_, err := s.store.Create(t.Context(), message.NamespaceOptions{ID: "shop"})
	testkit.Try(t, err)
	db := kv.On(s.engine).At(holdfast.Memory)
	for _, name := range []string{"shop/log", "own/log"} {
		log, err := event.Open(db, event.Options{Name: name})
		testkit.Try(t, err)
		_, err = log.Append(t.Context(), event.Event{Type: name})
		testkit.Try(t, err)
	}
	for namespace, want := range map[string]string{"": "200|,audit,own/log|30", "shop": "0|log|0",
		"default": "200|,audit,own/log|30"} {
		db, err := query.Open(s.engine, query.Options{Namespace: namespace})
		testkit.Try(t, err)
		got, err := ask(t.Context(), db, "select (select count(*) from messages), "+
			"(select group_concat(log) from (select distinct log from events order by 1)), (select count(*) from tasks)")
		if err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, %v", namespace, got, err)
		}
		testkit.Try(t, db.Close())
	}
	none, err := query.Open(s.engine, query.Options{Namespace: "none"})
	testkit.Try(t, err)
	defer none.Close()
	if _, err := ask(t.Context(), none, "select * from messages"); !errors.Is(err, message.ErrNoNamespace) {
		t.Error(err)
	}
}

// TestExport: the file has all tables as they are, and any tool opens it.
func TestExport(t *testing.T) {
	db := open(t, fill(t))
	file := filepath.Join(t.TempDir(), "all.db")
	testkit.Try(t, db.Export(t.Context(), file))
	if err := db.Export(t.Context(), file); !errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
	own, err := sqlite3.OpenFlags(file, sqlite3.OPEN_READONLY)
	testkit.Try(t, err)
	defer own.Close()
	for _, table := range db.Tables() {
		want, err := ask(t.Context(), db, "select count(*) from "+table)
		testkit.Try(t, err)
		s, _, err := own.Prepare("select count(*) from " + table)
		testkit.Try(t, err)
		if !s.Step() || s.ColumnText(0) != want[0] || want[0] == "0" {
			t.Errorf("%s has %s rows, not %s: %v", table, s.ColumnText(0), want[0], s.Err())
		}
		testkit.Try(t, s.Close())
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	again := file + "2"
	if err := db.Export(ctx, again); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := os.Stat(again); !errors.Is(err, os.ErrNotExist) {
		t.Error("what was not whole is there:", err)
	}
}

// FuzzQuery: whatever a user types, the answer is rows or an error that says what is wrong, in time and within memory,
// and nothing is changed.
func FuzzQuery(f *testing.F) {
	s := fill(f)
	db, err := query.Open(s.engine, query.Options{Memory: 4 << 20})
	testkit.Try(f, err)
	f.Cleanup(func() { testkit.Try(f, db.Close()) })
	f.Chdir(f.TempDir())
	const state = "select (select count(*) from messages), (select count(*) from events), (select count(*) from tasks), " +
		"(select count(*) from keys), (select count(*) from sqlite_schema)"
	f.Fuzz(func(t *testing.T, sql string) {
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		ended := make(chan error, 1)
		go func() {
			_, err := ask(ctx, db, sql)
			ended <- err
		}()
		switch err := testkit.Receive(t, fmt.Sprintf("the end of %q", sql), ended); {
		case err == nil, errors.Is(err, holdfast.ErrBadOption), errors.Is(err, holdfast.ErrTooLarge),
			errors.Is(err, context.DeadlineExceeded):
		default:
			t.Errorf("%q: %v", sql, err)
		}
		if got, err := ask(t.Context(), db, state); err != nil || got[0] != "200|100|30|41|0" {
			t.Errorf("after %q: %q, %v", sql, got, err)
		}
		if list, err := os.ReadDir("."); err != nil || len(list) > 0 {
			t.Errorf("%q made files: %v, %v", sql, list, err)
		}
	})
}

// BenchmarkStream reads the 100 messages of a stream out of a million.
func BenchmarkStream(b *testing.B) {
	engine, err := logtree.Open(b.TempDir(), holdfast.Options{})
	testkit.Try(b, err)
	defer engine.Close()
	store, err := message.Open(kv.On(engine).At(holdfast.Memory), message.Options{})
	testkit.Try(b, err)
	defer store.Close()
	n, err := store.Namespace(b.Context(), message.Default)
	testkit.Try(b, err)
	messages := make([]message.Message, 100)
	for i := range messages {
		messages[i] = message.Message{Type: "Placed", Data: []byte(`{"total":17,"customer":"ann"}`)}
	}
	for i := range 10_000 {
		_, err := n.Write(b.Context(), fmt.Sprint("order-", i), messages...)
		testkit.Try(b, err)
	}
	db := open(b, &stores{engine: engine})
	for _, c := range []struct{ name, sql, want string }{
		{"stream", "select count(data ->> 'total') from messages where stream = 'order-%d'", "100"},
		{"end", "select count(*) from messages where stream = 'order-%d' and position >= 90", "10"},
		{"range", "select count(data ->> 'total') from messages where global between %d and %[1]d + 99", "100"},
		{"last", "select data, %d from messages order by global desc limit 1", ""},
		{"all", "select count(data ->> 'total') from messages /* %d */", "1000000"},
	} {
		b.Run(c.name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				got, err := ask(b.Context(), db, fmt.Sprintf(c.sql, 1+i*7919%9_999))
				if err != nil || c.want != "" && got[0] != c.want {
					b.Fatal(got, err)
				}
			}
		})
	}
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			db, err := query.Open(engine, query.Options{})
			testkit.Try(b, err)
			got, err := ask(b.Context(), db, "select count(*) from messages where stream = 'order-7'")
			if err != nil || got[0] != "100" {
				b.Fatal(got, err)
			}
			testkit.Try(b, db.Close())
		}
	})
}
