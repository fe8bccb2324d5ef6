package event

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/lifecycle"
	"github.com/holdfastdb/holdfast/internal/fetch"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/receipts"
	"github.com/holdfastdb/holdfast/internal/registry"
	"github.com/holdfastdb/holdfast/internal/txn"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
)

// hiding is of positions that an import fills: until that is durable, engines may show them.
type hiding struct {
	at   map[uint64]bool
	over chan struct{} // closed when the import has ended
}

// Options are how a store is opened. The zero value is a safe choice.
type Options struct {
	// Name distinguishes several stores in one engine, at most MaxNameSize bytes, UTF-8 without control characters; it may
	// be empty.
	Name string

	// Level is what every append, offset, snapshot and truncation survives once it is acknowledged, unless its context
	// names a stronger one ([holdfast.WithLevel]); 0 means that of the database. One log may be opened at another level
	// the next time.
	Level holdfast.Level

	// IDWindow is for how many positions at least the id of an event is remembered; for
	// twice as many at most. It is also how many events with ids one append may have. It is fixed when
	// the store is made: 0 means DefaultIDWindow for a new store and what it has for an old one.
	IDWindow uint64

	// FoldIDs makes ids the same that differ only in whether letters of ASCII are capital, as those of UUIDs may. Events
	// keep the id's text. It is kept with the log; one that was made without it is changed by the first Open with it,
	// which reads all ids that the log remembers.
	FoldIDs bool

	// Upgrade lets Open write a store of an older format in the present one. Programs that know only the older format
	// refuse it from then on. Without it, Open refuses such a store with ErrVersion and changes nothing.
	Upgrade bool

	// Logger takes a warning when a truncation passes a subscription or snapshot, which then cannot read what comes next.
	// nil discards it. It must not use the log: others wait while it speaks.
	Logger *slog.Logger
}

// Store is an open log. All methods may be called from many goroutines at once.
//
// Invariants: first-1 <= durable < next; positions up to durable have reached the level that
// they named and are visible in the engine; those above have been applied and are not shown to
// readers.
type Store struct {
	db     *kv.DB // nil in a rebuild
	eng    holdfast.Engine
	fetch  fetch.Fetcher // nil where reads are fast
	caps   holdfast.Capabilities
	level  holdfast.Level
	keys   format.Prefix
	lease  registry.Lease
	window uint64
	fold   bool

	part      atomic.Pointer[format.Part] // of the history: the present one, or, if it is late, the one before
	late      atomic.Bool                 // Open had no room to begin a part; whoever gives a position does it first
	beginning sync.Mutex                  // held while it is begun

	maxID     int   // bytes
	maxValue  int64 // bytes
	maxBatch  int64 // bytes
	packBytes int

	packed atomic.Uint64 // how many events the last entry had that was read, a guess for the next

	durable   atomic.Uint64 // last position that readers see; only grows
	first     atomic.Uint64 // first position not truncated; only grows
	appenders sync.Pool     // of *appender

	arrived signal // durable or the store's state has changed

	// turn covers order alone: it is never held while waiting for a receipt, but by a transaction, or another store's
	// draft. Its lock covers what follows.
	turn      txn.Turn
	next      atomic.Uint64    // position of the next event; written with the lock, read anywhere as a guess
	tail      receipts.Tail    // of what has been applied
	saved     receipts.Tail    // of the offsets and snapshots that were saved outside of transactions
	saves     map[string]*save // of offsets and snapshots, by their keys, that may not be durable
	mixed     bool             // something was applied at another level than the store's
	unawaited uint64           // last position submitted by a caller that may never wait for it
	settling  bool             // a goroutine waits for receipts on behalf of followers
	settlers  sync.WaitGroup   // that one
	err       error            // why nothing can be written: the first failed Wait, or the engine is closed or poisoned
	recent    recent
	importing map[string]uint64 // positions of the ids that the import under way has applied
	edits     atomic.Uint64     // imports and removals; written with the lock
	hidden    atomic.Pointer[hiding]
	crowd     atomic.Uint64 // must be durable before Submit takes more ids, 0 for none; written with the lock

	stamps  atomic.Bool // the description says that there may be some
	aboutMu sync.Mutex  // order of descriptions
	about   format.Meta // as applied last

	editing chan struct{}  // of capacity 1: full while a truncation, import or removal is under way
	life    lifecycle.Life // entered by calls that use the engine without the lock; shut with it
	expiry  expiry
	sizes   sizes
	logger  *slog.Logger // may be nil
}

