package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
)

func example() *Table {
	t := &Table{Keys: 2, Columns: []Column{
		{Name: "engine"}, {Name: "level"}, {Name: "cuts", Right: true}, {Name: ""}, {Name: "lost", Right: true},
		{Name: "says", Wrap: 12},
	}}
	t.Row("", "pebble", "power", "20", "hidden", "-", "as documented")
	t.Row(Dim, "logtree", "process", "5", "hidden", "123456", "")
	return t
}

// TestTableFolds: what there is no room for follows below, behind the same keys; a column without a name is left out.
func TestTableFolds(t *testing.T) {
	for width, want := range map[int]string{
		80: `
  engine   level    cuts    lost  says
  pebble   power      20       -  as
                                  documented
  logtree  process     5  123456
`,
		46: `
  engine   level    cuts    lost  says
  pebble   power      20       -  as
                                  documented
  logtree  process     5  123456
`,
		35: `
  engine   level    cuts    lost
  pebble   power      20       -
  logtree  process     5  123456

  engine  level  says
  pebble  power  as
                 documented
`,
		1: `
  engine   level    cuts
  pebble   power      20
  logtree  process     5

  engine   level      lost
  pebble   power         -
  logtree  process  123456

  engine  level  says
  pebble  power  as
                 documented
`,
	} {
		var out bytes.Buffer
		Screen{W: &out, Width: width}.Table(example())
		if got := "\n" + out.String(); got != want {
			t.Errorf("%d columns:%s", width, got)
		}
	}
}

// TestColorsTakeNoRoom: a painted table has the same columns.
func TestColorsTakeNoRoom(t *testing.T) {
	var plain, painted bytes.Buffer
	Screen{W: &plain, Width: 40}.Table(example())
	Screen{W: &painted, Width: 40, Color: true}.Table(example())
	bare := strings.NewReplacer("\x1b[2m", "", "\x1b[0m", "").Replace(painted.String())
	if bare != plain.String() || !strings.Contains(painted.String(), "\x1b[2m") {
		t.Errorf("%q\n%q", bare, plain.String())
	}
}

func TestWrapped(t *testing.T) {
	var out bytes.Buffer
	Screen{W: &out, Width: 20, Color: true}.Wrapped("\x1b[31mfirst:\x1b[0m ",
		"one two three averylongwordwithoutblanks four")
	const want = "\x1b[31mfirst:\x1b[0m one two three\n    averylongwordwithoutblanks\n    four\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// TestColumns: what is not shown on a terminal is as wide as COLUMNS says.
func TestColumns(t *testing.T) {
	for columns, want := range map[string]int{"80": 80, "": plainColumns, "wide": plainColumns, "-1": plainColumns} {
		t.Setenv("COLUMNS", columns)
		terminal := Standard()
		terminal.OutWidth = nil // wherever the test itself writes to
		if got := terminal.Screen().Width; got != want {
			t.Errorf("COLUMNS=%s: %d columns, want %d", columns, got, want)
		}
	}
}

// TestReportFile: a file is a whole report at any time, replaced by the next one, and other files stay as they are.
func TestReportFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "report.json")
	if err := os.WriteFile(name, []byte("an older one"), 0o600); err != nil {
		t.Fatal(err)
	}
	holds := func(want string) {
		t.Helper()
		text, err := os.ReadFile(name)
		if err != nil || string(text) != want {
			t.Errorf("%q, %v", text, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("%v, %v", entries, err)
		}
	}
	var out bytes.Buffer
	terminal := Terminal{Out: &out, Err: &out}
	f, err := terminal.OpenReport("bench", name)
	if err != nil {
		t.Fatal(err)
	}
	holds("an older one")
	f.Checkpoint(func() any { return map[string]int{"a": 1} })
	holds("{\n  \"a\": 1\n}\n")
	if err := f.Write([]int{2}); err != nil {
		t.Fatal(err)
	}
	holds("[\n  2\n]\n")
	if out.Len() > 0 {
		t.Errorf("it wrote %q to the terminal", out.String())
	}
}

// TestCheckpointsTakeATwentieth of the time, whatever a report takes to make.
func TestCheckpointsTakeATwentieth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var terminal Terminal
		f, err := terminal.OpenReport("bench", filepath.Join(t.TempDir(), "report.json"))
		if err != nil {
			t.Fatal(err)
		}
		made := 0
		for range 1000 {
			f.Checkpoint(func() any {
				made++
				time.Sleep(time.Second)
				return made
			})
			time.Sleep(time.Second)
		}
		if made < 50 || made > 55 {
			t.Errorf("%d checkpoints of 1 s in 1000 s", made)
		}
	})
}

