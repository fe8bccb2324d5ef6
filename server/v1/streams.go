package v1

import (
	"io"
	"net/http"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/store/message"
)

// streams declares what is done with streams and categories.
func (s *service) streams() {
	const tag = "streams"
	type stream struct {
		Stream string `path:"stream" is:"stream" doc:"The stream."`
	}
	declare(s, operation{id: "list-streams", method: http.MethodGet, path: inNamespace + "/streams", role: auth.Read,
		tag: tag, summary: "List streams that have messages, in the order of their names"},
		on((*call).namespace, func(c *call, n *message.Namespace, in *struct {
			Prefix string `query:"prefix" doc:"Streams only whose names begin with this."`
			After  string `query:"after" doc:"The last name of the page before."`
			Limit  int    `query:"limit" is:"natural" doc:"How many streams at most: 1000 if absent, never more than 10000."`
		}) ([]api.Stream, error) {
			limit, err := page(in.Limit)
			if err != nil {
				return nil, err
			}
			list, err := n.Streams(c.ctx, in.Prefix, in.After, limit)
			out := make([]api.Stream, len(list))

			for i, info := range list {
				out[i] = api.Stream(info)
			}

			return out, err
		}))
	declare(s, operation{id: "get-stream", method: http.MethodGet, path: inNamespace + "/streams/{stream}",
		role: auth.Read, tag: tag, summary: "Describe a stream", codes: []string{api.CodeNotFound}},
		on((*call).namespace, func(c *call, n *message.Namespace, in *stream) (out api.Stream, err error) {
			version, there, err := n.Version(c.ctx, in.Stream)
			if err != nil {
				return out, err
			}
			if !there {
				return out, &holdfast.Error{Op: "stream", Class: holdfast.ErrNotFound, Detail: in.Stream}
			}
			out = api.Stream{Stream: in.Stream, Version: version}
			list, err := n.Streams(c.ctx, in.Stream, "", 1)
			if len(list) == 1 && list[0].Stream == in.Stream { // else all its messages were removed
				out = api.Stream(list[0])
			}

			return out, err
		}))
	declare(s, operation{id: "remove-messages", method: http.MethodDelete, path: inNamespace + "/streams/{stream}",
		role: auth.Write, tag: tag, write: true, summary: "Remove messages of a stream, or end it for ever",
		about: "Without a parameter all messages are removed; the next write goes behind them."},
		on((*call).namespace, func(c *call, n *message.Namespace, in *struct {
			stream
			Before    *int64 `query:"before" is:"natural" doc:"Remove only what comes before this position."`
			Tombstone bool   `query:"tombstone" doc:"End the stream: nobody can write to it again."`
		}) (out api.Removed, err error) {
			switch {
			case in.Before != nil && *in.Before < 0:
				err = problem.BadRequest("before is %d, and positions begin with 0", *in.Before)
			case in.Tombstone && in.Before != nil:
				err = problem.BadRequest("before and tombstone exclude each other")
			case in.Tombstone:
				out.Removed, err = n.Tombstone(c.ctx, in.Stream)
			case in.Before != nil:
				out.Removed, err = n.Truncate(c.ctx, in.Stream, *in.Before)
			default:
				out.Removed, err = n.Delete(c.ctx, in.Stream)
			}

			return out, err
		}))
	declare(s, operation{id: "get-retention", method: http.MethodGet, path: inNamespace + "/streams/{stream}/retention",
		role: auth.Read, tag: tag, summary: "Which messages of a stream are kept"},
		on((*call).namespace, func(c *call, n *message.Namespace, in *stream) (out api.Retention, err error) {
			r, err := n.Retention(c.ctx, in.Stream)

			return api.FromRetention(r), err
		}))
	declare(s, operation{id: "set-retention", method: http.MethodPut, path: inNamespace + "/streams/{stream}/retention",
		role: auth.Write, tag: tag, write: true, summary: "Set which messages of a stream are kept",
		about: "What is not kept is removed within about a minute."},
		on((*call).namespace, func(c *call, n *message.Namespace, in *struct {
			stream
			Body api.Retention
		}) (none, error) {
			return none{}, n.SetRetention(c.ctx, in.Stream, in.Body.Store())
		}))
	declare(s, operation{id: "list-categories", method: http.MethodGet, path: inNamespace + "/categories",
		role: auth.Read, tag: tag, summary: "List categories that have messages"},
		on((*call).namespace, func(c *call, n *message.Namespace, _ *none) ([]api.Category, error) {
			list, err := n.Categories(c.ctx)
			out := make([]api.Category, len(list))

			for i, info := range list {
				out[i] = api.Category{Category: info.Category, Messages: info.Messages, Streams: info.Streams}
			}

			return out, err
		}))
	s.transfer()
	s.positions()
}

