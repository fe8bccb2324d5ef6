package fanout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast/internal/testkit"
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

// While messages come one after the other, many followers pause between them, no longer than they may. A message after
// silence comes at once, and so does each to few followers.
func TestPauses(t *testing.T) {
	for _, c := range []struct{ followers, sends int }{{1000, 86}, {50, 1001}} {
		synctest.Test(t, func(t *testing.T) {
			const count, apart = 1000, time.Millisecond
			s, hub := newItems(), &Hub{}
			var done sync.WaitGroup
			var sends, got atomic.Int64
			var latest atomic.Int64 // the longest that an item took
			begun := time.Now()
			for range c.followers {
				done.Go(func() {
					next := int64(1)
					err := hub.Follow(t.Context(), "key", s.source(), 1, Output{IdleAfter: time.Hour, Send: func(text []byte) error {
						sends.Add(1)
						for line := range bytes.Lines(text) {
							if want := fmt.Sprintln(next); string(line) != want {
								t.Errorf("%q, want %q", line, want)
							}
							late := time.Since(begun) - time.Duration(next)*apart
							if next > count {
								late = time.Since(begun) - (count*apart + time.Minute)
								if late != 0 {
									t.Errorf("what came after silence has waited %v", late)
								}
							}
							latest.Store(max(latest.Load(), int64(late)))
							next++
							got.Add(1)
						}
						return nil
					}})
					if !errors.Is(err, errEnd) {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			for range count {
				time.Sleep(apart)
				s.add(1, nil)
				synctest.Wait()
			}
			time.Sleep(time.Minute)
			s.add(1, nil)
			synctest.Wait()
			s.add(0, errEnd)
			done.Wait()
			if n := got.Load(); n != int64(c.followers)*(count+1) {
				t.Errorf("%d followers got %d items", c.followers, n)
			}
			if each := sends.Load() / int64(c.followers); each > int64(c.sends) || each < int64(c.sends)-5 {
				t.Errorf("%d followers: %d sends to each, want %d", c.followers, each, c.sends)
			}
			if most := time.Duration(c.followers) * pauseEach; time.Duration(latest.Load()) > most {
				t.Errorf("an item took %v, want at most %v", time.Duration(latest.Load()), most)
			}
		})
	}
}

// Much text ends a pause, and so do the end of the source and of the context.
func TestPauseEnds(t *testing.T) {
	const followers = pauseFrom
	for name, test := range map[string]struct {
		end  func(s *items, cancel context.CancelFunc)
		size int
		want error
	}{
		"much text":        {func(s *items, _ context.CancelFunc) { s.add(20, nil) }, keepMost / 4 / 20, nil},
		"the source ends":  {func(s *items, _ context.CancelFunc) { s.add(1, errEnd) }, 1, errEnd},
		"the context ends": {func(_ *items, cancel context.CancelFunc) { cancel() }, 1, context.Canceled},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, hub := newItems(), &Hub{}
			source := s.source()
			follow, pad := source.Follow, bytes.Repeat([]byte("x"), test.size)
			source.Follow = func(ctx context.Context, from int64) iter.Seq2[Item, error] {
				return func(yield func(Item, error) bool) {
					for item, err := range follow(ctx, from) {
						if item.Text = pad; !yield(item, err) {
							return
						}
					}
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var done sync.WaitGroup
			var got, ended atomic.Int64
			for range followers {
				done.Go(func() {
					err := hub.Follow(ctx, "key", source, 1, Output{IdleAfter: time.Hour, Send: func(text []byte) error {
						got.Add(int64(len(text) / test.size))
						return nil
					}})
					if test.want != nil && !errors.Is(err, test.want) {
						t.Errorf("%s: %v", name, err)
					}
					ended.Add(1)
				})
			}
			synctest.Wait()
			s.add(1, nil)
			synctest.Wait()
			test.end(s, cancel)
			synctest.Wait()

			// No time has passed.
			switch n := got.Load(); {
			case test.want == nil && n != 21*followers:
				t.Errorf("%s: %d items, want %d", name, n, 21*followers)
			case test.want != nil && ended.Load() != followers:
				t.Errorf("%s: %d of %d followers have ended", name, ended.Load(), followers)
			}
			s.add(0, errEnd)
			done.Wait()
		})
	}
}

// BenchmarkRate is what a delivery costs where 1,000 followers get 1,000 messages a second: writes to connections on
// one side, reads on the other.
func BenchmarkRate(b *testing.B) {
	const followers = 1000
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	s, hub := newItems(), &Hub{}
	message := bytes.Repeat([]byte("x"), 200)
	source := s.source()
	follow := source.Follow
	source.Follow = func(ctx context.Context, from int64) iter.Seq2[Item, error] {
		return func(yield func(Item, error) bool) {
			for item, err := range follow(ctx, from) {
				if item.Text = message; !yield(item, err) {
					return
				}
			}
		}
	}
	var done, clients sync.WaitGroup
	var sends, got atomic.Int64
	for range followers {
		far, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		near, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		clients.Go(func() {
			defer far.Close()
			buf := make([]byte, 32<<10)
			for n, err := far.Read(buf); err == nil; n, err = far.Read(buf) {
				got.Add(int64(n))
			}
		})
		done.Go(func() {
			defer near.Close()
			_ = hub.Follow(b.Context(), "key", source, 1, Output{IdleAfter: time.Hour, Send: func(text []byte) error {
				sends.Add(1)
				_, err := near.Write(text)
				return err
			}})
		})
	}
	for hub.Followers() < followers {
		runtime.Gosched()
	}
	report := testkit.CPU(b)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	n, last := 0, time.Now()
	for b.Loop() {
		<-tick.C
		due := max(int(time.Since(last)/time.Millisecond), 1) // also those of ticks that were missed
		last = last.Add(time.Duration(due) * time.Millisecond)
		for range due {
			s.add(1, nil)
		}
		n += due
	}
	for got.Load() < int64(n*followers*len(message)) {
		time.Sleep(time.Millisecond)
	}
	report(n * followers)
	b.ReportMetric(float64(sends.Load())/float64(n*followers), "sends/op")
	s.add(0, errEnd)
	done.Wait()
	clients.Wait()
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
