// Package console is what the commands of the lab have in common for users: how a request is read and what is wrong
// with it, exit statuses, text and tables that fit the terminal, a line of progress, and reports as JSON.
package console

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/mattn/go-isatty"
)

// What a run of any command can end with, in addition to errors of its own.
var (
	// ErrInterrupted: the context ended before the run did.
	ErrInterrupted = errors.New("interrupted")
	// ErrIncomplete: the run broke off, or a part of it could not be done, for a reason that is not in what it
	// examines.
	ErrIncomplete = errors.New("the run is incomplete")
)

// The exit statuses of the commands of the lab.
const (
	ExitOK          = 0
	ExitUse         = 1   // it was used wrongly, or could not begin
	ExitWrong       = 2   // a result failed verification, or a claim is broken
	ExitControl     = 3   // crash: a control was not found out
	ExitRegression  = 3   // compare: a regression is shown
	ExitCannot      = 4   // this machine cannot do what was asked for
	ExitIncomplete  = 5   // [ErrIncomplete]
	ExitInterrupted = 130 // as a shell has it for SIGINT
)

// Terminal is where a command writes.
type Terminal struct {
	Out, Err io.Writer
	// OutWidth and ErrWidth return the number of columns, 0 where the writer is no terminal. nil is never a terminal.
	OutWidth, ErrWidth func() int
	// PlainWidth is the number of columns of text where there is no terminal, 0 for 120.
	PlainWidth int
	// Color permits colours, on terminals.
	Color bool
}

// Standard is the standard output and error of this process. The variables NO_COLOR and TERM=dumb switch colours off;
// COLUMNS is the width of what goes to a file or a pipe.
func Standard() Terminal {
	width := func(f *os.File) func() int {
		if !isatty.IsTerminal(f.Fd()) && !isatty.IsCygwinTerminal(f.Fd()) {
			return nil
		}

		return func() int { return columns(f) }
	}
	plain, _ := strconv.Atoi(os.Getenv("COLUMNS"))

	return Terminal{
		PlainWidth: max(plain, 0), Out: os.Stdout, Err: os.Stderr, OutWidth: width(os.Stdout), ErrWidth: width(os.Stderr),
		Color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
}

const (
	defaultColumns = 80  // of a terminal that does not tell its width
	plainColumns   = 120 // where there is no terminal, nor COLUMNS
)

// Screen returns the standard output for text, as wide as it is now.
func (t Terminal) Screen() Screen {
	s := Screen{W: t.Out, Width: widthOf(t.OutWidth), Color: t.Color}
	if s.Width == 0 {
		s.Width, s.Color = cmp.Or(t.PlainWidth, plainColumns), false
	}

	return s
}

func widthOf(width func() int) int {
	if width == nil {
		return 0
	}

	return width()
}

// Output keeps the first error of W, and writes nothing more then, so that a command that has more to do than to show
// text can go on, and tell at its end that not all was shown.
type Output struct {
	W io.Writer

	mu  sync.Mutex
	err error
}

// Write implements [io.Writer].
func (o *Output) Write(p []byte) (n int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		n, o.err = o.W.Write(p)
	}

	return n, o.err
}

// Err returns that error.
func (o *Output) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.err
}

// Screen shows text to people. Errors of writing are ignored: a reader may go away, and the command has more to do
// than to show. Whoever must know of them writes to an [Output].
type Screen struct {
	W        io.Writer
	Width    int // columns
	Color    bool
	Markdown bool // text is Markdown: tables are not folded, nor lines
}

// Style is an ANSI rendition.
type Style string

// The styles. The zero value is plain text.
const (
	Bold  Style = "1"
	Dim   Style = "2"
	Red   Style = "31"
	Green Style = "32"
)

// Paint returns text in a style, where the screen has colours.
func (s Screen) Paint(style Style, text string) string {
	if s.Markdown && style == Bold && text != "" {
		return "**" + text + "**\n"
	}
	if !s.Color || text == "" || style == "" {
		return text
	}

	return "\x1b[" + string(style) + "m" + text + "\x1b[0m"
}

// Printf writes text as it is.
func (s Screen) Printf(format string, args ...any) { fmt.Fprintf(s.W, format, args...) }

// Partial says above a report why it is not all that was planned.
func (s Screen) Partial(why string) {
	s.Printf("\n")
	s.Wrapped(s.Paint(Red, "PARTIAL:")+" ", why+".")
}

// Wrapped writes first and rest within the width, with later lines indented by 4.
func (s Screen) Wrapped(first, rest string) { s.Hanging(first, rest, 4) }

