package data

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// A namespace is moved by copying its keys, while nobody is led to it:
//
//	first space   notes the move                                      moves: from, to, id, mark
//	target        arrive: makes room                                  arriving: id, mark, number
//	source        leave: answers nobody any more, and copies it       leaving: id
//	target        adopt: makes a namespace of the copy
//	first space   lists it in the target, and ends the move           one transaction: from here on it is there
//	target        live: answers
//	source        gone: removes what it had
//
// The notes are in buckets, so each side knows after a crash what it was about, and answers nobody. It asks the first
// space then: while the move goes on there, it waits; else it is where the list says, and the other side removes what
// it has, the source not before the target answers. A new owner of the first space ends moves that it finds.

// Stage is where a namespace is that is being moved.
type Stage struct {
	Arriving bool
	ID, Mark string
	Number   uint64       // that of its messages
	Info     message.Info // what describes it
}

// Chunk is a part of a namespace that is copied. Keys of its messages are without what they begin with, which part
// numbers, from 1; with part 0 they are whole.
type Chunk struct {
	Namespace, ID string
	Part          int
	Keys, Values  [][]byte
}

// Step is what a space is to do for a move.
type Step struct {
	Op, Namespace, ID string
	Mark              string       // of arrive
	Info              message.Info // of arrive
	To                int          // of leave
}

// move is what the first space notes of one.
type move struct {
	ID, Mark string
	From, To int
}

// Where is what the first space says of a namespace.
type Where struct {
	Space    int
	ID, Mark string // ID is that of a move that goes on, "" for none
}

func moves(tx *kv.Tx) *kv.Bucket   { return tx.Bucket("holdfast", "moves") }
func staging(tx *kv.Tx) *kv.Bucket { return tx.Bucket("holdfast", "moving") }

func putJSON(b *kv.Bucket, key string, v any) error {
	value, err := json.Marshal(v)
	if err != nil {
		return err
	}

	return b.Put([]byte(key), append([]byte{version}, value...))
}

func getJSON(b *kv.Bucket, key string, v any) error {
	value, err := b.Get([]byte(key))
	if err != nil {
		return err
	}
	if len(value) == 0 || value[0] != version || json.Unmarshal(value[1:], v) != nil {
		return &holdfast.Error{Op: "move namespace", Class: holdfast.ErrCorrupt,
			Detail: fmt.Sprintf("what is noted of the move of %q cannot be read", key)}
	}

	return nil
}

// loadMoves reads what an earlier owner has left of moves.
func (d *Data) loadMoves() error {
	c := &d.directory
	c.moving = map[string]Stage{}
	if d.o.Spaces != nil { // whoever moved something is not there any more
		err := d.db.At(d.strongest()).Update(context.Background(), func(tx *kv.Tx) error {
			if there, err := moves(tx).Exists(); err != nil || !there {
				return err
			}

			return tx.Bucket("holdfast").DeleteBucket("moves")
		})
		if err != nil {
			return err
		}
	}
	err := d.db.Latest(context.Background(), func(tx *kv.Tx) error {
		for key := range staging(tx).All() {
			var s Stage
			if err := getJSON(staging(tx), string(key), &s); err != nil {
				return err
			}
			c.moving[string(key)] = s
		}

		return nil
	})
	if err != nil {
		return err
	}
	for namespace, s := range c.moving {
		if s.Arriving && !c.here[namespace] { // the messages are gone: Reserve says so
			if err := d.drop(context.Background(), namespace, s); err != nil {
				return err
			}
		}
	}

	return nil
}

// Moving tells which namespaces are being moved here or from here, which answer nobody.
func (d *Data) Moving() map[string]Stage {
	d.directory.mu.Lock()
	defer d.directory.mu.Unlock()
	all := make(map[string]Stage, len(d.directory.moving))
	for namespace, s := range d.directory.moving {
		all[namespace] = s
	}

	return all
}

// IsMoving reports whether a namespace is being moved here or from here.
func (d *Data) IsMoving(namespace string) bool {
	d.directory.mu.Lock()
	defer d.directory.mu.Unlock()
	_, moving := d.directory.moving[namespace]

	return moving
}

// stage notes, durably, what becomes of a namespace here: nil for nothing more.
func (d *Data) stage(ctx context.Context, namespace string, s *Stage) error {
	err := d.db.At(d.strongest()).Update(ctx, func(tx *kv.Tx) error {
		if s == nil {
			return staging(tx).Delete([]byte(namespace))
		}

		return putJSON(staging(tx), namespace, s)
	})
	if err != nil {
		return err
	}
	d.directory.mu.Lock()
	defer d.directory.mu.Unlock()
	if s == nil {
		delete(d.directory.moving, namespace)
	} else {
		d.directory.moving[namespace] = *s
	}

	return nil
}

