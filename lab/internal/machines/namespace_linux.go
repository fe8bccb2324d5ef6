package machines

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfastdb/holdfast/internal/child"
)

// namespace is a network namespace, with a namespace of its own for System V's shared memory, of which a killed server
// leaves some. It has no name: it ends when it is closed and the last process in it has ended.
type namespace struct{ net, ipc *os.File }

// newNamespace makes an empty one.
func newNamespace() (*namespace, error) {
	return onThread(func() (*namespace, error) {
		if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWIPC); err != nil {
			return nil, os.NewSyscallError("unshare", err)
		}
		n := &namespace{}
		var err error
		if n.net, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return nil, err
		}
		if n.ipc, err = os.Open("/proc/thread-self/ns/ipc"); err != nil {
			n.net.Close()
			return nil, err
		}

		return n, nil
	})
}

// onThread runs f on a thread that ends with it, so that f may change what belongs to the thread.
func onThread[T any](f func() (T, error)) (T, error) {
	var result T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		result, err = f()
	}()
	<-done

	return result, err
}

// enter takes the calling thread into the namespace. It must not be used for anything else any more. The host's
// namespace is nil.
func (n *namespace) enter() error {
	if n == nil {
		return nil
	}
	if err := unix.Setns(int(n.net.Fd()), unix.CLONE_NEWNET); err != nil {
		return os.NewSyscallError("setns", err)
	}

	return os.NewSyscallError("setns", unix.Setns(int(n.ipc.Fd()), unix.CLONE_NEWIPC))
}

// close lets go of the namespace.
func (n *namespace) close() {
	n.net.Close()
	n.ipc.Close()
}

// run runs a program in the namespace to its end. The error says what the program said.
func (n *namespace) run(cmd *exec.Cmd) error {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = time.Minute // for what it said: on a busy machine a second was too short
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL // with this thread, which waits for it

	_, err := onThread(func() (struct{}, error) {
		if err := n.enter(); err != nil {
			return struct{}{}, err
		}

		return struct{}{}, cmd.Run()
	})
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(said.String()))
	}

	return nil
}

// ip runs commands of the program of that name, one a line. They may name other namespaces as /proc/self/fd/3 and on.
func (n *namespace) ip(ctx context.Context, commands string, spaces ...*namespace) error {
	path, err := findIP()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, "-batch", "-")
	cmd.Stdin = strings.NewReader(commands)
	for _, s := range spaces {
		cmd.ExtraFiles = append(cmd.ExtraFiles, s.net)
	}

	return n.run(cmd)
}

// findIP finds the ip command, also where a user's PATH does not look.
func findIP() (string, error) {
	for _, name := range []string{"ip", "/usr/sbin/ip", "/sbin/ip"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}

	return "", fmt.Errorf("the ip command is not installed; Debian's package is iproute2")
}

// start starts a program in the namespace, from a thread that has done what is in before. It ends with this process at
// the latest.
func (n *namespace) start(cmd *exec.Cmd, before ...func() error) (*child.Process, error) {
	return child.StartProgram(cmd, append(before, n.enter)...)
}

// dial connects from the namespace.
func (n *namespace) dial(ctx context.Context, network, address string) (net.Conn, error) {
	// A socket stays in the namespace in which it was made. The address must not be a name, or other threads look it up.
	return onThread(func() (net.Conn, error) {
		if err := n.enter(); err != nil {
			return nil, err
		}

		return new(net.Dialer).DialContext(ctx, network, address)
	})
}

// processes returns the numbers of the processes in the namespace but for this one, a thread of which may be there.
func (n *namespace) processes() ([]int, error) {
	var mine unix.Stat_t
	if err := unix.Fstat(int(n.net.Fd()), &mine); err != nil {
		return nil, err
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}

	var found []int
	for _, dir := range dirs {
		var st unix.Stat_t // of a process that has ended there is none
		if unix.Stat(dir+"/ns/net", &st) != nil || st.Dev != mine.Dev || st.Ino != mine.Ino {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && pid != os.Getpid() {
			found = append(found, pid)
		}
	}

	return found, nil
}

// killPatience bounds how long a killed process may need to end: it may be waiting for its disk.
const killPatience = time.Minute

// kill ends the processes in the namespace that are chosen, and returns when all of them are gone.
func (n *namespace) kill(chosen func(pid int) bool) error {
	for end := time.Now().Add(killPatience); ; time.Sleep(time.Millisecond) {
		pids, err := n.processes()
		if err != nil {
			return err
		}
		left := 0
		for _, pid := range pids {
			if chosen(pid) {
				left++
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d killed processes have not ended within %v", left, killPatience)
		}
	}
}

// pause stops all processes in the namespace, and returns when each stands still and there is none that was made
// meanwhile.
func (n *namespace) pause() error {
	for end := time.Now().Add(killPatience); ; time.Sleep(time.Millisecond) {
		pids, err := n.processes()
		if err != nil {
			return err
		}
		moving := slices.DeleteFunc(pids, func(pid int) bool { return state(pid) == "T" })
		if len(moving) == 0 {
			return nil
		}
		for _, pid := range moving {
			_ = unix.Kill(pid, unix.SIGSTOP)
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d processes have not stopped within %v", len(moving), killPatience)
		}
	}
}

// resume lets all processes in the namespace go on. While they stand still they make none.
func (n *namespace) resume() error {
	pids, err := n.processes()
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGCONT)
	}

	return err
}

// state is the state of a process, as one letter of proc(5).
func state(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")

	return rest[:min(1, len(rest))]
}
