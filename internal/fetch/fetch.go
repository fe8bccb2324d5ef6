// Package fetch is for stores that are about to get many keys: where each Get takes a round trip to a server, one is
// enough for all.
package fetch

import "github.com/holdfastdb/holdfast"

// Fetcher is what an engine is whose reads are slow.
type Fetcher interface {
	// Fetch reads keys, so that a Get of them soon after is fast. It is for speed alone: what goes wrong is the error of
	// the Gets.
	Fetch(keys [][]byte)
}

// Of returns what fetches for an engine, also for one that stands before another one; nil if reads are fast.
func Of(e holdfast.Engine) Fetcher {
	for {
		if f, ok := e.(Fetcher); ok {
			return f
		}
		before, ok := e.(interface{ Below() holdfast.Engine })
		if !ok {
			return nil
		}
		e = before.Below()
	}
}
