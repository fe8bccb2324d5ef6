// Package names has the rule for what people and programs call things: stores, logs, streams, queues, consumers.
package names

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Wrong says what is wrong with a name, "" if nothing is: it is UTF-8 without control characters (Unicode's category
// Cc), and has so many bytes at most. So it can be shown in a line of a log or a terminal, and JSON tells it as it is.
// Whether it may be empty is the caller's business.
func Wrong(name string, most int) string {
	if len(name) > most {
		return fmt.Sprintf("has %d bytes, the limit is %d", len(name), most)
	}
	if !utf8.ValidString(name) {
		return fmt.Sprintf("%q is not UTF-8", name)
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return fmt.Sprintf("%q has a control character", name)
		}
	}
	return ""
}
