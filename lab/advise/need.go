package advise

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/bench"
)

const op console.Op = "advise"

// Need is what an engine is looked for.
type Need struct {
	Workload string // of bench
	Level    holdfast.Level
	Clients  int
}

// String is the need in words.
func (n Need) String() string {
	return fmt.Sprintf("%s that %s, with %s", n.Workload, n.Level.Survives(), console.Number(n.Clients, "client"))
}

// maxClients is what bench can be asked for.
const maxClients = 4096

// ParseNeed reads a need of words: a level (memory, process, power, quorum), a number of writers or clients, and what
// the work is, by words of the name or the description of a workload. Without a number it is one client, without a
// level power. Where several workloads have the words it is the first of the table that writes. Errors are
// ErrBadOption.
func ParseNeed(lab bench.Lab, text string) (Need, error) {
	need := Need{Level: holdfast.Power, Clients: 1}
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return unicode.IsSpace(r) || r == ',' || r == ';'
	})

	var work []string
	for i, word := range words {
		level := slices.IndexFunc(holdfast.Levels(), func(l holdfast.Level) bool { return l.String() == word })
		n, err := strconv.Atoi(word)
		switch {
		case level >= 0:
			need.Level = holdfast.Levels()[level]
		case err == nil && i+1 < len(words) && people(words[i+1]):
			if n < 1 || n > maxClients {
				return need, op.BadOption(fmt.Sprintf("%d clients", n), fmt.Sprintf("name 1 to %d", maxClients))
			}
			need.Clients = n
		case people(word):
		case slices.Contains([]string{"for", "that", "must", "survive", "survives", "with", "and", "the", "loss", "a"}, word):
		default:
			work = append(work, stem(word))
		}
	}

	var names []string
	for _, w := range lab.Workloads {
		if has(w.Name+" "+w.About, work) {
			names = append(names, w.Name)
			if !w.Reads && (need.Workload == "" || w.Name == strings.Join(work, " ")) {
				need.Workload = w.Name
			}
		}
	}

	switch {
	case len(work) == 0:
		return need, op.BadOption(fmt.Sprintf("%q says not what the work is", text), remedy)
	case len(names) == 0:
		return need, op.BadOption(fmt.Sprintf("no workload has the words %q", strings.Join(work, " ")), remedy)
	case need.Workload == "":
		return need, op.BadOption(fmt.Sprintf("%s only %s, and what reads survives nothing", console.List(names),
			map[bool]string{true: "reads", false: "read"}[len(names) == 1]), remedy)
	}

	return need, nil
}

const remedy = "say what the work is, like 'event append, power, 64 writers'; holdfast bench --list has the workloads"

func people(word string) bool {
	return slices.Contains([]string{"client", "clients", "writer", "writers"}, word)
}

// stem takes the plural off a word.
func stem(word string) string {
	if len(word) > 3 {
		word = strings.TrimSuffix(word, "s")
	}

	return word
}

func has(text string, words []string) bool {
	text = strings.ToLower(text)
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}

	return true
}
