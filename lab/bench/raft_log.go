package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// raftIndexSize is what an entry's index takes, in bytes.
const raftIndexSize = 8

// raftEpoch is when entry 0 would have been appended.
var raftEpoch = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// raftTermOf: a new term now and then.
func raftTermOf(index uint64) uint64 { return 1 + index>>16 }

func raftTimeOf(index uint64) time.Time {
	return raftEpoch.Add(time.Duration(index) * time.Microsecond)
}

// raftEntries makes and checks entries, each of which follows from its index. Values are their data.
type raftEntries struct{ values kvValues }

func newRaftEntries(size int, seed uint64) raftEntries { return raftEntries{newKVValues(size, seed)} }

// check compares an entry with the one of that index. Its error wraps ErrWrong.
func (e raftEntries) check(log *raft.Log, index uint64) error {
	if log.Index != index || log.Term != raftTermOf(index) || log.Type != raft.LogCommand || len(log.Extensions) > 0 ||
		!log.AppendedAt.Equal(raftTimeOf(index)) {
		return fmt.Errorf("%w: entry %d has index %d, term %d, type %v, %d bytes of extensions, appended at %v", ErrWrong,
			index, log.Index, log.Term, log.Type, len(log.Extensions), log.AppendedAt)
	}

	return e.values.check(log.Data, uint32(index), uint32(index>>32))
}

// raftBatcher makes batches of entries in the same memory again and again: no store keeps what it was handed.
type raftBatcher struct {
	entries raftEntries
	logs    []*raft.Log
}

// batcher is for batches of size entries or fewer.
func (e raftEntries) batcher(size int) *raftBatcher {
	b := &raftBatcher{entries: e}
	for range size {
		b.logs = append(b.logs, &raft.Log{Type: raft.LogCommand, Data: e.values.lay(make([]byte, e.values.size))})
	}

	return b
}

// batch returns n entries from first on, until it is called again.
func (b *raftBatcher) batch(first uint64, n int) []*raft.Log {
	for i, log := range b.logs[:n] {
		index := first + uint64(i)
		log.Index, log.Term, log.AppendedAt = index, raftTermOf(index), raftTimeOf(index)
		b.entries.values.fill(log.Data, uint32(index), uint32(index>>32))
	}

	return b.logs[:n]
}

// openRaft opens the Raft store under test.
func openRaft(t Task) (*table[contender.RaftStore], error) { return openTable(t, raftOpener) }

// openRaftLoaded is openRaft with what fill puts there.
func openRaftLoaded(t Task, fill func(contender.RaftStore) error) (*table[contender.RaftStore], error) {
	return openTableLoaded(t, raftOpener, fill)
}

func raftOpener(e holdfast.Engine, level holdfast.Level) (contender.RaftStore, func() error, error) {
	return contender.OpenRaft(e, raftlog.Options{Level: level})
}

// stretch is the entries that are read at one place where not all are; as many as fullBuckets of them are all read.
const stretch = bucketSize

// verify checks that the log is first to last, both included (0 and 0 if it is empty), and reads all of it, or the ends
// and stretches of it.
func (e raftEntries) verify(store contender.RaftStore, first, last, seed uint64) (items, checked int64, err error) {
	items = int64(last - first + 1)
	if last == 0 {
		items = 0
	}
	gotFirst, err := store.FirstIndex()
	if err != nil {
		return items, 0, err
	}
	gotLast, err := store.LastIndex()
	if err != nil {
		return items, 0, err
	}
	if gotFirst != first || gotLast != last {
		return items, 0, fmt.Errorf("%w: entries %d to %d acknowledged, %d to %d there", ErrWrong, first, last, gotFirst,
			gotLast)
	}

	var log raft.Log
	for _, index := range []uint64{first - 1, last + 1} {
		if index+1 == 0 { // before an empty log
			continue
		}
		if err := store.GetLog(index, &log); !errors.Is(err, raft.ErrLogNotFound) {
			return items, 0, fmt.Errorf("%w: entry %d is outside of the log, and getting it gives: %v", ErrWrong, index, err)
		}
	}
	if items == 0 {
		return 0, 0, nil
	}
	read := func(from, to uint64) error {
		for index := from; index <= to; index++ {
			log = raft.Log{}
			if err := store.GetLog(index, &log); err != nil {
				return fmt.Errorf("entry %d: %w", index, err)
			}
			if err := e.check(&log, index); err != nil {
				return err
			}
			checked++
		}

		return nil
	}
	if items <= fullBuckets*stretch {
		return items, checked, read(first, last)
	}

	// Never the same one twice: there are thousands of stretches.
	starts := map[uint64]bool{first: true, last - stretch + 1: true}
	random := rand.New(rand.NewPCG(seed, last))
	for len(starts) < someBuckets+2 {
		starts[first+random.Uint64N(uint64(items)/stretch-1)*stretch] = true
	}

	for from := range starts {
		if err := read(from, from+stretch-1); err != nil {
			return items, checked, err
		}
	}

	return items, min(checked, items), nil
}

