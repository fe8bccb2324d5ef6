package holdfast

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// The classes of errors. Test for them with errors.Is; what happened, where, and
// what to do about it is in the message of the [Error] that carries them.
var (
	// ErrNotFound: the key is not there. Get returns it as it is.
	ErrNotFound = errors.New("holdfast: not found")
	// ErrClosed: the engine, store or snapshot has been closed. A closed iterator just ends.
	ErrClosed = errors.New("holdfast: closed")
	// ErrBusy: Close found iterators or snapshots still open.
	ErrBusy = errors.New("holdfast: in use")
	// ErrStoresOpen: an engine was closed before the stores in it, which the message names. Nothing that was acknowledged
	// is lost. Close stores first.
	ErrStoresOpen = errors.New("holdfast: closed before its stores")
	// ErrPoisoned: a write or sync failed earlier; the cause is wrapped. Reads continue. Reopen the engine once the
	// cause is fixed.
	ErrPoisoned = errors.New("holdfast: stopped after a failed write")
	// ErrCorrupt: what had been stored safely does not read back as written.
	ErrCorrupt = errors.New("holdfast: corrupt")
	// ErrLocked: the directory is open elsewhere.
	ErrLocked = errors.New("holdfast: directory in use")
	// ErrReplaced: the directory was removed, renamed or replaced while it was open, or its
	// LOCK file was. It poisons the engine.
	ErrReplaced = errors.New("holdfast: directory replaced")
	// ErrFenced: another process has taken the data over, or may have, so that this engine is not to be relied on any
	// more. It is the cause of the poison ([ErrPoisoned]) of an engine that is no longer the owner, and reads return it
	// where the state may be an old one. Nothing that was acknowledged is lost: the new owner has it. Engines on one
	// machine have [ErrLocked] instead.
	ErrFenced = errors.New("holdfast: another process owns the data")
	// ErrForeign: the directory holds something else: another engine's data,
	// another level's, or no engine's at all.
	ErrForeign = errors.New("holdfast: foreign directory")
	// ErrVersion: a newer format wrote the directory or store, or an older one that the program has not asked to
	// upgrade.
	ErrVersion = errors.New("holdfast: format version")
	// ErrLevel: no such level, or the engine cannot give it.
	ErrLevel = errors.New("holdfast: level not available")
	// ErrBadKey: an empty key, or one longer than MaxKeySize, or than the engine allows (Capabilities).
	ErrBadKey = errors.New("holdfast: bad key")
	// ErrTooLarge: a value or batch over its limit.
	ErrTooLarge = errors.New("holdfast: too large")
	// ErrFull: there is no room left on the device, or in the quota. Of Apply: nothing of the batch was written, and
	// the engine keeps working: deletes may still be accepted, and other writes are accepted once there is room again.
	// Of Open: nothing is lost, and it opens once there is room.
	ErrFull = errors.New("holdfast: no room on the device")
	// ErrUnavailable: this engine or feature is not in this build or not on this
	// system.
	ErrUnavailable = errors.New("holdfast: not available here")
	// ErrBadOption: an option, name or address that makes no sense, or a nil batch or context.
	ErrBadOption = errors.New("holdfast: bad option")
)

// Error says what happened, where and what to do. Its class and its cause can both be
// found with errors.Is and errors.As.
type Error struct {
	Op     string // what was being done: "open", "apply"
	Engine string // the engine's name, if one is involved
	Path   string // file or directory, if one is involved
	Offset int64  // byte offset in Path of damage, if Class is ErrCorrupt and it is known, otherwise 0
	Class  error  // one of the sentinels above
	Detail string // what exactly
	Cause  error  // the underlying error, may be nil
	Remedy string // what to do about it, may be empty
}

