package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/store/message"
)

type importMessageDB struct {
	URL    string `arg:"" name:"url" help:"Address of the database: postgres://USER:PASSWORD@HOST/message_store, or any form that libpq accepts."`
	Table  string `help:"Schema and table of the messages." default:"message_store.messages" placeholder:"TABLE"`
	target `embed:""`
}

// Help implements kong's interface for what follows the flags.
func (importMessageDB) Help() string {
	return `Copies all messages that exist when the import begins, with their ids, times, positions and global ` +
		`positions, and then compares each. It reads in one read-only transaction. It can be interrupted and ` +
		`run again: messages that are already there are skipped. Data that is NULL becomes {}.`
}

func (c *importMessageDB) run() int {
	start := time.Now()
	var done message.ImportResult
	var source summary
	status := importing(func(ctx context.Context, show func(string, ...any)) error {
		db, err := pgx.Connect(ctx, c.URL)
		if err != nil {
			return c.fail(err)
		}
		defer db.Close(context.WithoutCancel(ctx))
		// All reads see the messages of one moment.
		tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
		if err != nil {
			return c.fail(err)
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it has changed nothing
		if source, err = c.summary(ctx, tx); err != nil {
			return err
		}

		return c.open(ctx, func(to *client.Client) error {
			n := to.Namespace(c.Namespace)
			if done, err = c.copy(ctx, tx, n, source.count, show); err != nil {
				return err
			}

			return c.compare(ctx, tx, n, source.count, show)
		})
	})
	if status != exitOK {
		return status
	}
	p := newPage(os.Stdout)
	p.line("source\t%s", c.Table)
	p.line("namespace\t%q in %s", c.Namespace, c.Into)
	p.line("messages\t%d imported, %d were there", done.Imported, done.Known)
	if source.null > 0 {
		p.line("note\tthe data of %d messages is NULL, and {} here", source.null)
	}
	p.line("verified\tevery message was read back and is the same")
	p.line("took\t%.2f s", time.Since(start).Seconds())

	return fail(p.end())
}

// fail is an error of the database. Those of pgx name no password.
func (c *importMessageDB) fail(err error) error {
	return fmt.Errorf("import messagedb: %w", err)
}

// table is the name of the table for a statement.
func (c *importMessageDB) table() string {
	return pgx.Identifier(strings.SplitN(c.Table, ".", 2)).Sanitize()
}

type summary struct{ count, null int64 }

func (c *importMessageDB) summary(ctx context.Context, tx pgx.Tx) (s summary, err error) {
	err = tx.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE data IS NULL) FROM "+c.table()).Scan(&s.count, &s.null)
	if err != nil {
		return s, c.fail(err)
	}

	return s, nil
}

// record is a message as a line of an import.
type record struct {
	ID       string          `json:"id"`
	Stream   string          `json:"stream"`
	Type     string          `json:"type"`
	Position int64           `json:"pos"`
	Global   int64           `json:"gpos"`
	Data     json.RawMessage `json:"data"`
	Metadata json.RawMessage `json:"meta"`
	Time     time.Time       `json:"time"`
}

// records yields the messages by their global positions.
func (c *importMessageDB) records(ctx context.Context, tx pgx.Tx) iter.Seq2[*record, error] {
	return func(yield func(*record, error) bool) {
		rows, err := tx.Query(ctx, "SELECT id::text, stream_name, type, position, global_position, "+
			"coalesce(data::text, '{}'), metadata::text, time FROM "+c.table()+" ORDER BY global_position")
		if err != nil {
			yield(nil, c.fail(err))
			return
		}
		defer rows.Close()

		for rows.Next() {
			var r record
			var metadata *string
			var data string
			if err := rows.Scan(&r.ID, &r.Stream, &r.Type, &r.Position, &r.Global, &data, &metadata, &r.Time); err != nil {
				yield(nil, c.fail(err))
				return
			}
			r.Data, r.Time = compact(data), r.Time.UTC()
			if metadata != nil && *metadata != "null" {
				r.Metadata = compact(*metadata)
			}
			if !yield(&r, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(nil, c.fail(err))
		}
	}
}

// compact returns JSON without the spaces that PostgreSQL puts into it.
func compact(text string) json.RawMessage {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		return json.RawMessage(text) // the import refuses it
	}

	return b.Bytes()
}

// copy imports all messages.
func (c *importMessageDB) copy(ctx context.Context, tx pgx.Tx, to *client.Namespace, count int64,
	show func(string, ...any)) (done message.ImportResult, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, out := io.Pipe()

	read := make(chan struct{}) // closed when the transaction is free again
	go func() {
		defer close(read)
		out.CloseWithError(func() error {
			w := bufio.NewWriterSize(out, 64<<10)
			lines := json.NewEncoder(w)
			lines.SetEscapeHTML(false)

			n := int64(0)
			for r, err := range c.records(ctx, tx) {
				if err != nil {
					return err
				}
				if err := lines.Encode(r); err != nil {
					return err
				}
				if n++; n%1000 == 0 {
					show("copied: %d of %d messages", n, count)
				}
			}

			return w.Flush()
		}())
	}()
	if done, err = to.Import(ctx, in); err != nil {
		cancel() // it need not be read to its end
		err = fmt.Errorf("%w; lines are the messages of %s by global position", err, c.Table)
	}
	_ = in.CloseWithError(errStopped) // never fails
	<-read

	return done, err
}

// errStopped ends the reading for an import that has failed.
var errStopped = errors.New("the import has ended")

// compare compares all messages with those that are there now.
func (c *importMessageDB) compare(ctx context.Context, tx pgx.Tx, to *client.Namespace, count int64,
	show func(string, ...any)) error {
	next, stop := iter.Pull2(to.Read(ctx, message.Query{}))
	defer stop()

	n := int64(0)
	for want, err := range c.records(ctx, tx) {
		if err != nil {
			return err
		}

		var got message.Message
		for got.Global < want.Global { // others may have been there
			var ok bool
			var err error
			if got, err, ok = next(); err != nil {
				return err
			} else if !ok {
				break
			}
		}

		what := fmt.Sprintf("the message at global position %d", want.Global)
		switch {
		case got.Global != want.Global:
			return differs(what, "it is missing")
		case got.ID != want.ID:
			return differs(what, fmt.Sprintf("id %q instead of %q", got.ID, want.ID))
		case got.Stream != want.Stream || got.Position != want.Position:
			return differs(what, fmt.Sprintf("stream %q and position %d instead of %q and %d", got.Stream, got.Position,
				want.Stream, want.Position))
		case got.Type != want.Type:
			return differs(what, fmt.Sprintf("type %q instead of %q", got.Type, want.Type))
		case !got.Time.Equal(want.Time):
			return differs(what, fmt.Sprintf("time %v instead of %v", got.Time, want.Time))
		case !bytes.Equal(got.Data, want.Data):
			return differs(what, "other data")
		case !bytes.Equal(got.Metadata, want.Metadata):
			return differs(what, "other metadata")
		}
		if n++; n%1000 == 0 {
			show("compared: %d of %d messages", n, count)
		}
	}

	return nil
}
