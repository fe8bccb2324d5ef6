package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"unicode/utf8"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
)

// Query asks by SQL what is in the namespace: one statement of SQLite that reads, as docs/query.md has it. The values
// of rows are nil, int64, float64, string or []byte. Args are the values of the statement's parameters ("stream =
// ?"): nil, bool, integers, floats, strings, []byte, or what is one of these as JSON.
//
// The loop over rows reads them as they come. It is to be run once: that, or the end of ctx, gives the connection back.
// It ends with an error if there are more rows which the server could not give: errors.Is finds holdfast.ErrTooLarge if
// a limit of time, rows or memory was reached, and holdfast.ErrBadOption in err if the statement is none that reads. A
// query is tried again as other reads are, until its first row is there. The token needs the role query or admin.
func (n *Namespace) Query(ctx context.Context, sql string, args ...any) (columns []string,
	rows iter.Seq2[[]any, error], err error) {
	text, err := api.Arguments(args...)
	if err != nil {
		return nil, nil, &Error{Op: "query", Status: http.StatusBadRequest, Code: api.CodeBadRequest, Detail: err.Error()}
	}

	return n.RunQuery(ctx, api.Query{SQL: sql, Args: text})
}

// RunQuery is Query with limits, with arguments by name, or of how a statement would be run. Format is not looked at.
func (n *Namespace) RunQuery(ctx context.Context, q api.Query) (columns []string, rows iter.Seq2[[]any, error],
	err error) {
	if err := holdfast.CheckContext(ctx); err != nil {
		return nil, nil, err
	}
	if !utf8.ValidString(q.SQL) { // JSON would make another statement of it
		return nil, nil, &Error{Op: "query", Status: http.StatusBadRequest, Code: api.CodeBadRequest,
			Detail: "the statement is not UTF-8"}
	}
	q.Format = ""
	r := &request{op: "query", method: "POST", path: n.path + "/query", body: q, safe: true, long: true}
	body, err := encode(r)
	if err != nil {
		return nil, nil, err
	}
	a := &answerLines{c: n.c, r: r}
	err = n.c.repeat(ctx, r, func() *Error {
		resp, e := n.c.send(ctx, r, body)
		if e != nil {
			return e
		}
		a.resp, a.lines = resp, bufio.NewReader(resp.Body)
		line, e := a.next()
		if e == nil && line.Columns == nil {
			e = a.strange("its first line has no columns")
		}
		if e != nil {
			_ = resp.Body.Close()
			return e
		}
		columns = line.Columns

		return nil
	})
	if err != nil {
		return nil, nil, err
	}

	return columns, func(yield func([]any, error) bool) {
		defer a.resp.Body.Close()
		for {
			line, e := a.next()
			switch {
			case e != nil:
				yield(nil, n.c.broken(ctx, r, e))
				return
			case line.row == nil && line.Rows == nil:
				yield(nil, a.strange("there are columns behind the first line"))
				return
			case line.row == nil:
				return
			}
			if !yield(line.row, nil) {
				return
			}
		}
	}, nil
}

// QueryInfo says which tables queries read, and their limits. The token needs the role query or admin.
func (n *Namespace) QueryInfo(ctx context.Context) (i api.QueryInfo, err error) {
	err = n.c.call(ctx, &request{op: "query info", method: "GET", path: n.path + "/query", safe: true}, &i)
	return i, err
}

// answerLines reads the answer to a query.
type answerLines struct {
	c     *Client
	r     *request
	resp  *http.Response
	lines *bufio.Reader
}

// answerLine is one: Columns of the first, a row, or the end.
type answerLine struct {
	Columns []string
	Rows    *int64
	Problem json.RawMessage
	row     []any
}

func (a *answerLines) strange(why string) *Error {
	return &Error{Op: a.r.op, Status: a.resp.StatusCode,
		Detail: fmt.Sprintf("the answer cannot be read (%s); is this the address of a Holdfast server?", why)}
}

// next reads a line. The end of a query that has failed is an error.
func (a *answerLines) next() (line answerLine, _ *Error) {
	text := []byte(nil)
	for {
		part, err := a.lines.ReadSlice('\n')
		if text = append(text, part...); int64(len(text)) > a.c.o.MaxResponse {
			return line, &Error{Op: a.r.op, Status: a.resp.StatusCode, Code: api.CodeTooLarge,
				Detail: fmt.Sprintf("a row has more than %d bytes; ask for less, or raise MaxResponse", a.c.o.MaxResponse)}
		}
		if err == nil {
			break
		}
		if err == io.EOF { // it would have ended with another line
			err = io.ErrUnexpectedEOF
		}
		if err != bufio.ErrBufferFull {
			return line, &Error{Op: a.r.op, Cause: fmt.Errorf("the answer broke off: %w", err)}
		}
	}
	if text[0] == '[' {
		row, err := api.ReadRow(text)
		if err != nil {
			return line, a.strange(err.Error())
		}
		line.row = row

		return line, nil
	}
	if err := json.Unmarshal(text, &line); err != nil {
		return line, a.strange(err.Error())
	}
	if line.Problem != nil {
		var p api.Problem
		_ = json.Unmarshal(line.Problem, &p) // what cannot be read has no status

		return line, answered(a.r.op, p.Status, a.resp.Header, line.Problem)
	}
	if line.Columns == nil && line.Rows == nil {
		return line, a.strange("a line is neither a row nor the end")
	}

	return line, nil
}
