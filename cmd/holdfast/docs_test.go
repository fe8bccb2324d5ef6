package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestDocsCommands: every holdfast command in the README and in docs parses, on lines of its own and within the text.
func TestDocsCommands(t *testing.T) {
	pages := []string{"../../README.md", "../../DESIGN.md", "../../SECURITY.md", "../../CONTRIBUTING.md"}
	try(t, filepath.WalkDir("../../docs", func(name string, d fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".md") && !strings.Contains(name, "findings") {
			pages = append(pages, name)
		}
		return err
	}))
	blocks := regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```")
	inline := regexp.MustCompile("`(holdfast\\s[^`]*)`")
	commands := 0
	for _, page := range pages {
		b, err := os.ReadFile(page)
		try(t, err)
		text := string(b)
		for _, block := range blocks.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(block[1]) {
				line = strings.Replace(line, "go run ./cmd/holdfast", "holdfast", 1)
				if rest, ok := strings.CutPrefix(line, "holdfast "); ok {
					commands++
					checkCommand(t, page, rest, false)
				}
			}
		}
		for _, match := range inline.FindAllStringSubmatch(blocks.ReplaceAllString(text, ""), -1) {
			commands++
			checkCommand(t, page, strings.TrimPrefix(match[1], "holdfast"), true)
		}
	}
	if commands < 40 {
		t.Errorf("only %d commands were found", commands)
	}
}

// checkCommand parses one command. One within the text may be without its arguments.
func checkCommand(t *testing.T, page, line string, inText bool) {
	t.Helper()
	line, _, _ = strings.Cut(line, " #")
	args := strings.Fields(strings.ReplaceAll(line, "'", ""))
	var g grammar
	parser, err := newParser(&g, func(int) {})
	try(t, err)
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
