package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/url"
	"slices"
	"strconv"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/store/event"
)

// Log is a log of events of a server. Its methods do what those of event.Store do.
type Log struct {
	c                     *Client
	namespace, name, path string
}

// Log is the log of that name in the namespace. The server makes it when something is appended to it.
func (n *Namespace) Log(name string) *Log {
	return &Log{c: n.c, namespace: n.id, name: name, path: n.path + path("/logs/%s", name)}
}

// Name is what the log is called.
func (l *Log) Name() string { return l.name }

// Info describes the log: its first and last position, subscriptions and snapshots.
func (l *Log) Info(ctx context.Context) (i api.Log, err error) {
	err = l.c.call(ctx, &request{op: "log info", method: "GET", path: l.path, safe: true}, &i)
	return i, err
}

// Last is the last position that readers see, 0 if there is none.
func (l *Log) Last(ctx context.Context) (uint64, error) {
	i, err := l.Info(ctx)
	return i.Last, err
}

// History identifies what positions mean in the log, as event.Store.History does.
func (l *Log) History(ctx context.Context) (string, error) {
	var page api.Events
	err := l.c.call(ctx, &request{op: "event history", method: "GET", path: l.path + "/events",
		query: url.Values{"limit": {"1"}}, safe: true}, &page)

	return page.History, err
}

// Delete removes the log with all that is in it. If the answer is lost it is not tried again, because there may be
// something new in it by then.
func (l *Log) Delete(ctx context.Context) error {
	return l.c.call(ctx, &request{op: "log delete", method: "DELETE", path: l.path}, nil)
}

// Append adds the events at the end of the log, atomically, and returns when they have reached the level. If none of
// them has an id, all get one.
func (l *Log) Append(ctx context.Context, events ...event.Event) (event.Result, error) {
	return l.append(ctx, nil, events)
}

// AppendAfter is Append if last is the last position of the log at that moment, 0 for a log that never had an event.
// Otherwise it returns event.ErrConflict.
func (l *Log) AppendAfter(ctx context.Context, last uint64, events ...event.Event) (event.Result, error) {
	return l.append(ctx, &last, events)
}

// append makes the request of an append. All events have ids, so that it can be tried again.
func (l *Log) append(ctx context.Context, after *uint64, events []event.Event) (event.Result, error) {
	body, known, err := newAppend(after, events)
	if err != nil {
		return event.Result{}, err
	}
	r := &request{op: "event append", method: "POST", path: l.path + "/events", body: body, safe: true}
	var done api.Appended
	if err := l.c.call(ctx, r, &done); err != nil {
		return event.Result{}, displaced(err)
	}
	return appended(&done, known, r), nil
}

// newAppend makes the body of an append, whose events all have ids. known: they were the caller's.
func newAppend(after *uint64, events []event.Event) (a api.Append, known bool, err error) {
	a = api.Append{Events: make([]api.NewEvent, len(events)), After: after}
	known = slices.ContainsFunc(events, func(e event.Event) bool { return e.ID != "" })
	for i := range events {
		if err := notText("event append", event.ErrBadEvent, events[i].ID, events[i].Type, events[i].Origin); err != nil {
			return a, false, err
		}
		if a.Events[i] = api.FromNewEvent(&events[i]); !known {
			a.Events[i].ID = newID()
		}
		a.Events[i].Position = 0
	}
	return a, known, nil
}

// appended is the result of an append. What a try has done whose answer was lost is no repeat to the caller, whose ids
// were new.
func appended(a *api.Appended, known bool, r *request) event.Result {
	return event.Result{First: a.First, Last: a.Last, Repeated: a.Repeated && (known || !r.lost)}
}

// displaced adds to an error of an append the conflict that it tells of.
func displaced(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Code == api.CodeConflict && e.problem.Expected != nil && e.problem.Actual != nil {
		e.conflict = &event.Conflict{Expected: uint64(*e.problem.Expected), Actual: uint64(*e.problem.Actual)}
	}
	return err
}

// Read returns the events from position from on, at most limit of them; 0 means all.
func (l *Log) Read(ctx context.Context, from uint64, limit int) (list []event.Event, err error) {
	for e, err := range l.Events(ctx, from, limit) {
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}

	return list, nil
}

