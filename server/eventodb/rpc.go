package eventodb

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/message"
)

// Scope says in which namespace a method needs its role.
type Scope uint8

// The scopes.
const (
	Own        Scope = iota // the token's own
	Named                   // that of the first argument
	Everywhere              // all
)

// Method is a method of /rpc, and what a token needs to call it.
type Method struct {
	Name  string
	Role  auth.Role
	Scope Scope
	run   func(c *call) error
}

// Methods are the methods of /rpc.
var Methods = []Method{
	{"stream.write", auth.Write, Own, (*call).streamWrite},
	{"stream.get", auth.Read, Own, (*call).streamGet},
	{"stream.last", auth.Read, Own, (*call).streamLast},
	{"stream.version", auth.Read, Own, (*call).streamVersion},
	{"category.get", auth.Read, Own, (*call).categoryGet},
	{"ns.create", auth.Admin, Everywhere, (*call).namespaceCreate},
	{"ns.delete", auth.Admin, Everywhere, (*call).namespaceDelete},
	{"ns.list", auth.Admin, Everywhere, (*call).namespaceList},
	{"ns.info", auth.Read, Named, (*call).namespaceInfo},
	{"ns.streams", auth.Read, Own, (*call).namespaceStreams},
	{"ns.categories", auth.Read, Own, (*call).namespaceCategories},
	{"sys.version", auth.Read, Own, (*call).systemVersion},
	{"sys.health", auth.Read, Own, (*call).systemHealth},
}

// call is a call of a method.
type call struct {
	*service
	ctx       context.Context
	w         http.ResponseWriter
	principal auth.Principal
	args      []value
	room      [4]value // of args, which mostly is enough
	message   [1]message.Message
	expected  *int64 // the version that the message's stream must have; nil for any
	out       []byte // the answer so far
	begun     bool   // some of it was sent
}

// calls are used again, with their buffers of answers.
var calls = sync.Pool{New: func() any { return new(call) }}

// flushAt is how many bytes of an answer are kept back, so that an error that comes meanwhile can be told.
const flushAt = 256 << 10

// rpc serves /rpc: ["method", arguments...].
func (s *service) rpc(w http.ResponseWriter, r *http.Request) {
	c := calls.Get().(*call)
	c.service, c.ctx, c.w, c.principal = s, r.Context(), w, route.From(r.Context()).Principal
	err := c.serve(r)
	if err == nil {
		err = c.send()
	} else if !c.begun {
		refuse(w, r, err)
	}
	begun := c.begun
	if cap(c.out) <= 2*flushAt {
		*c = call{out: c.out[:0]}
		calls.Put(c)
	}
	if err != nil && begun {
		panic(http.ErrAbortHandler) // the client sees that the answer is not whole
	}
}

func (c *call) serve(r *http.Request) error {
	if r.Method != http.MethodPost {
		f := invalid("Only POST is allowed")
		f.Status = http.StatusMethodNotAllowed

		return f
	}
	body, err := readBody(r)
	if err != nil {
		return err
	}
	name, args, err := request(c.room[:0], body)
	if err != nil {
		return err
	}
	m := c.methods[name]
	if m == nil {
		return &failure{http.StatusNotFound, "METHOD_NOT_FOUND", "Unknown method: " + name, nil}
	}
	c.args = args
	namespace := own(r, c.principal)
	switch m.Scope {
	case Everywhere:
		namespace = auth.Everywhere
	case Named:
		if namespace, err = c.name("namespace"); err != nil {
			return err
		}
	}
	if !c.principal.May(m.Role, namespace) {
		return forbidden(name, namespace, m.Role)
	}

	return m.run(c)
}

func forbidden(what, namespace string, role auth.Role) *failure {
	return &failure{http.StatusForbidden, "AUTH_UNAUTHORIZED", "The token does not allow " + what,
		map[string]any{"namespace": namespace, "role": role.String()}}
}

