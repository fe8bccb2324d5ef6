package db

import (
	"errors"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
)

// prepareNext removes what is not needed any more, and makes the segment that will follow the present one, if it is
// missing. It reports whether there was anything to do.
func (d *DB) prepareNext() (bool, error) {
	d.preparing.Lock()
	defer d.preparing.Unlock()
	removed := d.removeObsolete()

	// The segment comes before the reserve: commits wait for the one and not for the other.
	did, err := d.makeNext()
	if !did && err == nil {
		d.makeReserve()
	}

	return removed || did, err // the log makes one itself when it comes to that, and says so if it cannot
}

// makeNext makes the next segment if it is missing. After an error nothing is left of it. It is called with preparing
// held.
func (d *DB) makeNext() (bool, error) {
	d.mu.Lock()
	if d.mu.next != nil || d.log.Current() == nil || d.scarce.Load() {
		d.mu.Unlock()
		return false, nil
	}
	id, err := d.number()

	// The numbers are taken under mu, the file is made without it: filling it with zeros takes as long as the device
	// needs.
	size, last, left := d.nextSegmentSize(), d.mu.lastSize, d.leave(false)
	d.mu.Unlock()
	if err != nil {
		return false, nil // the log says so when it comes to that
	}
	zeros := policy.Zeros(size, last, d.syncedCommits.Swap(0))
	s, err := d.files.Create(id, size, left, zeros)
	if errors.Is(err, wal.ErrStopped) {
		return false, nil
	}
	if err != nil {
		return false, err
	}

	// Its name is durable before the log may go on in it: the end frame of the segment before promises that.
	if err := d.files.Settle(s); err != nil {
		d.files.Undo(s)
		return false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()

	// Meanwhile the log may have gone on.
	if d.log.Current().ID < id && d.mu.next == nil {
		d.mu.next = s
	} else { // the log could not wait, and made one with a later id; ids ascend along the log
		s.Drop()
	}

	return true, nil
}
