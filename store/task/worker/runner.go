package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

var (
	// ErrStopping is the cause of the end of a worker's context when the runner stops. If the worker then returns an
	// error, the task is given back, and the attempt is not counted.
	ErrStopping = errors.New("holdfast: runner stopping")
	// ErrStillRunning: workers have not returned though their contexts have ended. Their tasks are claimed again when
	// their leases have run out.
	ErrStillRunning = errors.New("holdfast: workers still running")
)

// Client is what a Runner asks of a *task.Store: its methods do the same, wherever they are implemented. They are
// called by many goroutines.
type Client interface {
	Claim(ctx context.Context, o task.ClaimOptions) ([]task.Lease, error)
	Heartbeat(ctx context.Context, leases ...task.Lease) ([]task.Lease, error)
	SetOutput(ctx context.Context, l task.Lease, output []byte) error
	Complete(ctx context.Context, leases ...task.Lease) error
	CompleteThen(ctx context.Context, l task.Lease, then ...task.Spec) ([]task.Result, error)
	Fail(ctx context.Context, l task.Lease, f task.Failure, o task.FailOptions) error
	Snooze(ctx context.Context, l task.Lease, d time.Duration) error
}

// Watcher is what a Client may offer besides, so that workers learn at once, and not with the next heartbeat, that
// their tasks are cancelled. A *task.Store does.
type Watcher interface {
	// Watch calls ended once the task is not held under the lease any more; stop ends that. ended does not block.
	Watch(l task.Lease, ended func()) (stop func())
}

// Joiner is what a Client may offer besides, so that tasks can be completed in transactions of the program. A
// *task.Store does; a client of a server cannot.
type Joiner interface {
	In(tx *kv.Tx) task.Tx
}

// Queues is what a Client may offer besides, so that a Runner can warn of a queue whose name is perhaps misspelt. A
// *task.Store does, and a client of a server.
type Queues interface {
	// Queues describes all queues that have tasks or options.
	Queues(ctx context.Context) ([]task.QueueInfo, error)
}

// Defaults of Options.
const (
	DefaultConcurrency = 16
	DefaultGrace       = 30 * time.Second
)

// Options are how a Runner works. The zero value is a safe choice.
type Options struct {
	// Queues are those that tasks are claimed from; none means [task.DefaultQueue]. Tasks of the first ones come first:
	// queues that are not to wait for each other have a Runner each. Run logs a warning, once, of one that has no tasks
	// and no options when others have some: its name may be misspelt.
	Queues []string
	// Concurrency is how many tasks run at once; 0 means DefaultConcurrency.
	Concurrency int
	// Lease is how long a task is held without a heartbeat; 0 means [task.DefaultLease]. There is one every third of
	// it. So long it may take until the task of a program that was killed runs elsewhere, and, if the Client is no
	// Watcher, until a worker learns that its task is cancelled.
	Lease time.Duration
	// Grace is how long workers may continue when the runner stops, before their contexts end, and then again before Run
	// returns without them; 0 means DefaultGrace, less than 0 that contexts end at once, and then DefaultGrace.
	Grace time.Duration
	// Name is the worker's name in tasks; "" means host and process.
	Name string
	// Middleware is put around all workers, the first outermost, and around kinds that are not known.
	Middleware []Middleware
	// Logger takes the outcomes of tasks (Debug; failures: Warn; dead tasks and panics: Error) and of the store; nil
	// means slog.Default.
	Logger *slog.Logger
}

// Runner claims tasks and runs them. It may be used by many goroutines at once.
type Runner struct {
	client Client
	kinds  map[string]*Kind
	o      Options
	log    *slog.Logger
}

