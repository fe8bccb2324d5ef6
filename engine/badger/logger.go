package badger

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
)

// logger hands the library's messages to slog: what it calls an error as a warning, because
// the engine returns its own errors, all else for debugging.
//
// One message is more than that. The library has no other way to say that it cannot make a table of a memtable; it
// tries again every second, forever, and so does its Close.
type logger struct {
	to    *slog.Logger
	data  handle
	flush *flushes
}

const flushFailed = "error flushing memtable to disk"

// flushes reports failures to make a table of a memtable.
type flushes struct {
	poison atomic.Pointer[func(error)] // is told of each
	failed chan error                  // has the latest
}

// newFlushes returns one that tells nobody until poison is set.
func newFlushes() *flushes { return &flushes{failed: make(chan error, 1)} }

// report replaces the failure that waits in failed by cause, and poisons the engine if it is open. It never blocks:
// the library calls it in its own goroutines.
func (f *flushes) report(cause error) {
	// The older one is taken out first. Two reports at once may lose one of them, which does no harm: both say that
	// flushing fails.
	select {
	case <-f.failed:
	default:
	}

	select {
	case f.failed <- cause:
	default:
	}
	if poison := f.poison.Load(); poison != nil {
		(*poison)(cause)
	}
}

// Errorf implements the library's Logger, as do the methods below.
func (l logger) Errorf(format string, args ...any) {
	if strings.HasPrefix(format, flushFailed) && len(args) > 0 {
		if cause, ok := args[0].(error); ok {
			l.flush.report(cause)
		}
	}
	l.log(slog.LevelWarn, format, args)
}
func (l logger) Warningf(format string, args ...any) { l.log(slog.LevelDebug, format, args) }
func (l logger) Infof(format string, args ...any)    { l.log(slog.LevelDebug, format, args) }
func (l logger) Debugf(format string, args ...any)   { l.log(slog.LevelDebug, format, args) }

func (l logger) log(level slog.Level, format string, args []any) {
	if l.to.Enabled(context.Background(), level) {
		l.to.Log(context.Background(), level, strings.TrimSpace(l.data.plain(fmt.Sprintf(format, args...))), "engine", Name)
	}
}
