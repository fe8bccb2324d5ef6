package message

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// StreamInfo describes a stream.
type StreamInfo struct {
	Stream  string
	Version int64     // the position of its last message
	Last    time.Time // when that was written
}

// Streams describes up to limit streams that have messages and whose names begin with prefix, in the order of their
// bytes, from the first that comes after the name after on. A limit of 0 means all; one below is ErrBadOption.
func (n *Namespace) Streams(ctx context.Context, prefix, after string, limit int) (list []StreamInfo, err error) {
	if err := n.store.checkLimit("streams", limit); err != nil {
		return nil, err
	}
	if err := n.enter(ctx); err != nil {
		return nil, err
	}
	defer n.leave()
	lo := n.keys.FromStream(nil, prefix)
	if after >= prefix && after != "" {
		lo = n.keys.AfterStream(nil, after)
	}
	_, hi := n.keys.Bounds(format.TableStreams)
	for limit == 0 || len(list) < limit {
		if err := holdfast.CheckContext(ctx); err != nil {
			return nil, err
		}
		stream, err := n.nextName(lo, hi)
		if err != nil {
			return nil, n.ended(err)
		}
		if stream == "" || !strings.HasPrefix(stream, prefix) {
			break
		}
		lo = n.keys.AfterStream(lo, stream)
		position, global, err := n.last(stream)
		if err != nil {
			return nil, n.ended(err)
		}
		m, err := n.at(ctx, global)
		if errors.Is(err, holdfast.ErrNotFound) { // nothing of it is durable, or it was removed meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, StreamInfo{stream, position, m.Time})
	}
	return list, nil
}

// nextName returns the name in the first key from lo on, a stream's or a subscription's, "" if there is none.
func (n *Namespace) nextName(lo, hi []byte) (string, error) {
	it := n.store.eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()
	if !it.Next() {
		return "", it.Err()
	}
	stream, _, ok := n.keys.Placed(it.Key())
	if !ok {
		return "", n.strange(it.Key())
	}
	return string(stream), nil
}

// CategoryInfo describes a category.
type CategoryInfo struct {
	Category string
	Counts
}

// Categories describes all categories that have messages, in the order of their bytes. It takes a read for each, and
// holds them in memory; what is written meanwhile may count or not.
func (n *Namespace) Categories(ctx context.Context) (list []CategoryInfo, err error) {
	if err := n.enter(ctx); err != nil {
		return nil, err
	}
	defer n.leave()
	n.counting.RLock()
	defer n.counting.RUnlock()
	all := map[string]counts{}
	lo, hi := n.keys.Bounds(format.TableCounts)
	it := n.store.eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()
	for it.Next() {
		messages, streams, ok := format.Counts(it.Value())
		if !ok {
			return nil, n.strange(it.Key())
		}
		all[n.keys.Named(it.Key())] = counts{int64(messages), int64(streams)}
	}
	if err := it.Err(); err != nil {
		return nil, n.ended(err)
	}
	n.mu.Lock()
	for category, c := range n.tally.since {
		all[category] = all[category].plus(c)
	}
	n.mu.Unlock()
	delete(all, "")
	for _, category := range slices.Sorted(maps.Keys(all)) {
		if c := all[category]; c.messages > 0 {
			list = append(list, CategoryInfo{category, Counts{c.messages, c.streams}})
		}
	}
	return list, nil
}