// readBody reads a body, into memory that the store may keep.
func readBody(r *http.Request) ([]byte, error) {
	if n := r.ContentLength; n >= 0 && n <= 64<<10 {
		body := make([]byte, n)
		_, err := io.ReadFull(r.Body, body)

		return body, brokenOff(err)
	}
	body, err := io.ReadAll(r.Body)

	return body, brokenOff(err)
}

func brokenOff(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return invalid("The body broke off")
	}

	return err
}

// request takes a request apart, into room if that is enough.
func request(room []value, body []byte) (method string, args []value, err error) {
	values, err := list(room, body)
	if err != nil {
		f := invalid("Malformed JSON request")
		f.Details = map[string]any{"error": err.Error()}

		return "", nil, f
	}
	if len(values) == 0 {
		return "", nil, invalid("Missing method name")
	}
	method, ok := values[0].text()
	if !ok {
		return "", nil, invalid("Method name must be a string")
	}

	return method, values[1:], nil
}

// jsonType is the type of all answers.
var jsonType = []string{"application/json"}

// send sends what there is of the answer.
func (c *call) send() error {
	if !c.begun {
		c.w.Header()["Content-Type"] = jsonType
		c.begun = true
	}
	_, err := c.w.Write(c.out)
	c.out = c.out[:0]

	return err
}

// name returns the first argument, a string that is not empty.
func (c *call) name(what string) (string, error) {
	if len(c.args) > 0 {
		if name, ok := c.args[0].text(); ok && name != "" {
			return name, nil
		}
	}

	return "", invalid("%s must be a string that is not empty", what)
}

// option is a member of an object that a method knows, and what it sets: a *string, an *int64, an **int64 that is nil
// without it, a *[]byte for its text, or a func that takes it.
type option struct {
	name string
	to   any
}

// options sets those of these options that are there, in argument i if that is. It must be an object.
func (c *call) options(i int, known ...option) error {
	if len(c.args) <= i {
		return nil
	}
	if !c.args[i].isObject() {
		return invalid("options must be an object")
	}

	return c.args[i].set("", known...)
}

// set sets those of these options that the object has. Errors say that they are below a name.
func (v value) set(below string, known ...option) error {
	return v.each(func(name string, v value) error {
		i := slices.IndexFunc(known, func(o option) bool { return o.name == name })
		if i < 0 {
			return nil
		}
		ok, what := true, "string"
		switch to := known[i].to.(type) {
		case *string:
			*to, ok = v.text()
		case *int64:
			what = "number"
			*to, ok = v.number()
		case **int64:
			what, *to = "number", new(int64)
			**to, ok = v.number()
		case *[]byte:
			*to = v
		case func(value) error:
			return to(v)
		}
		if !ok {
			return invalid("%s%s must be a %s", below, name, what)
		}

		return nil
	})
}

func (c *call) namespace() (*message.Namespace, error) {
	return c.data.Messages().Namespace(c.ctx, own(nil, c.principal))
}

func (c *call) streamWrite() error {
	stream, err := c.name("stream name")
	if err != nil {
		return err
	}
	if len(c.args) < 2 || !c.args[1].isObject() {
		return invalid("message must be an object")
	}
	m := &c.message[0]
	err = c.args[1].set("", option{"type", &m.Type}, option{"data", &m.Data}, option{"metadata", &m.Metadata})
	if m.Metadata != nil && value(m.Metadata).isNull() {
		m.Metadata = nil
	}
	switch {
	case err != nil:
		return err
	case !api.Addressable(stream):
		return invalid("a stream cannot be named %q: the name cannot stand in a path", stream)
	case m.Type == "":
		return invalid("type must be a string that is not empty")
	case len(m.Data) == 0 || !value(m.Data).isObject():
		return invalid("data must be an object")
	case m.Metadata != nil && !value(m.Metadata).isObject():
		return invalid("metadata must be an object")
	}
	if err := c.options(2, option{"id", &m.ID}, option{"expectedVersion", &c.expected}); err != nil {
		return err
	}
	n, err := c.namespace()
	if err != nil {
		return err
	}
	var r message.Result
	if c.expected != nil {
		r, err = n.WriteAfter(c.ctx, stream, *c.expected, c.message[:]...)
	} else {
		r, err = n.Write(c.ctx, stream, c.message[:]...)
	}
	if err != nil {
		var known *message.Known
		if !errors.As(err, &known) {
			return err
		}
		r = known.Result // in this API the id alone says that a write is repeated
	}
	c.out = strconv.AppendInt(append(c.out, `{"position":`...), r.Position, 10)
	c.out = strconv.AppendInt(append(c.out, `,"globalPosition":`...), r.Global, 10)
	c.out = append(c.out, '}')

	return nil
}

