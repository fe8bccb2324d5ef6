package v1

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// operation is one operation of the API: it yields a route, and a part of the OpenAPI document.
type operation struct {
	id, method, path string
	role             auth.Role
	tag              string
	summary          string
	about            string   // more about it
	codes            []string // of the errors that it gives besides those that all give
	write            bool     // it writes at a level that the request may name, and says which was given
	stream           bool     // its answer, or its body, may take any time
	heavy            bool     // see route.Route
	maxBody          int64    // see route.Route
	consumes         string   // the type of a body that is not JSON
	produces         string   // the type of an answer that is not JSON
	or               string   // another type of the answer, as the request says
	namespace        func(r *http.Request, p auth.Principal) string
}

// call is one request in progress.
type call struct {
	*service
	ctx context.Context
	ns  string // the namespace in the path, if it has one
	req *route.Request
	w   http.ResponseWriter
	r   *http.Request
	// unless is called if the answer does not reach the client, as far as that is known. A handler may set it.
	unless func(ctx context.Context) error
}

// none is the input or output of an operation that has none.
type none struct{}

// input says where the fields of an operation's input come from: the path (tag "path"), the query (tag "query"), and
// the body, which is the field Body.
type input struct {
	params []param
	body   []int // the index of Body, nil if there is none
	known  map[string]bool
}

// param is a field of an input that comes from the path or the query.
type param struct {
	name  string
	in    string // "path" or "query"
	field []int
	doc   string
	need  bool
}

// inputOf reads from the tags of a type where its fields come from.
func inputOf(t reflect.Type) input {
	in := input{known: map[string]bool{}}
	for _, f := range reflect.VisibleFields(t) {
		if f.Name == "Body" {
			in.body = f.Index
			continue
		}

		for _, from := range []string{"path", "query"} {
			if name := f.Tag.Get(from); name != "" {
				in.params = append(
					in.params,
					param{name, from, f.Index, f.Tag.Get("doc"), from == "path" || f.Tag.Get("need") != ""},
				)
				in.known[name] = in.known[name] || from == "query"
			}
		}
	}

	return in
}

// declare adds an operation: f is called with what a request asks for, and returns what is answered, as JSON; an
// operation without output answers 204.
func declare[In, Out any](s *service, o operation, f func(c *call, in *In) (Out, error)) {
	in := s.add(o, reflect.TypeFor[In](), reflect.TypeFor[Out]())

	empty := reflect.TypeFor[Out]() == reflect.TypeFor[none]()
	s.serve(o, func(c *call) error {
		var v In
		if err := in.read(c, reflect.ValueOf(&v).Elem()); err != nil {
			return err
		}
		out, err := f(c, &v)
		if err != nil {
			return err
		}
		if empty {
			c.w.WriteHeader(http.StatusNoContent)
			return nil
		}

		// What a handler has claimed is undone if the client has gone meanwhile.
		if c.unless == nil {
			return c.answer(out)
		}

		return c.deliver(out)
	})
}

// on is a handler of f, which works on what find finds in the namespace of the path.
func on[S, In, Out any](find func(*call) (S, error), f func(*call, S, *In) (Out, error)) func(*call, *In) (Out, error) {
	return func(c *call, in *In) (out Out, err error) {
		found, err := find(c)
		if err != nil {
			return out, err
		}

		return f(c, found, in)
	}
}

// tasks is the namespace's store of tasks, which is made if it is not there.
func (c *call) tasks() (*task.Store, error) { return c.data.Tasks(c.ctx, c.ns) }

// findTasks is tasks, and an error if it is not there.
func (c *call) findTasks() (*task.Store, error) { return c.data.FindTasks(c.ctx, c.ns) }

// namespace is the namespace in the path.
func (c *call) namespace() (*message.Namespace, error) {
	return c.data.Messages().Namespace(c.ctx, c.ns)
}

// findLog is the log in the path, and an error if it is not there.
func (c *call) findLog() (*event.Store, error) {
	return c.data.FindLog(c.ctx, c.ns, c.r.PathValue("log"))
}

