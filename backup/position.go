package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
)

// met is the first batch behind a base that tells how far the database had got.
type met struct {
	order int // as RestoreOptions.Before has it; more than 0 too if there is none
	at    Place
	none  bool
}

// findBefore returns the base and the place in the log behind it where a batch begins that wrote what is looked for. It
// is looked for in the generations from the last one on, by halves: what comes behind a base tells whether to go on
// before that or behind it.
func findBefore(ctx context.Context, from source, o RestoreOptions) (*Base, *Place, error) {
	gens, err := generations(ctx, from.Bucket)
	if err != nil {
		return nil, nil, failed("restore", "", err)
	}
	var oldest time.Time
	for _, gen := range slices.Backward(gens) {
		if o.Generation != "" && gen != o.Generation {
			continue
		}
		names, err := bases(ctx, from.Bucket, gen)
		if err != nil {
			return nil, nil, err
		}
		if len(names) == 0 {
			continue
		}
		oldest = names[0].time

		// The first base of which the batch that comes next is what is looked for, or behind it. Where the log behind a base
		// is not kept, or tells nothing, the next base with one tells.
		var broken error
		seen := map[int]met{}
		behind := sort.Search(len(names), func(i int) bool {
			for ; i < len(names) && broken == nil; i++ {
				m, ok := seen[i]
				if !ok {
					m, broken = firstBehind(ctx, from, names[i].key, o.Before, false)
					seen[i] = m
				}
				if !m.none {
					return m.order >= 0
				}
			}

			return true
		})
		if broken != nil {
			return nil, nil, broken
		}

		// It is right behind that base, or in the log of the one before. What a base has may reach behind where its log
		// begins: then it is the one before that.
		var at Place
		for i := min(behind, len(names)-1); i >= max(behind-2, 0); i-- {
			if at == (Place{}) {
				m, err := firstBehind(ctx, from, names[i].key, o.Before, true)
				if err != nil {
					return nil, nil, err
				}
				if m.order != 0 {
					continue
				}
				at = m.at
			}
			base, err := readBase(ctx, from.Bucket, names[i].key)
			if err != nil {
				return nil, nil, err
			}
			if !at.before(base.End) {
				return base, &at, nil
			}
		}
	}
	e := &holdfast.Error{Op: "restore", Class: holdfast.ErrNotFound, Detail: "the log in the bucket does not have it",
		Remedy: "is it the right log, and was it written? What is older, or was written right before a kill or where only " +
			"some states are kept, can be restored by time"}
	if !oldest.IsZero() {
		e.Detail = fmt.Sprintf("the log in the bucket, which begins at %s, does not have it", oldest.Format(time.RFC3339))
	}

	return nil, nil, e
}

// errMet ends a walk through the log.
var errMet = errors.New("met")

// firstBehind looks into the log behind a base for the first batch that tells how far the database had got; with reach,
// for the first that is not before what is looked for.
func firstBehind(ctx context.Context, from source, key string, tells func(iter.Seq[holdfast.Op]) (int, bool),
	reach bool) (m met, err error) {
	m = met{order: 1, none: true}
	base, err := readBase(ctx, from.Bucket, key)
	if err != nil {
		return m, err
	}
	if base.Copy != nil {
		return m, nil
	}
	i := slices.IndexFunc(base.Files, func(f File) bool { return f.Name == "MANIFEST" })
	if i < 0 || len(base.Files[i].Pieces) != 1 {
		return m, corrupt(key, "it makes no sense", nil)
	}
	var manifest bytes.Buffer
	if err := fetch(ctx, from, base.Files[i].Pieces[0], func() io.Writer {
		manifest.Reset()
		return &manifest
	}); err != nil {
		return m, err
	}
	log, err := logtree.ReadLog(manifest.Bytes())
	if err != nil {
		return m, corrupt(base.Files[i].Pieces[0].Object, "", err)
	}
	err = follow(ctx, from, base, time.Time{}, math.MaxInt, func(list []logged) error {
		for _, x := range list {
			err := log.Read(x.File, x.From, x.body, func(at int64, ops iter.Seq[holdfast.Op]) bool {
				order, known := tells(ops)
				if !known || reach && order < 0 {
					return true
				}
				m = met{order: order, at: Place{x.File, at}}

				return false
			})
			if err != nil {
				return corrupt(base.Generation, "its log", err)
			}
			if !m.none {
				return errMet
			}
		}

		return nil
	})
	if errors.Is(err, errMet) {
		err = nil
	}

	return m, err
}

// replayTo adds the log behind a base, up to a place in it.
func (r *Restored) replayTo(ctx context.Context, bucket source, dir string, base *Base, stop Place) error {
	err := follow(ctx, bucket, base, time.Time{}, math.MaxInt, func(list []logged) error {
		for _, x := range list {
			last := x.File == stop.File && x.end().Offset > stop.Offset
			if last {
				x.body = x.body[:max(stop.Offset-x.From, 0)]
			}
			if err := writeAt(filepath.Join(dir, x.File), x.body, x.From); err != nil {
				return err
			}
			r.Bytes += int64(len(x.body))
			if last {
				return errMet
			}
		}
		r.Time = list[len(list)-1].Time

		return nil
	})
	switch {
	case errors.Is(err, errMet):
		return nil
	case err == nil:
		return corrupt(base.Generation, "the log ends before the place where it had what is looked for", nil)
	}

	return err
}
