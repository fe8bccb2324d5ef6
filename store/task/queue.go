package task

import (
	"container/list"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/internal/heap"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// task is a task in memory. It is not changed once it is made: changes make another.
type task struct {
	format.Record
	num   uint64
	until time.Duration // when its lease ends by the time that passes, 0 as long as that is not measured
}

func (t *task) state() State { return State(t.State) }

// place is where t is listed.
func (t *task) place() format.Place {
	p := format.Place{Queue: t.Queue, State: t.State, Order: format.Order{Task: t.num}}
	switch t.state() {
	case Waiting:
		p.Key, p.Rank, p.Time = t.Key, byte(127-int(t.Priority)), t.Due
	case Scheduled:
		p.Time = t.Due
	case Completed, Cancelled, Dead:
		p.Time = t.Removal
	}
	return p
}

// held is a task that runs.
type held struct {
	*task
	at int // in the heap of leases
}

// never is a time that does not come, none a number that no task has.
const (
	never = math.MaxInt64
	none  = math.MaxUint64
)

// queue is what is known of a queue in memory.
type queue struct {
	name    string
	o       QueueOptions
	paused  bool
	set     bool // its options are kept
	counts  [Dead + 1]int
	starts  format.Starts
	lanes   map[string]*lane // by key; "" for the tasks without one
	ready   heap.Heap[*lane] // those that have a waiting task that no limit of its key holds back, by that task
	unread  []*lane          // those that may belong into ready and have nothing in their window
	away    format.Order     // no lane away has its first task before; nowhere if there are none
	waiters list.List        // of *waiter
	woken   int              // those that have been woken and have not looked yet
	alarm   int64            // when something is due, never if nothing is
	at      int              // in the heap of alarms
	due     int64            // when the first scheduled task is due, at the earliest
	removal int64            // when the first finished task is to be removed, at the earliest
	held    int64            // until when its rate holds it back, 0 if it does not
	slow    heap.Heap[*lane] // those with starts to be forgotten before something happens, by when
}

// lane has the waiting tasks of a queue with one key, or without one. Its window holds the first of them. There may be
// many lanes with one task each: hence the small fields. Lanes of keys may be away.
type lane struct {
	q       *queue
	key     string
	starts  format.Starts
	window  heap.Heap[entry]
	end     format.Order // all up to here are in the window
	until   int64        // when its rate lets the next task start, or its starts can be forgotten
	running int32
	ready   int32 // where it is in the heap of that name, -1 if it is not
	slow    int32 // the same
	whole   bool  // all that wait are in the window
	listed  bool  // in unread
}

// How many tasks a window has after reading; tests have fewer.
var window, keyWindow = 256, 8

// atHand is about how many bytes of records the windows hold at most. A claim reads the others from the engine. Tests
// have fewer.
var atHand = 8 << 20

// entry is a waiting task; its record if it is at hand.
type entry struct {
	format.Order
	t *task
}

// size is about how much memory a task takes.
func (t *task) size() int {
	n := 512 + len(t.Payload) + len(t.Output)
	for i := range t.Failures {
		n += len(t.Failures[i].Message) + len(t.Failures[i].Stack)
	}
	return n
}

// hold puts a waiting task into the window of its lane.
func (s *Store) hold(l *lane, t *task) {
	e := entry{Order: t.place().Order}
	if s.atHand < atHand {
		e.t = t
		s.atHand += t.size()
	}
	l.window.Push(e)
}

// letGo notes that tasks leave the windows.
func (s *Store) letGo(entries []entry) {
	for i := range entries {
		if t := entries[i].t; t != nil {
			s.atHand -= t.size()
		}
	}
	clear(entries)
}

// place is where a task of the window is listed.
func (l *lane) place(e *entry) format.Place {
	return format.Place{Queue: l.q.name, State: byte(Waiting), Key: l.key, Order: e.Order}
}

func (l *lane) size() int {
	if l.key == "" {
		return window
	}
	return keyWindow
}

func (s *Store) queue(name string) *queue {
	q := s.queues[name]
	if q == nil {
		q = &queue{name: name, lanes: map[string]*lane{}, alarm: never, at: -1, due: never, removal: never,
			away: nowhere}
		q.ready.Less = func(a, b *lane) bool { return a.window.Items[0].Less(&b.window.Items[0].Order) }
		q.ready.At = func(l *lane, i int) { l.ready = int32(i) }
		q.slow.Less = func(a, b *lane) bool { return a.until < b.until }
		q.slow.At = func(l *lane, i int) { l.slow = int32(i) }
		s.queues[name] = q
	}
	return q
}

// drop forgets a queue of which there is nothing to be known, also if the transaction that has the turn fails.
func (s *Store) drop(name string) {
	if q := s.queues[name]; q != nil && s.joined == nil && !q.there() && q.at < 0 &&
		q.waiters.Len()+q.woken+len(q.lanes)+len(q.starts) == 0 {
		delete(s.queues, name)
		s.dropLows(name)
	}
}

// lane returns the lane of a key in memory, and makes it if it is not there.
func (s *Store) lane(q *queue, key string) *lane {
	l := q.lanes[key]
	if l == nil {
		key = strings.Clone(key) // it may be a part of a record
		l = &lane{q: q, key: key, whole: q.away == nowhere, ready: -1, slow: -1}
		l.window.Less = func(a, b entry) bool { return a.Less(&b.Order) }
		q.lanes[key] = l
		if key != "" {
			s.keyed++
		}
	}
	return l
}

// remove removes a lane from memory, which is in no heap.
func (s *Store) remove(l *lane) {
	delete(l.q.lanes, l.key)
	if l.key != "" {
		s.keyed--
	}
}

// waits reports whether a lane may have waiting tasks.
func (l *lane) waits() bool { return !l.whole || len(l.window.Items) > 0 }

// count counts a task that changes from old to new.
func (s *Store) count(old, new *task) {
	if old != nil {
		q := s.queue(old.Queue)
		q.counts[old.State]--
		switch old.state() {
		case Running:
			s.lane(q, old.Key).running--
			h := s.running[old.num]
			s.leases.Remove(h.at)
			delete(s.running, old.num)
		}
	}

	if new != nil {
		q := s.queue(new.Queue)
		q.counts[new.State]++
		switch new.state() {
		case Running:
			s.lane(q, new.Key).running++
			if new.until == 0 { // once: the clock may be set while it runs
				new.until = s.elapsed + min(max(time.Duration(new.Until-s.wall), 0), new.Lease)
			}
			h := &held{task: new}
			s.running[new.num] = h
			s.leases.Push(h)
			s.plan(new.until - s.elapsed)
		case Scheduled:
			q.due = min(q.due, new.Due)
			s.setAlarm(q)
		case Completed, Cancelled, Dead:
			q.removal = min(q.removal, new.Removal)
			s.setAlarm(q)
		}
	}
}

// relist updates the windows for a task that changes from old to new, and wakes the waiters for what that frees.
func (x *tx) relist(old, new *task) {
	s := x.s
	// The lane is pulled first: the heap of lanes is ordered by what comes first in their windows.
	if old != nil && old.state() == Waiting {
		q := s.queue(old.Queue)
		if l := q.lanes[old.Key]; l != nil {
			l.pull()
			if i := slices.IndexFunc(l.window.Items, func(e entry) bool { return e.Task == old.num }); i >= 0 {
				s.letGo(l.window.Items[i : i+1])
				l.window.Remove(i)
			}
			s.review(l)
		} else {
			x.leaveAway(q, old)
		}
	}
	if old != nil && old.state() == Running {
		l := s.queue(old.Queue).lanes[old.Key]
		s.review(l)
		x.rest(l)
	}

	if new != nil && new.state() == Waiting {
		q := s.queue(new.Queue)
		l := q.lanes[new.Key]
		if l == nil {
			if few := q.away == nowhere && s.keyed < maxLanes; new.Key != "" && !few && x.joinAway(q, new) {
				return
			}
			l = s.lane(q, new.Key)
			l.whole = true
		}
		l.pull()

		// A task that comes behind the end of the window is found when the window is filled again.
		if p := new.place(); l.whole || !l.end.Less(&p.Order) { // it may be the end itself, come back
			s.hold(l, new)
			if n := l.size(); len(l.window.Items) > 2*n {
				s.cut(l, n)
			}
		}
		s.review(l)
	}
}

// cut keeps the first n tasks in the window.
func (s *Store) cut(l *lane, n int) {
	slices.SortFunc(l.window.Items, func(a, b entry) int {
		if a.Less(&b.Order) {
			return -1
		}
		return 1
	})

	s.letGo(l.window.Items[n:])
	l.window.Items = l.window.Items[:n]
	l.end, l.whole = l.window.Items[n-1].Order, false
}

// pull takes a lane out of those that are ready, before its window changes.
func (l *lane) pull() {
	if l.ready >= 0 {
		l.q.ready.Remove(int(l.ready))
	}
}

// reread forgets the window of a lane.
func (s *Store) reread(queue, key string) {
	q := s.queue(queue)
	l := s.lane(q, key)
	l.pull()
	s.letGo(l.window.Items)
	l.window.Items, l.end, l.whole = l.window.Items[:0], format.Order{}, q.counts[Waiting] == 0
	s.review(l)
}

// review puts a lane where it belongs after a change, and wakes one waiter if a task can be claimed.
func (s *Store) review(l *lane) {
	q, limited := l.q, false
	l.until = 0

	if l.key != "" {
		limited = q.o.KeyConcurrency > 0 && int(l.running) >= q.o.KeyConcurrency
		l.until = next(&l.starts, q.o.KeyRate, s.wall)
	}

	slow := l.waits() && l.until > s.wall
	timed := slow
	if !l.waits() && len(l.starts) > 0 { // nothing matters until the last start does not count any more
		l.until, timed = after(l.starts[len(l.starts)-1].At, q.o.KeyRate.Per), true
	}

	switch {
	case timed && l.slow < 0:
		q.slow.Push(l)
	case timed:
		q.slow.Fix(int(l.slow), l)
	case l.slow >= 0:
		q.slow.Remove(int(l.slow))
	}

	l.pull()
	switch {
	case !l.waits() && l.running == 0 && len(l.starts) == 0 && !l.listed:
		s.remove(l)
	case !l.waits() || limited || slow:
	case len(l.window.Items) > 0:
		q.ready.Push(l)
	case !l.listed:
		l.listed = true
		q.unread = append(q.unread, l)
	}

	if timed {
		s.setAlarm(q)
	}
	s.wake(q)
}

// next returns when a rate allows the next start, and forgets starts that no longer matter.
func next(starts *format.Starts, r Rate, now int64) (at int64) {
	if r.N <= 0 {
		*starts = nil
		return 0
	}

	kept, n := (*starts)[:0], int64(0)
	for _, e := range *starts {
		// The clock may have been set back since.
		e.At, e.First = min(e.At, now), min(e.First, now)
		if e.At > now-int64(r.Per) {
			kept, n = append(kept, e), n+e.N
		}
	}

	if *starts = kept; len(kept) == 0 {
		*starts = nil
	}

	// The start is allowed when so many of the oldest do not count any more that there is room for one.
	for i := 0; n >= int64(r.N) && i < len(kept); i++ {
		n -= kept[i].N
		at = after(kept[i].At, r.Per)
	}
	return at
}

// started adds a start. Starts that lie closer together than a part of the period are kept as one, the last.
func started(starts format.Starts, r Rate, now int64) format.Starts {
	const parts = 32
	starts = slices.Clone(starts) // the old ones may come back
	if last := len(starts) - 1; last >= 0 && (starts[last].At == now ||
		r.N > parts && now-starts[last].First < int64(r.Per)/parts) {
		starts[last].At = now
		starts[last].N++
		return starts
	}
	return append(starts, format.Start{First: now, At: now, N: 1})
}

// readLanes reads the lanes that have to be read before it is known what comes next, and calls then for each.
func (s *Store) readLanes(q *queue, then func(*lane)) error {
	// A lane is taken off the list only when its window has been filled, so that an error loses none.
	for len(q.unread) > 0 {
		l := q.unread[len(q.unread)-1]
		if l.waits() && len(l.window.Items) == 0 {
			if err := s.fill(l); err != nil {
				return err
			}
		}
		q.unread = q.unread[:len(q.unread)-1]
		l.listed = false
		s.review(l)
		then(l)
	}
	return nil
}

// comesNext returns the lane with the task that comes first in q and may be claimed, nil if there is none.
func (x *tx) comesNext(q *queue) (*lane, error) {
	s := x.s
	if q.paused || q.o.Concurrency > 0 && q.counts[Running] >= q.o.Concurrency {
		return nil, nil
	}

	if q.held = next(&q.starts, q.o.Rate, s.wall); q.held > s.wall {
		s.setAlarm(q)
		return nil, nil
	}

	// A few go away at once, the others when a task of theirs ends: no commit is larger than an engine takes.
	if err := s.readLanes(q, func(l *lane) {
		if len(x.other) < chunk {
			x.rest(l)
		}
	}); err != nil {
		return nil, err
	}

	for {
		l := q.next()
		if !q.before(q.away, l) {
			return l, nil
		}

		// What is known of the first lane away may be too early.
		at, key, err := s.front(q, q.away)
		if err != nil {
			return nil, err
		}
		if was := q.away; at != was {
			q.away = at
			x.other = append(x.other, func() { q.away = was })
		}
		if !q.before(at, l) {
			return l, nil
		}
		if err := x.takeIn(q, key); err != nil {
			return nil, err
		}
	}
}

// next is the lane in memory whose task comes first, nil if there is none.
func (q *queue) next() *lane {
	if len(q.ready.Items) == 0 {
		return nil
	}
	return q.ready.Items[0]
}

// read fills the window of a lane.
func (s *Store) fill(l *lane) error {
	prefix := s.keys.ListedBy(l.q.name, byte(Waiting), l.key)

	// It goes on behind what the window has had.
	r := holdfast.Prefix(prefix)
	if l.end.Task != 0 {
		end := l.place(&entry{Order: l.end})
		r.Lo = append(s.keys.Index(nil, &end), 0)
	}
	n := l.size()
	err := s.scan(r.Lo, r.Hi, n, func(rest, _ []byte) error {
		p, ok := s.keys.Place(rest)
		if !ok {
			return s.strange("claim", "the index has a key %q", rest)
		}
		l.end = p.Order
		l.window.Items = append(l.window.Items, entry{Order: p.Order}) // in order, which makes a heap
		return nil
	})

	if err == nil {
		l.whole = len(l.window.Items) < n
	}
	if err == nil && s.fetch != nil && len(l.window.Items) > 0 {
		var keys [][]byte
		for i := range l.window.Items {
			keys = append(keys, s.keys.Of(nil, format.TableTasks, l.window.Items[i].Task))
		}
		s.fetch.Fetch(keys)
	}
	return err
}

// waiter is a call that waits for a task.
type waiter struct {
	woken chan *queue // of capacity 1: who has woken it
	in    []*list.Element
	qs    []*queue
}

// wait makes w wait for a task of some queues.
func (s *Store) wait(w *waiter, queues []string) {
	w.in, w.qs = w.in[:0], w.qs[:0]
	for _, name := range queues {
		q := s.queue(name)
		w.in, w.qs = append(w.in, q.waiters.PushBack(w)), append(w.qs, q)
	}
}

// unwait ends what wait has begun.
func (w *waiter) unwait() {
	for i, e := range w.in {
		w.qs[i].waiters.Remove(e)
	}
	w.in = w.in[:0]
}

// unwait gives up waiting; by has woken w, nil if w has not seen that.
func (s *Store) unwait(w *waiter, by *queue) {
	s.lock()
	defer s.turn.Unlock()

	w.unwait()
	if by == nil {
		select {
		case by = <-w.woken:
		default:
			return
		}
	}

	by.woken-- // for another
	s.wake(by)
}

// claimable reports whether q seems to have a task that can be claimed now.
func (s *Store) claimable(q *queue) bool {
	return !q.paused && (len(q.ready.Items)+len(q.unread) > 0 || q.away != nowhere) && q.held <= s.wall &&
		(q.o.Concurrency <= 0 || q.counts[Running] < q.o.Concurrency)
}

// wake wakes one waiter for a task of q, if there is a task for it. It does not wake more waiters than there are
// tasks.
func (s *Store) wake(q *queue) {
	if q.waiters.Len() > 0 && q.woken < q.counts[Waiting] && s.claimable(q) {
		w := q.waiters.Front().Value.(*waiter)
		w.unwait()
		q.woken++
		w.woken <- q
	}
}

// wakeAll wakes all waiters, because the store is closed or has failed.
func (s *Store) wakeAll() {
	for _, q := range s.queues {
		for q.waiters.Len() > 0 {
			w := q.waiters.Front().Value.(*waiter)
			w.unwait()
			q.woken++
			w.woken <- q
		}
	}
}
