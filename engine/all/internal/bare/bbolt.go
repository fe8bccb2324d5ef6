package bare

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/bbolt/boltpages"
)

// openBolt opens a file of bbolt. A key there gets as its prefix the names of the buckets that it is in, each followed
// by the separator. No two keys come out the same: buckets whose names have the separator in them are refused, and keys
// that begin like a bucket in the same bucket.
func openBolt(s *Source, copied string, o Options) error {
	defer faults()()
	if err := s.checkPages(copied); err != nil {
		return s.damaged(err)
	}
	db, err := bbolt.Open(copied, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return s.damaged(err)
	}
	s.close = db.Close
	w := &boltWalk{s: s, sep: string(o.Separator), path: strings.Split(o.Only, string(o.Separator))}
	if o.Only == "" {
		w.path = nil
	} else {
		w.only = o.Only + w.sep
	}
	s.walk = func(each func(key, value []byte) error) error {
		defer faults()()
		w.each = each

		return db.View(w.read)
	}
	s.tree = func(bucket func(*Bucket) error, each func(b *Bucket, key, value []byte) error) error {
		defer faults()()
		t := boltTree{bucket, each}
		return db.View(func(tx *bbolt.Tx) error {
			return tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return t.walk([]string{string(name)}, b) })
		})
	}
	return nil
}

// boltTree walks buckets as they are.
type boltTree struct {
	bucket func(*Bucket) error
	each   func(b *Bucket, key, value []byte) error
}

func (t boltTree) walk(path []string, b *bbolt.Bucket) error {
	at := &Bucket{Path: path, Sequence: b.Sequence()}
	if err := t.bucket(at); err != nil {
		return err
	}
	return b.ForEach(func(k, v []byte) error {
		if v != nil {
			return t.each(at, k, v)
		}
		return t.walk(append(slices.Clip(path), string(k)), b.Bucket(k))
	})
}

// checkPages checks all pages of the file, until the context ends.
func (s *Source) checkPages(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}

	return boltpages.Check(untilEnd{f, s.ctx}, st.Size(), boltpages.All)
}

// untilEnd reads until a context ends.
type untilEnd struct {
	f   *os.File
	ctx context.Context
}

func (u untilEnd) ReadAt(p []byte, at int64) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}

	return u.f.ReadAt(p, at)
}

type boltWalk struct {
	s    *Source
	sep  string
	path []string // of the bucket that is read, empty for all
	only string   // the same as a prefix, which its keys do not have
	each func(key, value []byte) error
	key  []byte
}

func (w *boltWalk) read(tx *bbolt.Tx) error {
	if len(w.path) == 0 {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return w.nested("", name, b) })
	}

	b := tx.Bucket([]byte(w.path[0]))
	for _, name := range w.path[1:] {
		if b != nil {
			b = b.Bucket([]byte(name))
		}
	}
	if b == nil {
		return fail(w.s.path, holdfast.ErrNotFound, fmt.Sprintf("there is no bucket %q", strings.Join(w.path, w.sep)), "",
			nil)
	}

	return w.bucket("", b)
}

func (w *boltWalk) nested(prefix string, name []byte, b *bbolt.Bucket) error {
	if bytes.Contains(name, []byte(w.sep)) {
		return w.s.refused(holdfast.ErrBadKey, fmt.Sprintf("bucket %.40q", w.only+prefix+string(name)),
			"has the separator "+w.sep+" in its name",
			"name another --separator")
	}

	return w.bucket(prefix+string(name)+w.sep, b)
}

func (w *boltWalk) bucket(prefix string, b *bbolt.Bucket) error {
	if n := b.Sequence(); n != 0 {
		w.s.note("the sequence of bucket %.40q is %d: it is not copied", w.only+prefix, n)
	}
	empty := true
	err := b.ForEach(func(k, v []byte) error {
		empty = false
		if v != nil {
			w.key = prefixed(w.key, prefix, k)
			return w.each(w.key, v)
		}
		begin := append(bytes.Clone(k), w.sep...)
		if other, _ := b.Cursor().Seek(begin); bytes.HasPrefix(other, begin) {
			return w.s.refused(holdfast.ErrBadKey, fmt.Sprintf("key %.40q in bucket %.40q", other, w.only+prefix),
				fmt.Sprintf("would look like one in the bucket %.40q", k), "name another --separator, or one bucket with --only")
		}

		return w.nested(prefix, k, b.Bucket(k))
	})
	if empty && err == nil {
		w.s.note("bucket %.40q is empty: the copy does not have it", w.only+prefix)
	}

	return err
}
