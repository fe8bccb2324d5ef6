//go:build !unix

package db

// mostFiles is how many files are kept open for reading.
func mostFiles() int { return usualFiles }
