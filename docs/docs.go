// Package docs holds the published schemas of reports, for the commands that read reports again, and the reports that
// come with the program.
package docs

import "embed"

// BenchSchema is the JSON schema of the reports of holdfast bench.
//
//go:embed bench.schema.json
var BenchSchema []byte

// Results is the directory results: what it is in words, and compressed reports, if there are any. Pages are left out.
//
//go:embed results/*.[mg]*
var Results embed.FS
