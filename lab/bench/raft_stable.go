package bench

import (
	"fmt"

	"github.com/holdfastdb/holdfast/lab/contender"
)

// raftStable is work on that many stable keys, one after another.
type raftStable struct{ keys int }

// stableContents is what the stable keys should hold.
type stableContents struct {
	keys     [][]byte
	values   kvValues
	versions kvVersions
	put      int64 // bytes, by the one client that sets
}

func (s raftStable) contents(t Task) *stableContents {
	return &stableContents{keys: raftKeys(s.keys, t.Seed), values: newKVValues(raftValue, t.Seed),
		versions: make(kvVersions, s.keys)}
}

// setter returns what sets a key to its next value by set.
func (l *stableContents) setter(set func(key, value []byte) error) func(key uint32) error {
	value := l.values.lay(make([]byte, raftValue))

	return func(key uint32) error {
		l.values.fill(value, key, l.versions.put(key))
		l.put += raftKeySize + raftValue

		return set(l.keys[key], value)
	}
}

// get reads a key, and compares.
func (l *stableContents) get(store contender.RaftStore, key uint32) error {
	version, there := l.versions.has(key)
	value, err := store.Get(l.keys[key])
	switch missing := len(value) == 0 && (err == nil || contender.KeyMissing(err)); {
	case missing && !there:
		return nil
	case missing:
		return fmt.Errorf("%w: key %s, version %d, is not there", ErrWrong, l.keys[key], version)
	case err != nil:
		return fmt.Errorf("key %s: %w", l.keys[key], err)
	case !there:
		return fmt.Errorf("%w: key %s is there, and was never set", ErrWrong, l.keys[key])
	}

	return l.values.check(value, key, version)
}

// verify reads all keys.
func (l *stableContents) verify(store contender.RaftStore) (items, checked int64, err error) {
	items = l.versions.count()
	for key := range l.keys {
		if err := l.get(store, uint32(key)); err != nil {
			return items, checked, err
		}
		if _, there := l.versions.has(uint32(key)); there {
			checked++
		}
	}

	return items, checked, nil
}

// client does its work on the keys in turn; clients begin at different ones.
func (s raftStable) client(t Task, i int, work func(key uint32) error) func() error {
	return kvRead{keys: s.keys, order: kvInOrder}.client(t, i, work, nil)
}

func (s raftStable) setEngine(t Task) (Load, error) {
	if err := oneClient(t); err != nil {
		return Load{}, err
	}
	table, err := openRaft(t)
	if err != nil {
		return Load{}, err
	}
	l := s.contents(t)
	load := table.load(func(i int) func() error { return s.client(t, i, l.setter(table.store.Set)) }, l.verify)
	load.Put = func() int64 { return l.put }

	return load, nil
}

func (s raftStable) setNull(t Task) (Load, error) {
	l := s.contents(t)

	return nullLoad(func(i int) func() error {
		return s.client(t, i, l.setter(func(_, _ []byte) error { return nil }))
	}, l.versions.count), oneClient(t)
}

// raftRecord is the value of the floor's records that have as many bytes as a stable key and its value.
const raftRecord = raftKeySize + raftValue - kvKeySize

func (s raftStable) setFloor(t Task) (Load, error) { return floorAppends(t, 1, raftRecord) }

func (s raftStable) getEngine(t Task) (Load, error) {
	l := s.contents(t)
	table, err := openRaftLoaded(t, func(store contender.RaftStore) error {
		set := l.setter(store.Set)
		for key := range l.keys {
			if err := set(uint32(key)); err != nil {
				return err
			}
		}

		return nil
	})
	if err != nil {
		return Load{}, err
	}

	return table.load(func(i int) func() error {
		return s.client(t, i, func(key uint32) error { return wrong(l.get(table.store, key)) })
	}, l.verify), nil
}

func (s raftStable) getNull(t Task) (Load, error) {
	n := newKVNull(t, s.keys, raftValue)
	return n.load(func(i int) func() error { return s.client(t, i, n.get) }), nil
}

func (s raftStable) getFloor(t Task) (Load, error) {
	return floorReads(t, s.keys, raftRecord, func(i int, f *kvFloorReader) func() error { return s.client(t, i, f.get) })
}
