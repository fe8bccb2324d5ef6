package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/store/message"
)

type messageCommand struct {
	Streams       messageStreams       `cmd:"" help:"List streams."`
	Categories    messageCategories    `cmd:"" help:"List categories."`
	Cat           messageCat           `cmd:"" help:"Show messages of a stream, a category or the whole namespace."`
	Tail          messageTail          `cmd:"" help:"Show new messages as they come."`
	Write         messageWrite         `cmd:"" help:"Write a message to a stream."`
	Export        messageExport        `cmd:"" help:"Write messages as lines of JSON, with their positions."`
	Import        messageImport        `cmd:"" help:"Import messages written by export. They keep their positions."`
	Truncate      messageTruncate      `cmd:"" help:"Remove the messages of a stream before a position."`
	Delete        messageDelete        `cmd:"" help:"Remove all messages of a stream. With --end, it can never be written to again."`
	Subscriptions messageSubscriptions `cmd:"" help:"List subscriptions and their progress."`
	Parked        messageParked        `cmd:"" help:"Show a subscription's parked messages, which it no longer delivers."`
	Replay        messageReplay        `cmd:"" help:"Deliver parked messages again."`
}

type messageStreams struct {
	inPlace
	Prefix string `arg:"" optional:"" help:"Prefix of the names."`
	After  string `help:"Only names after this one." placeholder:"STREAM"`
	Limit  uint32 `help:"Maximum number; 0 for all." default:"1000" placeholder:"N"`
}

func (c *messageStreams) run() int {
	return c.reading(func(s *session) error {
		limit := int(c.Limit)
		if limit > 0 {
			limit++ // to know whether there are more
		}
		streams, err := s.client.Namespace(c.Namespace).Streams(s.ctx, c.Prefix, c.After, limit)
		if err != nil {
			return err
		}
		if limit > 0 && len(streams) == limit {
			streams = streams[:c.Limit]
			defer fmt.Fprintf(os.Stderr, "holdfast: there are more: go on with --after %q, or use --limit 0 for all\n",
				streams[len(streams)-1].Stream)
		}

		from := func(st message.StreamInfo) api.Stream { return api.Stream(st) }

		return list(s, streams, from, columns("stream", "version#", "last written"), func(st api.Stream) []string {
			return []string{st.Stream, num(st.Version), when(st.Last)}
		})
	})
}

type messageCategories struct{ inPlace }

func (c *messageCategories) run() int {
	return c.reading(func(s *session) error {
		categories, err := s.client.Namespace(c.Namespace).Categories(s.ctx)
		if err != nil {
			return err
		}

		from := func(k message.CategoryInfo) api.Category {
			return api.Category{Category: k.Category, Messages: k.Messages, Streams: k.Streams}
		}

		return list(s, categories, from, columns("category", "streams#", "messages#"), func(k api.Category) []string {
			return []string{k.Category, num(k.Streams), num(k.Messages)}
		})
	})
}

// selection is which messages are shown.
type selection struct {
	Stream   string   `arg:"" optional:"" help:"The stream. Default: the whole namespace."`
	Category string   `help:"Only this category." placeholder:"CATEGORY"`
	Type     []string `help:"Only these types." placeholder:"TYPE"`
	Prefix   string   `help:"Only streams whose names have this prefix." placeholder:"PREFIX"`
}

func (q *selection) query() message.Query {
	return message.Query{Stream: q.Stream, Category: q.Category, Types: q.Type, Prefix: q.Prefix}
}

type messageCat struct {
	inPlace
	selection
	From  int64  `help:"First position: in the stream if one is named, otherwise the global position." default:"0" placeholder:"N"`
	Limit uint32 `help:"Maximum number of messages; 0 for all." default:"0" placeholder:"N"`
}

func (c *messageCat) run() int {
	return c.reading(func(s *session) error {
		q := c.query()
		q.From, q.Limit = c.From, int(c.Limit)

		return s.messages(s.client.Namespace(c.Namespace).Read(s.ctx, q), false)
	})
}

type messageTail struct {
	inPlace
	selection
	Last int64 `help:"Begin this many positions before the end." default:"0" placeholder:"N"`
}

func (c *messageTail) run() int {
	if err := c.noDir("tail"); err != nil {
		return failTool(err)
	}

	return c.with(func(s *session) error {
		n, q := s.client.Namespace(c.Namespace), c.query()
		end, err := n.Last(s.ctx)
		if q.Stream != "" && err == nil {
			end, _, err = n.Version(s.ctx, q.Stream)
		}
		if err != nil {
			return err
		}
		q.From = max(end+1-c.Last, 0)

		return s.messages(n.Follow(s.ctx, q), true)
	})
}

