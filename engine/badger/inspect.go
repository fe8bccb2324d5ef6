package badger

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	lib "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/fb"

	"github.com/holdfastdb/holdfast/driver/datadir"
)

// left is what inspect found that earlier runs have left.
type left struct {
	torn int64 // bytes cut off the ends of logs and manifest
}

// inspect looks at the library's files before the library does, and makes them fit for it:
// on damage the library leaves tables out, deletes them, or ends the process; on an empty
// log, left by a crash while the log was made or deleted, it refuses to open; and it trusts
// what a killed process left in its logs, which may not be on the device yet.
func inspect(dir string, h hooks) (left, error) {
	var found left
	logBytes := uint64(0)
	wals, err := numbered(dir, ".mem")
	if err != nil {
		return found, failed("open", dir, err)
	}
	values, err := numbered(dir, ".vlog")
	if err != nil {
		return found, failed("open", dir, err)
	}
	if wals, err = removeEmpty(dir, wals, walPath); err != nil {
		return found, failed("open", dir, err)
	}
	if values, err = removeEmpty(dir, values, valuePath); err != nil {
		return found, failed("open", dir, err)
	}

	// Of the value log at most the newest two can be unsynced: the library syncs a file before it goes on to the next,
	// and may have died in between.
	var open []string // the logs that were in use, in the order in which they are to be synced
	for _, n := range values[max(0, len(values)-2):] {
		open = append(open, valuePath(dir, n))
	}

	// The value log comes first, so that no synced log points to values that are not on the device.
	for _, n := range wals {
		open = append(open, walPath(dir, n))
	}

	// The tables are looked at before any file is cut: if they are damaged, the directory stays as it was found.
	if err := checkTables(dir, len(wals)+len(values) > 0, &found); err != nil {
		return found, err
	}

	// A log in use has twice the size that the library lets it fill; see checkLog.
	for _, path := range open {
		size := int64(2 * memTableSize)
		if filepath.Ext(path) == ".vlog" {
			size = 2 * valueLogFileSize
		}
		end, err := checkLog(path, size, &found)
		if err != nil {
			return found, err
		}
		if filepath.Ext(path) == ".mem" {
			logBytes += uint64(end)
		}
	}
	if err := checkDiscards(filepath.Join(dir, "DISCARD"), values); err != nil {
		return found, failed("open", dir, err)
	}

	// Also for the names: of empty files that were removed, and of logs that a dead process made.
	if len(open) > 0 {
		if err := datadir.SyncDir(dir); err != nil {
			return found, failed("open", dir, err)
		}
	}

	return found, failed("open", dir, (&room{dir: dir, freeSpace: h.freeSpace}).need(logBytes+openFree))
}

// removeEmpty removes the files of length 0 and returns the numbers of the others.
func removeEmpty(dir string, numbers []int, path func(string, int) string) ([]int, error) {
	var kept []int
	for _, n := range numbers {
		st, err := os.Stat(path(dir, n))
		if err == nil && st.Size() == 0 {
			err = os.Remove(path(dir, n))
		} else {
			kept = append(kept, n)
		}
		if err != nil {
			return nil, err
		}
	}

	return kept, nil
}

// openFree is the disk space that the library may take to open, in addition to the tables that it makes of the logs.
const openFree = 16 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkLog finds the end of the log at path, cuts off what a crash tore, and syncs the log. A
// log in use has the size full, most of which is a hole; the library cuts it to its
// end, after syncing it, when it is done with it. So only in one of the size full can the end
// be torn, and in any other it is damage.
func checkLog(path string, full int64, found *left) (int64, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, failed("open", path, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, failed("open", path, err)
	}

	// Length 0 was dealt with before; a length in between is none that the library leaves.
	if st.Size() < logHeader {
		return 0, corrupt("open", path, st.Size(), errors.New("the log is shorter than its header"))
	}
	end, err := logEnd(f, st.Size())
	if err != nil {
		return 0, failed("open", path, err)
	}
	if end < st.Size() {
		if st.Size() != full {
			return 0, corrupt("open", path, end, errors.New("the record has no valid checksum"))
		}

		// Behind the torn record the file is a hole, which is not counted as torn.
		torn, err := lastByte(f, end)
		if err != nil {
			return 0, failed("open", path, err)
		}
		found.torn += torn - end
		if err := f.Truncate(end); err != nil {
			return 0, failed("open", path, err)
		}
	}

	return end, failed("open", path, syncFile(f))
}

