package event

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/receipts"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
)

// LogInfo describes a log in an engine.
type LogInfo struct {
	Name string
	// Owner is the package that keeps the log for its own ends, "message" for a namespace of messages: what comes before
	// the first zero byte in the name. It is "" for a log that a program has named without one.
	Owner string
	// First and Last are its positions, as in [Store.First] and [Store.Last]. Last may be that of an append which is not
	// durable yet.
	First, Last uint64
}

// Logs lists the logs in r, an engine or a snapshot of one, open or not, in the order of their names' lengths and then
// bytes. It takes a few seeks for each log, however long they are. Only what can be opened is listed, and an error
// names what cannot because its description is damaged or of a newer format; the others are listed all the same.
// [Examine] finds logs without a description, too.
func Logs(ctx context.Context, r holdfast.Reader) ([]LogInfo, error) {
	list, failed, err := logsIn(ctx, r, format.Kind.All())
	if err != nil {
		return nil, err
	}
	return list, errors.Join(failed...)
}

// LogsWith is [Logs] of those whose names begin with prefix. Other logs cost it nothing, but it takes up to MaxNameSize
// seeks.
func LogsWith(ctx context.Context, r holdfast.Reader, prefix string) (list []LogInfo, err error) {
	var failed []error
	for size := len(prefix); size <= MaxNameSize; size++ { // keys of names of one length lie together
		l, f, err := logsIn(ctx, r, format.Kind.Named(size, prefix))
		if err != nil {
			return nil, err
		}
		list, failed = append(list, l...), append(failed, f...)
	}
	return list, errors.Join(failed...)
}

// Keys are the keys of the log of that name.
func Keys(name string) holdfast.Range { return holdfast.Prefix(format.NewPrefix(name).Prefix) }

// Subscriptions lists the subscriptions of the log in r, as [Store.Subscriptions] does of one that is open. One may be
// where a save has put it that is not durable yet.
func (l LogInfo) Subscriptions(r holdfast.Reader) ([]Cursor, error) {
	list, err := scanCursors(r, format.NewPrefix(l.Name), format.TableOffsets)
	measure(list, l.First, l.Last)
	return list, err
}

// Describe describes the log of that name in r, an engine or a snapshot of one, open or not. ErrNotFound: there is
// none.
func Describe(r holdfast.Reader, name string) (LogInfo, error) {
	if len(name) > MaxNameSize { // no log can have it
		return LogInfo{}, holdfast.ErrNotFound
	}
	return describeLog(r, format.NewPrefix(name), name)
}

// logsIn describes the logs whose keys begin in a range, and says what keeps some of them from being described.
func logsIn(ctx context.Context, r holdfast.Reader, within holdfast.Range) (list []LogInfo, failed []error, err error) {
	for {
		if err := holdfast.CheckContext(ctx); err != nil {
			return nil, nil, err
		}
		key, err := firstKey(r, within)
		if key == nil || err != nil {
			return list, failed, err
		}
		name, _, _, ok := keyspace.Split(format.Kind, key)
		if !ok { // a key of the program's own
			within.Lo = append(key, 0)
			continue
		}
		keys := format.NewPrefix(name)
		_, within.Lo = keys.Bounds()
		switch info, err := describeLog(r, keys, name); {
		case err == nil:
			list = append(list, info)
		case !errors.Is(err, holdfast.ErrNotFound):
			failed = append(failed, fmt.Errorf("event list: log %q: %w", name, err))
		}
	}
}

func describeLog(r holdfast.Reader, keys format.Prefix, name string) (info LogInfo, err error) {
	value, err := r.Get(nil, keys.Meta())
	if err != nil {
		return info, err
	}
	m, err := format.DecodeMeta(value)
	if err != nil {
		return info, err
	}
	info = LogInfo{Name: name, First: m.First, Last: m.First - 1}
	if owner, _, owned := strings.Cut(name, "\x00"); owned {
		info.Owner = owner
	}
	_, hi := keys.Events()
	key, err := firstKey(r, holdfast.Range{Lo: keys.Event(nil, m.First), Hi: hi, Reverse: true})
	if pos, ok := keys.Number(key); ok {
		info.Last = max(info.Last, pos)
	}
	return info, err
}

