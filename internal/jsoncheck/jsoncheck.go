// Package jsoncheck checks whether bytes are JSON, for data that is stored as the client sent it. It says what
// encoding/json.Valid and unicode/utf8.Valid say together, in a third of their time.
package jsoncheck

import "unicode/utf8"

// Valid reports whether b is one value of JSON, in UTF-8, with nothing but white space around it. Its arrays and
// objects are at most MaxDepth deep.
func Valid(b []byte) bool { return ValidTo(b, MaxDepth) }

// ValidTo is Valid for arrays and objects that are at most so deep: one that has none in it is 1 deep.
func ValidTo(b []byte, depth int) bool {
	end := value(b, Space(b, 0), depth)
	return end > 0 && Space(b, end) == len(b) && utf8.Valid(b)
}

// MaxDepth is how deep encoding/json reads.
const MaxDepth = 10_000

// Space returns where the white space ends that is at i.
func Space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}

	return i
}

// Value returns where the value ends that begins at i, and in which others are nested at most so deep; 0 if there is
// none. Whether it is UTF-8 is not looked at.
func Value(b []byte, i, depth int) int { return value(b, i, depth) }

// value returns where the value ends that begins at i, and in which others may be nested so deep; 0 if there is none.
func value(b []byte, i, depth int) int {
	if i >= len(b) {
		return 0
	}

	switch c := b[i]; c {
	case '"':
		return text(b, i+1)
	case '{', '[':
		return list(b, i+1, c == '{', depth)
	case 't':
		return word(b, i, "true")
	case 'f':
		return word(b, i, "false")
	case 'n':
		return word(b, i, "null")
	}

	return number(b, i)
}

func word(b []byte, i int, w string) int {
	if len(b)-i < len(w) || string(b[i:i+len(w)]) != w {
		return 0
	}

	return i + len(w)
}

// list returns where an array or object ends, from behind its first byte on.
func list(b []byte, i int, object bool, depth int) int {
	end := byte(']')
	if object {
		end = '}'
	}
	if depth == 0 {
		return 0
	}
	if i = Space(b, i); i < len(b) && b[i] == end {
		return i + 1
	}

	for {
		if object {
			if i >= len(b) || b[i] != '"' {
				return 0
			}
			if i = text(b, i+1); i == 0 {
				return 0
			}
			if i = Space(b, i); i >= len(b) || b[i] != ':' {
				return 0
			}
			i = Space(b, i+1)
		}
		if i = value(b, i, depth-1); i == 0 {
			return 0
		}
		if i = Space(b, i); i >= len(b) {
			return 0
		}
		if b[i] == end {
			return i + 1
		}
		if b[i] != ',' {
			return 0
		}
		i = Space(b, i+1)
	}
}

// special are the bytes that end a string, begin an escape, or may not be in one.
var special = func() (t [256]bool) {
	for c := range byte(' ') {
		t[c] = true
	}
	t['"'], t['\\'] = true, true

	return t
}()

// text returns where a string ends, from behind its quote on.
func text(b []byte, i int) int {
	for {
		for i < len(b) && !special[b[i]] {
			i++
		}

		switch {
		case i >= len(b):
			return 0
		case b[i] == '"':
			return i + 1
		case b[i] != '\\' || i+1 >= len(b):
			return 0
		}

		switch i += 2; b[i-1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		case 'u':
			for range 4 {
				if i >= len(b) || !(digit(b[i]) || b[i]|0x20 >= 'a' && b[i]|0x20 <= 'f') {
					return 0
				}
				i++
			}
		default:
			return 0
		}
	}
}

func digit(c byte) bool { return c-'0' <= 9 }

func number(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i = digits(b, i); i == 0 {
		return 0
	}
	if i < len(b) && b[i] == '.' {
		if i = digits(b, i+1); i == 0 {
			return 0
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}

		return digits(b, i)
	}

	return i
}

// digits returns where the digits end that begin at i, 0 if there is none.
func digits(b []byte, i int) int {
	from := i
	for i < len(b) && digit(b[i]) {
		i++
	}
	if i == from {
		return 0
	}

	return i
}
