package storetest

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
)

// Close closes a store.
func Close(t testing.TB, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// CloseAtEnd closes a store at the end of the test, unless the test has.
func CloseAtEnd(t testing.TB, c io.Closer) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, holdfast.ErrClosed) {
			t.Error(err)
		}
	})
}

// WantError checks that an error is of that class and says something.
func WantError(t testing.TB, err, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("got error %v, want %v", err, class)
	}
	if err.Error() == "" {
		t.Fatal("the error says nothing")
	}
}

// Async calls f in a goroutine.
func Async(f func() error) chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()

	return done
}

// Unfinished checks that none of the calls has returned, a little later. That none does cannot be known, only found out
// to be wrong: a test that relies on it is right on a slow machine too, but finds less.
func Unfinished(t testing.TB, calls ...chan error) {
	t.Helper()
	time.Sleep(10 * time.Millisecond)

	for i, c := range calls {
		select {
		case err := <-c:
			t.Fatalf("call %d has returned (%v) before it may", i, err)
		default:
		}
	}
}

// Finished waits for the calls, each of which must return an error of class want, or nil if that is nil.
func Finished(t testing.TB, want error, calls ...chan error) {
	t.Helper()

	for i, c := range calls {
		select {
		case err := <-c:
			if !errors.Is(err, want) {
				t.Fatalf("call %d returned %v, want %v", i, err, want)
			}
		case <-time.After(3 * time.Minute):
			t.Fatalf("call %d does not return", i)
		}
	}
}
