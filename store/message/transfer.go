package message

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/jsoncheck"
	"github.com/holdfastdb/holdfast/internal/ndjson"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// line is what an exported line has.
type line struct {
	ID       string          `json:"id"`
	Stream   string          `json:"stream"`
	Type     string          `json:"type"`
	Position int64           `json:"pos"`
	Global   int64           `json:"gpos"`
	Data     json.RawMessage `json:"data,omitempty"`
	Metadata json.RawMessage `json:"meta"`
	Time     time.Time       `json:"time"`
	// Of an opaque store, what is not JSON.
	DataBytes     []byte `json:"dataBytes,omitempty"`
	MetadataBytes []byte `json:"metaBytes,omitempty"`
}

// ExportOptions say what to export, and how.
type ExportOptions struct {
	Categories   []string  // none means all
	Since, Until time.Time // from when on, and until before when; zero means no bound
	Gzip         bool
}

// Export writes the messages of a namespace to w, in the order of their global positions: one line of JSON each, with
// id, stream, type, pos, gpos, data, meta and time. It returns the number of messages. Data and metadata keep their
// bytes, except for line breaks between the tokens of JSON, which would end the line. What is no JSON, or deeper than
// parsers read, is in dataBytes and metaBytes, in base64. Import takes every line.
func (n *Namespace) Export(ctx context.Context, w io.Writer, o ExportOptions) (exported int64, err error) {
	buffer := bufio.NewWriterSize(w, 64<<10)
	out := io.Writer(buffer)
	finish := buffer.Flush
	if o.Gzip {
		z := gzip.NewWriter(buffer)
		out, finish = z, func() error { return errors.Join(z.Close(), buffer.Flush()) }
	}
	for m, err := range n.Read(ctx, Query{}) {
		if err != nil {
			return exported, errors.Join(err, finish())
		}
		if len(o.Categories) > 0 && !slices.Contains(o.Categories, Category(m.Stream)) ||
			!o.Since.IsZero() && m.Time.Before(o.Since) || !o.Until.IsZero() && !m.Time.Before(o.Until) {
			continue
		}
		if _, err := out.Write(m.line()); err != nil {
			return exported, n.store.fail("export", nil, err, "", "the message at global position %d", m.Global)
		}
		exported++
	}
	return exported, finish()
}

// line is the message as a line of JSON, with the data's own bytes.
func (m *Message) line() []byte {
	b := make([]byte, 0, len(m.Data)+len(m.Metadata)+300)
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // which would make a line six times as long as what is in it
	field := func(name string, value any) {
		text.Reset()
		_ = encoder.Encode(value) // a string, number, time or bytes
		b = append(append(append(b, name...), ':'), bytes.TrimRight(text.Bytes(), "\n")...)
	}
	raw := func(name, bytesName string, value []byte) {
		if !isObject(value, importDepth) {
			field(bytesName, value)
			return
		}
		b = append(append(b, name...), ':')
		if bytes.ContainsAny(value, "\r\n") {
			var compact bytes.Buffer
			_ = json.Compact(&compact, value) // it is valid
			value = compact.Bytes()
		}
		b = append(b, value...)
	}
	field(`{"id"`, m.ID)
	field(`,"stream"`, m.Stream)
	field(`,"type"`, m.Type)
	field(`,"pos"`, m.Position)
	field(`,"gpos"`, m.Global)
	raw(`,"data"`, `,"dataBytes"`, m.Data)
	if len(m.Metadata) == 0 {
		b = append(b, `,"meta":null`...)
	} else {
		raw(`,"meta"`, `,"metaBytes"`, m.Metadata)
	}
	field(`,"time"`, m.Time)
	return append(b, '}', '\n')
}

// ImportResult is what an import has done.
type ImportResult struct {
	Imported int64 // messages that were not there
	Known    int64 // messages that were, with the same id at the same place
	Last     int64 // the highest global position imported
}

// ImportError says which line of an import was refused.
type ImportError struct {
	Line int64 // from 1
	Err  error
}

