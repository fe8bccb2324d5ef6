package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// A poisoned engine leaves the database and its log as they are: closing does not copy from a log
// that cannot be trusted, and does not remove it. Opening recovers.
func TestCloseAfterPoisonKeepsTheLog(t *testing.T) {
	for _, open := range []func(string, holdfast.Options) (holdfast.Engine, error){Open, OpenGo} {
		dir := t.TempDir()
		eng, err := open(dir, holdfast.Options{SyncEvery: -1})
		if errors.Is(err, holdfast.ErrUnavailable) {
			continue // the test without cgo
		}
		try(t, err)
		e := eng.(*engine)
		t.Run(e.lib.name, func(t *testing.T) {
			for n := range 100 {
				var b holdfast.Batch
				b.Set(fmt.Append(nil, n), make([]byte, 1000))
				try(t, holdfast.Commit(e, &b, holdfast.Power))
			}
			files := func() (data, log []byte) {
				data, err := os.ReadFile(e.path())
				if err == nil {
					log, err = os.ReadFile(e.path() + "-wal")
				}
				try(t, err)
				return data, log
			}
			data, log := files()
			cause := errors.New("input/output error")
			_ = e.committer.Fail(cause)
			if err := e.Close(); !errors.Is(err, cause) {
				t.Errorf("Close: %v", err)
			}
			if d, l := files(); len(l) == 0 || !bytes.Equal(d, data) || !bytes.Equal(l, log) {
				t.Errorf("Close changed the files: database %v, log %d bytes of %d", !bytes.Equal(d, data), len(l), len(log))
			}
			again, err := open(dir, holdfast.Options{})
			try(t, err)
			for n := range 100 {
				if v, err := again.Get(nil, fmt.Append(nil, n)); err != nil || len(v) != 1000 {
					t.Fatalf("key %d: %d bytes, %v", n, len(v), err)
				}
			}
			if err := again.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(e.path() + "-wal"); err == nil {
				t.Error("a clean Close left the log")
			}
		})
	}
}

// After a write has failed, the file that connections share may be older than what was committed; see whole. Here it is
// made so. Nothing that was acknowledged may be missing without an error, and nothing is missing when it is opened
// again.
func TestSharedFileGoesBack(t *testing.T) {
	each(t, func(t *testing.T, open func(string, holdfast.Options) *engine) {
		dir := t.TempDir()
		e := open(dir, holdfast.Options{SyncEvery: -1})
		shared := e.path() + "-shm"
		set(t, e, holdfast.Power, "a", "1")
		older, err := os.ReadFile(shared)
		try(t, err)
		set(t, e, holdfast.Power, "b", "1")
		s, err := e.Snapshot()
		try(t, err)
		_ = e.committer.Fail(errors.New("input/output error"))
		for _, r := range []holdfast.Reader{e, s} {
			if v, err := r.Get(nil, []byte("b")); string(v) != "1" || err != nil {
				t.Errorf("before: %q, %v", v, err)
			}
		}
		f, err := os.OpenFile(shared, os.O_WRONLY, 0)
		try(t, err)
		_, err = f.WriteAt(older, 0)
		try(t, errors.Join(err, f.Close()))
		for _, r := range []holdfast.Reader{e, s} {
			if v, err := r.Get(nil, []byte("b")); !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("Get: %q, %v", v, err)
			}
			it := r.Scan(holdfast.Range{})
			for it.Next() {
			}
			if err := it.Err(); !errors.Is(err, holdfast.ErrUnavailable) {
				t.Errorf("Scan: %v", err)
			}
			_ = it.Close()
		}
		try(t, s.Close())
		_ = e.Close()
		e = open(dir, holdfast.Options{})
		if v, err := e.Get(nil, []byte("b")); string(v) != "1" || err != nil {
			t.Errorf("opened again: %q, %v", v, err)
		}
	})
}
