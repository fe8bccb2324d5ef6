package subjects

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/message"
)

// Message is package store/message: concurrent writes to streams of several namespaces, of which some are deleted
// meanwhile, followers that tell what they were shown, and repeats; and in one namespace removals, imports and a
// subscription.
//
// Which of two writes that run concurrently comes first is the store's choice. So acknowledgements are of their own
// operation alone, and of the operations that a crash has interrupted any may be there.
var Message = Subject{
	Name: "message", About: "the message store: streams, versions, atomic writes, ids, namespaces, followers, removals, " +
		"imports, a subscription",
	begin: func(h *protocol.History, engine string, peer bool) {
		h.Concurrent, h.Plain = true, peer && engine != contender.Study4
	},
	work: messageWork, read: messageRead, judge: messageJudge,
}

// messageVictim works on an open store.
type messageVictim struct {
	concurrent
	store  *message.Store     // nil if it is a peer's
	db     *kv.DB             // that the store is in
	peer   contender.Messages // of a peer
	server *servedMessages    // behind a server
	spaces []messageSpace     // covered by state

	keptFailed error // in the namespace of message_kept.go, whose operations follow each other; covered by state
}

// messageSpace is what is under way in a namespace. A deletion waits for the writes that were begun before it, and
// those begun later wait for the deletion: so what is left follows from the numbers. In the namespace of
// message_kept.go each operation waits for the one before in the same way.
type messageSpace struct {
	deleted chan struct{}   // closed when the last deletion is done, nil if there was none
	writes  *sync.WaitGroup // begun since
	highest int64           // the highest global position acknowledged since
}

// messageCall is an operation under way.
type messageCall struct {
	messageOp
	after   chan struct{}   // the deletion that comes first, nil if there is none
	before  *sync.WaitGroup // the writes that a deletion waits for, or what a write belongs to
	deleted chan struct{}   // closed when this deletion is done
	highest int64           // all global positions of a write are above
	nothing bool            // there was nothing to delete or change, which promises nothing either
	named   *namedLevel     // what a server's answers name; nil without one
}

// newMessageVictim works on a store in a database, or on a peer's, which has none.
func newMessageVictim(w *worker, db *kv.DB, s *message.Store, given holdfast.Level) *messageVictim {
	v := messageVictimOf(w, messageScript(w.spec.Seed, s == nil), s, given)
	v.db = db
	return v
}

// messageVictimOf is newMessageVictim with a script, for a store behind a server too.
func messageVictimOf(w *worker, p script, s *message.Store, given holdfast.Level) *messageVictim {
	v := &messageVictim{concurrent: newConcurrent(w, p, given), store: s}
	for range messageSpaces {
		v.spaces = append(v.spaces, messageSpace{writes: &sync.WaitGroup{}})
	}

	return v
}

// messageWork writes through several writers while followers tell what they are shown, until stop is closed.
func messageWork(w *worker, e holdfast.Engine, stop <-chan struct{}) (finally error) {
	given := e.Capabilities().Promise(w.spec.Level).Given
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var group, followers sync.WaitGroup
	var v *messageVictim
	if peer, ok := e.(contender.MessagesEngine); ok {
		// A peer has one namespace, and is followed as a whole.
		v = newMessageVictim(w, nil, nil, given)
		v.peer = peer
		w.start(&followers, func() error { return v.followPeer(ctx) })
	} else {
		db, s, err := openMessages(e, w.spec.Level)
		if err != nil {
			return w.failure(err, "opening the store")
		}

		// A store on an engine that was poisoned cannot close cleanly, where failures are made.
		defer func() { finally = errors.Join(finally, w.failure(s.Close(), "closing the store")) }()
		v = newMessageVictim(w, db, s, given)
		for i := range ordinarySpaces {
			w.start(&followers, func() error { return v.follow(ctx, i) })
		}
	}

	for range w.spec.Writers {
		// Each writer has one operation under way, so that as many run at once as there are writers.
		w.start(&group, func() error {
			for !stopped(stop) {
				w.pace()
				c := v.begin()
				err := v.do(ctx, c)
				v.finish(c, err)

				// An operation that was refused is finished all the same: others wait for it.
				if err != nil && !w.refused(err) {
					return fmt.Errorf("%v: %w", c, err)
				}
			}

			return nil
		})
	}

	// The followers go on until no writer is left: they may be shown what was written last.
	group.Wait()
	cancel()
	followers.Wait()

	return nil
}

