package report

import (
	"fmt"
	"io"
	"time"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

const op console.Op = "report"

// Command reads reports and writes their page to a file, "-" for standard output. Without one it shows the answers and
// the modelled rates as text. The error is ErrReport or ErrMixed if the reports are not what can be shown.
func Command(lab bench.Lab, paths []string, out string, o Options, t console.Terminal) error {
	sources, err := Load(paths, o.Mixed)
	if err != nil {
		return err
	}
	doc, err := compose(lab, sources, o)
	if err != nil {
		return err
	}
	if out == "" {
		text(t.Screen(), doc)
		return nil
	}
	file, err := t.OpenOutput(string(op), "-o", out, paths...)
	if err != nil {
		return err
	}

	return file.Fill(func(w io.Writer) error { return Write(w, lab, sources, o) })
}

// SyncCosts are the costs of a sync that were asked for, as options have them; nil if none were. They must be above 0.
func SyncCosts(list []time.Duration) ([]float64, error) {
	var costs []float64
	for _, d := range list {
		if d <= 0 || d > time.Minute {
			return nil, op.BadOption(fmt.Sprintf("a sync cannot cost %v", d), "name times like 100us or 5ms, up to a minute")
		}
		costs = append(costs, measure.Micros(d))
	}

	return costs, nil
}

// text shows what the document says first, and what it models.
func text(s console.Screen, d *document) {
	for _, n := range d.Notices {
		s.Wrapped(map[string]string{"bad": "do not rely on this: "}[n.Class], console.Plain(n.Text))
	}

	for _, a := range d.Answers {
		s.Printf("\n")
		s.Hanging("", s.Paint(console.Bold, console.Plain(a.Question)), 2)

		for _, l := range a.Lines {
			for _, r := range l.Rates {
				s.Hanging("  ", console.Plain(fmt.Sprintf("%s (%s)", r.Rate, r.Level)), 4)
			}
			s.Hanging("    ", console.Plain(l.Said)+".", 4)
			if l.Detail != "" {
				s.Hanging("    ", console.Plain(l.Detail), 4)
			}
		}
	}

	for _, sec := range d.Sections {
		for _, part := range sec.Parts {
			for _, p := range part.Plots {
				if p.Kind != kindModelled {
					continue
				}
				s.Titled(console.Plain("if a sync cost more, modelled: "+sec.Title+", "+p.Title), textTable(p.Table))
				s.Wrapped("", p.Note)
			}
		}
	}
	if d.Engines != nil {
		s.Titled("the engines side by side", textTable(d.Engines.Table))
		s.Wrapped("", bench.MatrixNote)
	}
}

// textTable is a table of the page as one of text.
func textTable(of table) *console.Table {
	t := &console.Table{Keys: min(of.Text, 1)}
	for i, head := range of.Head {
		t.Columns = append(t.Columns, console.Column{Name: head, Right: i >= of.Text, Wrap: textWrap})
	}

	for _, row := range of.Rows {
		var cells []string
		for _, cell := range row {
			cells = append(cells, console.Plain(cell))
		}
		t.Row("", cells...)
	}

	return t
}

// textWrap is from how many columns on the cells of tables in text are wrapped.
const textWrap = 36
