package v1_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/kv"
	core "github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/nodes/nodestest"
	"github.com/holdfastdb/holdfast/server/query"
	"github.com/holdfastdb/holdfast/store/message"
)

// endless is a query that never ends.
const endless = "with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c"

// asked is the answer to a query.
type asked struct {
	columns []string
	rows    [][]any
	problem *api.Problem // at its end
	status  int
	text    string // if it is no success
}

// query asks in a namespace.
func (s *server) query(ns string, q api.Query) (a asked) {
	s.t.Helper()
	resp, text := s.send("POST", "/v1/namespaces/"+ns+"/query", q)
	a.status = resp.StatusCode
	if a.status != http.StatusOK {
		a.text = string(text)
		return a
	}
	if kind := resp.Header.Get("Content-Type"); kind != "application/x-ndjson" {
		s.t.Fatalf("%s: Content-Type %q", q.SQL, kind)
	}
	ended := false
	for line := range bytes.Lines(text) {
		if ended {
			s.t.Fatalf("%s: the answer goes on behind its end: %q", q.SQL, line)
		}
		if line[0] == '[' {
			row, err := api.ReadRow(line)
			testkit.Try(s.t, err)
			a.rows = append(a.rows, row)
			continue
		}
		var l api.QueryLine
		testkit.Try(s.t, json.Unmarshal(line, &l))
		if l.Columns != nil {
			a.columns = l.Columns
			continue
		}
		if a.problem, ended = l.Problem, true; l.Rows != nil && int(*l.Rows) != len(a.rows) {
			s.t.Fatalf("%s: %d rows, and it says %d", q.SQL, len(a.rows), *l.Rows)
		}
	}
	if !ended {
		s.t.Fatalf("%s: the answer has no end: %q", q.SQL, text)
	}
	return a
}

// one asks for one value.
func (s *server) one(ns, sql string) any {
	s.t.Helper()
	a := s.query(ns, api.Query{SQL: sql})
	if len(a.rows) != 1 || a.problem != nil {
		s.t.Fatalf("%s: %+v", sql, a)
	}
	return a.rows[0][0]
}

// refusedQuery asks for what must be refused with a code.
func (s *server) refusedQuery(code, ns string, q any) api.Problem {
	s.t.Helper()
	return s.refused(code, "POST", "/v1/namespaces/"+ns+"/query", q)
}

// with is the server, asked with another token.
func (s *server) with(token string) *server {
	other := *s
	other.token = token
	return &other
}

