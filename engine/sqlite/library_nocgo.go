//go:build !cgo

package sqlite

import "github.com/holdfastdb/holdfast"

// Open returns ErrUnavailable: this program was built without cgo. [OpenGo] opens the same
// directories.
func Open(dir string, o holdfast.Options) (holdfast.Engine, error) { return OpenWith(dir, o, Tuning{}) }

// OpenWith returns ErrUnavailable, as [Open] does.
func OpenWith(dir string, _ holdfast.Options, _ Tuning) (holdfast.Engine, error) {
	return nil, &holdfast.Error{Op: "open", Engine: Name, Path: dir, Class: holdfast.ErrUnavailable,
		Detail: "this program was built without cgo",
		Remedy: "use engine " + NameGo + ", which opens the same directories, or build with CGO_ENABLED=1 and a C compiler"}
}

// Describe says that this program has no such engine.
func Describe() holdfast.Capabilities {
	c := describe(Name, module)
	refused := holdfast.Promise{Why: "built without cgo"}
	c.Memory, c.Process, c.Power = refused, refused, refused
	return c
}
