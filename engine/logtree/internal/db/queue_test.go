package db

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// queue is used as one: keys are put at its end, and the first is looked for and deleted.
type queue struct {
	d           *DB
	first, next int
}

func (q *queue) key(i int) []byte { return binary.BigEndian.AppendUint64([]byte("queue/"), uint64(i)) }

func (q *queue) put(t testing.TB) {
	t.Helper()
	var b holdfast.Batch
	b.Set(q.key(q.next), []byte("what is to be done"))
	q.next++
	if err := commit(q.d, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
}

// take deletes the first key, and returns how many deleted keys of memtables the walk to it has passed over.
func (q *queue) take(t testing.TB) int {
	t.Helper()
	walk := q.d.Scan(holdfast.Prefix([]byte("queue/")))
	if !walk.Next() || !bytes.Equal(walk.Key(), q.key(q.first)) {
		t.Fatalf("the first key is %q, %v, not %q", walk.Key(), walk.Err(), q.key(q.first))
	}
	var b holdfast.Batch
	b.Delete(walk.Key())
	passed := walk.(*iterator).Passed()
	if err := walk.Close(); err != nil {
		t.Fatal(err)
	}
	q.first++
	if err := commit(q.d, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	return passed
}

// TestQueue: walks to the first key of a queue do not pass over ever more deleted keys, though the memtable has room
// for all of them.
func TestQueue(t *testing.T) {
	d, _ := manualWith(t, 64<<20)
	q := queue{d: d}
	most, flushed := 0, 0
	for i := range 5000 {
		if q.put(t); i >= 100 {
			most = max(most, q.take(t))
		}
		if len(d.view.Load().imm) > 0 {
			flushed++
		}
		if _, err := d.Work(10); err != nil {
			t.Fatal(err)
		}
	}
	// n walks over 0 to n deleted keys come to mostPassed where n is 724.
	if most < 100 || most > 1000 || flushed < 3 || flushed > 20 {
		t.Errorf("a walk passed over %d deleted keys, and there were %d flushes", most, flushed)
	}
	for q.first < q.next {
		q.take(t)
	}
	if got, err := contents(d); err != nil || len(got) > 0 {
		t.Errorf("%d keys are left, error %v", len(got), err)
	}
}

// BenchmarkQueue puts and takes, with 100 keys in the queue.
func BenchmarkQueue(b *testing.B) {
	c := testConfig(vfs.OS(), b.TempDir())
	c.Memory = 384 << 20
	d, err := Open(c)
	if err != nil {
		b.Fatal(err)
	}
	q := queue{d: d}
	for range 100 {
		q.put(b)
	}
	for b.Loop() {
		q.put(b)
		q.take(b)
	}
	b.ReportMetric(float64(d.Metrics().Syncs)/float64(b.N), "syncs/op")
	if err := d.Close(); err != nil {
		b.Fatal(err)
	}
}
