package contender

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/lab/contender/rust"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// The engines that are written in Rust, and RustNull, which is none.
const (
	Redb      = "redb"
	Fjall     = "fjall"
	Thunderdb = "thunderdb"
	RustNull  = "rust-null"
)

// rustEngine is a line of the table of engines that the program in Rust serves.
type rustEngine struct {
	engine  string // what the program calls it
	library string
	about   holdfast.Capabilities
}

var rustEngines = []rustEngine{
	{"redb", "redb 4.6.0", holdfast.Capabilities{
		Engine: Redb,
		Memory: holdfast.Promise{Given: holdfast.Memory, How: "Durability::None"},
		Process: holdfast.Promise{Given: holdfast.Power, Why: "redb has nothing between a commit that is in memory alone " +
			"and one that is synced"},
		Power:     holdfast.Promise{Given: holdfast.Power, How: "Durability::Immediate, its default: pages, then fdatasync"},
		Caveats:   []string{"What Memory writes is on no disk until something is committed at Power, or it is closed."},
		Checksums: true,
	}},
	{"fjall", "fjall 3.1.13", holdfast.Capabilities{
		Engine:  Fjall,
		Memory:  holdfast.Promise{Given: holdfast.Memory, How: "no persist: the journal's end is in the program's buffer"},
		Process: holdfast.Promise{Given: holdfast.Process, How: "PersistMode::Buffer: the journal is written"},
		Power: holdfast.Promise{Given: holdfast.Power,
			How: "PersistMode::SyncData: the journal is written, then fdatasync"},
		Caveats: []string{"Nothing syncs what Memory and Process write but a new journal: a power cut can take all of the " +
			"last one, which holds up to 64 MB."},
		Checksums: true,
	}},
	{"thunderdb", "thunderdb 0.4.0", holdfast.Capabilities{
		Engine:  Thunderdb,
		Memory:  holdfast.Promise{Given: holdfast.Power, Why: "every commit is synced"},
		Process: holdfast.Promise{Given: holdfast.Power, Why: "every commit is synced"},
		Power: holdfast.Promise{Given: holdfast.Power,
			How: "its default: an insert appends, an update writes all data over itself in place; then fdatasync"},
		Caveats: []string{
			"The levels are what its documentation says. A kill or a power cut in the middle of an update can cost the " +
				"whole database: docs/findings/thunderdb.md.",
			"All data is in memory, and no budget bounds it. Its write-ahead log, which is off by default, is not used by " +
				"commits, and changes nothing.",
		},
	}},
	{"null", "the standard library of Rust", holdfast.Capabilities{
		Engine:  RustNull,
		Memory:  holdfast.Promise{Given: holdfast.Memory, How: "a BTreeMap"},
		Process: holdfast.Promise{Why: "nothing is written"},
		Power:   holdfast.Promise{Why: "nothing is written"},
		Caveats: []string{"It is no engine: it shows what the pipe costs."},
	}},
}

func (r rustEngine) describe() holdfast.Capabilities {
	c := r.about
	c.Library, c.AtomicBatches = r.library, true
	c.MaxKeySize, c.MaxValueSize, c.MaxBatchSize = holdfast.MaxKeySize, holdfast.MaxValueSize, holdfast.MaxBatchSize
	c.Caveats = append(slices.Clone(c.Caveats), "It is served by a program of its own, through a pipe, one request after "+
		"another: compare with "+RustNull+". Where keys are read in a known order, "+fmt.Sprint(ReadAhead)+" of them are "+
		"asked for at once, so that the times of single reads say nothing.")
	rustFailed.Lock()
	defer rustFailed.Unlock()
	if err := errors.Join(rustFailed.err, rust.Available()); err != nil {
		c.Memory = holdfast.Promise{Why: err.Error()}
		c.Process, c.Power = c.Memory, c.Memory
	}

	return c
}

// RustEngines returns the engines that are written in Rust, in the order in which they are shown. They keep keys.
// Iterators go forwards only, and fail once something else is written; a snapshot is a copy. See [Prepare].
func RustEngines() []all.Entry {
	var list []all.Entry
	for _, r := range rustEngines {
		list = append(list, all.Entry{Name: r.about.Engine, Describe: r.describe,
			Open: func(dir string, o holdfast.Options) (holdfast.Engine, error) { return openServed(r, dir, o) }})
	}

	return list
}