// Open opens the log of that name in the engine of db, and makes it if it is not there. It is a part of transactions of
// that database. The engine stays the caller's, and must not be closed before the store is: all calls and followers
// then end with ErrClosed.
//
// Open brings what it finds to the store's level, so that readers see nothing that a
// crash could take back. Its time does not depend on the length of the log. Where the engine has no room and goes on
// ([holdfast.ErrFull]), a log that is there is opened all the same, and writes to it are refused until there is room.
//
// Errors: ErrLevel if the engine does not give the level, ErrLocked if the log is open in
// this engine, ErrVersion if a newer program made it, ErrBadOption also for an engine
// without atomic batches, ErrCorrupt also for an engine with [holdfast.Capabilities].Lost. When a loss was accepted
// since the log was last open, Open makes its index of ids anew, which takes the reading of all of it; the events that
// are lost are a [Gap], until [Rebuild].
func Open(db *kv.DB, o Options) (*Store, error) {
	o.Level = cmp.Or(o.Level, db.Level())
	s, err := claim(db.Engine(), o)
	if err != nil {
		return nil, err
	}
	s.db = db.At(o.Level)
	s.turn.Of(db.Turn())
	loaded := false
	defer func() {
		if !loaded { // also if the engine has panicked
			s.lease.Release()
		}
	}()
	err = s.accepted(o)
	if err == nil {
		err = s.load(o)
	}
	if err != nil {
		return nil, err
	}
	loaded = true
	return s, nil
}

// accepted makes the index of ids anew, and keeps lost positions from being given again, when a loss was accepted. What
// is lost stays a gap.
func (s *Store) accepted(o Options) error {
	stale, err := s.lease.Stale(s.keys.Prefix)
	if err != nil || !stale {
		return err
	}
	stored, err := firstValue(s.eng, s.keys.Meta())
	if err != nil || len(stored) > 0 && format.MetaVersion(stored) < format.Version {
		return err // load says what is wrong with an old format
	}
	_, err = s.rebuild(context.Background(), o, 0, true)
	return err
}

// claim returns a store that has a lease but has not read anything.
func claim(eng holdfast.Engine, o Options) (*Store, error) {
	keys := format.NewPrefix(o.Name)
	lease, err := registry.Claim(eng, registry.Request{
		Kind: "event", Thing: "log", Name: o.Name, MaxName: MaxNameSize, Level: o.Level,
		Prefix: string(keys.Prefix), KeySize: keyspace.Overhead + len(o.Name), AnyName: strings.Contains(o.Name, "\x00"),
	})
	if err != nil {
		return nil, err
	}
	s := &Store{eng: eng, fetch: fetch.Of(eng), lease: lease, caps: lease.Caps, level: lease.Level, keys: keys,
		editing: make(chan struct{}, 1), logger: o.Logger}
	s.appenders.New = func() any { return &appender{key: s.keys.Event(nil, 0)} }
	s.maxID = min(MaxIDSize, int(s.caps.MaxKeySize)-keyspace.Overhead-len(o.Name))
	s.maxValue, s.maxBatch = s.caps.MaxValueSize, s.caps.MaxBatchSize
	s.packBytes = int(min(packBytes, s.maxValue))
	s.packed.Store(1)
	return s, nil
}

// Delete removes the log of that name from an engine, with its offsets and snapshots, and returns when the removal
// survives what level names; 0 means Power. It is no error if there is none. If it ends early, by ctx or an error, a
// part of the log can be left: delete it again. ErrLocked: the log is open.
func Delete(ctx context.Context, eng holdfast.Engine, name string, level holdfast.Level) error {
	keys := format.NewPrefix(name)
	lease, err := registry.Claim(eng, registry.Request{
		Kind: "event", Thing: "log", Name: name, MaxName: MaxNameSize, Level: level, Prefix: string(keys.Prefix),
		AnyName: true,
	})
	if err != nil {
		return err
	}
	defer lease.Release()
	lo, hi := keys.Bounds()
	return chunks.RemoveStore(ctx, eng, lease.Level, lo, hi, keys.Meta())
}

