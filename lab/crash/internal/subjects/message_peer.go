package subjects

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/store/message"
)

// A message store of a peer does less than ours: each operation writes one message, with an id, to a stream of what is
// called the default namespace here. What it reads is a message's data and where that is; the judge compares no more.

// plainOp makes of an operation what a peer can do.
func plainOp(o messageOp) messageOp {
	if len(o.writes) == 0 {
		o.writes = []messageWrite{{stream: messageCategories[0]}}
	}
	w := o.writes[0]
	w.size = 1

	return messageOp{n: o.n, gen: o.gen, ids: true, writes: []messageWrite{w}}
}

// plainMessage is what a peer tells of a message.
func plainMessage(m message.Message) message.Message {
	return message.Message{Stream: m.Stream, Position: m.Position, Global: m.Global, Data: m.Data}
}

// writePeer writes the message of an operation, and checks what it is told.
func (v *messageVictim) writePeer(ctx context.Context, c *messageCall) error {
	m := v.script.messages(&c.messageOp)[0]
	put := func(m message.Message, expected *int64) (int64, error) {
		return v.peer.Write(ctx, m.Stream, m.ID, m.Type, m.Data, m.Metadata, expected)
	}
	var expected *int64

	// The version is not asked for but guessed, and the conflict says what it is.
	if c.writes[0].after {
		guess := message.NoStream // a conflict tells
		expected = &guess
	}

	var position int64
	for {
		var err error
		if position, err = put(m, expected); err == nil {
			break
		}
		var conflict *message.Conflict
		if !errors.As(err, &conflict) {
			return err
		}

		// A version never falls, so trying again would not end.
		if conflict.Actual <= conflict.Expected {
			v.wrong("%v expected version %d of stream %q, and was told of version %d, an earlier one", c, conflict.Expected,
				m.Stream, conflict.Actual)
			return nil
		}
		expected = &conflict.Actual
	}
	v.spent.Add(int64(len(m.Data) + 200))
	if expected != nil && position != *expected+1 {
		v.wrong("%v expected version %d of stream %q, and was told position %d", c, *expected, m.Stream, position)
	}

	before := position - 1

	// As in verify, each kind of check has its share.
	switch c.n % 8 {
	case 0:
		if again, err := put(m, &before); err != nil {
			return fmt.Errorf("repeated: %w", err)
		} else if again != position {
			v.wrong("%v is repeated, and told position %d; the first time it was %d", c, again, position)
		}
	case 1:
		found := false
		err := v.peer.ReadStream(ctx, m.Stream, position, 1, func(at int64, data []byte) error {
			e := messageEntry("", message.Message{Data: data})
			found = at == position && e.N == c.n && e.Gen == c.gen

			return nil
		})
		if err != nil {
			return fmt.Errorf("reading what is written: %w", err)
		}
		if !found {
			v.wrong("%v was told position %d, and is not read there", c, position)
		}
	case 2:
		// Another id, so that it is no repeat, and a version that is no longer the last.
		other := m
		other.ID = m.ID[:14] + "5" + m.ID[15:]
		if _, err := put(other, &before); !errors.Is(err, message.ErrConflict) {
			if err != nil {
				return fmt.Errorf("a conflict: %w", err)
			}
			v.wrong("%v was told position %d, and then one with version %d succeeds", c, position, before)
		}
	}

	return nil
}

// followPeer tells what a follower of all messages is shown.
func (v *messageVictim) followPeer(ctx context.Context) error {
	err := v.peer.Follow(ctx, "", v.shown+1, func(global int64, data []byte) bool {
		if global <= v.shown {
			v.wrong("a follower was shown global position %d after %d", global, v.shown)
		}
		v.shown = global
		v.tellShown(messageEntry("", message.Message{Data: data}).N, global)

		return ctx.Err() == nil
	})
	if ctx.Err() != nil || v.refused(err) {
		return nil
	}

	return fmt.Errorf("following: %w", err)
}

// messagePosition is where a message is in its stream.
type messagePosition struct {
	stream   string
	position int64
}

// peerReader reads a peer's store as a namespace.
type peerReader struct {
	contender.Messages
	globals map[messagePosition]int64 // as the last query of all messages has told
}

// read is all of a query. What a peer does not tell, the position where it reads categories and the global one where it
// reads streams, is what it must be.
func (r *peerReader) read(ctx context.Context, q message.Query, see func(m message.Message)) error {
	if q.Stream != "" {
		return r.ReadStream(ctx, q.Stream, 0, 0, func(position int64, data []byte) error {
			// The query of all messages comes first, and has noted where each is.
			global := r.globals[messagePosition{q.Stream, position}]
			see(message.Message{Stream: q.Stream, Position: position, Global: global, Data: data})

			return nil
		})
	}

	next := map[string]int64{}

	return r.ReadCategory(ctx, q.Category, 0, 0, q.Group.Member, q.Group.Size,
		func(global int64, stream string, data []byte) error {
			position := next[stream]
			next[stream]++
			if q.Category == "" {
				r.globals[messagePosition{stream, position}] = global
			}
			see(message.Message{Stream: stream, Position: position, Global: global, Data: data})

			return nil
		})
}
