package data

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// Several Data can be one server's: spaces, of which each namespace lies in one. The first space lists all namespaces
// and has all tokens. Those that lie in others are in a bucket of its database, called elsewhere in the bucket
// holdfast, by their ids: a version (1 byte, now 1) and a record as JSON with the number of the space.
//
// A namespace is made in its space before it is listed, and is removed there before it leaves the list. So one that is
// listed is there, and one that is not is empty: nobody has been led to it. Each making has a mark of its own, by which
// a removal that comes late does not remove the next one of the same id.

// Spaces is how the data of the first space reaches the others.
type Spaces interface {
	// Choose returns where the next namespace is to lie; has tells how many lie in a space.
	Choose(has func(space int) int) int
	// Make makes a namespace in a space, as Make of its data does.
	Make(ctx context.Context, space int, info message.Info, mark string) (string, error)
	// Remove removes it, as Remove of its data does.
	Remove(ctx context.Context, space int, namespace, mark string) (messages int64, err error)
	// Totals tells what namespaces of a space have; those that are not there are left out.
	Totals(ctx context.Context, space int, namespaces []string) (map[string]Total, error)
	// Step does a step of a move in a space.
	Step(ctx context.Context, space int, s Step) error
	// Revoked is called when tokens are gone: it returns when nobody takes them for good any more.
	Revoked(ctx context.Context)
}

// Total is what a namespace has, each [holdfast.Unknown] if that cannot be told now.
type Total struct{ Messages, Streams, Last int64 }

// seat is where a namespace lies that is not here.
type seat struct {
	space int
	mark  string
}

// directory is which namespaces there are.
type directory struct {
	mu        sync.Mutex
	here      map[string]bool
	elsewhere map[string]seat
	has       map[int]int              // how many of elsewhere are in a space
	busy      map[string]chan struct{} // namespaces that are being made, removed or moved
	moving    map[string]Stage

	steps sync.RWMutex // of moves
}

func elsewhere(tx *kv.Tx) *kv.Bucket { return tx.Bucket("holdfast", "elsewhere") }

// load reads which namespaces there are.
func (d *Data) load() error {
	c := &d.directory
	c.here, c.elsewhere, c.has = map[string]bool{}, map[string]seat{}, map[int]int{}
	c.busy = map[string]chan struct{}{}
	list, err := d.messages.Namespaces(context.Background(), "", 0)
	if err != nil && !errors.Is(err, holdfast.ErrCorrupt) {
		return err
	}
	for _, info := range list {
		c.here[info.ID] = true
	}

	err = d.db.Latest(context.Background(), func(tx *kv.Tx) error {
		for key, value := range elsewhere(tx).All() {
			r, err := read(key, value)
			if err != nil { // whoever lists namespaces is told
				continue
			}
			c.elsewhere[string(key)] = seat{r.Space, r.Mark}
			c.has[r.Space]++
		}

		return nil
	})
	if err != nil {
		return err
	}

	return d.loadMoves()
}

// set notes that a namespace is here, or no more.
func (c *directory) set(namespace string, here bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if here {
		c.here[namespace] = true
	} else {
		delete(c.here, namespace)
	}
}

// put notes where a namespace lies, or, without a space, that there is none.
func (c *directory) put(namespace string, at seat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was, ok := c.elsewhere[namespace]; ok {
		c.has[was.space]--
		delete(c.elsewhere, namespace)
	}
	if at.space > 0 {
		c.elsewhere[namespace] = at
		c.has[at.space]++
	}
}

