package datadir

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHolder: an error about a directory in use names the process that has it.
func TestHolder(t *testing.T) {
	id := Spec{Engine: "holder", Format: 1}
	if dir := os.Getenv("HOLDFAST_TEST_HOLDER"); dir != "" { // the other process
		h, err := Open(dir, id)
		try(t, err)
		fmt.Println("open")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		try(t, h.Close())
		return
	}
	dir := t.TempDir()
	if got := Holder(filepath.Join(dir, "none")) + Holder(dir); got != "" {
		t.Errorf("%q holds what is not locked", got)
	}
	self, err := os.Executable()
	try(t, err)
	cmd := exec.Command(self, "-test.run=^TestHolder$")
	cmd.Env = append(os.Environ(), "HOLDFAST_TEST_HOLDER="+dir)
	in, err := cmd.StdinPipe()
	try(t, err)
	out, err := cmd.StdoutPipe()
	try(t, err)
	try(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "open\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_, openErr := Open(dir, id)
	_, holdErr := Hold(dir)
	want := fmt.Sprintf("directory in use: by process %d (%s); close it", cmd.Process.Pid, filepath.Base(self))
	for _, err := range []error{openErr, holdErr} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	try(t, in.Close())
	try(t, cmd.Wait())
	h, err := Open(dir, id)
	try(t, err)
	if got := Holder(filepath.Join(dir, lockName)); got != "by this process" {
		t.Errorf("%q", got)
	}
	try(t, h.Close())
}
