package crash

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
)

// What a child tells, as records
//
//	kind   1 byte
//	a, b   uvarints
//	text   uvarint length, bytes
//
// each given to the operating system in one write (of at most PIPE_BUF bytes, so whole or not at
// all), or for entries in large groups.
const (
	tellIssued   = 'i' // the batches up to a are about to be applied
	tellAcked    = 'a' // the batch that ends with a, and all before it, were acknowledged at level b
	tellSynced   = 's' // Sync returned; all up to a had been applied before it was called
	tellShown    = 'v' // a follower was shown everything up to a
	tellSaved    = 'o' // an offset: a is about to be saved (b 0), was saved at level b
	tellCut      = 't' // the log's beginning: a is about to be its first (b 0), is it, at level b
	tellPhase    = 'p' // phase a begins; with phaseClosed, all up to b had been applied before
	tellMetrics  = 'm' // since it was opened the engine has taken a batches and made b syncs
	tellWrong    = 'w' // the victim itself saw a breach: text
	tellRefused  = 'r' // a write failed: text; a is 1 if an earlier failure stopped the engine
	tellError    = 'e' // the child could not go on: text. With a 1 the disk is full or its like
	tellFound    = 'k' // an entry: text is its key, a its number, b its generation; see entry
	tellOpened   = 'n' // the check opened the engine in a ns, which cut off b torn bytes
	tellComplete = 'd' // all entries of one opening have been told
)

// The phases of a victim.
const (
	phaseOpening = iota + 1
	phaseOpened
	phaseClosing
	phaseClosed
	phaseSyncing
)

// message is one record.
type message struct {
	kind byte
	a, b uint64
	text string
}

// reporter writes messages. It may be used by many goroutines.
type reporter struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

// newReporter returns a reporter that writes to w.
func newReporter(w io.Writer) *reporter { return &reporter{w: w} }

// send returns when the operating system has the message: the supervisor will read it, even if this process
// dies at once.
func (t *reporter) send(kind byte, a, b uint64) { t.message(message{kind: kind, a: a, b: b}) }

func (t *reporter) message(m message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = m.append(t.buf[:0])
	// A supervisor that is gone ends this process otherwise.
	_, _ = t.w.Write(t.buf)
}

func (m message) append(dst []byte) []byte {
	dst = append(dst, m.kind)
	dst = binary.AppendUvarint(dst, m.a)
	dst = binary.AppendUvarint(dst, m.b)
	dst = binary.AppendUvarint(dst, uint64(len(m.text)))
	return append(dst, m.text...)
}

// maxText is the longest text that is read.
const maxText = 1 << 20

// failed tells that this child cannot go on.
func (t *reporter) failed(err error) {
	full := uint64(0)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		full = 1
	}
	t.message(message{kind: tellError, a: full, text: clip(err.Error())})
}

func clip(s string) string { return s[:min(len(s), 3000)] }

// wrong tells of a breach that the child itself saw.
func (t *reporter) wrong(format string, args ...any) {
	t.message(message{kind: tellWrong, text: clip(fmt.Sprintf(format, args...))})
}

// refused tells of a failed write.
func (t *reporter) refused(err error) {
	m := message{kind: tellRefused, text: clip(err.Error())}
	if errors.Is(err, holdfast.ErrPoisoned) {
		m.a = 1
	}
	t.message(m)
}

// entries tells what was found, in large groups.
type entries struct {
	out *bufio.Writer
	buf []byte
}

// entries begins to tell what one opening has found; no message may be sent before its end.
func (t *reporter) entries() *entries { return &entries{out: bufio.NewWriterSize(t.w, 32<<10)} }

// tell adds one. Errors come with end.
func (e *entries) tell(found entry) {
	e.buf = messageOf(found).append(e.buf[:0])
	_, _ = e.out.Write(e.buf)
}

// end tells what has not been told yet.
func (e *entries) end() error { return e.out.Flush() }

// receive reads one message. io.EOF is the end, also in the middle of a message.
func receive(r *bufio.Reader) (m message, err error) {
	if m.kind, err = r.ReadByte(); err != nil {
		return m, err
	}
	var length uint64
	for _, to := range []*uint64{&m.a, &m.b, &length} {
		if *to, err = binary.ReadUvarint(r); err != nil {
			return m, ended(err)
		}
	}
	if length > maxText {
		return m, errors.New("the child told nonsense")
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return m, ended(err)
	}
	m.text = string(text)
	return m, nil
}

func ended(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

// messageOf packs what else there is of an entry behind its key.
func messageOf(e entry) message {
	text := append([]byte(e.Key), e.Sum[:]...)
	text = binary.BigEndian.AppendUint64(text, uint64(e.Len))
	return message{kind: tellFound, a: e.N, b: uint64(e.Gen), text: string(text)}
}

func entryOf(m message) (entry, error) {
	const tail = len(commits.Digest{}) + 8
	if len(m.text) < tail {
		return entry{}, errors.New("the child told nonsense")
	}
	at := len(m.text) - tail
	e := entry{Key: m.text[:at], N: m.a, Gen: uint32(m.b), Len: int(binary.BigEndian.Uint64([]byte(m.text[at+len(commits.Digest{}):])))}
	copy(e.Sum[:], m.text[at:])
	return e, nil
}

// engineDir is the engine's directory in that of a round.
const engineDir = "db"

// spec is what the supervisor asks of a child, as one line of JSON on its standard input. The input
// stays open: when it ends, the supervisor is gone, and so goes the child.
type spec struct {
	Role    string // "work" or "check"
	Engine  string
	Subject string
	Level   holdfast.Level
	Dir     string
	Seed    uint64
	Gen     uint32
	From    uint64 // the number of the first batch
	// The history so far: what an operation on a store for Raft is follows from those before it.
	Segments  []segment
	Skipped   []span
	Monotonic bool

	Memory int64 // Options.MemoryBytes, unless the engine takes no budget so small
	Window int64 // Options.SyncEvery, ns

	Writers int
	Rate    int64 // bytes of values a second that the victim writes at most
	Reopen  int64 // ns after which it closes and opens again, 0 for never
	SyncNow int64 // ns between calls of Sync, 0 for never
	Only    bool  // all batches at Level, none at a weaker one
	Failing bool  // failed writes are expected

	Leave bool // the check ends without closing
	Opens int  // times that the check opens
}
