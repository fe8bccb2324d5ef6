package client

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/holdfastdb/holdfast"
)

// notText returns an error of that class if a text is not UTF-8: JSON would make it another, and two ids the same.
func notText(op string, class error, texts ...string) error {
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return &holdfast.Error{Op: op, Class: class, Detail: fmt.Sprintf("%.80q is not UTF-8", text)}
		}
	}

	return nil
}

// newID returns a UUID of version 7 (RFC 9562): the milliseconds of now, and 74 random bits.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[6:]) // never fails
	ms := uint64(time.Now().UnixMilli())
	binary.BigEndian.PutUint16(b[0:], uint16(ms>>32))
	binary.BigEndian.PutUint32(b[2:], uint32(ms))
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	var text [36]byte
	hex.Encode(text[:], b[:4])
	hex.Encode(text[9:], b[4:6])
	hex.Encode(text[14:], b[6:8])
	hex.Encode(text[19:], b[8:10])
	hex.Encode(text[24:], b[10:])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'

	return string(text[:])
}
