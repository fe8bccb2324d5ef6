package bare

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/holdfastdb/holdfast"
)

// openPebble opens a directory of Pebble that uses its own order of keys. Keys are as they are.
func openPebble(s *Source, copied string, _ Options) error {
	db, err := pebble.Open(copied, &pebble.Options{ReadOnly: true, Logger: pebbleLog{pebble.DefaultLogger}})
	if err != nil {
		return s.damaged(err)
	}
	s.close = db.Close
	s.walk = func(each func(key, value []byte) error) error {
		if err := s.noRangeKeys(db); err != nil {
			return err
		}

		return s.pebble(db, each)
	}

	return nil
}

// noRangeKeys refuses what has no place in a map of keys.
func (s *Source) noRangeKeys(db *pebble.DB) error {
	it, err := db.NewIter(&pebble.IterOptions{KeyTypes: pebble.IterKeyTypeRangesOnly})
	if err != nil {
		return s.damaged(err)
	}
	defer it.Close()
	if it.First() {
		lo, hi := it.RangeBounds()

		return s.refused(holdfast.ErrBadKey, fmt.Sprintf("range key [%.40q, %.40q)", lo, hi), "cannot be copied",
			"remove the range keys of a copy with the program that made them")
	}

	return s.damaged(it.Error())
}

func (s *Source) pebble(db *pebble.DB, each func(key, value []byte) error) error {
	it, err := db.NewIter(nil)
	if err != nil {
		return s.damaged(err)
	}
	defer it.Close()

	for it.First(); it.Valid(); it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return s.damaged(fmt.Errorf("key %.40q: %w", it.Key(), err))
		}
		if err := each(it.Key(), value); err != nil {
			return err
		}
	}

	return s.damaged(it.Error())
}

// pebbleLog passes on only what ends the process.
type pebbleLog struct{ pebble.Logger }

func (pebbleLog) Infof(string, ...any)  {}
func (pebbleLog) Errorf(string, ...any) {}
