package subjects

import (
	"maps"
	"slices"

	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/message"
)

// messageRun is the messages of one operation, as they are found one after the other.
type messageRun struct {
	space   int
	n       uint64
	entries []commits.Found
}

// messageJudge compares what is found with the operations that were made. What is there of each is whole; every
// operation that was acknowledged, or shown, is there, unless its namespace was deleted later; and what was
// acknowledged before another one was begun is there if that is.
func messageJudge(h *protocol.History, found []commits.Found) protocol.Judgement {
	return messageJudgeOf(h, messageScript(h.Seed, h.Plain), found)
}

// messageJudgeOf is messageJudge with the script of the messages, which a server's history has another of.
func messageJudgeOf(h *protocol.History, p script, found []commits.Found) protocol.Judgement {
	j := messageJudging{h: h, p: p, there: map[uint64]bool{}, torn: map[uint64]bool{},
		deleted: make([]uint64, len(messageSpaces)), must: map[uint64]bool{}}
	for _, n := range h.Must {
		j.must[n] = true
	}
	j.v.Missing = map[uint64]bool{}

	// The order matters: deletions follows from what is there, and what is missing from both.
	spaces, runs, kept := j.sort(found)
	for _, run := range runs {
		j.compare(run)
	}
	last := j.v.Last // of which messages are found
	if !p.plain && !p.served {
		j.keptJudge(kept)
	}
	j.deletions(spaces)
	j.missing()

	return settleConcurrent(h, j.v, last)
}

// messageJudging is a judgement that is being made.
type messageJudging struct {
	h *protocol.History
	p script
	v commits.Verdict

	must    map[uint64]bool // the operations that must be there, by themselves
	there   map[uint64]bool // operations of which messages are found
	torn    map[uint64]bool // and not all
	deleted []uint64        // by namespace, the last deletion that has happened
}

// sort returns which namespaces there are, the runs of messages of one operation in them, and what is in that of
// message_kept.go.
func (j *messageJudging) sort(found []commits.Found) (spaces []bool, runs []messageRun, kept []commits.Found) {
	spaces = make([]bool, len(messageSpaces))
	for _, e := range found {
		if i := slices.Index(messageSpaces, e.Key); i >= 0 {
			want := messageSpaceEntry(describedAs(namespaceOptions(e.Key)))
			if spaces[i] || i > 0 && e != want && !j.p.served { // where the server has the descriptions
				j.v.Find(commits.Wrong, "namespace %q is there twice, or is not described as it was made", e.Key)
			}
			spaces[i] = true
			continue
		}
		if !j.p.served && isKept(e) {
			kept = append(kept, e)
			continue
		}
		id, _, _, _, ok := messagePlace(e.Key)
		space := slices.Index(messageSpaces, id)
		switch {
		case !ok || space < 0:
			j.v.Find(commits.Wrong, "%v: there is no such namespace", e)
		case e.N == 0 || e.N > j.h.Issued:
			j.v.Find(commits.Wrong, "%v: no operation wrote it", e)
		case e.Gen != j.h.Generation(e.N):
			j.v.Find(commits.Wrong, "%v: a crash had undone that operation", e)

		// Messages of one operation lie one behind the other. Where another comes in between, a second run begins, which
		// compare finds wrong.
		case len(runs) > 0 && runs[len(runs)-1].n == e.N && runs[len(runs)-1].space == space:
			run := &runs[len(runs)-1]
			run.entries = append(run.entries, e)
		default:
			runs = append(runs, messageRun{space, e.N, []commits.Found{e}})
		}
	}
	if !spaces[0] {
		j.v.Find(commits.Wrong, "there is no namespace %q", messageSpaces[0])
	}

	return spaces, runs, kept
}

