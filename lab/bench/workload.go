package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// Workloads returns the table of workloads, in the order in which they are shown.
func Workloads() []Workload {
	var table []Workload
	table = append(table, eventWorkloads()...)
	table = append(table, kvWorkloads()...)
	table = append(table, ycsbWorkloads()...)
	table = append(table, raftWorkloads()...)
	table = append(table, proposeWorkloads()...)
	table = append(table, messageWorkloads()...)
	table = append(table, taskWorkloads()...)
	table = append(table, fileWorkloads()...)

	return table
}

// Workload is one kind of work. Its functions run in the child process.
type Workload struct {
	Name  string // "event/append-1"
	About string // one line
	Unit  string // what is counted, in the plural: "events"
	Items int    // how many of them one operation handles
	// Stored is what is there in the end, in the plural, where that is not Unit.
	Stored string

	// KeyOrder is the order in which an engine is given the keys, before the measurement if it is of reads or of changes;
	// empty for stores that make their own keys.
	KeyOrder KeyOrder

	// ItemBytes is what one item is, key and value, in bytes. Where it is named, what is on disk is shown as a multiple of
	// that, or, if InBytes is true, rates are of bytes.
	ItemBytes int
	InBytes   bool

	// Loaded is how many bytes of keys and values are there before, of work on keys that reads or changes them; 0 where
	// nothing is, where the system drops it from memory, or where the work is on little by its nature.
	Loaded int64

	// Reads is true for work that only reads: durability plays no part in it, so it is
	// measured once per contender and shown in one table.
	Reads bool

	// ReadsBack is true for work that reads what was written a moment ago, in turns with writes or not.
	ReadsBack bool

	// Filled says for the title how what is read was put there, where that decides what reading it costs: "events appended
	// one by one"; empty elsewhere.
	Filled string

	// Cold is true for reads of what is not in memory: what was put is synced, its pages are dropped from the system's
	// cache, and the engine is opened then. Tables show what a device read.
	Cold bool

	// Store is the kind of store that the work is on, which peers of that kind can do too; empty if it is on an engine's
	// keys, or on a store that has no peers.
	Store StoreKind
	// OneClient is true for work that only one client can do. It is then measured with one, whatever is asked for.
	OneClient bool
	// Clients are the numbers of clients that it is measured with, unless others are asked for; nil for the preset's.
	Clients []int
	// Offer is how fast it is offered, unless another rate is asked for.
	Offer Offer
	// Samples is true where the report shows how rate, disk and memory go over the time. Then null, which would take as
	// long, is left out.
	Samples bool

	// Killed is true for work on what a killed process leaves. What dies with the process has no such work.
	Killed bool

	// OneKey is true for work on an engine's keys that commits one at a time: engines without atomic batches can do it.
	OneKey bool
	// Transactions is true for work on keys in transactions that read, or of tasks and other things in one: on engines, in
	// package kv.
	Transactions bool
	// BatchBytes is how many bytes of keys and values one batch has, where that is more than an engine may take.
	BatchBytes int64

	// Overhead is what a measurement takes on the average in addition to warming up, measuring and what
	// starting a process does, to guess how long a plan takes.
	Overhead time.Duration

	// StudyClients is how many clients the original study had, 0 for one.
	StudyClients int
	// Study is what the original study measured for an engine at the level given, or says
	// that it did not. nil if the study had no such work.
	Study func(engine string, given holdfast.Level) string
	// StudyNote explains those figures below the tables, in a sentence; empty if there is nothing to explain.
	StudyNote string

	// Engine, Floor and Null make the work ready on each kind of contender: all inputs
	// made, all preloading done. Floor is nil where it is not measured: it would take as long as each contender.
	Engine func(Task) (Load, error)
	Floor  func(Task) (Load, error)
	Null   func(Task) (Load, error)
}

// KeyOrder is the order in which keys are put. What comes in ascending order is the best case of engines that append,
// and of trees, whose pages then are filled one after another.
type KeyOrder string

// The orders of keys.
const (
	Ascending   KeyOrder = "ascending"
	Random      KeyOrder = "random"
	RandomAgain KeyOrder = "random-again" // each key a second time, in another random order
)

// String is what an order is called behind "keys put in".
func (o KeyOrder) String() string {
	if o == RandomAgain {
		return "random order, twice"
	}

	return string(o) + " order"
}

// about describes the work in a list, with the order of its keys.
func (w Workload) about() string {
	if w.KeyOrder == "" {
		return w.About
	}

	return w.About + "; keys put in " + w.KeyOrder.String()
}