// rustFailed is why the program cannot be built here.
var rustFailed struct {
	sync.Mutex
	err error
}

// Prepare makes ready what the engines named need, and tells say of what takes long. If it fails, those engines say in
// their descriptions from then on why they are not available.
func Prepare(ctx context.Context, engines []string, say io.Writer) error {
	if !slices.ContainsFunc(rustEngines, func(r rustEngine) bool { return slices.Contains(engines, r.about.Engine) }) {
		return nil
	}
	if _, err := rust.Path(); err == nil || rust.Available() != nil {
		return nil
	}
	if say != nil {
		fmt.Fprintln(say, "building the program that serves the engines in Rust, once: cargo build --release --locked")
	}
	err := rust.Build(ctx)
	if err != nil {
		rustFailed.Lock()
		rustFailed.err = err
		rustFailed.Unlock()
	}

	return err
}

// Process is an engine that works in a process of its own.
type Process interface {
	// Use is what the process has used until now, or until it was closed.
	Use() Use
}

// Use is what a process has used. What is not known is -1.
type Use struct {
	CPU     time.Duration
	PeakRSS int64 // bytes, the most that it had resident
	RSS     int64 // bytes, resident now
	Written int64 // bytes that devices wrote for it
}

// ReadAhead is how many keys are asked for at once where the next ones are known.
const ReadAhead = 128

// Getter is an engine that is asked for many keys at once, because asking has a price of its own.
type Getter interface {
	// GetAll calls tell for each of the keys, in order. The value is nil if there is none, and valid until tell returns.
	GetAll(keys [][]byte, tell func(i int, value []byte) error) error
}

// served is an engine behind a pipe; the protocol is described in rust/src/main.rs.
type served struct {
	peer
	handle *datadir.Handle // nil for one that keeps nothing on disk
	folder string          // of the program alone

	closing sync.Mutex
	writing sync.Mutex // while something is applied, or nothing may be
	pipe    sync.Mutex // one request at a time; what follows is under it
	process *child.Process
	in      *bufio.Reader
	out     []byte
	answer  []byte
	applied int64 // batches
	syncs   int64
	broken  error // why there will be no more answers
	use     Use   // before it was closed
}

func openServed(r rustEngine, dir string, o holdfast.Options) (_ holdfast.Engine, err error) {
	c := r.describe()
	h, o, err := begin(c, dir, o, false)
	if err != nil {
		return nil, err
	}
	s := &served{peer: peer{name: c.Engine, only: "has no other operations", dir: dir, counts: new(counts),
		describe: func() holdfast.Capabilities { return c }}, handle: h}
	if h != nil {
		s.dir = h.Dir
		s.folder = filepath.Join(s.dir, "data")
	} else if s.folder, err = os.MkdirTemp("", "holdfast-rust-"); err != nil {
		return nil, err
	}
	if err = s.start(r.engine, o.MemoryBytes); err != nil {
		return nil, errors.Join(err, s.release())
	}

	return s, nil
}

// start starts the program, and waits until it has opened the engine. What was not made to the end is made again:
// fjall and redb cannot open it, and nothing was acknowledged in it.
func (s *served) start(engine string, memory int64) error {
	if err := datadir.MkdirAll(s.folder); err != nil {
		return err
	}
	var err error
	if s.process, err = rust.Start(engine, s.folder, memory, s.handle == nil || s.handle.New); err != nil {
		return err
	}
	s.in = bufio.NewReaderSize(s.process.Out, 64<<10)
	if err = s.receive(); err == nil {
		s.settings, err = settingsIn(s.answer)
	}
	if err == nil && s.handle != nil {
		err = s.handle.Made()
	}
	if err != nil {
		s.fail(err)
		return s.wrap("open", err)
	}

	return nil
}

// settingsIn reads what the program says that the engine runs with.
func settingsIn(answer []byte) (list []holdfast.Setting, err error) {
	for err == nil && len(answer) > 0 {
		var name, value []byte
		if name, answer, err = oneString(answer); err == nil {
			value, answer, err = oneString(answer)
		}
		list = append(list, holdfast.Setting{Name: string(name), Value: string(value)})
	}

	return list, err
}