// compare compares the messages of an operation with what they must be.
func (j *messageJudging) compare(run messageRun) {
	o := j.p.message(j.h.Generation(run.n), run.n)

	j.v.Last = max(j.v.Last, run.n)
	if j.there[run.n] || o.deletes || o.space != run.space || skipped(j.h, run.n) {
		j.v.Find(commits.Wrong, "%v is found in namespace %q at %s: it is not what was written there, or not once", &o,
			messageSpaces[run.space], run.entries[0].Key)
		return
	}
	j.there[run.n] = true

	// part is how many of them have been looked for. It only grows, so the order is checked as well.
	want, part := j.p.messages(&o), 0

	for i, e := range run.entries {
		_, global, position, _, _ := messagePlace(e.Key)

		// What a writer or a follower was told of the place must still be so after the crash.
		if told, ok := j.h.Places[run.n]; i == 0 && ok && told != uint64(global) {
			j.v.Find(commits.Wrong, "%v was told to be at global position %d, and is at %d", &o, told, global)
		}

		// Where it is, is the store's choice. All else must be as it was written.
		same := func(m message.Message) bool {
			if j.h.Plain {
				m = plainMessage(m)
			}
			m.Global, m.Position = global, position

			return messageEntry(messageSpaces[run.space], m) == e
		}
		k := slices.IndexFunc(want[part:], same)
		if k < 0 {
			j.v.Find(commits.Wrong, "%v: it is not what %v wrote there", e, &o)
			return
		}
		part += k + 1
	}
	if len(run.entries) < len(want) {
		j.torn[run.n] = true
		j.v.Find(commits.Torn, "%v is there in part: %d of %d messages", &o, len(run.entries), len(want))
	}
}

// deletions finds out which namespaces have been deleted when. A deletion has happened if nothing older is left.
func (j *messageJudging) deletions(spaces []bool) {
	oldest := make([]uint64, len(messageSpaces)) // that is found

	for n := range j.there {
		o := j.p.message(j.h.Generation(n), n)
		if old := oldest[o.space]; old == 0 || n < old {
			oldest[o.space] = n
		}
	}

	written := make([]uint64, len(messageSpaces)) // by namespace, the last write that was begun
	surely := make([]uint64, len(messageSpaces))  // and the last deletion that was acknowledged

	// The last deletion that has happened decides: older operations are gone with it.
	for n := uint64(1); n <= j.h.Issued; n++ {
		o := j.p.message(j.h.Generation(n), n)

		switch left := oldest[o.space]; {
		case !o.deletes:
			written[o.space] = n
		case skipped(j.h, n):
		// Something older is left, so this deletion did not happen.
		case left > 0 && left < n:
			j.v.Missing[n] = true
		default:
			j.deleted[o.space], j.there[n] = n, true
			j.v.Last = max(j.v.Last, n)
			if j.must[n] || n <= j.h.Bound {
				surely[o.space] = n
			}
		}
	}

	// A write makes its namespace first, which stays if a crash lets only the write be undone.
	for _, u := range j.h.Undone {
		for n := u.From; n <= u.To; n++ {
			if o := j.p.message(u.Gen, n); !o.deletes {
				written[o.space] = max(written[o.space], u.Before-1)
			}
		}
	}

	// A namespace may be there again only if something was written to it after the deletion.
	for i, n := range surely {
		if spaces[i] && n > written[i] {
			j.v.Find(commits.Wrong, "namespace %q is there, and was acknowledged as deleted by operation %d",
				messageSpaces[i], n)
		}
	}
}

// missing finds the operations that are not there, though no deletion took them.
func (j *messageJudging) missing() {
	for n := uint64(1); n <= j.v.Last; n++ {
		if j.there[n] && !j.torn[n] || skipped(j.h, n) {
			continue
		}
		o := j.p.message(j.h.Generation(n), n)

		// What lies before the last deletion is not missing.
		if o.deletes || n > j.deleted[o.space] {
			j.v.Missing[n] = true
		}
	}
	maps.DeleteFunc(j.v.Missing, func(n uint64, _ bool) bool { return n > j.v.Last })
}

// describedAs is the description of a namespace that was made so.
func describedAs(o message.NamespaceOptions) message.Info {
	return message.Info{ID: o.ID, Description: o.Description, Metadata: o.Metadata}
}
