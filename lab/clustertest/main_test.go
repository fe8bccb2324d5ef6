package clustertest

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(nodeEnv) != "" {
		runNode()
		return
	}
	goleak.VerifyTestMain(m)
}
