package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast/internal/console"
)

// saved writes a report of invented figures to a file, changed by edits of its text.
func saved(t *testing.T, r *Report, edits ...string) string {
	t.Helper()
	var text bytes.Buffer
	if err := console.WriteJSON(&text, r); err != nil {
		t.Fatal(err)
	}
	edited := text.String()
	for i := 0; i+1 < len(edits); i += 2 {
		if !strings.Contains(edited, edits[i]) {
			t.Fatalf("the report has no %q", edits[i])
		}
		edited = strings.Replace(edited, edits[i], edits[i+1], 1)
	}
	file := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(file, []byte(edited), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestReportIsReadAgain as it was written, with its summaries in the same order, whether it is whole or not.
func TestReportIsReadAgain(t *testing.T) {
	_, plan, whole := invented(3)
	for _, results := range []int{len(whole.Results), len(plan.Cells) + 2, 2, 0} {
		r := *whole
		r.Results = r.Results[:results]
		r.summarise(plan.Cells)
		again, err := ReadReport(saved(t, &r))
		if err != nil {
			t.Fatalf("%d results: %v", results, err)
		}
		want, _ := json.Marshal(r.Summary)
		if got, _ := json.Marshal(again.Summary); !bytes.Equal(got, want) {
			t.Errorf("%d results: the summaries are\n%s\nand were\n%s", results, got, want)
		}
		if len(again.Results) != results || results > 0 && !reflect.DeepEqual(again.Results[0], r.Results[0]) {
			t.Errorf("%d results: the first of %d is %+v", results, len(again.Results), again.Results[0])
		}
	}
}

// TestOldReportIsRead: what it does not have is not known.
func TestOldReportIsRead(t *testing.T) {
	_, _, r := invented(1)
	again, err := ReadReport(saved(t, r, `      "read_bytes": 0,`+"\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	if again.Results[0].BytesRead != -1 || again.Results[1].BytesRead != 0 {
		t.Errorf("%d and %d bytes were read", again.Results[0].BytesRead, again.Results[1].BytesRead)
	}
}

// TestReportEditedByHand is refused, and the error says what is wrong where.
func TestReportEditedByHand(t *testing.T) {
	_, _, r := invented(2)
	for _, test := range []struct {
		name, old, new, says string
	}{
		{"other schema", `"holdfast.bench/1"`, `"holdfast.crash/1"`, `its schema is "holdfast.crash/1"`},
		{"no schema", `"schema": "holdfast.bench/1",`, ``, "its schema is not named"},
		{"an offer and no open loop", `"offer": ""`, `"offer": "50%"`, "/results/0 no open_loop"},
		{"negative", `"ops": 8`, `"ops": -8`, "/ops minimum: got -8"},
		{"not a number", `"seconds": 0.2,`, `"seconds": NaN,`, "invalid character 'N'"},
		{"huge", `"ops_per_sec": `, `"ops_per_sec": 1e999, "x": `, "additional properties 'x' not allowed"},
		{"too large", `"seconds": 0.2,`, `"seconds": 1e999,`, "1e999"},
		{"not whole", `"warm_up_ops": 0,`, `"warm_up_ops": 0.5,`, "/results/0/warm_up_ops"},
		{"missing", `"commits": 1000,`, ``, "missing property 'commits'"},
		{"unknown", `"commits": 1000,`, `"commits": 1000, "later": 1,`, "additional properties 'later' not allowed"},
		{"no level", `"given": "`, `"given": "very `, "/results/0/given"},
		{"twice", `"round": 2`, `"round": 1`, "a second result of"},
		{"beyond the plan", `"round": 2`, `"round": 3`, "which is not in the plan"},
		{"unplanned engine", `"engine": "pebble"`, `"engine": "other"`, "which is not in the plan"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ReadReport(saved(t, r, test.old, test.new))
			if !errors.Is(err, ErrReport) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("it says %v", err)
			}
		})
	}
}

// TestFileThatIsNoReport is refused as what it is.
func TestFileThatIsNoReport(t *testing.T) {
	_, _, r := invented(1)
	text, err := os.ReadFile(saved(t, r))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, test := range map[string]struct{ text, says string }{
		"truncated": {string(text[:len(text)/2]), "the file ends before the report does"},
		"empty":     {"", "the file ends before the report does"},
		"twice":     {string(text) + string(text), "invalid character"},
		"array":     {"[1, 2]", "not an object"},
		"text":      {"goos: linux\n", "invalid character"},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(test.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadReport(file); !errors.Is(err, ErrReport) || !strings.Contains(err.Error(), test.says) ||
			!strings.Contains(err.Error(), file) {
			t.Errorf("%s: it says %v", name, err)
		}
	}
	for _, file := range []string{dir, filepath.Join(dir, "missing")} {
		if _, err := ReadReport(file); !errors.Is(err, ErrReport) {
			t.Errorf("%s: it says %v", file, err)
		}
	}
}
