package projection

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
)

// Earlier versions kept a view under keys of the engine with a prefix that the program named. The key that is only the
// prefix had the position. An engine has the prefixes of those projections under the keys
//
//	's' 0 'p' PREFIX      version (1 byte, 1), then the projection's name
//
// which are removed last when the view is carried over into its bucket, or is rebuilt.
const (
	tablePrefixes   = 'p'
	prefixesVersion = 1
)

var prefixes = keyspace.New(keyspace.Server, "")

// earlier returns the prefixes under which earlier versions have kept views of the projection's name.
func (p *Projection[E]) earlier() (found []string, err error) {
	lo, hi := prefixes.Table(tablePrefixes)
	it := p.db.Engine().Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()
	for it.Next() {
		prefix, value := string(prefixes.Rest(it.Key())), it.Value()
		if len(value) == 0 || value[0] != prefixesVersion {
			return nil, p.fail("open", holdfast.ErrVersion, nil, "use a newer holdfast",
				"what is kept of the projection with the prefix %q cannot be read", prefix)
		}
		if string(value[1:]) == p.o.Name {
			found = append(found, prefix)
		}
	}
	return found, it.Err()
}

// earlierView returns the prefix of the view that an earlier version has kept, "" if there is none.
func (p *Projection[E]) earlierView() (string, error) {
	found, err := p.earlier()
	if err != nil || len(found) == 0 {
		return "", err
	}
	if len(found) > 1 {
		return "", p.fail("open", holdfast.ErrBadOption, nil, "rebuild it, which removes them all",
			"an earlier version has kept several views of that name, under the prefixes %q", strings.Join(found, `", "`))
	}
	return found[0], nil
}

// earlierPosition returns the position that an earlier version has stored, nil if there is none.
func (p *Projection[E]) earlierPosition() ([]byte, error) {
	prefix, err := p.earlierView()
	if err != nil || prefix == "" {
		return nil, err
	}
	value, err := p.db.Engine().Get(nil, []byte(prefix))
	if errors.Is(err, holdfast.ErrNotFound) {
		return nil, nil
	}
	return value, err
}

// carryOver moves the view that an earlier version has kept, if there is one, into its bucket. The position comes last,
// so that a view that was carried over in part is removed when it is opened, and is carried over again.
func (p *Projection[E]) carryOver(ctx context.Context) error {
	prefix, err := p.earlierView()
	if err != nil || prefix == "" {
		return err
	}
	value, err := p.earlierPosition()
	if err != nil {
		return err
	}
	if at, ok := parsePosition(value); value != nil && (!ok || at.next > 0) {
		if err := p.copyEarlier(ctx, prefix, value); err != nil {
			return err
		}
	}
	return p.removeEarlier(ctx)
}

// copyEarlier copies the keys under a prefix into the bucket, and then the position, unless that is there.
func (p *Projection[E]) copyEarlier(ctx context.Context, prefix string, at []byte) error {
	engine, rest := p.db.Engine(), holdfast.Prefix([]byte(prefix))
	rest.Lo = append(rest.Lo, 0) // behind the position
	for first, more := true, true; more; first = false {
		err := p.db.Update(ctx, func(tx *kv.Tx) error {
			view := p.View(tx)
			about := view.Bucket(aboutBucket)
			if first {
				if there, err := p.own(tx); err != nil {
					return err
				} else if _, err := about.Get(positionKey); there && err == nil {
					more = false
					return nil
				}
				if err := p.remove(tx); err != nil {
					return err
				}
				if err := about.Create(); err != nil {
					return err
				}
			}
			it := engine.Scan(rest)
			defer it.Close()
			for tx.Size() < p.full() {
				if more = it.Next(); !more {
					break
				}
				if err := view.Put(it.Key()[len(prefix):], it.Value()); err != nil {
					return err
				}
				rest.Lo = append(bytes.Clone(it.Key()), 0)
			}
			if err := it.Err(); err != nil || more {
				return err
			}
			return about.Put(positionKey, at)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeEarlier removes the views that earlier versions have kept, and then the note that they are there.
func (p *Projection[E]) removeEarlier(ctx context.Context) error {
	found, err := p.earlier()
	if err != nil {
		return err
	}
	for _, prefix := range found {
		key := prefixes.Key(nil, tablePrefixes, prefix)
		note := holdfast.Range{Lo: key, Hi: append(bytes.Clone(key), 0)}
		err := chunks.Remove(ctx, p.db.Engine(), p.db.Level(), holdfast.Prefix([]byte(prefix)), note)
		if err != nil {
			return err
		}
	}
	return nil
}
