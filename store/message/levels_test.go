package message_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
)

// Every method that writes does so at the level of its context.
func TestEveryWriteIsAtItsLevel(t *testing.T) {
	type with struct {
		s *message.Store
		n *message.Namespace
		w *message.Subscription
	}
	claimed := func(ctx context.Context, w *message.Subscription) []message.Delivery {
		list, err := w.Claim(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	for name, do := range map[string]func(ctx context.Context, x with) error{
		"Write": func(ctx context.Context, x with) error { _, err := x.n.Write(ctx, "a-2", msg("t")); return err },
		"WriteAfter": func(ctx context.Context, x with) error {
			_, err := x.n.WriteAfter(ctx, "a-1", 1, msg("t"))
			return err
		},
		"SavePosition": func(ctx context.Context, x with) error { return x.n.SavePosition(ctx, "c", 1) },
		"Subscribe": func(ctx context.Context, x with) error {
			_, err := x.n.Subscribe(ctx, "other", message.SubscriptionOptions{})
			return err
		},
		"Claim": func(ctx context.Context, x with) error { claimed(ctx, x.w); return nil },
		"Ack":   func(ctx context.Context, x with) error { return x.w.Ack(ctx, claimed(ctx, x.w)...) },
		"Fail":  func(ctx context.Context, x with) error { return x.w.Fail(ctx, "why", claimed(ctx, x.w)...) },
		"Park":  func(ctx context.Context, x with) error { return x.w.Park(ctx, "why", claimed(ctx, x.w)...) },
		"Discard": func(ctx context.Context, x with) error {
			_, err := x.w.Discard(ctx, 1)
			return err
		},
		"SetRetention": func(ctx context.Context, x with) error {
			return x.n.SetRetention(ctx, "a-1", message.Retention{MaxCount: 1})
		},
		"Create": func(ctx context.Context, x with) error {
			_, err := x.s.Create(ctx, message.NamespaceOptions{ID: "new"})
			return err
		},
		"DeleteSubscription": func(ctx context.Context, x with) error { return x.n.DeleteSubscription(ctx, "none") },
	} {
		for _, level := range holdfast.Levels() {
			eng := storetest.NewLevelEngine()
			s := openStore(t, eng, message.Options{Level: holdfast.Memory, RetainEvery: -1})
			n := namespace(t, s, message.Default)
			write(t, n, "a-1", msg("t"))
			write(t, n, "a-1", msg("t"))
			x := with{s, n, subscribe(t, n, "sub", message.SubscriptionOptions{})}
			eng.Applied()
			if err := do(holdfast.WithLevel(ctx, level), x); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			other := func(l holdfast.Level) bool { return l != level }
			if got := eng.Applied(); len(got) == 0 || slices.ContainsFunc(got, other) {
				t.Errorf("%s at %v applied batches at %v", name, level, got)
			}
			closeStore(t, s)
		}
	}
	s := openStore(t, mem.New(), message.Options{Level: holdfast.Memory})
	defer closeStore(t, s)
	_, err := namespace(t, s, message.Default).Write(holdfast.WithLevel(ctx, holdfast.Power), "a-1", msg("t"))
	storetest.WantError(t, err, holdfast.ErrLevel)
}

// TestMixedCrashImages cuts the power under writes at levels of their own, or kills them: what was acknowledged at a
// level that the crash spares is there, and so is what readers saw whose write named such a level.
func TestMixedCrashImages(t *testing.T) {
	kept, crashes := 0, 0
	storetest.CrashImages(t, 24, func(seed uint64, spared holdfast.Level) error {
		var mu sync.Mutex
		safe := map[int64]message.Message{} // by global position
		return storetest.CrashImage(seed, spared, func(e holdfast.Engine, r *rand.Rand) error {
			s, err := message.Open(kv.On(e),
				message.Options{Level: holdfast.Process + holdfast.Level(r.IntN(2)), RetainEvery: -1},
			)
			if err != nil {
				return err
			}
			n, err := s.Namespace(ctx, message.Default)
			if err != nil {
				return errors.Join(err, s.Close())
			}
			// The type of a message says at what level it was written.
			note := func(m message.Message) {
				level, err := holdfast.ParseLevel(m.Type)
				if err == nil && level >= spared {
					mu.Lock()
					defer mu.Unlock()
					safe[m.Global] = m
				}
			}
			errs := make([]error, 3)
			var group sync.WaitGroup
			for w := range errs {
				own := rand.New(rand.NewPCG(seed, r.Uint64()))
				group.Go(func() {
					for errs[w] == nil {
						level := 1 + holdfast.Level(own.IntN(3))
						m := message.Message{ID: uuid(own), Type: level.String(), Data: []byte("{}"),
							Stream: fmt.Sprint("a-", own.IntN(5))}
						result, err := n.Write(holdfast.WithLevel(ctx, level), m.Stream, m)
						if errs[w] = err; err != nil {
							return
						}
						m.Position, m.Global = result.Position, result.Global
						note(m)
						for m, err := range n.Read(ctx, message.Query{From: max(n.Last()-5, 1)}) {
							if errs[w] = err; err == nil {
								note(m)
							}
						}
					}
				})
			}
			group.Wait()
			return errors.Join(errors.Join(errs...), s.Close())
		}, func(e holdfast.Engine) error {
			s, err := message.Open(kv.On(e), message.Options{Level: spared, RetainEvery: -1})
			if err != nil {
				return err
			}
			n, err := s.Namespace(ctx, message.Default)
			if err != nil {
				return errors.Join(err, s.Close())
			}
			there := map[int64]message.Message{}
			for m, err := range n.Read(ctx, message.Query{}) {
				if err != nil {
					return err
				}
				there[m.Global] = m
			}
			for at, m := range safe {
				if got := there[at]; got.ID != m.ID || got.Stream != m.Stream || got.Position != m.Position {
					return fmt.Errorf("the message at %d, written at %s, is %+v, want %+v", at, m.Type, got, m)
				}
			}
			kept, crashes = kept+len(safe), crashes+1
			return s.Close()
		})
	})
	if kept < 10*crashes {
		t.Errorf("%d messages in %d crashes: too little was tested", kept, crashes)
	}
}

func uuid(r *rand.Rand) string {
	text := fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64())
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}
