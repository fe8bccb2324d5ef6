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
