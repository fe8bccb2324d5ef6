package postgres

import (
	"fmt"
	"os"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// What is taken for new and is there is written nevertheless, in one transaction, also when connections break before
// and after each message of that.
func TestGuesses(t *testing.T) {
	t.Parallel() // it waits
	needServer(t)
	p := newProxy(t, os.Getenv(variable), nil)
	e := openSpace(t, p.dir)
	quiet(e)                          // beats are transactions, too
	if err := e.clear(); err != nil { // of another run
		t.Fatal(err)
	}
	const n, enough = 40, 13 // messages to connect and commit
	for lost := range int64(10) {
		for i := range 4 {
			seq := e.w.seq
			if lost > 1 { // one of the first messages, before the server gets it or after
				p.lost.Store(lost % 2)
				p.seen.Store(enough - lost/2)
				p.every.Store(enough)
			}
			e.w.guess = guess{}
			e.cache.drop() // it is not known that they are there
			var b holdfast.Batch
			for at := range n {
				b.Set(fmt.Appendf(nil, "k%03d", at+n/2*i), fmt.Append(nil, lost, i, at))
			}
			b.Delete([]byte("k000"))
			b.DeleteRange([]byte("k001"), []byte("k002"))
			b.Set([]byte("k001"), nil)
			if err := holdfast.Commit(e, &b, holdfast.Power); err != nil {
				t.Fatal(err)
			}
			p.every.Store(0)
			if e.w.seq != seq+1 {
				t.Fatalf("%d transactions", e.w.seq-seq)
			}
			if e.w.guess.careful == 0 && (lost > 0 || i > 0) {
				t.Error("what was wrong is guessed again")
			}
			e.cache.drop()
			for at := range n {
				want := fmt.Sprint(lost, i, at)
				got, err := e.Get(nil, fmt.Appendf(nil, "k%03d", at+n/2*i))
				if i == 0 && at == 0 {
					if err != holdfast.ErrNotFound {
						t.Fatalf("k000 is there, or %v", err)
					}
					continue
				}
				if i == 0 && at == 1 {
					want = ""
				}
				if err != nil || string(got) != want {
					t.Fatalf("key %d is %q, %v; want %q", at+n/2*i, got, err, want)
				}
			}
		}
	}

	// Of many that are wrong few are tried, and those that are known are not.
	many := func(i int) (keysAndValues []string) {
		for at := range worthGuessing {
			keysAndValues = append(keysAndValues, fmt.Sprintf("k%03d", 10+at), fmt.Sprint(i))
		}
		return keysAndValues
	}
	e.w.guess = guess{}
	wrong := 0
	for i := range 2000 {
		e.cache.drop()
		before := e.w.guess
		put(t, e, holdfast.Memory, many(i)...)
		if e.w.guess.careful > before.careful {
			wrong++
		}
	}
	if wrong < 2 || wrong > 12 {
		t.Errorf("%d of 2,000 guesses were tried and wrong", wrong)
	}
	e.w.guess = guess{}
	for i := range 20 {
		put(t, e, holdfast.Memory, many(i)...)
	}
	if e.w.guess.careful > 0 {
		t.Error("a key that is known to be there was guessed to be new")
	}
}
