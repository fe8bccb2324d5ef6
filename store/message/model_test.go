package message_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/message"
)

// model is what a namespace should hold, in plain Go: its messages, in the order of their global positions.
type model struct {
	messages []message.Message
	ended    map[string]bool
	versions map[string]int64
	next     int64
}

func newModel() *model {
	return &model{versions: map[string]int64{}, ended: map[string]bool{}, next: 1}
}

func (m *model) version(stream string) int64 {
	if v, ok := m.versions[stream]; ok {
		return v
	}
	return message.NoStream
}

func (m *model) add(stream string, in message.Message) {
	in.Stream, in.Position, in.Global = stream, m.version(stream)+1, m.next
	m.versions[stream]++
	if in.Position == 0 {
		m.versions[stream] = 0
	}
	m.next++
	m.messages = append(m.messages, in)
}

// remove removes the messages of a stream below a position, and returns how many there were.
func (m *model) remove(stream string, before int64) int64 {
	was := len(m.messages)
	m.messages = slices.DeleteFunc(m.messages, func(in message.Message) bool {
		return in.Stream == stream && in.Position < before
	})
	return int64(was - len(m.messages))
}

// read is what a query should give.
func (m *model) read(q message.Query) (want []message.Message) {
	messages := m.messages
	if q.Stream != "" {
		messages = slices.Clone(messages)
		slices.SortStableFunc(messages, func(a, b message.Message) int { return int(a.Position - b.Position) })
	}
	for _, in := range messages {
		at := in.Global
		if q.Stream != "" {
			at = in.Position
		}
		correlation := ""
		if i := bytes.Index(in.Metadata, []byte(`Name":"`)); i >= 0 {
			correlation = string(in.Metadata[i+7:])
			correlation = message.Category(correlation[:strings.IndexByte(correlation, '"')])
		}
		if at < q.From || q.Stream != "" && in.Stream != q.Stream ||
			q.Category != "" && message.Category(in.Stream) != q.Category ||
			len(q.Types) > 0 && !slices.Contains(q.Types, in.Type) || !strings.HasPrefix(in.Stream, q.Prefix) ||
			!q.Group.Has(in.Stream) || q.Correlation != "" && q.Correlation != correlation {
			continue
		}
		if want = append(want, in); len(want) == q.Limit {
			break
		}
	}
	return want
}

func same(got, want message.Message) error {
	if got.ID != want.ID && want.ID != "" || got.Stream != want.Stream || got.Position != want.Position ||
		got.Global != want.Global || got.Type != want.Type || !bytes.Equal(got.Data, want.Data) ||
		!bytes.Equal(got.Metadata, want.Metadata) || got.ID == "" || got.Time.IsZero() {
		return fmt.Errorf("got %+v, want %+v", got, want)
	}
	return nil
}

func (m *model) check(t *testing.T, n *message.Namespace, q message.Query) {
	t.Helper()
	next := m.next
	if q.Stream != "" {
		next = m.version(q.Stream) + 1
	}
	if q.From > next {
		for _, err := range n.Read(ctx, q) {
			if !errors.Is(err, message.ErrAhead) {
				t.Fatalf("%+v, where the next one is %d: %v", q, next, err)
			}
			return
		}
		t.Fatalf("%+v, where the next one is %d, is not ahead", q, next)
	}
	got, want := read(t, n, q), m.read(q)
	if len(got) != len(want) {
		t.Fatalf("%+v: %d messages, want %d", q, len(got), len(want))
	}
	for i := range got {
		if err := same(got[i], want[i]); err != nil {
			t.Fatalf("%+v: message %d: %v", q, i, err)
		}
	}
}