func TestQuery(t *testing.T) {
	s := start(t, nil, core.Options{Query: query.Served{}, MaxQueries: 3})
	do[api.Written](s, "POST", in("/messages"), write("order-1", 5))
	do[api.Written](s, "POST", in("/messages"), write("order-2", 3))
	a := s.query("default", api.Query{SQL: "select stream, count(*), 1.0, null, x'00ff', data from messages " +
		"where category = ? and position < ?2 group by 1 order by 1", Args: json.RawMessage(`["order", 4]`)})
	want := asked{status: 200, columns: []string{"stream", "count(*)", "1.0", "null", "x'00ff'", "data"}, rows: [][]any{
		{
			"order-1",
			int64(4),
			1.0,
			nil,
			[]byte{0, 255},
			`{"n":0}`,
		}, {"order-2", int64(3), 1.0, nil, []byte{0, 255}, `{"n":0}`}}}
	if !reflect.DeepEqual(a, want) {
		t.Errorf("%+v, want %+v", a, want)
	}
	for args, want := range map[string][]any{
		`{"a": true, ":b": {"base64": "AP8="}}`: {int64(1), []byte{0, 255}}, `[9007199254740993, 1e999]`: {
			int64(9007199254740993), nil},
		`["ä\u0000", -0.5]`: {"ä\x00", -0.5}, ` [ null , 7.0 ] `: {nil, 7.0},
	} {
		a := s.query("default", api.Query{SQL: "select :a, :b", Args: json.RawMessage(args)})
		if len(a.rows) != 1 || want[1] != nil && !reflect.DeepEqual(a.rows[0], want) || a.rows[0][0] != want[0] {
			t.Errorf("%s: %+v", args, a)
		}
	}
	for _, args := range []string{`[1]`, `[1,2,3]`, `{"a":1}`, `{"a":1,"c":2}`, `{"a":1,"a":2}`, `[[1],2]`,
		`[{"base64":"!"},2]`,
		`[{},2]`, `"x"`, `7`} {
		s.refusedQuery(api.CodeBadRequest, "default", `{"sql":"select :a, :b","args":`+args+`}`)
	}

	// How it is run, and CSV.
	if a := s.query("default", api.Query{SQL: "select * from messages where stream = ?", Explain: true}); len(
		a.rows,
	) != 1 ||
		a.rows[0][0] != "SCAN messages VIRTUAL TABLE INDEX 0:stream = ?" {
		t.Errorf("%+v", a)
	}
	resp, text := s.send(
		"POST",
		in("/query"),
		api.Query{SQL: `select 'a,"b' as x, x'00ff' as y, null as z, 0.5`, Format: "csv"},
	)
	if got := string(text); got != "x,y,z,0.5\n\"a,\"\"b\",AP8=,,0.5\n" ||
		!strings.HasPrefix(resp.Header.Get("Content-Type"), "text/csv") {
		t.Errorf("%q, %v", got, resp.Header)
	}

	info := do[api.QueryInfo](s, "GET", in("/query"), nil)
	names := []string{}
	for _, t := range info.Tables {
		names = append(names, t.Name)
	}
	if got := fmt.Sprint(names, info.TimeMS, info.Rows, info.MemoryBytes, info.AtOnce); got !=
		"[messages streams events subscriptions tasks queues] 30000 1000000 67108864 3" ||
		!strings.HasPrefix(info.Tables[0].SQL, "CREATE TABLE messages(") {
		t.Error(got, info)
	}

	// What is wrong is said.
	for _, q := range []string{`{}`, `{"sql":""}`, `{"sql":"select nowhere"}`, `{"sql":"select 1; select 2"}`,
		`{"sql":"select 1","format":"xml"}`, `{"sql":"select 1","rows":-1}`, `{"sql":"select 1","what":1}`,
		`{"sql":"\ud800"}`,
		`{"sql":"select \u0000"}`, `select 1`, ``, "{\"sql\":\"select '\xff'\"}"} {
		s.refusedQuery(api.CodeBadRequest, "default", q)
	}
	s.refusedQuery(api.CodeNoNamespace, "none", api.Query{SQL: "select 1"})
	s.refusedQuery(api.CodeTooLarge, "default", api.Query{SQL: "select '" + strings.Repeat("x", 1<<20) + "'"})
	s.refusedQuery(api.CodeBadRequest, "default", api.Query{SQL: "select '" + strings.Repeat("x", 600<<10) + "'"})
}

// TestNoQueries: a server that was not given what answers queries has none.
func TestNoQueries(t *testing.T) {
	s := start(t, nil, core.Options{})
	s.refusedQuery(api.CodeNotImplemented, "default", api.Query{SQL: "select 1"})
	s.refused(api.CodeNotImplemented, "GET", in("/query"), nil)
}

