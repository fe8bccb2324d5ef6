package message

import (
	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// SetHeads makes namespaces remember few heads, and returns what ends that.
func SetHeads(most int) (restore func()) {
	wasMost, wasLeast := maxHeads, minHeads
	maxHeads, minHeads = most, most
	return func() { maxHeads, minHeads = wasMost, wasLeast }
}

// OpenLogs is how many namespaces have their logs open.
func OpenLogs(s *Store) int64 { return s.loaded.Load() }

// MarkDeleted deletes a namespace as far as Delete has come with its first commit.
func MarkDeleted(s *Store, id string) error {
	d, err := s.describe(id)
	if err != nil {
		return err
	}
	var b holdfast.Batch
	b.Delete(s.keys.Namespace(id))
	b.Set(s.keys.Deleted(d.Number), nil)
	return holdfast.Commit(s.eng, &b, s.o.Level)
}

// Deleted is where the namespaces are noted that are being deleted.
func Deleted(s *Store) holdfast.Range {
	lo, hi := s.keys.Table(format.TableDeleted)
	return holdfast.Range{Lo: lo, Hi: hi}
}
