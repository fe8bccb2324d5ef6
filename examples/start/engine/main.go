// Engine opens a directory with any engine, by an address such as pebble:my-data, and says what that engine gives.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
)

func main() {
	address := "logtree:engine-data" // or pebble:, badger:, bbolt:, sqlite:, sqlite-go:, files:, mem:
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	engine, err := all.OpenURL(address)
	if err != nil {
		log.Fatal(err)
	}

	can := engine.Capabilities()
	for _, level := range can.Levels() { // ask before you rely on it
		promise := can.Promise(level)
		fmt.Printf("%s at %v gives %v: %s\n", can.Engine, level, promise.Given, promise.How)
	}

	var batch holdfast.Batch // all of it or nothing
	batch.Set([]byte("order/17"), []byte("3 apples"))
	batch.Set([]byte("order/18"), []byte("1 pear"))
	receipt, err := engine.Apply(&batch, can.Strongest()) // its place among all others is fixed
	if err != nil {
		log.Fatal(err)
	}
	if err := receipt.Wait(); err != nil { // it, and all before it, survive what the level names
		log.Fatal(err)
	}

	it := engine.Scan(holdfast.Prefix([]byte("order/")))
	for it.Next() {
		fmt.Printf("%s %s\n", it.Key(), it.Value())
	}
	if err := errors.Join(it.Close(), engine.Close()); err != nil {
		log.Fatal(err)
	}
}
