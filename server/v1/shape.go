package v1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/problem"
)

// shape is which fields an object of a body has. It follows from the Go type, as the schema in the OpenAPI document
// does, so that what is required there is required here. A shape is not changed once it is made.
type shape struct {
	fields map[string]*field
	names  []string // of the required ones, in order
	lists  int      // how deep the deepest list in it is, where the object itself is 1 deep; 0 if there is none
}

// field is what is known of a field of an object. Its bit tells in a mask whether it was met.
type field struct {
	at       int    // its bit
	data     bool   // it is a user's, and not looked into
	required bool   // it must be there, and not be null
	segment  bool   // it names what other requests name in their path
	moment   bool   // it is a time that need not be there
	natural  bool   // it is a number without a sign
	object   *shape // of the value, or of the items of a list; nil if that is not looked at
}

var shapes sync.Map // by reflect.Type

// shapeOf returns the shape of the objects that a value of type t is, or lists; nil if there are none.
func shapeOf(t reflect.Type) *shape {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	if known, ok := shapes.Load(t); ok {
		return known.(*shape)
	}

	// Types do not contain themselves, so this ends. Two goroutines may make the same shape, and either is kept.
	s := &shape{fields: map[string]*field{}}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue // an embedded struct, whose fields come by themselves
		}
		required := !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") &&
			f.Tag.Get("required") != "false"
		object := shapeOf(f.Type)
		s.fields[name] = &field{at: len(s.fields), data: f.Type == reflect.TypeFor[json.RawMessage](), required: required,
			segment: f.Tag.Get("segment") != "", object: object, natural: f.Type.Kind() == reflect.Uint64,
			moment: !required && (f.Type == reflect.TypeFor[time.Time]() || f.Type == reflect.TypeFor[*time.Time]())}

		// A list is one level deeper than its field, and what its items hold is deeper still.
		deep := 1
		if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() != reflect.Uint8 {
			deep, s.lists = 2, max(s.lists, 2)
		}
		if object != nil && object.lists > 0 {
			s.lists = max(s.lists, deep+object.lists)
		}
		if required {
			s.names = append(s.names, name)
		}
	}

	// The mask of the fields that were met has 64 bits.
	if len(s.fields) > 64 {
		panic(fmt.Sprintf("%v has more than 64 fields", t))
	}
	shapes.Store(t, s)

	return s
}

// check finds fields that are missing, null where that is no value, written in another case, or there twice, in a
// body that is sound JSON. Data of users, which stay as they were sent, are not looked into.
func (s *shape) check(body []byte) error {
	r := reader{body: body}
	return r.value(s, "")
}

// whole returns a body that is sound JSON with whole numbers written as such where that has a shape: 7.0 is 7. Some
// clients have no other numbers. Data of users stay as they are.
func (s *shape) whole(body []byte) []byte {
	r := reader{body: bytes.Clone(body), whole: true}
	_ = r.value(s, "") // what is wrong with it is told when it is read

	return r.body
}

// reader walks over sound JSON.
type reader struct {
	body  []byte
	at    int
	whole bool // it writes whole numbers as such
}

// value walks over a value whose objects have that shape; where says in which field it is.
func (r *reader) value(s *shape, where string) error {
	switch r.next() {
	case '{':
		if s == nil {
			r.skip()
			return nil
		}

		return r.object(s, where)
	case '[':
		r.at++
		for r.next() != ']' {
			// In sound JSON only null begins with n.
			if r.body[r.at] == 'n' {
				return problem.BadRequest("the body: the list %s has null in it", where)
			}
			if err := r.value(s, where); err != nil {
				return err
			}
			if r.next() == ',' {
				r.at++
			}
		}
		r.at++

		return nil
	}
	from := r.at
	r.skip()
	if text := r.body[from:r.at]; r.whole && text[0] != '"' {
		if dot := bytes.IndexByte(text, '.'); dot > 0 && len(bytes.Trim(text[dot+1:], "0")) == 0 {
			// Space in place of what is left out: the body keeps its length, and what lies behind stays where it is.
			copy(text[dot:], bytes.Repeat([]byte(" "), len(text)-dot))
		}
	}

	return nil
}

