package all

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/all/internal/bare"
	"github.com/holdfastdb/holdfast/engine/internal/enginecopy"
	"github.com/holdfastdb/holdfast/kv"
)

// fillBuckets writes the buckets of a source to the database of a new engine, and compares what is there then.
func (c *CopyResult) fillBuckets(ctx context.Context, to holdfast.Engine, from *bare.Source) error {
	caps := to.Capabilities()
	if !caps.AtomicBatches {
		return &holdfast.Error{Op: "copy", Engine: c.Engine, Class: holdfast.ErrBadOption,
			Detail: "it has no atomic batches, and so no database for the buckets",
			Remedy: "name another engine, or a separator: --separator makes keys of the buckets' names and their keys"}
	}
	level, limit := enginecopy.Batches(caps)
	db, err := kv.Open(to, kv.Options{Level: level})
	if err != nil {
		return err
	}

	w := &bucketWriter{ctx: ctx, db: db, limit: limit}
	c.Buckets = 0
	if err := from.WalkBuckets(func(b *bare.Bucket) error {
		c.Buckets++
		return w.add(put{bucket: b}, 0)
	}, func(b *bare.Bucket, key, value []byte) error {
		c.Keys++
		c.Bytes += int64(len(key) + len(value))
		return w.add(put{b, bytes.Clone(key), bytes.Clone(value)}, len(key)+len(value))
	}); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	if f, ok := to.(interface{ Flush() error }); ok { // as in fill
		if err := f.Flush(); err != nil {
			return err
		}
	}
	return db.View(ctx, func(tx *kv.Tx) error { return c.compareBuckets(ctx, tx, from) })
}

// put is one that is to be made: of a bucket, if it has no key.
type put struct {
	bucket     *bare.Bucket
	key, value []byte
}

// bucketWriter writes in transactions of limit bytes, and a bit more.
type bucketWriter struct {
	ctx   context.Context
	db    *kv.DB
	limit int
	puts  []put
	size  int
}

// putBytes is what a put takes beside its key and value, about.
const putBytes = 64

func (w *bucketWriter) add(p put, size int) error {
	w.puts = append(w.puts, p)
	if w.size += size + putBytes; w.size < w.limit {
		return nil
	}
	return w.flush()
}

func (w *bucketWriter) flush() error {
	err := w.db.Update(w.ctx, func(tx *kv.Tx) error {
		var at *bare.Bucket
		var to *kv.Bucket
		for _, p := range w.puts {
			if p.bucket != at {
				at, to = p.bucket, tx.Bucket(p.bucket.Path...)
			}
			if err := p.to(to); err != nil {
				return err
			}
		}
		return nil
	})
	clear(w.puts)
	w.puts, w.size = w.puts[:0], 0
	return err
}

// to makes the put. An error that the source is to blame for says what of it.
func (p put) to(b *kv.Bucket) error {
	var err error
	switch {
	case p.key != nil:
		err = b.Put(p.key, p.value)
	case p.bucket.Sequence != 0:
		err = b.SetSequence(p.bucket.Sequence)
	default:
		err = b.Create()
	}
	for _, class := range []error{holdfast.ErrBadKey, holdfast.ErrTooLarge, holdfast.ErrBadOption} {
		if errors.Is(err, class) {
			return &holdfast.Error{Op: "copy", Class: class, Detail: p.describe(), Cause: err,
				Remedy: "change it in the source"}
		}
	}
	return err
}

// describe names the put by its beginnings.
func (p put) describe() string {
	if p.key == nil {
		return "bucket " + pathText(p.bucket.Path)
	}
	return fmt.Sprintf("key %.40q in bucket %s", p.key, pathText(p.bucket.Path))
}

// pathText writes the names of the buckets that lead to one, of many the outermost and the innermost.
func pathText(path []string) string {
	var names []string
	for _, name := range path {
		names = append(names, fmt.Sprintf("%.40q", name))
	}
	if more := len(names) - 8; more > 1 {
		names = slices.Replace(names, 4, 4+more, fmt.Sprintf("(%d more)", more))
	}
	return strings.Join(names, " > ")
}

// compareBuckets reads back everything that a source has, and counts what is there.
func (c *CopyResult) compareBuckets(ctx context.Context, tx *kv.Tx, from *bare.Source) error {
	corrupt := func(cause error, format string, args ...any) error {
		if datadir.OfSystem(cause) {
			return cause
		}
		return &holdfast.Error{Op: "compare", Engine: c.Engine, Class: holdfast.ErrCorrupt,
			Detail: fmt.Sprintf(format, args...), Cause: cause}
	}
	var at *bare.Bucket
	var to *kv.Bucket
	compared := int64(0)
	if err := from.WalkBuckets(func(b *bare.Bucket) error {
		to := tx.Bucket(b.Path...)
		there, err := to.Exists()
		sequence, err2 := to.Sequence()
		if err := errors.Join(err, err2); err != nil || !there || sequence != b.Sequence {
			return corrupt(err, "bucket %s is not as it was copied", pathText(b.Path))
		}
		return ctx.Err()
	}, func(b *bare.Bucket, key, value []byte) error {
		if b != at {
			at, to = b, tx.Bucket(b.Path...)
		}
		got, err := to.Get(key)
		if err != nil || !bytes.Equal(got, value) {
			return corrupt(err, "%s has not the value that was copied", put{b, key, value}.describe())
		}
		compared++
		return ctx.Err()
	}); err != nil {
		return err
	}
	buckets, keys, err := countBuckets(ctx, tx, nil, tx.Buckets())
	if err != nil {
		return err
	}
	if compared != c.Keys || keys != c.Keys || buckets != c.Buckets {
		return corrupt(nil, "%d keys in %d buckets were copied, %d compared, and %d in %d buckets are there",
			c.Keys, c.Buckets, compared, keys, buckets)
	}
	return nil
}

// countBuckets counts buckets of that path, and what is in them.
func countBuckets(
	ctx context.Context,
	tx *kv.Tx,
	path []string,
	names iter.Seq[string],
) (buckets, keys int64, err error) {
	for name := range names {
		b := tx.Bucket(append(slices.Clip(path), name)...)
		n, err := b.Count()
		if err = errors.Join(err, ctx.Err()); err != nil {
			return 0, 0, err
		}
		moreBuckets, moreKeys, err := countBuckets(ctx, tx, append(slices.Clip(path), name), b.Buckets())
		if err != nil {
			return 0, 0, err
		}
		buckets, keys = buckets+1+moreBuckets, keys+n+moreKeys
	}
	return buckets, keys, nil
}
