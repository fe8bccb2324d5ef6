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

func (h handle) plain(text string) string { return strings.ReplaceAll(text, h.name, h.dir) }

// err is err with the directory's own name in its text.
func (h handle) err(err error) error {
	if err == nil || h.name == h.dir || !strings.Contains(err.Error(), h.name) {
		return err
	}

	return &plainError{err, h.plain(err.Error())}
}

type plainError struct {
	error
	text string
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.error }

func (h handle) close() error {
	if h.file == nil {
		return nil
	}

	return h.file.Close()
}
