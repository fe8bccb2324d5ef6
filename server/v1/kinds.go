package v1

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// Patterns of texts, for schemas.
const (
	plainText   = `^[^\x00-\x1f\x7f-\x9f]*$` // as package names has it
	logName     = `^[^/\x00-\x1f\x7f-\x9f]+$`
	namespaceID = `[A-Za-z0-9][A-Za-z0-9_-]*`
	uuid        = `^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$`
	base64Text  = `^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$`
	// From 1678 to 2262, which are the years that fit in 64 bits of nanoseconds.
	years = `^(1(6(7[89]|[89][0-9])|[789][0-9]{2})|2([01][0-9]{2}|2([0-5][0-9]|6[012])))-`
	// What stands between the slashes of a name that is no name: see api.Addressable.
	dots, slashes = `(^|/)\.\.?(/|$)`, `^/*$`
)

// kinds are what fields and parameters can be, as their tag "is" says, and what that adds to their schemas. The stores
// check the same, in bytes where a schema has characters.
var kinds = map[string]func(*huma.Schema){
	"stream":       name(message.MaxStreamSize, plainText),
	"category":     text(0, message.MaxStreamSize, plainText),
	"subscription": name(message.MaxStreamSize, plainText),
	"namespace":    text(1, message.MaxNameSize, "^"+namespaceID+"$"),
	"namespace or *": func(s *huma.Schema) {
		text(1, message.MaxNameSize, `^(\*|`+namespaceID+`)$`)(s)
	},
	"type":      text(1, message.MaxTypeSize, ""),
	"log":       name(0, logName), // 127 bytes with its namespace
	"offset":    name(event.MaxIDSize, plainText),
	"event":     text(0, event.MaxIDSize, ""),
	"task":      name(task.MaxTextSize, plainText),
	"queue":     name(task.MaxNameSize, plainText),
	"any queue": text(0, task.MaxNameSize, plainText),
	"worker":    text(0, task.MaxNameSize, plainText),
	"text":      text(0, task.MaxTextSize, plainText),
	"kind":      text(1, task.MaxTextSize, plainText),
	"some":      func(s *huma.Schema) { s.MinItems = &one },
	// A list, or an object.
	"arguments": func(s *huma.Schema) {
		s.Type, s.AdditionalProperties = "", nil
		s.OneOf = []*huma.Schema{{Type: huma.TypeArray, Items: &huma.Schema{}},
			{Type: huma.TypeObject, AdditionalProperties: true}, {Type: "null"}}
	},
	"time": func(s *huma.Schema) { s.Pattern = years },
	// null matches every pattern, and is none of those times.
	"moment":  func(s *huma.Schema) { s.Not = &huma.Schema{Type: huma.TypeString, Pattern: "^000[01]-"} },
	"small":   func(s *huma.Schema) { s.Minimum, s.Maximum = number(math.MinInt8), number(math.MaxInt8) },
	"natural": func(s *huma.Schema) { s.Minimum = new(float64) },
	"uuid": func(s *huma.Schema) {
		s.Format, s.Pattern = "uuid", uuid
	},
}

var one, two = 1, 2

// number is a pointer to a number, as schemas want it.
func number(n float64) *float64 { return &n }

// text is a text of so many characters that matches a pattern; 0 and "" are no limit.
func text(least, most int, pattern string) func(*huma.Schema) {
	return func(s *huma.Schema) {
		s.Pattern = pattern
		if least > 0 {
			s.MinLength = &least
		}
		if most > 0 {
			s.MaxLength = &most
		}
	}
}

// name is a text that can stand in a path.
func name(most int, pattern string) func(*huma.Schema) {
	return func(s *huma.Schema) {
		text(1, most, pattern)(s)
		s.Not = &huma.Schema{AnyOf: []*huma.Schema{{Pattern: dots}, {Pattern: slashes}}}
	}
}

// constrain adds to the schema of a field, or of a parameter, what its type and tags say.
func constrain(s *huma.Schema, t reflect.Type, tag reflect.StructTag) {
	// What a tag says of a list holds for its items, unless it says that there must be some.
	if s.Items != nil && t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && tag.Get("is") != "some" {
		if s.Items.Ref == "" {
			constrain(s.Items, t.Elem(), tag)
		}

		return
	}

	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		s.Type, s.AdditionalProperties = huma.TypeObject, true
	case t == reflect.TypeFor[[]byte]():
		s.Pattern = base64Text
	}
	if values := tag.Get("enum"); values != "" && s.Enum == nil {
		for v := range strings.SplitSeq(values, ",") {
			s.Enum = append(s.Enum, v)
		}
	}
	if is := tag.Get("is"); is != "" {
		kinds[is](s)
	}
}