// TestQueryAccess: a token needs the role, and sees its namespace only; nobody sees keys, and with them tokens.
func TestQueryAccess(t *testing.T) {
	s := start(t, nil, core.Options{Query: query.Served{}})
	made := do[api.Namespace](s, "POST", "/v1/namespaces", api.NewNamespace{ID: "shop"})
	do[api.Namespace](s, "POST", "/v1/namespaces", api.NewNamespace{ID: "shop2"})
	for _, ns := range []string{"default", "shop", "shop2"} {
		path := "/v1/namespaces/" + ns
		do[api.Written](s, "POST", path+"/messages", write("of-"+ns, 2))
		do[api.Appended](s, "POST", path+"/logs/log/events", api.Append{Events: []api.NewEvent{{Type: ns}}})
		do[api.EnqueueResult](s, "POST", path+"/tasks", api.Enqueue{Tasks: []api.NewTask{{ID: ns, Kind: "k"}}})
	}
	const everything = "select (select group_concat(distinct stream) from messages), " +
		"(select group_concat(log || type) from events), " +
		"(select group_concat(id) from tasks), (select group_concat(stream) from streams), (select count(*) from queues)"
	for _, ns := range []string{"default", "shop", "shop2"} {
		a := s.query(ns, api.Query{SQL: everything})
		if want := []any{"of-" + ns, "log" + ns, ns, "of-" + ns, int64(1)}; len(a.rows) != 1 ||
			!reflect.DeepEqual(a.rows[0], want) {
			t.Errorf("%s shows %+v, want %v", ns, a, want)
		}
	}
	for _, table := range []string{"keys", "sqlite_schema", "sqlite_master", "pragma_table_info('messages')", "dbstat",
		"bytecode('select 1')", "json_each('[1]') j join keys", "main.keys", "temp.sqlite_schema"} {
		a := s.query("default", api.Query{SQL: "select * from " + table})
		if a.status == 200 && len(a.rows) > 0 {
			t.Errorf("%s has %v", table, a.rows)
		}
	}
	for role, may := range map[auth.Role]bool{auth.Read: false, auth.Write: false, auth.Query: true, auth.Admin: true} {
		for _, of := range []string{"shop", auth.Everywhere} {
			mine := s.with(s.newToken(of, role))
			for _, ns := range []string{"default", "shop", "shop2"} {
				if may && (of == ns || of == auth.Everywhere) {
					if got := mine.one(ns, "select count(*) from messages"); got != int64(2) {
						t.Errorf("%v of %s in %s: %v", role, of, ns, got)
					}
					continue
				}
				mine.refusedQuery(api.CodeForbidden, ns, api.Query{SQL: "select 1"})
				mine.refused(api.CodeForbidden, "GET", "/v1/namespaces/"+ns+"/query", nil)
			}
		}
	}
	s.with(made.Token).one("shop", "select 1") // a namespace's own token may do everything in it
	s.with(made.Token).refusedQuery(api.CodeForbidden, "default", api.Query{SQL: "select 1"})
	s.with("").refusedQuery(api.CodeUnauthorized, "shop", api.Query{SQL: "select 1"})

	// One that queries reads, and does no more.
	mine := s.with(s.newToken("shop", auth.Query))
	do[api.Messages](mine, "GET", "/v1/namespaces/shop/messages", nil)
	mine.refused(api.CodeForbidden, "POST", "/v1/namespaces/shop/messages", write("x-1", 1))
	mine.refused(api.CodeForbidden, "POST", "/v1/tokens", api.NewToken{Namespace: "shop", Role: "query"})
	made2 := do[api.Token](s.with(made.Token), "POST", "/v1/tokens", api.NewToken{Namespace: "shop", Role: "query"})
	if got := do[api.Token](s.with(made2.Secret), "GET", "/v1/token", nil); got.Role != "query" ||
		got.Namespace != "shop" {
		t.Errorf("%+v", got)
	}
}

// TestQueryWritesNothing: whatever is asked, the engine's keys stay as they are.
func TestQueryWritesNothing(t *testing.T) {
	s := start(t, nil, core.Options{Query: query.Served{}})
	do[api.Written](s, "POST", in("/messages"), write("order-1", 5))
	before := keysOf(t, s.engine)
	for _, sql := range []string{"insert into messages(stream) values ('x')", "update messages set type = 'x'",
		"delete from messages", "drop table messages", "create table t(x)", "attach 'file.db' as f", "vacuum into 'file.db'",
		"pragma writable_schema = on", "begin", "select load_extension('x')", "with x as (select 1) delete from events",
		"create trigger x after insert on messages begin select 1; end", "replace into tasks(id) values ('x')"} {
		s.refusedQuery(api.CodeBadRequest, "default", api.Query{SQL: sql})
	}
	for _, sql := range []string{"select * from messages", "select * from tasks, queues, streams, subscriptions, events"} {
		if a := s.query("default", api.Query{SQL: sql}); a.problem != nil || a.status != 200 {
			t.Errorf("%s: %+v", sql, a)
		}
	}
	if after := keysOf(t, s.engine); after != before {
		t.Errorf("a query has changed keys:\n%s\nwere\n%s", after, before)
	}
	if _, err := os.Stat("file.db"); !errors.Is(err, os.ErrNotExist) {
		t.Error("a query has made a file:", err)
	}
}

