// Package schemas holds the published JSON schemas of reports: of holdfast bench, crash and load.
package schemas

import _ "embed"

// Bench is the schema of the reports of holdfast bench.
//
//go:embed bench.schema.json
var Bench []byte
