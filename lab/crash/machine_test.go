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
		if p := row.Pauses[AnyLoss]; want == Held && (p.Times != cuts || p.Median <= 0 || p.Max < p.Median) {
			t.Errorf("%s: pauses %+v", row.Engine, row.Pauses)
		}
		if row.Verdict != want || row.Acked == 0 || row.Level != holdfast.Quorum {
			t.Errorf("%s is %s at %v, %d acknowledged: %s", row.Engine, row.Verdict, row.Level, row.Acked, row.Why)
		}
	}
	if !slices.Equal(found, kinds.OnMachines("kv", nil)) {
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
		{Request{Manager: "nobody"}, holdfast.ErrBadOption, "the managers are patroni and patroni-etcd3"},
		{Request{Losses: []string{"of nerve"}}, holdfast.ErrBadOption, "the losses are kill, power cut,"},
	} {
		c.q.Kinds = []string{"machine"}
		if _, err := Standard().plan(c.q); !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("planned: %v, want that it says %q", err, c.says)
		}
	}
}

// TestLosses: a run of machines has the losses that it is asked for, and no other run has any.
func TestLosses(t *testing.T) {
	_, err := Standard().plan(Request{Kinds: []string{"kill"}, Losses: []string{"kill"}})
	if !errors.Is(err, holdfast.ErrBadOption) || !strings.Contains(err.Error(), "--kind machine") {
		t.Errorf("losses without machines: %v", err)
	}
	if err := machines.Check(machines.Options{}); err != nil {
		t.Skip("MACHINES ARE NOT CRASHED: ", err)
	}
	p, err := Standard().plan(Request{Kinds: []string{"machine"}, Losses: []string{"power*", "kill"}})
	testkit.Try(t, err)
	for _, c := range p.cells {
		if want := []string{"kill", "power cut", "power cut of all"}; !slices.Equal(c.Losses, want) {
			t.Errorf("%s loses machines by %q, want %q", c.Engine, c.Losses, want)
		}
	}
	if !strings.Contains(p.Command, "--losses 'power*,kill'") {
		t.Errorf("again: %s", p.Command)
	}
}
