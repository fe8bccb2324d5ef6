package message

// SetHeads makes namespaces remember few heads, and returns what ends that.
func SetHeads(most int) (restore func()) {
	wasMost, wasLeast := maxHeads, minHeads
	maxHeads, minHeads = most, most
	return func() { maxHeads, minHeads = wasMost, wasLeast }
}

// OpenLogs is how many namespaces have their logs open.
func OpenLogs(s *Store) int64 { return s.loaded.Load() }