// object walks over an object, and checks its fields.
func (r *reader) object(s *shape, where string) error {
	in := func(name string) string { return strings.TrimPrefix(where+"."+name, ".") }
	var seen uint64

	r.at++
	for r.next() != '}' {
		from := r.at
		r.skip()

		// Names are compared as they are meant: an escape in one is decoded first.
		name := string(r.body[from+1 : r.at-1])
		if strings.Contains(name, `\`) {
			if err := json.Unmarshal(r.body[from:r.at], &name); err != nil {
				return problem.BadRequest("the body: %v", err)
			}
		}
		f := s.fields[name]
		if f == nil { // encoding/json takes names in another case
			return problem.BadRequest("the body: there is no field %.80q; names are written in lower case", in(name))
		}
		if seen&(1<<f.at) != 0 {
			return problem.BadRequest("the body has the field %s twice", in(name))
		}
		seen |= 1 << f.at

		r.next()
		r.at++ // the colon
		if r.next() == 'n' && f.required {
			return problem.BadRequest("the body: the field %s is null; it needs a value", in(name))
		}
		from = r.at
		if f.data {
			r.skip()
		} else if err := r.value(f.object, in(name)); err != nil {
			return err
		}
		if f.moment && yearOne(string(bytes.Trim(r.body[from:r.at], `"`))) {
			return problem.BadRequest("the body: the %s is in the year 1, which means none; leave it out for that", in(name))
		}
		if f.natural && beyond(r.body[from:r.at]) {
			return problem.BadRequest("the body: the field %s is %s, where the largest number is %d", in(name),
				r.body[from:r.at], int64(math.MaxInt64))
		}
		if f.segment && !addressable(r.body[from:r.at]) {
			return problem.BadRequest("the body: the %s is %.80s, which cannot stand in a path: it has nothing but "+
				"slashes, or a dot or two in the place of a name", in(name), r.body[from:r.at])
		}
		if r.next() == ',' {
			r.at++
		}
	}

	r.at++
	for _, name := range s.names {
		if seen&(1<<s.fields[name].at) == 0 {
			return problem.BadRequest("the body: the field %s is missing", in(name))
		}
	}

	return nil
}

// yearOne reports whether a time is in the first year there is, or before. In Go the zero time is there, which stands
// for no time: what a client sends by mistake would mean something else than the past that it names.
func yearOne(text string) bool {
	return strings.HasPrefix(text, "0001-") || strings.HasPrefix(text, "0000-")
}

// beyond reports whether a number of 64 bits is larger than any with a sign: positions and tokens are none, and the
// document says int64, as other languages have it.
func beyond(number []byte) bool {
	n, err := strconv.ParseUint(string(bytes.TrimSpace(number)), 10, 64)
	return err == nil && n > math.MaxInt64
}

// addressable reports whether a string of JSON can be a name in a path, or is empty, which other checks are for.
func addressable(text []byte) bool {
	var name string
	return !bytes.ContainsAny(text, `./\`) || json.Unmarshal(text, &name) != nil || name == "" || api.Addressable(name)
}

// next passes over space and returns the byte that follows.
func (r *reader) next() byte {
	for r.at < len(r.body) && bytes.IndexByte([]byte(" \t\r\n"), r.body[r.at]) >= 0 {
		r.at++
	}
	if r.at == len(r.body) {
		return '}' // sound JSON does not end here
	}

	return r.body[r.at]
}

// skip passes over one value.
func (r *reader) skip() {
	for depth := 0; r.at < len(r.body); {
		switch r.body[r.at] {
		case '"':
			for r.at++; r.at < len(r.body) && r.body[r.at] != '"'; r.at++ {
				if r.body[r.at] == '\\' {
					r.at++
				}
			}
			r.at++
		case '{', '[':
			depth++
			r.at++
			continue
		case '}', ']':
			depth--
			r.at++
		case ',', ':', ' ', '\t', '\r', '\n':
			r.at++
			continue
		default: // a number, or true, false or null
			for r.at < len(r.body) && bytes.IndexByte([]byte(",]} \t\r\n"), r.body[r.at]) < 0 {
				r.at++
			}
		}
		if depth == 0 {
			return
		}
	}
}
