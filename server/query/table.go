package query

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ncruces/go-sqlite3"

	"github.com/holdfastdb/holdfast"
)

// column is one of a table of Ts.
type column[T any] struct {
	name, kind string // kind is SQLite's
	get        func(*T) any
	// Which conditions the scan can use, and the share of rows that are left by each.
	ops   string  // of = < like glob; < is for the four of them
	share float64 // by an =
}

// table is a virtual table of Ts.
type table[T any] struct {
	db      *DB
	name    string
	columns []column[T]
	rows    float64 // about how many, for SQLite to plan by
	rowid   func(*T) int64
	scan    func(f filter) iter.Seq2[*T, error]
	// order is the column in whose order the scan gives rows of some conditions, from the last if it is to be backwards;
	// "" if there is none.
	order func(has func(column string) bool) string
}

// shown is a table as Tables and Schema show it.
type shown struct{ name, schema string }

// Tables lists the tables.
func (db *DB) Tables() (names []string) {
	for _, t := range db.tables {
		names = append(names, t.name)
	}

	return names
}

// Schema returns a table as SQL; "" if there is none.
func (db *DB) Schema(table string) string {
	for _, t := range db.tables {
		if strings.EqualFold(t.name, table) {
			return t.schema
		}
	}

	return ""
}

// add adds a table to the DB.
func (t *table[T]) add() error {
	var columns []string
	for _, c := range t.columns {
		columns = append(columns, strings.TrimSpace(fmt.Sprintf("%q %s", c.name, c.kind)))
	}
	end := ")"
	if t.rowid == nil { // the first column is the key
		columns[0] += " PRIMARY KEY"
		end = ") WITHOUT ROWID"
	}
	schema := fmt.Sprintf("CREATE TABLE %s(\n  %s\n%s", t.name, strings.Join(columns, ",\n  "), end)
	if t.db.Schema(t.name) == "" { // else it was added to an earlier connection
		t.db.tables = append(t.db.tables, shown{t.name, strings.ReplaceAll(schema, `"`, "") + ";"})
	}

	// One that is not created is there from the start.
	//lint:ignore SA1019 the method that replaces it needs Go 1.27
	return sqlite3.CreateModule(t.db.conn, t.name, nil,
		func(c *sqlite3.Conn, _, _, _ string, _ ...string) (*table[T], error) { return t, c.DeclareVTab(schema) })
}

// operators are those of conditions that may be used, as they are in plans.
var operators = map[sqlite3.IndexConstraintOp]string{
	sqlite3.INDEX_CONSTRAINT_EQ: "=", sqlite3.INDEX_CONSTRAINT_GT: ">", sqlite3.INDEX_CONSTRAINT_GE: ">=",
	sqlite3.INDEX_CONSTRAINT_LT: "<", sqlite3.INDEX_CONSTRAINT_LE: "<=", sqlite3.INDEX_CONSTRAINT_LIKE: "like",
	sqlite3.INDEX_CONSTRAINT_GLOB: "glob",
}

// and joins the conditions of a plan, and backwards ends it if rows come from the last on.
const and, backwards = " and ", "backwards"

