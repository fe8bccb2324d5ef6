package crash

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
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

// EvidenceSchema names the format of evidence.json, and what the batches of a seed contain. A change of either gets a
// new number: what another version has kept would be judged wrongly.
const EvidenceSchema = "holdfast.crash.evidence/2"

// schemaPrefix begins the schema of every version.
const schemaPrefix = "holdfast.crash.evidence/"

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

// save keeps what is there below a directory, and returns the name of the new one.
func save(parent string, e *scene, findings []string) (string, error) {
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
	if strings.HasPrefix(f.Schema, schemaPrefix) && f.Schema != EvidenceSchema {
		return nil, nil, &holdfast.Error{Op: "crash", Path: dir, Class: holdfast.ErrBadOption,
			Detail: fmt.Sprintf("another version of holdfast kept this evidence: its schema is %q, not %q", f.Schema, EvidenceSchema),
			Remedy: "replay it with the version that kept it"}
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

// openImage opens the disk that was kept; nil if it is a directory that was.
func openImage(dir string, f *evidenceFile) (*blockdev.Image, error) {
	name := filepath.Join(dir, imageName)
	if _, err := os.Stat(name); err != nil {
		return nil, nil
	}
	return blockdev.OpenImage(name, f.FS)
}

// copyKept copies the directory that was kept.
func copyKept(dir, to string) error { return copyTree(filepath.Join(dir, treeName), to) }