func keysOf(t *testing.T, e holdfast.Engine) string {
	t.Helper()
	var b strings.Builder
	it := e.Scan(holdfast.Range{})
	for it.Next() {
		fmt.Fprintf(&b, "%q=%q\n", it.Key(), it.Value())
	}
	testkit.Try(t, it.Close())
	return b.String()
}

// TestQueryLimits: what never ends, or is too large, ends with what is wrong, and the server's limits are the most
// that a query gets.
func TestQueryLimits(t *testing.T) {
	s := start(t, nil, core.Options{Query: query.Served{}, QueryTime: 300 * time.Millisecond, QueryRows: 1000,
		QueryMemory: 8 << 20})
	do[api.Written](s, "POST", in("/messages"), write("order-1", 1000))
	for _, sql := range []string{endless, "select count(*) from messages a, messages b, messages c",
		"select x from (with recursive c(x) as (select 1 union all select x + 1 from c) select x from c) where x < 0",
		"select a.data from messages a, messages b, messages c where a.data || b.data || c.data = 'x'"} {
		for _, q := range []api.Query{{SQL: sql}, {SQL: sql, TimeMS: 10}, {SQL: sql, TimeMS: 1 << 50},
			{SQL: sql, Format: "csv"}} {
			p := s.refusedQuery(api.CodeTooLarge, "default", q)
			want := "longer than 300ms"
			if q.TimeMS == 10 {
				want = "longer than 10ms"
			}
			if !strings.Contains(p.Detail, want) {
				t.Errorf("%+v: %s", q, p.Detail)
			}
		}
	}
	for _, sql := range []string{"select hex(zeroblob(100000000))",
		"select group_concat(a.data || b.data) from messages a, messages b",
		"select a.data from messages a, messages b order by a.data || b.data || hex(randomblob(1000))",
		"with recursive c(x) as (select 1 union select x + 1 from c) select count(*) from c", "select zeroblob(1000000000)",
		"select base64(zeroblob(1500000)) || base64(zeroblob(1500000)) || " +
			"base64(zeroblob(1500000)) || base64(zeroblob(1500000))"} {
		p := s.refusedQuery(api.CodeTooLarge, "default", api.Query{SQL: sql, MemoryBytes: 1 << 40})
		if !strings.Contains(p.Detail, "8 MiB") && !strings.Contains(p.Detail, "longer than") {
			t.Errorf("%s: %s", sql, p.Detail)
		}
	}
	s = start(t, nil, core.Options{Query: query.Served{}, QueryTime: time.Hour, QueryRows: 1000})
	do[api.Written](s, "POST", in("/messages"), write("order-1", 1000))
	for most, q := range map[int]api.Query{1000: {SQL: "select a.data from messages a, messages b", Rows: 1 << 40},
		7: {SQL: "select data from messages", Rows: 7}} {
		a := s.query("default", q)
		if len(a.rows) != most || a.problem == nil || a.problem.Code != api.CodeTooLarge || a.problem.Request == "" ||
			!strings.Contains(a.problem.Detail, fmt.Sprintf("more than %d rows", most)) {
			t.Errorf("%d rows, %+v", len(a.rows), a.problem)
		}
	}
	// As many as are allowed are no error.
	if a := s.query("default", api.Query{SQL: "select data from messages"}); len(a.rows) != 1000 || a.problem != nil {
		t.Errorf("%d rows, %+v", len(a.rows), a.problem)
	}
}

// running waits until so many queries are being run or wait: what the engine says of open snapshots.
func (s *server) running(n int) {
	s.t.Helper()
	if !testkit.Holds(func() bool { return s.engine.Metrics().OpenSnapshots == int64(n) }) {
		s.t.Fatalf("%d snapshots are open, not %d", s.engine.Metrics().OpenSnapshots, n)
	}
}

