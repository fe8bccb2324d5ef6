package holdfast_test

import (
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
)

// One atomic batch, at the level it must survive.
func Example() {
	dir, err := os.MkdirTemp("", "holdfast-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	engine, err := logtree.Open(dir, holdfast.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()

	var batch holdfast.Batch
	batch.Set([]byte("account/alice"), []byte("90"))
	batch.Set([]byte("account/bob"), []byte("110"))
	if err := holdfast.Commit(engine, &batch, holdfast.Power); err != nil {
		log.Fatal(err)
	}

	balance, err := engine.Get(nil, []byte("account/bob"))
	fmt.Printf("%s %v\n", balance, err)
	// Output: 110 <nil>
}

// Apply fixes the order, Wait waits for the device: a program can prepare the next batch
// while the last one is being synced, and many goroutines share one sync.
func ExampleEngine_apply() {
	engine := mem.New()
	defer engine.Close()

	var receipts []holdfast.Receipt
	var batch holdfast.Batch
	for i := range 3 {
		batch.Reset()
		batch.Set(fmt.Appendf(nil, "key-%d", i), []byte("value"))
		r, err := engine.Apply(&batch, holdfast.Memory)
		if err != nil {
			log.Fatal(err)
		}
		receipts = append(receipts, r)
	}
	// Waiting for the last one is enough: it covers all before it.
	fmt.Println(receipts[2].Wait())
	// Output: <nil>
}

// Scanning a range backwards.
func ExampleReader_scan() {
	engine := mem.New()
	defer engine.Close()
	var batch holdfast.Batch
	for _, key := range []string{"a", "b/1", "b/2", "c"} {
		batch.Set([]byte(key), []byte("value of "+key))
	}
	if err := holdfast.Commit(engine, &batch, holdfast.Memory); err != nil {
		log.Fatal(err)
	}

	it := engine.Scan(holdfast.Range{Lo: []byte("b/"), Hi: []byte("b0"), Reverse: true})
	defer it.Close()
	for it.Next() {
		fmt.Printf("%s = %s\n", it.Key(), it.Value())
	}
	if err := it.Err(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// b/2 = value of b/2
	// b/1 = value of b/1
}

// An engine refuses a level that it cannot give, instead of giving less.
func ExampleCapabilities_CheckLevel() {
	engine := mem.New()
	defer engine.Close()

	var batch holdfast.Batch
	batch.Set([]byte("key"), []byte("value"))
	_, err := engine.Apply(&batch, holdfast.Power)
	fmt.Println(errors.Is(err, holdfast.ErrLevel))
	fmt.Println(err)
	// Output:
	// true
	// mem apply: level not available: power: it keeps nothing outside the process; ask for memory
}
