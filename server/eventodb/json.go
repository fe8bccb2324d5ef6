package eventodb

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/holdfastdb/holdfast/internal/jsoncheck"
	"github.com/holdfastdb/holdfast/server/problem"
)

// value is a value of JSON that is known to be valid, without white space around it. What a client writes reaches the
// store as the bytes that it sent, so a request is taken apart here and not decoded.
type value []byte

// maxArguments is how many values of a request are looked at; no method has so many.
const maxArguments = 16

// list appends the values of a JSON array to values. What is behind maxArguments is left out: a hundred megabytes of
// commas would take gigabytes.
func list(values []value, text []byte) ([]value, error) {
	if !jsoncheck.Valid(text) {
		var any json.RawMessage
		if err := json.Unmarshal(text, &any); err != nil {
			return nil, err
		}

		return nil, errors.New("the text is not UTF-8")
	}

	i := jsoncheck.Space(text, 0)
	switch text[i] {
	case '[':
	case 'n':
		return nil, nil
	default:
		return nil, errors.New("it is no array")
	}

	for i = jsoncheck.Space(text, i+1); text[i] != ']' && len(values) < maxArguments; {
		end := skip(text, i)
		values = append(values, text[i:end])
		if i = jsoncheck.Space(text, end); text[i] == ',' {
			i = jsoncheck.Space(text, i+1)
		}
	}

	return values, nil
}

// members yields the names and values of an object.
func (v value) members() iter.Seq2[string, value] {
	return func(yield func(string, value) bool) {
		for i := jsoncheck.Space(v, 1); v[i] != '}'; {
			end := skip(v, i)
			name, _ := value(v[i:end]).anyText()
			i = jsoncheck.Space(v, jsoncheck.Space(v, end)+1) // behind the colon
			end = skip(v, i)
			if !yield(name, v[i:end]) {
				return
			}
			if i = jsoncheck.Space(v, end); v[i] == ',' {
				i = jsoncheck.Space(v, i+1)
			}
		}
	}
}

// each calls set for each member of an object. A name that is there twice is refused: one of the two would be lost.
func (v value) each(set func(name string, v value) error) error {
	var room [16]string
	seen := room[:0]

	for name, member := range v.members() {
		switch {
		case slices.Contains(seen, name):
			return invalid("%.80q is there twice", name)
		case len(seen) == maxMembers:
			return invalid("an object has more than %d members", maxMembers)
		}
		seen = append(seen, name)
		if err := set(name, member); err != nil {
			return err
		}
	}

	return nil
}

// maxMembers is how many members an object may have that is not a client's own data; none needs so many.
const maxMembers = 100

// skip returns where the value ends that begins at i.
func skip(b []byte, i int) int {
	switch b[i] {
	case '"':
		return quoted(b, i)
	case '{', '[':
		for depth := 0; ; i++ {
			switch b[i] {
			case '"':
				i = quoted(b, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}

	for i < len(b) && b[i] != ',' && b[i] != ']' && b[i] != '}' && b[i] > ' ' {
		i++
	}

	return i
}

// quoted returns where the string ends that begins at i.
func quoted(b []byte, i int) int {
	for {
		i += 1 + bytes.IndexByte(b[i+1:], '"')
		escapes := 0
		for b[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

func (v value) isObject() bool { return v[0] == '{' }
func (v value) isNull() bool   { return v[0] == 'n' }

// text returns a string; it is none if half of a character in it has no other half.
func (v value) text() (s string, ok bool) {
	if problem.Surrogate(v) {
		return "", false
	}

	return v.anyText()
}

// anyText is text with U+FFFD for such halves.
func (v value) anyText() (s string, ok bool) {
	if v[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(v, '\\') < 0 {
		if s, ok := names[string(v[1:len(v)-1])]; ok {
			return s, true
		}

		return string(v[1 : len(v)-1]), true
	}

	return v.unescaped()
}

// unescaped is text for a string with escapes. It is apart because its result is kept on the heap.
func (v value) unescaped() (s string, ok bool) {
	err := json.Unmarshal(v, &s)
	return s, err == nil
}

// names are strings that requests are full of.
var names = func() map[string]string {
	all := map[string]string{}
	for _, name := range []string{"stream.write", "stream.get", "category.get", "stream.version", "type", "data",
		"metadata", "id", "expectedVersion", "position", "globalPosition", "batchSize", "correlation", "consumerGroup",
		"member", "size"} {
		all[name] = name
	}

	return all
}()

// number returns a number; what is behind its point is cut off.
func (v value) number() (n int64, ok bool) {
	if v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return 0, false
	}
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || math.Abs(f) >= 1<<63 {
		return 0, false
	}

	return int64(f), true
}

// appendText appends a string as JSON.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			quoted, _ := json.Marshal(s) // a string
			return append(b, quoted...)
		}
	}

	return append(append(append(b, '"'), s...), '"')
}

// appendTime appends a time as JSON.
func appendTime(b []byte, t time.Time) []byte {
	return append(t.UTC().AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
}