// transfer declares the import and export of messages.
func (s *service) transfer() {
	const tag = "streams"
	declareRaw(s, operation{id: "import-messages", method: http.MethodPost, path: inNamespace + "/import",
		role: auth.Write, tag: tag, write: true, stream: true, heavy: true, maxBody: -1, consumes: "application/x-ndjson",
		summary: "Import messages with their positions, as lines of JSON",
		about: "The lines are those of an export, perhaps compressed by gzip. Every 1000 lines are one commit; an " +
			"import that " +
			"has failed can be repeated, since messages that are there are passed over.",
		codes: []string{api.CodePositionTaken, api.CodeIDTaken, api.CodeEnded}}, typeOf[api.Imported](),
		func(c *call, _ *none) error {
			n, err := c.namespace()
			if err != nil {
				return err
			}
			done, err := n.Import(c.ctx, c.r.Body, nil)
			if err != nil {
				return err
			}

			return c.answer(api.Imported(done))
		})
	declareRaw(s, operation{id: "export-messages", method: http.MethodGet, path: inNamespace + "/export", role: auth.Read,
		tag: tag, stream: true, produces: "application/x-ndjson", or: "application/gzip",
		summary: "Export messages with their positions, as lines of JSON"}, typeOf[none](),
		func(c *call, in *struct {
			Categories []string  `query:"category" is:"category" doc:"Messages of these categories only; may be repeated."`
			Since      time.Time `query:"since" is:"moment" doc:"Messages only that were written at this time or later."`
			Until      time.Time `query:"until" is:"moment" doc:"Messages only that were written before this time."`
			Gzip       bool      `query:"gzip" doc:"Compress them; the type of the answer is application/gzip then."`
		}) error {
			n, err := c.namespace()
			if err != nil {
				return err
			}
			kind := "application/x-ndjson"
			if in.Gzip {
				kind = "application/gzip"
			}

			return c.stream(kind, func(w io.Writer) error {
				_, err := n.Export(c.ctx, w, message.ExportOptions{Categories: in.Categories, Since: in.Since, Until: in.Until,
					Gzip: in.Gzip})
				return err
			})
		})
}

// stream lets f write the answer. An error before anything was written is answered; one that comes later breaks the
// connection off, so that no client takes a part for the whole.
func (c *call) stream(kind string, f func(w io.Writer) error) error {
	out := &begun{w: c.w}
	c.w.Header().Set("Content-Type", kind)

	switch err := f(out); {
	case err == nil:
		return nil
	case !out.any:
		c.w.Header().Del("Content-Disposition")
		return err

	default:
		c.req.Err = err
		panic(http.ErrAbortHandler)
	}
}

// begun knows whether anything was written.
type begun struct {
	w   io.Writer
	any bool
}

// Write notes that something was written, and writes it.
func (b *begun) Write(p []byte) (int, error) {
	b.any = b.any || len(p) > 0
	return b.w.Write(p)
}

// positions declares the positions of consumers.
func (s *service) positions() {
	const tag = "subscriptions"
	type consumer struct {
		Consumer string `path:"consumer" is:"subscription" doc:"The consumer."`
	}
	declare(s, operation{id: "get-position", method: http.MethodGet, path: inNamespace + "/positions/{consumer}",
		role: auth.Read, tag: tag, summary: "How far a consumer has come", codes: []string{api.CodeNotFound}},
		on((*call).namespace, func(c *call, n *message.Namespace, in *consumer) (out api.Position, err error) {
			out.Position, err = n.LoadPosition(c.ctx, in.Consumer)

			return out, err
		}))
	declare(s, operation{id: "set-position", method: http.MethodPut, path: inNamespace + "/positions/{consumer}",
		role: auth.Write, tag: tag, write: true, summary: "Keep how far a consumer has come",
		codes: []string{api.CodeAhead}},
		on((*call).namespace, func(c *call, n *message.Namespace, in *struct {
			consumer
			Body api.Position
		}) (none, error) {
			return none{}, n.SavePosition(c.ctx, in.Consumer, in.Body.Position)
		}))
	declare(s, operation{id: "delete-position", method: http.MethodDelete, path: inNamespace + "/positions/{consumer}",
		role: auth.Write, tag: tag, write: true, summary: "Forget a consumer; it is no error if there is none"},
		on((*call).namespace, func(c *call, n *message.Namespace, in *consumer) (none, error) {
			return none{}, n.DeletePosition(c.ctx, in.Consumer)
		}))
}
