package load

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// followers read streams by server-sent events, and count when each message comes.
type followers struct {
	base   time.Time
	origin atomic.Int64 // what was due before is not counted

	opened    atomic.Int64
	delivered atomic.Int64 // of all messages, warming up included
	measured  atomic.Int64
	latest    atomic.Int64 // when the last one that is measured came
	shards    [16]struct {
		mu        sync.Mutex
		latencies *hdrhistogram.Histogram
	}
	cancel context.CancelFunc
	group  sync.WaitGroup
	closed atomic.Bool
	c      *counts
}

// connectAtOnce is how many followers connect at the same time.
const connectAtOnce = 32

// openWithin is how long all followers together may take until they follow.
const openWithin = 5 * time.Minute

// follow begins to follow. path is what follower i asks for. It returns once all are followed.
func follow(ctx context.Context, n int, address string, headers []string, path func(i int) string, base time.Time,
	c *counts) (*followers, error) {
	life, cancel := context.WithCancel(context.Background())
	f := &followers{base: base, c: c, cancel: cancel}
	for i := range f.shards {
		f.shards[i].latencies = measure.NewHistogram()
	}
	f.origin.Store(math.MaxInt64)

	turns := make(chan struct{}, connectAtOnce)
	failed := make(chan error, n)
	for i := range n {
		followed := newConn(address, headers...)
		f.group.Go(func() {
			turns <- struct{}{}
			turn := sync.OnceFunc(func() { <-turns })
			defer turn()
			err := followed.stream(path(i), func() {
				opened := followed.net // no other goroutine may look at the connection
				context.AfterFunc(life, func() { opened.Close() })
				f.opened.Add(1)
				turn()
			}, func(lines []byte) { f.see(i, lines) })
			if !f.closed.Load() {
				f.c.fail(fmt.Errorf("follower %d: %w", i, err))
			}
			failed <- err
		})
	}

	limit := time.After(openWithin)
	for f.opened.Load() < int64(n) {
		select {
		case err := <-failed:
			return f, fmt.Errorf("follower: %w", err)
		case <-ctx.Done():
			return f, ctx.Err()
		case <-limit:
			return f, fmt.Errorf("%d of %d followers follow after %v", f.opened.Load(), n, openWithin)
		case <-time.After(2 * time.Millisecond):
		}
	}

	return f, nil
}

// see looks at lines of what a follower is sent, which came together.
func (f *followers) see(i int, lines []byte) {
	now, origin := time.Since(f.base), f.origin.Load()
	delivered, measured := int64(0), int64(0)
	shard := &f.shards[i%len(f.shards)]
	shard.mu.Lock()
	for line := range bytes.Lines(lines) {
		at, ok := sentAt(line)
		if !ok {
			continue
		}
		delivered++
		if int64(at) >= origin {
			measured++
			measure.Record(shard.latencies, now-at)
		}
	}
	shard.mu.Unlock()

	f.delivered.Add(delivered)
	if measured > 0 {
		f.measured.Add(measured)
		f.latest.Store(int64(now))
	}
}

// await waits until so many messages were delivered.
func (f *followers) await(ctx context.Context, want int64) error {
	limit := time.After(deliverWithin)
	for {
		got := f.delivered.Load()
		switch {
		case got == want:
			return nil
		case got > want:
			return fmt.Errorf("%d messages were delivered, and there are %d", got, want)
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit:
			return fmt.Errorf("%d of %d messages were not delivered %v after the last write", want-got, want, deliverWithin)
		case <-time.After(time.Millisecond):
		}
	}
}

// deliverWithin is how long after the last write all must be delivered.
const deliverWithin = time.Minute

// close ends all followers.
func (f *followers) close() {
	f.closed.Store(true)
	f.cancel()
	f.group.Wait()
}

// latencies are those of all followers; after close.
func (f *followers) latencies() *hdrhistogram.Histogram {
	all := measure.NewHistogram()
	for i := range f.shards {
		all.Merge(f.shards[i].latencies)
	}

	return all
}
