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
	oneGoroutine(t)
	d, _ := manualWith(t, 64<<20)
	q := queue{d: d}
	most, flushed := 0, 0
	for i := range 5000 {
		if q.put(t); i >= 100 {
			most = max(most, q.take(t))
		}
		if d.Inspect().Waiting > 0 {
			flushed++
		}
		if _, err := d.Work(10); err != nil {
			t.Fatal(err)
		}
	}
	// n walks over 0 to n deleted keys come to policy.MostPassed where n is 724.
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

// TestQueueBacklog: keys that are taken from the head of a queue and are in tables are merged with what deletes
// them, though all that is taken is little beside what waits. Each walk to the head once passed over all of them, with
// 9,000 taken of 200,000 for a millisecond.
func TestQueueBacklog(t *testing.T) {
	oneGoroutine(t)
	d, _ := manualWith(t, 1<<20)
	q := queue{d: d}
	for range 10_000 {
		q.put(t)
	}
	d.rotate()
	work := func() {
		t.Helper()
		if _, err := d.Work(1000); err != nil {
			t.Fatal(err)
		}
	}
	work()
	snapshot, err := d.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for i := range 3000 {
		q.take(t)
		if i%50 == 49 {
			d.rotate()
			work()
		}
		if i%10 == 0 {
			walk := d.Scan(holdfast.Prefix([]byte("queue/"))).(*iterator)
			walk.Next()
			dead, where := walk.Head()
			if most = max(most, dead); dead > 0 && (string(where.Lo) != "queue/" || !bytes.Equal(where.Hi, q.key(q.first))) {
				t.Fatalf("%d dead keys before %d: %v", dead, q.first, where)
			}
			walk.Close()
		}
	}
	if most < 100 || most > 1500 {
		t.Errorf("a walk passed over %d deleted keys of tables", most)
	}
	for r, want := range map[holdfast.Reader]int{d: q.next - q.first, snapshot: q.next} {
		if got, err := contents(r); err != nil || len(got) != want {
			t.Errorf("%d keys, not %d: %v", len(got), want, err)
		}
	}
	snapshot.Close()
	// From the other end, until nothing is left.
	for q.next > q.first {
		walk := d.Scan(holdfast.Range{Lo: q.key(0), Reverse: true}).(*iterator)
		if q.next--; !walk.Next() || !bytes.Equal(walk.Key(), q.key(q.next)) {
			t.Fatalf("the last key is %q, not %q", walk.Key(), q.key(q.next))
		}
		dead, where := walk.Head()
		if most = max(most, dead); dead > 0 && (!bytes.Equal(where.Lo, q.key(q.next)) || len(where.Hi) > 0) {
			t.Fatalf("%d dead keys behind %d: %v", dead, q.next, where)
		}
		walk.Close()
		d.put(t, func(b *holdfast.Batch) { b.Delete(q.key(q.next)) })
		if q.next%100 == 0 {
			d.rotate()
			work()
		}
	}
	if most > 1500 {
		t.Errorf("a walk passed over %d deleted keys of tables", most)
	}
}
