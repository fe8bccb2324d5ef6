package bench

import (
	"cmp"
	"fmt"

	"github.com/holdfastdb/holdfast/lab/contender"
)

// kvRead is reads of keys that are all there.
type kvRead struct {
	keys  int
	order kvOrder
	value int // bytes of one, 0 for kvValueSize
	fill  kvFill
}

func (r kvRead) valueSize() int { return cmp.Or(r.value, kvValueSize) }

// kvOrder is how keys are read.
type kvOrder int

const (
	kvInOrder kvOrder = iota // one after another; clients begin at different keys
	kvRandom                 // one, any
	kvWhole                  // all, by one iterator
	kvRange                  // kvRangeKeys from any on, by one iterator
)

// client is client i, which has get to read one key, and scan to read n of them from first on.
func (r kvRead) client(t Task, i int, get func(key uint32) error, scan func(first uint32, n int) error) func() error {
	switch r.order {
	case kvInOrder:
		next, _ := share(r.keys, i, t.Clients)

		return func() error {
			key := next
			if next++; next == r.keys {
				next = 0
			}

			return get(uint32(key))
		}
	case kvRandom:
		random := newKVRandom(t, i, r.keys)
		random.first, random.n = 0, r.keys // reads do not meet

		return func() error { return get(random.key()) }
	case kvRange:
		random := newKVRandom(t, i, r.keys)
		n := min(kvRangeKeys, r.keys)
		random.first, random.n = 0, r.keys-n+1

		return func() error { return scan(random.key(), n) }
	}

	return func() error { return scan(0, r.keys) }
}

func (r kvRead) engine(t Task) (Load, error) {
	table, err := newKVLoaded(t, r.keys, r.valueSize(), r.fill)
	if err != nil {
		return Load{}, err
	}

	return table.load(func(i int) func() error {
		reader := table.reader()
		all, ok := table.engine.(contender.Getter)
		if !ok {
			return r.client(t, i, reader.get, table.scan)
		}

		return reader.ahead(all, func(get func(key uint32) error) func() error { return r.client(t, i, get, table.scan) })
	}), nil
}

// ahead is client, which reads keys that do not depend on what it has read, with many of them got at once.
func (r *kvReader) ahead(all contender.Getter, client func(get func(key uint32) error) func() error) func() error {
	var (
		numbers []uint32 // of the keys drawn
		keys    [contender.ReadAhead][]byte
		results []error // of those got and not yet given out
	)
	draw := client(func(key uint32) error {
		numbers = append(numbers, key)
		return nil
	})
	check := func(i int, value []byte) error {
		version, _ := r.table.versions.has(numbers[i])
		if value == nil {
			results = append(results, fmt.Errorf("%w: %s is not there", ErrWrong, keys[i]))
		} else {
			results = append(results, r.table.values.check(value, numbers[i], version))
		}

		return nil
	}

	return func() error {
		if len(results) == 0 {
			numbers, results = numbers[:0], results[:0]
			for range keys {
				if err := draw(); err != nil || len(numbers) == 0 { // one that does not get single keys
					return err
				}
			}

			for i, number := range numbers {
				keys[i] = append(keys[i][:0], r.key.of(number)...)
			}
			if err := all.GetAll(keys[:], check); err != nil {
				return err
			}
		}
		err := results[0]
		results = results[1:]

		return err
	}
}

func (r kvRead) null(t Task) (Load, error) {
	n := newKVNull(t, r.keys, r.valueSize())
	return n.load(func(i int) func() error { return r.client(t, i, n.get, n.scan) }), nil
}

func (r kvRead) floor(t Task) (Load, error) {
	return floorReads(t, r.keys, r.valueSize(), func(i int, f *kvFloorReader) func() error {
		return r.client(t, i, f.get, f.scan)
	})
}
