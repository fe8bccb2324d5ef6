package all

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/internal/enginecopy"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/postgres"
)

// InspectResult describes a directory that was not opened.
type InspectResult struct {
	Dir     string                 `json:"dir"`
	Engine  string                 `json:"engine"`
	Format  int                    `json:"format"`
	Level   holdfast.Level         `json:"level,omitempty"` // empty unless the directory is bound to a level
	Lost    string                 `json:"lost,omitempty"`  // what the repair that made it lost; see [AcceptLoss]
	Open    bool                   `json:"open"`            // elsewhere for writing, at this moment
	Files   int64                  `json:"files"`
	Bytes   int64                  `json:"bytes"` // on the device
	Logtree *logtree.InspectResult `json:"logtree,omitempty"`

	// Capabilities are those of the engine, if it is in this build.
	Capabilities *holdfast.Capabilities `json:"capabilities,omitempty"`
	// Notes say what could not be found out, and why.
	Notes []string `json:"notes,omitempty"`
}

// Inspect looks at a directory that an engine made. It takes no lock and changes nothing, so parts of the result for an
// open directory may belong to different moments. The error is ErrForeign if no engine made the directory, and the
// operating system's if it does not exist.
func Inspect(dir string) (*InspectResult, error) {
	mark, e, damage, err := identify("inspect", dir)
	if err != nil {
		return nil, err
	}
	in := &InspectResult{Dir: dir, Engine: mark.Engine, Format: mark.Format, Level: mark.Level, Lost: mark.Lost}
	if damage != nil {
		in.Notes = append(in.Notes, "HOLDFAST cannot be read; the files are those of "+mark.Engine+": "+damage.Error())
	}
	if release, err := datadir.Hold(dir); err == nil {
		release()
	} else {
		in.Open = errors.Is(err, holdfast.ErrLocked)
	}
	in.Files, in.Bytes = datadir.Usage(dir)
	if e.Describe == nil {
		in.Notes = append(in.Notes, "this build does not know the engine")
		return in, nil
	}
	c := e.Describe()
	c.Quorum = c.Promise(holdfast.Quorum) // who reads JSON has the fields alone
	in.Capabilities = &c
	if e.tools.inspect == nil {
		in.Notes = append(in.Notes, "only an open engine can tell what is in the files of "+mark.Engine)
		return in, nil
	}
	if in.Open {
		in.Notes = append(in.Notes, "it is open elsewhere: the figures may belong to different moments")
	}

	return in, e.tools.inspect(dir, in)
}

func inspectLogtree(dir string, in *InspectResult) (err error) {
	in.Logtree, err = logtree.Inspect(dir)
	return err
}

// instead says what is done with a space of a server, for which an operation has no meaning.
var instead = map[string]string{
	"inspect":    "holdfast verify reads the space; its metrics, and the page of a server that serves it, describe it",
	"repair":     "the files are PostgreSQL's, and so is what repairs them; or copy a backup into another space",
	"checkpoint": "holdfast backup or copy reads the space into a directory",
	"open":       "name it as postgres://USER@HOST/DATABASE?space=NAME where an engine can be named",
}

// onlyDirectories refuses an address of a server in place of a directory.
func onlyDirectories(op, dir string) error {
	name, ok := serverOf(dir)
	if !ok {
		return nil
	}

	return &holdfast.Error{Op: op, Engine: name, Path: Shown(dir), Class: holdfast.ErrUnavailable,
		Detail: "it is a space of a server, and no directory", Remedy: instead[op]}
}

// identify says which engine made dir. If only the files identify the engine, damage says what is wrong with the mark.
// The entry is empty if this build does not know the engine.
func identify(op, dir string) (mark datadir.Mark, e Entry, damage, err error) {
	if err := onlyDirectories(op, dir); err != nil {
		return mark, e, nil, err
	}
	mark, err = datadir.ReadMark(op, dir)
	if err == nil {
		return mark, makerOf(mark.Engine), nil, nil
	}
	if isFile(dir) { // which is not opened: closing it would give up the locks that SQLite has on it in this process
		return mark, e, nil, err
	}

	for _, e := range table {
		if e.tools.recognize == nil || errors.Is(err, holdfast.ErrVersion) || !e.tools.recognize(dir) {
			continue
		}
		var d *holdfast.Error
		if errors.As(err, &d) && d.Class != nil {
			d.Class = holdfast.ErrCorrupt
			d.Remedy = "holdfast repair makes a copy of what is intact, or restore the file from a backup"
		}

		return datadir.Mark{Engine: e.mark}, e, err, nil
	}

	return mark, e, nil, err
}

