// Package format is the bytes of a task store: its keys and values. They are also drawn, with the rules that hold
// between them, in docs/format-task.md.
//
// Numbers in keys are big-endian, numbers in values are varints.
package format

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/holdfastdb/holdfast/internal/keyspace"
)

// Every key of a store begins as package keyspace says, and continues behind the table with
//
//	table 'm'                                        the store itself: version (1 byte), a number (8 bytes) above all
//	                                                 that tasks and leases have, the clock (8 bytes)
//	table 'm'   0 (1 byte)                           the same, as the program wrote it that last kept the lows
//	table 'm'   1 (1 byte), table, part of its keys  a low: no key of this table that begins with the part is less
//	table 't'   task (8 bytes)                       a task, see Record
//	table 'p'   task (8 bytes)                       its payload, if that has more than InlineSize bytes
//	table 'o'   task (8 bytes)                       its output, if that has more than InlineSize bytes
//	table 'a'   task (8 bytes)                       the tasks it runs after: for each 8 bytes and, if the store has not
//	                                                 made it, its id, with its length (1 byte) before it
//	table 'w'   task (8 bytes)                       how many of these it still waits for (8 bytes); not there if none
//	table 'n'   id                                   the task (8 bytes) of an id that the store has not made
//	table 'i'   queue, state (1 byte), key, rank,    nothing: where a task is listed, one key for each
//	            time (8 bytes), task (8 bytes)
//	table 'k'   queue, rank, time, task              a key that has its first waiting task there: see docs/format-task.md
//	table 's'   sequence, turn (8 bytes)             the task (8 bytes) of the sequence whose turn that is, and which is
//	                                                 not finished
//	table 'c'   task (8 bytes), task (8 bytes)       nothing: the second runs after the first, which is not completed
//	table 'f'   task (8 bytes)                       how it has ended (state, 1 byte), if some of those that run after it
//	                                                 have not been told yet
//	table 'u'   text                                 the task (8 bytes) that has this unique text, until when
//	                                                 (8 bytes, 0 until it is finished), and its id
//	table 'x'   time (8 bytes), text                 nothing: when a unique text with a time may be used again
//	table 'q'   queue                                its options, as JSON
//	table 'r'   queue, key                           its latest starts, see Starts; for the queue itself without a key
//	table 'y'   name                                 the last tick of a periodic task (8 bytes)
//
// A queue, a key and a sequence are written with their length (1 byte) before them. A time is in nanoseconds since
// 1970. In table 'i' only waiting tasks have a key. Their rank is 127 less the priority, and 0 in other states; their
// time is when they were due. That of scheduled tasks is when they are due; that of finished ones when they are to be
// removed, Forever if never; that of the others is 0.
const (
	TableMeta      = 'm'
	TableTasks     = 't'
	TablePayloads  = 'p'
	TableOutputs   = 'o'
	TableAfter     = 'a'
	TableWaits     = 'w'
	TableIDs       = 'n'
	TableIndex     = 'i'
	TableAway      = 'k'
	TableSequences = 's'
	TableChildren  = 'c'
	TableEnded     = 'f'
	TableUnique    = 'u'
	TableExpiry    = 'x'
	TableQueues    = 'q'
	TableRates     = 'r'
	TablePeriodic  = 'y'

	Version    = 1
	InlineSize = 512
	Forever    = math.MaxInt64
)

// Kind is what kind of store it is, which the keys begin with.
var Kind = keyspace.Tasks

// Store is what all keys of one store begin with.
type Store struct{ keyspace.Prefix }

// New returns the prefix of the store of that name.
func New(name string) Store { return Store{keyspace.New(Kind, name)} }

// Meta returns the key of the store's description.
func (s Store) Meta() []byte { return s.Key(nil, TableMeta, "") }

// Stamp returns the key of what the description was when lows were last part of the commits.
func (s Store) Stamp() []byte { return s.Key(nil, TableMeta, "\x00") }

