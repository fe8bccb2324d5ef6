package v1

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/problem"
)

// Querier answers queries by SQL, as Served of package server/query does.
type Querier interface {
	// Tables lists the tables.
	Tables() ([]api.QueryTable, error)
	// Run answers a query of what a namespace of an engine has now: it calls columns once, and then row for each row,
	// whose values are nil, int64, float64, string or []byte. Their errors, and the end of ctx, end it.
	Run(ctx context.Context, engine holdfast.Engine, namespace string, q *api.Query, columns func([]string) error,
		row func([]any) error) error
}

// Queries says who answers queries, and what one may take at most. A limit of 0 is none.
type Queries struct {
	By     Querier // nil if there are none
	Time   time.Duration
	Rows   int64
	Memory int64 // of SQLite, in bytes
	AtOnce int
}

const (
	// maxQuery is how many bytes the body of a query has at most.
	maxQuery = 1 << 20
	// queryWait is how long a query waits for its turn, and maxWaiting how many do.
	queryWait  = 5 * time.Second
	maxWaiting = 64
	// flushRows is after what time rows are sent that are there.
	flushRows = 250 * time.Millisecond
)

// query declares queries.
func (s *service) query() {
	const tag, path = "query", inNamespace + "/query"
	s.turns = turns{most: s.o.Queries.AtOnce, of: map[string]int{}, changed: make(chan struct{})}
	declare(s, operation{id: "get-query", method: http.MethodGet, path: path, role: auth.Query, tag: tag,
		summary: "Which tables queries read, and what one may take at most", codes: []string{api.CodeNotImplemented}},
		func(c *call, _ *none) (out api.QueryInfo, err error) {
			q := s.o.Queries
			if err := c.queries(); err != nil {
				return out, err
			}
			out = api.QueryInfo{TimeMS: q.Time.Milliseconds(), Rows: q.Rows, MemoryBytes: q.Memory, AtOnce: q.AtOnce}
			out.Tables, err = q.By.Tables()

			return out, err
		})
	declareRaw(s, operation{id: "query", method: http.MethodPost, path: path, role: auth.Query, tag: tag,
		stream: true, maxBody: maxQuery, produces: "application/x-ndjson", or: "text/csv",
		summary: "Ask by SQL what is in a namespace",
		about: "The statement is one of SQLite that reads. It sees one state of the namespace, whatever is written " +
			"meanwhile. The answer is lines of JSON: `{\"columns\": [...]}`, a list of values for each row, and at the end " +
			"`{\"rows\": 2}`, or `{\"problem\": {...}}` if there are no more because of an error. An answer of CSV has " +
			"no last line: the connection breaks off after an error. " +
			"A query that is over a limit is `too_large`, also that of time.",
		codes: []string{api.CodeNotImplemented}}, typeOf[api.QueryLine](),
		func(c *call, in *struct{ Body api.Query }) error {
			if err := c.queries(); err != nil {
				return err
			}

			return c.query(&in.Body)
		})
}

// queries returns an error if the server answers no queries, or has no such namespace.
func (c *call) queries() error {
	if c.o.Queries.By == nil {
		return &holdfast.Error{Op: "query", Class: holdfast.ErrUnavailable, Detail: "this server answers no queries"}
	}

	return c.data.Check(c.ctx, c.ns)
}

// least is the smaller of two limits, of which 0 is none.
func least[N int64 | time.Duration](a, b N) N {
	if a == 0 || b != 0 && b < a {
		return b
	}

	return a
}

// query answers a query.
func (c *call) query(q *api.Query) error {
	of := c.o.Queries
	limit := least(of.Time, api.Duration(q.TimeMS))
	q.MemoryBytes = least(of.Memory, q.MemoryBytes)
	most := least(of.Rows, q.Rows)
	var answer func(*bufio.Writer) rowWriter
	kind := "application/x-ndjson"
	switch {
	case q.TimeMS < 0 || q.Rows < 0 || q.MemoryBytes < 0:
		return problem.BadRequest("a limit is negative; leave it out for that of the server")
	case q.Format == "" || q.Format == "json":
		answer = func(w *bufio.Writer) rowWriter { return &jsonLines{w: w} }
	case q.Format == "csv":
		kind, answer = "text/csv; charset=utf-8", func(w *bufio.Writer) rowWriter { return &csvLines{w: csv.NewWriter(w)} }
	default:
		return problem.BadRequest("there is no format %.40q; use json or csv", q.Format)
	}

	leave, err := c.turns.enter(c.ctx, c.req.Principal.Namespace, c.req.Stopping)
	if err != nil {
		return err
	}
	defer leave()
	ctx, stop := c.stopping(c.ctx)
	defer stop()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, &holdfast.Error{Op: "query", Class: holdfast.ErrTooLarge,
			Detail: "it took longer than " + limit.String(), Remedy: "ask for less"})
		defer cancel()
	}

	if err := c.tickFor(ctx, q.SQL); err != nil {
		return err
	}

	return c.stream(kind, func(out io.Writer) error {
		w := bufio.NewWriterSize(out, 64<<10)
		lines, n, sent := answer(w), int64(0), time.Now()
		err := of.By.Run(ctx, c.data.Engine(), c.ns, q, lines.columns, func(row []any) error {
			if n++; most > 0 && n > most {
				return &holdfast.Error{Op: "query", Class: holdfast.ErrTooLarge,
					Detail: fmt.Sprintf("there are more than %d rows", most), Remedy: "ask for fewer"}
			}
			if err := lines.row(row); err != nil {
				return err
			}
			if now := time.Now(); now.Sub(sent) > flushRows {
				sent = now
				if err := errors.Join(lines.flush(), w.Flush()); err != nil {
					return err
				}
				_ = http.NewResponseController(c.w).Flush() // the next write fails, too
			}

			return nil
		})
		if err != nil && ctx.Err() != nil { // why it was ended, and not that it was
			err = context.Cause(ctx)
		}
		if err := lines.end(n, err, n > 0 || out.(*begun).any, c); err != nil {
			return err
		}

		return w.Flush()
	})
}

