package files

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/holdfastdb/holdfast"
)

// A key's file is
//
//	value   any bytes
//	key     only if the file's name does not say it
//	end     "\nholdfast KKKK CCCCCCCC\n": the length of that key, and the CRC-32C of the key and the value, in hex
//
// The end is text, so that cat shows the value and one line. The checksum knows the key: a file that is
// copied to another key's name is found out.
const endSize = 24

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendEnd appends what follows the value of key in its file.
func appendEnd(dst, key, value []byte, long bool) []byte {
	crc := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
	n := 0
	if long {
		n = len(key)
		dst = append(dst, key...)
	}

	return fmt.Appendf(dst, "\nholdfast %04x %08x\n", n, crc)
}

// readValue appends the value of key in f to dst. The error of a damaged file has no class.
func readValue(f *os.File, dst, key []byte) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return dst, err
	}
	_, long := nameOf(key)
	rest := endSize
	if long {
		rest += len(key)
	}
	size := st.Size() - int64(rest)
	if size < 0 || size > holdfast.MaxValueSize {
		return dst, fmt.Errorf("it has %d bytes", st.Size())
	}
	whole := slices.Grow(dst, int(size)+rest)[:len(dst)+int(size)+rest]
	if _, err := io.ReadFull(f, whole[len(dst):]); err != nil {
		return dst, err
	}
	value := whole[len(dst) : len(dst)+int(size)]
	var room [endSize]byte
	if !bytes.Equal(whole[len(dst)+int(size):], appendEnd(room[:0], key, value, long)) {
		return dst, errors.New("its last line is not that of this key and value")
	}

	return whole[:len(dst)+int(size)], nil
}

// readKey returns the key that f has after its value, and that has f's long name. The error has no class.
func readKey(f *os.File, name string) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var end [endSize]byte
	if _, err := f.ReadAt(end[:], st.Size()-endSize); err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(string(end[10:14]), 16, 16)
	if err != nil || n > holdfast.MaxKeySize || st.Size() < int64(n)+endSize {
		return nil, errors.New("its last line does not say where its key is")
	}
	key := make([]byte, n)
	if _, err := f.ReadAt(key, st.Size()-endSize-int64(n)); err != nil {
		return nil, err
	}
	if other, _ := nameOf(key); other != name {
		return nil, errors.New("the key in it has another name")
	}

	return key, nil
}
