//go:build amd64 || arm64

package format

// IntoCache has the processor load memory into its cache, without waiting for it. Where that cannot be touched, as a
// mapping of a file that was cut short, nothing happens.
func IntoCache(b []byte) {
	if len(b) > 0 {
		prefetch(&b[0], len(b))
	}
}

//go:noescape
func prefetch(p *byte, n int)
