package v1

import (
	"context"
	"iter"
	"math"
	"net/http"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/fanout"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/store/event"
)

// inLog names a log, as the path does.
type inLog struct {
	Log string `path:"log" is:"log" doc:"The log."`
}

// logs declares what is done with logs of events.
func (s *service) logs() {
	const tag = "logs"
	missing := []string{api.CodeNotFound}
	declare(s, operation{id: "list-logs", method: http.MethodGet, path: inNamespace + "/logs", role: auth.Read, tag: tag,
		summary: "List the logs of events, with their subscriptions"},
		func(c *call, _ *none) ([]api.Log, error) {
			list, err := c.data.Logs(c.ctx, c.ns)
			if err != nil {
				return nil, err
			}

			out := make([]api.Log, len(list))
			for i, l := range list {
				subscriptions, err := l.Subscriptions(c.data.Engine())
				if err != nil {
					return nil, err
				}
				out[i] = api.Log{Name: data.LogName(c.ns, l), First: l.First, Last: l.Last,
					Subscriptions: api.FromCursors(subscriptions)}
			}

			return out, nil
		})
	declare(s, operation{id: "get-log", method: http.MethodGet, path: inNamespace + "/logs/{log}", role: auth.Read,
		tag: tag, summary: "Describe a log, with its subscriptions and snapshots", codes: missing},
		on((*call).findLog, func(c *call, log *event.Store, in *inLog) (out api.Log, err error) {
			subscriptions, err := log.Subscriptions(c.ctx)
			if err != nil {
				return out, err
			}
			snapshots, err := log.Snapshots(c.ctx)

			return api.Log{Name: in.Log, First: log.First(), Last: log.Last(), Subscriptions: api.FromCursors(subscriptions),
				Snapshots: api.FromCursors(snapshots)}, err
		}))
	declare(s, operation{id: "delete-log", method: http.MethodDelete, path: inNamespace + "/logs/{log}", role: auth.Admin,
		tag: tag, summary: "Remove a log with all that is kept of it", codes: missing},
		func(c *call, in *inLog) (none, error) { return none{}, c.data.DeleteLog(c.ctx, c.ns, in.Log) })
	declare(s, operation{id: "append-events", method: http.MethodPost, path: inNamespace + "/logs/{log}/events",
		role: auth.Write, tag: tag, write: true, summary: "Append events, all or none; the log is made if it is not there",
		about: "Either all events have ids or none has. Events with ids are appended once, however often that is " +
			"repeated, as long as the log remembers the ids: those of the last million positions at least, but not of " +
			"removed events. A known id with another type or data is 409 `id_taken`.",
		codes: []string{api.CodeConflict, api.CodeIDTaken}},
		func(c *call, in *struct {
			inLog
			Body api.Append
		}) (out api.Appended, err error) {
			log, err := c.data.Log(c.ctx, c.ns, in.Log)
			if err != nil {
				return out, err
			}
			if err := comesAfter(&in.Body); err != nil {
				return out, err
			}
			var r event.Result
			if in.Body.After != nil {
				r, err = log.AppendAfter(c.ctx, *in.Body.After, in.Body.Store()...)
			} else {
				r, err = log.Append(c.ctx, in.Body.Store()...)
			}

			return api.Appended(r), err
		})
	declare(s, operation{id: "read-events", method: http.MethodGet, path: inNamespace + "/logs/{log}/events",
		role: auth.Read, tag: tag, summary: "Read events",
		codes: []string{api.CodeNotFound, api.CodeTruncated, api.CodeAhead},
		about: "There are no more for now when a page is empty: large events can make a page end before its limit. A " +
			"position that is beyond the end, or of another history, is the problem `ahead`."},
		on((*call).findLog, func(c *call, log *event.Store, in *struct {
			inLog
			known
			From  uint64 `query:"from" doc:"The first position; absent or 0 for the first that is there."`
			Limit int    `query:"limit" is:"natural" doc:"How many events at most: 1000 if absent, never more than 10000."`
		}) (out api.Events, err error) {
			limit, err := page(in.Limit)
			if err != nil {
				return out, err
			}

			if err := log.CheckHistory(in.History, in.From); err != nil {
				return out, err
			}
			out.Events, out.Next, out.History = []api.Event{}, max(in.From, 1), log.History()

			end := log.Last() // positions up to here may have no event any more
			size := 0
			for e, err := range log.Events(c.ctx, in.From, limit) {
				if err != nil {
					return out, err
				}
				out.Events, out.Next = append(out.Events, api.FromEvent(&e)), e.Position+1

				// A page ends when it is large, whatever the limit: it is built in memory.
				if size += len(e.Data) + len(e.Metadata) + escaped*(len(e.Type)+len(e.Origin)+len(e.ID)); size > pageBytes {
					return out, nil
				}
			}

			// The log was read to its end, so positions that have no event are passed over.
			if len(out.Events) < limit {
				out.Next = max(out.Next, end+1)
			}

			return out, nil
		}))
	declareRaw(s, operation{id: "follow-events", method: http.MethodGet, path: inNamespace + "/logs/{log}/events/follow",
		role: auth.Read, tag: tag, stream: true, produces: "text/event-stream",
		summary: "Follow events as Server-Sent Events: those that are there, then each new one",
		about: "Events are `event` (its id is the position to go on from), `bye` when the server stops, and `problem`. The " +
			"header Last-Event-ID goes before from. The header Holdfast-History of the answer is the history of the ids.",
		codes: []string{api.CodeNotFound, api.CodeTruncated, api.CodeAhead}},
		typeOf[api.Event](),
		func(c *call, in *struct {
			inLog
			known
			From int64 `query:"from" doc:"The first position; less than 0 means those only that are new."`
		}) error {
			log, err := c.findLog()
			if err != nil {
				return err
			}
			from, err := c.from(in.From)
			if err != nil {
				return err
			}
			if from < 0 {
				from = int64(log.Last()) + 1
			}
			if err := log.CheckHistory(in.History, uint64(from)); err != nil {
				return err
			}

			// An error after the first byte of a stream could not be answered any more, so it is looked for before.
			for _, err := range log.Events(c.ctx, uint64(from), 1) { // is the position there?
				if err != nil {
					return err
				}
			}
			encode := sent("event", func(e *event.Event) int64 { return int64(e.Position) },
				func(e *event.Event) any { return api.FromEvent(e) })
			c.follow(followed{log, ""}, fanout.Source{
				Next: func(context.Context) (int64, error) { return int64(log.Last()) + 1, nil },
				Follow: func(ctx context.Context, from int64) iter.Seq2[fanout.Item, error] {
					return fanout.Items(log.Follow(ctx, uint64(from)), encode)
				},
				Read: func(ctx context.Context, from int64, limit int) iter.Seq2[fanout.Item, error] {
					return fanout.Items(log.Events(ctx, uint64(from), limit), encode)
				},
			}, from, log.History())

			return nil
		})
	declare(s, operation{id: "truncate-log", method: http.MethodPost, path: inNamespace + "/logs/{log}/truncate",
		role: auth.Write, tag: tag, write: true, summary: "Remove events from the front of a log",
		codes: []string{api.CodeNotFound, api.CodeAhead}},
		on((*call).findLog, func(c *call, log *event.Store, in *struct {
			inLog
			Body api.Truncate
		}) (out api.Removed, err error) {
			removed, err := log.TruncateBefore(c.ctx, in.Body.Before)

			return api.Removed{Removed: int64(removed)}, err
		}))
	s.offsets()
	s.eventLines()
}

