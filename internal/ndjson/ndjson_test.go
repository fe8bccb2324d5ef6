package ndjson

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// trickle gives a megabyte at once, and then a byte each minute.
type trickle struct{ n int }

func (t *trickle) Read(b []byte) (int, error) {
	if t.n += len(b); t.n <= ShortLine+1<<16 {
		return len(b), nil
	}
	time.Sleep(time.Minute)
	return 1, nil
}

// Who sends a long line slowly does not keep others from theirs for ever.
func TestSlowLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := NewGate()
		r, err := NewReader(&trickle{}, gate)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(t.Context()); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		r.Release()
		gate <- struct{}{} // it is free
	})
}
