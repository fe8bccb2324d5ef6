package message

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/jsoncheck"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// streamWrite is what is written to a stream.
type streamWrite struct {
	stream string
	// expected is the version that the stream must have, NoStream if it must not be there; nil means any.
	expected *int64
	messages []Message
}

// Result is where the messages of a write are: at positions in a row in their stream, and global positions in a row.
type Result struct {
	Position, Global int64 // of the first
	// Repeated is true if the ids were known: nothing was written, and the positions are those of the first time.
	Repeated bool
}

// Write adds messages at the end of a stream, atomically, and returns when they have reached the store's level, or the
// one that ctx names ([holdfast.WithLevel]), and readers see them.
//
// If the messages have ids and these are known, in this order, from one write to the same stream with the same types
// and data, it is a repeat, and returns the first result. Data that are the same JSON are the same; metadata and times
// do not count: they often tell of the try. ErrIDTaken: some of the ids are known otherwise. The id of a message is
// known for as long as the message is there: once that was truncated, deleted, or removed by retention, a write with
// its id is a new one.
//
// ctx is checked until the messages have their place, and not after: they cannot be taken back then. A nil error
// means that they are safe. An error before that (ErrConflict, ErrIDTaken, ErrBadName, ErrBadMessage, ErrEnded,
// ErrTooLarge, ErrLevel, ErrClosed, ErrNoNamespace, ctx's) means that nothing was written. ErrPoisoned means that the
// outcome is unknown until the store is opened again: write again with the same ids to find out.
func (n *Namespace) Write(ctx context.Context, stream string, messages ...Message) (Result, error) {
	return n.write(ctx, streamWrite{stream: stream, messages: messages})
}

// WriteAfter is Write if the stream has the version expected at that moment, NoStream for one that has never had a
// message. Otherwise it returns ErrConflict, once readers see what it conflicts with. Repeats are repeats whatever the
// version is.
func (n *Namespace) WriteAfter(ctx context.Context, stream string, expected int64, messages ...Message) (Result,
	error) {
	return n.write(ctx, streamWrite{stream, &expected, messages})
}

func (n *Namespace) write(ctx context.Context, w streamWrite) (Result, error) {
	if err := n.enter(ctx); err != nil {
		return Result{}, err
	}
	defer n.leave()
	events, err := n.check(&w)
	if err != nil {
		return Result{}, err
	}
	for try := 0; ; try++ {
		r, err := n.tryWrite(ctx, &w, events)
		if errors.Is(err, holdfast.ErrNotFound) && try < maxTries { // the messages of known ids
			if err = n.settled(ctx, nil); err == nil {
				err = errAgain
			}
		}
		if err == nil {
			n.storeSome(ctx)
			return r, nil
		}
		if err != errAgain {
			return Result{}, n.ended(err)
		}
	}
}

// storeSome stores counts if many are not, after a write.
func (n *Namespace) storeSome(ctx context.Context) {
	n.mu.Lock()
	due := n.tally.last-n.tally.counted >= storeEvery
	n.mu.Unlock()
	if due && n.counting.TryLock() {
		defer n.counting.Unlock()
		_ = n.storeCountsLocked(ctx, true) // opening counts again what is not stored
	}
}

// errAgain: a write met an edit that was under way, and is done again now that it is not.
var errAgain = errors.New("again")

// maxTries is how often a write of a known id is tried again whose message is not there: an import or removal that is
// under way explains it, damage does, too.
const maxTries = 3

func (n *Namespace) tryWrite(ctx context.Context, w *streamWrite, events []event.Event) (Result, error) {
	if err := n.fetch(w.stream); err != nil {
		return Result{}, err
	}
	p := placing{n: n, ctx: ctx, write: *w}
	r, err := p.answer(p.run(n.log().DraftAppend(ctx, format.Kind, events...)))
	behind, ok := err.(*conflictAt)
	if !ok {
		return r, err
	}
	// Readers are to see what has come first.
	switch {
	case behind.edit != nil:
		err = cmp.Or(n.settled(ctx, behind.edit), errAgain)
	case behind.global > n.log().Last():
		err = cmp.Or(n.await(ctx, behind.global), behind.err)
	default:
		err = behind.err
	}
	return r, err
}

