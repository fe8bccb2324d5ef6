package bench

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/holdfastdb/holdfast"
	adapter "github.com/holdfastdb/holdfast/engine/pebble"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// BenchmarkCost measures what the contract and the store add to Pebble for appending one event
// at Memory. Three contenders write the same bytes to databases of their own with the same
// settings, taking turns every thousand events, so that whatever else the machine does falls
// on all of them alike; the figures are medians over the turns. One iteration is one turn of
// each:
//
//	go test -run='^$' -bench=Cost -benchtime=500x ./lab/bench
func BenchmarkCost(b *testing.B) {
	const turn = 1000
	level := holdfast.Memory

	library, err := pebble.Open(b.TempDir(), &pebble.Options{Logger: quiet{}, FormatMajorVersion: pebble.FormatNewest,
		MemTableSize: 64 << 20, MemTableStopWritesThreshold: 4, CacheSize: 384 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer library.Close()
	open := func() holdfast.Engine {
		e, err := adapter.Open(b.TempDir(), holdfast.Options{SyncEvery: -1})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { e.Close() })
		return e
	}
	engine, below := open(), open()
	store, err := event.Open(kv.On(below), event.Options{Level: level})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()

	var forLibrary, forEngine rawEvents
	events := []event.Event{{Type: "BenchEvent", Data: make([]byte, 128)}}
	contenders := []struct {
		name string
		do   func() error
	}{
		{"library", func() error {
			forLibrary.build(1)
			batch := library.NewBatch()
			for op := range forLibrary.batch.Ops() {
				if err := batch.Set(op.Key, op.Value, nil); err != nil {
					return err
				}
			}
			if err := batch.Commit(pebble.NoSync); err != nil {
				return err
			}
			return batch.Close()
		}},
		{"engine", func() error {
			forEngine.build(1)
			return holdfast.Commit(engine, &forEngine.batch, level)
		}},
		{"store", func() error {
			_, err := store.Append(b.Context(), events...)
			return err
		}},
	}
	times := make([][]float64, len(contenders))
	for round := 0; b.Loop(); round++ {
		for i := range contenders {
			i = (i + round) % len(contenders)
			start := time.Now()
			for range turn {
				if err := contenders[i].do(); err != nil {
					b.Fatal(err)
				}
			}
			times[i] = append(times[i], float64(time.Since(start).Nanoseconds())/turn)
		}
	}
	medians := make([]float64, len(contenders))
	for i, c := range contenders {
		slices.Sort(times[i])
		medians[i] = times[i][len(times[i])/2]
		b.ReportMetric(medians[i], c.name+"-ns")
	}
	b.ReportMetric(medians[1]/medians[0], "engine/library")
	b.ReportMetric(medians[2]/medians[0], "store/library")
	b.ReportMetric(0, "ns/op")
}

// rawEvents is a loop that gives the engine the bytes of events, one key for each, and nothing else. For a
// single event that is what the store does.
type rawEvents struct {
	batch       holdfast.Batch
	key, record []byte
	pos         uint64
}

func (l *rawEvents) build(n int) {
	if l.key == nil {
		l.key = append([]byte("e\x00e"), make([]byte, 8)...)
		l.record = make([]byte, 9+4+len("BenchEvent")+128)
	}
	l.batch.Reset()
	for range n {
		l.pos++
		binary.BigEndian.PutUint64(l.key[3:], l.pos)
		binary.BigEndian.PutUint64(l.record[1:], uint64(time.Now().UnixNano()))
		l.batch.Set(l.key, l.record)
	}
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
