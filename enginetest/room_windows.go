package enginetest

import "errors"

func limitFiles(string) error { return errors.ErrUnsupported }
