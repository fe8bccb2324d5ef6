// Package report makes one HTML file of the reports that bench and crash write as JSON: the answer first, then plots
// with every number behind them, what was withheld and why, and the reports themselves. The file needs no network and
// runs no script.
package report

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"

	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/server/page"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// Options say what is shown.
type Options struct {
	// Mixed permits reports whose machines, disks or limits of memory differ. Every plot is marked then.
	Mixed bool
	// SyncCosts, in microseconds, are what a sync is taken to cost in the modelled plots; nil for 100, 1000 and 5000.
	SyncCosts []float64
}

// document is what the template shows.
type document struct {
	Style    template.CSS
	Policy   string
	Title    string
	Lead     string
	Notices  []notice
	First    notice   // of the notices: all that is bad, or else the first
	Others   []notice // the rest of them
	Answers  []answer
	Sections []*section
	Engines  *titled // the closing table, which is in a section too; nil if there is none
	Sources  []sourceView
}

// notice is what a reader must know before the figures.
type notice struct {
	Class string // bad or warn
	Text  string
}

// answer is what is known of a question, a line for each level.
type answer struct {
	Question string
	Lines    []line
	Of       string // what it says, if that is one thing; others that say it are added
}

// line is what is shown, in a sentence, with the highest rates that it is of.
type line struct {
	Rates        []headline
	Said, Detail string
	Link         string // of the plot
	Class        string
}

type headline struct{ Rate, Level string }

type section struct {
	ID, Title, Lead string
	Parts           []*part
}

// part is a row of plots, with tables and items below.
type part struct {
	Title, Lead string
	Class       string
	Plots       []*plot
	Verdicts    []verdicts
	Tables      []titled
	Items       []item
}

type titled struct {
	Title string
	Table table
	Open  bool
}

// item is a line of a list: who, and what is said of it.
type item struct{ Who, Text string }

type sourceView struct {
	Name, Kind, Command, Machine, Partial string
	Facts                                 []item
	Data                                  template.URL // the JSON, compressed
}

// Write writes the page of sources, which are of bench and of crash in any order. It is ErrMixed if they differ in
// what they were made on, unless the options permit it.
func Write(w io.Writer, lab bench.Lab, sources []Source, o Options) error {
	doc, err := compose(lab, sources, o)
	if err != nil {
		return err
	}
	style := page.Style() + pageCSS
	sum := sha256.Sum256([]byte(style))
	doc.Style = template.CSS(style) // our own
	doc.Policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'"

	return pageTemplate.Execute(w, doc)
}

// dataURL is JSON, compressed, as an address, for saving it.
func dataURL(json []byte) template.URL {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(json) // a buffer takes everything
	_ = w.Close()

	return template.URL("data:application/gzip;base64," + base64.StdEncoding.EncodeToString(packed.Bytes()))
}