// Hanging is Wrapped with another indentation of the later lines.
func (s Screen) Hanging(first, rest string, indent int) {
	if s.Markdown {
		s.Printf("%s%s\n\n", strings.TrimSpace(first)+" ", strings.Join(strings.Fields(rest), " "))
		return
	}

	line, empty := first, true
	for _, word := range strings.Fields(rest) {
		if !empty && columnsOf(line)+1+columnsOf(word) > s.Width {
			s.Printf("%s\n", strings.TrimRight(line, " "))
			line, empty = strings.Repeat(" ", indent), true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	s.Printf("%s\n", strings.TrimRight(line, " "))
}

func columnsOf(s string) int { return text.StringWidthWithoutEscSequences(s) }

// Column is a column of a [Table].
type Column struct {
	Name  string // a column without a name is left out
	Right bool   // aligned
	Wrap  int    // columns of the terminal from which on its cells are wrapped, 0 for never
}

// Table is a table whose first Keys columns say what a row is about.
type Table struct {
	Columns []Column
	Keys    int
	rows    []tableRow
}

type tableRow struct {
	styles []Style
	cells  []string
}

// Columns makes a table of columns with these names. Those whose names end in # are aligned to the right, for numbers.
func Columns(keys int, names ...string) *Table {
	t := &Table{Keys: keys}
	for _, name := range names {
		short, right := strings.CutSuffix(name, "#")
		t.Columns = append(t.Columns, Column{Name: short, Right: right})
	}

	return t
}

// Row adds a row in a style.
func (t *Table) Row(style Style, cells ...string) {
	t.rows = append(t.rows, tableRow{slices.Repeat([]Style{style}, len(cells)), cells})
}

// PaintLast paints one cell of the last row.
func (t *Table) PaintLast(column int, style Style) { t.rows[len(t.rows)-1].styles[column] = style }

// Rows returns the number of rows.
func (t *Table) Rows() int { return len(t.rows) }

// Title writes a title, behind an empty line and within the width.
func (s Screen) Title(title string) {
	s.Printf("\n")
	if s.Markdown {
		s.Printf("%s\n", s.Paint(Bold, title))
		return
	}
	s.Hanging("", s.Paint(Bold, title), 2)
}

// Titled writes t below its title. A table without rows is left out, and false is returned.
func (s Screen) Titled(title string, t *Table) bool {
	if t.Rows() == 0 {
		return false
	}
	s.Title(title)
	s.Table(t)

	return true
}

// tableGap is between two columns, and before the first.
const tableGap = 2

// Table writes t. If it is wider than the screen it is folded: the columns for which there is no room follow in a
// second table, behind the keys again, and so on.
func (s Screen) Table(t *Table) {
	var keys, block []int
	width, keysWidth := 0, 0
	first := true

	flush := func() {
		if !first {
			s.Printf("\n")
		}
		first = false
		s.block(t, keys, block)
		block, width = nil, keysWidth
	}
	for i, c := range t.Columns {
		if c.Name == "" {
			continue
		}
		w := tableGap + t.width(i)
		if i < t.Keys {
			keys, keysWidth = append(keys, i), keysWidth+w
			width = keysWidth
			continue
		}
		if len(block) > 0 && width+w > s.Width && !s.Markdown {
			flush()
		}
		block, width = append(block, i), width+w
	}
	flush()
}

// width is how wide the table's column i becomes.
func (t *Table) width(i int) int {
	w := 0
	for _, row := range t.rows {
		w = max(w, columnsOf(row.cells[i]))
	}
	if wrap := t.Columns[i].Wrap; wrap > 0 {
		w = min(w, wrap)
	}

	return max(w, columnsOf(t.Columns[i].Name))
}

// block writes the keys and some columns of t, without the rows that have nothing there.
func (s Screen) block(t *Table, keys, columns []int) {
	w := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = strings.Repeat(" ", tableGap), ""
	style.Format.Header = text.FormatDefault
	w.SetStyle(style)
	w.SuppressTrailingSpaces()

	header := table.Row{}
	var configs []table.ColumnConfig
	all := slices.Concat(keys, columns)
	for at, i := range all {
		c := t.Columns[i]
		header = append(header, c.Name)
		config := table.ColumnConfig{Number: at + 1, WidthMax: c.Wrap, WidthMaxEnforcer: text.WrapSoft}
		if c.Right {
			config.Align, config.AlignHeader = text.AlignRight, text.AlignRight
		}
		configs = append(configs, config)
	}
	w.AppendHeader(header)

	for _, row := range t.rows {
		cells := table.Row{}
		if !slices.ContainsFunc(columns, func(i int) bool { return row.cells[i] != "" }) {
			continue
		}

		for _, i := range all {
			cells = append(cells, s.Paint(row.styles[i], row.cells[i]))
		}
		w.AppendRow(cells)
	}
	w.SetColumnConfigs(configs)
	if s.Markdown {
		s.Printf("%s\n\n", w.RenderMarkdown())
		return
	}
	s.Printf("%s\n", w.Render())
}

// Plain is text of others without characters that control a terminal.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}

		return r
	}, text)
}

// Number writes 1 engine, 2 engines, 2 crashes.
func Number(n int, noun string) string {
	if n != 1 {
		noun = plural(noun)
	}

	return fmt.Sprintf("%d %s", n, noun)
}

// plural is the plural of a noun.
func plural(noun string) string {
	for _, end := range []string{"sh", "ch", "ss"} {
		if strings.HasSuffix(noun, end) {
			return noun + "es"
		}
	}

	return noun + "s"
}
