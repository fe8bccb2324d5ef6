package contender

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/store/message"
)

// Messages is a message store of a peer: streams with versions, in categories, as package message of this module has
// them. All methods may be called from many goroutines at once.
type Messages interface {
	// Write adds a message behind the stream's last one, and returns its position in the stream once it survives what
	// the store's level names. With expected, the stream's version must be that, -1 if it has no messages; else the
	// error is a [*message.Conflict]. If the stream has a message of that id already, Write returns its position and
	// writes nothing. Data and metadata are JSON objects, metadata may be nil.
	Write(ctx context.Context, stream, id, typ string, data, metadata []byte, expected *int64) (position int64, err error)
	// ReadStream yields messages of a stream in order, beginning at position from; at most limit, all if that is 0. It
	// ends with the error of yield, if that is one. The bytes are valid until yield returns.
	ReadStream(ctx context.Context, stream string, from int64, limit int,
		yield func(position int64, data []byte) error) error
	// ReadCategory does the same with the messages of a category, all if that is empty, beginning at global position
	// from. If size is not 0, it yields those that belong to that member of a consumer group of the size, and counts
	// only these.
	ReadCategory(ctx context.Context, category string, from int64, limit int, member, size int,
		yield func(global int64, stream string, data []byte) error) error
	// Follow yields the messages of a category, all if that is empty, beginning at global position from, and goes on
	// with new ones as they come: in order, each once, none left out, and none that does not survive yet what the
	// level names. It ends when yield returns false, and with the context.
	Follow(ctx context.Context, category string, from int64, yield func(global int64, data []byte) bool) error
	// Close ends the store's server and everything that uses it. All that was acknowledged survives.
	Close() error
}

// MessagesEngine is an engine that is a message store and nothing else.
type MessagesEngine interface {
	holdfast.Engine
	Messages
}

// MessageEngines returns the peers that are message stores, in the order in which they are shown. The engines that they
// open are each a [MessagesEngine], which gives only the level that it was opened at. What each level really gets is in
// the peer's description; one that this machine cannot run refuses every level and says why, and its Open fails with
// ErrUnavailable.
func MessageEngines() []all.Entry { return slices.Clone(messagePeers) }

var messagePeers = []all.Entry{
	{Name: Postgres, Open: OpenPostgres, Describe: DescribePostgres},
	{Name: NATS, Open: OpenNATS, Describe: DescribeNATS},
}

// checkMessage says what is wrong with a message, as far as a peer cannot tell without harm to others.
func checkMessage(name, stream, typ string, data, metadata []byte) error {
	detail := ""
	switch {
	case stream == "" || !plain(stream):
		detail = fmt.Sprintf("the stream's name %q is empty, or not UTF-8 without control characters", stream)
	case !plain(typ):
		detail = fmt.Sprintf("the type %q is not UTF-8 without control characters", typ)
	case !json.Valid(data) || !utf8.Valid(data):
		detail = "the data is not JSON"
	case metadata != nil && (!json.Valid(metadata) || !utf8.Valid(metadata)):
		detail = "the metadata is not JSON"
	default:
		return nil
	}

	return &holdfast.Error{Op: "write", Engine: name, Class: message.ErrBadMessage, Detail: detail}
}

func plain(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) }
