package backup

import (
	"context"
	"io"
	"math"
	"time"

	"gocloud.dev/blob"
)

// Verified is what Verify has found.
type Verified struct {
	Generations int
	Bases       int
	Objects     int   // that were read
	Bytes       int64 // of them
	First, Last time.Time
	Damage      []error
}

// Verify reads everything in the bucket that a state names, and checks it: that it is there, with the right checksum,
// and that the log has no gap. It needs no key: what is encrypted is checked as it is. What is damaged is in the
// result, each an ErrCorrupt or the error of a request.
func Verify(ctx context.Context, bucket *blob.Bucket) (*Verified, error) {
	gens, err := generations(ctx, bucket)
	if err != nil {
		return nil, failed("verify", "", err)
	}
	v := &Verified{Generations: len(gens)}
	seen := map[Piece]bool{}
	for _, gen := range gens {
		if err := v.generation(ctx, bucket, gen, seen); err != nil {
			return nil, err
		}
	}

	return v, nil
}

// generation checks one. An error is one that ends the check.
func (v *Verified) generation(ctx context.Context, bucket *blob.Bucket, gen string, seen map[Piece]bool) error {
	names, err := bases(ctx, bucket, gen)
	if err != nil {
		return err
	}
	for i, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		base, err := readBase(ctx, bucket, name.key)
		if err != nil {
			v.Damage = append(v.Damage, err)
			continue
		}
		v.Bases, v.Objects = v.Bases+1, v.Objects+1
		v.state(base.Time)
		for _, f := range base.Files {
			if total(f.Pieces) != f.Bytes {
				v.Damage = append(v.Damage, corrupt(name.key, "the pieces of "+f.Name+" do not make it up", nil))
			}
			for _, p := range f.Pieces {
				if seen[p] {
					continue
				}
				seen[p] = true
				if err := fetch(ctx, source{Bucket: bucket, sealed: true}, p, io.Discard); err != nil {
					v.Damage = append(v.Damage, err)
				}
				v.Objects, v.Bytes = v.Objects+1, v.Bytes+p.Bytes
			}
		}

		// The log up to the next base.
		last := math.MaxInt
		if i+1 < len(names) {
			last = names[i+1].log
		}
		err = follow(ctx, source{Bucket: bucket, sealed: true}, base, time.Time{}, last, func(list []logged) error {
			for _, x := range list {
				v.Objects, v.Bytes = v.Objects+1, v.Bytes+x.Bytes
			}
			v.state(list[len(list)-1].Time)

			return nil
		})
		if err != nil {
			v.Damage = append(v.Damage, err)
		}
	}

	return nil
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
