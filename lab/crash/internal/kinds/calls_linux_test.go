package kinds

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// TestKillBefore kills a process before its third call of each kind: two files show what it had done.
func TestKillBefore(t *testing.T) {
	if !CanKillBefore() {
		t.Skip("not on this machine")
	}
	for _, name := range calls {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestHelperCalls$")
			cmd.Env = append(os.Environ(), "KINDS_CALL="+name, "KINDS_DIR="+dir)
			out, err := cmd.CombinedOutput()
			if !killed(err) {
				t.Fatalf("%v: %s", err, out)
			}
			left, err := filepath.Glob(filepath.Join(dir, "done-*"))
			if err != nil || len(left) != 2 {
				t.Errorf("%q, %v, not two: %s", left, err, out)
			}
		})
	}
}

// TestHelperCalls is the process that TestKillBefore kills.
func TestHelperCalls(t *testing.T) {
	name, dir := os.Getenv("KINDS_CALL"), os.Getenv("KINDS_DIR")
	if name == "" {
		return
	}
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := KillBefore(name, 3); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		done := filepath.Join(dir, "done-"+strconv.Itoa(i))
		switch name {
		case "sync":
			err = f.Sync()
		case "name":
			err = os.Rename(f.Name(), f.Name()) // which does nothing to it
		case "write":
			if i == 2 {
				_, err = f.Write(make([]byte, 9))
				break
			}
			_, short := f.Write(make([]byte, 8)) // is not counted
			_, err = f.WriteAt([]byte(fmt.Sprint(i)), 0)
			err = errors.Join(err, short)
		case "size":
			err = f.Truncate(int64(i))
		}
		if err = errors.Join(err, os.WriteFile(done, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}