// BestIndex implements sqlite3.VTab. The plan says which conditions the scan uses, as explain shows it. SQLite checks
// all conditions again, on what the scan gives: that may be more, but not less.
func (t *table[T]) BestIndex(info *sqlite3.IndexInfo) error {
	share, plan := 1.0, []string{}
	for i, c := range info.Constraint {
		op := operators[c.Op]
		if !c.Usable || op == "" || c.Column < 0 {
			continue
		}
		column := &t.columns[c.Column]
		switch op {
		case "=":
			// Other collations let more be equal than stores do.
			if !strings.Contains(column.ops, "=") || column.kind == "TEXT" && info.Collation(i) != "BINARY" {
				continue
			}
			share *= column.share
		case "like", "glob":
			if !strings.Contains(column.ops, op) {
				continue
			}
			share *= 0.1
		default:
			if !strings.Contains(column.ops, "<") {
				continue
			}
			share *= 0.25
		}
		plan = append(plan, column.name+" "+op+" ?")
		info.ConstraintUsage[i].ArgvIndex = len(plan)
	}
	if len(info.OrderBy) == 1 && t.order != nil && info.OrderBy[0].Column >= 0 {
		column := t.order(func(column string) bool {
			return slices.ContainsFunc(plan, func(c string) bool { return strings.HasPrefix(c, column+" ") })
		})
		if info.OrderByConsumed = column == t.columns[info.OrderBy[0].Column].name; info.OrderByConsumed &&
			info.OrderBy[0].Desc {
			plan = append(plan, backwards)
		}
	}
	info.IdxStr = strings.Join(plan, and)
	info.EstimatedRows = int64(max(t.rows*share, 1))
	info.EstimatedCost = 10 + t.rows*share

	return nil
}

// Open implements sqlite3.VTab.
func (t *table[T]) Open() (sqlite3.VTabCursor, error) {
	c := &cursor[T]{table: t, stop: func() {}}
	t.db.cursors[c] = true

	return c, nil
}

// cursor goes over the rows of a scan.
type cursor[T any] struct {
	table *table[T]
	next  func() (*T, error, bool)
	stop  func()
	row   *T
}

// Filter implements sqlite3.VTabCursor: it begins a scan.
func (c *cursor[T]) Filter(_ int, plan string, args ...sqlite3.Value) error {
	c.stop()
	c.next, c.stop = iter.Pull2(c.table.scan(parse(plan, args)))

	return c.Next()
}

// Next implements sqlite3.VTabCursor.
func (c *cursor[T]) Next() error {
	row, err, ok := c.next()
	c.row = row
	if err == nil && ok {
		err = holdfast.CheckContext(c.table.db.ctx)
	}
	if err != nil {
		c.row, c.table.db.failed = nil, err
		return sqlite3.ERROR
	}

	return nil
}

// EOF implements sqlite3.VTabCursor.
func (c *cursor[T]) EOF() bool { return c.row == nil }

// RowID implements sqlite3.VTabCursor.
func (c *cursor[T]) RowID() (int64, error) { return c.table.rowid(c.row), nil }

// Column implements sqlite3.VTabCursor.
func (c *cursor[T]) Column(ctx sqlite3.Context, n int) error {
	return guarded(func() error {
		switch v := c.table.columns[n].get(c.row).(type) {
		case int64:
			ctx.ResultInt64(v)
		case string:
			ctx.ResultText(v)
		case text:
			ctx.ResultRawText(v)
		case []byte:
			ctx.ResultBlob(v)
		default:
			ctx.ResultNull()
		}
		return nil
	})
}

// Close implements io.Closer.
func (c *cursor[T]) Close() error {
	c.stop()
	delete(c.table.db.cursors, c)

	return nil
}

// text are the bytes of a text.
type text []byte

// payload is a text if it is UTF-8, so that functions of JSON take it, and else a blob. Nothing is null.
func payload(b []byte) any {
	switch {
	case b == nil:
		return nil
	case utf8.Valid(b):
		return text(b)
	}

	return b
}

// name is a text. What is empty is null.
func name[S ~string | ~[]byte](s S) any {
	if len(s) == 0 {
		return nil
	}

	return payload([]byte(s))
}

// at is a time as SQLite's functions take it, and as long as any other, so that texts compare as the times do.
func at(t time.Time) any {
	if t.IsZero() {
		return nil
	}

	return t.UTC().Format("2006-01-02T15:04:05.000000000Z")
}

// filter are the conditions that a scan is to use.
type filter []condition

type condition struct {
	column, op string
	value      any // nil, int64, float64, string or []byte
}