// A log is a header of 20 bytes, all zero in the first 8 as long as nothing is encrypted, and
// records:
//
//	flags     2 bytes    in the first, 64: part of a transaction, 128: its end
//	lengths   uvarint    of key, of value
//	expiry    uvarint
//	key, value
//	crc32c    4 bytes    of all before, most significant byte first
const logHeader = 20

// logEnd returns where the last whole transaction of a log ends.
func logEnd(f io.ReaderAt, size int64) (int64, error) {
	in := bufio.NewReaderSize(io.NewSectionReader(f, logHeader, size-logHeader), 1<<16)
	at, end := int64(logHeader), int64(logHeader)
	var record []byte

	// Whether a transaction has begun whose end was not read yet; end stays at its beginning until then.
	inside := false
	for {
		head, err := in.Peek(24) // at most 2 + 5 + 5 + 10, and shorter only at the end
		if err != nil && err != io.EOF {
			return 0, err
		}
		if len(head) < 5 {
			return end, nil
		}

		n := 2
		var lengths [3]uint64
		for i := range lengths {
			v, w := binary.Uvarint(head[n:])
			if w <= 0 {
				return end, nil
			}
			lengths[i], n = v, n+w
		}

		// Lengths carry no checksum of their own. Ones that cannot be are taken for the end before memory is asked for
		// them.
		key, value := lengths[0], lengths[1]
		if key == 0 || key > 1<<16 || value > uint64(size) {
			return end, nil
		}
		total := int64(n) + int64(key) + int64(value) + crc32.Size
		if at+total > size {
			return end, nil
		}

		// The buffer is kept for later records and grows by half as much again.
		if int64(cap(record)) < total {
			record = make([]byte, total, total+total/2)
		}
		record = record[:total]
		flags := head[0]
		if _, err := io.ReadFull(in, record); err != nil {
			return 0, err
		}
		body := record[:total-crc32.Size]
		if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(record[len(body):]) {
			return end, nil
		}

		// The flags decide whether the transaction is whole: a part, its end, or, with neither, a record that stands
		// alone.
		at += total
		switch {
		case flags&64 != 0:
			inside = true
		case flags&128 != 0:
			inside, end = false, at

		// A record that stands alone inside a transaction means that the rest of that transaction is missing.
		case inside:
			return end, nil
		default:
			end = at
		}
	}
}

