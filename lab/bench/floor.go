package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// floorFile is the least a machine can do to keep records: a file that was written and
// synced ahead, so that no write changes its size or allocates a block, and one write call
// for all the records that wait, followed by one fdatasync if they must survive power loss.
// At the end of the file it begins again.
//
// Records have one size and are named by index into a list that both sides know.
type floorFile struct {
	f      *os.File
	record int
	slots  int64
	sync   bool
	mapped []byte // the file, where it is stored to and not written by calls
	// other is the other node, nil if there is none; at once, it writes at the same time.
	other  *contender.FloorNode
	atOnce bool

	mu      sync.Mutex
	changed sync.Cond
	wrote   []uint32 // by slot, the index of the record last put there
	next    int64    // records taken, never wrapped
	settled int64    // records that are written and, if sync, synced
	busy    bool     // a write is running
	pending []byte   // records from settled (or from what is being written) to next
	spare   []byte
	err     error
}

// floorBytes is the size of the file where nothing else is needed: large enough that one group of
// writers never laps another, small enough to be made in a few milliseconds.
const floorBytes = 16 << 20

// appendFile makes the file that the clients of a task append to.
func appendFile(t Task, record int, slots int64) (*floorFile, error) {
	name := filepath.Join(t.Dir, "floor")
	w, err := newFloorFile(name, record, slots, t.Level >= holdfast.Power)
	if err == nil && t.Level == holdfast.Quorum {
		w.atOnce = t.AtOnce
		if w.other, err = contender.StartFloorNode(name+otherNode, slots*int64(record)); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	if err != nil || !t.Mapped {
		return w, err
	}
	if w.mapped, err = mapFile(w.f, slots*int64(record)); err != nil {
		return nil, errors.Join(err, w.close())
	}

	return w, nil
}

// otherNode is what the name of the other node's file ends with.
const otherNode = "-other"

// newFloorFile makes the file with room for so many records. There must be as many as all clients together
// append at one time.
func newFloorFile(name string, record int, slots int64, sync bool) (*floorFile, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	w := &floorFile{f: f, record: record, slots: slots, sync: sync, wrote: make([]uint32, slots)}
	w.changed.L = &w.mu

	zeros := make([]byte, 1<<20)
	for left := slots * int64(record); left > 0 && err == nil; {
		n := min(left, int64(len(zeros)))
		_, err = f.Write(zeros[:n])
		left -= n
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return w, nil
}

// append writes records, which are those from index on, and returns when they are kept.
// The first that waits writes for all.
func (w *floorFile) append(records []byte, index int) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	slot := w.next % w.slots
	for i := range len(records) / w.record {
		w.wrote[slot] = uint32(index + i)
		if slot++; slot == w.slots {
			slot = 0
		}
		w.next++
	}

	w.pending = append(w.pending, records...)
	for mine := w.next; w.settled < mine && w.err == nil; {
		if w.busy {
			w.changed.Wait()
			continue
		}
		w.busy = true
		group, from, to := w.pending, w.settled, w.next
		w.pending = w.spare[:0]
		w.mu.Unlock()
		err := w.write(group, from)
		w.mu.Lock()
		w.spare, w.busy, w.settled = group, false, to
		if err != nil {
			w.err = err
		}
		w.changed.Broadcast()
	}

	return w.err
}

func (w *floorFile) write(group []byte, from int64) error {
	at := from % w.slots * int64(w.record)
	head := group[:min(int64(len(group)), w.slots*int64(w.record)-at)]
	if w.mapped != nil {
		copy(w.mapped[at:], head)
		copy(w.mapped, group[len(head):])

		return nil
	}
	if w.other == nil {
		return w.keep(head, at, group[len(head):])
	}
	// In series, the other node is told of what this one has kept; at once, both keep it at the same time.
	here, there := func() error { return w.keep(head, at, group[len(head):]) }, func() error {
		return w.send(head, at, group[len(head):])
	}
	if w.atOnce {
		here, there = there, here
	}
	if err := here(); err != nil {
		return err
	}
	if err := there(); err != nil {
		return err
	}
	if len(head) < len(group) {
		if err := w.other.Receive(); err != nil {
			return err
		}
	}

	return w.other.Receive()
}

// keep writes a group into the file: its head at a place, the rest at the beginning.
func (w *floorFile) keep(head []byte, at int64, rest []byte) error {
	if _, err := w.f.WriteAt(head, at); err != nil {
		return err
	}
	if len(rest) > 0 {
		if _, err := w.f.WriteAt(rest, 0); err != nil {
			return err
		}
	}
	if w.sync {
		return measure.Fdatasync(w.f)
	}

	return nil
}

// send does the same on the other node, which has not answered when it returns.
func (w *floorFile) send(head []byte, at int64, rest []byte) error {
	err := w.other.Send(head, at)
	if err == nil && len(rest) > 0 {
		err = w.other.Send(rest, 0)
	}

	return err
}

// read reads records that follow one another with one call.
func (w *floorFile) read(buf []byte, slot int64) error {
	_, err := w.f.ReadAt(buf, slot*int64(w.record))
	return err
}

func (w *floorFile) close() error {
	var err error
	if w.mapped != nil {
		err = unmapFile(w.mapped)
		w.mapped = nil
	}
	if w.other != nil {
		err = errors.Join(err, w.other.Close())
	}

	return errors.Join(err, w.f.Close())
}

// verify opens the file again, and that of the other node, and compares all of it with what was written; record returns
// the bytes of an index.
func (w *floorFile) verify(record func(index uint32) []byte) (items, checked int64, err error) {
	items, checked, err = w.compare(w.f.Name(), record)
	if err == nil && w.other != nil {
		items, checked, err = w.compare(w.f.Name()+otherNode, record)
	}

	return items, checked, err
}

func (w *floorFile) compare(name string, record func(index uint32) []byte) (items, checked int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return w.next, 0, err
	}
	defer f.Close()

	file, got := bufio.NewReaderSize(f, 1<<20), make([]byte, w.record)
	n := min(w.next, w.slots)
	for slot := range n {
		if _, err := io.ReadFull(file, got); err != nil {
			return w.next, slot, wrong(err)
		}
		if !bytes.Equal(got, record(w.wrote[slot])) {
			return w.next, slot, fmt.Errorf("%w: slot %d holds %q", ErrWrong, slot, got)
		}
	}

	return w.next, n, nil
}
