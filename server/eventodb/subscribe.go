package eventodb

import (
	"bytes"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/fanout"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/message"
)

// keepAlive is after how long a comment is sent, if nothing else is.
const keepAlive = 15 * time.Second

// subscription is what a client wants to be told of.
type subscription struct {
	stream, category string
	all              bool
	position         int64
	group            message.Group
}

// parseSubscription reads the parameters of /subscribe, and says what is wrong with them.
func parseSubscription(q url.Values) (s subscription, wrong string) {
	s.stream, s.category, s.all = q.Get("stream"), q.Get("category"), q.Get("all") == "true"
	kinds := 0

	for _, given := range []bool{s.stream != "", s.category != "", s.all} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		return s, "Exactly one of the parameters stream, category and all=true is required"
	}
	number := func(name string) (n int64, ok bool) {
		text := q.Get(name)
		if text == "" {
			return 0, true
		}
		n, err := strconv.ParseInt(text, 10, 64)

		return n, err == nil
	}
	var ok bool
	if s.position, ok = number("position"); !ok {
		return s, "Invalid position parameter"
	}
	s.position = max(s.position, 0)
	member, ok := number("consumer")
	if !ok || member < 0 {
		return s, "Invalid consumer parameter"
	}
	size, ok := number("size")
	if !ok || size < 0 || size > 1<<30 {
		return s, "Invalid size parameter"
	}
	if member == 0 && size == 0 {
		return s, ""
	}
	if s.category == "" {
		return s, "The parameters consumer and size need a category"
	}
	if member >= size {
		return s, "The parameter consumer must be less than size"
	}
	s.group = message.Group{Member: int(member), Size: int(size)}

	return s, ""
}

// subscribe serves /subscribe: an event for each message, first those that are there, then what comes.
func (s *service) subscribe(w http.ResponseWriter, r *http.Request) {
	ctx, known := r.Context(), route.From(r.Context())
	sub, wrong := parseSubscription(r.URL.Query())
	if wrong != "" {
		http.Error(w, wrong, http.StatusBadRequest)
		return
	}
	n, err := s.data.Messages().Namespace(ctx, own(r, known.Principal))
	if err != nil {
		refuse(w, r, err)
		return
	}
	next := sub.position
	if sub.all { // only what comes
		next = max(next, n.Last()+1)
	}
	// EventoDB would wait for the position without a word, and the client miss what comes before it.
	query := sub.query()
	query.From = next
	if err := n.Check(ctx, query); err != nil {
		refuse(w, r, err)
		return
	}
	out := newEventStream(w)
	if out.send([]byte(": ready\n\n")) != nil {
		return
	}
	// However it ends, the client sees the end of the answer, and comes again.
	_ = s.hub.Follow(ctx, topicKey{n, sub.stream, sub.category, sub.group}, notes(n, sub), next, fanout.Output{
		Send:      out.send,
		Idle:      func() error { return out.send([]byte(": \n\n")) },
		IdleAfter: keepAlive,
		Stopping:  known.Stopping,
	})
}

// topicKey says which messages are followed: those of a stream or a category, or with neither of the namespace.
type topicKey struct {
	namespace        *message.Namespace
	stream, category string
	group            message.Group
}

func (s *subscription) query() message.Query {
	return message.Query{Stream: s.stream, Category: s.category, Group: s.group}
}

// notes are the events that tell of the messages of a subscription.
func notes(n *message.Namespace, sub subscription) fanout.Source {
	note := func(b []byte, m *message.Message) ([]byte, int64, error) {
		b = appendText(append(b, "event: poke\ndata: {\"stream\":"...), m.Stream)
		b = strconv.AppendInt(append(b, `,"position":`...), m.Position, 10)
		b = strconv.AppendInt(append(b, `,"globalPosition":`...), m.Global, 10)
		position := m.Global
		if sub.stream != "" {
			position = m.Position
		}

		return append(b, "}\n\n"...), position, nil
	}

	return data.Source(n, sub.query(), note)
}

// eventStream is an answer of events.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func newEventStream(w http.ResponseWriter) eventStream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("Connection", "keep-alive")
	h.Set("Access-Control-Allow-Origin", "*")

	return eventStream{w, http.NewResponseController(w)}
}

// oneWrite is how many bytes reach the connection in one write: there are clients that forget half of an event.
const oneWrite = 4000

// send sends events, each of them whole in one write, unless it is larger than any other.
func (e eventStream) send(text []byte) error {
	for len(text) > 0 {
		part := text
		if len(part) > oneWrite {
			end := bytes.LastIndex(part[:oneWrite], []byte("\n\n"))
			if end < 0 {
				end = bytes.Index(part, []byte("\n\n"))
			}
			part = part[:end+2]
		}
		if _, err := e.w.Write(part); err != nil {
			return err
		}
		if err := e.control.Flush(); err != nil {
			return err
		}
		text = text[len(part):]
	}

	return nil
}