// run gives a draft its place, unless it is a repeat.
func (p *placing) run(d *event.Draft, err error) (event.Result, error) {
	if err != nil {
		return event.Result{}, err
	}
	defer d.Close()
	if len(d.Events) > 0 {
		if err := p.place(d); err != nil {
			return event.Result{}, err
		}
		if d.Apply() {
			p.note()
		}
	}
	return d.Wait()
}

// answer makes the result of a write of what the log says to it, whose error may be a *conflictAt.
func (p *placing) answer(at event.Result, err error) (Result, error) {
	n := p.n
	if err != nil {
		var known *event.Known
		if errors.As(err, &known) {
			at, err = known.Result, nil // with other bytes; perhaps it is the same JSON
		}
	}
	switch {
	case errors.Is(err, event.ErrBadEvent):
		return Result{}, n.store.fail("write", ErrBadMessage, err, "", "in namespace %q", n.id)
	case errors.Is(err, event.ErrPartialRepeat):
		return Result{}, n.store.fail("write", ErrIDTaken, err, "repeat a write with the same messages", "in namespace %q",
			n.id)
	case err != nil:
		return Result{}, err
	case at.Repeated:
		return n.repeated(p.ctx, at, &p.write)
	}
	return p.result, nil
}

// await returns when readers see what is at a global position.
func (n *Namespace) await(ctx context.Context, global uint64) error {
	for _, err := range n.log().FollowRecords(ctx, global) {
		return n.ended(err)
	}
	return nil
}

// conflictAt is a conflict with what readers see once the log is durable up to a global position, and an edit is done.
type conflictAt struct {
	err    error
	global uint64
	edit   *edit // nil if it is none
}

func (c *conflictAt) Error() string { return c.err.Error() }

// check finds what is wrong with a write by itself, and makes events of its messages.
func (n *Namespace) check(w *streamWrite) ([]event.Event, error) {
	if what := checkName(w.stream); what != "" {
		return nil, n.store.fail("write", ErrBadName, nil, "", "stream %.80q: %s", w.stream, what)
	}
	if len(w.messages) == 0 {
		return nil, n.store.fail("write", ErrBadMessage, nil, "write one message or more", "none is given for stream %q",
			w.stream)
	}

	events := make([]event.Event, 0, len(w.messages))
	var room [shortName]byte
	place := string(format.AppendPlace(room[:0], w.stream, 0, false))
	for i := range w.messages {
		m := &w.messages[i]
		if err := n.checkMessage("write", w.stream, i, MaxDepth, m); err != nil {
			return nil, err
		}
		id, isNew := m.ID, m.ID == ""
		if isNew {
			id = newID()
		}
		// The place has its size already, which the log checks.
		events = append(events, event.Event{ID: id, NewID: isNew, Type: m.Type, Origin: place, Data: m.Data,
			Metadata: m.Metadata, Time: m.Time})
	}
	return events, nil
}

// checkMessage finds what is wrong with a message whose data are at most so deep.
func (n *Namespace) checkMessage(op, stream string, i, depth int, m *Message) error {
	bad := func(what string) error {
		return n.store.fail(op, ErrBadMessage, nil, "", "message %d for stream %q: %s", i, stream, what)
	}
	switch {
	case m.Type == "":
		return bad("it has no type")
	case m.ID != "" && !isUUID(m.ID):
		return bad("its id is no UUID: 32 hexadecimal digits as 8-4-4-4-12")
	case !utf8.ValidString(m.Type):
		return bad("its type is not UTF-8")
	case len(m.Type) > MaxTypeSize:
		return bad(fmt.Sprintf("its type has %d bytes, the limit is %d", len(m.Type), MaxTypeSize))
	case n.store.o.Opaque:
		return nil
	case !isObject(m.Data, depth):
		return bad(fmt.Sprintf("its data are no JSON object at most %d deep", depth))
	case len(m.Metadata) > 0 && !isObject(m.Metadata, depth):
		return bad(fmt.Sprintf("its metadata are no JSON object at most %d deep", depth))
	}
	return nil
}