// release gives back what the engine has, but for the process.
func (s *served) release() error {
	if s.handle != nil {
		return s.handle.Close()
	}

	return os.RemoveAll(s.folder)
}

// errServed is what the program says of an engine's failure.
type errServed string

func (e errServed) Error() string { return string(e) }

// receive reads an answer.
func (s *served) receive() error {
	var head [5]byte
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		return fmt.Errorf("the program that serves it does not answer: %w", err)
	}
	n := int(binary.LittleEndian.Uint32(head[1:]))
	s.answer = slices.Grow(s.answer[:0], n)[:n]
	if _, err := io.ReadFull(s.in, s.answer); err != nil {
		return fmt.Errorf("the program that serves it breaks off: %w", err)
	}
	if head[0] != 0 {
		return errServed(s.answer)
	}

	return nil
}

// fail ends a process that is of no use any more.
func (s *served) fail(err error) {
	if s.broken != nil {
		return
	}
	s.process.Kill()
	_, _ = io.Copy(io.Discard, s.in)
	s.process.CloseInput()
	if _, ended := s.process.Wait(); ended != nil {
		err = fmt.Errorf("%w (%w)", err, ended)
	}
	s.broken = err
	s.End(&holdfast.Error{Op: "write", Engine: s.name, Path: s.dir, Class: holdfast.ErrPoisoned, Cause: err})
}

// wrap makes err an error of the engine.
func (s *served) wrap(op string, err error) error {
	e := &holdfast.Error{Op: op, Engine: s.name, Path: s.dir, Cause: err}
	if strings.Contains(err.Error(), "os error 28") {
		e.Class = holdfast.ErrFull
	}

	return e
}

// ask sends a request whose body is what fill appends, and gives the answer to use, which may keep nothing of it.
func (s *served) ask(op string, code byte, fill func([]byte) []byte, use func(answer []byte) error) error {
	s.pipe.Lock()
	defer s.pipe.Unlock()

	switch {
	case s.isShut():
		return s.isClosed(op)
	case s.broken != nil:
		return s.wrap(op, s.broken)
	}
	s.out = append(s.out[:0], code, 0, 0, 0, 0)
	if fill != nil {
		s.out = fill(s.out)
	}
	binary.LittleEndian.PutUint32(s.out[1:], uint32(len(s.out)-5))
	_, err := s.process.Write(s.out)
	if received := s.receive(); received != nil {
		err = received // says more than a pipe that is closed
	}
	if err != nil {
		if said := errServed(""); !errors.As(err, &said) {
			s.fail(err)
			err = s.broken
		}

		return s.wrap(op, err)
	}
	if use != nil {
		return use(s.answer)
	}

	return nil
}

func (s *served) isShut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.closed
}

// Apply implements [holdfast.Engine]. The batch is settled when it returns.
func (s *served) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if s.isShut() {
		return holdfast.Receipt{}, s.isClosed("apply")
	}
	if err := s.describe().CheckLevel(level); err != nil {
		return holdfast.Receipt{}, err
	}
	if err := b.Err(); err != nil {
		return holdfast.Receipt{}, err
	}
	s.writing.Lock()
	defer s.writing.Unlock()

	err := s.ask("apply", 'a', func(to []byte) []byte {
		s.applied++
		return append(append(to, byte(level)), b.Bytes()...)
	}, nil)
	switch {
	case errors.Is(err, holdfast.ErrClosed):
		return holdfast.Receipt{}, err
	case err != nil:
		// What became of it is not known, nor what would become of others.
		s.pipe.Lock()
		defer s.pipe.Unlock()
		s.fail(err)

		return holdfast.NewReceipt(unsettled{&holdfast.Error{Op: "apply", Engine: s.name, Path: s.dir,
			Class: holdfast.ErrPoisoned, Cause: err}}, 0), nil
	}

	return holdfast.Receipt{}, s.counts.commit(nil)
}

// unsettled is the waiter of a batch that failed.
type unsettled struct{ err error }

func (u unsettled) Wait(uint64) error { return u.err }

