package v1

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/store/message"
)

const inNamespace = "/v1/namespaces/{ns}"

// Pages have at most so many entries, and of messages and events end when they have about so many bytes.
const (
	pageSize  = 1000
	maxPage   = 10_000
	pageBytes = 16 << 20
	escaped   = 6 // how many times as long a text is at most in JSON
)

// page is how many entries a page has for which a limit was asked.
func page(limit int) (int, error) {
	if limit < 0 {
		return 0, problem.BadRequest("the limit is %d", limit)
	}

	return min(cmp.Or(limit, pageSize), maxPage), nil
}

// selection is which messages are read or followed.
type selection struct {
	Stream      string   `query:"stream" is:"category" doc:"Messages of this stream; not with category."`
	Category    string   `query:"category" is:"category" doc:"Messages of this category; without it and stream, of the namespace."`
	Types       []string `query:"type" doc:"Messages of these types only; may be repeated."`
	Prefix      string   `query:"prefix" doc:"Messages of streams only whose names begin with this."`
	Correlation string   `query:"correlation" is:"category" doc:"Messages only whose metadata name a stream of this category as correlationStreamName."`
	Member      int      `query:"member" is:"natural" doc:"Which member of a consumer group reads, from 0."`
	Size        int      `query:"size" is:"natural" doc:"How many members the consumer group has; 0 is no group."`
}

// known is the history that a position belongs to.
type known struct {
	History string `query:"history" doc:"What history was, in the answer that the position is from; absent to check the position alone."`
}

// query is the selection as a query of the store, without a position.
func (s *selection) query() message.Query {
	return message.Query{Stream: s.Stream, Category: s.Category, Types: s.Types, Prefix: s.Prefix,
		Correlation: s.Correlation, Group: message.Group{Member: s.Member, Size: s.Size}}
}

