package backup

import (
	"context"
	"errors"
	"io"
	"math"
	"path"
	"sync"
	"time"

	"gocloud.dev/blob"
	"golang.org/x/sync/errgroup"

	"github.com/holdfastdb/holdfast"
)

// Verified is what Verify has found.
type Verified struct {
	Generations int
	Bases       int
	Objects     int   // that were read
	Bytes       int64 // of them
	First, Last time.Time
	Baseless    []string // generations of which nothing can be restored, as in Restored: no damage by themselves
	Damage      []error
}

// Verify reads everything in the bucket that a state names, and checks it: that it is there, with the right checksum,
// and that the log has no gap. It needs no key: what is encrypted is checked as it is. What is damaged is in the
// result, each an ErrCorrupt or the error of a request. States that are removed meanwhile are no damage.
func Verify(ctx context.Context, bucket *blob.Bucket) (*Verified, error) {
	return verify(ctx, source{Bucket: bucket, readers: readers})
}

// verify is Verify, with the readers and the limit of a source.
func verify(ctx context.Context, bucket source) (*Verified, error) {
	bucket.sealed = true
	gens, err := generations(ctx, bucket.Bucket)
	if err != nil {
		return nil, failed("verify", "", err)
	}
	v := &verification{bucket: bucket, seen: map[Piece]bool{}}
	v.Generations = len(gens)
	for _, gen := range gens {
		if err := v.generation(ctx, gen); err != nil {
			return nil, err
		}
	}

	return &v.Verified, nil
}

// verification is a run of Verify.
type verification struct {
	bucket source
	seen   map[Piece]bool

	mu sync.Mutex // of what pieces add
	Verified
}

// generation checks one. An error is one that ends the check.
func (v *verification) generation(ctx context.Context, gen string) error {
	names, err := bases(ctx, v.bucket.Bucket, gen)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		v.Baseless = append(v.Baseless, gen)
	}
	for i, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		base, err := readBase(ctx, v.bucket.Bucket, name.key)
		if err != nil {
			v.damage(ctx, name.key, err)
			continue
		}
		v.Bases, v.Objects = v.Bases+1, v.Objects+1
		v.state(base.Time)
		work := errgroup.Group{}
		work.SetLimit(v.bucket.readers)
		for _, f := range base.Files {
			if total(f.Pieces) != f.Bytes {
				v.damage(ctx, name.key, corrupt(name.key, "the pieces of "+f.Name+" do not make it up", nil))
			}
			for _, p := range f.Pieces {
				if v.seen[p] {
					continue
				}
				v.seen[p] = true
				work.Go(func() error {
					if err := fetch(ctx, v.bucket, p, func() io.Writer { return io.Discard }); err != nil {
						v.damage(ctx, name.key, err)
					}
					v.read(p.Bytes)

					return ctx.Err()
				})
			}
		}
		if err := work.Wait(); err != nil {
			return err
		}

		// The log up to the next base.
		last := math.MaxInt
		if i+1 < len(names) {
			last = names[i+1].log
		}
		err = follow(ctx, v.bucket, base, time.Time{}, last, func(list []logged) error {
			for _, x := range list {
				v.read(x.Bytes)
			}
			v.state(list[len(list)-1].Time)

			return nil
		})
		if err != nil {
			v.damage(ctx, name.key, err)
		}
	}

	return nil
}

// read counts an object.
func (v *verification) read(bytes int64) {
	v.mu.Lock()
	v.Objects, v.Bytes = v.Objects+1, v.Bytes+bytes
	v.mu.Unlock()
}

// damage notes what is damaged of a base, unless the base was removed since it was listed, or ctx has ended.
func (v *verification) damage(ctx context.Context, base string, err error) {
	if there, failed := exists(ctx, v.bucket.Bucket, base); ctx.Err() != nil || failed == nil && !there {
		return
	}
	v.mu.Lock()
	v.Damage = append(v.Damage, err)
	v.mu.Unlock()
}

// state counts a state of that time.
func (v *Verified) state(t time.Time) {
	if v.First.IsZero() || t.Before(v.First) {
		v.First = t
	}
	if t.After(v.Last) {
		v.Last = t
	}
}