// declareRaw adds an operation that reads its body or writes its answer by itself. An error that f returns before it
// has written anything is answered.
func declareRaw[In any](s *service, o operation, out reflect.Type, f func(c *call, in *In) error) {
	in := s.add(o, reflect.TypeFor[In](), out)
	s.serve(o, func(c *call) error {
		var v In
		if err := in.read(c, reflect.ValueOf(&v).Elem()); err != nil {
			return err
		}

		return f(c, &v)
	})
}

// serve adds the route of an operation. Package server has checked token, role and limits before the handler is
// called.
func (s *service) serve(o operation, f func(c *call) error) {
	s.routes = append(s.routes, route.Route{Method: o.method, Pattern: o.path, Role: o.role, Namespace: o.namespace,
		Stream: o.stream, Heavy: o.heavy, MaxBody: o.maxBody, Handler: func(w http.ResponseWriter, r *http.Request) {
			c := &call{service: s, ctx: r.Context(), ns: r.PathValue("ns"), req: route.From(r.Context()), w: w, r: r}
			if err := f(c); err != nil {
				if errors.Is(err, holdfast.ErrClosed) && c.ns != "" { // the server stops, or it was deleted meanwhile
					err = cmp.Or(s.data.Check(c.ctx, c.ns), err)
				}
				problem.Write(w, r, err)
			}
		}})
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// keepBuffer is the size of the largest buffer that is used again, in bytes.
const keepBuffer = 1 << 20

// release gives a buffer back for the next request, unless it has become too large to be kept.
func release(b *bytes.Buffer) {
	if b.Cap() <= keepBuffer {
		b.Reset()
		buffers.Put(b)
	}
}

// answer writes v as JSON.
func (c *call) answer(v any) error {
	b := buffers.Get().(*bytes.Buffer)
	defer release(b)
	if err := encode(b, v); err != nil {
		return err
	}

	// The whole answer is in memory, so its length can be told, and an error of encoding is met before anything is sent.
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	_, _ = c.w.Write(b.Bytes()) // nobody is left to report an error to

	return nil
}

// deliver is answer with something that must be undone if the client has disconnected before it. Once the answer is on
// its way nothing is undone: a client that has read it may disconnect at once, and work on what it got.
func (c *call) deliver(v any) error {
	err := c.ctx.Err()
	var failed error // of making an answer
	if err == nil {
		if failed = c.answer(v); failed == nil {
			err = http.NewResponseController(c.w).Flush()
		}
	}

	// Without Flush it cannot be known whether the answer went out; then it counts as delivered.
	if failed == nil && (err == nil || errors.Is(err, http.ErrNotSupported)) {
		return nil
	}

	// The request's context has ended with the client, and would end the giving back too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), giveBack)
	defer cancel()
	if err := c.unless(ctx); err != nil {
		c.o.Logger.Warn("what was claimed for a client that is gone could not be given back: its lease runs out",
			"namespace", c.ns, "error", err)
	}

	return failed
}

// encode appends v as one line of JSON. What is JSON already keeps its characters, but for space between its tokens.
func encode(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)

	return e.Encode(v)
}

// read reads the input of a request.
func (in *input) read(c *call, v reflect.Value) error {
	var query url.Values
	if c.r.URL.RawQuery != "" {
		var err error
		if query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
			return problem.BadRequest("the query cannot be read: %v", err)
		}

		// A parameter that is misspelt would be left out without a word otherwise.
		for name := range query {
			if !in.known[name] {
				return problem.BadRequest("there is no parameter %.80q here", name)
			}
		}
	}

	for _, p := range in.params {
		var texts []string
		if p.in == "path" {
			texts = []string{c.r.PathValue(p.name)}
		} else {
			texts = query[p.name]
		}
		if len(texts) == 0 {
			if p.need {
				return problem.BadRequest("the parameter %s is missing", p.name)
			}
			continue
		}
		if err := set(v.FieldByIndex(p.field), texts); err != nil {
			return problem.BadRequest("the parameter %s: %v", p.name, err)
		}
	}

	// The body is read whole, into memory that is used again, and decoded strictly.
	if in.body == nil {
		return nil
	}

	b := buffers.Get().(*bytes.Buffer)
	defer release(b)

	// The length is what the client says, so no more than keepBuffer is allocated on its word.
	if n := c.r.ContentLength; n > 0 && n <= keepBuffer {
		b.Grow(int(n) + bytes.MinRead)
	}

	switch _, err := b.ReadFrom(c.r.Body); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return problem.BadRequest("the body broke off")
	case err != nil:
		return fmt.Errorf("read the body: %w", err)
	}

	return decode(b.Bytes(), v.FieldByIndex(in.body).Addr().Interface())
}

