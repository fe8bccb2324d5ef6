package sqlite

import "github.com/holdfastdb/holdfast"

// Held is open with hold called before what is committed at Power.
func Held(open func(string, holdfast.Options) (holdfast.Engine, error), dir string, o holdfast.Options,
	hold func()) (holdfast.Engine, error) {
	e, err := open(dir, o)
	if err == nil {
		e.(*engine).hold = hold
	}
	return e, err
}
