// Package protocol is what the supervisor and its children know of each other: what a child is asked for, what it
// reports, the ledger that the supervisor keeps of a victim's reports, the history of a directory, and the
// judgement of what is left of it.
//
// It knows neither what a victim does nor how it is crashed.
package protocol

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

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
	TellIssued   = 'i' // the batches up to a are about to be applied
	TellAcked    = 'a' // the batch that ends with a, and all before it, were acknowledged at level b
	TellSynced   = 's' // Sync returned; all up to a had been applied before it was called
	TellShown    = 'v' // a follower was shown everything up to a, or a alone if History.Concurrent
	TellPlaced   = 'g' // operation a was told to be at place b
	TellSaved    = 'o' // an offset: a is about to be saved (b 0), was saved at level b
	TellCut      = 't' // the log's beginning: a is about to be its first (b 0), is it, at level b
	TellFollowed = 'f' // follower a/2^60 has come to position a%2^60, of what survives level b
	TellPhase    = 'p' // phase a begins; with PhaseClosed, all up to b had been applied before
	TellMetrics  = 'm' // since it was opened the engine has taken a batches and made b syncs
	TellServing  = 'u' // a server answers at an address: text
	TellWrong    = 'w' // the victim itself saw a breach: text
	tellWaited   = 'h' // a batch that sets the key text was applied at a and acknowledged at b, for power loss: see Wait
	tellRefused  = 'r' // a write failed: text; a is 1 if an earlier failure stopped the engine
	TellError    = 'e' // the child could not go on: text. With a 1 the disk is full or its like
	TellFound    = 'k' // an entry: text is its key, a its number, b its generation; see entry
	TellOpened   = 'n' // the check opened the engine in a ns, which cut off b torn bytes
	TellComplete = 'd' // all entries of one opening have been told
	tellDone     = 'z' // a check has told everything, and goes on with something else
)

// The phases of a victim.
const (
	PhaseOpening = iota + 1
	PhaseOpened
	PhaseClosing
	PhaseClosed
	PhaseSyncing
)

// Message is one record.
type Message struct {
	Kind byte
	A, B uint64
	Text string
}

// Reporter writes messages. It may be used by many goroutines.
type Reporter struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

// NewReporter returns a reporter that writes to w.
func NewReporter(w io.Writer) *Reporter { return &Reporter{w: w} }

// Send returns when the operating system has the message: the supervisor will read it, even if this process
// dies at once.
func (t *Reporter) Send(kind byte, a, b uint64) { t.message(Message{Kind: kind, A: a, B: b}) }

// message writes one record in one call, so that records of many goroutines do not mix.
func (t *Reporter) message(m Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = m.Append(t.buf[:0])
	// A supervisor that is gone ends this process otherwise.
	_, _ = t.w.Write(t.buf)
}

// Append appends the record to dst.
func (m Message) Append(dst []byte) []byte {
	dst = append(dst, m.Kind)
	dst = binary.AppendUvarint(dst, m.A)
	dst = binary.AppendUvarint(dst, m.B)
	dst = binary.AppendUvarint(dst, uint64(len(m.Text)))

	return append(dst, m.Text...)
}

// maxText is the longest text that is read.
const maxText = 1 << 20

// Failed tells that this child cannot go on.
func (t *Reporter) Failed(err error) {
	full := uint64(0)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		full = 1
	}
	t.message(Message{Kind: TellError, A: full, Text: clip(err.Error())})
}

// Done tells that a check is over, where the process goes on.
func (t *Reporter) Done() { t.Send(tellDone, 0, 0) }

// clip shortens a text, so that a record is at most PIPE_BUF bytes long and goes out whole.
func clip(s string) string { return s[:min(len(s), 3000)] }

// Serving tells the address of a server.
func (t *Reporter) Serving(address string) { t.message(Message{Kind: TellServing, Text: address}) }

// Wrong tells of a breach that the child itself saw.
func (t *Reporter) Wrong(format string, args ...any) {
	t.message(Message{Kind: TellWrong, Text: clip(fmt.Sprintf(format, args...))})
}

// Refused tells of a failed write.
func (t *Reporter) Refused(err error) {
	m := Message{Kind: tellRefused, Text: clip(err.Error())}
	if errors.Is(err, holdfast.ErrPoisoned) {
		m.A = 1
	}
	t.message(m)
}

// Entries tells what was found, in large groups.
type Entries struct {
	out *bufio.Writer
	buf []byte
}

// Entries begins to tell what one opening has found; no message may be sent before its end.
func (t *Reporter) Entries() *Entries { return &Entries{out: bufio.NewWriterSize(t.w, 32<<10)} }

// Tell adds one. Errors come with End.
func (e *Entries) Tell(found commits.Found) {
	e.buf = messageOf(found).Append(e.buf[:0])
	_, _ = e.out.Write(e.buf)
}

// End tells what has not been told yet.
func (e *Entries) End() error { return e.out.Flush() }

