package enginetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
)

// Close ends what may take long, and does not wait until it is done: the call returns ErrClosed. Nothing that can be
// read changes by that, and the directory is free when Close returns.
func endedByClose(a *trial) {
	dir, copies := a.dir(), a.TempDir()
	e := a.open(dir)
	calls := map[string]func(context.Context, holdfast.Engine, string) error{}
	if _, ok := e.(holdfast.Compactor); ok {
		calls["Compact"] = func(ctx context.Context, e holdfast.Engine, _ string) error {
			return holdfast.Compact(ctx, e, holdfast.Range{})
		}
	}
	if _, ok := e.(holdfast.Verifier); ok {
		calls["Verify"] = func(ctx context.Context, e holdfast.Engine, _ string) error {
			damage, err := holdfast.Verify(ctx, e)
			return errors.Join(append(damage, err)...)
		}
	}
	if _, ok := e.(holdfast.Checkpointer); ok {
		calls["Checkpoint"] = holdfast.Checkpoint
	}
	a.close(e)

	for name, call := range calls {
		closed := false
		for round := range 6 {
			e := a.open(dir)
			written := a.rewrite(e, round)
			ctx := &entered{Context: context.Background(), inside: make(chan struct{}), pause: time.Millisecond << round >> 1}

			returned, into := make(chan error, 1), filepath.Join(copies, fmt.Sprint(name, round))
			go func() { returned <- call(ctx, e, into) }()

			var err error
			select {
			case <-ctx.inside:
				a.close(e)
				err = <-returned
			case err = <-returned: // it never asked for the end of its context
				a.close(e)
			}
			if err != nil {
				a.wantsErr(name+" that Close ends", err, holdfast.ErrClosed)
				if _, err := os.Stat(into); err == nil {
					a.Errorf("a checkpoint that Close has ended is there")
				}
			}
			closed = closed || err != nil

			e = a.open(dir)
			for key, value := range written {
				a.wants(e, key, value)
			}
			a.close(e)
		}
		if !closed {
			a.Errorf("Close never ended %s: it waited until that was done", name)
		}
	}
}

// rewrite replaces the same keys several times, and returns what they have then.
func (a *trial) rewrite(e holdfast.Engine, round int) map[string]string {
	written := map[string]string{}
	var b holdfast.Batch

	for turn := range 4 {
		for i := range 32 {
			key, value := fmt.Sprint("key", i), make([]byte, 16<<10)
			copy(value, fmt.Sprint(round, turn, i))
			b.Set([]byte(key), value)
			written[key] = string(value)
		}
		a.commit(e, &b)
		b.Reset()
	}

	return written
}

// entered is a context that tells when somebody first waits for its end, and then keeps him for a while.
type entered struct {
	context.Context
	once   sync.Once
	inside chan struct{}
	pause  time.Duration
}

func (c *entered) Done() <-chan struct{} {
	c.once.Do(func() {
		close(c.inside)
		time.Sleep(c.pause)
	})

	return make(chan struct{})
}
