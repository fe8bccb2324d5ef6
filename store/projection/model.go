package projection

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/holdfastdb/holdfast"
)

// Getter gives the values of a read model: a [View], or a [Model] that an event is applied to.
type Getter interface {
	// Get returns the value of a key, which the caller may keep, or ErrNotFound.
	Get(key string) ([]byte, error)
}

// View reads a read model in an engine.
type View struct {
	Reader holdfast.Reader // an engine, or a snapshot of one
	Prefix string          // of the model's keys
}

// Get implements [Getter].
func (v View) Get(key string) ([]byte, error) { return v.Reader.Get(nil, []byte(v.Prefix+key)) }

// Model is a read model that an event is applied to. It is used by the function that applies the event, until that
// returns.
type Model struct {
	view   View
	caps   holdfast.Capabilities
	before changes // of the events before, since the last commit
	now    changes // of this event
	err    error   // of a change that cannot be stored
}

// changes are keys and their values; nil is for a deleted key.
type changes struct {
	values map[string][]byte
	bytes  int64 // that they take in a batch, at most
}

func (c *changes) set(prefix, key string, value []byte) {
	c.values[key] = value
	c.bytes += int64(len(prefix) + len(key) + len(value) + 2*binary.MaxVarintLen64)
}

// batchBytes is how many bytes of changes end a commit, unless the engine has small batches.
const batchBytes = 1 << 20

func newModel(eng holdfast.Engine, prefix string) *Model {
	return &Model{view: View{eng, prefix}, caps: eng.Capabilities(), before: changes{values: map[string][]byte{}},
		now: changes{values: map[string][]byte{}}}
}

// half is what the changes of the events before take at most, before those of the last one, and what those of one event
// take at most, so that a batch has room for both, and for the position.
func (m *Model) half() int64 { return m.caps.MaxBatchSize/2 - 2*holdfast.MaxKeySize }

func (m *Model) full() bool { return m.before.bytes >= min(batchBytes, m.half()) }

// Get implements [Getter]. It returns what has been set last, for this event or an earlier one.
func (m *Model) Get(key string) ([]byte, error) {
	for _, changes := range []*changes{&m.now, &m.before} {
		if value, ok := changes.values[key]; ok {
			if value == nil {
				return nil, holdfast.ErrNotFound
			}
			return bytes.Clone(value), nil
		}
	}
	return m.view.Get(key)
}

// Set stores a copy of value under a key, which is not empty. What cannot be stored ends the run with ErrApply.
func (m *Model) Set(key string, value []byte) {
	if int64(len(value)) > m.caps.MaxValueSize {
		m.refuse(holdfast.ErrTooLarge, "the value of %q has %d bytes, the limit is %d", key, len(value), m.caps.MaxValueSize)
		return
	}
	m.change(key, append([]byte{}, value...))
}

// Delete removes a key. It is no error if it is not there.
func (m *Model) Delete(key string) { m.change(key, nil) }

func (m *Model) change(key string, value []byte) {
	if n := int64(len(m.view.Prefix) + len(key)); key == "" || n > m.caps.MaxKeySize {
		m.refuse(holdfast.ErrBadKey, "the key %.40q has %d bytes with the prefix, the limit is %d", key, n, m.caps.MaxKeySize)
		return
	}
	if m.now.set(m.view.Prefix, key, value); m.now.bytes > m.half() {
		m.refuse(holdfast.ErrTooLarge, "the changes take over %d bytes", m.half())
	}
}

func (m *Model) refuse(class error, format string, args ...any) {
	if m.err == nil {
		m.err = &holdfast.Error{Op: "model", Class: class, Detail: fmt.Sprintf(format, args...)}
	}
}

// begin begins with an event, end adds what it has changed to what is committed.
func (m *Model) begin() {
	clear(m.now.values)
	m.now.bytes, m.err = 0, nil
}

func (m *Model) end() {
	for key, value := range m.now.values {
		m.before.set(m.view.Prefix, key, value)
	}
}

// batch returns the changes of all events.
func (m *Model) batch() *holdfast.Batch {
	b := new(holdfast.Batch)
	for _, key := range slices.Sorted(maps.Keys(m.before.values)) {
		if value := m.before.values[key]; value != nil {
			b.Set([]byte(m.view.Prefix+key), value)
		} else {
			b.Delete([]byte(m.view.Prefix + key))
		}
	}
	return b
}

// Get reads a value that Set has stored. ErrNotFound: there is none.
func Get[V any](from Getter, key string) (value V, err error) {
	data, err := from.Get(key)
	if err != nil {
		return value, err
	}
	return value, parse(key, data, &value)
}

// Set stores a value as JSON.
func Set[V any](m *Model, key string, value V) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	m.Set(key, data)
	return nil
}

func parse(key string, data []byte, value any) error {
	if err := json.Unmarshal(data, value); err != nil {
		return &holdfast.Error{Op: "projection get", Class: holdfast.ErrCorrupt, Cause: err, Remedy: "rebuild the model",
			Detail: "the value of " + key}
	}
	return nil
}

// Entry is a key of a read model and its value.
type Entry[V any] struct {
	Key   string
	Value V
}

// page is how many keys are read at a time.
const page = 256

// All yields the values that Set has stored under keys with a prefix, in the order of the keys. After an error the loop
// ends. Events may be applied meanwhile, so it is not one state of the model, unless View.Reader is a snapshot. No
// iterator of the engine is open while the body runs.
func All[V any](view View, prefix string) iter.Seq2[Entry[V], error] {
	return func(yield func(Entry[V], error) bool) {
		r := holdfast.Prefix([]byte(view.Prefix + prefix))
		for more := true; more; {
			var list []Entry[V]
			var err error
			list, more, err = readPage[V](view, &r)
			for _, e := range list {
				if !yield(e, nil) {
					return
				}
			}
			if err != nil {
				yield(Entry[V]{}, err)
				return
			}
		}
	}
}

// readPage reads the first entries of r, and moves r behind them.
func readPage[V any](view View, r *holdfast.Range) (list []Entry[V], more bool, err error) {
	it := view.Reader.Scan(*r)
	defer it.Close()
	for len(list) < page && it.Next() {
		key := string(it.Key()[len(view.Prefix):])
		r.Lo = append(bytes.Clone(it.Key()), 0)
		if key == "" { // the position, which is no value
			continue
		}
		e := Entry[V]{Key: key}
		if err := parse(key, it.Value(), &e.Value); err != nil {
			return list, false, err
		}
		list = append(list, e)
	}
	return list, len(list) == page, it.Err()
}
