package api

import "strings"

// Addressable reports whether a name can stand in a path, as one segment that is escaped. What is between a client and
// the server rewrites paths in which a segment is empty, "." or "..", however it is escaped, so that a request to
// delete the stream ".." would become one to delete its namespace. A name may have slashes, but nothing like that
// between them, and it is not of slashes alone. The server refuses other paths, and to make what has such a name.
func Addressable(name string) bool {
	some := false
	for part := range strings.SplitSeq(name, "/") {
		if part == "." || part == ".." {
			return false
		}
		some = some || part != ""
	}

	return some
}
