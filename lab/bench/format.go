package bench

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// Formats are what a report can be shown as: tables, the same tables as Markdown, one line of CSV for each summary, or
// one line for each measurement as golang.org/x/perf/cmd/benchstat reads it. The first is the default.
func Formats() []string { return []string{"table", "markdown", "csv", "benchstat"} }

func checkFormat(op console.Op, format string) error {
	if format != "" && !slices.Contains(Formats(), format) {
		return op.Unknown("format", format, Formats())
	}

	return nil
}

// machineReads reports whether a format is read by programs, and has nothing but the figures.
func machineReads(format string) bool { return format == "csv" || format == "benchstat" }

// write shows the report in a format.
func (s screen) write(l Lab, r *Report, d Detail, format string) error {
	switch format {
	case "csv":
		return writeCSV(s.W, r)
	case "benchstat":
		return writeBenchstat(s.W, r)
	}
	s.report(l, r, d)

	return nil
}

// writeCSV writes the summaries with a head, and behind one of mixed work a line for each kind of operation, which has
// its name as kind. What is not known is empty; times are in microseconds, sizes in bytes.
func writeCSV(w io.Writer, r *Report) error {
	c := csv.NewWriter(w)
	number := func(x float64) string {
		if x < 0 {
			return ""
		}

		return strconv.FormatFloat(x, 'g', -1, 64)
	}

	_ = c.Write([]string{"workload", "engine", "given", "clients", "offer", "rounds", "median_ops_per_sec", "low", "high",
		"confidence", "p50_us", "p90_us", "p99_us", "p999_us", "max_us", "ops", "cpu_us_per_item", "syncs_per_commit",
		"read_bytes_per_op", "settle_seconds", "peak_rss_bytes", "disk_bytes", "peak_disk_bytes", "items", "compared_with",
		"verdict", "p", "p_corrected", "ratio", "ratio_low", "ratio_high", "kind",
		"settled_ops_per_sec", "open_seconds", "disk_before_close_bytes", "held_per_sec", "failed_per_sec",
		"written_bytes_per_op", "write_amplification", "last_by_first_quarter"})
	for _, s := range r.Summary {
		cell := []string{s.Workload, s.Engine, s.Given.String(), strconv.Itoa(s.Clients), s.Offer.String(),
			strconv.Itoa(s.Rounds)}

		line := slices.Clone(cell)
		for _, x := range []float64{s.Median, s.Low, s.High, s.Confidence, s.Latency.P50, s.Latency.P90, s.Latency.P99,
			s.Latency.P999, s.Latency.Max, float64(s.Ops), s.CPUPerItem, s.SyncsPerCommit, s.ReadPerOp, s.SettleSeconds,
			float64(s.PeakRSS), float64(s.DiskBytes), float64(s.PeakDisk), float64(s.Items)} {
			line = append(line, number(x))
		}
		rank := Rank{P: -1, Corrected: -1, Ratio: -1, Low: -1, High: -1}
		if s.Rank != nil {
			rank = *s.Rank
		}
		line = append(line, rank.To, string(rank.Verdict), number(rank.P), number(rank.Corrected), number(rank.Ratio),
			number(rank.Low), number(rank.High), "", number(s.SettledOpsPerSec), number(s.OpenSeconds),
			number(float64(s.DiskBeforeClose)))
		found := SearchSummary{Held: -1, Failed: -1}
		if s.Search != nil {
			found = *s.Search
		}
		line = append(line, number(found.Held), number(found.Failed), number(s.WrittenPerOp), number(s.WriteAmplification),
			number(s.LastByFirst))

		_ = c.Write(line)
		for _, k := range s.Kinds {
			of := append(slices.Clone(cell), "", "", "", "")
			for _, x := range []float64{k.Latency.P50, k.Latency.P90, k.Latency.P99, k.Latency.P999, k.Latency.Max,
				float64(k.Ops)} {
				of = append(of, number(x))
			}
			of = append(of, make([]string, len(line)-len(of))...)
			of[len(of)-9] = k.Name
			_ = c.Write(of)
		}
	}
	c.Flush()

	return c.Error()
}

// writeBenchstat writes the measurements that the summaries are of as results of Go's benchmarks. An operation is one
// call, and ns/op is the time between two of them of all clients together. benchstat -col /engine compares engines.
func writeBenchstat(w io.Writer, r *Report) error {
	text := fmt.Sprintf("goos: %s\ngoarch: %s\n", r.Machine.OS, r.Machine.Arch)
	if r.Machine.CPU != "" {
		text += "cpu: " + r.Machine.CPU + "\n"
	}
	if r.Machine.Disk.FileSystem != "" {
		text += "disk: " + strings.TrimSpace(r.Machine.Disk.FileSystem+" "+r.Machine.Disk.Kind) + "\n"
	}

	for _, s := range r.Summary {
		kind, name, _ := strings.Cut(s.Workload, "/")
		title := fmt.Sprintf("Benchmark%s%s/work=%s/engine=%s/level=%v/clients=%d", strings.ToUpper(kind[:min(len(kind), 1)]),
			kind[min(len(kind), 1):], name, s.Engine, s.Given, s.Clients)
		if s.Offer.Open() {
			title += "/rate=" + strings.ReplaceAll(strings.TrimSuffix(s.Offer.String(), "/s"), "=", "-")
		}

		for _, result := range r.Results {
			if result.Cell != s.cell || result.Round > s.Rounds || result.Ops == 0 {
				continue
			}
			text += fmt.Sprintf("%s %d %.6g ns/op %.6g ops/s %.6g p50-ns %.6g p99-ns %.6g p999-ns", title, result.Ops,
				result.Seconds*1e9/float64(result.Ops), result.OpsPerSec, result.Latency.P50*1e3, result.Latency.P99*1e3,
				result.Latency.P999*1e3)
			if cpu := result.cpuPerItem(); cpu >= 0 {
				text += fmt.Sprintf(" %.6g cpu-ns/item", cpu*1e3)
			}
			if result.DiskBytes > 0 {
				text += fmt.Sprintf(" %d disk-bytes", result.DiskBytes)
			}
			text += "\n"
		}
	}
	_, err := io.WriteString(w, text)

	return err
}

// Show shows a saved report again. baseline is the engine that others are compared with, empty for that of the run.
func (l Lab) Show(file, baseline, format string, d Detail, t console.Terminal) error {
	if err := checkFormat(compareOp, format); err != nil {
		return err
	}
	r, err := ReadReport(file)
	if err != nil {
		return err
	}
	if baseline != "" {
		if reference(baseline) || !slices.Contains(r.Plan.Engines, baseline) {
			return compareOp.Unknown("baseline", baseline, r.Plan.Engines)
		}
		cells, err := r.cells()
		if err != nil {
			return err
		}
		r.Plan.Baseline = baseline
		r.summarise(cells)
	}
	s := screen{t.Screen()}
	s.Markdown = format == "markdown"
	if !machineReads(format) {
		s.Wrapped(r.Plan.Preset+": ", fmt.Sprintf("%s, %s of %v s", console.Number(len(r.Plan.Engines), "engine"),
			console.Number(r.rounds(), "round"), measure.Digits(r.Plan.Seconds)))
		s.machine(r.Machine, r.Plan.RAMBytes)
	}
	if err := s.write(l, r, d, format); err != nil || machineReads(format) {
		return err
	}
	if !d.Full {
		s.Printf("more: holdfast compare %s --full\n", file)
	}

	return nil
}
