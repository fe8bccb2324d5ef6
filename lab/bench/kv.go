package bench

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/contender"
)

// The third study: a key-value table, by its benchmarks. It compared Thunder, a B+ tree in Rust, with bbolt,
// both syncing each commit. Here its work is done in closed loops, so that what it did once is repeated with new
// values. The reads of a million keys, and what sustained changes do to the space on disk, are ours.
const (
	kvValueSize = 100
	kvBatch     = 100 // keys of one transaction, where it has many
	kvMoreValue = 128 // bytes of a value where there are many keys
	kvRangeKeys = 100 // that kv/range walks over

	kvMany = 6 * time.Second // that putting a million keys in random order, and verifying them, takes on the average
)

// kvSizes are the numbers of keys, and bytes, that the workloads work on.
type kvSizes struct {
	keys  int // of the study
	many  int // where more is wanted
	mixed int // under reads and writes mixed
	large int // bytes of large values there can be, before they are replaced
	more  int // more than write buffers hold
	cold  int // under cold reads
	most  int // under cold reads of more than memory holds

	oldest, queued int // kept by retention, and in queues
	killed, died   int // put before a kill
}

func kvWorkloads() []Workload {
	return kvStudy(kvSizes{keys: 100_000, many: 1_000_000, mixed: 10_000, large: 100 << 20, more: 10_000_000,
		cold: coldFew, most: coldMany, oldest: 100_000, queued: 1000,
		killed: 64_000_000 / (kvKeySize + kvMoreValue), died: 1_000_000_000 / (kvKeySize + kvMoreValue)})
}

// kvStudy is the table of workloads on so much.
func kvStudy(n kvSizes) []Workload {
	put := func(name, about string, p kvPut, bbolt, thunder string) Workload {
		p.value, p.ring = kvValueSize, n.many
		w := Workload{
			Name: name, About: about, Unit: "keys", Items: p.batch, KeyOrder: p.keyOrder(),
			Engine: p.engine, Floor: p.floor, Null: p.null,
		}
		if bbolt != "" {
			w.Study = kvFigures(holdfast.Power, bbolt, thunder)
		}

		return w
	}
	value := func(name, about string, size int, bbolt, thunder string) Workload {
		p := kvPut{batch: 1, value: size, ring: max(n.large/size, 1)}

		return Workload{
			Name: name, About: about, Unit: "values", Items: 1, ItemBytes: kvKeySize + size, InBytes: true, OneKey: true,
			KeyOrder: p.keyOrder(),
			Study:    kvFigures(holdfast.Power, bbolt, thunder), Engine: p.engine, Floor: p.floor, Null: p.null,
		}
	}
	read := func(name, about string, r kvRead, overhead time.Duration, bbolt, thunder string) Workload {
		w := Workload{
			Name: name, About: about, Unit: "keys", Items: 1, Reads: true, Overhead: overhead,
			KeyOrder: r.fill.keyOrder(), Loaded: int64(r.keys) * int64(kvKeySize+r.valueSize()),
			Engine: r.engine, Floor: r.floor, Null: r.null,
		}
		if r.order == kvWhole {
			w.Items = r.keys
		}
		if bbolt != "" {
			w.Study = kvFigures(0, bbolt, thunder)
		}

		return w
	}
	sequential := put("kv/seq-write", "put 100,000 keys in order, in one transaction",
		kvPut{batch: n.keys, ascending: true}, "398k/s", "197k/s")
	sequential.Overhead = 150 * time.Millisecond
	sequential.BatchBytes = int64(n.keys) * (kvKeySize + kvValueSize)
	rewrite := put("kv/random-write", "put 100 of 1,000,000 keys again in one transaction, once all are there",
		kvPut{batch: kvBatch, loaded: true}, "", "")
	rewrite.Overhead, rewrite.Loaded = kvMany, int64(n.many)*(kvKeySize+kvValueSize)
	mixed := kvMixed{keys: n.mixed, reads: mixedReads, value: kvValueSize}
	overwrite := kvOverwrite{keys: n.keys}
	studied := kvFill{ascending: true} // one table, written in order and then read

	table := append([]Workload{
		sequential,
		put("kv/batch", "put 100 keys in order, in one transaction", kvPut{batch: kvBatch, ascending: true},
			"122k/s", "170/s"),
		rewrite,
		{
			Name: "kv/mixed", About: "of ten steps get a key in seven and put one in three, random among 10,000", Unit: "keys",
			Items: 1, OneKey: true, KeyOrder: mixed.fill.keyOrder(), Loaded: int64(n.mixed) * (kvKeySize + kvValueSize),
			Study:  kvFigures(holdfast.Power, "5,448/s", "8/s"),
			Engine: mixed.engine, Floor: mixed.floor, Null: mixed.null,
		},
		{
			Name: "kv/overwrite", About: "update or delete 100 random keys of 100,000 in one transaction, and what it leaves " +
				"on disk; use a long --for",
			Unit: "keys", Items: kvBatch, ItemBytes: kvKeySize + kvValueSize, Overhead: 100 * time.Millisecond,
			KeyOrder: kvFill{}.keyOrder(), Loaded: int64(n.keys) * (kvKeySize + kvValueSize),
			Engine: overwrite.engine, Floor: overwrite.floor, Null: overwrite.null,
		},
		value("kv/value-1k", "put one value of 1 KiB", 1<<10, "34 MB/s", "0.1 MB/s"),
		value("kv/value-10k", "put one value of 10 KiB", 10<<10, "367 MB/s", "1.2 MB/s"),
		value("kv/value-100k", "put one value of 100 KiB", 100<<10, "555 MB/s", "11 MB/s"),
		// Badger's values of 1 MiB go elsewhere than smaller ones: a workload of just that size would be of that limit.
		value("kv/value-1mb", "put one value of 1 MB", 1_000_000, "227 MB/s", "77 MB/s"),
		read("kv/seq-read", "get 100,000 keys one by one, in order", kvRead{keys: n.keys, order: kvInOrder, fill: studied},
			100*time.Millisecond, "1.5M/s", "2.5M/s"),
		read("kv/random-read", "get random keys of 100,000", kvRead{keys: n.keys, order: kvRandom, fill: studied},
			100*time.Millisecond, "1.1M/s", "1.36M/s"),
		read("kv/random-read-1m", "get random keys of 1,000,000", kvRead{keys: n.many, order: kvRandom},
			kvMany, "", ""),
		read("kv/random-read-1m-updated", "the same after each key was put again",
			kvRead{keys: n.many, order: kvRandom, fill: kvFill{again: 1}}, 2*kvMany, "", ""),
		read("kv/scan", "iterate over all of 100,000 keys", kvRead{keys: n.keys, order: kvWhole, fill: studied},
			100*time.Millisecond, "36M/s", "96M/s"),
		read("kv/scan-1m", "iterate over all of 1,000,000 keys", kvRead{keys: n.many, order: kvWhole},
			kvMany, "", ""),
		read("kv/scan-1m-updated", "the same after each key was put again",
			kvRead{keys: n.many, order: kvWhole, fill: kvFill{again: 1}}, 2*kvMany, "", ""),
	}, slices.Concat(kvBesideWorkloads(n.many), kvQueueWorkloads(n.oldest, n.queued),
		kvKilledWorkloads(n.killed, n.died), []Workload{kvTransaction{n.keys}.workload()}, kvMore(n, read))...)
	for i := range table {
		table[i].Store = Keys
	}

	return table
}

