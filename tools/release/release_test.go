package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"
)

// stranger is somebody who has only what a proxy serves.
type stranger struct {
	dir string
	env []string
}

func (s *stranger) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// requirements are the modules that go.mod names: those that the program needs itself, and all.
func (s *stranger) requirements(t *testing.T) (direct, all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range f.Require {
		all = append(all, r.Mod.Path)
		if !r.Indirect {
			direct = append(direct, r.Mod.Path)
		}
	}
	t.Logf("%s", text)
	return direct, all
}

// TestRelease: what a stranger gets of a release, from a proxy that is a directory: the library alone, with an engine
// over a library, and the command. The last two are built in the night: they take the longest of all tests.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the command from nothing")
	}
	// The repository may have changes, which a release refuses: what is committed counts.
	source := filepath.Join(t.TempDir(), "source")
	if _, err := git(".", "clone", "--quiet", "--no-tags", "../..", source); err != nil {
		t.Fatal(err)
	}
	// The module cache is the machine's, which has the libraries, so the version is one that never was.
	version := fmt.Sprintf("v0.99.%d", time.Now().UnixNano())
	proxy := t.TempDir()
	t.Cleanup(func() { forget(t, proxy) })
	if err := release(source, version, proxy); err != nil {
		t.Fatal(err)
	}
	others := strings.TrimSpace((&stranger{dir: ".", env: os.Environ()}).run(t, "go", "env", "GOPROXY"))
	s := &stranger{dir: t.TempDir()}
	bin := t.TempDir()
	s.env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOFLAGS=") }),
		"GOPROXY=file://"+filepath.ToSlash(proxy)+","+others, "GOSUMDB=off", "GOWORK=off", "GOBIN="+bin,
		"GOFLAGS=-modcacherw")
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(s.dir, "main.go"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	// The library alone.
	s.run(t, "go", "mod", "init", "example.com/stranger")
	write(`package main

import (
	"context"
	"fmt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

func main() {
	engine, err := logtree.Open("data", holdfast.Options{})
	if err != nil {
		panic(err)
	}
	log, err := event.Open(kv.On(engine), event.Options{Level: holdfast.Power})
	if err != nil {
		panic(err)
	}
	result, err := log.Append(context.Background(), event.Event{Type: "Seen"})
	fmt.Println(result.First, err)
	fmt.Println(log.Close(), engine.Close())
}
`)
	s.run(t, "go", "get", root+"@"+version)
	s.run(t, "go", "mod", "tidy")
	if out := s.run(t, "go", "run", "."); out != "1 <nil>\n<nil> <nil>\n" {
		t.Errorf("it says %q", out)
	}
	if _, all := s.requirements(t); !slices.Equal(all, []string{root, "golang.org/x/sys"}) {
		t.Errorf("the library requires %q", all)
	}

	t.Run("an engine and the command", func(t *testing.T) { s.installs(t, version, bin, write) })
}

func (s *stranger) installs(t *testing.T, version, bin string, write func(string)) {
	if os.Getenv("HOLDFAST_NIGHT") == "" { // as package internal/night does, which this module does not require
		t.Skip("only with HOLDFAST_NIGHT=1, as in .ci/night; by day: the library alone, which is released in the same way")
	}
	// One engine more is one requirement more.
	write(`package main

import (
	"fmt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/pebble"
)

func main() {
	engine, err := pebble.Open("pebble", holdfast.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println(engine.Capabilities().Engine, engine.Close())
}
`)
	s.run(t, "go", "get", root+"/engine/pebble@"+version)
	s.run(t, "go", "mod", "tidy")
	if out := s.run(t, "go", "run", "."); out != "pebble <nil>\n" {
		t.Errorf("it says %q", out)
	}
	if direct, _ := s.requirements(t); !slices.Equal(direct, []string{root, root + "/engine/pebble"}) {
		t.Errorf("with Pebble it requires %q", direct)
	}

	// The command.
	s.run(t, "go", "install", root+"/cmd/holdfast@"+version)
	says := s.run(t, filepath.Join(bin, "holdfast"), "version")
	if !regexp.MustCompile(`holdfast +`+regexp.QuoteMeta(version)).MatchString(says) || !strings.Contains(says, "pebble") {
		t.Errorf("it says %s", says)
	}
}

// forget removes from the module cache what a proxy has served.
func forget(t *testing.T, proxy string) {
	cache := strings.TrimSpace((&stranger{dir: ".", env: os.Environ()}).run(t, "go", "env", "GOMODCACHE"))
	err := filepath.WalkDir(proxy, func(name string, _ fs.DirEntry, err error) error {
		file, ok := strings.CutSuffix(name, ".zip")
		if err != nil || !ok {
			return err
		}
		relative, err := filepath.Rel(proxy, file)
		if err != nil {
			return err
		}
		downloads, err := filepath.Glob(filepath.Join(cache, "cache", "download", relative+".*"))
		if err != nil {
			return err
		}
		dir, version := filepath.Split(relative) // PATH/@v/VERSION
		for _, gone := range append(downloads, filepath.Join(cache, filepath.Dir(filepath.Clean(dir))+"@"+version)) {
			if err := os.RemoveAll(gone); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