// decode reads one JSON value, all of whose fields are known, into v, which keeps nothing of body.
func decode(body []byte, v any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return problem.BadRequest("the body is empty; an object of JSON is expected")
	}
	if !utf8.Valid(body) {
		return problem.BadRequest("the body is not UTF-8") // its names and ids would become others, and alike
	}

	// Counted before it is decoded: decoding makes hundreds of bytes of two.
	shape := shapeOf(reflect.TypeOf(v))
	if shape != nil && tooMany(body, shape.lists) {
		return &holdfast.Error{Class: holdfast.ErrTooLarge,
			Detail: fmt.Sprintf("the body lists more than %d items", maxItems), Remedy: "send several requests"}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()

	// A number such as 7.0 fails at first: only bodies that have one pay for a second try.
	err := d.Decode(v)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) && strings.HasPrefix(wrong.Value, "number") {
		if shape != nil && json.Valid(body) { // 7.0 is the number 7
			reflect.ValueOf(v).Elem().SetZero()
			d = json.NewDecoder(bytes.NewReader(shape.whole(body)))
			d.DisallowUnknownFields()
			err = d.Decode(v)
		}
	}
	if strange := base64.CorruptInputError(0); errors.As(err, &strange) {
		return problem.BadRequest("the body: a field of bytes, such as an event's data, is not base64 (standard alphabet)")
	}
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		return problem.BadRequest("the body: the field %s is %s, where %s is expected",
			cmp.Or(fieldPath(wrong.Field), "of the whole"), wrong.Value, expected(wrong.Type))
	}
	if err != nil {
		return problem.BadRequest("the body: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if rest := bytes.TrimSpace(body[d.InputOffset():]); len(rest) > 0 {
		return problem.BadRequest("the body goes on behind the object")
	}

	// The decoder is lenient about case, null and repeated names, which the shape is not.
	if shape != nil {
		if body = bytes.TrimSpace(body); body[0] != '{' {
			return problem.BadRequest("the body: an object of JSON is expected")
		}
		if err := shape.check(body); err != nil {
			return err
		}
	}
	if problem.Surrogate(body) && replaced(reflect.ValueOf(v).Elem()) {
		return problem.BadRequest("the body has an escape for half of a character without the other half, as in \"\\ud800\"")
	}

	return nil
}

// fieldPath is the path of a field as the body has it: encoding/json names structs that are embedded, too. Names of the
// API begin with small letters.
func fieldPath(path string) string {
	names := slices.DeleteFunc(strings.Split(path, "."), func(n string) bool { return n > "A" && n < "a" })

	return strings.Join(names, ".")
}

// expected says what of JSON becomes a value of type t.
func expected(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int8:
		return "a whole number from -128 to 127"
	case reflect.Int, reflect.Int64:
		return "a whole number of 64 bits"
	case reflect.Uint64:
		return "a whole number of 64 bits, from 0 on,"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a text in base64"
		}

		return "a list"
	}

	return "an object"
}

// replaced reports whether a string in v has the character that stands for what is none. What stays JSON has no
// strings.
func replaced(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return strings.ContainsRune(v.String(), utf8.RuneError)
	case reflect.Pointer:
		return !v.IsNil() && replaced(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if replaced(v.Field(i)) {
				return true
			}
		}
	case reflect.Slice:
		for i := 0; i < v.Len() && v.Type().Elem().Kind() != reflect.Uint8; i++ {
			if replaced(v.Index(i)) {
				return true
			}
		}
	}

	return false
}

