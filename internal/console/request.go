package console

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/holdfastdb/holdfast"
)

// Exit is the exit status of a command for an error.
type Exit struct {
	Err    error
	Status int
}

// Status is the exit status for the error of a run. An interrupt comes first, then the command's own, in their order.
func Status(err error, own ...Exit) int {
	if err == nil {
		return ExitOK
	}

	all := slices.Concat([]Exit{{ErrInterrupted, ExitInterrupted}}, own, []Exit{{ErrIncomplete, ExitIncomplete}})
	for _, exit := range all {
		if errors.Is(err, exit.Err) {
			return exit.Status
		}
	}

	return ExitUse
}

// Op is the name of a command, for the errors that say what is wrong with a request. All are ErrBadOption.
type Op string

// BadOption says what is wrong, and what to do.
func (op Op) BadOption(detail, remedy string) error {
	return &holdfast.Error{Op: string(op), Class: holdfast.ErrBadOption, Detail: detail, Remedy: remedy}
}

// Unknown says that there is nothing of that name, and lists what there is.
func (op Op) Unknown(kind, name string, names []string) error {
	return op.BadOption(fmt.Sprintf("there is no %s %q", kind, name),
		fmt.Sprintf("the %s are %s", plural(kind), strings.Join(names, ", ")))
}

// Choose returns the names that match a pattern, in the order of names. always are right as well, and chosen by the
// command in any case.
func (op Op) Choose(kind string, patterns, names []string, always ...string) ([]string, error) {
	chosen := map[string]bool{}
	for _, pattern := range patterns {
		found := slices.Contains(always, pattern)
		for _, name := range names {
			ok, err := path.Match(pattern, name)
			if err != nil {
				return nil, op.BadOption(fmt.Sprintf("%s pattern %q: %v", kind, pattern, err), "patterns are like 'event/*'")
			}
			if ok {
				found, chosen[name] = true, true
			}
		}
		if !found {
			return nil, op.Unknown(kind, pattern, names)
		}
	}
	if len(chosen) == 0 {
		return nil, op.BadOption("no "+kind+" but "+strings.Join(always, " and ")+", which are always measured",
			fmt.Sprintf("the %s are %s", plural(kind), strings.Join(names, ", ")))
	}

	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !chosen[name] }), nil
}

// Flag writes a flag with its values for a command line that repeats a run; nothing if there are none.
func Flag[T any](name string, values ...T) string {
	var list []string
	for _, v := range values {
		list = append(list, fmt.Sprint(v))
	}

	text := strings.Join(list, ",")
	switch {
	case text == "":
		return ""
	case strings.IndexFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/-_.:,+%", r)
	}) >= 0: // patterns, and what a shell would run
		text = "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}

	return " --" + name + " " + text
}

// FlagOf is Flag with one value, or none.
func FlagOf[T any](name string, value *T) string {
	if value == nil {
		return ""
	}

	return Flag(name, *value)
}

// List writes a, b and c.
func List(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1

	return strings.Join(names[:last], ", ") + " and " + names[last]
}
