package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"gocloud.dev/blob"
	"golang.org/x/sync/errgroup"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

// RestoreOptions choose a state. The zero value is the last one.
type RestoreOptions struct {
	At         time.Time // the last state that is not younger; the last one of all if zero
	Generation string    // of this one; any if empty

	// Before, if it is not nil, chooses the state right before a batch of the database that wrote something: all batches
	// before that one, and nothing else. It is asked about the operations of batches, and says whether they tell how far
	// the database had got, and if so, whether they come before what is looked for (less than 0), have it (0), or come
	// behind it. What it says must ascend in the order of the log. At is left out. See event.Appends.
	Before func(ops iter.Seq[holdfast.Op]) (order int, tells bool)

	// Identities open what is encrypted; see age.ParseIdentities of filippo.io/age.
	Identities []age.Identity

	// Fill makes the directory of a copy of an engine that is not of logtree; nil refuses those.
	Fill Fill
}

// Restored says what a restore has made.
type Restored struct {
	Generation string
	Time       time.Time // of the state: it has all that was visible then
	Files      int
	Bytes      int64 // that were read
}

// Restore makes the directory dir of a state: an independent database, that was visible to its programs at Time. Every
// object is checked with its checksum; ErrCorrupt names one that is not what was uploaded, and an older state may be
// whole. dir must not exist, or be empty; after an error it does not exist. ErrNotFound: there is no such state.
func Restore(ctx context.Context, bucket *blob.Bucket, dir string, o RestoreOptions) (*Restored, error) {
	from := source{Bucket: bucket, identities: o.Identities}
	base, stop, err := choose(ctx, from, o)
	if err != nil {
		return nil, err
	}
	if base.Copy != nil {
		return restoreCopy(ctx, from, dir, base, o.Fill)
	}
	r := &Restored{Generation: base.Generation, Time: base.Time, Files: len(base.Files)}
	err = datadir.Make("restore", dir, func(partial string) (datadir.Loss, error) {
		// The mark first, and hidden: what is there cannot be opened until it is whole.
		if err := os.WriteFile(filepath.Join(partial, datadir.MarkName), []byte(base.Mark), 0o644); err != nil {
			return datadir.Loss{}, err
		}
		if err := datadir.Hide(partial); err != nil {
			return datadir.Loss{}, err
		}
		if err := r.files(ctx, from, partial, base); err != nil {
			return datadir.Loss{}, err
		}

		if stop != nil {
			return datadir.Loss{}, r.replayTo(ctx, from, partial, base, *stop)
		}

		return datadir.Loss{}, r.replay(ctx, from, partial, base, o.At)
	})
	if err != nil {
		return nil, err
	}

	return r, nil
}

// choose returns the base to begin with, and where in the log to stop if that is asked for.
func choose(ctx context.Context, from source, o RestoreOptions) (*Base, *Place, error) {
	if o.Before != nil {
		return findBefore(ctx, from, o)
	}
	base, err := find(ctx, from.Bucket, o)

	return base, nil, err
}

// find returns the base to begin with.
func find(ctx context.Context, bucket *blob.Bucket, o RestoreOptions) (*Base, error) {
	gens, err := generations(ctx, bucket)
	if err != nil {
		return nil, failed("restore", "", err)
	}
	var oldest time.Time
	for i := len(gens) - 1; i >= 0; i-- {
		gen := gens[i]
		if o.Generation != "" && gen != o.Generation {
			continue
		}
		names, err := bases(ctx, bucket, gen)
		if err != nil {
			return nil, err
		}
		for j := len(names) - 1; j >= 0; j-- {
			if o.At.IsZero() || !names[j].time.After(o.At) {
				return readBase(ctx, bucket, names[j].key)
			}
			oldest = names[j].time
		}
	}
	e := &holdfast.Error{Op: "restore", Class: holdfast.ErrNotFound, Detail: "there is no state in the bucket",
		Remedy: "is it the right bucket and prefix?"}
	if !oldest.IsZero() {
		e.Detail = fmt.Sprintf("there is no state that old; the oldest is of %s", oldest.Format(time.RFC3339))
		e.Remedy = "name a later time"
	}

	return nil, e
}