// maxItems is how many items the lists of a body may have, all together. An item takes two bytes there and hundreds in
// memory, so the limit of a body's size alone would let one request take gigabytes.
const maxItems = 100_000

// tooMany reports whether the lists of a body have more than maxItems. Those further down than deepest are part of a
// message's data, and stay text.
func tooMany(body []byte, deepest int) bool {
	if len(body) < 2*maxItems {
		return false
	}
	items, depth, inText := 0, 0, false

	// Which of the brackets that are open are lists.
	list := make([]bool, deepest+1) // by depth
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inText:
			switch c {
			case '\\':
				i++
			case '"':
				inText = false
			}
		case c == '"':
			inText = true
		case c == '[' || c == '{':
			if depth++; depth <= deepest {
				list[depth] = c == '['
			}
		case c == ']' || c == '}':
			depth = max(depth-1, 0) // what closes too much is no JSON, and refused as such
		case c == ',' && depth > 0 && depth <= deepest && list[depth]:
			if items++; items >= maxItems {
				return true
			}
		}
	}

	return false
}

// set sets a field to the text of a parameter. It allocates for a pointer, which tells a parameter that is there from
// one that is not.
func set(v reflect.Value, texts []string) error {
	if v.Kind() == reflect.Slice {
		v.Set(reflect.ValueOf(slices.Clone(texts)))
		return nil
	}
	if len(texts) > 1 {
		return fmt.Errorf("it is there %d times", len(texts))
	}
	text := texts[0]
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}

	var err error
	switch p := v.Addr().Interface().(type) {
	case *string:
		*p = text
	case *int64:
		if *p, err = strconv.ParseInt(text, 10, 64); err != nil {
			err = fmt.Errorf("%.40q is no whole number, or too large", text)
		}
	case *uint64:
		if *p, err = strconv.ParseUint(text, 10, 63); err != nil {
			err = fmt.Errorf("%.40q is no whole number from 0 on, or too large", text)
		}
	case *int:
		if *p, err = strconv.Atoi(text); err != nil {
			err = fmt.Errorf("%.40q is no whole number, or too large", text)
		}
	case *bool:
		if *p, err = strconv.ParseBool(text); err != nil {
			err = fmt.Errorf("%.40q is neither true nor false", text)
		}
	case *time.Time:
		if *p, err = time.Parse(time.RFC3339, text); err != nil {
			err = fmt.Errorf("%.40q is no time such as 2026-01-31T12:00:00Z (RFC 3339)", text)
		} else if yearOne(text) {
			err = fmt.Errorf("%.40q is in the year 1, which means none; leave it out for that", text)
		}
	default:
		panic(fmt.Sprintf("a parameter of type %s", v.Type()))
	}

	return err
}

