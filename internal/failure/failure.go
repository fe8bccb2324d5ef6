// Package failure builds the errors of stores and of what is built on them.
package failure

import (
	"fmt"

	"github.com/holdfastdb/holdfast"
)

// New is an error of op, of what is in that engine: its class, its cause, and what to do, each of which may be missing;
// format and args tell what exactly happened.
func New(op, engine string, class, cause error, remedy, format string, args ...any) error {
	return &holdfast.Error{Op: op, Engine: engine, Class: class, Cause: cause, Remedy: remedy,
		Detail: fmt.Sprintf(format, args...)}
}