func TestReportGoesElsewhere(t *testing.T) {
	var out, err bytes.Buffer
	terminal := Terminal{Out: &out, Err: &err, OutWidth: func() int { return 5 }}
	f, failure := terminal.OpenReport("bench", "-")
	if failure != nil {
		t.Fatal(failure)
	}
	terminal.Screen().Printf("a table\n")
	f.Checkpoint(func() any { return 1 })
	if failure := f.Write(2); failure != nil || out.String() != "2\n" || err.String() != "a table\n" {
		t.Errorf("%v, %q, %q", failure, out.String(), err.String())
	}
	if f, failure = terminal.OpenReport("bench", os.DevNull); failure != nil {
		t.Fatal(failure)
	}
	if failure := f.Write(2); failure != nil {
		t.Error(failure)
	}
	for _, name := range []string{t.TempDir(), filepath.Join(t.TempDir(), "gone", "x")} {
		_, failure := terminal.OpenReport("bench", name)
		if !errors.Is(failure, holdfast.ErrBadOption) || !strings.Contains(failure.Error(), "--json") ||
			strings.Count(failure.Error(), name) != 1 {
			t.Errorf("%s: %v", name, failure)
		}
	}
	f, failure = terminal.OpenReport("bench", "")
	if failure != nil {
		t.Fatal(failure)
	}
	if failure := f.Write(make(chan int)); failure != nil {
		t.Errorf("it was written somewhere: %v", failure)
	}
}

// TestOutputReplacesNoOther: a file that another flag names, or that is read, is not written over, by any name.
func TestOutputReplacesNoOther(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := errors.Join(os.WriteFile("a.json", []byte("{}"), 0o644), os.Symlink("a.json", "link"),
		os.Symlink(".", "here")); err != nil {
		t.Fatal(err)
	}
	var terminal Terminal
	for _, pair := range [][2]string{{"a.json", "a.json"}, {"./a.json", "a.json"}, {"link", "a.json"}, {"new", "new"},
		{"here/new", "./new"}} {
		_, err := terminal.OpenFiles("crash", Files{JSON: pair[1], HTML: pair[0]})
		if !errors.Is(err, holdfast.ErrBadOption) || !strings.Contains(err.Error(), "would be replaced") ||
			!strings.Contains(err.Error(), "--html") {
			t.Errorf("%s over %s: %v", pair[0], pair[1], err)
		}
	}
	for _, pair := range [][2]string{{"new", "a.json"}, {"a.json", ""}, {"new", "newer"}, {os.DevNull, "-"}} {
		if _, err := terminal.OpenFiles("crash", Files{JSON: pair[1], HTML: pair[0]}); err != nil {
			t.Errorf("%s beside %s: %v", pair[0], pair[1], err)
		}
	}
}

// TestReportBehindALink: the file is written to which the link leads, and the link stays.
func TestReportBehindALink(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := errors.Join(os.Mkdir("there", 0o755), os.WriteFile("there/a.json", []byte("{}"), 0o644),
		os.Symlink("there/a.json", "link")); err != nil {
		t.Fatal(err)
	}
	var terminal Terminal
	f, err := terminal.OpenReport("bench", "link")
	if err == nil {
		err = f.Write(1)
	}
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Lstat("link")
	if err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", st.Mode(), err)
	}
	if text, err := os.ReadFile("there/a.json"); err != nil || string(text) != "1\n" {
		t.Errorf("there is %q, %v", text, err)
	}
}

// TestReportThatCannotBeWritten leaves the file as it was.
func TestReportThatCannotBeWritten(t *testing.T) {
	name := filepath.Join(t.TempDir(), "report.json")
	var terminal Terminal
	f, err := terminal.OpenReport("bench", name)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write(1); err != nil {
		t.Fatal(err)
	}
	var unsupported *json.UnsupportedTypeError
	if err := f.Write(make(chan int)); !errors.As(err, &unsupported) || !strings.Contains(err.Error(), name) {
		t.Errorf("%v", err)
	}
	if entries, err := os.ReadDir(filepath.Dir(name)); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != "1\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestProgressRedraws each second while a step lasts, and takes the line away.
func TestProgressRedraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := Terminal{Err: &out, ErrWidth: func() int { return 8 }}.Progress()
		p.Printf("only elsewhere")
		n := 0
		p.Show(func() string {
			n++
			return strings.Repeat("x", n)
		})
		time.Sleep(2500 * time.Millisecond)
		p.Show(func() string { return "0123456789" })
		p.Say("%d done", 5)
		p.End()
		if want := "|x|xx|xxx|0123456|5 done\n|0123456|"; strings.ReplaceAll(out.String(), clearLine, "|") != want {
			t.Errorf("%q", out.String())
		}
	})
	var out bytes.Buffer
	p := Terminal{Err: &out}.Progress()
	p.Show(func() string { return "only on a terminal" })
	p.Printf("%d done", 5)
	p.End()
	if out.String() != "5 done\n" {
		t.Errorf("%q", out.String())
	}
}

// TestTitled: a title fits the width, and a table without rows has none.
func TestTitled(t *testing.T) {
	var out bytes.Buffer
	s := Screen{W: &out, Width: 20}
	table := &Table{Keys: 1, Columns: []Column{{Name: "a"}, {Name: "b", Right: true}}}
	if s.Titled("nothing", table) || out.Len() > 0 {
		t.Errorf("it wrote %q", out.String())
	}
	table.Row("", "1", "2")
	if !s.Titled("a title that is too long for a line", table) ||
		out.String() != "\na title that is too\n  long for a line\n  a  b\n  1  2\n" {
		t.Errorf("it wrote %q", out.String())
	}
	out.Reset()
	s.Markdown = true
	s.Title("a title that is too long for a line")
	if out.String() != "\n**a title that is too long for a line**\n\n" {
		t.Errorf("as Markdown it wrote %q", out.String())
	}
}
