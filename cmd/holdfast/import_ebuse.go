package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/server/ebuse"
	"github.com/holdfastdb/holdfast/store/event"
)

type importEbuse struct {
	URL           string   `arg:"" name:"url" help:"Address of a running ebuse, as http://HOST:PORT."`
	Key           string   `help:"API key of the tenant there. Default: $$EBUSE_KEY." placeholder:"K"`
	Subscriptions []string `help:"Also copy the positions of these subscriptions, which ebuse cannot list." placeholder:"ID"`
	target        `embed:""`
}

// Help implements kong's interface for what follows the flags.
func (importEbuse) Help() string {
	return `Copies the events that a tenant has when the import begins, with their positions, into the log "` + ebuse.Log +
		`" of the namespace, and then compares each. It can be interrupted and run again: it continues after the last ` +
		`event that is there.`
}

const (
	ebusePage  = 1000 // positions of one request
	ebuseTries = 6    // of a request, before the import gives up
)

func (c *importEbuse) run() int {
	start := time.Now()
	var done struct {
		last, before, added uint64
		subscriptions       int
	}
	status := importing(func(ctx context.Context, show func(string, ...any)) error {
		return c.open(ctx, func(to *client.Client) (err error) {
			log := to.Namespace(c.Namespace).Log(ebuse.Log)
			if done.before, err = log.Last(ctx); err != nil && !errors.Is(err, holdfast.ErrNotFound) {
				return err
			}
			if done.last, err = c.position(ctx, "/position"); err != nil {
				return err
			}
			if done.added, err = c.copy(ctx, log, done.before, done.last, show); err != nil {
				return err
			}
			if err := c.compare(ctx, log, done.last, show); err != nil {
				return err
			}

			for _, id := range c.Subscriptions {
				at, err := c.position(ctx, "/subscriptions/"+url.PathEscape(id)+"/position")
				if err != nil {
					return err
				}
				if err := log.SaveOffset(ctx, id, min(at, done.last)); err != nil {
					return err
				}
				done.subscriptions++
			}

			return nil
		})
	})
	if status != exitOK {
		return status
	}
	p := newPage(os.Stdout)
	p.line("source\t%s", c.URL)
	p.line("log\t%q of namespace %q in %s", ebuse.Log, c.Namespace, c.Into)
	p.line("events\t%d imported, up to position %d; the log was at %d", done.added, done.last, done.before)
	p.line("subscriptions\t%d", done.subscriptions)
	p.line("verified\tevery event was read back and is the same")
	p.line("took\t%.2f s", time.Since(start).Seconds())

	return fail(p.end())
}

// copy copies the events from behind position after to last, and returns how many.
func (c *importEbuse) copy(ctx context.Context, log *client.Log, after, last uint64, show func(string, ...any)) (
	added uint64, err error) {
	if after > 0 {
		// What is there must be from this source. The comparison finds that out in the end; this does before anything is
		// changed.
		if after > last {
			return 0, differs(fmt.Sprintf("the log %q", ebuse.Log), fmt.Sprintf("it has %d positions, the source has %d",
				after, last))
		}
		if err := c.compareRange(ctx, log, after, after); err != nil {
			return 0, err
		}
	}
	const maxBytes = 4 << 20 // of a commit, about
	var batch bytes.Buffer
	lines, copied := json.NewEncoder(&batch), uint64(0)

	flush := func() error {
		if copied == 0 {
			return nil
		}
		if _, err := log.Import(ctx, &batch); err != nil {
			return err
		}
		added += copied
		copied = 0

		return nil
	}
	for e, err := range c.events(ctx, after+1, last) {
		if err != nil {
			return added, errors.Join(err, flush())
		}
		stored := e.Stored()
		if err := lines.Encode(api.FromNewEvent(&stored)); err != nil {
			return added, err
		}
		if copied++; copied == ebusePage || batch.Len() >= maxBytes {
			if err := flush(); err != nil {
				return added, err
			}
			show("copied: %d of %d events", e.Position, last)
		}
	}

	return added, flush()
}

// compare compares all events up to last with those of the source.
func (c *importEbuse) compare(ctx context.Context, log *client.Log, last uint64, show func(string, ...any)) error {
	for from := uint64(1); from <= last; from += ebusePage {
		if err := c.compareRange(ctx, log, from, min(from+ebusePage-1, last)); err != nil {
			return err
		}
		show("compared: %d of %d events", from, last)
	}

	return nil
}

