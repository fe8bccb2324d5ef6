// Package evidence keeps what a crash has left that breaks a claim, and reads it again for --replay.
package evidence

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/crash/blockdev"
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
const Schema = "holdfast.crash.evidence/2"

// schemaPrefix begins the schema of every version.
const schemaPrefix = "holdfast.crash.evidence/"

// File is evidence.json.
type File struct {
	Schema   string
	Engine   string
	Level    holdfast.Level // that was asked for
	Given    holdfast.Level
	Kind     kinds.Kind
	Subject  string
	FS       string
	Library  string
	When     string
	Seed     uint64
	Spec     protocol.Spec
	Findings []string
	Bound    uint64 // the last number that must be there
	Issued   uint64 // the last number that may be there
	Shown    uint64
	Offset   protocol.Interval
	First    protocol.Interval
	Segments []protocol.Segment
	// Of a store for Raft.
	Monotonic bool            `json:",omitzero"`
	Skipped   []protocol.Span `json:",omitempty"`
	Acks      []ackFile       // of the last generation, with the time since it was started
}

type ackFile struct {
	N     uint64
	Batch bool
	Level holdfast.Level
	Ms    float64
}

// Save keeps what is there below a directory, and returns the name of the new one.
func Save(parent string, e *kinds.Scene, findings []string) (string, error) {
	name := fmt.Sprintf("%s-%v-%s-%s-", strings.Map(fileRune, e.Row.Engine), e.Row.Level, e.Row.Kind, e.Row.Subject)
	dir, err := os.MkdirTemp(parent, name)
	if err != nil {
		return "", err
	}
	h := e.History
	f := File{
		Schema: Schema, Engine: e.Row.Engine, Level: e.Row.Level, Given: e.Row.Given, Kind: e.Row.Kind, Subject: e.Row.Subject,
		FS:      e.Row.FS,
		Library: e.Row.Capabilities.Library, When: e.When, Seed: h.Seed, Spec: e.Spec, Findings: findings,
		Bound: h.Bound, Issued: h.Issued, Shown: h.Shown, Offset: h.Offset, First: h.First, Segments: h.Segments,
		Monotonic: h.Monotonic, Skipped: h.Skipped,
	}
	for _, a := range h.Acks {
		f.Acks = append(f.Acks, ackFile{a.N, a.Batch, a.Level, float64(a.At.Microseconds()) / 1000})
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return "", err
	}
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

func fileRune(r rune) rune {
	if r == '-' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}
	return '_'
}

// Load reads what Save wrote.
func Load(dir string) (*File, *protocol.History, error) {
	bad := func(err error) (*File, *protocol.History, error) {
		return nil, nil, &holdfast.Error{Op: "crash", Path: dir, Class: holdfast.ErrBadOption, Cause: err,
			Remedy: "name a directory that a run kept as evidence"}
	}
	text, err := os.ReadFile(filepath.Join(dir, evidenceName))
	if err != nil {
		return bad(err)
	}
	var f File
	if err := json.Unmarshal(text, &f); err != nil {
		return bad(err)
	}
	if strings.HasPrefix(f.Schema, schemaPrefix) && f.Schema != Schema {
		return nil, nil, &holdfast.Error{Op: "crash", Path: dir, Class: holdfast.ErrBadOption,
			Detail: fmt.Sprintf("another version of holdfast kept this evidence: its schema is %q, not %q", f.Schema, Schema),
			Remedy: "replay it with the version that kept it"}
	}
	if f.Schema != Schema {
		return bad(fmt.Errorf("its schema is %q, not %q", f.Schema, Schema))
	}
	h := &protocol.History{Seed: f.Seed, Segments: f.Segments, Issued: f.Issued, Bound: f.Bound, Shown: f.Shown,
		Survives: f.Kind.Survives(), Level: f.Given, Offset: f.Offset, First: f.First,
		Monotonic: f.Monotonic, Skipped: f.Skipped}
	for _, a := range f.Acks {
		at := time.Duration(a.Ms * float64(time.Millisecond))
		h.Acks = append(h.Acks, protocol.Ack{N: a.N, Batch: a.Batch, Level: a.Level, At: at})
	}
	return &f, h, nil
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
