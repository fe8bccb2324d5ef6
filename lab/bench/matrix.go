package bench

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// MatrixRow is what the closing table says of an engine.
type MatrixRow struct {
	Engine    string
	Checksums string // on all that is read: yes or no, ? if this build does not know the engine
	Cgo       string // yes, no, "own process" or ?
	// How many times the lowest of its table, the median over the tables in which it has company; 0 where there is none.
	// Disk is bytes for an item after closing.
	P999, Disk float64
	Memory     int64 // most resident bytes in any measurement's median, -1 if not known
}

// Matrix is the closing table of reports: a row for each engine that has a summary, in the order of the plans.
func (l Lab) Matrix(reports ...*Report) (list []MatrixRow) {
	p999, disk := map[string][]float64{}, map[string][]float64{}
	memory := map[string]int64{}
	var order []string
	for _, r := range reports {
		for _, engine := range r.Plan.Engines {
			if !reference(engine) && !slices.Contains(order, engine) {
				order = append(order, engine)
			}
		}

		for _, g := range l.Groups(r) {
			shares(p999, g, func(row Row) float64 {
				if row.Overloaded > 0 {
					return 0
				}

				return row.Latency.P999
			})
			if !g.Reads {
				shares(disk, g, func(row Row) float64 { return float64(row.DiskBytes) / float64(max(row.Items, 1)) })
			}

			for _, row := range g.Rows {
				if known, ok := memory[row.Engine]; !ok || known < row.PeakRSS {
					memory[row.Engine] = row.PeakRSS
				}
			}
		}
	}

	for _, engine := range order {
		most, ok := memory[engine]
		if !ok {
			continue
		}
		row := MatrixRow{Engine: engine, P999: measure.Middle(p999[engine]), Disk: measure.Middle(disk[engine]),
			Memory: most}
		row.Checksums, row.Cgo = l.facts(engine)
		list = append(list, row)
	}

	return list
}

// shares adds for each engine how many times the lowest of a group its value is. What is not above 0 is not known.
func shares(to map[string][]float64, g Group, value func(Row) float64) {
	lowest, n := 0.0, 0
	for _, row := range g.Rows {
		if v := value(row); v > 0 && !row.Reference {
			if n++; n == 1 || v < lowest {
				lowest = v
			}
		}
	}

	for _, row := range g.Rows {
		if v := value(row); v > 0 && !row.Reference && n > 1 {
			to[row.Engine] = append(to[row.Engine], v/lowest)
		}
	}
}

// cgoLibraries are those that need a C compiler.
var cgoLibraries = []string{"github.com/mattn/go-sqlite3"}

// facts says of an engine whether it checks all that it reads, and whether it needs cgo.
func (l Lab) facts(engine string) (checksums, cgo string) {
	e, err := l.engine(engine)
	if err != nil {
		return "?", "?"
	}
	yes := map[bool]string{true: "yes", false: "no"}
	have, p := e.Describe(), l.peer(engine)
	cgo = yes[slices.ContainsFunc(cgoLibraries, func(library string) bool {
		return strings.Contains(have.Library, library)
	})]
	if p.Server || p.OneClient {
		cgo = "own process"
	}

	return yes[have.Checksums], cgo
}

// MatrixHead are the columns of the closing table, and [MatrixRow.Cells] are those of a row.
func MatrixHead() []string {
	return []string{"engine", "checksums on read", "p99.9", "memory", "disk", "cgo"}
}

// Cells implements what [MatrixHead] says.
func (m MatrixRow) Cells() []string {
	times := func(x float64) string {
		if x == 0 {
			return "-"
		}

		return measure.Digits(x) + "x"
	}

	return []string{m.Engine, m.Checksums, times(m.P999), measure.Size(m.Memory), times(m.Disk), m.Cgo}
}

// MatrixNote explains the closing table.
const MatrixNote = "p99.9, and disk for an item after closing: how many times the lowest of its table, the median " +
	"over the tables with several engines; 1x is the lowest of all of them. Memory: the most of all tables, what the " +
	"harness needs included. Checksums: on all that is read. No claim is made of differences here."

// matrix writes the closing table, of several engines.
func (s screen) matrix(l Lab, r *Report) {
	rows := l.Matrix(r)
	if len(rows) < 2 || r.Partial != "" {
		return
	}

	t := console.Table{Keys: 1}
	for i, name := range MatrixHead() {
		t.Columns = append(t.Columns, console.Column{Name: name, Right: slices.Contains([]int{2, 3, 4}, i)})
	}
	slices.SortStableFunc(rows, func(a, b MatrixRow) int { return cmp.Compare(a.P999, b.P999) })

	for _, row := range rows {
		t.Row("", row.Cells()...)
	}
	s.Titled("the engines side by side", &t)
	s.Wrapped("  ", MatrixNote+" What crashes did to them: holdfast crash --json CRASH.json, and holdfast report with "+
		"both files.")
}
