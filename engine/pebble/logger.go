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

// Infof implements Pebble's Logger. What Pebble tells about its work is for debugging here.
func (l logger) Infof(format string, args ...any) {
	l.to.Debug("pebble: " + fmt.Sprintf(format, args...))
}

// Errorf implements Pebble's Logger.
func (l logger) Errorf(format string, args ...any) {
	l.to.Error("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf implements Pebble's Logger. It returns, which Pebble does not expect; with the disk frozen first, nothing
// that Pebble does afterwards reaches the directory.
func (l logger) Fatalf(format string, args ...any) {
	err := oneLine(fmt.Errorf(format, args...))
	l.d.fail("write", l.d.dir, err)
	l.to.Error("pebble: " + err.Error())
}