// checkLists compares what is listed.
func (m *model) checkLists(t *testing.T, n *message.Namespace) {
	t.Helper()
	last, counts, streams := map[string]message.Message{}, map[string]message.Counts{}, map[string]bool{}
	for _, in := range m.messages {
		if old, ok := last[in.Stream]; !ok || old.Position < in.Position {
			last[in.Stream] = in
		}
		c := counts[message.Category(in.Stream)]
		c.Messages++
		if !streams[in.Stream] {
			c.Streams++
		}
		streams[in.Stream] = true
		counts[message.Category(in.Stream)] = c
	}
	var total message.Counts
	categories, err := n.Categories(ctx)
	if err != nil || len(categories) != len(counts) {
		t.Fatalf("%+v, want %+v, %v", categories, counts, err)
	}
	for i, c := range categories {
		if c.Counts != counts[c.Category] || i > 0 && c.Category <= categories[i-1].Category {
			t.Fatalf("%+v, want %+v", categories, counts)
		}
		total.Messages += c.Messages
		total.Streams += c.Streams
		if one, err := n.Count(ctx, c.Category); err != nil || one != c.Counts {
			t.Fatal(one, c, err)
		}
	}
	if c, err := n.Count(ctx, ""); err != nil || c != total {
		t.Fatal(c, total, err)
	}
	for _, prefix := range []string{"", "a", "b-", "none"} {
		var want []string
		for stream := range maps.Keys(last) {
			if strings.HasPrefix(stream, prefix) {
				want = append(want, stream)
			}
		}
		slices.Sort(want)
		var got []string
		for after := ""; ; {
			page, err := n.Streams(ctx, prefix, after, 3)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range page {
				if s.Version != last[s.Stream].Position || s.Last.IsZero() {
					t.Fatalf("%+v, want %+v", s, last[s.Stream])
				}
				got = append(got, s.Stream)
			}
			if len(page) < 3 {
				break
			}
			after = page[2].Stream
		}
		if !slices.Equal(got, want) {
			t.Fatalf("streams with %q: %q, want %q", prefix, got, want)
		}
	}
	for stream, version := range m.versions {
		if v, ok, err := n.Version(ctx, stream); err != nil || !ok || v != version {
			t.Fatal(stream, v, version, ok, err)
		}
		in, err := n.LastMessage(ctx, stream, "")
		if want, ok := last[stream]; !ok {
			storetest.WantError(t, err, holdfast.ErrNotFound)
		} else if err != nil || same(in, want) != nil {
			t.Fatal(err, same(in, want))
		}
	}
}

// doImport imports messages at random places, some of which are there already.
func (m *model) doImport(t *testing.T, n *message.Namespace, r *random) {
	t.Helper()
	var text bytes.Buffer
	var batch []message.Message
	for range 1 + r.IntN(8) {
		in := r.message()
		in.ID, in.Stream, in.Time = r.id(), r.stream(), time.Unix(int64(r.ids), 5).UTC()
		in.Position, in.Global = r.Int64N(20), 1+r.Int64N(m.next)
		if r.IntN(3) == 0 {
			in.Global = m.next + r.Int64N(100)
		}
		if !slices.ContainsFunc(append(batch, m.messages...), func(o message.Message) bool {
			return o.Global == in.Global || o.Stream == in.Stream && o.Position == in.Position
		}) {
			batch = append(batch, in)
		}
	}
	want := message.ImportResult{Imported: int64(len(batch))}
	lines := slices.Clone(batch)
	if len(m.messages) > 0 { // one that is known
		for in, err := range n.Read(ctx, message.Query{From: m.messages[r.IntN(len(m.messages))].Global, Limit: 1}) {
			if err != nil {
				t.Fatal(err)
			}
			lines, want.Known = append(lines, in), 1
		}
	}
	for _, in := range lines {
		meta := in.Metadata
		if meta == nil {
			meta = []byte("null")
		}
		fmt.Fprintf(&text, `{"id":%q,"stream":%q,"type":%q,"pos":%d,"gpos":%d,"data":%s,"meta":%s,"time":%q}`+"\n\n", in.ID,
			in.Stream, in.Type, in.Position, in.Global, in.Data, meta, in.Time.Format(time.RFC3339Nano))
		want.Last = max(want.Last, in.Global)
	}
	if got, err := n.Import(ctx, &text, nil); err != nil || got != want {
		t.Fatalf("%+v, want %+v, %v", got, want, err)
	}
	for _, in := range batch {
		m.messages = append(m.messages, in)
		m.next = max(m.next, in.Global+1)
		m.versions[in.Stream] = max(m.version(in.Stream), in.Position)
	}
	slices.SortFunc(m.messages, func(a, b message.Message) int { return int(a.Global - b.Global) })
}

// random makes random writes and queries.
type random struct {
	*rand.Rand
	ids int
}

var someStreams = []string{
	"a", "a-1", "a-2", "a-2+x", "a-", "b-1", "b-2", "b:command-1", "b", "c-dash-es", "ä-ü", "a-1-2", "z-9", "a ",
	"a.b-1",
}

func (r *random) stream() string { return someStreams[r.IntN(len(someStreams))] }

func (r *random) message() message.Message {
	m := message.Message{Type: fmt.Sprint("type", r.IntN(3)), Data: fmt.Appendf(nil, `{ "n":%d }`, r.IntN(1e9))}
	if r.IntN(30) == 0 {
		m.Data = fmt.Appendf(nil, `{"large":%q}`, strings.Repeat("x", 9000))
	}
	if r.IntN(2) == 0 {
		m.Metadata = fmt.Appendf(nil, `{"correlationStreamName":%q}`, r.stream())
	}
	if r.IntN(3) == 0 {
		m.ID = r.id()
	}
	return m
}

func (r *random) id() string {
	r.ids++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", r.ids)
}

