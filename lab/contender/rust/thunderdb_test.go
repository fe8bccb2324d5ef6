package rust

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/lab/crash/blockdev"
)

var (
	flagVictim = flag.String("victim", filepath.Join("target", "release", "victim-thunderdb"), "the built `program`")
	flagKills  = flag.Int("kills", 5, "how often to kill it")
	flagCuts   = flag.Int("cuts", 10, "how many power cuts to make of one run, for each policy")
	flagSeed   = flag.Uint64("seed", 1, "what the plans and moments follow from")
	flagKeys   = flag.Int("keys", 20000, "keys in the database")
	flagWAL    = flag.Bool("wal", false, "turn its write-ahead log on")
	flagKeep   = flag.String("keep", "", "save the image of the first broken cut in this `directory`")
)

func victimPath(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(*flagVictim)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Skipf("%v; build it: cargo build --release --manifest-path lab/contender/rust/Cargo.toml", err)
	}
	return path
}

// plan is the PLAN of src/main.rs: transaction 1 inserts all keys, each later one overwrites 20.
func plan(seed uint64, from, count int) []string {
	args := []string{strconv.FormatUint(seed, 10), strconv.Itoa(*flagKeys), "20", strconv.Itoa(from), strconv.Itoa(count)}
	if *flagWAL {
		args = append(args, "wal")
	}
	return args
}

// work runs the victim in dir until it ends or ctx does; acked is called for each acknowledged transaction.
func work(ctx context.Context, victim, dir string, plan []string, acked func(uint64)) error {
	cmd := exec.CommandContext(ctx, victim, append([]string{"work", dir}, plan...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	// Every line that it wrote before it died is read, and only then is it waited for.
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "ack "); ok {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return err
			}
			acked(n)
		}
	}
	if err := cmd.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// verdict is what a check found.
type verdict string

const (
	held     verdict = "held"
	lost     verdict = "acknowledged transactions lost"
	torn     verdict = "torn: not the state after any transaction"
	damaged  verdict = "damaged values"
	unopened verdict = "does not open"
)

