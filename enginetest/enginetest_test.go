package enginetest

import (
	"testing"

	"github.com/holdfastdb/holdfast/engine/mem"
)

func TestMem(t *testing.T) {
	Run(t, Harness{Open: mem.Open, Describe: mem.Describe})
}
