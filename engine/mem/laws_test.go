package mem_test

import (
	"testing"

	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/enginetest"
)

func TestLaws(t *testing.T) {
	enginetest.Run(t, enginetest.Harness{Open: mem.Open, Describe: mem.Describe})
}
