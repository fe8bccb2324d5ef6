package bench

// kvRead is reads of keys that are all there.
type kvRead struct {
	keys  int
	order kvOrder
}

// kvOrder is how keys are read.
type kvOrder int

const (
	kvInOrder kvOrder = iota // one after another; clients begin at different keys
	kvRandom                 // one, any
	kvWhole                  // all, by one iterator
)

// client is client i, which has get to read one key, and scan to read all.
func (r kvRead) client(t Task, i int, get func(key uint32) error, scan func() error) func() error {
	switch r.order {
	case kvInOrder:
		next, _ := share(r.keys, i, t.Clients)
		return func() error {
			key := next
			if next++; next == r.keys {
				next = 0
			}
			return get(uint32(key))
		}
	case kvRandom:
		random := newKVRandom(t, i, r.keys)
		random.first, random.n = 0, r.keys // reads do not meet
		return func() error { return get(random.key()) }
	}
	return scan
}

func (r kvRead) engine(t Task) (Load, error) {
	table, err := newKVLoaded(t, r.keys, kvValueSize)
	if err != nil {
		return Load{}, err
	}
	return table.load(func(i int) func() error { return r.client(t, i, table.reader().get, table.scan) }), nil
}

func (r kvRead) null(t Task) (Load, error) {
	n := newKVNull(t, r.keys, kvValueSize)
	return n.load(func(i int) func() error { return r.client(t, i, n.get, n.scan) }), nil
}

func (r kvRead) floor(t Task) (Load, error) {
	f, err := newKVFloorLoaded(t, r.keys, kvValueSize)
	if err != nil {
		return Load{}, err
	}
	return f.load(func(i int) func() error {
		reader := f.reader()
		return r.client(t, i, reader.get, reader.scan)
	}), nil
}