// Low returns the key of the low of a part of a table.
func (s Store) Low(part string) []byte { return s.Key(nil, TableMeta, LowPrefix+part) }

// LowPrefix is what the keys of lows begin with, behind the table.
const LowPrefix = "\x01"

// Of sets dst to the key of a task in a table that has one for each task.
func (s Store) Of(dst []byte, table byte, task uint64) []byte { return s.Numbered(dst, table, task) }

// Place is where a task is listed.
type Place struct {
	Queue string
	State byte
	Key   string
	Order
}

// Order is where a task is among those of the same queue, state and key.
type Order struct {
	Time int64
	Task uint64
	Rank byte
}

// OrderSize is how many bytes an order has at the end of a key.
const OrderSize = 1 + 8 + 8

// Less reports whether p comes before o.
func (p *Order) Less(o *Order) bool {
	if p.Rank != o.Rank {
		return p.Rank < o.Rank
	}
	if p.Time != o.Time {
		return p.Time < o.Time
	}
	return p.Task < o.Task
}

func (s Store) sized(dst []byte, table byte, text string) []byte {
	return append(append(append(append(dst[:0], s.Prefix...), table), byte(len(text))), text...)
}

// Index sets dst to the key of a place.
func (s Store) Index(dst []byte, p *Place) []byte {
	dst = append(s.sized(dst, TableIndex, p.Queue), p.State, byte(len(p.Key)))
	return p.append(append(dst, p.Key...))
}

func (p *Order) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, p.Rank), uint64(p.Time))
	return binary.BigEndian.AppendUint64(dst, p.Task)
}

func (p *Order) parse(b []byte) (ok bool) {
	if len(b) != OrderSize {
		return false
	}
	p.Rank, p.Time, p.Task = b[0], int64(binary.BigEndian.Uint64(b[1:])), binary.BigEndian.Uint64(b[9:])
	return p.Time >= 0
}

// Away sets dst to the key of a lane that is not in memory, by where its first task is.
func (s Store) Away(dst []byte, queue string, first *Order) []byte {
	return first.append(s.sized(dst, TableAway, queue))
}

// Aways returns what the keys of all lanes of a queue that are not in memory begin with.
func (s Store) Aways(queue string) []byte { return s.sized(nil, TableAway, queue) }

// ParseAway takes a key of TableAway apart, behind the table; false means that it is none.
func ParseAway(rest []byte) (queue string, first Order, ok bool) {
	if queue, rest, ok = text(rest); ok {
		ok = first.parse(rest)
	}
	return queue, first, ok
}

// Listed returns what the keys of all places of a queue, or of a queue in a state if that is not 0, begin with.
func (s Store) Listed(queue string, state byte) []byte {
	dst := s.sized(nil, TableIndex, queue)
	if state != 0 {
		dst = append(dst, state)
	}
	return dst
}

// ListedBy returns what the keys of all places of waiting tasks with that key begin with.
func (s Store) ListedBy(queue string, state byte, key string) []byte {
	return append(append(s.Listed(queue, state), byte(len(key))), key...)
}

// Place takes a key of the index apart, behind the table; false means that it is none.
func (s Store) Place(rest []byte) (p Place, ok bool) {
	if p.Queue, rest, ok = text(rest); !ok || len(rest) < 1 {
		return p, false
	}
	p.State, rest = rest[0], rest[1:]
	if p.Key, rest, ok = text(rest); ok {
		ok = p.parse(rest)
	}
	return p, ok
}

// text splits what is written with its length off b.
func text(b []byte) (t string, rest []byte, ok bool) {
	if len(b) < 1 || len(b) < 1+int(b[0]) {
		return "", nil, false
	}
	return string(b[1 : 1+int(b[0])]), b[1+int(b[0]):], true
}

// Sequence sets dst to the key of a turn in a sequence.
func (s Store) Sequence(dst []byte, sequence string, turn uint64) []byte {
	return binary.BigEndian.AppendUint64(s.sized(dst, TableSequences, sequence), turn)
}

