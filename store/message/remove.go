package message

import (
	"encoding/json"
	"errors"

	"github.com/holdfastdb/holdfast"
)

// special is what is kept of a stream that is not like others.
type special struct {
	// Version is the highest position that a removed message had, NoStream if none was.
	Version int64 `json:"version"`
	Ended   bool  `json:"ended,omitempty"`
}

// special returns what is special about a stream, nil if nothing is.
func (n *Namespace) special(stream string) (*special, error) {
	key := n.keys.Head(stream)
	value, err := n.store.eng.Get(nil, key)
	if errors.Is(err, holdfast.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var s special
	if err := json.Unmarshal(value, &s); err != nil {
		return nil, n.strange(key)
	}
	return &s, nil
}
