package eventodb

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/store/message"
)

func open(t testing.TB) (*data.Data, *message.Namespace) {
	t.Helper()
	d, err := data.Open(mem.New(), data.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	n, err := d.Messages().Namespace(t.Context(), message.Default)
	if err != nil {
		t.Fatal(err)
	}
	return d, n
}

// A follower that does not keep up gets from the store what the topic has dropped, and the topic keeps no more than it
// should.
func TestSlowFollower(t *testing.T) {
	const messages = 10_000
	for _, stream := range []string{"a-1", ""} {
		_, n := open(t)
		h := hub{topics: map[topicKey]*topic{}}
		key := topicKey{namespace: n, stream: stream}
		topic, err := h.join(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		for range messages / 100 {
			batch := make([]message.Message, 100)
			for i := range batch {
				batch[i] = message.Message{Type: "A", Data: []byte("{}")}
			}
			if _, err := n.Write(t.Context(), "a-1", batch...); err != nil {
				t.Fatal(err)
			}
		}
		first := int64(0)
		if stream == "" {
			first = 1
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for { // until the topic has them all
			_, _, changed, err := topic.take(first + messages)
			topic.mu.Lock()
			done := len(topic.notes) > 0 && topic.notes[len(topic.notes)-1].position == first+messages-1
			topic.mu.Unlock()
			if done {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatal(ctx.Err(), err)
			}
		}
		if len(topic.text) > 2*keepEach || topic.from == first {
			t.Errorf("%d bytes are kept, from %d on", len(topic.text), topic.from)
		}
		var got []byte
		reads := 0
		for next := first; next < first+messages; {
			text, behind, changed, err := topic.take(next)
			if err != nil {
				t.Fatal(err)
			}
			if text == nil && changed == nil {
				if text, behind, err = topic.read(ctx, nil, next); err != nil {
					t.Fatal(err)
				}
				reads++
			}
			if behind <= next {
				t.Fatalf("%d after %d", behind, next)
			}
			got, next = append(got, text...), behind
		}
		var want []byte
		for i := range messages {
			want = fmt.Appendf(want, "event: poke\ndata: {\"stream\":\"a-1\",\"position\":%d,\"globalPosition\":%d}\n\n", i, i+1)
		}
		if !bytes.Equal(got, want) || reads < 2 {
			t.Errorf("%d bytes, want %d, after %d reads", len(got), len(want), reads)
		}
		h.leave(topic)
		if len(h.topics) != 0 || h.followers.Load() != 0 {
			t.Errorf("%d topics, %d followers", len(h.topics), h.followers.Load())
		}
	}
}

// A follower of a stream whose messages are all gone waits for the next one.
func TestFollowerOfNothing(t *testing.T) {
	_, n := open(t)
	for range 3 {
		if _, err := n.Write(t.Context(), "a-1", message.Message{Type: "A", Data: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.Delete(t.Context(), "a-1"); err != nil {
		t.Fatal(err)
	}
	h := hub{topics: map[topicKey]*topic{}}
	topic, err := h.join(t.Context(), topicKey{namespace: n, stream: "a-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer h.leave(topic)
	text, next, err := topic.read(t.Context(), nil, 0)
	if text != nil || next != 3 || err != nil {
		t.Error(text, next, err)
	}
	if _, _, changed, err := topic.take(next); changed == nil || err != nil {
		t.Error(changed, err)
	}
}