// kvMore are the workloads on so many keys that logs are recycled, tables merged, and reads not answered by write
// buffers.
func kvMore(n kvSizes, read func(string, string, kvRead, time.Duration, string, string) Workload) []Workload {
	load := kvPut{batch: 1, value: kvMoreValue, ring: n.more}
	steady := kvMixed{keys: n.more, value: kvMoreValue}
	writes := Workload{Unit: "keys", Items: 1, ItemBytes: kvKeySize + kvMoreValue, OneKey: true, Clients: []int{4},
		Samples: true, KeyOrder: load.keyOrder()}
	first, then := writes, writes
	first.Name, first.About = "kv/load",
		"put 10,000,000 keys in random order, each once until all are there; use --for 30s"
	first.Overhead = 20 * time.Second
	first.Engine, first.Floor, first.Null = load.engine, load.floor, load.null
	then.Name, then.About = "kv/steady", "put random keys of 10,000,000 again, once all are there; use --for 3m"
	then.Overhead, then.Loaded = time.Minute, int64(n.more)*(kvKeySize+kvMoreValue)
	then.Engine, then.Floor, then.Null = steady.engine, steady.floor, steady.null

	ranges := read("kv/range",
		"iterate over 100 of 10,000,000 keys, from a random one on; use --ram for data beyond memory",
		kvRead{keys: n.more, order: kvRange, value: kvMoreValue}, 45*time.Second, "", "")
	ranges.Items = kvRangeKeys
	loaded := read("kv/scan-loaded", "iterate over all of 10,000,000 keys",
		kvRead{keys: n.more, order: kvWhole, value: kvMoreValue}, 45*time.Second, "", "")
	again := read("kv/scan-updated", "the same after each key was put again",
		kvRead{keys: n.more, order: kvWhole, value: kvMoreValue, fill: kvFill{again: 1}}, 90*time.Second, "", "")

	list := []Workload{first, then, ranges, loaded, again}
	for _, c := range coldSizes(n.cold, n.most) {
		w := read("kv/cold-read"+c.suffix,
			"iterate over 100 of "+c.about+" keys, from a random one on, with nothing in memory",
			kvRead{keys: c.n, order: kvRange, value: kvMoreValue, fill: kvFill{ascending: true}}, c.overhead, "", "")
		w.Items, w.Cold, w.Loaded = kvRangeKeys, true, 0
		list = append(list, w)
	}

	return list
}

// coldSize is how many items there are under cold reads, and what their workload's name says of it.
type coldSize struct {
	n             int
	suffix, about string
	overhead      time.Duration
}

// Cold reads are of so many items of kvMoreValue bytes; the many are 8 GB.
const (
	coldFew  = 1_000_000
	coldMany = 60_000_000
)

func coldSizes(few, many int) []coldSize {
	return []coldSize{
		{few, "", "1,000,000", 3 * time.Second},
		{many, "-60m", "60,000,000", 3 * time.Minute},
	}
}

// kvFigures is what the study measured for its two engines: bbolt, and Thunder as it was then.
func kvFigures(level holdfast.Level, bbolt, thunder string) func(string, holdfast.Level) string {
	return study(map[figure]string{{"bbolt", level}: bbolt, {contender.Thunderdb, level}: thunder})
}

// share returns the keys of client i of clients: first, and how many.
func share(keys, i, clients int) (first, n int) {
	first = keys * i / clients
	return first, keys*(i+1)/clients - first
}

// kvRandomKeys draws keys among those of one client.
type kvRandomKeys struct {
	*rand.Rand
	first, n int
}

// newKVRandom draws for client i from its share of the keys.
func newKVRandom(t Task, i, keys int) kvRandomKeys {
	first, n := share(keys, i, t.Clients)
	return kvRandomKeys{rand.New(rand.NewPCG(t.Seed, uint64(i))), first, n}
}

func (r kvRandomKeys) key() uint32 { return uint32(r.first + r.IntN(r.n)) }