// messages shows messages.
func (s *session) messages(seq iter.Seq2[message.Message, error], live bool) error {
	return show(s, seq, live, api.FromMessage, func(m *message.Message) string {
		return fmt.Sprintf("%d  %s  %s %d  %s  %s", m.Global, when(m.Time), m.Stream, m.Position, m.Type, text(m.Data))
	})
}

type messageWrite struct {
	inPlace
	levelFlag
	Stream   string `arg:"" help:"The stream."`
	Type     string `arg:"" help:"Type of the message."`
	Data     string `arg:"" optional:"" default:"{}" help:"A JSON object; - for standard input."`
	Metadata string `help:"A JSON object." placeholder:"JSON"`
	ID       string `name:"id" help:"A UUID. Repeated writes with the same id take effect once." placeholder:"UUID"`
	Expected *int64 `help:"Write only if the stream has this version; -1 if it must not exist." placeholder:"N"`
}

func (c *messageWrite) run() int {
	return c.with(func(s *session) error {
		payload, err := input(c.Data)
		if err != nil {
			return err
		}

		for _, b := range [][]byte{payload, []byte(c.Metadata)} {
			if len(b) > 0 && !json.Valid(b) {
				return placeError(fmt.Sprintf("%.100q is not JSON", b), `write it as '{"name": "value"}'`)
			}
		}
		m := message.Message{ID: c.ID, Type: c.Type, Data: payload}
		if c.Metadata != "" {
			m.Metadata = []byte(c.Metadata)
		}
		n := s.client.Namespace(c.Namespace)
		var r message.Result
		if c.Expected != nil {
			r, err = n.WriteAfter(c.ctx(s), c.Stream, *c.Expected, m)
		} else {
			r, err = n.Write(c.ctx(s), c.Stream, m)
		}
		if err != nil {
			return err
		}
		w := api.Written{Stream: c.Stream, Position: r.Position, Global: r.Global, Repeated: r.Repeated}
		return s.said(w, "position %d in %s, global %d", w.Position, w.Stream, w.Global)
	})
}

type messageExport struct {
	inPlace
	Output   string    `short:"o" help:"New file to write to. Default: standard output." placeholder:"FILE"`
	Category []string  `help:"Only these categories." placeholder:"CATEGORY"`
	Since    time.Time `help:"Only messages written since this time." placeholder:"2026-01-31T12:00:00Z"`
	Until    time.Time `help:"Only messages written before this time." placeholder:"2026-01-31T12:00:00Z"`
	Gzip     bool      `help:"Compress the output with gzip."`
}

func (c *messageExport) run() int {
	return c.reading(func(s *session) error {
		w, done, err := s.file(c.Output)
		if err != nil {
			return err
		}
		n, err := s.client.Namespace(c.Namespace).Export(s.ctx, w, message.ExportOptions{Categories: c.Category,
			Since: c.Since, Until: c.Until, Gzip: c.Gzip})
		if err := done(err); err != nil || w == io.Writer(s.out) {
			return err
		}
		if n < 0 {
			return s.said(struct{}{}, "exported to %s", c.Output)
		}

		return s.said(api.Counted{Count: int(n)}, "%d messages in %s", n, c.Output)
	})
}

type messageImport struct {
	inPlace
	Input string `arg:"" optional:"" help:"File to read, optionally compressed. Default: standard input."`
}

func (c *messageImport) run() int {
	return c.with(func(s *session) error {
		r, err := reader(c.Input)
		if err != nil {
			return err
		}
		defer r.Close()
		done, err := s.client.Namespace(c.Namespace).Import(s.ctx, r)
		if err != nil {
			return err
		}

		return s.said(api.Imported(done), "%d messages imported, %d were there", done.Imported, done.Known)
	})
}

type messageTruncate struct {
	inPlace
	Stream string `arg:"" help:"The stream."`
	Before int64  `required:"" help:"First position to keep." placeholder:"N"`
}

func (c *messageTruncate) run() int {
	return c.with(func(s *session) error {
		n, err := s.client.Namespace(c.Namespace).Truncate(s.ctx, c.Stream, c.Before)
		return s.removed(n, err)
	})
}

func (s *session) removed(n int64, err error) error {
	if err != nil {
		return err
	}

	return s.said(api.Removed{Removed: n}, "%d messages removed", n)
}

type messageDelete struct {
	inPlace
	Stream string `arg:"" help:"The stream."`
	End    bool   `help:"Also end the stream: it can never be written to again."`
}

func (c *messageDelete) run() int {
	return c.with(func(s *session) error {
		remove := s.client.Namespace(c.Namespace).Delete
		if c.End {
			remove = s.client.Namespace(c.Namespace).Tombstone
		}
		n, err := remove(s.ctx, c.Stream)

		return s.removed(n, err)
	})
}

