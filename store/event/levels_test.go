package event_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

var (
	atMemory  = holdfast.WithLevel(ctx, holdfast.Memory)
	atProcess = holdfast.WithLevel(ctx, holdfast.Process)
	atPower   = holdfast.WithLevel(ctx, holdfast.Power)
)

// A weaker write behind one at Power waits for it, and shows it to nobody before the device has it.
func TestProcessBehindPower(t *testing.T) {
	for name, behind := range map[string]func(s *event.Store) error{
		"append": func(s *event.Store) error { _, err := s.Append(atProcess, typed("2")...); return err },
		"two levels": func(s *event.Store) error {
			if _, err := s.Submit(atProcess, typed("2")...); err != nil {
				return err
			}
			_, err := s.Append(ctx, typed("3")...)
			return err
		},
		"submit and follow": func(s *event.Store) error {
			if _, err := s.Submit(atProcess, typed("2")...); err != nil {
				return err
			}
			for _, err := range s.Follow(ctx, 1) {
				return err
			}
			return nil
		},
		"repeat": func(s *event.Store) error { _, err := s.Append(atMemory, named("id-1")...); return err },
		"remove": func(s *event.Store) error { _, err := s.Remove(atProcess, 1); return err },
		"close":  func(s *event.Store) error { return s.Close() },
		"import": func(s *event.Store) error { _, err := s.Import(atMemory, event.Event{Position: 9}); return err },
		"with keys": func(s *event.Store) error {
			return applied(s.DraftAppend(atProcess, keyspace.Messages, typed("2")...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			eng := storetest.NewLevelEngine()
			s := openLog(t, eng, event.Options{Level: holdfast.Process})
			defer s.Close()
			seen := uint64(0)
			if name == "remove" {
				appendOK(t, s, typed("0")...)
				_, err := s.Import(ctx, event.Event{Position: 2}) // the log says that it has holes
				if seen = 2; err != nil {
					t.Fatal(err)
				}
			} else if name == "import" {
				_, err := s.Import(ctx, event.Event{Position: 1}, event.Event{Position: 3})
				if seen = 3; err != nil {
					t.Fatal(err)
				}
			}
			eng.Hold()
			p, err := s.Submit(atPower, named("id-1")...)
			if err != nil {
				t.Fatal(err)
			}
			power := storetest.Async(func() error { _, err := p.Wait(); return err })
			weaker := storetest.Async(func() error { return behind(s) })
			storetest.Unfinished(t, power, weaker)
			if s.Last() != seen {
				t.Errorf("readers see position %d", s.Last())
			}
			eng.Release()
			storetest.Finished(t, nil, power, weaker)
			if s.Last() <= seen {
				t.Errorf("readers see position %d", s.Last())
			}
		})
	}
}

// applied gives a draft its place, and waits for it.
func applied(d *event.Draft, err error) error {
	if err != nil {
		return err
	}
	defer d.Close()
	d.Apply()
	_, err = d.Wait()
	return err
}

// What is weaker and comes first waits for nothing.
func TestProcessBeforePower(t *testing.T) {
	eng := storetest.NewLevelEngine()
	s := openLog(t, eng, event.Options{Level: holdfast.Memory})
	defer closeLog(t, s)
	eng.Hold()
	if _, err := s.Append(atProcess, typed("1")...); err != nil {
		t.Fatal(err)
	}
	wantTypes(t, s, 1, "1")
	power := storetest.Async(func() error { _, err := s.Append(atPower, typed("2")...); return err })
	storetest.Unfinished(t, power)
	wantTypes(t, s, 1, "1")
	eng.Release()
	storetest.Finished(t, nil, power)
	wantTypes(t, s, 1, "1", "2")
	eng.Hold()
	if _, err := s.Append(ctx, typed("3")...); err != nil { // those at Power are settled
		t.Fatal(err)
	}
	wantTypes(t, s, 1, "1", "2", "3")
	eng.Release()
}

// A repeat reaches the level that it names, whatever that of the first time was.
func TestRepeatAtAStrongerLevel(t *testing.T) {
	eng := storetest.NewLevelEngine()
	s := openLog(t, eng, event.Options{Level: holdfast.Process})
	defer closeLog(t, s)
	if _, err := s.Append(ctx, named("a")...); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		eng.Hold()
		repeat := storetest.Async(func() error {
			r, err := s.Append(atPower, named("a")...)
			if err == nil && !r.Repeated {
				err = errors.New("it was appended again")
			}
			return err
		})
		storetest.Unfinished(t, repeat)
		eng.Release()
		storetest.Finished(t, nil, repeat)
	}
}

