package bbolt

import "github.com/holdfastdb/holdfast"

// OpenHeld is Open with hold called before what is committed at Power.
func OpenHeld(dir string, o holdfast.Options, hold func()) (holdfast.Engine, error) {
	e, err := Open(dir, o)
	if err == nil {
		e.(*engine).hold = hold
	}
	return e, err
}
