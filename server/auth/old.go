package auth

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/txn"
	"github.com/holdfastdb/holdfast/kv"
)

// Earlier versions kept a further token in one key of the engine:
//
//	's' 0 't' ID      version (1 byte, 1), then a record as JSON
//
// whose record had the time when the token's namespace was made, too: a token of an earlier namespace of the same id
// was none.
const oldPrefix = "s\x00t"

// CarryOver takes over the tokens that earlier versions kept elsewhere, unless that was done before. It is called in
// the transaction that takes them from there: takeOwn takes the SHA-256 of the namespaces' own tokens. created tells
// when a namespace was made, if there is such a namespace. Others' tokens open nothing, and are removed.
func CarryOver(tx *kv.Tx, takeOwn func() (map[string]string, error), created func(string) (time.Time, bool)) error {
	if done, err := bucket(tx).Exists(); done || err != nil {
		return err
	}
	if err := bucket(tx).Create(); err != nil {
		return err
	}
	hashes, err := takeOwn()
	if err != nil {
		return err
	}

	for namespace, sum := range hashes {
		made, _ := created(namespace)
		r := record{SHA256: sum, Namespace: namespace, Role: Admin.String(), Created: made}
		if err := put(tx, ownID(namespace), r); err != nil {
			return err
		}
	}
	it := tx.DB().Engine().Scan(holdfast.Prefix([]byte(oldPrefix)))
	defer it.Close()

	found := false
	for it.Next() {
		found = true
		id := it.Key()[len(oldPrefix):]
		r, err := parse(string(id), it.Value())
		switch {
		case errors.Is(err, holdfast.ErrVersion):
			return err
		case err == nil && r.Namespace != Everywhere:
			var old struct {
				NamespaceCreated time.Time `json:"namespaceCreated"`
			}
			made, there := created(r.Namespace)
			if json.Unmarshal(it.Value()[1:], &old) != nil || !there || !made.Equal(old.NamespaceCreated) {
				continue
			}
		} // what cannot be read is listed as such, and can be revoked
		if err := bucket(tx).Put(id, it.Value()); err != nil {
			return err
		}
	}

	if err := it.Err(); err != nil || !found {
		return err
	}
	shared, err := tx.Enter(tx.DB())
	if err == nil {
		shared.Join(oldPrefix, oldKeys{})
		tx.Leave()
	}

	return err
}

// oldKeys is the part of a transaction that deletes the keys of earlier versions.
type oldKeys struct{}

// Prepare implements [txn.Part].
func (oldKeys) Prepare(b *holdfast.Batch) error {
	r := holdfast.Prefix([]byte(oldPrefix))
	b.DeleteRange(r.Lo, r.Hi)

	return nil
}

// Commit implements [txn.Part].
func (oldKeys) Commit(holdfast.Receipt, holdfast.Level) func() error { return nil }

// Rollback implements [txn.Part].
func (oldKeys) Rollback() func() error { return nil }

var _ txn.Part = oldKeys{}