// Error builds one line: where, what, why, and the remedy.
func (e *Error) Error() string {
	var s strings.Builder
	for _, part := range []string{e.Engine, e.Op} {
		if part != "" {
			if s.Len() > 0 {
				s.WriteByte(' ')
			}
			s.WriteString(part)
		}
	}
	if e.Path != "" {
		if s.Len() > 0 {
			s.WriteByte(' ')
		}
		s.WriteString(e.Path)
		if e.Offset > 0 {
			fmt.Fprintf(&s, " at byte %d", e.Offset)
		}
	}
	var class, cause string
	if e.Class != nil {
		class = strings.TrimPrefix(e.Class.Error(), "holdfast: ")
	}
	if e.Cause != nil {
		cause = e.cause()
	}

	for _, part := range []string{class, e.Detail, cause} {
		if part != "" {
			if s.Len() > 0 {
				s.WriteString(": ")
			}
			s.WriteString(part)
		}
	}
	if e.Remedy != "" {
		s.WriteString("; " + e.Remedy)
	}

	return s.String()
}

// cause is the text of the cause without what is said already: the engine, the operation and the path.
func (e *Error) cause() string {
	switch c := e.Cause.(type) {
	case *Error:
		inner := *c
		if inner.Engine == e.Engine {
			inner.Engine = ""
		}
		if inner.Op == e.Op {
			inner.Op = ""
		}
		if inner.Remedy == e.Remedy {
			inner.Remedy = ""
		}
		if inner.Path == e.Path && inner.Offset == e.Offset {
			inner.Path = ""
		}
		if inner.Path == "" && e.Path != "" {
			// What it says of its own cause's path holds for e's.
			if p, ok := inner.Cause.(*fs.PathError); ok && p.Path == e.Path {
				inner.Cause = withoutPath(p, c.Op)
			}
		}

		return inner.Error()
	case *fs.PathError:
		if c.Path == e.Path {
			return withoutPath(c, e.Op).Error()
		}
	}

	return e.Cause.Error()
}

func withoutPath(p *fs.PathError, op string) error {
	if p.Op == op {
		return p.Err
	}

	return fmt.Errorf("%s: %w", p.Op, p.Err)
}

// Unwrap returns the class and the cause.
func (e *Error) Unwrap() []error {
	var errs []error
	if e.Class != nil {
		errs = append(errs, e.Class)
	}
	if e.Cause != nil {
		errs = append(errs, e.Cause)
	}

	return errs
}

// CheckKey returns ErrBadKey for an empty key or one over MaxKeySize. Engines call it
// in Get.
func CheckKey(key []byte) error {
	if len(key) == 0 {
		return &Error{Op: "check key", Class: ErrBadKey, Detail: "it is empty", Remedy: "keys have 1 to 16384 bytes"}
	}
	if len(key) > MaxKeySize {
		return &Error{Op: "check key", Class: ErrBadKey, Detail: fmt.Sprintf("it has %d bytes", len(key)),
			Remedy: "keys have 1 to 16384 bytes"}
	}

	return nil
}

// CheckRange returns ErrBadKey for a bound over MaxKeySize. Engines call it in Scan.
func CheckRange(r Range) error {
	for _, bound := range [][]byte{r.Lo, r.Hi} {
		if len(bound) > MaxKeySize {
			return &Error{Op: "check range", Class: ErrBadKey, Detail: fmt.Sprintf("a bound has %d bytes", len(bound)),
				Remedy: "bounds have at most 16384 bytes"}
		}
	}

	return nil
}

// CheckContext returns ErrBadOption for a nil context, and otherwise the context's error. Stores call it before they
// use a context.
func CheckContext(ctx context.Context) error {
	if ctx == nil {
		return &Error{Op: "check context", Class: ErrBadOption, Detail: "it is nil", Remedy: "pass context.Background()"}
	}

	return ctx.Err()
}

// FailedIterator returns an iterator over nothing that reports err. It is for
// engines, whose Scan has no error of its own.
func FailedIterator(err error) Iterator { return failedIterator{err} }

type failedIterator struct{ err error }

func (failedIterator) Next() bool     { return false }
func (failedIterator) Key() []byte    { return nil }
func (failedIterator) Value() []byte  { return nil }
func (f failedIterator) Err() error   { return f.err }
func (f failedIterator) Close() error { return f.err }