// studied reports whether the original study had such work, with so many clients.
func (w Workload) studied(clients int) bool {
	return w.Study != nil && clients == max(w.StudyClients, 1)
}

// rates returns what rates are of, and how much of that one operation does.
func (w Workload) rates() (unit string, perOp float64) {
	if w.InBytes {
		return "bytes", float64(w.Items) * float64(w.ItemBytes)
	}

	return w.Unit, float64(w.Items)
}

// clients returns the numbers of clients that the work is measured with: asked are those that were asked for, if any,
// or the preset's.
func (w Workload) clients(asked, preset []int) []int {
	switch {
	case w.OneClient:
		return []int{1}
	case len(asked) > 0:
		return asked
	case len(w.Clients) > 0:
		return w.Clients
	}

	return preset
}

// showsSpace reports that space on disk is shown as a multiple of what is alive.
func (w Workload) showsSpace() bool { return w.ItemBytes > 0 && !w.InBytes }

// Task is what a load is made for.
type Task struct {
	Dir     string         // of this measurement alone, empty at first
	Level   holdfast.Level // that commits ask for
	Clients int
	Seed    uint64
	Cold    bool // of the workload
	Mapped  bool // floor stores to a mapping
	AtOnce  bool // the nodes of floor write at the same time
	// Open opens the engine in Dir; after its Close it may be called again.
	Open func() (holdfast.Engine, error)
	// Killed has another process open the engine, put so many keys, and be killed.
	Killed func(keys int) error
}

// compact has an engine that can compact do so where the work is of cold reads: what its log or its write buffers hold
// would be read when it is opened, and be in memory then.
func (t Task) compact(e holdfast.Engine) error {
	if !t.Cold {
		return nil
	}
	if err := holdfast.Compact(context.Background(), e, holdfast.Range{}); !errors.Is(err, holdfast.ErrUnavailable) {
		return err
	}

	return nil
}

// cool drops what is in Dir from the system's cache where the work is of cold reads. Its files must be closed.
func (t Task) cool() error {
	if !t.Cold {
		return nil
	}

	return measure.DropPages(t.Dir)
}

// Load is a workload made ready on one contender.
type Load struct {
	// Client returns the operation of client i, counted from 0. Each call does one
	// operation and returns when it is acknowledged, or with an error if it failed or read
	// something wrong. A client is one goroutine; clients run at the same time.
	Client func(i int) func() error
	// Kinds are the names of the kinds of operations where they are mixed, and Mixed returns the operation of client i,
	// which returns the kind that it was of. nil where all are of one kind.
	Kinds []string
	Mixed func(i int) func() (kind int, err error)
	// Once is true where there is one operation only, of the first client, and no warming up.
	Once bool
	// Beside is work that one more client does. nil if there is none. Kinds then name the load's own operations.
	Beside *Beside
	// Put returns how many bytes of keys and values the clients have put until now. nil if that is not known.
	Put func() int64
	// Metrics are the engine's. nil if there is none.
	Metrics func() holdfast.Metrics
	// Close settles: all background debt is paid when it returns.
	Close func() error
	// Verify reopens what Close closed and checks it against what was acknowledged. It
	// returns how many items there should be and how many of them it read. Its errors
	// wrap ErrWrong.
	Verify func() (items, checked int64, err error)
	// Volatile is true where nothing is left after Close: Verify then runs before it.
	Volatile bool
}

// client is the operation of client i, which returns its kind, 0 where all are of one kind.
func (l Load) client(i int) func() (kind int, err error) {
	if l.Mixed != nil {
		return l.Mixed(i)
	}
	op := l.Client(i)

	return func() (int, error) { return 0, op() }
}

// mix makes the load one of operations of these kinds.
func (l Load) mix(kinds []string, client func(i int) func() (kind int, err error)) Load {
	l.Kinds, l.Mixed = kinds, client
	l.Client = func(i int) func() error {
		op := client(i)

		return func() error {
			_, err := op()
			return err
		}
	}

	return l
}

// ErrWrong is in the chain of every error that says that a contender did not keep what it
// acknowledged, or returned what was never written.
var ErrWrong = errors.New("failed verification")

// wrong puts ErrWrong in front of err, unless it is there or err is nil.
func wrong(err error) error {
	if err == nil || errors.Is(err, ErrWrong) {
		return err
	}

	return fmt.Errorf("%w: %w", ErrWrong, err)
}
