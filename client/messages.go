package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/store/message"
)

// Namespace is a namespace of a server. Its methods do what those of message.Namespace do.
type Namespace struct {
	c        *Client
	id, path string
}

// ID is what the namespace is called.
func (n *Namespace) ID() string { return n.id }

// Info describes the namespace. message.ErrNoNamespace: there is none of that id.
func (n *Namespace) Info(ctx context.Context) (i api.Namespace, err error) {
	err = n.c.call(ctx, &request{op: "namespace info", method: "GET", path: n.path, safe: true}, &i)
	return i, err
}

// Last is the highest global position that readers see, 0 if there is none.
func (n *Namespace) Last(ctx context.Context) (int64, error) {
	i, err := n.Info(ctx)
	return i.Last, err
}

// Count returns the counts of a category, or of the namespace if it is "".
func (n *Namespace) Count(ctx context.Context, category string) (message.Counts, error) {
	if category == "" {
		i, err := n.Info(ctx)
		return message.Counts{Messages: i.Messages, Streams: i.Streams}, err
	}

	list, err := n.Categories(ctx)
	for _, c := range list {
		if c.Category == category {
			return c.Counts, nil
		}
	}

	return message.Counts{}, err
}

// Write adds messages at the end of a stream, atomically, and returns when they have reached the level. Messages
// without an id get one.
func (n *Namespace) Write(ctx context.Context, stream string, messages ...message.Message) (message.Result, error) {
	return n.write(ctx, stream, nil, messages)
}

// WriteAfter is Write if the stream has the version expected at that moment, message.NoStream for one that has never
// had a message. Otherwise it returns message.ErrConflict.
func (n *Namespace) WriteAfter(ctx context.Context, stream string, expected int64, messages ...message.Message) (
	message.Result, error) {
	return n.write(ctx, stream, &expected, messages)
}

// write makes the request of a write. All messages have ids, so that it can be tried again.
func (n *Namespace) write(ctx context.Context, stream string, expected *int64, messages []message.Message) (
	message.Result, error) {
	body, known, err := newWrite(stream, expected, messages)
	if err != nil {
		return message.Result{}, err
	}
	r := &request{op: "message write", method: "POST", path: n.path + "/messages", body: body, safe: true}
	var done api.Written
	if err := n.c.call(ctx, r, &done); err != nil {
		return message.Result{}, conflicted(err, stream)
	}
	return wrote(&done, known, r), nil
}

// newWrite makes the body of a write, whose messages all have ids. known: some were the caller's.
func newWrite(stream string, expected *int64, messages []message.Message) (w *api.Write, known bool, err error) {
	if err := notText("message write", message.ErrBadName, stream); err != nil {
		return nil, false, err
	}
	w = &api.Write{Stream: stream, Expected: expected, Messages: api.FromNewMessages(messages)}
	for i := range w.Messages {
		m := &w.Messages[i]
		if known = known || m.ID != ""; m.ID == "" {
			m.ID = newID()
		}
		if err := notText("message write", message.ErrBadMessage, m.Type); err != nil {
			return nil, false, err
		}
		if len(m.Data) == 0 {
			return nil, false, &Error{Op: "message write", Code: api.CodeBadRequest,
				Detail: fmt.Sprintf("message %d for the stream %q has no data; it is a JSON object", i, stream)}
		}
	}
	return w, known, nil
}

// wrote is the result of a write. What a try has done whose answer was lost is no repeat to the caller, whose ids were
// new.
func wrote(w *api.Written, known bool, r *request) message.Result {
	return message.Result{Position: w.Position, Global: w.Global, Repeated: w.Repeated && (known || !r.lost)}
}

// conflicted adds to an error of a write to a stream the conflict that it tells of.
func conflicted(err error, stream string) error {
	var e *Error
	if errors.As(err, &e) && e.Code == api.CodeConflict && e.problem.Expected != nil && e.problem.Actual != nil {
		e.conflict = &message.Conflict{Stream: stream, Expected: *e.problem.Expected, Actual: *e.problem.Actual}
	}
	return err
}

// values writes a query as the server reads it, without From and Limit.
func values(q *message.Query) url.Values {
	v := url.Values{}
	for name, text := range map[string]string{"stream": q.Stream, "category": q.Category, "prefix": q.Prefix,
		"correlation": q.Correlation} {
		if text != "" {
			v.Set(name, text)
		}
	}
	if len(q.Types) > 0 {
		v["type"] = slices.Clone(q.Types)
	}
	if q.Group != (message.Group{}) {
		v.Set("member", strconv.Itoa(q.Group.Member))
		v.Set("size", strconv.Itoa(q.Group.Size))
	}

	return v
}

// place is the position of a message by which a query goes.
func place(q *message.Query, m *message.Message) int64 {
	if q.Stream != "" {
		return m.Position
	}

	return m.Global
}

