package files

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// The name of a key's file is the key where it is plain: lower-case letters, digits and -_.=+@, stand for themselves.
// Any upper-case letter is written ^ and its lower case, because some file systems take Key and key for one name. All
// other bytes are written %xx, and so is
//
//   - a dot at the beginning, where it hides a file, or at the end, where Windows drops it;
//   - the first letter of a name that Windows keeps for devices: con, nul.txt.
//
// A name that would have more than maxName bytes is the beginning of that, ~, and the SHA-256 of the key; the file has
// the key itself. So no two keys have the same name, in whatever case it is read, and a name without ~ says the key.
const (
	maxName   = 140 // file systems allow 255, and 143 where names are encrypted
	longMark  = '~'
	hashChars = 2 * sha256.Size
	hexDigits = "0123456789abcdef"

	// What the engine names so is no key's. Other names that begin with a dot are not the engine's: .DS_Store, .nfs0001.
	newPrefix = ".new-" // being written
	oldPrefix = ".old-" // replaced or deleted, and kept for a snapshot or iterator
)

// plain reports whether c stands for itself in a name.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-_.=+@,", c) >= 0
}

// nameOf returns the name of key's file, and whether the file must have the key.
func nameOf(key []byte) (name string, long bool) {
	var s strings.Builder
	end := 0 // of what fits before the hash
	escape := func(c byte) {
		s.WriteByte('%')
		s.WriteByte(hexDigits[c>>4])
		s.WriteByte(hexDigits[c&15])
	}

	// The name is made as far as it goes, and cut only if it becomes too long.
	device := isDevice(key)
	for i, c := range key {
		switch {
		case i == 0 && device, c == '.' && (i == 0 || i == len(key)-1):
			escape(c)
		case plain(c):
			s.WriteByte(c)
		case 'A' <= c && c <= 'Z':
			s.WriteByte('^')
			s.WriteByte(c + 'a' - 'A')
		default:
			escape(c)
		}

		// An escape is not cut in the middle: end moves on only after a whole character.
		if s.Len() <= maxName-1-hashChars {
			end = s.Len()
		}
		if s.Len() > maxName {
			sum := sha256.Sum256(key)
			return s.String()[:end] + string(longMark) + hex.EncodeToString(sum[:]), true
		}
	}

	return s.String(), false
}

// isDevice reports whether Windows would take the plain name of key for a device. Names with upper-case letters have
// a ^ for each.
func isDevice(key []byte) bool {
	base, _, _ := strings.Cut(string(key[:min(len(key), 5)]), ".")
	switch base {
	case "con", "prn", "aux", "nul":
		return true
	}

	return len(base) == 4 && (base[:3] == "com" || base[:3] == "lpt") && '0' <= base[3] && base[3] <= '9'
}

// keyOf returns the key that has this name. If the name is long, only the file has the key. ok is false if no key has
// this name.
func keyOf(name string) (key []byte, long, ok bool) {
	// ~ is no plain character, so no short name has it.
	if i := len(name) - hashChars - 1; i >= 0 && name[i] == longMark {
		return nil, true, true
	}

	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c == '%' && i+2 < len(name):
			b, err := hex.DecodeString(name[i+1 : i+3])
			if err != nil {
				return nil, false, false
			}
			key, i = append(key, b[0]), i+2
		case c == '^' && i+1 < len(name) && 'a' <= name[i+1] && name[i+1] <= 'z':
			i++
			key = append(key, name[i]-'a'+'A')
		default:
			key = append(key, c)
		}
	}

	// Only the name that nameOf itself makes is the key's. Another spelling, such as an escaped letter that is plain,
	// would be a second file for one key.
	again, long := nameOf(append(key, 0)[:len(key)])

	return key, false, len(key) > 0 && !long && again == name
}
