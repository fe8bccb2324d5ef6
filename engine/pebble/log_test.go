package pebble

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/holdfastdb/holdfast"
)

func countCalls(calls []string, prefix string) (n int) {
	for _, c := range calls {
		if strings.HasPrefix(c, prefix) && strings.HasSuffix(c, ".log") {
			n++
		}
	}
	return n
}

// A Memory commit calls nothing; a Process commit writes to the log before it is
// acknowledged and syncs nothing; a Power commit writes and syncs.
func TestCallsPerLevel(t *testing.T) {
	fs := &observedFS{FS: vfs.NewMem()}
	e := startOn(t, fs, never)
	for n := uint64(1); n <= 30; n++ {
		fs.take()
		level := holdfast.Levels()[n%3]
		commit(t, e, n, level)
		calls := fs.take()
		writes, syncs := countCalls(calls, "write"), countCalls(calls, "sync")
		wantWrites, wantSyncs := 0, 0
		if level != holdfast.Memory {
			wantWrites = 1
		}
		if level == holdfast.Power {
			wantSyncs = 1
		}
		if writes != wantWrites || syncs != wantSyncs {
			t.Errorf("commit %d at %v: %d writes and %d syncs of the log, want %d and %d: %v", n, level, writes, syncs,
				wantWrites, wantSyncs, calls)
		}
	}
}

// Process commits whose receipts are waited for by many are written together and never synced.
func TestProcessNeverSyncs(t *testing.T) {
	fs := &observedFS{FS: vfs.NewMem()}
	e := startOn(t, fs, never)
	fs.take()
	var wg sync.WaitGroup
	for w := range uint64(8) {
		wg.Go(func() {
			for i := range uint64(200) {
				if err := holdfast.Commit(e, numbered(new(holdfast.Batch), w*1000+i, 64), holdfast.Process); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if calls := fs.take(); countCalls(calls, "sync") > 0 || countCalls(calls, "write") == 0 {
		t.Errorf("%d writes and %d syncs", countCalls(calls, "write"), countCalls(calls, "sync"))
	}
}

// A Power commit whose receipt is dropped costs the Process commits after it at most two
// syncs, and is synced by then.
func TestDroppedPowerReceipt(t *testing.T) {
	fs := &observedFS{FS: vfs.NewMem()}
	e := startOn(t, fs, never)
	fs.take()
	for n := uint64(1); n <= 10; n++ {
		if _, err := e.Apply(numbered(new(holdfast.Batch), n, 64), holdfast.Power); err != nil {
			t.Fatal(err)
		}
	}
	for n := uint64(11); n <= 100; n++ {
		commit(t, e, n, holdfast.Process)
	}
	// Each of the ten may have had a sync of its own.
	if syncs := countCalls(fs.take(), "sync"); syncs == 0 || syncs > 12 {
		t.Errorf("%d syncs", syncs)
	}
	for n := uint64(101); n <= 110; n++ {
		commit(t, e, n, holdfast.Process)
	}
	if syncs := countCalls(fs.take(), "sync"); syncs != 0 {
		t.Errorf("%d syncs later on", syncs)
	}
}

// When a log is full it is written out, synced, closed, and only then is the next one begun
// and its name made durable; so it is with a log that is used again.
func TestRotation(t *testing.T) {
	fs := &observedFS{FS: vfs.NewMem()}
	e := startOn(t, fs, never)
	first, reused := "", false
	for round := range uint64(6) {
		commit(t, e, round+1, holdfast.Process)
		fs.take()
		try(t, e.db.Flush())
		var kinds []string
		for _, c := range logCalls(fs.take()) {
			if kind, _, _ := strings.Cut(c, " "); !strings.HasPrefix(c, "remove") {
				kinds = append(kinds, kind)
			}
			if strings.HasPrefix(c, "reuse") {
				reused = true
			}
		}
		// What follows belongs to the flush.
		want := []string{"write", "sync", "close", "create", "syncdir"}
		if reused {
			want[3] = "reuse"
		}
		if len(kinds) < len(want) || !slices.Equal(kinds[:len(want)], want) {
			t.Errorf("round %d: calls %v, want %v first", round, kinds, want)
		}
		if first == "" {
			first = kinds[3]
		}
	}
	if !reused {
		t.Error("no log was used again: the test does not cover it")
	}
}

// The synced offsets in a log are true: syncs left out do not count, whole blocks do.
func TestStampOffsets(t *testing.T) {
	const name = "000007.log"
	mem := vfs.NewMem()
	d := newDisk(mem, "", here)
	below, err := mem.Create(name, categoryLog)
	try(t, err)
	l := d.wrap(below, name, categoryLog).(*log)
	slots := make(chan struct{}, 1)
	w := record.NewLogWriter(l, 7, record.LogWriterConfig{
		QueueSemChan:        slots,
		WriteWALSyncOffsets: func() bool { return true },
	})
	type written struct {
		payload []byte
		synced  int64 // when it was written
	}
	var records []written
	for i, size := range []int{100, 70_000, 0, 1, 32_700, 5, 200_000, 1, 32_749, 32_748, 32_730, 7, 100, 100} {
		records = append(records, written{bytes.Repeat([]byte{byte(i + 1)}, size), l.synced})
		power := i%3 == 1
		if power {
			d.demand.begin()
		}
		var wait sync.WaitGroup
		var err error
		wait.Add(1)
		slots <- struct{}{}
		if _, refused := w.SyncRecord(records[i].payload, &wait, &err); refused != nil {
			t.Fatal(refused)
		}
		if power {
			d.demand.queued()
		}
		wait.Wait()
		try(t, err)
		if power {
			d.demand.settled()
			if l.synced != l.written {
				t.Errorf("record %d: %d bytes written, %d synced", i, l.written, l.synced)
			}
		}
	}
	if err := w.Close(); err != nil || d.frozen() {
		t.Fatal(err, d.poison())
	}

	content, err := readFile(mem, name)
	try(t, err)
	var offsets [][]int64 // of the chunks of each record
	for at := 0; at < len(content); {
		left := blockSize - at%blockSize
		if left < plainHeader || content[at+6] == 0 {
			at += left
			continue
		}
		kind := content[at+6]
		if kind == 9 || kind == 10 { // full or first
			offsets = append(offsets, nil)
		}
		if kind >= 9 {
			last := len(offsets) - 1
			offsets[last] = append(offsets[last], int64(binary.LittleEndian.Uint64(content[at+logHeader:])))
		}
		at += chunkHeader(kind) + int(binary.LittleEndian.Uint16(content[at+4:]))
	}
	if len(offsets) != len(records) {
		t.Fatalf("%d records in the file, want %d", len(offsets), len(records))
	}
	r := record.NewReader(bytes.NewReader(content), 7)
	for i, want := range records {
		for _, got := range offsets[i] {
			if got != want.synced {
				t.Errorf("record %d says %d bytes were synced before, it was %d", i, got, want.synced)
			}
		}
		var got bytes.Buffer
		rec, err := r.Next()
		if err == nil {
			_, err = got.ReadFrom(rec)
		}
		if err != nil || !bytes.Equal(got.Bytes(), want.payload) {
			t.Fatalf("record %d of %d bytes reads back as %d bytes: %v", i, len(want.payload), got.Len(), err)
		}
	}
}
