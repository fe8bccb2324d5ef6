package subjects

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/message"
)

// In one namespace, which is never deleted, messages are also removed and imported, and a subscription consumes them.
// The operations there run one after the other, each is one commit, and what each does follows from those before it. So
// the namespace holds what one of them has left.

const (
	keptSpace    = 4 // in messageSpaces
	keptOften    = 4 // one of so many operations is there
	keptCategory = "kept"
	keptStreams  = 3
	// The last message of anchor stays, and is not acknowledged: Claim, which waits for a message, always has one.
	anchor = 0
	// One stream has a retention: what removes from several is several commits.
	retained = 1
	// The shortest age: what counts is when a message was written, which is always longer ago.
	overAtOnce = time.Nanosecond
)

// keptKind is what an operation does in that namespace.
type keptKind int

const (
	keptWrite keptKind = iota + 1
	keptTruncate
	keptDelete
	keptRetention
	keptRetain
	keptImport
	keptConsume
)

// String says what it does.
func (k keptKind) String() string { return keptNames[k] }

var keptNames = []string{"", "writing", "truncating", "deleting a stream", "setting a retention", "retaining",
	"importing", "consuming"}

// keptKinds are drawn from.
var keptKinds = []keptKind{keptWrite, keptWrite, keptWrite, keptTruncate, keptTruncate, keptDelete, keptRetention,
	keptRetain, keptRetain, keptImport, keptImport, keptConsume, keptConsume}

// keptMessage is a message of the namespace.
type keptMessage struct {
	message.Message
	done bool // acknowledged
}

// keptState is what the namespace holds.
type keptState struct {
	p         script
	messages  []keptMessage // in the order of their global positions
	versions  [keptStreams]int64
	retention message.Retention
	last      int64 // the highest global position there ever was
}

// newKept is the state before any operation.
func newKept(p script) *keptState {
	s := &keptState{p: p}
	for i := range s.versions {
		s.versions[i] = message.NoStream
	}

	return s
}

// keptFold is what the operations up to n have left.
func keptFold(h *protocol.History, n uint64) *keptState {
	s := newKept(messageScript(h.Seed, h.Plain))
	s.each(h, n, func(uint64) {})

	return s
}

// each makes the steps of the operations up to last that a crash has not undone, and calls after behind each.
func (s *keptState) each(h *protocol.History, last uint64, after func(n uint64)) {
	for n := uint64(1); n <= last; n++ {
		skipped := func(span protocol.Span) bool { return span.From <= n && n <= span.To }
		if o := s.p.message(h.Generation(n), n); o.kept > 0 && !slices.ContainsFunc(h.Skipped, skipped) {
			s.step(&o)
			after(n)
		}
	}
}

// keptStream is the name of a stream of the namespace.
func keptStream(i int) string { return fmt.Sprintf("%s-%d", keptCategory, i) }

// keptCall is what an operation asks of the store, and what that must answer.
type keptCall struct {
	kind      keptKind
	stream    string
	messages  []message.Message // to write or import
	known     []message.Message // to import again
	before    int64
	retention message.Retention
	removed   int64
	due, acks []int64 // global positions
}