// pageSize is how many messages, events or other things a request asks for.
const pageSize = 500

// Read yields the messages of a query, up to where the namespace ended when the loop began. It reads them in pages.
// After an error, ctx's among them, the loop ends. A stream or category that is not there has no messages.
func (n *Namespace) Read(ctx context.Context, q message.Query) iter.Seq2[message.Message, error] {
	return func(yield func(message.Message, error) bool) {
		if q.Limit < 0 {
			yield(message.Message{}, &Error{Op: "message read", Code: api.CodeBadRequest, Detail: "a limit below 0"})
			return
		}

		// Where it ends is asked first: a loop beside a busy writer comes to its end.
		end, err := n.end(ctx, &q)
		if err != nil {
			yield(message.Message{}, err)
			return
		}

		next, left := max(q.From, 0), q.Limit
		history := q.History
		for first := true; first || next <= end; first = false { // the server says whether the query is right
			v, size := values(&q), pageSize

			// The first page says the history, and the next ones name it: if the namespace is made anew in between, its
			// positions are not taken for the same.
			if history != "" {
				v.Set("history", history)
			}
			if q.Limit > 0 {
				size = min(size, left)
			}
			v.Set("from", strconv.FormatInt(next, 10))
			v.Set("limit", strconv.Itoa(size))
			var page api.Messages
			err := n.c.call(ctx, &request{op: "message read", method: "GET", path: n.path + "/messages", query: v, safe: true},
				&page)
			if err != nil {
				yield(message.Message{}, err)
				return
			}

			for i := range page.Messages {
				m := page.Messages[i].Store()
				if place(&q, &m) > end || !yield(m, nil) {
					return
				}
				next = place(&q, &m) + 1
			}
			history = page.History
			left -= len(page.Messages)

			// A page can be empty and yet not the last: types that are left out lie between. Next says how far the server
			// has looked.
			if q.Limit > 0 && left <= 0 || len(page.Messages) == 0 && page.Next <= next {
				return
			}
			next = max(next, page.Next)
		}
	}
}

// end is the last position that a query can have now, -1 if there is none.
func (n *Namespace) end(ctx context.Context, q *message.Query) (int64, error) {
	if q.Stream == "" {
		return n.Last(ctx)
	}
	version, ok, err := n.Version(ctx, q.Stream)
	if !ok {
		return -1, err
	}

	return version, err
}

// Follow yields the messages of a query, and then each new one as soon as it has reached its level: in order, none
// missing, none twice. It connects again if the server stops, or cannot be reached, for as long as it takes; the loop
// ends with ctx's error, or one that does not pass, such as message.ErrNoNamespace. message.ErrAhead: the query begins
// beyond the end, or the server does not have any more what was read before the connection was lost, because a backup
// was restored, a power cut has taken it, or the namespace was made anew. Any number of followers may run, each has a
// connection; while the body of a loop works, little more than the next message is in memory.
func (n *Namespace) Follow(ctx context.Context, q message.Query) iter.Seq2[message.Message, error] {
	if q.Limit != 0 {
		return func(yield func(message.Message, error) bool) {
			yield(message.Message{}, &Error{Op: "message follow", Code: api.CodeBadRequest, Detail: "followers have no limit"})
		}
	}
	q.Types = slices.Clone(q.Types)

	return func(yield func(message.Message, error) bool) {
		read := func(data []byte) (message.Message, int64, error) {
			var m api.Message
			if err := json.Unmarshal(data, &m); err != nil {
				return message.Message{}, 0, err
			}
			to := m.Store()

			return to, place(&q, &to), nil
		}
		follow(ctx, n.c, "message follow", n.path+"/messages/follow", values(&q), max(q.From, 0), q.History,
			read)(yield)
	}
}

// History identifies what positions mean in the namespace, as message.Namespace.History does. A consumer that keeps a
// position keeps it too, and names it as History of its next query.
func (n *Namespace) History(ctx context.Context) (string, error) {
	var page api.Messages
	err := n.c.call(ctx, &request{op: "message history", method: "GET", path: n.path + "/messages",
		query: url.Values{"limit": {"1"}}, safe: true}, &page)

	return page.History, err
}

// LastMessage returns the last message of a stream, or the last one of a type if that is not "". ErrNotFound: there is
// none.
func (n *Namespace) LastMessage(ctx context.Context, stream, typ string) (message.Message, error) {
	v := url.Values{"stream": {stream}}
	if typ != "" {
		v.Set("type", typ)
	}
	var m api.Message
	r := &request{op: "message last", method: "GET", path: n.path + "/messages/last", query: v, safe: true}
	err := n.c.call(ctx, r, &m)
	if err != nil {
		return message.Message{}, err
	}

	return m.Store(), nil
}