func (r *random) query(next int64) (q message.Query) {
	q.From = r.Int64N(next + 2)
	switch r.IntN(4) {
	case 0, 1:
		q.Stream, q.From = r.stream(), r.Int64N(10)
	case 2:
		q.Category = message.Category(r.stream())
	}
	if r.IntN(3) == 0 {
		q.Limit = 1 + r.IntN(10)
	}
	if r.IntN(4) == 0 {
		q.Types = []string{"type0", "type2"}[:1+r.IntN(2)]
	}
	if r.IntN(4) == 0 {
		q.Prefix = []string{"a", "a-", "b:c"}[r.IntN(3)]
	}
	if r.IntN(4) == 0 {
		q.Correlation = message.Category(r.stream())
	}
	if q.Stream == "" && r.IntN(3) == 0 {
		q.Group = message.Group{Member: r.IntN(2), Size: 2}
	}
	return q
}

// Versions are right of streams that are not remembered, however little is visible of what was written.
func TestFewHeads(t *testing.T) {
	defer message.SetHeads(2)()
	storetest.FakeEngines(t, func(t *testing.T, st *storetest.FakeEngine) {
		testModel(t, &target{Engine: st}, message.Options{Level: holdfast.Memory})

		s := openStore(t, st, message.Options{Name: "flight", Level: holdfast.Memory})
		defer closeStore(t, s)
		n := namespace(t, s, message.Default)
		const streams = 12
		st.Hold()
		before := st.Applied
		var calls []chan error
		for i := range 3 * streams { // none of them is durable
			calls = append(calls, storetest.Async(func() error {
				r, err := n.Write(ctx, fmt.Sprint("a-", i%streams), msg("t"))
				if r.Position != int64(i/streams) {
					t.Errorf("write %d is at %d", i, r.Position)
				}
				return err
			}))
			st.AwaitApplied(before + uint64(i) + 1)
		}
		st.Release(-1)
		storetest.Finished(t, nil, calls...)
		for i := range streams {
			if got := positions(t, n, fmt.Sprint("a-", i)); !slices.Equal(got, []int64{0, 1, 2}) {
				t.Errorf("stream %d has %d", i, got)
			}
		}
	})
}

