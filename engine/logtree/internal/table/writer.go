package table

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

const (
	writeSize = 256 << 10 // of one write call, except the last
	hashChunk = 1 << 15
)

// Writer writes one table. It is for one goroutine. After an error it is of no use: its methods return that error, and
// the file is not a table.
//
// It holds about 8 bytes of memory per entry until Finish, besides its buffer of some 300 KiB.
type Writer struct {
	f      vfs.File
	seed   seed
	target int // size of a block
	group  int // entries in a group
	err    error

	buf      []byte // what has not been written yet
	written  int64  // the offset where buf belongs
	behind   vfs.Behind
	start    int    // where the open block begins in buf
	restarts []byte // of the open block
	inBlock  int    // entries in the open block
	ctx      context

	info   Info
	last   []byte // the key before
	hashes [][]uint64

	offsets    []uint32 // of the blocks
	separators []byte
	begins     []uint32

	use     *SegmentUse // that of the last entry with a value
	segment map[uint32]*SegmentUse
}

// NewWriter returns a writer of the table id to f, which must be empty. It never closes f.
func NewWriter(f vfs.File, id Identity) *Writer {
	w := &Writer{f: f, seed: id.seed(), target: blockTarget, group: groupSize, segment: map[uint32]*SegmentUse{}}
	w.buf = append(make([]byte, 0, writeSize+maxBlock), header(id)...)
	w.start = len(w.buf)

	return w
}

// Add appends an entry. Keys have 1 to 16384 bytes and ascend strictly; a tombstone has no other field set, and a value
// ends at or below 4 GiB in its segment. key is copied.
func (w *Writer) Add(key []byte, e Entry) error {
	if w.err != nil {
		return w.err
	}
	shared := 0
	if len(key) == 0 || len(key) > holdfast.MaxKeySize {
		return w.fail(holdfast.CheckKey(key))
	}
	if w.info.Entries > 0 {
		shared = common(w.last, key)
		if shared == len(key) || shared < len(w.last) && key[shared] < w.last[shared] {
			return w.fail(&holdfast.Error{Op: "write table", Engine: engineName, Path: w.f.Name(), Class: holdfast.ErrBadKey,
				Detail: fmt.Sprintf("%.40q is not above the key before, %.40q", key,
					w.last), Remedy: "add keys in ascending order"})
		}
	}
	if e.Tombstone && e != (Entry{Tombstone: true}) || uint64(uint32(e.Place))+uint64(e.Len) > 1<<32 {
		return w.fail(&holdfast.Error{Op: "write table", Engine: engineName, Path: w.f.Name(),
			Class: holdfast.ErrBadOption, Detail: fmt.Sprintf("no such entry: %+v", e)})
	}

	// The heads belong to the size of a block: they are added when it ends.
	if w.inBlock > 0 && len(w.buf)-w.start+groupTrailer/2*len(w.restarts) >= w.target {
		if err := w.endBlock(); err != nil {
			return err
		}
	}
	if w.inBlock == 0 { // a block begins
		w.offsets = append(w.offsets, uint32(w.written+int64(w.start)))
		w.begins = append(w.begins, uint32(len(w.separators)))
		if w.info.Entries > 0 {
			// One byte beyond what the key shares with the one before is enough to lie between the two.
			w.separators = append(w.separators, key[:shared+1]...)
		}
	}

	// A search begins at a group, so its first entry is written out whole.
	if w.inBlock%w.group == 0 {
		w.restarts = le.AppendUint16(w.restarts, uint16(len(w.buf)-w.start))
		w.ctx = context{}
		w.buf = w.ctx.appendEntry(w.buf, key, 0, true, e)
	} else {
		w.buf = w.ctx.appendEntry(w.buf, key, shared, false, e)
	}
	w.inBlock++
	if w.info.Entries++; w.info.Entries == 1 {
		w.info.Smallest = bytes.Clone(key)
	}

	// What is shared need not be copied: last has it already.
	w.last = append(w.last[:shared], key[shared:]...)
	w.addHash(hash(key))
	if e.Tombstone {
		w.info.Tombstones++
		return nil
	}

	// Neighbours mostly have their values in one segment, so the last one is looked at first.
	if id := uint32(e.Place >> 32); w.use == nil || w.use.ID != id {
		if w.use = w.segment[id]; w.use == nil {
			w.use = &SegmentUse{ID: id}
			w.segment[id] = w.use
		}
	}
	w.use.Entries++
	w.use.Bytes += int64(len(key)) + int64(e.Len)

	return nil
}

