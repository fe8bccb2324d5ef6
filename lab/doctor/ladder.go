package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// Step is one thing that was done again and again, with what it took in microseconds.
type Step struct {
	Name    string  `json:"name"`
	About   string  `json:"about"`
	Times   int     `json:"times"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
	Max     float64 `json:"max_us"`
	Refused string  `json:"refused"` // why it cannot be done here, empty if it can
}

// The names of the steps that the verdict compares.
const (
	stepWrite   = "write"
	stepClean   = "sync of nothing"
	stepSync    = "write, fdatasync"
	stepDirect  = "write past the cache, synced"
	stepLarge   = "write 16 MiB, fdatasync"
	block       = 4 << 10
	ladderBytes = 16 << 20
	atOnce      = 8
	// How long and how often a step is repeated at most.
	stepTime  = 250 * time.Millisecond
	stepTimes = 400
)

// climb measures the steps in dir.
func climb(ctx context.Context, dir string) (steps []Step, err error) {
	name := filepath.Join(dir, "made-ahead")
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(name)) }()
	large := make([]byte, ladderBytes)
	if _, err := f.Write(large); err != nil {
		return nil, err
	}

	// The file is there in full, and synced, before anything is measured: an overwrite needs no new blocks and no new
	// length.
	if err := f.Sync(); err != nil {
		return nil, err
	}
	buf, at := large[:block], int64(0)
	// overwrite writes n bytes into the file, which is there already, at the next place.
	overwrite := func(f *os.File, n int) error {
		if at+int64(n) > ladderBytes {
			at = 0
		}

		// Each write differs from the last, in case something below leaves equal blocks alone.
		large[0]++
		_, err := f.WriteAt(large[:n], at)
		at += int64(n)

		return err
	}
	synced := func(n int, sync func() error) func() error {
		return func() error {
			if err := overwrite(f, n); err != nil {
				return err
			}

			return sync()
		}
	}
	data := func() error { return measure.Fdatasync(f) }
	add := func(name, about string, do func() error) error {
		step, err := timed(ctx, do)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		step.Name, step.About = name, about
		steps = append(steps, step)

		return nil
	}
	// through is a step on the file opened with a flag.
	through := func(name, about string, flag int) error {
		// The flag must be given at opening: it cannot be set on the file that is open.
		var g *os.File
		err := errors.ErrUnsupported
		if flag != 0 {
			g, err = os.OpenFile(f.Name(), os.O_WRONLY|flag, 0)
		}
		if err != nil {
			steps = append(steps, Step{Name: name, Refused: "the system or the file system has no such flag"})
			return nil
		}
		defer g.Close()
		aligned := alignedBlock()

		return add(name, about, func() error {
			// O_DIRECT takes whole blocks at places that are multiples of a block.
			at = (at + block) % ladderBytes / block * block
			aligned[0]++
			_, err := g.WriteAt(aligned, at)

			return err
		})
	}

	// A file of its own: what grows must not change the file that is overwritten.
	growing, err := os.Create(filepath.Join(dir, "growing"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, growing.Close(), os.Remove(growing.Name())) }()
	grow := func(sync func() error) func() error {
		return func() error {
			if _, err := growing.Write(buf); err != nil {
				return err
			}

			return sync()
		}
	}

	renamed := filepath.Join(dir, "renamed")

	// The order counts: a sync stands before the one that has nothing to sync, and what grows a file comes after what
	// does not.
	for _, do := range []func() error{
		func() error {
			return add(stepWrite, "4 KiB to the system, no sync", synced(block, func() error { return nil }))
		},
		data,
		func() error { return add(stepClean, "fdatasync of a file with nothing to sync", data) },
		func() error {
			return add(stepSync, "4 KiB into a file made ahead: a commit, at the least", synced(block, data))
		},
		func() error { return add("write, fsync", "the same with the file's times", synced(block, f.Sync)) },
		func() error { return through("write, O_DSYNC", "the same by one call", dsyncFlag) },
		func() error { return through(stepDirect, "the same by O_DIRECT and O_DSYNC", directFlag) },
		func() error {
			return add("append, fdatasync", "4 KiB, and the file grows: its length must be kept too",
				grow(func() error { return measure.Fdatasync(growing) }))
		},
		func() error { return add("append, fsync", "the same", grow(growing.Sync)) },
		func() error {
			return add("new file, fsync, rename", "as a configuration is replaced; with a sync of the directory",
				func() error { return replace(renamed, buf) })
		},
		func() error { return add("write 64 KiB, fdatasync", "into the file made ahead", synced(64<<10, data)) },
		func() error { return add("write 1 MiB, fdatasync", "the same", synced(1<<20, data)) },
		func() error { return add(stepLarge, "the same", synced(ladderBytes, data)) },
		func() error { return several(ctx, dir, add) },
	} {
		if err := do(); err != nil {
			return nil, err
		}
	}

	return steps, nil
}

// replace makes a file and gives it a name that another has, so that either is there after a crash.
func replace(name string, data []byte) error {
	// The new file is whole and synced before it takes the name.
	if err := os.WriteFile(name+"-new", data, 0o644); err != nil {
		return err
	}
	f, err := os.OpenFile(name+"-new", os.O_WRONLY, 0)
	if err != nil {
		return err
	}

	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}

	return datadir.Rename(name+"-new", name)
}

// several measures a write with a sync beside others, each in a file of its own.
func several(ctx context.Context, dir string, add func(string, string, func() error) error) (err error) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()

	for i := range atOnce {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint("beside-", i)))
		if err != nil {
			return err
		}
		files = append(files, f)

		// Written and synced ahead, so that only overwrites are measured.
		if _, err := f.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	var at int64
	buf := make([]byte, block)

	return add(fmt.Sprintf("%d files at once", atOnce), "write, fdatasync of each: what all together take", func() error {
		// The same place in each file. One goroutine for each waits for its own sync.
		at = (at + block) % (1 << 20)

		errs := make([]error, len(files))
		var group sync.WaitGroup
		for i, f := range files {
			group.Go(func() {
				if _, errs[i] = f.WriteAt(buf, at); errs[i] == nil {
					errs[i] = measure.Fdatasync(f)
				}
			})
		}
		group.Wait()

		return errors.Join(errs...)
	})
}

// timed does something again and again for a short time, after one that does not count.
func timed(ctx context.Context, do func() error) (Step, error) {
	// The first time pays for what is done once, such as the space of a new file.
	if err := do(); err != nil {
		return Step{}, err
	}

	var took []time.Duration

	// Three times at least, however slow the disk is: a median of fewer says nothing.
	for began := time.Now(); len(took) < stepTimes && (len(took) < 3 || time.Since(began) < stepTime); {
		if err := ctx.Err(); err != nil {
			return Step{}, err
		}
		start := time.Now()
		if err := do(); err != nil {
			return Step{}, err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	at := func(share float64) float64 {
		return measure.Micros(took[min(int(share*float64(len(took))), len(took)-1)])
	}

	return Step{Times: len(took), P50: at(0.5), P99: at(0.99), Max: measure.Micros(took[len(took)-1])}, nil
}