// Texted takes the rest of a key of TableSequences or TableRates apart into its first text and what follows.
func Texted(rest []byte) (t string, more []byte, ok bool) { return text(rest) }

// Child sets dst to the key that says that child runs after parent.
func (s Store) Child(dst []byte, parent, child uint64) []byte {
	return binary.BigEndian.AppendUint64(s.Numbered(dst, TableChildren, parent), child)
}

// Rate sets dst to the key of the latest starts of a key of a queue, or of the queue.
func (s Store) Rate(dst []byte, queue, key string) []byte {
	dst = s.sized(dst, TableRates, queue)
	return append(append(dst, byte(len(key))), key...)
}

// Expiry sets dst to the key that says when a unique text may be used again.
func (s Store) Expiry(dst []byte, until int64, text string) []byte {
	return append(s.Numbered(dst, TableExpiry, uint64(until)), text...)
}

// AppendNumbers appends the value of a key that has numbers.
func AppendNumbers(dst []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		dst = binary.BigEndian.AppendUint64(dst, n)
	}
	return dst
}

// Numbers reads what AppendNumbers has appended; false means that it is none.
func Numbers(value []byte) (numbers []uint64, ok bool) {
	if len(value)%8 != 0 {
		return nil, false
	}
	for ; len(value) > 0; value = value[8:] {
		numbers = append(numbers, binary.BigEndian.Uint64(value))
	}
	return numbers, true
}

// Before is a task that another runs after. Its ID is empty if the store has made it.
type Before struct {
	Task uint64
	ID   string
}

// AppendBefore appends the value of a key of TableAfter.
func AppendBefore(dst []byte, before []Before) []byte {
	for _, b := range before {
		dst = append(append(binary.BigEndian.AppendUint64(dst, b.Task), byte(len(b.ID))), b.ID...)
	}
	return dst
}

// ParseBefore reads what AppendBefore has appended; false means that it is none.
func ParseBefore(value []byte) (before []Before, ok bool) {
	for len(value) > 0 {
		if len(value) < 8 {
			return nil, false
		}
		b := Before{Task: binary.BigEndian.Uint64(value)}
		if b.ID, value, ok = text(value[8:]); !ok {
			return nil, false
		}
		before = append(before, b)
	}
	return before, true
}

// Starts are how many tasks were started at which times, in nanoseconds, the oldest first.
type Starts []Start

// Start is N starts, the last of them at At, the first at First.
type Start struct{ First, At, N int64 }

// Append appends the starts, each as three varints.
func (s Starts) Append(dst []byte) []byte {
	for _, e := range s {
		dst = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(dst, e.First), e.At), e.N)
	}
	return dst
}

// ParseStarts reads starts; false means that they are none.
func ParseStarts(value []byte) (s Starts, ok bool) {
	d := decoder{b: value}
	for len(d.b) > 0 && !d.bad {
		s = append(s, Start{d.varint(), d.varint(), d.varint()})
	}
	return s, !d.bad
}

// Failure is why an attempt failed.
type Failure struct {
	Attempt        int
	Time           int64
	Message, Stack string
}

// Record is what is kept of a task under its number. Times are nanoseconds since 1970, 0 if there is none.
type Record struct {
	State, Flags                byte
	Priority                    int8
	Attempt, MaxAttempts        int
	Created, At, Due            int64
	Started, Finished, Removal  int64 // Removal is the time of its place once it is finished
	Lease                       time.Duration
	Until                       int64  // when its lease ends, by the clock
	Token                       uint64 // of its last lease
	Turn                        uint64 // in its sequence
	First, Max, Keep, UniqueFor time.Duration
	ID, Queue, Kind, Key        string
	Sequence, Unique, Worker    string
	Payload, Output             []byte // nil if they lie apart
	Failures                    []Failure
}

// Flags of a record.
const (
	Parent     = 1 << iota // other tasks may be listed as running after it
	Child                  // it has a list of tasks that it runs after
	BigPayload             // its payload lies apart
	BigOutput              // its output lies apart
	HasUnique              // it has its unique text until it is finished
	Delayed                // it is due after a delay, not at a time
	flagsEnd
)

