// Package rust builds and starts the program that serves contenders written in Rust, see src/main.rs. Its source is
// part of this package, so that whatever has the package can build it where cargo is.
package rust

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfastdb/holdfast/internal/child"
)

//go:embed Cargo.toml Cargo.lock src
var source embed.FS

// sum names this very source.
var sum = sync.OnceValues(func() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(source, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := source.ReadFile(path)
		fmt.Fprintf(sum, "%s\n%d\n%s", path, len(text), text)

		return err
	})

	return hex.EncodeToString(sum.Sum(nil)[:8]), err
})

// home is where the program of this source is, built or not.
func home() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	name, err := sum()

	return filepath.Join(cache, "holdfast", "rust-"+name), err
}

const program = "holdfast-contender"

// Path is where the program is. The error says that it is not built, and how it would be.
func Path() (string, error) {
	dir, err := home()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, program)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the program that serves it is not built; holdfast bench kv --engines rust-null --workloads "+
			"kv/batch builds it where cargo is: %w", err)
	}

	return path, nil
}

// cargo is the path of cargo, where rustup puts it if not on the search path.
func cargo() (string, error) {
	path, err := exec.LookPath("cargo")
	if err == nil {
		return path, nil
	}
	if dir, err := os.UserHomeDir(); err == nil {
		path = filepath.Join(dir, ".cargo", "bin", "cargo")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}

	return "", errors.New("it is served by a program in Rust, and there is no cargo to build that: install Rust")
}

// Available says why there can be no program, nil if it is there or cargo is.
func Available() error {
	if runtime.GOOS == "windows" {
		return errors.New("the program that serves it is for Unix")
	}
	if _, err := Path(); err == nil {
		return nil
	}
	_, err := cargo()

	return err
}

// Build builds the program, unless it is there. It takes a minute or two, and cargo asks its registry for the crates
// that it does not have.
func Build(ctx context.Context) (err error) {
	if _, err := Path(); err == nil {
		return nil
	}
	dir, err := home()
	if err != nil {
		return err
	}
	tool, err := cargo()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// Each build has its own place, and only what is whole gets the name that others look for.
	work, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := os.CopyFS(work, source); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, tool, "build", "--release", "--locked", "--quiet",
		"--manifest-path", filepath.Join(work, "Cargo.toml"), "--target-dir", filepath.Join(work, "target"))
	// rustc and what it needs lie beside cargo.
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(tool)+string(os.PathListSeparator)+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}

		return fmt.Errorf("cargo build: %w: %s", err, firstLine(string(out)))
	}

	return os.Rename(filepath.Join(work, "target", "release", program), filepath.Join(dir, program))
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// Start starts the program on an engine's directory, with so many bytes for caches and write buffers. If it is new,
// what is there goes first.
func Start(engine, dir string, memory int64, isNew bool) (*child.Process, error) {
	path, err := Path()
	if err != nil {
		return nil, err
	}
	args := []string{engine, dir, strconv.FormatInt(memory, 10)}
	if isNew {
		args = append(args, "new")
	}

	return child.StartProgram(exec.Command(path, args...))
}
