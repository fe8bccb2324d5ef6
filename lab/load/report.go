package load

import (
	"fmt"
	"slices"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// Schema names the format of the JSON of a [Report]. It is described in lab/schemas/load.schema.json; a change that
// readers must know about gets a new number.
const Schema = "holdfast.load/1"

// Report is everything that a run found.
type Report struct {
	Schema  string          `json:"schema"`
	Machine measure.Machine `json:"machine"`
	Plan    Plan            `json:"plan"`
	Results []Result        `json:"results"`
	Summary []Summary       `json:"summary"`
	Partial string          `json:"partial"` // why this is not all of the plan; empty if it is
}

// Plan is what is measured.
type Plan struct {
	Shape         string   `json:"shape"`
	Targets       []string `json:"targets"`
	Workers       int      `json:"workers"`
	Rate          float64  `json:"rate_per_sec"` // of an open loop; 0 is a closed one
	Followers     int      `json:"followers"`
	Events        int64    `json:"events"`    // that are appended in all; 0 if it is not a number of them that ends it
	Batch         int      `json:"batch"`     // events of one operation, there
	RAMBytes      int64    `json:"ram_bytes"` // of each server that is started, with its files in memory; 0: no limit
	Level         string   `json:"level"`     // that writes ask for; empty if they name none
	Rounds        int      `json:"rounds"`
	Seconds       float64  `json:"seconds"`
	WarmUpSeconds float64  `json:"warm_up_seconds"`
	Seed          uint64   `json:"seed"`
	Command       string   `json:"command"` // repeats the plan
}

// Result is one measurement of one target. What is not known is -1.
type Result struct {
	Target    string  `json:"target"`
	Round     int     `json:"round"` // from 1
	Level     string  `json:"level"` // that all answers to writes have named; empty if they name none
	OpsPerSec float64 `json:"ops_per_sec"`

	Ops             int64           `json:"ops"`
	WarmUpOps       int64           `json:"warm_up_ops"`
	Seconds         float64         `json:"seconds"`
	Latency         measure.Latency `json:"latency_us"`
	Deliveries      int64           `json:"deliveries"` // to followers, of messages written in the measured time
	Delivery        measure.Latency `json:"delivery_us"`
	Failed          int64           `json:"failed"`          // operations
	Behind          int64           `json:"behind"`          // operations of an open loop that were due and not begun
	FirstAnswer     float64         `json:"first_answer_ms"` // from the start of the server's process to an answered write
	CPUSeconds      float64         `json:"cpu_seconds"`     // of the server, from its start to its end
	ClientCPU       float64         `json:"client_cpu_seconds"`
	PeakRSS         int64           `json:"peak_rss_bytes"` // of the server
	RSS             int64           `json:"rss_bytes"`      // of the server, at the end of measuring
	Verified        bool            `json:"verified"`       // no operation failed, none is missing, all named one level
	Error           string          `json:"error"`          // empty if verified
	Samples         []Sample        `json:"samples"`
	Tasks           int64           `json:"tasks"`         // that the workers of a soak completed
	Events          int64           `json:"events"`        // that were acknowledged, the first operation's too
	MemoryGrowth    float64         `json:"memory_growth"` // of a soak: see docs/load.md
	GoroutineGrowth float64         `json:"goroutine_growth"`
}

// Sample is the progress of a measurement at one moment.
type Sample struct {
	Seconds    float64 `json:"seconds"` // since warming up began
	Ops        int64   `json:"ops"`     // since then
	Failed     int64   `json:"failed"`
	Delivered  int64   `json:"delivered"`
	RSS        int64   `json:"rss_bytes"`   // of the server, -1 if not known, as those that follow
	Own        int64   `json:"own_bytes"`   // without the pages of files
	Caches     int64   `json:"cache_bytes"` // of the engine
	Goroutines int64   `json:"goroutines"`
}

// Summary is what the rounds of one target say together. A target with a void result has none.
type Summary struct {
	Target     string  `json:"target"`
	Level      string  `json:"level"`
	Median     float64 `json:"median_ops_per_sec"`
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	Confidence float64 `json:"confidence"` // that low to high holds the true median; 0 if there is one round
	Rounds     int     `json:"rounds"`
	// OfNull is the median of the rounds' ratios to the null server in the same round, 0 if that was not measured.
	OfNull     float64 `json:"of_null"`
	OfNullLow  float64 `json:"of_null_low"`
	OfNullHigh float64 `json:"of_null_high"`

	// Medians over the rounds, for the tables.
	latency, delivery                      measure.Latency
	deliveries, first, cpuPerOp, clientCPU float64
	events                                 float64 // a second
	peakRSS                                float64
}

// summarise sums up the results of each target.
func (r *Report) summarise() {
	r.Summary = []Summary{}
	null := map[int]float64{} // by round

	for _, result := range r.Results {
		if result.Target == nullName && result.Verified {
			null[result.Round] = result.OpsPerSec
		}
	}

	for _, target := range r.Plan.Targets {
		var of measure.Rounds[Result]
		void := false

		for _, result := range r.Results {
			if result.Target == target {
				of = append(of, result)
				void = void || !result.Verified || result.Level != of[0].Level
			}
		}
		if len(of) == 0 || void {
			continue
		}
		middle, latency := of.Middle, of.Latency
		s := Summary{Target: target, Level: of[0].Level, Rounds: len(of),
			latency:    latency(func(r Result) measure.Latency { return r.Latency }),
			delivery:   latency(func(r Result) measure.Latency { return r.Delivery }),
			deliveries: middle(func(r Result) float64 { return float64(r.Deliveries) / r.Seconds }),
			events:     middle(eventsPerSec),
			first:      middle(func(r Result) float64 { return r.FirstAnswer }),
			cpuPerOp:   middle(func(r Result) float64 { return perOp(r.CPUSeconds, r) }),
			clientCPU:  middle(func(r Result) float64 { return perOp(r.ClientCPU, r) }),
			peakRSS:    middle(func(r Result) float64 { return float64(r.PeakRSS) }),
		}
		s.Median, s.Low, s.High, s.Confidence = measure.Median(of.Column(func(r Result) float64 { return r.OpsPerSec }))

		var ratios []float64
		for _, result := range of {
			if base := null[result.Round]; base > 0 {
				ratios = append(ratios, result.OpsPerSec/base)
			}
		}
		if len(ratios) > 0 {
			s.OfNull, s.OfNullLow, s.OfNullHigh, _ = measure.Median(ratios)
		}
		r.Summary = append(r.Summary, s)
	}
}

// eventsPerSec are events that were appended in the measured time. What is counted has those of the warm-up too, and of
// the first operation.
func eventsPerSec(r Result) float64 {
	return r.OpsPerSec * float64(r.Events) / float64(r.Ops+r.WarmUpOps+1)
}

// perOp is a number of seconds for each operation, in microseconds.
func perOp(seconds float64, r Result) float64 {
	ops := r.Ops + r.WarmUpOps
	if seconds < 0 || ops == 0 {
		return -1
	}

	return seconds * 1e6 / float64(ops)
}

// Void returns the results that are not verified.
func (r *Report) Void() []Result {
	return slices.DeleteFunc(slices.Clone(r.Results), func(result Result) bool { return result.Verified })
}

// partial is why the report is not all of the plan.
func (r *Report) partial(end string, err error) string {
	text := fmt.Sprintf("%s after %d of %d measurements", end, len(r.Results), len(r.Plan.Targets)*r.Plan.Rounds)
	if err != nil {
		text += ": " + err.Error()
	}

	return text
}

// void is what void measurements make of the run: an error that wraps ErrWrong.
func (r *Report) void() error {
	if void := r.Void(); len(void) > 0 {
		return fmt.Errorf("%s of %d: %w", console.Number(len(void), "measurement"), len(r.Results), ErrWrong)
	}

	return nil
}
