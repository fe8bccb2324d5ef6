package task

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/lifecycle"
	"github.com/holdfastdb/holdfast/internal/failure"
	"github.com/holdfastdb/holdfast/internal/fetch"
	"github.com/holdfastdb/holdfast/internal/layers"
	"github.com/holdfastdb/holdfast/internal/receipts"
	"github.com/holdfastdb/holdfast/internal/registry"
	"github.com/holdfastdb/holdfast/internal/txn"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/internal/heap"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// Store is an open task store. All methods may be called from many goroutines at once.
//
// Every change is decided and applied in its turn, and waited for outside of it, so that many callers share the
// engine's syncs. A call keeps the turn, and with it the lock of what is in memory, until it has applied its change. A
// transaction keeps the turn while its function runs, and what is in memory is then as if it had its place already: so
// all that decides, or tells what is there, takes the turn. In memory there are the tasks that run, the first waiting
// tasks of each queue and key, and counts; everything else is read from the engine when it is needed.
type Store struct {
	db    *kv.DB
	eng   holdfast.Engine
	fetch fetch.Fetcher // nil where reads are fast
	keys  format.Store
	lease registry.Lease
	o     Options
	life  lifecycle.Life // entered by every call
	began time.Time

	turn     txn.Turn
	joined   *part          // of the transaction that has the turn, nil if none has
	batch    holdfast.Batch // memory of that
	late     []func()       // called when that has ended, with the lock
	err      error          // why nothing can be changed any more
	wall     int64          // the clock when the lock was taken, in nanoseconds since 1970
	elapsed  time.Duration  // the time passed then
	number   uint64         // the last number given to a task, lease or turn
	reserved uint64         // what is kept of it, see reserve
	noted    int64          // the clock that is kept
	state    layers.State   // of the engine, and above it what a change has written, and what the engine may not show yet
	pending  layers.Pending
	lows     map[string]*low // by their parts
	worn     []*low          // those to be raised
	commits  uint64          // in pending, at any time
	tail     receipts.Tail   // of what has been applied
	mixed    bool            // something was applied at another level than the store's
	tx       tx
	running  map[uint64]*held // all, once it is loaded
	loaded   bool
	watches  map[uint64][]*watch // of tasks that run
	leases   heap.Heap[*held]    // by when they end
	queues   map[string]*queue
	atHand   int               // about how many bytes of records the windows hold
	keyed    int               // how many lanes of keys are in memory
	dropAt   int               // with more of them, those of which there is nothing to be known are forgotten
	alarms   heap.Heap[*queue] // by when something is due in them
	periodic map[string]*periodic
	ended    uint64    // no task below has ended without all that run after it having been told; none if no task has
	told     [2]uint64 // a task that has ended, and below what number those that run after it have been told
	// No task of the sequence has a turn below: what engines keep of removed keys is not walked over.
	turns  map[string]uint64
	share  int   // how much of what is due is done in one commit
	tick   int64 // when a periodic task is due, at the earliest
	back   int64 // by how much the clock was set back, and delays have not been set back yet
	expiry int64 // when a unique text may be used again, at the earliest

	planned time.Duration // when the clock is looked at next, by the time that passes
	replan  chan struct{} // of capacity 1: that has changed
	stop    context.CancelFunc
	working sync.WaitGroup // watch
	trouble error          // why what is due could not be done
	again   time.Duration  // when what is due is tried again that has failed, by the time that passes
}

// Numbers of tasks, leases and turns come from one sequence, which follows the clock in microseconds, so that a
// number that a crash has taken back is not given again. It is kept that they are below a bound, which moves on in
// steps of reserve.
const reserve = 1 << 32

