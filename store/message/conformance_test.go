package message_test

import (
	"testing"

	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/message"
)

// TestConformance is what a message store promises, on every engine at every level that it gives.
func TestConformance(t *testing.T) {
	cases := []struct {
		name string
		run  func(t *testing.T, tg *target, o message.Options)
	}{
		{"model", testModel},
		{"following", testFollow},
		{"conflicts", testConflicts},
		{"namespaces", testNamespaces},
		{"competing consumers", testConsumers},
		{"transactions", testTransactions},
	}
	storetest.Targets(t, func(t *testing.T, tg *target) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) { c.run(t, tg, message.Options{Name: c.name, Level: tg.Level}) })
		}
	})
}
