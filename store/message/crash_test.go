package message_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
)

// crashWrite is a write of a history with crashes.
type crashWrite struct {
	writes  []streamWrite // all messages have ids
	results []message.Result
	done    bool // it was acknowledged
}

// crashSpace is what is known of a namespace.
type crashSpace struct {
	id       string
	lock     sync.RWMutex // held by whoever deletes it
	deleting bool         // that had not returned when the power went
	gone     bool         // deleted, and not made again

	mu     sync.Mutex // covers what follows
	writes []*crashWrite
	shown  map[int64]string // ids of messages, by global position, that a follower was shown
}

func (c *crashSpace) forget() { c.writes, c.shown, c.deleting = nil, map[int64]string{}, false }

// crashHistory is one file system, and what was done on it.
type crashHistory struct {
	seed   uint64
	ids    int
	mu     sync.Mutex // covers ids
	spaces []*crashSpace
}

func (h *crashHistory) message(r *rand.Rand) message.Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids++
	m := message.Message{Type: "t", ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", h.ids),
		Data: fmt.Appendf(nil, `{"seed":%d,"n":%d}`, h.seed, h.ids)}
	if r.IntN(20) == 0 {
		m.Data = fmt.Appendf(nil, `{"large":%q}`, strings.Repeat("x", r.IntN(20_000)))
	}
	return m
}

// work writes, and deletes a namespace now and then, until something fails.
func (h *crashHistory) work(s *message.Store, r *rand.Rand) error {
	for {
		c := h.spaces[r.IntN(len(h.spaces))]
		if c.id != message.Default && r.IntN(25) == 0 {
			if err := c.remove(s); err != nil {
				return err
			}
			continue
		}
		if err := h.write(s, c, r); err != nil {
			return err
		}
	}
}

func (c *crashSpace) remove(s *message.Store) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.gone {
		return nil
	}
	c.deleting = true
	if _, err := s.Delete(ctx, c.id); err != nil {
		return err
	}
	c.forget()
	c.gone = true
	return nil
}

// open opens the namespace, and makes it if it is not there. The lock is held for reading.
func (c *crashSpace) open(s *message.Store) (*message.Namespace, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		c.gone = false // it may be there, even if this fails
		if _, err := s.Create(ctx, message.NamespaceOptions{ID: c.id}); err != nil {
			return nil, err
		}
	}
	return s.Namespace(ctx, c.id)
}

func (h *crashHistory) write(s *message.Store, c *crashSpace, r *rand.Rand) error {
	c.lock.RLock()
	defer c.lock.RUnlock()
	n, err := c.open(s)
	if err != nil {
		return err
	}
	w := &crashWrite{}
	after := make([]bool, 1+r.IntN(3))
	for i, stream := range r.Perm(len(someStreams))[:len(after)] {
		one := streamWrite{Stream: someStreams[stream]}
		for range 1 + r.IntN(3) {
			one.Messages = append(one.Messages, h.message(r))
		}
		w.writes, after[i] = append(w.writes, one), r.IntN(2) == 0
	}
	c.mu.Lock()
	c.writes = append(c.writes, w)
	c.mu.Unlock()
	for {
		for i := range w.writes {
			if !after[i] {
				continue
			}
			version, ok, err := n.Version(ctx, w.writes[i].Stream)
			if err != nil {
				return err
			}
			if !ok {
				version = message.NoStream
			}
			w.writes[i].Expected = &version
		}
		results, err := writeAll(ctx, n, w.writes...)
		if errors.Is(err, message.ErrConflict) {
			continue
		}
		if err == nil {
			c.mu.Lock()
			w.results, w.done = results, true
			c.mu.Unlock()
		}
		return err
	}
}

// follow notes what is shown of the default namespace, until it ends.
func (h *crashHistory) follow(n *message.Namespace, c *crashSpace) {
	for m, err := range n.Follow(ctx, message.Query{From: n.Last() + 1}) {
		if err != nil {
			return // the power is gone
		}
		c.mu.Lock()
		c.shown[m.Global] = m.ID
		c.mu.Unlock()
	}
}

