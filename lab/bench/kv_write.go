package bench

import "errors"

// kvPut is transactions that put keys in random or ascending order, batch of them each. Once a ring of keys is there it
// begins again, with new values. Clients take batches in turn, each its own.
type kvPut struct {
	batch     int
	value     int // bytes of one
	ring      int // keys, unless the clients need more
	ascending bool
	loaded    bool // all keys are there before, put in another random order
}

func (p kvPut) keyOrder() KeyOrder { return kvFill{ascending: p.ascending}.keyOrder() }

func (p kvPut) keys(clients int) int { return max(p.ring/p.batch, clients) * p.batch }

// turns returns a function that gives client i the place in the order of the first key of its next batch.
func (p kvPut) turns(i, clients int) func() uint32 {
	batches, next := p.keys(clients)/p.batch, i

	return func() uint32 {
		first := uint32(next * p.batch)
		if next += clients; next >= batches {
			next = i
		}

		return first
	}
}

// order is that of the keys, nil if it is ascending.
func (p kvPut) order(t Task) []uint32 {
	if p.ascending {
		return nil
	}
	seed := t.Seed
	if p.loaded {
		seed++ // the first order is that in which they were put
	}

	return kvOrderOf(p.keys(t.Clients), seed)
}

// client is client i, writing to w.
func (p kvPut) client(i, clients int, order []uint32, w *kvWriter) func() error {
	turn := p.turns(i, clients)

	return func() error {
		first := turn()
		for key := first; key < first+uint32(p.batch); key++ {
			if order != nil {
				w.put(order[key])
			} else {
				w.put(key)
			}
		}

		return w.commit()
	}
}

func (p kvPut) engine(t Task) (Load, error) {
	var table *kvTable
	var err error
	if keys := p.keys(t.Clients); p.loaded {
		table, err = newKVLoaded(t, keys, p.value, kvFill{})
	} else {
		table, err = newKVTable(t, keys, p.value)
	}
	if err != nil {
		return Load{}, err
	}
	order := p.order(t)

	return table.load(func(i int) func() error { return p.client(i, t.Clients, order, table.writer()) }), nil
}

func (p kvPut) null(t Task) (Load, error) {
	n, order := newKVNull(t, p.keys(t.Clients), p.value), p.order(t)
	return n.load(func(i int) func() error { return p.client(i, t.Clients, order, n.writer()) }), nil
}

func (p kvPut) floor(t Task) (Load, error) { return floorAppends(t, p.batch, p.value) }

// kvMixed is steps of which so many in ten, the first of them, get a key and the others put one, each put a transaction
// of its own. Each client has keys of its own.
type kvMixed struct {
	keys  int
	reads int
	value int // bytes of one
	fill  kvFill
}

const (
	mixedSteps = 10
	mixedReads = 7 // as the study had it
)

// kinds are those of the operations, nil if all are puts.
func (m kvMixed) kinds() []string {
	if m.reads == 0 {
		return nil
	}

	return []string{"get", "put"}
}

// client is client i, which has these two to get and to put with. Clients begin at different steps: they do not all
// read, and then all write.
func (m kvMixed) client(t Task, i int, get, put func(key uint32) error) func() (kind int, err error) {
	random, step, putKind := newKVRandom(t, i, m.room(t)), i%mixedSteps, len(m.kinds())/2

	return func() (int, error) {
		if step++; step > mixedSteps {
			step = 1
		}
		if step <= m.reads {
			return 0, get(random.key())
		}

		return putKind, put(random.key())
	}
}

// room is how many keys there are: one for each client at least.
func (m kvMixed) room(t Task) int { return max(m.keys, t.Clients) }

func (m kvMixed) engine(t Task) (Load, error) {
	table, err := newKVLoaded(t, m.room(t), m.value, m.fill)
	if err != nil {
		return Load{}, err
	}

	return table.load(nil).mix(m.kinds(), func(i int) func() (int, error) {
		return m.client(t, i, table.reader().get, table.writer().putOne)
	}), nil
}

func (m kvMixed) null(t Task) (Load, error) {
	n := newKVNull(t, m.room(t), m.value)

	return n.load(nil).mix(m.kinds(), func(i int) func() (int, error) {
		return m.client(t, i, n.get, n.writer().putOne)
	}), nil
}

func (m kvMixed) floor(t Task) (Load, error) {
	if m.reads == 0 {
		return floorAppends(t, 1, m.value)
	}
	written, err := newKVFloor(t, 1, m.value)
	if err != nil {
		return Load{}, err
	}
	read, err := newKVFloorLoaded(t, m.room(t), m.value)
	if err != nil {
		return Load{}, errors.Join(err, written.file.close())
	}
	load := written.load(nil).mix(m.kinds(), func(i int) func() (int, error) {
		write := written.appender(i)
		return m.client(t, i, read.reader().get, func(uint32) error { return write() })
	})

	return load.with(read.load(nil)), nil
}

// kvOverwrite is transactions that change random keys, batch of them each, among those that are there to begin with.
// One in five is deleted, the others get a new value, and what had been deleted is put again: five sixths of the
// keys are there in the long run, and what else is on disk is the price of the changes. Each client has
// keys of its own.
type kvOverwrite struct{ keys int }

const deleteOneIn = 5

func (o kvOverwrite) client(t Task, i int, w *kvWriter) func() error {
	random := newKVRandom(t, i, o.room(t))

	return func() error {
		for range kvBatch {
			key := random.key()
			if _, there := w.versions.has(key); there && random.IntN(deleteOneIn) == 0 {
				w.delete(key)
			} else {
				w.put(key)
			}
		}

		return w.commit()
	}
}

func (o kvOverwrite) room(t Task) int { return max(o.keys, t.Clients) }

func (o kvOverwrite) engine(t Task) (Load, error) {
	table, err := newKVLoaded(t, o.room(t), kvValueSize, kvFill{})
	if err != nil {
		return Load{}, err
	}

	return table.load(func(i int) func() error { return o.client(t, i, table.writer()) }), nil
}

func (o kvOverwrite) null(t Task) (Load, error) {
	n := newKVNull(t, o.room(t), kvValueSize)
	return n.load(func(i int) func() error { return o.client(t, i, n.writer()) }), nil
}

// floor writes the values of a transaction: in the long run one change in six is a deletion, which has none.
func (o kvOverwrite) floor(t Task) (Load, error) {
	return floorAppends(t, kvBatch-kvBatch/(deleteOneIn+1), kvValueSize)
}
