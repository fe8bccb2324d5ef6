package filesystems_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/pebble"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/lab/blockdev"
)

// TestPebbleReopens: on a full disk pebble says how much room it needs to be opened, and does not take what is made
// until that is enough. Each Open left tables that took all there was, so that no step was ever enough.
func TestPebbleReopens(t *testing.T) {
	if testing.Short() {
		t.Skip("it fills disks")
	}
	t.Parallel() // it waits for the disk
	root := fileSystem(t, blockdev.Options{FS: "ext4", Size: 64 << 20})
	var ballast []string
	step := night.Or(1, 3) // MiB
	for i := range 33 / step {
		name := filepath.Join(root, fmt.Sprint("ballast", i))
		try(t, os.WriteFile(name, make([]byte, step<<20), 0o644))
		ballast = append(ballast, name)
	}
	dir := filepath.Join(root, "db")
	e, err := pebble.Open(dir, holdfast.Options{})
	try(t, err)
	bytes, value := rand.NewChaCha8([32]byte{}), make([]byte, 24_000)
	n := 0
	for ; err == nil; n++ {
		_, _ = bytes.Read(value) // tables do not get smaller than logs
		var b holdfast.Batch
		b.Set(fmt.Appendf(nil, "%06d", n), value)
		err = holdfast.Commit(e, &b, holdfast.Power)
	}
	_ = e.Close()

	freed, needed := 0, 0
	for _, name := range ballast {
		try(t, os.Remove(name))
		freed += step
		e, err = pebble.Open(dir, holdfast.Options{})
		if err == nil {
			t.Logf("opened with %d MiB, of %d that it said", freed, needed)
			break
		}
		var full *holdfast.Error
		if !errors.As(err, &full) || !errors.Is(err, holdfast.ErrFull) {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(full.Remedy, "make about %d MiB", &needed); err != nil {
			t.Fatalf("%v: %v", err, full)
		}
		if freed > needed+5 {
			t.Fatalf("with %d MiB: %v", freed, err)
		}
	}
	try(t, err)
	try(t, e.Close())
}