// Get implements [holdfast.Engine].
func (s *served) Get(dst, key []byte) ([]byte, error) {
	if s.isShut() {
		return dst, s.isClosed("get")
	}
	if err := holdfast.CheckKey(key); err != nil {
		return dst, err
	}
	err := s.ask("get", 'g', func(to []byte) []byte { return appendString(to, key) }, func(answer []byte) error {
		value, _, err := oneValue(answer)
		if err == nil && value == nil {
			err = holdfast.ErrNotFound
		}
		dst = append(dst, value...)

		return err
	})

	return dst, err
}

// GetAll implements [Getter].
func (s *served) GetAll(keys [][]byte, tell func(i int, value []byte) error) error {
	return s.ask("get", 'g', func(to []byte) []byte {
		for _, key := range keys {
			to = appendString(to, key)
		}

		return to
	}, func(answer []byte) error {
		for i := range keys {
			value, rest, err := oneValue(answer)
			if err == nil {
				err = tell(i, value)
			}
			if err != nil {
				return err
			}
			answer = rest
		}

		return nil
	})
}

var errAnswer = errors.New("the program that serves it answers what it was not asked")

func appendString(to, text []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

// oneString splits a string behind its length off from.
func oneString(from []byte) (text, rest []byte, err error) {
	n, w := binary.Uvarint(from)
	if w <= 0 || n > uint64(len(from)-w) {
		return nil, nil, errAnswer
	}

	return from[w : w+int(n) : w+int(n)], from[w+int(n):], nil
}

// oneValue splits what is said of a key off from; value is nil if it is not there.
func oneValue(from []byte) (value, rest []byte, err error) {
	switch {
	case len(from) > 0 && from[0] == 0:
		return nil, from[1:], nil
	case len(from) > 0 && from[0] == 1:
		return oneString(from[1:])
	}

	return nil, nil, errAnswer
}

// Chunks of a scan, in bytes: the first is small, for ranges that are.
const (
	firstChunk = 16 << 10
	lastChunk  = 256 << 10
)

// Scan implements [holdfast.Engine], forwards only. An iterator fails once something is written after it was made,
// since each part of what it walks over is asked for by itself.
func (s *served) Scan(r holdfast.Range) holdfast.Iterator {
	switch err := holdfast.CheckRange(r); {
	case s.isShut():
		return holdfast.FailedIterator(s.isClosed("scan"))
	case err != nil:
		return holdfast.FailedIterator(err)
	case r.Reverse:
		return holdfast.FailedIterator(s.refuse("scan backwards"))
	}
	it := &servedIterator{engine: s, low: bytes.Clone(r.Lo), high: bytes.Clone(r.Hi), size: firstChunk}
	s.pipe.Lock()
	it.applied = s.applied
	s.pipe.Unlock()

	return it
}

type servedIterator struct {
	engine     *served
	low, high  []byte // of what was not asked for
	applied    int64  // what the engine had when this was made
	size       int    // of the next chunk
	chunk      []byte
	rest       []byte // of chunk
	last       bool   // chunk is
	key, value []byte
	err        error
	closed     bool
}

func (it *servedIterator) Next() bool {
	for {
		switch {
		case it.closed || it.err != nil:
		case len(it.rest) > 0:
			if it.key, it.rest, it.err = oneString(it.rest); it.err == nil {
				it.value, it.rest, it.err = oneString(it.rest)
			}

			return it.err == nil
		case !it.last:
			it.err = it.fetch()
			continue
		}
		it.key, it.value = nil, nil

		return false
	}
}

// fetch asks for the next chunk.
func (it *servedIterator) fetch() error {
	s := it.engine
	if it.key != nil {
		it.low = append(append(it.low[:0], it.key...), 0)
	}

	return s.ask("scan", 's', func(to []byte) []byte {
		bounded := byte(0)
		if len(it.high) > 0 {
			bounded = 1
		}
		to = binary.LittleEndian.AppendUint32(append(to, bounded), uint32(it.size))
		to = appendString(to, it.low)
		if bounded == 1 {
			to = appendString(to, it.high)
		}

		return to
	}, func(answer []byte) error {
		if s.applied != it.applied {
			return &holdfast.Error{Op: "scan", Engine: s.name, Path: s.dir, Class: holdfast.ErrUnavailable,
				Detail: "something was written since the iterator was made", Remedy: "begin again"}
		}
		if len(answer) == 0 || len(answer) == 1 && answer[0] == 0 {
			return errAnswer
		}
		// The memory of the answer is the iterator's from now on, and that of the chunk before is for other answers.
		it.chunk, s.answer = answer, it.chunk
		it.last, it.rest = it.chunk[0] == 1, it.chunk[1:]
		it.size = min(it.size*4, lastChunk)

		return nil
	})
}

func (it *servedIterator) Key() []byte   { return it.key }
func (it *servedIterator) Value() []byte { return it.value }
func (it *servedIterator) Err() error    { return it.err }
func (it *servedIterator) Close() error  { it.closed = true; return it.err }

// Sync implements [holdfast.Engine].
func (s *served) Sync() error {
	if s.handle == nil && !s.isShut() {
		return &holdfast.Error{Op: "sync", Engine: s.name, Class: holdfast.ErrLevel, Detail: "it keeps nothing on a disk"}
	}

	return s.ask("sync", 'f', nil, nil)
}

// Snapshot implements [holdfast.Engine], by a copy in memory: a protocol with snapshots would be larger, and nothing
// that is measured needs one.
func (s *served) Snapshot() (_ holdfast.Snapshot, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()

	var b holdfast.Batch
	it := s.Scan(holdfast.Range{})
	for it.Next() {
		b.Set(it.Key(), it.Value())
	}
	if err := it.Close(); err != nil {
		return nil, err
	}
	e, err := all.Open("mem", "", holdfast.Options{Level: holdfast.Memory})
	if err != nil {
		return nil, err
	}
	if err := holdfast.Commit(e, &b, holdfast.Memory); err != nil {
		return nil, errors.Join(err, e.Close())
	}

	return copied{e}, nil
}

// copied is a snapshot that is an engine of its own.
type copied struct{ holdfast.Engine }

// Close implements [holdfast.Snapshot].
func (c copied) Close() error {
	if err := c.Engine.Close(); !errors.Is(err, holdfast.ErrClosed) {
		return err
	}

	return nil
}

// counted takes the number of syncs from an answer.
func (s *served) counted(answer []byte) error {
	if len(answer) != 8 {
		return errAnswer
	}
	s.syncs = int64(binary.LittleEndian.Uint64(answer))

	return nil
}

// Metrics implements [holdfast.Engine].
func (s *served) Metrics() holdfast.Metrics {
	_ = s.ask("metrics", 'm', nil, s.counted) // closed or broken: what it was
	m := holdfast.UnknownMetrics()
	m.Commits = s.counts.commits.Load()
	m.Groups = m.Commits
	s.pipe.Lock()
	defer s.pipe.Unlock()
	m.Syncs, m.Poison = s.syncs, s.broken
	if s.handle != nil {
		m.Files, m.DiskBytes = datadir.Usage(s.dir)
	}

	return m
}

// Use implements [Process].
func (s *served) Use() Use {
	s.pipe.Lock()
	defer s.pipe.Unlock()
	if s.broken != nil || s.isShut() {
		use := s.use
		use.RSS = -1

		return use
	}
	pid := s.process.PID()
	use := Use{CPU: measure.CPUTimeOf(pid), PeakRSS: measure.PeakRSS(pid)}
	use.RSS, _ = measure.Memory(pid)
	_, use.Written = measure.DeviceBytes(pid)

	return use
}

// Close implements [holdfast.Engine].
func (s *served) Close() error {
	s.closing.Lock()
	defer s.closing.Unlock()
	err := s.ask("close", 'c', nil, s.counted)
	if errors.Is(err, holdfast.ErrClosed) {
		return err
	}
	use := s.Use()
	s.pipe.Lock()
	defer s.pipe.Unlock()
	s.use = use
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.End(s.isClosed(""))
	if s.broken == nil {
		s.process.CloseInput()
		_, _ = io.Copy(io.Discard, s.in)
		if _, ended := s.process.Wait(); err == nil && ended != nil {
			err = s.wrap("close", ended)
		}
	}

	return errors.Join(err, s.release())
}
