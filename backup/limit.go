package backup

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/holdfastdb/holdfast"
)

// LeastRate is the least Options.Rate, in bytes a second: with less, what is read at once could take longer than a
// request may make no progress.
const LeastRate = 256 << 10

// limit is how fast bases are uploaded, and the bucket is read to be verified. The log does not wait: what waits there
// is lost with the machine. What it takes is missing to the others, but for a quarter, so that there is a base at last
// where as much is written as may be uploaded.
//
// What is let through by the second limiter is a debt of the first one, so that both together let through no more.
type limit struct {
	mu    sync.Mutex // held while tokens are taken, because those of the second may be given back
	all   *rate.Limiter
	least *rate.Limiter
}

// atOnce is how many bytes wait for the limit together.
const atOnce = 1 << 20

// newLimit returns nil if there is no limit.
func newLimit(bytes int64) (*limit, error) {
	if bytes == 0 {
		return nil, nil
	}
	if bytes < LeastRate {
		return nil, &holdfast.Error{Op: "back up", Class: holdfast.ErrBadOption,
			Detail: fmt.Sprintf("a rate of %d bytes a second", bytes), Remedy: fmt.Sprintf("the least is %d", LeastRate)}
	}
	burst := int(max(bytes, maxLogObject+headRoom)) // an object of the log at least

	return &limit{all: rate.NewLimiter(rate.Limit(bytes), burst), least: rate.NewLimiter(rate.Limit(bytes)/4, atOnce)}, nil
}

// took counts bytes of the log.
func (l *limit) took(bytes int) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()

	// What is more than one burst behind is forgotten: the others would pay for it long after the log has become quiet.
	if l.all.Tokens() > -float64(l.all.Burst()) {
		l.all.ReserveN(time.Now(), min(bytes, l.all.Burst()))
	}
}

// wait waits until so many bytes, atOnce at most, may be sent or read. It returns false if ctx ends before.
func (l *limit) wait(ctx context.Context, bytes int) bool {
	d := l.take(bytes)
	return d <= 0 || sleep(ctx, d)
}

// take takes bytes where they are had earlier, and returns when that is.
func (l *limit) take(bytes int) time.Duration {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	all, least := l.all.ReserveN(now, bytes), l.least.ReserveN(now, bytes)
	d := least.DelayFrom(now)
	if x := all.DelayFrom(now); x <= d {
		least.CancelAt(now)
		return x
	}

	return d
}

// writer returns one whose writes wait.
func (l *limit) writer(ctx context.Context, w io.Writer) io.Writer {
	if l == nil {
		return w
	}

	return limitedWriter{ctx, l, w}
}

type limitedWriter struct {
	ctx context.Context
	l   *limit
	w   io.Writer
}

func (w limitedWriter) Write(b []byte) (int, error) {
	if !w.l.wait(w.ctx, len(b)) {
		return 0, context.Cause(w.ctx)
	}

	return w.w.Write(b)
}

// reader returns one whose reads wait.
func (l *limit) reader(ctx context.Context, r io.Reader) io.Reader {
	if l == nil {
		return r
	}

	return limitedReader{ctx, l, r}
}

type limitedReader struct {
	ctx context.Context
	l   *limit
	r   io.Reader
}

func (r limitedReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if !r.l.wait(r.ctx, n) {
		err = cmp.Or(err, context.Cause(r.ctx))
	}

	return n, err
}