// Open opens the task store of that name in the engine of db, and makes it if it is not there. It is a part of
// transactions of that database, by In. The engine stays the caller's, and must not be closed before the store is. Open
// reads the index of all tasks, but not the tasks. Those that were running run on until their leases end.
//
// Errors: ErrLevel if the engine does not give the level, ErrLocked if the store is open in this engine, ErrVersion if
// a newer program made it, ErrBadOption also for an engine without atomic batches, ErrCorrupt also for an engine with
// [holdfast.Capabilities].Lost, and for a store in which [Examine] finds problems when a loss was accepted since it was
// last open.
func Open(db *kv.DB, o Options) (*Store, error) {
	eng := db.Engine()
	o.Level = cmp.Or(o.Level, db.Level())
	keys := format.New(o.Name)
	lease, err := registry.Claim(eng, registry.Request{
		Kind: "task", Thing: "task store", Name: o.Name, MaxName: MaxNameSize, Level: o.Level, Prefix: string(keys.Prefix),
		KeySize: len(keys.Prefix) + 1 + 1 + MaxNameSize + 1 + 1 + MaxTextSize + 1 + 8 + 8,
	})
	if err != nil {
		return nil, err
	}

	o.Level = lease.Level
	o.Keep = cmp.Or(o.Keep, DefaultKeep)
	s := &Store{
		db:       db.At(o.Level),
		eng:      eng,
		fetch:    fetch.Of(eng),
		keys:     keys,
		lease:    lease,
		o:        o,
		running:  map[uint64]*held{},
		queues:   map[string]*queue{},
		periodic: map[string]*periodic{},
		turns:    map[string]uint64{},
		lows:     map[string]*low{},
		state:    layers.State{Below: eng, Layers: make([]layers.Layer, 1, 3)},
		replan:   make(chan struct{}, 1),
		began:    time.Now(),
		planned:  never,
		tick:     never,
		share:    chunk,
	}

	defer func() {
		if s.stop == nil { // it has not come to the end, also because the engine has panicked
			lease.Release()
		}
	}()

	// A program that gives a clock gives the time that passes too, or the clock has to do for both.
	if o.Now == nil {
		s.o.Now = time.Now
		if o.Elapsed == nil {
			s.o.Elapsed = func() time.Duration { return time.Since(s.began) }
		}
	}

	s.tx.s = s
	s.turn.Of(db.Turn())
	s.leases.Less = func(a, b *held) bool { return a.until < b.until }
	s.leases.At = func(h *held, i int) { h.at = i }
	s.alarms.Less = func(a, b *queue) bool { return a.alarm < b.alarm }
	s.alarms.At = func(q *queue, i int) { q.at = i }

	// The watch begins with the lock held until all is loaded.
	s.lock()
	defer s.turn.Unlock()
	if err := s.load(); err != nil {
		return nil, err
	}

	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.working.Go(func() { s.watch(ctx) })
	return s, nil
}

// lock takes the lock for a moment, whoever's turn it is, and reads the clock.
func (s *Store) lock() {
	s.turn.Lock()
	s.readClock()
}

// take takes the turn and the lock, and reads the clock. If it returns nil the caller calls s.turn.Give.
func (s *Store) take(ctx context.Context) error {
	if err := s.turn.Take(ctx); err != nil {
		return err
	}
	s.readClock()
	return nil
}

// readClock is called with the lock.
func (s *Store) readClock() {
	wall := nanos(s.o.Now())

	// A step back of up to a second is what daemons do to keep the time; more is a clock that was set back.
	if s.o.Elapsed != nil {
		was := s.elapsed
		s.elapsed = max(was, s.o.Elapsed())
		if back := s.wall + int64(s.elapsed-was) - wall; s.wall != 0 && back > int64(time.Second) {
			s.back += back
		}
	} else if s.wall != 0 { // with a clock that is set back, time stands still
		s.elapsed += max(time.Duration(wall-s.wall), 0)
		if back := s.wall - wall; back > int64(time.Second) {
			s.back += back
		}
	}

	s.wall = wall
}

