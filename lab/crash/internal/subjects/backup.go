package subjects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // the bucket is a directory

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/backup"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// Backup is continuous backup: the contract's writers, while all is uploaded to a bucket. With each crash the machine
// is lost, its disk included, and what is judged is a restore from the bucket, on which the next victim goes on.
//
// A batch counts as acknowledged when the uploader has reported a moment behind it, of which everything is safe.
var Backup = Subject{
	Name: "backup", About: "continuous backup: the machine and its disk are lost, and restored from a bucket",
	work: backupWork, read: kvRead, judge: kvJudge, restore: restoreBackup, remote: true,
}

// EarlyBackup is the engine of victims whose uploader reports what it has not uploaded yet.
const EarlyBackup = "logtree, backup reported early"

// bucketDir is the bucket's directory, beside that of the engine. Crashes do not reach it.
const bucketDir = "bucket"

func openBackup(s protocol.Spec, open func(context.Context, string) (*blob.Bucket, error)) (*blob.Bucket, error) {
	return open(context.Background(), "file://"+filepath.ToSlash(filepath.Join(s.Dir, bucketDir)))
}

// restoreBackup makes the engine's directory of what is in the bucket, none if nothing is.
func restoreBackup(s protocol.Spec) error {
	dir := filepath.Join(s.Dir, protocol.EngineDir)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	bucket, err := openBackup(s, backup.MakeBucket)
	if err != nil {
		return err
	}
	_, err = backup.Restore(context.Background(), bucket, dir, backup.RestoreOptions{})
	if errors.Is(err, holdfast.ErrNotFound) {
		err = nil
	}

	return errors.Join(err, bucket.Close())
}

// backupWork is kvWork with an uploader beside it.
func backupWork(w *worker, e holdfast.Engine, stop <-chan struct{}) error {
	bucket, err := openBackup(w.spec, backup.MakeBucket)
	if err != nil {
		return err
	}
	b, err := backup.Start(e, bucket, backup.Options{Every: 5 * time.Millisecond, BaseBytes: 2 << 20,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return fmt.Errorf("starting the backup: %w", err)
	}

	// What the engine has acknowledged waits here until the uploader reports a later moment as safe.
	type waiting struct {
		n     uint64
		level holdfast.Level
		at    time.Time
	}
	var mu sync.Mutex
	var list []waiting
	w.hold = func(n uint64, level holdfast.Level) {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, waiting{n, level, time.Now()})
	}
	tell := func(safe time.Time) {
		mu.Lock()
		defer mu.Unlock()
		n := 0
		for ; n < len(list) && list[n].at.Before(safe); n++ {
			w.report.Send(protocol.TellAcked, list[n].n, uint64(list[n].level))
		}
		list = list[n:]
	}
	over := make(chan struct{})
	var side sync.WaitGroup
	w.start(&side, func() error {
		for w.rest(over, time.Millisecond) {
			if safe := b.Status().Safe; w.spec.Engine == EarlyBackup && !safe.IsZero() {
				tell(time.Now())
			} else {
				tell(safe)
			}
		}

		return nil
	})
	err = kvWork(w, e, stop)
	close(over)
	side.Wait()

	// Close uploads what is left. Only then may the closing of the engine count as a promise.
	if closed := b.Close(context.Background()); closed != nil {
		err = errors.Join(err, fmt.Errorf("closing the backup: %w", closed))
	}
	if err == nil {
		tell(time.Now())
	}

	return errors.Join(err, bucket.Close())
}
