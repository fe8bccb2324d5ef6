//go:build !unix

package bench

import (
	"errors"
	"os"
)

// canMap is true where floor-map is measured.
const canMap = false

func mapFile(*os.File, int64) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmapFile([]byte) error { return nil }
