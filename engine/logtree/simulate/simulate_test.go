package simulate

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	one  = flag.Uint64("simulate.seed", 0, "run the history of this seed only, and tell its steps")
	long = flag.Duration("simulate.for", 0, "run fresh histories for this long; default: some seconds")
)

// TestFresh runs histories of fresh seeds.
func TestFresh(t *testing.T) {
	if *one != 0 {
		s, err := run(context.Background(), *one, nil, func(step int, what string) { t.Logf("%4d %s", step, what) })
		t.Logf("%+v", s)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	d := 4 * time.Second
	if testing.Short() {
		d = time.Second
	}
	if *long > 0 {
		d = *long
	}
	seed := rand.Uint64()
	t.Logf("from seed %d", seed)
	var all Stats
	n := 0
	for began := time.Now(); time.Since(began) < d; n++ {
		s, err := Run(context.Background(), seed)
		all.Add(s)
		if err != nil {
			t.Errorf("%v", err)
			if t.Failed() && *long == 0 {
				break
			}
		}
		seed++
	}
	t.Logf("%d histories: %+v", n, all)
}
