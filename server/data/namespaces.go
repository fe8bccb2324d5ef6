package data

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/store/message"
)

// The namespaces are kept in a bucket of the database, called namespaces in the bucket holdfast, by their ids. A value
// is a version (1 byte, now 1) and a record as JSON. The message store has a namespace of the same id, and package auth
// their tokens: all of it is made, and deleted, in one transaction.
const version = 1

// record is what is kept of a namespace.
type record struct {
	Description string          `json:"description"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	Created     time.Time       `json:"created"`
	Space       int             `json:"space,omitempty"` // where it lies, in the list of those that are elsewhere
	Mark        string          `json:"mark,omitempty"`  // see Spaces
}

func bucket(tx *kv.Tx) *kv.Bucket { return tx.Bucket("holdfast", "namespaces") }

func put(tx *kv.Tx, info message.Info) error { return putIn(bucket(tx), info, 0, "") }

// parse reads what is kept of a namespace.
func parse(id, value []byte) (message.Info, error) {
	r, err := read(id, value)

	return message.Info{ID: string(id), Description: r.Description, Metadata: r.Metadata, Created: r.Created}, err
}

func read(id, value []byte) (r record, err error) {
	class, remedy := holdfast.ErrCorrupt, "check the engine's files, or restore a backup"
	switch {
	case len(value) == 0 || value[0] == 0:
		err = errors.New("it has no version")
	case value[0] > version:
		err = fmt.Errorf("it has version %d, this program knows %d", value[0], version)
		class, remedy = holdfast.ErrVersion, "use a newer holdfast"
	default:
		err = json.Unmarshal(value[1:], &r)
	}
	if err != nil {
		err = &holdfast.Error{Op: "namespace", Class: class, Cause: err, Remedy: remedy,
			Detail: fmt.Sprintf("the description of %q cannot be read", id)}
	}

	return r, err
}

// openTokens opens the tokens, and makes the list of namespaces what the message store has: that is how directories of
// earlier versions are taken over, and what was done without a server. What earlier versions kept in the message store
// and beside it is carried over by the same transaction, or, if that is much, by several: one that is opened in between
// goes on there.
func openTokens(db *kv.DB, messages *message.Store) (*auth.Tokens, error) {
	there := func(tx *kv.Tx, namespace string) error {
		_, err := messages.In(tx).Info(namespace)
		if errors.Is(err, message.ErrNoNamespace) {
			if other, wrong := listed(tx, namespace); other || wrong != nil {
				return wrong
			}
		}

		return err
	}
	// Descriptions that are damaged do not keep the others from being opened.
	list, err := messages.Namespaces(context.Background(), "", 0)
	if err != nil && !errors.Is(err, holdfast.ErrCorrupt) {
		return nil, err
	}
	made := map[string]time.Time{}
	for _, info := range list {
		made[info.ID] = info.Created
	}
	created := func(namespace string) (time.Time, bool) {
		at, ok := made[namespace]
		return at, ok
	}

	most := min(1<<20, db.Engine().Capabilities().MaxBatchSize/4) // of each of the two that write
	for more := true; more; {
		err := db.Update(context.Background(), func(tx *kv.Tx) error {
			for ; len(list) > 0; list = list[1:] {
				if more = tx.Size() >= most; more {
					return nil
				}
				_, err := bucket(tx).Get([]byte(list[0].ID))
				if errors.Is(err, holdfast.ErrNotFound) {
					err = put(tx, list[0])
				}
				if err != nil {
					return err
				}
			}

			for key := range bucket(tx).All() {
				if _, ok := made[string(key)]; ok || !errors.Is(there(tx, string(key)), message.ErrNoNamespace) {
					continue
				}
				if err := forget(tx, string(key)); err != nil {
					return err
				}
			}
			takeOwn := func() (map[string]string, bool, error) { return messages.In(tx).TakeTokens(int(most)) }
			more, err = auth.CarryOver(tx, most, takeOwn, created)

			return err
		})
		if err != nil {
			return nil, err
		}
	}

	return auth.Open(db, there)
}

// forget removes a namespace from the list, and its tokens.
func forget(tx *kv.Tx, namespace string) error {
	if err := bucket(tx).Delete([]byte(namespace)); err != nil {
		return err
	}

	return auth.RemoveAll(tx, namespace)
}

// Create makes a namespace with a token of its own, "" for none: both are there, or neither. Errors are those of
// [message.Store.Create].
func (d *Data) Create(ctx context.Context, o message.NamespaceOptions, token string) (info message.Info, err error) {
	done, err := d.alone(ctx, o.ID)
	if err != nil {
		return info, err
	}
	defer done()
	if space := d.choose(); space > 0 {
		return d.createIn(ctx, space, o, token)
	}
	defer d.tokens.Changed()
	err = d.db.Update(ctx, func(tx *kv.Tx) error {
		if there, err := listed(tx, o.ID); there || err != nil {
			return cmp.Or(err, exists(o.ID))
		}
		info, err = d.messages.In(tx).Create(message.NamespaceOptions{ID: o.ID}) // which the bucket describes
		if err == nil {
			err = d.messages.Check(o)
		}
		if err != nil {
			return err
		}
		info.Description, info.Metadata = o.Description, o.Metadata
		if err := put(tx, info); err != nil || token == "" {
			return err
		}

		return auth.AddOwn(tx, o.ID, token)
	})
	if err != nil {
		return message.Info{}, err
	}
	d.directory.set(o.ID, true)

	return info, nil
}

// deleteLast deletes a namespace, in which there are messages at most, and its tokens.
func (d *Data) deleteLast(ctx context.Context, namespace string) (messages int64, err error) {
	var deletion *message.Deletion
	err = d.db.Update(ctx, func(tx *kv.Tx) error {
		if deletion, err = d.messages.In(tx).Delete(namespace); err != nil {
			return err
		}

		return forget(tx, namespace)
	})
	d.tokens.Changed() // nobody comes in while what was in it is removed
	if err != nil {
		return 0, err
	}
	d.directory.set(namespace, false)

	return deletion.Finish(ctx)
}

// Info describes a namespace. ErrNoNamespace: there is none of that id.
func (d *Data) Info(ctx context.Context, namespace string) (info message.Info, err error) {
	info, err = d.messages.Info(ctx, namespace) // says what is wrong with the id
	if err != nil {
		return info, err
	}
	err = d.db.Latest(ctx, func(tx *kv.Tx) error {
		value, err := bucket(tx).Get([]byte(namespace))
		if err == nil {
			info, err = parse([]byte(namespace), value)
		}

		return err
	})
	if errors.Is(err, holdfast.ErrNotFound) { // it was just deleted
		_, err = d.messages.Info(ctx, namespace)
	}

	return info, err
}

// Namespaces describes up to limit namespaces, in the order of their ids, from the first that comes after the id after
// on. A limit of 0 means all; one below is ErrBadOption. An error that is ErrCorrupt names those whose description is
// damaged; the others are listed all the same.
func (d *Data) Namespaces(ctx context.Context, after string, limit int) (list []message.Info, err error) {
	if limit < 0 {
		return nil, &holdfast.Error{Op: "namespaces", Class: holdfast.ErrBadOption, Remedy: "use 0 for all",
			Detail: fmt.Sprint("the limit is ", limit)}
	}
	var damaged []error
	err = d.db.Latest(ctx, func(tx *kv.Tx) error {
		for key, value := range bucket(tx).Range(holdfast.Range{Lo: append([]byte(after), 0)}) {
			if limit > 0 && len(list) == limit {
				break
			}
			info, err := parse(key, value)
			if err != nil {
				damaged = append(damaged, err)
				continue
			}
			list = append(list, info)
		}

		more := 0
		for key, value := range elsewhere(tx).Range(holdfast.Range{Lo: append([]byte(after), 0)}) {
			if limit > 0 && more == limit {
				break
			}
			info, err := parse(key, value)
			if err != nil {
				damaged = append(damaged, err)
				continue
			}
			list = append(list, info)
			more++
		}
		if more > 0 { // one that is being moved may be in both
			sorted(list)
			list = slices.CompactFunc(list, func(a, b message.Info) bool { return a.ID == b.ID })
		}

		return nil
	})
	if limit > 0 && len(list) > limit {
		list = list[:limit]
	}

	return list, errors.Join(append(damaged, err)...)
}
