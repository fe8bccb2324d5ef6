package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/datadir"
	"github.com/holdfastdb/holdfast/lab/crash/blockdev"
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

// EvidenceSchema names the format of evidence.json.
const EvidenceSchema = "holdfast.crash.evidence/1"

// evidence is what will be kept if a round breaks a claim.
type evidence struct {
	cell    cell
	history *history
	spec    spec
	when    string
	tree    string          // a copy of the directory
	image   *blockdev.Image // or the disk
}

// evidenceFile is evidence.json.
type evidenceFile struct {
	Schema   string
	Engine   string
	Level    holdfast.Level // that was asked for
	Given    holdfast.Level
	Kind     Kind
	Subject  string
	FS       string
	Library  string
	When     string
	Seed     uint64
	Spec     spec
	Findings []string
	Bound    uint64 // the last number that must be there
	Issued   uint64 // the last number that may be there
	Shown    uint64
	Offset   interval
	First    interval
	Segments []segment
	// Of a store for Raft.
	Monotonic bool      `json:",omitzero"`
	Skipped   []span    `json:",omitempty"`
	Acks      []ackFile // of the last generation, with the time since it was started
}

type ackFile struct {
	N     uint64
	Batch bool
	Level holdfast.Level
	Ms    float64
}

// maxTree is how large a directory is copied, in bytes.
const maxTree = 512 << 20

// take copies dir before it is opened.
func (e *evidence) take(r *runner, dir string) error {
	to, err := os.MkdirTemp(r.dir.Path, "before-")
	if err != nil {
		return err
	}
	e.tree = to
	return copyTree(filepath.Join(dir, engineDir), filepath.Join(to, engineDir))
}

// drop removes what was not needed.
func (e *evidence) drop() {
	if e.tree != "" {
		_ = os.RemoveAll(e.tree)
	}
}

// save keeps the evidence below the directory for it, and returns its name.
func (e *evidence) save(r *runner, findings []string) (string, error) {
	parent, err := r.evidenceDir()
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("%s-%v-%s-%s-", strings.Map(fileRune, e.cell.Engine), e.cell.Level, e.cell.Kind, e.cell.Subject)
	dir, err := os.MkdirTemp(parent, name)
	if err != nil {
		return "", err
	}
	h := e.history
	f := evidenceFile{
		Schema: EvidenceSchema, Engine: e.cell.Engine, Level: e.cell.Level, Given: e.cell.Given, Kind: e.cell.Kind, Subject: e.cell.Subject, FS: e.cell.FS,
		Library: e.cell.capabilities.Library, When: e.when, Seed: h.Seed, Spec: e.spec, Findings: findings,
		Bound: h.Bound, Issued: h.Issued, Shown: h.Shown, Offset: h.Offset, First: h.First, Segments: h.Segments,
		Monotonic: h.Monotonic, Skipped: h.Skipped,
	}
	for _, a := range h.Acks {
		f.Acks = append(f.Acks, ackFile{a.n, a.batch, a.level, float64(a.at.Microseconds()) / 1000})
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, evidenceName), append(text, '\n'), 0o644); err != nil {
		return "", err
	}
	switch {
	case e.image != nil:
		err = e.image.Save(filepath.Join(dir, imageName))
	case e.tree != "":
		// The evidence may be on another disk than the run.
		err = copyTree(e.tree, filepath.Join(dir, treeName))
		e.drop()
	}
	return dir, err
}

func fileRune(r rune) rune {
	if r == '-' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}
	return '_'
}

// load reads what save wrote.
func load(dir string) (*evidenceFile, *history, error) {
	bad := func(err error) (*evidenceFile, *history, error) {
		return nil, nil, &holdfast.Error{Op: "crash", Path: dir, Class: holdfast.ErrBadOption, Cause: err, Remedy: "name a directory that a run kept as evidence"}
	}
	text, err := os.ReadFile(filepath.Join(dir, evidenceName))
	if err != nil {
		return bad(err)
	}
	var f evidenceFile
	if err := json.Unmarshal(text, &f); err != nil {
		return bad(err)
	}
	if f.Schema != EvidenceSchema {
		return bad(fmt.Errorf("its schema is %q, not %q", f.Schema, EvidenceSchema))
	}
	h := &history{Seed: f.Seed, Segments: f.Segments, Issued: f.Issued, Bound: f.Bound, Shown: f.Shown, Survives: f.Kind.survives(), Level: f.Given, Offset: f.Offset, First: f.First,
		Monotonic: f.Monotonic, Skipped: f.Skipped}
	for _, a := range f.Acks {
		h.Acks = append(h.Acks, ack{n: a.N, batch: a.Batch, level: a.Level, at: time.Duration(a.Ms * float64(time.Millisecond))})
	}
	return &f, h, nil
}

// copyTree copies a directory, if it is there. One that is too large is left out, and a file says so.
func copyTree(from, to string) error {
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, bytes := datadir.Usage(from); bytes <= maxTree {
		return datadir.CopyFiles(context.Background(), from, to)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "TOO-LARGE"), []byte("the directory was too large to be kept\n"), 0o644)
}
