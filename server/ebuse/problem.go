package ebuse

import (
	"errors"
	"net/http"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
)

// statuses are those of the classes of errors; the first that fits counts.
var statuses = []struct {
	class  error
	status int
}{
	{holdfast.ErrFull, http.StatusInsufficientStorage},
	{holdfast.ErrTooLarge, http.StatusRequestEntityTooLarge},
	{event.ErrBadEvent, http.StatusBadRequest},
	{event.ErrAhead, http.StatusConflict},
	{holdfast.ErrLevel, http.StatusBadRequest},
	{message.ErrNoNamespace, http.StatusNotFound},
	{holdfast.ErrPoisoned, http.StatusServiceUnavailable},
	{holdfast.ErrClosed, http.StatusServiceUnavailable},
}

// problem returns the status and the text for an error.
func problem(err error) (int, string) {
	for _, s := range statuses {
		if errors.Is(err, s.class) {
			return s.status, err.Error()
		}
	}
	return http.StatusInternalServerError, err.Error()
}