// begin begins a query whose answer nobody reads. cancel makes the client go away.
func (s *server) begin(sql string) (cancel func()) {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	body, err := json.Marshal(api.Query{SQL: sql})
	testkit.Try(s.t, err)
	r, err := http.NewRequestWithContext(ctx, "POST", s.url+in("/query"), bytes.NewReader(body))
	testkit.Try(s.t, err)
	r.Header.Set("Authorization", "Bearer "+s.token)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		resp, err := http.DefaultTransport.(*http.Transport).Clone().RoundTrip(r)
		if err == nil {
			<-ctx.Done()
			resp.Body.Close()
		}
	}()
	return func() { stop(); <-ended }
}

// TestQueryCancelled: a query ends when its client goes away, also in the middle of an answer that nobody reads, and
// when the server stops.
func TestQueryCancelled(t *testing.T) {
	s := start(t, nil, core.Options{Query: query.Served{}, QueryTime: time.Hour, QueryRows: -1, MaxQueries: 1})
	do[api.Written](s, "POST", in("/messages"), write("order-1", 1000))
	for _, sql := range []string{endless, "select a.data, b.data from messages a, messages b, messages c"} {
		cancel := s.begin(sql)
		s.running(1)
		cancel()
		s.running(0)
		if got := s.one("default", "select count(*) from messages"); got != int64(1000) { // there is a turn again
			t.Error(got)
		}
	}
	cancel := s.begin(endless)
	defer cancel()
	s.running(1)
	s.stop() // within its patience
	if n := s.engine.Metrics().OpenSnapshots; n != 0 {
		t.Errorf("%d snapshots are open", n)
	}
}

// TestQueryTurns: only so many run at once, half of them with tokens of one namespace; others wait, and too many are
// refused.
func TestQueryTurns(t *testing.T) {
	s := start(t, nil, core.Options{Query: query.Served{}, QueryTime: time.Hour, MaxQueries: 4})
	do[api.Namespace](s, "POST", "/v1/namespaces", api.NewNamespace{ID: "shop"})
	s.token = s.newToken("default", auth.Query)
	for range 3 {
		defer s.begin(endless)()
	}
	s.running(2)
	s.refusedQuery(api.CodeTooMany, "default", api.Query{SQL: "select 1"}) // after a while

	other := s.with(s.newToken("shop", auth.Query))
	if got := other.one("shop", "select 1"); got != int64(1) {
		t.Error(got)
	}
	every := s.with(s.newToken(auth.Everywhere, auth.Query))
	defer every.begin(endless)()
	s.running(3)
	defer every.begin(endless)()
	s.running(4)
	s.refusedQuery(api.CodeTooMany, "default", api.Query{SQL: "select 1"})
	every.refusedQuery(api.CodeTooMany, "default", api.Query{SQL: "select 1"})
}

