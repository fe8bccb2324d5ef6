package crash

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
)

// ErrReport is in the chain of the error for a file that holds no report of crash, or not a whole one.
var ErrReport = errors.New("not a report of holdfast crash")

// refused is the error for a file at a path that is no report.
func refused(path string, cause error) error {
	return &holdfast.Error{Op: "read", Path: path, Class: ErrReport, Cause: console.WithoutPath(cause),
		Remedy: "name a file that holdfast crash has written with --json, as it was written"}
}

// ParseReport reads a report; errors say that it came from path. What has fields that it does not know, lacks rows or
// is cut off is refused with an error that wraps [ErrReport].
func ParseReport(path string, text []byte) (*Report, error) {
	var r Report
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()

	// What follows the first value is looked at too: two reports in one file are a mistake of whoever joined them.
	err := d.Decode(&r)
	switch _, more := d.Token(); {
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return nil, refused(path, errors.New("the file ends before the report does"))
	case err != nil:
		return nil, refused(path, err)
	case r.Schema != Schema:
		return nil, refused(path, fmt.Errorf("its schema is %q, this build reads %q", r.Schema, Schema))
	case !errors.Is(more, io.EOF):
		return nil, refused(path, errors.New("there is more behind the report"))
	}

	return &r, nil
}
