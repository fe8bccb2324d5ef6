// Package docs holds the published schemas of reports, for the commands that read reports again.
package docs

import _ "embed"

// BenchSchema is the JSON schema of the reports of holdfast bench.
//
//go:embed bench.schema.json
var BenchSchema []byte
