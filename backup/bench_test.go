//go:build unix

package backup_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"gocloud.dev/blob"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/backup"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

func init() { children["storage"] = storage }

// storage is a server of S3 in a process of its own, so that what it computes is not counted.
func storage() error {
	var request struct{}
	out := os.Stdout
	if err := child.Serve("storage", os.Stdin, &request); err != nil {
		return err
	}
	var mu sync.Mutex
	counts := map[string]int64{}
	server := gofakes3.New(s3mem.New()).Server()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if r.URL.Path == "/counts" {
			_ = json.NewEncoder(w).Encode(counts)
			mu.Unlock()
			return
		}
		counts[r.Method]++
		mu.Unlock()
		server.ServeHTTP(w, r)
	}))
	fmt.Fprintln(out, s.URL)
	select {}
}

// bucketOf returns a bucket of a kind, and what counts the requests that were made to it; nil if that is not known.
func bucketOf(b *testing.B, kind string) (bucket *blob.Bucket, requests func() map[string]int64) {
	b.Helper()
	address := "file://" + b.TempDir()
	if kind == "s3" {
		self, err := child.Command(nil, "storage")
		testkit.Try(b, err)
		p, err := child.Start(self, struct{}{})
		testkit.Try(b, err)
		b.Cleanup(func() {
			p.Kill()
			_, _ = p.Wait()
		})
		var at string
		_, err = fmt.Fscanln(p.Out, &at)
		testkit.Try(b, err)
		request, err := http.NewRequest(http.MethodPut, at+"/backups", nil)
		testkit.Try(b, err)
		answer, err := http.DefaultClient.Do(request)
		testkit.Try(b, err)
		answer.Body.Close()
		address = "s3://backups/orders?region=us-east-1&use_path_style=true&endpoint=" + at
		requests = func() (counts map[string]int64) {
			answer, err := http.Get(at + "/counts")
			testkit.Try(b, err)
			defer answer.Body.Close()
			testkit.Try(b, json.NewDecoder(answer.Body).Decode(&counts))

			return counts
		}
	}
	bucket, err := backup.MakeBucket(b.Context(), address)
	testkit.Try(b, err)
	b.Cleanup(func() { testkit.Try(b, bucket.Close()) })

	return bucket, requests
}

