package backup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"gocloud.dev/blob"

	"github.com/holdfastdb/holdfast/driver/datadir"
)

const (
	minBuffer   = 5 << 20 // the least part that S3 takes
	contentType = "application/octet-stream"
)

// put uploads an object that is in memory.
func (b *Backup) put(ctx context.Context, key string, data []byte) error {
	ctx, stalled := stalls(ctx)
	defer stalled.stop()

	// Not WriteAll, which makes an MD5 of the bytes, twice: objects have a SHA-256, and what S3 and its like receive is
	// checked by what their drivers send along.
	w, err := b.newWriter(ctx, key, blob.WriterOptions{BufferSize: max(len(data)+1, minBuffer), MaxConcurrency: 1})
	if err == nil {
		_, err = w.Write(data)
		err = w.finish(err)
	}
	if err != nil {
		return failed("put", key, stalled.cause(err))
	}
	b.count(int64(len(data)))

	return nil
}

// writer writes one object, of which there is nothing before finish has returned nil.
type writer struct {
	*blob.Writer
	b      *Backup
	key    string
	cancel context.CancelFunc
	file   *os.File // where the bucket is a directory
}

// newWriter begins an object. finish must be called.
func (b *Backup) newWriter(ctx context.Context, key string, o blob.WriterOptions) (_ *writer, err error) {
	w := &writer{b: b, key: key}
	ctx, w.cancel = context.WithCancel(ctx)
	o.ContentType, o.DisableContentTypeDetection = contentType, true
	o.BeforeWrite = func(as func(any) bool) error {
		as(&w.file)
		return nil
	}
	if w.Writer, err = b.bucket.NewWriter(ctx, key, &o); err != nil {
		w.cancel()
		return nil, err
	}

	return w, nil
}

// finish makes the object, and returns when a power cut of the bucket's machine does not take it; if err is not nil,
// there is no object, and the error is returned.
//
// Object storage has what it has acknowledged. A directory has it when the file, the name that it gets behind that, and
// the names of the directories above it are synced.
func (w *writer) finish(err error) error {
	defer w.cancel()
	name := ""
	if w.file != nil {
		name = w.file.Name()
		if err == nil {
			err = w.file.Sync()
		}
	}
	if err != nil {
		w.cancel() // so that Close makes no object of what is there
		w.Close()

		return err
	}
	if err := w.Close(); err != nil || w.file == nil {
		return err
	}

	return w.b.syncNames(filepath.Dir(name), strings.Count(w.key, "/"))
}

// syncNames makes the names in a directory of the bucket durable, and those of the directory and of the ones above it
// that are so many levels higher, if that was not done before.
func (b *Backup) syncNames(dir string, levels int) error {
	for ; ; dir = filepath.Dir(dir) {
		// Some file systems cannot sync a directory.
		if err := datadir.SyncDir(dir); err != nil && !errors.Is(err, syscall.EINVAL) {
			return err
		}
		b.mu.Lock()
		known := b.named[dir]
		b.named[dir] = true
		b.mu.Unlock()
		if known || levels == 0 {
			return nil
		}
		levels--
	}
}
