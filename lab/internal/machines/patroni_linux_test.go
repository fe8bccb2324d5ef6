package machines

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// TestManagerMissing: who asks for a manager that is not installed is told what to install.
func TestManagerMissing(t *testing.T) {
	if err := Check(Options{Plain: true}); err != nil {
		t.Skip("THERE ARE NO MACHINES: ", err)
	}
	t.Setenv("PATH", t.TempDir())
	err := Check(Options{Plain: true, Manager: Patroni})
	if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "Debian's patroni, etcd-server") {
		t.Errorf("without Patroni: %v", err)
	}
	if err := Check(Options{Plain: true, Manager: "raft"}); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("a manager that there is not: %v", err)
	}
}
