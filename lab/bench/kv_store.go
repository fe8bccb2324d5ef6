package bench

import (
	"errors"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
)

// kvStore is an engine under test that is given keys; for null, none.
type kvStore struct {
	task     Task
	engine   holdfast.Engine
	volatile bool         // nothing is left after Close
	bytes    atomic.Int64 // of keys and values that clients have put
}

// open opens the engine.
func (s *kvStore) open() (err error) {
	if s.engine, err = s.task.Open(); err == nil {
		s.volatile = s.engine.Capabilities().Strongest() == holdfast.Memory
	}

	return err
}

// settle makes what fill puts, at the weakest level, safe, and closes the engine and opens it again, so that no engine
// reads from its write buffers what another reads from its files. On an error the engine is closed.
func (s *kvStore) settle(fill func(holdfast.Level) error) error {
	err := fill(weakest(s.engine, s.task.Level))
	if err == nil {
		if err = s.engine.Sync(); s.volatile && errors.Is(err, holdfast.ErrLevel) {
			err = nil
		}
	}
	if err == nil {
		err = s.task.compact(s.engine)
	}
	if err != nil || !s.volatile {
		err = errors.Join(err, s.engine.Close())
	}
	if err != nil || s.volatile {
		return err
	}
	if err := s.task.cool(); err != nil {
		return err
	}
	s.engine, err = s.task.Open()

	return err
}

// weakest is the weakest level that the engine does not refuse; otherwise if it refuses all.
func weakest(e holdfast.Engine, otherwise holdfast.Level) holdfast.Level {
	if levels := e.Capabilities().Levels(); len(levels) > 0 {
		return levels[0]
	}

	return otherwise
}

// load is a load without clients. Its Verify compares all that is there: items tells how many that should be, and
// compare reads them. No client may be at work then.
func (s *kvStore) load(items func() int64, compare func(holdfast.Reader) (int64, error)) Load {
	return Load{
		Metrics: func() holdfast.Metrics {
			if s.engine == nil {
				return holdfast.UnknownMetrics()
			}

			return s.engine.Metrics()
		},
		Close: func() error {
			if s.engine == nil {
				return nil
			}

			return s.engine.Close()
		},
		Put:      s.bytes.Load,
		Volatile: s.volatile,
		Verify: func() (n, checked int64, err error) {
			n = items()
			switch {
			case s.engine == nil:
				return n, 0, nil
			case s.volatile:
				checked, err = compare(s.engine)
				return n, checked, err
			}
			engine, err := s.task.Open()
			if err != nil {
				return n, 0, wrong(err)
			}
			checked, err = compare(engine)

			return n, checked, errors.Join(err, engine.Close())
		},
	}
}
