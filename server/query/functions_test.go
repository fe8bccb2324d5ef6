package query_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/server/query"
)

// empty is a DB of an engine with nothing in it.
func empty(t testing.TB, o query.Options) *query.DB {
	t.Helper()
	engine := mem.New()
	db, err := query.Open(engine, o)
	testkit.Try(t, err)
	t.Cleanup(func() {
		testkit.Try(t, db.Close())
		testkit.Try(t, engine.Close())
	})

	return db
}

// TestFunctions: functions that are replaced do what SQLite's own do.
func TestFunctions(t *testing.T) {
	db := empty(t, query.Options{})
	own, err := sqlite3.Open(":memory:")
	testkit.Try(t, err)
	defer own.Close()
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	text := func(most int, parts ...string) string {
		var s strings.Builder
		for range r.IntN(most) {
			s.WriteString(pick(parts...))
		}
		return "'" + s.String() + "'"
	}
	value := func() string {
		switch r.IntN(12) {
		case 0:
			return pick("null", "7", "1.5", "-0", "x''", "x'6162'", "x'61'", "x'ff61'")
		case 1:
			return "'a' || char(0) || 'b'"
		}
		return text(8, "a", "b", "A", "ä", "€", "😀", " ", "ab", "-", "]")
	}
	like := func() string {
		if r.IntN(12) == 0 {
			return value()
		}
		return text(8, "a", "b", "B", "ä", "%", "%", "_", "\\", "😀", "€")
	}
	glob := func() string {
		if r.IntN(12) == 0 {
			return value()
		}
		return text(
			8,
			"a",
			"b",
			"*",
			"*",
			"?",
			"[ab]",
			"[^a]",
			"[a-c]",
			"[",
			"]",
			"[]a]",
			"[^]]",
			"[a-",
			"-",
			"ä",
			"[ä-€]",
			"[^",
		)
	}
	for i := range 20_000 {
		var call string
		switch r.IntN(8) {
		case 0:
			call = fmt.Sprintf("instr(%s, %s)", value(), value())
		case 1:
			call = fmt.Sprintf("replace(%s, %s, %s)", value(), value(), value())
		case 2:
			call = fmt.Sprintf("%s(%s, %s)", pick("trim", "ltrim", "rtrim"), value(), value())
		case 3:
			call = fmt.Sprintf("%s(%s)", pick("trim", "ltrim", "rtrim"), value())
		case 4:
			call = fmt.Sprintf("%s like %s escape %s", value(), like(), pick("'\\'", "'%'", "'_'", "'a'", "'€'", "''", "'ab'"))
		case 5:
			call = fmt.Sprintf("%s glob %s", value(), glob())
		default:
			call = fmt.Sprintf("%s %s %s", value(), pick("like", "not like"), like())
		}
		sql := fmt.Sprintf("select typeof(%s), hex(%[1]s)", call)
		want, wrong := "", error(nil)
		if s, _, err := own.Prepare(sql); err != nil {
			wrong = err
		} else {
			if s.Step() {
				want = s.ColumnText(0) + "|" + s.ColumnText(1)
			}
			wrong = s.Err()
			_ = s.Close() // which says the same again
		}
		got, err := ask(t.Context(), db, sql)
		if (err != nil) != (wrong != nil) || err == nil && got[0] != want {
			t.Fatalf("%d: %s\ngot  %q, %v\nwant %q, %v", i, sql, got, err, want, wrong)
		}
	}
}

// TestEndless: no single call of a function goes on when its query is to end. SQLite's own would take hours.
func TestEndless(t *testing.T) {
	db := empty(t, query.Options{Memory: 128 << 20})
	const long, half = "hex(zeroblob(12000000))", "hex(zeroblob(6000000))"
	for _, call := range []string{
		"instr(" + long + ", " + half + " || '1')",
		"length(replace(" + long + ", " + half + " || '1', ''))",
		"length(trim(" + long + ", hex(randomblob(6000000)) || 'x'))",
		"length(rtrim(" + long + ", hex(randomblob(6000000)) || 'x'))",
		long + " like '%' || substr(" + half + ", 1, 40000) || '1%'",
		long + " glob '*' || substr(" + half + ", 1, 40000) || '1*'",
		long + " glob '*[' || substr(" + half + ", 1, 40000) || '1]*'",
		"length(unhex(" + long + ", hex(randomblob(6000000))))",
		"json_patch((select json_group_object('a' || x, x) from c), (select json_group_object('b' || x, x) from c))",
		"jsonb_patch((select json_group_object('a' || x, x) from c), (select json_group_object('b' || x, x) from c))",
	} {
		ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		ended := make(chan error, 1)
		go func() {
			_, err := ask(ctx, db, "with recursive c(x) as (select 1 union all select x + 1 from c limit 200000) select "+call)
			ended <- err
		}()
		if err := testkit.Receive(t, "the end of "+call, ended); err != nil && !errors.Is(err, context.DeadlineExceeded) &&
			!errors.Is(err, holdfast.ErrBadOption) && !errors.Is(err, holdfast.ErrTooLarge) {
			t.Errorf("%s: %v", call, err)
		}
		stop()
	}
	// What would be large is refused before it is made.
	if got, err := ask(t.Context(), db, "select length(replace("+long+", '0', "+half+"))"); !errors.Is(
		err,
		holdfast.ErrTooLarge,
	) {
		t.Errorf("%.100q, %v", got, err)
	}
}