// cpu is what this process has taken of the processors.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	testkit.Try(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCost writes for ten seconds at 50 MB/s, without and with a backup, and reports what the backup takes of the
// processors for a GB, of one processor at that speed, how much it uploads for a byte that is written, and how many
// requests it makes an hour. Events of 1 KiB are
// random, as what is compressed or encrypted is.
func BenchmarkCost(b *testing.B) {
	const rate, bytes = 50e6, 500e6
	uploaded := int64(0)
	run := func(b *testing.B, bucket *blob.Bucket, o backup.Options) (took time.Duration) {
		b.Helper()
		e, err := logtree.Open(filepath.Join(b.TempDir(), "db"), holdfast.Options{})
		testkit.Try(b, err)
		begun, before := time.Now(), cpu(b)
		var up *backup.Backup
		if bucket != nil {
			up, err = backup.Start(e, bucket, o)
			testkit.Try(b, err)
		}
		r := rand.NewChaCha8([32]byte{})
		value := make([]byte, 1024)
		var batch holdfast.Batch
		for n := 0; n < bytes; {
			batch.Reset()
			for range 32 {
				_, _ = r.Read(value)
				batch.Set(fmt.Appendf(nil, "event-%012d", n), value)
				n += len(value)
			}
			testkit.Try(b, holdfast.Commit(e, &batch, holdfast.Process))
			time.Sleep(time.Until(begun.Add(time.Duration(float64(n) / rate * 1e9))))
		}
		if up != nil {
			at := time.Now()
			testkit.Until(b, "safe", func() bool { return up.Status().Safe.After(at) })
			testkit.Try(b, up.Close(context.Background()))
			uploaded += up.Status().Bytes
		}
		testkit.Try(b, e.Close())

		return cpu(b) - before
	}

	for _, kind := range []string{"file", "s3"} {
		b.Run(kind, func(b *testing.B) {
			var extra, length time.Duration
			var requests int64
			uploaded = 0
			for range b.N {
				bucket, count := bucketOf(b, kind)
				without := run(b, nil, backup.Options{})
				begun := time.Now()
				extra += run(b, bucket, backup.Options{}) - without
				length += time.Since(begun)
				if count != nil {
					for _, n := range count() {
						requests += n
					}
				}
			}
			perGB := extra.Seconds() / float64(b.N) / (bytes / 1e9)
			b.ReportMetric(perGB, "cpu-s/GB")
			b.ReportMetric(100*perGB*rate/1e9, "%core")
			b.ReportMetric(float64(uploaded)/float64(b.N)/bytes, "uploaded/written")
			b.ReportMetric(float64(requests)/length.Hours(), "requests/h")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkForeground commits events of 1 KiB at Power from four goroutines, for two seconds each in turn in a database
// without and in one with a backup, and reports the 99th percentiles of both and their ratio.
func BenchmarkForeground(b *testing.B) {
	const writers, turns, turn = 4, 6, 2 * time.Second
	for _, kind := range []string{"file", "s3"} {
		b.Run(kind, func(b *testing.B) {
			bucket, _ := bucketOf(b, kind)
			var engines [2]holdfast.Engine
			var times [2][]time.Duration
			for i := range engines {
				var err error
				engines[i], err = logtree.Open(filepath.Join(b.TempDir(), "db"), holdfast.Options{})
				testkit.Try(b, err)
			}
			up, err := backup.Start(engines[1], bucket, backup.Options{})
			testkit.Try(b, err)
			testkit.Until(b, "based", func() bool { return up.Status().Bases > 0 })
			var n atomic.Int64
			var ratios []float64
			for i := range 2 * turns * b.N {
				var mu sync.Mutex
				var all []time.Duration
				var work sync.WaitGroup
				end := time.Now().Add(turn)
				for range writers {
					work.Go(func() {
						var mine []time.Duration
						for time.Now().Before(end) {
							var batch holdfast.Batch
							batch.Set(fmt.Appendf(nil, "event-%012d", n.Add(1)), bytes.Repeat([]byte{byte(i)}, 1024))
							begun := time.Now()
							if err := holdfast.Commit(engines[i%2], &batch, holdfast.Power); err != nil {
								b.Error(err)
								return
							}
							mine = append(mine, time.Since(begun))
						}
						mu.Lock()
						all = append(all, mine...)
						mu.Unlock()
					})
				}
				work.Wait()
				times[i%2] = append(times[i%2], p99(all))
				if i%2 == 1 {
					ratios = append(ratios, float64(times[1][i/2])/float64(times[0][i/2]))
				}
			}
			testkit.Try(b, up.Close(context.Background()))
			for _, e := range engines {
				testkit.Try(b, e.Close())
			}
			b.ReportMetric(median(times[0]).Seconds()*1e3, "p99-ms-without")
			b.ReportMetric(median(times[1]).Seconds()*1e3, "p99-ms-with")
			b.ReportMetric(median(ratios), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkRestore restores and verifies a database of HOLDFAST_RESTORE_GB, 1 if that is not set, and reports how fast.
// A bucket of S3 is in the memory of another process.
func BenchmarkRestore(b *testing.B) {
	gb := 1.0
	if text := os.Getenv("HOLDFAST_RESTORE_GB"); text != "" {
		var err error
		gb, err = strconv.ParseFloat(text, 64)
		testkit.Try(b, err)
	}
	for _, kind := range []string{"file", "s3"} {
		b.Run(kind, func(b *testing.B) {
			bucket, _ := bucketOf(b, kind)
			dir := filepath.Join(b.TempDir(), "db")
			e, err := logtree.Open(dir, holdfast.Options{})
			testkit.Try(b, err)
			r := rand.NewChaCha8([32]byte{})
			value := make([]byte, 64<<10)
			for n := 0; float64(n) < gb*1e9; n += len(value) {
				_, _ = r.Read(value)
				var batch holdfast.Batch
				batch.Set(fmt.Appendf(nil, "event-%012d", n), value)
				testkit.Try(b, holdfast.Commit(e, &batch, holdfast.Process))
			}
			up, err := backup.Start(e, bucket, backup.Options{})
			testkit.Try(b, err)
			at := time.Now()
			for !up.Status().Safe.After(at) { // which may take long
				time.Sleep(100 * time.Millisecond)
			}
			testkit.Try(b, up.Close(context.Background()))
			testkit.Try(b, e.Close())
			testkit.Try(b, os.RemoveAll(dir))

			var restoring, verifying time.Duration
			var restored, verified int64
			took := cpu(b)
			for range b.N {
				begun := time.Now()
				info, err := backup.Restore(b.Context(), bucket, dir, backup.RestoreOptions{})
				testkit.Try(b, err)
				restoring, restored = restoring+time.Since(begun), restored+info.Bytes
				testkit.Try(b, os.RemoveAll(dir))
			}
			took = cpu(b) - took
			for range b.N {
				begun := time.Now()
				v, err := backup.Verify(b.Context(), bucket)
				testkit.Try(b, err)
				verifying, verified = verifying+time.Since(begun), verified+v.Bytes
			}
			b.ReportMetric(float64(restored)/1e6/restoring.Seconds(), "restore-MB/s")
			b.ReportMetric(took.Seconds()/(float64(restored)/1e9), "restore-cpu-s/GB")
			b.ReportMetric(float64(verified)/1e6/verifying.Seconds(), "verify-MB/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func p99(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)*99/100]
}

func median[T cmp.Ordered](list []T) T {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}
