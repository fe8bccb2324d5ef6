package badger

import (
	"os"
	"strings"
)

// handle is a name for the library's directory that leads to it also when the directory was renamed or replaced: the
// library makes and removes files by name in the background, where datadir.Handle.Check cannot be called before.
type handle struct {
	name string // dir, where the system gives no such name
	dir  string // what messages call it
	file *os.File
}

// plain replaces the handle's name in a text by the directory's own.
func (h handle) plain(text string) string { return strings.ReplaceAll(text, h.name, h.dir) }

// err is err with the directory's own name in its text.
func (h handle) err(err error) error {
	if err == nil || h.name == h.dir || !strings.Contains(err.Error(), h.name) {
		return err
	}

	return &plainError{err, h.plain(err.Error())}
}

// plainError is an error with another text; errors.Is and errors.As see the original.
type plainError struct {
	error
	text string
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.error }

// close gives the handle up. The library must be closed before: its names lead through it.
func (h handle) close() error {
	if h.file == nil {
		return nil
	}

	return h.file.Close()
}
