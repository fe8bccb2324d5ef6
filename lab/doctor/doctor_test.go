package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// TestExamine measures a real directory, and leaves nothing there.
func TestExamine(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(t.TempDir(), "report.json")
	var out bytes.Buffer
	err := Command(t.Context(), dir, name, console.Terminal{Out: &out, Err: &out})
	if err != nil && !errors.Is(err, ErrUntrue) { // the test's directory may be in memory
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	levels := logtree.Describe().Levels()
	if r.Schema != Schema || len(r.Ladder) < 12 || len(r.Logtree) != len(levels) || r.Verdict.Sync == "" {
		t.Fatalf("%s", b)
	}
	for _, s := range slices.Concat(r.Ladder, r.Logtree) {
		if s.Refused == "" && (s.Times < 3 || s.P50 <= 0 || s.P50 > s.P99 || s.P99 > s.Max) {
			t.Errorf("%+v", s)
		}
		if !strings.Contains(out.String(), s.Name) {
			t.Errorf("%q is not shown", s.Name)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestExamineRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	engine := t.TempDir()
	if err := os.WriteFile(filepath.Join(engine, "HOLDFAST"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	nowhere := console.Terminal{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}
	for _, dir := range []string{file, engine, filepath.Join(engine, "missing")} {
		if err := Command(t.Context(), dir, "", nowhere); err == nil || Status(err) != console.ExitUse {
			t.Errorf("%s: %v", dir, err)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Command(over, t.TempDir(), "", nowhere); Status(err) != console.ExitInterrupted {
		t.Error(err)
	}
}

// TestVerdict: what figures and mounts say of a sync.
func TestVerdict(t *testing.T) {
	report := func(kind, cache string, took float64, change func(*Report)) *Report {
		r := &Report{
			Machine: measure.Machine{OS: "linux", Disk: measure.Disk{FileSystem: "ext4", Device: "/dev/sda", Kind: kind,
				Cache: cache}},
			Place: Place{MountOptions: []string{"rw"}, OpenFiles: 1 << 20, Mappings: 1 << 20, MemoryLimit: -1},
			Ladder: []Step{{Name: stepWrite, Times: 9, P50: 4}, {Name: stepClean, Times: 9, P50: 1},
				{Name: stepSync, Times: 9, P50: 4 + took}, {Name: stepLarge, Times: 9, P50: 10_000}},
		}
		if change != nil {
			change(r)
		}
		return r
	}
	option := func(o string) func(*Report) {
		return func(r *Report) { r.Place.MountOptions = append(r.Place.MountOptions, o) }
	}
	for name, test := range map[string]struct {
		r    *Report
		sync Sync
		why  string
	}{
		"a drive with a capacitor":  {report("SSD", "write back", 30, nil), Plausible, "capacitor"},
		"a drive without":           {report("SSD", "write back", 1200, nil), Plausible, "plug"},
		"no cache":                  {report("SSD", "write through", 30, nil), Plausible, "sends no flush"},
		"no device asked":           {report("SSD", "write back", 1, nil), Untrue, "the call alone"},
		"a disk that turns":         {report("rotating disk", "write back", 8000, nil), Plausible, "plug"},
		"a disk that does not wait": {report("rotating disk", "write back", 300, nil), Untrue, "turn"},
		"no barriers":               {report("SSD", "write back", 900, option("nobarrier")), Untrue, "nobarrier"},
		"no barriers on ext4":       {report("SSD", "write back", 900, option("barrier=0")), Untrue, "barrier=0"},
		"faster than a bus": {report("SSD", "write back", 30, func(r *Report) {
			r.Ladder[3].P50 = 100
		}), Untrue, "bus"},
		"memory": {report("SSD", "", 1, func(r *Report) {
			r.Machine.Disk.FileSystem = "tmpfs"
		}), Untrue, "memory"},
		"a virtual machine": {report("SSD", "write back", 90, func(r *Report) {
			r.Machine.VM = "a flag"
		}), Unknown, "host"},
		"a virtual machine's memory": {report("SSD", "", 1, func(r *Report) {
			r.Machine.VM = "a flag"
		}), Untrue, "the call alone"},
		"a share": {report("SSD", "", 900, func(r *Report) {
			r.Machine.Disk.FileSystem = "nfs4"
		}), Unknown, "nfs4"},
		"fuse": {report("", "", 900, func(r *Report) {
			r.Machine.Disk.FileSystem = "fuse.sshfs"
		}), Unknown, "another program"},
		"an image": {report("SSD", "", 90, func(r *Report) {
			r.Machine.Disk.Device = "/dev/loop3"
		}), Unknown, "image"},
		"not Linux": {report("", "", 90, func(r *Report) {
			r.Machine.OS = "darwin"
		}), Unknown, "not known"},
		"an overlay": {report("SSD", "", 90, func(r *Report) {
			r.Machine.Disk.FileSystem = "overlay"
			option("volatile")(r)
		}), Untrue, "overlay"},
	} {
		v := judge(test.r)
		if v.Sync != test.sync || !strings.Contains(strings.Join(v.Why, " "), test.why) {
			t.Errorf("%s: %s, %q", name, v.Sync, v.Why)
		}
	}
}

// TestAdvice: each line is given for its reason, and none without.
func TestAdvice(t *testing.T) {
	sound := func() *Report {
		return &Report{
			Machine: measure.Machine{Disk: measure.Disk{FileSystem: "ext4"}}, Verdict: Verdict{Sync: Plausible},
			Place: Place{OpenFiles: 1 << 20, Mappings: 1 << 20, MemoryLimit: -1, ReadAhead: 128 << 10, FreeBytes: 50,
				TotalBytes: 100},
		}
	}
	if list := advise(sound()); len(list) != 0 {
		t.Errorf("%v", list)
	}
	for want, spoil := range map[string]func(*Report){
		"Power means nothing": func(r *Report) { r.Verdict.Sync = Untrue },
		"has no journal":      func(r *Report) { r.Machine.Disk.FileSystem = measure.Unjournaled },
		"reads 8.39 MB ahead": func(r *Report) { r.Place.ReadAhead = 8 << 20 },
		"may open 1024 files": func(r *Report) { r.Place.OpenFiles = 1024 },
		"have 1000 mappings":  func(r *Report) { r.Place.Mappings = 1000 },
		"a tenth of the disk": func(r *Report) { r.Place.FreeBytes = 9 },
		"may take 268 MB":     func(r *Report) { r.Place.MemoryLimit = 256 << 20 },
		"btrfs":               func(r *Report) { r.Machine.Disk.FileSystem = "btrfs" },
		"a sync takes 90 us": func(r *Report) {
			r.Machine.VM, r.Ladder = "a flag", []Step{{Name: stepSync, Times: 9, P50: 90}}
		},
	} {
		r := sound()
		spoil(r)
		list := advise(r)
		if len(list) != 1 || !strings.Contains(list[0].What, want) || list[0].Do == "" {
			t.Errorf("%s: %v", want, list)
		}
	}
}

// TestShow: what is known of the place is shown, what the engine keeps to, and no promise where a sync keeps nothing.
func TestShow(t *testing.T) {
	r := &Report{
		Machine: measure.Machine{CPU: "x", MemoryBytes: 4e9, VM: "a flag", Container: "a file"},
		Place: Place{MountPoint: "/data", ReadAhead: 128 << 10, Scheduler: "none", OpenFiles: 1024, Mappings: 65530,
			FreeBytes: 10e9, TotalBytes: 50e9, MemoryLimit: -1},
		Ladder:   []Step{{Name: stepDirect, Refused: "no such flag"}},
		Settings: map[string]string{"memory": "134217728", "files": "1000"}, Verdict: Verdict{Sync: Unknown},
	}
	shown := func() string {
		var out bytes.Buffer
		show(console.Terminal{Out: &out}.Screen(), r)
		return strings.Join(strings.Fields(out.String()), " ")
	}
	for _, want := range []string{"a virtual machine by a flag, a container by a file",
		"reads 131 kB ahead, scheduler none",
		"may open 1024 files and have 65530 mappings", "40 GB are in use on the file system, 10x as much", "no such flag",
		"at most the last 1s of Memory and Process", "take 134 MB", "At most 1000 files"} {
		if text := shown(); !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	r.Verdict.Sync = Untrue
	if text := shown(); strings.Contains(text, "at most the last") || !strings.Contains(text, "may take anything") {
		t.Errorf("a sync keeps nothing, and it says %s", text)
	}
}
