package fanout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast/server/problem"
)

// items is a source whose items are numbered from 1 on.
type items struct {
	mu    sync.Mutex
	n     int64
	more  chan struct{} // closed when n grows, or err is set
	err   error
	reads int
}

func newItems() *items { return &items{more: make(chan struct{})} }

func (s *items) add(n int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n += n
	s.err = err
	close(s.more)
	s.more = make(chan struct{})
}

func (s *items) state() (n int64, more chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n, s.more, s.err
}

func text(position int64) []byte { return fmt.Appendf(nil, "%d\n", position) }

func (s *items) source() Source {
	return Source{
		Next: func(context.Context) (int64, error) {
			n, _, _ := s.state()
			return n + 1, nil
		},
		Follow: func(ctx context.Context, from int64) iter.Seq2[Item, error] {
			return func(yield func(Item, error) bool) {
				for {
					n, more, err := s.state()
					for ; from <= n; from++ {
						if !yield(Item{from, text(from)}, nil) {
							return
						}
					}
					if err != nil {
						yield(Item{}, err)
						return
					}
					select {
					case <-more:
					case <-ctx.Done():
						yield(Item{}, ctx.Err())
						return
					}
				}
			}
		},
		Read: func(_ context.Context, from int64, limit int) iter.Seq2[Item, error] {
			return func(yield func(Item, error) bool) {
				s.mu.Lock()
				n := s.n
				s.reads++
				s.mu.Unlock()
				for end := from + int64(limit); from <= n && from < end; from++ {
					if !yield(Item{from, text(from)}, nil) {
						return
					}
				}
			}
		},
	}
}

func texts(from, to int64) []byte {
	var b []byte
	for ; from <= to; from++ {
		b = append(b, text(from)...)
	}
	return b
}

var errEnd = errors.New("the end")

// Followers that join before, between and after what comes get each item once and in order; one that is blocked for a
// while holds back nobody, and gets from the store what the topic has dropped, which keeps no more than it should.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 50_000
		s, hub := newItems(), &Hub{}
		block := make(chan struct{})
		var done sync.WaitGroup
		got := map[string]*bytes.Buffer{}
		follow := func(name string, from int64, send func()) {
			b := &bytes.Buffer{}
			got[name] = b
			done.Go(func() {
				err := hub.Follow(t.Context(), "key", s.source(), from, Output{IdleAfter: time.Hour, Send: func(text []byte) error {
					send()
					b.Write(text)
					return nil
				}})
				if !errors.Is(err, errEnd) {
					t.Errorf("%s: %v", name, err)
				}
			})
			synctest.Wait()
		}
		follow("first", 1, func() {})
		follow("blocked", 1, func() { <-block })
		for range count / 100 {
			s.add(100, nil)
			synctest.Wait()
		}
		follow("late", 1, func() {})
		follow("new", count+1, func() {})
		if got["blocked"].Len() > 0 || got["first"].Len() != len(texts(1, count)) || hub.Followers() != 4 {
			t.Errorf("%d bytes for the one that is blocked, %d for another; %d follow", got["blocked"].Len(), got["first"].Len(),
				hub.Followers())
		}
		topic := hub.topics["key"]
		if len(hub.topics) != 1 || len(topic.text) > 2*keepEach*4 || topic.from == 1 {
			t.Errorf("%d topics; %d bytes are kept, from %d on", len(hub.topics), len(topic.text), topic.from)
		}
		reads := s.reads
		close(block)
		synctest.Wait()
		if s.reads == reads {
			t.Error("what was dropped was not read")
		}
		s.add(10, errEnd)
		done.Wait()
		for name, from := range map[string]int64{"first": 1, "blocked": 1, "late": 1, "new": count + 1} {
			if want := texts(from, count+10); !bytes.Equal(got[name].Bytes(), want) {
				t.Errorf("%s got %d bytes, want %d", name, got[name].Len(), len(want))
			}
		}
		if len(hub.topics) != 0 || hub.Followers() != 0 {
			t.Errorf("%d topics, %d followers are left", len(hub.topics), hub.Followers())
		}
	})
}

// Following ends with what ended it, is idle when nothing comes, and leaves nothing behind.
func TestFollowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		stopping := make(chan struct{})
		for name, test := range map[string]struct {
			end  func(s *items, cancel context.CancelCauseFunc)
			out  Output
			want error
		}{
			"the source fails": {func(s *items, _ context.CancelCauseFunc) { s.add(0, errEnd) }, Output{}, errEnd},
			"the context ends": {func(_ *items, cancel context.CancelCauseFunc) { cancel(gone) }, Output{}, gone},
			"the client is gone": {func(s *items, _ context.CancelCauseFunc) { s.add(1, nil) },
				Output{Send: func([]byte) error { return gone }}, gone},
			"it is idle": {func(*items, context.CancelCauseFunc) { time.Sleep(time.Minute) },
				Output{Idle: func() error { return gone }}, gone},
			"the server stops": {func(*items, context.CancelCauseFunc) { close(stopping) }, Output{Stopping: stopping},
				problem.ErrStopping},
		} {
			s, hub := newItems(), &Hub{}
			ctx, cancel := context.WithCancelCause(t.Context())
			test.out.IdleAfter = 30 * time.Second
			ended := make(chan error, 1)
			go func() { ended <- hub.Follow(ctx, "key", s.source(), 1, test.out) }()
			synctest.Wait()
			test.end(s, cancel)
			if err := <-ended; !errors.Is(err, test.want) {
				t.Errorf("%s: %v", name, err)
			}
			cancel(nil)
			if len(hub.topics) != 0 || hub.Followers() != 0 {
				t.Errorf("%s: %d topics, %d followers are left", name, len(hub.topics), hub.Followers())
			}
		}
	})
}

// A follower that is behind the end, where the store has nothing any more, waits for what comes. One that joins later
// does not get either what was removed by then, though the topic has it.
func TestFollowOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newItems()
		source := s.source()
		source.Read = func(context.Context, int64, int) iter.Seq2[Item, error] { return func(func(Item, error) bool) {} }
		s.add(3, nil) // removed since
		var hub Hub
		var got [3]bytes.Buffer
		var done sync.WaitGroup
		for i, from := range []int64{1, 1, 5} {
			done.Go(func() {
				err := hub.Follow(t.Context(), "key", source, from, Output{IdleAfter: time.Hour,
					Send: func(text []byte) error { got[i].Write(text); return nil }})
				if !errors.Is(err, errEnd) {
					t.Error(err)
				}
			})
			synctest.Wait()
			if i == 0 {
				s.add(2, nil)
				synctest.Wait()
			}
		}
		s.add(1, errEnd)
		done.Wait()
		for i, want := range []string{"4\n5\n6\n", "6\n", "6\n"} {
			if got[i].String() != want {
				t.Errorf("%d: %q, want %q", i, got[i].String(), want)
			}
		}
	})
}