// TestArguments: values for parameters, by position and by name, and what does not fit.
func TestArguments(t *testing.T) {
	db := empty(t, query.Options{})
	run := func(sql string, args ...any) (string, error) {
		columns, rows, err := db.Query(t.Context(), sql, args...)
		if err != nil {
			return "", err
		}
		text := strings.Join(columns, ",")
		for row, err := range rows {
			if err != nil {
				return "", err
			}
			text += fmt.Sprint(row)
		}
		return text, nil
	}
	const sql = "select typeof(?1) as a, ?1 as b, :name as c"
	for want, args := range map[string][]any{
		"a,b,c[text x 7]":       {"x", int64(7)},
		"a,b,c[null <nil> 1.5]": {nil, 1.5},
		"a,b,c[blob [0 255] y]": {query.Named{Name: ":name", Value: "y"}, query.Named{Name: "?1", Value: []byte{0, 255}}},
	} {
		if got, err := run(sql, args...); err != nil || got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	for _, args := range [][]any{{}, {"x"}, {"x", "y", "z"}, {query.Named{Name: ":none"}, "y"},
		{query.Named{Name: "?1"}, query.Named{Name: "?1"}}, {"x", query.Named{Name: "?1"}}} {
		got, err := run(sql, args...)
		if !errors.Is(err, holdfast.ErrBadOption) || strings.Count(err.Error(), "bad option") != 1 {
			t.Errorf("%v: %q, %v", args, got, err)
		}
	}
	// What no text is, is none.
	if got, err := run("select cast(x'ff00' as text) as a"); err != nil || got != "a[[255 0]]" {
		t.Error(got, err)
	}
}

// TestDeep: whatever is nested is run, or refused, and costs nothing that stays: SQLite's stack is small.
func TestDeep(t *testing.T) {
	s := fill(t)
	db := open(t, s)
	refused := 0
	for _, depth := range []int{20, 90, 150, 250, 350, 600, 990} {
		for _, parts := range [][3]string{{"select ", "1+", "1"}, {"select ", "not ", "1 from messages"},
			{"select 1 from messages where ", "1 between 0 and (", "1"}, {"select ", "iif(global,", "1"},
			{"select global from messages where global < 3 and ", "abs(", "global"},
			{"select * from ", "(select * from ", "messages"},
			{"select ", "(select ", "1"}, {"select count(*) from messages where ", "position = 1 or ", "1"}} {
			sql := parts[0] + strings.Repeat(parts[1], depth) + parts[2]
			open := strings.Repeat(")", strings.Count(parts[1], "(")*depth)
			switch {
			case strings.HasPrefix(parts[1], "iif"):
				open = strings.Repeat(",2)", depth) + " from messages"
			case strings.Contains(sql, "abs("):
				open += " > 0"
			}
			_, err := ask(t.Context(), db, sql+open)
			if err != nil && !errors.Is(err, holdfast.ErrTooLarge) && !errors.Is(err, holdfast.ErrBadOption) {
				t.Errorf("%.80q, %d deep: %v", sql, depth, err)
			}
			if errors.Is(err, holdfast.ErrTooLarge) {
				refused++
			}
			if got, err := ask(t.Context(), db, "select count(*) from messages"); err != nil || got[0] != "200" {
				t.Fatalf("after %.80q, %d deep: %q, %v", sql, depth, got, err)
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was too deep: this has tested nothing")
	}

	// A panic in the middle of rows leaves nothing open either.
	for range 3 {
		func() {
			defer func() {
				if recover() != "by the caller" {
					t.Error("the caller's panic has become another one")
				}
			}()
			_, rows, err := db.Query(t.Context(), "select * from messages")
			testkit.Try(t, err)
			for range rows {
				panic("by the caller")
			}
		}()
	}
	if got, err := ask(t.Context(), db, "select count(*) from messages"); err != nil || got[0] != "200" {
		t.Error(got, err)
	}
	if n := query.Abandoned(db); n == 0 {
		t.Error("the memory of what is abandoned is not found in this version of the library")
	}
}