// addHash keeps the hash of a key for the filter, whose size is known only at the end. Chunks grow without copying
// what is there.
func (w *Writer) addHash(h uint64) {
	n := len(w.hashes)
	if n == 0 || len(w.hashes[n-1]) == hashChunk {
		size := hashChunk
		if n == 0 {
			size = 256 // small tables stay small; append makes it longer
		}
		w.hashes = append(w.hashes, make([]uint64, 0, size))
		n++
	}
	w.hashes[n-1] = append(w.hashes[n-1], h)
}

// Size is about how long the file would be, in bytes, if Finish were called now.
func (w *Writer) Size() int64 {
	n := w.written + int64(len(w.buf)+len(w.restarts)+len(w.separators)+16*len(w.offsets))
	return n + filterLines(w.info.Entries)*lineSize + int64(2*len(w.last)+len(w.segment)*segmentSize) + footerSize
}

// Finish writes what remains, and says what is in it: the file is a table once it is synced. maxSeq is kept for the
// caller. A table without entries is allowed.
func (w *Writer) Finish(maxSeq uint64) (Info, error) {
	if w.err != nil {
		return Info{}, w.err
	}
	if err := w.endBlock(); err != nil {
		return Info{}, err
	}
	w.info.MaxSeq = maxSeq
	if w.info.Entries > 0 {
		w.info.Largest = bytes.Clone(w.last)
	}

	for _, use := range w.segment {
		w.info.Segments = append(w.info.Segments, *use)
	}
	slices.SortFunc(w.info.Segments, func(a, b SegmentUse) int { return cmp.Compare(a.ID, b.ID) })

	// The sections follow one another. The checksum of each covers its offset, which is known when the one before is
	// written.
	t := trailer{info: w.info, dataEnd: w.offset(), blocks: int64(len(w.offsets)), lines: filterLines(w.info.Entries)}

	// Lines of the filter begin at multiples of their size, so that each lies in one line of the cache.
	if pad := -w.offset() & (lineSize - 1); pad > 0 {
		w.buf = append(w.buf, make([]byte, pad)...)
	}
	t.filter = w.offset()
	sums, err := w.putFilter(t.filter, t.lines)
	if err != nil {
		return Info{}, err
	}
	t.index = w.offset()
	index := w.encodeIndex(t.dataEnd)
	t.indexSum = w.seed.sum(t.index, index)
	if err := w.put(index); err != nil {
		return Info{}, err
	}
	t.meta = w.offset()
	meta := encodeMeta(w.info, sums)
	t.metaSum = w.seed.sum(t.meta, meta)

	if err := w.put(meta); err != nil {
		return Info{}, err
	}
	t.size = w.offset() + footerSize
	if err := w.put(t.encode(w.seed)); err != nil {
		return Info{}, err
	}
	if err := w.flush(0); err != nil {
		return Info{}, err
	}
	// A file that was given room in advance may be longer; a footer ends its file.
	size, err := w.f.Size()
	if err == nil && size != t.size {
		err = w.f.Truncate(t.size)
	}
	if err != nil {
		return Info{}, w.fail(w.wrap(err))
	}

	// The writer has done its work. Whatever is called now gets this error.
	w.info.FileBytes = t.size
	w.err = &holdfast.Error{Op: "write table", Engine: engineName, Path: w.f.Name(), Class: holdfast.ErrClosed,
		Detail: "it is finished"}

	return w.info, nil
}

// offset is where the next byte goes.
func (w *Writer) offset() int64 { return w.written + int64(len(w.buf)) }

