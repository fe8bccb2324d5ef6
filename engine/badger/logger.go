package badger

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// logger hands the library's messages to slog: what it calls an error as a warning, because
// the engine returns its own errors, all else for debugging.
type logger struct{ to *slog.Logger }

func (l logger) Errorf(format string, args ...any)   { l.log(slog.LevelWarn, format, args) }
func (l logger) Warningf(format string, args ...any) { l.log(slog.LevelDebug, format, args) }
func (l logger) Infof(format string, args ...any)    { l.log(slog.LevelDebug, format, args) }
func (l logger) Debugf(format string, args ...any)   { l.log(slog.LevelDebug, format, args) }

func (l logger) log(level slog.Level, format string, args []any) {
	if l.to.Enabled(context.Background(), level) {
		l.to.Log(context.Background(), level, strings.TrimSpace(fmt.Sprintf(format, args...)), "engine", Name)
	}
}
