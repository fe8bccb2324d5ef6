// Package modversion says which version of a module this program was built with.
package modversion

import (
	"runtime/debug"
	"sync"
)

var modules = sync.OnceValue(func() map[string]string {
	found := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			for m.Replace != nil {
				m = m.Replace
			}
			found[m.Path] = m.Version
		}
	}

	return found
})

// Version returns "PATH VERSION" for a module, or the path alone where the build does not
// tell.
func Version(path string) string {
	if v := modules()[path]; v != "" {
		return path + " " + v
	}

	return path
}