// New makes a runner. ErrBadOption: options or registrations make no sense, or there is no worker.
func New(client Client, workers *Workers, o Options) (*Runner, error) {
	bad := func(detail string) (*Runner, error) {
		return nil, &holdfast.Error{Op: "worker new", Class: holdfast.ErrBadOption, Detail: detail}
	}
	switch {
	case client == nil || workers == nil || len(workers.kinds) == 0 && workers.bad == nil:
		return bad("there is no store or no worker")
	case workers.bad != nil:
		return nil, workers.bad
	case o.Concurrency < 0 || o.Lease < 0:
		return bad("Concurrency and Lease are not negative")
	case o.Lease > 0 && o.Lease < 3*time.Millisecond:
		return bad("a Lease has at least 3 ms")
	}
	if o.Concurrency == 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.Lease == 0 {
		o.Lease = task.DefaultLease
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.Name == "" {
		host, _ := os.Hostname() // without it, the process is enough
		o.Name = fmt.Sprintf("%.100s-%d", host, os.Getpid())
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Queues, o.Middleware = slices.Clone(o.Queues), slices.Clone(o.Middleware)
	r := &Runner{client, map[string]*Kind{}, o, o.Logger.With("worker", o.Name)}
	for name, k := range workers.kinds { // what is changed later has no effect
		c := *k
		c.Middleware = slices.Concat(o.Middleware, k.Middleware)
		r.kinds[name] = &c
	}
	return r, nil
}

// Run claims and runs tasks until ctx ends, and then returns nil: it claims no more, waits for Grace, ends the contexts
// of the workers that are left, and waits for Grace again. An error that claiming cannot recover from, such as
// ErrClosed, stops it too, and is returned; one that may pass is logged, and claiming is tried again.
func (r *Runner) Run(ctx context.Context) error {
	if err := holdfast.CheckContext(ctx); errors.Is(err, holdfast.ErrBadOption) {
		return err
	}
	s := r.start(ctx)
	s.beats.Go(s.warnOfQueues)
	slots := make(chan struct{}, r.o.Concurrency)
	err := s.claim(ctx, slots)
	return errors.Join(err, s.end())
}

// warnOfQueues warns of queues that nothing is known of, where there are others: one of their names may be meant. It
// looks twice, a lease apart, because a program may enqueue its first tasks only once its workers run. It is no error,
// because the first task of a queue may still come.
func (s *session) warnOfQueues() {
	c, ok := s.client.(Queues)
	if !ok {
		return
	}
	warned := map[string]bool{"": true}
	for range 2 {
		limited, cancel := context.WithTimeout(s.beating, s.o.Lease)
		list, err := c.Queues(limited)
		cancel()
		known := make([]string, len(list)) // none if it cannot be asked: claiming finds out why
		for i, q := range list {
			known[i] = q.Name
		}
		for _, name := range s.o.Queues {
			if err == nil && len(known) > 0 && !warned[name] && !slices.Contains(known, name) {
				warned[name] = true
				s.log.Warn("a queue of the worker has no tasks and no options; is its name right?", "queue", name,
					"known", known[:min(len(known), maxKnown)], "others", max(len(known)-maxKnown, 0))
			}
		}
		pause := s.o.Lease
		if !sleep(s.beating, &pause) {
			return
		}
	}
}

// maxKnown is how many queues a warning names.
const maxKnown = 20

// RunDue claims and runs what may run now, one task after the other, and returns how many these were once there is none
// left, or what ended ctx. It is for programs that are started from time to time, and for tests. A task that comes
// again at once is run again.
func (r *Runner) RunDue(ctx context.Context) (int, error) {
	if err := holdfast.CheckContext(ctx); err != nil {
		return 0, err
	}
	s := r.start(ctx)
	release := context.AfterFunc(ctx, s.stopAll)
	defer release()
	defer s.end() // there is nobody to wait for
	for n := 0; ; n++ {
		leases, err := r.client.Claim(ctx, r.claimOptions(1, false))
		if err != nil || len(leases) == 0 {
			return n, err
		}
		s.execute(leases[0])
	}
}

func (r *Runner) claimOptions(n int, wait bool) task.ClaimOptions {
	return task.ClaimOptions{Queues: r.o.Queues, N: n, Lease: r.o.Lease, Worker: r.o.Name, Wait: wait}
}

// session is one call of Run.
type session struct {
	*Runner
	base context.Context // with the values of Run's, but without its end

	running sync.WaitGroup // workers

	mu       sync.Mutex
	held     map[*Execution]struct{}
	stopping bool

	ended     chan struct{}   // of capacity 1: a watched lease has
	beating   context.Context // ends with stopBeats
	stopBeats context.CancelFunc
	beats     sync.WaitGroup
}

func (r *Runner) start(ctx context.Context) *session {
	s := &session{Runner: r, base: context.WithoutCancel(ctx), held: map[*Execution]struct{}{},
		ended: make(chan struct{}, 1)}
	s.beating, s.stopBeats = context.WithCancel(s.base)
	s.beats.Go(func() { s.beat(s.beating) })
	return s
}

// claim claims tasks and starts their workers, until ctx ends.
func (s *session) claim(ctx context.Context, slots chan struct{}) error {
	pause := firstPause
	for {
		n := 0 // free slots; waits for the first
		select {
		case slots <- struct{}{}:
			n++
		case <-ctx.Done():
			return nil
		}
		for more := true; more && n < cap(slots); {
			select {
			case slots <- struct{}{}:
				n++
			default:
				more = false
			}
		}
		leases, err := s.client.Claim(ctx, s.claimOptions(n, true))
		for range n - len(leases) {
			<-slots
		}
		for _, l := range leases {
			s.running.Go(func() {
				defer func() { <-slots }()
				if ctx.Err() != nil { // it ended while tasks were claimed
					x := s.hold(l)
					defer s.release(x)
					s.giveBack(x, s.log.With("task", x.ID), nil)
					return
				}
				s.execute(l)
			})
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			pause = firstPause
			continue
		case permanent(err):
			return err
		}
		s.log.Warn("tasks cannot be claimed; trying again", "error", err, "in", pause)
		if !sleep(ctx, &pause) {
			return nil
		}
	}
}

// end stops what runs, as Run says.
func (s *session) end() error {
	returned := make(chan struct{})
	go func() {
		s.running.Wait()
		close(returned)
	}()
	again := s.o.Grace
	if s.o.Grace < 0 {
		again = DefaultGrace
	}
	all := s.o.Grace > 0 && waitFor(returned, s.o.Grace)
	s.stopAll()
	all = all || waitFor(returned, again)
	s.stopBeats()
	s.beats.Wait()
	if all {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for x := range s.held {
		ids = append(ids, x.ID)
		x.lose(task.ErrLeaseLost) // nobody extends it now
	}
	slices.Sort(ids)
	return &holdfast.Error{Op: "worker stop", Class: ErrStillRunning,
		Detail: fmt.Sprintf("%.400s", strings.Join(ids, ", ")),
		Remedy: "let workers return when their contexts end"}
}

func waitFor(c <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}

// stopAll ends the contexts of all workers, also of those to come.
func (s *session) stopAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for x := range s.held {
		x.stop(ErrStopping)
	}
}

var errGoexit = errors.New("the worker has ended its goroutine (runtime.Goexit)")

// hold makes an Execution of a lease, which is extended until it is settled.
func (s *session) hold(l task.Lease) *Execution {
	x := &Execution{Task: l.Task, client: s.client, expires: time.Now().Add(s.o.Lease)}
	x.lease = task.Lease{Task: task.Task{Spec: task.Spec{ID: l.Task.ID}}, Token: l.Token} // is all that a Client needs
	x.lost, x.lose = context.WithCancelCause(s.base)
	x.ctx, x.stop = context.WithCancelCause(x.lost)
	x.unwatch = func() {}
	s.mu.Lock()
	s.held[x] = struct{}{}
	if s.stopping {
		x.stop(ErrStopping)
	}
	s.mu.Unlock()
	if w, ok := s.client.(Watcher); ok {
		x.unwatch = w.Watch(x.lease, func() {
			x.ended.Store(true)
			select {
			case s.ended <- struct{}{}:
			default:
			}
		})
	}
	return x
}

func (s *session) release(x *Execution) {
	s.mu.Lock()
	delete(s.held, x)
	s.mu.Unlock()
	x.lose(nil)
	x.stop(nil)
}

// execute runs a task, and tells the store what became of it.
func (s *session) execute(l task.Lease) {
	x := s.hold(l)
	defer s.release(x)
	kind := s.kinds[x.Kind]
	if kind == nil {
		kind = &Kind{Middleware: s.o.Middleware, work: func(context.Context, *Execution) error {
			return &holdfast.Error{Op: "run task", Class: holdfast.ErrBadOption,
				Detail: fmt.Sprintf("no worker for the kind %q is registered", x.Kind)}
		}}
	}
	ctx := x.ctx
	if kind.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, kind.Timeout)
		defer cancel()
	}
	started, err := time.Now(), errGoexit
	defer func() { s.settle(x, kind, err, time.Since(started)) }()
	err = safely(func(ctx context.Context, x *Execution) error {
		handler := safely(kind.work)
		for _, m := range slices.Backward(kind.Middleware) {
			handler = m(handler)
		}
		return handler(ctx, x)
	})(ctx, x)
}

