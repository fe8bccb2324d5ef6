// Package move copies the messages of an EventoDB namespace, from a running server or from an export, and compares
// every one with its copy. Positions, ids and times stay as they are.
//
//	result, err := move.Copy(ctx, move.Server{URL: "http://old:8080", Token: token}, move.Namespace{N: namespace}, nil)
//
// An interrupted copy can be repeated: what is already there is skipped.
package move

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/message"
)

// Source is where messages are copied from.
type Source interface {
	// Lines returns the messages as the lines of an export, those of a server from a global position on. Reading ends
	// with ctx.
	Lines(ctx context.Context, from int64) (io.ReadCloser, error)
}

// Target is where they are copied to.
type Target interface {
	// Load imports the lines of an export.
	Load(ctx context.Context, lines io.Reader) (message.ImportResult, error)
	Store
}

// Store is what can tell what it has.
type Store interface {
	// Page calls yield for up to limit messages from a global position on, in their order.
	Page(ctx context.Context, from int64, limit int, yield func(message.Message) error) error
	// Last is the highest global position, 0 if there is none.
	Last(ctx context.Context) (int64, error)
	// Count is how many messages there are.
	Count(ctx context.Context) (int64, error)
}

// Result is what Copy has done.
type Result struct {
	message.ImportResult
	Skipped  int64 // the global position up to which an earlier copy had come, which was not read again to copy it
	Compared int64 // messages of the source that are the same in the target
	Total    int64 // messages that the target has
}

// Progress is called with the number of messages that were copied, or compared.
type Progress func(phase string, messages int64)

// Copy copies all messages of a source, and then compares each of them with its copy. A copy that is not the same is
// ErrCorrupt; what the target refuses is its own error, which tells the line, or the message.
func Copy(ctx context.Context, from Source, to Target, show Progress) (r Result, err error) {
	if show == nil {
		show = func(string, int64) {}
	}
	if r.Skipped, err = done(ctx, from, to); err != nil {
		return r, err
	}
	lines, err := from.Lines(ctx, r.Skipped+1)
	if err != nil {
		return r, err
	}
	counted := &counter{in: lines, show: show}
	r.ImportResult, err = to.Load(ctx, counted)
	err = errors.Join(err, lines.Close())
	if err != nil {
		return r, err
	}
	end := max(r.Last, r.Skipped)
	if r.Compared, err = compare(ctx, from, to, end, show); err != nil {
		return r, err
	}
	if r.Total, err = to.Count(ctx); err == nil && r.Total < r.Compared {
		err = wrong("the target counts %d messages, the source has %d", r.Total, r.Compared)
	}

	return r, err
}

// done is up to where an earlier copy from a server has come: to the target's end, if the source has the same message
// there.
func done(ctx context.Context, from Source, to Target) (int64, error) {
	source, ok := from.(Store)
	if !ok {
		return 0, nil
	}
	last, err := to.Last(ctx)
	if err != nil || last == 0 {
		return 0, err
	}
	var here, there message.Message
	if err := to.Page(ctx, last, 1, func(m message.Message) error { here = m; return nil }); err != nil {
		return 0, err
	}
	if err := source.Page(ctx, last, 1, func(m message.Message) error { there = m; return nil }); err != nil {
		return 0, err
	}
	if here.Global != last || differ(&here, &there) != "" {
		return 0, nil
	}

	return last, nil
}

// counter counts the lines that are read.
type counter struct {
	in    io.Reader
	lines int64
	show  Progress
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	if lines := bytes.Count(p[:n], []byte{'\n'}); lines > 0 {
		c.lines += int64(lines)
		c.show("copied", c.lines)
	}

	return n, err
}

// line is a line of an export.
type line struct {
	ID       string          `json:"id"`
	Stream   string          `json:"stream"`
	Type     string          `json:"type"`
	Position int64           `json:"pos"`
	Global   int64           `json:"gpos"`
	Time     time.Time       `json:"time"`
	Data     json.RawMessage `json:"data,omitempty"`
	Metadata json.RawMessage `json:"meta,omitempty"`
}

func (l *line) message() message.Message {
	m := message.Message{ID: l.ID, Stream: l.Stream, Position: l.Position, Global: l.Global, Type: l.Type,
		Data: l.Data, Metadata: l.Metadata, Time: l.Time}
	if string(m.Metadata) == "null" {
		m.Metadata = nil
	}

	return m
}

const (
	pageSize = 1000
	// Lines may come in any order: so many, of so many bytes, are put in order before they are looked up.
	sortLines = 10_000
	sortBytes = 16 << 20
)

// compare looks up each message of a source, up to a global position.
func compare(ctx context.Context, from Source, to Store, end int64, show Progress) (compared int64, err error) {
	lines, err := from.Lines(ctx, 1)
	if err != nil {
		return 0, err
	}
	defer lines.Close()

	in := bufio.NewReaderSize(lines, 64<<10)
	var batch []message.Message
	size := 0
	for eof := false; !eof; {
		text, err := in.ReadBytes('\n')
		if eof = err == io.EOF; err != nil && !eof {
			return compared, fmt.Errorf("reading the source again: %w", err)
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			var l line
			if err := json.Unmarshal(text, &l); err != nil {
				return compared, wrong("the source has changed meanwhile: %v", err)
			}
			if l.Global <= end { // what a running server was given since is not this copy's
				batch = append(batch, l.message())
				size += len(text)
			}
		}
		if len(batch) >= sortLines || size >= sortBytes || eof {
			slices.SortFunc(batch, func(a, b message.Message) int { return cmp.Compare(a.Global, b.Global) })
			if err := same(ctx, batch, to); err != nil {
				return compared, err
			}
			compared += int64(len(batch))
			show("compared", compared)
			batch, size = batch[:0], 0
		}
	}

	return compared, nil
}

// errBehind ends a page that has come too far.
var errBehind = errors.New("behind")

// same compares messages, in the order of their global positions, with those of a store.
func same(ctx context.Context, want []message.Message, to Store) error {
	for len(want) > 0 {
		before := len(want)
		err := to.Page(ctx, want[0].Global, pageSize, func(m message.Message) error {
			switch {
			case m.Global < want[0].Global:
				return nil
			case m.Global > want[0].Global:
				return errBehind
			}
			if what := differ(&want[0], &m); what != "" {
				return wrong("the message at global position %d has another %s", m.Global, what)
			}
			if want = want[1:]; len(want) == 0 {
				return errBehind
			}

			return nil
		})
		if err != nil && !errors.Is(err, errBehind) {
			return err
		}
		if len(want) == before {
			return wrong("there is no message at global position %d", want[0].Global)
		}
	}

	return nil
}

// differ says in what two messages differ.
func differ(a, b *message.Message) string {
	switch {
	case a.Global != b.Global:
		return "global position"
	case a.ID != b.ID:
		return "id"
	case a.Stream != b.Stream:
		return "stream"
	case a.Position != b.Position:
		return "position"
	case a.Type != b.Type:
		return "type"
	case !a.Time.Equal(b.Time):
		return "time"
	case !sameJSON(a.Data, b.Data):
		return "data"
	case !sameJSON(a.Metadata, b.Metadata):
		return "metadata"
	}

	return ""
}

// sameJSON reports whether two texts are the same but for the white space between their tokens.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y bytes.Buffer

	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

func wrong(format string, args ...any) error {
	return &holdfast.Error{Op: "import", Class: holdfast.ErrCorrupt, Detail: "the copy is not the same: " +
		fmt.Sprintf(format, args...)}
}