// firstKey returns the first key that a scan of that range gives, nil if it gives none.
func firstKey(r holdfast.Reader, in holdfast.Range) ([]byte, error) {
	it := r.Scan(in)
	defer it.Close()
	if !it.Next() {
		return nil, it.Err()
	}
	return bytes.Clone(it.Key()), nil
}

// Cursor describes a subscription or a snapshot of a log.
type Cursor struct {
	Name     string
	Position uint64 // the last one that it has come past, 0 for none
	Lag      uint64 // how many positions of the log come after that
	Missed   uint64 // how many of these are truncated, so that it can never read them
	Size     int    // of a snapshot's state in bytes, 0 for a subscription
}

// Subscriptions lists the subscriptions that have an offset, in the order of their names. As LoadOffset does, it waits
// until saves in progress are durable, and it fails after one has failed.
func (s *Store) Subscriptions(ctx context.Context) ([]Cursor, error) {
	return s.cursors(ctx, format.TableOffsets)
}

// Snapshots lists the snapshots, in the order of their names, as Subscriptions does.
func (s *Store) Snapshots(ctx context.Context) ([]Cursor, error) {
	return s.cursors(ctx, format.TableSnapshots)
}

func (s *Store) cursors(ctx context.Context, table byte) ([]Cursor, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.life.Leave()
	list, err := s.listCursors(ctx, table)
	return list, s.met(err)
}

// listCursors is called by one that has entered.
func (s *Store) listCursors(ctx context.Context, table byte) ([]Cursor, error) {
	list, err := scanCursors(s.eng, s.keys, table)
	if err != nil {
		return nil, err
	}
	// An engine may show what a crash could still take back. All that was read had been applied by then.
	lo, hi := s.keys.Table(table)
	s.turn.Lock()
	saves := maps.Clone(s.saves)
	s.turn.Unlock()
	for key, w := range saves {
		if key < string(lo) || key >= string(hi) {
			continue
		}
		if err := receipts.WaitFor(ctx, w.wait); err != nil {
			return nil, err
		}
	}
	measure(list, s.first.Load(), s.durable.Load())
	return list, nil
}

// measure tells how far cursors are behind in a log with these positions.
func measure(list []Cursor, first, last uint64) {
	for i := range list {
		c := &list[i]
		c.Lag = last - min(c.Position, last)
		c.Missed = first - min(c.Position+1, first)
	}
}

func scanCursors(r holdfast.Reader, keys format.Prefix, table byte) (list []Cursor, err error) {
	lo, hi := keys.Table(table)
	it := r.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()
	for it.Next() {
		name := string(keys.Rest(it.Key()))
		pos, state, ok := format.DecodeCursor(it.Value())
		if !ok {
			return nil, &holdfast.Error{Op: "event list", Class: holdfast.ErrCorrupt, Remedy: "save it again, or delete it",
				Detail: fmt.Sprintf("what is kept for %q cannot be read", name)}
		}
		list = append(list, Cursor{Name: name, Position: pos, Size: len(state)})
	}
	return list, it.Err()
}

// missed lists the subscriptions and snapshots that have not come past all of what is truncated. It is called by one
// that has entered.
func (s *Store) missed(ctx context.Context) (subscriptions, snapshots []Cursor, err error) {
	if subscriptions, err = s.listCursors(ctx, format.TableOffsets); err == nil {
		snapshots, err = s.listCursors(ctx, format.TableSnapshots)
	}
	caughtUp := func(c Cursor) bool { return c.Missed == 0 }
	return slices.DeleteFunc(subscriptions, caughtUp), slices.DeleteFunc(snapshots, caughtUp), err
}