// load reads or makes the store's description and finds the end of the log.
func (s *Store) load(o Options) error {
	window := o.IDWindow
	stored, err := s.eng.Get(nil, s.keys.Meta())
	made := errors.Is(err, holdfast.ErrNotFound)
	if err != nil && !made {
		return err
	}
	m := format.Meta{Window: window, First: 1, Folded: o.FoldIDs}
	if made && m.Window == 0 {
		m.Window = DefaultIDWindow
	}
	if !made {
		if m, err = format.DecodeMeta(stored); err != nil {
			return err
		}
		if old := format.MetaVersion(stored); old < format.Version && !o.Upgrade {
			return s.fail("open", holdfast.ErrVersion, nil, "make a backup, and open it with Options.Upgrade",
				"the store has format %d; in format %d, which this program writes, older programs refuse it", old, format.Version)
		}
		if window != 0 && window != m.Window {
			return s.fail("open", holdfast.ErrBadOption, nil, "leave IDWindow 0",
				"the store was made with an id window of %d, not %d", m.Window, window)
		}
	}
	s.window, s.about, s.fold = m.Window, m, m.Folded || o.FoldIDs
	s.first.Store(m.First)
	s.stamps.Store(m.Stamps)
	keep := keepIDs
	if s.fetch != nil {
		keep = slowIDs
	}
	s.recent.init(s.folded, keep)
	s.saves = map[string]*save{}
	s.importing = map[string]uint64{}
	s.expiry.plan(m.IDs, m.Window)
	if made {
		// Checked before anything is written, so that a later Open is refused too.
		last, err := s.last(0)
		if err != nil {
			return err
		}
		if last != 0 {
			return s.fail("open", holdfast.ErrCorrupt, nil, "",
				"there are events up to position %d but no description of the store", last)
		}
	}

	// Everything applied before this commit reaches the level with it, and is visible
	// after it: what an earlier process left in the page cache, and what an earlier store
	// of this log applied at a weaker level.
	if s.fold && !m.Folded {
		if err := s.foldIDs(context.Background()); err != nil {
			return err
		}
	}
	var b holdfast.Batch
	last, err := s.last(m.First)
	if err != nil {
		return err
	}
	s.lease.Fresh(&b, s.keys.Prefix)
	was, part, err := s.beginPart(&b, max(last+1, m.First))
	if err != nil {
		return err
	}
	s.about.Folded = s.fold
	b.Set(s.keys.Meta(), s.about.Encode())
	full, err := s.lease.Settle(&b)
	switch {
	case err != nil:
		return err
	case full == nil:
		s.part.Store(part)
	case made || was == nil || s.fold != m.Folded || format.MetaVersion(stored) < format.Version:
		return full
	default: // it can be read
		s.part.Store(was)
		s.late.Store(part != was)
	}
	if last, err = s.last(m.First); err != nil {
		return err
	}
	last = max(last, m.First-1)
	s.next.Store(last + 1)
	s.durable.Store(last)
	return nil
}

// describe adds the description to b, as change makes it, and waits for b.
func (s *Store) describe(level holdfast.Level, b *holdfast.Batch, change func(m *format.Meta)) error {
	return s.wait(s.applyAbout(level, b, change))
}

// applyAbout is describe without waiting.
func (s *Store) applyAbout(level holdfast.Level, b *holdfast.Batch, change func(m *format.Meta)) (holdfast.Receipt,
	error) {
	s.aboutMu.Lock()
	defer s.aboutMu.Unlock()
	m := s.about
	change(&m)
	b.Set(s.keys.Meta(), m.Encode())
	receipt, err := s.eng.Apply(b, level)
	if err == nil {
		s.about = m
	}
	return receipt, err
}

// wait waits for the receipt of a batch without events.
func (s *Store) wait(receipt holdfast.Receipt, err error) error {
	if err != nil {
		return s.met(err)
	}
	return s.settled(0, receipt.Wait())
}

// last returns the position of the last event in the engine, 0 if there is none from first on. What is below was
// deleted, and an engine may have to walk over all of it.
func (s *Store) last(first uint64) (uint64, error) {
	_, hi := s.keys.Events()
	it := s.eng.Scan(holdfast.Range{Lo: s.keys.Event(nil, first), Hi: hi, Reverse: true})
	defer it.Close()
	if !it.Next() {
		return 0, it.Err()
	}
	pos, ok := s.keys.Number(it.Key())
	if !ok {
		return 0, s.strange("open", it.Key())
	}
	return pos, nil
}