// check opens what the victim left in dir and says how it stands to what was acknowledged and to what was begun at
// most; detail is one line for people.
func check(t *testing.T, victim, dir string, plan []string, acked, begun uint64) (v verdict, detail string) {
	t.Helper()
	cmd := exec.Command(victim, append([]string{"check", dir}, plan...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return unopened, fmt.Sprintf("%v: %s", err, strings.TrimSpace(errs.String()))
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	state, ok := strings.CutPrefix(lines[len(lines)-1], "state ")
	if !ok {
		t.Fatalf("the check says no state: %.200q", out)
	}
	if n := bytes.Count(out, []byte("\nbad ")); n > 0 {
		return damaged, fmt.Sprintf("%d of %d values", n, len(lines)-2)
	}
	n, err := strconv.ParseUint(state, 10, 64)
	switch {
	case err != nil:
		return torn, fmt.Sprintf("%d keys, %d transactions acknowledged", len(lines)-2, acked)
	case n < acked:
		return lost, fmt.Sprintf("%d of %d acknowledged", n, acked)
	case n > begun:
		t.Fatalf("transaction %d is there, but at most %d was begun", n, begun)
	}
	return held, ""
}

// tally counts verdicts, with the first detail of each.
type tally struct {
	count  map[verdict]int
	detail map[verdict]string
}

func (y *tally) add(v verdict, detail string) {
	if y.count == nil {
		y.count, y.detail = map[verdict]int{}, map[verdict]string{}
	}
	if y.count[v]++; y.count[v] == 1 {
		y.detail[v] = detail
	}
}

func (y *tally) log(t *testing.T, what string) {
	t.Helper()
	for _, v := range []verdict{held, lost, torn, damaged, unopened} {
		if y.count[v] > 0 {
			t.Logf("%-28s %4d  %s; first: %s", what, y.count[v], v, y.detail[v])
		}
	}
}

// TestCleanEnd is the control: ended in peace, all is there, also after another start. Were it not so, nothing that the
// others print would mean anything.
func TestCleanEnd(t *testing.T) {
	victim, dir := victimPath(t), t.TempDir()
	var acked uint64
	for _, from := range []int{1, 11} {
		if err := work(t.Context(), victim, dir, plan(*flagSeed, from, 10), func(n uint64) { acked = n }); err != nil {
			t.Fatal(err)
		}
		if v, detail := check(t, victim, dir, plan(*flagSeed, 1, 0), acked, acked); v != held || acked != uint64(from+9) {
			t.Errorf("after a clean end with %d acknowledged: %s %s", acked, v, detail)
		}
	}
}

// TestKill reports what kill -9 leaves. What it finds is the crate's matter: it does not fail.
func TestKill(t *testing.T) {
	victim := victimPath(t)
	rng := rand.New(rand.NewPCG(*flagSeed, 2))
	var y tally
	transactions := uint64(0)
	for i := range *flagKills {
		dir, seed := t.TempDir(), rng.Uint64()
		ctx, cancel := context.WithCancel(t.Context())
		var acked uint64
		// The moment is counted from an acknowledgement, so that a slow machine changes nothing.
		after, wait := 2+rng.Uint64N(10), time.Duration(rng.Int64N(int64(20*time.Millisecond)))
		err := work(ctx, victim, dir, plan(seed, 1, 0), func(n uint64) {
			if acked = n; n == after {
				time.AfterFunc(wait, cancel)
			}
		})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		v, detail := check(t, victim, dir, plan(seed, 1, 0), acked, acked+1)
		y.add(v, fmt.Sprintf("kill %d, seed %d, after %d: %s", i, seed, acked, detail))
		transactions += acked
	}
	t.Logf("%d kills, %d transactions acknowledged, %d keys, write-ahead log %t, seed %d", *flagKills, transactions,
		*flagKeys, *flagWAL, *flagSeed)
	y.log(t, "kill -9")
}

// TestPower reports what power cuts leave. What it finds is the crate's matter: it does not fail.
func TestPower(t *testing.T) {
	if err := blockdev.Check("ext4"); err != nil {
		t.Skip(err)
	}
	victim := victimPath(t)
	o := blockdev.Options{FS: "ext4", Dir: t.TempDir()}
	d, err := blockdev.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	dir := filepath.Join(d.Path(), "db")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	seed := *flagSeed
	if err := work(t.Context(), victim, dir, plan(seed, 1, 20), func(n uint64) { d.Mark(n) }); err != nil {
		t.Fatal(err)
	}
	record := d.Freeze()
	defer record.Close()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	// A mark comes a little after its transaction: the next ones may have begun.
	first, acked := 0, make([]uint64, record.Len()+1) // the first acknowledgement; what is acknowledged before each event
	for i := range record.Len() {
		acked[i+1] = acked[i]
		if e := record.Event(i); e.Kind == blockdev.Mark {
			acked[i+1] = e.Value
			if first == 0 {
				first = i + 1
			}
		}
	}
	t.Logf("%d events, %d transactions acknowledged, %d keys, write-ahead log %t, seed %d", record.Len(),
		acked[record.Len()], *flagKeys, *flagWAL, seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	for _, kind := range []string{"nothing", "everything", "subset"} {
		var y tally
		for range *flagCuts {
			at := first + rng.IntN(record.Len()+1-first)
			policy := map[string]blockdev.Policy{"nothing": blockdev.Nothing(), "everything": blockdev.Everything(),
				"subset": blockdev.Subset(rng.Uint64())}[kind]
			image := record.Cut(blockdev.Position(at), policy)
			mounted, err := image.Mount(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			v, detail := check(t, victim, filepath.Join(mounted.Path(), "db"), plan(seed, 1, 0), acked[at], acked[record.Len()])
			if err := mounted.Close(); err != nil {
				t.Fatal(err)
			}
			y.add(v, fmt.Sprintf("cut before event %d, %v: %s", at, policy, detail))
			if v != held && *flagKeep != "" {
				if err := image.Save(filepath.Join(*flagKeep, "thunderdb.ext4")); err != nil {
					t.Fatal(err)
				}
				*flagKeep = ""
			}
		}
		y.log(t, "power cut, keeps "+kind)
	}
}
