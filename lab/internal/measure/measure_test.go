package measure

import (
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values                        []float64
		center, low, high, confidence float64
	}{
		{[]float64{5}, 5, 5, 5, 0},
		{[]float64{1, 3}, 2, 1, 3, 0.5},
		{[]float64{9, 1, 5}, 5, 1, 9, 0.75},
		{[]float64{1, 2, 3, 4, 5}, 3, 1, 5, 0.9375},
		// From six values on, 1 - 2/2^6.
		{[]float64{6, 5, 4, 3, 2, 1}, 3.5, 1, 6, 0.96875},
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 5.5, 2, 9, 0.978515625},
	} {
		given := append([]float64(nil), test.values...)
		center, low, high, confidence := Median(test.values)
		if center != test.center || low != test.low || high != test.high || math.Abs(confidence-test.confidence) > 1e-9 {
			t.Errorf("%v: %v [%v %v] at %v, want %v [%v %v] at %v", given, center, low, high, confidence, test.center, test.low,
				test.high, test.confidence)
		}
		for i := range given {
			if given[i] != test.values[i] {
				t.Fatalf("%v was changed to %v", given, test.values)
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	for want, got := range map[string]string{
		"0": Count(0), "12": Count(12), "1.5": Count(1.5), "999": Count(999.4), "1k": Count(999.6), "19.6k": Count(19_600),
		"870k": Count(870_000),
		"1.2M": Count(1_200_000), "433M": Count(433e6), "2.1G": Count(2.1e9),
		"63 ns": Duration(0.063), "1 us": Duration(0.9996), "1.42 us": Duration(1.42), "51 us": Duration(51),
		"86.5 us": Duration(86.49), "1 ms": Duration(999.9),
		"4.59 ms": Duration(4586), "1.2 s": Duration(1.2e6), "?": Duration(-1),
		"0 B": Size(0), "999 B": Size(999), "1 kB": Size(1000), "74.7 MB": Size(74_700_000), "1.5 TB": Size(1.5e12),
		"100 %": Percent(1), "78 %": Percent(0.776), "1 %": Percent(0.00996), "0.4 %": Percent(0.004), "0 %": Percent(0),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestDiskSentences(t *testing.T) {
	for want, m := range map[string]Machine{
		"disk: ext4 on a virtual disk (write back cache), fdatasync p50 51 us. A VM: whether a sync reaches the device " +
			"cannot be told.": {OS: "linux", VM: "x", Disk: Disk{FileSystem: "ext4", Kind: "virtual disk", Cache: "write back",
			SyncP50: 51}},
		"disk: xfs on an SSD, fdatasync p50 1.2 " +
			"ms.": {OS: "linux",
			Disk: Disk{FileSystem: "xfs", Kind: "SSD", SyncP50: 1200}},
		"disk: tmpfs, fdatasync p50 200 ns. Memory: a sync reaches nothing, and no figure here is one of a " +
			"disk.": {OS: "linux", VM: "x", Disk: Disk{FileSystem: "tmpfs", Kind: "memory", SyncP50: 0.2}},
		"disk: unknown file system, fdatasync p50 4 ms. What kind of disk this is cannot be told on " +
			"darwin.": {OS: "darwin", Disk: Disk{SyncP50: 4000}},
		"disk: overlay, fdatasync p50 4 ms. A container: other work on the machine may " +
			"disturb.": {OS: "linux", Container: "x",
			Disk: Disk{FileSystem: "overlay", SyncP50: 4000}},
		"disk: ext4 on a virtual disk, fdatasync p50 4 ms. A virtual disk: whether a sync reaches a device cannot be " +
			"told.": {OS: "linux", Disk: Disk{FileSystem: "ext4", Kind: "virtual disk", SyncP50: 4000}},
	} {
		if got := m.Sentence(); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

func TestMachineIsKnownHere(t *testing.T) {
	m, err := Describe(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if m.OS != runtime.GOOS || m.CPUs < 1 || m.Disk.SyncP50 <= 0 {
		t.Errorf("%+v", m)
	}
	if runtime.GOOS == "linux" && (m.Kernel == "" || m.MemoryBytes <= 0 || m.Disk.FileSystem == "") {
		t.Errorf("%+v", m)
	}
	if !slices.Contains([]string{"", kindVirtual, kindSSD, kindRotating, kindMemory}, m.Disk.Kind) {
		t.Errorf("kind of disk %q", m.Disk.Kind)
	}
}

func TestMemoryIsKnownHere(t *testing.T) {
	const shm = "/dev/shm"
	mounts, _ := os.ReadFile("/proc/mounts")
	var m Machine
	if look(&m, shm); strings.Contains(string(mounts), " "+shm+" tmpfs ") && !m.Disk.InMemory() {
		t.Errorf("%s: %+v", shm, m.Disk)
	}
}

// TestCurve: quantiles end where no operation is slower; the fastest and the slowest are always there.
func TestCurve(t *testing.T) {
	for _, test := range []struct {
		ops  int
		want []float64 // percents
	}{
		{0, nil}, {1, []float64{0, 100}}, {2, []float64{0, 50, 100}}, {9, []float64{0, 50, 75, 100}},
		{100, []float64{0, 50, 75, 90, 95, 99, 100}}, {999, []float64{0, 50, 75, 90, 95, 99, 100}},
		{1000, []float64{0, 50, 75, 90, 95, 99, 99.9, 100}},
		{100_000, []float64{0, 50, 75, 90, 95, 99, 99.9, 99.99, 99.999, 100}},
	} {
		h := NewHistogram()
		for i := range test.ops {
			Record(h, time.Duration(i+1)*time.Microsecond)
		}
		var percents []float64
		for _, p := range Curve(h) {
			percents = append(percents, p.Percent)
			// Three digits are kept.
			if want := max(p.Percent/100*float64(test.ops), 1); math.Abs(p.Micros-want) > max(want/500, 1) {
				t.Errorf("of %d operations, %v %% took %v us", test.ops, p.Percent, p.Micros)
			}
		}
		if !slices.Equal(percents, test.want) {
			t.Errorf("of %d operations: %v, want %v", test.ops, percents, test.want)
		}
	}
}