// batch is how many messages an answer has, and maxBatch how many may be asked for. For all of them -1 stands.
const (
	batch    = 1000
	maxBatch = 10_000
)

// batchBytes is how many bytes of messages an answer has, or one message if that is larger; for all of them there is no
// such bound.
const batchBytes = 16 << 20

func checkBatch(size int64) error {
	if size < -1 || size > maxBatch {
		return invalid("batchSize must be -1 or from 0 to %d", maxBatch)
	}

	return nil
}

func (c *call) streamGet() error {
	stream, err := c.name("stream name")
	if err != nil {
		return err
	}
	o := struct{ position, global, size int64 }{0, -1, batch} // one, because it is kept on the heap
	err = c.options(1, option{"position", &o.position}, option{"globalPosition", &o.global}, option{"batchSize", &o.size})
	if err == nil {
		err = checkBatch(o.size)
	}
	if err != nil {
		return err
	}
	if o.global >= 0 {
		o.position = 0
	}

	return c.messages(message.Query{Stream: stream, From: o.position}, o.global, o.size, false)
}

func (c *call) categoryGet() error {
	if len(c.args) == 0 {
		return invalid("category must be a string")
	}
	category, ok := c.args[0].text()
	if !ok {
		return invalid("category must be a string")
	}
	q, size := message.Query{Category: category}, int64(batch)
	global := int64(-1)
	err := c.options(1, option{"position", &q.From}, option{"globalPosition", &global}, option{"batchSize", &size},
		option{"correlation", &q.Correlation},
		option{"consumerGroup", func(v value) error { return setGroup(&q.Group, v) }})
	if err == nil {
		err = checkBatch(size)
	}
	if err != nil {
		return err
	}
	if global >= 0 {
		q.From = global
	}

	return c.messages(q, -1, size, true)
}

func setGroup(to *message.Group, v value) error {
	if !v.isObject() {
		return invalid("consumerGroup must be an object")
	}
	member, size := int64(-1), int64(-1)
	if err := v.set("consumerGroup.", option{"member", &member}, option{"size", &size}); err != nil {
		return err
	}
	if member < 0 || member >= size || size > 1<<30 {
		return invalid("consumerGroup must have a size and a member from 0 to below it")
	}
	*to = message.Group{Member: int(member), Size: int(size)}

	return nil
}

// messages answers with up to size messages of a query, those with global positions from one on; less than 0 means all.
func (c *call) messages(q message.Query, global, size int64, named bool) error {
	n, err := c.namespace()
	if err != nil {
		return err
	}
	c.out = append(c.out, '[')
	if size > 0 && global < 0 {
		q.Limit = int(size)
	}
	first, room := true, batchBytes
	if size < 0 {
		room = math.MaxInt
	}
	if size != 0 {
		for m, err := range n.Read(c.ctx, q) {
			if errors.Is(err, message.ErrAhead) { // in EventoDB there is nothing
				break
			}
			if err != nil {
				return err
			}
			if m.Global < global {
				continue
			}
			if room -= len(m.Data) + len(m.Metadata); room < 0 && !first {
				break
			}
			if !first {
				c.out = append(c.out, ',')
			}
			first = false
			c.out = appendMessage(c.out, &m, named)
			if len(c.out) >= flushAt {
				if err := c.send(); err != nil {
					return err
				}
			}
			if size--; size == 0 {
				break
			}
		}
	}
	c.out = append(c.out, ']')

	return nil
}

