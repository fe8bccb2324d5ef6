// Package start has the tests of the programs of docs/start: each is run, and does what its page says.
package start

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/store/message"
)

var built string // the directory of the programs

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if built, err = os.MkdirTemp("", "holdfast-start-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(built)
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", built+string(filepath.Separator), "./...")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// program is one of them, as it is started in a directory.
func program(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(built, name), args...)
	cmd.Dir = dir
	return cmd
}

// run runs it to its end and returns what it prints.
func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, out, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// onPage wants a page to have what a program has printed.
func onPage(t *testing.T, page, output string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "start", page))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "```\n"+output+"```") {
		t.Errorf("%s does not have this output:\n%s", page, output)
	}
}

// TestPrograms runs each in an empty directory, and then again. They are short.
func TestPrograms(t *testing.T) {
	for name, second := range map[string]string{ // what the second run prints: one line of it
		"events":       "placed at position 1, again: true\n",
		"messages":     "-500: account ann has only 140\n",
		"tasks":        "task welcome is completed\n",
		"raft":         "run 2\n",
		"engine":       "order/18 1 pear\n",
		"transactions": "2 messages, 2 mails\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			onPage(t, name+".md", run(t, program(t, dir, name)))
			if out := run(t, program(t, dir, name)); !strings.Contains(out, second) {
				t.Errorf("the second run printed\n%s, not %s", out, second)
			}
		})
	}
	sources, err := filepath.Glob("*/main.go")
	if err != nil || len(sources) != 8 {
		t.Fatal(sources, err)
	}
	for _, name := range sources {
		text, err := os.ReadFile(name)
		if n := strings.Count(string(text), "\n"); err != nil || n > 60 && name != filepath.Join("service", "main.go") {
			t.Errorf("%s has %d lines: %v", name, n, err)
		}
	}
}

// TestEngines runs the program about engines with each of them.
func TestEngines(t *testing.T) {
	for _, address := range []string{"pebble:d", "badger:d", "bbolt:d", "sqlite:d", "sqlite-go:d", "files:d", "mem:"} {
		if out := run(t, program(t, t.TempDir(), "engine", address)); !strings.Contains(out, "order/18 1 pear\n") {
			t.Errorf("%s: %s", address, out)
		}
	}
}

// TestServer runs the client against a server, twice.
func TestServer(t *testing.T) {
	engine, err := logtree.Open(t.TempDir(), holdfast.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := data.Open(engine, data.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(d, server.Options{TestMode: true})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	defer func() {
		if err := errors.Join(s.Stop(context.Background()), <-served, d.Close(), engine.Close()); err != nil {
			t.Error(err)
		}
	}()
	for _, first := range []string{"", "order-17 is there already\n"} {
		cmd := program(t, t.TempDir(), "server")
		cmd.Env = append(os.Environ(), "HOLDFAST_URL=http://"+listener.Addr().String(), "HOLDFAST_TOKEN=")
		out := run(t, cmd)
		rest, ok := strings.CutPrefix(out, first)
		if !ok {
			t.Errorf("it printed %s", out)
		}
		onPage(t, "server.md", rest)
	}
}

// TestService uses the service as its page does: orders, its read model, mail, page, metrics and a backup.
func TestService(t *testing.T) {
	dir := t.TempDir()
	cmd := program(t, dir, "service", "--addr", "127.0.0.1:0")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewScanner(stdout)
	line := func() string {
		t.Helper()
		if !lines.Scan() {
			_ = cmd.Wait()
			t.Fatal("it has ended: ", said.String())
		}
		return lines.Text()
	}
	address, token, ok := strings.Cut(line(), "/page/ with the token ")
	if !ok {
		t.Fatal(lines.Text())
	}
	ask := func(method, path string, want int) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != want {
			t.Fatalf("%s %s: %s, want %d: %s %v", method, path, resp.Status, want, body, err)
		}
		return string(body)
	}
	ask("POST", "/shop/orders/17/pay", http.StatusConflict)
	ask("POST", "/shop/orders/17/place?customer=ann&cents=1250", http.StatusOK)
	ask("POST", "/shop/orders/17/pay", http.StatusOK)
	ask("POST", "/shop/orders/17/pay", http.StatusConflict)
	onPage(t, "service.md", line()+"\n") // the mail
	testkit.Until(t, "what ann has spent", func() bool {
		r, err := http.Get(address + "/shop/spent/ann")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		return err == nil && string(body) == "1250\n"
	})
	if page := ask("GET", "/page/", http.StatusOK); !strings.Contains(page, "<title>") {
		t.Error(page)
	}
	if text := ask("GET", "/v1/metrics", http.StatusOK); !strings.Contains(text, "holdfast_commit_seconds") {
		t.Error(text)
	}
	c, err := client.New(address, client.Options{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	backup, err := os.Create(filepath.Join(dir, "backup.tar"))
	if err == nil {
		err = errors.Join(c.Backup(t.Context(), backup), backup.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "windows" {
		return // no interrupt can be sent
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		t.Error("it printed more: ", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err, said.String())
	}
	engine, err := logtree.Open(filepath.Join(dir, "service-data"), holdfast.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	store, err := message.Open(kv.On(engine), message.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	shop, err := store.Namespace(t.Context(), message.Default)
	if err != nil {
		t.Fatal(err)
	}
	if count, err := shop.Count(t.Context(), "order"); err != nil || count.Messages != 2 {
		t.Errorf("%+v %v", count, err)
	}
}