// messages declares how messages are written, read and followed.
func (s *service) messages() {
	const tag = "messages"
	declare(s, operation{id: "write-messages", method: http.MethodPost, path: inNamespace + "/messages",
		role: auth.Write, tag: tag, write: true, summary: "Write messages to a stream, all or none",
		about: "The id of a message is a UUID; whether its letters are capital makes no difference. A write whose messages " +
			"have ids is done once, however often it is repeated, as long as the messages are there. A known id with another " +
			"type or data, or in another stream, is 409 `id_taken`. Data and metadata are objects that are at most " +
			strconv.Itoa(message.MaxDepth) + " deep, a type has at most " + strconv.Itoa(message.MaxTypeSize) + " bytes. What " +
			"is to be written to several streams is a transaction.",
		codes: []string{api.CodeConflict, api.CodeIDTaken, api.CodeEnded}},
		on((*call).namespace, func(c *call, n *message.Namespace, in *struct{ Body api.Write }) (
			out api.Written, err error) {
			if err := expects(&in.Body); err != nil {
				return out, err
			}
			var r message.Result
			if in.Body.Expected != nil {
				r, err = n.WriteAfter(c.ctx, in.Body.Stream, *in.Body.Expected, in.Body.Store()...)
			} else {
				r, err = n.Write(c.ctx, in.Body.Stream, in.Body.Store()...)
			}
			return written(&in.Body, r), err
		}))
	declare(s, operation{id: "read-messages", method: http.MethodGet, path: inNamespace + "/messages", role: auth.Read,
		tag: tag, summary: "Read messages of a stream, a category or the namespace",
		about: "In the order of positions for a stream, otherwise of global positions. There are no more for now " +
			"when a page " +
			"is empty: large messages can make a page end before its limit. A position that is beyond the end, or of " +
			"another history, is the problem `ahead`.", codes: []string{api.CodeAhead}},
		on((*call).namespace, func(c *call, n *message.Namespace, in *struct {
			selection
			known
			From  int64 `query:"from" doc:"The first position: in the stream for one, else the global one."`
			Limit int   `query:"limit" is:"natural" doc:"How many messages at most: 1000 if absent, never more than 10000."`
		}) (out api.Messages, err error) {
			q := in.query()
			q.From, q.History = max(in.From, 0), in.History
			if q.Limit, err = page(in.Limit); err != nil {
				return out, err
			}
			if out.History, err = n.History(c.ctx); err != nil {
				return out, err
			}
			out.Messages, out.Next = []api.Message{}, q.From

			// The end is taken before the reading, so that a message which comes meanwhile is not passed over.
			end := n.Last()
			size := 0
			for m, err := range n.Read(c.ctx, q) {
				if err != nil {
					return out, err
				}
				out.Messages = append(out.Messages, api.FromMessage(&m))
				out.Next = after(&q, &m)
				if size += len(m.Data) + len(m.Metadata) + escaped*len(m.Type); size > pageBytes {
					return out, nil
				}
			}
			if q.Stream == "" && len(out.Messages) < q.Limit {
				out.Next = max(out.Next, end+1) // nothing in between is wanted
			}

			return out, nil
		}))
	declareRaw(s, operation{id: "follow-messages", method: http.MethodGet, path: inNamespace + "/messages/follow",
		role: auth.Read, tag: tag, stream: true, produces: "text/event-stream",
		summary: "Follow messages as Server-Sent Events: those that are there, then each new one",
		about: "Events are `message` (its id is the position to go on from), `bye` when the server stops, and " +
			"`problem`. The " +
			"header Last-Event-ID goes before from. The header Holdfast-History of the answer is the history of the ids.",
		codes: []string{api.CodeAhead}}, typeOf[api.Message](),
		func(c *call, in *struct {
			selection
			known
			From int64 `query:"from" doc:"The first position, as in reading; less than 0 means those only that are new."`
		}) error {
			n, err := c.namespace()
			if err != nil {
				return err
			}
			q := in.query()
			if err := n.Check(c.ctx, q); err != nil { // before its stream is looked for
				return err
			}
			if q.From, err = c.from(in.From); err != nil {
				return err
			}
			if q.From < 0 {
				if q.From, err = data.Next(c.ctx, n, q.Stream); err != nil {
					return err
				}
			}
			history, err := n.History(c.ctx)
			if err != nil {
				return err
			}
			q.History = in.History
			if err := n.Check(c.ctx, q); err != nil {
				return err
			}
			q.History = "" // it is that of the first position only

			// Followers with the same selection share a topic, whatever position they begin at.
			key := followed{n, fmt.Sprintf("%#v", in.selection)}
			encode := sent("message", func(m *message.Message) int64 { return after(&q, m) - 1 },
				func(m *message.Message) any { return api.FromMessage(m) })
			c.follow(key, data.Source(n, q, encode), q.From, history)

			return nil
		})
	declare(s, operation{id: "last-message", method: http.MethodGet, path: inNamespace + "/messages/last",
		role: auth.Read, tag: tag, summary: "The last message of a stream", codes: []string{api.CodeNotFound}},
		on((*call).namespace, func(c *call, n *message.Namespace, in *struct {
			Stream string `query:"stream" is:"stream" need:"yes" doc:"The stream."`
			Type   string `query:"type" doc:"The last one of this type."`
		}) (out api.Message, err error) {
			m, err := n.LastMessage(c.ctx, in.Stream, in.Type)

			return api.FromMessage(&m), err
		}))
}

// expects returns an error if no stream can have the version that a write expects.
func expects(w *api.Write) error {
	if w.Expected != nil && *w.Expected < message.NoStream {
		return problem.BadRequest("the expected version is %d", *w.Expected)
	}
	return nil
}

// written is the result of a write, in the form of the API.
func written(w *api.Write, r message.Result) api.Written {
	return api.Written{Stream: w.Stream, Position: r.Position, Global: r.Global, Repeated: r.Repeated}
}

// after is the position behind a message that a query has given.
func after(q *message.Query, m *message.Message) int64 {
	if q.Stream != "" {
		return m.Position + 1
	}

	return m.Global + 1
}

// position is a position of a log that a request names.
func position(n int64) (uint64, error) {
	if n < 0 {
		return 0, problem.BadRequest("the position is %d", n)
	}

	return uint64(n), nil
}
