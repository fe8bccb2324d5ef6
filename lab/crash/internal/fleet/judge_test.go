package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/task"
)

// TestBook shows what the judge of messages and events finds: everything that must not be, and nothing in what may be.
func TestBook(t *testing.T) {
	a, b, c := entry{"a", "s:0"}, entry{"b", "s:1"}, entry{"c", "s:2"}
	for _, one := range []struct {
		name  string
		do    func(b *book, f *follower)
		there []entry
		want  string // part of the finding
	}{
		{"all is there", func(k *book, f *follower) {
			k.acked(1, a)
			k.acked(2, entry{"b", ""}) // of some answers the place is not known
			f.show(k, 1, a)
			f.show(k, 2, entry{"", "s:1"}) // nor is the text
		}, []entry{a, b}, ""},
		{"one of which no answer came", func(*book, *follower) {}, []entry{a}, ""},
		{"lost", func(k *book, _ *follower) { k.acked(2, b) }, []entry{a},
			"b was acknowledged at position 2, and is not there"},
		{"moved", func(k *book, _ *follower) { k.acked(1, b) }, []entry{a, b},
			"was acknowledged at position 1, s:1, and is at 2"},
		{"another version", func(k *book, _ *follower) { k.acked(1, entry{"a", "s:7"}) }, []entry{a},
			"s:7, and is at 1, s:0"},
		{"twice", func(*book, *follower) {}, []entry{a, a}, "a is at position 1 and at 2"},
		{"one position for two", func(k *book, _ *follower) { k.acked(1, a); k.acked(1, b) }, []entry{b},
			"told of a and of b"},
		{"never written", func(*book, *follower) {}, []entry{{"x", "s:0"}}, "never written"},
		{"a gap", func(*book, *follower) {}, []entry{a, {}, c}, "never written"},
		{"shown and gone", func(k *book, f *follower) { f.show(k, 1, a); f.show(k, 2, b) }, []entry{a}, "and there is { }"},
		{"shown as another", func(k *book, f *follower) { f.show(k, 1, b) }, []entry{a}, "was shown {b s:1} at position 1"},
		{"shown at another place", func(k *book, f *follower) { f.show(k, 1, entry{"", "s:3"}) }, []entry{a}, "s:3"},
		{"shown twice", func(k *book, f *follower) { f.show(k, 1, a); f.show(k, 1, a) }, []entry{a}, "position 1, not 2"},
		{"shown with a gap", func(k *book, f *follower) { f.show(k, 2, b) }, []entry{a, b}, "position 2, not 1"},
	} {
		t.Run(one.name, func(t *testing.T) {
			k := newBook("messages", "somebody")
			for _, e := range []entry{a, b, c} {
				k.issue(e.text)
			}
			one.do(k, k.followers[0])
			var j protocol.Judgement
			if from := k.before(); from != 1 {
				t.Fatalf("it is read from %d on", from)
			}
			k.judge(&j, 1, one.there)
			judged(t, j, one.want)
		})
	}
}

// judged compares a judgement with the finding that is wanted, "" for none.
func judged(t *testing.T, j protocol.Judgement, want string) {
	t.Helper()
	switch text := strings.Join(j.Findings, "\n"); {
	case (want != "") != j.Broken():
		t.Errorf("%+v", j)
	case !strings.Contains(text, want):
		t.Errorf("no %q in %s", want, text)
	}
}

// TestBookGoesOn: a judgement reads behind what the last one has read, and the last one reads all again.
func TestBookGoesOn(t *testing.T) {
	k := newBook("messages", "somebody")
	for _, text := range []string{"a", "b", "c"} {
		k.issue(text)
	}
	read := func(from int64, list ...entry) (j protocol.Judgement) {
		k.before()
		k.judge(&j, from, list)

		return j
	}
	a, b, c := entry{"a", "s:0"}, entry{"b", "s:1"}, entry{"c", "s:2"}
	k.acked(1, a)
	for i := range 2 { // what was acknowledged counts once
		if j := read(1, a); j.Broken() || j.Acked != 1-i || j.Kept != 1-i {
			t.Errorf("%+v", j)
		}
	}
	if from := k.before(); from != 2 {
		t.Errorf("it is read from %d on", from)
	}
	judged(t, read(2, b), "")
	judged(t, read(3, b), "b is at position 2 and at 3")
	judged(t, read(1, a, b, c), "at position 3 there was {b s:1}, and now there is {c s:2}")
	judged(t, read(1, a, b), "there were 3 positions, and now there are 2")
	k.followers[0].show(k, 1, a)
	k.before()
	k.followers[0].show(k, 2, c) // is left to the next one
	var j protocol.Judgement
	k.judge(&j, 1, []entry{a, b})
	judged(t, j, "")
	judged(t, read(1, a, b), "was shown {c s:2}")
}

