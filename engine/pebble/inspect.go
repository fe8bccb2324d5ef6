package pebble

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/holdfastdb/holdfast"
)

// inspect looks at what is in the directory before Pebble does, and reports whether it
// holds a database: then Pebble must not make a new one because a file is missing. It
// returns ErrCorrupt where Pebble would silently take an older state.
func inspect(below vfs.FS, data string) (found bool, err error) {
	names, err := below.List(data)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, openError(data, nil, err)
	}
	for _, name := range names {
		// Written last when a database is made, and ever after there.
		found = found || strings.HasPrefix(name, "OPTIONS-")
	}
	for _, name := range names {
		// The marker's name ends in the name of the manifest that counts.
		_, manifest, ok := strings.Cut(name, "MANIFEST-")
		if !ok || !strings.HasPrefix(name, "marker.manifest.") {
			continue
		}
		path := below.PathJoin(data, "MANIFEST-"+manifest)
		content, err := readFile(below, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // Pebble says so if it matters: an older marker may be left
		}
		if err != nil {
			return false, openError(path, nil, err)
		}
		if at, damaged := damage(content); damaged {
			return false, &holdfast.Error{Op: "open", Engine: Name, Path: path, Offset: at, Class: holdfast.ErrCorrupt,
				Detail: "a record is damaged and later ones are not", Remedy: "restore the directory from a backup"}
		}
	}
	return found, nil
}

// damage looks for a chunk that is not whole before one that is. Records are synced one by
// one in a manifest, so only its end can be torn. Pebble reads up to the first chunk that
// is not whole, and would take what came before for everything.
func damage(manifest []byte) (at int64, damaged bool) {
	at = -1
	for start := 0; start < len(manifest); start += blockSize {
		block := manifest[start:min(start+blockSize, len(manifest))]
		for i := 0; i+plainHeader <= len(block); {
			header, length := chunkHeader(block[i+6]), int(binary.LittleEndian.Uint16(block[i+4:]))
			n := header + length
			whole := header > 0 && i+n <= len(block) && chunkSum(block[i+6:i+n]) == binary.LittleEndian.Uint32(block[i:])
			if header == 0 && isZero(block[i:]) {
				break // filling
			}
			if whole && at >= 0 {
				return at, true
			}
			if !whole && at < 0 {
				at = int64(start + i)
			}
			if header == 0 || i+n > len(block) {
				break // where the next chunk begins is only known in the next block
			}
			i += n
		}
	}
	return 0, false
}

func isZero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}

// shown are Pebble's own settings that matter when engines are compared, in the order in
// which they are shown.
var shown = []string{
	"format_major_version", "disable_wal", "wal_bytes_per_sync", "bytes_per_sync", "cache_size", "mem_table_size",
	"mem_table_stop_writes_threshold", "l0_compaction_threshold", "l0_stop_writes_threshold", "lbase_max_bytes",
	"max_concurrent_compactions", "block_size", "compression", "filter_policy",
}

// readSettings reads back what Pebble has written to its options file.
func readSettings(below vfs.FS, data string) ([]holdfast.Setting, error) {
	names, err := below.List(data)
	if err != nil {
		return nil, err
	}
	newest := ""
	for _, name := range names {
		if strings.HasPrefix(name, "OPTIONS-") && (len(name) > len(newest) || len(name) == len(newest) && name > newest) {
			newest = name
		}
	}
	text, err := readFile(below, below.PathJoin(data, newest))
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		// Those of the first level stand for all.
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			if _, known := values[key]; !known {
				values[key] = value
			}
		}
	}
	var found []holdfast.Setting
	for _, key := range shown {
		if value, ok := values[key]; ok {
			found = append(found, holdfast.Setting{Name: key, Value: value})
		}
	}
	return found, nil
}

func readFile(below vfs.FS, path string) ([]byte, error) {
	f, err := below.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