// raftAppend is batches of entries, appended one after another.
type raftAppend struct{ batch int }

// client appends by keep, and notes the last index that was acknowledged.
func (a raftAppend) client(entries raftEntries, last *uint64, keep func([]*raft.Log) error) func() error {
	b := entries.batcher(a.batch)

	return func() error {
		if err := keep(b.batch(*last+1, a.batch)); err != nil {
			return err
		}
		*last += uint64(a.batch)

		return nil
	}
}

func (a raftAppend) engine(t Task) (Load, error) {
	if err := oneClient(t); err != nil {
		return Load{}, err
	}
	table, err := openRaft(t)
	if err != nil {
		return Load{}, err
	}
	entries, last := newRaftEntries(raftData, t.Seed), uint64(0)
	load := table.load(
		func(int) func() error { return a.client(entries, &last, table.store.StoreLogs) },
		func(store contender.RaftStore) (int64, int64, error) {
			return entries.verify(store, min(1, last), last, t.Seed)
		})
	load.Put = func() int64 { return int64(last) * (raftIndexSize + raftData) }

	return load, nil
}

func (a raftAppend) null(t Task) (Load, error) {
	last := uint64(0)

	return nullLoad(func(int) func() error {
		return a.client(newRaftEntries(raftData, t.Seed), &last, func([]*raft.Log) error { return nil })
	}, func() int64 { return int64(last) }), oneClient(t)
}

func (a raftAppend) floor(t Task) (Load, error) { return floorAppends(t, a.batch, raftData) }

// raftGetLog is reads of random entries of a log.
type raftGetLog struct{ entries int }

// raftPreload is how many entries are appended at once before the clock starts.
const raftPreload = 8192

func (g raftGetLog) client(t Task, i int, get func(n uint32) error) func() error {
	random := rand.New(rand.NewPCG(t.Seed, uint64(i)))
	return func() error { return get(uint32(random.IntN(g.entries))) }
}

func (g raftGetLog) engine(t Task) (Load, error) {
	entries := newRaftEntries(raftData, t.Seed)
	table, err := openRaftLoaded(t, func(store contender.RaftStore) error {
		return entries.append(store, 1, g.entries, raftPreload)
	})
	if err != nil {
		return Load{}, err
	}

	return table.load(
		func(i int) func() error {
			var log raft.Log

			return g.client(t, i, func(n uint32) error {
				index := uint64(n) + 1
				log = raft.Log{} // as Raft has it: nothing is decoded into what was read before
				if err := table.store.GetLog(index, &log); err != nil {
					return wrong(fmt.Errorf("entry %d: %w", index, err))
				}

				return entries.check(&log, index)
			})
		},
		func(store contender.RaftStore) (int64, int64, error) {
			return entries.verify(store, 1, uint64(g.entries), t.Seed)
		}), nil
}

// append appends n entries from first on, in batches of that size.
func (e raftEntries) append(store contender.RaftStore, first uint64, n, batch int) error {
	b := e.batcher(min(batch, n))
	for n > 0 {
		size := min(batch, n)
		if err := store.StoreLogs(b.batch(first, size)); err != nil {
			return err
		}
		first += uint64(size)
		n -= size
	}

	return nil
}

func (g raftGetLog) null(t Task) (Load, error) {
	n := newKVNull(t, g.entries, raftData)
	return n.load(func(i int) func() error { return g.client(t, i, n.get) }), nil
}

func (g raftGetLog) floor(t Task) (Load, error) {
	return floorReads(t, g.entries, raftData, func(i int, f *kvFloorReader) func() error { return g.client(t, i, f.get) })
}

// raftTruncate is appends to a log, the front of which is deleted as soon as keep entries are there: cut of them at
// once, and from another goroutine, as Raft does after a snapshot.
type raftTruncate struct {
	keep, cut   int
	batch, data int // entries of one append, and bytes of each
	votes       int // one operation of so many sets a stable key instead; 0 for none
}

// raftRunaway is how many times keep the log may get while a deletion lasts, before appends wait for it.
const raftRunaway = 5

// raftCutter deletes for one appender, who calls step before each append.
type raftCutter struct {
	raftTruncate
	first, last uint64 // that are there, as far as it was acknowledged
	pending     bool   // a deletion is running
	wanted      chan uint64
	done        chan error
}

