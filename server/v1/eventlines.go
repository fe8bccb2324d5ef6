package v1

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/internal/ndjson"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/store/event"
)

// One commit of an import has so many events at most, and of their lines about so many bytes.
const (
	importEvents = 1000
	importBytes  = 8 << 20
)

// eventLines declares the import and export of events.
func (s *service) eventLines() {
	const tag = "logs"
	declareRaw(s, operation{id: "import-events", method: http.MethodPost, path: inNamespace + "/logs/{log}/import",
		role: auth.Write, tag: tag, write: true, stream: true, heavy: true, maxBody: -1, consumes: "application/x-ndjson",
		summary: "Import events with their positions, as lines of JSON; the log is made if it is not there",
		about: "The lines are those of an export, perhaps compressed by gzip. Positions may have gaps. Up to 1000 lines " +
			"are one commit; an import that has failed can be repeated, since events that are there are passed over.",
		codes: []string{api.CodePositionTaken, api.CodeTruncated}}, typeOf[api.Imported](),
		func(c *call, in *inLog) error {
			log, err := c.data.Log(c.ctx, c.ns, in.Log)
			if err != nil {
				return err
			}
			done, err := c.importEvents(log)
			if err != nil {
				return err
			}

			return c.answer(done)
		})
	declareRaw(s, operation{id: "export-events", method: http.MethodGet, path: inNamespace + "/logs/{log}/export",
		role: auth.Read, tag: tag, stream: true, produces: "application/x-ndjson", or: "application/gzip",
		codes: []string{api.CodeNotFound}, summary: "Export the events of a log with their positions, as lines of JSON"},
		typeOf[none](),
		func(c *call, in *struct {
			inLog
			Gzip bool `query:"gzip" doc:"Compress them; the type of the answer is application/gzip then."`
		}) error {
			log, err := c.findLog()
			if err != nil {
				return err
			}
			kind := "application/x-ndjson"
			if in.Gzip {
				kind = "application/gzip"
			}

			return c.stream(kind, func(w io.Writer) error {
				buffer := bufio.NewWriterSize(w, 64<<10)
				out, finish := io.Writer(buffer), buffer.Flush
				if in.Gzip {
					z := gzip.NewWriter(buffer)
					out, finish = z, func() error { return errors.Join(z.Close(), buffer.Flush()) }
				}
				e := json.NewEncoder(out)
				e.SetEscapeHTML(false)

				for ev, err := range log.Events(c.ctx, 0, 0) {
					if err == nil {
						err = e.Encode(api.FromEvent(&ev))
					}
					if err != nil {
						return err
					}
				}

				return finish()
			})
		})
}

// importEvents imports the events of the body. An error that is about a line names it.
func (c *call) importEvents(log *event.Store) (done api.Imported, err error) {
	lines, err := ndjson.NewReader(c.r.Body, c.long)
	if err != nil {
		return done, problem.BadRequest("the body is not what gzip has written: %v", err)
	}
	defer lines.Release()
	var batch []event.Event
	size, upTo, at := 0, int64(0), map[uint64]int64{} // upTo is the last line of the batch, at the one that has a position

	// A batch is one commit. Its events are counted as imported or known only once it is done.
	flush := func() error {
		given, last := len(batch), done.Last
		for _, e := range batch {
			last = max(last, int64(e.Position))
		}
		anew, err := c.unknown(log, batch)

		if err != nil {
			return err
		}

		added, err := log.Import(c.ctx, anew...)
		if taken := (*event.Taken)(nil); errors.As(err, &taken) {
			return fmt.Errorf("line %d: %w", at[taken.Event], err)
		}
		if err != nil {
			return fmt.Errorf("the lines up to line %d: %w", upTo, err)
		}
		done.Imported, done.Known, done.Last = done.Imported+int64(added), done.Known+int64(given-added), last
		clear(batch)
		clear(at)
		batch, size = batch[:0], 0
		lines.Release()

		return nil
	}
	for {
		text, failed := lines.Next(c.ctx)
		if failed != nil && failed != io.EOF {
			if errors.Is(failed, bufio.ErrTooLong) {
				failed = &holdfast.Error{Class: holdfast.ErrTooLarge,
					Detail: fmt.Sprintf("a line has at most %d bytes", ndjson.MaxLine)}
			}

			return done, fmt.Errorf("line %d: %w", lines.Line(), failed)
		}
		if len(text) > 0 {
			var e api.NewEvent
			err := decode(text, &e)
			if err == nil && e.Position == 0 {
				err = problem.BadRequest("an event has a position, from 1")
			}
			if err != nil {
				// What came before the bad line is imported: the answer names the line, and a repeat passes over what is
				// there.
				return done, errors.Join(fmt.Errorf("line %d: %w", lines.Line(), err), flush())
			}
			upTo = lines.Line()
			batch, at[e.Position] = append(batch, e.Store()), upTo
			size += len(text)
		}

		if len(batch) == importEvents || size >= importBytes || lines.Long() || failed != nil {
			if err := flush(); err != nil || failed != nil {
				return done, err
			}
		}
	}
}

// unknown returns the events of a batch without those that have no id and are in the log: of those with one, Import
// finds out itself.
func (c *call) unknown(log *event.Store, batch []event.Event) ([]event.Event, error) {
	first, last := log.First(), log.Last()
	anew := batch[:0:0]

	for i := range batch {
		e, known := &batch[i], false

		// Only an event without an id at a position inside the log can be known here.
		if e.ID == "" && e.Position >= first && e.Position <= last {
			for have, err := range log.Events(c.ctx, e.Position, 1) {
				if err != nil {
					return nil, err
				}
				known = have.Position == e.Position && have.ID == "" && have.Type == e.Type && have.Origin == e.Origin &&
					bytes.Equal(have.Data, e.Data) && bytes.Equal(have.Metadata, e.Metadata) &&
					(e.Time.IsZero() || e.Time.Equal(have.Time))
			}
		}
		if !known {
			anew = append(anew, *e)
		}
	}

	return anew, nil
}
