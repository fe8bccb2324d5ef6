package enginetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/night"
)

var damageCases = []lawCase{
	{name: "damaged files", onDisk: true, once: true, needs: directory, run: damaged},
	{name: "a torn tail", onDisk: true, once: true, needs: tailNamed, run: tornTail},
	{name: "no tail", onDisk: true, run: noTail},
	{name: "what a repair lost", onDisk: true, once: true, needs: directory, run: repairLost},
}

func className(err error) string {
	for name, class := range map[string]error{
		"corrupt": holdfast.ErrCorrupt, "foreign": holdfast.ErrForeign, "version": holdfast.ErrVersion,
		"locked": holdfast.ErrLocked, "poisoned": holdfast.ErrPoisoned,
	} {
		if errors.Is(err, class) {
			return name
		}
	}

	return "other " + err.Error()
}

// damageBatches is how many batches are in a directory that is damaged.
const damageBatches = 400

// damagesInAll bounds the damages that are tried on one directory.
var damagesInAll = night.Or(60, 16)

// cutsOfATail is about how many places there are at which a tail is torn.
var cutsOfATail = night.Or[int64](50, 12)

// damage is one change to a file, and what came of it.
type damage struct {
	file   string // below the directory
	offset int64
	kind   string
}

func (d damage) String() string { return fmt.Sprintf("%s at byte %d of %s", d.kind, d.offset, d.file) }

// do damages the copy of the directory at dir.
func (d damage) do(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, d.file), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1)
	if d.kind == "a sector of zeros" {
		block = make([]byte, 512)
	}
	n, err := f.ReadAt(block, d.offset)
	if err != nil && err != io.EOF {
		return err
	}
	block = block[:n]
	if d.kind == "a flipped bit" {
		block[0] ^= 1 << (d.offset % 8)
	} else {
		clear(block)
	}
	if _, err := f.WriteAt(block, d.offset); err != nil {
		return err
	}

	return f.Close()
}

// damaged changes files of a directory that was closed cleanly, so that everything in
// them had been synced.
func damaged(a *trial) {
	dir := a.dir()
	n, batches := uint64(0), uint64(a.s.some(damageBatches))/3

	for range 3 { // some engines move what they have written when they open
		e := a.open(dir)
		a.applyScript(e, n+1, n+batches)
		n += batches
		a.close(e)
	}
	damages, err := chooseDamages(dir, a.random())
	if err != nil || len(damages) == 0 {
		a.Fatalf("the directory has nothing to damage: %v", err)
	}

	// A child reads the damaged copies, one after another, so that a panic in any goroutine is
	// seen for what it is; the next child goes on with the next copy.
	root := a.TempDir()
	copies := func(i int) string { return filepath.Join(root, strconv.Itoa(i)) }

	for i, d := range damages {
		if err := copyTree(copies(i), dir); err != nil {
			a.Fatalf("%v", err)
		}
		if err := d.do(copies(i)); err != nil {
			a.Fatalf("%v", err)
		}
	}

	outcomes := map[string]int{}
	for i := 0; i < len(damages); {
		lines, err := a.runChild(order{Role: "read", Dir: root, From: uint64(i), To: uint64(len(damages)), Batches: n})
		for _, line := range lines {
			outcome, rest, _ := strings.Cut(line, " ")
			outcomes[outcome]++
			switch {
			case outcome == "error":
				a.Errorf("the reading process: %s", rest)
			case tolerated[outcome] && a.s.caps.Checksums:
				a.Errorf("%v: %s: %s", damages[i], outcome, rest)
			case tolerated[outcome] || outcome == "other":
				a.Logf("%v: %s: %s", damages[i], outcome, rest)
			}
			i++
		}
		if err != nil {
			a.Errorf("%v ended the process: %v", damages[min(i, len(damages)-1)], err)
			outcomes["crashed"]++
			i++
		} else if len(lines) == 0 {
			a.Fatalf("the reading process said nothing")
		}
	}
	a.Logf("%d damages: %v", len(damages), outcomes)
}

// tolerated are the outcomes that an engine without checksums cannot help.
var tolerated = map[string]bool{"wrong": true, "lost": true, "hung": true}