// TestQueryFixed: each query sees one state, while others write. What it shows was acknowledged or survives all the
// same.
func TestQueryFixed(t *testing.T) {
	engine, err := logtree.Open(t.TempDir(), holdfast.Options{})
	testkit.Try(t, err)
	t.Cleanup(func() { testkit.Try(t, engine.Close()) })
	s := start(t, engine, core.Options{Query: query.Served{}})
	var writers sync.WaitGroup
	ended := make(chan struct{})
	n, err := s.data.Messages().Namespace(t.Context(), message.Default)
	testkit.Try(t, err)
	db := kv.On(engine)
	for i := range 2 {
		writers.Go(func() {
			for j := 0; ; j++ {
				select {
				case <-ended:
					return
				default:
				}
				// Two messages in one commit, of which no query sees one alone.
				err := db.Update(t.Context(), func(tx *kv.Tx) error {
					for _, stream := range []string{"a", "b"} {
						_, err := n.In(tx).Write(fmt.Sprint(stream, "-", i), message.Message{Type: "T", Data: []byte("{}")})
						if err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	last := int64(-1)
	for i := 0; i < 50 || last <= 0 && !t.Failed(); i++ { // until something was written meanwhile
		a := s.query("default", api.Query{SQL: "select (select count(*) from messages where category = 'a'), " +
			"(select count(*) from messages where category = 'b'), (select count(*) from messages), " +
			"(select max(global) from messages)"})
		if len(a.rows) != 1 {
			t.Fatalf("%+v", a)
		}
		row := a.rows[0]
		if row[0] != row[1] || row[2] != row[0].(int64)*2 || row[2] != int64(0) && row[3] != row[2] || row[2].(int64) < last {
			t.Fatalf("a query saw %v, and another one %d before", row, last)
		}
		last = row[2].(int64)
	}
	close(ended)
	writers.Wait()
}

// TestQueryHarm: 64 queries at once, each of the worst, beside writers and a follower: these go on, the memory of the
// process stays bounded, and nothing is left.
func TestQueryHarm(t *testing.T) {
	engine, err := logtree.Open(t.TempDir(), holdfast.Options{})
	testkit.Try(t, err)
	t.Cleanup(func() { testkit.Try(t, engine.Close()) })
	const memory = 16 << 20
	s := start(t, engine, core.Options{Query: query.Served{}, QueryTime: time.Second, QueryMemory: memory, MaxQueries: 4,
		QueryRows: 10_000})
	do[api.Written](s, "POST", in("/messages"), write("order-1", 1000))
	for range 20 {
		n, err := s.data.Messages().Namespace(t.Context(), message.Default)
		testkit.Try(t, err)
		_, err = n.Write(t.Context(), "large-1", message.Message{Type: "Large",
			Data: []byte(`{"text":"` + strings.Repeat("x", 1<<20) + `"}`)})
		testkit.Try(t, err)
	}
	follower := s.follow(in("/messages/follow?stream=beat-1"), "")

	stop := make(chan struct{})
	var most uint64
	var work sync.WaitGroup
	work.Go(func() { // what the process has of the system, and SQLite's memory is not Go's
		for {
			most = max(most, resident(t))
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	runtime.GC()
	before := resident(t)
	worst := []string{endless, "select * from messages a, messages b", "select data from messages order by global desc",
		"select group_concat(data) from messages", "select hex(zeroblob(1000000000))",
		"select '" + strings.Repeat("x", 500<<10) + "'",
		"select a.data || b.data from messages a, messages b order by 1", "select replace(data, 'x', data) from messages",
		"select " + strings.Repeat(
			"(",
			900,
		) + "1" + strings.Repeat(
			")",
			900,
		), "select 1 in (" + strings.Repeat("1,", 200_000) + "1)",
		billion, "select instr(a.data, b.data) from messages a, messages b where a.stream = 'large-1' " +
			"and b.stream = 'large-1'"}
	var queries sync.WaitGroup
	for i := range 64 {
		queries.Go(func() {
			for j := range 2 {
				q := api.Query{SQL: worst[(i+j)%len(worst)]}
				if i%8 == 7 {
					s.begin(q.SQL)() // and goes away
					continue
				}
				body, err := json.Marshal(q)
				if err != nil {
					t.Error(err)
					return
				}
				r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+in("/query"), bytes.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Authorization", "Bearer "+s.token)
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = io.Copy(io.Discard, resp.Body) // an answer is not kept: this process is measured
				_ = resp.Body.Close()
				if code := resp.StatusCode; err != nil || code != 200 && code != 400 && code != 413 && code != 429 {
					t.Errorf("%.100s: %s, %v", q.SQL, resp.Status, err)
				}
			}
		})
	}
	written := 0
	for done := false; !done; {
		do[api.Written](s, "POST", in("/messages"), write("beat-1", 1))
		if e := follower.want("message"); e.data == "" {
			t.Error("a follower got nothing")
		}
		written++
		select {
		case <-waited(&queries):
			done = true
		case <-time.After(time.Millisecond):
		}
	}
	close(stop)
	work.Wait()
	s.running(0)
	t.Logf("%d messages were written and followed meanwhile; %d MiB before, at most %d MiB", written, before>>20, most>>20)
	if most > before+4*8*memory {
		t.Errorf("the process had %d MiB, and %d before", most>>20, before>>20)
	}
	if got := do[api.Stream](s, "GET", in("/streams/beat-1"), nil); got.Version != int64(written-1) {
		t.Errorf("%+v after %d messages", got, written)
	}
}

// billion names tables of tables that double 40 times.
var billion = func() string {
	sql := "with t0 as (select 1 as x)"
	for i := range 40 {
		sql += fmt.Sprintf(", t%d as (select a.x from t%d a, t%[2]d b)", i+1, i)
	}
	return sql + " select count(*) from t40"
}()

// waited returns a channel that is closed when a group is done.
func waited(g *sync.WaitGroup) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		g.Wait()
		close(c)
	}()
	return c
}

// resident is the memory that the process has, in bytes; 0 where the system does not tell it like Linux.
func resident(t *testing.T) uint64 {
	if runtime.GOOS != "linux" {
		t.Log("the memory of the process is not known here")
		return 0
	}
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Error(err)
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kb uint64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
			return kb << 10
		}
	}
	t.Error("there is no VmRSS")

	return 0
}

// TestQueryOfProcesses: a process that does not own the data passes a query on, and its end.
func TestQueryOfProcesses(t *testing.T) {
	engine := mem.New()
	token := auth.NewNamespaceSecret(message.Default)
	d, address := nodestest.Start(t, engine, core.Options{Query: query.Served{}, QueryTime: time.Hour,
		Logger: slog.New(slog.DiscardHandler)},
		func(d *data.Data) error { return d.Tokens().SetOwn(t.Context(), message.Default, token) })
	s := &server{t: t, engine: engine, data: d, url: address, token: token}
	do[api.Written](s, "POST", in("/messages"), write("order-1", 5))
	a := s.query("default", api.Query{SQL: "select count(*) from messages"})
	if len(a.rows) != 1 || a.rows[0][0] != int64(5) {
		t.Errorf("%+v", a)
	}
	cancel := s.begin(endless)
	s.running(1)
	cancel()
	s.running(0)
}

// BenchmarkQuery asks a server for the 100 messages of a stream out of a million, over HTTP.
func BenchmarkQuery(b *testing.B) {
	engine, err := logtree.Open(b.TempDir(), holdfast.Options{})
	testkit.Try(b, err)
	defer engine.Close()
	d, err := data.Open(engine, data.Options{Level: holdfast.Power})
	testkit.Try(b, err)
	defer d.Close()
	n, err := d.Messages().Namespace(b.Context(), message.Default)
	testkit.Try(b, err)
	messages := make([]message.Message, 100)
	for i := range messages {
		messages[i] = message.Message{Type: "Placed", Data: []byte(`{"total":17,"customer":"ann"}`)}
	}
	for i := range 10_000 {
		_, err := n.Write(holdfast.WithLevel(b.Context(), holdfast.Process), fmt.Sprint("order-", i), messages...)
		testkit.Try(b, err)
	}
	s, err := core.New(d, core.Options{Query: query.Served{}, TestMode: true, Logger: slog.New(slog.DiscardHandler)})
	testkit.Try(b, err)
	h := httptest.NewServer(s)
	defer h.Close()
	c, err := client.New(h.URL, client.Options{})
	testkit.Try(b, err)
	for name, sql := range map[string]string{"stream": "select data ->> 'total', time from messages where stream = ?",
		"last":    "select data, time from messages where ? is not null order by global desc limit 100",
		"nothing": "select value from json_each('['||substr(replace(hex(zeroblob(100)), '00', ',7'), 2)||']') where ? > ''"} {
		b.Run(name, func(b *testing.B) {
			took := testkit.CPU(b)
			defer func() { took(b.N) }()
			for i := 0; b.Loop(); i++ {
				_, rows, err := c.Namespace(message.Default).Query(b.Context(), sql, fmt.Sprint("order-", i*7919%10_000))
				testkit.Try(b, err)
				n := 0
				for _, err := range rows {
					testkit.Try(b, err)
					n++
				}
				if n != 100 {
					b.Fatal(n, "rows")
				}
			}
		})
	}
}
