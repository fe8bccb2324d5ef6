package bench

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/lab/contender"
)

// fakeOrders is a peer that does not keep its promises: ours, of which a mutant may change what is written and read.
type fakeOrders struct {
	holdfast.Engine
	orders
	shut  func() error
	n     int // calls since it was spoilt
	order func(n int, o *contender.Order) (again bool)
	read  func(n int, message, row []byte) (m, r []byte, skip bool)
}

func (f *fakeOrders) Order(ctx context.Context, o contender.Order, apart bool) (string, error) {
	id, err := f.orders.Order(ctx, o, apart)
	if f.n++; err == nil && f.order != nil && f.order(f.n, &o) {
		_, err = f.orders.Enqueue(ctx, o.Task)
	}
	return id, err
}

func (f *fakeOrders) Orders(ctx context.Context, stream string, yield func(message, row []byte) error) error {
	return f.orders.Orders(ctx, stream, func(message, row []byte) error {
		if f.n++; f.read != nil {
			m, r, skip := f.read(f.n, message, row)
			if skip {
				return nil
			}
			message, row = m, r
		}
		return yield(message, row)
	})
}

// Close closes the stores and their engine.
func (f *fakeOrders) Close() error { return errors.Join(f.shut(), f.Engine.Close()) }

// TestOrderVerificationCatches: whatever is wrong with the orders, both workloads see it.
func TestOrderVerificationCatches(t *testing.T) {
	for name, spoil := range map[string]func(f *fakeOrders){
		"nothing": func(*fakeOrders) {},
		"an order is lost": func(f *fakeOrders) {
			f.read = func(n int, m, r []byte) ([]byte, []byte, bool) { return m, r, n == 60 }
		},
		"a row is lost": func(f *fakeOrders) {
			f.read = func(n int, m, r []byte) ([]byte, []byte, bool) {
				if n == 40 {
					r = nil
				}
				return m, r, false
			}
		},
		"a message is another": func(f *fakeOrders) {
			f.read = func(n int, m, r []byte) ([]byte, []byte, bool) {
				if n == 40 {
					m = []byte(`{}`)
				}
				return m, r, false
			}
		},
		"a task is there twice": func(f *fakeOrders) { f.order = func(n int, _ *contender.Order) bool { return n == 7 } },
	} {
		t.Run(name, func(t *testing.T) {
			seen := "order order-apart"
			if name == "nothing" {
				seen = ""
			}
			notice(t, taskOrderWorkloads(), seen, func() (holdfast.Engine, func()) {
				engine := mem.New()
				ours, shut, err := openOrders(engine, holdfast.Memory)
				if err != nil {
					t.Fatal(err)
				}
				f := &fakeOrders{Engine: engine, orders: ours, shut: shut}
				return f, func() { spoil(f) }
			})
		})
	}
}