// writes are all methods that write.
var writes = map[string]func(ctx context.Context, s *event.Store) error{
	"Append": func(ctx context.Context, s *event.Store) error { _, err := s.Append(ctx, typed("a")...); return err },
	"AppendAfter": func(ctx context.Context, s *event.Store) error {
		_, err := s.AppendAfter(ctx, 3, typed("a")...)
		return err
	},
	"a draft": func(ctx context.Context, s *event.Store) error {
		return applied(s.DraftAppend(ctx, keyspace.Messages, typed("a")...))
	},
	"a transaction": func(ctx context.Context, s *event.Store) error {
		db, err := kv.Open(s.Engine(), kv.Options{Level: holdfast.Memory})
		if err != nil {
			return err
		}
		return db.Update(ctx, func(tx *kv.Tx) error {
			if _, err := s.In(tx).Append(typed("a")...); err != nil {
				return err
			}
			return s.In(tx).SaveOffset("sub", 4)
		})
	},
	"Submit": func(ctx context.Context, s *event.Store) error { _, err := s.Submit(ctx, typed("a")...); return err },
	"Import": func(ctx context.Context, s *event.Store) error {
		_, err := s.Import(ctx, event.Event{Position: 4})
		return err
	},
	"Import of nothing": func(ctx context.Context, s *event.Store) error {
		_, err := s.Import(ctx)
		return err
	},
	"Remove":            func(ctx context.Context, s *event.Store) error { _, err := s.Remove(ctx, 3); return err },
	"Remove of nothing": func(ctx context.Context, s *event.Store) error { _, err := s.Remove(ctx); return err },
	"TruncateBefore": func(ctx context.Context, s *event.Store) error {
		_, err := s.TruncateBefore(ctx, 3)
		return err
	},
	"Retain": func(ctx context.Context, s *event.Store) error {
		_, err := s.Retain(ctx, event.Retention{MaxEvents: 1})
		return err
	},
	"SaveOffset":     func(ctx context.Context, s *event.Store) error { return s.SaveOffset(ctx, "sub", 1) },
	"DeleteOffset":   func(ctx context.Context, s *event.Store) error { return s.DeleteOffset(ctx, "sub") },
	"SaveSnapshot":   func(ctx context.Context, s *event.Store) error { return s.SaveSnapshot(ctx, "p", 1, nil) },
	"DeleteSnapshot": func(ctx context.Context, s *event.Store) error { return s.DeleteSnapshot(ctx, "p") },
}

func TestEveryWriteIsAtItsLevel(t *testing.T) {
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			for _, level := range holdfast.Levels() {
				eng := storetest.NewLevelEngine()
				s := openLog(t, eng, event.Options{Level: holdfast.Memory})
				if _, err := s.Import(ctx, event.Event{Position: 1}, event.Event{Position: 3}); err != nil {
					t.Fatal(err)
				}
				eng.Applied()
				if err := write(holdfast.WithLevel(ctx, level), s); err != nil {
					t.Fatal(err)
				}
				other := func(l holdfast.Level) bool { return l != level }
				if got := eng.Applied(); len(got) == 0 || slices.ContainsFunc(got, other) {
					t.Errorf("at %v it applied batches at %v", level, got)
				}
				closeLog(t, s)
			}
		})
	}
}

// A level that the engine does not give is refused, and nothing happens.
func TestRefusedLevel(t *testing.T) {
	s := openLog(t, mem.New(), event.Options{Level: holdfast.Memory})
	defer closeLog(t, s)
	appendOK(t, s, named("a", "b", "c")...)
	for name, write := range writes {
		for _, level := range []holdfast.Level{holdfast.Process, holdfast.Power, holdfast.Quorum, 9} {
			if err := write(holdfast.WithLevel(ctx, level), s); !errors.Is(err, holdfast.ErrLevel) {
				t.Errorf("%s at %v: %v", name, level, err)
			}
		}
	}
	if _, err := s.Append(atPower, named("a")...); !errors.Is(err, holdfast.ErrLevel) {
		t.Errorf("a repeat: %v", err)
	}
	wantHead(t, s, 1, 3)
	appendOK(t, s, typed("d")...)
	wantHead(t, s, 1, 4)
}

// TestMixedCrashImages cuts the power under appends at levels of their own, or kills them: what was acknowledged at
// a level that the crash spares is there, and so is what readers saw whose write named such a level.
func TestMixedCrashImages(t *testing.T) {
	kept, lost := 0, 0
	storetest.CrashImages(t, 60, func(seed uint64, spared holdfast.Level) error {
		var mu sync.Mutex
		safe := map[uint64]string{} // position to type
		return storetest.CrashImage(seed, spared, func(e holdfast.Engine, r *rand.Rand) error {
			s, err := event.Open(kv.On(e), event.Options{Level: holdfast.Process + holdfast.Level(r.IntN(2))})
			if err != nil {
				return err
			}
			// The type of an event says at what level it was written, and by whom.
			note := func(e event.Event) {
				if holdfast.Level(e.Type[0]-'0') >= spared {
					mu.Lock()
					defer mu.Unlock()
					safe[e.Position] = e.Type
				}
			}
			var group sync.WaitGroup
			errs := make([]error, 4)
			for w := range errs {
				own := rand.New(rand.NewPCG(seed, r.Uint64()))
				group.Go(func() {
					for n := 0; errs[w] == nil; n++ {
						level := 1 + holdfast.Level(own.IntN(3))
						e := event.Event{Type: fmt.Sprintf("%d-%d-%d-%d", level, seed, w, own.Uint64())}
						ctx := holdfast.WithLevel(ctx, level)
						if own.IntN(3) == 0 { // dropped
							_, errs[w] = s.Submit(ctx, e)
							continue
						}
						result, err := s.Append(ctx, e)
						if errs[w] = err; err != nil {
							break
						}
						e.Position = result.First
						note(e)
						seen, err := s.Read(ctx, max(s.Last(), 8)-8, 0)
						for _, e := range seen {
							note(e)
						}
						errs[w] = err
					}
				})
			}
			group.Wait()
			return errors.Join(errors.Join(errs...), s.Close())
		}, func(e holdfast.Engine) error {
			s, err := event.Open(kv.On(e), event.Options{Level: spared})
			if err != nil {
				return err
			}
			there := map[uint64]string{}
			for e, err := range s.Events(ctx, 1, 0) {
				if err != nil {
					return err
				}
				there[e.Position] = e.Type
			}
			for at, typ := range safe {
				if there[at] != typ {
					return fmt.Errorf("position %d, written as %s, has %q; the log ends at %d", at, typ, there[at], s.Last())
				}
			}
			kept += len(safe)
			lost++
			return s.Close()
		})
	})
	if kept < 10*lost {
		t.Errorf("%d events in %d crashes: too little was tested", kept, lost)
	}
}
