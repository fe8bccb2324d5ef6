package db

import (
	"time"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
)

// Work does background work in the caller's goroutine until there is none left, or limit steps are done; it returns
// how many. It is for databases opened with Config.Manual.
func (d *DB) Work(limit int) (n int, err error) {
	for n < limit {
		did := false
		for a, f := range []func() (bool, error){d.flushOnce, d.compactor.step, d.prepareNext} {
			// The order is that of the constants of activity, which name the work where it fails.
			ok, err := f()
			did = did || ok && err == nil
			if err = d.worked(activity(a), err); err != nil {
				return n, err
			}
		}
		if !did {
			return n, nil
		}
		n++
	}

	return n, nil
}

// worked notes how background work ended. What failed has been undone and is tried again: only what leaves two
// manifests stops the database, and is returned.
func (d *DB) worked(a activity, err error) error {
	if err == nil {
		d.troubles[a].Store(nil)
		return nil
	}
	if format.IsFatal(err) || d.log.Err() != nil {
		return d.log.Fail(err)
	}

	// Work is tried again every few seconds, perhaps for weeks: only the first failure in a row is worth a line.
	if d.troubles[a].Swap(&err) == nil {
		d.logger.Warn("background work failed, and is tried again", "work", a, "error", err)
	}

	return nil
}

// background runs f whenever c says so, and on until f has nothing to do. What fails is tried again after a while.
func (d *DB) background(a activity, c chan struct{}, f func() (bool, error)) {
	d.done.Go(func() {
		pause := leastRetry
		for {
			select {
			case <-d.stop:
				return
			case <-c:
			}

			// A token may stand for many changes, so f is called until it has nothing left to do.
			for more := true; more; {
				d.watch.during(a, true)
				var err error
				more, err = f()
				d.watch.during(a, false)
				if d.worked(a, err) != nil {
					return
				}
				if err != nil {
					// A goroutine that waits for the channel is woken by the timer like by anybody else. The pause grows as long as
					// nothing succeeds.
					more = false

					retry := time.AfterFunc(pause, func() { d.wake(c) })
					defer retry.Stop()
					pause = min(2*pause, mostRetry)
				} else if more {
					pause = leastRetry
				}

				// A database that is being closed does not wait for the end of a long backlog: Release waits for this
				// goroutine.
				select {
				case <-d.stop:
					return
				default:
				}
			}
		}
	})
}

// How long background work that failed waits before it is tried again.
const (
	leastRetry = 100 * time.Millisecond
	mostRetry  = 10 * time.Second
)