// testModel writes and reads at random, and compares with a model.
func testModel(t *testing.T, tg *target, o message.Options) {
	s := openStore(t, tg.Engine, o)
	defer func() { closeStore(t, s) }()
	r := &random{Rand: rand.New(rand.NewPCG(3, 4))}
	models := map[string]*model{message.Default: newModel(), "other": newModel()}
	if _, err := s.Create(ctx, message.NamespaceOptions{ID: "other"}); err != nil {
		t.Fatal(err)
	}
	ids := []string{message.Default, message.Default, "other"}
	for step := range 300 {
		id := ids[r.IntN(len(ids))]
		n, m := namespace(t, s, id), models[id]
		switch r.IntN(16) {
		case 14, 15:
			m.doImport(t, n, r)
		case 12, 13:
			stream, before := r.stream(), r.Int64N(12)
			edit := func() (int64, error) { return n.Truncate(ctx, stream, before) }
			switch r.IntN(6) {
			case 0:
				before = 1 << 40
				edit = func() (int64, error) { return n.Delete(ctx, stream) }
			case 1:
				before = 1 << 40
				stream = fmt.Sprint("ended-", r.IntN(4))
				if !m.ended[stream] {
					write(t, n, stream, r.message())
					m.add(stream, message.Message{})
				}
				m.ended[stream] = true
				edit = func() (int64, error) { return n.Tombstone(ctx, stream) }
			}
			want := m.remove(stream, before)
			if removed, err := edit(); removed != want || err != nil {
				t.Fatalf("step %d: %d of %d removed from %q below %d: %v", step, removed, want, stream, before, err)
			}
			for stream := range m.ended {
				_, err := n.Write(ctx, stream, r.message())
				storetest.WantError(t, err, message.ErrEnded)
			}
		case 0:
			closeStore(t, s)
			s = openStore(t, tg.Engine, o)
		case 1, 2:
			m.check(t, n, r.query(m.next))
		case 3, 4, 5: // several streams, some with a version
			var writes []streamWrite
			conflict := false
			for _, i := range r.Perm(len(someStreams))[:1+r.IntN(4)] {
				w := streamWrite{Stream: someStreams[i]}
				for range 1 + r.IntN(3) {
					w.Messages = append(w.Messages, r.message())
				}
				if r.IntN(2) == 0 {
					v := m.version(w.Stream)
					if r.IntN(6) == 0 {
						v += 1 - 2*r.Int64N(2)
						conflict = true
					}
					w.Expected = &v
				}
				writes = append(writes, w)
			}
			results, err := writeAll(ctx, n, writes...)
			if conflict {
				storetest.WantError(t, err, message.ErrConflict)
				var c *message.Conflict
				if !errors.As(err, &c) || c.Actual != m.version(c.Stream) || c.Expected == c.Actual {
					t.Fatalf("%+v", c)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, w := range writes {
				if want := (message.Result{Position: m.version(w.Stream) + 1, Global: m.next}); results[i] != want {
					t.Fatalf("step %d: %+v, want %+v", step, results[i], want)
				}
				for _, in := range w.Messages {
					m.add(w.Stream, in)
				}
			}
		default:
			stream := r.stream()
			in := r.message()
			if r.IntN(40) == 0 { // many, which are kept together
				var many []message.Message
				for range 150 {
					many = append(many, r.message())
				}
				write(t, n, stream, many...)
				for _, in := range many {
					m.add(stream, in)
				}
				continue
			}
			got := write(t, n, stream, in)
			if want := (message.Result{Position: m.version(stream) + 1, Global: m.next}); got != want {
				t.Fatalf("step %d: %+v, want %+v", step, got, want)
			}
			m.add(stream, in)
			if in.ID != "" {
				again := write(t, n, stream, in)
				got.Repeated = true
				if again != got {
					t.Fatalf("again %+v, was %+v", again, got)
				}
				_, err := n.Write(ctx, stream+"other", in)
				storetest.WantError(t, err, message.ErrIDTaken)
			}
		}
		if step%50 == 0 {
			m.checkLists(t, namespace(t, s, id))
		}
	}
	for id, m := range models {
		n := namespace(t, s, id)
		m.checkLists(t, n)
		for range 100 {
			m.check(t, n, r.query(m.next))
		}
	}
}

// scanned is an engine that does something before the next scan, or after the next reverse one has begun, or before
// the second read from now, once armed.
type scanned struct {
	holdfast.Engine
	before, then, second func()
	reads                int
}

func (s *scanned) Get(dst, key []byte) ([]byte, error) {
	if second := s.second; second != nil {
		if s.reads++; s.reads == 2 {
			s.second = nil
			second()
		}
	}
	return s.Engine.Get(dst, key)
}

func (s *scanned) Scan(r holdfast.Range) holdfast.Iterator {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	it := s.Engine.Scan(r)
	if then := s.then; then != nil && r.Reverse {
		s.then = nil
		then()
	}
	return it
}

// A version that was read before others wrote is not believed, though theirs is not remembered any more.
func TestHeadReadTooEarly(t *testing.T) {
	defer message.SetHeads(2)()
	eng := &scanned{Engine: mem.New()}
	s := openStore(t, eng, message.Options{Level: holdfast.Memory})
	defer closeStore(t, s)
	n := namespace(t, s, message.Default)
	for _, edit := range []bool{false, true} {
		stream := fmt.Sprint("a-", edit)
		eng.then = func() {
			write(t, n, stream, msg("first"))
			if edit {
				if _, err := n.Delete(ctx, stream); err != nil {
					t.Error(err)
				}
			}
			for i := range 10 {
				write(t, n, fmt.Sprint("other-", i), msg("t"))
			}
		}
		if r := write(t, n, stream, msg("second")); r.Position != 1 {
			t.Errorf("edit %v: %+v", edit, r)
		}
	}
}

// A version does not go back while the messages that it was read from are removed.
func TestVersionOfWhatIsRemovedMeanwhile(t *testing.T) {
	eng := &scanned{Engine: mem.New()}
	s := openStore(t, eng, message.Options{Level: holdfast.Memory})
	defer closeStore(t, s)
	n := namespace(t, s, message.Default)
	write(t, n, "a-1", msg("t"), msg("t"))
	eng.before = func() {
		if _, err := n.Truncate(ctx, "a-1", 2); err != nil {
			t.Error(err)
		}
	}
	if version, ok, err := n.Version(ctx, "a-1"); version != 1 || !ok || err != nil {
		t.Errorf("version %d, %v, %v", version, ok, err)
	}
}

// A write whose id was known is new if the message is removed before it is read, also if another is imported where it
// was.
func TestRepeatOfWhatIsRemovedMeanwhile(t *testing.T) {
	eng := &scanned{Engine: mem.New()}
	s := openStore(t, eng, message.Options{Level: holdfast.Memory})
	defer closeStore(t, s)
	n := namespace(t, s, message.Default)
	m := msg("t")
	m.ID = "00000000-0000-4000-9000-000000000001"
	write(t, n, "a-1", m)
	write(t, n, "b-1", msg("t"))
	eng.second = func() {
		if _, err := n.Truncate(ctx, "a-1", 1); err != nil {
			t.Error(err)
		}
		if err := importLines(n, lineOf(1, "c-1", 7, 1)); err != nil {
			t.Error(err)
		}
	}
	// The first read finds the id, the second one its message.
	if r, err := n.Write(ctx, "a-1", m); err != nil || r.Repeated || r.Position != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if eng.second != nil {
		t.Error("the message was not read")
	}
}
