package problem

import (
	"bytes"
	"strconv"
	"unicode/utf16"
)

// Surrogate reports whether the strings of valid JSON have an escape for half of a character without the other half. In
// Go's strings each becomes U+FFFD, so that different names become one.
func Surrogate(text []byte) bool {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return false
		}

		first := escaped(text[i:])
		switch {
		case first < 0: // of one character
			i += 2
		case !utf16.IsSurrogate(first):
			i += 6
		case utf16.DecodeRune(first, escaped(text[i+6:])) == '\ufffd':
			return true
		default:
			i += 12
		}
		text = text[i:]
	}
}

// escaped is the character of the \u escape that text begins with, -1 if there is none.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	r, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return -1
	}

	return rune(r)
}
