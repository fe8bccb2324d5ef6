package bench

import (
	"math/rand/v2"
	"time"
)

// Beside is work that one more client does beside those of a load, while they warm up and while they are measured. Its
// operations are no operations of the load: they are a kind of their own, behind the load's.
type Beside struct {
	Kind string
	Rate float64 // operations a second that are due; 0 for a closed loop
	// Client returns the operation, as [Load.Client] does.
	Client func() func() error
}

// kvBesideRate is how many puts a second are due where readers are not to compete with as many as can be made.
const kvBesideRate = 1000

// kvBesideWorkloads read any of so many records while one client puts any of them again.
func kvBesideWorkloads(records int) []Workload {
	var list []Workload
	for _, w := range []struct {
		name, about string
		rate        float64
	}{
		{"kv/read-while-writing", "beside one client that puts keys again, as fast as it can", 0},
		{"kv/read-while-writing-1k", "beside one client that puts 1,000 keys a second again", kvBesideRate},
	} {
		work := ycsb{records: records, value: kvValueSize, first: ycsbRead, percent: 100, uniform: true,
			beside: &Beside{Kind: string(ycsbUpdate), Rate: w.rate}}
		list = append(list, Workload{Name: w.name, About: "get random keys of 1,000,000 " + w.about, Unit: "keys",
			Stored: "keys", Items: 1, ItemBytes: sharedKeySize + kvValueSize, OneKey: true, Clients: []int{4},
			KeyOrder: Random, Loaded: int64(records) * (sharedKeySize + kvValueSize), Overhead: kvMany,
			Engine: work.engine, Floor: work.floor, Null: work.null})
	}

	return list
}

// writing is the work beside of a client that updates any of the records of a store.
func (y ycsb) writing(t Task, store func(i int) ycsbStore) *Beside {
	b := *y.beside
	b.Client = func() func() error {
		on, random := store(0), rand.New(rand.NewPCG(t.Seed, uint64(t.Clients)))
		return func() error { return on.update(random.Uint32N(uint32(y.records))) }
	}

	return &b
}

// pace returns what waits until the next of so many operations a second is due, and returns since when it is. They are
// due from now on. Like a pacer, it does not hold against an operation that the timer came late.
func pace(epoch time.Time, rate float64, stop func() bool) func() time.Duration {
	if rate == 0 {
		return func() time.Duration { return time.Since(epoch) }
	}
	origin, n := time.Since(epoch), 0.0

	return func() time.Duration {
		due := origin + time.Duration(n*float64(time.Second)/rate)
		n++

		for now := time.Since(epoch); now < due; now = time.Since(epoch) {
			if stop() {
				return now
			}
			if time.Sleep(min(due-now, maxSleep)); time.Since(epoch) >= due {
				return time.Since(epoch)
			}
		}

		return due
	}
}
