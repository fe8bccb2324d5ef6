package simulate

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast/vfs"
)

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
	reads   int
	dirs    int // syncs of directories
}

func (m *mutant) Create(name string) (vfs.File, error)    { return m.file(m.FS.Create(name)) }
func (m *mutant) Open(name string) (vfs.File, error)      { return m.file(m.FS.Open(name)) }
func (m *mutant) OpenWrite(name string) (vfs.File, error) { return m.file(m.FS.OpenWrite(name)) }

func (m *mutant) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	if _, ok := f.(vfs.WriteMapper); ok {
		return &mappedMutant{mutantFile{File: f, m: m}}, nil
	}
	return &mutantFile{File: f, m: m}, nil
}

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

type mutantFile struct {
	vfs.File
	m      *mutant
	held   []heldWrite
	mapped bool // for writing
}

// mappedMutant is a mutantFile that can be mapped.
type mappedMutant struct{ mutantFile }

func (f *mappedMutant) Map(size int64) (vfs.Mapping, error) { return f.File.(vfs.Mapper).Map(size) }

func (f *mappedMutant) MapWrite(size int64) (vfs.Mapping, error) {
	m, err := f.File.(vfs.WriteMapper).MapWrite(size)
	if f.mapped = err == nil; f.mapped && f.m.private {
		return privateMapping{m, slices.Clone(m.Bytes())}, nil
	}
	return m, err
}

type privateMapping struct {
	vfs.Mapping
	bytes []byte
}

func (m privateMapping) Bytes() []byte { return m.bytes }

type heldWrite struct {
	b   []byte
	off int64
}

func (f *mutantFile) WriteAt(b []byte, off int64) (int, error) {
	switch {
	case f.m.again && *f.m.opening && strings.HasSuffix(f.Name(), ".seg"):
		return len(b), nil
	case f.m.later && strings.HasSuffix(f.Name(), ".seg"):
		f.held = append(f.held, heldWrite{append([]byte(nil), b...), off})
		return len(b), nil
	}
	n, err := f.File.WriteAt(b, off)
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

func (f *mutantFile) Sync() error     { return f.doSync(f.File.Sync) }
func (f *mutantFile) Datasync() error { return f.doSync(f.File.Datasync) }

func (f *mutantFile) doSync(sync func() error) error {
	if err := f.flush(); err != nil {
		return err
	}
	if f.m.sync != nil && !f.m.sync(f.m, f.Name()) || f.m.stale && f.mapped {
		return nil
	}
	if err := sync(); err != nil && (!f.m.blind || errors.Is(err, vfs.ErrHalted)) {
		return err
	}
	return nil
}

// TestMutants breaks the engine in many ways and expects that it is found out soon.
func TestMutants(t *testing.T) {
	not := func(suffix string) func(*mutant, string) bool {
		return func(_ *mutant, name string) bool { return !strings.HasSuffix(name, suffix) }
	}
	twofold := func(seed uint64) manner { return manner{twofold: true, mapped: seed%2 == 1} }
	mapped := func(uint64) manner { return manner{mapped: true} }
	notOpening := func(m *mutant, name string) bool { return !*m.opening || !strings.HasSuffix(name, ".seg") }
	for what, c := range map[string]struct {
		within uint64 // so many seeds
		make   mutant
		manner func(seed uint64) manner // nil: mannerOf
	}{
		"nothing is synced": {within: 40,
			make: mutant{sync: func(*mutant, string) bool { return false }}},
		"segments are not synced":    {within: 40, make: mutant{sync: not(".seg")}},
		"runs are not synced":        {within: 200, make: mutant{sync: not(".run")}},
		"the manifest is not synced": {within: 200, make: mutant{sync: not(".new")}},
		"directories are not synced": {within: 40,
			make: mutant{syncDir: func(*mutant) bool { return false }}},
		"segments found are not synced": {within: 400, make: mutant{sync: notOpening}},
		"no directory is synced in recovery": {within: 1000,
			make: mutant{syncDir: func(m *mutant) bool { return !*m.opening }}},
		"files are removed before the manifest's name is durable": {within: 1000, make: mutant{syncDir: func(m *mutant) bool {
			return !*m.opening || m.dirs > 1
		}}, manner: twofold},
		"nothing found is written again":          {within: 3000, make: mutant{again: true}},
		"failed syncs are ignored":                {within: 400, make: mutant{blind: true}},
		"failed and short writes are ignored":     {within: 400, make: mutant{deaf: true}},
		"writes are held back until a sync":       {within: 100, make: mutant{later: true}},
		"the manifest is removed before a rename": {within: 400, make: mutant{gap: true}},
		"reads turn bits over":                    {within: 40, make: mutant{rot: true}},
		"mapped segments are not synced":          {within: 100, make: mutant{stale: true}, manner: mapped},
		"stores to mappings stay private":         {within: 100, make: mutant{private: true}, manner: mapped},
		"the newest segment is overlooked":        {within: 100, make: mutant{short: true}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= c.within; seed++ {
				m := mannerOf(seed)
				if c.manner != nil {
					m = c.manner(seed)
				}
				_, err := run(context.Background(), seed, m, func(fsys vfs.FS, opening *bool) vfs.FS {
					m := c.make
					m.FS, m.opening = fsys, opening
					return &m
				}, nil)
				if err != nil {
					t.Logf("found with seed %d: %.300v", seed, err)
					return
				}
			}
			t.Errorf("not found within %d seeds", c.within)
		})
	}
}
