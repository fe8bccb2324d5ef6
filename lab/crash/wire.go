package crash

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"sync"

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
	// The history so far, of a store for Raft: what an operation is follows from those before it.
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
