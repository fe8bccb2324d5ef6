package query

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/engine/mem"
)

// Served is what a server answers queries with: server.Options{Query: query.Served{}}.
type Served struct{}

// Tables lists the tables that a server shows.
func (Served) Tables() ([]api.QueryTable, error) { return servedTables() }

var servedTables = sync.OnceValues(func() (list []api.QueryTable, err error) {
	engine := mem.New()
	defer func() { err = errors.Join(err, engine.Close()) }()
	db, err := Open(engine, Options{Served: true, Memory: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, t := range db.tables {
		list = append(list, api.QueryTable{Name: t.name, SQL: t.schema})
	}

	return list, nil
})

// Run answers a query of what a namespace of an engine has now: columns is called once, and then row for each row, with
// values as [DB.Query] has them. What they return ends the query. Of q it reads SQL, Args, Explain and Memory.
//
// What is shown has reached the level that it was written at, as all that a server shows.
func (Served) Run(ctx context.Context, engine holdfast.Engine, namespace string, q *api.Query,
	columns func([]string) error, row func([]any) error) (err error) {
	args, err := arguments(q.Args)
	if err != nil {
		return err
	}
	db, err := Open(engine, Options{Namespace: namespace, Memory: q.MemoryBytes, Served: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if engine.Capabilities().ShownAtApply {
		// The snapshot may have what is still on its way to the device. An empty batch is a barrier.
		settled, err := engine.Apply(&holdfast.Batch{}, holdfast.Memory)
		if err == nil {
			err = settled.Wait()
		}
		if err != nil {
			return err
		}
	}

	var names []string
	var rows iter.Seq2[[]any, error]
	if q.Explain {
		names, rows, err = db.Explain(ctx, q.SQL)
	} else {
		names, rows, err = db.Query(ctx, q.SQL, args...)
	}
	if err != nil {
		return err
	}
	if err := columns(names); err != nil {
		return err
	}
	for values, err := range rows {
		if err == nil {
			err = row(values)
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// arguments reads values of a list, or of an object by the names of parameters.
func arguments(text json.RawMessage) (args []any, err error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	begin, err := d.Token()
	if err != nil || begin != json.Delim('[') && begin != json.Delim('{') {
		return nil, fail("the arguments are neither a list nor an object", `give values as [1, "x"] or {":name": 1}`)
	}
	for d.More() {
		name := ""
		if begin == json.Delim('{') {
			t, err := d.Token()
			if err != nil {
				return nil, fail("the arguments are no JSON", "")
			}
			name = t.(string)
		}
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, fail("the arguments are no JSON", "")
		}
		if v, err = argument(v); err != nil {
			return nil, err
		}
		if begin == json.Delim('{') {
			if !strings.ContainsAny(name[:min(1, len(name))], ":@$?") {
				name = ":" + name
			}
			v = Named{name, v}
		}
		args = append(args, v)
	}
	if _, err := d.Token(); err != nil {
		return nil, fail("the arguments are no JSON", "")
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fail("the arguments go on behind their end", "")
	}

	return args, nil
}

// argument is what a value of JSON is for SQLite.
func argument(v any) (any, error) {
	switch v := v.(type) {
	case nil, string:
		return v, nil
	case bool:
		return map[bool]int64{true: 1}[v], nil
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n, nil
		}
		f, _ := strconv.ParseFloat(v.String(), 64) // what is too large is infinite, as in SQL
		return f, nil
	case map[string]any:
		if text, ok := v["base64"].(string); ok && len(v) == 1 {
			b, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return nil, fail("the bytes of an argument are not base64 (standard alphabet)", "")
			}
			return b, nil
		}
	}

	return nil, fail(fmt.Sprintf("an argument is %.80q", fmt.Sprint(v)),
		`give null, a number, a text, or bytes as {"base64": "AQID"}`)
}