// step makes the step of an operation.
func (s *keptState) step(o *messageOp) keptCall {
	r := rand.New(rand.NewPCG(commits.Mix(s.p.Seed, 83), commits.Mix(uint64(o.gen), o.n)))

	// All that is drawn depends on the seed, the generation and the number, so the judge draws the same as the victim.
	i := r.IntN(keptStreams)

	// The anchor's stream is never deleted.
	if o.kept == keptDelete {
		i = max(i, retained)
	}

	c := keptCall{kind: o.kept, stream: keptStream(i)}
	switch o.kept {
	case keptWrite:
		for range 1 + r.IntN(3) {
			c.messages = append(c.messages, s.add(o, i, len(c.messages), s.last+1, s.versions[i]+1))
		}

	case keptTruncate, keptDelete:
		// It may lie before the first message or behind the last: such calls must remove none, or all.
		c.before = s.versions[i] - int64(r.IntN(6)) + 1
		if i == anchor {
			// The last message of the anchor stays.
			c.before = min(c.before, s.lastOf(i))
		}
		if o.kept == keptDelete {
			c.before = s.versions[i] + 1
		}
		c.removed = s.remove(i, func(m message.Message) bool { return m.Position < c.before })
	case keptRetention:
		s.retention = [...]message.Retention{{}, {MaxAge: overAtOnce}, {MaxCount: 2}, {MaxCount: 5}}[r.IntN(4)]
		c.retention, c.stream = s.retention, keptStream(retained)
	case keptRetain:
		last := s.lastOf(retained)
		c.removed = s.remove(retained, func(m message.Message) bool { // whatever time the message tells
			return s.retention.MaxCount > 0 && m.Position <= last-s.retention.MaxCount ||
				s.retention.MaxAge == overAtOnce
		})
	case keptImport:
		// They are there already, and importing them again must change nothing.
		for _, m := range s.messages[:min(2, len(s.messages))] {
			c.known = append(c.known, m.Message)
		}

		for k := range 2 + r.IntN(4) {
			i := r.IntN(keptStreams)
			c.messages = append(c.messages,
				s.add(o, i, k, s.last+1+int64(r.IntN(3)), s.versions[i]+1+int64(r.IntN(3))))
		}

		// An import may give its lines in any order; the positions say where they belong.
		r.Shuffle(len(c.messages), func(i, j int) { c.messages[i], c.messages[j] = c.messages[j], c.messages[i] })

	case keptConsume:
		held := slices.IndexFunc(s.messages, func(m keptMessage) bool {
			return m.Stream == keptStream(anchor) && m.Position == s.lastOf(anchor)
		})

		// Without a message in the anchor's stream, Claim would wait; then the operation does nothing.
		for at := range s.messages {
			m := &s.messages[at]
			if m.done || held < 0 {
				continue
			}
			c.due = append(c.due, m.Global)
			if at != held && r.IntN(4) > 0 {
				c.acks = append(c.acks, m.Global)
				m.done = true
			}
		}
	}

	return c
}

// add adds message k of an operation.
func (s *keptState) add(o *messageOp, stream, k int, global, position int64) message.Message {
	size := commits.HeaderSize + int(commits.Mix(o.n, uint64(k))%150)
	value := s.p.Value(nil, fmt.Sprintf("kept/%d", k), commits.Written{N: o.n, Gen: o.gen, Size: size})
	m := message.Message{Stream: keptStream(stream), Position: position, Global: global,
		ID:   fmt.Sprintf("%08x-0000-4000-8000-%06x%06x", o.gen, o.n, k),
		Type: "kept" + messageNamed, Time: time.Unix(0, int64(o.n)+1).UTC(),
		Data: fmt.Appendf(nil, `{"v": "%s"}`, base64.StdEncoding.EncodeToString(value))}
	if k%2 == 1 {
		m.Time = m.Time.AddDate(250, 0, 0) // which keeps it from no retention
	}
	s.last, s.versions[stream] = global, position
	s.messages = append(s.messages, keptMessage{Message: m})

	return m
}

// lastOf is the position of the last message that a stream has.
func (s *keptState) lastOf(stream int) int64 {
	last := message.NoStream
	for _, m := range s.messages {
		if m.Stream == keptStream(stream) {
			last = m.Position
		}
	}

	return last
}

// remove removes messages from the beginning of a stream, as long as which says so.
func (s *keptState) remove(stream int, which func(m message.Message) bool) (removed int64) {
	name, over := keptStream(stream), false

	// over says that the stream has a message that stays: removing goes from the beginning, so nothing behind it goes.
	s.messages = slices.DeleteFunc(s.messages, func(m keptMessage) bool {
		if m.Stream != name || over || !which(m.Message) {
			over = over || m.Stream == name
			return false
		}
		removed++

		return true
	})

	return removed
}

// entries tells what keptRead must find in this state.
func (s *keptState) entries() (list []commits.Found) {
	name := messageSpaces[keptSpace]
	anchored := s.lastOf(anchor) != message.NoStream

	// The order is that in which messageRead and keptRead tell what they find.
	for _, m := range s.messages {
		list = append(list, messageEntry(name, m.Message))
	}

	for i, version := range s.versions {
		list = append(list, commits.Found{Key: name + "/" + keptStream(i), Len: int(version) + 1})
	}

	list = append(list, retentionEntry(s.retention),
		commits.Found{Key: name + "/last", Len: int(s.last)})
	for _, m := range s.messages {
		if anchored && !m.done {
			list = append(list, dueEntry(m.Global))
		}
	}

	return list
}

