// Release makes a release of all modules of the repository at one version.
//
// In the repository each module finds the others beside it, by replace directives, which users' builds ignore and
// go install refuses. A release is two commits that no branch has: in the first the modules require each other at the
// version that is made; the second does the same for the command, which needs the lab, and that is never tagged and is
// known by the first commit. The tags stand on these commits.
//
//	go run ./tools/release v0.2.0                 makes the tags in this repository; push them with git push --tags
//	go run ./tools/release --proxy DIR v0.2.0     makes no tag, but files that GOPROXY=file://DIR serves
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

const root = "github.com/holdfastdb/holdfast"

// tagged are the folders of the modules that the first commit tags, each after those that it needs.
var tagged = []string{"", "internal/console", "internal/browsertest", "engine/pebble", "engine/badger", "engine/bbolt",
	"engine/sqlite", "store/raftlog", "store/etcdraft", "engine/all", "backup", "server"}

const (
	lab     = "lab"
	command = "cmd/holdfast"
)

func main() {
	proxy := flag.String("proxy", "", "write the modules to this `directory`, which GOPROXY=file://DIRECTORY serves")
	flag.Parse()
	err := errors.New("name one version: go run ./tools/release v0.2.0")
	if flag.NArg() == 1 {
		err = release(".", flag.Arg(0), *proxy)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release makes the commits from what the repository at dir has committed.
func release(dir, version, proxy string) error {
	if semver.Canonical(version) != version || semver.Build(version) != "" {
		return fmt.Errorf("%q is no version like v0.2.0", version)
	}
	from, err := git(dir, "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if changed, err := git(from, "status", "--porcelain", "--untracked-files=no"); err != nil || changed != "" {
		return errors.Join(err, fmt.Errorf("commit first: %s", changed))
	}

	// The work is done in a clone, so that nothing is left here if it fails.
	work, err := os.MkdirTemp("", "holdfast-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r := &releaser{dir: filepath.Join(work, "clone"), version: version, proxy: proxy}
	if _, err := git(work, "clone", "--quiet", "--no-tags", from, r.dir); err != nil {
		return err
	}
	if err := r.run(); err != nil || proxy != "" {
		return err
	}
	_, err = git(from, "fetch", "--quiet", "--no-write-fetch-head", r.dir, "refs/tags/*:refs/tags/*")

	return err
}

type releaser struct {
	dir, version, proxy string
	lab                 string // its version, once the first commit is made
}

func (r *releaser) run() error {
	for _, folder := range append([]string{lab}, tagged...) {
		if err := r.pin(folder); err != nil {
			return err
		}
	}
	commit, at, err := r.commit("all modules")
	if err != nil {
		return err
	}

	for _, folder := range tagged {
		if err := r.publish(folder, r.version, commit, at); err != nil {
			return err
		}
	}
	r.lab = module.PseudoVersion("v0", "", at, commit[:12])
	if err := r.publish(lab, r.lab, commit, at); err != nil {
		return err
	}

	if err := r.pin(command); err != nil {
		return err
	}
	if commit, at, err = r.commit("the command"); err != nil {
		return err
	}

	return r.publish(command, r.version, commit, at)
}

// pin makes the module in a folder require the others at the versions of this release.
func (r *releaser) pin(folder string) error {
	name := filepath.Join(r.dir, folder, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	f, err := modfile.Parse(name, text, nil)
	if err != nil {
		return err
	}

	for _, replaced := range append([]*modfile.Replace(nil), f.Replace...) {
		if err := f.DropReplace(replaced.Old.Path, replaced.Old.Version); err != nil {
			return err
		}
	}

	for _, required := range f.Require {
		version := r.version
		switch p := required.Mod.Path; {
		case p != root && !strings.HasPrefix(p, root+"/"):
			continue
		case p == root+"/"+lab:
			version = r.lab
		}
		if err := f.AddRequire(required.Mod.Path, version); err != nil {
			return err
		}
	}
	f.Cleanup()
	text, err = f.Format()
	if err != nil {
		return err
	}

	return os.WriteFile(name, text, 0o644)
}

// commit commits what was changed, and returns the commit and when it was made.
func (r *releaser) commit(what string) (hash string, at time.Time, err error) {
	if _, err := git(r.dir, "-c", "user.name=release", "-c", "user.email=release@localhost", "commit", "--quiet", "--all",
		"--message", fmt.Sprintf("release %s of %s", r.version, what)); err != nil {
		return "", at, err
	}
	text, err := git(r.dir, "log", "-1", "--format=%H %cI")
	if err != nil {
		return "", at, err
	}
	hash, when, _ := strings.Cut(text, " ")
	at, err = time.Parse(time.RFC3339, when)

	return hash, at.UTC(), err
}

// publish tags the module in a folder, or writes it for a proxy.
func (r *releaser) publish(folder, version, commit string, at time.Time) error {
	if r.proxy == "" {
		if folder == lab {
			return nil
		}
		tag := path.Join(folder, version)
		fmt.Println(tag)
		_, err := git(r.dir, "-c", "user.name=release", "-c", "user.email=release@localhost", "tag", "--annotate",
			"--message", root+" "+version, tag, commit)

		return err
	}

	m := module.Version{Path: path.Join(root, folder), Version: version}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	dir := filepath.Join(r.proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var content bytes.Buffer
	if err := zip.CreateFromVCS(&content, m, r.dir, commit, folder); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(r.dir, folder, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, at})
	if err != nil {
		return err
	}
	fmt.Printf("%s %s, %d kB\n", m.Path, version, content.Len()/1000)

	for name, text := range map[string][]byte{version + ".zip": content.Bytes(), version + ".mod": mod,
		version + ".info": info, "list": []byte(version + "\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}

	return nil
}

// git runs git in a directory, and returns what it says.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, complaint.Bytes())
	}

	return strings.TrimSpace(string(out)), err
}
