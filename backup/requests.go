package backup

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/holdfastdb/holdfast"
)

// requestTimeout is how long a request may take, or, where it may be large, make no progress. It is another in tests.
var requestTimeout = 2 * time.Minute

// errStalled is why a request was given up.
var errStalled = errors.New("the server has stalled")

// readObject reads an object that is small enough for memory.
func readObject(ctx context.Context, bucket *blob.Bucket, key string) (b []byte, err error) {
	err = patiently(ctx, func() (err error) {
		ctx, stalled := stalls(ctx)
		defer stalled.stop()
		r, err := bucket.NewReader(ctx, key, nil)
		if err != nil {
			return stalled.cause(err)
		}
		defer r.Close()
		b, err = io.ReadAll(stalled.reader(r))

		return err
	})

	return b, err
}

// next is Next of a list.
func next(ctx context.Context, list *blob.ListIterator) (o *blob.ListObject, err error) {
	err = limited(ctx, func(ctx context.Context) (err error) {
		o, err = list.Next(ctx)
		return err
	})

	return o, err
}

// exists is Exists of a bucket.
func exists(ctx context.Context, bucket *blob.Bucket, key string) (there bool, err error) {
	err = limited(ctx, func(ctx context.Context) (err error) {
		there, err = bucket.Exists(ctx, key)
		return err
	})

	return there, err
}

// limited calls f, a request that is small, for at most requestTimeout.
func limited(ctx context.Context, f func(context.Context) error) error {
	ctx, stalled := stalls(ctx)
	defer stalled.stop()

	return stalled.cause(f(ctx))
}

// stalling ends a request that makes no progress.
type stalling struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// stalls returns a context of a request that may be long. Its stop must be called.
func stalls(ctx context.Context) (context.Context, *stalling) {
	s := &stalling{}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.timer = time.AfterFunc(requestTimeout, func() { s.cancel(errStalled) })

	return s.ctx, s
}

// progress says that there was some.
func (s *stalling) progress() { s.timer.Reset(requestTimeout) }

func (s *stalling) stop() {
	s.timer.Stop()
	s.cancel(nil)
}

// cause is errStalled for an error that comes of that.
func (s *stalling) cause(err error) error {
	if err != nil && errors.Is(context.Cause(s.ctx), errStalled) {
		return errStalled
	}

	return err
}

// reader returns one of which each read is progress.
func (s *stalling) reader(r io.Reader) io.Reader { return progressing{r, s} }

type progressing struct {
	r io.Reader
	s *stalling
}

func (p progressing) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.s.progress()
	if errors.Is(err, io.EOF) {
		return n, err
	}

	return n, p.s.cause(err)
}

// patiently calls f again, a few times and with pauses, while its error is of a kind that may not come again: not what
// the bucket has answered, but what happened on the way.
func patiently(ctx context.Context, f func() error) (err error) {
	pause := retryEvery / 4
	for n := 1; ; n++ {
		err = f()
		if err == nil || n == 4 || lasts(err) || ctx.Err() != nil {
			return err
		}
		if !sleep(ctx, pause) {
			return err
		}
		pause *= 2
	}
}

// lasts reports whether it makes no sense to try again at once what has failed so.
func lasts(err error) bool {
	switch gcerrors.Code(err) {
	case gcerrors.NotFound, gcerrors.PermissionDenied, gcerrors.InvalidArgument:
		return true
	}
	for _, class := range []error{holdfast.ErrCorrupt, holdfast.ErrBadOption, holdfast.ErrVersion, errStalled} {
		if errors.Is(err, class) {
			return true
		}
	}

	// What the disk says here that is restored to.
	_, disk := errors.AsType[*os.PathError](err)

	return disk || skewed(err)
}

// sleep returns false if ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
