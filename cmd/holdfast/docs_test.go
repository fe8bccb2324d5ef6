package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// TestDocsCommands: every holdfast command in the README and in docs parses, on lines of its own and within the text.
func TestDocsCommands(t *testing.T) {
	blocks := regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```")
	inline := regexp.MustCompile("`(holdfast\\s[^`]*)`")
	commands, parser := 0, docsParser(t)
	for _, page := range docsPages(t) {
		b, err := os.ReadFile(page)
		try(t, err)
		text := string(b)
		for _, block := range blocks.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(block[1]) {
				line = strings.Replace(line, "go run ./cmd/holdfast", "holdfast", 1)
				if rest, ok := strings.CutPrefix(line, "holdfast "); ok {
					commands++
					checkCommand(t, parser, page, rest, false)
				}
			}
		}
		for _, match := range inline.FindAllStringSubmatch(blocks.ReplaceAllString(text, ""), -1) {
			commands++
			checkCommand(t, parser, page, strings.TrimPrefix(match[1], "holdfast"), true)
		}
	}
	if commands < 40 {
		t.Errorf("only %d commands were found", commands)
	}
}

// TestDocsBenchmarks: what the docs tell to run with go test -run or -bench is there.
func TestDocsBenchmarks(t *testing.T) {
	command := regexp.MustCompile(`go test [^` + "`" + `#]*`)
	pattern := regexp.MustCompile(`-(run|bench)='?([^'\s/]+)`)
	found := 0
	for _, page := range docsPages(t) {
		b, err := os.ReadFile(page)
		try(t, err)
		for _, line := range command.FindAllString(string(b), -1) {
			for _, dir := range regexp.MustCompile(`\s\./([\w/]+)`).FindAllStringSubmatch(line, -1) {
				for _, m := range pattern.FindAllStringSubmatch(line, -1) {
					if m[2] == "^$" {
						continue
					}
					found++
					kind := map[string]string{"run": `func (`, "bench": `func (Benchmark\w*)?(`}[m[1]]
					function := regexp.MustCompile(kind + m[2] + `)`)
					if !slices.ContainsFunc(testFiles(t, dir[1]), function.MatchString) {
						t.Errorf("%s: %s: nothing to run in %s", page, line, dir[1])
					}
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d commands were found", found)
	}
}

// TestDocsDeploy: the unit and the image start the command with settings that it knows, and keep the data below what it
// may write to, since the server makes backups next to it.
func TestDocsDeploy(t *testing.T) {
	parser := docsParser(t)
	for name, writable := range map[string]string{"holdfast.service": "/var/lib/holdfast", "Dockerfile": "/data"} {
		b, err := os.ReadFile(filepath.Join("../../docs/deploy", name))
		try(t, err)
		text := regexp.MustCompile(`(?m)^#.*`).ReplaceAllString(string(b), "")
		commands := regexp.MustCompile(`(?m)(?:bin/holdfast (.*)|CMD \[(?:"/holdfast", )?"(.*)"\])$`)
		found := commands.FindAllStringSubmatch(text, -1)
		for _, m := range found {
			checkCommand(t, parser, name, m[1]+m[2], false)
		}
		known, data := map[string]bool{}, ""
		for _, flag := range child(parser.Model.Node, "serve").Flags {
			for _, env := range flag.Tag.Envs {
				known[env] = true
			}
		}
		for _, m := range regexp.MustCompile(`(HOLDFAST_\w+)=(\S+)`).FindAllStringSubmatch(text, -1) {
			if !known[m[1]] {
				t.Errorf("%s: serve does not know %s", name, m[1])
			}
			if m[1] == "HOLDFAST_DATA" {
				data = m[2]
			}
		}
		if filepath.ToSlash(filepath.Dir(data)) != writable || len(found) == 0 {
			t.Errorf("%s: the data is in %q, which is not below %s; %d commands", name, data, writable, len(found))
		}
	}
}

// TestDocsDeployNodes: what Compose and Kubernetes start are commands that there are, with settings that serve knows.
// Whether the files are as those want them, .ci/deploy says.
func TestDocsDeployNodes(t *testing.T) {
	parser := docsParser(t)
	known := map[string]bool{"HOLDFAST_PEER_TOKEN": true}
	for _, flag := range child(parser.Model.Node, "serve").Flags {
		for _, env := range flag.Tag.Envs {
			known[env] = true
		}
	}
	for _, name := range []string{"compose.yml", "kubernetes.yml"} {
		b, err := os.ReadFile(filepath.Join("../../docs/deploy", name))
		try(t, err)
		commands := 0
		var look func(v any)
		look = func(v any) {
			switch v := v.(type) {
			case []any:
				for _, one := range v {
					look(one)
				}
			case map[string]any:
				for key, one := range v {
					look(one)
					if args, ok := one.([]any); ok && (key == "command" || key == "args") {
						commands++
						checkCommand(t, parser, name, strings.Trim(fmt.Sprint(args), "[]"), false)
					}
				}
			}
		}
		for decoder := yaml.NewDecoder(bytes.NewReader(b)); ; {
			var document any
			if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			look(document)
		}
		for _, setting := range regexp.MustCompile(`HOLDFAST_\w+`).FindAllString(string(b), -1) {
			if !known[setting] {
				t.Errorf("%s: serve does not know %s", name, setting)
			}
		}
		if commands == 0 {
			t.Errorf("%s starts nothing", name)
		}
	}
}

// testFiles returns the contents of the test files in a directory of the module.
func testFiles(t *testing.T, dir string) (texts []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	try(t, err)
	for _, name := range names {
		b, err := os.ReadFile(name)
		try(t, err)
		texts = append(texts, string(b))
	}
	return texts
}

// docsPages returns the pages of the documentation.
func docsPages(t *testing.T) []string {
	t.Helper()
	pages := []string{"../../README.md", "../../DESIGN.md", "../../SECURITY.md", "../../CONTRIBUTING.md"}
	try(t, filepath.WalkDir("../../docs", func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".md") {
			pages = append(pages, name)
		}
		return err
	}))
	return pages
}

// docsParser parses the commands of the documentation, and runs nothing.
func docsParser(t *testing.T) *kong.Kong {
	t.Helper()
	parser, err := newParser(new(grammar), func(int) {})
	try(t, err)
	return parser
}

// checkCommand parses one command. One within the text may be without its arguments.
func checkCommand(t *testing.T, parser *kong.Kong, page, line string, inText bool) {
	t.Helper()
	line, _, _ = strings.Cut(line, " #")
	var args []string // as a shell has them
	for _, arg := range regexp.MustCompile(`"[^"]*"|(?:[^\s']|'[^']*')+`).FindAllString(line, -1) {
		if in, ok := strings.CutPrefix(arg, `"`); ok {
			args = append(args, strings.TrimSuffix(in, `"`))
			continue
		}
		args = append(args, strings.ReplaceAll(arg, "'", ""))
	}
	at := parser.Model.Node
	for _, arg := range args {
		if i := child(at, arg); i != nil {
			at = i
			continue
		}
		break
	}
	if at == parser.Model.Node {
		t.Errorf("%s: no command: holdfast %s", page, line)
		return
	}
	if inText && at.Path() == strings.Join(args, " ") {
		return
	}
	if _, err := parser.Parse(args); err != nil {
		t.Errorf("%s: holdfast %s: %v", page, line, err)
	}
}

func child(at *kong.Node, name string) *kong.Node {
	for _, c := range at.Children {
		if c.Name == name && !c.Hidden {
			return c
		}
	}
	return nil
}
