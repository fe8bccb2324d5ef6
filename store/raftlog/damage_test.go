package raftlog_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/bbolt"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

func rewrite(t testing.TB, eng holdfast.Engine, key, value []byte) {
	t.Helper()
	var b holdfast.Batch
	b.Set(key, value)
	try(t, holdfast.Commit(eng, &b, holdfast.Memory))
}

// Whatever happens to the bytes of a value, what is read is what was written or ErrCorrupt that
// names it. The engine below has no checksums.
func TestDamagedValues(t *testing.T) {
	eng := mem.New()
	s := openStore(t, eng, inMemory)
	log := entry(6, 300)
	stageCommit(t, s, 6)
	store(t, s, entry(5, 300), log)
	set(t, s, "CurrentTerm", "a value")
	closeStore(t, s)
	entryKey := []byte("r\x00l\x00\x00\x00\x00\x00\x00\x00\x06")
	for _, c := range []struct {
		name string
		key  []byte
		open bool // it shows when the store is opened
		read func(s *raftlog.Store) error
	}{
		{"entry 6", entryKey, false, func(s *raftlog.Store) error {
			var got raft.Log
			if err := s.GetLog(6, &got); err != nil {
				if got.Index != 0 {
					t.Error("a damaged entry was stored into")
				}
				return err
			}
			return same(&got, log)
		}},
		{`"CurrentTerm"`, []byte("r\x00sCurrentTerm"), false, func(s *raftlog.Store) error {
			_, err := s.Get([]byte("CurrentTerm"))
			return err
		}},
		{"commit index", []byte("r\x00c"), true, nil},
		{"description", []byte("r\x00m"), true, nil},
	} {
		good, err := eng.Get(nil, c.key)
		if err != nil {
			t.Fatal(c.name, err)
		}
		check := func(bad []byte) {
			t.Helper()
			rewrite(t, eng, c.key, bad)
			s, err := raftlog.Open(eng, inMemory)
			if c.open == (err == nil) {
				t.Fatalf("%s: Open returned %v", c.name, err)
			}
			if err == nil {
				err = c.read(s)
				closeStore(t, s)
			}
			wantError(t, err, holdfast.ErrCorrupt)
			if !strings.Contains(err.Error(), c.name) {
				t.Fatalf("%q does not name %s", err, c.name)
			}
		}
		for i := range good {
			for _, x := range []byte{1, 0x80, 0xff} {
				bad := bytes.Clone(good)
				bad[i] ^= x
				check(bad)
			}
			check(good[:i])
		}
		check(append(bytes.Clone(good), 0))
		rewrite(t, eng, c.key, good)
	}

	// A good entry under a wrong index, or of another store, is not what was asked for.
	other, err := eng.Get(nil, []byte("r\x00l\x00\x00\x00\x00\x00\x00\x00\x05"))
	try(t, err)
	rewrite(t, eng, entryKey, other)
	named := openStore(t, eng, raftlog.Options{Name: "n", Level: holdfast.Memory})
	store(t, named, entry(6, 300))
	closeStore(t, named)
	s = openStore(t, eng, inMemory)
	wantError(t, s.GetLog(6, new(raft.Log)), holdfast.ErrCorrupt)
	wantEntry(t, s, entry(5, 300))
	alien, err := eng.Get(nil, []byte("r\x01nl\x00\x00\x00\x00\x00\x00\x00\x06"))
	try(t, err)
	rewrite(t, eng, entryKey, alien)
	wantError(t, s.GetLog(6, new(raft.Log)), holdfast.ErrCorrupt)
	// It can be written anew.
	store(t, s, log)
	wantEntry(t, s, log)
	closeStore(t, s)
}

// Bits that turn in bbolt's file, which has no checksums of its data, are found out.
func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	open := func() holdfast.Engine {
		eng, err := bbolt.Open(dir, holdfast.Options{})
		try(t, err)
		return eng
	}
	eng := open()
	s := openStore(t, eng, raftlog.Options{})
	needle := []byte("the needle in the haystack")
	store(t, s, entry(1, 1), &raft.Log{Index: 2, Term: 1, Data: needle}, entry(3, 1))
	closeStore(t, s)
	try(t, eng.Close())
	found := 0
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	try(t, err)
	for _, name := range files {
		b, err := os.ReadFile(name)
		try(t, err)
		if n := bytes.Count(b, needle); n > 0 {
			found += n
			info, err := os.Stat(name)
			try(t, err)
			b = bytes.ReplaceAll(b, needle, []byte("the noodle in the haystack"))
			try(t, os.WriteFile(name, b, info.Mode()))
		}
	}
	if found == 0 {
		t.Fatal("the entry is not in the file")
	}
	eng = open()
	s = openStore(t, eng, raftlog.Options{})
	err = s.GetLog(2, new(raft.Log))
	wantError(t, err, holdfast.ErrCorrupt)
	if !strings.Contains(err.Error(), "entry 2") {
		t.Error(err)
	}
	wantEntry(t, s, entry(1, 1))
	wantEntry(t, s, entry(3, 1))
	closeStore(t, s)
	try(t, eng.Close())
}