// openMessages opens the store, and the database that it is in.
func openMessages(e holdfast.Engine, level holdfast.Level) (*kv.DB, *message.Store, error) {
	db, err := kv.Open(e, kv.Options{Level: level})
	if err != nil {
		return nil, nil, err
	}
	s, err := message.Open(db, message.Options{Level: level, RetainEvery: -1})
	return db, s, err
}

// begin makes and tells the next operation.
func (v *messageVictim) begin() *messageCall {
	v.state.Lock()
	defer v.state.Unlock()
	v.begun++
	c := &messageCall{messageOp: v.script.message(v.spec.Gen, v.begun)}

	// A deletion waits for the writes that were begun before it, and those that are begun after it wait for the deletion:
	// each operation knows in which life of the namespace it is.
	space := &v.spaces[c.space]
	c.after, c.before = space.deleted, space.writes

	// A new life of the namespace begins with it. What is begun later waits for deleted, and counts in the new writes.
	if c.deletes || c.kept > 0 {
		c.deleted = make(chan struct{})
		*space = messageSpace{deleted: c.deleted, writes: &sync.WaitGroup{}}
	} else {
		c.before.Add(1)
		c.highest = space.highest
	}

	// It is told under the lock: numbers reach the supervisor in their order.
	v.report.Send(protocol.TellIssued, c.n, 0)

	return c
}

// finish ends an operation, and tells that it is acknowledged.
func (v *messageVictim) finish(c *messageCall, err error) {
	if err == nil && !c.nothing {
		// The acknowledgement is told before others may go on: what they read then counts as later.
		v.acknowledged(c.n, c.named)
	}
	v.state.Lock()

	// What an acknowledged write was told holds for later writes of the same life of the namespace only.
	if c.deleted != nil {
		close(c.deleted)
	} else {
		c.before.Done()
		if space := &v.spaces[c.space]; space.writes == c.before {
			space.highest = max(space.highest, c.highest)
		}
	}
	v.state.Unlock()
	v.concurrent.finish(c.n, err)
}

// do waits for what must come first, and does the operation.
func (v *messageVictim) do(ctx context.Context, c *messageCall) error {
	if c.after != nil {
		<-c.after
	}

	switch {
	case v.peer != nil:
		return v.writePeer(ctx, c)
	case c.deletes:
		return v.remove(ctx, c)
	case v.server != nil && c.space == keptSpace:
		return v.append(ctx, c)
	case c.kept > 0:
		return v.keep(ctx, c)
	}

	return v.write(ctx, c)
}

// remove deletes a namespace.
func (v *messageVictim) remove(ctx context.Context, c *messageCall) error {
	c.before.Wait()
	id := messageSpaces[c.space]
	_, err := v.spaceStore().Delete(ctx, id)

	// Another deletion may have come first. Then this one changed nothing, and the store has promised nothing of it.
	if c.nothing = errors.Is(err, message.ErrNoNamespace); err != nil && !c.nothing {
		return err
	}
	v.spent.Add(100)

	// Nobody makes the namespace again before this operation is finished, so it must not be there.
	if _, err = v.spaceStore().Info(ctx, id); err == nil {
		v.wrong("namespace %q was deleted, and then described", id)
	} else if errors.Is(err, message.ErrNoNamespace) {
		err = nil
	}

	return err
}

// namespaceOptions are those of every namespace but the default one.
func namespaceOptions(id string) message.NamespaceOptions {
	return message.NamespaceOptions{ID: id, Description: "made for " + id, Metadata: []byte(`{"crash":true}`)}
}

