package crash

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
	"github.com/holdfastdb/holdfast/lab/internal/machines"
)

// TestMachines loses machines: a writer that counts loses nothing, and the controls are found out. Where there can be
// no machines, the run says so with its status.
func TestMachines(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it starts nine servers")
	}
	t.Parallel()               // it waits for servers
	cuts, seed := 3, uint64(8) // a trap, and an owner that is isolated, and paused
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "report.json")
	q := Request{Kinds: []string{"machine"}, Subjects: []string{"kv"}, Cuts: &cuts, Seed: &seed}
	err := Standard().Command(t.Context(), q, Place{Dir: t.TempDir()}, console.Files{JSON: file},
		console.Terminal{Out: &out, Err: &out})
	if missing := machines.Check(machines.Options{}); missing != nil {
		if Status(err) != console.ExitCannot {
			t.Errorf("the run ended with status %d: %v", Status(err), err)
		}
		t.Skip("MACHINES ARE NOT CRASHED: ", missing)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
	text, err := os.ReadFile(file)
	testkit.Try(t, err)
	var r Report
	testkit.Try(t, json.Unmarshal(text, &r))
	var found []string
	for _, row := range r.Results {
		found = append(found, row.Engine)
		want := Broken
		if row.Engine == kinds.MachineEngine {
			want = Held
		}
		if row.Verdict != want || row.Acked == 0 || row.Level != holdfast.Quorum {
			t.Errorf("%s is %s at %v, %d acknowledged: %s", row.Engine, row.Verdict, row.Level, row.Acked, row.Why)
		}
	}
	if !slices.Equal(found, kinds.OnMachines("kv")) {
		t.Errorf("rows %q", found)
	}
}

// TestMachinesOfEngines: what is not crashed on machines is refused with the reason.
func TestMachinesOfEngines(t *testing.T) {
	if err := machines.Check(machines.Options{}); err != nil {
		t.Skip("MACHINES ARE NOT CRASHED: ", err)
	}
	for _, c := range []struct {
		q     Request
		class error
		says  string
	}{
		{Request{Engines: []string{"logtree"}}, holdfast.ErrBadOption, "on one machine"},
		{Request{Subjects: []string{"raft"}}, holdfast.ErrLevel, "not under raft"},
		{Request{Levels: []string{"power"}}, holdfast.ErrLevel, "quorum alone"},
	} {
		c.q.Kinds = []string{"machine"}
		if _, err := Standard().plan(c.q); !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("planned: %v, want that it says %q", err, c.says)
		}
	}
}