// check compares what a crash has left with what is known, and finds out what became of the writes that had not
// returned by repeating them.
func (c *crashSpace) check(s *message.Store) error {
	_, err := s.Info(ctx, c.id)
	missing := errors.Is(err, message.ErrNoNamespace)
	switch {
	case err != nil && !missing:
		return err
	case missing && !c.gone && !c.deleting && (c.id == message.Default || slices.ContainsFunc(c.writes,
		func(w *crashWrite) bool { return w.done })):
		return errors.New("the namespace is gone, and was not deleted")
	case missing:
		c.forget()
		c.gone = true
		return nil
	case c.gone && len(c.writes) == 0:
		return errors.New("the namespace was deleted, and is there")
	}
	c.deleting, c.gone = false, false
	n, err := s.Namespace(ctx, c.id)
	if err != nil {
		return err
	}
	messages, err := c.found(n)
	if err != nil {
		return err
	}
	at := map[string]int{}
	for i, m := range messages {
		at[m.ID] = i
	}
	for global, id := range c.shown {
		if i, ok := at[id]; !ok || messages[i].Global != global {
			return fmt.Errorf("a follower was shown message %s at global position %d: that was taken back", id, global)
		}
	}
	known := 0
	for i, w := range c.writes {
		first, there := at[w.writes[0].Messages[0].ID]
		switch {
		case there:
			for _, one := range w.writes {
				for k, m := range one.Messages {
					if first >= len(messages) {
						return fmt.Errorf("write %d is there in part", i)
					}
					m.Stream, m.Position, m.Global = one.Stream, messages[first].Position, messages[first].Global
					if err := same(messages[first], m); err != nil {
						return fmt.Errorf("message %d of write %d to %q: %w", k, i, one.Stream, err)
					}
					first++
					known++
				}
			}
		case w.done:
			return fmt.Errorf("write %d is not there, and was acknowledged: %+v", i, w.results)
		}
		results, err := writeAll(ctx, n, w.again()...)
		if err != nil || results[0].Repeated != there {
			return fmt.Errorf("write %d, there: %v, is repeated: %+v, %v", i, there, results, err)
		}
		for k := range w.results {
			if w.results[k].Repeated = results[k].Repeated; w.done && w.results[k] != results[k] {
				return fmt.Errorf("write %d was told %+v, and is repeated: %+v", i, w.results, results)
			}
		}
		w.results, w.done = results, true
	}
	if known != len(messages) {
		return fmt.Errorf("%d messages are there, and %d of them were written", len(messages), known)
	}
	return nil
}

// again is the write without the versions, which are others now.
func (w *crashWrite) again() (list []streamWrite) {
	for _, one := range w.writes {
		list = append(list, streamWrite{Stream: one.Stream, Messages: one.Messages})
	}
	return list
}

// found returns all messages of a namespace, after it has compared them with what the indexes and counts say.
func (c *crashSpace) found(n *message.Namespace) (all []message.Message, err error) {
	m := newModel()
	for in, err := range n.Read(ctx, message.Query{}) {
		if err != nil {
			return nil, err
		}
		m.add(in.Stream, in)
		if want := m.messages[len(m.messages)-1]; in.Global != want.Global || in.Position != want.Position {
			return nil, fmt.Errorf("there is a gap before %+v", in)
		}
		all = append(all, in)
	}
	return all, m.agrees(n)
}