// files makes the files of a base.
func (r *Restored) files(ctx context.Context, bucket source, dir string, base *Base) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(4)
	for _, f := range base.Files {
		if !plain(f.Name) || total(f.Pieces) != f.Bytes || strings.HasPrefix(f.Name, datadir.MarkName) {
			return corrupt(base.Generation, fmt.Sprintf("file %q makes no sense", f.Name), nil)
		}
		r.Bytes += f.Bytes
		work.Go(func() (err error) {
			file, err := os.Create(filepath.Join(dir, f.Name))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, file.Close()) }()
			for _, p := range f.Pieces {
				if err := fetch(ctx, bucket, p, file); err != nil {
					return err
				}
			}

			return nil
		})
	}

	return work.Wait()
}

// fetch reads a piece into w, and checks it.
func fetch(ctx context.Context, bucket source, p Piece, w io.Writer) (err error) {
	from, err := bucket.NewRangeReader(ctx, p.Object, p.Skip, p.stored(), nil)
	if err != nil {
		return failed("get", p.Object, err)
	}
	defer from.Close()

	return bucket.decode(p, from, w)
}

// replay adds the log behind a base, up to the last state that is wanted.
func (r *Restored) replay(ctx context.Context, bucket source, dir string, base *Base, at time.Time) error {
	return follow(ctx, bucket, base, at, math.MaxInt, func(list []logged) error {
		for _, x := range list {
			if err := writeAt(filepath.Join(dir, x.File), x.body, x.From); err != nil {
				return err
			}
			r.Bytes += x.Bytes
		}
		r.Time = list[len(list)-1].Time

		return nil
	})
}

func writeAt(name string, b []byte, off int64) (err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteAt(b, off)

	return err
}

// logged is an object of the log.
type logged struct {
	entry
	body []byte
}

// follow calls visit with what leads from each state behind a base to the next, up to the last that is not younger than
// at, unless that is zero, and not behind number last.
func follow(ctx context.Context, bucket source, base *Base, at time.Time, last int,
	visit func([]logged) error) error {
	var list []logged
	end := base.At
	for n := base.Log + 1; n <= last; n++ {
		e, body, found, err := readLog(ctx, bucket, base.Generation, n)
		if err != nil {
			return err
		}
		if !found {
			behind, err := behind(ctx, bucket.Bucket, base, n)
			if err != nil || !behind {
				return err
			}

			// It may have come since.
			if e, body, found, err = readLog(ctx, bucket, base.Generation, n); err != nil {
				return err
			}
			if !found {
				return corrupt(logKey(base.Generation, n), "it is missing, and there is more behind it", nil)
			}
		}
		if e.Prev != end {
			return nil // the log was let go here
		}
		if !at.IsZero() && e.Time.After(at) {
			return nil
		}
		end = e.end()
		list = append(list, logged{e, body})
		if !e.State {
			continue
		}
		if err := visit(list); err != nil {
			return err
		}
		list = nil
	}

	return nil
}

// behind reports whether there is anything behind number n of the log that should follow it. What is between two bases
// is not kept for ever.
func behind(ctx context.Context, bucket *blob.Bucket, base *Base, n int) (bool, error) {
	names, err := bases(ctx, bucket, base.Generation)
	if err != nil {
		return false, err
	}
	if thin, err := thinned(ctx, bucket, base.Generation); err != nil || thin >= n {
		return false, err
	}
	if len(names) > 0 && names[len(names)-1].log >= n {
		return true, nil
	}
	list := bucket.List(&blob.ListOptions{Prefix: base.Generation + "/log/"})
	for {
		o, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, failed("list", base.Generation, err)
		}
		number := 0
		if _, err := fmt.Sscanf(path.Base(o.Key), "%d", &number); err == nil && number > n {
			return true, nil
		}
	}
}
