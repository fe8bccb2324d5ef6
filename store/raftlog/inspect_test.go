package raftlog_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// TestForeignKeys: keys of others that begin as those of Raft stores do hide none of them.
func TestForeignKeys(t *testing.T) {
	e := mem.New()
	long := strings.Repeat("n", raftlog.MaxNameSize)
	for _, name := range []string{"", "b", long} {
		s, err := raftlog.Open(e, raftlog.Options{Name: name, Level: holdfast.Memory})
		try(t, err)
		try(t, s.Close())
	}
	var b holdfast.Batch
	for _, key := range []string{
		"q", "r", "r\x00", "r\x05ab", "r\x05abcde", "r\x05abcdf-and-more", "record/17", "record/" + strings.Repeat("y", 200),
		"r\xff" + strings.Repeat("z", 300), "r\x80short", "s",
	} {
		b.Set([]byte(key), []byte("other"))
	}
	try(t, holdfast.Commit(e, &b, holdfast.Memory))
	names, err := raftlog.Stores(e)
	if want := []string{"", "b", long}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%q, want %q; %v", names, want, err)
	}
	_, err = raftlog.Inspect(e, "zz", false)
	if !errors.Is(err, holdfast.ErrNotFound) ||
		!strings.Contains(err.Error(), `"zz" is not there; the engine has the stores ["" "b" "nnn`) {
		t.Error(err)
	}
}

// TestUnfinishedImport: a store with the mark of an import cannot be opened, and is named as damaged.
func TestUnfinishedImport(t *testing.T) {
	e := mem.New()
	o := raftlog.Options{Name: "b", Level: holdfast.Memory}
	s, err := raftlog.Open(e, o)
	try(t, err)
	try(t, s.Close())
	var b holdfast.Batch
	b.Set([]byte("r\x01bi"), nil)
	try(t, holdfast.Commit(e, &b, holdfast.Memory))
	for range 2 { // refused once, refused again
		if _, err := raftlog.Open(e, o); !errors.Is(err, holdfast.ErrCorrupt) ||
			!strings.Contains(err.Error(), "an import into it was not finished") {
			t.Error(err)
		}
	}
	reports, err := raftlog.Examine(e)
	want := []string{`the mark of an import that was not finished of raft store "b"`}
	if err != nil || len(reports) != 1 || !slices.Equal(reports[0].Damaged, want) {
		t.Errorf("%+v, %v", reports, err)
	}
}
