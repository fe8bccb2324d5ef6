package report

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// plot is a figure: an SVG that is as wide as there is room, and a table of the same numbers. Across, places are
// percents of the width, so that text keeps its size on a phone; down, they are pixels.
type plot struct {
	ID, Kind    string // Kind is a class of the style sheet
	Title       string
	XTitle      string // of the axis across, where it is not plain
	YTitle      string
	Description string // what is to be seen, for who cannot see it
	Note        string // below the plot
	Warning     string // on the plot
	Height      float64
	Shapes      []shape
	Keys        []key
	Table       table
	bottom      float64 // of the rows
	margin      bool    // there is room beside the plot, for the names of its axis
}

// shape is one element of a plot. A mark stands for a number of the data.
type shape struct {
	Kind   string // rect, line, text, path or marker
	Class  string
	X, Y   float64 // of a line, the one end
	X2, Y2 float64 // of a line, the other end; of a rect, its width and height
	Dx     float64 // pixels that a text is moved
	Anchor string  // of a text: start, middle or end
	Text   string  // of a text; of others, what is shown when they are pointed at
	Path   string  // of a path, in an area that is 1000 wide; of a marker, around 0 0
	Mark   bool
}

// key is an entry of a legend.
type key struct {
	Name, Class, Path string
}

// table is the numbers of a plot. The first column names the row.
type table struct {
	Head []string
	Rows [][]string
	Of   string // what the table is of, where its title alone does not tell
	Text int    // so many columns from the left are text, the others are numbers
}

func (p *plot) add(s shape) { p.Shapes = append(p.Shapes, s) }

// MarkCount is how many numbers the plot shows.
func (p *plot) MarkCount() (n int) {
	for _, s := range p.Shapes {
		if s.Mark {
			n++
		}
	}

	return n
}

// scale maps values to percents of the width, or pixels of the height.
type scale struct {
	from, to   float64 // values
	start, end float64 // places
	log        bool
}

func (s scale) at(v float64) float64 {
	from, to := s.from, s.to
	if s.log {
		v, from, to = math.Log10(v), math.Log10(from), math.Log10(to)
	}
	if to <= from {
		return s.start
	}

	return s.start + min(max((v-from)/(to-from), 0), 1)*(s.end-s.start)
}

// steps returns round values from 0 to most, at most five of them.
func steps(most float64) []float64 {
	if most <= 0 || math.IsInf(most, 0) || math.IsNaN(most) {
		return []float64{0}
	}

	step := math.Pow(10, math.Floor(math.Log10(most)))
	for _, f := range []float64{0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5} {
		if most/(step*f) <= 4.0001 {
			step *= f
			break
		}
	}

	list := []float64{0}
	for i := 1; float64(i)*step <= most*1.0001; i++ {
		list = append(list, float64(i)*step)
	}

	return list
}

// decades returns the powers of ten around low to high, and more between them if there are few.
func decades(low, high float64) []float64 {
	if low <= 0 {
		low = high / 10
	}
	from, to := math.Floor(math.Log10(low)+1e-9), math.Ceil(math.Log10(high)-1e-9)
	if to <= from {
		to = from + 1
	}
	between := []float64{1}
	if to-from <= 2 {
		between = []float64{1, 2, 5}
	}

	var list []float64
	for e := from; e < to; e++ {
		for _, f := range between {
			list = append(list, f*math.Pow(10, e))
		}
	}

	list = append(list, math.Pow(10, to))
	for len(list) > 2 && list[1] <= low {
		list = list[1:]
	}

	for len(list) > 2 && list[len(list)-2] >= high {
		list = list[:len(list)-1]
	}

	return list
}

// across draws an axis with the values that are named, and a line for each through the plot.
func (p *plot) across(x scale, top, bottom float64, values []float64, name func(float64) string) {
	for i, v := range values {
		at := x.at(v)
		anchor := "middle"
		switch {
		case at < 1 && !p.margin:
			anchor = "start"
		case at > 97 && i == len(values)-1 && !p.margin:
			anchor = "end"
		}
		p.add(shape{Kind: "line", Class: "grid", X: at, Y: top, X2: at, Y2: bottom})
		p.add(shape{Kind: "text", Class: "tick", X: at, Y: bottom + 16, Anchor: anchor, Text: name(v)})
	}
	p.bottom, p.Height = bottom, bottom+22
	if p.XTitle != "" {
		p.add(shape{Kind: "text", Class: "tick", X: 100, Y: bottom + 16 + lineHeight, Anchor: "end", Text: p.XTitle})
		p.Height += lineHeight
	}
}