// Append appends the record: version, state, flags and priority (1 byte each), the numbers as varints, texts and
// bytes with their length before them, all in the order of the fields.
func (r *Record) Append(dst []byte) []byte {
	dst = append(dst, Version, r.State, r.Flags, byte(r.Priority))
	for _, n := range [...]int64{int64(r.Attempt), int64(r.MaxAttempts), r.Created, r.At, r.Due, r.Started, r.Finished,
		r.Removal, int64(r.Lease), r.Until, int64(r.Token), int64(r.Turn), int64(r.First), int64(r.Max), int64(r.Keep),
		int64(r.UniqueFor)} {
		dst = binary.AppendVarint(dst, n)
	}
	for _, t := range [...]string{r.ID, r.Queue, r.Kind, r.Key, r.Sequence, r.Unique, r.Worker} {
		dst = append(binary.AppendUvarint(dst, uint64(len(t))), t...)
	}
	dst = append(binary.AppendUvarint(dst, uint64(len(r.Payload))), r.Payload...)
	dst = append(binary.AppendUvarint(dst, uint64(len(r.Output))), r.Output...)
	for i := range r.Failures {
		f := &r.Failures[i]
		dst = binary.AppendVarint(binary.AppendVarint(dst, int64(f.Attempt)), f.Time)
		dst = append(binary.AppendUvarint(dst, uint64(len(f.Message))), f.Message...)
		dst = append(binary.AppendUvarint(dst, uint64(len(f.Stack))), f.Stack...)
	}
	return dst
}

// Parse reads a record, which keeps no part of value; false means that it is none.
func (r *Record) Parse(value []byte) bool {
	if len(value) < 4 || value[0] != Version || value[2] >= flagsEnd {
		return false
	}
	*r = Record{State: value[1], Flags: value[2], Priority: int8(value[3])}
	d := decoder{b: value[4:]}
	r.Attempt, r.MaxAttempts = int(d.varint()), int(d.varint())
	for _, n := range [...]*int64{&r.Created, &r.At, &r.Due, &r.Started, &r.Finished, &r.Removal} {
		*n = d.varint()
	}
	r.Lease, r.Until, r.Token, r.Turn = time.Duration(d.varint()), d.varint(), uint64(d.varint()), uint64(d.varint())
	for _, n := range [...]*time.Duration{&r.First, &r.Max, &r.Keep, &r.UniqueFor} {
		*n = time.Duration(d.varint())
	}
	// One string holds all texts: they are made in one allocation.
	at := d.b
	var ends [7]int
	for i := range ends {
		d.bytes()
		ends[i] = len(at) - len(d.b)
	}
	if d.bad {
		return false
	}
	all, from := string(at[:ends[6]]), 0
	for i, t := range [...]*string{&r.ID, &r.Queue, &r.Kind, &r.Key, &r.Sequence, &r.Unique, &r.Worker} {
		_, w := binary.Uvarint(at[from:])
		*t, from = all[from+w:ends[i]], ends[i]
	}
	r.Payload, r.Output = clone(d.bytes()), clone(d.bytes())
	for len(d.b) > 0 && !d.bad {
		r.Failures = append(r.Failures, Failure{int(d.varint()), d.varint(), string(d.bytes()), string(d.bytes())})
	}
	return !d.bad
}

func clone(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return append([]byte(nil), b...)
}

// decoder reads varints and bytes; bad is set where there are none.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) varint() int64 {
	n, w := binary.Varint(d.b)
	if w <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[w:]
	return n
}

func (d *decoder) bytes() []byte {
	n, w := binary.Uvarint(d.b)
	if w <= 0 || n > uint64(len(d.b)-w) {
		d.bad, d.b = true, nil
		return nil
	}
	b := d.b[w : w+int(n)]
	d.b = d.b[w+int(n):]
	return b
}