// comesAfter returns an error if no log can be at the position that events are to come after.
func comesAfter(a *api.Append) error {
	if a.After != nil && *a.After > math.MaxInt64 {
		return problem.BadRequest("no event has the position %d", *a.After)
	}
	return nil
}

// offsets declares the offsets of subscriptions of logs.
func (s *service) offsets() {
	const tag = "logs"
	type offset struct {
		inLog
		Name string `path:"name" is:"offset" doc:"The subscription."`
	}
	declare(s, operation{id: "get-offset", method: http.MethodGet, path: inNamespace + "/logs/{log}/offsets/{name}",
		role: auth.Read, tag: tag, summary: "How far a subscription of a log has come", codes: []string{api.CodeNotFound}},
		on((*call).findLog, func(c *call, log *event.Store, in *offset) (out api.Position, err error) {
			at, err := log.LoadOffset(c.ctx, in.Name)

			return api.Position{Position: int64(at)}, err
		}))
	declare(s, operation{id: "set-offset", method: http.MethodPut, path: inNamespace + "/logs/{log}/offsets/{name}",
		role: auth.Write, tag: tag, write: true, summary: "Keep how far a subscription of a log has come",
		codes: []string{api.CodeNotFound, api.CodeAhead}},
		on((*call).findLog, func(c *call, log *event.Store, in *struct {
			offset
			Body api.Position
		}) (none, error) {
			at, err := position(in.Body.Position)
			if err != nil {
				return none{}, err
			}

			return none{}, log.SaveOffset(c.ctx, in.Name, at)
		}))
	declare(s, operation{id: "delete-offset", method: http.MethodDelete, path: inNamespace + "/logs/{log}/offsets/{name}",
		role: auth.Write, tag: tag, write: true, summary: "Forget a subscription of a log; it is no error if there is none",
		codes: []string{api.CodeNotFound}},
		on((*call).findLog, func(c *call, log *event.Store, in *offset) (none, error) {
			return none{}, log.DeleteOffset(c.ctx, in.Name)
		}))
}
