package registry_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/registry"
)

// odd is an engine with other capabilities.
type odd struct {
	holdfast.Engine
	change func(*holdfast.Capabilities)
	by     []int // makes a value of it incomparable
}

func (o odd) Capabilities() holdfast.Capabilities {
	c := o.Engine.Capabilities()
	if o.change != nil {
		o.change(&c)
	}
	return c
}

func request() registry.Request {
	return registry.Request{Kind: "kind", Thing: "thing", Name: "name", MaxName: 4, Level: holdfast.Memory,
		Prefix: "k/name", KeySize: 17}
}

func TestRefused(t *testing.T) {
	torn := func(c *holdfast.Capabilities) { c.AtomicBatches = false }
	lost := func(c *holdfast.Capabilities) { c.Lost = "2 keys" }
	short := func(c *holdfast.Capabilities) { c.MaxKeySize = 16 }
	for _, c := range []struct {
		name string
		eng  holdfast.Engine
		ask  func(*registry.Request)
		want error
		text string
	}{
		{"no engine", nil, nil, holdfast.ErrBadOption, "<nil>"},
		{"not comparable", odd{Engine: mem.New(), by: []int{1}}, nil, holdfast.ErrBadOption, "pointer"},
		{"long name", mem.New(), func(r *registry.Request) { r.Name = "names" }, holdfast.ErrBadOption,
			"5 bytes; use at most 4"},
		{"no such level", mem.New(), func(r *registry.Request) { r.Level = 9 }, holdfast.ErrLevel, "level"},
		{"level not given", mem.New(), func(r *registry.Request) { r.Level = 0 }, holdfast.ErrLevel, "level"},
		{"torn batches", &odd{Engine: mem.New(), change: torn}, nil, holdfast.ErrBadOption, "tear"},
		{"a repair that lost something", &odd{Engine: mem.New(), change: lost}, nil, holdfast.ErrCorrupt,
			"2 keys; restore a backup, or accept"},
		{"short keys", &odd{Engine: mem.New(), change: short}, nil, holdfast.ErrBadOption, "16 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request()
			if c.ask != nil {
				c.ask(&r)
			}
			_, err := registry.Claim(c.eng, r)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "kind open") {
				t.Fatalf("got %v, want %v, with %q", err, c.want, c.text)
			}
			if c.eng != nil { // what was refused has taken nothing
				l, err := registry.Claim(&odd{Engine: mem.New()}, request())
				if err != nil {
					t.Fatal(err)
				}
				l.Release()
			}
		})
	}
}

// Of many who claim the same keys one gets the lease, until it is released; other names and other engines have leases
// of their own.
func TestOneLease(t *testing.T) {
	eng := mem.New()
	for range 3 {
		var got atomic.Int64
		var lease registry.Lease
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				l, err := registry.Claim(eng, request())
				switch {
				case err == nil:
					got.Add(1)
					lease = l
				case !errors.Is(err, holdfast.ErrLocked) || !strings.Contains(err.Error(), `the thing "name"`):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got.Load() != 1 || lease.Level != holdfast.Memory || lease.Caps.Engine != eng.Capabilities().Engine {
			t.Fatalf("%d have got it; %+v", got.Load(), lease)
		}
		other := request()
		other.Prefix = "k/else"
		for _, c := range []struct {
			eng holdfast.Engine
			r   registry.Request
		}{{eng, other}, {mem.New(), request()}} {
			l, err := registry.Claim(c.eng, c.r)
			if err != nil {
				t.Fatal(err)
			}
			l.Release()
		}
		lease.Release()
	}
}