// Receive reads one message. io.EOF is the end, also in the middle of a message.
func Receive(r *bufio.Reader) (m Message, err error) {
	if m.Kind, err = r.ReadByte(); err != nil {
		return m, err
	}

	var length uint64
	for _, to := range []*uint64{&m.A, &m.B, &length} {
		if *to, err = binary.ReadUvarint(r); err != nil {
			return m, ended(err)
		}
	}

	// A witness reads this from the network: a length is no reason to allocate as much.
	if length > maxText {
		return m, errors.New("the child told nonsense")
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return m, ended(err)
	}
	m.Text = string(text)

	return m, nil
}

// ended turns an end in the middle of a record into an end: the child was killed while it wrote.
func ended(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}

	return err
}

// messageOf packs what else there is of an entry behind its key.
func messageOf(e commits.Found) Message {
	text := append([]byte(e.Key), e.Sum[:]...)
	text = binary.BigEndian.AppendUint64(text, uint64(e.Len))

	return Message{Kind: TellFound, A: e.N, B: uint64(e.Gen), Text: string(text)}
}

// EntryOf is what a message of the kind TellFound tells.
func EntryOf(m Message) (commits.Found, error) {
	const tail = len(commits.Digest{}) + 8
	if len(m.Text) < tail {
		return commits.Found{}, errors.New("the child told nonsense")
	}

	// The key comes first and has any length; what follows has a fixed one.
	at := len(m.Text) - tail
	size := binary.BigEndian.Uint64([]byte(m.Text[at+len(commits.Digest{}):]))
	e := commits.Found{Key: m.Text[:at], N: m.A, Gen: uint32(m.B), Len: int(size)}
	copy(e.Sum[:], m.Text[at:])

	return e, nil
}

// Dump is what a check has told.
type Dump struct {
	Found    [][]commits.Found // of each opening
	Recovery []time.Duration
	Torn     []int64  // bytes that each opening cut off
	Wrong    []string // what the check itself saw
	Failure  string   // it could not open or read
	Full     bool     // because of the disk
	Died     bool     // its process ended without an answer
	Hung     bool     // or gave none in time
	Done     bool     // it told that this is all
}

// Receive adds what a check tells until its end. An error is nonsense, or of r.
func (d *Dump) Receive(r *bufio.Reader) error {
	var entries []commits.Found
	for {
		m, err := Receive(r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}

		switch m.Kind {
		case tellDone:
			d.Done = true
			return nil

		// Each opening tells its entries anew. They count only when it says that they are complete.
		case TellOpened:
			d.Recovery = append(d.Recovery, time.Duration(m.A))

			d.Torn = append(d.Torn, int64(m.B))
			entries = []commits.Found{}
		case TellFound:
			e, err := EntryOf(m)
			if err != nil {
				return err
			}
			entries = append(entries, e)
		case TellComplete:
			d.Found = append(d.Found, entries)
		case TellWrong:
			d.Wrong = append(d.Wrong, m.Text)
		case TellError:
			d.Failure, d.Full = m.Text, m.A > 0
		}
	}
}

// EngineDir is the engine's directory in that of a round.
const EngineDir = "db"

// Call is the N-th system call of a name. The zero value is none.
type Call struct {
	Name string
	N    int
}

// Node is what one of several processes that are one server is told.
type Node struct {
	Spaces int
	Ahead  time.Duration // by how much its clock is ahead, in whole seconds
	Slow   int           // of the time that passes its clock sees one in so many; 0 means all
}

// Spec is what the supervisor asks of a child, as one line of JSON on its standard input. The input
// stays open: when it ends, the supervisor is gone, and so goes the child.
type Spec struct {
	Role    string // "work", "check" or "reread"
	Engine  string
	Subject string
	Level   holdfast.Level
	Dir     string
	Address string // of a server, which the engine has in place of a directory
	Listen  string // the address that a server listens at; empty means that of this host alone
	Node    *Node  // it is one of several processes that are one server
	Seed    uint64
	Gen     uint32
	From    uint64 // the number of the first batch
	// The history so far: what an operation on a store for Raft is follows from those before it.
	Segments  []Segment
	Skipped   []Span
	Monotonic bool

	// Followed is where the followers of a server had come to before the crash.
	Followed Followed

	Memory int64 // Options.MemoryBytes, unless the engine takes no budget so small
	Window int64 // Options.SyncEvery, ns

	Writers int
	Rate    int64 // bytes of values a second that the victim writes at most
	Reopen  int64 // ns after which it closes and opens again, 0 for never
	SyncNow int64 // ns between calls of Sync, 0 for never
	Only    bool  // all batches at Level, none at a weaker one
	Failing bool  // failed writes are expected
	Waits   bool  // it tells when each batch was applied and acknowledged
	DieAt   Call  // before which it is killed
	Age     int64 // bytes that it writes without waiting for them, before it syncs and ends; 0: it goes on until killed

	Expect string // a file of what must be read by a reread, as JSON of commits.Found
	Leave  bool   // the check, or what ages a directory, ends without closing
	Opens  int    // times that the check opens
}
