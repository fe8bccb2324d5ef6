//lint:file-ignore SA4006 the page leaves errors to its reader

package backup_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/backup"
	"github.com/holdfastdb/holdfast/engine/logtree"
)

// run is the example of docs/backup.md, with the errors left to the reader.
func run(ctx context.Context, engine holdfast.Engine) (err error) {
	bucket, err := backup.OpenBucket(ctx, "s3://my-bucket/orders?region=eu-central-1")
	b, err := backup.Start(engine, bucket, backup.Options{})
	fmt.Println(b.Status().Lag()) // how much the loss of the machine would cost now
	err = b.Close(ctx)            // before the engine

	return err
}

var _ = run

// A database is backed up to a directory, lost, and restored.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "holdfast")
	check(err)
	defer os.RemoveAll(dir)
	engine, err := logtree.Open(filepath.Join(dir, "orders"), holdfast.Options{})
	check(err)
	bucket, err := backup.MakeBucket(ctx, "file://"+filepath.Join(dir, "bucket"))
	check(err)
	defer bucket.Close()
	b, err := backup.Start(engine, bucket, backup.Options{})
	check(err)

	var batch holdfast.Batch
	batch.Set([]byte("order-17"), []byte("placed"))
	check(holdfast.Commit(engine, &batch, holdfast.Power))
	check(b.Close(ctx)) // uploads what is left
	check(engine.Close())
	check(os.RemoveAll(filepath.Join(dir, "orders")))

	_, err = backup.Restore(ctx, bucket, filepath.Join(dir, "restored"), backup.RestoreOptions{})
	check(err)
	engine, err = logtree.Open(filepath.Join(dir, "restored"), holdfast.Options{})
	check(err)
	value, err := engine.Get(nil, []byte("order-17"))
	check(err)
	fmt.Println(string(value))
	check(engine.Close())
	// Output: placed
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
