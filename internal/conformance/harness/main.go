// Command harness serves a Holdfast server behind a proxy with faults, for the tests of clients in other languages: see
// package conformance. Its argument is the program holdfast. It writes a line of JSON that says where all is, and ends
// when its standard input does.
package main

import (
	"fmt"
	"os"

	"github.com/holdfastdb/holdfast/internal/conformance"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: harness HOLDFAST")
		os.Exit(2)
	}
	if err := conformance.Serve(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
