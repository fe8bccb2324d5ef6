package backup

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
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
	Kept       int64 // bytes that a restore before had read, which was broken off

	// Baseless are generations that began later, if not behind RestoreOptions.At, of which nothing can be restored: their
	// first base was never whole, or is gone. What was written since they began is not in this state.
	Baseless []string
}

// Restore makes the directory dir of a state: an independent database, that was visible to its programs at Time. Every
// object is checked with its checksum; ErrCorrupt names one that is not what was uploaded, and an older state may be
// whole. dir must not exist, or be empty; after an error it does not exist. ErrNotFound: there is no such state.
//
// What was read when Restore fails, or its process ends, stays in DIR.partial. The next Restore to dir, of this state
// or another one, checks what is there and reads the rest. Whoever gives up removes DIR.partial.
func Restore(ctx context.Context, bucket *blob.Bucket, dir string, o RestoreOptions) (*Restored, error) {
	from := source{Bucket: bucket, identities: o.Identities, readers: readers}
	r := new(Restored)
	base, stop, err := r.choose(ctx, from, o)
	if err != nil {
		return nil, err
	}
	r.Generation, r.Time, r.Files = base.Generation, base.Time, len(base.Files)
	if base.Copy != nil {
		if err := r.copy(ctx, from, dir, base, o.Fill); err != nil {
			return nil, err
		}

		return r, nil
	}
	err = datadir.Resume("restore", dir, []byte(base.Mark), func(partial string) (stay bool, err error) {
		switch err = r.files(ctx, from, partial, base); {
		case err != nil:
		case stop != nil:
			err = r.replayTo(ctx, from, partial, base, *stop)
		default:
			err = r.replay(ctx, from, partial, base, o.At)
		}
		if stay = r.Bytes+r.Kept > 0; err != nil && stay {
			e := &holdfast.Error{Op: "restore", Path: dir, Cause: err,
				Remedy: "what was read stays in " + partial + ": the same restore goes on with it"}
			if datadir.NoRoom(err) {
				e.Class, e.Remedy = holdfast.ErrFull, datadir.MakeRoom+"; "+e.Remedy
			}
			err = e
		}

		return stay, err
	})
	if err != nil {
		return nil, err
	}

	return r, nil
}

// choose returns the base to begin with, and where in the log to stop if that is asked for.
func (r *Restored) choose(ctx context.Context, from source, o RestoreOptions) (*Base, *Place, error) {
	if o.Before != nil {
		return findBefore(ctx, from, o)
	}
	base, err := r.find(ctx, from.Bucket, o)

	return base, nil, err
}