// VerifyResult is the result of [Verify].
type VerifyResult struct {
	Engine    string
	Checked   string                // what was, in words
	Checksums bool                  // on everything stored; otherwise damage may have been read as data
	Keys      int64                 // read, unless Logtree says more
	Bytes     int64                 // of those keys and values
	Logtree   *logtree.VerifyResult // for that engine
	Damage    []error
}

// Verify checks everything that the engine of dir can check. For logtree that is every byte that matters, and nothing
// is changed. Others are opened, which may recover or tidy up their files unless they can be opened read-only, and
// everything is read by scan and by key. So is a space of a server, whose address dir is then. ErrLocked: it is open
// elsewhere. What the operating system refuses, such as a read, is an error, and no damage.
func Verify(dir string) (*VerifyResult, error) {
	if _, ok := serverOf(dir); ok {
		opened, err := openSpace(dir)
		if err != nil {
			return nil, err
		}

		return verifyOpened(opened)
	}
	mark, e, _, err := identify("verify", dir)
	if err != nil {
		return nil, err
	}
	if e.tools.verify != nil {
		return e.tools.verify(dir)
	}
	opened, err := OpenDir("", dir, holdfast.Options{ReadOnly: true})
	if errors.Is(err, holdfast.ErrCorrupt) {
		return &VerifyResult{Engine: mark.Engine, Checksums: e.Describe().Checksums, Checked: "that it opens",
			Damage: []error{err}}, nil
	}
	if err != nil {
		return nil, err
	}

	return verifyOpened(opened)
}

// openSpace opens a space of a server for a tool.
func openSpace(address string) (holdfast.Engine, error) {
	name, at, o, err := ParseURL(address)
	if err != nil {
		return nil, err
	}
	o.Level = holdfast.Memory // the server may give no other

	return Open(name, at, o)
}

// verifyOpened reads all of an engine, and closes it.
func verifyOpened(opened holdfast.Engine) (*VerifyResult, error) {
	c := opened.Capabilities()
	v := &VerifyResult{Engine: c.Engine, Checksums: c.Checksums,
		Checked: "that it opens, and that every key reads the same by scan and alone"}
	err := v.read(opened)
	if closed := opened.Close(); err == nil && len(v.Damage) == 0 { // damage that was read may have poisoned the engine
		err = v.note(closed)
	}
	if err != nil {
		return nil, err
	}

	return v, nil
}

func verifyLogtree(dir string) (*VerifyResult, error) {
	l, err := logtree.Verify(dir)
	if err != nil {
		return nil, err
	}

	return &VerifyResult{Engine: logtree.Name, Checksums: true, Logtree: l, Damage: l.Damage,
		Checked: "every checksum and every reference, without opening it"}, nil
}

// note adds an error to the damage, and returns it if it is none: if a file cannot be read, it is not known whether it
// is damaged.
func (v *VerifyResult) note(err error) error {
	if err == nil || datadir.OfSystem(err) {
		return err
	}
	v.Damage = append(v.Damage, err)

	return nil
}

// read reads all keys and values, by scan and by key. An error means that it could not.
func (v *VerifyResult) read(e holdfast.Engine) error {
	it := e.Scan(holdfast.Range{})
	defer it.Close()

	var val []byte
	for it.Next() {
		v.Keys++
		v.Bytes += int64(len(it.Key()) + len(it.Value()))
		var err error
		if val, err = e.Get(val[:0], it.Key()); err == nil && !bytes.Equal(val, it.Value()) {
			err = errors.New("its value differs from the one that a scan shows")
		}
		if datadir.OfSystem(err) {
			return err
		}
		if err != nil {
			v.Damage = append(v.Damage, &holdfast.Error{Op: "verify", Engine: v.Engine, Class: holdfast.ErrCorrupt,
				Detail: fmt.Sprintf("key %.40q", it.Key()), Cause: err})
		}
	}

	return v.note(it.Err())
}

