package fleet

import (
	"fmt"
	"sync"

	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// entry is what is at a position.
type entry struct {
	text  string // what was written: no two writes have the same
	place string // stream and version
}

// book is what was told of one sequence of positions, from 1 on without a gap: the messages of a namespace, or the
// events of its log. It may be used by several goroutines.
type book struct {
	name      string
	followers []*follower

	mu     sync.Mutex
	issued map[string]bool // texts
	told   map[int64]entry // by answers to writes
	top    int64           // the highest position of them
	found  []entry         // what was read at the last judgement, by position
	wrong  []string
	counts counts
}

// counts are what is added to judgements of what was acknowledged: each judgement looks at all, and counts what is new.
type counts struct{ acked, kept int }

// add adds what is new.
func (c *counts) add(j *protocol.Judgement, acked, kept int) {
	j.Acked, j.Kept = j.Acked+max(acked-c.acked, 0), j.Kept+max(kept-c.kept, 0)
	c.acked, c.kept = acked, kept
}

func newBook(name string, followers ...string) *book {
	b := &book{name: name, issued: map[string]bool{}, told: map[int64]entry{}}
	for _, f := range followers {
		b.followers = append(b.followers, &follower{name: f})
	}

	return b
}

// issue enters that something is about to be written.
func (b *book) issue(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.issued[text] = true
}

// acked enters the answer to a write.
func (b *book) acked(at int64, e entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was, ok := b.told[at]; ok && was.text != e.text {
		b.wrong = append(b.wrong, fmt.Sprintf("%s: position %d was told of %s and of %s", b.name, at, was.text, e.text))
	}
	b.told[at], b.top = e, max(b.top, at)
}

// floor is the highest position that was told.
func (b *book) floor() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.top
}

// highest is what was told to be there.
func (b *book) highest() entry {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.told[b.top]
}

// say enters what a client saw that must not be.
func (b *book) say(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = append(b.wrong, b.name+": "+fmt.Sprintf(format, args...))
}

// before is called before what is there is read for a judgement: what followers are shown from now on is left to the
// next one. It returns behind what position there is something that was not read yet.
func (b *book) before() int64 {
	for _, f := range b.followers {
		f.mu.Lock()
		f.limit = len(f.shown)
		f.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()

	return int64(len(b.found)) + 1
}

// judge compares what is there, from a position on, with what was told and found before, and with what the followers
// were shown. Of what is before that position, there is what was found then. Nothing is told meanwhile.
func (b *book) judge(j *protocol.Judgement, from int64, there []entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.wrong {
		j.Find(&j.Wrong, "%s", text)
	}
	b.wrong = nil
	for i, e := range there {
		at := int(from) + i
		if at <= len(b.found) && b.found[at-1] != e {
			j.Find(&j.Wrong, "%s: at position %d there was %v, and now there is %v", b.name, at, b.found[at-1], e)
		}
	}
	if end := int(from) - 1 + len(there); end < len(b.found) {
		j.Find(&j.Lost, "%s: there were %d positions, and now there are %d", b.name, len(b.found), end)
	}
	b.found = append(b.found[:min(int(from)-1, len(b.found))], there...)

	at := map[string]int{} // by text
	for i, e := range b.found {
		if was, ok := at[e.text]; ok {
			j.Find(&j.Wrong, "%s: %s is at position %d and at %d", b.name, e.text, was, i+1)
		}
		if at[e.text] = i + 1; !b.issued[e.text] {
			j.Find(&j.Wrong, "%s: %v is at position %d, and was never written", b.name, e, i+1)
		}
	}
	kept := 0
	for position, e := range b.told {
		switch is := b.at(position); {
		case is == e || is.text == e.text && e.place == "":
			kept++
		case at[e.text] == 0:
			j.Find(&j.Lost, "%s: %s was acknowledged at position %d, and is not there", b.name, e.text, position)
		default:
			j.Find(&j.Wrong, "%s: %s was acknowledged at position %d, %s, and is at %d, %s", b.name, e.text, position, e.place,
				at[e.text], b.at(int64(at[e.text])).place)
		}
	}
	b.counts.add(j, len(b.told), kept)
	for _, f := range b.followers {
		f.judge(j, b)
	}
}

// at is what was found at a position.
func (b *book) at(position int64) entry {
	if position < 1 || position > int64(len(b.found)) {
		return entry{}
	}

	return b.found[position-1]
}

// follower is what somebody was shown who follows a book.
type follower struct {
	name string

	mu    sync.Mutex
	shown []entry // by position; of some only the text or the place is known
	limit int     // how many of them are judged
}

// next is the position that has to come next.
func (f *follower) next() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()

	return int64(len(f.shown)) + 1
}

// show enters what was shown at a position: each once, and without a gap.
func (f *follower) show(b *book, at int64, e entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if want := int64(len(f.shown)) + 1; at != want {
		b.say("%s was shown position %d, not %d", f.name, at, want)
		return
	}
	f.shown = append(f.shown, e)
}

// judge compares what was shown with what there is. The caller has the book's mu.
func (f *follower) judge(j *protocol.Judgement, b *book) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, e := range f.shown[:f.limit] {
		is := b.at(int64(i) + 1)
		if e.text != "" && e.text != is.text || e.place != "" && e.place != is.place {
			j.Find(&j.Lost, "%s: %s was shown %v at position %d, and there is %v", b.name, f.name, e, i+1, is)
		}
	}
}