// at returns the stage of a namespace in a move; ok is false if it is in none, or in another one.
func (d *Data) at(namespace, id string) (s Stage, ok bool) {
	d.directory.mu.Lock()
	defer d.directory.mu.Unlock()
	s, ok = d.directory.moving[namespace]

	return s, ok && s.ID == id
}

// noMove is the error of a step of a move that is not known here. It may be repeated: a space that gets another owner
// in the middle forgets what was arriving.
func noMove(namespace string) error {
	return &holdfast.Error{Op: "move namespace", Class: holdfast.ErrLocked,
		Detail: fmt.Sprintf("%q is not being moved any more; a space may have got another owner", namespace),
		Remedy: "it is where it was: move it again"}
}

// Move moves a namespace to another space. While it is under way the namespace is not answered for; then all of it is
// there as it was: positions, ids, leases, tokens. If it fails it stays where it is. It is called in the first space.
func (d *Data) Move(ctx context.Context, namespace string, to int) (err error) {
	if d.o.Spaces == nil || namespace == message.Default {
		return &holdfast.Error{Op: "move namespace", Class: holdfast.ErrBadOption,
			Detail: "the namespace default lies in the first space, and without several spaces there is nowhere to go"}
	}
	done, err := d.alone(ctx, namespace)
	if err != nil {
		return err
	}
	defer done()
	from, info, err := d.find(ctx, namespace)
	if err != nil || from == to {
		return err
	}
	m := move{ID: rand.Text(), Mark: rand.Text(), From: from, To: to}
	note := func(f func(tx *kv.Tx) error) error {
		return d.db.At(d.strongest()).Update(context.WithoutCancel(ctx), f)
	}
	if err := note(func(tx *kv.Tx) error { return putJSON(moves(tx), namespace, m) }); err != nil {
		return err
	}
	step := func(space int, s Step) error {
		s.Namespace, s.ID = namespace, m.ID
		return d.o.Spaces.Step(ctx, space, s)
	}
	err = step(to, Step{Op: "arrive", Mark: m.Mark, Info: info})
	if err == nil {
		err = step(from, Step{Op: "leave", To: to})
	}
	if err == nil {
		err = step(to, Step{Op: "adopt"})
	}
	end := func(tx *kv.Tx) error { return moves(tx).Delete([]byte(namespace)) }
	if err != nil {
		if wrong := note(end); wrong != nil {
			return errors.Join(err, wrong)
		}
		ctx = context.WithoutCancel(ctx) // what these do not do now they do when they ask
		return errors.Join(err, step(from, Step{Op: "stay"}), step(to, Step{Op: "drop"}))
	}
	err = note(func(tx *kv.Tx) error {
		var now move
		if err := getJSON(moves(tx), namespace, &now); err != nil || now.ID != m.ID {
			return cmp.Or(err, noMove(namespace))
		}
		if err := end(tx); err != nil {
			return err
		}
		if to == 0 {
			return elsewhere(tx).Delete([]byte(namespace))
		}

		return putIn(elsewhere(tx), info, to, m.Mark)
	})
	if err != nil {
		return err
	}
	d.directory.put(namespace, seat{to, m.Mark})
	ctx = context.WithoutCancel(ctx)
	if err := step(to, Step{Op: "live"}); err != nil {
		return fmt.Errorf("it is in space %d, which does not answer yet: %w", to, err)
	}

	return step(from, Step{Op: "gone"})
}

// find returns where a namespace lies, and what describes it.
func (d *Data) find(ctx context.Context, namespace string) (space int, info message.Info, err error) {
	err = d.db.Latest(ctx, func(tx *kv.Tx) error {
		value, err := elsewhere(tx).Get([]byte(namespace))
		if errors.Is(err, holdfast.ErrNotFound) || errors.Is(err, holdfast.ErrBadKey) {
			return nil
		}
		if err != nil {
			return err
		}
		r, err := read([]byte(namespace), value)
		space = r.Space
		info = message.Info{ID: namespace, Description: r.Description, Metadata: r.Metadata, Created: r.Created}

		return err
	})
	if err != nil || space > 0 {
		return space, info, err
	}
	info, err = d.Info(ctx, namespace)

	return 0, info, err
}