// agrees compares what a namespace has in streams and categories, its versions and its counts.
func (m *model) agrees(n *message.Namespace) error {
	streams, categories := map[string]bool{}, map[string]message.Counts{}
	for _, in := range m.messages {
		count := categories[message.Category(in.Stream)]
		count.Messages++
		if !streams[in.Stream] {
			count.Streams++
		}
		streams[in.Stream], categories[message.Category(in.Stream)] = true, count
	}
	compare := func(q message.Query) error {
		want := m.read(q)
		for in, err := range n.Read(ctx, q) {
			if err != nil {
				return err
			}
			if len(want) == 0 {
				return fmt.Errorf("%+v: there is %+v too", q, in)
			}
			if err := same(in, want[0]); err != nil {
				return fmt.Errorf("%+v: %w", q, err)
			}
			want = want[1:]
		}
		if len(want) > 0 {
			return fmt.Errorf("%+v: %d messages are missing", q, len(want))
		}
		return nil
	}
	for stream := range streams {
		version, ok, err := n.Version(ctx, stream)
		if err != nil || !ok || version != m.version(stream) {
			return fmt.Errorf("stream %q has version %d, %v, want %d, %w", stream, version, ok, m.version(stream), err)
		}
		if err := compare(message.Query{Stream: stream}); err != nil {
			return err
		}
	}
	listed, err := n.Categories(ctx)
	if err != nil || len(listed) != len(categories) {
		return fmt.Errorf("categories: %+v, want %+v, %w", listed, categories, err)
	}
	for _, category := range listed {
		if category.Counts != categories[category.Category] {
			return fmt.Errorf("categories: %+v, want %+v", listed, categories)
		}
		if err := compare(message.Query{Category: category.Category}); err != nil {
			return err
		}
	}
	infos, err := n.Streams(ctx, "", "", 0)
	if err != nil || len(infos) != len(streams) {
		return fmt.Errorf("streams: %+v, want %d, %w", infos, len(streams), err)
	}
	return nil
}

// leftovers reports what an engine holds of namespaces that are not there. The keys are those of
// docs/format-message.md.
func leftovers(e holdfast.Engine) error {
	all, err := commits.Contents(e, holdfast.Range{})
	if err != nil {
		return err
	}
	live := map[string]bool{} // numbers
	for _, entry := range all.Within("m\x00n", "m\x00o") {
		var description struct{ Number uint64 }
		if err := json.Unmarshal([]byte(entry.Value), &description); err != nil {
			return err
		}
		live[string(binary.BigEndian.AppendUint64(nil, description.Number))] = true
	}
	for _, entry := range all {
		number := ""
		switch log, isLog := strings.CutPrefix(entry.Key, "e\x10message\x00"); {
		case isLog:
			number = log[:8]
		case strings.Contains("dschkpqx", entry.Key[2:3]):
			number = entry.Key[3:11]
		default:
			continue
		}
		if !live[number] || entry.Key[2] == 'd' {
			return fmt.Errorf("%q is left of a namespace that was deleted", entry.Key)
		}
	}
	return nil
}

// TestCrashImages cuts the power under logtree, or kills it, at any moment of concurrent writes, deletions of a
// namespace and their recovery, and opens what is left: it agrees with what had been acknowledged and shown.
func TestCrashImages(t *testing.T) {
	writes, histories := 0, 0
	storetest.CrashImages(t, 12, func(seed uint64, level holdfast.Level) error {
		h := &crashHistory{seed: seed, spaces: []*crashSpace{{id: message.Default}, {id: "other", gone: true}}}
		for _, c := range h.spaces {
			c.forget()
		}
		err := storetest.CrashImage(seed, level,
			func(e holdfast.Engine, r *rand.Rand) error { return h.run(e, level, r) },
			func(e holdfast.Engine) error { return h.check(e, level) })
		writes, histories = writes+h.ids, histories+1
		return err
	})
	if writes < 20*histories {
		t.Errorf("%d messages: too little was tested", writes)
	}
}

// run opens a store and works on it until something fails.
func (h *crashHistory) run(e holdfast.Engine, level holdfast.Level, r *rand.Rand) error {
	s, err := message.Open(kv.On(e), message.Options{Level: level})
	if err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	n, err := s.Namespace(ctx, message.Default)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	var group, follower sync.WaitGroup
	follower.Go(func() { h.follow(n, h.spaces[0]) })
	errs := make([]error, 3)
	for i := range errs {
		r := rand.New(rand.NewPCG(h.seed, r.Uint64()))
		group.Go(func() { errs[i] = h.work(s, r) })
	}
	group.Wait()
	_ = s.Close() // which ends the follower, and fails: there is no power
	follower.Wait()
	return errors.Join(errs...)
}

// check compares what is left with what is known.
func (h *crashHistory) check(e holdfast.Engine, level holdfast.Level) error {
	s, err := message.Open(kv.On(e), message.Options{Level: level})
	if err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	if err := leftovers(e); err != nil {
		return err
	}
	for _, c := range h.spaces {
		if err := c.check(s); err != nil {
			return fmt.Errorf("namespace %q: %w", c.id, err)
		}
	}
	return s.Close()
}
