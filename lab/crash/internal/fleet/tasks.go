package fleet

import (
	"fmt"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/task"
)

// claim is what a worker was told of a lease, and what it asked for under it. Times are those of this process.
type claim struct {
	token       uint64
	asked, told time.Time // when it was asked for, and given
	done        time.Time // when Complete was first asked for, zero if it was not
	ended       time.Time // when that was answered with success
}

// tasks are those of a namespace, as their clients know them.
type tasks struct {
	name  string
	lease time.Duration // 0: clocks differ, and a lease may end early when a space has another owner

	mu     sync.Mutex
	issued map[string]bool
	told   map[string]bool // enqueued, by an answer
	claims map[string][]*claim
	wrong  []string
	ended  int // completed, by an answer
	counts counts
}

func newTasks(name string, lease time.Duration) *tasks {
	return &tasks{name: name, lease: lease, issued: map[string]bool{}, told: map[string]bool{},
		claims: map[string][]*claim{}}
}

// say enters what must not be. The caller has mu.
func (s *tasks) say(format string, args ...any) {
	s.wrong = append(s.wrong, s.name+": "+fmt.Sprintf(format, args...))
}

// enqueued enters what is about to be enqueued, or was.
func (s *tasks) enqueued(id string, told bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.issued[id] = true; told {
		s.told[id] = true
	}
}

// claimed enters a lease: none that was given before it may still be valid.
func (s *tasks) claimed(id string, token uint64, asked time.Time) *claim {
	now := &claim{token: token, asked: asked, told: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.issued[id] {
		s.say("the task %s was claimed, and never enqueued", id)
	}
	for _, c := range s.claims[id] {
		valid := c.asked.Add(s.lease).Sub(now.told) // at least, if it was not given back
		switch {
		case c.token == token:
			s.say("two leases of the task %s have the token %d", id, token)
		case c.told.After(asked): // which of the two was given first is not known
		case !c.ended.IsZero() && c.ended.Before(asked):
			s.say("the task %s was claimed after it had been completed", id)
		case valid > 0 && c.done.IsZero():
			s.say("the task %s was claimed %v before an earlier lease of it ended", id, valid.Round(time.Millisecond))
		}
	}
	s.claims[id] = append(s.claims[id], now)

	return now
}

// completing enters that a lease is about to be completed.
func (s *tasks) completing(c *claim) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.done.IsZero() {
		c.done = time.Now()
	}

	return time.Now()
}

// completed enters that it was, by a request that was begun at some time: nobody else had a lease then.
func (s *tasks) completed(id string, c *claim, begun time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.claims[id] {
		switch {
		case other == c:
		case !other.ended.IsZero():
			s.say("the task %s was completed under two leases", id)
		case other.asked.After(c.told) && other.told.Before(begun):
			s.say("the task %s was completed under a lease, %v after the next one was given", id,
				begun.Sub(other.told).Round(time.Millisecond))
		}
	}
	c.ended = time.Now()
	s.ended++
}

// missing lists what was told to be there and is not.
func (s *tasks) missing(there map[string]task.State) (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.told {
		if _, ok := there[id]; !ok {
			list = append(list, id)
		}
	}

	return list
}

// judge compares what there is with what was told.
func (s *tasks) judge(j *protocol.Judgement, there map[string]task.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range s.wrong {
		j.Find(&j.Wrong, "%s", text)
	}
	s.wrong = nil
	for id := range there {
		if !s.issued[id] {
			j.Find(&j.Wrong, "%s: the task %s was never enqueued", s.name, id)
		}
	}
	kept := 0
	for id := range s.told {
		state, ok := there[id]
		if !ok {
			j.Find(&j.Lost, "%s: the task %s was acknowledged, and is not there", s.name, id)
			continue
		}
		kept++
		for _, c := range s.claims[id] {
			switch {
			case !c.ended.IsZero() && state != task.Completed:
				j.Find(&j.Lost, "%s: it was acknowledged that the task %s is completed, and it is %v", s.name, id, state)
			case !c.ended.IsZero():
				kept++
			}
		}
	}
	s.counts.add(j, len(s.told)+s.ended, kept)
}
