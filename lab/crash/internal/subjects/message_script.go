package subjects

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/store/message"
)

// messageSpaces are the namespaces. The ordinary ones but the first are deleted now and then, and made again by the
// next write. The last one is that of message_kept.go.
var messageSpaces = []string{message.Default, "a", "b", "with-a-longer-name_2", "kept"}

const ordinarySpaces = keptSpace

var messageCategories = []string{"order", "order:command", "user", "o"}

const (
	messageIDs     = 12        // of each category there are so many streams, and one without an id
	messageLargest = 100 << 10 // bytes of data
	deleteOften    = 60        // of so many operations one deletes a namespace
)

// messageOp is one operation on a message store: the deletion of a namespace, a write, or what kept says.
type messageOp struct {
	n       uint64
	gen     uint32
	space   int // in messageSpaces
	deletes bool
	kept    keptKind // not 0 in the namespace of message_kept.go

	writes []messageWrite // to different streams
	ids    bool           // all messages have ids
}

type messageWrite struct {
	stream string
	size   int  // messages
	after  bool // with the version that the stream has
}

// messageScript is the script of a store, ours or a peer's.
func messageScript(seed uint64, plain bool) script {
	p := scriptOf(seed)
	p.plain = plain

	return p
}

// message makes operation n of a generation.
func (p script) message(gen uint32, n uint64) messageOp {
	o := p.ownMessage(gen, n)
	switch {
	case p.plain:
		return plainOp(o)
	case p.served && o.kept > 0:
		return servedOp(o)
	}

	return o
}

// ownMessage makes operation n of a generation on our own store.
func (p script) ownMessage(gen uint32, n uint64) messageOp {
	r := p.Random(gen, n)
	o := messageOp{n: n, gen: gen, space: r.IntN(ordinarySpaces+2) % ordinarySpaces, ids: n%3 == 0}
	if commits.Mix(p.Seed, uint64(gen), n, 81)%keptOften == 0 {
		o.space, o.ids, o.kept = keptSpace, false, keptKinds[r.IntN(len(keptKinds))]
		return o
	}
	if r.IntN(deleteOften) == 0 {
		o.space, o.deletes = 1+r.IntN(ordinarySpaces-1), true
		return o
	}
	streams := 1
	if r.IntN(3) == 0 {
		streams = 2 + r.IntN(3)
	}

	long := commits.Mix(p.Seed, 80)%2 == 0 // so many messages that the store keeps their counts
	used := map[string]bool{}
	for len(o.writes) < streams {
		w := messageWrite{stream: messageCategories[r.IntN(len(messageCategories))], size: 1, after: r.IntN(2) == 0}
		if id := r.IntN(messageIDs + 1); id > 0 {
			w.stream = fmt.Sprintf("%s-%d", w.stream, id)
		}

		switch what := r.IntN(12); {
		case what == 0 || long && what < 5:
			w.size = 2 + r.IntN(50)
		case what < 4:
			w.size = 2 + r.IntN(2)
		}
		if !used[w.stream] {
			used[w.stream] = true
			o.writes = append(o.writes, w)
		}
	}

	return o
}

// String says what the operation does, for findings.
func (o *messageOp) String() string {
	if o.deletes {
		return fmt.Sprintf("operation %d, deleting namespace %q,", o.n, messageSpaces[o.space])
	}
	if o.kept > 0 {
		return fmt.Sprintf("operation %d, %v in namespace %q,", o.n, o.kept, messageSpaces[o.space])
	}

	return fmt.Sprintf("operation %d, a write to %d streams of namespace %q,", o.n, len(o.writes),
		messageSpaces[o.space])
}

// messages makes the messages of an operation, in the order of their global positions.
func (p script) messages(o *messageOp) (list []message.Message) {
	r := p.Random(o.gen, ^o.n)
	for _, w := range o.writes {
		for range w.size {
			k := len(list)
			size := commits.HeaderSize + r.IntN(150)
			if r.IntN(100) == 0 {
				size += r.IntN(messageLargest)
			}
			key := fmt.Sprintf("message/%d/%s", k, w.stream)
			value := p.Value(nil, key, commits.Written{N: o.n, Gen: o.gen, Size: size})
			m := message.Message{Stream: w.stream, Type: fmt.Sprintf("type-%d", k%3), Time: time.Unix(0, int64(o.n)+1).UTC(),
				Data: fmt.Appendf(nil, ` {"v": "%s"}`, base64.StdEncoding.EncodeToString(value))}
			if p.served {
				m.Data = bytes.ReplaceAll(m.Data, []byte(" "), nil) // as requests have it
			}
			if o.ids {
				m.Type += messageNamed
				m.ID = fmt.Sprintf("%08x-0000-4000-8000-%06x%06x", o.gen, o.n, k)
			}
			if r.IntN(2) == 0 {
				m.Metadata = fmt.Appendf(nil, `{"correlationStreamName":%q}`, messageCategories[r.IntN(4)]+"-1")
			}
			list = append(list, m)
		}
	}

	return list
}

// messageNamed ends the type of a message that was written with an id.
const messageNamed = "-named"

// messageValue is the value in the data of a message, nil if there is none.
func messageValue(m message.Message) []byte {
	var data struct{ V []byte }
	if json.Unmarshal(m.Data, &data) != nil {
		return nil
	}

	return data.V
}

// messageEntry describes a message that is found; its digest covers all that was written.
func messageEntry(space string, m message.Message) commits.Found {
	found := commits.NewFound(fmt.Sprintf("%s %d %d %s", space, m.Global, m.Position, m.Stream), messageValue(m))
	id := m.ID
	if !strings.HasSuffix(m.Type, messageNamed) {
		id = "" // the store has made one
	}
	found.Len = len(m.Data)
	text := fmt.Appendf(nil, "%q %q %d %d %d ", m.Type, id, m.Time.UnixNano(), len(m.Metadata), len(m.Data))
	found.Sum = commits.DigestOf(append(append(text, m.Metadata...), m.Data...))

	return found
}

// messagePlace takes the key of an entry apart.
func messagePlace(key string) (space string, global, position int64, stream string, ok bool) {
	n, _ := fmt.Sscanf(key, "%s %d %d %s", &space, &global, &position, &stream)
	return space, global, position, stream, n == 4
}