// Events yields the events from position from on, up to where the log ended when the loop began and at most limit of
// them; 0 means all. It reads them in pages. After an error, ctx's among them, the loop ends.
func (l *Log) Events(ctx context.Context, from uint64, limit int) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		if limit < 0 {
			yield(event.Event{}, &Error{Op: "event read", Code: api.CodeBadRequest, Detail: "a limit below 0"})
			return
		}

		// Where the log ends is asked first: a loop beside a busy writer comes to its end.
		end, err := l.Last(ctx)

		// A log that is not there has no events, as in the store.
		if code(err) == api.CodeNotFound {
			return
		}
		if err != nil {
			yield(event.Event{}, err)
			return
		}
		history := ""
		// The server says whether from is ahead of the log, so it is asked once in any case.
		for left, first := limit, true; first || from <= end; first = false {
			size := pageSize
			if limit > 0 {
				size = min(size, left)
			}
			v := url.Values{"from": {strconv.FormatUint(from, 10)}, "limit": {strconv.Itoa(size)}}
			if history != "" {
				v.Set("history", history)
			}
			var page api.Events
			r := &request{op: "event read", method: "GET", path: l.path + "/events", query: v, safe: true}
			err := l.c.call(ctx, r, &page)
			if err != nil {
				yield(event.Event{}, err)
				return
			}

			for i := range page.Events {
				e := page.Events[i].Store()
				if e.Position > end || !yield(e, nil) {
					return
				}
				from = e.Position + 1
			}
			history = page.History
			left -= len(page.Events)
			if limit > 0 && left <= 0 || len(page.Events) == 0 && page.Next <= from {
				return
			}
			from = max(from, page.Next)
		}
	}
}

// Export writes the events to w, in the order of their positions: a line of JSON each, which is an api.Event. It
// returns how many there were.
func (l *Log) Export(ctx context.Context, w io.Writer) (exported int64, err error) {
	lines := &lineCounter{w: w}
	err = l.c.download(ctx, &request{op: "event export", method: "GET", path: l.path + "/export"}, lines)

	return lines.n, err
}

// Import adds the events that Export has written, from here or elsewhere, perhaps compressed by gzip: they keep their
// positions, which may have gaps. It is not tried again, because r can be read only once, but it can be repeated with
// the same lines: events that are there are skipped. event.ErrTaken: another event has a position or an id; up to
// 1000 lines are one commit, and those before it stay.
func (l *Log) Import(ctx context.Context, r io.Reader) (api.Imported, error) {
	return l.c.importLines(ctx, "event import", l.path+"/import", r)
}

// Follow yields the events from position from on, and then each new one as soon as it has reached its level: in order,
// none missing, none twice. It connects again as [Namespace.Follow] does. event.ErrTruncated: truncation has overtaken
// it. event.ErrAhead: the log does not reach to the position, or has another history than that which was read.
func (l *Log) Follow(ctx context.Context, from uint64) iter.Seq2[event.Event, error] {
	return l.FollowSince(ctx, "", from)
}

// FollowSince is Follow from a position that was reached while [Log.History] was history: if the log has another one
// now, in which what was read before the position is not there, that is event.ErrAhead.
func (l *Log) FollowSince(ctx context.Context, history string, from uint64) iter.Seq2[event.Event, error] {
	read := func(data []byte) (event.Event, int64, error) {
		var e api.Event
		err := json.Unmarshal(data, &e)

		return e.Store(), int64(e.Position), err
	}

	return follow(ctx, l.c, "event follow", l.path+"/events/follow", nil, int64(from), history, read)
}

// TruncateBefore removes all events below a position, and returns by how many the log has become shorter, without what
// a try has removed whose answer was lost.
func (l *Log) TruncateBefore(ctx context.Context, position uint64) (removed uint64, err error) {
	var r api.Removed
	err = l.c.call(ctx, &request{op: "event truncate", method: "POST", path: l.path + "/truncate",
		body: api.Truncate{Before: position}, safe: true}, &r)

	return uint64(max(r.Removed, 0)), err
}

// SaveOffset stores that the subscription of that name has come as far as position: the last one it has handled, 0 for
// none. The last save wins. event.ErrAhead: readers do not see the position yet.
func (l *Log) SaveOffset(ctx context.Context, subscription string, position uint64) error {
	return l.c.call(ctx, &request{op: "save offset", method: "PUT", path: l.offset(subscription),
		body: api.Position{Position: int64(position)}, safe: true}, nil)
}

// LoadOffset returns what SaveOffset has saved last, or ErrNotFound.
func (l *Log) LoadOffset(ctx context.Context, subscription string) (uint64, error) {
	var p api.Position
	err := l.c.call(ctx, &request{op: "load offset", method: "GET", path: l.offset(subscription), safe: true}, &p)

	return uint64(p.Position), err
}

// DeleteOffset removes a subscription. It is no error if there is none.
func (l *Log) DeleteOffset(ctx context.Context, subscription string) error {
	return l.c.call(ctx, &request{op: "delete offset", method: "DELETE", path: l.offset(subscription), safe: true}, nil)
}

// Subscriptions lists the subscriptions that have an offset, with what they lag behind.
func (l *Log) Subscriptions(ctx context.Context) ([]event.Cursor, error) {
	i, err := l.Info(ctx)
	list := make([]event.Cursor, len(i.Subscriptions))

	for at, s := range i.Subscriptions {
		list[at] = event.Cursor{Name: s.Name, Position: s.Position, Lag: s.Lag, Missed: s.Missed}
	}

	return list, err
}

// offset is the path of a subscription's offset.
func (l *Log) offset(subscription string) string { return l.path + path("/offsets/%s", subscription) }