// isObject reports whether b is a JSON object that is at most so deep.
func isObject(b []byte, depth int) bool {
	i := jsoncheck.Space(b, 0)
	return i < len(b) && b[i] == '{' && jsoncheck.ValidTo(b, depth)
}

// sameJSON reports whether data are the same, whatever space is between their tokens and in whatever order the members
// of their objects come.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var values [2]any
	for i, text := range [][]byte{a, b} {
		if !isObject(text, jsoncheck.MaxDepth) {
			return false
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if d.Decode(&values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

func isUUID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
				return false
			}
		}
	}
	return true
}

// newID returns a UUID of version 7 (RFC 9562, 5.7): the milliseconds of now in front, so that ids that are made one
// after the other lie next to each other in the index.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[6:]) // it never fails
	now := time.Now().UnixMilli()
	for i := range 6 {
		b[i] = byte(now >> (40 - 8*i))
	}
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	var text [36]byte
	hex.Encode(text[:], b[:4])
	text[8] = '-'
	hex.Encode(text[9:], b[4:6])
	text[13] = '-'
	hex.Encode(text[14:], b[6:8])
	text[18] = '-'
	hex.Encode(text[19:], b[8:10])
	text[23] = '-'
	hex.Encode(text[24:], b[10:])
	return string(text[:])
}

// shortName is how many bytes a key or place has where names are of the usual length.
const shortName = 128

// written is what a write leaves in a stream.
type written struct {
	stream string
	head   head   // of the stream
	counts counts // that it adds
}

// placing is a write that gets its place.
type placing struct {
	n     *Namespace
	ctx   context.Context
	write streamWrite
	part  *part // of the transaction that writes, nil if it is a call
	written
	result Result
}

// headOf returns the head of a stream, as the transaction has made it if there is one.
func (p *placing) headOf(stream string) (head, error) {
	if p.part != nil {
		return p.part.head(p.ctx, stream)
	}
	return p.n.headOf(stream)
}

// hasBlock reports whether the index is known to have a block of a category.
func (p *placing) hasBlock(category string, block uint64) bool {
	if p.part != nil {
		if last, ok := p.part.blocks.get(category); ok && last == block {
			return true
		}
	}
	return p.n.hasBlock(category, block)
}

// place gives messages their positions in their stream, and adds to the draft what finds them there.
func (p *placing) place(d *event.Draft) error {
	n, w := p.n, &p.write
	var keys, values [shortName]byte
	key, value := keys[:0], values[:0]
	at, err := p.headOf(w.stream)
	if err != nil {
		return err
	}
	edit := at.edit
	if edit != nil && !edit.shown {
		edit = nil
	}
	if at.ended {
		return &conflictAt{n.store.fail("write", ErrEnded, nil, "", "stream %q", w.stream), 0, edit}
	}
	if w.expected != nil && *w.expected != at.version {
		err := n.store.fail("write", ErrConflict, &Conflict{w.stream, *w.expected, at.version}, "", "nothing was written")
		return &conflictAt{err, at.global, edit}
	}
	at.edit = nil // the engine shows it with this write

	global := d.First
	p.result = Result{Position: at.version + 1, Global: int64(global)}
	p.written = written{stream: w.stream, counts: counts{messages: int64(len(w.messages))}}
	category := Category(w.stream)
	for i := range w.messages {
		position := uint64(at.version + 1)
		first := at.top == NoStream
		if first {
			p.counts.streams = 1
		}
		value = format.AppendPlace(value[:0], w.stream, position, first)
		d.Events[i].Origin = string(value)
		key = n.keys.Stream(key, w.stream, position)
		value = format.AppendNumber(value[:0], global)
		d.Keys.Set(key, value)
		if block := global / format.BlockSize; i == 0 && !p.hasBlock(category, block) || global%format.BlockSize == 0 {
			key = n.keys.Category(key, category, block)
			d.Keys.Set(key, nil)
		}
		at.version++
		at.top, at.global = at.version, global
		global++
	}
	p.head = at
	return nil
}

