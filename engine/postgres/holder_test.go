package postgres

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// A process of this machine is dead when it has ended; of others nothing is known.
func TestDead(t *testing.T) {
	_, own, _ := strings.Cut(here(), "/")
	machine, _, ok := cutLast(own)
	if !ok {
		t.Skip("this system does not tell its processes apart")
	}
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	name := machine + " " + strconv.Itoa(child.Process.Pid)
	if dead(own) || dead(name) {
		t.Error("a process that lives is called dead")
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if !dead(name) {
		t.Error("a process that has ended is not called dead")
	}
	for _, other := range []string{"", "x", "another " + name, machine + " 0", machine + " -1", machine + " x"} {
		if dead(other) {
			t.Errorf("%q is called dead", other)
		}
	}
}