// Error says it in words.
func (e *ImportError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns what is wrong with the line.
func (e *ImportError) Unwrap() error { return e.Err }

// maxPosition is the highest position that a message can be imported at. There is room for more behind it.
const maxPosition = 1<<62 - 1

const (
	importBatch = 1000    // messages in a commit, at most; a long line ends it too
	importBytes = 8 << 20 // of their lines, about
)

// Import adds messages written by Export, of this or another store, to the namespace: one line of JSON each, optionally
// compressed with gzip, which it recognises. Messages keep their positions in their streams, their global positions,
// ids and times; for retention by age they are as old as the import. Positions may have gaps, and lines may come in any
// order. The next write goes behind the highest position. Empty lines are skipped.
//
// Up to 1,000 messages are one commit. progress, if it is not nil, is called after each. An error, ctx's too, leaves
// the commits before it; the import can then be repeated, since messages that are already there are skipped. The
// error of a refused line is an [*ImportError] with its number: its class is ErrBadMessage, ErrBadName,
// ErrPositionTaken, ErrIDTaken, ErrEnded or ErrTooLarge, and no line of its commit is imported.
//
// Followers that have passed a position do not get what is imported there.
func (n *Namespace) Import(ctx context.Context, r io.Reader, progress func(ImportResult)) (done ImportResult,
	err error) {
	lines, err := ndjson.NewReader(r, n.store.long)
	if err != nil {
		return done, n.store.fail("import", ErrBadMessage, err, "", "the input is not what gzip has written")
	}
	defer lines.Release()
	if err := n.db.Turn().Outside(); err != nil { // it would wait for a removal that waits for its end
		return done, err
	}
	if err := n.enter(ctx); err != nil {
		return done, err
	}
	defer n.leave()
	var batch []imported
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		added, err := n.importBatch(ctx, batch)
		if err != nil {
			return err
		}
		done.Imported += int64(added)
		done.Known += int64(len(batch) - added)
		for i := range batch {
			done.Last = max(done.Last, batch[i].m.Global)
		}
		clear(batch)
		batch, size = batch[:0], 0
		lines.Release()
		if progress != nil {
			progress(done)
		}
		return nil
	}
	for {
		text, failed := lines.Next(ctx)
		no := lines.Line()
		if errors.Is(failed, bufio.ErrTooLong) {
			return done, &ImportError{no, n.store.fail("import", holdfast.ErrTooLarge, nil, "", "a line has at most %d bytes",
				ndjson.MaxLine)}
		}
		if failed != nil && failed == ctx.Err() {
			return done, failed
		}
		if failed != nil && failed != io.EOF {
			return done, n.store.fail("import", nil, failed, "import the whole again", "reading line %d of the input", no)
		}
		if len(text) > 0 {
			m, err := n.parseLine(text)
			if err != nil {
				err = errors.Join(&ImportError{no, err}, flush())
				return done, err
			}
			batch = append(batch, imported{m, no})
			size += len(text)
		}
		if len(batch) == importBatch || size >= importBytes || lines.Long() || failed != nil {
			if err := flush(); err != nil {
				return done, err
			}
		}
		if failed != nil {
			return done, nil
		}
	}
}

// imported is a message to be imported, and the line it was in.
type imported struct {
	m    Message
	line int64
}

func (n *Namespace) parseLine(text []byte) (m Message, err error) {
	var l line
	if !utf8.Valid(text) {
		return m, n.store.fail("import", ErrBadMessage, nil, "", "the line is not UTF-8")
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return m, n.store.fail("import", ErrBadMessage, err, "", "%q is no message", text[:min(len(text), 60)])
	}
	if string(l.Metadata) == "null" {
		l.Metadata = nil
	}
	m = Message{ID: l.ID, Stream: l.Stream, Position: l.Position, Global: l.Global, Type: l.Type, Time: l.Time}
	depth := importDepth
	if m.Data = l.Data; m.Data == nil {
		m.Data, depth = l.DataBytes, jsoncheck.MaxDepth
	}
	if m.Metadata = l.Metadata; m.Metadata == nil && l.MetadataBytes != nil {
		m.Metadata, depth = l.MetadataBytes, jsoncheck.MaxDepth
	}
	if what := checkName(m.Stream); what != "" {
		return m, n.store.fail("import", ErrBadName, nil, "", "stream %.80q: %s", m.Stream, what)
	}
	if m.Position < 0 || m.Global < 1 || m.Position > maxPosition || m.Global > maxPosition || m.ID == "" ||
		m.Time.IsZero() {
		return m, n.store.fail("import", ErrBadMessage, nil, "",
			"a message has an id, a time, a pos from 0 and a gpos from 1, both up to %d", int64(maxPosition))
	}
	return m, n.checkMessage("import", m.Stream, 0, depth, &m)
}

// importBatch imports messages in one commit, and returns how many were not there.
func (n *Namespace) importBatch(ctx context.Context, batch []imported) (added int, err error) {
	n.editing.Lock()
	defer n.editing.Unlock()
	if n.life.Closed() {
		return 0, n.ended(holdfast.ErrClosed)
	}
	if err := n.sameContent(ctx, batch); err != nil {
		return 0, err
	}
	events := make([]event.Event, len(batch))
	lines := make(map[uint64]int64, len(batch))
	for i := range batch {
		m := &batch[i].m
		place := string(format.AppendPlace(nil, m.Stream, uint64(m.Position), false))
		events[i] = event.Event{Position: uint64(m.Global), ID: m.ID, Type: m.Type, Origin: place, Data: m.Data,
			Metadata: m.Metadata, Time: m.Time}
		if _, twice := lines[uint64(m.Global)]; twice {
			return 0, &ImportError{batch[i].line, n.store.fail("import", ErrPositionTaken, nil, "",
				"global position %d is given twice", m.Global)}
		}
		lines[uint64(m.Global)] = batch[i].line
	}
	streams := make([]string, len(batch))
	for i := range batch {
		streams[i] = batch[i].m.Stream
		if err := n.fetch(streams[i]); err != nil {
			return 0, n.ended(err)
		}
	}
	var behind *conflictAt
	for try := true; try; try = errors.As(err, &behind) {
		if behind != nil {
			if err := n.await(ctx, behind.global); err != nil {
				return 0, err
			}
		}
		if err := n.storeCounts(); err != nil {
			return 0, n.ended(err)
		}
		e := n.beginEdit(true)
		added, err = n.putAll(ctx, events, lines, e)
		n.endEdit(e, streams...)
	}
	var taken *event.Taken
	switch {
	case errors.As(err, &taken) && taken.Event == taken.Position:
		err = n.store.fail("import", ErrPositionTaken, err, "", "global position %d", taken.Event)
		return 0, &ImportError{lines[taken.Event], err}
	case errors.As(err, &taken):
		return 0, &ImportError{lines[taken.Event], n.store.fail("import", ErrIDTaken, err, "", "nothing was imported")}
	case errors.Is(err, event.ErrBadEvent):
		return 0, &ImportError{batch[0].line, n.store.fail("import", ErrBadMessage, err, "", "in the %d lines from here on",
			len(batch))}
	}
	return added, n.ended(err)
}

