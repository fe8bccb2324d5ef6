// Package message keeps messages in streams, over any engine with atomic batches, with the semantics of message-db.
// It is for event-sourced programs and for services that exchange messages.
//
//	store, err := message.Open(kv.On(engine), message.Options{}) // at Power unless told otherwise
//	orders, err := store.Namespace(ctx, message.Default)
//	r, err := orders.WriteAfter(ctx, "order-17", message.NoStream, message.Message{Type: "Placed", Data: data})
//	for m, err := range orders.Follow(ctx, message.Query{Category: "order"}) { ... }
//
// Package store/message/aggregate keeps aggregates in such streams: it loads, decides, writes and retries. Package
// store/projection makes read models of messages, updated exactly once.
//
// # Streams and categories
//
// A stream is made by the first message that is written to it. Its name is a category, or a category, a '-' and an
// id: "order-17" belongs to the category "order". A message has a position in its stream, from 0 and without gaps,
// and a global position in its namespace, from 1, without gaps and in the order in which writes were committed. The
// version of a stream is the position of its last message.
//
// A write can say which version it expects ([Namespace.WriteAfter]): of writers that expect the same one exactly one
// succeeds, and the others get a [*Conflict]. A write of messages with ids takes effect once, however often it is
// repeated. Writers to different streams do not wait for each other: they share the engine's syncs.
//
// [Namespace.In] makes a namespace a part of a transaction of its database, with other streams, other stores and the
// program's own keys: all of it is there after a crash, or nothing. [Subscription.In] acknowledges messages there.
//
// # What readers see
//
// A message is seen once it survives what its write named ([holdfast.WithLevel], or the store's level), never earlier,
// and in order: a reader or follower that has seen one global position has seen all that come before it. Each namespace
// is a log of package event, which this package adds streams and categories to.
//
// # Namespaces
//
// Namespaces isolate everything in them: ids, streams, positions. A store can have any number of them; an unused one
// costs one key. [Default] is always there.
//
// # Imports and removal
//
// [Namespace.Import] keeps the positions that messages had elsewhere, so positions can have gaps. They also have gaps
// where messages were removed: [Namespace.Truncate], [Namespace.Delete]. The next write goes behind the highest
// position.
//
// The bytes are drawn in docs/format-message.md.
package message

import (
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast/internal/names"
	"github.com/holdfastdb/holdfast/store/event"
)

// Limits in bytes. A message, with its stream and id, takes at most [holdfast.MaxValueSize], and one write at most
// [holdfast.MaxBatchSize]; an engine may allow less, see its Capabilities.
const (
	MaxStreamSize = 1024              // of a stream's name
	MaxNameSize   = 64                // of a store's name, and of a namespace's id
	MaxTypeSize   = event.MaxTypeSize // of a message's type, and of the description and the metadata of a namespace
)

// MaxDepth is how deep the objects and arrays of data and metadata are at most; an object without any in it is 1 deep.
// So whatever they are sent or exported in, the parsers of most languages read it. Import takes messages that are
// deeper, up to 9,900, which were written before there was this limit.
const MaxDepth = 1000

// importDepth is how deep data may be in what is exported and imported as JSON; encoding/json reads 10,000 in all. What
// was written before there was a limit, and is deeper, is exported and imported as bytes.
const importDepth = 9_900

// Default is the namespace that every store has.
const Default = "default"

// NoStream is the version of a stream that has never had a message.
const NoStream int64 = -1

// Message is one message. Of one that is to be written, Type and Data count, and ID, Metadata and Time if they are
// set.
type Message struct {
	// ID names the message in its namespace, for idempotency. It is a UUID: 32 hexadecimal digits as 8-4-4-4-12. Whether
	// they are capital letters makes no difference, and is kept. A new message without an id gets a UUID of version 7.
	ID string
	// Stream is the stream's name.
	Stream string
	// Position is the message's place in its stream, from 0, and Global that in its namespace, from 1.
	Position, Global int64
	// Type is what happened, in at most MaxTypeSize bytes.
	Type string
	// Data and Metadata are the payload: JSON objects at most MaxDepth deep, which are kept as they are, byte for byte.
	// Metadata may be nil.
	Data, Metadata []byte
	// Time is when it happened, as UTC, between the years 1678 and 2262. A write fills in the present if it is zero.
	// Retention does not go by it.
	Time time.Time
}

