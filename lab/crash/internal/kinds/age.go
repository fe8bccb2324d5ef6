package kinds

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// agedGen is the generation of victims that age a directory, which is none of a session's own.
const agedGen = 1 << 20

// agedBytes chooses how much is written before a victim begins: a directory that is new at each crash has no full log,
// no table to merge and no page to use again. An engine that takes no small budget has large logs, which are brought
// near their end. 0 is nothing, three times of four, and where each key has a file of its own, which ages with each
// write.
func (c Row) agedBytes(rnd *rand.Rand) int64 {
	aged, small, fill := rnd.IntN(4) == 0, 2<<20+rnd.Int64N(6<<20), fullBytes-rnd.Int64N(8<<20)
	switch {
	case !aged || c.Control || c.Peer || !c.Capabilities.AtomicBatches || c.Capabilities.Strongest() <= holdfast.Memory:
		return 0
	case c.Capabilities.MinMemoryBytes > victimMemory:
		return fill
	}

	return small
}

// fullBytes is what fills the log of an engine that takes no small budget: Badger's, of 64 MiB.
const fullBytes = 64 << 20

// age lets a victim write so many bytes into a directory without waiting for them, sync, and end, half of the time
// without closing. The history goes on behind it.
func (r *Runner) age(
	ctx context.Context, c Row, dir string, h *protocol.History, bytes int64, leave bool, gen uint32, t Tally,
) error {
	subject, err := r.Subject(c.Subject)
	if err != nil || bytes == 0 || !subject.Ages() {
		return err
	}

	// The batches that age the directory get a generation of their own, before the victim's first.
	from := h.Segments[len(h.Segments)-1].From
	h.Begin(agedGen, from)
	s := r.victimSpec(c, dir, h, 0)
	s.Age, s.Leave, s.Only, s.SyncNow = bytes, leave, true, 0
	v := &victim{command: r.Child, spec: s, ledger: &protocol.Ledger{}, row: c,
		place: func(uint64) protocol.Position { return 0 }}
	v.subject = subject
	p, events, ended, err := v.launch()
	if err != nil {
		return err
	}

	limit, cancel := context.WithTimeout(ctx, r.Timeouts.Checking)
	defer cancel()
	defer context.AfterFunc(limit, p.Kill)()

	// The victim ends by itself. Its output is heard to the end, so that the ledger has everything.
	for range events {
	}
	p.CloseInput()
	err = <-ended

	failure, full := v.ledger.Failed()
	switch {
	case ctx.Err() != nil:
		return console.ErrInterrupted
	case full:
		return noRoom(dir, failure)
	case failure == "" && err != nil:
		v.ledger.Fail(err.Error())
	}
	if findings := v.ledger.Findings(); len(findings) > 0 {
		for _, finding := range findings {
			t.Wrong("before any crash: " + finding)
		}

		return errBefore
	}

	// What was synced before the victim of the session begins is promised, and must survive its crash too.
	h.Add(v.ledger, protocol.Never)
	h.Begin(gen, h.Issued+1)
	t.Did("aged directories", 1)

	return nil
}

// errBefore ends a session in which something was wrong before any crash, which the tally was told.
var errBefore = errors.New("a claim was broken before any crash")

// watchFiles counts, until end is called, the numbered files that appear below dir after those that are there first, by
// names without their numbers, and how often a log of SQLite begins anew: what a victim reaches beyond its first log.
func watchFiles(ctx context.Context, dir string, t Tally) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)

		known, headers := files(dir), map[string]string{}
		for ctx.Err() == nil {
			sleep(ctx, watchPause)

			for name := range files(dir) {
				if kind := kindOfFile(name); !known[name] && kind != filepath.Base(name) {
					t.Did(FileMade+kind, 1)
				}
				known[name] = true

				// A log that begins anew keeps its name, and only its header tells.
				if strings.HasSuffix(name, "-wal") {
					now := headerOf(name)
					if before := headers[name]; before != "" && now != "" && now != before {
						t.Did(FileMade+kindOfFile(name)+" anew", 1)
					}
					headers[name] = now
				}
			}
		}
	}()

	return func() {
		cancel()
		<-done
	}
}

const (
	// FileMade begins what [Tally] is told of files: the rest is a file's name with N for each number.
	FileMade   = "file made: "
	watchPause = 15 * time.Millisecond
	walHeader  = 32
)

// kindOfFile is a file's name with N for each number.
func kindOfFile(name string) string {
	var b strings.Builder
	digits := false

	for _, r := range filepath.Base(name) {
		digit := r >= '0' && r <= '9'
		switch {
		case !digit:
			b.WriteRune(r)
		case !digits:
			b.WriteByte('N')
		}
		digits = digit
	}

	return b.String()
}

// headerOf returns the header of a log of SQLite, which changes when it begins anew; empty if there is none.
func headerOf(name string) string {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) || err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, walHeader)
	if _, err := io.ReadFull(f, b); err != nil {
		return ""
	}

	return string(b)
}