// alone lets one caller at a time make or remove a namespace. ErrNested: another one may wait for the function of the
// transaction that calls it.
func (d *Data) alone(ctx context.Context, namespace string) (done func(), err error) {
	c := &d.directory
	for {
		c.mu.Lock()
		wait, taken := c.busy[namespace]
		if !taken {
			free := make(chan struct{})
			c.busy[namespace] = free
			c.mu.Unlock()

			return func() {
				c.mu.Lock()
				delete(c.busy, namespace)
				c.mu.Unlock()
				close(free)
			}, nil
		}
		c.mu.Unlock()
		if err := d.outsideOf(namespace); err != nil {
			return nil, err
		}
		if err := await(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// Has reports whether a namespace is in this data.
func (d *Data) Has(namespace string) bool {
	d.directory.mu.Lock()
	defer d.directory.mu.Unlock()

	return d.directory.here[namespace]
}

// Lies returns the space in which a namespace lies, 0 if that is this one, or there is none.
func (d *Data) Lies(namespace string) (space int) {
	d.directory.mu.Lock()
	defer d.directory.mu.Unlock()

	return d.directory.elsewhere[namespace].space
}

// choose returns where the next namespace is to lie.
func (d *Data) choose() int {
	if d.o.Spaces == nil {
		return 0
	}
	d.directory.mu.Lock()
	defer d.directory.mu.Unlock()

	return d.o.Spaces.Choose(func(space int) int {
		if space == 0 {
			return len(d.directory.here)
		}
		return d.directory.has[space]
	})
}

// listed reports whether a namespace lies in another space.
func listed(tx *kv.Tx, namespace string) (bool, error) {
	_, err := elsewhere(tx).Get([]byte(namespace))
	if errors.Is(err, holdfast.ErrNotFound) || errors.Is(err, holdfast.ErrBadKey) {
		return false, nil
	}

	return err == nil, err
}

func exists(namespace string) error {
	return &holdfast.Error{Op: "create namespace", Class: message.ErrNamespaceExists, Detail: fmt.Sprintf("%q", namespace)}
}

// createIn makes a namespace in another space, and lists it here with its token.
func (d *Data) createIn(ctx context.Context, space int, o message.NamespaceOptions, token string) (
	message.Info, error) {
	free := func(tx *kv.Tx) error {
		switch there, err := listed(tx, o.ID); {
		case err != nil:
			return err
		case there:
			return exists(o.ID)
		}
		_, err := d.messages.In(tx).Info(o.ID)
		if err == nil {
			return exists(o.ID)
		}
		if errors.Is(err, message.ErrNoNamespace) {
			return nil
		}

		return err
	}
	if err := d.messages.Check(o); err != nil {
		return message.Info{}, err
	}
	if d.Has(o.ID) || d.Lies(o.ID) > 0 {
		return message.Info{}, exists(o.ID)
	}
	info := message.Info{ID: o.ID, Description: o.Description, Metadata: o.Metadata, Created: time.Now().UTC()}
	mark, err := d.o.Spaces.Make(ctx, space, info, rand.Text())
	if err != nil {
		return message.Info{}, err
	}
	err = d.db.Update(ctx, func(tx *kv.Tx) error {
		if err := free(tx); err != nil {
			return err
		}
		if err := putIn(elsewhere(tx), info, space, mark); err != nil || token == "" {
			return err
		}

		return auth.AddOwn(tx, o.ID, token)
	})
	if err != nil {
		return message.Info{}, err
	}
	d.directory.put(o.ID, seat{space, mark})

	return info, nil
}

// deleteIn deletes a namespace that lies in another space.
func (d *Data) deleteIn(ctx context.Context, namespace string, at seat) (messages int64, err error) {
	messages, err = d.o.Spaces.Remove(ctx, at.space, namespace, at.mark)
	if err != nil && !errors.Is(err, message.ErrNoNamespace) { // else it was gone, and the list did not know it yet
		return 0, err
	}
	if err := d.removeBuckets(ctx, namespace); err != nil {
		return 0, err
	}
	if err := d.removeFurther(ctx, namespace); err != nil {
		return 0, err
	}
	err = d.db.Update(ctx, func(tx *kv.Tx) error {
		if err := elsewhere(tx).Delete([]byte(namespace)); err != nil {
			return err
		}

		return auth.RemoveAll(tx, namespace)
	})
	d.tokens.Changed()
	if err == nil {
		d.directory.put(namespace, seat{})
	}

	return messages, err
}

// Make makes a namespace that the first space is going to list, and returns its mark: the one that is given, or, if it
// is here already and empty, because the one who made it could not list it, that which it has. ErrLocked: something is
// here.
func (d *Data) Make(ctx context.Context, info message.Info, mark string) (string, error) {
	done, err := d.alone(ctx, info.ID)
	if err != nil {
		return "", err
	}
	defer done()
	d.directory.steps.Lock()
	defer d.directory.steps.Unlock()
	if d.IsMoving(info.ID) {
		return "", left(info.ID)
	}
	there := false
	err = d.db.At(d.strongest()).Update(ctx, func(tx *kv.Tx) error {
		value, err := bucket(tx).Get([]byte(info.ID))
		if there = err == nil; there {
			r, err := read([]byte(info.ID), value)
			mark = r.Mark

			return err
		}
		if _, err := d.messages.In(tx).Create(message.NamespaceOptions{ID: info.ID}); err != nil {
			return err
		}

		return putIn(bucket(tx), info, 0, mark)
	})
	if err != nil {
		return "", err
	}
	d.directory.set(info.ID, true)
	if !there { // whatever was removed with that name was removed before it
		return mark, nil
	}
	counts, _, err := d.messages.Totals(ctx, info.ID)
	if err != nil {
		return "", err
	}
	logs, err := event.LogsWith(ctx, d.engine, info.ID+"/")
	if err != nil {
		return "", err
	}
	tasks, err := task.Exists(d.engine, name(info.ID, ""))
	if err != nil {
		return "", err
	}
	if counts.Messages > 0 || len(logs) > 0 || tasks {
		return "", left(info.ID)
	}

	return mark, nil
}

func left(namespace string) error {
	return &holdfast.Error{Op: "namespace", Class: holdfast.ErrLocked, Remedy: "try again later",
		Detail: fmt.Sprintf("something is left of an earlier %q", namespace)}
}

func (d *Data) strongest() holdfast.Level { return d.engine.Capabilities().Strongest() }

// Remove deletes a namespace that Make has made with that mark. ErrNoNamespace: it is not here.
func (d *Data) Remove(ctx context.Context, namespace, mark string) (messages int64, err error) {
	if err := d.outsideOf(namespace); err != nil {
		return 0, err
	}
	done, err := d.alone(ctx, namespace)
	if err != nil {
		return 0, err
	}
	defer done()
	if err := d.marked(ctx, namespace, mark); err != nil {
		return 0, err
	}

	return d.deleteHere(holdfast.WithLevel(ctx, d.strongest()), namespace)
}

// marked returns ErrNoNamespace if there is no namespace here with that mark.
func (d *Data) marked(ctx context.Context, namespace, mark string) error {
	err := d.db.Latest(ctx, func(tx *kv.Tx) error {
		value, err := bucket(tx).Get([]byte(namespace))
		if err != nil {
			return err
		}
		if r, err := read([]byte(namespace), value); err != nil || r.Mark != mark {
			return errors.Join(err, holdfast.ErrNotFound)
		}

		return nil
	})
	if errors.Is(err, holdfast.ErrNotFound) {
		return &holdfast.Error{Op: "namespace", Class: message.ErrNoNamespace, Detail: fmt.Sprintf("%q", namespace)}
	}

	return err
}

// Total tells what a namespace of this data has.
func (d *Data) Total(ctx context.Context, namespace string) (Total, error) {
	counts, last, err := d.messages.Totals(ctx, namespace)

	return Total{counts.Messages, counts.Streams, last}, err
}

// OwnTotals tells what namespaces of this data have. Those that are not there are left out.
func (d *Data) OwnTotals(ctx context.Context, namespaces []string) (map[string]Total, error) {
	all := make(map[string]Total, len(namespaces))
	var mu sync.Mutex

	// Each takes several reads, one after the other, and each of those a round trip where the engine is a server.
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(totalsAtOnce)
	for _, id := range namespaces {
		group.Go(func() error {
			total, err := d.Total(ctx, id)
			if errors.Is(err, message.ErrNoNamespace) { // deleted by now
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			all[id] = total

			return err
		})
	}

	return all, group.Wait()
}

// totalsAtOnce is how many namespaces are read beside each other: a fraction of the connections of an engine over a
// network.
const totalsAtOnce = 16

// Totals tells what namespaces have, wherever they lie. Those that are not there are left out.
func (d *Data) Totals(ctx context.Context, namespaces []message.Info) (map[string]Total, error) {
	in := map[int][]string{}
	for _, info := range namespaces {
		space := d.Lies(info.ID)
		in[space] = append(in[space], info.ID)
	}

	// Other spaces are asked while this one is read. What those have whom nobody owns is unknown.
	all := make(map[string]Total, len(namespaces))
	var mu sync.Mutex
	var asked sync.WaitGroup
	for space, ids := range in {
		if space == 0 {
			continue
		}
		asked.Go(func() {
			totals, err := d.o.Spaces.Totals(ctx, space, ids)
			mu.Lock()
			defer mu.Unlock()
			for _, id := range ids {
				if total, ok := totals[id]; ok {
					all[id] = total
				} else if err != nil {
					all[id] = Total{holdfast.Unknown, holdfast.Unknown, holdfast.Unknown}
				}
			}
		})
	}
	own, err := d.OwnTotals(ctx, in[0])
	asked.Wait()
	maps.Copy(all, own)

	return all, err
}

// putIn keeps what describes a namespace in a bucket.
func putIn(b *kv.Bucket, info message.Info, space int, mark string) error {
	if string(info.Metadata) == "null" { // that is how nothing comes from another process
		info.Metadata = nil
	}
	value, err := json.Marshal(record{info.Description, info.Metadata, info.Created, space, mark})
	if err != nil {
		return &holdfast.Error{Op: "create namespace", Class: holdfast.ErrBadOption, Cause: err,
			Detail: fmt.Sprintf("%q", info.ID)}
	}

	return b.Put([]byte(info.ID), append([]byte{version}, value...))
}

// sorted sorts namespaces by their ids.
func sorted(list []message.Info) {
	slices.SortFunc(list, func(a, b message.Info) int { return strings.Compare(a.ID, b.ID) })
}