// childReads opens damaged copies of a directory and reports the outcome of each: "right",
// "lost" for a state of fewer batches, "wrong", "hung", or the class of the error.
func (s *suite) childReads(o order, t *reporter) error {
	for i := o.From; i < o.To; i++ {
		hangs := time.AfterFunc(stuck, func() {
			t.say("hung it was not read after %v", stuck)
			os.Exit(0)
		})
		outcome := s.readDamaged(filepath.Join(o.Dir, strconv.FormatUint(i, 10)), o)
		hangs.Stop()
		t.say("%s", outcome)
	}

	return nil
}

func (s *suite) readDamaged(dir string, o order) string {
	e, err := s.Open(dir, holdfast.Options{Level: o.Level})
	if err != nil {
		return className(err)
	}
	defer e.Close()

	n, state, err := uint64(0), commits.State[string](nil), error(nil)
	for _, reverse := range []bool{true, false} {
		if state, err = commits.Contents(e, holdfast.Range{Reverse: reverse}); errors.Is(err, commits.ErrEndless) {
			return "wrong " + err.Error()
		} else if err != nil {
			return className(err)
		}
		var breaches []finding
		if n, breaches = s.script.judge(state); len(breaches) > 0 {
			return "wrong " + breaches[0].text
		}
	}

	for _, p := range state {
		switch got, err := e.Get(nil, []byte(p.Key)); {
		case errors.Is(err, holdfast.ErrNotFound):
			return fmt.Sprintf("wrong Scan shows %q, Get does not", p.Key)
		case err != nil:
			return className(err)
		case string(got) != p.Value:
			return fmt.Sprintf("wrong Scan and Get differ on %q", p.Key)
		}
	}
	if n != o.Batches {
		return fmt.Sprintf("lost only %d of %d batches are there, and no error says so", n, o.Batches)
	}

	return "right"
}

// chooseDamages picks places in the files below dir: their ends, and some between.
func chooseDamages(dir string, rnd *rand.Rand) ([]damage, error) {
	type file struct {
		name string
		size int64
	}
	var files []file
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > 0 {
			files = append(files, file{name, info.Size()})
		}

		return err
	})
	if err != nil {
		return nil, err
	}

	var all []damage
	for _, f := range files {
		name, err := filepath.Rel(dir, f.name)
		if err != nil {
			return nil, err
		}

		// Each file has its share, and its first and last byte are always among the places.
		places := max(10, damagesInAll/len(files))
		if name == markName {
			places = 4
		}

		for i := range places {
			offset, err := writtenOffset(f.name, f.size, rnd)
			if err != nil {
				return nil, err
			}

			switch i {
			case 0:
				offset = 0
			case 1:
				offset = f.size - 1
			}
			kind := "a flipped bit"
			if i%4 == 3 {
				kind, offset = "a sector of zeros", offset&^511
			}
			all = append(all, damage{name, offset, kind})
		}
	}
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	return all[:min(len(all), damagesInAll)], nil
}

// writtenOffset picks a place in a file where something is written, if it finds one: many engines
// make their files longer than what they have to write.
func writtenOffset(name string, size int64, rnd *rand.Rand) (offset int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()

	one := make([]byte, 1)
	for range 1000 {
		offset = rnd.Int64N(size)
		if _, err := f.ReadAt(one, offset); err != nil {
			return 0, err
		}
		if one[0] != 0 {
			break
		}
	}

	return offset, nil
}

