package pebble

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
	"github.com/holdfastdb/holdfast"
)

// findings are what is known of a directory before Pebble opens it.
type findings struct {
	database bool  // it holds one: Pebble must not make a new one because a file is missing
	torn     int64 // bytes at the end of the log that Pebble will cut off
}

// inspect looks at what is in the directory before Pebble does. It returns ErrCorrupt where
// Pebble would silently take an older state.
func inspect(below vfs.FS, data string) (found findings, err error) {
	names, err := below.List(data)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return found, openError(data, nil, err)
	}

	// What Pebble will cut off has to be counted before it does.
	if found.torn, err = tornTail(below, data); err != nil {
		return found, openError(data, nil, err)
	}

	for _, name := range names {
		// Written last when a database is made, and ever after there.
		found.database = found.database || strings.HasPrefix(name, "OPTIONS-")
	}

	for _, name := range names {
		// The marker's name ends in the name of the manifest that counts. A marker is an empty file. Pebble removes the
		// older one only after it has made the newer, so there may be two.
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
			return found, openError(path, nil, err)
		}
		if at, damaged := damage(content); damaged {
			return found, &holdfast.Error{Op: "open", Engine: Name, Path: path, Offset: at, Class: holdfast.ErrCorrupt,
				Detail: "a record is damaged and later ones are not", Remedy: "restore the directory from a backup"}
		}
	}

	return found, nil
}

// damage looks for a chunk that is whole after one that is not. Records are synced one by one in a manifest, so only
// its end can be torn. Pebble reads up to the first chunk that is not whole, and would take what came before
// for everything.
func damage(manifest []byte) (at int64, damaged bool) {
	// Where the first damaged byte is, -1 while there is none.
	at = -1
	for start := 0; start < len(manifest); start += blockSize {
		block := manifest[start:min(start+blockSize, len(manifest))]
		for i := 0; i+plainHeader <= len(block); {
			n := wholeChunk(block[i:])
			switch {
			case n > 0 && at >= 0:
				return at, true
			case n > 0:
				i += n
				continue

			// Zeros to the end of a block are filling.
			case at < 0 && len(bytes.Trim(block[i:], "\x00")) > 0:
				at = int64(start + i)
			}
			i++ // the length may be what is damaged: the next chunk can begin anywhere
		}
	}

	return 0, false
}

// wholeChunk returns the length of the chunk at the beginning of p, 0 if it is not whole. p has plainHeader bytes or
// more.
func wholeChunk(p []byte) int {
	header := chunkHeader(p[6])
	n := header + int(binary.LittleEndian.Uint16(p[4:]))
	if header == 0 || n > len(p) || chunkSum(p[6:n]) != binary.LittleEndian.Uint32(p) {
		return 0
	}

	return n
}

// tornTail returns the length of what Pebble will cut off the newest log.
func tornTail(below vfs.FS, data string) (int64, error) {
	logs, err := wal.Scan(wal.Dir{FS: below, Dirname: data})
	if err != nil || len(logs) == 0 {
		return 0, err
	}
	newest := logs[len(logs)-1]

	// Only the newest log can be torn: Pebble closes one, with a sync, before it makes the next.
	r := newest.OpenForRead()
	defer r.Close()

	// Records are read until one is not whole; the reader stands at its chunk then.
	for {
		_, at, err := r.NextRecord()
		if err == nil {
			continue
		}
		if !record.IsInvalidRecord(err) {
			return 0, nil // the end, or something that Pebble will complain of itself
		}

		// A chunk does not go beyond its block, so what was being written ends there at the latest.
		content, err := readFile(below, at.PhysicalFile)
		if err != nil {
			return 0, err
		}
		end := min((at.Physical/blockSize+1)*blockSize, int64(len(content)))

		return torn(content[min(at.Physical, end):end], uint32(newest.Num)), nil
	}
}

// torn returns how much of p, which begins where a log cannot be read on, is a chunk that
// was being written. What a file holds from its earlier use as another log is not.
func torn(p []byte, number uint32) int64 {
	// Pebble reserves space ahead, which reads as zeros. A chunk that ends in zeros of its own loses some here, which
	// makes the count a few bytes too low and nothing else.
	written := bytes.TrimRight(p, "\x00")
	if len(written) < logHeader {
		return int64(len(written))
	}

	// A file that is used again still holds chunks of the log it was before, with that log's number. Such a chunk is not
	// torn: it is where this log ends.
	header := chunkHeader(p[6])
	if header >= logHeader && binary.LittleEndian.Uint32(p[plainHeader:]) != number {
		return 0
	}

	return int64(min(header+int(binary.LittleEndian.Uint16(p[4:])), len(written)))
}

// shown are Pebble's own settings that matter when engines are compared, in the order in
// which they are shown.
var shown = []string{
	"format_major_version", "disable_wal", "wal_bytes_per_sync", "bytes_per_sync", "cache_size", "mem_table_size",
	"mem_table_stop_writes_threshold", "l0_compaction_threshold", "l0_stop_writes_threshold", "lbase_max_bytes",
	"max_concurrent_compactions", "block_size", "index_block_size", "target_file_size", "flush_split_bytes",
	"compression", "filter_policy", "value_separation.enabled", "value_separation.minimum_size",
}

// readSettings reads back what Pebble has written to its options file.
func readSettings(below vfs.FS, data string) ([]holdfast.Setting, error) {
	names, err := below.List(data)
	if err != nil {
		return nil, err
	}

	newest := ""
	for _, name := range names {
		// The number behind the name grows at every Open; a longer name has a larger number.
		if strings.HasPrefix(name, "OPTIONS-") && (len(name) > len(newest) || len(name) == len(newest) && name > newest) {
			newest = name
		}
	}
	text, err := readFile(below, below.PathJoin(data, newest))
	if err != nil {
		return nil, err
	}

	values, section := map[string]string{}, ""

	// The file has sections, and a key may be in several, such as once for each level.
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "["); ok {
			section = name
		}
		// Those of the first level stand for all.
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			if section == "Value Separation]" {
				key = "value_separation." + key
			}
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

// readFile returns the whole content of a file.
func readFile(below vfs.FS, path string) ([]byte, error) {
	f, err := below.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	return io.ReadAll(f)
}
