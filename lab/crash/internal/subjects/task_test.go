package subjects

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/task"
)

const (
	taskSeed    = 3
	taskStories = 400 // operations
)

// taskStory does the first operations of a seed, one after the other, in a store on an engine in memory, and returns
// the history of that, and what the victim says is wrong.
func taskStory(t *testing.T, e holdfast.Engine, n uint64) (*protocol.History, string) {
	t.Helper()
	h := &protocol.History{Seed: taskSeed, Survives: holdfast.Process, Level: holdfast.Process, Concurrent: true}
	h.Begin(0, 1)
	s, err := openTasks(e, task.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	var told bytes.Buffer
	v := newTaskVictim(&worker{spec: protocol.Spec{Seed: taskSeed}, report: protocol.NewReporter(&told), next: 1}, s,
		holdfast.Memory)
	for range n {
		o := v.begin()
		err := v.do(t.Context(), o)
		if v.finish(o.n, err); err != nil {
			t.Fatalf("%v: %v", o, err)
		}
		h.Issued = o.n
		h.Promise(protocol.Ack{N: o.n, Batch: true, Level: holdfast.Process, At: time.Duration(o.n), Issued: o.n})
	}
	if v.next != n+1 {
		t.Fatalf("the victim goes on with operation %d", v.next)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return h, wrongIn(&told)
}

// tasksFound is what a check finds in an engine, and what it says is wrong.
func tasksFound(t *testing.T, e holdfast.Engine) (found []commits.Found, said string) {
	t.Helper()
	c := &check{spec: protocol.Spec{Seed: taskSeed, Level: holdfast.Memory}}
	if err := taskRead(c, e, func(f commits.Found) { found = append(found, f) }); err != nil {
		said = err.Error() + "\n"
	}
	return found, said + strings.Join(c.said, "\n")
}

// TestTaskJudge: what a store holds passes, and whatever is changed in that is found out.
func TestTaskJudge(t *testing.T) {
	var (
		base       *protocol.History
		all, again []commits.Found
		saw, said  string
	)
	synctest.Test(t, func(t *testing.T) { // where time passes the same each time
		e := mem.New()
		base, saw = taskStory(t, e, taskStories)
		all, said = tasksFound(t, e)
		again, _ = tasksFound(t, e)
	})
	j := taskJudge(base, all)
	if saw+said != "" || len(j.Findings) > 0 || j.Kept != taskStories || commits.Difference(again, all) != "" {
		t.Fatalf("%q, %q, %+v", saw, said, j)
	}
	p := scriptOf(taskSeed)
	// mark is the first key of a kind whose task, if it has one, passes.
	mark := func(kind taskKind, passes func(s task.Spec) bool) (at int, n uint64, id string) {
		for i, e := range all {
			k, id, ok := taskMarked(e.Key)
			gen, n, number, named := taskOf(id)
			o := p.task(gen, n)
			if ok && k == kind.String() && (!named || number < o.size && passes(p.specs(&o)[number])) {
				return i, e.N, id
			}
		}
		t.Fatalf("no operation of the kind %v; take another seed", kind)
		return 0, 0, ""
	}
	kept := func(s task.Spec) bool { return s.Keep == 0 && s.Sequence == "" && s.After == nil && s.Unique == "" }
	of := func(id string) int {
		return slices.IndexFunc(all, func(e commits.Found) bool { return strings.HasPrefix(e.Key, "task "+id+" ") })
	}
	edit := func(i int, old, new string) (found []commits.Found) {
		found = slices.Clone(all)
		if !strings.Contains(found[i].Key, old) {
			t.Fatalf("%v: there is no %q", found[i], old)
		}
		found[i].Key = strings.Replace(found[i].Key, old, new, 1)
		return found
	}
	without := func(i int) []commits.Found { return slices.Delete(slices.Clone(all), i, i+1) }
	enqueued, first, _ := mark(taskEnqueue, kept)
	completion, _, completed := mark(taskComplete, kept)
	_, _, cancelled := mark(taskCancel, kept)
	_, _, held := mark(taskHold, func(task.Spec) bool { return true })
	_, _, buried := mark(taskBury, func(task.Spec) bool { return true })
	_, _, failed := mark(taskFail, kept)
	_, _, briefly := mark(taskComplete, func(s task.Spec) bool { return s.Keep < 0 })
	var blocked int // runs after an open one
	for i, e := range all {
		f, ok := taskPlace(e.Key)
		gen, n, k, _ := taskOf(f.id)
		if o := p.task(gen, n); ok && o.shape == "after" && k == 2 && f.state == "open" && f.begun == "new" {
			blocked = i
		}
	}
	if blocked == 0 {
		t.Fatal("no task is blocked; take another seed")
	}
	brief := commits.NewFound("", nil)
	brief.Key, brief.Sum = "task "+briefly+" completed begun 0-1 ,", taskDigest(func() task.Spec {
		_, n, k, _ := taskOf(briefly)
		o := p.task(0, n)
		return p.specs(&o)[k]
	}())
	_, brief.N, _, _ = taskOf(briefly)
	for name, test := range map[string]struct {
		found []commits.Found
		more  func(h *protocol.History)
		says  string
	}{
		"an operation lost":       {found: without(enqueued), says: "had been acknowledged"},
		"a task lost":             {found: without(of(taskID(0, first, 0))), says: "which it enqueued, is not"},
		"a completion undone":     {found: edit(of(completed), " completed ", " open "), says: "has completed task"},
		"a completion's key lost": {found: without(completion), says: "the key that was set with that is not there"},
		"a cancellation undone":   {found: edit(of(cancelled), " cancelled ", " open "), says: "has cancelled task"},
		"a death undone":          {found: edit(of(buried), " dead ", " open "), says: "has buried task"},
		"a lease given twice":     {found: edit(of(held), " begun 0-", " begun 9-"), says: "holds task"},
		"a failure forgotten":     {found: edit(of(failed), " ,0-", " ,9-"), says: "which does not say so"},
		"begun too early":         {found: edit(blocked, " new ", " begun "), says: "was begun, and comes after"},
		"kept too long":           {found: append(slices.Clone(all), brief), says: "is not to be kept"},
		"a task twice":            {found: append(slices.Clone(all), all[of(completed)]), says: "is not there once"},
		"an operation twice":      {found: append(slices.Clone(all), all[enqueued]), says: "not the one key"},
		"something strange": {found: append(slices.Clone(all), commits.Found{Key: "strange"}),
			says: "neither a task nor"},
		"what was never begun": {found: all, more: func(h *protocol.History) { h.Issued = 100 },
			says: "no operation wrote it"},
		"what was undone": {found: all, more: func(h *protocol.History) {
			h.Begin(1, 300)
			h.Issued = taskStories
		}, says: "a crash had undone that operation"},
		"another store": {found: all, more: func(h *protocol.History) { h.Seed++ }, says: "it is not"},
	} {
		t.Run(name, func(t *testing.T) {
			h := base.Clone()
			if test.more != nil {
				test.more(h)
			}
			j := taskJudge(h, test.found)
			if says := strings.Join(j.Findings, "\n"); !j.Broken() || !strings.Contains(says, test.says) {
				t.Errorf("it says %q, want %q", says, test.says)
			}
		})
	}
}

// TestSpoiltTasksAreFoundOut breaks one thing of a task store each time. The keys are those of docs/format-task.md.
func TestSpoiltTasksAreFoundOut(t *testing.T) {
	for name, test := range map[string]struct {
		prefix string
		most   int
		spoil  func(b *holdfast.Batch, key, value []byte)
		says   string // the check, or the judge
	}{
		"a task lost":      {"t\x00t", 1, deleteKey, "does not agree with task"},
		"a place lost":     {"t\x00i", 1, deleteKey, "has no key"},
		"an id lost":       {"t\x00n", 1, deleteKey, "has no key"},
		"a record changed": {"t\x00t", 1, addToLast, "cannot be read"},
		"a turn lost":      {"t\x00s", 1, deleteKey, "has no key"},
		"a child lost":     {"t\x00c", 1, deleteKey, "is said to wait for"},
		"all tasks lost":   {"t\x00", 1 << 20, deleteKey, "is not"},
		"a key lost":       {"k\x00bmarks\x00\x01kz-task/", 1, deleteKey, "had been acknowledged"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := mem.New()
				h, saw := taskStory(t, e, taskStories)
				if saw != "" {
					t.Fatal(saw)
				}
				var b holdfast.Batch
				firstKeys(t, e, test.prefix, test.most, func(key, value []byte) { test.spoil(&b, key, value) })
				if err := holdfast.Commit(e, &b, holdfast.Memory); err != nil {
					t.Fatal(err)
				}
				found, said := tasksFound(t, e)
				said += strings.Join(taskJudge(h, found).Findings, "\n")
				if !strings.Contains(said, test.says) || said == "" {
					t.Errorf("it says %q, want %q", said, test.says)
				}
			})
		})
	}
}