// appendMessage appends a message as an array, with the stream's name or without.
func appendMessage(b []byte, m *message.Message, named bool) []byte {
	b = append(appendText(append(b, '['), m.ID), ',')
	if named {
		b = append(appendText(b, m.Stream), ',')
	}
	b = append(appendText(b, m.Type), ',')
	b = append(strconv.AppendInt(b, m.Position, 10), ',')
	b = append(strconv.AppendInt(b, m.Global, 10), ',')
	b = append(append(b, m.Data...), ',')
	if len(m.Metadata) == 0 {
		b = append(b, "null,"...)
	} else {
		b = append(append(b, m.Metadata...), ',')
	}

	return append(appendTime(b, m.Time), ']')
}

func (c *call) streamLast() error {
	stream, err := c.name("stream name")
	if err != nil {
		return err
	}
	var typ string
	if err := c.options(1, option{"type", &typ}); err != nil {
		return err
	}
	n, err := c.namespace()
	if err != nil {
		return err
	}
	m, err := n.LastMessage(c.ctx, stream, typ)
	if errors.Is(err, holdfast.ErrNotFound) {
		c.out = append(c.out, "null"...)
		return nil
	}
	if err != nil {
		return err
	}
	c.out = appendMessage(c.out, &m, false)

	return nil
}

func (c *call) streamVersion() error {
	stream, err := c.name("stream name")
	if err != nil {
		return err
	}
	n, err := c.namespace()
	if err != nil {
		return err
	}
	version, ok, err := n.Version(c.ctx, stream)
	if err != nil {
		return err
	}
	if !ok {
		c.out = append(c.out, "null"...)
	} else {
		c.out = strconv.AppendInt(c.out, version, 10)
	}

	return nil
}

func (c *call) namespaceCreate() error {
	id, err := c.name("namespace")
	if err != nil {
		return err
	}
	o, token := message.NamespaceOptions{ID: id}, ""
	metadata := func(v value) error {
		if !v.isObject() {
			return invalid("metadata must be an object")
		}
		o.Metadata = bytes.Clone(v)

		return nil
	}
	err = c.options(1, option{"description", &o.Description}, option{"token", &token}, option{"metadata", metadata})
	if err != nil {
		return err
	}
	if token == "" {
		token = auth.NewNamespaceSecret(id)
	} else if s, err := auth.Parse(token); err != nil || s.Namespace != id {
		return invalid("token must be one of the namespace %q", id)
	}
	info, err := c.data.Create(c.ctx, o, token)
	if err != nil {
		return err
	}
	c.out = appendText(append(c.out, `{"namespace":`...), id)
	c.out = appendText(append(c.out, `,"token":`...), token)
	c.out = appendTime(append(c.out, `,"createdAt":`...), info.Created)
	c.out = append(c.out, '}')

	return nil
}

func (c *call) namespaceDelete() error {
	id, err := c.name("namespace")
	if err != nil {
		return err
	}
	deleted, err := c.data.Delete(c.ctx, id)
	if err != nil {
		return err
	}
	c.out = appendText(append(c.out, `{"namespace":`...), id)
	c.out = appendTime(append(c.out, `,"deletedAt":`...), time.Now())
	c.out = strconv.AppendInt(append(c.out, `,"messagesDeleted":`...), deleted, 10)
	c.out = append(c.out, '}')

	return nil
}

func (c *call) namespaceList() error {
	infos, err := c.data.Namespaces(c.ctx, "", 0)
	if err != nil {
		return err
	}
	totals, err := c.data.Totals(c.ctx, infos)
	if err != nil {
		return err
	}
	slices.SortStableFunc(infos, func(a, b message.Info) int { return b.Created.Compare(a.Created) })
	c.out = append(c.out, '[')

	first := true
	for _, info := range infos {
		total, ok := totals[info.ID]
		if !ok { // deleted meanwhile
			continue
		}
		if !first {
			c.out = append(c.out, ',')
		}
		c.describe(info, total)
		c.out = append(c.out, '}')
		first = false
	}
	c.out = append(c.out, ']')

	return nil
}