// copyTree copies the directory from to to. Blocks of zeros become holes, since some
// engines make very long files with little in them.
func copyTree(to, from string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}

		return copyFile(target, name)
	})
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()

	block := make([]byte, 64<<10)
	for at := int64(0); ; {
		n, err := io.ReadFull(in, block)
		if strings.Trim(string(block[:n]), "\x00") != "" {
			if _, err := out.WriteAt(block[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return errors.Join(out.Truncate(at), out.Close())
		}
		if err != nil {
			return err
		}
	}
}

func tailNamed(s *suite) string {
	if s.Tail == nil {
		return "the engine names no file whose end a crash can tear (Harness.Tail)"
	}

	return ""
}

// tornTail cuts the end off the file that a killed process was writing, at many bytes of
// its last batches. What is left is a prefix, and Metrics says how much was cut off.
func tornTail(a *trial) {
	dir := a.dir()
	lines, err := a.runChild(order{Role: "leave", Dir: dir, To: 30})
	if err != nil || len(lines) != 1 {
		a.Fatalf("the process that leaves a directory open says %q, %v", lines, err)
	}
	var left struct{ Before, After int64 }
	if err := json.Unmarshal([]byte(lines[0]), &left); err != nil {
		a.Fatalf("the child said %q", lines[0])
	}
	tail, err := filepath.Rel(dir, a.s.Tail(dir))
	if err != nil || left.After <= left.Before {
		a.Fatalf("the tail did not grow with the last batches: %+v, %v", left, err)
	}

	reported := false
	// The last two batches lie between the two lengths. Half of the cuts shorten the file, the others leave zeros, as a
	// file does that was allocated ahead.
	step := max(1, (left.After-left.Before)/cutsOfATail)
	for cut := left.Before + 1; cut < left.After; cut += step {
		torn := a.dir()
		if err := copyTree(torn, dir); err != nil {
			a.Fatalf("%v", err)
		}
		if err := tear(filepath.Join(torn, tail), cut, (cut-left.Before)/step%2 == 0); err != nil {
			a.Fatalf("%v", err)
		}
		e, err := a.s.Open(torn, a.options())
		if err != nil {
			a.Fatalf("with its tail cut off at byte %d of %d: %v", cut, left.After, err)
		}
		n := a.wantsScript(e, 28, 30)
		m := e.Metrics()
		if m.TornBytes > 0 || m.TornBytes == holdfast.Unknown {
			reported = true
		}

		// What is written behind the cut must be there again: an engine that leaves the torn bytes finds them instead.
		a.commit(e, a.s.script.batch(n+1))
		a.close(e)
		e = a.open(torn)
		a.wantsScript(e, n+1, n+1)
		if m := e.Metrics(); m.TornBytes > 0 {
			a.Errorf("after a clean Close, Metrics reports a torn tail of %d bytes", m.TornBytes)
		}
		a.close(e)
		if a.Failed() {
			a.Fatalf("... with its tail cut off at byte %d of %d", cut, left.After)
		}
	}
	if !reported {
		a.Errorf("Metrics.TornBytes never reported what was cut off")
	}
}

// childLeaves writes batches, tells how long the tail was before and after the last two, and
// dies without Close.
func (s *suite) childLeaves(o order, t *reporter) error {
	e, err := s.Open(o.Dir, holdfast.Options{Level: o.Level, SyncEvery: -1})
	if err != nil {
		return err
	}
	var left struct{ Before, After int64 }
	if err := errors.Join(s.script.commit(e, 1, o.To-2, o.Level), e.Sync()); err != nil {
		return err
	}
	left.Before = extent(s.Tail(o.Dir))
	if err := errors.Join(s.script.commit(e, o.To-1, o.To, o.Level), e.Sync()); err != nil {
		return err
	}
	left.After = extent(s.Tail(o.Dir))
	text, err := json.Marshal(left)
	if err != nil {
		return err
	}
	t.say("%s", text)

	return nil // the process ends here, and nothing is closed
}

// extent is the length of a file without the zeros at its end: some engines make their log's file
// long before they write to it.
func extent(name string) int64 {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0
	}

	return int64(len(bytes.TrimRight(b, "\x00")))
}

// tear takes away what a file has from byte cut on: the bytes, or also the room for them.
func tear(name string, cut int64, room bool) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if err := os.Truncate(name, cut); err != nil || room {
		return err
	}

	return os.Truncate(name, info.Size())
}

// noTail: where nothing was torn, nothing is reported.
func noTail(a *trial) {
	dir := a.dir()
	for n := uint64(1); n <= 5; n++ {
		e := a.open(dir)
		if m := e.Metrics(); m.TornBytes > 0 {
			a.Errorf("after a clean Close, Metrics reports a torn tail of %d bytes", m.TornBytes)
		}
		a.commit(e, a.s.script.batch(n))
		a.close(e)
	}
}
