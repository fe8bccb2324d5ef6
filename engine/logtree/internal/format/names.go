package format

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Name is the engine's name, for errors.
const Name = "logtree"

// Names of files.
const (
	ManifestName = "MANIFEST"
	ReserveName  = "RESERVE"
	SegmentExt   = ".seg" // behind a number, like tableExt
	TableExt     = ".run"
)

// SegmentName is the path of segment id.
func SegmentName(dir string, id uint32) string {
	return filepath.Join(dir, fmt.Sprintf("%08d"+SegmentExt, id))
}

// TableName is the path of table id.
func TableName(dir string, id uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%08d"+TableExt, id))
}

// Numbered returns the number of a file's name with that extension.
func Numbered(name, ext string) (uint64, bool) {
	stem, ok := strings.CutSuffix(name, ext)
	if !ok || len(stem) < 8 {
		return 0, false
	}

	// Eight digits are the least, as SegmentName writes them. Number 0 is nobody's.
	n, err := strconv.ParseUint(stem, 10, 64)

	return n, err == nil && n > 0
}
