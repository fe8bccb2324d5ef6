//go:build !windows && !386 && !arm

package contender

// bareMap is how many bytes etcd maps of a file at first: 10 GB.
const bareMap = 10 << 30
