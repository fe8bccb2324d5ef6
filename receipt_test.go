package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
)

// waiter settles when its channel is closed.
type waiter struct {
	settled chan struct{}
	err     error
}

func (w *waiter) Wait(uint64) error {
	<-w.settled
	return w.err
}

func TestWaitContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waiter{make(chan struct{}), holdfast.ErrPoisoned}
		r := holdfast.NewReceipt(w, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.WaitContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("not settled: %v", err)
		}
		if err := r.WaitContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a context that has ended: %v", err)
		}
		time.AfterFunc(time.Second, func() { close(w.settled) })
		if err := r.WaitContext(t.Context()); !errors.Is(err, holdfast.ErrPoisoned) {
			t.Errorf("settled later: %v", err)
		}
		if err := r.WaitContext(context.Background()); !errors.Is(err, holdfast.ErrPoisoned) {
			t.Errorf("settled: %v", err)
		}
		var zero holdfast.Receipt
		if err := zero.WaitContext(ctx); err != nil {
			t.Errorf("the zero receipt: %v", err)
		}
		if err := r.WaitContext(context.Context(nil)); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("without a context: %v", err)
		}
	})
}

func TestPrefix(t *testing.T) {
	for _, c := range []struct{ prefix, lo, hi string }{
		{"", "", ""}, {"a", "a", "b"}, {"order/", "order/", "order0"},
		{"a\xff", "a\xff", "b"}, {"\xff", "\xff", ""}, {"\xff\xff", "\xff\xff", ""}, {"a\xfe\xff", "a\xfe\xff", "a\xff"},
	} {
		p := []byte(c.prefix)
		r := holdfast.Prefix(p)
		if string(r.Lo) != c.lo || string(r.Hi) != c.hi || r.Reverse || string(p) != c.prefix {
			t.Errorf("%q: %+v", c.prefix, r)
		}
		if len(p) > 0 && (&r.Lo[0] == &p[0]) {
			t.Errorf("%q shares memory", c.prefix)
		}
		// Every key lies in it if and only if it begins so.
		for _, k := range []string{"a", "a\xfe\xff", "a\xff", "a\xff\x00", "b", "order", "order/", "order/1", "order/\xff",
			"order0", "\xff", "\xff\xff", "\xff\xff\x01"} {
			in := k >= string(r.Lo) && (len(r.Hi) == 0 || k < string(r.Hi))
			if in != bytes.HasPrefix([]byte(k), p) {
				t.Errorf("%q in %+v: %v", k, r, in)
			}
		}
	}
}
