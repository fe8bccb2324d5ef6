package contender

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// TestTransactions: no update is lost where several clients count, what fails leaves nothing, and a transaction reads
// what it has set.
func TestTransactions(t *testing.T) {
	for _, entry := range Bare() {
		if !Transactional(entry.Name) {
			continue
		}
		t.Run(entry.Name, func(t *testing.T) {
			t.Parallel()
			opened, err := entry.Open(filepath.Join(t.TempDir(), "db"), holdfast.Options{Level: holdfast.Process})
			if err != nil {
				t.Fatal(err)
			}
			e := opened.(TransactionsEngine)
			key := []byte("counter")
			count := func(tx Tx) error {
				value, err := tx.Get(nil, key)
				if errors.Is(err, holdfast.ErrNotFound) {
					value, err = make([]byte, 8), nil
				}
				if err != nil {
					return err
				}
				return tx.Set(key, binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(value)+1))
			}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 25 {
						if err := e.Update(count); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			refused := errors.New("refused")
			err = e.Update(func(tx Tx) error {
				if err := count(tx); err != nil {
					return err
				}
				if value, err := tx.Get([]byte("x"), key); err != nil || len(value) != 9 || value[8] != 201 {
					t.Errorf("it has set %x, %v", value, err)
				}
				return refused
			})
			if !errors.Is(err, refused) {
				t.Errorf("its error is %v", err)
			}
			if value, err := e.Get(nil, key); err != nil || binary.BigEndian.Uint64(value) != 200 {
				t.Errorf("counted %x, %v", value, err)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