// safely makes an error of a panic.
func safely(h Handler) Handler {
	return func(ctx context.Context, x *Execution) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = &PanicError{v, string(debug.Stack())}
			}
		}()
		return h(ctx, x)
	}
}

// settle tells the store what became of a task.
func (s *session) settle(x *Execution, kind *Kind, err error, took time.Duration) {
	log := s.log.With("task", x.ID, "kind", x.Kind, "queue", x.Queue, "attempt", x.Attempt, "took", took)
	x.unwatch()
	x.mu.Lock()
	x.settling = true
	completed := x.completed
	x.mu.Unlock()
	var v *verdict
	var p *PanicError
	errors.As(err, &v)
	switch {
	case completed && err != nil:
		log.Warn("task completed, and then its worker failed", "error", err)
	case completed:
		log.Debug("task completed")
	case err == nil:
		s.report(x, log, "completed", slog.LevelDebug, func(ctx context.Context) error {
			return s.client.Complete(ctx, x.lease)
		})
	case v != nil && v.snooze:
		s.report(x, log, "snoozed", slog.LevelDebug, func(ctx context.Context) error {
			return s.client.Snooze(ctx, x.lease, v.in)
		})
	case v == nil && !errors.As(err, &p) && errors.Is(context.Cause(x.ctx), ErrStopping):
		s.giveBack(x, log, err)
	default:
		f := task.Failure{Message: err.Error()}
		level, o := slog.LevelWarn, task.FailOptions{}
		if errors.As(err, &p) {
			f.Stack = p.Stack
			level = slog.LevelError
			log = log.With("stack", p.Stack)
		}
		switch {
		case v != nil:
			o.RetryIn, o.Dead = v.in, v.dead
		case kind.Retry != nil:
			bad := safely(func(context.Context, *Execution) error {
				o.RetryIn = max(kind.Retry(x.Task, err), 0)
				return nil
			})(x.ctx, x)
			if bad != nil {
				log.Error("Retry of the kind", "error", bad)
			}
		}
		if o.Dead || x.Attempt >= x.MaxAttempts {
			level = slog.LevelError
			log = log.With("dead", true)
		}
		s.report(x, log.With("error", err), "failed", level, func(ctx context.Context) error {
			return s.client.Fail(ctx, x.lease, f, o)
		})
	}
}

