package sqlite_test

import (
	"testing"

	"github.com/holdfastdb/holdfast/engine/sqlite"
	"github.com/holdfastdb/holdfast/enginetest"
)

func TestLawsGo(t *testing.T) {
	enginetest.Run(t, enginetest.Harness{Open: sqlite.OpenGo, Describe: sqlite.DescribeGo})
}