// Version returns the position of a stream's last message that readers see. false means that the stream is not there.
func (n *Namespace) Version(ctx context.Context, stream string) (version int64, ok bool, err error) {
	var s api.Stream
	err = n.c.call(ctx, &request{op: "stream version", method: "GET", path: n.stream(stream), safe: true}, &s)
	switch {
	case err == nil:
		return s.Version, true, nil
	case code(err) == api.CodeNotFound:
		return 0, false, nil
	}

	return 0, false, err
}

// code is the code of an error of a server, "" if it is none.
func code(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}

	return ""
}

// stream is the path of a stream.
func (n *Namespace) stream(name string) string { return n.path + path("/streams/%s", name) }

// Streams describes up to limit streams that have messages and whose names begin with prefix, in the order of their
// bytes, from the first that comes after the name after on. A limit of 0 means all.
func (n *Namespace) Streams(ctx context.Context, prefix, after string, limit int) (list []message.StreamInfo,
	err error) {
	v := url.Values{}
	if prefix != "" {
		v.Set("prefix", prefix)
	}
	r := &request{op: "streams", method: "GET", path: n.path + "/streams", query: v, safe: true}
	err = pages(ctx, n.c, r, after, limit, func(s *api.Stream) (after string) {
		list = append(list, message.StreamInfo{Stream: s.Stream, Version: s.Version, Last: s.Last})
		return s.Stream
	})

	return list, err
}

// Categories describes all categories that have messages, in the order of their bytes.
func (n *Namespace) Categories(ctx context.Context) ([]message.CategoryInfo, error) {
	var list []api.Category
	err := n.c.call(ctx, &request{op: "categories", method: "GET", path: n.path + "/categories", safe: true}, &list)

	to := make([]message.CategoryInfo, len(list))
	for i, c := range list {
		to[i] = message.CategoryInfo{Category: c.Category,
			Counts: message.Counts{Messages: c.Messages, Streams: c.Streams}}
	}

	return to, err
}

// Delete removes all messages that a stream has, and returns how many there were. It may be written to again. If the
// answer is lost it is not tried again, because others may have written meanwhile.
func (n *Namespace) Delete(ctx context.Context, stream string) (removed int64, err error) {
	return n.remove(ctx, "stream delete", stream, nil, false)
}

// Truncate removes the messages of a stream below a position, and returns how many there were: none of those that a try
// removed whose answer was lost.
func (n *Namespace) Truncate(ctx context.Context, stream string, before int64) (removed int64, err error) {
	return n.remove(ctx, "stream truncate", stream, url.Values{"before": {strconv.FormatInt(before, 10)}}, true)
}

// Tombstone ends a stream: it can never be written to again. Its messages are removed, and it returns how many there
// were, counted as Truncate does.
func (n *Namespace) Tombstone(ctx context.Context, stream string) (removed int64, err error) {
	return n.remove(ctx, "stream tombstone", stream, url.Values{"tombstone": {"true"}}, true)
}

// remove makes the request of a removal; safe says that doing it twice does no harm.
func (n *Namespace) remove(ctx context.Context, op, stream string, v url.Values, safe bool) (int64, error) {
	var r api.Removed
	err := n.c.call(ctx, &request{op: op, method: "DELETE", path: n.stream(stream), query: v, safe: safe}, &r)

	return r.Removed, err
}

// SetRetention says which messages of a stream are to be kept from now on.
func (n *Namespace) SetRetention(ctx context.Context, stream string, r message.Retention) error {
	return n.c.call(ctx, &request{op: "set retention", method: "PUT", path: n.stream(stream) + "/retention",
		body: api.FromRetention(r), safe: true}, nil)
}

// Retention returns what SetRetention has set for a stream.
func (n *Namespace) Retention(ctx context.Context, stream string) (message.Retention, error) {
	var r api.Retention
	err := n.c.call(ctx, &request{op: "retention", method: "GET", path: n.stream(stream) + "/retention", safe: true}, &r)

	return r.Store(), err
}

// SavePosition stores how far a consumer has come: the last position that it has handled, in its stream or in the
// namespace; 0 for none. The last save wins.
func (n *Namespace) SavePosition(ctx context.Context, consumer string, position int64) error {
	return n.c.call(ctx, &request{op: "save position", method: "PUT", path: n.position(consumer),
		body: api.Position{Position: position}, safe: true}, nil)
}

// LoadPosition returns the position that SavePosition saved last, or ErrNotFound.
func (n *Namespace) LoadPosition(ctx context.Context, consumer string) (int64, error) {
	var p api.Position
	err := n.c.call(ctx, &request{op: "load position", method: "GET", path: n.position(consumer), safe: true}, &p)

	return p.Position, err
}

