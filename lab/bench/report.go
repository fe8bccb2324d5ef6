package bench

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// Schema names the format of the JSON of a [Report]. It is described in
// lab/schemas/bench.schema.json; a change that readers must know about gets a new number.
const Schema = "holdfast.bench/1"

// Report is everything that a run found.
type Report struct {
	Schema      string          `json:"schema"`
	Machine     measure.Machine `json:"machine"`
	Plan        PlanJSON        `json:"plan"`
	Results     []Result        `json:"results"`
	Summary     []Summary       `json:"summary"`
	Unavailable []Unavailable   `json:"unavailable"`
	Contenders  []Contender     `json:"contenders"` // what each ran with, at each level
	Partial     string          `json:"partial"`    // why this is not all of the plan; empty if it is
	// Build is the program that measured, nil if that is not known; Resumed how many times the run was continued.
	Build   *console.Build `json:"build"`
	Resumed int            `json:"resumed"`
	Badge   Badge          `json:"badge"` // made anew when a report is read
}

// PlanJSON is the part of a plan that the report has.
type PlanJSON struct {
	Preset        string           `json:"preset"`
	Engines       []string         `json:"engines"`
	Workloads     []string         `json:"workloads"`
	Levels        []holdfast.Level `json:"levels"`
	Clients       []int            `json:"clients"`
	Rounds        int              `json:"rounds"`
	Seconds       float64          `json:"seconds"` // of each measurement
	WarmUpSeconds float64          `json:"warm_up_seconds"`
	Seed          uint64           `json:"seed"` // of the order
	// RAMBytes is what each child has with the system's cache of its files; 0: no limit.
	RAMBytes int64 `json:"ram_bytes"`
	// Baseline is the engine that the others of a table are compared with; empty for the best.
	Baseline string `json:"baseline"`
	// MemoryBytes is the budget of each contender for caches and write buffers.
	MemoryBytes int64  `json:"memory_bytes"`
	Command     string `json:"command"` // repeats the plan
}

// Result is one measurement in a round. An operation is one call (a batch of 100 is one operation), and handles
// ItemsPerOp items.
type Result struct {
	Cell
	Round      int      `json:"round"` // from 1
	ItemsPerOp int      `json:"items_per_op"`
	KeyOrder   KeyOrder `json:"key_order"` // of the workload
	OpsPerSec  float64  `json:"ops_per_sec"`
	// DiskFailed is true where it is void because the disk was full or took no writes, which is not the contender's fault.
	DiskFailed bool `json:"disk_failed"`
	// Search is how its rate was found; nil unless the highest one was looked for.
	Search *Search `json:"search"`
	Measurement

	ran *Contender // nil if it did not come so far
}

// Measurement is what a child process measured. Metrics that are not known are -1.
type Measurement struct {
	Ops             int64             `json:"ops"`
	WarmUpOps       int64             `json:"warm_up_ops"` // before the clock ran
	Seconds         float64           `json:"seconds"`
	MeasuredFrom    float64           `json:"measured_from_seconds"` // when the measured time began, since warming up did
	Latency         measure.Latency   `json:"latency_us"`
	Curve           []measure.Point   `json:"latency_curve"`
	Kinds           []KindMeasured    `json:"kinds"`                   // of operations where they are mixed, else empty
	Quarters        [runParts]float64 `json:"quarters"`                // operations per second in each quarter of the time
	SettleSeconds   float64           `json:"settle_seconds"`          // of Close
	CPUSeconds      float64           `json:"cpu_seconds"`             // of warm-up, measurement and Close, all threads
	BytesRead       int64             `json:"read_bytes"`              // by devices, in warm-up and measurement
	FromMemory      bool              `json:"from_memory,omitempty"`   // of cold reads: devices read nothing for them
	BytesWritten    int64             `json:"write_bytes"`             // by devices, in warm-up, measurement and Close
	BytesPut        int64             `json:"put_bytes"`               // keys and values of clients, warm-up included
	PeakRSS         int64             `json:"peak_rss_bytes"`          // of the child up to Close, the harness included
	DiskBeforeClose int64             `json:"disk_before_close_bytes"` // allocated at the end of measuring
	DiskBytes       int64             `json:"disk_bytes"`              // allocated, after Close
	OpenSeconds     float64           `json:"open_seconds"`            // of opening what Close closed
	// the most of what the samples saw, and after Close
	PeakDisk int64  `json:"peak_disk_bytes"`
	Commits  int64  `json:"commits"`       // batches applied since opening
	Groups   int64  `json:"groups"`        // engine transactions they became
	Syncs    int64  `json:"syncs"`         // times the device was asked to keep what was written
	Items    int64  `json:"items"`         // items that should be there after it
	Checked  int64  `json:"checked_items"` // items that were read back and compared after it
	Verified bool   `json:"verified"`
	Error    string `json:"error"` // empty if verified
	// Open is what an open loop did; nil in a closed one
	Open *OpenLoop `json:"open_loop"`
	// one for each second, more often if that makes fewer than samplesWanted, and one at the end
	Samples []Sample `json:"samples"`
}

// KindMeasured is one kind of operation in mixed work.
type KindMeasured struct {
	Name    string          `json:"name"` // "get"
	Ops     int64           `json:"ops"`
	Latency measure.Latency `json:"latency_us"`
	Curve   []measure.Point `json:"latency_curve"`
}

