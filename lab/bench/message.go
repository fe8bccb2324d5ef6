package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/store/message"
)

// The fourth study: a message store with the semantics of message-db, over HTTP, on Pebble with Sync and without. It
// took the log without a sync for one that is synced every second or two. Its mix of writes and reads is here without
// HTTP; the other workloads are ours.
const (
	messageCategory   = "account"
	messageType       = "BenchMessage"
	messageMixedReads = 10 // messages of one read of a stream, and writes before it
	messageGroup      = 4  // members of a consumer group
	messageTenth      = 10 // categories, of which one is read
)

// messageSizes are the numbers that the workloads work on.
type messageSizes struct {
	streams int
	stored  int // messages there when reading
	read    int // messages of one read of a category
}

func messageWorkloads() []Workload {
	return messageStudy(messageSizes{streams: 100, stored: 20_000, read: 1000})
}

// messageStudy is the table of workloads on so much.
func messageStudy(n messageSizes) []Workload {
	read := func(name, about string, r messageRead) Workload {
		r.messageSizes = n

		return Workload{
			Name: name, About: about, Unit: "messages", Items: n.read, Store: Messages, Reads: true, ReadsBack: true,
			Overhead: time.Second, Engine: r.engine, Floor: r.floor, Null: r.null,
		}
	}
	write := func(name, about, unit string, w messageWrite) Workload {
		w.streams = n.streams

		return Workload{Name: name, About: about, Unit: unit, Items: 1, Store: Messages, ReadsBack: w.reads, Engine: w.engine,
			Floor: w.floor, Null: w.null}
	}
	mixed := write("message/mixed", "write a message to one of 100 streams; after ten of them read 10 messages of one",
		"operations", messageWrite{reads: true})
	mixed.StudyClients = 10
	mixed.Study = study(map[figure]string{
		{"pebble", holdfast.Power}:  `259/s`,
		{"pebble", holdfast.Memory}: `38.5k/s: "at most 1-2 s are lost, on power loss"`,
		{"sqlite", 0}:               "5k-10k/s, level not said",
		{"postgres", 0}:             "1k-2k/s, level not said",
	})
	mixed.StudyNote = "Those of message/mixed were measured over HTTP."
	follow := messageFollow{streams: n.streams}
	long := write("message/long", "message/mixed for long, with reads anywhere in a stream", "operations",
		messageWrite{reads: true, anywhere: true})
	long.Samples = true

	return []Workload{
		write("message/write", "write a message to one of 100 streams", "messages", messageWrite{}),
		mixed,
		read("message/scan", "read 1,000 messages of the whole log", messageRead{whole: true}),
		read("message/category-read", "read 1,000 messages of a category that all of the log belongs to", messageRead{}),
		read("message/category-tenth", "read 1,000 messages of a category that every tenth of the log belongs to",
			messageRead{categories: messageTenth}),
		read("message/group-read", "read 1,000 messages of a category as one of four members of a consumer group",
			messageRead{group: messageGroup}),
		{
			Name: "message/follow", About: "from when a message was to be written until a follower has it, in an open loop",
			Unit: "messages", Items: 1, Store: Messages, Offer: Offer{Share: 0.5},
			Engine: follow.engine, Floor: follow.floor, Null: follow.null,
		},
		long,
	}
}

// openMessages opens the message store under test: the engine itself if it is a peer, else one of package message.
func openMessages(e holdfast.Engine, level holdfast.Level) (contender.Messages, func() error, error) {
	if peer, ok := e.(contender.MessagesEngine); ok {
		return peer, func() error { return nil }, nil
	}
	store, err := message.Open(kv.On(e), message.Options{Level: level})
	if err != nil {
		return nil, nil, err
	}
	n, err := store.Namespace(context.Background(), message.Default)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}

	return namespace{store, n}, store.Close, nil
}

// namespace is one of package message, in its store, with the methods of a peer.
type namespace struct {
	*message.Store
	n *message.Namespace
}

func (s namespace) Write(ctx context.Context, stream, id, typ string, data, metadata []byte,
	expected *int64) (int64, error) {
	write := s.n.Write
	if expected != nil {
		write = func(ctx context.Context, stream string, messages ...message.Message) (message.Result, error) {
			return s.n.WriteAfter(ctx, stream, *expected, messages...)
		}
	}
	r, err := write(ctx, stream, message.Message{ID: id, Type: typ, Data: data, Metadata: metadata})

	return r.Position, err
}

