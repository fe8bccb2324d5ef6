// Package evidence keeps what a crash has left that breaks a claim, and reads it again for --replay.
package evidence

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// Evidence of a broken claim is a directory with
//
//	evidence.json   what was asked for, what had been promised, and what was found
//	before/         a killed victim's directory, not opened since
//	disk.img        or the disk after a power cut, which mounts
//
// from which the check can be made again.
const (
	evidenceName = "evidence.json"
	treeName     = "before"
	imageName    = "disk.img"
)

// Schema names the format of evidence.json, and what the batches of a seed contain. A change of either gets a
// new number: what another version has kept would be judged wrongly.
const Schema = schemaPrefix + "4"

// schemaPrefix begins the schema of every version.
const schemaPrefix = "holdfast.crash.evidence/"

// File is evidence.json.
type File struct {
	Schema   string
	Kind     kinds.Kind
	FS       string
	Library  string
	When     string
	Findings []string
	Spec     protocol.Spec     // of the victim
	History  *protocol.History // up to the crash
}

// Save keeps what is there below a directory, and returns the name of the new one.
func Save(parent string, e *kinds.Scene, findings []string) (string, error) {
	name := fmt.Sprintf("%s-%v-%s-%s-", strings.Map(fileRune, e.Row.Engine), e.Row.Level, e.Row.Kind, e.Row.Subject)
	dir, err := os.MkdirTemp(parent, name)
	if err != nil {
		return "", err
	}
	f := File{Schema: Schema, Kind: e.Row.Kind, FS: e.Row.Mount.FS, Library: e.Row.Capabilities.Library, When: e.When,
		Findings: findings, Spec: e.Spec, History: e.History}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return "", err
	}

	// The description goes first: a copy that fails for want of room leaves at least what was found.
	if err := os.WriteFile(filepath.Join(dir, evidenceName), append(text, '\n'), 0o644); err != nil {
		return "", err
	}

	switch {
	case e.Image != nil:
		err = e.Image.Save(filepath.Join(dir, imageName))
	case e.Tree != "":
		// The evidence may be on another disk than the run.
		err = kinds.CopyTree(e.Tree, filepath.Join(dir, treeName))
	}

	return dir, err
}

// fileRune is r, if it can be part of a file's name everywhere, else an underscore.
func fileRune(r rune) rune {
	if r == '-' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}

	return '_'
}

// Load reads what Save wrote.
func Load(dir string) (*File, error) {
	bad := &holdfast.Error{Op: "crash", Path: dir, Class: holdfast.ErrBadOption,
		Remedy: "name a directory that a run kept as evidence"}
	text, err := os.ReadFile(filepath.Join(dir, evidenceName))
	if err != nil {
		bad.Cause = err
		return nil, bad
	}

	// The schema is read first: another version may have fields of other types.
	var version struct{ Schema string }
	var f File

	bad.Cause = json.Unmarshal(text, &version)
	switch {
	case bad.Cause != nil:
	case version.Schema == Schema:
		if bad.Cause = json.Unmarshal(text, &f); bad.Cause == nil && f.History != nil {
			return &f, nil
		}
	case strings.HasPrefix(version.Schema, schemaPrefix):
		bad.Detail = fmt.Sprintf("another version of holdfast kept this evidence: its schema is %q, not %q", version.Schema,
			Schema)
		bad.Remedy = "replay it with the version that kept it"
	default:
		bad.Detail = fmt.Sprintf("its schema is %q, not %q", version.Schema, Schema)
	}

	return nil, bad
}

// OpenImage opens the disk that was kept; nil if it is a directory that was.
func OpenImage(dir string, f *File) (*blockdev.Image, error) {
	name := filepath.Join(dir, imageName)
	if _, err := os.Stat(name); err != nil {
		return nil, nil
	}

	return blockdev.OpenImage(name, f.FS)
}

// CopyKept copies the directory that was kept.
func CopyKept(dir, to string) error { return kinds.CopyTree(filepath.Join(dir, treeName), to) }
