package etcdraft

// SmallChunks makes s remove so many keys at a time.
func (s *Store) SmallChunks(keys int) { s.chunkKeys = keys }
