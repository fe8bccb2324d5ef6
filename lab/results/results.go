// Package results has the reports of measurements that come with the program.
package results

import "embed"

// Files says in words what was measured, and has the compressed reports. Pages are left out.
//
//go:embed *.md *.gz
var Files embed.FS
