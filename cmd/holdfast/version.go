package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/console"
)

type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command to explain."`
}

type versionCommand struct {
	JSON bool `name:"json" help:"Write JSON."`
}

// versionInfo is what the build says of itself.
type versionInfo struct {
	Version string `json:"version"`          // of the tag, or (devel)
	Commit  string `json:"commit,omitempty"` // with "modified" behind it if files were changed
	Time    string `json:"time,omitempty"`   // of the commit
	Go      string `json:"go"`
	System  string `json:"system"`
	// Libraries are the engines' and those that Raft stores are imported from.
	Libraries []library `json:"libraries"`
	Engines   []string  `json:"engines"` // that this build has
}

type library struct {
	Module  string `json:"module"`
	Version string `json:"version"`
}

// libraries are the modules whose versions decide which files this program can read.
var libraries = []string{
	"github.com/cockroachdb/pebble/v2",
	"github.com/dgraph-io/badger/v4",
	"go.etcd.io/bbolt",
	"github.com/jackc/pgx/v5",
	"github.com/mattn/go-sqlite3",
	"modernc.org/sqlite",
	"github.com/hashicorp/raft",
	"github.com/hashicorp/raft-boltdb/v2",
	"github.com/hashicorp/raft-wal",
}

func readVersion() versionInfo {
	b := console.ThisBuild()
	v := versionInfo{Version: b.Version, Commit: b.Commit, Time: b.Time, Go: runtime.Version(),
		System: runtime.GOOS + "/" + runtime.GOARCH}
	if b.Modified {
		v.Commit += " modified"
	}

	for _, e := range slices.Concat(all.Engines(), all.Servers()) {
		if e.Describe().Strongest() != 0 {
			v.Engines = append(v.Engines, e.Name)
		}
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}

	versions := map[string]string{}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		versions[m.Path] = m.Version
	}

	for _, path := range libraries {
		if version := versions[path]; version != "" { // go-sqlite3 is only in builds with cgo
			v.Libraries = append(v.Libraries, library{path, version})
		}
	}

	return v
}

func (c *versionCommand) run() int {
	v := readVersion()
	if c.JSON {
		return fail(console.WriteJSON(os.Stdout, v))
	}
	p := newPage(os.Stdout)
	p.line("holdfast\t%s", v.Version)
	if v.Commit != "" {
		p.line("commit\t%s, %s", v.Commit, v.Time)
	}
	p.line("built with\t%s for %s", v.Go, v.System)
	p.line("engines\t%s", strings.Join(v.Engines, ", "))

	for _, l := range v.Libraries {
		p.line("%s\t%s", l.Module, l.Version)
	}

	return fail(p.end())
}