// bar is one row of a plot of bars.
type bar struct {
	Name, Text  string // above the bar, at its ends
	Class       string
	Value       float64
	Low, High   float64 // an interval, none if both are 0
	Description string
	Group       string // above the row, if it is the first of its group
}

const (
	barRow   = 42.0 // height of a row
	barTop   = 20.0 // of the bar, below the top of its row
	barThick = 11.0
)

// lineHeight is that of text in a plot.
const lineHeight = 16.0

// captions writes a name and what is said of it above a row, beside each other where a phone has room for that, and
// below each other where it has not. It returns how much lower the row begins then.
func (p *plot) captions(y float64, name, text, class string) float64 {
	const phone, nameWidth, textWidth = 300, 8, 7
	n := []rune(name)
	if most := phone / nameWidth; len(n) > most {
		n = append(n[:most-1:most-1], '…') // the table has all of it
	}
	lower := 0.0
	if nameWidth*len(n)+textWidth*utf8.RuneCountInString(text) > phone {
		lower = lineHeight
	}
	p.add(shape{Kind: "text", Class: "name " + class, X: 0, Y: y + 14, Anchor: "start", Text: string(n)})
	p.add(shape{Kind: "text", Class: "value " + class, X: 100, Y: y + 14 + lower, Anchor: "end", Text: text})

	return lower
}

// below draws the axis below what has been drawn, and behind it.
func (p *plot) below(x scale, bottom float64, values []float64, name func(float64) string) {
	drawn := p.Shapes
	p.Shapes = nil
	p.across(x, 0, bottom, values, name)
	p.Shapes = append(p.Shapes, drawn...)
}

// bars draws rows from 0 to most. What is longer ends in an arrow.
func (p *plot) bars(rows []bar, most float64, name func(float64) string) {
	x := scale{from: 0, to: most, start: 0, end: 100}
	y := 0.0

	for _, row := range rows {
		y += p.captions(y, row.Name, row.Text, row.Class)
		p.add(shape{Kind: "rect", Class: "bar " + row.Class, Y: y + barTop, X2: x.at(row.Value), Y2: barThick, Mark: true,
			Text: row.Description})
		middle := y + barTop + barThick/2
		if row.High > 0 {
			low, high := x.at(row.Low), x.at(row.High)
			p.add(shape{Kind: "line", Class: "interval", X: low, Y: middle, X2: high, Y2: middle, Text: row.Description})

			for _, end := range []float64{low, high} {
				p.add(shape{Kind: "line", Class: "interval", X: end, Y: middle - 5, X2: end, Y2: middle + 5})
			}
		}
		if row.Value > most*1.0001 {
			p.add(shape{Kind: "marker", Class: "beyond", X: 100, Y: middle, Path: "M-16 -7l7 7l-7 7M-9 -7l7 7l-7 7"})
		}
		y += barRow
	}
	p.below(x, y, steps(most), name)
}

// edges draws the values low and high through all rows, behind them.
func (p *plot) edges(low, high, most float64) {
	x := scale{from: 0, to: most, start: 0, end: 100}
	var lines []shape

	for _, v := range []float64{low, high} {
		lines = append(lines, shape{Kind: "line", Class: "edge", X: x.at(v), Y: 0, X2: x.at(v), Y2: p.bottom})
	}
	p.Shapes = append(lines, p.Shapes...)
}

// series is one line of a plot of lines.
type series struct {
	Name   string
	Look   look
	Points []point
}

type point struct {
	X, Y float64
	Text string
}

// look is how a contender is drawn: colour, dashes and markers, so that each tells alone.
type look struct {
	Class string // for colour and dashes
	Path  string // of its marker
}

// markers are the forms of markers, around 0 0.
var markers = []string{
	"M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "M-3.6 -3.6h7.2v7.2h-7.2z", "M0 -4.8L4.6 3.6H-4.6z", "M0 -5L5 0L0 5L-5 0z",
	"M0 4.8L4.6 -3.6H-4.6z", "M-1.5 -4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z", "M-4.5 -2l4.5 -3l4.500 3l-1.800 6h-5.400z",
	"M-4.600 -1.600h9.200v3.200h-9.200z",
}

const linesHeight = 230.0