type messageSubscriptions struct{ inPlace }

func (c *messageSubscriptions) run() int {
	return c.reading(func(s *session) error {
		subs, err := s.client.Namespace(c.Namespace).Subscriptions(s.ctx)
		if err != nil {
			return err
		}
		t := columns("subscription", "category", "done#", "behind#", "in hand#", "parked#")

		return list(s, subs, itself, t, func(b api.Subscription) []string {
			category := cmp.Or(b.Category, map[bool]string{true: "(not known)", false: "(all)"}[b.Embedded])
			return []string{b.Name, category, num(b.Done), num(b.Behind), num(b.Pending), num(b.Parked)}
		})
	})
}

// subscription is the handle of a subscription that is there.
func (c *inPlace) subscription(s *session, name string) (*client.Subscription, error) {
	n := s.client.Namespace(c.Namespace)
	sub := n.Subscription(name)
	_, err := sub.Info(s.ctx)

	return sub, err
}

type messageParked struct {
	inPlace
	Subscription string `arg:"" help:"The subscription."`
}

func (c *messageParked) run() int {
	return c.reading(func(s *session) error {
		sub, err := c.subscription(s, c.Subscription)
		if err != nil {
			return err
		}

		var to []api.ParkedMessage
		for p, err := range allParked(s.ctx, sub) {
			if err != nil {
				return err
			}
			to = append(to, api.ParkedMessage{Message: api.FromMessage(&p.Message), Attempts: p.Attempts, Reason: p.Reason,
				At: p.At})
		}
		t := columns("global#", "stream", "position#", "type", "attempts#", "parked", "reason")

		return list(s, to, itself, t, func(p api.ParkedMessage) []string {
			return []string{num(p.Global), p.Stream, num(p.Position), p.Type, num(p.Attempts), when(p.At),
				text([]byte(p.Reason))}
		})
	})
}

// allParked yields all parked messages, a page at a time.
func allParked(ctx context.Context, sub interface {
	Parked(ctx context.Context, after int64, limit int) ([]message.Parked, error)
}) iter.Seq2[*message.Parked, error] {
	return func(yield func(*message.Parked, error) bool) {
		for after := int64(0); ; {
			page, err := sub.Parked(ctx, after, 0)
			if err != nil {
				yield(nil, err)
			}
			if err != nil || len(page) == 0 {
				return
			}

			for i := range page {
				if !yield(&page[i], nil) {
					return
				}
			}
			after = page[len(page)-1].Global
		}
	}
}

type messageReplay struct {
	inPlace
	Subscription string  `arg:"" help:"The subscription."`
	Globals      []int64 `arg:"" optional:"" help:"Global positions of the messages. Default: all parked messages."`
}

func (c *messageReplay) run() int {
	return c.with(func(s *session) error {
		sub, err := c.subscription(s, c.Subscription)
		if err != nil {
			return err
		}
		globals := c.Globals
		if len(globals) == 0 {
			for p, err := range allParked(s.ctx, sub) {
				if err != nil {
					return err
				}
				globals = append(globals, p.Global)
			}
		}
		n := 0
		if len(globals) > 0 {
			if n, err = sub.Replay(s.ctx, globals...); err != nil {
				return err
			}
		}

		return s.said(api.Counted{Count: n}, "%d messages are delivered again", n)
	})
}

type namespaceCommand struct {
	List   namespaceList   `cmd:"" help:"List namespaces."`
	Create namespaceCreate `cmd:"" help:"Create a namespace, and print its token."`
	Delete namespaceDelete `cmd:"" help:"Delete a namespace and everything in it."`
	Move   namespaceMove   `cmd:"" help:"Move a namespace to another space of a server of several processes."`
}

type namespaceList struct{ place }

func (c *namespaceList) run() int {
	return c.reading(func(s *session) error {
		all, err := s.client.Namespaces(s.ctx)
		if err != nil {
			return err
		}
		t := columns("namespace", "streams#", "messages#", "created", "description")
		several := slices.ContainsFunc(all, func(n api.Namespace) bool { return n.Space > 0 })
		if several {
			t = columns("namespace", "space#", "streams#", "messages#", "created", "description")
		}

		return list(s, all, itself, t, func(n api.Namespace) []string {
			row := []string{n.ID, num(n.Streams), num(n.Messages), when(n.Created), n.Description}
			if several {
				row = slices.Insert(row, 1, num(n.Space))
			}

			return row
		})
	})
}

type namespaceCreate struct {
	place
	ID          string `arg:"" help:"Id of the namespace: 1 to 64 letters, digits, - and _."`
	Description string `help:"Description." placeholder:"TEXT"`
}

