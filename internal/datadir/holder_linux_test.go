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
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("open")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	dir := t.TempDir()
	if got := Holder(filepath.Join(dir, "none")) + Holder(dir); got != "" {
		t.Errorf("%q holds what is not locked", got)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestHolder$")
	cmd.Env = append(os.Environ(), "HOLDFAST_TEST_HOLDER="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	h, err := Open(dir, id)
	if err != nil {
		t.Fatal(err)
	}
	if got := Holder(filepath.Join(dir, lockName)); got != "by this process" {
		t.Errorf("%q", got)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}
