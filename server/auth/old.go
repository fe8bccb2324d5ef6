package auth

import (
	"bytes"
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

// restBucket is in the bucket of tokens while only a part of them is carried over.
const restBucket = "carrying over"

// CarryOver takes over the tokens that earlier versions kept elsewhere, unless that was done before. It is called in
// the transaction that takes them from there, and again in another one as long as there are more than a transaction
// takes, which is about most bytes. takeOwn takes the SHA-256 of the namespaces' own tokens, or some of them. created
// tells when a namespace was made, if there is such a namespace. Others' tokens open nothing, and are removed.
func CarryOver(tx *kv.Tx, most int64, takeOwn func() (tokens map[string]string, more bool, err error),
	created func(string) (time.Time, bool)) (more bool, err error) {
	begun, err := bucket(tx).Exists()
	if err != nil {
		return false, err
	}
	part, err := bucket(tx).Bucket(restBucket).Exists()
	if err != nil || begun && !part {
		return false, err
	}

	more, err = carryOver(tx, most, takeOwn, created)
	switch {
	case err != nil:
	case more:
		err = bucket(tx).Bucket(restBucket).Create()
	case part:
		err = bucket(tx).DeleteBucket(restBucket)
	default:
		err = bucket(tx).Create()
	}

	return more, err
}

func carryOver(tx *kv.Tx, most int64, takeOwn func() (map[string]string, bool, error),
	created func(string) (time.Time, bool)) (more bool, err error) {
	hashes, more, err := takeOwn()
	if err != nil {
		return false, err
	}

	for namespace, sum := range hashes {
		made, _ := created(namespace)
		r := record{SHA256: sum, Namespace: namespace, Role: Admin.String(), Created: made}
		if err := put(tx, ownID(namespace), r); err != nil {
			return false, err
		}
	}
	old := holdfast.Prefix([]byte(oldPrefix))
	it := tx.DB().Engine().Scan(old)
	defer it.Close()

	found := false
	for it.Next() {
		if more = more || tx.Size() >= most; more {
			old.Hi = it.Key()
			break
		}
		found = true
		id := it.Key()[len(oldPrefix):]
		r, err := parse(string(id), it.Value())
		switch {
		case errors.Is(err, holdfast.ErrVersion):
			return false, err
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
			return false, err
		}
	}

	if err := it.Err(); err != nil || !found {
		return more, err
	}
	shared, err := tx.Enter(tx.DB())
	if err == nil {
		shared.Join(oldPrefix, oldKeys{holdfast.Range{Lo: old.Lo, Hi: bytes.Clone(old.Hi)}})
		tx.Leave()
	}

	return more, err
}

// oldKeys is the part of a transaction that deletes the keys of earlier versions.
type oldKeys struct{ in holdfast.Range }

// Prepare implements [txn.Part].
func (old oldKeys) Prepare(b *holdfast.Batch) error {
	b.DeleteRange(old.in.Lo, old.in.Hi)

	return nil
}

// Commit implements [txn.Part].
func (oldKeys) Commit(holdfast.Receipt, holdfast.Level) func() error { return nil }

// Rollback implements [txn.Part].
func (oldKeys) Rollback() func() error { return nil }

var _ txn.Part = oldKeys{}