// add adds an operation to the document.
func (s *service) add(o operation, inType, outType reflect.Type) input {
	in := inputOf(inType)
	schemas := s.doc.Components.Schemas
	op := &huma.Operation{OperationID: o.id, Method: o.method, Path: o.path, Tags: []string{o.tag}, Summary: o.summary,
		Responses: map[string]*huma.Response{}}
	op.Description = strings.TrimSpace(o.about + "\n\n" + needs(o))
	if strings.Contains(o.path, "{ns}") {
		op.Parameters = append(op.Parameters, &huma.Param{Name: "ns", In: "path", Required: true,
			Description: "The namespace.", Schema: &huma.Schema{Type: huma.TypeString}})
		kinds["namespace"](op.Parameters[0].Schema)
	}

	for _, p := range in.params {
		f := inType.FieldByIndex(p.field)
		s := plain(schemas.Schema(f.Type, true, ""))
		constrain(s, f.Type, f.Tag)
		op.Parameters = append(op.Parameters, &huma.Param{Name: p.name, In: p.in, Required: p.need, Description: p.doc,
			Schema: s})
	}
	if o.write {
		op.Parameters = append(op.Parameters, &huma.Param{Name: api.HeaderLevel, In: "header", Schema: levelSchema(),
			Description: "What the write is to survive before it is answered; the server's level if it is absent."})
	}

	// A body is JSON of a type, or whatever the operation consumes.
	if in.body != nil || o.consumes != "" {
		media := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
		kind := o.consumes
		if in.body != nil {
			kind, media = "application/json", &huma.MediaType{
				Schema: schemas.Schema(inType.FieldByIndex(in.body).Type, true, o.id),
			}
		}
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{kind: media}}
	}

	status, answer := "200", &huma.Response{Description: "Done."}
	switch {
	case o.produces != "":
		schema := &huma.Schema{Type: huma.TypeString, Format: "binary"}
		if outType != reflect.TypeFor[none]() {
			schema = schemas.Schema(outType, true, o.id)
			answer.Description = map[bool]string{true: "Each event's data are one of these.",
				false: "Some of its lines are these."}[strings.Contains(o.produces, "event")]
		}
		answer.Content = map[string]*huma.MediaType{o.produces: {Schema: schema}}
		if o.or != "" {
			answer.Content[o.or] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
		}
	case outType == reflect.TypeFor[none]():
		status = "204"
	default:
		answer.Content = map[string]*huma.MediaType{"application/json": {Schema: plain(schemas.Schema(outType, true, o.id))}}
	}
	if o.write {
		answer.Headers = map[string]*huma.Param{api.HeaderLevel: {Schema: levelSchema(), Description: "What it was given."}}
	}
	op.Responses[status] = answer

	failure := schemas.Schema(reflect.TypeFor[api.Problem](), true, "")
	for _, code := range append([]string{api.CodeBadRequest, api.CodeInternal, api.CodeCorrupt, api.CodeStopping,
		api.CodeTooMany, api.CodeFenced, api.CodeUnavailable}, slices.Concat(codesOf(o), o.codes)...) {
		status := strconv.Itoa(problem.Status(code))
		r := op.Responses[status]
		if r == nil {
			r = &huma.Response{Content: map[string]*huma.MediaType{"application/problem+json": {Schema: failure}}}
			op.Responses[status] = r
		}

		// Codes with the same status share an answer, whose description lists them.
		if text := "`" + code + "`"; !strings.Contains(r.Description, text) {
			r.Description = strings.TrimPrefix(r.Description+", "+text, ", ")
		}
	}
	if o.role == auth.None {
		op.Security = []map[string][]string{}
	}
	s.doc.AddOperation(op)

	return in
}

// codesOf are the codes that follow from what kind of operation it is.
func codesOf(o operation) (codes []string) {
	if o.role != auth.None {
		codes = append(codes, api.CodeUnauthorized, api.CodeForbidden)
	}
	if strings.Contains(o.path, "{ns}") {
		codes = append(codes, api.CodeNoNamespace)
	}
	if o.method != http.MethodGet && o.consumes == "" {
		codes = append(codes, api.CodeTooLarge)
	}
	codes = append(codes, api.CodeEncoding)
	if o.write {
		codes = append(codes, api.CodeLevel, api.CodePoisoned, api.CodeFull)
	}

	return codes
}

// needs says which role an operation needs.
func needs(o operation) string {
	switch {
	case o.role == auth.None:
		return "Needs no token."
	case strings.Contains(o.path, "{ns}"):
		return fmt.Sprintf("Needs the role %s in the namespace.", o.role)
	case o.namespace != nil:
		return fmt.Sprintf("Needs the role %s in the namespace that it is about.", o.role)
	}

	return fmt.Sprintf("Needs the role %s in all namespaces.", o.role)
}

// levelSchema is the schema of a level by name.
func levelSchema() *huma.Schema {
	var names []any
	for _, level := range holdfast.Levels() {
		names = append(names, level.String())
	}

	return &huma.Schema{Type: huma.TypeString, Enum: names}
}

// plain is a schema of what is there and therefore not null.
func plain(s *huma.Schema) *huma.Schema {
	s.Nullable = false
	return s
}