func (s namespace) ReadStream(ctx context.Context, stream string, from int64, limit int,
	yield func(position int64, data []byte) error) error {
	for m, err := range s.n.Read(ctx, message.Query{Stream: stream, From: from, Limit: limit}) {
		if err != nil {
			return err
		}
		if err := yield(m.Position, m.Data); err != nil {
			return err
		}
	}

	return nil
}

func (s namespace) ReadCategory(ctx context.Context, category string, from int64, limit, member, size int,
	yield func(global int64, stream string, data []byte) error) error {
	q := message.Query{Category: category, From: from, Limit: limit, Group: message.Group{Member: member, Size: size}}
	for m, err := range s.n.Read(ctx, q) {
		if err != nil {
			return err
		}
		if err := yield(m.Global, m.Stream, m.Data); err != nil {
			return err
		}
	}

	return nil
}

func (s namespace) Follow(ctx context.Context, category string, from int64,
	yield func(global int64, data []byte) bool) error {
	for m, err := range s.n.Follow(ctx, message.Query{Category: category, From: from}) {
		if err != nil {
			return err
		}
		if !yield(m.Global, m.Data) {
			return nil
		}
	}

	return nil
}

// The data of a message, which its stamp tells from every other: stream, client, and number among the client's.
const (
	emptyStamp    = "0000-0000-000000000000"
	stampSize     = len(emptyStamp)
	messagePrefix = `{"order":{"id":"`
	messageSuffix = `","customer":{"name":"Ada Lovelace","address":{"street":"12 St James's Square","city":"London"}},` +
		`"items":[{"sku":"A-1815","quantity":2,"price":18.15}],"paid":true}}`
	messageDataSize = len(messagePrefix) + stampSize + len(messageSuffix)

	// messagePut is the bytes of a message with its id, stream, type and metadata; the floor's records are as large.
	messagePut    = 16 + 10 + len(messageType) + messageDataSize + 39
	messageRecord = messagePut - kvKeySize
)

// messageEpoch is the time in milliseconds that the ids of first messages have.
const messageEpoch = 1_700_000_000_000

// messageMetadata are those of every message.
var messageMetadata = []byte(`{"correlationStreamName":"transfer-42"}`)

// stamp tells a message from every other.
type stamp struct {
	stream, client int
	number         int64 // among the client's messages
}

// hash is what ackSums take for the message.
func (s stamp) hash() uint64 { return (uint64(s.number)<<12 | uint64(s.client)) * 0x9e3779b97f4a7c15 }

// put writes the stamp into data, which layMessage made.
func (s stamp) put(data []byte) {
	digits := data[len(messagePrefix):][:stampSize]
	putDigits(digits[:4], int64(s.stream))
	putDigits(digits[5:9], int64(s.client))
	putDigits(digits[10:], s.number)
}

func putDigits(to []byte, n int64) {
	for i := len(to) - 1; i >= 0; i-- {
		to[i] = byte('0' + n%10)
		n /= 10
	}
}

// layMessage returns the data of a message, ready for a stamp.
func layMessage() []byte {
	return []byte(messagePrefix + emptyStamp + messageSuffix)
}

// readStamp returns the stamp of data. The error wraps ErrWrong.
func readStamp(data []byte) (s stamp, err error) {
	if len(data) != messageDataSize || !bytes.HasPrefix(data, []byte(messagePrefix)) ||
		!bytes.HasSuffix(data, []byte(messageSuffix)) {
		return s, fmt.Errorf("%w: data %q", ErrWrong, data)
	}
	digits := data[len(messagePrefix):][:stampSize]
	number := func(d []byte) (n int64) {
		for _, c := range d {
			if c < '0' || c > '9' {
				err = fmt.Errorf("%w: data %q", ErrWrong, data)
			}
			n = 10*n + int64(c-'0')
		}

		return n
	}
	s = stamp{int(number(digits[:4])), int(number(digits[5:9])), number(digits[10:])}
	if digits[4] != '-' || digits[9] != '-' {
		err = fmt.Errorf("%w: data %q", ErrWrong, data)
	}

	return s, err
}

// messageStreams are the names of streams, which belong to these categories in turn.
type messageStreams struct {
	names []string
	index map[string]int
}

func newMessageStreams(n, categories int) messageStreams {
	s := messageStreams{index: map[string]int{}}
	for i := range n {
		name := categoryName(i%max(categories, 1)) + "-" + strconv.Itoa(i)
		s.names, s.index[name] = append(s.names, name), i
	}

	return s
}

// categoryName is that of category i. The first is the only one where there is one.
func categoryName(i int) string {
	if i == 0 {
		return messageCategory
	}

	return messageCategory + strconv.Itoa(i)
}