// RepairResult is the result of [Repair].
type RepairResult struct {
	Engine  string
	How     string                // what was done, in words
	Keys    int64                 // salvaged
	Loss    string                // what could not be, as the new directory remembers it; empty if nothing
	Logtree *logtree.RepairResult // for that engine
	Lost    []error               // what ended the reading; empty for logtree, which says it itself
}

// Complete reports whether nothing was lost and nothing is in doubt.
func (r *RepairResult) Complete() bool {
	return len(r.Lost) == 0 && (r.Logtree == nil || r.Logtree.Complete())
}

// Repair makes a new directory, into, from what is intact in dir, which is not changed. Its engine is the same. For
// logtree see [logtree.Repair]. For other engines a copy is opened, next to into, and what scans show between damaged
// places is copied; if the engine has no checksums, that can include damaged data. into must not exist, or be empty,
// and must not lie in dir or another directory of an engine. After an error, including the end of ctx, nothing is
// left.
func Repair(ctx context.Context, dir, into string) (*RepairResult, error) {
	mark, maker, _, err := identify("repair", dir)
	if err != nil {
		return nil, err
	}

	switch {
	case maker.Open == nil:
		return nil, notInBuild(mark.Engine, dir)
	case maker.tools.repair != nil:
		return maker.tools.repair(ctx, dir, into)
	}
	if err := datadir.CheckOverlap("repair", into, dir); err != nil {
		return nil, err
	}
	r := &RepairResult{Engine: mark.Engine,
		How: "a copy was opened and scanned from both ends, and between damaged places"}
	opener := func(at string) (holdfast.Engine, error) {
		return maker.Open(at, holdfast.Options{Level: mark.Level})
	}
	err = enginecopy.Make(
		ctx,
		"repair",
		into,
		opener,
		func(to holdfast.Engine, source string) (loss datadir.Loss, err error) {
			defer func() {
				for i, lost := range r.Lost {
					r.Lost[i] = aboutSource(lost, source, dir)
				}
				err = errors.Join(aboutSource(err, source, dir), os.RemoveAll(source))
			}()

			// The engine opens a copy: opening may change files, and the damaged directory must stay as it is.
			if err := copyFiles(ctx, "repair", dir, source); err != nil {
				return loss, err
			}
			e, err := opener(source)
			if err != nil {
				return loss, err
			}
			err = r.salvage(to, e)
			if closed := e.Close(); closed != nil && err == nil && len(r.Lost) == 0 {
				r.Lost = append(r.Lost, closed)
			}
			if len(r.Lost) > 0 {
				r.Loss = "what cannot be read of " + mark.Engine + "'s files"
			}

			return datadir.Loss{Lost: enginecopy.Lost(mark.Lost, r.Loss), Accepted: mark.Accepted}, err
		},
	)
	if err != nil {
		return nil, err
	}

	return r, nil
}

func repairLogtree(ctx context.Context, dir, into string) (*RepairResult, error) {
	l, err := logtree.Repair(ctx, dir, into, holdfast.Options{})
	if err != nil {
		return nil, err
	}

	return &RepairResult{Engine: logtree.Name, How: "from " + l.Source, Keys: l.Keys, Loss: l.Summary(), Logtree: l}, nil
}

// probes bounds how often a repair searches for readable data between damaged places, and fruitless how often in what
// may be one damaged place: a block in which each key fails alike. Pebble takes half a second to refuse one, because it
// looks for a single bit that is wrong.
const (
	probes    = 100
	fruitless = 2
)

// gap is an interval of keys in which nothing has been read: what was said where its ends are, and how many probes in
// the middle have read nothing.
type gap struct {
	holdfast.Range
	below, above string
	tried        int
}

