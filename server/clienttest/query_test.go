package clienttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/store/message"
)

// all reads the rows of a query.
func all(columns []string, rows func(func([]any, error) bool), err error) ([][]any, error) {
	found := [][]any{}
	if err != nil {
		return nil, err
	}
	for row, err := range rows {
		if err != nil {
			return found, err
		}
		found = append(found, row)
	}
	return found, nil
}

// TestQuery: what a query finds comes with its types, and what is wrong as what it is.
func TestQuery(t *testing.T) {
	c, d := serve(t)
	n := c.Namespace(message.Default)
	for i := range 3 {
		_, err := n.Write(ctx, "order-1", message.Message{Type: "Placed", Data: fmt.Appendf(nil, `{"n":%d}`, i)})
		check(t, err)
	}
	columns, rows, err := n.Query(
		ctx,
		"select position, data ->> 'n' + ?, ?, ?, ?, ? from messages where stream = ? order by 1",
		0.5,
		nil,
		[]byte{0, 255},
		true,
		"ä\"",
		"order-1",
	)
	check(t, err)
	got, err := all(columns, rows, err)
	want := [][]any{
		{int64(0), 0.5, nil, []byte{0, 255}, int64(1), "ä\""},
		{int64(1), 1.5, nil, []byte{0, 255}, int64(1), "ä\""},
		{int64(2), 2.5, nil, []byte{0, 255}, int64(1), "ä\""},
	}
	if err != nil || len(columns) != 6 || columns[0] != "position" || !reflect.DeepEqual(got, want) {
		t.Errorf("%q %v, %v", columns, got, err)
	}
	if got, err := all(n.RunQuery(ctx, api.Query{SQL: "select :a", Args: json.RawMessage(`{"a": 7}`)})); err != nil ||
		!reflect.DeepEqual(got, [][]any{{int64(7)}}) {
		t.Error(got, err)
	}
	info, err := n.QueryInfo(ctx)
	if err != nil || len(info.Tables) != 6 || info.AtOnce == 0 {
		t.Error(info, err)
	}
	const endless = "with recursive c(x) as (select 1 union all select x + 1 from c) select "
	for want, q := range map[error]api.Query{
		holdfast.ErrBadOption: {SQL: "delete from messages"},
		holdfast.ErrTooLarge:  {SQL: endless + "count(*) from c", TimeMS: 20},
	} {
		if got, err := all(n.RunQuery(ctx, q)); !errors.Is(err, want) || got != nil {
			t.Errorf("%s: %v, %v", q.SQL, got, err)
		}
	}
	got, err = all(n.RunQuery(ctx, api.Query{SQL: "select data from messages", Rows: 2}))
	var e *client.Error
	if len(got) != 2 || !errors.Is(err, holdfast.ErrTooLarge) || !errors.As(err, &e) || e.Status != 413 ||
		e.Request == "" ||
		!strings.Contains(e.Detail, "more than 2 rows") {
		t.Errorf("%d rows, %v", len(got), err)
	}
	for _, args := range [][]any{{"select '\xff' || ?", "x"}, {"select ?", "\xff"}, {"select ?", make(chan int)}} {
		if got, err := all(n.Query(ctx, args[0].(string), args[1:]...)); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%q: %v, %v", args, got, err)
		}
	}
	if _, err := all(c.Namespace("none").Query(ctx, "select 1")); !errors.Is(err, message.ErrNoNamespace) {
		t.Error(err)
	}
	_, secret, err := d.Tokens().Create(ctx, auth.Token{Namespace: message.Default, Role: auth.Write})
	check(t, err)
	if _, err := all(withToken(t, c, secret).Namespace(message.Default).Query(ctx, "select 1")); !errors.Is(
		err,
		client.ErrForbidden,
	) {
		t.Error(err)
	}

	// It ends with its context, also while nothing comes, and with the loop.
	for _, sql := range []string{endless + "count(*) from c", endless + "x from c where x < 3"} {
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		if _, err := all(n.Query(ctx, sql)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", sql, err)
		}
		cancel()
	}
	_, rows, err = n.Query(ctx, endless+"x from c")
	check(t, err)
	for row, err := range rows {
		if check(t, err); row[0] == int64(5) {
			break
		}
	}
	if _, err := all(n.Query(ctx, "select 1")); err != nil {
		t.Error(err)
	}
}

// TestQueryBroken: an answer that breaks off is an error; one that is late, or refused for now, is asked for again.
func TestQueryBroken(t *testing.T) {
	answers := []func(http.ResponseWriter){
		func(w http.ResponseWriter) { w.Header().Set("Retry-After", "0"); w.WriteHeader(429) },
		func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		func(w http.ResponseWriter) {
			fmt.Fprint(w, "{\"columns\":[\"a\"]}\n[1]\n[2")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
		func(w http.ResponseWriter) { fmt.Fprint(w, "{\"columns\":[\"a\"]}\n[1]\n") },
		func(w http.ResponseWriter) {
			fmt.Fprint(w, "{\"columns\":[\"a\"]}\n[1]\n{\"problem\":{\"status\":503,\"code\":\"stopping\"}}\n")
		},
		func(w http.ResponseWriter) { fmt.Fprint(w, "<html>\n") },
		func(w http.ResponseWriter) { fmt.Fprint(w, "{\"columns\":[\"a\"]}\n{\"columns\":[\"a\"]}\n") },
		func(w http.ResponseWriter) { fmt.Fprint(w, "{\"columns\":[\"a\"]}\n[true]\n") },
		func(w http.ResponseWriter) {
			fmt.Fprint(w, "{\"columns\":[\"a\"]}\n["+strings.Repeat("1,", 3<<10)+"1]\n")
		},
		func(w http.ResponseWriter) { fmt.Fprint(w, "{\"columns\":[\"a\"]}\n{\"rows\":0}\n") },
	}
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answers[asked.Add(1)-1](w)
	}))
	defer s.Close()
	c, err := client.New(s.URL, client.Options{Logger: quiet, MaxResponse: 4 << 10})
	check(t, err)
	for i, want := range []struct {
		rows int
		text string
	}{{1, "broke off"}, {1, "broke off"}, {1, "stopping"}, {0, "is this the address"}, {0, "columns behind"},
		{0, "cannot be read"},
		{0, "more than 4096 bytes"}, {0, ""}} {
		got, err := all(c.Namespace("x").Query(ctx, "select 1"))
		if len(got) != want.rows || (err == nil) != (want.text == "") ||
			err != nil && !strings.Contains(err.Error(), want.text) {
			t.Errorf("%d: %d rows, %v", i, len(got), err)
		}
	}
	if n := asked.Load(); n != int64(len(answers)) {
		t.Errorf("asked %d times", n)
	}
}
