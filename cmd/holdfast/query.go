package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/server/query"
)

// queryFlags say what a query may see, and how much memory it may take.
type queryFlags struct {
	Namespace string `short:"n" help:"Namespace." default:"default" placeholder:"NS"`
	Database  string `help:"Of a directory: the database whose buckets are in the table keys. Default: the one without a name." placeholder:"NAME"`
	Memory    string `help:"How much memory it may use, beside what the engine does. Default: 256MiB, and of a server what that allows." placeholder:"SIZE"`
}

// memory is what they say of it, 0 if they do not.
func (c *queryFlags) memory() (int64, error) {
	if c.Memory == "" {
		return 0, nil
	}

	return all.ParseSize(c.Memory)
}

// openDir opens a directory for queries: for reading only, if its engine has that.
func (c *queryFlags) openDir(dir string, do func(db *query.DB) error) (err error) {
	memory, err := c.memory()
	if err != nil {
		return err
	}
	engine, err := openBare(dir, true, warnings())
	if err != nil {
		return serverCan(err, "answers holdfast query --url http://HOST:PORT SQL")
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	db, err := query.Open(engine, query.Options{Namespace: c.Namespace, Database: c.Database, Memory: memory})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	return do(db)
}

type queryCommand struct {
	Where string `arg:"" optional:"" help:"A directory, which must not be open elsewhere for writing, or a server, as http://HOST:PORT. Default: the server of --url or $$HOLDFAST_URL."`
	SQL   string `arg:"" optional:"" name:"sql" help:"A statement that reads, or .tables, .schema, .schema TABLE. Without it, those of the standard input, which end with a semicolon."`
	queryFlags
	URL     string        `name:"url" help:"Server, as http://HOST:PORT. Default: $$HOLDFAST_URL." placeholder:"URL"`
	Token   string        `help:"Token for the server, of the role query or admin. Default: $$HOLDFAST_TOKEN." placeholder:"TOKEN"`
	Format  string        `help:"table, json (an object a line) or csv." enum:"table,json,csv" default:"table"`
	Explain bool          `help:"Show how the statement would be run: which conditions go down to the store."`
	Time    time.Duration `help:"How long it may take. Default: no limit but that of a server." placeholder:"30s"`
	Rows    int           `help:"How many rows it may give. Default: no limit but that of a server." placeholder:"N"`
}

// Help implements kong's interface for what follows the flags.
func (queryCommand) Help() string {
	return `The tables are messages, streams, events, subscriptions, tasks and queues of the namespace, and keys of ` +
		`buckets in a directory; .schema shows their columns. SQL is SQLite's. Data that is no text is base64 in JSON ` +
		`and CSV. Nothing is changed.`
}

func (c *queryCommand) run() int {
	return inSession(c.Format == "json", func(s *session) error {
		if c.Rows < 0 || c.Time < 0 {
			return placeError("--rows or --time is negative", "leave it out for no limit")
		}
		address, dir, sql, err := c.place()
		if err != nil {
			return err
		}
		ask := func(a asked) error {
			if sql != "" {
				return c.ask(s, a, sql)
			}
			return c.prompt(s, a)
		}
		if dir != "" {
			return c.openDir(dir, func(db *query.DB) error { return ask(askedDir{db, c.Rows}) })
		}
		if c.Database != "" {
			return placeError("--database is about keys, which a server does not show", "leave it out")
		}
		memory, err := c.memory()
		if err != nil {
			return err
		}
		at := place{URL: address, Token: c.Token}

		return at.open(s, true, func(s *session) error {
			return ask(askedServer{s.client.Namespace(c.Namespace), api.Query{TimeMS: api.MS(c.Time), Rows: int64(c.Rows),
				MemoryBytes: memory}})
		})
	})
}

// place says what is asked, a server or a directory, and with what. One argument alone can be either of both.
func (c *queryCommand) place() (address, dir, sql string, err error) {
	environment := os.Getenv("HOLDFAST_URL")
	isServer := strings.HasPrefix(c.Where, "http://") || strings.HasPrefix(c.Where, "https://")
	switch {
	case c.URL != "" && (c.SQL != "" || isServer):
		return "", "", "", placeError(fmt.Sprintf("both --url and %q name a place", c.Where), "give one of them")
	case c.URL != "":
		return c.URL, "", c.Where, nil
	case isServer:
		return c.Where, "", c.SQL, nil
	case c.Where == "" && environment == "":
		return "", "", "", placeError("there is no server and no directory",
			"name a directory or the address of a server, or set HOLDFAST_URL")
	case environment != "" && c.SQL == "" && !isDir(c.Where):
		return environment, "", c.Where, nil
	}

	return "", c.Where, c.SQL, nil
}

// isDir reports whether a text names a directory that is there, or one of a certain engine.
func isDir(text string) bool {
	if name, _, _, err := parseDir(text); err == nil && name != "" {
		return true
	}
	_, err := os.Stat(text)

	return err == nil
}

// asked is what answers queries.
type asked interface {
	tables(ctx context.Context) ([]api.QueryTable, error)
	ask(ctx context.Context, sql string, explain bool) (columns []string, rows iter.Seq2[[]any, error], err error)
}

// askedDir is an open directory.
type askedDir struct {
	db   *query.DB
	most int
}

func (a askedDir) tables(context.Context) (list []api.QueryTable, _ error) {
	for _, name := range a.db.Tables() {
		list = append(list, api.QueryTable{Name: name, SQL: a.db.Schema(name)})
	}

	return list, nil
}

func (a askedDir) ask(ctx context.Context, sql string, explain bool) (columns []string, rows iter.Seq2[[]any, error],
	err error) {
	if explain {
		columns, rows, err = a.db.Explain(ctx, sql)
	} else {
		columns, rows, err = a.db.Query(ctx, sql)
	}
	if err != nil {
		return nil, nil, err
	}

	return columns, limit(rows, a.most), nil
}

// askedServer is a namespace of a server.
type askedServer struct {
	at     *client.Namespace
	limits api.Query
}

func (a askedServer) tables(ctx context.Context) ([]api.QueryTable, error) {
	info, err := a.at.QueryInfo(ctx)
	return info.Tables, err
}

func (a askedServer) ask(ctx context.Context, sql string, explain bool) ([]string, iter.Seq2[[]any, error], error) {
	q := a.limits
	q.SQL, q.Explain = sql, explain

	return a.at.RunQuery(ctx, q)
}

// prompt runs the statements of the standard input. What is wrong with one ends it, unless a person types them.
func (c *queryCommand) prompt(s *session, a asked) error {
	person := isatty.IsTerminal(os.Stdin.Fd()) || isatty.IsCygwinTerminal(os.Stdin.Fd())
	ask := func(text string) {
		if person {
			fmt.Fprint(os.Stderr, text)
		}
	}
	lines := make(chan string)
	ended := make(chan error, 1)
	go func() { // which a signal does not interrupt
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadString('\n')
			if line != "" {
				select {
				case lines <- line:
				case <-s.ctx.Done():
					return
				}
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()

	statement := ""
	run := func() error {
		sql := strings.TrimSpace(statement)
		statement = ""
		if sql == "" {
			return nil
		}
		err := c.ask(s, a, sql)
		if err != nil && person && s.ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "holdfast:", err)
			err = nil
		}
		return errors.Join(err, s.out.Flush())
	}
	for {
		ask(map[bool]string{true: "holdfast> ", false: "     ...> "}[statement == ""])
		select {
		case <-s.ctx.Done():
			return s.ctx.Err()
		case err := <-ended:
			ask("\n")
			if err == io.EOF {
				err = nil
			}
			return errors.Join(err, run())
		case line := <-lines:
			statement += line
			text := strings.TrimSpace(statement)
			if text == ".quit" || text == ".exit" {
				return nil
			}
			if !strings.HasSuffix(text, ";") && !strings.HasPrefix(text, ".") {
				continue
			}
			if err := run(); err != nil {
				return err
			}
		}
	}
}

type exportCommand struct {
	Dir string `arg:"" help:"The directory. It must not be open elsewhere for writing."`
	queryFlags
	SQLite string `name:"sqlite" required:"" help:"The new file." placeholder:"FILE"`
}

// Help implements kong's interface for what follows the flags.
func (exportCommand) Help() string {
	return `It has the tables of holdfast query, with all their rows: what was there at one moment.`
}

func (c *exportCommand) run() int {
	return inSession(false, func(s *session) error {
		return c.openDir(c.Dir, func(db *query.DB) error {
			err := db.Export(s.ctx, c.SQLite)
			if errors.Is(err, os.ErrExist) {
				err = placeError(c.SQLite+" exists", "name a new file")
			}
			return err
		})
	})
}

// ask runs one statement, or a command that begins with a dot.
func (c *queryCommand) ask(s *session, a asked, sql string) error {
	if words := strings.Fields(sql); len(words) > 0 && strings.HasPrefix(words[0], ".") {
		return dotCommand(s, a, words)
	}
	ctx := s.ctx
	if c.Time > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.Time)
		defer stop()
	}
	columns, rows, err := a.ask(ctx, sql, c.Explain)
	if err == nil {
		switch c.Format {
		case "json":
			err = jsonRows(s, columns, rows)
		case "csv":
			err = csvRows(s, columns, rows)
		default:
			memory, _ := c.memory() // was read before
			err = queryTable(s, columns, rows, cmp.Or(memory, query.DefaultMemory))
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = &holdfast.Error{Op: "query", Class: context.DeadlineExceeded, Detail: "it took longer than " + c.Time.String(),
			Remedy: "ask for less, or allow it more --time"}
	}

	return err
}