// salvage copies what can be read: from both ends until an error, and then, as long as there are probes, from the
// middle of each gap.
func (r *RepairResult) salvage(to holdfast.Engine, from holdfast.Reader) error {
	w := enginecopy.NewWriter(to)
	defer func() { r.Keys = w.Keys }()
	said := map[string]bool{}

	// walk copies what lies in rng. It returns the last key that it has read, nil if none, and why it came to no end.
	walk := func(rng holdfast.Range) (last []byte, damage string, err error) {
		it := from.Scan(rng)
		defer it.Close()

		for it.Next() {
			if err := w.Set(it.Key(), it.Value()); err != nil {
				return last, "", err
			}
			last = append(last[:0], it.Key()...)
		}

		if err := it.Err(); err != nil {
			damage = err.Error()
			if !said[damage] {
				said[damage] = true
				r.Lost = append(r.Lost, err)
			}
		}

		return last, damage, nil
	}

	// From both ends.
	first, damage, err := walk(holdfast.Range{})
	if err != nil {
		return err
	}
	if damage == "" {
		return w.Flush()
	}
	all := gap{below: damage}
	if first != nil {
		all.Lo = append(first, 0)
	}
	last, damage, err := walk(holdfast.Range{Lo: all.Lo, Reverse: true})
	if err != nil {
		return err
	}
	all.Hi, all.above = last, damage

	for gaps, n := []gap{all}, 0; n < probes && len(gaps) > 0; n++ {
		g := gaps[0]
		gaps = gaps[1:]
		mid := middle(g.Lo, g.Hi)
		if mid == nil {
			continue
		}
		low, high := g, g
		low.Hi, high.Lo = mid, mid

		last, damage, err := walk(holdfast.Range{Lo: mid, Hi: g.Hi})
		if err != nil {
			return err
		}
		read := last != nil
		if high.below = damage; read {
			high.Lo = append(last, 0)
		}

		if last, damage, err = walk(holdfast.Range{Lo: g.Lo, Hi: mid, Reverse: true}); err != nil {
			return err
		}
		if low.above = damage; last != nil {
			low.Hi, read = last, true
		}

		for _, g := range []gap{low, high} {
			if g.tried++; read {
				g.tried = 0
			}
			if g.below != "" && g.above != "" && (g.below != g.above || g.tried < fruitless) {
				gaps = append(gaps, g)
			}
		}
	}

	return w.Flush()
}

// middle returns a key about in the middle between lo and hi, an empty hi being the end of all keys; nil if they
// are too close.
func middle(lo, hi []byte) []byte {
	same := 0
	for same < len(lo) && same < len(hi) && lo[same] == hi[same] {
		same++
	}
	digits := func(key []byte) uint64 { // of the number whose first digits both have
		var b [8]byte
		copy(b[:], key[min(same, len(key)):])

		return binary.BigEndian.Uint64(b[:])
	}
	from, to := digits(lo), uint64(math.MaxUint64)
	if len(hi) > 0 {
		to = digits(hi)
	}
	mid := binary.BigEndian.AppendUint64(bytes.Clone(lo[:same]), from+(to-from)/2)
	if from >= to || bytes.Compare(mid, lo) <= 0 || len(hi) > 0 && bytes.Compare(mid, hi) >= 0 {
		return nil
	}

	return mid
}

// Backup copies the current state of e to the new directory into, while writers to e continue. The copy is of the
// same engine, or of the default one if that is in front of a server; it holds one consistent state, and survives power
// loss when Backup returns. After an error, including the end of ctx, into does not exist. It returns how many keys
// were copied. ErrBadOption: e keeps nothing in a directory, or into is not empty or lies in a directory that an engine
// made.
func Backup(ctx context.Context, e holdfast.Engine, into string) (keys int64, err error) {
	c := e.Capabilities()
	entry, err := Lookup(c.Engine)
	if err != nil {
		return 0, err
	}
	if OnServer(c.Engine) {
		entry, err = Lookup(Default)
	}
	if entry.mark == "" || err != nil {
		return 0, &holdfast.Error{Op: "backup", Engine: c.Engine, Class: holdfast.ErrBadOption,
			Detail: "it keeps nothing in a directory"}
	}
	level := c.Strongest()
	// One that is open for reading has its directory bound to no level, and one on many machines gives what the copy, on
	// one, does not.
	if strongest := entry.Describe().Strongest(); level == 0 || level > strongest {
		level = strongest
	}

	return enginecopy.Backup(ctx, e, into, func(dir string) (holdfast.Engine, error) {
		return entry.Open(dir, holdfast.Options{Level: level})
	})
}

