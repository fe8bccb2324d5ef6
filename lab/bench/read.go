package bench

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/schemas"
)

// ErrReport is in the chain of the error for a file that holds no report of bench, or not a whole one.
var ErrReport = errors.New("not a report of holdfast bench")

// ReadReport reads the report that was written to a file with --json, as [ParseReport] does.
func ReadReport(path string) (*Report, error) {
	text, err := console.ReadReport(path)
	if err != nil {
		return nil, unreadable(path, err, "name a file that holdfast bench has written with --json")
	}

	return ParseReport(path, text)
}

// ParseReport reads a report; errors say that it came from path. What is not as lab/schemas/bench.schema.json has it,
// or contradicts itself, is refused with an error that wraps [ErrReport]. Fields that came later than the report are as
// if they were not known. The summaries are made anew of the results.
func ParseReport(path string, text []byte) (*Report, error) {
	r, err := parse(text)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return nil, unreadable(path, errors.New("the file ends before the report does"),
			"measure again, or look for a whole copy")
	case err != nil:
		return nil, unreadable(path, err, "name a file that holdfast bench has written with --json, as it was written")
	}

	return r, nil
}

func unreadable(path string, cause error, remedy string) error {
	return &holdfast.Error{Op: "read", Path: path, Class: ErrReport, Cause: console.WithoutPath(cause), Remedy: remedy}
}

// schema is the published one.
var schema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemas.Bench))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("bench.schema.json", document); err != nil {
		return nil, err
	}

	return c.Compile("bench.schema.json")
})

func parse(text []byte) (*Report, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	object, ok := document.(map[string]any)
	if !ok {
		return nil, errors.New("it is JSON, but not an object")
	}
	if object["schema"] != Schema {
		return nil, fmt.Errorf("its schema is %s, this build reads %q", quoted(object["schema"]), Schema)
	}
	published, err := schema()
	if err != nil {
		return nil, err
	}
	var invalid *jsonschema.ValidationError
	if err := published.Validate(document); errors.As(err, &invalid) {
		return nil, errors.New(strings.Join(complaints(invalid), "; "))
	} else if err != nil {
		return nil, err
	}
	raw := struct {
		*Report
		Results []json.RawMessage `json:"results"`
	}{Report: &Report{}}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, err
	}

	r := raw.Report
	for _, text := range raw.Results {
		result := Result{Measurement: unknownOutcome().Measurement}
		if err := json.Unmarshal(text, &result); err != nil {
			return nil, err
		}
		r.Results = append(r.Results, result)
	}
	cells, err := r.cells()
	if err != nil {
		return nil, err
	}
	r.summarise(cells)

	return r, nil
}

// quoted is a value of JSON as an error shows it.
func quoted(value any) string {
	if value == nil {
		return "not named"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}

	return string(text)
}

// maxComplaints is how many of the places where a report is not as the schema has it are named.
const maxComplaints = 3

// complaints says where, and how, a document is not as its schema has it.
func complaints(e *jsonschema.ValidationError) (list []string) {
	printer := message.NewPrinter(language.English)
	var visit func(*jsonschema.ValidationError)
	visit = func(e *jsonschema.ValidationError) {
		if len(e.Causes) == 0 {
			list = append(list, "at /"+strings.Join(e.InstanceLocation, "/")+" "+e.ErrorKind.LocalizedString(printer))
		}

		for _, cause := range e.Causes {
			visit(cause)
		}
	}
	visit(e)
	slices.Sort(list)
	list = slices.Compact(list)
	if more := len(list) - maxComplaints; more > 0 {
		list = append(list[:maxComplaints], fmt.Sprintf("and %d more", more))
	}

	return list
}

// cells are what was measured, in the order of the plan, of a report that was read. They know again what the JSON does
// not say of them. The error is about results that contradict the plan or each other.
func (r *Report) cells() ([]Cell, error) {
	reads := map[string]bool{}
	for _, w := range Workloads() {
		reads[w.Name] = w.Reads
	}

	seen := map[slot]bool{}
	var cells []Cell
	for i := range r.Results {
		result := &r.Results[i]
		result.Reads = reads[result.Workload]

		t := slot{result.Cell, result.Round}
		what := fmt.Sprintf("%s, %s at %v, round %d", result.Workload, result.Engine, result.Given, result.Round)
		switch {
		case seen[t]:
			return nil, fmt.Errorf("at /results/%d a second result of %s", i, what)
		case result.Round > r.Plan.Rounds || !slices.Contains(r.Plan.Workloads, result.Workload) ||
			!reference(result.Engine) && !slices.Contains(r.Plan.Engines, result.Engine):
			return nil, fmt.Errorf("at /results/%d a result of %s, which is not in the plan", i, what)
		case result.Verified && result.Offer.Open() && result.Open == nil:
			return nil, fmt.Errorf("at /results/%d no open_loop, though %s was offered a rate", i, what)
		}
		seen[t] = true
		cells = append(cells, result.Cell)
	}
	rank := func(engine string) int { // references follow the engines
		if i := slices.Index(r.Plan.Engines, engine); i >= 0 && !reference(engine) {
			return i
		}

		return len(r.Plan.Engines) + slices.Index([]string{Null, Floor, FloorMap, FloorParallel}, engine)
	}
	slices.SortFunc(cells, func(a, b Cell) int {
		return cmp.Or(
			cmp.Compare(slices.Index(r.Plan.Workloads, a.Workload), slices.Index(r.Plan.Workloads, b.Workload)),
			cmp.Compare(a.Clients, b.Clients), cmp.Compare(a.Offer.Share, b.Offer.Share),
			cmp.Compare(a.Offer.Rate, b.Offer.Rate), cmp.Compare(a.Offer.String(), b.Offer.String()),
			cmp.Compare(rank(a.Engine), rank(b.Engine)),
			cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Given, b.Given), cmp.Compare(a.Asked, b.Asked))
	})

	return slices.Compact(cells), nil
}
