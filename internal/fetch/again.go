package fetch

import (
	"errors"

	"github.com/holdfastdb/holdfast"
)

// Again calls read, and once more if the engine's server went away meanwhile: another one may have taken over, for
// which an engine waits as a read begins. It is for reads of a page that need not be of the state of the page before.
func Again(read func() error) error {
	err := read()
	if errors.Is(err, holdfast.ErrUnavailable) {
		err = read()
	}

	return err
}