// dotCommand runs what is no SQL.
func dotCommand(s *session, a asked, words []string) error {
	schema := words[0] == ".schema" && len(words) <= 2
	if !schema && (words[0] != ".tables" || len(words) > 1) {
		return placeError(fmt.Sprintf("there is no command %.80q", strings.Join(words, " ")),
			"use .tables, .schema, .schema TABLE, or a statement of SQL")
	}
	tables, err := a.tables(s.ctx)
	if err != nil {
		return err
	}
	if len(words) == 2 {
		tables = slices.DeleteFunc(tables, func(t api.QueryTable) bool { return !strings.EqualFold(t.Name, words[1]) })
		if len(tables) == 0 {
			return placeError(fmt.Sprintf("there is no table %.80q", words[1]), "see .tables")
		}
	}
	for _, t := range tables {
		text := t.Name
		if schema {
			text = t.SQL
		}
		if _, err := fmt.Fprintln(s.out, text); err != nil {
			return err
		}
	}

	return nil
}

// limit ends rows with an error behind most of them, if that is not 0.
func limit(rows iter.Seq2[[]any, error], most int) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		n := 0
		for row, err := range rows {
			if n++; err == nil && most > 0 && n > most {
				row, err = nil, &holdfast.Error{Op: "query", Class: holdfast.ErrTooLarge,
					Detail: fmt.Sprintf("there are more than %d rows", most), Remedy: "ask for fewer, or allow more --rows"}
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

// jsonRows writes each row as a line: an object whose members are in the order of the columns.
func jsonRows(s *session, columns []string, rows iter.Seq2[[]any, error]) error {
	names := make([][]byte, len(columns))
	for i, c := range columns {
		names[i], _ = json.Marshal(c) // a string
	}
	for row, err := range rows {
		if err != nil {
			return err
		}
		sep := byte('{')
		for i, v := range row {
			if f, ok := v.(float64); ok && (math.IsInf(f, 0) || math.IsNaN(f)) {
				v = nil // JSON has no such numbers
			}
			s.out.WriteByte(sep)
			s.out.Write(names[i])
			s.out.WriteByte(':')
			sep = ','
			if err := s.value(v); err != nil {
				return err
			}
		}
		if _, err := s.out.WriteString("}\n"); err != nil {
			return err
		}
	}

	return nil
}

// value writes a value as JSON.
func (s *session) value(v any) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := s.out.WriteString(strings.TrimSuffix(b.String(), "\n"))

	return err
}

func csvRows(s *session, columns []string, rows iter.Seq2[[]any, error]) error {
	w := csv.NewWriter(s.out)
	if err := w.Write(columns); err != nil {
		return err
	}
	for row, err := range rows {
		if err != nil {
			w.Flush()
			return err
		}
		if err := w.Write(cells(row, func(v any) string {
			if b, ok := v.([]byte); ok {
				return base64.StdEncoding.EncodeToString(b)
			}
			return v.(string)
		})); err != nil {
			return err
		}
	}
	w.Flush()

	return w.Error()
}

// cells makes texts of values; written that of a string or bytes.
func cells(row []any, written func(any) string) []string {
	texts := make([]string, len(row))
	for i, v := range row {
		switch v := v.(type) {
		case nil:
		case int64:
			texts[i] = strconv.FormatInt(v, 10)
		case float64:
			texts[i] = strconv.FormatFloat(v, 'g', -1, 64)
		default:
			texts[i] = written(v)
		}
	}

	return texts
}

// tableRows shows a table, which it has in memory to know how wide its columns are.
func queryTable(s *session, columns []string, rows iter.Seq2[[]any, error], memory int64) (err error) {
	t := &console.Table{Keys: min(1, len(columns)-1)}
	for _, c := range columns {
		t.Columns = append(t.Columns, console.Column{Name: cmp.Or(text([]byte(c)), `""`), Right: true})
	}
	var row []any
	for row, err = range rows {
		if err != nil {
			break // what came before is shown
		}
		shown := cells(row, func(v any) string {
			if b, ok := v.([]byte); ok {
				return text(b)
			}
			return cmp.Or(text([]byte(v.(string))), `""`)
		})
		for i, v := range row {
			switch v.(type) {
			case nil:
				shown[i] = "null" // a cell that is empty can be left out
			case int64, float64:
			default:
				t.Columns[i].Right = false
			}
			memory -= int64(len(shown[i])) + 32
		}
		if memory < 0 {
			return &holdfast.Error{Op: "query", Class: holdfast.ErrTooLarge, Detail: "the table needs too much memory",
				Remedy: "use --format csv or json, which show rows as they come, or allow it more --memory"}
		}
		t.Row("", shown...)
	}
	if err == nil || t.Rows() > 0 {
		s.table(t)
	}

	return err
}
