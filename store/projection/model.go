package projection

import (
	"bytes"
	"encoding/json"
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
	before map[string][]byte // what the events before have changed since the last commit; nil is for a deleted key
	now    map[string][]byte // what this event has changed
	bytes  int               // of the keys and values in before
	err    error             // of a key that cannot be stored
}

func newModel(v View) *Model {
	return &Model{view: v, before: map[string][]byte{}, now: map[string][]byte{}}
}

// Get implements [Getter]. It returns what has been set last, for this event or an earlier one.
func (m *Model) Get(key string) ([]byte, error) {
	for _, changes := range []map[string][]byte{m.now, m.before} {
		if value, ok := changes[key]; ok {
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
	if len(value) > holdfast.MaxValueSize {
		m.refuse(holdfast.ErrTooLarge)
	}
	m.change(key, append([]byte{}, value...))
}

// Delete removes a key. It is no error if it is not there.
func (m *Model) Delete(key string) { m.change(key, nil) }

func (m *Model) change(key string, value []byte) {
	if key == "" { // that of the position, perhaps
		m.refuse(holdfast.ErrBadKey)
	} else if err := holdfast.CheckKey([]byte(m.view.Prefix + key)); err != nil {
		m.refuse(err)
	}
	m.now[key] = value
}

func (m *Model) refuse(err error) {
	if m.err == nil {
		m.err = err
	}
}

// begin begins with an event, end adds what it has changed to what is committed.
func (m *Model) begin() {
	clear(m.now)
	m.err = nil
}

func (m *Model) end() {
	for key, value := range m.now {
		m.before[key] = value
		m.bytes += len(m.view.Prefix) + len(key) + len(value)
	}
}

// batch returns the changes of all events.
func (m *Model) batch() *holdfast.Batch {
	b := new(holdfast.Batch)
	for _, key := range slices.Sorted(maps.Keys(m.before)) {
		if value := m.before[key]; value != nil {
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