// newCutter begins with entries 1 to last. stop must be called.
func (r raftTruncate) newCutter(last uint64, deleteRange func(min, max uint64) error) *raftCutter {
	c := &raftCutter{raftTruncate: r, first: 1, last: last, wanted: make(chan uint64), done: make(chan error, 1)}
	go func() {
		for first := range c.wanted {
			c.done <- deleteRange(first, first+uint64(r.cut)-1)
		}
	}()

	return c
}

func (c *raftCutter) there() uint64 { return c.last - c.first + 1 }

// step starts the next deletion when it is due, and records the one before.
func (c *raftCutter) step() error {
	if c.pending && c.there() >= raftRunaway*uint64(c.keep) {
		if err := c.settle(); err != nil {
			return err
		}
	}
	if c.pending {
		select {
		case err := <-c.done:
			if err := c.deleted(err); err != nil {
				return err
			}
		default:
		}
	}
	if !c.pending && c.there() >= uint64(c.keep) {
		c.pending = true
		c.wanted <- c.first
	}

	return nil
}

func (c *raftCutter) deleted(err error) error {
	c.pending = false
	if err == nil {
		c.first += uint64(c.cut)
	}

	return err
}

// settle waits for the running deletion.
func (c *raftCutter) settle() error {
	if !c.pending {
		return nil
	}

	return c.deleted(<-c.done)
}

// stop settles and ends the goroutine.
func (c *raftCutter) stop() error {
	err := c.settle()
	close(c.wanted)

	return err
}

// start is how many entries are there at first: the first deletion then comes after half as many appends as those that
// follow, so that a short run has its share of them too.
func (r raftTruncate) start() int { return r.keep - r.cut/2 }

// raftVoteKeys are how many stable keys are set beside appends: the term, and whom a node has voted for in which one.
const raftVoteKeys = 3

// kinds are appends that began while nothing was deleted, the others, and what is set beside them.
func (r raftTruncate) kinds() []string {
	kinds := []string{"append", "append while deleting"}
	if r.votes > 0 {
		kinds = append(kinds, "vote")
	}

	return kinds
}

// client returns the operation, and that the kind that it was of.
func (r raftTruncate) client(c *raftCutter, entries raftEntries, keep func([]*raft.Log) error,
	vote func(key uint32) error) func() (int, error) {
	add, n := raftAppend{r.batch}.client(entries, &c.last, keep), 0

	return func() (kind int, err error) {
		if n++; r.votes > 0 && n%r.votes == 0 {
			return 2, vote(uint32(n / r.votes % raftVoteKeys))
		}
		if err := c.step(); err != nil {
			return 0, err
		}
		if c.pending {
			kind = 1
		}

		return kind, add()
	}
}

func (r raftTruncate) engine(t Task) (Load, error) {
	if err := oneClient(t); err != nil {
		return Load{}, err
	}
	entries := newRaftEntries(r.data, t.Seed)
	table, err := openRaftLoaded(t, func(store contender.RaftStore) error {
		return entries.append(store, 1, r.start(), raftPreload)
	})
	if err != nil {
		return Load{}, err
	}
	c := r.newCutter(uint64(r.start()), table.store.DeleteRange)
	votes := raftStable{raftVoteKeys}.contents(t)
	load := table.load(nil,
		func(store contender.RaftStore) (int64, int64, error) {
			// What is verified before it is closed may still be deleting.
			if err := c.settle(); err != nil {
				return 0, 0, err
			}

			if _, _, err := votes.verify(store); err != nil {
				return 0, 0, err
			}

			return entries.verify(store, c.first, c.last, t.Seed)
		}).mix(r.kinds(), func(int) func() (int, error) {
		return r.client(c, entries, table.store.StoreLogs, votes.setter(table.store.Set))
	})
	load.Put = func() int64 { return int64(c.last-uint64(r.start()))*int64(raftIndexSize+r.data) + votes.put }
	load.Close = func() error { return errors.Join(c.stop(), table.close()) }

	return load, nil
}

func (r raftTruncate) null(t Task) (Load, error) {
	if err := oneClient(t); err != nil {
		return Load{}, err
	}
	c := r.newCutter(uint64(r.start()), func(_, _ uint64) error { return nil })

	return Load{
		Close:  c.stop,
		Verify: func() (int64, int64, error) { return int64(c.there()), 0, nil },
	}.mix(r.kinds(), func(int) func() (int, error) {
		return r.client(c, newRaftEntries(r.data, t.Seed), func([]*raft.Log) error { return nil },
			func(uint32) error { return nil })
	}), nil
}

func (r raftTruncate) floor(t Task) (Load, error) { return raftAppend{r.batch}.floor(t) }