// TestTasks shows what the judge of tasks finds.
func TestTasks(t *testing.T) {
	waiting := map[string]task.State{"t": task.Waiting}
	completed := map[string]task.State{"t": task.Completed}
	long := time.Hour
	for _, one := range []struct {
		name  string
		lease time.Duration
		do    func(s *tasks)
		there map[string]task.State
		want  string
	}{
		{"completed", long, func(s *tasks) {
			c := s.claimed("t", 1, time.Now())
			s.completed("t", c, s.completing(c))
		}, completed, ""},
		{"another lease after one has run out", time.Nanosecond, func(s *tasks) {
			s.claimed("t", 1, time.Now())
			c := s.claimed("t", 2, later())
			s.completed("t", c, s.completing(c))
		}, completed, ""},
		{"clocks differ", 0, func(s *tasks) {
			s.claimed("t", 1, time.Now())
			s.claimed("t", 2, later())
		}, waiting, ""},
		{"an answer that was long on its way", long, func(s *tasks) {
			asked := time.Now()
			c := s.claimed("t", 2, later())
			s.completed("t", c, s.completing(c))
			s.claimed("t", 1, asked)
		}, completed, ""},
		{"not there", 0, func(*tasks) {}, nil, "the task t was acknowledged, and is not there"},
		{"of nobody", 0, func(*tasks) {}, map[string]task.State{"t": task.Waiting, "x": task.Waiting},
			"x was never enqueued"},
		{"of nobody, claimed", 0, func(s *tasks) { s.claimed("x", 1, time.Now()) }, waiting,
			"x was claimed, and never enqueued"},
		{"two valid leases", long, func(s *tasks) {
			s.claimed("t", 1, time.Now())
			s.claimed("t", 2, later())
		}, waiting, "before an earlier lease of it ended"},
		{"one token twice", 0, func(s *tasks) {
			s.claimed("t", 1, time.Now())
			s.claimed("t", 1, later())
		}, waiting, "have the token 1"},
		{"completed under a lease that was followed by another", 0, func(s *tasks) {
			c := s.claimed("t", 1, time.Now())
			s.claimed("t", 2, later())
			later()
			s.completed("t", c, s.completing(c))
		}, completed, "after the next one was given"},
		{"completed twice", 0, func(s *tasks) {
			c, d := s.claimed("t", 1, time.Now()), s.claimed("t", 2, later())
			s.completed("t", d, s.completing(d))
			s.completed("t", c, s.completing(c))
		}, completed, "completed under two leases"},
		{"claimed after it was completed", 0, func(s *tasks) {
			c := s.claimed("t", 1, time.Now())
			s.completed("t", c, s.completing(c))
			s.claimed("t", 2, later())
		}, completed, "claimed after it had been completed"},
		{"a completion is lost", 0, func(s *tasks) {
			c := s.claimed("t", 1, time.Now())
			s.completed("t", c, s.completing(c))
		}, waiting, "is completed, and it is waiting"},
	} {
		t.Run(one.name, func(t *testing.T) {
			s := newTasks("tasks", one.lease)
			s.enqueued("t", false)
			s.enqueued("t", true)
			one.do(s)
			var j protocol.Judgement
			s.judge(&j, one.there)
			judged(t, j, one.want)
		})
	}
}

// later is the time when the clock has moved.
func later() time.Time {
	for began := time.Now(); ; {
		time.Sleep(time.Millisecond)
		if now := time.Now(); now.After(began) {
			return now
		}
	}
}
