package subjects

import (
	"maps"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/task"
)

// taskJudging is a judgement that is being made.
type taskJudging struct {
	h *protocol.History
	p script
	v commits.Verdict

	marks     map[uint64]taskFact // of the operations that are there
	tasks     map[string]taskFound
	completed map[string]uint64 // by which operation a task was completed
}

// taskFact is what the key of an operation says.
type taskFact struct{ kind, id string }

// taskJudge compares what is found with the keys that the operations have left. Every operation that was acknowledged
// has left its key. What a key says is so: the tasks are there that were enqueued, and what was completed, cancelled,
// failed or is held is that, once. What nobody has completed is not.
func taskJudge(h *protocol.History, found []commits.Found) protocol.Judgement {
	j := taskJudging{h: h, p: scriptOf(h.Seed), marks: map[uint64]taskFact{}, tasks: map[string]taskFound{},
		completed: map[string]uint64{}}

	j.v.Missing = map[uint64]bool{}
	for _, e := range found {
		j.sort(e)
	}

	// In the order of the numbers, so that the same damage always gives the same text.
	for _, n := range slices.Sorted(maps.Keys(j.marks)) {
		o := j.p.task(h.Generation(n), n)
		j.compare(&o, j.marks[n])
	}

	for _, id := range slices.Sorted(maps.Keys(j.tasks)) {
		j.follows(j.tasks[id])
	}

	for n := uint64(1); n <= j.v.Last; n++ {
		if _, there := j.marks[n]; !there && !skipped(h, n) {
			j.v.Missing[n] = true
		}
	}

	return settleConcurrent(h, j.v, j.v.Last)
}

// sort notes an entry.
func (j *taskJudging) sort(e commits.Found) {
	kind, id, marked := taskMarked(e.Key)
	t, isTask := taskPlace(e.Key)
	switch {
	case !marked && !isTask:
		j.v.Find(commits.Wrong, "%v: it is neither a task nor the key of an operation", e)
		return
	case e.N == 0 || e.N > j.h.Issued:
		j.v.Find(commits.Wrong, "%v: no operation wrote it", e)
		return
	case e.Gen != j.h.Generation(e.N) || skipped(j.h, e.N):
		j.v.Find(commits.Wrong, "%v: a crash had undone that operation", e)
		return
	}

	o := j.p.task(e.Gen, e.N)
	j.v.Last = max(j.v.Last, e.N)
	if marked {
		want := commits.NewFound(e.Key, j.p.Value(nil, e.Key, commits.Written{N: e.N, Gen: e.Gen,
			Size: commits.HeaderSize + 10}))
		if _, twice := j.marks[e.N]; twice || e != want {
			j.v.Find(commits.Wrong, "%v: it is not the one key that %v sets", e, &o)
		}
		j.marks[e.N] = taskFact{kind, id}
		if by, twice := j.completed[id]; twice && kind == taskComplete.String() {
			j.v.Find(commits.Wrong, "task %s was completed twice: by operations %d and %d", id, by, e.N)
		} else if kind == taskComplete.String() {
			j.completed[id] = e.N
		}

		return
	}

	// A task is compared without its state, which other operations have changed.
	k := slices.IndexFunc(j.p.specs(&o), func(s task.Spec) bool { return s.ID == t.id })
	_, twice := j.tasks[t.id]
	if k < 0 || twice || e.Sum != taskDigest(j.p.specs(&o)[k]) {
		j.v.Find(commits.Wrong, "%v: it is not a task that %v enqueues, or is not there once", e, &o)
	}
	j.tasks[t.id] = t
}

// compare compares what the key of an operation says with the tasks.
func (j *taskJudging) compare(o *taskOp, fact taskFact) {
	t, there := j.tasks[fact.id]
	of := func(t taskFound) string { return t.state + " (" + t.worker + ")" }
	if fact.kind == taskEnqueue.String() || fact.kind == taskComplete.String() && o.enqueues {
		for _, s := range j.p.specs(o) {
			_, there := j.tasks[s.ID]
			_, completed := j.completed[s.ID]
			if !there && s.Unique == "" && !(s.Keep < 0 && completed) {
				j.v.Find(commits.Torn, "%v is there, and task %s, which it enqueued, is not", o, s.ID)
			}
		}
	}

	by := o.by()
	switch fact.kind {
	case taskComplete.String():
		if there && t.state != task.Completed.String() {
			j.v.Find(commits.Wrong, "%v has completed task %s, which is %s", o, fact.id, of(t))
		}
		if there && j.spec(fact.id).Keep < 0 {
			j.v.Find(commits.Wrong, "%v has completed task %s, which is not to be kept, and is there", o, fact.id)
		}

	// The kinds below end a task for good, so nothing that comes later can have changed it.
	case taskCancel.String():
		if !there || t.state != task.Cancelled.String() {
			j.v.Find(commits.Wrong, "%v has cancelled task %s, which is %s", o, fact.id, of(t))
		}
	case taskHold.String():
		if !there || t.state != "open" || t.worker != by {
			j.v.Find(commits.Wrong, "%v holds task %s, which is %s", o, fact.id, of(t))
		}
	case taskBury.String():
		if !there || t.state != task.Dead.String() {
			j.v.Find(commits.Wrong, "%v has buried task %s, which is %s", o, fact.id, of(t))
		}

	// A task that has failed goes on, but keeps the reasons.
	case taskFail.String():
		if there && !strings.Contains(t.reasons, ","+by+",") {
			j.v.Find(commits.Wrong, "%v has failed task %s, which does not say so: %s", o, fact.id, t.reasons)
		}
	}
}

// spec is what a task was enqueued as.
func (j *taskJudging) spec(id string) task.Spec {
	gen, n, k, ok := taskOf(id)
	o := j.p.task(gen, n)
	if !ok || k >= o.size {
		return task.Spec{}
	}

	return j.p.specs(&o)[k]
}

// follows compares a task with those that come before it, and with what has ended it.
func (j *taskJudging) follows(t taskFound) {
	gen, n, k, _ := taskOf(t.id)
	o := j.p.task(gen, n)
	if _, by := j.completed[t.id]; t.state == task.Completed.String() && !by {
		j.v.Find(commits.Torn, "task %s is completed, and the key that was set with that is not there", t.id)
	}

	// Tasks that were enqueued together stand or fall together, and those of a sequence begin in order.
	for before := range k {
		id := taskID(gen, n, before)
		first, there := j.tasks[id]
		switch {
		case o.shape == "" || o.shape == "unique":
		case !there:
			j.v.Find(commits.Torn, "task %s is there, and task %s, which was enqueued with it, is not", t.id, id)
		case t.begun == "begun" && first.state == "open",
			t.begun == "begun" && o.shape == "after" && first.state != task.Completed.String():
			j.v.Find(commits.Wrong, "task %s was begun, and comes after task %s, which is %s", t.id, id, first.state)
		case o.shape == "after" && t.state == "open" && first.state != "open" && first.state != task.Completed.String():
			j.v.Find(commits.Wrong, "task %s waits for ever for task %s, which is %s", t.id, id, first.state)
		}
	}
}