// DeletePosition removes a consumer's position. It is no error if there is none.
func (n *Namespace) DeletePosition(ctx context.Context, consumer string) error {
	return n.c.call(ctx, &request{op: "delete position", method: "DELETE", path: n.position(consumer), safe: true}, nil)
}

// position is the path of a consumer's position.
func (n *Namespace) position(consumer string) string { return n.path + path("/positions/%s", consumer) }

// Export writes the messages of the namespace to w, a line of JSON each, as message.Namespace does, and returns how
// many there were; -1 with Gzip, since only the lines are counted. An error, ctx's too, leaves w with what came before
// it; it is not tried again.
func (n *Namespace) Export(ctx context.Context, w io.Writer, o message.ExportOptions) (exported int64, err error) {
	v := url.Values{}
	if len(o.Categories) > 0 {
		v["category"] = slices.Clone(o.Categories)
	}

	for name, t := range map[string]time.Time{"since": o.Since, "until": o.Until} {
		if !t.IsZero() {
			v.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	if o.Gzip {
		v.Set("gzip", "true")
	}
	lines := &lineCounter{w: w}
	err = n.c.download(ctx, &request{op: "export", method: "GET", path: n.path + "/export", query: v}, lines)
	if o.Gzip {
		return -1, err
	}

	return lines.n, err
}

// lineCounter counts the lines that are written to w.
type lineCounter struct {
	w io.Writer
	n int64
}

// Write implements io.Writer.
func (l *lineCounter) Write(p []byte) (int, error) {
	n, err := l.w.Write(p)
	l.n += int64(bytes.Count(p[:n], []byte("\n")))

	return n, err
}

// Import adds the messages that Export has written, from here or elsewhere, perhaps compressed by gzip, to the
// namespace: they keep their positions. It is not tried again, because r can be read only once, but it can be
// repeated with the same lines: messages that are there are skipped.
func (n *Namespace) Import(ctx context.Context, r io.Reader) (message.ImportResult, error) {
	done, err := n.c.importLines(ctx, "import", n.path+"/import", r)
	return message.ImportResult{Imported: done.Imported, Known: done.Known, Last: done.Last}, err
}

// importLines sends lines to an import.
func (c *Client) importLines(ctx context.Context, op, path string, r io.Reader) (done api.Imported, err error) {
	if err := holdfast.CheckContext(ctx); err != nil {
		return done, err
	}
	header := map[string][]string{"Content-Type": {"application/x-ndjson"}}
	// Not to be closed: it is the caller's.
	err = c.once(ctx, &request{op: op, method: "POST", path: path, raw: io.NopCloser(r), header: header, long: true},
		&done)

	return done, err
}

// Subscriptions describes the subscriptions of the namespace.
func (n *Namespace) Subscriptions(ctx context.Context) (list []api.Subscription, err error) {
	err = n.c.call(ctx, &request{op: "subscriptions", method: "GET", path: n.path + "/subscriptions", safe: true}, &list)
	return list, err
}

// DeleteSubscription removes what is kept of a subscription, and its parked messages.
func (n *Namespace) DeleteSubscription(ctx context.Context, name string) error {
	return n.c.call(ctx, &request{op: "delete subscription", method: "DELETE",
		path: n.path + path("/subscriptions/%s", name), safe: true}, nil)
}

// Logs describes the logs of events of the namespace.
func (n *Namespace) Logs(ctx context.Context) (list []api.Log, err error) {
	err = n.c.call(ctx, &request{op: "logs", method: "GET", path: n.path + "/logs", safe: true}, &list)
	return list, err
}

// Subscription is the subscription of that name, which is there; Subscribe makes one.
func (n *Namespace) Subscription(name string) *Subscription {
	return &Subscription{c: n.c, name: name, path: n.path + path("/subscriptions/%s", name)}
}

// Subscribe opens the subscription of that name with these options, and makes it if it is not there. The subscription
// belongs to the server: any number of clients share it, and it stays open without them. Backoff is the server's; the
// error is ErrBadOption if it is set.
func (n *Namespace) Subscribe(ctx context.Context, name string, o message.SubscriptionOptions) (*Subscription, error) {
	if o.Backoff != nil || o.Query.Stream != "" || o.Query.Limit != 0 || o.Query.Correlation != "" ||
		o.Query.Group != (message.Group{}) {
		return nil, &Error{Op: "subscribe", Code: api.CodeBadRequest,
			Detail: "a subscription of a server has a category, types and a prefix, and no function for Backoff"}
	}
	s := n.Subscription(name)
	want := api.Subscription{Name: name, Category: o.Query.Category, Types: o.Query.Types, Prefix: o.Query.Prefix,
		From: o.Query.From, LeaseMS: api.MS(o.Lease), MaxAttempts: o.MaxAttempts, Window: o.Window}

	return s, n.c.call(ctx, &request{op: "subscribe", method: "PUT", path: s.path, body: want, safe: true}, nil)
}
