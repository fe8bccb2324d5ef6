package simulate

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast/vfs"
)

// Mutant is the engine with one rule of durable files broken, to state what simulations find.
type Mutant struct {
	Breaks string // in words

	first  uint64 // the seed from which on a test tries, so that it is short
	enough uint64 // it is found within so many seeds, some with room to spare
	make   mutant
	manner func(seed uint64) manner // nil: mannerOf
}

// Run runs the history of that seed on the mutant. An error that is not ctx's has found it out.
func (m Mutant) Run(ctx context.Context, seed uint64) (Stats, error) {
	how := mannerOf(seed)
	if m.manner != nil {
		how = m.manner(seed)
	}

	return run(ctx, seed, how, func(fsys vfs.FS, opening *bool) vfs.FS {
		broken := m.make
		broken.FS, broken.opening = fsys, opening

		return &broken
	}, nil)
}

// Mutants lists the mutants.
func Mutants() []Mutant {
	return []Mutant{
		{Breaks: "nothing is synced", enough: 40,
			make: mutant{sync: func(*mutant, string) bool { return false }}},
		{Breaks: "1 sync in 20 is skipped", enough: 400, make: mutant{sync: skipping(20)}},
		{Breaks: "1 sync in 100 is skipped", first: 240, enough: 3000, make: mutant{sync: skipping(100)}},
		{Breaks: "segments are not synced", enough: 40, make: mutant{sync: not(".seg")}},
		{Breaks: "tables are not synced", enough: 200, make: mutant{sync: not(".run")}},
		{Breaks: "the manifest is not synced", enough: 200, make: mutant{sync: not(".new")}},
		{Breaks: "directories are not synced", enough: 40, make: mutant{syncDir: never}},
		{Breaks: "segments found are not synced", enough: 400, make: mutant{sync: func(m *mutant, name string) bool {
			return !*m.opening || !strings.HasSuffix(name, ".seg")
		}}},
		{Breaks: "no directory is synced in recovery", enough: 1000,
			make: mutant{syncDir: func(m *mutant) bool { return !*m.opening }}},
		{Breaks: "files are removed before the manifest's name is durable", enough: 1000,
			make:   mutant{syncDir: func(m *mutant) bool { return !*m.opening || m.dirs > 1 }},
			manner: func(seed uint64) manner { return manner{twofold: true, mapped: seed%2 == 1} }},
		{Breaks: "nothing found is written again", first: 170, enough: 3000, make: mutant{again: true}},
		{Breaks: "failed syncs are ignored", first: 50, enough: 400, make: mutant{blind: true}},
		{Breaks: "failed syncs are tried again", first: 135, enough: 1000, make: mutant{retry: true}},
		{Breaks: "failed and short writes are ignored", enough: 400, make: mutant{deaf: true}},
		{Breaks: "writes are held back until a sync", enough: 100, make: mutant{later: true}},
		{Breaks: "the manifest is removed before a rename", enough: 400, make: mutant{gap: true}},
		{Breaks: "reads turn bits over", enough: 40, make: mutant{rot: true}},
		{Breaks: "mapped segments are not synced", enough: 100, make: mutant{stale: true}, manner: mapped},
		{Breaks: "stores to mappings stay private", enough: 100, make: mutant{private: true}, manner: mapped},
		{Breaks: "the newest segment is overlooked", enough: 100, make: mutant{short: true}},
	}
}

// not syncs all files but those with that suffix.
func not(suffix string) func(*mutant, string) bool {
	return func(_ *mutant, name string) bool { return !strings.HasSuffix(name, suffix) }
}

// skipping leaves out one sync of a file in so many.
func skipping(every int) func(*mutant, string) bool {
	return func(m *mutant, _ string) bool {
		m.syncs++
		return m.syncs%every != 0
	}
}

// never says that a sync is left out.
func never(*mutant) bool { return false }

// mapped is the manner of histories whose files are mapped: only they can find faults of mappings.
func mapped(uint64) manner { return manner{mapped: true} }

// mutant is an engine over a file system that does less than it is asked for, as if a line of the engine were
// missing. The simulation must find each of them.
type mutant struct {
	vfs.FS
	opening *bool

	sync    func(m *mutant, name string) bool // whether a file's sync is done
	syncDir func(m *mutant) bool              // whether a directory's sync is done
	blind   bool                              // failed syncs are taken for good ones
	deaf    bool                              // failed writes are taken for good ones
	later   bool                              // writes are held back until the next sync or read of the file
	again   bool                              // nothing is written once more while opening
	gap     bool                              // a rename is two steps: the old file goes first
	rot     bool                              // some reads have a bit turned over
	short   bool                              // a list lacks the newest segment while opening
	stale   bool                              // files that are mapped for writing are not synced
	private bool                              // what is stored through a mapping does not reach the file
	retry   bool                              // a failed sync is tried again, and the second answer believed
	reads   int
	syncs   int // of files
	dirs    int // of directories
}

