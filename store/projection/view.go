package projection

import (
	"bytes"
	"encoding/json"
	"iter"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
)

// Get reads a value that Set has stored in a bucket, such as a view. ErrNotFound: there is none.
func Get[V any](from *kv.Bucket, key string) (value V, err error) {
	data, err := from.Get([]byte(key))
	if err != nil {
		return value, err
	}
	return value, parse(key, data, &value)
}

// Set stores a value as JSON.
func Set[V any](in *kv.Bucket, key string, value V) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return in.Put([]byte(key), data)
}

func parse(key string, data []byte, value any) error {
	if err := json.Unmarshal(data, value); err != nil {
		return &holdfast.Error{Op: "projection get", Class: holdfast.ErrCorrupt, Cause: err, Remedy: "rebuild the view",
			Detail: "the value of " + key}
	}
	return nil
}

// Entry is a key of a bucket and its value.
type Entry[V any] struct {
	Key   string
	Value V
}

// All yields the values that Set has stored under keys with a prefix, in the order of the keys. After an error the loop
// ends.
func All[V any](from *kv.Bucket, prefix string) iter.Seq2[Entry[V], error] {
	return func(yield func(Entry[V], error) bool) {
		c := from.Cursor()
		for key, data := c.Seek([]byte(prefix)); bytes.HasPrefix(key, []byte(prefix)) && key != nil; key, data = c.Next() {
			e := Entry[V]{Key: string(key)}
			err := parse(e.Key, data, &e.Value)
			if !yield(e, err) || err != nil {
				return
			}
		}
		if err := c.Err(); err != nil {
			yield(Entry[V]{}, err)
		}
	}
}