// sameContent checks that those messages that are there already, at the same place with the same id, are the same.
func (n *Namespace) sameContent(ctx context.Context, batch []imported) error {
	last := n.Last()
	for i := range batch {
		m := &batch[i].m
		if m.Global > last || uint64(m.Global) < n.log().First() {
			continue
		}
		there, err := n.at(ctx, uint64(m.Global))
		if errors.Is(err, holdfast.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		// As they would be exported, which tells what of their bytes counts.
		given := *m
		given.Time = m.Time.UTC()
		known := strings.EqualFold(there.ID, m.ID)
		given.ID = there.ID // but for the case of its letters
		if known && !bytes.Equal(there.line(), given.line()) {
			err := n.store.fail("import", ErrPositionTaken, nil, "",
				"global position %d has the message with the id %q, but with another content", m.Global, m.ID)
			return &ImportError{batch[i].line, err}
		}
	}
	return nil
}

// putAll imports events, with what finds them in their streams and categories, and returns how many were not there.
func (n *Namespace) putAll(ctx context.Context, events []event.Event, lines map[uint64]int64, e *edit) (int, error) {
	d, err := n.log().DraftImport(ctx, format.Kind, events...)
	if err != nil {
		return 0, err
	}
	defer d.Close()

	// What is imported below what is counted changes stored counts. They are locked in the log's turn: a transaction that
	// has it may be reading them.
	n.counting.Lock()
	defer n.counting.Unlock()
	var key, value []byte
	batch := d.Keys
	heads := map[string]head{}
	given := map[string]map[uint64]bool{}
	stored, since := map[string]counts{}, map[string]counts{}
	n.mu.Lock()
	counted, last := n.tally.counted, n.tally.last
	n.mu.Unlock()
	durable := n.log().Last()
	for i := range d.Events {
		e := &d.Events[i]
		place, position, _, _ := format.Place([]byte(e.Origin))
		stream := string(place)
		category := Category(stream)
		at, ok := heads[stream]
		if !ok {
			var err error
			if at, err = n.headOf(stream); err != nil {
				return 0, err
			}
			given[stream] = map[uint64]bool{}
		}
		refuse := func(class error, format string, args ...any) error {
			return &ImportError{lines[e.Position], n.store.fail("import", class, nil, "", format, args...)}
		}
		if at.ended {
			return 0, refuse(ErrEnded, "stream %q", stream)
		}
		key = n.keys.Stream(key, stream, position)
		free := int64(position) > at.version
		if !free && !ok && at.global > durable { // the engine may not show what is there
			return 0, &conflictAt{refuse(ErrPositionTaken, "position %d of stream %q", position, stream), at.global, nil}
		}
		if !free {
			_, err := n.store.eng.Get(nil, key)
			if free = errors.Is(err, holdfast.ErrNotFound); err != nil && !free {
				return 0, err
			}
		}
		if !free || given[stream][position] {
			return 0, refuse(ErrPositionTaken, "position %d of stream %q", position, stream)
		}
		given[stream][position] = true
		batch.Set(key, format.AppendNumber(value[:0], e.Position))
		key = n.keys.Category(key, category, e.Position/format.BlockSize)
		batch.Set(key, nil)
		one := counts{messages: 1}
		if at.top == NoStream {
			one.streams = 1
			e.Origin = string(format.AppendPlace(nil, stream, position, true))
		}
		to := since
		if e.Position <= counted {
			to = stored
		}
		to[category] = to[category].plus(one)
		at.top, at.version = max(at.top, int64(position)), max(at.version, int64(position))
		heads[stream] = at
		last = max(last, e.Position)
	}
	if err := n.addStored(batch, stored); err != nil {
		return 0, err
	}
	if d.Apply() {
		n.mu.Lock()
		n.heads.edits++
		for stream, at := range heads {
			at.edit = e
			n.heads.put(stream, at, durable, n.store.headsEach())
		}
		for category, change := range since {
			n.tally.add(category, change)
		}
		n.tally.last = last
		n.mu.Unlock()
	}
	_, err = d.Wait()
	return len(d.Events), err
}
