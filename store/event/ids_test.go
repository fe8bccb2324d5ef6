package event_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/event"
)

// onGet calls a function, once, before a Get of an id.
type onGet struct {
	holdfast.Engine
	call func()
}

func (o *onGet) Get(dst, key []byte) ([]byte, error) {
	got, err := o.Engine.Get(dst, key)
	if call := o.call; call != nil && key[2] == 'i' {
		o.call = nil
		call()
	}
	return got, err
}

// An id is looked up without the lock. If, meanwhile, somebody else appends it, and so
// many others that it leaves memory, it is still found.
func TestIDOvertaken(t *testing.T) {
	for _, others := range []int{0, 10, 5000} {
		eng := &onGet{Engine: mem.New()}
		s := openLog(t, eng, event.Options{Level: holdfast.Memory})
		eng.call = func() {
			appendOK(t, s, named("wanted")...)
			for i := range others {
				appendOK(t, s, named(fmt.Sprint("other ", i))...)
			}
		}
		if r := appendOK(t, s, named("wanted")...); (r != event.Result{First: 1, Last: 1, Repeated: true}) {
			t.Fatalf("with %d others between: %+v", others, r)
		}
		closeLog(t, s)
	}
}

// Of many who append the same ids at once, one adds the events and all get its result.
func TestIDsRace(t *testing.T) {
	targets(t, func(t *testing.T, tg *target) {
		s := openLog(t, tg.Engine, event.Options{Level: tg.Level})
		const workers, rounds = 8, 100
		results := make([][workers]event.Result, rounds)
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				for i := range rounds {
					r, err := s.Append(ctx, named(fmt.Sprint(i, "a"), fmt.Sprint(i, "b"))...)
					if err != nil {
						t.Error(err)
						return
					}
					results[i][w] = r
				}
			})
		}
		all.Wait()
		if s.Last() != 2*rounds {
			t.Errorf("%d events, want %d", s.Last(), 2*rounds)
		}
		for i, rs := range results {
			added := 0
			for _, r := range rs {
				if !r.Repeated {
					added++
				}
				if r.First != rs[0].First || r.Last != r.First+1 {
					t.Fatalf("round %d: %+v", i, rs)
				}
			}
			if added != 1 {
				t.Fatalf("round %d was added %d times", i, added)
			}
		}
		closeLog(t, s)
	})
}
