package contender

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// BenchmarkSQLiteWarmUp is the study's life cycles in SQLite, for less long: 100 workers, 39,000 changes. They are in a
// new table; in one that had as many before; and in a new one whose log has its full length already. Metrics are
// milliseconds of CPU time, which say more than the time on a shared machine.
func BenchmarkSQLiteWarmUp(b *testing.B) {
	const full = "CREATE TABLE other (v); INSERT INTO other VALUES (zeroblob(6000000)); PRAGMA wal_checkpoint(RESTART)"
	for name, prepare := range map[string]func(q *sqliteTasks) error{
		"new":  func(*sqliteTasks) error { return nil },
		"warm": func(q *sqliteTasks) error { return studyRun(q) },
		"log there": func(q *sqliteTasks) error {
			_, err := q.conn.ExecContext(context.Background(), full)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			var cpu int64
			for range b.N {
				b.StopTimer()
				e, err := OpenSQLiteSQL(filepath.Join(b.TempDir(), "queue"), holdfast.Options{Level: holdfast.Process})
				if err != nil {
					b.Fatal(err)
				}
				q := e.(*sqliteTasks)
				if err := prepare(q); err != nil {
					b.Fatal(err)
				}
				before := cpuTime()
				b.StartTimer()
				err = studyRun(q)
				b.StopTimer()
				cpu += cpuTime() - before
				if err != nil {
					b.Fatal(err)
				}
				if err := q.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpu)/1e6/float64(b.N), "cpu-ms/op")
		})
	}
}

// cpuTime is what this process has taken, in nanoseconds.
func cpuTime() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return u.Utime.Nano() + u.Stime.Nano()
}

func studyRun(q Tasks) (failed error) {
	const workers, tasks, outputs = 100, 30, 10
	var all sync.WaitGroup
	var once sync.Once
	ctx := context.Background()
	for w := range workers {
		all.Go(func() {
			for n := range tasks {
				_, err := q.Enqueue(ctx, TaskSpec{Args: []byte(`["a","b","c"]`), Discard: true})
				var c TaskClaim
				if err == nil {
					c, err = q.Claim(ctx)
				}
				for i := 0; i < outputs && err == nil; i++ {
					err = q.SetOutput(ctx, c, fmt.Appendf(nil, "output %02d of worker %03d, task %03d", i, w, n))
				}
				if err == nil {
					err = q.Complete(ctx, c)
				}
				if err != nil {
					once.Do(func() { failed = err })
					return
				}
			}
		})
	}
	all.Wait()
	return failed
}