// messageWriter writes the messages of one client.
type messageWriter struct {
	*messageAcks
	store  contender.Messages
	client int
	number int64
	data   []byte
	random uint64
}

func (a *messageAcks) writer(store contender.Messages, seed uint64, client int) *messageWriter {
	return &messageWriter{messageAcks: a, store: store, client: client, data: layMessage(),
		random: rand.New(rand.NewPCG(seed, uint64(client))).Uint64()}
}

// write adds the client's next message to a stream, and returns its position.
func (w *messageWriter) write(ctx context.Context, stream int) (position int64, err error) {
	s := stamp{stream, w.client, w.number}
	w.number++
	s.put(w.data)
	position, err = w.store.Write(ctx, w.names[stream], w.id(s.number), messageType, w.data, messageMetadata, nil)
	if err == nil {
		w.put.Add(int64(messagePut))
		w.sums[stream].add(uint64(position)+1, s.hash())
	}

	return position, err
}

// id makes a UUID of version 7, in the order in which clients write: the number stands for the time.
func (w *messageWriter) id(number int64) string {
	const digits = "0123456789abcdef"
	high := uint64(messageEpoch+number)<<16 | 0x7000 | w.random&0xfff
	low := 2<<62 | uint64(w.client)<<48 | w.random>>16
	var text [36]byte
	at := len(text) - 1

	for i := range 32 {
		if i == 12 || i == 16 || i == 20 || i == 24 {
			text[at] = '-'
			at--
		}
		nibbles := low
		if i >= 16 {
			nibbles = high
		}
		text[at] = digits[nibbles>>(i%16*4)&0xf]
		at--
	}

	return string(text[:])
}

// messageAcks are what was acknowledged, stream by stream.
type messageAcks struct {
	messageStreams
	sums []*ackSums
	put  atomic.Int64 // bytes
}

// streamBuckets are enough for 262,144 messages of a stream.
const streamBuckets = 1 << 8

func newMessageAcks(streams int) *messageAcks {
	a := &messageAcks{messageStreams: newMessageStreams(streams, 1)}
	for range streams {
		a.sums = append(a.sums, newAckSums(streamBuckets))
	}

	return a
}

// verifier returns what compares all streams with what was acknowledged, or, where there is much, some of them.
func (a *messageAcks) verifier(t Task) func(contender.Messages) (items, checked int64, err error) {
	return func(store contender.Messages) (items, checked int64, err error) {
		for _, sums := range a.sums {
			items += sums.count.Load()
		}

		for _, i := range rand.New(rand.NewPCG(t.Seed, uint64(items))).Perm(len(a.sums)) {
			n, err := a.verifyStream(store, i, t.Seed)
			if checked += n; err != nil {
				return items, checked, fmt.Errorf("stream %s: %w", a.names[i], err)
			}
			if checked >= fullBuckets*bucketSize {
				break
			}
		}

		return items, checked, nil
	}
}

func (a *messageAcks) verifyStream(store contender.Messages, i int, seed uint64) (int64, error) {
	last := a.sums[i].count.Load()
	err := store.ReadStream(context.Background(), a.names[i], last, 1, func(position int64, _ []byte) error {
		return fmt.Errorf("%w: %d messages acknowledged, there is one at position %d", ErrWrong, last, position)
	})
	if err != nil {
		return 0, err
	}

	return a.sums[i].check(uint64(last), seed, func(first, last uint64) (hashes []uint64, err error) {
		least := int64(last - first + 1)
		err = a.readStream(store, i, int64(first-1), least, least, func(s stamp) { hashes = append(hashes, s.hash()) })

		return hashes, err
	})
}

// readStream reads messages of stream i from a position on, at least so many and at most limit, and checks that they
// are the stream's and in a row.
func (a *messageAcks) readStream(store contender.Messages, i int, from, least, limit int64, got func(stamp)) error {
	next := from
	err := store.ReadStream(context.Background(), a.names[i], from, int(limit), func(position int64, data []byte) error {
		s, err := readStamp(data)
		if err != nil {
			return err
		}
		if s.stream != i || position != next {
			return fmt.Errorf("%w: position %d of stream %s holds %+v where position %d was read", ErrWrong, position,
				a.names[i], s, next)
		}
		next++
		got(s)

		return nil
	})
	if n := next - from; err == nil && (n < least || n > limit) {
		err = fmt.Errorf("%w: %d messages of stream %s read from position %d on, of %d", ErrWrong, n, a.names[i], from, limit)
	}

	return err
}