// lines draws series over two scales of values, with the names that the axes have there.
func (p *plot) lines(list []series, x, y scale, xs, ys []float64, xName, yName func(float64) string) {
	p.margin = true
	x.start, x.end, y.start, y.end = 0, 100, linesHeight, 8
	p.across(x, 0, linesHeight, xs, xName)
	p.add(shape{Kind: "text", Class: "tick", X: 0, Dx: -54, Y: -8, Anchor: "start", Text: p.YTitle})

	for _, v := range ys {
		at := y.at(v)
		p.add(shape{Kind: "line", Class: "grid", X: 0, Y: at, X2: 100, Y2: at})
		p.add(shape{Kind: "text", Class: "tick", X: 0, Dx: -8, Y: at + 4, Anchor: "end", Text: yName(v)})
	}

	for _, s := range list {
		var path strings.Builder
		for i, at := range s.Points {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], 10*x.at(at.X), y.at(at.Y))
		}
		p.add(shape{Kind: "path", Class: "line " + s.Look.Class, Path: path.String(), Y2: linesHeight, Text: s.Name})

		for _, at := range s.Points {
			p.add(shape{Kind: "marker", Class: "point " + s.Look.Class, X: x.at(at.X), Y: y.at(at.Y), Path: s.Look.Path,
				Mark: true,
				Text: at.Text})
		}
		p.Keys = append(p.Keys, key{s.Name, s.Look.Class, s.Look.Path})
	}
}

// strip is how something went over the time: one row of a plot of strips.
type strip struct {
	Name, Text string
	Look       look
	Points     []point // X is in seconds, the end of what Y is of
	Stalls     []stall
}

// stall is a time in which hardly anything was done.
type stall struct{ From, To float64 }

const (
	stripRow  = 72.0
	stripTop  = 20.0
	stripHigh = 44.0
)

// strips draws rows over the time, all from 0 to most.
func (p *plot) strips(rows []strip, seconds, most float64, name func(float64) string) {
	x := scale{to: seconds, end: 100}
	top := 0.0

	for _, row := range rows {
		top += p.captions(top, row.Name, row.Text, "")
		y := scale{to: most, start: top + stripTop + stripHigh, end: top + stripTop}
		var path strings.Builder
		before := 0.0
		fmt.Fprintf(&path, "M0 %.1f", y.start)

		for _, at := range row.Points {
			fmt.Fprintf(&path, "L%.1f %.1fL%.1f %.1f", 10*x.at(before), y.at(at.Y), 10*x.at(at.X), y.at(at.Y))
			before = at.X
		}
		fmt.Fprintf(&path, "L%.1f %.1fz", 10*x.at(before), y.start)
		p.add(shape{Kind: "path", Class: "area " + row.Look.Class, Path: path.String(), Y2: top + stripRow, Mark: true,
			Text: row.Name + ": " + row.Text})
		p.add(shape{Kind: "line", Class: "base", X: 0, Y: y.start, X2: 100, Y2: y.start})

		for _, s := range row.Stalls {
			from, to := x.at(s.From), x.at(s.To)
			p.add(shape{Kind: "rect", Class: "stall", X: from, Y: top + stripTop, X2: max(to-from, 0.3), Y2: stripHigh,
				Text: fmt.Sprintf("%s: a stall from %.3g to %.3g s", row.Name, s.From, s.To)})
		}
		top += stripRow
	}
	p.below(x, top, steps(seconds), name)
}

// pair is a row with two values that belong together.
type pair struct {
	Name, Text  string
	Look        look
	First, Last float64
	Texts       [2]string
}

const pairRow = 40.0

// pairs draws for each row a ring for the first value, a filled mark for the last, and a line between.
func (p *plot) pairs(rows []pair, most float64, name func(float64) string) {
	x := scale{to: most, end: 100}
	y := 0.0

	for _, row := range rows {
		y += p.captions(y, row.Name, row.Text, "")
		first, last := x.at(row.First), x.at(row.Last)
		p.add(shape{Kind: "line", Class: "base", X: 0, Y: y + 27, X2: 100, Y2: y + 27})
		p.add(shape{Kind: "line", Class: "span", X: last, Y: y + 27, X2: first, Y2: y + 27})
		p.add(shape{Kind: "marker", Class: "ring", X: first, Y: y + 27, Path: markers[0], Mark: true, Text: row.Texts[0]})
		p.add(shape{Kind: "marker", Class: "full", X: last, Y: y + 27, Path: markers[3], Mark: true, Text: row.Texts[1]})
		y += pairRow
	}
	p.below(x, y, steps(most), name)
}