// describe begins an object that describes a namespace.
func (c *call) describe(info message.Info, has data.Total) {
	c.out = appendText(append(c.out, `{"namespace":`...), info.ID)
	c.out = appendText(append(c.out, `,"description":`...), info.Description)
	c.out = appendTime(append(c.out, `,"createdAt":`...), info.Created)
	c.out = strconv.AppendInt(append(c.out, `,"messageCount":`...), has.Messages, 10)
	c.out = strconv.AppendInt(append(c.out, `,"streamCount":`...), has.Streams, 10)
}

func (c *call) namespaceInfo() error {
	id, err := c.name("namespace")
	if err != nil {
		return err
	}
	info, err := c.data.Info(c.ctx, id)
	if err != nil {
		return err
	}
	total, err := c.data.Total(c.ctx, id)
	if err != nil {
		return err
	}
	c.describe(info, total)
	n, err := c.data.Messages().Namespace(c.ctx, id)
	if err != nil {
		return err
	}
	c.out = append(c.out, `,"lastActivity":`...)

	last := []byte("null}")
	for m, err := range n.Read(c.ctx, message.Query{From: total.Last, Limit: 1}) {
		if err != nil {
			return err
		}
		last = append(appendTime(last[:0], m.Time), '}')
	}
	c.out = append(c.out, last...)

	return nil
}

func (c *call) namespaceStreams() error {
	var prefix, cursor string
	limit := int64(100)
	if err := c.options(0, option{"prefix", &prefix}, option{"cursor", &cursor}, option{"limit", &limit}); err != nil {
		return err
	}
	if limit < 1 || limit > 1000 {
		return invalid("limit must be from 1 to 1000")
	}
	n, err := c.namespace()
	if err != nil {
		return err
	}
	streams, err := n.Streams(c.ctx, prefix, cursor, int(limit))
	if err != nil {
		return err
	}

	c.out = append(c.out, '[')
	for i, s := range streams {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		c.out = appendText(append(c.out, `{"stream":`...), s.Stream)
		c.out = strconv.AppendInt(append(c.out, `,"version":`...), s.Version, 10)
		c.out = appendTime(append(c.out, `,"lastActivity":`...), s.Last.Truncate(time.Second))
		c.out = append(c.out, '}')
	}
	c.out = append(c.out, ']')

	return nil
}

func (c *call) namespaceCategories() error {
	n, err := c.namespace()
	if err != nil {
		return err
	}
	categories, err := n.Categories(c.ctx)
	if err != nil {
		return err
	}

	c.out = append(c.out, '[')
	for i, k := range categories {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		c.out = appendText(append(c.out, `{"category":`...), k.Category)
		c.out = strconv.AppendInt(append(c.out, `,"streamCount":`...), k.Streams, 10)
		c.out = strconv.AppendInt(append(c.out, `,"messageCount":`...), k.Messages, 10)
		c.out = append(c.out, '}')
	}
	c.out = append(c.out, ']')

	return nil
}

func (c *call) systemVersion() error {
	c.out = appendText(c.out, bareVersion(c.o.Version))
	return nil
}

var numbers = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+`)

// bareVersion is a version as clients read it: numbers first, as 0.1.0. What is no release, as (devel), comes before
// all that are.
func bareVersion(version string) string {
	version = strings.TrimPrefix(version, "v")
	if !numbers.MatchString(version) {
		return "0.0.0-" + strings.Trim(version, "()")
	}

	return version
}

func (c *call) systemHealth() error {
	c.out = appendText(append(c.out, `{"status":"ok","backend":`...), c.data.Engine().Capabilities().Engine)
	c.out = strconv.AppendInt(append(c.out, `,"connections":`...), c.hub.Followers(), 10)
	c.out = append(c.out, '}')

	return nil
}
