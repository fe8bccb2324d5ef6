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
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/cmd/holdfast/internal/query"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/console"
)

// inQuery is what a query is asked of: a directory, which is opened for reading only if its engine has that.
type inQuery struct {
	Dir       string `arg:"" help:"The directory. It must not be open elsewhere for writing."`
	Namespace string `short:"n" help:"Namespace." default:"default" placeholder:"NS"`
	Database  string `help:"Database whose buckets are in the table keys. Default: the one without a name." placeholder:"NAME"`
	Memory    string `help:"How much memory it may use, beside what the engine does. Default: 256MiB." placeholder:"SIZE"`
}

func (c *inQuery) open(do func(db *query.DB, memory int64) error) (err error) {
	memory := int64(query.DefaultMemory)
	if c.Memory != "" {
		if memory, err = all.ParseSize(c.Memory); err != nil {
			return err
		}
	}
	engine, err := openBare(c.Dir, true, warnings())
	if err != nil {
		if errors.Is(err, holdfast.ErrLocked) {
			err = fmt.Errorf("%w; a server that has it open shows what is in it: see holdfast message, event and task "+
				"with --url", err)
		}
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	db, err := query.Open(engine, query.Options{Namespace: c.Namespace, Database: c.Database, Memory: memory})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	return do(db, memory)
}

type queryCommand struct {
	inQuery
	SQL     string        `arg:"" optional:"" name:"sql" help:"A statement that reads, or .tables, .schema, .schema TABLE. Without it, those of the standard input, which end with a semicolon."`
	Format  string        `help:"table, json (an object a line) or csv." enum:"table,json,csv" default:"table"`
	Explain bool          `help:"Show how the statement would be run: which conditions go down to the store."`
	Time    time.Duration `help:"How long it may take. Default: no limit." placeholder:"30s"`
	Rows    int           `help:"How many rows it may give. Default: no limit." placeholder:"N"`
}

// Help implements kong's interface for what follows the flags.
func (queryCommand) Help() string {
	return `The tables are messages, streams, events, subscriptions, tasks and queues of the namespace, and keys of ` +
		`buckets; .schema shows their columns. SQL is SQLite's. Data that is no text is base64 in JSON and CSV. Nothing ` +
		`is changed.`
}

func (c *queryCommand) run() int {
	return inSession(c.Format == "json", func(s *session) error {
		if c.Rows < 0 || c.Time < 0 {
			return placeError("--rows or --time is negative", "leave it out for no limit")
		}
		return c.open(func(db *query.DB, memory int64) error {
			if c.SQL != "" {
				return c.ask(s, db, c.SQL, memory)
			}
			return c.prompt(s, db, memory)
		})
	})
}

// prompt runs the statements of the standard input. What is wrong with one ends it, unless a person types them.
func (c *queryCommand) prompt(s *session, db *query.DB, memory int64) error {
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
		err := c.ask(s, db, sql, memory)
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
	inQuery
	SQLite string `name:"sqlite" required:"" help:"The new file." placeholder:"FILE"`
}

// Help implements kong's interface for what follows the flags.
func (exportCommand) Help() string {
	return `It has the tables of holdfast query, with all their rows: what was there at one moment.`
}

func (c *exportCommand) run() int {
	return inSession(false, func(s *session) error {
		return c.open(func(db *query.DB, _ int64) error {
			err := db.Export(s.ctx, c.SQLite)
			if errors.Is(err, os.ErrExist) {
				err = placeError(c.SQLite+" exists", "name a new file")
			}
			return err
		})
	})
}

// ask runs one statement, or a command that begins with a dot.
func (c *queryCommand) ask(s *session, db *query.DB, sql string, memory int64) error {
	if words := strings.Fields(sql); len(words) > 0 && strings.HasPrefix(words[0], ".") {
		return dotCommand(s, db, words)
	}
	ctx := s.ctx
	if c.Time > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.Time)
		defer stop()
	}
	if c.Explain {
		sql = "explain query plan " + sql
	}
	columns, rows, err := db.Query(ctx, sql)
	if err == nil {
		if c.Explain {
			columns, rows = columns[3:], plan(rows)
		}
		switch limited := limit(rows, c.Rows); c.Format {
		case "json":
			err = jsonRows(s, columns, limited)
		case "csv":
			err = csvRows(s, columns, limited)
		default:
			err = queryTable(s, columns, limited, memory)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = &holdfast.Error{Op: "query", Class: context.DeadlineExceeded, Detail: "it took longer than " + c.Time.String(),
			Remedy: "ask for less, or allow it more --time"}
	}

	return err
}

// dotCommand runs what is no SQL.
func dotCommand(s *session, db *query.DB, words []string) error {
	tables := db.Tables()
	switch {
	case words[0] == ".tables" && len(words) == 1:
		_, err := fmt.Fprintln(s.out, strings.Join(tables, "\n"))
		return err
	case words[0] == ".schema" && len(words) == 1:
	case words[0] == ".schema" && len(words) == 2:
		if tables = words[1:]; db.Schema(words[1]) == "" {
			return placeError(fmt.Sprintf("there is no table %.80q", words[1]), "see .tables")
		}
	default:
		return placeError(fmt.Sprintf("there is no command %.80q", strings.Join(words, " ")),
			"use .tables, .schema, .schema TABLE, or a statement of SQL")
	}
	for _, t := range tables {
		if _, err := fmt.Fprintln(s.out, db.Schema(t)); err != nil {
			return err
		}
	}

	return nil
}

// plan leaves of the rows that explain a statement what they say.
func plan(rows iter.Seq2[[]any, error]) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		for row, err := range rows {
			if err == nil {
				row = row[3:]
			}
			if !yield(row, err) {
				return
			}
		}
	}
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
