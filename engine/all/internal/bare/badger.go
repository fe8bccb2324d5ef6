package bare

import (
	"fmt"
	"strings"
	"sync"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/holdfastdb/holdfast/engine/internal/modversion"
)

// openBadger opens a directory of Badger. Keys are as they are, each with its latest value.
func openBadger(s *Source, copied string, _ Options) error {
	log := &badgerLog{}
	db, err := badger.Open(badger.DefaultOptions(copied).WithLogger(log).WithMetricsEnabled(false).
		WithChecksumVerificationMode(options.OnTableAndBlockRead))
	if err != nil {
		return s.damaged(fmt.Errorf("%s: %w", modversion.Version("github.com/dgraph-io/badger/v4"), err))
	}
	s.close = db.Close
	if err := log.err(); err != nil { // it leaves out a damaged table, says so, and opens
		return s.closing(s.damaged(err))
	}
	s.walk = func(each func(key, value []byte) error) error {
		return db.View(func(tx *badger.Txn) error { return s.badger(tx, log, each) })
	}

	return nil
}

func (s *Source) badger(tx *badger.Txn, log *badgerLog, each func(key, value []byte) error) error {
	expiring, marked := 0, 0
	it := tx.NewIterator(badger.DefaultIteratorOptions)
	defer it.Close()

	for it.Rewind(); it.Valid(); it.Next() {
		item := it.Item()
		if item.ExpiresAt() != 0 {
			expiring++
		}
		if item.UserMeta() != 0 {
			marked++
		}
		var failed error
		if err := item.Value(func(value []byte) error {
			failed = each(item.Key(), value)
			return nil
		}); err != nil {
			return s.damaged(fmt.Errorf("key %.40q: %w", item.Key(), err))
		}
		if failed != nil {
			return failed
		}
	}
	if expiring > 0 {
		s.note("%d keys have a time to live: it is not copied, and they stay", expiring)
	}
	if marked > 0 {
		s.note("%d keys have user metadata: it is not copied", marked)
	}

	return s.damaged(log.err())
}

// closing closes the library after err.
func (s *Source) closing(err error) error {
	_ = s.close()
	return err
}

// badgerLog keeps the first error that the library reports but does not stop at.
type badgerLog struct {
	mu    sync.Mutex
	first error
}

func (l *badgerLog) Errorf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = fmt.Errorf("%s", strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}
func (l *badgerLog) Warningf(string, ...any) {}
func (l *badgerLog) Infof(string, ...any)    {}
func (l *badgerLog) Debugf(string, ...any)   {}

func (l *badgerLog) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.first
}