// lastByte returns the end of what is not zero in f, from on at the least.
func lastByte(f *os.File, from int64) (int64, error) {
	buf := make([]byte, 1<<18)
	end, at := from, from

	for {
		// Holes are skipped: a log is tens of megabytes long and mostly not written.
		next, err := nextData(f, at)
		n := 0
		if at = next; err == nil {
			n, err = f.ReadAt(buf, at)
		}

		// Data is allocated in blocks, so what is found may end in zeros.
		if rest := bytes.TrimRight(buf[:n], "\x00"); len(rest) > 0 {
			end = at + int64(len(rest))
		}
		at += int64(n)
		if err == io.EOF {
			return end, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// checkTables checks the manifest and every table that it names. used says that there are
// logs, so that there must be a manifest.
func checkTables(dir string, used bool, found *left) error {
	path := filepath.Join(dir, lib.ManifestFilename)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		tables, err := numbered(dir, ".sst")
		if err == nil && (used || len(tables) > 0) {
			return corrupt("open", path, 0, errors.New("it is missing"))
		}

		return failed("open", dir, err)
	}
	if err != nil {
		return failed("open", path, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return failed("open", path, err)
	}
	defer f.Close()

	// end is where the last record ends that is whole.
	manifest, end, err := lib.ReplayManifestFile(f, 0, lib.DefaultOptions(dir))
	if err != nil {
		return openFailed(path, err)
	}
	const first = 8 // where the first record begins
	if end <= first {
		// The library syncs a new manifest, with its first record, before it renames it to this name.
		return corrupt("open", path, first, errors.New("its first record is not whole"))
	}
	if torn := data[end:]; len(torn) > 0 {
		// The length of a record has no checksum. If the record is all there under another
		// length, then it is not torn.
		for n, sum := 8, uint32(0); n < len(torn); n++ {
			if sum = crc32.Update(sum, castagnoli, torn[n:n+1]); sum == binary.BigEndian.Uint32(torn[4:]) {
				return corrupt("open", path, end, errors.New("the record has a wrong length"))
			}
		}
		found.torn += int64(len(torn))
	}

	for id := range manifest.Tables {
		path := filepath.Join(dir, fmt.Sprintf("%06d.sst", id))
		if err := checkTable(path); err != nil {
			return err
		}
	}

	return nil
}

// checkTable checks every checksum of a table, which is
//
//	blocks
//	index        says where the blocks are; its length, 4 bytes
//	checksum     of the index; its length, 4 bytes
func checkTable(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return corrupt("open", path, 0, errors.New("it is missing"))
	}
	if err != nil {
		return failed("open", path, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return failed("open", path, err)
	}
	end := st.Size()

	// The parts are read from the end of the file towards its beginning, because each length stands behind its part.
	var fault error
	// part reads what lies before end and has its length behind it. After the first fault it returns nil, so that the
	// fault is looked at once, after all parts.
	part := func() []byte {
		var length [4]byte
		if fault != nil {
			return nil
		}
		if end < 4 {
			fault = errors.New("it is too short")
			return nil
		}
		if _, fault = f.ReadAt(length[:], end-4); fault != nil {
			return nil
		}
		n := int64(binary.BigEndian.Uint32(length[:]))
		if end -= 4 + n; end < 0 {
			fault = fmt.Errorf("a part has %d bytes", n)
			return nil
		}
		b := make([]byte, n)
		_, fault = f.ReadAt(b, end)

		return b
	}
	sum, index := part(), part()

	// Blocks are found through the index, so it is checked first.
	if fault == nil {
		fault = checkSum(index, sum)
	}
	if fault != nil {
		return unreadable("open", path, max(end, 0), fault)
	}
	at, fault := checkBlocks(io.NewSectionReader(f, 0, end), end, index)
	if fault != nil {
		return unreadable("open", path, at, fault)
	}

	return nil
}

// checkBlocks checks the blocks of a table, each of which ends in its checksum and the
// checksum's length, 4 bytes. It returns where the fault is.
func checkBlocks(r io.Reader, size int64, index []byte) (at int64, fault error) {
	table := fb.GetRootAsTableIndex(index, 0)
	in := bufio.NewReaderSize(r, 1<<18)
	var block fb.BlockOffset
	var buf []byte
	for i := range table.OffsetsLength() {
		if !table.Offsets(&block, i) {
			return at, errors.New("the index is incomplete")
		}
		n := int(block.Len())

		// Blocks lie one behind the other from the beginning of the file; anything else is not what the library writes.
		if int64(block.Offset()) != at || at+int64(n) > size || n < 4 {
			return at, errors.New("the index does not fit the blocks")
		}

		// Twice as much, so that growing blocks do not allocate each time.
		if cap(buf) < n {
			buf = make([]byte, 2*n)
		}
		buf = buf[:n]
		if _, err := io.ReadFull(in, buf); err != nil {
			return at, err
		}
		sum := int(binary.BigEndian.Uint32(buf[n-4:]))

		// The length of the checksum could be damaged too.
		if sum > n-4 {
			return at, errors.New("a block has no checksum")
		}
		if err := checkSum(buf[:n-4-sum], buf[n-4-sum:n-4]); err != nil {
			return at, err
		}
		at += int64(n)
	}

	return 0, nil
}

// checkSum compares data with its checksum, a protocol buffer: field 1, the kind, absent for
// crc32c, and field 2, the sum, as a uvarint.
func checkSum(data, sum []byte) error {
	if len(sum) < 2 || sum[0] != 2<<3 {
		return errors.New("the checksum is of an unknown kind")
	}
	want, n := binary.Uvarint(sum[1:])
	if got := crc32.Checksum(data, castagnoli); n != len(sum)-1 || want != uint64(got) {
		return fmt.Errorf("the checksum is %08x, and %08x was stored", got, want)
	}

	return nil
}

// checkDiscards removes the library's notes of garbage in the value log if they cannot be right: it
// has no checksum for them and may never return from a search in wrong ones. Compactions
// make new notes.
func checkDiscards(path string, values []int) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	newest := 0
	if n := len(values); n > 0 {
		newest = values[n-1]
	}

	// The notes are pairs of 8 bytes: a file's number, and the garbage in it. They are in order of the number, and end
	// with a zero.
	wrong := len(data) < 1<<20 || len(data)%16 != 0
	for before := uint64(0); !wrong && len(data) > 0; data = data[16:] {
		number, garbage := binary.BigEndian.Uint64(data), binary.BigEndian.Uint64(data[8:])
		if number == 0 {
			break
		}
		wrong = number <= before || number > uint64(newest) || garbage > 4*valueLogFileSize
		before = number
	}
	if wrong {
		return os.Remove(path)
	}

	return nil
}