func (c *namespaceCreate) run() int {
	return c.with(func(s *session) error {
		made, err := s.client.CreateNamespace(s.ctx, api.NewNamespace{ID: c.ID, Description: c.Description})
		if err != nil {
			return err
		}

		return s.said(made, "%s", made.Token)
	})
}

type namespaceDelete struct {
	place
	ID  string `arg:"" help:"Id of the namespace."`
	Yes bool   `help:"Delete the namespace even if it has messages."`
}

func (c *namespaceDelete) run() int {
	return c.with(func(s *session) error {
		i, err := s.client.Namespace(c.ID).Info(s.ctx)
		if err != nil {
			return err
		}
		if i.Messages > 0 && !c.Yes {
			return placeError(fmt.Sprintf("the namespace %q has %d messages", c.ID, i.Messages), "delete it with --yes")
		}
		n, err := s.client.DeleteNamespace(s.ctx, c.ID)
		if errors.Is(err, message.ErrNoNamespace) && isUnknown(err) {
			err = nil // by a try whose answer was lost
		}

		return s.removed(n, err)
	})
}

type namespaceMove struct {
	place
	ID string `arg:"" help:"Id of the namespace."`
	To int    `required:"" help:"Number of the space, as holdfast nodes shows it." placeholder:"SPACE"`
}

// Help implements kong's interface for what follows the flags.
func (namespaceMove) Help() string {
	return `Meanwhile requests for the namespace wait, or are answered with 503 and come again. Positions, ids, leases ` +
		`and tokens stay. If it fails, the namespace stays where it is.`
}

func (c *namespaceMove) run() int {
	return c.with(func(s *session) error {
		if err := c.noDir("move"); err != nil {
			return err
		}
		if err := s.client.MoveNamespace(s.ctx, c.ID, c.To); err != nil {
			return err
		}

		return s.said(api.Move{Namespace: c.ID, Space: c.To}, "%s is in space %d", c.ID, c.To)
	})
}

func isUnknown(err error) bool {
	var e *client.Error
	return errors.As(err, &e) && e.Unknown
}

type tokenCommand struct {
	List   tokenList   `cmd:"" help:"List tokens."`
	Create tokenCreate `cmd:"" help:"Create a token, and print it. With --dir this needs no token: use it to regain access."`
	Revoke tokenRevoke `cmd:"" help:"Revoke tokens."`

	Reset tokenResetCommand `cmd:"" help:"Give the default namespace a new token, while no server is running."`
}

type tokenList struct {
	place
	Namespace string `short:"n" help:"Only tokens of this namespace; * for those valid in all." placeholder:"NS"`
}

func (c *tokenList) run() int {
	return c.reading(func(s *session) error {
		tokens, err := s.client.Tokens(s.ctx, c.Namespace)
		if err != nil {
			return err
		}
		t := columns("id", "namespace", "role", "created", "expires", "description")

		return list(s, tokens, itself, t, func(k api.Token) []string {
			expires := "-"
			if k.Expires != nil {
				expires = when(*k.Expires)
			}

			return []string{k.ID, k.Namespace, k.Role, when(k.Created), expires, k.Description}
		})
	})
}

type tokenCreate struct {
	place
	Namespace   string        `short:"n" help:"Namespace in which the token is valid; * for all." default:"*" placeholder:"NS"`
	Role        string        `help:"Role: admin, write, query (reads, and SQL) or read." enum:"admin,write,query,read" default:"admin" placeholder:"ROLE"`
	For         time.Duration `help:"How long the token is valid; 0 for ever." default:"0s" placeholder:"720h"`
	Description string        `help:"Who holds the token." placeholder:"TEXT"`
}

func (c *tokenCreate) run() int {
	return c.with(func(s *session) error {
		if c.For < 0 {
			return &holdfast.Error{Class: holdfast.ErrBadOption, Detail: "--for is negative"}
		}
		t := api.NewToken{Namespace: c.Namespace, Role: c.Role, Description: c.Description}
		if c.For > 0 {
			end := time.Now().Add(c.For).UTC()
			t.Expires = &end
		}
		made, err := s.client.CreateToken(s.ctx, t)
		if err != nil {
			return err
		}

		return s.said(made, "%s", made.Secret)
	})
}

type tokenRevoke struct {
	place
	IDs []string `arg:"" name:"id" help:"Ids of the tokens."`
}

func (c *tokenRevoke) run() int {
	return c.with(func(s *session) error {
		for _, id := range c.IDs {
			err := s.client.RevokeToken(s.ctx, id)
			if err != nil && !(errors.Is(err, holdfast.ErrNotFound) && isUnknown(err)) {
				return err
			}
		}

		return s.said(api.Counted{Count: len(c.IDs)}, "%d revoked", len(c.IDs))
	})
}
