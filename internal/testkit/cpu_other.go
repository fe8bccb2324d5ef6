//go:build !unix

package testkit

import "testing"

// CPU reports nothing here.
func CPU(*testing.B) (report func(ops int)) { return func(int) {} }
