package move

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"sort"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/message"
)

// File is an export in a file, perhaps compressed by gzip.
type File string

// Lines opens the file.
func (f File) Lines(context.Context, int64) (io.ReadCloser, error) {
	file, err := os.Open(string(f))
	if err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(file, 64<<10)
	opened := &reader{Reader: in, close: file.Close}
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		if opened.Reader, err = gzip.NewReader(in); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", f, err), file.Close())
		}
	}

	return opened, nil
}

type reader struct {
	io.Reader
	close func() error
}

func (r *reader) Close() error { return r.close() }

// Namespace is a namespace of an open store.
type Namespace struct{ N *message.Namespace }

// Load imports lines.
func (n Namespace) Load(ctx context.Context, lines io.Reader) (message.ImportResult, error) {
	return n.N.Import(ctx, lines, nil)
}

// Page reads messages.
func (n Namespace) Page(ctx context.Context, from int64, limit int, yield func(message.Message) error) error {
	for m, err := range n.N.Read(ctx, message.Query{From: from, Limit: limit}) {
		if err == nil {
			err = yield(m)
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// Last is the highest global position.
func (n Namespace) Last(context.Context) (int64, error) { return n.N.Last(), nil }

// Count counts the messages.
func (n Namespace) Count(ctx context.Context) (int64, error) {
	c, err := n.N.Count(ctx, "")
	return c.Messages, err
}

// Server is the namespace that a token opens, on a server with EventoDB's API.
type Server struct {
	URL   string
	Token string
	HTTP  *http.Client // nil means http.DefaultClient
}

// Lines reads the messages from a global position on, a page at a time, until there are no more.
func (s Server) Lines(ctx context.Context, from int64) (io.ReadCloser, error) {
	ctx, stop := context.WithCancel(ctx)
	out, in := io.Pipe()
	go func() {
		for {
			next := from
			err := s.Page(ctx, from, pageSize, func(m message.Message) error {
				next = m.Global + 1
				text, err := appendLine(nil, &m)
				if err == nil {
					_, err = in.Write(text)
				}

				return err
			})
			if err != nil || next == from {
				in.CloseWithError(err) // nil means the end
				return
			}
			from = next
		}
	}()

	return &reader{Reader: out, close: func() error {
		stop()
		return out.Close()
	}}, nil
}

// appendLine appends a message as a line of an export, in which the data are the same bytes, unless they have line
// breaks.
func appendLine(b []byte, m *message.Message) ([]byte, error) {
	head, err := json.Marshal(line{ID: m.ID, Stream: m.Stream, Type: m.Type, Position: m.Position, Global: m.Global,
		Time: m.Time})
	if err != nil {
		return b, err
	}

	b = append(b, bytes.TrimSuffix(head, []byte("}"))...)
	for i, text := range [][]byte{m.Data, m.Metadata} {
		b = append(b, [...]string{`,"data":`, `,"meta":`}[i]...)
		if bytes.ContainsAny(text, "\r\n") {
			var compact bytes.Buffer
			if err := json.Compact(&compact, text); err != nil {
				return b, err
			}
			text = compact.Bytes()
		}
		if len(text) == 0 {
			text = []byte("null")
		}
		b = append(b, text...)
	}

	return append(b, "}\n"...), nil
}

// Page calls category.get.
func (s Server) Page(ctx context.Context, from int64, limit int, yield func(message.Message) error) error {
	return s.call(ctx, func(d *json.Decoder) error {
		if t, err := d.Token(); err != nil || t != json.Delim('[') {
			return fmt.Errorf("category.get of %s answers no list: %v", s.URL, err)
		}

		for d.More() {
			var m message.Message
			row := [...]any{&m.ID, &m.Stream, &m.Type, &m.Position, &m.Global, (*json.RawMessage)(&m.Data),
				(*json.RawMessage)(&m.Metadata), &m.Time}
			if err := d.Decode(&row); err != nil {
				return fmt.Errorf("category.get of %s, from %d on: %w", s.URL, from, err)
			}
			if m.Global < from || m.Time.IsZero() { // it would never end, or a field is missing
				return fmt.Errorf("category.get of %s, from %d on, answers %v", s.URL, from, row)
			}
			if err := yield(m); err != nil {
				return err
			}
		}
		_, err := d.Token()

		return err
	}, "category.get", "", map[string]any{"position": from, "batchSize": limit})
}

// Last finds the highest global position by asking what is behind others.
func (s Server) Last(ctx context.Context) (int64, error) {
	var failed error
	last := int64(0) // the highest that was seen
	empty := func(at int64) bool {
		if failed != nil || at <= last {
			return failed != nil
		}
		none := true
		err := s.Page(ctx, at, 1, func(m message.Message) error {
			last, none = max(last, m.Global), false
			return nil
		})
		if err != nil {
			failed = err
		}

		return none
	}

	bound := int64(1)
	for !empty(bound) && bound < math.MaxInt64/4 {
		bound = max(bound, last) * 2
	}
	sort.Search(int(bound), func(i int) bool { return empty(int64(i) + 1) })

	return last, failed
}

// Count adds up what ns.categories tells.
func (s Server) Count(ctx context.Context) (count int64, err error) {
	var list []struct {
		Messages int64 `json:"messageCount"`
	}
	err = s.call(ctx, func(d *json.Decoder) error { return d.Decode(&list) }, "ns.categories")

	for _, c := range list {
		count += c.Messages
	}

	return count, err
}

// Load sends lines to /import.
func (s Server) Load(ctx context.Context, lines io.Reader) (r message.ImportResult, err error) {
	// The highest position is not told if nothing was new.
	tracked := &tracker{in: lines}
	a, err := s.post(ctx, "/import", tracked)
	if err != nil {
		return r, err
	}
	defer a.Body.Close()
	var told struct {
		Done            bool
		Imported, Known int64
		Error, Message  string
		Line            int64
	}

	in := bufio.NewScanner(a.Body)
	for in.Scan() {
		if text, ok := strings.CutPrefix(in.Text(), "data: "); ok {
			if err := json.Unmarshal([]byte(text), &told); err != nil {
				return r, fmt.Errorf("/import of %s: %w", s.URL, err)
			}
		}
	}

	switch {
	case in.Err() != nil:
		return r, fmt.Errorf("/import of %s: %w", s.URL, in.Err())
	case told.Error != "":
		return r, fmt.Errorf("/import of %s: %s: line %d: %s", s.URL, told.Error, told.Line, told.Message)
	case !told.Done:
		return r, fmt.Errorf("/import of %s: the answer broke off; do it again", s.URL)
	}

	return message.ImportResult{Imported: told.Imported, Known: told.Known, Last: tracked.last}, nil
}

// tracker finds the highest global position in lines.
type tracker struct {
	in   io.Reader
	text []byte // of a line that is not whole
	last int64
}

func (t *tracker) Read(p []byte) (int, error) {
	n, err := t.in.Read(p)
	t.text = append(t.text, p[:n]...)

	for {
		end := bytes.IndexByte(t.text, '\n')
		if end < 0 {
			if err != io.EOF || len(t.text) == 0 {
				return n, err
			}
			end = len(t.text) - 1
		}
		var l struct {
			Global int64 `json:"gpos"`
		}
		if json.Unmarshal(t.text[:end+1], &l) == nil { // else the server refuses it
			t.last = max(t.last, l.Global)
		}
		t.text = t.text[end+1:]
	}
}

// call calls a method and decodes its result.
func (s Server) call(ctx context.Context, decode func(d *json.Decoder) error, request ...any) error {
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	a, err := s.post(ctx, "/rpc", bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer a.Body.Close()

	return decode(json.NewDecoder(a.Body))
}

// post sends a request that is answered with 200.
func (s Server) post(ctx context.Context, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(s.URL, "/")+path, body)
	if err != nil {
		return nil, &holdfast.Error{Op: "import", Class: holdfast.ErrBadOption, Cause: err}
	}
	r.Header.Set("Authorization", "Bearer "+s.Token)
	client := s.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	a, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	if a.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(a.Body, 1000))
		a.Body.Close()

		return nil, fmt.Errorf("%s of %s: %s: %s", path, s.URL, a.Status, text)
	}

	return a, nil
}