// spaceStore is where namespaces are deleted and described.
func (v *messageVictim) spaceStore() interface {
	Delete(ctx context.Context, id string) (int64, error)
	Info(ctx context.Context, id string) (message.Info, error)
} {
	if v.server != nil {
		return v.server
	}

	return v.store
}

// messageSpaceOf is a namespace, of a store or behind a server.
type messageSpaceOf interface {
	Write(ctx context.Context, stream string, messages ...message.Message) (message.Result, error)
	WriteAfter(ctx context.Context, stream string, expected int64, messages ...message.Message) (message.Result, error)
	// writeAll writes to several streams in one transaction.
	writeAll(ctx context.Context, writes []streamWrite) ([]message.Result, error)
	Version(ctx context.Context, stream string) (version int64, ok bool, err error)
	Read(ctx context.Context, q message.Query) iter.Seq2[message.Message, error]
	Follow(ctx context.Context, q message.Query) iter.Seq2[message.Message, error]
}

// streamWrite is what is written to one stream.
type streamWrite struct {
	stream   string
	expected *int64 // the version that it must have; nil for any
	messages []message.Message
}

// ownSpace is a namespace of a store in a database.
type ownSpace struct {
	*message.Namespace
	db *kv.DB
}

// writeAll writes to several streams in one transaction of the database.
func (n ownSpace) writeAll(ctx context.Context, writes []streamWrite) ([]message.Result, error) {
	results := make([]message.Result, len(writes))
	err := n.db.Update(ctx, func(tx *kv.Tx) (err error) {
		for i, w := range writes {
			if w.expected != nil {
				results[i], err = n.In(tx).WriteAfter(w.stream, *w.expected, w.messages...)
			} else {
				results[i], err = n.In(tx).Write(w.stream, w.messages...)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return results, err
}

// namespace opens a namespace, and makes it if it is not there.
func (v *messageVictim) namespace(ctx context.Context, i int) (messageSpaceOf, error) {
	if v.server != nil {
		return v.server.namespace(ctx, i)
	}
	n, err := v.own(ctx, i)
	return ownSpace{n, v.db}, err
}

// own is namespace of a store.
func (v *messageVictim) own(ctx context.Context, i int) (*message.Namespace, error) {
	for {
		n, err := v.store.Namespace(ctx, messageSpaces[i])
		if !errors.Is(err, message.ErrNoNamespace) {
			return n, err
		}

		// Another writer may make it at the same time.
		_, err = v.store.Create(ctx, namespaceOptions(messageSpaces[i]))
		if err != nil && !errors.Is(err, message.ErrNamespaceExists) {
			return nil, err
		}
	}
}

// write writes the messages of an operation, and checks what it is told.
func (v *messageVictim) write(ctx context.Context, c *messageCall) error {
	n, err := v.namespace(ctx, c.space)
	if err != nil {
		return err
	}

	// A write with an expected version is tried again after a conflict, which says the version that there is. It can only
	// have grown.
	writes := c.arguments(v.script.messages(&c.messageOp))
	versions := map[string]int64{} // a conflict tells them
	var results []message.Result
	for {
		for i := range writes {
			stream := writes[i].stream
			if !c.writes[i].after {
				continue
			}

			// The version is asked for once. From then on conflicts tell it, which saves a read and tries what they say.
			version, known := versions[stream]
			if !known {
				if version, err = versionOf(ctx, n, stream); err != nil {
					return err
				}
			}
			writes[i].expected = &version
		}
		if results, err = writeTo(ctx, n, writes); err == nil {
			break
		}
		var conflict *message.Conflict
		if !errors.As(err, &conflict) {
			return err
		}

		// A version never falls, so a conflict that tells of an earlier one is wrong, and trying again would not end.
		if conflict.Actual <= conflict.Expected {
			v.wrong("%v expected version %d of stream %q, and was told of version %d, an earlier one", c, conflict.Expected,
				conflict.Stream, conflict.Actual)
			return nil
		}
		versions[conflict.Stream] = conflict.Actual
	}

	// What had been acknowledged before this operation began must lie before it.
	first := results[0].Global
	if first <= c.highest {
		v.wrong("%v is told to be at global position %d, but %d had been acknowledged before it was begun", c, first,
			c.highest)
	}

	// The messages of an operation lie one behind the other, and each stream goes on from its version.
	next := first
	for i, r := range results {
		w := writes[i]
		if r.Repeated || r.Global != next || w.expected != nil && r.Position != *w.expected+1 {
			v.wrong("%v, of which write %d expects version %v, is told %+v", c, i, w.expected, results)
		}
		next += int64(len(w.messages))
		for _, m := range w.messages {
			v.spent.Add(int64(len(m.Data) + 200))
		}
	}
	c.highest = next - 1

	// Told before the acknowledgement, so that the supervisor knows the place of all that it counts as done.
	v.report.Send(protocol.TellPlaced, c.n, uint64(first))

	return v.verify(ctx, n, c, writes, results)
}

// writeTo writes with the function that is made for it.
func writeTo(ctx context.Context, n messageSpaceOf, writes []streamWrite) ([]message.Result, error) {
	if len(writes) > 1 {
		return n.writeAll(ctx, writes)
	}
	var (
		r   message.Result
		err error
	)
	if w := writes[0]; w.expected != nil {
		r, err = n.WriteAfter(ctx, w.stream, *w.expected, w.messages...)
	} else {
		r, err = n.Write(ctx, w.stream, w.messages...)
	}

	return []message.Result{r}, err
}

// verify reads what some operations have written, repeats some, and tries what must conflict.
func (v *messageVictim) verify(
	ctx context.Context, n messageSpaceOf, c *messageCall, writes []streamWrite, results []message.Result,
) error {
	// What is checked depends on the number of the operation, so that each kind has its share.
	w, r := writes[len(writes)-1], results[len(writes)-1]
	switch c.n % 8 {
	case 0, 3, 6:
		if !c.ids {
			return nil
		}

		// With the same ids nothing is written, and the answer is that of the first time.
		again, err := writeTo(ctx, n, writes)
		if err != nil {
			return fmt.Errorf("repeated: %w", err)
		}

		for i := range again {
			results[i].Repeated = true
		}
		if !slices.Equal(again, results) {
			v.wrong("%v is repeated, and told %+v; the first time it was %+v", c, again, results)
		}
	case 1:
		for m, err := range n.Read(ctx, message.Query{Stream: w.stream, From: r.Position, Limit: 1}) {
			// An end that lies before what was acknowledged is found below, as nothing is read.
			if errors.Is(err, message.ErrAhead) {
				break
			}
			if err != nil {
				return fmt.Errorf("reading what is written: %w", err)
			}
			if e := messageEntry("", m); e.N != c.n || e.Gen != c.gen || m.Global != r.Global || m.Position != r.Position {
				v.wrong("%v was told %+v, and %v is read there", c, r, e)
			}

			return nil
		}
		v.wrong("%v was told %+v, and nothing is read there", c, r)
	case 2:
		version, err := versionOf(ctx, n, w.stream)
		if err != nil {
			return fmt.Errorf("version: %w", err)
		}

		// Other writers may have written behind it, so the version may be higher, but not lower.
		if version < r.Position+int64(len(w.messages))-1 {
			v.wrong("%v was told %+v, and then the version is %d", c, r, version)
		}
		old := r.Position - 1

		// A version that is not the last any more must be refused.
		_, err = n.WriteAfter(ctx, w.stream, old, message.Message{Type: "conflict", Data: []byte("{}")})
		if !errors.Is(err, message.ErrConflict) {
			if err != nil {
				return fmt.Errorf("a conflict: %w", err)
			}
			v.wrong("%v was told %+v, and then one with version %d succeeds", c, r, old)
		}
	}

	return nil
}

// arguments groups the messages of an operation by stream.
func (o *messageOp) arguments(messages []message.Message) (writes []streamWrite) {
	for _, w := range o.writes {
		writes = append(writes, streamWrite{stream: w.stream, messages: messages[:w.size]})
		messages = messages[w.size:]
	}

	return writes
}

// versionOf is the version of a stream, NoStream if there is none.
func versionOf(ctx context.Context, n interface {
	Version(ctx context.Context, stream string) (version int64, ok bool, err error)
}, stream string) (int64, error) {
	version, ok, err := n.Version(ctx, stream)
	if !ok {
		version = message.NoStream
	}

	return version, err
}

// follow tells what it is shown of a namespace: of the first one everything, of each other a category or all,
// until that is deleted and again.
func (v *messageVictim) follow(ctx context.Context, i int) error {
	// Every second namespace is followed as a whole, the others by category.
	q := message.Query{Category: messageCategories[i-i%2]}
	if i%2 == 0 {
		q.Category = ""
	}

	// A follower of a namespace that is deleted gets an error, and follows the one that comes after it.
	for ctx.Err() == nil {
		n, err := v.store.Namespace(ctx, messageSpaces[i])
		if err == nil {
			// Each namespace that comes is followed from where it ends now.
			q.From = n.Last() + 1
			err = v.followed(ctx, ownSpace{n, v.db}, q)
		}

		switch {
		case ctx.Err() != nil || v.spec.Failing && v.refused(err):
			return nil
		case i == 0 || !errors.Is(err, message.ErrNoNamespace):
			return fmt.Errorf("following namespace %q: %w", messageSpaces[i], err)
		}
		v.rest(ctx.Done(), 5*time.Millisecond)
	}

	return nil
}

// followed returns the error that ends the followed namespace.
func (v *messageVictim) followed(ctx context.Context, n messageSpaceOf, q message.Query) error {
	last, shown := q.From-1, uint64(0)
	for m, err := range n.Follow(ctx, q) {
		if err != nil {
			return err
		}
		if m.Global <= last || q.Category == "" && m.Global != last+1 {
			v.wrong("a follower was shown global position %d after %d", m.Global, last)
		}
		if message.Category(m.Stream) != q.Category && q.Category != "" {
			v.wrong("a follower of category %q was shown a message of stream %q", q.Category, m.Stream)
		}
		last = m.Global

		// Of what is followed by category the place of the first message is not known to be the operation's.
		if e := messageEntry("", m); e.N != shown { // the first message of an operation, if it follows all
			if shown = e.N; q.Category == "" {
				v.tellShown(shown, m.Global)
			} else {
				v.report.Send(protocol.TellShown, shown, uint64(v.given))
			}
		}
	}

	return nil
}

// tellShown tells that an operation was shown at a global position.
func (v *messageVictim) tellShown(n uint64, global int64) {
	v.report.Send(protocol.TellPlaced, n, uint64(global))
	v.report.Send(protocol.TellShown, n, uint64(v.given))
}

// messageRepeats is how many operations with ids are repeated in each namespace.
const messageRepeats = 8

// messageRead tells all namespaces with their messages, and compares every way of reading them.
func messageRead(c *check, e holdfast.Engine, emit func(commits.Found)) error {
	ctx := context.Background()
	if peer, ok := e.(contender.MessagesEngine); ok {
		emit(commits.Found{Key: message.Default})
		r := &messageReader{check: c, peer: &peerReader{peer, map[messagePosition]int64{}}, id: message.Default}

		return r.all(ctx, emit)
	}

	// Opening it is a test too: it recovers whatever the crash has left.
	db, s, err := openMessages(e, c.spec.Level)
	if err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	read := func() error {
		infos, err := s.Namespaces(ctx, "", 0)
		if err != nil {
			return err
		}

		for _, info := range infos {
			n, err := s.Namespace(ctx, info.ID)
			if err != nil {
				return fmt.Errorf("namespace %q: %w", info.ID, err)
			}

			// The namespace is told before its messages, so that an empty one is seen as well.
			emit(messageSpaceEntry(info))
			r := &messageReader{check: c, n: ownSpace{n, db}, id: info.ID}
			err = r.all(ctx, emit)
			if err == nil && info.ID == messageSpaces[keptSpace] && c.spec.Subject != serveName {
				err = keptRead(ctx, n, emit)
			}
			if err != nil {
				return fmt.Errorf("namespace %q: %w", info.ID, err)
			}
		}

		return nil
	}

	return errors.Join(read(), s.Close())
}

// messageSpaceEntry describes a namespace, but for the time when it was made. Its key is its id.
func messageSpaceEntry(info message.Info) commits.Found {
	text := fmt.Appendf(nil, "%q %q", info.Description, info.Metadata)
	return commits.Found{Key: info.ID, Len: len(text), Sum: commits.DigestOf(text)}
}

// messageReader reads a namespace in every way there is, and tells where they disagree.
type messageReader struct {
	*check
	n    ownSpace    // empty if it is a peer's
	peer *peerReader // else nil
	id   string
}

// wrong tells of what is wrong, with the namespace.
func (r *messageReader) wrong(format string, args ...any) {
	r.check.wrong("namespace %q: "+format, append([]any{r.id}, args...)...)
}

// read is all of a query.
func (r *messageReader) read(ctx context.Context, q message.Query, see func(m message.Message)) error {
	if r.peer != nil {
		return r.peer.read(ctx, q, see)
	}

	for m, err := range r.n.Read(ctx, q) {
		if err != nil {
			return fmt.Errorf("reading %+v: %w", q, err)
		}
		see(m)
	}

	return nil
}

// all reads everything, and compares what each index gives with the order of global positions.
func (r *messageReader) all(ctx context.Context, emit func(commits.Found)) error {
	// First everything in the order of global positions, from which it follows what each index must give.
	streams, categories := map[string][]commits.Found{}, map[string][]commits.Found{}
	counts := map[string]message.Counts{}
	versions := map[string]int64{}
	ids := map[string]int64{}
	var list []commits.Found

	// Only where messages are removed or imported may numbers be left out.
	last, removes := int64(0), r.id == messageSpaces[keptSpace] // and imports with gaps
	if err := r.read(ctx, message.Query{}, func(m message.Message) {
		category, e := message.Category(m.Stream), messageEntry(r.id, m)
		if m.Global <= last || r.peer == nil && !removes && m.Global != last+1 {
			r.wrong("global position %d is read behind %d", m.Global, last)
		}
		last = m.Global
		before, ok := versions[m.Stream]
		if !ok {
			before = message.NoStream
		}
		if m.Position <= before || !removes && m.Position != before+1 {
			r.wrong("stream %q has position %d at global position %d, behind %d", m.Stream, m.Position, m.Global, before)
		}
		versions[m.Stream] = m.Position

		// A peer does not tell ids.
		if at, twice := ids[m.ID]; (twice || m.ID == "") && r.peer == nil {
			r.wrong("the id %q of global position %d is that of %d", m.ID, m.Global, at)
		}
		ids[m.ID] = m.Global
		list = append(list, e)

		// Under "" everything is counted.
		for _, category := range []string{"", category} {
			count := counts[category]
			count.Messages++
			if streams[m.Stream] == nil {
				count.Streams++
			}
			counts[category] = count
		}
		streams[m.Stream] = append(streams[m.Stream], e)
		categories[category] = append(categories[category], e)
		emit(e)
	}); err != nil {
		return err
	}
	if r.peer == nil && !removes && r.n.Last() != last {
		r.wrong("it says that it ends with global position %d, and %d is the last that is read", r.n.Last(), last)
	}

	for _, stream := range slices.Sorted(maps.Keys(streams)) {
		// Then each index by itself must give the same messages, in the same order.
		if err := r.same(ctx, message.Query{Stream: stream}, streams[stream]); err != nil {
			return err
		}
		if r.peer != nil {
			continue
		}
		version, err := versionOf(ctx, r.n, stream)
		if want := versions[stream]; err != nil || version != want {
			r.wrong("stream %q has version %d, %v, and its last message has position %d", stream, version, err, want)
		}
	}

	for _, category := range slices.Sorted(maps.Keys(categories)) {
		if err := r.same(ctx, message.Query{Category: category}, categories[category]); err != nil {
			return err
		}

		// Each message of a stream with an id belongs to exactly one member of a group.
		members, named := 0, 0
		for _, e := range categories[category] {
			if _, _, _, stream, _ := messagePlace(e.Key); message.CardinalID(stream) != "" {
				named++
			}
		}

		for member := range 3 {
			group := message.Group{Member: member, Size: 3}
			if err := r.read(ctx, message.Query{Category: category, Group: group}, func(message.Message) { members++ }); err !=
				nil {
				return err
			}
		}
		if members != named {
			r.wrong("the members of a group get %d messages of category %q, which has %d of streams with ids", members,
				category, named)
		}
	}
	if r.peer == nil {
		if err := r.listings(ctx, counts, versions); err != nil {
			return err
		}
	}

	return r.repeats(ctx, list)
}

// same compares what a query gives.
func (r *messageReader) same(ctx context.Context, q message.Query, want []commits.Found) error {
	var got []commits.Found
	err := r.read(ctx, q, func(m message.Message) { got = append(got, messageEntry(r.id, m)) })
	if d := commits.Difference(got, want); err == nil && d != "" {
		r.wrong("stream %q, category %q and all messages disagree: %s", q.Stream, q.Category, d)
	}

	return err
}

// listings compares what is counted and listed.
func (r *messageReader) listings(
	ctx context.Context, counts map[string]message.Counts, versions map[string]int64,
) error {
	for category, want := range counts {
		if got, err := r.n.Count(ctx, category); err != nil || got != want {
			r.wrong("category %q is counted as %+v, %v, and has %+v", category, got, err, want)
		}
	}

	var want []message.CategoryInfo
	for _, category := range slices.Sorted(maps.Keys(counts)) {
		if category != "" {
			want = append(want, message.CategoryInfo{Category: category, Counts: counts[category]})
		}
	}
	categories, err := r.n.Categories(ctx)
	if err != nil {
		return err
	}
	if !slices.Equal(categories, want) {
		r.wrong("the categories are listed as %+v, and are %+v", categories, want)
	}
	infos, err := r.n.Streams(ctx, "", "", 0)
	if err != nil {
		return err
	}

	var listed []string
	for _, info := range infos {
		listed = append(listed, info.Stream)
		if want := versions[info.Stream]; info.Version != want {
			r.wrong("stream %q is listed with version %d, and has version %d", info.Stream, info.Version, want)
		}
	}
	if all := slices.Sorted(maps.Keys(versions)); !slices.Equal(listed, all) {
		r.wrong("the streams are listed as %q, and are %q", listed, all)
	}

	return nil
}

// repeats writes the last operations with ids again, which writes nothing.
func (r *messageReader) repeats(ctx context.Context, list []commits.Found) error {
	p, tried := messageScript(r.spec.Seed, r.peer != nil), 0
	p.served = r.spec.Subject == serveName

	for i := len(list) - 1; i >= 0 && tried < messageRepeats; i-- {
		e := list[i]

		// The list has the messages of an operation one behind the other; the first of them stands for it.
		if i > 0 && list[i-1].N == e.N || e.N == 0 {
			continue // not its first message
		}
		o := p.message(e.Gen, e.N)
		messages := p.messages(&o)
		if !o.ids || o.deletes || i+len(messages) > len(list) || !strings.HasPrefix(e.Key, messageSpaces[o.space]+" ") {
			continue // what is wrong with it is the judge's to say
		}
		tried++
		_, global, position, _, _ := messagePlace(e.Key)
		if m := messages[0]; r.peer != nil {
			// The version that it was written behind: it is not the last any more, and only the id makes the repeat succeed.
			before := position - 1
			again, err := r.peer.Write(ctx, m.Stream, m.ID, m.Type, m.Data, m.Metadata, &before)
			if err != nil || again != position {
				r.wrong("%v at position %d is repeated, and told %d, %v", &o, position, again, err)
			}
			continue
		}
		results, err := writeTo(ctx, r.n, o.arguments(messages))
		if err != nil || !results[0].Repeated || results[0].Global != global {
			r.wrong("%v at global position %d is repeated, and told %+v, %v", &o, global, results, err)
		}
	}

	return nil
}