// verifies verifies the bucket from time to time. A good one leaves an empty object, so that it counts for those who
// start after it.
func (b *Backup) verifies() {
	// Not before there is something of this generation.
	last, key := time.Time{}, ""
	for known := false; !known || b.Status().Safe.IsZero(); {
		if !sleep(b.ctx, b.o.Every) {
			return
		}
		if b.Status().Generation == "" || known {
			continue
		}
		var err error
		if last, key, err = lastVerified(b.ctx, b.bucket); err == nil {
			known = true
			b.verified(last)
		} else if !sleep(b.ctx, retryEvery) {
			return
		}
	}

	for {
		// The clock may have been wrong then.
		if wait := time.Until(last.Add(b.o.VerifyEvery)); !sleep(b.ctx, min(wait, b.o.VerifyEvery)) {
			return
		}
		now := time.Now()
		b.sweep.Lock()
		v, err := verify(b.ctx, source{Bucket: b.bucket, readers: 1, limit: b.limit})
		b.sweep.Unlock()
		switch {
		case b.ctx.Err() != nil:
			return
		case err != nil:
			b.o.Logger.Error("the backup cannot be verified", "error", err.Error())
		case len(v.Damage) > 0:
			for _, d := range v.Damage[:min(len(v.Damage), 10)] {
				b.o.Logger.Error("the backup is damaged", "error", d.Error(), "damaged", len(v.Damage))
			}
			b.mend(v.Damage)
		default:
			b.o.Logger.Info("the backup is verified", "objects", v.Objects, "bytes", v.Bytes)
			made := verifiedKey(b.Status().Generation, now)
			if err := b.put(b.ctx, made, nil); err != nil {
				b.o.Logger.Warn("that the backup was verified is forgotten at the next start", "error", err.Error())
			} else {
				// One is enough. Those of generations that are gone go with them.
				if key != "" && path.Dir(key) == path.Dir(made) {
					_ = remove(b.ctx, b.bucket, key)
				}
				key = made
			}
			b.verified(now)
		}
		if err == nil {
			b.mu.Lock()
			b.status.Damage = len(v.Damage)
			b.mu.Unlock()
		}

		// An attempt that has come to no end is made again soon.
		if last = now; err != nil {
			last = now.Add(min(verifyAgain, b.o.VerifyEvery) - b.o.VerifyEvery)
		}
	}
}

const verifyAgain = 10 * time.Minute

// verified makes that the time of the last good verification.
func (b *Backup) verified(t time.Time) {
	b.mu.Lock()
	b.status.Verified = t
	b.mu.Unlock()
}

// lastVerified returns when the bucket was last found to be good, and the object that says so.
func lastVerified(ctx context.Context, bucket *blob.Bucket) (last time.Time, key string, err error) {
	gens, err := generations(ctx, bucket)
	if err != nil {
		return last, "", err
	}
	for i := len(gens) - 1; i >= 0 && key == ""; i-- {
		list := bucket.List(&blob.ListOptions{Prefix: gens[i] + "/verified/"})
		for {
			o, err := next(ctx, list)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return last, "", err
			}
			if t, err := time.Parse(stamp, path.Base(o.Key)); err == nil && t.After(last) {
				last, key = t, o.Key
			}
		}
	}

	return last, key, nil
}

// mend sees to it that the next base does not name what is damaged, and that there is one if the last one, or the log
// behind it, is damaged.
func (b *Backup) mend(damage []error) {
	bad := map[string]bool{}
	for _, d := range damage {
		if e, ok := errors.AsType[*holdfast.Error](d); ok && errors.Is(d, holdfast.ErrCorrupt) {
			bad[e.Path] = true
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	again := bad[b.last]
	for name, pieces := range b.pieces {
		for _, p := range pieces {
			if bad[p.Object] {
				delete(b.pieces, name)
				again = true
				break
			}
		}
	}
	gen := b.status.Generation
	for key := range bad {
		again = again || path.Dir(key) == path.Dir(logKey(gen, 0)) && key > logKey(gen, b.lastLog)
	}
	b.broken = b.broken || again
}
