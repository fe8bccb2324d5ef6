package pebble

import (
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest"
)

func TestLaws(t *testing.T) {
	enginetest.Run(t, enginetest.Harness{
		Open:     Open,
		Describe: Describe,
		Tail: func(dir string) string {
			logs, _ := filepath.Glob(filepath.Join(dir, "data", "*.log"))
			if len(logs) == 0 {
				return ""
			}
			return logs[len(logs)-1] // their names are numbers of six digits
		},
		OpenFaulty: func(dir string, o holdfast.Options, faults *enginetest.Faults) (holdfast.Engine, error) {
			return open(&observedFS{FS: vfs.Default, write: faults.Write, sync: faults.Sync}, dir, o)
		},
	})
}