// load reads the store's description, or makes it, and what is kept in memory.
func (s *Store) load() error {
	if err := s.accepted(); err != nil {
		return err
	}

	value, err := s.eng.Get(nil, s.keys.Meta())
	switch {
	case errors.Is(err, holdfast.ErrNotFound):
	case err != nil:
		return err
	case len(value) > 0 && value[0] > format.Version:
		return s.fail("open", holdfast.ErrVersion, nil, "use a newer holdfast",
			"the store has format %d, this program knows %d", value[0], format.Version)
	default:
		n, ok := format.Numbers(value[min(1, len(value)):])
		if !ok || len(n) != 1 && len(n) != 2 || value[0] != format.Version {
			return s.strange("open", "the store's description cannot be read")
		}
		s.number, s.reserved = n[0], n[0]
		if len(n) == 2 { // the clock, when the description was written
			s.noted = int64(n[1])
			if back := int64(n[1]) - s.wall; back > int64(time.Second) {
				s.back = back
			}
		}
	}
	// What an earlier process left reaches the store's level, and is visible, before it is read.
	s.number = max(s.number, uint64(max(s.wall/1000, 0)))
	reserved, noted := s.reserved, s.noted
	s.reserved = s.number + reserve

	var b holdfast.Batch
	stamp, err := s.get(s.keys.Stamp())
	if err != nil {
		return err
	}
	lows := bytes.Equal(stamp, value)
	if !lows { // a program that knows no lows has had the store: they may not hold any more
		lo, hi := s.bounds(lowsPart)
		b.DeleteRange(lo, hi)
		lo, hi = s.keys.Table(format.TableAway)
		b.DeleteRange(lo, hi)
	}
	s.describe(&b)

	s.lease.Fresh(&b, s.keys.Prefix)
	full, err := s.lease.Settle(&b)
	if err != nil {
		return err
	}

	// A full disk does not keep a store from opening whose description need not change.
	if full != nil {
		if value == nil || !lows {
			return full
		}
		s.reserved, s.noted = reserved, noted // a change that needs a number reserves some
	}

	// What hangs on queues comes first: counting tasks looks at their options and rates.
	if err := s.loadLows(); err != nil {
		return err
	}
	if err := s.table(format.TableQueues, func(rest, value []byte) error {
		q := s.queue(string(rest))
		q.set = true
		var k kept
		if err := json.Unmarshal(value, &k); err != nil {
			return s.strange("open", "the options of queue %q cannot be read", rest)
		}
		q.o, q.paused = k.Options, k.Paused
		return nil
	}); err != nil {
		return err
	}
	var over [][]byte // starts of keys that do not count any more
	if err := s.loadParts(format.TableRates, func(rest, value []byte) (enough bool, err error) {
		name, of, ok := format.Texted(rest)
		key, _, ok2 := format.Texted(of)
		starts, ok3 := format.ParseStarts(value)
		if !ok || !ok2 || !ok3 {
			return false, s.strange("open", "the starts at key %q cannot be read", rest)
		}
		q := s.queue(name)
		if key == "" {
			q.starts = starts
			return false, nil
		}
		if next(&starts, q.o.KeyRate, s.wall); len(starts) > 0 {
			s.lane(q, key).starts = starts
		} else {
			over = append(over, s.keys.Rate(nil, name, key))
		}
		return len(over) >= chunk, nil
	}, func() error {
		if len(over) == 0 {
			return nil
		}
		_, err := s.try(s.o.Level, func(x *tx) error {
			for _, key := range over {
				x.set(key, nil)
			}
			return nil
		})
		if over = nil; errors.Is(err, holdfast.ErrFull) && !errors.Is(err, holdfast.ErrPoisoned) {
			return nil // they do no harm
		}
		return err
	}); err != nil {
		return err
	}

	// The index says of each task what has to be known of it, so tasks are not read, but for those that run.
	d := loading{listed: map[string][]format.Order{}}
	if err := s.loadTable(format.TableAway, nil, func(rest, _ []byte) error { return d.note(s, rest) }); err != nil {
		return err
	}
	if err := s.loadParts(format.TableIndex, func(rest, _ []byte) (enough bool, err error) {
		p, ok := s.keys.Place(rest)
		if !ok || !State(p.State).valid() {
			return false, s.strange("open", "the index has a key %q", rest)
		}
		switch State(p.State) {
		case Running:
			var t *task
			if t, err = s.listed(p); err == nil {
				s.count(nil, t)
			}
		case Waiting: // windows are filled when a claim looks at them
			s.queue(p.Queue).counts[Waiting]++
			err = d.lane(s, &p)
		default:
			s.count(nil, &task{num: p.Task, Record: format.Record{Queue: p.Queue, State: p.State, Due: p.Time,
				Removal: p.Time}})
		}
		return len(d.missing) >= chunk, err
	}, func() error { return d.settle(s) }); err != nil {
		return err
	}

	for _, q := range s.queues {
		q.held = next(&q.starts, q.o.Rate, s.wall) // starts that lie ahead count from now on
		for _, l := range q.lanes {
			s.review(l)
		}
	}

	s.loaded = true
	return nil
}

// errPause ends a walk that goes on.
var errPause = errors.New("pause")

