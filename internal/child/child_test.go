package child

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestMain is also the child of the tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "test-child" {
		stdout := os.Stdout
		var request string
		if err := Serve("test", os.Stdin, &request); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("a library that prints")
		fmt.Fprintln(stdout, "did", request)
		if request == "panic" {
			panic("the engine fell over")
		}
		select {}
	}
	os.Exit(m.Run())
}

func start(t *testing.T, request any) (*Process, string) {
	t.Helper()
	command, err := Command(nil, "test-child")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(command, request)
	if err != nil {
		t.Fatal(err)
	}
	told, err := bufio.NewReader(p.Out).ReadString('\n')
	if err != nil {
		t.Errorf("%q, %v", told, err)
	}
	return p, told
}

// TestChildSaysWhyItDied: what it told before is there, and what it said on its way out.
func TestChildSaysWhyItDied(t *testing.T) {
	p, told := start(t, "panic")
	state, err := p.Wait()
	if told != "did panic\n" || err == nil || !strings.Contains(err.Error(), "the engine fell over") ||
		state.ExitCode() != 2 {
		t.Errorf("%q, %v, %v", told, state, err)
	}
	if !strings.Contains(err.Error(), "a library that prints") {
		t.Errorf("what a library prints is not among what it said: %v", err)
	}
}

// TestChildEndsWithItsInput, and by a kill.
func TestChildEndsWithItsInput(t *testing.T) {
	p, told := start(t, "hang")
	p.CloseInput()
	if state, err := p.Wait(); told != "did hang\n" || state.ExitCode() != 1 {
		t.Errorf("%q, %v, %v", told, state, err)
	}
	p, _ = start(t, "hang")
	p.Kill()
	if state, err := p.Wait(); err == nil {
		t.Errorf("%v", state)
	}
	p.CloseInput()
}

func TestStartFails(t *testing.T) {
	if _, err := Start([]string{"/does/not/exist"}, nil); err == nil {
		t.Error("it started")
	}
	if _, err := Start([]string{"/does/not/exist"}, make(chan int)); err == nil {
		t.Error("it started with what is no JSON")
	}
}

// TestBefore: what is to be called before the child begins is, and may prevent it.
func TestBefore(t *testing.T) {
	command, err := Command(nil, "test-child")
	if err != nil {
		t.Fatal(err)
	}
	called := 0
	p, err := StartProgram(exec.Command(command[0], command[1:]...), func() error { called++; return nil })
	if err != nil || called != 1 {
		t.Fatalf("called %d times, %v", called, err)
	}
	p.Kill()
	_, _ = p.Wait()
	refused := errors.New("refused")
	if _, err := StartProgram(exec.Command(command[0]), func() error { return refused }); err != refused {
		t.Errorf("it started: %v", err)
	}
}

func TestCommandThatWasGiven(t *testing.T) {
	if command, err := Command([]string{"a", "b"}, "c"); err != nil || len(command) != 2 || command[1] != "b" {
		t.Errorf("%q, %v", command, err)
	}
}
