package console

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
)

// Build says which program this is. What is not known is empty.
type Build struct {
	Version  string `json:"version"`  // of the tag, or (devel)
	Commit   string `json:"commit"`   // that it was built from
	Time     string `json:"time"`     // of the commit
	Modified bool   `json:"modified"` // files were changed since the commit
	Program  string `json:"program"`  // SHA-256 of the executable: equal for the same program only
}

// Clean reports whether the sources are known: those of a commit or of a version, unchanged.
func (b Build) Clean() bool {
	return !b.Modified && (b.Commit != "" || strings.HasPrefix(b.Version, "v")) && !strings.HasSuffix(b.Version, "+dirty")
}

// ThisBuild is the program that runs.
var ThisBuild = sync.OnceValue(func() Build {
	b := Build{Version: "(devel)", Program: program()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}

	b.Version = cmp.Or(info.Main.Version, b.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}

	return b
})

// program is the sum of the executable, empty if it cannot be read.
func program() string {
	name, err := os.Executable()
	if err != nil {
		return ""
	}
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return ""
	}

	return hex.EncodeToString(sum.Sum(nil))
}
