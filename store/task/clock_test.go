package task_test

import (
	"context"
	"sync"
	"time"
)

var ctx = context.Background()

// clock is a clock that only its test moves: as time passes, and by setting it.
type clock struct {
	sync.Mutex
	now     time.Time
	elapsed time.Duration
}

func newClock() *clock { return &clock{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.Lock()
	defer c.Unlock()
	return c.now
}

func (c *clock) Elapsed() time.Duration {
	c.Lock()
	defer c.Unlock()
	return c.elapsed
}

// move lets time pass; jump is by how much the clock is set besides.
func (c *clock) move(d, jump time.Duration) {
	c.Lock()
	defer c.Unlock()
	c.now, c.elapsed = c.now.Add(d+jump), c.elapsed+d
}

func (c *clock) pass(d time.Duration) { c.move(d, 0) }
func (c *clock) jump(d time.Duration) { c.move(0, d) }
