package contender

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	dgraph "github.com/dgraph-io/badger/v4"
	"go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
)

// Tx is a transaction that reads and writes keys.
type Tx interface {
	// Get appends the value to dst; the error is ErrNotFound if there is none.
	Get(dst, key []byte) ([]byte, error)
	// Set sets a key. Both slices must not change before the transaction ends.
	Set(key, value []byte) error
}

// TransactionsEngine is a peer whose transactions read, as those of package kv do. All methods may be called from many
// goroutines at once.
type TransactionsEngine interface {
	holdfast.Engine
	// Update calls f, perhaps several times, and commits what the last call has set, as if all transactions ran one
	// after another. It returns when that survives what the peer was opened for, or f's error and nothing is set.
	Update(f func(tx Tx) error) error
}

// Transactional reports whether the peer of that name has transactions that read.
func Transactional(name string) bool {
	return slices.ContainsFunc(bareLibraries, func(l bareLibrary) bool { return l.name == name && l.transactions })
}

// bareUpdater is a bareStore that has transactions.
type bareUpdater interface {
	update(f func(tx Tx) error) error
}

// bareTransactions is a bare library that has transactions.
type bareTransactions struct {
	*bareEngine
	updater bareUpdater
}

// Update implements [TransactionsEngine].
func (e bareTransactions) Update(f func(tx Tx) error) error {
	return e.counts.commit(e.fail("update", e.updater.update(f)))
}

// bboltTx is a transaction of bbolt.
type bboltTx struct{ bucket *bbolt.Bucket }

func (s bareBbolt) update(f func(tx Tx) error) error {
	return s.commit(func(tx *bbolt.Tx) error { return f(bboltTx{tx.Bucket(bareBucket)}) })
}

// Get implements [Tx].
func (t bboltTx) Get(dst, key []byte) ([]byte, error) {
	value := t.bucket.Get(key)
	if value == nil {
		return dst, holdfast.ErrNotFound
	}
	return append(dst, value...), nil
}

// Set implements [Tx].
func (t bboltTx) Set(key, value []byte) error { return t.bucket.Put(key, value) }

// badgerTx is a transaction of Badger.
type badgerTx struct{ *dgraph.Txn }

// update does again what conflicts with others, as Badger's documentation has it.
func (s bareBadger) update(f func(tx Tx) error) error {
	for {
		err := s.db.Update(func(tx *dgraph.Txn) error { return f(badgerTx{tx}) })
		if !errors.Is(err, dgraph.ErrConflict) {
			return err
		}
	}
}

// Get implements [Tx].
func (t badgerTx) Get(dst, key []byte) (value []byte, err error) {
	item, err := t.Txn.Get(key)
	if errors.Is(err, dgraph.ErrKeyNotFound) {
		return dst, holdfast.ErrNotFound
	}
	if err != nil {
		return dst, err
	}
	value = dst
	err = item.Value(func(v []byte) error {
		value = append(dst, v...)
		return nil
	})
	return value, err
}

// sqliteTx is a transaction of SQLite.
type sqliteTx struct{ *bareSQLite }

// update has the one connection that writes; who waits for it does so in Go, without SQLite's busy timeout.
func (s *bareSQLite) update(f func(tx Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inTransaction(func() error { return f(sqliteTx{s}) })
}

// inTransaction runs f in a transaction of the writing connection, which is the caller's.
func (s *bareSQLite) inTransaction(f func() error) (err error) {
	ctx := context.Background()
	if _, err := s.begin.ExecContext(ctx); err != nil {
		return err
	}
	end := s.rollback
	defer func() { // also of one that panics
		_, ended := end.ExecContext(ctx)
		err = errors.Join(err, ended)
	}()
	if err = f(); err == nil {
		end = s.commit
	}
	return err
}

// Get implements [Tx].
func (t sqliteTx) Get(dst, key []byte) ([]byte, error) { return readRow(t.own, dst, key) }

// Set implements [Tx].
func (t sqliteTx) Set(key, value []byte) error {
	_, err := t.set.ExecContext(context.Background(), key, value)
	return err
}

// readRow appends the value that a statement finds for a key to dst.
func readRow(s *sql.Stmt, dst, key []byte) ([]byte, error) {
	var value sql.RawBytes
	rows, err := s.Query(key)
	if err != nil {
		return dst, err
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return dst, err
		}
		return dst, holdfast.ErrNotFound
	}
	if err := rows.Scan(&value); err != nil {
		return dst, err
	}
	return append(dst, value...), nil
}
