// Package fixedseed makes the random tests of a package that imports it the same in each run: what fails, fails
// everywhere, and again. -rapid.seed=0 takes another seed each time.
package fixedseed

import (
	"flag"

	_ "pgregory.net/rapid" // defines the flag
)

func init() {
	if err := flag.Set("rapid.seed", "1"); err != nil {
		panic(err)
	}
}
