package projection

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
)

// The view of a projection is a bucket of its database, with the projection's name. In it lies another bucket, by which
// it is known to be a projection's. That has one key, the position of the view.
const aboutBucket = "\x00projection"

var positionKey = []byte("position")

// position is how far a view has come.
type position struct {
	next     uint64 // behind the last event applied, 0 for none
	history  string // of the source when the event was applied; "" as early versions stored it
	accepted string // the loss that was accepted in the view's engine when it began; see [holdfast.Capabilities]
}

// encode returns the next position in 8 bytes, big-endian, and then the two texts behind their lengths of a byte. Early
// versions stored the number alone.
func (at position) encode() []byte {
	value := binary.BigEndian.AppendUint64(nil, at.next)
	for _, text := range []string{at.history, at.accepted} {
		value = append(append(value, byte(len(text))), text...)
	}
	return value
}

func parsePosition(value []byte) (at position, ok bool) {
	if len(value) < 8 {
		return at, false
	}
	at.next, value = binary.BigEndian.Uint64(value), value[8:]
	if len(value) == 0 {
		return at, true
	}
	for _, text := range []*string{&at.history, &at.accepted} {
		if len(value) == 0 || len(value) <= int(value[0]) {
			return at, false
		}
		end := 1 + int(value[0])
		*text, value = string(value[1:end]), value[end:]
	}
	return at, len(value) == 0
}

// own reports whether the projection's bucket is there. ErrBadOption: it is there, and is not a projection's.
func (p *Projection[E]) own(tx *kv.Tx) (there bool, err error) {
	if there, err = p.View(tx).Exists(); err != nil || !there {
		return false, err
	}
	about, err := p.View(tx).Bucket(aboutBucket).Exists()
	if err == nil && !about {
		err = p.fail("open", holdfast.ErrBadOption, nil, "give the projection another name",
			"the database has a bucket of that name, which no projection has made")
	}
	return there, err
}

// remove removes the projection's bucket.
func (p *Projection[E]) remove(tx *kv.Tx) error {
	there, err := p.own(tx)
	if err == nil && there {
		err = tx.DeleteBucket(p.o.Name)
	}
	return err
}

// save stores the position in the transaction.
func (p *Projection[E]) save(tx *kv.Tx, at position) error {
	if err := p.View(tx).Bucket(aboutBucket).Put(positionKey, at.encode()); err != nil {
		return err
	}
	return p.source.save(tx, p.o.Name, at.next)
}

// at returns an error if the view does not have the position that the run has left it at: another transaction has
// deleted it since, or made it of something else, so that it lacks what was applied before.
func (p *Projection[E]) at(tx *kv.Tx, next uint64) error {
	at := position{}
	value, err := p.View(tx).Bucket(aboutBucket).Get(positionKey)
	switch {
	case errors.Is(err, holdfast.ErrNotFound):
		_, err = p.own(tx)
	case err == nil:
		at, _ = parsePosition(value)
	}
	if err == nil && at.next != next {
		err = p.fail("run", holdfast.ErrCorrupt, nil, "rebuild it, and let nobody else delete its bucket or write there",
			"the view is at position %d, and was left at %d", at.next, next)
	}
	return err
}

// load returns the position of the view, after a check that the source has what the view was made of.
func (p *Projection[E]) load(ctx context.Context) (position, error) {
	at, err := p.position(ctx)
	for err == nil {
		if err = p.source.check(ctx, &p.o, at); err == nil {
			return at, nil
		}
		// A run may have committed meanwhile, so that the two are not of one moment.
		now, failed := p.position(ctx)
		if failed != nil || now == at {
			break
		}
		at, err = now, nil
	}
	return at, err
}

// position returns the position that is stored: in the bucket, or where earlier versions stored it.
func (p *Projection[E]) position(ctx context.Context) (at position, err error) {
	var value []byte
	err = p.db.Latest(ctx, func(tx *kv.Tx) error {
		if _, err := p.own(tx); err != nil {
			return err
		}
		value, err = p.View(tx).Bucket(aboutBucket).Get(positionKey)
		return err
	})
	if errors.Is(err, holdfast.ErrNotFound) {
		value, err = p.earlierPosition()
	}
	if err != nil || value == nil {
		return at, err
	}
	at, ok := parsePosition(value)
	switch {
	case !ok:
		return at, p.fail("load", holdfast.ErrCorrupt, nil, "rebuild it", "its position cannot be read")
	case at.next > 0 && at.accepted != p.db.Engine().Capabilities().Accepted:
		return at, p.fail("load", holdfast.ErrCorrupt, nil, "rebuild it",
			"a loss was accepted in its engine, and what is lost of the view would not show")
	}
	return at, nil
}
