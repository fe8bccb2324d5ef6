package bench

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// The tables of a workload that is measured for long: what is slow is rare, and what grows does so late.

// course writes how rate, disk and memory went over the time, in quarters. With several rounds it is that of the first.
func (s screen) course(w Workload, r *Report, at setup) {
	unit, items := w.rates()
	for _, part := range []struct {
		title string
		value func(quarter) string
		whole func(Summary) string
	}{
		{unit + "/s", func(q quarter) string {
			return measure.Count(float64(q.ops) * items / q.seconds)
		}, func(s Summary) string { return measure.Count(s.Median * items) }},
		{"the most on disk", func(q quarter) string { return measure.Size(q.disk) },
			func(s Summary) string { return measure.Size(s.PeakDisk) }},
		{"the most resident memory", func(q quarter) string {
			return measure.Size(cmp.Or(q.rss, -1))
		}, func(s Summary) string { return measure.Size(s.PeakRSS) }},
	} {
		t := console.Columns(2, "engine", "level", "1st quarter#", "2nd#", "3rd#", "4th#", "all#")
		for _, g := range groups(w, r, at) {
			for _, row := range g.rows {
				first := slices.IndexFunc(r.Results, func(result Result) bool { return result.Cell == row.cell })
				cells := []string{row.Engine, g.given.String()}

				for _, q := range quarters(r.Results[first].Samples) {
					text := "-"
					if q.seconds > 0 {
						text = part.value(q)
					}
					cells = append(cells, text)
				}
				t.Row(plain(row.Engine), append(cells, part.whole(row))...)
			}
		}
		s.Titled(fmt.Sprintf("%s over the time, %s%s", w.Name, part.title, at.offer.Title()), t)
	}
}

// quarter is a part of a measurement.
type quarter struct {
	seconds float64
	ops     int64
	disk    int64 // bytes, the most that was seen
	rss     int64 // likewise, 0 if not known
}

// quarters splits the samples into four parts of equal time. A part without a sample is empty.
func quarters(samples []Sample) (parts [4]quarter) {
	if len(samples) == 0 {
		return parts
	}

	length := samples[len(samples)-1].Seconds / float64(len(parts))
	before := Sample{}
	for _, sample := range samples {
		p := &parts[min(int((sample.Seconds+before.Seconds)/2/length), len(parts)-1)]
		p.seconds += sample.Seconds - before.Seconds
		p.ops += sample.Ops - before.Ops
		p.disk = max(p.disk, sample.DiskBytes)
		p.rss = max(p.rss, sample.RSS)
		before = sample
	}

	return parts
}