// note notes what was written, in a transaction until that has its place.
func (p *placing) note() {
	if p.part == nil {
		p.n.wrote(p.written)
		return
	}
	p.part.written = append(p.part.written, p.written)
	p.part.heads.put(p.write.stream, p.head)
	p.part.blocks.put(Category(p.write.stream), p.head.global/format.BlockSize)
}

// wrote notes what was written, now that it has its place and before others write.
func (n *Namespace) wrote(w written) {
	n.mu.Lock()
	defer n.mu.Unlock()
	category := Category(w.stream)
	n.heads.put(w.stream, w.head, n.log().Last(), n.store.headsEach())
	n.tally.add(category, w.counts)
	n.tally.block(category, w.head.global/format.BlockSize)
	n.tally.last = max(n.tally.last, w.head.global)
}

// hasBlock reports whether the index is known to have a block of a category.
func (n *Namespace) hasBlock(category string, block uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	last, ok := n.tally.blocks[category]
	return ok && last == block
}

// repeated returns the result of a write whose ids are known.
func (n *Namespace) repeated(ctx context.Context, at event.Result, w *streamWrite) (r Result, err error) {
	var other error // what is in the same place, but not the same
	for i := range w.messages {
		m, err := n.at(ctx, at.First+uint64(i))
		if err != nil {
			return r, err
		}
		given := &w.messages[i]
		if !strings.EqualFold(m.ID, given.ID) { // removed meanwhile, and another was imported there
			return r, n.store.fail("write", holdfast.ErrNotFound, nil, "", "the message with the id %q is not there any more",
				given.ID)
		}
		if i == 0 {
			r = Result{Position: m.Position, Global: m.Global, Repeated: true}
		}
		if m.Stream != w.stream || m.Position != r.Position+int64(i) {
			return r, n.store.fail("write", ErrIDTaken, nil, "", "the id %q is that of message %d of stream %q", m.ID,
				m.Position, m.Stream)
		}
		if m.Type != given.Type || !sameJSON(m.Data, given.Data) {
			other = cmp.Or(other, n.store.fail("write", ErrIDTaken, &Known{w.stream, r},
				"give what is new an id of its own", "message %d of stream %q has the id %q, but another type or data",
				m.Position, m.Stream, m.ID))
		}
	}
	return r, other
}

// at returns the message at a global position.
func (n *Namespace) at(ctx context.Context, global uint64) (m Message, err error) {
	for r, err := range n.log().Records(ctx, global, 1) {
		if err != nil {
			return m, n.ended(err)
		}
		if r.Position == global {
			return n.message(r)
		}
	}
	return m, n.store.fail("read", holdfast.ErrNotFound, nil, "", "there is no message at global position %d", global)
}

// message makes a message of a record, that is the caller's.
func (n *Namespace) message(r *event.Record) (m Message, err error) {
	stream, position, _, ok := format.Place(r.Origin)
	if !ok {
		return m, n.foreign(r.Position)
	}
	e := r.Event()
	return Message{ID: e.ID, Stream: e.Origin[len(e.Origin)-len(stream):], Position: int64(position),
		Global: int64(r.Position), Type: e.Type, Data: e.Data, Metadata: e.Metadata, Time: e.Time}, nil
}