func (s *session) giveBack(x *Execution, log *slog.Logger, err error) {
	if err != nil { // nil of a task that was claimed and not begun
		log = log.With("error", err)
	}
	s.report(x, log, "given back", slog.LevelInfo, func(ctx context.Context) error {
		return s.client.Snooze(ctx, x.lease, 0)
	})
}

const firstPause, maxPause = 100 * time.Millisecond, 10 * time.Second

// report asks the store for something until it is done, or can be done no more.
func (s *session) report(x *Execution, log *slog.Logger, what string, level slog.Level,
	ask func(context.Context) error) {
	pause := firstPause
	for {
		ctx, cancel := context.WithTimeout(s.base, s.o.Lease)
		err := ask(ctx)
		cancel()
		switch {
		case err == nil:
			log.Log(s.base, level, "task "+what)
			return
		case errors.Is(err, task.ErrCancelled):
			log.Info("task was cancelled while it ran")
			return
		case errors.Is(err, task.ErrLeaseLost):
			log.Warn("task was taken away while it ran: it has not "+what, "refused", err)
			return
		case permanent(err):
			log.Error("the store does not learn that the task has "+what, "refused", err)
			return
		}
		log.Warn("the store does not learn that the task has "+what+"; trying again", "refused", err, "in", pause)
		if !sleep(x.lost, &pause) {
			log.Error("the lease was lost before the store learned that the task has "+what, "refused", err)
			return
		}
	}
}

// permanent reports whether asking again is no use.
func permanent(err error) bool {
	for _, class := range []error{holdfast.ErrClosed, holdfast.ErrPoisoned, holdfast.ErrCorrupt, holdfast.ErrBadOption,
		holdfast.ErrTooLarge, task.ErrLeaseLost, task.ErrCancelled} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// sleep waits, and doubles the pause; false if ctx has ended.
func sleep(ctx context.Context, pause *time.Duration) bool {
	t := time.NewTimer(*pause)
	defer t.Stop()
	*pause = min(2**pause, maxPause)
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// beat extends the leases every third of their time. A lease whose end would come before the next beat is given up: the
// store may have given the task to another worker then.
func (s *session) beat(ctx context.Context) {
	every := s.o.Lease / 3
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		all := true
		select {
		case <-tick.C:
		case <-s.ended: // why, a heartbeat tells
			all = false
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		held := make([]*Execution, 0, len(s.held))
		var leases []task.Lease
		for x := range s.held {
			if ended := x.ended.Swap(false); all || ended {
				held, leases = append(held, x), append(leases, x.lease)
			}
		}
		s.mu.Unlock()
		if len(held) == 0 {
			continue
		}
		asked := time.Now()
		limited, cancel := context.WithTimeout(ctx, every)
		_, err := s.client.Heartbeat(limited, leases...)
		cancel()
		errs := make([]error, len(held))
		var each *task.LeaseErrors
		if errors.As(err, &each) && len(each.Errs) == len(held) {
			copy(errs, each.Errs)
		} else if err != nil {
			s.log.Warn("leases cannot be extended", "leases", len(held), "error", err)
			for i := range errs {
				errs[i] = err
			}
		}
		for i, x := range held {
			x.beaten(asked, s.o.Lease, every, errs[i])
		}
	}
}

// beaten notes what a heartbeat at some time said of the lease.
func (x *Execution) beaten(asked time.Time, lease, every time.Duration, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case err == nil:
		x.expires = asked.Add(lease)
	case x.settling && (errors.Is(err, task.ErrLeaseLost) || errors.Is(err, task.ErrCancelled)): // just given up
	case errors.Is(err, task.ErrCancelled):
		x.lose(task.ErrCancelled)
	case errors.Is(err, task.ErrLeaseLost), !time.Now().Add(every).Before(x.expires):
		x.lose(task.ErrLeaseLost)
	}
}
