package kinds

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/postgres"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

const (
	// writers write at once to one owner.
	writers = 4
	// register is a key whose value only grows: the number that the first writer has written last.
	register = "head/0"
)

// ledger is what all owners of a lab's space were told. Numbers are written once each, in the order of their issue by
// each writer: every batch has a key of its own, and replaces its writer's head.
type ledger struct {
	mu    sync.Mutex
	last  int64          // issued
	acked []int64        // in the order of acknowledgements
	heads [writers]int64 // the last acknowledged of each writer
	stale []string       // what was read and older than what had been acknowledged before
	owned int64          // how often the space was taken

	latest  time.Time     // an acknowledgement, or begin
	longest time.Duration // without one, since begin
}

// begin is called before a loss, and pause returns how long there was no acknowledgement since, at most.
func (l *ledger) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest, l.longest = time.Now(), 0
}

// pause is described with begin.
func (l *ledger) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.longest
}

// issue returns the next number.
func (l *ledger) issue() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++

	return l.last
}

// ack enters an acknowledgement.
func (l *ledger) ack(o *owner, writer int, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked = append(l.acked, n)
	l.heads[writer] = max(l.heads[writer], n)
	now := time.Now()
	l.latest, l.longest = now, max(l.longest, now.Sub(l.latest))
	o.acked = append(o.acked, n)
}

// told is how many acknowledgements there were, and floor what the register has at least.
func (l *ledger) told() int {
	l.mu.Lock()
	defer l.mu.Unlock()

	return len(l.acked)
}

// floor is described with told.
func (l *ledger) floor() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.heads[0]
}

// old enters what was read and older than it may be, and reports whether there was any.
func (l *ledger) old(j *protocol.Judgement) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, finding := range l.stale {
		j.Find(&j.Wrong, "%s", finding)
	}

	return len(l.stale) > 0
}

// wire is how an owner reaches the servers. While it stands still nothing that the owner sends leaves it, and nothing
// that comes reaches it, as for a process that is stopped: what comes waits, and the clock goes on.
type wire struct {
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	replace [2][]byte // in all that is sent: texts of equal length
	still   sync.RWMutex

	mu    sync.Mutex
	gone  bool // for good
	conns []net.Conn
}

// cut ends all connections, and refuses others.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
	for _, conn := range w.conns {
		_ = conn.Close()
	}
}

// keep notes a connection, unless there are to be none.
func (w *wire) keep(conn net.Conn) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return errors.Join(net.ErrClosed, conn.Close())
	}
	w.conns = append(w.conns, conn)

	return nil
}

// pass returns when the owner goes on.
func (w *wire) pass() {
	w.still.RLock()
	defer w.still.RUnlock()
}

// Dial connects.
func (w *wire) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.pass()
	conn, err := w.dial(ctx, network, address)
	if err == nil {
		err = w.keep(conn)
	}
	if err != nil {
		return nil, err
	}

	return &wired{conn, w}, nil
}

// wired is a connection of a wire.
type wired struct {
	net.Conn
	on *wire
}

func (c *wired) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.on.pass()

	return n, err
}

func (c *wired) Write(b []byte) (int, error) {
	c.on.pass()
	if from := c.on.replace[0]; len(from) > 0 && bytes.Contains(b, from) {
		b = bytes.ReplaceAll(b, from, c.on.replace[1])
	}

	return c.Conn.Write(b)
}

// owner is an engine that has the space, with what works on it.
type owner struct {
	engine holdfast.Engine
	wire   *wire
	ledger *ledger
	direct func(ctx context.Context) ([]byte, error) // reads the register past the engine; nil: by the engine
	acked  []int64                                   // guarded by ledger.mu

	before map[int64]bool // what was there when another owner took the space; nil if none has

	stop  context.CancelFunc
	group sync.WaitGroup
	wrote chan struct{} // closed when no writer is left
	once  sync.Once

	mu  sync.Mutex
	err error // why the first of them ended; nil if it was told to
}

// openOwner takes the space.
func openOwner(address string, w *wire, l *ledger) (*owner, error) {
	e, err := postgres.OpenWith(address, holdfast.Options{Level: holdfast.Quorum},
		func(c *pgx.ConnConfig) { c.DialFunc = w.Dial })
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owned++

	return &owner{engine: e, wire: w, ledger: l, wrote: make(chan struct{})}, nil
}

// start lets writers and a reader work until the engine fails, or end is called.
func (o *owner) start(ctx context.Context) {
	ctx, o.stop = context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() { o.ended(ctx, o.write(ctx, i)) })
	}
	o.group.Go(func() {
		all.Wait()
		close(o.wrote)
	})
	o.group.Go(func() { o.ended(ctx, o.read(ctx)) })
}

// ended notes why one of them has ended.
func (o *owner) ended(ctx context.Context, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil && ctx.Err() == nil {
		o.err = err
	}
}

// failed is why the first of them has ended.
func (o *owner) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.err
}

// refused judges an owner that did not get its acknowledgements before anything was lost. Without an error of its own
// the lab is to blame.
func (o *owner) refused(err error) (j protocol.Judgement, _ error) {
	if o.failed() == nil {
		return j, err
	}
	j.Find(&j.Wrong, "nothing was lost, and the owner ended: %v", o.failed())

	return j, nil
}

// write writes one number after the other.
func (o *owner) write(ctx context.Context, writer int) error {
	for ctx.Err() == nil {
		n := o.ledger.issue()
		var b holdfast.Batch
		value := strconv.AppendInt(nil, n, 10)
		b.Set(fmt.Appendf(nil, "log/%d", n), value)
		b.Set(fmt.Appendf(nil, "head/%d", writer), value)
		r, err := o.engine.Apply(&b, holdfast.Quorum)
		if err == nil {
			err = r.Wait()
		}
		if err != nil {
			return err
		}
		o.ledger.ack(o, writer, n)
	}

	return nil
}

// read reads the register, now by Get and now by a snapshot: what had been acknowledged before, to whatever owner, must
// be there. A snapshot is kept until there is the next one, so that states are shared.
func (o *owner) read(ctx context.Context) error {
	var kept holdfast.Snapshot
	defer func() {
		if kept != nil {
			_ = kept.Close()
		}
	}()
	for i := 0; ctx.Err() == nil; i++ {
		floor, value, err := o.ledger.floor(), []byte(nil), error(nil)
		switch {
		case o.direct != nil:
			value, err = o.direct(ctx)
		case i%2 == 0:
			value, err = o.engine.Get(nil, []byte(register))
		default:
			s, failed := o.engine.Snapshot()
			if failed != nil {
				return failed
			}
			if kept != nil {
				_ = kept.Close()
			}
			kept = s
			if value, err = s.Get(nil, []byte(register)); err != nil && !errors.Is(err, holdfast.ErrNotFound) {
				continue // its server may be gone, and the state with it
			}
		}
		if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
			return err
		}
		if n, _ := strconv.ParseInt(string(value), 10, 64); n < floor {
			o.ledger.mu.Lock()
			o.ledger.stale = append(o.ledger.stale,
				fmt.Sprintf("%q was read after %d had been acknowledged in its place", value, floor))
			o.ledger.mu.Unlock()
		}
	}

	return nil
}

// end stops them and closes the engine. It may be called again.
func (o *owner) end() (err error) {
	o.once.Do(func() {
		if o.stop != nil {
			o.stop()
		}
		o.group.Wait()
		err = o.engine.Close()
	})

	return err
}
