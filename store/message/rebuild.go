package message

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// Rebuilt is what Rebuild found of a namespace.
type Rebuilt struct {
	ID      string
	Found   bool         // its description was lost, and with it its id: ID is a new one
	Log     event.Report // of its messages, by global positions
	Dropped int64        // entries of indexes whose messages are lost
}

// Stores lists the names of the message stores in r, an engine or a snapshot of one, open or not. It takes a seek for
// each, and for each log of events.
func Stores(r holdfast.Reader) (names []string, err error) {
	if names, err = keyspace.Names(r, format.Kind); err != nil {
		return nil, err
	}
	// A store of which only logs are left.
	logs, err := keyspace.Names(r, keyspace.Events)
	for _, log := range logs {
		if name, _, ok := format.SplitLogName(log); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// Rebuild repairs a store whose engine has lost some of its data, once that loss was accepted. Each namespace's log
// is rebuilt, as [event.Rebuild] does, and the indexes by stream and category and the counts are rebuilt from it. No
// global position, and no position in a stream, of which there is any trace is given again. A namespace whose
// description is lost gets a new one, with the id "recovered-" and its number. Of o, Name and Level count.
//
// The store must not be open (ErrLocked). If it ends early, by ctx or an error, the store is no worse than before:
// run it again. It reads the whole engine, and one message for each key.
func Rebuild(ctx context.Context, eng holdfast.Engine, o Options) (list []Rebuilt, err error) {
	s, err := claim(eng, o)
	if err != nil {
		return nil, err
	}
	defer s.lease.Release()
	return s.rebuildAll(ctx)
}

// rebuildAll is Rebuild of a store that is claimed.
func (s *Store) rebuildAll(ctx context.Context) (list []Rebuilt, err error) {
	value, err := s.eng.Get(nil, s.keys.Meta())
	if err == nil && len(value) > 0 && value[0] > format.Version {
		return nil, s.newer(value[0])
	}
	ids, next, err := s.numbers()
	if err != nil || len(ids) == 0 && next == 0 {
		return nil, err
	}

	// The next number comes first: if the rebuild ends early, no number of a namespace of which there is a trace is given
	// again.
	var b holdfast.Batch
	b.Set(s.keys.Meta(), format.AppendNumber([]byte{format.Version}, next))
	if err := holdfast.Commit(s.eng, &b, s.o.Level); err != nil {
		return nil, err
	}
	for number := uint64(1); number < next; number++ {
		id, ok := ids[number]
		if !ok {
			continue
		}
		r := Rebuilt{ID: id}
		if r.ID == "" {
			if r.ID, err = s.recover(number); err != nil {
				return list, err
			}
			r.Found = true
		}
		if err := s.rebuild(ctx, number, &r); err != nil {
			return list, err
		}
		list = append(list, r)
	}

	// Only now that all is rebuilt, the store is said to be fresh, and opens again.
	b.Reset()
	b.Set(s.keys.Meta(), format.AppendNumber([]byte{format.Version}, next))
	s.lease.Fresh(&b, s.keys.Prefix)
	return list, holdfast.Commit(s.eng, &b, s.o.Level)
}

// numbers returns the ids of the namespaces of which there is anything, by their numbers, "" where the description is
// lost, and a number above all of them.
func (s *Store) numbers() (ids map[uint64]string, next uint64, err error) {
	ids = map[uint64]string{}
	deleted := map[uint64]bool{}
	found := func(number uint64) {
		if _, known := ids[number]; !known {
			ids[number] = ""
		}
		next = max(next, number+1)
	}
	logs, err := event.Examine(s.eng)
	if err != nil {
		return nil, 0, err
	}
	for _, log := range logs {
		if name, number, ok := format.SplitLogName(log.Name); ok && name == s.o.Name {
			found(number)
		}
	}
	it := s.eng.Scan(holdfast.Prefix(s.keys.Prefix))
	defer it.Close()
	for it.Next() {
		_, table, rest, ok := keyspace.Split(format.Kind, it.Key())
		switch {
		case !ok:
		case table == format.TableMeta:
			if value := it.Value(); len(value) == 9 {
				number, _ := format.Number(value[1:])
				next = max(next, number)
			}
		case table == format.TableNamespaces:
			var d description
			if json.Unmarshal(it.Value(), &d) == nil && d.Number > 0 {
				found(d.Number)
				ids[d.Number] = string(rest)
			}
		case len(rest) >= 8:
			number, _ := format.Number(rest[:8])
			found(number)
			deleted[number] = deleted[number] || table == format.TableDeleted
		}
	}
	if next > 0 && !slices.Contains(slices.Collect(maps.Values(ids)), Default) {
		found(1) // every store has had it
	}

	// What is left of a namespace that was being deleted is not brought back: the store removes the rest when it is
	// opened.
	for number := range deleted {
		if deleted[number] {
			delete(ids, number)
		}
	}
	return ids, next, it.Err()
}

// recover describes a namespace anew whose description is lost, and returns its id.
func (s *Store) recover(number uint64) (string, error) {
	id := fmt.Sprint("recovered-", number)
	if _, err := s.eng.Get(nil, s.keys.Namespace(Default)); number == 1 && errors.Is(err, holdfast.ErrNotFound) {
		id = Default
	}
	value, err := json.Marshal(description{Number: number, Description: "found by a rebuild", Created: time.Now().UTC()})
	if err != nil {
		return "", err
	}
	var b holdfast.Batch
	b.Set(s.keys.Namespace(id), value)
	return id, holdfast.Commit(s.eng, &b, s.o.Level)
}

// rebuild makes the indexes of a namespace anew. What is missing is added before anything is dropped.
func (s *Store) rebuild(ctx context.Context, number uint64, r *Rebuilt) error {
	n := s.namespace(r.ID, description{Number: number})

	// The log may have lost its end. What else mentions a later position keeps it from being given again.
	last, err := n.lastKnown(ctx)
	if err != nil {
		return err
	}
	o := event.Options{Name: format.LogName(s.o.Name, number), Level: s.o.Level, IDWindow: idWindow,
		FoldIDs: true}
	if r.Log, err = event.Rebuild(ctx, s.eng, o, last); err != nil {
		return err
	}
	log, err := event.Open(kv.On(s.eng), o)
	if err != nil {
		return err
	}
	n.opened.Store(log)
	err = n.addIndexes(ctx)
	if err == nil {
		err = n.dropIndexes(ctx, r)
	}
	return errors.Join(err, log.Close())
}

// lastKnown is the last global position that anything but the log mentions.
func (n *Namespace) lastKnown(ctx context.Context) (last uint64, err error) {
	for _, table := range []byte{format.TableStreams, format.TableCounted, format.TableDeliveries, format.TableParked} {
		lo, hi := n.keys.Bounds(table)
		err := chunks.Each(ctx, n.store.eng, lo, hi, func(key, value []byte) error {
			_, at, placed := n.keys.Placed(key)
			number, ok := format.Number(value)
			switch {
			case table == format.TableStreams && ok, table == format.TableCounted && ok:
				last = max(last, number)
			case table == format.TableDeliveries && placed && at == 0 && ok: // the first that is not done
				last = max(last, number-min(number, 1))
			case table == format.TableDeliveries && placed, table == format.TableParked && placed:
				last = max(last, at)
			}
			return nil
		}, nil)
		if err != nil {
			return 0, err
		}
	}
	return last, nil
}

// rebuildBytes is about how large the batches of a rebuild get.
const rebuildBytes = 1 << 18

// addIndexes adds what finds the messages of the log.
func (n *Namespace) addIndexes(ctx context.Context) error {
	var b holdfast.Batch
	var key []byte
	for r, err := range n.log().Records(ctx, 0, 0) {
		if err != nil {
			return err
		}
		stream, position, _, ok := format.Place(r.Origin)
		if !ok {
			return n.foreign(r.Position)
		}
		key = n.keys.Stream(key, string(stream), position)
		b.Set(key, format.AppendNumber(nil, r.Position))
		key = n.keys.Category(key, Category(string(stream)), r.Position/format.BlockSize)
		b.Set(key, nil)
		if b.Size() > rebuildBytes {
			if err := n.commit(context.Background(), &b); err != nil {
				return err
			}
			b.Reset()
		}
	}
	return n.commit(context.Background(), &b)
}

// dropIndexes drops what leads to messages that are lost, keeps the versions that streams have had, and counts the
// rest.
func (n *Namespace) dropIndexes(ctx context.Context, r *Rebuilt) error {
	var b holdfast.Batch
	commit := func() error {
		err := n.commit(context.Background(), &b)
		b.Reset()
		return err
	}
	all := map[string]counts{}
	stream, lost, left := "", NoStream, NoStream // the last positions of the stream
	finish := func() error {
		if left != NoStream {
			all[Category(stream)] = all[Category(stream)].plus(counts{streams: 1})
		}
		if lost <= left {
			return nil
		}
		s, err := n.special(stream)
		if err != nil {
			return err
		}
		if s == nil {
			s = &special{Version: NoStream}
		}
		s.Version = max(s.Version, lost)
		return n.addSpecial(&b, stream, s)
	}
	lo, hi := n.keys.Bounds(format.TableStreams)
	err := chunks.Each(ctx, n.store.eng, lo, hi, func(key, value []byte) error {
		name, position, ok := n.keys.Placed(key)
		global, ok2 := format.Number(value)
		if !ok || !ok2 {
			return n.strange(key)
		}
		if string(name) != stream {
			if err := finish(); err != nil {
				return err
			}
			stream, lost, left = string(name), NoStream, NoStream
		}
		m, err := n.at(ctx, global)
		if err != nil && !errors.Is(err, holdfast.ErrNotFound) && !errors.Is(err, event.ErrTruncated) {
			return err
		}

		// An entry counts only if the message says the same about itself.
		if err == nil && m.Stream == stream && m.Position == int64(position) {
			left = int64(position)
			all[Category(stream)] = all[Category(stream)].plus(counts{messages: 1})
			return nil
		}
		lost = int64(position)
		r.Dropped++
		b.Delete(key)
		return nil
	}, commit)
	if err == nil {
		err = finish()
	}
	if err != nil {
		return err
	}
	var total counts
	for category, c := range all {
		total = total.plus(c)
		n.setCounts(&b, category, c)
		if b.Size() > rebuildBytes {
			if err := commit(); err != nil {
				return err
			}
		}
	}

	// Counts of categories that have no messages any more were not overwritten above.
	lo, hi = n.keys.Bounds(format.TableCounts)
	err = chunks.Each(ctx, n.store.eng, lo, hi, func(key, _ []byte) error {
		if name := n.keys.Named(key); all[name].messages == 0 && name != "" {
			b.Delete(slices.Clone(key))
		}
		return nil
	}, commit)
	if err != nil {
		return err
	}
	n.setCounts(&b, "", total)
	b.Set(n.keys.Counted(), format.AppendNumber(nil, n.log().Last()))
	return commit()
}
