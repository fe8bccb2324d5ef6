package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/store/event"
)

type eventCommand struct {
	List     eventList     `cmd:"" help:"List the logs, with their subscriptions."`
	Cat      eventCat      `cmd:"" help:"Show the events of a log."`
	Tail     eventTail     `cmd:"" help:"Show new events of a log as they come."`
	Append   eventAppend   `cmd:"" help:"Append events: one per argument, or per line of standard input."`
	Export   eventExport   `cmd:"" help:"Write the events of a log as lines of JSON."`
	Import   eventImport   `cmd:"" help:"Import events written by export. They keep their positions."`
	Truncate eventTruncate `cmd:"" help:"Remove the events before a position."`
	Delete   eventDelete   `cmd:"" help:"Delete a log and everything in it."`
}

type eventList struct{ inPlace }

func (c *eventList) run() int {
	return c.reading(func(s *session) error {
		logs, err := s.client.Namespace(c.Namespace).Logs(s.ctx)
		if err != nil {
			return err
		}
		if s.json {
			return s.document(logs)
		}

		t := columns("log", "first#", "last#", "subscription", "at#", "behind#")
		for _, l := range logs {
			t.Row("", l.Name, num(l.First), num(l.Last), "-", "-", "-")

			for _, sub := range l.Subscriptions {
				t.Row("", l.Name, num(l.First), num(l.Last), sub.Name, num(sub.Position), num(sub.Lag))
			}
		}
		s.table(t)

		return nil
	})
}

type eventCat struct {
	inPlace
	Log   string `arg:"" help:"The log."`
	From  uint64 `help:"First position to show." default:"0" placeholder:"N"`
	Limit uint32 `help:"Maximum number of events; 0 for all." default:"0" placeholder:"N"`
}

func (c *eventCat) run() int {
	return c.reading(func(s *session) error {
		l := s.client.Namespace(c.Namespace).Log(c.Log)
		from := c.From
		if from == 0 { // what is truncated is no error unless it is asked for
			i, err := l.Info(s.ctx)
			if err != nil {
				return err
			}
			from = i.First
		}

		return s.events(l.Events(s.ctx, from, int(c.Limit)), false)
	})
}

type eventTail struct {
	inPlace
	Log  string `arg:"" help:"The log."`
	Last uint64 `help:"Show this many existing events first." default:"0" placeholder:"N"`
}

func (c *eventTail) run() int {
	if err := c.noDir("tail"); err != nil {
		return failTool(err)
	}

	return c.with(func(s *session) error {
		l := s.client.Namespace(c.Namespace).Log(c.Log)
		i, err := l.Info(s.ctx)
		if err != nil {
			return err
		}
		from := i.Last + 1 - min(c.Last, i.Last)

		return s.events(l.Follow(s.ctx, max(from, i.First)), true)
	})
}

// events shows events.
func (s *session) events(seq iter.Seq2[event.Event, error], live bool) error {
	return show(s, seq, live, api.FromEvent, func(e *event.Event) string {
		return fmt.Sprintf("%d  %s  %s  %s", e.Position, when(e.Time), cmp.Or(text([]byte(e.Type)), "-"), text(e.Data))
	})
}

type eventAppend struct {
	inPlace
	levelFlag
	Log   string   `arg:"" help:"The log."`
	Data  []string `arg:"" optional:"" help:"The data of each event. Default: the lines of standard input."`
	Type  string   `help:"Type of the events." placeholder:"TYPE"`
	After *uint64  `help:"Append only if this is the last position of the log, and append all events at once." placeholder:"N"`
}

func (c *eventAppend) run() int {
	return c.with(func(s *session) error {
		l := s.client.Namespace(c.Namespace).Log(c.Log)
		var done api.Appended
		var events []event.Event
		add := func(data []byte, last bool) (err error) {
			if !last {
				events = append(events, event.Event{Type: c.Type, Data: bytes.Clone(data), Time: time.Now()})
			}
			if len(events) == 0 || !last && (len(events) < appendBatch || c.After != nil) {
				return nil
			}
			var r event.Result
			if c.After != nil {
				r, err = l.AppendAfter(c.ctx(s), *c.After, events...)
			} else {
				r, err = l.Append(c.ctx(s), events...)
			}

			switch {
			case err != nil && done.Last > 0:
				return fmt.Errorf("events were appended up to position %d; then: %w", done.Last, err)
			case err != nil:
				return err
			case done.Last == 0:
				done.First = r.First
			}
			done.Last, events = r.Last, events[:0]

			return nil
		}
		var err error
		if len(c.Data) == 0 {
			err = lines(os.Stdin, add)
		}

		for i := 0; err == nil && i < len(c.Data); i++ {
			err = add([]byte(c.Data[i]), false)
		}
		if err == nil {
			err = add(nil, true)
		}

		switch {
		case err != nil:
			return err
		case done.Last == 0:
			return placeError("there are no events", "give their data as arguments, or as lines of the standard input")
		}

		return s.said(done, "positions %d to %d", done.First, done.Last)
	})
}