// Where says, for a space that asks, where a namespace lies. It is called in the first one.
func (d *Data) Where(ctx context.Context, namespace string) (w Where, err error) {
	err = d.db.Latest(ctx, func(tx *kv.Tx) error {
		var m move
		switch err := getJSON(moves(tx), namespace, &m); {
		case err == nil:
			w.ID = m.ID
		case !errors.Is(err, holdfast.ErrNotFound):
			return err
		}
		value, err := elsewhere(tx).Get([]byte(namespace))
		if errors.Is(err, holdfast.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		r, err := read([]byte(namespace), value)
		w.Space, w.Mark = r.Space, r.Mark

		return err
	})

	return w, err
}

// Do does what a step says, but for leave, which is Leave and Copy. Each may be repeated.
func (d *Data) Do(ctx context.Context, s Step) error {
	d.directory.steps.Lock()
	defer d.directory.steps.Unlock()
	at, ok := d.at(s.Namespace, s.ID)
	switch {
	case s.Op == "arrive" && !ok:
		return d.arrive(ctx, s)
	case s.Op == "adopt" && ok && at.Arriving:
		return d.adopt(ctx, s.Namespace, at)
	case s.Op == "adopt":
		return noMove(s.Namespace)
	case s.Op == "live" && ok && at.Arriving, s.Op == "stay" && ok && !at.Arriving:
		return d.stage(ctx, s.Namespace, nil)
	case s.Op == "live" && !d.Has(s.Namespace):
		return noMove(s.Namespace)
	case s.Op == "drop" && ok && at.Arriving:
		return d.drop(ctx, s.Namespace, at)
	case s.Op == "gone" && ok && !at.Arriving:
		return d.drop(ctx, s.Namespace, at)
	}

	return nil
}

// arrive makes room for a namespace.
func (d *Data) arrive(ctx context.Context, s Step) error {
	if d.IsMoving(s.Namespace) || d.Has(s.Namespace) {
		return left(s.Namespace)
	}
	at := Stage{Arriving: true, ID: s.ID, Mark: s.Mark, Info: s.Info}
	err := d.db.At(d.strongest()).Update(ctx, func(tx *kv.Tx) (err error) {
		if at.Number, err = d.messages.In(tx).Reserve(); err != nil {
			return err
		}

		return putJSON(staging(tx), s.Namespace, at)
	})
	if err != nil {
		return err
	}
	d.directory.mu.Lock()
	defer d.directory.mu.Unlock()
	d.directory.moving[s.Namespace] = at

	return nil
}

// Fill puts a part of a namespace where it is to be.
func (d *Data) Fill(c Chunk) error {
	d.directory.steps.RLock()
	defer d.directory.steps.RUnlock()
	at, ok := d.at(c.Namespace, c.ID)
	if !ok || !at.Arriving || d.Has(c.Namespace) || len(c.Keys) != len(c.Values) {
		return noMove(c.Namespace)
	}
	parts := d.messages.PartsOf(at.Number)
	if c.Part < 0 || c.Part > len(parts) {
		return noMove(c.Namespace)
	}
	var b holdfast.Batch
	for i, key := range c.Keys {
		if c.Part > 0 {
			key = append(bytes.Clone(parts[c.Part-1]), key...)
		}
		b.Set(key, c.Values[i])
	}

	return holdfast.Commit(d.engine, &b, d.strongest())
}

// adopt makes a namespace of what was put.
func (d *Data) adopt(ctx context.Context, namespace string, at Stage) error {
	if d.Has(namespace) {
		return nil
	}
	err := d.db.At(d.strongest()).Update(ctx, func(tx *kv.Tx) error {
		if err := d.messages.In(tx).Adopt(namespace, at.Number, at.Info.Created); err != nil {
			return err
		}

		return putIn(bucket(tx), at.Info, 0, at.Mark)
	})
	if err == nil {
		d.directory.set(namespace, true)
	}

	return err
}

// drop removes what is here of a namespace that lies elsewhere. Its tokens stay: it is moved, not deleted.
func (d *Data) drop(ctx context.Context, namespace string, at Stage) error {
	if err := d.empty(ctx, namespace); err != nil {
		return err
	}
	if at.Arriving {
		if err := d.messages.Discard(ctx, at.Number); err != nil {
			return err
		}
	}
	var deletion *message.Deletion
	err := d.db.At(d.strongest()).Update(ctx, func(tx *kv.Tx) (err error) {
		if d.Has(namespace) {
			if deletion, err = d.messages.In(tx).Delete(namespace); err != nil {
				return err
			}
		}
		if err := bucket(tx).Delete([]byte(namespace)); err != nil {
			return err
		}

		return staging(tx).Delete([]byte(namespace))
	})
	if err != nil {
		return err
	}
	d.directory.mu.Lock()
	delete(d.directory.here, namespace)
	delete(d.directory.moving, namespace)
	d.directory.mu.Unlock()
	if deletion != nil {
		_, err = deletion.Finish(ctx)
	}

	return err
}

// Leave lets nobody be led to a namespace any more, because it is going to be moved.
func (d *Data) Leave(ctx context.Context, namespace, id string) error {
	d.directory.steps.Lock()
	defer d.directory.steps.Unlock()
	if _, ok := d.at(namespace, id); ok {
		return nil
	}
	if d.IsMoving(namespace) || !d.Has(namespace) {
		return noMove(namespace)
	}

	return d.stage(ctx, namespace, &Stage{ID: id})
}

// Copy copies a namespace that Leave has closed, and that nobody uses.
func (d *Data) Copy(ctx context.Context, namespace, id string, send func(Chunk) error) (err error) {
	if _, ok := d.at(namespace, id); !ok {
		return noMove(namespace)
	}
	if err := d.shut(ctx, namespace); err != nil {
		return err
	}
	if err := d.engine.Sync(); err != nil && !errors.Is(err, holdfast.ErrLevel) {
		return err
	}
	snapshot, err := d.engine.Snapshot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	parts, err := d.messages.Parts(ctx, namespace)
	if err != nil {
		return err
	}
	for i, part := range parts {
		like := Chunk{Namespace: namespace, ID: id, Part: i + 1}
		if err := copyKeys(ctx, snapshot, holdfast.Prefix(part), len(part), like, send); err != nil {
			return err
		}
	}
	logs, err := event.LogsWith(ctx, snapshot, namespace+"/")
	if err != nil {
		return err
	}
	whole := []holdfast.Range{task.Keys(name(namespace, "")), holdfast.Prefix([]byte(optionsPrefix + namespace + "/"))}
	for _, l := range logs {
		whole = append(whole, event.Keys(l.Name))
	}
	for _, part := range whole {
		if err := copyKeys(ctx, snapshot, part, 0, Chunk{Namespace: namespace, ID: id}, send); err != nil {
			return err
		}
	}

	return nil
}

// Chunks have up to so many keys, and about so many bytes.
const (
	chunkKeys  = 10_000
	chunkBytes = 4 << 20
)

// copyKeys sends keys of a snapshot, without so many bytes at their beginning.
func copyKeys(ctx context.Context, from holdfast.Snapshot, in holdfast.Range, without int, like Chunk,
	send func(Chunk) error) error {
	it := from.Scan(in)
	defer it.Close()
	c, size := like, 0
	flush := func() error {
		if len(c.Keys) == 0 {
			return nil
		}
		err := cmp.Or(ctx.Err(), send(c))
		c, size = like, 0

		return err
	}
	for it.Next() {
		key, value := bytes.Clone(it.Key()[without:]), bytes.Clone(it.Value())
		if len(c.Keys) > 0 && (size+len(value) > chunkBytes || len(c.Keys) == chunkKeys) {
			if err := flush(); err != nil {
				return err
			}
		}
		c.Keys, c.Values = append(c.Keys, key), append(c.Values, value)
		size += len(key) + len(value)
	}

	return errors.Join(it.Err(), flush())
}

// shut closes what is open of a namespace, but for its messages.
func (d *Data) shut(ctx context.Context, namespace string) error {
	nothing := func() error { return nil }
	for _, name := range d.subscriptions.names() {
		if strings.HasPrefix(name, namespace+"/") {
			if err := d.subscriptions.remove(ctx, name, nothing); err != nil {
				return err
			}
		}
	}
	for _, n := range d.logs.names() {
		if strings.HasPrefix(n, namespace+"/") {
			if err := d.logs.remove(ctx, n, nothing); err != nil {
				return err
			}
		}
	}

	return d.tasks.remove(ctx, name(namespace, ""), nothing)
}

// empty removes what is in a namespace, but for its messages.
func (d *Data) empty(ctx context.Context, namespace string) error {
	if err := d.forget(ctx, namespace); err != nil {
		return err
	}
	n := name(namespace, "")
	if err := d.tasks.remove(ctx, n, func() error { return task.Delete(ctx, d.engine, n, d.Level()) }); err != nil {
		return err
	}
	// A log that is being opened may not be in the engine yet. What is asked for from now on is not opened.
	logs := slices.DeleteFunc(d.logs.names(), func(n string) bool { return !strings.HasPrefix(n, namespace+"/") })
	there, err := event.LogsWith(ctx, d.engine, namespace+"/")
	if err != nil {
		return err
	}
	for _, l := range there {
		logs = append(logs, l.Name)
	}
	for _, n := range logs {
		if err := d.logs.remove(ctx, n, func() error { return event.Delete(ctx, d.engine, n, d.Level()) }); err != nil {
			return err
		}
	}

	return nil
}