// Create, Open and OpenWrite return files with the mutant's flaws.
func (m *mutant) Create(name string) (vfs.File, error)    { return m.file(m.FS.Create(name)) }
func (m *mutant) Open(name string) (vfs.File, error)      { return m.file(m.FS.Open(name)) }
func (m *mutant) OpenWrite(name string) (vfs.File, error) { return m.file(m.FS.OpenWrite(name)) }

// file wraps a file. One that can be mapped stays one, because the engine asks for that.
func (m *mutant) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	if _, ok := f.(vfs.WriteMapper); ok {
		return &mappedMutant{mutantFile{File: f, m: m}}, nil
	}

	return &mutantFile{File: f, m: m}, nil
}

// SyncDir does not hide that the power has gone, even of a blind mutant: nothing works then.
func (m *mutant) SyncDir(dir string) error {
	m.dirs++
	if m.syncDir != nil && !m.syncDir(m) {
		return nil
	}
	if err := m.FS.SyncDir(dir); err != nil && (!m.blind || errors.Is(err, vfs.ErrHalted)) {
		return err
	}

	return nil
}

// Rename, with gap, leaves a moment at which there is no file of the new name.
func (m *mutant) Rename(from, to string) error {
	if m.gap {
		if err := m.FS.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := m.FS.SyncDir(filepath.Dir(to)); err != nil {
			return err
		}
	}

	return m.FS.Rename(from, to)
}

// List, with short, leaves out the newest segment while opening, as a scan with an off-by-one would.
func (m *mutant) List(dir string) ([]string, error) {
	names, err := m.FS.List(dir)
	if m.short && *m.opening {
		for i, name := range slices.Backward(names) {
			if strings.HasSuffix(name, ".seg") {
				return slices.Delete(names, i, i+1), err
			}
		}
	}

	return names, err
}

// mutantFile is a file of a mutant.
type mutantFile struct {
	vfs.File
	m      *mutant
	held   []heldWrite
	mapped bool // for writing
}

// mappedMutant is a mutantFile that can be mapped.
type mappedMutant struct{ mutantFile }

// Map implements [vfs.Mapper].
func (f *mappedMutant) Map(size int64) (vfs.Mapping, error) { return f.File.(vfs.Mapper).Map(size) }

// MapWrite, with private, maps a copy that the file never gets. It notes that the file is mapped, which stale looks
// at.
func (f *mappedMutant) MapWrite(size int64) (vfs.Mapping, error) {
	m, err := f.File.(vfs.WriteMapper).MapWrite(size)
	if f.mapped = err == nil; f.mapped && f.m.private {
		return privateMapping{m, slices.Clone(m.Bytes())}, nil
	}

	return m, err
}

// privateMapping is a copy of the mapping: stores to it do not come to the file.
type privateMapping struct {
	vfs.Mapping
	bytes []byte
}

// Bytes is the copy.
func (m privateMapping) Bytes() []byte { return m.bytes }

// heldWrite is a write that was answered and not made.
type heldWrite struct {
	b   []byte
	off int64
}

// WriteAt leaves out, holds back or believes writes, as the mutant says.
func (f *mutantFile) WriteAt(b []byte, off int64) (int, error) {
	switch {
	case f.m.again && *f.m.opening && strings.HasSuffix(f.Name(), ".seg"):
		return len(b), nil
	case f.m.later && strings.HasSuffix(f.Name(), ".seg"):
		f.held = append(f.held, heldWrite{append([]byte(nil), b...), off})
		return len(b), nil
	}
	n, err := f.File.WriteAt(b, off)

	// That the power has gone is not hidden: nothing works then.
	if err != nil && f.m.deaf && !errors.Is(err, vfs.ErrHalted) {
		return len(b), nil
	}

	return n, err
}

// flush makes the writes that were held back.
func (f *mutantFile) flush() error {
	held := f.held
	f.held = nil

	for _, w := range held {
		if _, err := f.File.WriteAt(w.b, w.off); err != nil {
			return err
		}
	}

	return nil
}

// ReadAt makes held writes first, so that the process sees its own: only a crash shows what is missing.
func (f *mutantFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.flush(); err != nil {
		return 0, err
	}
	n, err := f.File.ReadAt(b, off)
	if f.m.reads++; f.m.rot && f.m.reads%50 == 0 && n > 0 {
		b[n/2] ^= 4
	}

	return n, err
}

// Sync and Datasync make what was held back, and are then as the mutant has them.
func (f *mutantFile) Sync() error     { return f.doSync(f.File.Sync) }
func (f *mutantFile) Datasync() error { return f.doSync(f.File.Datasync) }

// doSync leaves out, repeats or believes a sync, as the mutant says.
func (f *mutantFile) doSync(sync func() error) error {
	if err := f.flush(); err != nil {
		return err
	}
	if f.m.sync != nil && !f.m.sync(f.m, f.Name()) || f.m.stale && f.mapped {
		return nil
	}
	err := sync()
	if err != nil && f.m.retry {
		err = sync()
	}
	if err != nil && (!f.m.blind || errors.Is(err, vfs.ErrHalted)) {
		return err
	}

	return nil
}