const (
	appendBatch = 500      // events in one request, at most
	maxLine     = 96 << 20 // bytes
)

// lines calls f for each line that is not empty.
func lines(r io.Reader, f func(line []byte, last bool) error) error {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 64<<10), maxLine)

	for in.Scan() {
		if len(in.Bytes()) == 0 {
			continue
		}
		if err := f(in.Bytes(), false); err != nil {
			return err
		}
	}

	return in.Err()
}

type eventExport struct {
	inPlace
	Log    string `arg:"" help:"The log."`
	Output string `short:"o" help:"New file to write to. Default: standard output." placeholder:"FILE"`
}

func (c *eventExport) run() int {
	return c.reading(func(s *session) error {
		l := s.client.Namespace(c.Namespace).Log(c.Log)
		if _, err := l.Info(s.ctx); err != nil { // before there is a file
			return err
		}
		w, done, err := s.file(c.Output)
		if err != nil {
			return err
		}
		n, err := l.Export(s.ctx, w)
		if err := done(err); err != nil || w == io.Writer(s.out) {
			return err
		}

		return s.said(api.Counted{Count: int(n)}, "%d events in %s", n, c.Output)
	})
}

type eventImport struct {
	inPlace
	levelFlag
	Log   string `arg:"" help:"The log."`
	Input string `arg:"" optional:"" help:"File to read, optionally compressed. Default: standard input."`
	Renew bool   `help:"Append at new positions at the end of the log. Events without an id are appended each time."`
}

// Help implements kong's interface for what follows the flags.
func (eventImport) Help() string {
	return "Events that are already in the log are skipped, so an import can be repeated."
}

func (c *eventImport) run() int {
	return c.with(func(s *session) error {
		l := s.client.Namespace(c.Namespace).Log(c.Log)
		r, err := reader(c.Input)
		if err != nil {
			return err
		}
		defer r.Close()
		if !c.Renew {
			done, err := l.Import(c.ctx(s), r)
			if err != nil {
				return err
			}

			return s.said(done, "%d events imported, %d were there", done.Imported, done.Known)
		}
		var done api.Imported
		var batch []event.Event
		at := int64(0)
		add := func(events ...event.Event) error {
			r, err := l.Append(c.ctx(s), events...)
			if err != nil {
				return err
			}
			if r.Repeated {
				done.Known += int64(len(events))
			} else {
				done.Imported += int64(len(events))
			}
			done.Last = max(done.Last, int64(r.Last))

			return nil
		}
		flush := func() error {
			if len(batch) == 0 {
				return nil
			}
			err := add(batch...)
			if errors.Is(err, event.ErrPartialRepeat) { // an earlier import had other batches
				err = nil
				for _, e := range batch {
					if err = add(e); err != nil {
						break
					}
				}
			}
			batch = batch[:0]
			if err != nil {
				return fmt.Errorf("up to line %d: %w", at, err)
			}

			return nil
		}
		err = lines(r, func(line []byte, _ bool) error {
			at++
			var e api.Event
			if err := json.Unmarshal(line, &e); err != nil {
				return errors.Join(flush(), &holdfast.Error{Op: "import", Class: event.ErrBadEvent, Cause: err,
					Detail: fmt.Sprintf("line %d", at)})
			}
			// All events of an append have ids, or none has.
			if len(batch) == appendBatch || len(batch) > 0 && (batch[0].ID == "") != (e.ID == "") {
				if err := flush(); err != nil {
					return err
				}
			}
			batch = append(batch, e.Store())

			return nil
		})
		if err == nil {
			err = flush()
		}
		if err != nil {
			return err
		}

		return s.said(done, "%d events imported, %d were there", done.Imported, done.Known)
	})
}

type eventTruncate struct {
	inPlace
	Log    string `arg:"" help:"The log."`
	Before uint64 `required:"" help:"First position to keep." placeholder:"N"`
}

func (c *eventTruncate) run() int {
	return c.with(func(s *session) error {
		n, err := s.client.Namespace(c.Namespace).Log(c.Log).TruncateBefore(s.ctx, c.Before)
		if err != nil {
			return err
		}

		return s.said(api.Removed{Removed: int64(n)}, "%d positions removed", n)
	})
}

type eventDelete struct {
	inPlace
	Log string `arg:"" help:"The log."`
}

func (c *eventDelete) run() int {
	return c.with(func(s *session) error {
		if err := s.client.Namespace(c.Namespace).Log(c.Log).Delete(s.ctx); err != nil {
			return err
		}

		return s.said(struct{}{}, "log %q deleted", c.Log)
	})
}