// Fill makes the new directory into of the engine name, or of the default one if that is in front of a server, with the
// keys and values that fill sets. level is that of the engine that they come from, and the directory remembers its
// loss. It survives power loss when Fill returns; after an error, including the end of ctx, into does not exist.
func Fill(ctx context.Context, name string, level holdfast.Level, loss datadir.Loss, into string,
	fill func(set func(key, value []byte) error) error) error {
	if OnServer(name) {
		name = Default
	}
	entry, err := Lookup(name)
	if err != nil {
		return err
	}
	if strongest := entry.Describe().Strongest(); level == 0 || level > strongest {
		level = strongest
	}
	open := func(dir string) (holdfast.Engine, error) { return entry.Open(dir, holdfast.Options{Level: level}) }

	return enginecopy.Make(ctx, "restore", into, open, func(to holdfast.Engine, _ string) (datadir.Loss, error) {
		w := enginecopy.NewWriter(to)
		err := fill(w.Set)
		if err == nil {
			err = w.Flush()
		}

		return loss, err
	})
}

// BackupDir is Backup of a directory that is not open for writing, or of a space of a server, whose address dir is
// then. It is opened read-only where the engine can do that, and otherwise as any program would. If ctx ends, that is
// an error.
func BackupDir(ctx context.Context, dir, into string) (keys int64, err error) {
	if _, ok := serverOf(dir); ok {
		e, err := openSpace(dir)
		if err != nil {
			return 0, err
		}
		keys, err = Backup(ctx, e, into)

		return keys, errors.Join(err, e.Close())
	}
	err = copyOf(dir, into, "backup", "Backup of package engine/all",
		func(e holdfast.Engine, open enginecopy.Opener) (err error) {
			keys, err = enginecopy.Backup(ctx, e, into, open)
			return err
		})
	return keys, err
}

// CheckpointDir is [holdfast.Checkpoint] of a directory that is not open for writing: the new one shares files with it.
// It is opened as BackupDir opens it.
func CheckpointDir(ctx context.Context, dir, into string) error {
	return copyOf(dir, into, "checkpoint", "Checkpoint of package holdfast",
		func(e holdfast.Engine, _ enginecopy.Opener) error { return holdfast.Checkpoint(ctx, e, into) })
}

// copyOf opens dir, for reading only where that can be, and calls do with it. instead is what a program that has it
// open can do.
func copyOf(dir, into, op, instead string, do func(e holdfast.Engine, open enginecopy.Opener) error) error {
	mark, maker, damage, err := identify(op, dir)
	if err == nil {
		err = damage
	}
	if err != nil {
		return err
	}
	if err := datadir.CheckOverlap(op, into, dir); err != nil {
		return err
	}
	e, err := OpenDir("", dir, holdfast.Options{ReadOnly: true})
	if err != nil {
		var locked *holdfast.Error
		if errors.Is(err, holdfast.ErrLocked) && errors.As(err, &locked) {
			locked.Op = op
			locked.Remedy = "close it there first; the program that has it open can copy it, with " + instead
		}

		return err
	}
	err = do(e, func(at string) (holdfast.Engine, error) { return maker.Open(at, holdfast.Options{Level: mark.Level}) })
	if closed := e.Close(); err == nil {
		err = closed
	}

	return err
}

// AcceptLoss accepts what an incomplete repair that made dir could not salvage, or, where dir is the address of a space
// of a server, what a failover has lost: stores open there again. It returns what was lost, empty if nothing was.
// ErrLocked: dir is open; a space may be.
//
// What a store derives from its data may be among what was lost, so that it would answer wrongly. So each store makes
// that anew when it is first opened then, which takes the reading of all of it, or refuses to open, with ErrCorrupt:
//
//   - An event log rebuilds its index of ids. The events that are lost stay a event.Gap, until event.Rebuild.
//   - A message store is rebuilt, as message.Rebuild does.
//   - A task store is examined, as task.Examine does, and opens if nothing contradicts itself.
//   - A Raft store does not open any more: what it has promised may be lost.
//   - A projection is to be rebuilt.
func AcceptLoss(dir string) (lost string, err error) {
	if _, ok := serverOf(dir); ok {
		return postgres.AcceptLoss(dir)
	}

	return datadir.Accept(dir)
}
