package clustertest

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(nodeEnv) != "" {
		runNode()
		return
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "4") // storms wait most of the time
	goleak.VerifyTestMain(m)
}
