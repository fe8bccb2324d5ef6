package badger

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	lib "github.com/dgraph-io/badger/v4"

	"github.com/holdfastdb/holdfast"
)

const (
	// collectEvery is the pace of the collector: at most one value-log file each time.
	collectEvery = 10 * time.Second
	// collectRatio is how much of a file must be garbage, as far as compactions have found
	// it, to be worth rewriting.
	collectRatio = 0.5
	// collectRoom is more than the memtable can need for the pointers to all values of one
	// value-log file.
	collectRoom = 2 * valueLogFileSize / valueThreshold * (holdfast.MaxKeySize + 256)
)

// collector reclaims value-log files in the background: every collectEvery at most one, if at
// least collectRatio of it is garbage. Commits wait while it is rewritten, for as long as it
// takes to copy and sync at most half of it, 64 MiB; readers and snapshots do not.
type collector struct {
	quit chan struct{}
	once sync.Once
	done sync.WaitGroup
}

func startCollector(e *engine, log *slog.Logger) *collector {
	c := &collector{quit: make(chan struct{})}
	c.done.Go(func() {
		tick := time.NewTicker(collectEvery)
		defer tick.Stop()
		for {
			select {
			case <-c.quit:
				return
			case <-tick.C:
			}
			if _, err := e.collect(); err != nil {
				log.Warn("collecting the value log", "engine", Name, "error", err)
			}
		}
	})
	return c
}

// stop returns when the collector has ended.
func (c *collector) stop() {
	c.once.Do(func() { close(c.quit) })
	c.done.Wait()
}

// collect rewrites one value-log file that is mostly garbage, and reports whether there was
// one. Nobody commits meanwhile.
//
// The library copies what is still needed to the newest file and deletes the old one, and
// syncs neither the copies nor the pointers to them. A power cut would then take values that
// had been synced for long. So an iterator is held open, which makes the library put off the
// deletion, until all logs are synced; and a file is collected only while the memtable has
// room for the pointers, so that no table is made of them before.
func (e *engine) collect() (found bool, err error) {
	var fatal error
	err = e.group.Exclusive(func() error {
		if !e.logs.large || e.logs.fill.bound()+collectRoom >= memTableSize {
			return nil
		}
		txn := e.db.NewTransaction(false)
		pin := openCursor(txn, holdfast.Range{})
		err := e.db.RunValueLogGC(collectRatio)
		if none := errors.Is(err, lib.ErrNoRewrite) || errors.Is(err, lib.ErrRejected); none {
			err = nil
		} else {
			if fatal = e.logs.catchUp(); fatal != nil {
				return fatal // and the iterator stays open, and the old file with it
			}
			e.logs.fill.arena.Add(collectRoom)
			e.collected.Add(1)
			found = err == nil
		}
		pin.close()
		txn.Discard()
		return err
	})
	if fatal != nil {
		err = e.group.Fail(failed("sync", e.logs.dir, fatal))
	}
	return found, err
}