// isKept reports whether an entry is of the namespace, and not what describes that.
func isKept(e commits.Found) bool {
	name, _ := strings.CutPrefix(e.Key, messageSpaces[keptSpace])
	return name != e.Key && name != ""
}

// retentionEntry tells the retention of the namespace's stream.
func retentionEntry(r message.Retention) commits.Found {
	return commits.Found{Key: fmt.Sprintf("%s/retention %v", messageSpaces[keptSpace], r)}
}

// dueEntry tells a message that the subscription has not acknowledged.
func dueEntry(global int64) commits.Found {
	return commits.Found{Key: messageSpaces[keptSpace] + "/due", Len: int(global)}
}

// keptRead tells what there is of the namespace but its messages.
func keptRead(ctx context.Context, n *message.Namespace, emit func(commits.Found)) error {
	anchored := false
	for i := range keptStreams {
		version, err := versionOf(ctx, n, keptStream(i))
		if err != nil {
			return err
		}
		emit(commits.Found{Key: n.ID() + "/" + keptStream(i), Len: int(version) + 1})
		anchored = anchored || i == anchor && version != message.NoStream
	}
	retention, err := n.Retention(ctx, keptStream(retained))
	if err != nil {
		return err
	}
	emit(retentionEntry(retention))
	emit(commits.Found{Key: n.ID() + "/last", Len: int(n.Last())})

	// Claim would wait for a message that never comes.
	if !anchored {
		return nil
	}

	// Nothing is acknowledged, so that looking changes nothing.
	return consume(ctx, n, func(due []message.Delivery) (acks []message.Delivery) {
		for _, d := range due {
			emit(dueEntry(d.Global))
		}

		return nil
	})
}

// consume opens the subscription, acknowledges what choose returns of all that is due, and closes it. The rest is given
// back, because leases outlive Close.
func consume(ctx context.Context, n *message.Namespace, choose func([]message.Delivery) []message.Delivery) error {
	const most = 1 << 20
	s, err := n.Subscribe(ctx, "consumer", message.SubscriptionOptions{Query: message.Query{Category: keptCategory},
		Lease: 1000 * time.Hour, MaxAttempts: most, Window: most})
	if err != nil {
		return fmt.Errorf("subscribing: %w", err)
	}
	due, err := s.Claim(ctx, most)
	if err == nil {
		acks := choose(due)
		if len(acks) > 0 {
			err = s.Ack(ctx, acks...)
		}

		acked := map[int64]bool{}
		for _, d := range acks {
			acked[d.Global] = true
		}
		rest := slices.DeleteFunc(due, func(d message.Delivery) bool { return acked[d.Global] })

		// Also after an error: what stays leased could not be claimed after the crash.
		err = cmp.Or(err, s.Return(ctx, rest...))
	}

	return errors.Join(err, s.Close())
}

// do asks it of the store, and returns what is wrong with the answer.
func (c *keptCall) do(ctx context.Context, n *message.Namespace) (wrong string, err error) {
	removed := int64(0)
	switch c.kind {
	case keptWrite:
		r, err := n.Write(ctx, c.stream, c.messages...)
		first := c.messages[0]
		if want := (message.Result{Position: first.Position, Global: first.Global}); err == nil && r != want {
			wrong = fmt.Sprintf("it is told %+v, not %+v", r, want)
		}

		return wrong, err
	case keptTruncate:
		removed, err = n.Truncate(ctx, c.stream, c.before)
	case keptDelete:
		removed, err = n.Delete(ctx, c.stream)
	case keptRetention:
		return "", n.SetRetention(ctx, c.stream, c.retention)
	case keptRetain:
		removed, err = n.Retain(ctx)
	case keptImport:
		var text bytes.Buffer
		for _, m := range slices.Concat(c.messages, c.known) {
			line := map[string]any{"id": m.ID, "stream": m.Stream, "type": m.Type, "pos": m.Position, "gpos": m.Global,
				"data": json.RawMessage(m.Data), "meta": nil, "time": m.Time}
			if err := writeLine(&text, line); err != nil {
				return "", err
			}
		}
		done, err := n.Import(ctx, &text, nil)
		if new, known := int64(len(c.messages)), int64(len(c.known)); err == nil && (done.Imported != new ||
			done.Known != known) {
			wrong = fmt.Sprintf("it is told %+v, where %d messages are new and %d known", done, new, known)
		}

		return wrong, err
	case keptConsume:
		if len(c.due) == 0 {
			return "", nil
		}
		err = consume(ctx, n, func(due []message.Delivery) (acks []message.Delivery) {
			var globals []int64
			for _, d := range due {
				if globals = append(globals, d.Global); slices.Contains(c.acks, d.Global) {
					acks = append(acks, d)
				}
			}
			if !slices.Equal(globals, c.due) {
				wrong = fmt.Sprintf("it gets the global positions %d, not %d", globals, c.due)
			}

			return acks
		})
	}
	if err == nil && removed != c.removed {
		wrong = fmt.Sprintf("%d messages are removed, not %d", removed, c.removed)
	}

	return wrong, err
}