// endBlock closes the open block, if there is one.
func (w *Writer) endBlock() error {
	if w.inBlock == 0 {
		return nil
	}
	n, entries := len(w.restarts)/2, w.buf[w.start:]
	key := func(i int) []byte { // the first one of group i, after its tag
		at := int(le.Uint16(w.restarts[2*i:]))
		size, at := uvarint(entries, at+1)

		return entries[at : at+int(size)]
	}

	// The first and the last key have in common what all keys between have.
	skip := common(key(0), w.last)
	for i := range n {
		w.buf = le.AppendUint32(w.buf, uint32(head(key(i)[skip:])>>32))
	}
	w.buf = append(w.buf, w.restarts...)
	w.buf = le.AppendUint16(w.buf, uint16(skip))
	w.buf = le.AppendUint16(w.buf, uint16(n))
	w.buf = le.AppendUint32(w.buf, w.seed.sum(w.written+int64(w.start), w.buf[w.start:]))

	// Offsets of blocks have four bytes. The caller is to begin another table long before.
	if w.offset() > maxData {
		return w.fail(&holdfast.Error{Op: "write table", Engine: engineName, Path: w.f.Name(),
			Class: holdfast.ErrTooLarge, Detail: "its blocks would pass 4 GiB",
			Remedy: "begin another table when Size nears what one should have"})
	}
	w.restarts, w.inBlock = w.restarts[:0], 0
	if err := w.flush(writeSize); err != nil {
		return err
	}
	w.start = len(w.buf)

	return nil
}

// put appends to the file.
func (w *Writer) put(b []byte) error {
	w.buf = append(w.buf, b...)
	return w.flush(writeSize)
}

// flush writes whole chunks of writeSize, if there are any, or everything if least is 0.
func (w *Writer) flush(least int) error {
	n := len(w.buf)
	if least > 0 {
		n -= n % least
	}
	if n == 0 {
		return nil
	}
	if _, err := w.f.WriteAt(w.buf[:n], w.written); err != nil {
		return w.fail(w.wrap(err))
	}

	// What is left moves to the front, which makes offsets into the buffer void: endBlock sets start anew.
	w.buf = append(w.buf[:0], w.buf[n:]...)
	w.written += int64(n)

	// The device is busy with it while the rest is made, and the sync at the end has less to wait for.
	w.behind.Appended(w.f, w.written)

	return nil
}

func (w *Writer) wrap(err error) error {
	return &holdfast.Error{Op: "write table", Engine: engineName, Path: w.f.Name(), Cause: err}
}

func (w *Writer) fail(err error) error {
	w.err = err
	return err
}

// putFilter writes the filter and returns the checksums of its pages.
func (w *Writer) putFilter(off, lines int64) (sums []byte, err error) {
	filter := make([]byte, lines*lineSize)
	for _, chunk := range w.hashes {
		for _, h := range chunk {
			setBits(filter[filterLine(h, uint64(lines))*lineSize:], h)
		}
	}

	w.hashes = nil
	for page := range slices.Chunk(filter, pageSize) {
		sums = le.AppendUint32(sums, w.seed.sum(off, page))
		off += int64(len(page))
	}

	return sums, w.put(filter)
}

// encodeIndex builds the index; end is where the blocks end.
func (w *Writer) encodeIndex(end int64) []byte {
	skip, n := common(w.info.Smallest, w.info.Largest), len(w.offsets)
	heads := make([]byte, 0, 16*(n+1)+len(w.separators))
	var begins, separators []byte
	for i, begin := range w.begins {
		end := uint32(len(w.separators))
		if i+1 < n {
			end = w.begins[i+1]
		}
		s := w.separators[begin:end]
		if i > 0 {
			s = s[skip:]
		}
		heads = le.AppendUint64(heads, head(s))
		begins = le.AppendUint32(begins, uint32(len(separators)))
		separators = append(separators, s...)
	}

	b := heads
	for _, off := range append(w.offsets, uint32(end)) {
		b = le.AppendUint32(b, off)
	}
	b = append(b, begins...)
	b = le.AppendUint32(b, uint32(len(separators)))

	return append(b, separators...)
}