// find returns the base to begin with.
func (r *Restored) find(ctx context.Context, bucket *blob.Bucket, o RestoreOptions) (*Base, error) {
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
		if began, err := genTime(gen); err == nil && len(names) == 0 && (o.At.IsZero() || !began.After(o.At)) {
			r.Baseless = append(r.Baseless, gen)
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

// readers is how many objects are read at a time.
const readers = 8

// files makes the files of a base in a directory, which may have some of them, or parts, or other files.
func (r *Restored) files(ctx context.Context, bucket source, dir string, base *Base) error {
	wanted := map[string]bool{}
	for _, f := range base.Files {
		if !plain(f.Name) || total(f.Pieces) != f.Bytes || isMark(f.Name) || wanted[f.Name] {
			return corrupt(base.Generation, fmt.Sprintf("file %q makes no sense", f.Name), nil)
		}
		wanted[f.Name] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !isMark(e.Name()) && !(wanted[e.Name()] && e.Type().IsRegular()) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}

	var read, kept atomic.Int64
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(bucket.readers)
	for _, f := range base.Files {
		name := filepath.Join(dir, f.Name)
		there, err := begin(name, f.Bytes)
		if err != nil {
			return errors.Join(err, work.Wait())
		}
		off := int64(0)
		left := new(atomic.Int64)
		left.Store(int64(len(f.Pieces)))
		for _, p := range f.Pieces {
			at := off
			off += p.Bytes
			work.Go(func() error {
				if err := ctx.Err(); err != nil {
					return err
				}
				file, err := os.OpenFile(name, os.O_RDWR, 0)
				if err != nil {
					return err
				}
				if there >= at+p.Bytes && has(file, at, p) {
					kept.Add(p.Bytes)
				} else if err = fetch(ctx, bucket, p, func() io.Writer { return io.NewOffsetWriter(file, at) }); err == nil {
					read.Add(p.Bytes)
				}

				// Files are synced while others are read, and not all at the end.
				if err == nil && left.Add(-1) == 0 {
					err = file.Sync()
				}

				return errors.Join(err, file.Close())
			})
		}
	}
	err = work.Wait()
	r.Bytes, r.Kept = r.Bytes+read.Load(), r.Kept+kept.Load()

	return err
}

// isMark reports whether a name is one of the mark's, which no file of a base has.
func isMark(name string) bool { return strings.HasPrefix(name, datadir.MarkName) }

// begin makes a file that is not there, and shortens one that is too long. It returns how many bytes are there.
func begin(name string, bytes int64) (there int64, err error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	st, err := file.Stat()
	if err == nil && st.Size() > bytes {
		return bytes, file.Truncate(bytes) // a restore before had added log
	}

	return st.Size(), err
}

// has reports whether a file has a piece from an offset on.
func has(file *os.File, at int64, p Piece) bool {
	h := sha256.New()
	n, err := copyTo(h, io.NewSectionReader(file, at, p.Bytes))

	return err == nil && n == p.Bytes && hexSum(h) == p.Sum
}

// copyBuffers are buffers of copyTo: those of io.Copy are small for files and for what SHA-256 does at once.
var copyBuffers = sync.Pool{New: func() any { return new([256 << 10]byte) }}

// copyTo is io.Copy with a large buffer.
func copyTo(w io.Writer, r io.Reader) (int64, error) {
	b := copyBuffers.Get().(*[256 << 10]byte)
	defer copyBuffers.Put(b)

	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, b[:])
}

// fetch reads a piece, and checks it. Each attempt writes to another w.
func fetch(ctx context.Context, bucket source, p Piece, w func() io.Writer) error {
	return patiently(ctx, func() error {
		ctx, stalled := stalls(ctx)
		defer stalled.stop()

		// The object as a whole, because it is hardly more: some servers send the checksum of the whole with a part of it,
		// which the library of S3 then finds to be wrong.
		from, err := bucket.NewReader(ctx, p.Object, nil)
		if err != nil {
			return failed("get", p.Object, stalled.cause(err))
		}
		defer from.Close()
		r := stalled.reader(bucket.limit.reader(ctx, from))
		if _, err := io.CopyN(io.Discard, r, p.Skip); err != nil && !errors.Is(err, io.EOF) {
			return failed("get", p.Object, err)
		}

		return bucket.decode(p, io.LimitReader(r, p.stored()), w())
	})
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
	ahead := newAhead(ctx, bucket, base.Generation, last)
	defer ahead.close()
	for n := base.Log + 1; n <= last; n++ {
		e, body, found, err := ahead.read(n)
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

// ahead reads log objects in order, and the next ones meanwhile, once some were there.
type ahead struct {
	ctx    context.Context
	cancel context.CancelFunc
	bucket source
	gen    string
	last   int // no object behind it is read
	width  int
	begun  map[int]chan logRead
}

// logRead is what readLog has returned.
type logRead struct {
	e     entry
	body  []byte
	found bool
	err   error
}

func newAhead(ctx context.Context, bucket source, gen string, last int) *ahead {
	a := &ahead{bucket: bucket, gen: gen, last: last, begun: map[int]chan logRead{}}
	a.ctx, a.cancel = context.WithCancel(ctx)

	return a
}

// read is readLog. It is called with each number in turn.
func (a *ahead) read(n int) (e entry, body []byte, found bool, err error) {
	for i := n; i <= min(n+a.width, a.last); i++ {
		if a.begun[i] == nil {
			result := make(chan logRead, 1)
			a.begun[i] = result
			go func() {
				var r logRead
				r.e, r.body, r.found, r.err = readLog(a.ctx, a.bucket, a.gen, i)
				result <- r
			}()
		}
	}
	r := <-a.begun[n]
	delete(a.begun, n)

	// Who asks whether there is anything new makes one request, and who reads much soon makes many.
	if r.found && r.err == nil {
		a.width = min(max(1, 2*a.width), a.bucket.readers-1)
	}

	return r.e, r.body, r.found, r.err
}

// close ends the reading of what was not asked for.
func (a *ahead) close() {
	a.cancel()
	for _, result := range a.begun {
		<-result
	}
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
		o, err := next(ctx, list)
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
