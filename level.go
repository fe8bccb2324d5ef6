package holdfast

import (
	"context"
	"fmt"
	"strings"
)

// Level is what a write survives. Levels are ordered: a stronger one survives
// all that a weaker one does. The zero Level means "not named": options take
// it as their default, Apply refuses it.
type Level uint8

const (
	// Memory: the program can read the write back; it dies with the process.
	Memory Level = iota + 1
	// Process: the operating system has the write. It survives kill -9, a panic
	// and the OOM killer, and may die with the machine.
	Process
	// Power: the device has the write. It survives a kernel crash and power loss.
	Power
	// Quorum: the devices of several machines have the write. It survives the loss of any one machine that keeps it,
	// its disk included, and a power cut of all of them. An engine on one machine refuses it.
	Quorum
)

// Levels lists the levels, weakest first.
func Levels() []Level { return []Level{Memory, Process, Power, Quorum} }

// String returns the level's name in lower case.
func (l Level) String() string {
	switch l {
	case 0:
		return "none"
	case Memory:
		return "memory"
	case Process:
		return "process"
	case Power:
		return "power"
	case Quorum:
		return "quorum"
	}

	return fmt.Sprintf("level(%d)", uint8(l))
}

// Survives says in a few words what a write at l survives.
func (l Level) Survives() string {
	switch l {
	case Memory:
		return "dies with the process"
	case Process:
		return "survives kill -9, not power loss"
	case Power:
		return "survives power loss"
	case Quorum:
		return "survives the loss of any one machine, and power loss"
	}

	return "names nothing"
}

// Valid reports whether l is one of the levels.
func (l Level) Valid() bool { return l >= Memory && l <= Quorum }

// levelNames lists the names of the levels, weakest first, for errors.
func levelNames() string {
	var names []string
	for _, l := range Levels() {
		names = append(names, l.String())
	}

	return strings.Join(names, ", ")
}

// ParseLevel returns the level of that name, in any case. The error is ErrLevel
// and lists the names.
func ParseLevel(name string) (Level, error) {
	for _, l := range Levels() {
		if strings.EqualFold(name, l.String()) {
			return l, nil
		}
	}

	return 0, &Error{
		Op:     "parse level",
		Class:  ErrLevel,
		Detail: fmt.Sprintf("%.40q is none of %s", name, levelNames()),
	}
}

// MarshalText writes the level's name; the zero level is the empty string.
func (l Level) MarshalText() ([]byte, error) {
	if l == 0 {
		return nil, nil
	}
	if !l.Valid() {
		return nil, &Error{Op: "encode level", Class: ErrLevel, Detail: l.String()}
	}

	return []byte(l.String()), nil
}

// UnmarshalText reads what MarshalText writes, and names in any case.
func (l *Level) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*l = 0
		return nil
	}
	parsed, err := ParseLevel(string(text))
	if err != nil {
		return err
	}
	*l = parsed

	return nil
}

type levelKey struct{}

// WithLevel returns a context under which a store writes at level, if that is stronger than the store's own. It is
// for a write that matters more than the others of its store. If the engine does not give the level, the write fails
// with ErrLevel. A weaker level has no effect: a crash that takes back a weak write would take it back from the
// store's followers, and give its place to another.
//
// The write's acknowledgement says that it survives what level names, and that all writes before it survive what
// theirs named. Readers of the store see it then and not earlier. Background work of a store stays at the store's
// level, and so do stores whose methods have no context.
func WithLevel(ctx context.Context, level Level) context.Context {
	if ctx == nil {
		return nil // which the store refuses
	}

	return context.WithValue(ctx, levelKey{}, level)
}

// LevelFrom returns the level that WithLevel has put into ctx if it is stronger than own, and otherwise own. It is for
// stores: they apply each write at it. It does not check the level, and allocates nothing.
func LevelFrom(ctx context.Context, own Level) Level {
	if ctx == nil {
		return own
	}
	if level, ok := ctx.Value(levelKey{}).(Level); ok {
		return max(level, own)
	}

	return own
}