// loadParts calls f for all keys of a table in the engine, and write when f says that there is enough to be written,
// and at the end: while nothing is read.
func (s *Store) loadParts(table byte, f func(rest, value []byte) (enough bool, err error), write func() error) error {
	for from, more := []byte(nil), true; more; {
		more = false
		err := s.loadTable(table, from, func(rest, value []byte) (err error) {
			if more, err = f(rest, value); more && err == nil {
				from, err = append(bytes.Clone(rest), 0), errPause
			}
			return err
		})
		if err != nil && err != errPause {
			return err
		}
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

// describe stores the description: a bound of the store's numbers, and the clock; how far that was set back, as long as
// it is not made up for, counts as if it had not been: the next opening does it then. Earlier versions, which know no
// lows, do not write the stamp, and so it tells whether one of them has changed the store since.
func (s *Store) describe(b *holdfast.Batch) {
	s.noted = after(s.wall, time.Duration(s.back))
	d := format.AppendNumbers([]byte{format.Version}, s.reserved, uint64(max(s.noted, 0)))
	b.Set(s.keys.Meta(), d)
	b.Set(s.keys.Stamp(), d)
}

// kept is what is kept of a queue.
type kept struct {
	Options QueueOptions
	Paused  bool `json:",omitempty"`
}

// table calls f for all keys of a table in the engine.
func (s *Store) table(table byte, f func(rest, value []byte) error) error {
	lo, hi := s.keys.Table(table)
	return s.walk(lo, hi, f)
}

// walk calls f for all keys of a range in the engine.
func (s *Store) walk(lo, hi []byte, f func(rest, value []byte) error) error {
	it := s.eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()
	for it.Next() {
		if err := f(s.keys.Rest(it.Key()), it.Value()); err != nil {
			return err
		}
	}
	return it.Err()
}

// DB is the database that the store is in, at the store's level.
func (s *Store) DB() *kv.DB { return s.db }

// Level is the level of changes whose context names none.
func (s *Store) Level() holdfast.Level { return s.o.Level }

// Close ends calls that wait with ErrClosed, waits for calls and transactions in progress and for everything applied,
// and releases the store's name. Running tasks stay as they are. The engine stays open. It returns the error of what
// could not be made durable; closing twice returns ErrClosed. In the function of a transaction of which the store is a
// part, Close is [kv.ErrNested], and the store stays open.
func (s *Store) Close() error {
	if err := s.take(context.Background()); err != nil {
		return err
	}
	open := s.life.Shut() // in the store's turn: a claim that goes on to wait sees it, or is woken
	if open {
		s.stop()
		s.wakeAll()
	}
	s.turn.Give()
	if !open {
		return holdfast.ErrClosed
	}
	s.life.Wait()
	s.working.Wait()
	s.lock()
	if late := s.wall + s.back - s.noted; s.err == nil && max(late, -late) > int64(time.Second) {
		// How late it is, for the next opening. Without it a clock that is set back meanwhile is found out less surely.
		var b holdfast.Batch
		s.describe(&b)
		if receipt, err := s.eng.Apply(&b, s.o.Level); err == nil {
			s.tail.Add(receipt, s.o.Level)
		}
	}
	s.turn.Unlock()
	err := s.tail.Wait()
	s.lease.Release()
	return err
}

// enter begins a call that has the turn and the lock, after what is due has been done. If it returns nil the caller
// calls leave.
func (s *Store) enter(ctx context.Context) error {
	if err := holdfast.CheckContext(ctx); err != nil {
		return err
	}
	if err := s.take(ctx); err != nil {
		return err
	}
	if err := s.come(); err != nil {
		s.turn.Give()
		return err
	}
	return nil
}

// come enters the store's life, with the turn and the lock, and does what is due.
func (s *Store) come() error {
	if err := s.life.Enter(); err != nil {
		return err
	}
	if len(s.queues) > s.dropAt { // which costs each queue that comes one step
		for name := range s.queues {
			s.drop(name)
		}
		s.dropAt = 2*len(s.queues) + 64
	}
	if s.due() {
		_ = s.advance() // tried again
	}
	return nil
}

func (s *Store) leave() {
	s.turn.Give()
	s.life.Leave()
}

// at returns the level of a change under ctx.
func (s *Store) at(ctx context.Context) (holdfast.Level, error) {
	level := holdfast.LevelFrom(ctx, s.o.Level)
	if level == s.o.Level {
		return level, nil
	}
	return level, s.lease.Caps.CheckLevel(level)
}

// change makes a change as f says, and returns when it has reached the level that ctx names, or the store's.
func (s *Store) change(ctx context.Context, f func(x *tx) error) error {
	level, err := s.at(ctx)
	if err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Leave()
	d, err := func() (durable, error) {
		defer s.turn.Give() // the caller's code may panic
		return s.try(level, f)
	}()
	if err != nil {
		return err
	}
	return d.Wait()
}

// try makes a change as f says, with the turn and the lock, and returns what is to be waited for. If it fails, nothing
// has changed.
func (s *Store) try(level holdfast.Level, f func(x *tx) error) (durable, error) {
	x, err := s.begin(level)
	if err != nil {
		return durable{}, err
	}
	decided := false
	defer func() {
		if !decided {
			x.undo(mark{})
		}
	}()
	if err := f(x); err != nil {
		return durable{}, err
	}
	if x.err != nil {
		return durable{}, x.err
	}
	if err := x.raiseLows(); err != nil {
		return durable{}, err
	}
	d, err := x.apply()
	decided = true
	return d, err
}

// fail builds an error of the operation op on s.
func (s *Store) fail(op string, class, cause error, remedy, format string, args ...any) error {
	return failure.New("task "+op, s.lease.Caps.Engine, class, cause, remedy, format, args...)
}

// strange is the error for what cannot be read.
func (s *Store) strange(op, format string, args ...any) error {
	return s.fail(op, holdfast.ErrCorrupt, nil, "", format, args...)
}

func (s *Store) bad(op, format string, args ...any) error {
	return s.fail(op, holdfast.ErrBadOption, nil, "", format, args...)
}

func (s *Store) warn(err error) {
	cmp.Or(s.o.Logger, slog.Default()).Warn("task: something that is due could not be done", "error", err)
}

// next returns a number that no task, lease or turn has.
func (s *Store) next() uint64 {
	s.number = max(s.number+1, uint64(max(s.wall/1000, 0)))
	return s.number
}

const digits = "0123456789abcdefghijklmnopqrstuv"

// idSize is how long the ids are that the store makes: a letter and 13 digits of 5 bits.
const idSize = 1 + 13

// makeID returns the id that the store makes for a task.
func makeID(num uint64) string {
	var b [idSize]byte
	b[0] = 't'
	for i := idSize - 1; i > 0; i-- {
		b[i] = digits[num&31]
		num >>= 5
	}
	return string(b[:])
}

// parseID returns the task whose id the store has made; false means that it has not made it.
func parseID(id string) (num uint64, ok bool) {
	if len(id) != idSize || id[0] != 't' {
		return 0, false
	}
	for i := 1; i < idSize; i++ {
		d := strings.IndexByte(digits, id[i])
		if d < 0 || i == 1 && d > 15 {
			return 0, false
		}
		num = num<<5 | uint64(d)
	}
	return num, true
}

// id returns the id of a task.
func (t *task) id() string {
	if t.ID != "" {
		return t.ID
	}
	return makeID(t.num)
}

// read returns a task, from memory or the engine. ErrNotFound: there is none.
func (s *Store) read(num uint64) (*task, error) {
	if h := s.running[num]; h != nil {
		return h.task, nil
	}
	value, err := s.get(s.keys.Of(s.tx.key, format.TableTasks, num))
	if err != nil {
		return nil, err
	}
	if value == nil {
		return nil, holdfast.ErrNotFound
	}
	t := &task{num: num}
	if !t.Parse(value) || !t.state().valid() || t.state() == Running && s.loaded {
		return nil, s.strange("read", "the record of task %s cannot be read, or is not that of the index", makeID(num))
	}
	return t, nil
}

// listed returns the task of a place in the index.
func (s *Store) listed(p format.Place) (*task, error) {
	t, err := s.read(p.Task)
	if err == holdfast.ErrNotFound || err == nil && t.place() != p {
		return nil, s.strange("read", "the index lists task %s, which is not there, or not in that state", makeID(p.Task))
	}
	return t, err
}

// find returns the task of an id. ErrNotFound: there is none.
func (s *Store) find(op, id string) (*task, error) {
	num, made := parseID(id)
	if !made {
		value, err := s.get(s.keys.Key(nil, format.TableIDs, id))
		if err != nil {
			return nil, err
		}
		if n, ok := format.Numbers(value); ok && len(n) == 1 {
			num = n[0]
		}
	}
	t, err := s.read(num)
	if err == holdfast.ErrNotFound {
		return nil, s.fail(op, holdfast.ErrNotFound, nil, "", "there is no task %.80q", id)
	}
	return t, err
}