func parse(plan string, args []sqlite3.Value) (f filter) {
	if plan == "" {
		return nil
	}
	for i, part := range strings.Split(plan, and) {
		if part == backwards {
			return append(f, condition{op: backwards, value: ""})
		}
		words := strings.Fields(part)
		c := condition{column: words[0], op: words[1]}
		switch v := args[i]; v.Type() {
		case sqlite3.INTEGER:
			c.value = v.Int64()
		case sqlite3.FLOAT:
			c.value = v.Float()
		case sqlite3.TEXT:
			c.value = v.Text()
		case sqlite3.BLOB:
			c.value = v.Blob([]byte{})
		}
		f = append(f, c)
	}

	return f
}

// never reports whether no row can meet the conditions: null is nothing's equal.
func (f filter) never() bool {
	for _, c := range f {
		if c.value == nil {
			return true
		}
	}

	return false
}

// backwards reports whether rows are to come from the last on.
func (f filter) backwards() bool { return len(f) > 0 && f[len(f)-1].op == backwards }

// parts calls read for parts of the positions from first to last, until that says not to go on: for all of them or, if
// they are to come backwards, for a few and then more, from the last on. A part that read says is too large is read
// again as smaller ones.
func (f filter) parts(first, last int64, read func(first, last int64) (on, large bool)) {
	if !f.backwards() {
		read(first, last)
		return
	}
	for size := int64(16); first <= last; {
		from := max(first, last-size+1)
		switch on, large := read(from, last); {
		case !on:
			return
		case large && from < last:
			size = max((last-from+1)/4, 1)
		default:
			last, size = from-1, min(2*size, 1024)
		}
	}
}

// equal returns the text that a column is to have.
func (f filter) equal(column string) (string, bool) {
	for _, c := range f {
		if s, ok := c.value.(string); ok && c.column == column && c.op == "=" {
			return s, true
		}
	}

	return "", false
}

// prefix returns what a column is to begin with, and whether letters of ASCII may be capital or not.
func (f filter) prefix(column string) (prefix string, fold, ok bool) {
	for _, c := range f {
		s, ok := c.value.(string)
		switch {
		case !ok || c.column != column:
		case c.op == "like":
			return s[:len(s)-len(strings.TrimLeftFunc(s, func(r rune) bool { return r != '%' && r != '_' }))], true, true
		case c.op == "glob":
			return s[:len(s)-len(strings.TrimLeftFunc(s, func(r rune) bool { return !strings.ContainsRune("*?[", r) }))],
				false, true
		}
	}

	return "", false, false
}

// span returns the numbers that a column may have, from first to last; last is lower if there is none.
func (f filter) span(column string) (first, last int64) {
	first, last = math.MinInt64, math.MaxInt64
	atLeast := func(n int64) { first = max(first, n) }
	atMost := func(n int64) { last = min(last, n) }
	none := func() { first, last = 1, 0 }
	for _, c := range f {
		if c.column != column || first > last {
			continue
		}
		var low, high int64 // of the value, which may be between two numbers
		switch v := c.value.(type) {
		case int64:
			low, high = v, v
		case float64:
			switch {
			case v >= 1<<63: // beyond all numbers
				if c.op != "<" && c.op != "<=" {
					none()
				}
				continue
			case v < -1<<63:
				if c.op != ">" && c.op != ">=" {
					none()
				}
				continue
			}
			low, high = int64(math.Floor(v)), int64(math.Ceil(v))
		default: // a text may be a number, which SQLite tells
			continue
		}
		switch c.op {
		case "=":
			if low != high {
				none()
				continue
			}
			atLeast(low)
			atMost(high)
		case ">":
			if low == math.MaxInt64 {
				none()
				continue
			}
			atLeast(low + 1)
		case ">=":
			atLeast(high)
		case "<":
			if high == math.MinInt64 {
				none()
				continue
			}
			atMost(high - 1)
		case "<=":
			atMost(low)
		}
	}

	return first, last
}