// Sample is the progress of a measurement at one moment.
type Sample struct {
	Seconds   float64 `json:"seconds"`    // since warming up began
	Ops       int64   `json:"ops"`        // since then
	DiskBytes int64   `json:"disk_bytes"` // allocated
	RSS       int64   `json:"rss_bytes"`  // resident memory of the process, -1 if not known
}

// Summary is what the rounds of one cell say together. A cell with a void result has none.
type Summary struct {
	Workload   string         `json:"workload"`
	Engine     string         `json:"engine"`
	Given      holdfast.Level `json:"given"`
	Clients    int            `json:"clients"`
	Offer      Offer          `json:"offer"`
	Median     float64        `json:"median_ops_per_sec"`
	Low        float64        `json:"low"`
	High       float64        `json:"high"`
	Confidence float64        `json:"confidence"` // that low to high holds the true median; 0 if there is one round
	Rounds     int            `json:"rounds"`

	// Of an open loop: the median of the rates offered, in operations a second, and in how many rounds the contender did
	// not keep up. 0 in a closed one.
	Offered    float64 `json:"offered_per_sec"`
	Overloaded int     `json:"overloaded_rounds"`
	// Search is what searches for the highest rate found; nil if none was made.
	Search *SearchSummary `json:"search"`

	// Medians over the rounds; -1 for what is not known.
	Ops            int64           `json:"ops"`
	Latency        measure.Latency `json:"latency_us"`
	CPUPerItem     float64         `json:"cpu_us_per_item"`
	SyncsPerCommit float64         `json:"syncs_per_commit"`
	ReadPerOp      float64         `json:"read_bytes_per_op"`
	// WrittenPerOp is what devices wrote for an operation, closing included; WriteAmplification is the bytes that they
	// wrote by those that clients put. LastByFirst is the rate of the last quarter of the time by that of the first.
	WrittenPerOp       float64 `json:"written_bytes_per_op"`
	WriteAmplification float64 `json:"write_amplification"`
	LastByFirst        float64 `json:"last_by_first_quarter"`
	SettleSeconds      float64 `json:"settle_seconds"`
	// SettledOpsPerSec are operations a second if the time to close counts too, see [Result.Settled]; OpenSeconds is what
	// opening took after that.
	SettledOpsPerSec float64 `json:"settled_ops_per_sec"`
	OpenSeconds      float64 `json:"open_seconds"`
	DiskBeforeClose  int64   `json:"disk_before_close_bytes"`
	PeakRSS          int64   `json:"peak_rss_bytes"`
	DiskBytes        int64   `json:"disk_bytes"`
	PeakDisk         int64   `json:"peak_disk_bytes"`
	Items            int64   `json:"items"`

	// Kinds are those of the operations where they are mixed, else empty.
	Kinds []KindSummary `json:"kinds"`

	// FromMemory is true where reads were to be cold and devices read nothing for them in a round: the engine had read
	// everything when it was opened. Then it has no rank.
	FromMemory bool `json:"from_memory,omitempty"`

	Rank *Rank `json:"rank"` // nil for null and floor, which take no place among the engines

	cell Cell
}

// KindSummary is what the rounds of one cell say of one kind of operation: medians.
type KindSummary struct {
	Name    string          `json:"name"`
	Ops     int64           `json:"ops"`
	Latency measure.Latency `json:"latency_us"`
}

// summarise sums up what has been measured of the cells. If rounds were finished, only those count: in the
// next one, some cells have a turn more than others.
func (r *Report) summarise(cells []Cell) {
	counted := r.finished(len(cells))
	if counted == 0 {
		counted = r.Plan.Rounds
	}
	r.Summary = summarise(cells, r.Results, counted, r.Plan.Baseline)
	r.Badge = r.badge()
}

// finished is how many rounds were finished, in each of which so many cells had their turn.
func (r *Report) finished(cells int) int {
	turns := map[int]int{}
	for _, result := range r.Results {
		turns[result.Round]++
	}

	n := 0
	for cells > 0 && turns[n+1] == cells {
		n++
	}

	return n
}

// rounds is how many rounds the summaries are of.
func (r *Report) rounds() int {
	most := 0
	for _, s := range r.Summary {
		most = max(most, s.Rounds)
	}

	return cmp.Or(most, r.Plan.Rounds)
}

// partial is why the report is not all of the plan: an end that came too early, and the error that caused it, if
// one did.
func (r *Report) partial(cells int, end string, err error) string {
	text := fmt.Sprintf("%s after %d of %d measurements", end, len(r.Results), cells*r.Plan.Rounds)
	if finished := r.finished(cells); finished > 0 {
		text += "; the tables are of " + console.Number(finished, "finished round")
	}
	if err != nil {
		text += ": " + err.Error()
	}

	return text
}

// Void returns the results that failed verification or broke off.
func (r *Report) Void() []Result {
	return slices.DeleteFunc(slices.Clone(r.Results), func(result Result) bool { return result.Verified })
}

// setups returns those that the workload was measured with, by their numbers of clients and then their rates.
func (r *Report) setups(workload string) (list []setup) {
	for _, result := range r.Results {
		if at := (setup{result.Clients, result.Offer}); result.Workload == workload && !slices.Contains(list, at) {
			list = append(list, at)
		}
	}
	slices.SortFunc(list, func(a, b setup) int {
		return cmp.Or(cmp.Compare(a.clients, b.clients), cmp.Compare(a.offer.Share, b.offer.Share),
			cmp.Compare(a.offer.Rate, b.offer.Rate), cmp.Compare(a.offer.String(), b.offer.String()))
	})

	return list
}
