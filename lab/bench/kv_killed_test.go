package bench

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/bbolt"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/pebble"
)

// TestOpenKilled: what is opened was left by a process that was killed, all that it had acknowledged is there, and the
// one operation is the opening.
func TestOpenKilled(t *testing.T) {
	lab := Standard()
	lab.Workloads = smallKV()
	for _, engine := range []string{logtree.Name, pebble.Name, bbolt.Name, Floor, Null} {
		for _, level := range []holdfast.Level{holdfast.Process, holdfast.Power} {
			q := request{Cell: Cell{Workload: "kv/open-killed", Engine: engine, Asked: level, Given: level, Clients: 1},
				For: time.Hour, WarmUp: time.Hour, Dir: t.TempDir(), Seed: 1}
			o := unknownOutcome()
			err := lab.measure(q, &o)
			if err != nil || !o.Verified || o.Ops != 1 || o.WarmUpOps != 0 || o.Seconds*1e6 < 0.9*o.Latency.P50 ||
				engine != Null && o.Items != 1500 {
				t.Errorf("%s at %v: %v, %+v", engine, level, err, o.Measurement)
			}
			if reference(engine) {
				continue
			}
			if o.OpenSeconds <= 0 || o.Commits > 0 {
				t.Errorf("%s at %v: clean opening took %v s, and %d commits were made after the kill", engine, level,
					o.OpenSeconds, o.Commits)
			}
		}
	}
}

// TestOpenKilledSeesLoss: what a killed process had acknowledged and is not there voids the measurement.
func TestOpenKilledSeesLoss(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "engine")
	task := Task{Level: holdfast.Process, Clients: 1, Seed: 1}
	task.Open = func() (holdfast.Engine, error) { return logtree.Open(dir, holdfast.Options{Level: holdfast.Process}) }
	task.Killed = func(keys int) error {
		table, err := newKVTable(task, keys-1, kvMoreValue)
		if err != nil {
			return err
		}
		return errors.Join(table.fill(kvFill{}, task.Level), table.engine.Close())
	}
	load, err := kvKilled{300}.engine(task)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(load.Client(0)(), load.Close()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := load.Verify(); !errors.Is(err, ErrWrong) {
		t.Errorf("it says %v", err)
	}
}

// TestKilledOnFullDisk: a disk that takes no writes is not held against the engine, though another process met it.
func TestKilledOnFullDisk(t *testing.T) {
	lab := Standard()
	for name, test := range map[string]struct {
		err  error
		disk bool
	}{"full": {syscall.ENOSPC, true}, "broken": {errors.New("it fell over"), false}} {
		lab.Engines = []all.Entry{{Name: "engine", Describe: engineGiving("engine", 0, 2, 3).Describe,
			Open: func(string, holdfast.Options) (holdfast.Engine, error) { return nil, test.err }}}
		var out bytes.Buffer
		err := lab.putAndWait(request{Cell: Cell{Engine: "engine"}, Put: 5}, &out)
		if said := strings.TrimSpace(out.String()); !errors.Is(err, test.err) ||
			(said == fmt.Sprint(diskRefused)) != test.disk {
			t.Errorf("%s: %v, it says %q", name, err, said)
		}
	}
}

// TestKilledIsRefused where what was acknowledged dies with the process: nothing is measured there, and it is said why.
func TestKilledIsRefused(t *testing.T) {
	p, err := Standard().Plan(Request{Preset: "kv", Workloads: []string{"kv/open-killed"},
		Engines: []string{"mem", "pebble", "logtree"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Cells {
		if c.Given == holdfast.Memory && !reference(c.Engine) {
			t.Errorf("it is measured: %+v", c)
		}
	}
	said := 0
	for _, u := range p.Unavailable {
		if u.Reason == "what it acknowledged dies with the process" {
			said++
		}
	}
	if said != 3 {
		t.Errorf("%+v", p.Unavailable)
	}
	_, err = Standard().Plan(Request{Preset: "kv", Workloads: []string{"kv/open-killed"}, Engines: []string{"mem"}})
	if err == nil {
		t.Error("mem is measured")
	}
}