// TestVictimOfTasksSeesWhatIsWrong: what breaks while a store is open the victim sees itself, or cannot go on.
func TestVictimOfTasksSeesWhatIsWrong(t *testing.T) {
	s, err := openTasks(mem.New(), task.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var told bytes.Buffer
	v := newTaskVictim(&worker{report: protocol.NewReporter(&told), next: 1}, s, holdfast.Memory)
	o := taskOp{n: 2, kind: taskComplete}
	if _, err := s.Enqueue(t.Context(), task.Spec{Kind: "k", ID: "a"}); err != nil {
		t.Fatal(err)
	}
	v.held["a"] = 1
	if _, _, err := v.claim(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	v.enqueued(&o, []task.Spec{{Kind: "k", ID: "b"}}, []task.Result{{ID: "c", Existing: true}})
	said := wrongIn(&told)
	if !strings.Contains(said, "and held by operation 1") || !strings.Contains(said, "was told") ||
		!strings.Contains(said, "which no operation enqueued") {
		t.Errorf("it says %q", said)
	}
}

// givesAgain is a store that gives a task again once that is completed.
type givesAgain struct {
	taskStore
	done []task.Lease
}

func (s *givesAgain) CompleteMarked(ctx context.Context, l task.Lease, m mark, then ...task.Spec) (
	[]task.Result, error) {
	results, err := s.taskStore.CompleteMarked(ctx, l, m, then...)
	if err == nil {
		s.done = append(s.done, l)
	}
	return results, err
}

func (s *givesAgain) Claim(ctx context.Context, o task.ClaimOptions) ([]task.Lease, error) {
	if len(s.done) > 0 {
		return s.done[:1], nil
	}
	return s.taskStore.Claim(ctx, o)
}

// TestCompletedTasksAreNotGivenAgain: what a victim is given was enqueued, and nobody has completed it.
func TestCompletedTasksAreNotGivenAgain(t *testing.T) {
	s, err := openTasks(mem.New(), task.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var told bytes.Buffer
	v := newTaskVictim(&worker{spec: protocol.Spec{Seed: taskSeed}, report: protocol.NewReporter(&told), next: 1},
		&givesAgain{taskStore: s}, holdfast.Memory)
	for len(v.ended) == 0 {
		if err := v.do(t.Context(), v.begin()); err != nil {
			t.Fatal(err)
		}
	}
	if said := wrongIn(&told); said != "" {
		t.Fatalf("before anything is given again, it says %q", said)
	}
	if _, _, err := v.claim(t.Context(), &taskOp{n: 1, kind: taskForget}); err != nil {
		t.Fatal(err)
	}
	if said := wrongIn(&told); !strings.Contains(said, "its completion had been acknowledged before") {
		t.Errorf("it says %q", said)
	}
}