// strange is the error for a key in the table of events that is not an event's.
func (s *Store) strange(op string, key []byte) error {
	return s.fail(op, holdfast.ErrCorrupt, nil, "", "there is a key %q among the events", key)
}

// DB is the database that the log is in, at the log's level.
func (s *Store) DB() *kv.DB { return s.db }

// Engine is the engine that the log is in.
func (s *Store) Engine() holdfast.Engine { return s.eng }

// Level is the level of writes whose context names none.
func (s *Store) Level() holdfast.Level { return s.level }

// IDWindow is the number of positions for which ids are remembered at least.
func (s *Store) IDWindow() uint64 { return s.window }

// First is the first position that has not been truncated. In an empty log it is the one
// the next event gets.
func (s *Store) First() uint64 { return s.first.Load() }

// Last is the last position that readers see, First-1 if there is none.
func (s *Store) Last() uint64 { return s.durable.Load() }

// Shown reports whether readers see what is at a position, if there is something: not before it is durable, which the
// engine may show earlier.
func (s *Store) Shown(pos uint64) bool {
	hidden := s.hidden.Load()
	return pos <= s.durable.Load() && (hidden == nil || !hidden.at[pos])
}

// at returns the level of a write under ctx.
func (s *Store) at(ctx context.Context) (holdfast.Level, error) {
	level := holdfast.LevelFrom(ctx, s.level)
	if level == s.level {
		return level, nil
	}
	return level, s.caps.CheckLevel(level)
}

// take returns when it is the call's turn, with the lock; Give of the turn ends both.
func (s *Store) take(ctx context.Context) error {
	err := s.turn.Take(ctx)
	if err == nil {
		if err = s.state(); err != nil {
			s.turn.Give()
		}
	}
	return err
}

// commit applies b, with which the log's next position becomes next. It is called with the lock.
func (s *Store) commit(b *holdfast.Batch, level holdfast.Level, next uint64) error {
	receipt, err := s.eng.Apply(b, level)
	if err == nil {
		s.applied(receipt, level, next)
	}
	return err
}

// applied notes that something was applied, and the position of the next event. It is called with the lock.
func (s *Store) applied(receipt holdfast.Receipt, level holdfast.Level, next uint64) {
	s.next.Store(next)
	s.tail.Add(receipt, level)
	s.mixed = s.mixed || level != s.level
}

// pending is for waiting for all that has its place. It is called with the lock.
func (s *Store) pending() Pending { return Pending{s: s, tail: s.tail, settles: s.next.Load() - 1} }

// state returns why the store does nothing more, nil if it works. It is called with the lock.
func (s *Store) state() error {
	if s.life.Closed() {
		return holdfast.ErrClosed
	}
	return s.err
}

// alive returns why a caller must not go on: the store is closed, or ctx has ended. A failed
// write is no reason not to read.
func (s *Store) alive(ctx context.Context) error {
	if s.life.Closed() {
		return holdfast.ErrClosed
	}
	return holdfast.CheckContext(ctx)
}

// enter is alive for calls that use the engine without the lock. If it returns nil, the caller must call
// life.Leave.
func (s *Store) enter(ctx context.Context) error {
	if err := s.alive(ctx); err != nil {
		return err
	}
	return s.life.Enter()
}

// Close waits for everything submitted and for calls in progress, ends all followers with ErrClosed and releases the
// log's name. The engine stays open. It returns the error of what could not be made durable; closing twice returns
// ErrClosed. In the function of a transaction of which the log is a part, Close is [kv.ErrNested], and the log stays
// open.
func (s *Store) Close() error {
	// It would wait for that transaction, which waits for its function.
	if err := s.turn.Outside(); err != nil {
		return err
	}
	s.turn.Lock()
	if !s.life.Shut() {
		s.turn.Unlock()
		return holdfast.ErrClosed
	}
	all := s.pending()
	s.turn.Unlock()
	err := all.settle()
	s.arrived.fire()
	s.settlers.Wait()
	s.life.Wait()
	s.lease.Release()
	return err
}