// empty reports that nothing is to be changed, so that the store, which does not write then, promises nothing.
func (c *keptCall) empty() bool {
	switch c.kind {
	case keptTruncate, keptDelete, keptRetain:
		return c.removed == 0
	case keptConsume:
		return len(c.acks) == 0
	}

	return false
}

// writeLine writes a line of JSON that keeps the bytes of raw values.
func writeLine(to *bytes.Buffer, line map[string]any) error {
	// Marshal would write the raw value anew, with its spaces left out, and the bytes of a message must stay.
	data := line["data"].(json.RawMessage)
	delete(line, "data")
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	fmt.Fprintf(to, "%s,\"data\":%s}\n", bytes.TrimSuffix(text, []byte("}")), data)

	return nil
}

// keep does an operation in the namespace. What has become of one that failed is not known, so that none follows it.
func (v *messageVictim) keep(ctx context.Context, c *messageCall) (err error) {
	if v.keptFailed != nil {
		return v.keptFailed
	}

	// Later operations follow from this one, so after a failure none can be foretold.
	defer func() { v.keptFailed = err }()
	n, err := v.own(ctx, keptSpace)
	if err != nil {
		return err
	}

	// The state is folded from the history once, after a crash. From then on each operation moves it.
	if v.worker.kept == nil {
		v.worker.kept = keptFold(&protocol.History{Seed: v.spec.Seed, Segments: v.spec.Segments, Skipped: v.spec.Skipped},
			v.spec.From-1)
	}

	// The model moves before the store does. If the call fails, keptFailed keeps the two from drifting apart.
	call := v.worker.kept.step(&c.messageOp)
	v.spent.Add(int64(300 * (1 + len(call.messages))))
	c.nothing = call.empty()
	wrong, err := call.do(ctx, n)
	if err == nil && wrong != "" {
		v.wrong("%v: %s", c, wrong)
	}

	return err
}

// keptJudge finds the last operation that has left what is found in the namespace, and enters all up to it as there.
func (j *messageJudging) keptJudge(found []commits.Found) {
	messages := 0
	for _, e := range found {
		if e.N > 0 {
			messages++
		}
	}

	// Every state of the history is compared, so the last one that fits is found even where several fit.
	s, list := newKept(j.p), []uint64{}
	matches := len(found) == 0 || commits.Difference(found, s.entries()) == ""
	last, least := uint64(0), uint64(0) // the last one that is there, and that must be
	s.each(j.h, j.h.Issued, func(n uint64) {
		list = append(list, n)
		if j.must[n] || n <= j.h.Bound {
			least = n
		}

		// The number of messages is compared first: to make the entries of every state takes long.
		if len(s.messages) == messages && commits.Difference(found, s.entries()) == "" {
			matches, last = true, n
		}
	})
	if !matches {
		// It is compared with what must be there at least, which is the most telling difference.
		j.v.Find(commits.Wrong, "namespace %q is as no operation has left it: %s", messageSpaces[keptSpace],
			commits.Difference(found, keptFold(j.h, least).entries()))
		last = j.h.Issued // what is missing has been told
	}

	for _, n := range list {
		if n <= last {
			j.there[n] = true
		}
	}
	if matches {
		j.v.Last = max(j.v.Last, last)
	}
}
