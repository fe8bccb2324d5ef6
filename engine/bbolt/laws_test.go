package bbolt_test

import (
	"testing"

	"github.com/holdfastdb/holdfast/engine/bbolt"
	"github.com/holdfastdb/holdfast/enginetest"
)

func TestLaws(t *testing.T) {
	enginetest.Run(t, enginetest.Harness{Open: bbolt.Open, Describe: bbolt.Describe})
}
