package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
)

// eventType is the type of the events, as the first study had it.
const eventType = "BenchEvent"

// errEnough is the end of a client: all events that are wanted are there, or on their way.
var errEnough = errors.New("all events were appended")

// eventLog is the log that the workers of one measurement append to. Each event has a number of its own, from 0 on.
type eventLog struct {
	batch  int   // events of one operation
	wanted int64 // in all, 0 for no limit
	before int64 // the last position of the log before them

	taken    atomic.Int64 // numbers that were given to a worker
	appended atomic.Int64 // events that were acknowledged
}

// append appends the next n events, fewer at the end, by one request.
func (w *worker) append(n int) error {
	l := w.log
	first := l.taken.Add(int64(n)) - int64(n)
	if l.wanted > 0 {
		if n = int(min(int64(n), l.wanted-first)); n <= 0 {
			return errEnough
		}
	}

	b, path := w.body[:0], "/events"
	if n > 1 {
		b, path = append(b, '['), "/events/batch"
	}
	for i := range int64(n) {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, `{"type":"`+eventType+`","data":{"index":`...), first+i, 10)
		b = append(b, `},"timestamp":"2026-01-02T03:04:05.678901234Z"}`...)
	}
	if n > 1 {
		b = append(b, ']')
	}
	w.body = b
	_, err := w.write(path, b)
	if err == nil {
		l.appended.Add(int64(n))
	}

	return err
}

// lastPosition is that of the log.
func lastPosition(c *conn) (int64, error) {
	var last struct {
		Position int64 `json:"position"`
	}
	a, err := c.ask("GET", "/position", nil)
	if err == nil {
		err = json.Unmarshal(a.body, &last)
	}

	return last.Position, err
}

// readPage is how many events are read back at a time: as many as servers of this API answer where no end is named.
const readPage = 10_000

// readBack reads all events of the log that are behind those before, in pages, and compares: each position follows the
// one before, and each event that was acknowledged is there once. Nothing else may be there.
func (l *eventLog) readBack(c *conn) error {
	n := l.appended.Load()
	seen, at := make([]bool, l.taken.Load()), l.before

	for {
		// Both ends are named: ebuse on Pebble has no events from a position on without an end.
		a, err := c.ask("GET", fmt.Sprintf("/events?from=%d&to=%d", at+1, at+readPage), nil)
		if err != nil {
			return err
		}
		var page []struct {
			Position int64  `json:"position"`
			Type     string `json:"type"`
			Data     struct {
				Index int64 `json:"index"`
			} `json:"data"`
		}
		if err := json.Unmarshal(a.body, &page); err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}

		for _, e := range page {
			if at++; e.Position != at {
				return fmt.Errorf("position %d follows %d", e.Position, at-1)
			}
			if i := e.Data.Index; e.Type != eventType || i < 0 || i >= int64(len(seen)) || seen[i] {
				return fmt.Errorf("the event at position %d, %q with index %d, is there twice or was never appended", at, e.Type, i)
			}
			seen[e.Data.Index] = true
		}
	}
	if there := at - l.before; there != n {
		return fmt.Errorf("%d events were acknowledged, and %d are there", n, there)
	}

	return nil
}
