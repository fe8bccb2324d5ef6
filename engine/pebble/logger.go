package pebble

import (
	"fmt"
	"log/slog"
)

// logger passes on what Pebble has to say. Pebble calls Fatalf and expects the process to
// end; here the engine is poisoned instead.
type logger struct {
	to *slog.Logger
	d  *disk
}

func (l logger) Infof(format string, args ...any) {
	l.to.Debug("pebble: " + fmt.Sprintf(format, args...))
}

func (l logger) Errorf(format string, args ...any) {
	l.to.Error("pebble: " + fmt.Sprintf(format, args...))
}

func (l logger) Fatalf(format string, args ...any) {
	err := oneLine(fmt.Errorf(format, args...))
	l.d.fail("write", l.d.dir, err)
	l.to.Error("pebble: " + err.Error())
}
