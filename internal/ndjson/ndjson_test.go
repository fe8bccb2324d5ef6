package ndjson

import (
	"context"
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

// Who is gone is not read on for: a gigabyte of empty lines takes a megabyte to send.
func TestEmptyLines(t *testing.T) {
	r, err := NewReader(newlines{}, NewGate())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range 10 {
		if _, err := r.Next(ctx); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	for range 2000 {
		if _, err = r.Next(ctx); err != nil {
			break
		}
	}
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// newlines has no end.
type newlines struct{}

func (newlines) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '\n'
	}
	return len(b), nil
}
