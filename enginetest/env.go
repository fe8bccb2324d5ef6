package enginetest

import (
	"encoding/binary"
	"errors"
	"flag"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
)

// trial is a run of one case at one level.
type trial struct {
	tb
	s     *suite
	level holdfast.Level
}

// given is what commits at the level really get.
func (a *trial) given() holdfast.Level { return a.s.caps.Promise(a.level).Given }

// dir returns a directory that does not exist yet, or none for an engine that has no use for
// one.
func (a *trial) dir() string {
	if !a.s.kept {
		return ""
	}

	return filepath.Join(a.TempDir(), "engine")
}

// options are those that every case opens with.
func (a *trial) options() holdfast.Options { return holdfast.Options{Level: a.level} }

// open opens the engine in dir, and closes it when the case ends, if it has not.
func (a *trial) open(dir string) holdfast.Engine {
	a.Helper()
	return a.openWith(dir, a.options())
}

func (a *trial) openWith(dir string, o holdfast.Options) holdfast.Engine {
	a.Helper()
	e, err := a.s.Open(dir, o)
	if err != nil {
		a.Fatalf("Open: %v", err)
	}
	a.Cleanup(func() { _ = e.Close() })

	return e
}

// closeAndCheck closes e, which was opened in dir, and calls check with what is there when it is opened again.
func (a *trial) closeAndCheck(e holdfast.Engine, dir string, check func(holdfast.Engine)) {
	a.Helper()
	if a.close(e); a.s.kept {
		e = a.open(dir)
		check(e)
		a.close(e)
	}
}

// close closes e and fails if that does.
func (a *trial) close(e holdfast.Engine) {
	a.Helper()
	if err := e.Close(); err != nil {
		a.Fatalf("Close: %v", err)
	}
}

// apply applies b at the case's level.
func (a *trial) apply(e holdfast.Engine, b *holdfast.Batch) holdfast.Receipt {
	a.Helper()
	r, err := e.Apply(b, a.level)
	if err != nil {
		a.Fatalf("Apply: %v", err)
	}

	return r
}

// commit applies b at the case's level and waits.
func (a *trial) commit(e holdfast.Engine, b *holdfast.Batch) {
	a.Helper()
	if err := a.apply(e, b).Wait(); err != nil {
		a.Fatalf("Wait: %v", err)
	}
}

// applyScript applies the batches from one number to another, and returns the last receipt.
func (a *trial) applyScript(e holdfast.Engine, from, to uint64) (last holdfast.Receipt) {
	a.Helper()

	for n := from; n <= to; n++ {
		last = a.apply(e, a.s.script.batch(n))
	}

	return last
}

// commitScript commits the batches from one number to another.
func (a *trial) commitScript(e holdfast.Engine, from, to uint64) {
	a.Helper()
	if err := a.s.script.commit(e, from, to, a.level); err != nil {
		a.Fatalf("writing: %v", err)
	}
}

// set commits one key.
func (a *trial) set(e holdfast.Engine, key, value string) {
	a.Helper()
	a.commit(e, sets(key, value))
}

// wants fails unless r holds key with value.
func (a *trial) wants(r holdfast.Reader, key, value string) {
	a.Helper()
	if got, err := r.Get(nil, []byte(key)); err != nil || string(got) != value {
		a.Errorf("Get(%s) = %s, %v; want %s", commits.Quote(key), commits.Quote(got), err, commits.Quote(value))
	}
}

// lacks fails if r holds key.
func (a *trial) lacks(r holdfast.Reader, key string) {
	a.Helper()
	if got, err := r.Get(nil, []byte(key)); !errors.Is(err, holdfast.ErrNotFound) {
		a.Errorf("Get(%s) = %s, %v; want ErrNotFound", commits.Quote(key), commits.Quote(got), err)
	}
}

// wantsAll fails unless the keys and values in r are exactly these, given in turn.
func (a *trial) wantsAll(r holdfast.Reader, rng holdfast.Range, keysAndValues ...string) {
	a.Helper()
	got, err := commits.Contents(r, rng)
	if err != nil {
		a.Errorf("Scan: %v", err)
		return
	}
	if d := commits.Difference(got, pairs(keysAndValues...)); d != "" {
		a.Errorf("Scan of [%s, %s), reverse %v: %s", commits.Quote(rng.Lo), commits.Quote(rng.Hi), rng.Reverse, d)
	}
}

// wantsErr fails unless err is of class.
func (a *trial) wantsErr(what string, err, class error) {
	a.Helper()
	if !errors.Is(err, class) {
		a.Errorf("%s: %v; want %v", what, err, class)
	}
}

// wantsScript fails unless r holds between least and most batches of the suite's script, and
// nothing else. It returns how many.
func (a *trial) wantsScript(r holdfast.Reader, least, most uint64) uint64 {
	a.Helper()
	state, err := commits.Contents(r, holdfast.Range{})
	if err != nil {
		a.Fatalf("Scan: %v", err)
	}

	n, breaches := a.s.script.judge(state)
	for _, b := range breaches {
		a.Errorf("%s", b.text)
	}
	if n < least || n > most {
		a.Errorf("%d batches are there, want %d to %d", n, least, most)
	}

	return n
}

// sets returns a batch that sets these keys and values, given in turn.
func sets(keysAndValues ...string) *holdfast.Batch {
	var b holdfast.Batch
	for i := 0; i < len(keysAndValues); i += 2 {
		b.Set([]byte(keysAndValues[i]), []byte(keysAndValues[i+1]))
	}

	return &b
}

// pairs lists these keys and values, given in turn.
func pairs(keysAndValues ...string) (list commits.State[string]) {
	for i := 0; i < len(keysAndValues); i += 2 {
		list = append(list, commits.Entry[string]{Key: keysAndValues[i], Value: keysAndValues[i+1]})
	}

	return list
}

// seedFlag is given to repeat what a failing case prints.
var seedFlag = flag.Uint64("enginetest.seed", 1,
	"the seed of what the suite chooses at random, 0 for another one each time")

// random returns a source for one case, and logs its seed.
func (a *trial) random() *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	a.Logf("-enginetest.seed %d", seed)

	return rand.New(rand.NewPCG(seed, 0))
}

// filler returns n bytes that no engine can compress away, the same for the same seed.
func filler(seed uint64, n int) []byte {
	b := make([]byte, 0, n+8)
	for x := seed*0x9E3779B97F4A7C15 + 1; len(b) < n; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b = binary.LittleEndian.AppendUint64(b, x)
	}

	return b[:n]
}

// wantsWorking fails if e says that it has ended.
func (a *trial) wantsWorking(when string, e holdfast.Engine) {
	a.Helper()
	select {
	case <-e.Done():
		a.Errorf("%s, Done is closed, and Err is %v", when, e.Err())
	default:
		if err := e.Err(); err != nil {
			a.Errorf("%s, Err is %v, and Done is not closed", when, err)
		}
	}
}

// wantsEnded fails unless e says that it has ended, which it reports, and why.
func (a *trial) wantsEnded(when string, e holdfast.Engine, why ...error) bool {
	a.Helper()
	select {
	case <-e.Done():
	default:
		a.Errorf("%s, Done is not closed, and Err is %v", when, e.Err())
		return false
	}
	for _, err := range why {
		a.wantsErr(when+", Err", e.Err(), err)
	}
	return true
}

// stuck is how long the suite waits for what should come at once before it says that it
// never comes.
var stuck = time.Minute

// eventually reports whether ok becomes true.
func eventually(ok func() bool) bool {
	for end := time.Now().Add(stuck); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return true
		}
	}

	return false
}
