package measure

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// A process under a limit that is too small for it ends; one that is given enough does not.
func TestLimitRAM(t *testing.T) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("memory is limited by root on Linux only")
	}
	for limit, enough := range map[int64]bool{8 << 20: false, 256 << 20: true} {
		ram, err := LimitRAM(limit)
		if err != nil {
			t.Skip("control groups cannot be made here: ", err)
		}
		// It takes 64 MB once it may begin.
		cmd := exec.Command("sh", "-c", "read begin; x=$(head -c 64000000 /dev/zero | tr '\\0' x); echo ${#x}")
		begin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := ram.Add(cmd.Process.Pid); err != nil {
			t.Error(err)
		}
		begin.Write([]byte("now\n"))
		if err := cmd.Wait(); (err == nil) != enough {
			t.Errorf("with %d bytes it ended with %v", limit, err)
		}
		if err := ram.Close(); err != nil {
			t.Error(err)
		}
	}
}
