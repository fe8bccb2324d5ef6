//go:build !unix

package bare

// tryLock locks nothing: where a file is in use, copying it fails.
func tryLock(string) (release func(), free bool, err error) { return func() {}, true, nil }
