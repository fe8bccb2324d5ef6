package pebble

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	lib "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/holdfastdb/holdfast"
)

// bare opens Pebble as the engine does, on the file system itself.
func bare(tb testing.TB) *lib.DB {
	tb.Helper()
	o, err := never.WithDefaults()
	try(tb, err)
	options := settings(o, &engine{disk: newDisk(vfs.Default, "", here)})
	options.FS, options.EventListener = vfs.Default, nil
	db, err := lib.Open(filepath.Join(tb.TempDir(), "bare"), options)
	try(tb, err)
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}

func adapted(tb testing.TB) holdfast.Engine {
	tb.Helper()
	e, err := Open(filepath.Join(tb.TempDir(), "adapted"), holdfast.Options{})
	try(tb, err)
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

const eventSize = 100

// applyBare commits one event of eventSize bytes as a program that uses Pebble directly would.
func applyBare(db *lib.DB, key, value []byte, o *lib.WriteOptions) error {
	b := db.NewBatch()
	if err := b.Set(key, value, nil); err != nil {
		return err
	}
	if err := b.Commit(o); err != nil {
		return err
	}
	return b.Close()
}

// The engine allocates nothing per commit beyond what Pebble does.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Log("the race detector makes pools forget, so only the calls are exercised")
	}
	key, value := make([]byte, 8), make([]byte, eventSize)
	n := uint64(0)
	next := func() []byte {
		n++
		binary.BigEndian.PutUint64(key, n)
		return key
	}
	db := bare(t)
	of := func(f func() error) float64 {
		return testing.AllocsPerRun(2000, func() {
			try(t, f())
		})
	}
	alone := map[holdfast.Level]float64{
		holdfast.Memory: of(func() error { return applyBare(db, next(), value, lib.NoSync) }),
		holdfast.Power:  of(func() error { return applyBare(db, next(), value, lib.Sync) }),
	}
	alone[holdfast.Process] = alone[holdfast.Power]
	e := adapted(t)
	var b holdfast.Batch
	for _, level := range holdfast.Levels()[:3] {
		got := of(func() error {
			b.Reset()
			b.Set(next(), value)
			return holdfast.Commit(e, &b, level)
		})
		t.Logf("%v: %v allocations, Pebble alone %v", level, got, alone[level])
		if got > alone[level] && !raceEnabled {
			t.Errorf("%v: %v allocations per commit, Pebble alone makes %v", level, got, alone[level])
		}
	}
}