func (c *importEbuse) compareRange(ctx context.Context, log *client.Log, from, to uint64) error {
	next, stop := iter.Pull2(c.events(ctx, from, to))
	defer stop()

	differ := func(position uint64, detail string) error {
		return differs(fmt.Sprintf("the event at position %d", position), detail)
	}
	for stored, err := range log.Events(ctx, from, int(to-from+1)) {
		if err != nil {
			return err
		}
		if stored.Position > to {
			break
		}
		want, err, ok := next()
		if err != nil {
			return err
		}

		got := ebuse.FromRecord(&event.Record{Position: stored.Position, Time: stored.Time, Type: []byte(stored.Type),
			Metadata: stored.Metadata, Data: stored.Data})
		switch {
		case !ok || want.Position > got.Position:
			return differ(stored.Position, "the source has none there")
		case want.Position < got.Position:
			return differ(uint64(want.Position), "it is missing")
		case got.Type != want.Type:
			return differ(stored.Position, fmt.Sprintf("type %.80q instead of %.80q", got.Type, want.Type))
		case !bytes.Equal(orNull(got.Data), orNull(want.Data)):
			return differ(stored.Position, "other data")
		case !got.Timestamp.Equal(want.Timestamp):
			return differ(stored.Position, fmt.Sprintf("time %v instead of %v", got.Timestamp, want.Timestamp))
		}
	}
	if want, err, ok := next(); err != nil {
		return err
	} else if ok {
		return differ(uint64(want.Position), "it is missing")
	}

	return nil
}

func orNull(data []byte) []byte {
	if len(data) == 0 {
		return []byte("null")
	}

	return data
}

// position asks the source for a position.
func (c *importEbuse) position(ctx context.Context, path string) (uint64, error) {
	var at struct{ Position *int64 }
	err := c.ask(ctx, path, func(body io.Reader) error { return json.NewDecoder(body).Decode(&at) })
	if err == nil && (at.Position == nil || *at.Position < 0) {
		err = fmt.Errorf("%s: it answered without a position", c.URL+path)
	}
	if err != nil {
		return 0, err
	}

	return uint64(*at.Position), nil
}

// events yields the events of the source from one position to another. It reads them in pages that say where they end,
// since ebuse ends a stream that breaks off as if it were whole.
func (c *importEbuse) events(ctx context.Context, from, to uint64) iter.Seq2[ebuse.Event, error] {
	return func(yield func(ebuse.Event, error) bool) {
		for from <= to {
			start, end, stopped := from, min(from+ebusePage-1, to), false
			err := c.ask(ctx, fmt.Sprintf("/events?from=%d&to=%d", start, end), func(body io.Reader) error {
				d := json.NewDecoder(body)
				if t, err := d.Token(); err != nil || t == nil { // null is an empty page
					return err
				} else if t != json.Delim('[') {
					return permanent{errors.New("it answered with something else than a list of events")}
				}

				for least := int64(start); d.More(); {
					var e ebuse.Event
					if err := d.Decode(&e); err != nil {
						return err
					}
					if e.Position < least || e.Position > int64(end) {
						return permanent{fmt.Errorf("it answered with position %d, where those from %d to %d were to come, in order",
							e.Position, least, end)}
					}
					least = e.Position + 1
					if e.Position < int64(from) {
						continue // known from an answer that broke off
					}
					if stopped = !yield(e, nil); stopped {
						return nil
					}
					from = uint64(least)
				}
				_, err := d.Token()

				return err
			})
			if stopped {
				return
			}
			if err != nil {
				yield(ebuse.Event{}, err)
				return
			}
			from = end + 1
		}
	}
}

// permanent is an error that trying again does not mend.
type permanent struct{ error }

// ask makes a request and reads its answer. What may pass, it tries again; read must then go on where it was.
func (c *importEbuse) ask(ctx context.Context, path string, read func(io.Reader) error) (err error) {
	key := c.Key
	if key == "" {
		key = os.Getenv("EBUSE_KEY")
	}

	for try, pause := 1, 100*time.Millisecond; ; try, pause = try+1, 2*pause {
		var again bool
		again, err = c.once(ctx, path, key, read)
		if err == nil || !again || try == ebuseTries || ctx.Err() != nil {
			break
		}

		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	if err != nil {
		err = fmt.Errorf("import %s%s: %w", strings.TrimSuffix(c.URL, "/"), path, err)
	}

	return err
}

// source makes the requests: it waits for the beginning of an answer, which may then take its time.
var source = func() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = time.Minute

	return &http.Client{Transport: t}
}()

func (c *importEbuse) once(ctx context.Context, path, key string, read func(io.Reader) error) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.URL, "/")+path, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("X-API-Key", key)
	res, err := source.Do(req)
	if err != nil {
		if u := (*url.Error)(nil); errors.As(err, &u) { // which repeats the address
			err = u.Err
		}

		return true, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 200))

		return res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 500,
			fmt.Errorf("it answered %s: %s", res.Status, strings.TrimSpace(string(text)))
	}
	err = read(res.Body)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	var never permanent
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError

	return !errors.As(err, &never) && !errors.As(err, &syntax) && !errors.As(err, &kind), err
}
