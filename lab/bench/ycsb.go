package bench

import (
	"errors"
	"math/rand/v2"
	"time"
)

// The core workloads of YCSB, the Yahoo! Cloud Serving Benchmark (Cooper and others, 2010), in closed loops. They are
// as it defines them, but for this: a record's ten fields of 100 bytes are one value, which is read and updated whole;
// scans begin at records that were loaded; and of what was inserted, reads are of as many records as were loaded, the
// newest, however many there are by then.
const (
	ycsbValue  = 1000
	ycsbSpread = 10_000_000_000 // ranks of popularity, which a hash then scatters over the records
	ycsbScan   = 100            // records of the longest scan
)

// ycsb is one of them.
type ycsb struct {
	records int
	first   ycsbOp // done so many times of a hundred
	percent int
	second  ycsbOp
	latest  bool // what was inserted last is the most popular
	uniform bool // all are as popular
	value   int  // bytes of one
	beside  *Beside
}

// ycsbOp is a kind of operation.
type ycsbOp string

const (
	ycsbRead   ycsbOp = "read"
	ycsbUpdate ycsbOp = "update"
	ycsbInsert ycsbOp = "insert"
	ycsbScans  ycsbOp = "scan"
	ycsbModify ycsbOp = "read-modify-write"
)

func ycsbWorkloads() []Workload { return ycsbStudy(100_000) }

// ycsbStudy is the table of workloads on so many records.
func ycsbStudy(records int) []Workload {
	var table []Workload
	for _, w := range []struct {
		name, about string
		work        ycsb
	}{
		{"a", "read half of the time and update the other half", ycsb{first: ycsbRead, percent: 50, second: ycsbUpdate}},
		{"b", "read 95 % of the time and update 5 %", ycsb{first: ycsbRead, percent: 95, second: ycsbUpdate}},
		{"c", "read", ycsb{first: ycsbRead, percent: 100}},
		{"d", "read what was inserted lately 95 % of the time and insert 5 %",
			ycsb{first: ycsbRead, percent: 95, second: ycsbInsert, latest: true}},
		{"e", "iterate over 1 to 100 records 95 % of the time and insert 5 %",
			ycsb{first: ycsbScans, percent: 95, second: ycsbInsert}},
		{"f", "read half of the time, and the other half read and then update",
			ycsb{first: ycsbRead, percent: 50, second: ycsbModify}},
	} {
		w.work.records, w.work.value = records, ycsbValue
		table = append(table, Workload{
			Name: "ycsb/" + w.name, About: w.about + "; 100,000 records of 1 KB, zipfian", Unit: "operations",
			Stored: "records", Items: 1, ItemBytes: sharedKeySize + ycsbValue, OneKey: true, Store: Keys, KeyOrder: Random,
			Loaded: int64(records) * (sharedKeySize + ycsbValue),
			Reads:  w.work.percent == 100, Overhead: 3 * time.Second,
			Engine: w.work.engine, Floor: w.work.floor, Null: w.work.null,
		})
	}

	return table
}

// kinds are those of the operations, nil if all are of one.
func (y ycsb) kinds() []string {
	switch {
	case y.percent < 100:
		return []string{string(y.first), string(y.second)}
	case y.beside != nil:
		return []string{string(y.first)}
	}

	return nil
}

// ycsbStore is what a client works on.
type ycsbStore struct {
	read   func(number uint32) error
	scan   func(number uint32, n int) error
	update func(number uint32) error
	insert func() error
	all    func() uint32 // records that are there
}

// client is client i, working on a store.
func (y ycsb) client(t Task, i int, popular zipf, on ycsbStore) func() (kind int, err error) {
	random := rand.New(rand.NewPCG(t.Seed, uint64(i)))
	number := func() uint32 {
		switch {
		case y.uniform:
			return random.Uint32N(uint32(y.records))
		case y.latest:
			return on.all() - 1 - uint32(popular.draw(random))
		}

		return uint32(fnv(popular.draw(random)) % uint64(y.records))
	}
	do := func(op ycsbOp) error {
		switch op {
		case ycsbRead:
			return on.read(number())
		case ycsbUpdate:
			return on.update(number())
		case ycsbScans:
			return on.scan(number(), 1+random.IntN(ycsbScan))
		case ycsbModify:
			n := number()
			if err := on.read(n); err != nil {
				return err
			}

			return on.update(n)
		}

		return on.insert()
	}

	return func() (int, error) {
		if random.IntN(100) < y.percent {
			return 0, do(y.first)
		}

		return 1, do(y.second)
	}
}

// on makes the load one of clients that work on what store makes for each.
func (y ycsb) on(load Load, t Task, store func(i int) ycsbStore) Load {
	popular := newZipf(ycsbSpread)
	if y.latest {
		popular = newZipf(uint64(y.records))
	}
	if y.beside != nil {
		load.Beside = y.writing(t, store)
	}

	return load.mix(y.kinds(), func(i int) func() (int, error) { return y.client(t, i, popular, store(i)) })
}

func (y ycsb) engine(t Task) (Load, error) {
	table, err := newSharedLoaded(t, y.records, y.value, y.first == ycsbScans)
	if err != nil {
		return Load{}, err
	}

	return y.on(table.load(), t, func(int) ycsbStore {
		r, w := table.reader(), table.writer()
		return ycsbStore{r.get, r.scan, w.put, w.insert, table.acknowledged.Load}
	}), nil
}

func (y ycsb) null(t Task) (Load, error) {
	table, sample := newSharedTable(t, y.records, y.value, false), newKVNull(t, y.records, y.value)

	return y.on(table.load(), t, func(int) ycsbStore {
		w := table.writer()
		return ycsbStore{sample.get, sample.scan, w.put, w.insert, table.acknowledged.Load}
	}), nil
}

// floor reads the loaded records from one file, where those of a scan follow one another, and appends to another one.
func (y ycsb) floor(t Task) (Load, error) {
	read, err := newKVFloorLoaded(t, y.records, y.value)
	if err != nil {
		return Load{}, err
	}
	load := read.load(nil)
	appender := func(int) func() error { return nil }
	if y.percent < 100 || y.beside != nil {
		written, err := newKVFloor(t, 1, y.value)
		if err != nil {
			return Load{}, errors.Join(err, read.file.close())
		}
		load, appender = written.load(nil).with(load), written.appender
	}

	return y.on(load, t, func(i int) ycsbStore {
		r, write := read.reader(), appender(i)
		scan := func(number uint32, n int) error {
			n = min(n, y.records)
			return r.scan(min(number, uint32(y.records-n)), n)
		}
		update := func(uint32) error { return write() }

		return ycsbStore{r.get, scan, update, write, func() uint32 { return uint32(y.records) }}
	}), nil
}
