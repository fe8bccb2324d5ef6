package raftlog

// SmallChunks makes s remove n keys at a time where the engine removes them one by one, so that few entries
// are as many as thousands would be otherwise. It is called before s is used.
func (s *Store) SmallChunks(n int) { s.chunkKeys = n }
