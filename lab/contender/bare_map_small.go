//go:build windows || 386 || arm

package contender

// bareMap is 0 where a mapping would make the file as long, or there is no room for it.
const bareMap = 0