// tickFor does what is due with the namespace's tasks, if a query may be about them: as of now a query shows them, and
// what is due would be done in its memory otherwise, for each query anew.
func (c *call) tickFor(ctx context.Context, sql string) error {
	sql = strings.ToLower(sql)
	if !strings.Contains(sql, "tasks") && !strings.Contains(sql, "queues") {
		return nil
	}
	tasks, err := c.findTasks()
	if err == nil {
		err = tasks.Tick(ctx)
	}
	if errors.Is(err, holdfast.ErrNotFound) || errors.Is(err, holdfast.ErrFull) { // there are none, or they can be read
		return nil
	}

	return err
}

// rowWriter writes an answer.
type rowWriter interface {
	columns([]string) error
	row([]any) error
	flush() error
	// end writes the end, after n rows or an error. any reports whether rows are on their way. The error that it returns
	// becomes the answer, or breaks it off.
	end(n int64, err error, any bool, c *call) error
}

type jsonLines struct{ w *bufio.Writer }

func (l *jsonLines) line(v *api.QueryLine) error {
	e := json.NewEncoder(l.w)
	e.SetEscapeHTML(false)

	return e.Encode(v)
}

func (l *jsonLines) columns(names []string) error { return l.line(&api.QueryLine{Columns: names}) }

func (l *jsonLines) row(row []any) error { return api.WriteRow(l.w, row) }

func (l *jsonLines) flush() error { return nil }

func (l *jsonLines) end(n int64, err error, any bool, c *call) error {
	switch {
	case err == nil:
		return l.line(&api.QueryLine{Rows: &n})
	case !any:
		return err
	}
	p := problem.Of(err)
	p.Request, c.req.Err = c.req.ID, err

	return l.line(&api.QueryLine{Problem: &p})
}

type csvLines struct {
	w     *csv.Writer
	cells []string
}

func (l *csvLines) columns(names []string) error { return l.w.Write(names) }

func (l *csvLines) row(row []any) error {
	l.cells = l.cells[:0]
	for _, v := range row {
		l.cells = append(l.cells, cell(v))
	}

	return l.w.Write(l.cells)
}

func (l *csvLines) flush() error {
	l.w.Flush()
	return l.w.Error()
}

func (l *csvLines) end(_ int64, err error, _ bool, _ *call) error {
	if err != nil {
		return err
	}

	return l.flush()
}

// cell is a value in CSV.
func cell(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		return v
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	}

	return ""
}

// turns are those of queries: only so many run at once.
type turns struct {
	most int // 0 for any number

	mu               sync.Mutex
	running, waiting int
	of               map[string]int // those that run, by the namespace of their tokens
	changed          chan struct{}  // closed, and replaced, when one ends
}

// enter waits for a turn. Tokens of one namespace have half of them at most, so that others get one. leave gives it
// back.
func (t *turns) enter(ctx context.Context, namespace string, stopping <-chan struct{}) (leave func(), err error) {
	late := time.NewTimer(queryWait)
	defer late.Stop()
	tooMany := &holdfast.Error{Op: "query", Class: problem.ErrTooMany, Remedy: "come again when one is done",
		Detail: fmt.Sprintf("%d queries run at once, and others wait", t.most)}
	for waits := false; ; {
		t.mu.Lock()
		if waits {
			t.waiting--
		}
		if t.most <= 0 || t.running < t.most && (namespace == auth.Everywhere || t.of[namespace] < (t.most+1)/2) {
			t.running++
			t.of[namespace]++
			t.mu.Unlock()

			return func() { t.leave(namespace) }, nil
		}
		if t.waiting >= maxWaiting {
			t.mu.Unlock()
			return nil, tooMany
		}
		t.waiting++
		waits = true
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
			continue
		case <-late.C:
			err = tooMany
		case <-ctx.Done():
			err = ctx.Err()
		case <-stopping:
			err = problem.ErrStopping
		}
		t.mu.Lock()
		t.waiting--
		t.mu.Unlock()

		return nil, err
	}
}

func (t *turns) leave(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	if t.of[namespace]--; t.of[namespace] == 0 {
		delete(t.of, namespace)
	}
	close(t.changed)
	t.changed = make(chan struct{})
}