// The classes of errors in addition to those of package holdfast.
var (
	// ErrConflict: the stream does not have the expected version; errors.As finds a [*Conflict].
	ErrConflict = errors.New("holdfast: conflict")
	// ErrNoNamespace: there is no namespace of that id, or it has been deleted.
	ErrNoNamespace = errors.New("holdfast: no such namespace")
	// ErrNamespaceExists: there is a namespace of that id already.
	ErrNamespaceExists = errors.New("holdfast: namespace exists")
	// ErrBadName: a malformed name of a stream, category or namespace.
	ErrBadName = errors.New("holdfast: bad name")
	// ErrBadMessage: a write of nothing, or a message that cannot be stored as it is.
	ErrBadMessage = errors.New("holdfast: bad message")
	// ErrIDTaken: a message with that id is in another stream, or has another type or data, for which errors.As
	// finds a [*Known], or a write of several knows some of the ids and not others.
	ErrIDTaken = errors.New("holdfast: message id taken")
	// ErrPositionTaken: an import names a position that another message has.
	ErrPositionTaken = errors.New("holdfast: position taken")
	// ErrEnded: the stream has been ended by Tombstone.
	ErrEnded = errors.New("holdfast: stream ended")
	// ErrAhead: a position that the namespace or stream has not reached, in this history: see [Query]. It is
	// [event.ErrAhead].
	ErrAhead = event.ErrAhead
)

// Conflict says what a write expected and found. The version found may be that of a message that is not durable yet.
type Conflict struct {
	Stream           string
	Expected, Actual int64 // versions, NoStream if there is none
}

// Error says it in words.
func (c *Conflict) Error() string {
	return fmt.Sprintf("expected version %d of stream %q, it is %d", c.Expected, c.Stream, c.Actual)
}

// Known says where the messages of a stream are whose ids a write has, with another content.
type Known struct {
	Stream string
	Result
}

// Error says it in words.
func (k *Known) Error() string {
	return fmt.Sprintf("the ids are those of messages from %d on in stream %q", k.Position, k.Stream)
}

// Category returns the category that a stream belongs to: its name up to the first '-'.
func Category(stream string) string {
	category, _, _ := strings.Cut(stream, "-")
	return category
}

// ID returns what follows the first '-' in a stream's name, "" if there is none.
func ID(stream string) string {
	_, id, _ := strings.Cut(stream, "-")
	return id
}

// CardinalID returns the id in a stream's name, up to the first '+': streams of different categories, or parts, about
// the same thing have it in common.
func CardinalID(stream string) string {
	id, _, _ := strings.Cut(ID(stream), "+")
	return id
}

// Group is one member of a consumer group: each stream of a category belongs to exactly one of them, by its cardinal
// id, and a stream without an id to none. The zero Group is no group.
type Group struct{ Member, Size int }

// Has reports whether a stream belongs to the member. That is the case if the first 8 bytes of the md5 of its cardinal
// id, as an int64, made positive, modulo Size, are Member, as in message-db.
func (g Group) Has(stream string) bool {
	if g.Size == 0 {
		return true
	}
	id := CardinalID(stream)
	if id == "" {
		return false
	}
	return hash(id)%uint64(g.Size) == uint64(g.Member)
}

func hash(id string) uint64 {
	sum := md5.Sum([]byte(id))
	n := int64(binary.BigEndian.Uint64(sum[:]))
	if n < 0 {
		n = -n // the smallest stays as it is, and is right as an unsigned number
	}
	return uint64(n)
}

// checkName says what is wrong with the name of a stream or category.
func checkName(name string) string {
	if name == "" {
		return "it is empty"
	}
	if what := names.Wrong(name, MaxStreamSize); what != "" {
		return "the name " + what
	}
	return ""
}

// checkNamespace says what is wrong with the id of a namespace.
func checkNamespace(id string) string {
	if id == "" || len(id) > MaxNameSize {
		return fmt.Sprintf("it has %d bytes, 1 to %d are allowed", len(id), MaxNameSize)
	}
	for i := range len(id) {
		c := id[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '-' && c != '_') {
			return "it may have letters, digits, '-' and '_', and begins with a letter or digit"
		}
	}
	return ""
}
